"""Window joins of which only Spark can evaluate a condition, where rows without a match count: in batch.

    kernel -> candidates -> Spark's verdict on each -> finish -> results

What has no match is known only after Spark has judged what the kernel found.  So the kernel of a cell gives candidates
in an order in which a second stage, in the same task, can decide: blocks of matches of the core, each followed by the
rows that may complete them, and in the end the rows of kept inputs once more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.layout import BLOCK, CELL, MATCH, RECORD, ROW, VERDICT, columns_of, input_payload
from dovetail.columns.segments import concat, nulls
from dovetail.families.window.completion import CompletingKernel
from dovetail.families.window.encode import Index
from dovetail.families.window.eviction import NEVER
from dovetail.families.window.indexes import PartialMatches
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.stream import NewRows

IS_MATCH = -1
"""A record that is a match of the core.  Other records have the number of an extra input, whose row may complete
a match, or that of a kept input, whose row they are."""
MATCHED = -1
"""The block of the rows of kept inputs, after all others of a cell."""


def candidate_columns(spec: WindowJoinSpec) -> list[tuple[str, pa.DataType]]:
    """What leaves the kernel: the payload of every input, what the record is, and which rows of kept inputs it has."""
    columns = [
        (name, kind)
        for side in spec.sides
        for name, kind in zip(columns_of(input_payload(side), spec.payload[side]), spec.types[side], strict=True)
    ]
    columns += [(RECORD, pa.int32()), (CELL, pa.int64()), (BLOCK, pa.int64()), (MATCH, pa.int64())]
    return columns + [(name, pa.int64()) for name in columns_of(ROW, len(spec.preserved))]


@dataclass
class CandidateKernel(CompletingKernel):
    """The kernel of one cell of static inputs: every candidate, for Spark to judge."""

    @property
    def slides(self) -> bool:
        """Not in the order of time: Spark judges the candidates of a cell together."""
        return False

    def results(self) -> Iterator[pa.RecordBatch]:
        """Blocks of matches and of rows that may complete them, then the rows of kept inputs."""
        spec = self.spec
        # Cells of one task come one after the other: any number tells them apart.
        self._cell = uuid.uuid4().int >> 65
        began = time.perf_counter_ns()
        new = [self._new_rows(side) for side in spec.sides]
        block = 0
        before = [-NEVER] * len(new)
        for search, matches, _ in self._closed(new, [[] for _ in new], before, [NEVER] * len(new)):
            block += 1
            size = next(iter(matches.values())).size
            self.counters["candidates"] += size
            yield self._records(search.inputs, matches, IS_MATCH, block, np.arange(size))
            for extra in spec.extras:
                for numbers, rows in search.completions(matches, extra):
                    found = {side: of[numbers] for side, of in matches.items()}
                    self.counters["candidates"] += numbers.size
                    if numbers.size:
                        yield self._records(search.inputs, {**found, extra: rows}, extra, block, numbers)
        yield from self._alone(new, block + 1)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000

    def _alone(self, new: list[NewRows | None], block: int) -> Iterator[pa.RecordBatch]:
        """Rows that no other completes for want of a key, and those of kept inputs."""
        spec = self.spec
        for side in spec.reported:
            lacking = [rows.select(range(spec.payload[side])) for rows in self._null_key_rows[side]]
            if side not in spec.preserved:
                for at, rows in enumerate(lacking):
                    yield self._laid_out({side: rows}, IS_MATCH, block + at, np.arange(rows.num_rows), {})
                continue
            parts = [(rows, np.full(rows.num_rows, MATCHED)) for rows in lacking]
            arrived = new[side]
            if arrived is not None:
                rows = arrived.segment.rows.select(range(spec.payload[side]))
                parts.append((rows, np.arange(rows.num_rows)))
            for rows, numbers in parts:
                yield self._laid_out({side: rows}, side, MATCHED, numbers, {side: numbers})

    def _records(
        self, inputs: list[Any], matches: PartialMatches, kind: int, block: int, numbers: Index
    ) -> pa.RecordBatch:
        payload = {side: inputs[side].take(range(self.spec.payload[side]), rows) for side, rows in matches.items()}
        kept = {side: matches[side] for side in self.spec.preserved}
        return self._laid_out(payload, kind, block, numbers, kept)

    def _laid_out(
        self, payload: dict[int, pa.RecordBatch], kind: int, block: int, numbers: Index, kept: dict[int, Index]
    ) -> pa.RecordBatch:
        spec, count = self.spec, numbers.size
        columns: list[pa.Array[Any]] = []
        for side in spec.sides:
            columns += payload[side].columns if side in payload else [nulls(count, of) for of in spec.types[side]]
        columns += [pa.array(np.full(count, kind), pa.int32()), pa.array(np.full(count, self._cell), pa.int64())]
        columns += [pa.array(np.full(count, block), pa.int64()), pa.array(numbers, pa.int64())]
        columns += [pa.array(kept.get(side, np.zeros(count, np.int64)), pa.int64()) for side in spec.preserved]
        return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in candidate_columns(spec)])


@dataclass(frozen=True)
class FinishStage:
    """Candidates with Spark's verdicts in; the results of the join out, as other kernels give them."""

    spec: WindowJoinSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        waiting: list[pa.RecordBatch] = []
        place: tuple[int, int] | None = None
        matched: dict[int, list[Index]] = {}
        for batch in batches:
            for cell, block, part in _blocks(batch):
                if place is not None and (cell, block) != place:
                    yield from self._finished(concat(waiting), matched)
                    waiting = []
                    if cell != place[0]:
                        matched = {}
                place = cell, block
                waiting.append(part)
        if waiting:
            yield from self._finished(concat(waiting), matched)

    def _finished(self, block: pa.RecordBatch, matched: dict[int, list[Index]]) -> Iterator[pa.RecordBatch]:
        """The results of one block; `matched` collects the rows of kept inputs that are in results of their cell."""
        good = block.column(VERDICT).fill_null(False).to_numpy(zero_copy_only=False)
        kind, numbers = block.column(RECORD).to_numpy(), block.column(MATCH).to_numpy()
        if block.column(BLOCK)[0].as_py() == MATCHED:
            yield from self._alone(block, kind, numbers, matched)
            return
        matches = np.flatnonzero((kind == IS_MATCH) & good)
        size = int(numbers.max(initial=-1)) + 1
        completing = {extra: np.flatnonzero((kind == extra) & good) for extra in self.spec.extras}
        roles = self.spec.roles
        assert roles is not None
        for extra in roles.extras:
            if extra not in roles.optional:
                wanted = roles.roles[extra] == "present"
                matches = matches[_has(numbers[completing[extra]], size)[numbers[matches]] == wanted]
        for at, side in enumerate(self.spec.preserved):
            matched.setdefault(side, []).append(np.unique(block.column(f"{ROW}{at}").to_numpy()[matches]))
        for rows in self._combined(dict.fromkeys(roles.core, matches), matches, completing, numbers, roles.optional):
            if next(iter(rows.values())).size:
                yield self._out(block, rows)

    def _combined(
        self,
        rows: dict[int, Index],
        matches: Index,
        completing: dict[int, Index],
        numbers: Index,
        optional: tuple[int, ...],
    ) -> Iterator[dict[int, Index]]:
        """For each emitted input the records that hold its rows; an input that lacks one is left out."""
        if not optional:
            yield rows
            return
        first, rest = optional[0], optional[1:]
        records = completing[first][np.argsort(numbers[completing[first]], kind="stable")]
        of = numbers[records]
        begin, end = (np.searchsorted(of, numbers[matches], side=side) for side in ("left", "right"))
        counts = end - begin
        again = np.repeat(np.arange(matches.size), counts)
        within = np.arange(again.size) - np.repeat(np.cumsum(counts) - counts, counts)
        if again.size:
            found = {side: part[again] for side, part in rows.items()}
            found[first] = records[begin[again] + within]
            yield from self._combined(found, matches[again], completing, numbers, rest)
        lacking = np.flatnonzero(counts == 0)
        if lacking.size:
            left = {side: part[lacking] for side, part in rows.items()}
            yield from self._combined(left, matches[lacking], completing, numbers, rest)

    def _alone(
        self, block: pa.RecordBatch, kind: Index, numbers: Index, matched: dict[int, list[Index]]
    ) -> Iterator[pa.RecordBatch]:
        for side in self.spec.preserved:
            rows = np.flatnonzero(kind == side)
            known = np.concatenate([np.empty(0, np.int64), *matched.get(side, [])])
            rows = rows[~np.isin(numbers[rows], known)]
            if rows.size:
                yield self._out(block, {side: rows})

    def _out(self, block: pa.RecordBatch, rows: dict[int, Index]) -> pa.RecordBatch:
        spec = self.spec
        count = next(iter(rows.values())).size
        columns: list[pa.Array[Any]] = []
        for side in spec.emitted:
            names = columns_of(input_payload(side), spec.payload[side])
            if side in rows:
                columns += block.select(names).take(rows[side]).columns
            else:
                columns += [nulls(count, block.column(name).type) for name in names]
        if spec.outer:
            columns += [pa.array(np.full(count, side in rows)) for side in spec.emitted]
        return pa.RecordBatch.from_arrays(columns, names=spec.output_names())


def _has(numbers: Index, size: int) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[numbers] = True
    return mask


def _blocks(batch: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The parts of a batch that belong to one block each, in order."""
    if batch.num_rows == 0:
        return
    cell, block = batch.column(CELL).to_numpy(), batch.column(BLOCK).to_numpy()
    borders = np.flatnonzero((np.diff(cell) != 0) | (np.diff(block) != 0)) + 1
    for begin, end in pairwise([0, *borders.tolist(), batch.num_rows]):
        yield int(cell[begin]), int(block[begin]), batch.slice(begin, end - begin)

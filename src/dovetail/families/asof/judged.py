"""As-of joins with a condition that only Spark can evaluate: pairs out, Spark's verdicts in, rows out.

A cell gives the candidates of each left row one after another, the best one first, in blocks; behind those of a block
each of its left rows once more without a right row, and at the end, where unmatched right rows come out, each right row
without a left one.  Spark adds its verdict to every pair, and :class:`FinishStage`, which sees the rows of a cell in
that order, takes the first pair of each left row that it approves.  All candidates of a row pass through Spark, so the
cost is that of the pairs which agree on keys and time.

Columns, by the names of :mod:`dovetail.columns.layout`: both payloads; whether there is a right row (``HAS_MATCH``) and
a left one (``HAS_LEFT``); the cell, the numbers of the two rows within it, and the counters.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.broadcast import broadcast_blocks
from dovetail.columns.codes import Mask
from dovetail.columns.layout import (
    CELL,
    CELL_NUMBER,
    COUNTERS,
    HAS_MATCH,
    LEFT_ROW,
    PAYLOADS,
    RIGHT_ROW,
    SEGMENT,
    TURN,
    VERDICT,
    columns_of,
)
from dovetail.columns.segments import cast_columns, concat, nulls, take_unchecked, unpack
from dovetail.families.asof.compiled import Index, RowNumbers
from dovetail.families.asof.join_stages import METRICS
from dovetail.families.asof.spec import HAS_LEFT, LEFT, RIGHT, AsofSpec
from dovetail.families.asof.where import ConditionIndex

MOST_PAIRS = 1 << 16
"""Pairs in a block of candidates; a left row with more of them has a block of its own."""

_COUNTERS = pa.list_(pa.int64())


@dataclass(frozen=True)
class CandidateStage:
    """The segments of one cell in, right ones first; all pairs that may be matches out."""

    spec: AsofSpec

    def outputs(self) -> list[tuple[str, pa.DataType]]:
        """The columns that leave the stage before the counters: names and types."""
        found = [
            pair
            for side in (LEFT, RIGHT)
            for pair in zip(columns_of(PAYLOADS[side], self.spec.payload[side]), self.spec.types[side], strict=True)
        ]
        found += [(HAS_MATCH, pa.bool_()), (HAS_LEFT, pa.bool_())]
        return [*found, (CELL, pa.int32()), (LEFT_ROW, pa.int64()), (RIGHT_ROW, pa.int64())]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        cell: _Candidates | None = None
        for batch in batches:
            for at in range(batch.num_rows):
                segment = unpack(batch.column(SEGMENT)[at].as_buffer())
                if cell is None:
                    cell = _Candidates(self, batch.column(CELL_NUMBER)[at].as_py())
                if batch.column(TURN)[at].as_py() == 0:
                    cell.held.append(segment)
                else:
                    yield from cell.pairs(segment)
        if cell is not None:
            yield from cell.finish()

    def rows(
        self, left: pa.RecordBatch | None, i: Index, right: pa.RecordBatch | None, j: RowNumbers, cell: int, first: int
    ) -> pa.RecordBatch:
        """Pairs, or rows of one side alone; `first` is the number of the first left row within the cell."""
        columns: list[pa.Array[Any]] = []
        size = max(i.size, j.size)
        for side, rows, numbers in ((LEFT, left, i), (RIGHT, right, j)):
            if rows is None:
                columns += [nulls(size, kind) for kind in self.spec.types[side]]
            else:
                taken = take_unchecked(rows.select(range(self.spec.payload[side])), numbers)
                columns += cast_columns(taken.columns, self.spec.types[side])
        columns += [pa.array(np.full(size, rows is not None)) for rows in (right, left)]
        columns.append(pa.array(np.full(size, cell), pa.int32()))
        for rows, numbers in ((left, i + first), (right, j)):
            columns.append(nulls(size, pa.int64()) if rows is None else pa.array(numbers, pa.int64()))
        return self._batch(columns, nulls(size, _COUNTERS))

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """The counters of a cell as a row of their own."""
        return self._batch([nulls(1, kind) for _, kind in self.outputs()], pa.array([values], _COUNTERS))

    def _batch(self, columns: list[pa.Array[Any]], counters: pa.Array[Any]) -> pa.RecordBatch:
        names = [name for name, _ in self.outputs()]
        return pa.RecordBatch.from_arrays([*columns, counters], names=[*names, COUNTERS])


class _Candidates:
    """A cell at work: its right rows, how many left rows it has seen, and what it has counted."""

    def __init__(self, stage: CandidateStage, number: int) -> None:
        self.stage = stage
        self.number = number
        self.held: list[pa.RecordBatch] = []
        self.counts = dict.fromkeys(METRICS, 0) | {"cells": 1}
        self._index: ConditionIndex | None = None
        self._seen = 0

    def pairs(self, left: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The candidates of left rows, and each of those rows without one."""
        began = time.perf_counter_ns()
        if self._index is None and self.held:
            self._index = ConditionIndex(self.stage.spec, concat(self.held))
        self.counts["rows_left"] += left.num_rows
        none = np.empty(0, dtype=np.int32)
        blocks = iter([(0, left.num_rows, np.empty(0, dtype=np.int64), none)])
        if self._index is not None:
            blocks = self._index.candidates(left, MOST_PAIRS)
        for begin, end, i, j in blocks:
            out = []
            if self._index is not None and i.size:
                self.counts["matched"] += i.size
                out.append(self.stage.rows(left, i, self._index.rows, j, self.number, self._seen))
            out.append(self.stage.rows(left, np.arange(begin, end), None, none, self.number, self._seen))
            self.counts["kernel_us"] += (time.perf_counter_ns() - began) // 1000
            yield from out
            began = time.perf_counter_ns()
        self._seen += left.num_rows

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The right rows, each without a left row, and the counters."""
        self.counts["rows_right"] = sum(rows.num_rows for rows in self.held)
        if self.held and self.stage.spec.kind.preserved[RIGHT]:
            right = concat(self.held)
            j = np.arange(right.num_rows, dtype=np.int32)
            yield self.stage.rows(None, np.empty(0, dtype=np.int64), right, j, self.number, 0)
        yield self.stage.counts(list(self.counts.values()))


@dataclass(frozen=True)
class BroadcastCandidates(CandidateStage):
    """Left rows in, and with them the whole right side packed into one value; their candidates out.  No shuffle."""

    packed: bool = False
    """Whether left rows come as segments, each with that value: those of a stream."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        cell: _Candidates | None = None
        for block, value in broadcast_blocks(batches, packed=self.packed):
            if cell is None:
                cell = _Candidates(self, 0)
                if value.is_valid:
                    # Spark may see that the right side is empty, and then nobody packs it.
                    cell.held.append(unpack(value.as_buffer()))
            yield from cell.pairs(block)
        if cell is not None:
            yield from cell.finish()


class _Known:
    """What is known of the cell whose rows are passing by."""

    def __init__(self) -> None:
        self.matched: Index = np.empty(0, dtype=np.int64)
        self.chosen: Index = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class FinishStage:
    """Pairs that Spark has judged in; the rows of the join out."""

    spec: AsofSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        cells: dict[int, _Known] = {}
        names = [name for name, _ in self.spec.outputs()]
        for batch in batches:
            if batch.num_rows == 0:
                continue
            cell = batch.column(CELL).to_numpy()
            # Cells come one after the other: only the last one of a batch can go on in the next.
            chosen = np.zeros(cell.size, dtype=np.bool_)
            for number in np.unique(cell).tolist():
                known = cells.setdefault(number, _Known())
                of_cell = np.flatnonzero(cell == number)
                chosen[of_cell] = self._kept(batch.take(of_cell), known)
            last = int(cell[-1])
            cells = {number: known for number, known in cells.items() if number == last}
            out = batch.filter(pa.array(chosen))
            yield pa.RecordBatch.from_arrays([out.column(name) for name in names], names=names)

    def _kept(self, rows: pa.RecordBatch, known: _Known) -> Mask:
        """Which of the next rows of a cell come out."""
        kind = self.spec.kind
        i, j = (rows.column(name).fill_null(-1).to_numpy(zero_copy_only=False) for name in (LEFT_ROW, RIGHT_ROW))
        good = np.flatnonzero(rows.column(VERDICT).to_numpy(zero_copy_only=False))
        _, first = np.unique(i[good], return_index=True)
        winners = good[first]
        winners = winners[~np.isin(i[winners], known.matched)]
        known.matched = np.union1d(known.matched, i[winners])
        known.chosen = np.union1d(known.chosen, j[winners])
        kept = np.zeros(i.size, dtype=np.bool_)
        kept[winners] = kind.pairs
        left_ends, right_ends = np.flatnonzero(j < 0), np.flatnonzero(i < 0)
        matched = np.isin(i[left_ends], known.matched)
        if not kind.pairs:
            kept[left_ends] = matched != kind.unmatched
        elif kind.preserved[LEFT]:
            kept[left_ends] = ~matched
        if left_ends.size:
            # Whoever has had its end does not come again.
            known.matched = known.matched[known.matched > i[left_ends[-1]]]
        kept[right_ends] = ~np.isin(j[right_ends], known.chosen)
        return kept

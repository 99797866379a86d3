"""The stages that give results: merging what cells have answered, or asking the whole of a small side.

    merge       partial states of the rows of some cells, and the totals of all cells -> results
    broadcast   rows, and the whole of the other side -> results, without a shuffle

Output batches hold the payload of the asking rows, the results, and the counters on a row of their own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.broadcast import broadcast_blocks
from dovetail.columns.codes import LOWEST
from dovetail.columns.encode import Keys, group_numbers
from dovetail.columns.layout import COUNTERS, POINT_PAYLOAD, SEGMENT, TURN, columns_of
from dovetail.columns.search import grouped_runs
from dovetail.columns.segments import cast_columns, concat, nulls, unpack
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.finish import matches, results
from dovetail.families.aggregate.kernel import Piece, State, merged, states
from dovetail.families.aggregate.overlaps import whole_states
from dovetail.families.aggregate.stages import (
    BEFORE,
    BETWEEN,
    BEYOND,
    COVERED,
    ID,
    NOTE,
    NOTES,
    TOTALS,
    Stage,
    empty_state,
)

METRICS = ("rows_points", "rows_boxes", "matches", "kernel_us", "cells", "results")
"""The counters of a task: rows that answered and asked, copies included, and the matches that answers are made of."""

RESULT = "v"
"""Prefix of the columns of the results."""


@dataclass(frozen=True)
class ResultStage(Stage):
    """What giving results has in common."""

    def rows_out(self, payload: list[pa.Array[Any]], state: State) -> tuple[pa.RecordBatch, int]:
        """The rows of the result, and how many matches they were answered from."""
        counts = matches(state)
        columns = [*cast_columns(payload, self.spec.payload), *results(self.spec, state)]
        size = counts.size
        if not self.spec.keep:
            chosen = np.flatnonzero(counts > 0)
            columns, size = [column.take(chosen) for column in columns], chosen.size
        columns.append(pa.nulls(size, pa.list_(pa.int64())))
        return pa.RecordBatch.from_arrays(columns, names=self._names()), int(counts.sum())

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """Counters as a row of their own."""
        kinds = [*self.spec.payload, *(output.type for output in self.spec.outputs)]
        columns = [*(nulls(1, kind) for kind in kinds), pa.array([values], pa.list_(pa.int64()))]
        return pa.RecordBatch.from_arrays(columns, names=self._names())

    def _names(self) -> list[str]:
        payload = columns_of(POINT_PAYLOAD, len(self.spec.payload))
        return [*payload, *columns_of(RESULT, len(self.spec.outputs)), COUNTERS]


@dataclass
class _Merging:
    """A task of the merge at work."""

    totals: list[pa.RecordBatch] = field(default_factory=list)
    visits: list[pa.RecordBatch] = field(default_factory=list)
    home: int = -1
    counted: list[int] = field(default_factory=lambda: [0] * len(METRICS))


@dataclass(frozen=True)
class MergeStage(ResultStage):
    """Segments in their turns: totals of cells, then for each home the states of its rows elsewhere, then its rows."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once for each part of the homes."""
        at_work = _Merging()
        for batch in batches:
            for at in range(batch.num_rows):
                segment = unpack(batch.column(SEGMENT)[at].as_buffer())
                turn = batch.column(TURN)[at].as_py()
                if turn == NOTES:
                    self._note(at_work, segment)
                elif turn == TOTALS:
                    at_work.totals.append(segment)
                elif turn % 2 == 0:
                    if at_work.home != turn:
                        at_work.home, at_work.visits = turn, []
                    at_work.visits.append(segment)
                else:
                    if at_work.home != turn - 1:
                        at_work.home, at_work.visits = turn - 1, []
                    yield self._merged(at_work, segment)
        yield self.counts(at_work.counted)

    def _note(self, at_work: _Merging, segment: pa.RecordBatch) -> None:
        answering, asking, spent = json.loads(segment.schema.metadata[NOTE.encode()])
        for at, value in ((0, answering), (1, asking), (3, spent), (4, 1)):
            at_work.counted[at] += value

    def _merged(self, at_work: _Merging, residents: pa.RecordBatch) -> pa.RecordBatch:
        began = time.perf_counter_ns()
        fields = len(self.spec.state_fields())
        width = residents.num_columns
        parts = [list(residents.columns[width - fields :])]
        rows = [np.arange(residents.num_rows)]
        covering, total = self._covered(at_work.totals, residents)
        if covering.size:
            parts.append(total)
            rows.append(covering)
        if at_work.visits:
            visits = concat(at_work.visits)
            parts.append(list(visits.columns[2:]))
            rows.append(_placed(residents.column(ID).to_numpy(), visits.column(ID).to_numpy()))
        state = parts[0]
        if len(parts) > 1:
            leaves = [pa.concat_arrays(list(columns)) for columns in zip(*parts, strict=True)]
            owner = np.concatenate(rows)
            order = np.argsort(owner, kind="stable")
            ends = np.cumsum(np.bincount(owner, minlength=residents.num_rows))
            begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
            state = merged(self.spec, leaves, [Piece(order, begins, ends)], residents.num_rows)
        out, found = self.rows_out(list(residents.columns[: len(self.spec.payload)]), state)
        for at, value in ((2, found), (3, (time.perf_counter_ns() - began) // 1000), (5, out.num_rows)):
            at_work.counted[at] += value
        return out

    def _covered(self, totals: list[pa.RecordBatch], residents: pa.RecordBatch) -> tuple[Index, State]:
        """The rows that cover cells as a whole, and what those cells add to their states."""
        covered, beyond = (residents.column(name).to_numpy() for name in (COVERED, BEYOND))
        overlap = self.spec.overlap is not None
        rows = np.flatnonzero(covered >= 0 if overlap else covered < beyond)
        if not totals or not rows.size:
            return rows[:0], []
        known, equal = concat(totals), len(self.spec.step.equalities)
        cells = known.column(equal).to_numpy()
        covered, beyond = covered[rows], beyond[rows]
        groups, asked = np.zeros(cells.size, dtype=np.int64), np.zeros(rows.size, dtype=np.int64)
        if equal:
            first = len(self.spec.payload)
            keys: Keys = [column.take(rows) for column in residents.columns[first : first + equal]]
            groups, asked = group_numbers(self.spec.step.equalities, list(known.columns[:equal]), keys)
        count = 1 + int(max(groups.max(initial=0), asked.max(initial=0)))
        wanted = [(np.arange(cells.size), covered, beyond - 1)]
        if overlap:
            # What began and has not ended before the first cell of a row, and what began between its two cells.
            parts = known.column(equal + 1).to_numpy()
            before, between = (np.flatnonzero(parts == part) for part in (BEFORE, BETWEEN))
            wanted = [(before, np.full(rows.size, LOWEST), covered - 1), (between, covered + 1, beyond - 1)]
        found = [_cells_within(cells, groups, count, some, asked, low, high) for some, low, high in wanted]
        return rows, merged(self.spec, list(known.columns[equal + 1 + overlap :]), found, rows.size)


def _cells_within(cells: Index, groups: Index, count: int, some: Index, asked: Index, low: Index, high: Index) -> Piece:
    """Some of the totals, in the order of their groups and cells, and those between two cells for each row."""
    order = some[np.lexsort((cells[some], groups[some]))]
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(groups[some], minlength=count), out=starts[1:])
    return Piece(order, *grouped_runs(cells[order], starts, asked, low, high))


def _placed(numbers: Index, wanted: Index) -> Index:
    """Where each wanted number is among distinct ones."""
    order = np.argsort(numbers)
    found = order[np.minimum(np.searchsorted(numbers, wanted, sorter=order), numbers.size - 1)]
    if not np.array_equal(numbers[found], wanted):
        raise RuntimeError("a task that ran again read its rows in another order: run the join once more")
    return found


@dataclass(frozen=True)
class BroadcastStage(ResultStage):
    """Asking rows in, and with them the whole answering side packed into one value; results out.  No shuffle."""

    packed: bool = False
    """Whether rows come as segments, each with that value: those of a stream."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        answering: pa.RecordBatch | None = None
        opened = False
        counted = [0] * len(METRICS)
        payload = len(self.spec.payload)
        for block, value in broadcast_blocks(batches, packed=self.packed):
            if not opened:
                # Spark may see that the small side is empty, and then nobody packs it.
                answering, opened = unpack(value.as_buffer()) if value.is_valid else None, True
            began = time.perf_counter_ns()
            keys = self.asking_keys(block)
            rows = block.num_rows
            if answering is None:
                state = empty_state(self.spec, rows)
            else:
                answer = states if self.spec.overlap is None else whole_states
                state = answer(self.spec, answering, keys)
            out, found = self.rows_out(list(block.columns[:payload]), state)
            spent = (time.perf_counter_ns() - began) // 1000
            for at, more in ((1, rows), (2, found), (3, spent), (5, out.num_rows)):
                counted[at] += more
            yield out
        if opened:
            counted[0], counted[4] = 0 if answering is None else answering.num_rows, 1
            yield self.counts(counted)

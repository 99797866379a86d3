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

from dovetail.columns.broadcast import broadcast_parts
from dovetail.columns.codes import LOWEST
from dovetail.columns.encode import Keys, group_numbers, routing_points, usable, usable_rows
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import COUNTERS, KEY, POINT_PAYLOAD, SEGMENT, TURN, columns_of
from dovetail.columns.search import grouped_runs
from dovetail.columns.segments import (
    BLOCK_ROWS,
    binary_column,
    cast_columns,
    concat,
    nulls,
    pack,
    take_unchecked,
    unpack,
)
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.finish import matches, results
from dovetail.families.aggregate.kernel import merged, picked, states
from dovetail.families.aggregate.line import LineIndex, on_a_line
from dovetail.families.aggregate.measures import Piece, State
from dovetail.families.aggregate.overlaps import RankIndex
from dovetail.families.aggregate.stages import (
    ANSWERING,
    ASKING,
    BEFORE,
    BETWEEN,
    BEYOND,
    COVERED,
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

MOST_WAITING = 256 << 20
"""Bytes of rows that wait in a task until they are worth an answer."""


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
        answering, asking = json.loads(segment.schema.metadata[NOTE.encode()])
        for at, value in ((0, answering), (1, asking), (4, 1)):
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
            visitors, more = self._elsewhere(concat(at_work.visits), residents)
            parts.append(more)
            rows.append(visitors)
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

    def _elsewhere(self, visits: pa.RecordBatch, residents: pa.RecordBatch) -> tuple[Index, State]:
        """The rows that have asked in other cells, by their keys, and what those cells have answered."""
        count = self.key_counts[ASKING]
        keys, asked = self.asking_keys(residents), list(visits.columns[:count])
        # Most rows ask at home alone: a hash tells which need to be looked at.
        names = columns_of(KEY, count)
        hashes, wanted = (row_hashes(pa.RecordBatch.from_arrays(some, names=names), count) for some in (keys, asked))
        known = np.unique(wanted)
        at = np.minimum(np.searchsorted(known, hashes), known.size - 1)
        # A row with NULL among its keys has asked nowhere, and under the NULL lies any value.
        rows = np.flatnonzero((known[at] == hashes) & usable(keys))
        own, numbers = self.numbered([key.take(rows) for key in keys], asked)
        order = np.argsort(numbers, kind="stable")
        groups = 1 + int(max(own.max(initial=0), numbers.max(initial=0)))
        ends = np.cumsum(np.bincount(numbers, minlength=groups))
        begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
        if not np.isin(numbers, own).all():
            raise RuntimeError("states came home to a cell that does not know their rows: please report this")
        state = merged(self.spec, list(visits.columns[count + 1 :]), [Piece(order, begins, ends)], groups)
        return rows, picked(self.spec, state, own)

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
            keys: Keys = [column.take(rows) for column in self.asking_keys(residents)[:equal]]
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


@dataclass(frozen=True)
class IndexStage(Stage):
    """Rows of the answering side in; one value out that holds them, in its order: to sort it again costs nothing."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        held = list(batches)
        if held:
            yield pa.RecordBatch.from_arrays([binary_column([pack(self._sorted(concat(held)))])], names=[SEGMENT])

    def _sorted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        count, axes = self.key_counts[ANSWERING], self.spec.step.axes
        chosen = usable_rows(list(rows.columns[:count]))
        if chosen is not None:
            rows = rows.take(chosen)
        axis = axes[self.spec.overlap[0] if self.spec.overlap else 0] if axes else None
        if axis is None or axis.kind == "rank" or (self.spec.overlap and self.spec.counting):
            return rows
        return take_unchecked(rows, np.argsort(routing_points(axis, list(rows.columns[:count]))))


@dataclass(frozen=True)
class BroadcastStage(ResultStage):
    """Asking rows in, and with them the parts of the whole answering side; results out.  No shuffle."""

    packed: bool = False
    """Whether rows come as segments."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        asked = _Asked(self)
        for block, parts in broadcast_parts(batches, packed=self.packed):
            asked.open(parts)
            if asked.push(block):
                yield from asked.answered()
        if asked.rows:
            yield from asked.answered()
        if asked.opened:
            yield self.counts(asked.counted)


@dataclass
class _Asked:
    """A task of a broadcast join at work: the whole answering side, and the rows that wait for their answers."""

    stage: BroadcastStage
    answering: pa.RecordBatch | None = None
    index: RankIndex | LineIndex | None = None
    """The answering side, prepared once, where the condition allows for it."""
    opened: bool = False
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    counted: list[int] = field(default_factory=lambda: [0] * len(METRICS))

    def open(self, parts: list[pa.Buffer]) -> None:
        """Read the answering side from its parts, the first time."""
        if self.opened:
            return
        self.opened = True
        self.counted[4] = 1
        # Where the small side is empty, nobody packs it.
        if parts:
            began = time.perf_counter_ns()
            self.answering = concat(unpack(part) for part in parts)
            self.counted[0] = self.answering.num_rows
            if self.stage.spec.overlap is not None:
                self.index = RankIndex(self.stage.spec, self.answering)
            elif on_a_line(self.stage.spec):
                self.index = LineIndex(self.stage.spec, self.answering)
            self.counted[3] += (time.perf_counter_ns() - began) // 1000

    def push(self, block: pa.RecordBatch) -> bool:
        """Take rows that ask, and tell whether they are enough.

        Without an index, to answer takes as much as there are rows on both sides, however few ask: so as many wait as
        can answer.
        """
        self.waiting.append(block)
        self.rows += block.num_rows
        self.bytes += block.nbytes
        if self.answering is None or self.index is not None:
            return True
        return self.rows >= self.answering.num_rows or self.bytes >= MOST_WAITING

    def answered(self) -> Iterator[pa.RecordBatch]:
        """The results of the rows that wait, in batches that Spark can take."""
        block = concat(self.waiting)
        self.waiting, self.rows, self.bytes = [], 0, 0
        size = self.index.block if isinstance(self.index, LineIndex) else block.num_rows
        for at in range(0, block.num_rows, size):
            yield from self._answered(block.slice(at, size))

    def _answered(self, block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        began = time.perf_counter_ns()
        stage, keys = self.stage, self.stage.asking_keys(block)
        if self.answering is None:
            state = empty_state(stage.spec, block.num_rows)
        else:
            state = states(stage.spec, self.answering, keys) if self.index is None else self.index.states(keys)
        out, found = stage.rows_out(list(block.columns[: len(stage.spec.payload)]), state)
        spent = (time.perf_counter_ns() - began) // 1000
        for at, more in ((1, block.num_rows), (2, found), (3, spent), (5, out.num_rows)):
            self.counted[at] += more
        yield from (out.slice(at, BLOCK_ROWS) for at in range(0, out.num_rows, BLOCK_ROWS))

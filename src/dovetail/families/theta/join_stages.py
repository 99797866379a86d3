"""The stages that find pairs: segments of a cell in, joined rows out.

Output batches hold the payload of the points and, unless the join only asks whether a point matches, that of the boxes;
then, in this order and only where needed (:mod:`dovetail.columns.layout` has the names):

``HAS_MATCH``
    whether the row has a box (left joins);
``CELL``, ``ROW``
    the cell and the number of the point within it, where a condition that only Spark can evaluate still decides
    which pairs count (:class:`FinishStage`);
``COUNTERS``
    the counters of a cell, on a row of its own that holds nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.columns import memory
from dovetail.columns.broadcast import broadcast_blocks
from dovetail.columns.codes import Mask
from dovetail.columns.layout import (
    BOX_PAYLOAD,
    CELL,
    CELL_NUMBER,
    COPIES,
    COUNTERS,
    HAS_MATCH,
    POINT_PAYLOAD,
    ROW,
    SEGMENT,
    STARTS_HERE,
    TURN,
    VERDICT,
    columns_of,
)
from dovetail.columns.pieces import Pieces
from dovetail.columns.segments import cast_columns, concat, nulls, take_unchecked, unpack
from dovetail.conditions.join_kind import JoinKind
from dovetail.families.theta.fitting import OUTPUT_COST
from dovetail.families.theta.kernel import Counters, Index
from dovetail.families.theta.key_pairs import find_matched, find_pairs
from dovetail.families.theta.pieces import Meetings
from dovetail.families.theta.spec import BOXES, POINTS
from dovetail.families.theta.stages import Stage

METRICS = (
    "rows_points", "rows_boxes", "comparisons", "candidates", "kernel_us", "cells", "results", "copies",
    "task_rows", "task_pairs", "task_load", "split_cells", "spilled_bytes",
)  # fmt: skip
"""The counters of a cell, in the order in which they leave a task; the task_ ones are running totals of the task."""

JOIN_ROWS = 1 << 20
"""Boxes joined at a time: a cell holds all its points, and its boxes pass through in pieces of this size.

Where the points are more than memory can hold, they come in pieces, too (:mod:`dovetail.columns.pieces`), and the boxes
pass by each of them.
"""


@dataclass
class TaskLoad:
    """Running totals of one task, from which the balance of a join is read."""

    rows: int = 0
    pairs: int = 0

    @property
    def load(self) -> int:
        """Rows in and pairs out, weighed as the router weighs them; twice the sum, so that it is a whole number."""
        return 2 * self.rows + round(2 * OUTPUT_COST * self.pairs)


_loads: dict[int, TaskLoad] = {}


def load_of(task: int) -> TaskLoad:
    """The running totals of the current task; those of earlier tasks of this worker are dropped."""
    if task not in _loads:
        _loads.clear()
        _loads[task] = TaskLoad()
    return _loads[task]


@dataclass(frozen=True)
class PairStage(Stage):
    """What finding pairs has in common, with a shuffle or without."""

    candidates: bool = False
    """Whether Spark has still to decide which pairs count."""
    box_types: tuple[pa.DataType, ...] = ()
    """Arrow types of the boxes' payload, for rows without a box."""
    point_types: tuple[pa.DataType, ...] = ()

    @property
    def kind(self) -> JoinKind:
        """Which rows the join gives, seen from the points."""
        return self.options.kind

    @property
    def lists_pairs(self) -> bool:
        """Whether pairs leave the stage, or only points."""
        return self.candidates or self.kind.pairs

    def output(self) -> list[tuple[str, pa.DataType]]:
        """The columns that leave the stage before the counters: names and types."""
        names, types = columns_of(POINT_PAYLOAD, len(self.point_types)), list(self.point_types)
        if self.lists_pairs:
            names += columns_of(BOX_PAYLOAD, len(self.box_types))
            types += self.box_types
            if self.kind.outer or self.candidates:
                names.append(HAS_MATCH)
                types.append(pa.bool_())
        if self.candidates:
            names += [CELL, ROW]
            types += [pa.int32(), pa.int64()]
        return list(zip(names, types, strict=True))

    def find(
        self, points: pa.RecordBatch, boxes: pa.RecordBatch, counters: Counters, has_match: Mask
    ) -> Iterator[tuple[Index, Index]]:
        """Pairs of row numbers; marks in `has_match` the points that have one, where that is asked for.

        Where nothing else is asked for, no pair is given.
        """
        point_keys = self.keys_of(points, self.payload[POINTS], POINTS)
        box_keys = self.keys_of(boxes, self.payload[BOXES], BOXES)
        partitioning = self.options.partitioning
        if not self.lists_pairs:
            has_match |= find_matched(self.step, partitioning, point_keys, box_keys, counters, routed=True)
            return
        starts: tuple[Mask, Mask] | None = None
        if points.schema.names[-1] == STARTS_HERE:
            first, second = (rows.column(STARTS_HERE).to_numpy(zero_copy_only=False) for rows in (points, boxes))
            starts = first, second
        for i, j in find_pairs(self.step, partitioning, point_keys, box_keys, counters, routed=True, starts=starts):
            if self.kind.unmatched:
                has_match[i] = True
            yield i, j

    def joined(
        self, points: pa.RecordBatch, boxes: pa.RecordBatch, i: Index, j: Index, cell: int, first: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Joined rows, in several batches where rows are wide."""
        for part in memory.at_once(i.size, points, boxes):
            yield self.rows_out(points, boxes, i[part], j[part], cell, first)

    def rows_out(
        self,
        points: pa.RecordBatch,
        boxes: pa.RecordBatch | None,
        i: Index,
        j: Index | None,
        cell: int,
        first: int = 0,
    ) -> pa.RecordBatch:
        """Joined rows; `j` None leaves the box side NULL, and `first` is the number of the first point in its cell."""
        left = take_unchecked(points.select(range(self.payload[POINTS])), i)
        columns = cast_columns(left.columns, self.point_types)
        if self.lists_pairs:
            if j is not None and boxes is not None:
                columns += cast_columns(
                    take_unchecked(boxes.select(range(self.payload[BOXES])), j).columns, self.box_types
                )
            else:
                columns += [nulls(i.size, kind) for kind in self.box_types]
            if self.kind.outer or self.candidates:
                columns.append(pa.array(np.full(i.size, j is not None)))
        if self.candidates:
            columns += [pa.array(np.full(i.size, cell), pa.int32()), pa.array(i + first if first else i)]
        columns.append(pa.nulls(i.size, pa.list_(pa.int64())))
        return pa.RecordBatch.from_arrays(columns, names=[*(name for name, _ in self.output()), COUNTERS])

    def rows_at_end(
        self, points: pa.RecordBatch, has_match: Mask, cell: int, first: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """What leaves once every box of a cell has been seen: the unmatched points, or those of a semi join."""
        if self.candidates:
            chosen = np.arange(points.num_rows)
        elif self.kind.unmatched:
            chosen = np.flatnonzero(~has_match)
        elif not self.kind.pairs:
            chosen = np.flatnonzero(has_match)
        else:
            return
        if chosen.size:
            yield self.rows_out(points, None, chosen, None, cell, first)

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """The counters of a cell as a row of their own."""
        names, columns = [], []
        for name, kind in self.output():
            names.append(name)
            columns.append(nulls(1, kind))
        columns.append(pa.array([values], pa.list_(pa.int64())))
        return pa.RecordBatch.from_arrays(columns, names=[*names, COUNTERS])


@dataclass(frozen=True)
class JoinStage(PairStage):
    """The segments of one cell in, points first; its pairs out."""

    def run(self, batches: Iterable[pa.RecordBatch], load: TaskLoad) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        state = _Cell(self)
        for batch in batches:
            for at in range(batch.num_rows):
                segment = unpack(batch.column(SEGMENT)[at].as_buffer())
                state.copies += batch.column(COPIES)[at].as_py()
                yield from state.push(batch.column(CELL_NUMBER)[at].as_py(), batch.column(TURN)[at].as_py(), segment)
        yield from state.finish(load)


@dataclass
class _Cell:
    """A cell at work: its points, the boxes that wait to be joined, and what it has counted."""

    stage: JoinStage
    number: int = -1
    points: Pieces = field(default_factory=Pieces)
    boxes: list[pa.RecordBatch] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    waiting: tuple[int, int] = (0, 0)
    """Rows of the boxes that wait, and what they take."""
    box_rows: int = 0
    copies: int = 0
    results: int = 0
    spilled: int = 0
    nanoseconds: int = 0
    has_match: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def push(self, number: int, turn: int, segment: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.number = number
        if turn == 0:
            self.points.hold(segment)
            return
        self.box_rows += segment.num_rows
        if self.points.split:
            self.points.let_pass(segment)
            return
        self.boxes.append(segment)
        rows, taken = self.waiting
        self.waiting = rows, taken = rows + segment.num_rows, taken + memory.cost(segment)
        if rows >= JOIN_ROWS or (taken > memory.FLOOR and taken > self.points.limit()):
            yield from self._join()

    def _join(self) -> Iterator[pa.RecordBatch]:
        """Join the boxes that wait with all points, of a cell that is not split."""
        if self.points.held and self.boxes:
            points, boxes = self.points.whole(), concat(self.boxes)
            if self.has_match.size == 0:
                self.has_match = np.zeros(points.num_rows, dtype=np.bool_)
            yield from self._pairs(points, boxes, self.has_match)
        self.boxes, self.waiting = [], (0, 0)

    def _pairs(
        self, points: pa.RecordBatch, boxes: pa.RecordBatch, has_match: Mask, first: int = 0
    ) -> Iterator[pa.RecordBatch]:
        began = time.perf_counter_ns()
        for i, j in self.stage.find(points, boxes, self.counters, has_match):
            for out in self.stage.joined(points, boxes, i, j, self.number, first):
                self.results += out.num_rows
                self.nanoseconds += time.perf_counter_ns() - began
                yield out
                began = time.perf_counter_ns()
        self.nanoseconds += time.perf_counter_ns() - began

    def _in_pieces(self) -> Iterator[pa.RecordBatch]:
        """Join a split cell: each piece of its points with the pieces of its boxes that reach it.

        A pair lies in one piece of each, so it comes once; and a point is in one piece, so that knows its matches.
        """
        first = 0
        meetings = Meetings(self.stage, self.points)
        for points, reaching in meetings:
            has_match = np.zeros(points.num_rows, dtype=np.bool_)
            for boxes in reaching:
                yield from self._pairs(points, boxes, has_match, first)
            yield from self._ended(points, has_match, first)
            first += points.num_rows
        self.spilled = self.points.spilled + meetings.spilled

    def _ended(self, points: pa.RecordBatch, has_match: Mask, first: int = 0) -> Iterator[pa.RecordBatch]:
        for out in self.stage.rows_at_end(points, has_match, self.number, first):
            self.results += out.num_rows
            yield out

    def finish(self, load: TaskLoad) -> Iterator[pa.RecordBatch]:
        if self.points.split:
            yield from self._in_pieces()
        else:
            yield from self._join()
            if self.points.held:
                points = self.points.whole()
                has_match = self.has_match if self.has_match.size else np.zeros(points.num_rows, dtype=np.bool_)
                yield from self._ended(points, has_match)
        point_rows = self.points.held_rows
        load.rows += point_rows + self.box_rows
        load.pairs += self.counters.results
        yield self.stage.counts(
            [
                point_rows, self.box_rows, self.counters.comparisons, self.counters.results,
                self.nanoseconds // 1000, 1, self.results, self.copies, load.rows, load.pairs, load.load,
                int(self.points.split), self.spilled,
            ]
        )  # fmt: skip


@dataclass(frozen=True)
class BroadcastStage(PairStage):
    """Points in, and with them the whole box side packed into one value; pairs out.  No shuffle."""

    packed: bool = False
    """Whether points come as segments, each with that value: those of a stream."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        boxes: pa.RecordBatch | None = None
        counters = Counters()
        opened = False
        point_rows, spent, results = 0, 0, 0
        for number, (block, value) in enumerate(broadcast_blocks(batches, packed=self.packed)):
            if not opened:
                # Spark may see that the small side is empty, and then nobody packs it.
                boxes, opened = unpack(value.as_buffer()) if value.is_valid else None, True
            began = time.perf_counter_ns()
            point_rows += block.num_rows
            has_match = np.zeros(block.num_rows, dtype=np.bool_)
            if boxes is not None:
                for i, j in self.find(block, boxes, counters, has_match):
                    for out in self.joined(block, boxes, i, j, number):
                        spent += time.perf_counter_ns() - began
                        results += out.num_rows
                        yield out
                        began = time.perf_counter_ns()
            spent += time.perf_counter_ns() - began
            for out in self.rows_at_end(block, has_match, number):
                results += out.num_rows
                yield out
        if opened:
            box_rows = 0 if boxes is None else boxes.num_rows
            counted = [point_rows, box_rows, counters.comparisons, counters.results, spent // 1000, 1]
            load = TaskLoad(point_rows + box_rows, counters.results)
            # The small side is sent to every task.
            yield self.counts([*counted, results, box_rows, load.rows, load.pairs, load.load, 0, 0])


@dataclass(frozen=True)
class FinishStage:
    """Pairs that Spark has judged in; the rows of an outer, semi or anti join out.

    Each batch carries, behind the columns of a :class:`PairStage`, the verdict of Spark.  Pairs of a cell come first;
    then each of its points once more without a box, and by then it is known whether it matched.
    """

    kind: JoinKind
    points: int
    """Payload columns of the points."""
    boxes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        matched_points: dict[int, Index] = {}
        for batch in batches:
            if batch.num_rows == 0:
                continue
            cell = batch.column(CELL).to_numpy()
            row = batch.column(ROW).to_numpy()
            pair = batch.column(HAS_MATCH).to_numpy(zero_copy_only=False)
            good = pair & batch.column(VERDICT).to_numpy(zero_copy_only=False)
            chosen = good if self.kind.pairs else np.zeros(cell.size, dtype=np.bool_)
            for number in np.unique(cell).tolist():
                of_cell = cell == number
                fresh = row[of_cell & good]
                known = matched_points.get(number, np.empty(0, dtype=np.int64))
                if fresh.size:
                    known = matched_points[number] = np.union1d(known, fresh)
                ends = np.flatnonzero(of_cell & ~pair)
                hit = np.isin(row[ends], known)
                chosen[ends] = ~hit if self.kind.unmatched else hit
            # Cells come one after the other: only the last one of a batch can go on in the next.
            last = int(cell[-1])
            matched_points = {c: rows for c, rows in matched_points.items() if c == last}
            out = batch.filter(pa.array(chosen))
            kept = self.points + (self.boxes + 1 if self.kind.pairs else 0)
            yield pa.RecordBatch.from_arrays(out.columns[:kept], names=out.schema.names[:kept])

"""The stages that find pairs: segments of a cell in, joined rows out.

Output batches hold the payload of the points (c0, c1 ...) and, unless the join only asks whether a point matches, that
of the boxes; then, in this order and only where needed:

``b``
    whether the row has a box (left joins);
``n``, ``r``
    the cell and the number of the point within it, where a condition that only Spark can evaluate still decides
    which pairs count (:class:`FinishStage`);
``m``
    the counters of a cell, on a row of its own that holds nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.columns.broadcast import beside_blocks
from dovetail.columns.codes import Mask
from dovetail.columns.encode import Boxes, Points, encode, usable_rows
from dovetail.columns.segments import cast_columns, concat, nulls, take_unchecked, unpack
from dovetail.families.theta.kernel import Counters, Index, matched, pairs
from dovetail.families.theta.paper.cross import cross_pairs
from dovetail.families.theta.stages import BOXES, POINTS, Stage

METRICS = (
    "rows_points", "rows_boxes", "comparisons", "candidates", "kernel_us", "cells", "results",
    "task_rows", "task_pairs",
)  # fmt: skip
"""The counters of a cell, in the order in which they leave a task; the task_ ones are running totals of the task."""

JOIN_ROWS = 1 << 20
"""Boxes joined at a time: a cell holds all its points, and its boxes pass through in pieces of this size."""


@dataclass
class TaskLoad:
    """Running totals of one task, from which the balance of a join is read."""

    rows: int = 0
    pairs: int = 0


@dataclass(frozen=True)
class PairStage(Stage):
    """What finding pairs has in common, with a shuffle or without."""

    candidates: bool = False
    """Whether Spark has still to decide which pairs count."""

    @property
    def lists_pairs(self) -> bool:
        """Whether pairs leave the stage, or only points."""
        return self.candidates or self.options.how in ("inner", "left")

    def find(
        self, points: pa.RecordBatch, boxes: pa.RecordBatch, counters: Counters, found: Mask
    ) -> Iterator[tuple[Index, Index]]:
        """Pairs of row numbers; marks in `found` the points that have one.

        Where only the mark is asked for, nothing is yielded.
        """
        point_keys = self.keys_of(points, self.payload[POINTS], POINTS)
        box_keys = self.keys_of(boxes, self.payload[BOXES], BOXES)
        point_rows, box_rows = usable_rows(point_keys), usable_rows(box_keys)
        if point_rows is not None:
            point_keys = [key.take(point_rows) for key in point_keys]
        if box_rows is not None:
            box_keys = [key.take(box_rows) for key in box_keys]
        left, right = encode(self.step, point_keys, box_keys)
        if not self.lists_pairs and self.options.algorithm == "auto":
            with_match = np.flatnonzero(matched(left, right, counters))
            found[with_match if point_rows is None else point_rows[with_match]] = True
            return
        for some_points, some_boxes in self._owned(points, boxes, point_rows, box_rows):
            part_left, part_right = left, right
            if some_points is not None and some_boxes is not None:
                part_left = Points(left.coordinates[:, some_points], left.numbers[some_points])
                part_right = Boxes(right.low[:, some_boxes], right.high[:, some_boxes], right.numbers[some_boxes])
            search = pairs if self.options.algorithm == "auto" else cross_pairs
            for i, j in search(part_left, part_right, counters):
                if some_points is not None and some_boxes is not None:
                    i, j = some_points[i], some_boxes[j]
                i = i if point_rows is None else point_rows[i]
                j = j if box_rows is None else box_rows[j]
                if self.options.how != "inner":
                    found[i] = True
                if self.lists_pairs:
                    yield i, j

    def _owned(
        self, points: pa.RecordBatch, boxes: pa.RecordBatch, point_rows: Index | None, box_rows: Index | None
    ) -> Iterator[tuple[Index | None, Index | None]]:
        """Which rows to join with which, so that a pair that meets in several cells is found in one.

        In an overlap routing the cell of the later start owns a pair, so at least one of the two starts here.
        """
        if points.schema.names[-1] != "s":
            yield None, None
            return
        here = points.column("s").to_numpy(zero_copy_only=False)
        here = here if point_rows is None else here[point_rows]
        box_here = boxes.column("s").to_numpy(zero_copy_only=False)
        box_here = box_here if box_rows is None else box_here[box_rows]
        yield np.flatnonzero(here), np.arange(box_here.size)
        yield np.flatnonzero(~here), np.flatnonzero(box_here)

    def rows_out(
        self, points: pa.RecordBatch, boxes: pa.RecordBatch | None, i: Index, j: Index | None, cell: int
    ) -> pa.RecordBatch:
        """Joined rows; `j` None leaves the box side NULL."""
        left = take_unchecked(points.select(range(self.payload[POINTS])), i)
        columns, names = cast_columns(left.columns, self.point_types), [f"c{at}" for at in range(left.num_columns)]
        if self.lists_pairs:
            if j is not None and boxes is not None:
                columns += cast_columns(
                    take_unchecked(boxes.select(range(self.payload[BOXES])), j).columns, self.box_types
                )
            else:
                columns += [nulls(i.size, kind) for kind in self.box_types]
            names += [f"d{at}" for at in range(self.payload[BOXES])]
            if self.options.how == "left" or self.candidates:
                columns.append(pa.array(np.full(i.size, j is not None)))
                names.append("b")
        if self.candidates:
            columns += [pa.array(np.full(i.size, cell), pa.int32()), pa.array(i)]
            names += ["n", "r"]
        columns.append(pa.nulls(i.size, pa.list_(pa.int64())))
        names.append("m")
        return pa.RecordBatch.from_arrays(columns, names=names)

    box_types: tuple[pa.DataType, ...] = ()
    """Arrow types of the boxes' payload, for rows without a box."""
    point_types: tuple[pa.DataType, ...] = ()

    def unmatched_or_matched(self, points: pa.RecordBatch, found: Mask, cell: int) -> Iterator[pa.RecordBatch]:
        """What leaves once every box of a cell has been seen."""
        how = self.options.how
        if self.candidates:
            chosen = np.arange(points.num_rows)
        elif how == "left" or how == "anti":
            chosen = np.flatnonzero(~found)
        elif how == "semi":
            chosen = np.flatnonzero(found)
        else:
            return
        if chosen.size:
            yield self.rows_out(points, None, chosen, None, cell)

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """The counters of a cell as a row of their own."""
        kinds = list(self.point_types)
        names = [f"c{at}" for at in range(len(kinds))]
        if self.lists_pairs:
            kinds += self.box_types
            names += [f"d{at}" for at in range(len(self.box_types))]
            if self.options.how == "left" or self.candidates:
                kinds.append(pa.bool_())
                names.append("b")
        if self.candidates:
            kinds += [pa.int32(), pa.int64()]
            names += ["n", "r"]
        columns = [nulls(1, kind) for kind in kinds]
        columns.append(pa.array([values], pa.list_(pa.int64())))
        return pa.RecordBatch.from_arrays(columns, names=[*names, "m"])


@dataclass(frozen=True)
class JoinStage(PairStage):
    """The segments of one cell in, points first; its pairs out."""

    def run(self, batches: Iterable[pa.RecordBatch], load: TaskLoad) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        state = _Cell(self)
        for batch in batches:
            for at in range(batch.num_rows):
                segment = unpack(batch.column("segment")[at].as_buffer())
                yield from state.push(batch.column("cell")[at].as_py(), batch.column("side")[at].as_py(), segment)
        yield from state.finish(load)


@dataclass
class _Cell:
    """A cell at work: its points, the boxes that wait to be joined, and what it has counted."""

    stage: JoinStage
    number: int = -1
    points: list[pa.RecordBatch] = field(default_factory=list)
    boxes: list[pa.RecordBatch] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    box_rows: int = 0
    results: int = 0
    nanoseconds: int = 0
    found: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def push(self, number: int, side: int, segment: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.number = number
        if side == POINTS:
            self.points.append(segment)
            return
        self.boxes.append(segment)
        self.box_rows += segment.num_rows
        if sum(b.num_rows for b in self.boxes) >= JOIN_ROWS:
            yield from self._join()

    def _join(self) -> Iterator[pa.RecordBatch]:
        if len(self.points) != 1:
            self.points = [concat(self.points)] if self.points else []
        if self.points and self.boxes:
            points, boxes = self.points[0], concat(self.boxes)
            if self.found.size == 0:
                self.found = np.zeros(points.num_rows, dtype=np.bool_)
            began = time.perf_counter_ns()
            for i, j in self.stage.find(points, boxes, self.counters, self.found):
                out = self.stage.rows_out(points, boxes, i, j, self.number)
                self.results += out.num_rows
                self.nanoseconds += time.perf_counter_ns() - began
                yield out
                began = time.perf_counter_ns()
            self.nanoseconds += time.perf_counter_ns() - began
        self.boxes = []

    def finish(self, load: TaskLoad) -> Iterator[pa.RecordBatch]:
        yield from self._join()
        point_rows = 0
        if self.points:
            points = self.points[0]
            point_rows = points.num_rows
            found = self.found if self.found.size else np.zeros(point_rows, dtype=np.bool_)
            for out in self.stage.unmatched_or_matched(points, found, self.number):
                self.results += out.num_rows
                yield out
        load.rows += point_rows + self.box_rows
        load.pairs += self.counters.results
        yield self.stage.counts(
            [
                point_rows, self.box_rows, self.counters.comparisons, self.counters.results,
                self.nanoseconds // 1000, 1, self.results, load.rows, load.pairs,
            ]
        )  # fmt: skip


@dataclass(frozen=True)
class BesideStage(PairStage):
    """Points in, and with them the whole box side packed into one value; pairs out.  No shuffle.

    Static points carry that value on the first row of a task.  A stream has no first row to speak of, so its points
    come `packed`: each row is a segment of points and the box side.
    """

    packed: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        boxes: pa.RecordBatch | None = None
        counters = Counters()
        opened = False
        point_rows, spent, results = 0, 0, 0
        for number, (block, value) in enumerate(beside_blocks(batches, packed=self.packed)):
            if not opened:
                # Spark may see that the small side is empty, and then nobody packs it.
                boxes, opened = unpack(value.as_buffer()) if value.is_valid else None, True
            began = time.perf_counter_ns()
            point_rows += block.num_rows
            found = np.zeros(block.num_rows, dtype=np.bool_)
            if boxes is not None:
                for i, j in self.find(block, boxes, counters, found):
                    out = self.rows_out(block, boxes, i, j, number)
                    spent += time.perf_counter_ns() - began
                    results += out.num_rows
                    yield out
                    began = time.perf_counter_ns()
            spent += time.perf_counter_ns() - began
            for out in self.unmatched_or_matched(block, found, number):
                results += out.num_rows
                yield out
        if opened:
            box_rows = 0 if boxes is None else boxes.num_rows
            counted = [point_rows, box_rows, counters.comparisons, counters.results, spent // 1000, 1]
            yield self.counts([*counted, results, point_rows + box_rows, counters.results])


@dataclass(frozen=True)
class FinishStage:
    """Pairs that Spark has judged in; the rows of an outer, semi or anti join out.

    Each batch carries, behind the columns of a :class:`PairStage`, the verdict of Spark (``keep``).  Pairs of a
    cell come first; then each of its points once more without a box, and by then it is known whether it matched.
    """

    how: str
    points: int
    """Payload columns of the points."""
    boxes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        matched_points: dict[int, Index] = {}
        for batch in batches:
            if batch.num_rows == 0:
                continue
            cell = batch.column("n").to_numpy()
            row = batch.column("r").to_numpy()
            pair = batch.column("b").to_numpy(zero_copy_only=False)
            good = pair & batch.column("keep").to_numpy(zero_copy_only=False)
            chosen = good if self.how == "left" else np.zeros(cell.size, dtype=np.bool_)
            for number in np.unique(cell).tolist():
                of_cell = cell == number
                fresh = row[of_cell & good]
                known = matched_points.get(number, np.empty(0, dtype=np.int64))
                if fresh.size:
                    known = matched_points[number] = np.union1d(known, fresh)
                ends = np.flatnonzero(of_cell & ~pair)
                hit = np.isin(row[ends], known)
                chosen[ends] = hit if self.how == "semi" else ~hit
            # Cells come one after the other: only the last one of a batch can go on in the next.
            last = int(cell[-1])
            matched_points = {c: rows for c, rows in matched_points.items() if c == last}
            out = batch.filter(pa.array(chosen))
            kept = self.points + (self.boxes + 1 if self.how == "left" else 0)
            yield pa.RecordBatch.from_arrays(out.columns[:kept], names=out.schema.names[:kept])

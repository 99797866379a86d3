"""A cell whose points are more than a worker may hold: pieces of both sides, and which of them can meet.

Both sides lie on disk, cut along one axis: points where they are, boxes where their ranges begin.  A piece of the
points is joined with those pieces of the boxes whose ranges reach it, which are few where ranges are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST, Codes, order_codes, prefix_codes
from dovetail.columns.encode import Keys, routing_boxes, routing_points, usable_rows
from dovetail.columns.pieces import Pieces, gathered
from dovetail.columns.slices import Slices, Spans
from dovetail.conditions.comparison import Kind
from dovetail.families.theta.spec import BOXES, POINTS
from dovetail.families.theta.stages import Stage


@dataclass
class Meetings:
    """The pieces of a split cell, those of the points one after the other."""

    stage: Stage
    cell: Pieces
    sides: list[Slices] = field(default_factory=list)

    @property
    def spilled(self) -> int:
        """The bytes that have been written, besides those of the cell."""
        return sum(slices.size for slices in self.sides)

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]]:
        """Each piece of the points, with the pieces of the boxes that it has to be joined with."""
        self.sides = [Slices(partial(spans_of, self.stage)) for _ in (POINTS, BOXES)]
        most = self.cell.limit()
        ordered = []
        for side, rows in ((POINTS, self.cell.on_disk), (BOXES, self.cell.passing)):
            for batch in rows:
                self.sides[side].add(side, batch)
            rows.close()
            ordered.append(self.sides[side].ordered(most))
        points, boxes = ordered
        for here in points:
            near = [one for one in boxes if one.concerns(here)]
            for piece in gathered((rows for _, rows in self.sides[POINTS].batches(here)), most):
                others = (rows for one in near for _, rows in self.sides[BOXES].batches(one))
                yield piece, gathered(others, most)
        for slices in self.sides:
            slices.close()


def spans_of(stage: Stage, side: int, rows: pa.RecordBatch) -> Spans:
    """Where rows lie on the axis that cuts a cell, such that a box concerns every point that it may match.

    Rows that match nothing lie anywhere.
    """
    keys = stage.keys_of(rows, stage.payload[side], side)
    chosen = usable_rows(keys)
    if chosen is None:
        return _spans(stage, side, keys)
    found = _spans(stage, side, [key.take(chosen) for key in keys])
    filled = []
    for codes, value in zip(found, (0, HIGHEST, LOWEST), strict=True):
        column = np.full(rows.num_rows, value, dtype=np.int64)
        column[chosen] = codes
        filled.append(column)
    return Spans(*filled)


def _spans(stage: Stage, side: int, keys: Keys) -> Spans:
    step = stage.step
    if step.axes:
        # A band says more than a half-line does.
        axis = next((axis for axis in step.axes if axis.low is not None and axis.high is not None), step.axes[0])
        if side == POINTS:
            return Spans.of_points(routing_points(axis, keys))
        low, high = routing_boxes(axis, keys)
        return Spans(high if axis.low is None else low, low, high)
    if step.equalities:
        return Spans.of_points(_codes(keys[0], step.equalities[0]))
    return Spans.of_points(np.zeros(len(keys[0]), dtype=np.int64))


def _codes(key: pa.Array[Any], kind: Kind) -> Codes:
    """Codes that equal keys share."""
    return prefix_codes(key) if kind == "rank" else order_codes(key, kind)

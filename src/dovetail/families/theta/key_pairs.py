"""Pairs from key columns: the one way into the kernels, in batch and in streams, whatever the algorithm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.columns.codes import Mask
from dovetail.columns.encode import Boxes, Keys, Points, encode, routing_points, usable_rows
from dovetail.conditions.comparison import Step
from dovetail.families.theta import kernel
from dovetail.families.theta.kernel import Counters, Index
from dovetail.families.theta.paper.cross import cross_pairs
from dovetail.families.theta.paper.routing import end_codes, layout_of, partition_axis
from dovetail.families.theta.spec import POINTS, Partitioning

Pairs = Iterator[tuple[Index, Index]]


def find_pairs(
    step: Step,
    partitioning: Partitioning | None,
    point_keys: Keys,
    box_keys: Keys,
    counters: Counters,
    *,
    routed: bool,
    starts: tuple[Mask, Mask] | None = None,
) -> Pairs:
    """Matching (point row, box row) pairs, in chunks.

    Parameters
    ----------
    step, point_keys, box_keys
        The condition, and the columns that it compares.  Rows with a NULL among them match nothing.
    partitioning
        The published partitioning that finds the pairs by Cartesian products; None for the kernels.
    counters
        Takes what the search did.
    routed
        Whether a routing has brought together the rows of one surviving pair of partitions.  Otherwise a partitioning
        divides the rows here.
    starts
        Which points and which boxes start in this cell, where an interval may lie in several: the cell of the later
        start owns a pair, so at least one of the two must start here.
    """
    point_rows, box_rows = usable_rows(point_keys), usable_rows(box_keys)
    point_keys, box_keys = _taken(point_keys, point_rows), _taken(box_keys, box_rows)
    if not len(point_keys[0]) or not len(box_keys[0]):
        return
    points, boxes = encode(step, point_keys, box_keys)
    found: Pairs
    if partitioning is not None and routed:
        found = cross_pairs(points, boxes, counters)
    elif partitioning is not None:
        found = _products(step, partitioning, point_keys, box_keys, points, boxes, counters)
    elif starts is None:
        found = kernel.pairs(points, boxes, counters)
    else:
        point_starts, box_starts = starts
        found = _owned(
            points, boxes, counters,
            point_starts if point_rows is None else point_starts[point_rows],
            box_starts if box_rows is None else box_starts[box_rows],
        )  # fmt: skip
    for i, j in found:
        yield i if point_rows is None else point_rows[i], j if box_rows is None else box_rows[j]


def find_matched(
    step: Step,
    partitioning: Partitioning | None,
    point_keys: Keys,
    box_keys: Keys,
    counters: Counters,
    *,
    routed: bool,
    side: int = POINTS,
) -> Mask:
    """Which rows of a side have a match at all; the arguments are those of :func:`find_pairs`."""
    has_match = np.zeros(len((point_keys, box_keys)[side][0]), dtype=np.bool_)
    if partitioning is None and side == POINTS:
        point_rows, box_rows = usable_rows(point_keys), usable_rows(box_keys)
        points, boxes = encode(step, _taken(point_keys, point_rows), _taken(box_keys, box_rows))
        matched = kernel.matched(points, boxes, counters)
        if point_rows is None:
            return matched
        has_match[point_rows] = matched
        return has_match
    for pair in find_pairs(step, partitioning, point_keys, box_keys, counters, routed=routed):
        has_match[pair[side]] = True
    return has_match


def _owned(points: Points, boxes: Boxes, counters: Counters, point_starts: Mask, box_starts: Mask) -> Pairs:
    """The pairs that this cell owns: points that start here with all boxes, the others with boxes that do."""
    for some_points, some_boxes in (
        (np.flatnonzero(point_starts), np.arange(box_starts.size)),
        (np.flatnonzero(~point_starts), np.flatnonzero(box_starts)),
    ):
        for i, j in kernel.pairs(_points(points, some_points), _boxes(boxes, some_boxes), counters):
            yield some_points[i], some_boxes[j]


def _products(
    step: Step,
    partitioning: Partitioning,
    point_keys: Keys,
    box_keys: Keys,
    points: Points,
    boxes: Boxes,
    counters: Counters,
) -> Pairs:
    """The Cartesian products of the partition pairs that survive."""
    axis = partition_axis(step)
    layout = layout_of(axis, routing_points(axis, point_keys), end_codes(axis, box_keys), partitioning)
    for r, s in layout.pairs:
        some_points, some_boxes = np.flatnonzero(layout.r_part == r), np.flatnonzero(layout.s_part == s)
        for i, j in cross_pairs(_points(points, some_points), _boxes(boxes, some_boxes), counters):
            yield some_points[i], some_boxes[j]


def _points(points: Points, rows: Index) -> Points:
    return Points(points.coordinates[:, rows], points.numbers[rows])


def _boxes(boxes: Boxes, rows: Index) -> Boxes:
    return Boxes(boxes.low[:, rows], boxes.high[:, rows], boxes.numbers[rows])


def _taken(keys: Keys, rows: Index | None) -> Keys:
    return keys if rows is None else [key.take(rows) for key in keys]

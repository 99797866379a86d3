"""Pairs from key columns: the one door to the kernels, whatever the algorithm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.columns.codes import Mask
from dovetail.columns.encode import Boxes, Keys, Points, encode, routing_points, usable
from dovetail.conditions.comparison import Step
from dovetail.families.theta import kernel
from dovetail.families.theta.kernel import Counters, Index
from dovetail.families.theta.paper.cross import cross_pairs
from dovetail.families.theta.paper.routing import end_codes, layout_of, partition_axis
from dovetail.families.theta.spec import Options


def search(
    step: Step, options: Options, point_keys: Keys, box_keys: Keys, counters: Counters
) -> Iterator[tuple[Index, Index]]:
    """Matching (point row, box row) pairs of two sides that lie in memory whole.

    The paper's algorithms partition the rows first and form the products of what survives; rows that already come
    from one surviving pair are for :func:`~dovetail.families.theta.paper.cross.cross_pairs` itself.
    """
    point_rows, box_rows = np.flatnonzero(usable(point_keys)), np.flatnonzero(usable(box_keys))
    point_keys, box_keys = _taken(point_keys, point_rows), _taken(box_keys, box_rows)
    if not point_rows.size or not box_rows.size:
        return
    points, boxes = encode(step, point_keys, box_keys)
    if options.algorithm == "auto":
        found = kernel.pairs(points, boxes, counters)
    else:
        found = _products(step, options, point_keys, box_keys, points, boxes, counters)
    for i, j in found:
        yield point_rows[i], box_rows[j]


def matched(step: Step, options: Options, point_keys: Keys, box_keys: Keys, counters: Counters) -> Mask:
    """Which points have a match at all."""
    found = np.zeros(len(point_keys[0]), dtype=np.bool_)
    if options.algorithm == "auto":
        point_rows, box_rows = np.flatnonzero(usable(point_keys)), np.flatnonzero(usable(box_keys))
        points, boxes = encode(step, _taken(point_keys, point_rows), _taken(box_keys, box_rows))
        found[point_rows[kernel.matched(points, boxes, counters)]] = True
        return found
    for i, _ in search(step, options, point_keys, box_keys, counters):
        found[i] = True
    return found


def _products(
    step: Step,
    options: Options,
    point_keys: Keys,
    box_keys: Keys,
    points: Points,
    boxes: Boxes,
    counters: Counters,
) -> Iterator[tuple[Index, Index]]:
    axis = partition_axis(step)
    found = layout_of(axis, routing_points(axis, point_keys), end_codes(axis, box_keys), options)
    for r, s in found.pairs:
        i, j = np.flatnonzero(found.r_part == r), np.flatnonzero(found.s_part == s)
        left = Points(points.coordinates[:, i], points.numbers[i])
        right = Boxes(boxes.low[:, j], boxes.high[:, j], boxes.numbers[j])
        for a, b in cross_pairs(left, right, counters):
            yield i[a], j[b]


def _taken(keys: Keys, rows: Index) -> Keys:
    return keys if rows.size == len(keys[0]) else [key.take(rows) for key in keys]

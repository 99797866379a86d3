"""A compiled k-d tree, one for each group of points, built by medians.

Points lie in the order of the tree, so that a leaf is one run of memory.  Where rows ask for those of a window of time,
time is an axis like the others, along which nodes are cut and left out, and that no distance counts.
:mod:`dovetail.families.nearest.tree_search` looks for points in it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEAF = 12
"""Points below which a node is not divided further."""
DEPTH = 128
"""More nodes than wait on any path: every node halves its points."""


class Tree(NamedTuple):
    """Points in the order of their leaves, and nodes as a walk meets them: the left child of a node is the next one."""

    points: Floats
    """(rows, dimensions)."""
    places: Floats
    """(rows, 3): latitude, longitude and the cosine of the latitude, on the Earth; else without rows."""
    order: Index
    """The number of each point before it was put in order."""
    begin: Index
    end: Index
    right: Index
    """The right child, -1 for a leaf."""
    axis: Index
    cut: Floats
    """For each node the axis along which it is divided, and where: points of the left child are not above it."""
    low: Floats
    high: Floats
    """(nodes, dimensions): the box of each node."""
    roots: Index
    """For each group its root, -1 without points."""
    factors: Floats
    times: Index
    """The time of each point, where rows ask for those of a window; else without any."""
    earliest: Index
    latest: Index
    """For each node the times of its points."""


@njit
def _select(points: Floats, order: Index, begin: int, end: int, wanted: int, axis: int) -> None:  # pragma: no cover
    """Put the point that belongs at `wanted` there, smaller ones in front of it, larger ones behind."""
    low, high = begin, end - 1
    while low < high:
        middle = (low + high) >> 1
        a, b, c = points[low, axis], points[middle, axis], points[high, axis]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while points[i, axis] < pivot:
                i += 1
            while points[j, axis] > pivot:
                j -= 1
            if i <= j:
                for d in range(points.shape[1]):
                    points[i, d], points[j, d] = points[j, d], points[i, d]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            return


@njit
def _nodes(
    points: Floats, order: Index, starts: Index, factors: Floats, timed: bool, whole: float
) -> tuple[Index, Index, Index, Index, Floats, Floats, Floats, Index]:  # pragma: no cover - compiled
    groups, dims = starts.size - 1, points.shape[1]
    most = 2 * (points.shape[0] // (LEAF // 2) + groups) + 1
    begin, end = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    right = np.full(most, -1, dtype=np.int64)
    along, cut = np.zeros(most, dtype=np.int64), np.zeros(most)
    low, high = np.empty((most, dims)), np.empty((most, dims))
    roots = np.full(groups, -1, dtype=np.int64)
    stack = np.empty((DEPTH, 3), dtype=np.int64)
    count = 0
    for group in range(groups):
        if starts[group] == starts[group + 1]:
            continue
        roots[group] = count
        stack[0, 0], stack[0, 1], stack[0, 2] = starts[group], starts[group + 1], -1
        waiting = 1
        while waiting:
            waiting -= 1
            first, last, parent = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
            node = count
            count += 1
            if parent >= 0:
                right[parent] = node
            begin[node], end[node] = first, last
            axis, widest = 0, -1.0
            for d in range(dims):
                smallest = largest = points[first, d]
                for at in range(first + 1, last):
                    smallest, largest = min(smallest, points[at, d]), max(largest, points[at, d])
                low[node, d], high[node, d] = smallest, largest
                width = factors[d] * (largest - smallest)
                if timed and d == dims - 1:
                    # Down to the length of a window by time alone; then a cut by time for every two or three others.
                    # More of them would scatter the rows of a window, fewer would look at rows outside of it.
                    width = whole * width * math.sqrt(width)
                if width > widest:
                    axis, widest = d, width
            if last - first <= LEAF or widest <= 0.0:
                continue
            middle = (first + last) >> 1
            _select(points, order, first, last, middle, axis)
            along[node], cut[node] = axis, points[middle, axis]
            stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = middle, last, node
            stack[waiting + 1, 0], stack[waiting + 1, 1], stack[waiting + 1, 2] = first, middle, -1
            waiting += 2
    parts = begin[:count], end[:count], right[:count]
    return (*parts, along[:count], cut[:count], low[:count], high[:count], roots)


def build(points: Floats, starts: Index, factors: Floats, places: Floats | None = None) -> Tree:
    """A tree over the points of each group, which lie together: those of group g from starts[g] on."""
    ordered, order = points.copy(), np.arange(points.shape[0])
    nodes = _nodes(ordered, order, starts, factors, False, 0.0)
    own = np.empty((0, 3)) if places is None else places[order]
    none = np.empty(0, dtype=np.int64)
    return Tree(ordered, own, order, *nodes, factors, none, none, none)


def build_timed(
    points: Floats, times: Index, length: int, starts: Index, factors: Floats, places: Floats | None = None
) -> Tree:
    """A tree that is cut by time as well, for points of which rows ask for those of a window of this length."""
    dims = points.shape[1]
    ordered = np.column_stack([points, times.astype(np.float64)])
    order = np.arange(points.shape[0])
    with np.errstate(over="ignore"):
        whole = float(np.max(factors * np.ptp(points, axis=0))) if order.size else 0.0
    weights = np.append(factors, 1.0 / max(length, 1))
    nodes = _nodes(ordered, order, starts, weights, True, whole if 0.0 < whole < np.inf else 1.0)
    begin, end, right, axis, cut, low, high, roots = nodes
    own = np.empty((0, 3)) if places is None else places[order]
    when = times[order]
    spans = _time_spans(when, begin, end, right)
    boxes = np.ascontiguousarray(low[:, :dims]), np.ascontiguousarray(high[:, :dims])
    kept = np.ascontiguousarray(ordered[:, :dims])
    return Tree(kept, own, order, begin, end, right, axis, cut, *boxes, roots, factors, when, *spans)


@njit
def _time_spans(
    times: Index, begin: Index, end: Index, right: Index
) -> tuple[Index, Index]:  # pragma: no cover - compiled
    """The first and the last time of each node; children come behind their parents."""
    earliest, latest = np.empty(begin.size, dtype=np.int64), np.empty(begin.size, dtype=np.int64)
    for node in range(begin.size - 1, -1, -1):
        if right[node] >= 0:
            earliest[node] = min(earliest[node + 1], earliest[right[node]])
            latest[node] = max(latest[node + 1], latest[right[node]])
            continue
        earliest[node] = latest[node] = times[begin[node]]
        for at in range(begin[node] + 1, end[node]):
            earliest[node], latest[node] = min(earliest[node], times[at]), max(latest[node], times[at])
    return earliest, latest

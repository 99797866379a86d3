"""A compiled k-d tree, one for each group of points: built by medians, searched from the nearest box outward.

Points lie in the order of the tree, so that a leaf is one run of memory.  Distances are those of the definition, to
the last bit: :mod:`dovetail.reference.nearest`.  What prunes a box is never larger than the distance of a point in it:
rounding is monotone, so the gap to a box, squared and summed in the same order, is at most the square for each of its
points.  Places on the Earth are searched as points of the unit sphere, by chords with a margin for their rounding, and
measured by the haversine formula.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit
from dovetail.families.nearest.spec import EARTH

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LEAF = 12
"""Points below which a node is not divided further."""
NEIGHBOURHOOD = 1024
"""Points of a part of the tree that fits into the cache."""
_DEPTH = 128
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
    points: Floats, order: Index, starts: Index, factors: Floats
) -> tuple[Index, Index, Index, Index, Floats, Floats, Floats, Index]:  # pragma: no cover - compiled
    groups, dims = starts.size - 1, points.shape[1]
    most = 2 * (points.shape[0] // (LEAF // 2) + groups) + 1
    begin, end = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    right = np.full(most, -1, dtype=np.int64)
    along, cut = np.zeros(most, dtype=np.int64), np.zeros(most)
    low, high = np.empty((most, dims)), np.empty((most, dims))
    roots = np.full(groups, -1, dtype=np.int64)
    stack = np.empty((_DEPTH, 3), dtype=np.int64)
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
    nodes = _nodes(ordered, order, starts, factors)
    own = np.empty((0, 3)) if places is None else places[order]
    return Tree(ordered, own, order, *nodes, factors)


@njit(inline="always")
def _gap(low: Floats, high: Floats, node: int, point: Floats, factors: Floats) -> float:  # pragma: no cover - compiled
    """The square of the distance from a point to the box of a node."""
    total = 0.0
    for d in range(point.size):
        if point[d] < low[node, d]:
            part = factors[d] * (low[node, d] - point[d])
            total += part * part
        elif point[d] > high[node, d]:
            part = factors[d] * (point[d] - high[node, d])
            total += part * part
    return total


@njit(inline="always")
def _square(points: Floats, at: int, point: Floats, factors: Floats) -> float:  # pragma: no cover - compiled
    part = factors[0] * (points[at, 0] - point[0])
    total: float = part * part
    for d in range(1, point.size):
        part = factors[d] * (points[at, d] - point[d])
        total += part * part
    return total


@njit(inline="always")
def _on_earth(places: Floats, at: int, place: Floats) -> float:  # pragma: no cover - compiled
    half = math.sin((places[at, 0] - place[0]) / 2)
    turn = math.sin((places[at, 1] - place[1]) / 2)
    squared = half * half + place[2] * places[at, 2] * (turn * turn)
    return 2 * EARTH * math.asin(math.sqrt(min(1.0, squared)))


@njit(inline="always")
def _reach(far: float, earth: bool) -> float:  # pragma: no cover - compiled
    """No square of a point within `far` is larger than this."""
    if earth:
        angle = min(far / (2 * EARTH), math.pi / 2)
        chord = 2 * math.sin(angle) * (1 + 1e-12) + 1e-14
        return chord * chord
    return far * far * (1 + 1e-15) + 1e-320


@njit(inline="always")
def _lift(far: Floats, row: Index, size: int) -> None:  # pragma: no cover - compiled
    """The last entry of a heap, whose largest is first, to its place."""
    at = size - 1
    while at > 0 and far[(at - 1) >> 1] < far[at]:
        up = (at - 1) >> 1
        far[at], far[up] = far[up], far[at]
        row[at], row[up] = row[up], row[at]
        at = up


@njit(inline="always")
def _sink(far: Floats, row: Index, size: int) -> None:  # pragma: no cover - compiled
    """The first entry of a heap to its place."""
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            return
        if down + 1 < size and far[down + 1] > far[down]:
            down += 1
        if far[down] <= far[at]:
            return
        far[at], far[down] = far[down], far[at]
        row[at], row[down] = row[down], row[at]
        at = down


@njit
def nearest(
    tree: Tree, group: Index, asked: Floats, places: Floats, visits: Index, k: int, limits: Floats
) -> tuple[Index, Floats, Index, Mask]:  # pragma: no cover - compiled
    """For each asked point up to k rows and their distances, nearest first, how many, and whether others tie the k-th.

    None is farther than the limit of its asking row.  `visits` is the order in which points are asked: neighbours one
    after the other find their nodes in the cache.
    """
    size, earth = asked.shape[0], tree.places.shape[0] > 0
    out_row = np.empty((size, k), dtype=np.int64)
    out_far = np.empty((size, k))
    counts = np.zeros(size, dtype=np.int64)
    tied = np.zeros(size, dtype=np.bool_)
    stack, gaps = np.empty(_DEPTH, dtype=np.int64), np.empty(_DEPTH)
    for asking in visits:
        within = limits[asking]
        widest = _reach(within, earth)
        own = group[asking]
        if own < 0 or own >= tree.roots.size or tree.roots[own] < 0:
            continue
        point = asked[asking]
        far, row = out_far[asking], out_row[asking]
        held, reach, same = 0, widest, False
        stack[0], gaps[0] = tree.roots[own], _gap(tree.low, tree.high, tree.roots[own], point, tree.factors)
        waiting = 1
        while waiting:
            waiting -= 1
            node = stack[waiting]
            if gaps[waiting] > reach:
                continue
            while tree.right[node] >= 0:
                # Down to the nearer child; the other one waits.
                one, other = node + 1, tree.right[node]
                a = _gap(tree.low, tree.high, one, point, tree.factors)
                b = _gap(tree.low, tree.high, other, point, tree.factors)
                if b < a:
                    one, other, a, b = other, one, b, a
                if b <= reach:
                    stack[waiting], gaps[waiting] = other, b
                    waiting += 1
                node = one
                if a > reach:
                    break
            else:
                for at in range(tree.begin[node], tree.end[node]):
                    square = _square(tree.points, at, point, tree.factors)
                    if square > reach:
                        continue
                    distance = _on_earth(tree.places, at, places[asking]) if earth else math.sqrt(square)
                    if not distance <= within:
                        continue
                    if held < k:
                        far[held], row[held] = distance, at
                        held += 1
                        _lift(far, row, held)
                    elif distance < far[0]:
                        last = far[0]
                        far[0], row[0] = distance, at
                        _sink(far, row, k)
                        same = far[0] == last
                    else:
                        same = same or distance == far[0]
                    if held == k:
                        reach = min(widest, _reach(far[0], earth))
        counts[asking], tied[asking] = held, same
        # The largest goes to the end, until all are in order.
        for left in range(held, 1, -1):
            far[0], far[left - 1] = far[left - 1], far[0]
            row[0], row[left - 1] = row[left - 1], row[0]
            _sink(far, row, left - 1)
    return out_row, out_far, counts, tied


@njit
def within_reach(
    tree: Tree, group: Index, asked: Floats, places: Floats, limit: Floats
) -> tuple[Index, Index, Floats]:  # pragma: no cover - compiled
    """All rows within the limit of each asked point, in any order: asking row, row, distance."""
    earth = tree.places.shape[0] > 0
    room, count = 1024, 0
    owner, row, far = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64), np.empty(room)
    stack = np.empty(_DEPTH, dtype=np.int64)
    for asking in range(asked.shape[0]):
        point, reach = asked[asking], _reach(limit[asking], earth)
        stack[0] = tree.roots[group[asking]]
        waiting = 1
        while waiting:
            waiting -= 1
            node = stack[waiting]
            if _gap(tree.low, tree.high, node, point, tree.factors) > reach:
                continue
            if tree.right[node] >= 0:
                stack[waiting], stack[waiting + 1] = tree.right[node], node + 1
                waiting += 2
                continue
            for at in range(tree.begin[node], tree.end[node]):
                square = _square(tree.points, at, point, tree.factors)
                if square > reach:
                    continue
                distance = _on_earth(tree.places, at, places[asking]) if earth else math.sqrt(square)
                if distance <= limit[asking]:
                    if count == room:
                        room *= 2
                        owner = np.concatenate((owner, np.empty(count, dtype=np.int64)))
                        row = np.concatenate((row, np.empty(count, dtype=np.int64)))
                        far = np.concatenate((far, np.empty(count)))
                    owner[count], row[count], far[count] = asking, at, distance
                    count += 1
    return owner[:count], row[:count], far[:count]


@njit
def neighbourhoods(tree: Tree, group: Index, asked: Floats) -> Index:  # pragma: no cover - compiled
    """For each asked point where a small part of the tree near it begins: those of one part find it in the cache.

    The nodes above such parts are few, so that the walk down to them stays in the cache, too.
    """
    out = np.zeros(asked.shape[0], dtype=np.int64)
    for asking in range(asked.shape[0]):
        own = group[asking]
        if own < 0 or own >= tree.roots.size or tree.roots[own] < 0:
            continue
        node = tree.roots[own]
        while tree.right[node] >= 0 and tree.end[node] - tree.begin[node] > NEIGHBOURHOOD:
            node = tree.right[node] if asked[asking, tree.axis[node]] > tree.cut[node] else node + 1
        out[asking] = tree.begin[node]
    return out

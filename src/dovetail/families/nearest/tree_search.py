"""The compiled search in k-d trees, from the nearest box outward.

Distances are those of the definition, to the last bit: :mod:`dovetail.reference.nearest`.  What prunes a box is never
larger than the distance of a point in it: rounding is monotone, so the gap to a box, squared and summed in the same
order, is at most the square for each of its points.  Places on the Earth are searched as points of the unit sphere, by
chords with a margin for their rounding, and measured by the haversine formula.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit
from dovetail.families.nearest.spec import EARTH
from dovetail.families.nearest.tree import DEPTH, Floats, Index, Tree

Mask = npt.NDArray[np.bool_]

NEIGHBOURHOOD = 1024
"""Points of a part of the tree that fits into the cache."""
ALWAYS: Index = np.empty(0, dtype=np.int64)
"""For trees without times: the ends of no window."""


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
def _apart(earliest: Index, latest: Index, node: int, since: int, until: int) -> bool:  # pragma: no cover - compiled
    """Whether a node has no time from `since` to `until`."""
    return bool(earliest[node] > until or latest[node] < since)


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
    tree: Tree,
    group: Index,
    asked: Floats,
    places: Floats,
    visits: Index,
    k: int,
    limits: Floats,
    since: Index,
    until: Index,
) -> tuple[Index, Floats, Index, Mask]:  # pragma: no cover - compiled
    """For each asked point up to k rows and their distances, nearest first, how many, and whether others tie the k-th.

    None is farther than the limit of its asking row and, in a tree with times, before `since` or after `until`.
    `visits` is the order in which points are asked: neighbours one after the other find their nodes in the cache.
    """
    # Every attribute of the tree that a loop reads would count references to it.
    right, begin, end, points, factors = tree.right, tree.begin, tree.end, tree.points, tree.factors
    low, high, times, earliest, latest = tree.low, tree.high, tree.times, tree.earliest, tree.latest
    own_places, roots = tree.places, tree.roots
    size, earth, timed = asked.shape[0], own_places.shape[0] > 0, times.size > 0
    opens, closes = 0, 0
    out_row = np.empty((size, k), dtype=np.int64)
    out_far = np.empty((size, k))
    counts = np.zeros(size, dtype=np.int64)
    tied = np.zeros(size, dtype=np.bool_)
    stack, gaps = np.empty(DEPTH, dtype=np.int64), np.empty(DEPTH)
    for asking in visits:
        within = limits[asking]
        widest = _reach(within, earth)
        own = group[asking]
        if own < 0 or own >= roots.size or roots[own] < 0:
            continue
        point = asked[asking]
        far, row = out_far[asking], out_row[asking]
        held, reach, same = 0, widest, False
        if timed:
            opens, closes = since[asking], until[asking]
        stack[0], gaps[0] = roots[own], 0.0
        waiting = 1
        while waiting:
            waiting -= 1
            node = stack[waiting]
            if gaps[waiting] > reach:
                continue
            while right[node] >= 0:
                # Down to the nearer child; the other one waits.
                one, other = node + 1, right[node]
                a = _gap(low, high, one, point, factors)
                b = _gap(low, high, other, point, factors)
                if timed:
                    # NaN is neither near nor nearer.
                    if _apart(earliest, latest, one, opens, closes):
                        a = np.nan
                    if _apart(earliest, latest, other, opens, closes):
                        b = np.nan
                if b < a or a != a:
                    one, other, a, b = other, one, b, a
                if b <= reach:
                    stack[waiting], gaps[waiting] = other, b
                    waiting += 1
                node = one
                if not a <= reach:
                    break
            else:
                for at in range(begin[node], end[node]):
                    if timed and not opens <= times[at] <= closes:
                        continue
                    square = _square(points, at, point, factors)
                    if square > reach:
                        continue
                    distance = _on_earth(own_places, at, places[asking]) if earth else math.sqrt(square)
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
    tree: Tree, group: Index, asked: Floats, places: Floats, limit: Floats, since: Index, until: Index
) -> tuple[Index, Index, Floats]:  # pragma: no cover - compiled
    """All rows within the limit of each asked point, in any order: asking row, row, distance."""
    right, begin, end, points, factors = tree.right, tree.begin, tree.end, tree.points, tree.factors
    low, high, times, earliest, latest = tree.low, tree.high, tree.times, tree.earliest, tree.latest
    own_places, roots = tree.places, tree.roots
    earth, timed = own_places.shape[0] > 0, times.size > 0
    opens, closes = 0, 0
    room, count = 1024, 0
    owner, row, far = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64), np.empty(room)
    stack = np.empty(DEPTH, dtype=np.int64)
    for asking in range(asked.shape[0]):
        point, reach = asked[asking], _reach(limit[asking], earth)
        if timed:
            opens, closes = since[asking], until[asking]
        stack[0] = roots[group[asking]]
        waiting = 1
        while waiting:
            waiting -= 1
            node = stack[waiting]
            if timed and _apart(earliest, latest, node, opens, closes):
                continue
            if _gap(low, high, node, point, factors) > reach:
                continue
            if right[node] >= 0:
                stack[waiting], stack[waiting + 1] = right[node], node + 1
                waiting += 2
                continue
            for at in range(begin[node], end[node]):
                if timed and not opens <= times[at] <= closes:
                    continue
                square = _square(points, at, point, factors)
                if square > reach:
                    continue
                distance = _on_earth(own_places, at, places[asking]) if earth else math.sqrt(square)
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
def neighbourhoods(tree: Tree, group: Index, asked: Floats, until: Index) -> Index:  # pragma: no cover - compiled
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
            axis = tree.axis[node]
            own_place = asked[asking, axis] if axis < asked.shape[1] else np.float64(until[asking])
            node = tree.right[node] if own_place > tree.cut[node] else node + 1
        out[asking] = tree.begin[node]
    return out

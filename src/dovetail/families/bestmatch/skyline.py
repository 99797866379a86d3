"""The best of all pairs, without forming all pairs.

Each axis lists the pairs in its own order, the cheapest first, a few at a time: for a row, the nearest rows of the
other side are next to it in sorted order, the smallest sums at the front, the latest at the end.  The axes take turns,
each round up to a cost *theta* that lists about twice as many pairs as the last.  A pair that no axis has listed yet
costs more than theta on every axis.  So once a single pair has been seen that costs no more than theta on every axis,
all remaining pairs are beaten, and none of them has to be looked at.  (This is a threshold algorithm.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.columns.numba_cache import njit
from dovetail.families.bestmatch.compiled import Index, Matrix, Sets, add_unless_beaten, cost_of, doubled
from dovetail.families.bestmatch.spec import (
    LEAST_FLOAT,
    LEAST_INT,
    MOST_FLOAT,
    NEAR_FLOAT,
    NEAR_INT,
)

SAMPLE = 64
"""Rows from which a round estimates how far it should go."""

_OUTWARD, _UPWARD, _DOWNWARD, _NOWHERE = 0, 1, 2, 3
_INFINITE = 0x7FF0_0000_0000_0000
_FLOATS = (NEAR_FLOAT, LEAST_FLOAT, MOST_FLOAT)


@njit
def best_pairs(
    kinds: Index,
    limits: Index,
    left: Matrix,
    right: Matrix,
    left_keys: Matrix,
    right_keys: Matrix,
    order: Matrix,
    left_ends: Index,
    right_ends: Index,
    left_sets: Sets,
    right_sets: Sets,
) -> tuple[Matrix, int]:  # pragma: no cover - compiled
    """The best pairs of each group, as row numbers of both sides, and the number of pairs whose costs were computed.

    Group g holds the left rows from left_ends[g] to left_ends[g + 1], and the right rows likewise; `order` has the
    right rows of each group in the order of their keys, for each axis.
    """
    pairs = np.empty((64, 2), dtype=np.int64)
    total, compared = 0, 0
    for group in range(left_ends.size - 1):
        a, b = left_ends[group], left_ends[group + 1]
        c, d = right_ends[group], right_ends[group + 1]
        if a == b or c == d:
            continue
        rows, looked = _of_group(
            kinds, limits, left, right, left_keys, right_keys, order, a, b, c, d, left_sets, right_sets
        )
        compared += looked
        if total + rows.shape[0] > pairs.shape[0]:
            more = np.empty((2 * (total + rows.shape[0]), 2), dtype=np.int64)
            for at in range(total):
                more[at, 0], more[at, 1] = pairs[at, 0], pairs[at, 1]
            pairs = more
        for at in range(rows.shape[0]):
            pairs[total + at, 0], pairs[total + at, 1] = rows[at, 0], rows[at, 1]
        total += rows.shape[0]
    return pairs[:total], compared


@njit
def _access(kind: int, values: Matrix, axis: int, begin: int, end: int) -> int:  # pragma: no cover - compiled
    """In which direction costs of an axis rise along the sorted rows of the other side."""
    if kind in (NEAR_INT, NEAR_FLOAT):
        return _OUTWARD
    if kind in (LEAST_FLOAT, MOST_FLOAT):
        # Infinities of both signs add up to NaN, and then costs do not follow the order of the rows.
        for row in range(begin, end):
            if not np.isfinite(np.int64(values[row, axis]).view(np.float64)):
                return _NOWHERE
    return _UPWARD if kind in (LEAST_INT, LEAST_FLOAT) else _DOWNWARD


@njit
def _of_group(
    kinds: Index,
    limits: Index,
    left: Matrix,
    right: Matrix,
    left_keys: Matrix,
    right_keys: Matrix,
    order: Matrix,
    a: int,
    b: int,
    c: int,
    d: int,
    left_sets: Sets,
    right_sets: Sets,
) -> tuple[Matrix, int]:  # pragma: no cover - compiled
    axes, rows, others = kinds.size, b - a, d - c
    best, pairs = np.empty((64, axes), dtype=np.int64), np.empty((64, 2), dtype=np.int64)
    size, compared = 0, 0
    cost = np.empty(axes, dtype=np.int64)
    access = np.empty(axes, dtype=np.int64)
    below, above = np.empty((axes, rows), dtype=np.int64), np.empty((axes, rows), dtype=np.int64)
    theta = np.full(axes, LOWEST)
    begun = np.zeros(axes, dtype=np.bool_)
    orderly = 0
    for axis in range(axes):
        access[axis] = max(_access(kinds[axis], left, axis, a, b), _access(kinds[axis], right, axis, c, d))
        if access[axis] == _NOWHERE:
            continue
        orderly += 1
        if access[axis] == _OUTWARD:
            for row in range(rows):
                key = left_keys[a + row, axis]
                # At -inf, costs rise outward from behind its equals, whose distance is undefined (NaN).
                lowest = kinds[axis] == NEAR_FLOAT and key == ~_INFINITE
                low, high = 0, others
                while low < high:
                    middle = (low + high) // 2
                    other_key = right_keys[order[axis, c + middle], axis]
                    if other_key < key or (lowest and other_key == key):
                        low = middle + 1
                    else:
                        high = middle
                below[axis, row], above[axis, row] = low - 1, low
        else:
            for row in range(rows):
                above[axis, row] = 0 if access[axis] == _UPWARD else others
                below[axis, row] = above[axis, row] - 1
    rank = 1
    done = False
    while not done:
        if orderly == 0:
            for row in range(a, b):
                for other in range(c, d):
                    for axis in range(axes):
                        cost[axis] = cost_of(kinds[axis], left[row, axis], right[other, axis])
                    compared += 1
                    if size == best.shape[0]:
                        best, pairs = doubled(best, pairs)
                    size = add_unless_beaten(best, pairs, size, cost, row, other, left_sets, right_sets)
            break
        for axis in range(axes):
            if access[axis] == _NOWHERE:
                continue
            new = _threshold(kinds[axis], left, right, axis, a, b, order[axis, c:d], below[axis], above[axis], rank)
            new = min(max(new, theta[axis]), limits[axis])
            for row in range(rows):
                for side in range(2):
                    while True:
                        at = below[axis, row] if side == 0 else above[axis, row]
                        if at < 0 or at >= others:
                            break
                        other = order[axis, c + at]
                        here = cost_of(kinds[axis], left[a + row, axis], right[other, axis])
                        if here > new:
                            break
                        if side == 0:
                            below[axis, row] -= 1
                        else:
                            above[axis, row] += 1
                        new_pair = True
                        for k in range(axes):
                            cost[k] = cost_of(kinds[k], left[a + row, k], right[other, k])
                            # Beyond a limit, or another axis has listed this pair already.
                            if cost[k] > limits[k] or (k != axis and begun[k] and cost[k] <= theta[k]):
                                new_pair = False
                                break
                        compared += 1
                        if new_pair:
                            if size == best.shape[0]:
                                best, pairs = doubled(best, pairs)
                            size = add_unless_beaten(best, pairs, size, cost, a + row, other, left_sets, right_sets)
            theta[axis] = new
            begun[axis] = True
            if new >= limits[axis] or new == HIGHEST:
                done = True  # every candidate has been listed
                break
            if orderly == axes and left_sets[0].shape[0] == 0 and _covered(best, size, theta, begun):
                done = True
                break
        rank *= 2
    return pairs[:size].copy(), compared


@njit
def _covered(
    best: Matrix, size: int, theta: Index, begun: npt.NDArray[np.bool_]
) -> bool:  # pragma: no cover - compiled
    """Whether some pair costs no more than theta on every axis."""
    if not begun.all():
        return False
    for at in range(size):
        inside = True
        for axis in range(theta.size):
            if best[at, axis] > theta[axis]:
                inside = False
                break
        if inside:
            return True
    return False


@njit
def _threshold(
    kind: int,
    left: Matrix,
    right: Matrix,
    axis: int,
    a: int,
    b: int,
    order: Index,
    below: Index,
    above: Index,
    rank: int,
) -> int:  # pragma: no cover - compiled
    """The cost up to which about `rank` more pairs of a row are listed: the median over a sample of rows."""
    step = max(1, (b - a) // SAMPLE)
    asked = np.empty((b - a + step - 1) // step, dtype=np.int64)
    count = 0
    for row in range(0, b - a, step):
        nearest = HIGHEST
        down, up = below[row] - rank + 1, above[row] + rank - 1
        if below[row] >= 0 and down >= 0:
            nearest = min(nearest, cost_of(kind, left[a + row, axis], right[order[down], axis]))
        if above[row] < order.size and up < order.size:
            nearest = min(nearest, cost_of(kind, left[a + row, axis], right[order[up], axis]))
        # In order, by insertion: there are few.
        at = count
        while at and asked[at - 1] > nearest:
            asked[at] = asked[at - 1]
            at -= 1
        asked[at] = nearest
        count += 1
    chosen = asked[count // 2]
    # Between infinity and NaN costs do not follow the order of the rows: then list all of them at once.
    return HIGHEST if kind in _FLOATS and chosen >= _INFINITE else chosen

"""Compiled parts of the best-match kernels: costs, bounds on costs, dominance, and the tree they are searched in.

Values of an axis are 64-bit numbers; those of float axes are the bits of doubles.  A cost is a 64-bit code of which the
smaller is the better.  A matrix has one row per input row and one column per axis.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import LOWEST, Codes
from dovetail.columns.numba_cache import njit
from dovetail.families.bestmatch.spec import (
    LATEST,
    LEAST_FLOAT,
    LEAST_INT,
    MOST_FLOAT,
    MOST_INT,
    NEAR_FLOAT,
    NEAR_INT,
)

Index = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]
Sets = tuple[Index, Index]
"""For each set axis, where each row's elements begin and end; and all elements, sorted within a row."""

LEAF = 8
"""Rows of a leaf.  Smaller leaves mean more bounds to compute, larger ones more costs."""

_NAN = 0x7FF8_0000_0000_0000
_INFINITE = 0x7FF0_0000_0000_0000
_TURN = 0x7FFF_FFFF_FFFF_FFFF


@njit
def float_code(value: float) -> int:  # pragma: no cover - compiled
    """The order code of a float: NaN above all, -0.0 as 0.0."""
    if value != value:
        return _NAN
    if value == 0.0:
        return 0
    bits = int(np.float64(value).view(np.int64))
    return bits if bits >= 0 else bits ^ _TURN


@njit
def cost_of(kind: int, a: int, b: int) -> int:  # pragma: no cover - compiled
    """The cost of a pair on one axis."""
    if kind == NEAR_INT:
        # The distance of two 64-bit numbers needs all 64 bits; flipping the highest makes it a code.
        apart = np.uint64(a) - np.uint64(b) if a >= b else np.uint64(b) - np.uint64(a)
        return int(np.int64(apart ^ np.uint64(0x8000_0000_0000_0000)))
    if kind == NEAR_FLOAT:
        distance = abs(np.int64(a).view(np.float64) - np.int64(b).view(np.float64))
        return _NAN if distance != distance else int(np.float64(distance).view(np.int64))
    if kind == LEAST_INT:
        return a + b
    if kind == MOST_INT:
        return ~(a + b)
    if kind == LATEST:
        return ~max(a, b)
    code = float_code(np.int64(a).view(np.float64) + np.int64(b).view(np.float64))
    return code if kind == LEAST_FLOAT else ~code


@njit
def bound_of(kind: int, a: int, low: int, high: int) -> int:  # pragma: no cover - compiled
    """A lower bound on the cost of any pair of `a` and a value from `low` to `high`.

    Where a float among the values is infinite or NaN, `low` and `high` are the infinities.
    """
    if kind == NEAR_INT:
        if a < low:
            return cost_of(kind, a, low)
        return cost_of(kind, a, high) if a > high else LOWEST
    if kind == LEAST_INT:
        return a + low
    if kind == MOST_INT:
        return ~(a + high)
    if kind == LATEST:
        return ~max(a, high)
    x, lowest, highest = np.int64(a).view(np.float64), np.int64(low).view(np.float64), np.int64(high).view(np.float64)
    if kind == NEAR_FLOAT:
        if x < lowest:
            return int(np.float64(lowest - x).view(np.int64))
        return int(np.float64(x - highest).view(np.int64)) if x > highest else 0
    # Infinities of both signs add up to NaN, the best of all where more is better.
    if highest == np.inf or not np.isfinite(x):
        return LOWEST
    return float_code(x + lowest) if kind == LEAST_FLOAT else ~float_code(x + highest)


@njit
def relation(one: Codes, other: Codes) -> int:  # pragma: no cover - compiled
    """How two pairs compare: 1 if the first is better on an axis, 2 if the second is, 3 if both are, 0 if equal."""
    bits = 0
    for axis in range(one.size):
        if one[axis] < other[axis]:
            bits |= 1
        elif one[axis] > other[axis]:
            bits |= 2
        if bits == 3:
            break
    return bits


@njit
def _holds(ids: Index, begin: int, end: int, wanted: int) -> bool:  # pragma: no cover - compiled
    while begin < end:
        middle = (begin + end) // 2
        if ids[middle] < wanted:
            begin = middle + 1
        elif ids[middle] > wanted:
            end = middle
        else:
            return True
    return False


@njit
def _exceeds(
    at: int, left: Sets, right: Sets, i: int, j: int, other_i: int, other_j: int
) -> bool:  # pragma: no cover - compiled
    """Whether the pair (i, j) has a common element that the other pair does not have."""
    left_ends, left_ids = left
    right_ends, right_ids = right
    p, q = left_ends[at, i], right_ends[at, j]
    while p < left_ends[at, i + 1] and q < right_ends[at, j + 1]:
        if left_ids[p] < right_ids[q]:
            p += 1
        elif left_ids[p] > right_ids[q]:
            q += 1
        else:
            if not _holds(left_ids, left_ends[at, other_i], left_ends[at, other_i + 1], left_ids[p]) or not _holds(
                right_ids, right_ends[at, other_j], right_ends[at, other_j + 1], left_ids[p]
            ):
                return True
            p += 1
            q += 1
    return False


@njit
def set_relation(
    left: Sets, right: Sets, i: int, j: int, other_i: int, other_j: int
) -> int:  # pragma: no cover - compiled
    """As :func:`relation`, for the common elements of two pairs."""
    bits = 0
    for at in range(left[0].shape[0]):
        if _exceeds(at, left, right, i, j, other_i, other_j):
            bits |= 1
        if _exceeds(at, left, right, other_i, other_j, i, j):
            bits |= 2
    return bits


@njit
def add_unless_beaten(
    costs: Matrix, rows: Matrix, size: int, cost: Codes, i: int, j: int, left: Sets, right: Sets
) -> int:  # pragma: no cover - compiled
    """Add a pair to the best ones so far, unless one beats it, and remove those that it beats.

    The arrays have space for one more; returns how many there are then.  No pair in the skyline beats another one in
    it, so a pair that equals one of them belongs to it.
    """
    sets = left[0].shape[0]
    at = 0
    while at < size:
        bits = relation(costs[at], cost)
        if sets and bits != 3:
            bits |= set_relation(left, right, rows[at, 0], rows[at, 1], i, j)
        if bits == 1:
            # A pair that beats one is likely to beat others: it moves towards the front.
            front = at // 2
            for axis in range(cost.size):
                costs[front, axis], costs[at, axis] = costs[at, axis], costs[front, axis]
            for side in range(2):
                rows[front, side], rows[at, side] = rows[at, side], rows[front, side]
            return size
        if bits == 2:
            size -= 1
            for axis in range(cost.size):
                costs[at, axis] = costs[size, axis]
            rows[at, 0], rows[at, 1] = rows[size, 0], rows[size, 1]
        elif bits == 0:
            break
        else:
            at += 1
    for axis in range(cost.size):
        costs[size, axis] = cost[axis]
    rows[size, 0], rows[size, 1] = i, j
    return size + 1


@njit
def doubled(costs: Matrix, rows: Matrix) -> tuple[Matrix, Matrix]:  # pragma: no cover - compiled
    """The same arrays with twice the capacity."""
    # Number by number: an assignment to a slice of two dimensions takes Numba five seconds to compile.
    more_costs = np.empty((2 * costs.shape[0], costs.shape[1]), dtype=np.int64)
    more_rows = np.empty((2 * rows.shape[0], 2), dtype=np.int64)
    for at in range(costs.shape[0]):
        for axis in range(costs.shape[1]):
            more_costs[at, axis] = costs[at, axis]
    for at in range(rows.shape[0]):
        more_rows[at, 0], more_rows[at, 1] = rows[at, 0], rows[at, 1]
    return more_costs, more_rows


@njit
def order_keys(kinds: Index, values: Matrix) -> Matrix:  # pragma: no cover - compiled
    """Values as codes that keep their order."""
    keys = values.copy()
    for axis in range(kinds.size):
        if kinds[axis] in (NEAR_FLOAT, LEAST_FLOAT, MOST_FLOAT):
            for row in range(values.shape[0]):
                keys[row, axis] = float_code(np.int64(values[row, axis]).view(np.float64))
    return keys


@njit
def pair_costs(kinds: Index, left: Matrix, right: Matrix, i: Index, j: Index) -> Matrix:  # pragma: no cover - compiled
    """The costs of given pairs."""
    costs = np.empty((i.size, kinds.size), dtype=np.int64)
    for at in range(i.size):
        for axis in range(kinds.size):
            costs[at, axis] = cost_of(kinds[axis], left[i[at], axis], right[j[at], axis])
    return costs


@njit
def best_of_groups(
    ends: Index, costs: Matrix, i: Index, j: Index, left: Sets, right: Sets
) -> npt.NDArray[np.bool_]:  # pragma: no cover - compiled
    """Which pairs no other pair of their group beats; group g holds the pairs from ends[g] to ends[g + 1]."""
    kept = np.zeros(i.size, dtype=np.bool_)
    largest = 1
    for group in range(ends.size - 1):
        largest = max(largest, ends[group + 1] - ends[group])
    best = np.empty((largest, costs.shape[1]), dtype=np.int64)
    rows = np.empty((largest, 2), dtype=np.int64)
    positions = np.empty(largest, dtype=np.int64)
    sets = left[0].shape[0]
    for group in range(ends.size - 1):
        size = 0
        for pair in range(ends[group], ends[group + 1]):
            at, beaten = 0, False
            while at < size:
                bits = relation(best[at], costs[pair])
                if sets and bits != 3:
                    bits |= set_relation(left, right, rows[at, 0], rows[at, 1], i[pair], j[pair])
                if bits == 1:
                    beaten = True
                    break
                if bits == 2:
                    size -= 1
                    best[at] = best[size]
                    rows[at] = rows[size]
                    positions[at] = positions[size]
                elif bits == 0:
                    break
                else:
                    at += 1
            if not beaten:
                best[size] = costs[pair]
                rows[size, 0], rows[size, 1] = i[pair], j[pair]
                positions[size] = pair
                size += 1
        for at in range(size):
            kept[positions[at]] = True
    return kept

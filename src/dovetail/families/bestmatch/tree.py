"""The best pairs of each row, by branch and bound in a tree.

Rows of the searched side are halved, again and again, on the axis on which they are most spread out.  A node knows the
range of each axis, which gives, for any row of the other side, a lower bound on each cost of its rows.  A node is
skipped if it lies beyond a maximum distance, or if a pair found so far beats even that bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.columns.codes import HIGHEST
from dovetail.columns.numba_cache import njit
from dovetail.families.bestmatch.compiled import (
    LEAF,
    Index,
    Matrix,
    Sets,
    add_unless_beaten,
    bound_of,
    cost_of,
    doubled,
    order_keys,
)
from dovetail.families.bestmatch.spec import LEAST_FLOAT, MOST_FLOAT, NEAR_FLOAT

LIST, COMPARE, PRUNE = 0, 1, 2
"""What a search does with candidates: list them all; keep the best; keep the best and skip what they beat."""


class Tree(NamedTuple):
    """Rows of one side, in the order of the leaves."""

    values: Matrix
    positions: Index
    """The number of each row before it was reordered."""
    starts: Index
    """Where the rows of each node begin; node n has the children 2n + 1 and 2n + 2."""
    ends: Index
    axes: Index
    """The axis on which a node is halved, -1 for a leaf."""
    low: Matrix
    high: Matrix


def build(kinds: Index, limits: Index, values: Matrix) -> Tree:
    """A tree over the rows of one side."""
    rows = values.shape[0]
    depth = max(0, int(np.ceil(np.log2(rows / LEAF)))) if rows else 0
    keys = order_keys(kinds, values)
    positions, starts, ends, axes, low, high = _build(kinds, limits, values, keys, depth)
    return Tree(np.ascontiguousarray(values[positions]), positions, starts, ends, axes, low, high)


@njit
def _number(kind: int, value: int) -> float:  # pragma: no cover - compiled
    """A value as a finite float, for a rough measure of spread."""
    if kind in (NEAR_FLOAT, LEAST_FLOAT, MOST_FLOAT):
        x = np.int64(value).view(np.float64)
        return 1e150 if x != x else min(max(x, -1e150), 1e150)
    return float(value)


@njit
def _select(positions: Index, keys: Matrix, axis: int, begin: int, end: int, middle: int) -> None:  # pragma: no cover
    """Reorder positions[begin:end] so that no key from `middle` on is below a key before it."""
    low, high = begin, end - 1
    while low < high:
        a, b, c = keys[positions[low], axis], keys[positions[(low + high) // 2], axis], keys[positions[high], axis]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[positions[i], axis] < pivot:
                i += 1
            while keys[positions[j], axis] > pivot:
                j -= 1
            if i <= j:
                positions[i], positions[j] = positions[j], positions[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@njit
def _build(
    kinds: Index, limits: Index, values: Matrix, keys: Matrix, depth: int
) -> tuple[Index, Index, Index, Index, Matrix, Matrix]:  # pragma: no cover - compiled
    rows, axes = values.shape
    nodes = (1 << (depth + 1)) - 1
    positions = np.arange(rows)
    starts, ends = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    split = np.full(nodes, -1, dtype=np.int64)
    low, high = np.zeros((nodes, axes), dtype=np.int64), np.zeros((nodes, axes), dtype=np.int64)
    weights = np.ones(axes)
    ends[0] = rows
    for level in range(depth + 1):
        for at in range(1 << level):
            node = (1 << level) - 1 + at
            begin, end = starts[node], ends[node]
            if begin == end:
                continue
            widest, spread = 0, -1.0
            for axis in range(axes):
                floats = kinds[axis] in (NEAR_FLOAT, LEAST_FLOAT, MOST_FLOAT)
                first, last = positions[begin], positions[begin]
                regular = True
                for p in range(begin, end):
                    row = positions[p]
                    if keys[row, axis] < keys[first, axis]:
                        first = row
                    if keys[row, axis] > keys[last, axis]:
                        last = row
                if floats:
                    regular = np.isfinite(np.int64(values[first, axis]).view(np.float64)) and np.isfinite(
                        np.int64(values[last, axis]).view(np.float64)
                    )
                low[node, axis] = values[first, axis] if regular else np.float64(-np.inf).view(np.int64)
                high[node, axis] = values[last, axis] if regular else np.float64(np.inf).view(np.int64)
                here = _number(kinds[axis], values[last, axis]) - _number(kinds[axis], values[first, axis])
                if node == 0:
                    # Distances are measured in multiples of the limit; without one, relative to the range of the axis.
                    unit = here
                    if limits[axis] != HIGHEST:
                        unit = (
                            np.int64(limits[axis]).view(np.float64)
                            if floats
                            else float(np.uint64(limits[axis]) ^ np.uint64(0x8000_0000_0000_0000))
                        )
                    weights[axis] = 1.0 / unit if unit > 1e-150 else 1e150
                if here * weights[axis] > spread:
                    widest, spread = axis, here * weights[axis]
            if level < depth:
                middle = (begin + end) // 2
                _select(positions, keys, widest, begin, end, middle)
                split[node] = widest
                left = 2 * node + 1
                starts[left], ends[left] = begin, middle
                starts[left + 1], ends[left + 1] = middle, end
    return positions, starts, ends, split, low, high


@njit
def _beaten(costs: Matrix, size: int, bound: Index) -> bool:  # pragma: no cover - compiled
    """Whether a pair found so far beats anything at or above the bound; a tie with the bound does not count."""
    for at in range(size):
        better = False
        for axis in range(bound.size):
            if costs[at, axis] > bound[axis]:
                break
            if costs[at, axis] < bound[axis]:
                better = True
        else:
            if better:
                return True
    return False


@njit
def search(
    kinds: Index,
    limits: Index,
    queries: Matrix,
    chosen: Index,
    tree: Tree,
    mode: int,
    query_sets: Sets,
    tree_sets: Sets,
) -> tuple[Index, Index, int]:  # pragma: no cover - compiled
    """The best pairs or all candidates of every chosen query row, and the number of pairs whose costs were computed."""
    axes = kinds.size
    found_i, found_j = np.empty(chosen.size + 64, dtype=np.int64), np.empty(chosen.size + 64, dtype=np.int64)
    found, compared = 0, 0
    best, rows = np.empty((16, axes), dtype=np.int64), np.empty((16, 2), dtype=np.int64)
    cost, bound = np.empty(axes, dtype=np.int64), np.empty(axes, dtype=np.int64)
    stack = np.empty(128, dtype=np.int64)
    if tree.values.shape[0] == 0:
        return found_i[:0], found_j[:0], 0
    for i in chosen:
        size = 0
        stack[0] = 0
        top = 1
        while top:
            top -= 1
            node = stack[top]
            near = True
            for axis in range(axes):
                bound[axis] = bound_of(kinds[axis], queries[i, axis], tree.low[node, axis], tree.high[node, axis])
                if bound[axis] > limits[axis]:
                    near = False
                    break
            if not near or (mode == PRUNE and _beaten(best, size, bound)):
                continue
            split = tree.axes[node]
            if split >= 0:
                left = 2 * node + 1
                right = left + 1
                # The nearer half goes on top, so that it is searched first and its pairs rule out parts of the other.
                left_bound = bound_of(kinds[split], queries[i, split], tree.low[left, split], tree.high[left, split])
                right_bound = bound_of(kinds[split], queries[i, split], tree.low[right, split], tree.high[right, split])
                stack[top] = left if left_bound > right_bound else right
                stack[top + 1] = right if left_bound > right_bound else left
                top += 2
                continue
            for leaf in range(tree.starts[node], tree.ends[node]):
                near = True
                for axis in range(axes):
                    cost[axis] = cost_of(kinds[axis], queries[i, axis], tree.values[leaf, axis])
                    if cost[axis] > limits[axis]:
                        near = False
                        break
                compared += 1
                if not near:
                    continue
                if size == best.shape[0]:
                    best, rows = doubled(best, rows)
                if mode == LIST:
                    rows[size, 1] = tree.positions[leaf]
                    size += 1
                else:
                    size = add_unless_beaten(best, rows, size, cost, i, tree.positions[leaf], query_sets, tree_sets)
        if found + size > found_i.size:
            more = np.empty(2 * (found + size), dtype=np.int64)
            more[:found] = found_i[:found]
            found_i = more
            more = np.empty(2 * (found + size), dtype=np.int64)
            more[:found] = found_j[:found]
            found_j = more
        for at in range(size):
            found_i[found] = i
            found_j[found] = rows[at, 1]
            found += 1
    return found_i[:found], found_j[:found], compared


NO_SETS: Sets = (np.zeros((0, 1), dtype=np.int64), np.zeros(0, dtype=np.int64))
"""For joins that compare no sets."""

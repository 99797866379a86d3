"""The kernel of the paper's algorithms: every pair of a cell, compared one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.columns.codes import Codes
from dovetail.columns.encode import Boxes, Points
from dovetail.columns.numba_cache import njit
from dovetail.families.theta.kernel import CHUNK, Counters, Index


def cross_pairs(left: Points, right: Boxes, counters: Counters, *, chunk: int = CHUNK) -> Iterator[tuple[Index, Index]]:
    """Matching pairs of the Cartesian product, in chunks of at most `chunk`.

    Examples
    --------
    >>> counters = Counters()
    >>> left = Points(np.array([[10, 20, 30]]))
    >>> right = Boxes(low=np.array([[15, 0]]), high=np.array([[40, 10]]))
    >>> sum(len(i) for i, _ in cross_pairs(left, right, counters)), counters.comparisons
    (3, 6)
    """
    state = np.zeros(2, dtype=np.int64)
    while state[0] < len(left) and len(right):
        i, j, compared = _products(state, left.coordinates, left.numbers, right.low, right.high, right.numbers, chunk)
        counters.comparisons += compared
        counters.results += len(i)
        if len(i):
            yield i, j


@njit
def _products(
    state: Index,
    coordinates: Codes,
    left_group: Index,
    low: Codes,
    high: Codes,
    right_group: Index,
    chunk: int,
) -> tuple[Index, Index, int]:  # pragma: no cover - compiled
    """state: current left row, current right row."""
    out_i = np.empty(chunk, dtype=np.int64)
    out_j = np.empty(chunk, dtype=np.int64)
    filled, compared = 0, 0
    i, j = state[0], state[1]
    while i < left_group.size and filled < chunk:
        while j < right_group.size and filled < chunk:
            compared += 1
            inside = left_group[i] == right_group[j]
            for d in range(coordinates.shape[0]):
                inside = inside and low[d, j] <= coordinates[d, i] <= high[d, j]
            if inside:
                out_i[filled] = i
                out_j[filled] = j
                filled += 1
            j += 1
        if j >= right_group.size:
            i += 1
            j = 0
    state[0], state[1] = i, j
    return out_i[:filled], out_j[:filled], compared

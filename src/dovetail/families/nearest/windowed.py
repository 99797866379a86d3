"""The nearest values on a line among the rows of a window of time.

Rows lie by key and time, so that those of a window are a range of positions, and a wavelet matrix has the rank of each
value.  How many values of the range are below the asked one tells where to begin; the next ones on either side are the
smallest but so many of the range.  Each takes a look at a few places, however many rows the window has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.columns.codes import Codes
from dovetail.columns.numba_cache import njit
from dovetail.columns.search import grouped_runs
from dovetail.columns.wavelet import Wavelets, below, build, kth
from dovetail.families.nearest.compiled import Index, Values, first_at_least


class TimedLine:
    """Values of groups, by the times of their rows."""

    def __init__(self, groups: Index, values: Values, times: Codes, starts: Index) -> None:
        self.order = np.lexsort((times, groups))
        self._times, self._starts = times[self.order], starts
        by_value = np.argsort(values[self.order], kind="stable")
        self._place = by_value
        self._values = values[self.order][by_value]
        ranks = np.empty(by_value.size, dtype=np.int64)
        ranks[by_value] = np.arange(by_value.size)
        self._matrix = build(ranks)

    def nearest(
        self, group: Index, asked: Values, since: Codes, until: Codes, k: int, within: Any
    ) -> tuple[Index, Index, Values]:
        """The k nearest of each asked value from `since` to `until`, ties included: asking row, row, distance."""
        known = (group >= 0) & (group < self._starts.size - 1)
        rows = np.flatnonzero(known)
        begin, end = grouped_runs(self._times, self._starts, group[rows], since[rows], until[rows])
        owner, rank, far = _in_ranges(
            self._matrix, self._values, begin, end, np.ascontiguousarray(asked[rows]), k, within
        )
        return rows[owner], self._place[rank], far


@njit
def _in_ranges(
    matrix: Wavelets, values: Values, begin: Index, end: Index, asked: Values, k: int, within: Any
) -> tuple[Index, Index, Values]:  # pragma: no cover - compiled
    """For each asked value the ranks of the nearest ones at its range of positions, nearest first."""
    room, count = max(1024, asked.size), 0
    owner, rank = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    far = np.empty(room, dtype=values.dtype)
    for row in range(asked.size):
        first, last = begin[row], end[row]
        if first >= last:
            continue
        high = below(matrix, first, last, first_at_least(values, 0, values.size, asked[row]))
        low = high - 1
        taken = 0
        under = kth(matrix, first, last, low) if low >= 0 else -1
        over = kth(matrix, first, last, high) if high < last - first else -1
        while True:
            near_under = under >= 0 and asked[row] - values[under] <= within
            near_over = over >= 0 and values[over] - asked[row] <= within
            if not near_under and not near_over:
                break
            down = near_under and (not near_over or asked[row] - values[under] <= values[over] - asked[row])
            distance = asked[row] - values[under] if down else values[over] - asked[row]
            if taken >= k and distance != far[count - 1]:
                break
            if count == room:
                room *= 2
                owner = np.concatenate((owner, np.empty(count, dtype=np.int64)))
                rank = np.concatenate((rank, np.empty(count, dtype=np.int64)))
                far = np.concatenate((far, np.empty(count, dtype=values.dtype)))
            owner[count], far[count] = row, distance
            if down:
                rank[count] = under
                low -= 1
                under = kth(matrix, first, last, low) if low >= 0 else -1
            else:
                rank[count] = over
                high += 1
                over = kth(matrix, first, last, high) if high < last - first else -1
            count += 1
            taken += 1
    return owner[:count], rank[:count], far[:count]

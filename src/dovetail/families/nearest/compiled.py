"""Compiled search on a line: the nearest values of sorted ones are a run of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
"""Doubles, or codes as unsigned numbers, whose differences are exact."""
Mask = npt.NDArray[np.bool_]

_FEW = 8
"""Up to how many values of a bucket are looked at one by one: the next is easier to guess than the middle."""
_REGIONS = 24
"""Up to how many regions a value is compared with all of them, without a branch."""


@njit(inline="always")
def _bucket(value: Any, lowest: Any, scale: float, buckets: int) -> int:  # pragma: no cover - compiled
    """The bucket of a value: never a lower one for a larger value."""
    if value <= lowest or scale == 0.0:
        return 0
    place = np.float64(value - lowest) * scale
    return buckets - 1 if place >= buckets else int(place)


@njit
def buckets_of(values: Values, buckets: int) -> tuple[Index, float]:  # pragma: no cover - compiled
    """Where each bucket of sorted values begins, and the end of the last; and buckets for each unit."""
    starts = np.zeros(buckets + 1, dtype=np.int64)
    width = np.float64(values[-1] - values[0])
    # A width that overflows, or none at all: then all of them are in one bucket.
    scale = buckets / width if 0.0 < width < np.inf else 0.0
    if not scale < 1e300:
        scale = 0.0
    for at in range(values.size):
        starts[_bucket(values[at], values[0], scale, buckets) + 1] += 1
    for bucket in range(buckets):
        starts[bucket + 1] += starts[bucket]
    return starts, scale


@njit
def runs(
    values: Values, starts: Index, group: Index, asked: Values, k: int, within: Any, table: Index, scale: float
) -> tuple[Index, Index]:  # pragma: no cover - compiled
    """For each asked value the run [begin, end) of the sorted values of its group that are nearest, ties included.

    A difference of doubles may overflow; none that does is within any distance.  Of a single group, `table` and `scale`
    are its buckets, which tell where to begin; else it is empty.
    """
    begin = np.zeros(asked.size, dtype=np.int64)
    end = np.zeros(asked.size, dtype=np.int64)
    for row in range(asked.size):
        own = group[row]
        if own < 0 or own >= starts.size - 1:
            continue
        first, last = starts[own], starts[own + 1]
        low, high = first, last
        if table.size:
            bucket = _bucket(asked[row], values[0], scale, table.size - 1)
            low, high = table[bucket], table[bucket + 1]
        low = high = first_at_least(values, low, high, asked[row])
        taken = 0
        far = within
        while taken < k:
            below = low > first and asked[row] - values[low - 1] <= within
            above = high < last and values[high] - asked[row] <= within
            if below and (not above or asked[row] - values[low - 1] <= values[high] - asked[row]):
                low -= 1
                far = asked[row] - values[low]
            elif above:
                far = values[high] - asked[row]
                high += 1
            else:
                break
            taken += 1
        if taken == k:
            while low > first and asked[row] - values[low - 1] == far:
                low -= 1
            while high < last and values[high] - asked[row] == far:
                high += 1
        begin[row], end[row] = low, high
    return begin, end


@njit(inline="always")
def first_at_least(values: Values, first: int, last: int, wanted: Any) -> int:  # pragma: no cover - compiled
    """The first position from `first` to `last` whose value is not below `wanted`."""
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def nearest_one(
    values: Values, asked: Values, within: Any, table: Index, scale: float, place: Index, far: Values
) -> bool:  # pragma: no cover - compiled
    """Write where the nearest of the sorted values is for each asked one, -1 for none, and how far; False if any ties.

    What :func:`runs` and :func:`listed` find for one group and k = 1 without ties, in one go.
    """
    last = values.size
    for row in range(asked.size):
        wanted = asked[row]
        bucket = _bucket(wanted, values[0], scale, table.size - 1)
        low, high = table[bucket], table[bucket + 1]
        if high - low > _FEW:
            low = first_at_least(values, low, high, wanted)
        else:
            while low < high and values[low] < wanted:
                low += 1
        place[row] = -1
        below = low > 0 and wanted - values[low - 1] <= within
        above = low < last and values[low] - wanted <= within
        if below and (not above or wanted - values[low - 1] <= values[low] - wanted):
            nearest = wanted - values[low - 1]
            if (above and values[low] - wanted == nearest) or (low > 1 and wanted - values[low - 2] == nearest):
                return False
            place[row], far[row] = low - 1, nearest
        elif above:
            nearest = values[low] - wanted
            if low + 1 < last and values[low + 1] - wanted == nearest:
                return False
            place[row], far[row] = low, nearest
    return True


@njit
def listed(
    values: Values, begin: Index, end: Index, asked: Values
) -> tuple[Index, Index, Values]:  # pragma: no cover - compiled
    """The runs written out, nearest first: asking row, position, distance."""
    total = 0
    for row in range(begin.size):
        total += end[row] - begin[row]
    owner = np.empty(total, dtype=np.int64)
    place = np.empty(total, dtype=np.int64)
    far = np.empty(total, dtype=values.dtype)
    at = 0
    for row in range(begin.size):
        first, last = begin[row], end[row]
        low = high = first_at_least(values, first, last, asked[row])
        while low > first or high < last:
            owner[at] = row
            if high == last or (low > first and asked[row] - values[low - 1] <= values[high] - asked[row]):
                low -= 1
                place[at], far[at] = low, asked[row] - values[low]
            else:
                place[at], far[at] = high, values[high] - asked[row]
                high += 1
            at += 1
    return owner, place, far


@njit
def in_order(owner: Index, far: Values) -> bool:  # pragma: no cover - compiled
    """Whether candidates lie in the order of their asking rows, nearest first."""
    for at in range(1, owner.size):
        if owner[at] < owner[at - 1] or (owner[at] == owner[at - 1] and far[at] < far[at - 1]):
            return False
    return True


@njit
def reaching(owner: Index, far: Values, k: int) -> tuple[Mask, Index, Mask]:  # pragma: no cover - compiled
    """Of candidates in order: those no farther than the k-th of their row, their ranks, and which are tied.

    Ranks are 1 and the number of nearer ones.
    """
    kept = np.empty(owner.size, dtype=np.bool_)
    rank = np.empty(owner.size, dtype=np.int64)
    tied = np.zeros(owner.size, dtype=np.bool_)
    first = 0
    for at in range(owner.size):
        if at == 0 or owner[at] != owner[at - 1]:
            first = at
        place = at - first
        same = place > 0 and far[at] == far[at - 1]
        rank[at] = rank[at - 1] if same else place + 1
        kept[at] = place < k or (same and kept[at - 1])
        if same:
            tied[at] = tied[at - 1] = True
    return kept, rank, tied


@njit
def first_places(owner: Index, k: int) -> tuple[Mask, Index]:  # pragma: no cover - compiled
    """Of candidates in order: the first k of each row, and their places from 1 on."""
    kept = np.empty(owner.size, dtype=np.bool_)
    place = np.empty(owner.size, dtype=np.int64)
    first = 0
    for at in range(owner.size):
        if at == 0 or owner[at] != owner[at - 1]:
            first = at
        place[at] = at - first + 1
        kept[at] = place[at] <= k
    return kept, place


@njit
def asking_cells(
    begins: Index, first: Index, shared: Index, must: Index, top: Index, rows: Index, codes: Index, turn: Index,
    cells: Index, sure: Mask,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Write the cells of some rows of one key, and which of them must find k rows; a row that is too far, or -1."""
    for row in rows:
        region, high = 0, begins.size - 1
        if high <= _REGIONS:
            for other in range(1, begins.size):
                region += begins[other] <= codes[row]
            high = region
        while region < high:
            middle = (region + high + 1) >> 1
            if begins[middle] <= codes[row]:
                region = middle
            else:
                high = middle - 1
        part = 0
        if shared[region] > 1:
            part = int((np.uint64(turn[row]) >> np.uint64(1)) % np.uint64(shared[region]))
        cells[row], sure[row] = first[region] + part, must[region] > 0
        # The code of -x is the complement of that of x.
        if (~codes[row] if codes[row] < 0 else codes[row]) > top[region]:
            return int(row)
    return -1


@njit(inline="always")
def _inner(low: Index, high: Index, code: int) -> tuple[int, int]:  # pragma: no cover - compiled
    """The regions in between in whose reach a code lies: from the first up to the last, whose reach only grows."""
    begin, end = 1, low.size - 1
    while begin < end:
        middle = (begin + end) >> 1
        if high[middle] < code:
            begin = middle + 1
        else:
            end = middle
    last = begin - 1
    while last + 1 < low.size - 1 and low[last + 1] <= code:
        last += 1
    return begin, last


@njit
def answering_cells(
    low: Index, high: Index, first: Index, shared: Index, rows: Index, codes: Index
) -> tuple[Index, Index]:  # pragma: no cover - compiled
    """(row, cell) for every region of a key in whose reach a row lies, and every cell that shares it.

    The outer two regions may need anything.
    """
    last, total = low.size - 1, 0
    begins, ends = np.empty(rows.size, dtype=np.int32), np.empty(rows.size, dtype=np.int32)
    for at in range(rows.size):
        code = codes[rows[at]]
        begin, end = _inner(low, high, code)
        begins[at], ends[at] = begin, end
        for region in range(begin, end + 1):
            total += shared[region]
        if low[0] <= code <= high[0]:
            total += shared[0]
        if last and low[last] <= code <= high[last]:
            total += shared[last]
    owner, cells = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    count = 0
    for at in range(rows.size):
        code = codes[rows[at]]
        for region in range(begins[at], ends[at] + 1):
            for part in range(shared[region]):
                owner[count], cells[count] = rows[at], first[region] + part
                count += 1
        for side in range(2 if last else 1):
            outer = last * side
            if low[outer] <= code <= high[outer]:
                for part in range(shared[outer]):
                    owner[count], cells[count] = rows[at], first[outer] + part
                    count += 1
    return owner, cells

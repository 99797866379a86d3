"""The loops of the as-of kernel, compiled.

Right rows are sorted by (key, time).  A key's rows are one run of that order, ``starts[g]`` to ``starts[g + 1]``, and
a table over the leading bits of their times says where in the run to look: the search of a left row then takes a step
or two, and not one for every doubling of the run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import HIGHEST, LOWEST, Codes, Floats, Mask
from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
RowNumbers = npt.NDArray[np.int32]
"""Row numbers within a cell, in half the space: what is looked up at random should fit into a cache."""
Shifts = npt.NDArray[np.uint64]

BACKWARD, FORWARD, NEAREST = 0, 1, 2

_SMALL = 24
"""Buckets up to this length are sorted by insertion."""
_FEW = 8
"""So many rows are looked at one after the other."""
_BLOCK = 512
"""Rows whose steps are taken together."""


@njit
def number_keys(codes: Codes, table: Codes, numbers: Index, low: int) -> tuple[Index, int]:  # pragma: no cover
    """Numbers 0, 1, 2 ... for distinct codes in the order of their first appearance.

    `table` and `numbers` are filled on the way, for :func:`find_keys`.  An empty `table` means that `numbers` is
    addressed by ``code - low``; else both are a hash table with a power of two of slots, and -1 in `numbers` marks the
    free ones.
    """
    out = np.empty(codes.size, dtype=np.int64)
    count = 0
    if table.size == 0:
        for i in range(codes.size):
            at = codes[i] - low
            if numbers[at] < 0:
                numbers[at] = count
                count += 1
            out[i] = numbers[at]
        return out, count
    mask = table.size - 1
    for i in range(codes.size):
        at = _slot(codes[i], mask)
        while numbers[at] >= 0 and table[at] != codes[i]:
            at = (at + 1) & mask
        if numbers[at] < 0:
            table[at] = codes[i]
            numbers[at] = count
            count += 1
        out[i] = numbers[at]
    return out, count


@njit
def find_keys(codes: Codes, table: Codes, numbers: Index, low: int) -> Index:  # pragma: no cover
    """The numbers of codes that :func:`number_keys` has seen; -1 for all others."""
    out = np.empty(codes.size, dtype=np.int64)
    if table.size == 0:
        for i in range(codes.size):
            # Unsigned, because a signed difference of far values has no defined overflow.
            at = np.uint64(codes[i]) - np.uint64(low)
            out[i] = numbers[at] if at < np.uint64(numbers.size) else -1
        return out
    mask = table.size - 1
    for i in range(codes.size):
        at = _slot(codes[i], mask)
        while numbers[at] >= 0 and table[at] != codes[i]:
            at = (at + 1) & mask
        out[i] = numbers[at]
    return out


@njit(inline="always")
def _slot(code: int, mask: int) -> Any:  # pragma: no cover
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(20)) & mask


@njit
def sort_part(times: Codes, order: RowNumbers, begin: int, end: int) -> None:  # pragma: no cover
    """Sort the times of some positions, and move the row numbers along: quicksort, and by insertion where few are left.

    Of equal times any order will do.  NumPy's argsort and what it takes to apply it compile for seven seconds.
    """
    begins, ends = np.empty(64, dtype=np.int64), np.empty(64, dtype=np.int64)
    begins[0], ends[0], waiting = begin, end, 1
    while waiting:
        waiting -= 1
        low, high = begins[waiting], ends[waiting]
        while high - low > _SMALL:
            first, middle, last = times[low], times[(low + high) // 2], times[high - 1]
            pivot = max(min(first, middle), min(max(first, middle), last))
            i, j = low, high - 1
            while i <= j:
                while times[i] < pivot:
                    i += 1
                while times[j] > pivot:
                    j -= 1
                if i <= j:
                    times[i], times[j] = times[j], times[i]
                    order[i], order[j] = order[j], order[i]
                    i += 1
                    j -= 1
            # The larger part waits, so that no more than 64 ever do.
            if j + 1 - low > high - i:
                begins[waiting], ends[waiting] = low, j + 1
                low = i
            else:
                begins[waiting], ends[waiting] = i, high
                high = j + 1
            waiting += 1
        for at in range(low + 1, high):
            time, row = times[at], order[at]
            to = at
            while to > low and times[to - 1] > time:
                times[to], order[to] = times[to - 1], order[to - 1]
                to -= 1
            times[to], order[to] = time, row


@njit
def sort_runs(
    numbers: Index, codes: Codes, groups: int
) -> tuple[RowNumbers, Codes, Index, RowNumbers, Index, Shifts]:  # pragma: no cover
    """Rows in the order of (number, code), and a table to search them by.

    Rows with the number -1 are left out.  The leading bits of its code put a row into a bucket of its run, a few rows
    in each, so that what remains is to sort buckets: the work follows the number of rows where times are spread out.

    Returns the numbers of the rows, their codes, where each run starts, where each bucket starts, where the buckets of
    each run begin (with one more, the end of the run, behind them), and how far to shift its codes.
    """
    starts = np.zeros(groups + 1, dtype=np.int64)
    lows = np.full(groups, HIGHEST, dtype=np.int64)
    highs = np.full(groups, LOWEST, dtype=np.int64)
    for i in range(codes.size):
        g = numbers[i]
        if g >= 0:
            starts[g + 1] += 1
            lows[g] = min(lows[g], codes[i])
            highs[g] = max(highs[g], codes[i])
    begins = np.zeros(groups + 1, dtype=np.int64)
    shifts = np.zeros(groups, dtype=np.uint64)
    for g in range(groups):
        size = 1
        while size * 4 <= starts[g + 1]:
            size *= 2
        if starts[g + 1]:
            span = np.uint64(highs[g]) - np.uint64(lows[g])
            # A shift by 64 is none at all on many machines, so two buckets are the least for the widest span.
            while shifts[g] < np.uint64(63) and (span >> shifts[g]) >= np.uint64(size):
                shifts[g] += np.uint64(1)
            if (span >> shifts[g]) >= np.uint64(size):
                size = 2
        begins[g + 1] = begins[g] + size + 1
        starts[g + 1] += starts[g]
    table = np.zeros(begins[groups] + 1, dtype=np.int32)
    for i in range(codes.size):
        g = numbers[i]
        if g >= 0:
            table[begins[g] + 1 + np.int64((np.uint64(codes[i]) - np.uint64(lows[g])) >> shifts[g])] += 1
    for at in range(1, table.size):
        table[at] += table[at - 1]
    free = table.copy()
    order = np.empty(starts[groups], dtype=np.int32)
    times = np.empty(starts[groups], dtype=np.int64)
    for i in range(codes.size):
        g = numbers[i]
        if g >= 0:
            at = begins[g] + np.int64((np.uint64(codes[i]) - np.uint64(lows[g])) >> shifts[g])
            order[free[at]] = i
            times[free[at]] = codes[i]
            free[at] += 1
    for bucket in range(table.size - 1):
        begin, end = table[bucket], table[bucket + 1]
        if end - begin > 1:
            sort_part(times, order, begin, end)
    return order, times, starts, table, begins, shifts


@njit
def tied(times: Codes, starts: Index) -> tuple[Index, Index]:  # pragma: no cover
    """Positions that share key and time with a neighbour, and for each of them the number of its run."""
    positions = np.empty(times.size, dtype=np.int64)
    runs = np.empty(times.size, dtype=np.int64)
    found, run = 0, -1
    for g in range(starts.size - 1):
        for at in range(starts[g], starts[g + 1]):
            before = at > starts[g] and times[at - 1] == times[at]
            after = at + 1 < starts[g + 1] and times[at + 1] == times[at]
            if before or after:
                if not before:
                    run += 1
                positions[found], runs[found] = at, run
                found += 1
    return positions[:found], runs[:found]


@njit
def first_not_below(
    numbers: Index,
    codes: Codes,
    or_equal: bool,
    times: Codes,
    starts: Index,
    table: RowNumbers,
    begins: Index,
    shifts: Shifts,
) -> RowNumbers:  # pragma: no cover
    """For each row the first position of its run whose time is not below its own, or, with `or_equal`, above it.

    Each step of a block of rows looks at memory that has nothing to do with that of its neighbours, so the processor
    fetches for many rows at once; with all steps of one row after another it would wait for each.
    """
    out = np.empty(codes.size, dtype=np.int32)
    lows = np.empty(_BLOCK, dtype=np.int64)
    highs = np.empty(_BLOCK, dtype=np.int64)
    for first in range(0, codes.size, _BLOCK):
        size = min(_BLOCK, codes.size - first)
        for j in range(size):
            g, time = numbers[first + j], codes[first + j]
            begin, end = (starts[g], starts[g + 1]) if g >= 0 else (np.int64(0), np.int64(0))
            if begin == end or time < times[begin]:
                lows[j] = highs[j] = begin
            elif time > times[end - 1]:
                lows[j] = highs[j] = end
            else:
                at = begins[g] + np.int64((np.uint64(time) - np.uint64(times[begin])) >> shifts[g])
                lows[j], highs[j] = table[at], table[at + 1]
        for j in range(size):
            low, high, time = lows[j], highs[j], codes[first + j]
            while high - low > _FEW:
                middle = (low + high) >> 1
                if times[middle] < time or (or_equal and times[middle] == time):
                    low = middle + 1
                else:
                    high = middle
            while low < high and (times[low] < time or (or_equal and times[low] == time)):
                low += 1
            out[first + j] = low
    return out


@njit
def match(
    numbers: Index,
    codes: Codes,
    values: Floats,
    order: RowNumbers,
    times: Codes,
    right_values: Floats,
    starts: Index,
    table: RowNumbers,
    begins: Index,
    shifts: Shifts,
    direction: int,
    exact: bool,
    bounded: bool,
    within: Any,
    float_within: float,
) -> RowNumbers:  # pragma: no cover
    """For each left row the row of its best match, or -1.

    `values` and `right_values` (in sorted order) hold the times as floats where times are floats, and are empty where
    codes can be subtracted.
    """
    floats = values.size > 0
    out = np.empty(codes.size, dtype=np.int32)
    both = direction == NEAREST and not exact
    or_equal = exact if direction != FORWARD else not exact
    firsts = first_not_below(numbers, codes, or_equal, times, starts, table, begins, shifts)
    # With exact matches the row after the last one at or before is all that nearest needs.
    seconds = first_not_below(numbers, codes, True, times, starts, table, begins, shifts) if both else firsts
    for i in range(codes.size):
        g = numbers[i]
        out[i] = -1
        if g < 0:
            continue
        time, begin, end = codes[i], starts[g], starts[g + 1]
        before: Any = np.int64(-1)
        after: Any = np.int64(-1)
        if direction != FORWARD:
            before = np.int64(firsts[i]) - 1 if firsts[i] > begin else np.int64(-1)
        if direction != BACKWARD:
            after = np.int64(seconds[i]) if seconds[i] < end else np.int64(-1)
        if direction == BACKWARD:
            best = before
        elif direction == FORWARD or before < 0:
            best = after
        else:
            best = before
            if after >= 0 and times[before] != time:
                if floats:
                    if right_values[after] - values[i] < values[i] - right_values[before]:
                        best = after
                elif np.uint64(times[after]) - np.uint64(time) < np.uint64(time) - np.uint64(times[before]):
                    best = after
        if best < 0:
            continue
        if bounded and times[best] != time:
            if floats:
                # A NaN is farther than any bound from every other time.
                if not (np.float64(abs(values[i] - right_values[best])) <= float_within):
                    continue
            elif times[best] < time:
                if np.uint64(time) - np.uint64(times[best]) > within:
                    continue
            elif np.uint64(times[best]) - np.uint64(time) > within:
                continue
        out[i] = order[best]
    return out


@njit
def last_before(times: Codes, starts: Index, bound: int) -> Index:  # pragma: no cover
    """For each run the position of its last time below `bound`, or -1."""
    out = np.full(starts.size - 1, -1, dtype=np.int64)
    for g in range(starts.size - 1):
        low, high = starts[g], starts[g + 1]
        while low < high:
            middle = (low + high) >> 1
            if times[middle] < bound:
                low = middle + 1
            else:
                high = middle
        if low > starts[g]:
            out[g] = low - 1
    return out


def kept(positions: Index, winners: Index, size: int) -> Mask:
    """Which of `size` positions stay where of the tied `positions` only the `winners` do."""
    mask = np.ones(size, dtype=np.bool_)
    mask[positions] = False
    mask[winners] = True
    return mask

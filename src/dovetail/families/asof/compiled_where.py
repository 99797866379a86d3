"""The loops of as-of joins with further conditions, compiled.

Right rows are sorted by (key, time, order of ties), all of them: one that loses a tie may be the only one to satisfy a
condition.  A condition is a range of the right row in which a number of the left row must lie, or a number that both
must not share.  For blocks of 16, 256, 4096 ... consecutive right rows the union of their ranges is known, so that a
search from the time of a left row outward passes over whole blocks in which no row can satisfy it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import Codes, Floats
from dovetail.columns.numba_cache import njit
from dovetail.families.asof.compiled import BACKWARD, FORWARD, Index, RowNumbers

FAN = 16
"""Blocks of one level in a block of the next."""


@njit
def block_ends(values: Codes, largest: bool) -> tuple[Codes, Index]:  # pragma: no cover
    """The smallest (or largest) of each block of each level, for each row of `values`; and where the levels begin.

    Level 0 are the values themselves, and not repeated; ``begins[level]`` holds for those from 1 on.
    """
    dimensions, size = values.shape
    levels = np.zeros(20, dtype=np.int64)
    count, total, blocks = 1, 0, size
    while blocks > 1 and count < 19:
        blocks = (blocks + FAN - 1) // FAN
        levels[count] = total
        total += blocks
        count += 1
    out = np.empty((dimensions, max(total, 1)), dtype=np.int64)
    for d in range(dimensions):
        below, begin = size, np.int64(-1)
        for level in range(1, count):
            blocks = (below + FAN - 1) // FAN
            for block in range(blocks):
                first, last = block * FAN, min((block + 1) * FAN, below)
                best = values[d, first] if begin < 0 else out[d, begin + first]
                for at in range(first + 1, last):
                    other = values[d, at] if begin < 0 else out[d, begin + at]
                    best = max(best, other) if largest else min(best, other)
                out[d, levels[level] + block] = best
            below, begin = blocks, levels[level]
    return out, levels[:count].copy()


@njit(inline="always")
def _holds(
    i: int, at: Any, points: Codes, low: Codes, high: Codes, mine: Codes, other: Codes
) -> bool:  # pragma: no cover
    """Whether left row `i` and the right row at a position satisfy every condition."""
    for d in range(points.shape[0]):
        if points[d, i] < low[d, at] or points[d, i] > high[d, at]:
            return False
    for d in range(mine.shape[0]):  # noqa: SIM110 - Numba compiles no generator
        if mine[d, i] == other[d, at]:
            return False
    return True


@njit(inline="always")
def _may_hold(i: int, block: Any, points: Codes, lows: Codes, highs: Codes) -> bool:  # pragma: no cover
    """Whether some right row of a block may satisfy the ranges."""
    for d in range(points.shape[0]):  # noqa: SIM110 - Numba compiles no generator
        if points[d, i] < lows[d, block] or points[d, i] > highs[d, block]:
            return False
    return True


@njit
def _last_that_holds(
    i: int, begin: int, end: int, points: Codes, low: Codes, high: Codes, mine: Codes, other: Codes,
    lows: Codes, highs: Codes, levels: Index,
) -> Any:  # fmt: skip # pragma: no cover
    """The last position from `begin` up to, not including, `end` that satisfies the conditions, or -1."""
    stop = np.int64(end)
    while stop > begin:
        skipped = np.int64(0)
        size, level = np.int64(FAN), 1
        while level < levels.size and stop % size == 0 and stop - size >= begin:
            if _may_hold(i, levels[level] + stop // size - 1, points, lows, highs):
                break
            skipped = size
            size *= FAN
            level += 1
        if skipped > 0:
            stop -= skipped
        elif _holds(i, stop - 1, points, low, high, mine, other):
            return stop - 1
        else:
            stop -= 1
    return -1


@njit
def _first_that_holds(
    i: int, begin: int, end: int, points: Codes, low: Codes, high: Codes, mine: Codes, other: Codes,
    lows: Codes, highs: Codes, levels: Index,
) -> Any:  # fmt: skip # pragma: no cover
    """The first position from `begin` up to, not including, `end` that satisfies the conditions, or -1."""
    at = np.int64(begin)
    while at < end:
        skipped = np.int64(0)
        size, level = np.int64(FAN), 1
        while level < levels.size and at % size == 0 and at + size <= end:
            if _may_hold(i, levels[level] + at // size, points, lows, highs):
                break
            skipped = size
            size *= FAN
            level += 1
        if skipped > 0:
            at += skipped
        elif _holds(i, at, points, low, high, mine, other):
            return at
        else:
            at += 1
    return -1


@njit(inline="always")
def _near(
    i: int, at: Any, codes: Codes, values: Floats, times: Codes, right_values: Floats, within: Any, float_within: float
) -> bool:  # pragma: no cover
    """Whether the right row at a position is within the tolerance."""
    if times[at] == codes[i]:
        return True
    if values.size > 0:
        # A NaN is farther than any bound from every other time.
        return bool(np.float64(abs(values[i] - right_values[at])) <= float_within)
    if times[at] < codes[i]:
        return bool(np.uint64(codes[i]) - np.uint64(times[at]) <= within)
    return bool(np.uint64(times[at]) - np.uint64(codes[i]) <= within)


@njit
def reach(
    numbers: Index, codes: Codes, values: Floats, times: Codes, right_values: Floats, starts: Index,
    befores: RowNumbers, afters: RowNumbers, bounded: bool, within: Any, float_within: float,
) -> tuple[Index, Index]:  # fmt: skip # pragma: no cover
    """For each left row the first position that is near enough before it, and the end of those behind it.

    The rows before a left row are those below ``befores``, the rows behind it those from ``afters`` on.
    """
    firsts = np.zeros(codes.size, dtype=np.int64)
    ends = np.zeros(codes.size, dtype=np.int64)
    for i in range(codes.size):
        g = numbers[i]
        if g < 0:
            continue
        firsts[i], ends[i] = starts[g], starts[g + 1]
        if not bounded:
            continue
        low, high = np.int64(starts[g]), np.int64(befores[i])
        while low < high:
            middle = (low + high) >> 1
            if _near(i, middle, codes, values, times, right_values, within, float_within):
                high = middle
            else:
                low = middle + 1
        firsts[i] = low
        low, high = np.int64(afters[i]), np.int64(starts[g + 1])
        while low < high:
            middle = (low + high) >> 1
            if _near(i, middle, codes, values, times, right_values, within, float_within):
                low = middle + 1
            else:
                high = middle
        ends[i] = low
    return firsts, ends


@njit
def match_where(
    numbers: Index, codes: Codes, values: Floats, order: RowNumbers, times: Codes, right_values: Floats,
    befores: RowNumbers, afters: RowNumbers, firsts: Index, ends: Index, direction: int,
    points: Codes, low: Codes, high: Codes, mine: Codes, other: Codes, lows: Codes, highs: Codes, levels: Index,
) -> RowNumbers:  # fmt: skip # pragma: no cover
    """For each left row the row of its best match among those that satisfy its conditions, or -1."""
    out = np.empty(codes.size, dtype=np.int32)
    for i in range(codes.size):
        out[i] = -1
        if numbers[i] < 0:
            continue
        before: Any = np.int64(-1)
        after: Any = np.int64(-1)
        if direction != FORWARD:
            before = _last_that_holds(i, firsts[i], befores[i], points, low, high, mine, other, lows, highs, levels)
        if direction != BACKWARD and not (before >= 0 and times[before] == codes[i]):
            after = _first_that_holds(i, afters[i], ends[i], points, low, high, mine, other, lows, highs, levels)
            if after >= 0:
                # Of rows at one time the last wins.
                last = after
                while last + 1 < ends[i] and times[last + 1] == times[after]:
                    last += 1
                while last > after and not _holds(i, last, points, low, high, mine, other):
                    last -= 1
                after = last
        best = before if before >= 0 else after
        if before >= 0 and after >= 0:
            if values.size > 0:
                if right_values[after] - values[i] < values[i] - right_values[before]:
                    best = after
            elif np.uint64(times[after]) - np.uint64(codes[i]) < np.uint64(codes[i]) - np.uint64(times[before]):
                best = after
        if best >= 0:
            out[i] = order[best]
    return out


@njit
def list_candidates(
    begin: int, most: int, numbers: Index, codes: Codes, values: Floats, times: Codes, right_values: Floats,
    befores: RowNumbers, afters: RowNumbers, firsts: Index, ends: Index, direction: int,
    points: Codes, low: Codes, high: Codes, mine: Codes, other: Codes,
) -> tuple[Index, Index, int]:  # fmt: skip # pragma: no cover
    """All positions that may be the match of left rows from `begin` on, each row's best one first.

    Stops behind the row with which there are `most` of them or more, and says which row is next.
    """
    rows = np.empty(max(most, 16), dtype=np.int64)
    found = np.empty(max(most, 16), dtype=np.int64)
    count, i = 0, begin
    while i < codes.size and count < most:
        if numbers[i] >= 0:
            before = np.int64(befores[i]) - 1 if direction != FORWARD else np.int64(-1)
            bottom = firsts[i] if direction != FORWARD else np.int64(0)
            after, top = (np.int64(afters[i]), ends[i]) if direction != BACKWARD else (np.int64(0), np.int64(0))
            last = after
            group = after - 1  # the last position of the run of equal times that is being gone through
            while before >= bottom or after < top:
                if after < top and last > group:
                    group = after
                    while group + 1 < top and times[group + 1] == times[after]:
                        group += 1
                    last = group
                behind = after < top
                if behind and before >= bottom:
                    if times[before] == codes[i]:
                        behind = False
                    elif values.size > 0:
                        behind = bool(right_values[last] - values[i] < values[i] - right_values[before])
                    else:
                        behind = bool(
                            np.uint64(times[last]) - np.uint64(codes[i])
                            < np.uint64(codes[i]) - np.uint64(times[before])
                        )
                if behind:
                    at = last
                    if last == after:
                        after = group + 1
                        last = group + 1
                    else:
                        last -= 1
                else:
                    at = before
                    before -= 1
                if not _holds(i, at, points, low, high, mine, other):
                    continue
                if count == rows.size:
                    rows = np.concatenate((rows, np.empty(rows.size, dtype=np.int64)))
                    found = np.concatenate((found, np.empty(found.size, dtype=np.int64)))
                rows[count], found[count] = i, at
                count += 1
        i += 1
    return rows[:count].copy(), found[:count].copy(), i


def no_conditions(size: int) -> npt.NDArray[np.int64]:
    """No condition on so many rows."""
    return np.empty((0, size), dtype=np.int64)

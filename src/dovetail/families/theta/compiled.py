"""The compiled loops of the theta kernels.  :mod:`dovetail.families.theta.kernel` says what they are for.

Numba compiles each function once and keeps the machine code on disk, so a Python worker loads it in
milliseconds.  A function that fills output returns as soon as a chunk is full, with what it needs to go on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import Codes, Mask
from dovetail.columns.numba_cache import njit
from dovetail.columns.search import first_not_below

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Found = tuple[Index, Index, int]


@njit
def passed(ordered: Codes, ends: Codes, inclusive: bool) -> Index:  # pragma: no cover
    """How many of the ascending values lie below each of the ascending ends, or at it where `inclusive`.

    A merge without a branch that could be guessed wrong.
    """
    out = np.empty(ends.size, dtype=np.int64)
    at, j = 0, 0
    while at < ordered.size and j < ends.size:
        out[j] = at
        before = ordered[at] <= ends[j] if inclusive else ordered[at] < ends[j]
        at += before
        j += not before
    out[j:] = ordered.size
    return out


@njit
def numbered(codes: Codes, least: int, lost: int, bits: int) -> Words:  # pragma: no cover
    """Each code's distance from the least one without its `lost` lowest bits, above the number of its row."""
    out = np.empty(codes.size, dtype=np.uint64)
    origin, drop, room = np.uint64(least), np.uint64(lost), np.uint64(bits)
    for i in range(codes.size):
        out[i] = (((np.uint64(codes[i]) - origin) >> drop) << room) | np.uint64(i)
    return out


_ALIKE = 16
"""Rows that may share what is left of their codes before sorting them by hand takes too long."""


@njit
def row_numbers(ordered: Words, codes: Codes, lost: int, bits: int) -> Index:  # pragma: no cover
    """The rows of sorted :func:`numbered` codes in the order of the whole codes; empty if too many look alike."""
    mask, room = (np.uint64(1) << np.uint64(bits)) - np.uint64(1), np.uint64(bits)
    out = np.empty(ordered.size, dtype=np.int64)
    begin = 0
    for k in range(ordered.size):
        row = np.int64(ordered[k] & mask)
        at = k
        if lost:
            if ordered[k] >> room != ordered[begin] >> room:
                begin = k
            elif k - begin == _ALIKE:
                return out[:0]
            while at > begin and codes[out[at - 1]] > codes[row]:
                out[at] = out[at - 1]
                at -= 1
        out[at] = row
    return out


@njit
def covered(start: Index, stop: Index, size: int) -> Mask:  # pragma: no cover
    """Which positions lie in at least one run."""
    change = np.zeros(size + 1, dtype=np.int64)
    for j in range(start.size):
        if start[j] < stop[j]:
            change[start[j]] += 1
            change[stop[j]] -= 1
    out = np.empty(size, dtype=np.bool_)
    depth = 0
    for at in range(size):
        depth += change[at]
        out[at] = depth > 0
    return out


@njit
def _inside(i: int, j: int, others: Index, coordinates: Codes, low: Codes, high: Codes) -> bool:  # pragma: no cover
    for d in others:
        x = coordinates[d, i]
        if x < low[d, j] or x > high[d, j]:
            return False
    return True


@njit
def emit_runs(
    state: Index,
    rows: Index,
    boxes: Index,
    start: Index,
    stop: Index,
    chunk: int,
    others: Index,
    coordinates: Codes,
    low: Codes,
    high: Codes,
) -> Found:  # pragma: no cover
    """Pairs of each box with its run of points.  state: current box, offset into its run."""
    out_i = np.empty(chunk, dtype=np.int64)
    out_j = np.empty(chunk, dtype=np.int64)
    filled = 0
    compared = 0
    at, offset = state[0], state[1]
    while at < boxes.size and filled < chunk:
        j = boxes[at]
        begin = start[at] + offset
        end = stop[at]
        if others.size == 0:
            take = min(end - begin, chunk - filled)
            for k in range(take):
                out_i[filled + k] = rows[begin + k]
                out_j[filled + k] = j
            filled += max(take, 0)
            begin += max(take, 0)
        else:
            while begin < end and filled < chunk:
                i = rows[begin]
                begin += 1
                compared += 1
                if _inside(i, j, others, coordinates, low, high):
                    out_i[filled] = i
                    out_j[filled] = j
                    filled += 1
        if begin < end:
            offset = begin - start[at]
        else:
            at += 1
            offset = 0
    state[0], state[1] = at, offset
    return out_i[:filled], out_j[:filled], compared


# ----------------------------------------------------------------------------------------------------------
# A bitmap with a summary bit for every 64 bits of the level below.
# ----------------------------------------------------------------------------------------------------------

_DE_BRUIJN = 0x03F79D71B4CB0A89
_LOWEST_BIT = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    _LOWEST_BIT[((_DE_BRUIJN << _bit) & 0xFFFF_FFFF_FFFF_FFFF) >> 58] = _bit


@njit
def _lowest_bit(word: int) -> int:  # pragma: no cover
    isolated = word & (~word + np.uint64(1))
    bit: int = _LOWEST_BIT[np.int64((isolated * np.uint64(_DE_BRUIJN)) >> np.uint64(58))]
    return bit


@njit
def bitmap_levels(size: int) -> Index:  # pragma: no cover
    """Offsets of the levels in the array of words; the last entry is the total."""
    offsets = [0]
    words = (size + 63) // 64
    while True:
        offsets.append(offsets[-1] + max(words, 1))
        if words <= 1:
            break
        words = (words + 63) // 64
    return np.array(offsets, dtype=np.int64)


@njit
def _set_bit(words: Words, levels: Index, position: int) -> None:  # pragma: no cover
    for level in range(levels.size - 1):
        at = levels[level] + (position >> 6)
        before = words[at]
        words[at] = before | (np.uint64(1) << np.uint64(position & 63))
        if before != 0:
            return
        position >>= 6


@njit
def _next_bit(words: Words, levels: Index, position: int, stop: int) -> int:  # pragma: no cover
    """The first set bit in [position, stop), or `stop`."""
    level = 0
    top = levels.size - 1
    while level < top:
        word = position >> 6
        if word >= levels[level + 1] - levels[level]:
            return stop
        rest = words[levels[level] + word] >> np.uint64(position & 63)
        if rest != 0:
            position += _lowest_bit(rest)
            while level > 0:
                level -= 1
                position = (position << 6) + _lowest_bit(words[levels[level] + position])
            return min(position, stop)
        position = word + 1
        level += 1
    return stop


@njit
def emit_sweep(
    words: Words,
    levels: Index,
    state: Index,
    entering: Index,
    inserted: Index,
    start: Index,
    stop: Index,
    chunk: int,
    rows: Index,
    boxes: Index,
    others: Index,
    coordinates: Codes,
    low: Codes,
    high: Codes,
) -> Found:  # pragma: no cover
    """Pairs of each box with the inserted points in its run of positions.

    state: points inserted so far, current box, next position to look at (-1: at the start of its run).
    """
    out_i = np.empty(chunk, dtype=np.int64)
    out_j = np.empty(chunk, dtype=np.int64)
    filled = 0
    compared = 0
    done, at, position = state[0], state[1], state[2]
    while at < boxes.size and filled < chunk:
        while done < inserted[at]:
            _set_bit(words, levels, entering[done])
            done += 1
        if position < 0:
            position = start[at]
        end = stop[at]
        j = boxes[at]
        while position < end and filled < chunk:
            position = _next_bit(words, levels, position, end)
            if position < end:
                i = rows[position]
                if others.size > 0:
                    compared += 1
                if others.size == 0 or _inside(i, j, others, coordinates, low, high):
                    out_i[filled] = i
                    out_j[filled] = j
                    filled += 1
                position += 1
        if position >= end:
            at += 1
            position = -1
    state[0], state[1], state[2] = done, at, position
    return out_i[:filled], out_j[:filled], compared


# ----------------------------------------------------------------------------------------------------------
# Two bounded dimensions: columns of the first, sorted by the second.
# ----------------------------------------------------------------------------------------------------------


@njit
def columns(values: Codes, origin: int, width: int) -> Index:  # pragma: no cover
    """The number of the column of each value; differences are taken unsigned, where they cannot overflow."""
    out = np.empty(values.size, dtype=np.int64)
    for k in range(values.size):
        out[k] = np.int64((np.uint64(values[k]) - np.uint64(origin)) // np.uint64(width))
    return out


@njit
def runs_starts(ordered: Index) -> Index:  # pragma: no cover
    """Where each run of equal values begins, and the end."""
    starts = [0]
    for k in range(1, ordered.size):
        if ordered[k] != ordered[k - 1]:
            starts.append(k)  # noqa: PERF401 - compiled, and Numba knows no generators
    starts.append(ordered.size)
    return np.array(starts, dtype=np.int64)


@njit
def emit_grid(
    state: Index,
    rows: Index,
    starts: Index,
    names: Index,
    ordered: Codes,
    first_name: Index,
    last_name: Index,
    second: int,
    chunk: int,
    others: Index,
    coordinates: Codes,
    low: Codes,
    high: Codes,
) -> Found:  # pragma: no cover
    """Pairs of each box with the points of the columns it touches.

    state: current box, next column of it (-1: its first), next point in that column (-1: its first).
    """
    out_i = np.empty(chunk, dtype=np.int64)
    out_j = np.empty(chunk, dtype=np.int64)
    filled = 0
    compared = 0
    j, column, point = state[0], state[1], state[2]
    boxes = first_name.size
    while j < boxes and filled < chunk:
        if column < 0:
            column = np.searchsorted(names, first_name[j])
        while column < names.size and names[column] <= last_name[j] and filled < chunk:
            end = starts[column + 1]
            if point < 0:
                point = first_not_below(ordered, low[second, j], starts[column], end, starts[column])
            while point < end and ordered[point] <= high[second, j] and filled < chunk:
                i = rows[point]
                compared += 1
                if _inside(i, j, others, coordinates, low, high):
                    out_i[filled] = i
                    out_j[filled] = j
                    filled += 1
                point += 1
            if point >= end or ordered[point] > high[second, j]:
                column += 1
                point = -1
        if column >= names.size or names[column] > last_name[j]:
            j += 1
            column = -1
            point = -1
    state[0], state[1], state[2] = j, column, point
    return out_i[:filled], out_j[:filled], compared

"""Compiled search on two axes: where the matches of each row lie, as ranges of sorted positions.

The rows lie in the order of the first axis, in blocks of 1, 2, 4 ... rows, each sorted by the second.  The range of the
first axis is a union of at most two blocks of each size, and in each of them the matches are one range.
"""

from __future__ import annotations

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.aggregate.compiled import Index


@njit(inline="always")
def _first_at_least(codes: Index, begin: int, end: int, code: int) -> int:  # pragma: no cover - compiled
    while begin < end:
        middle = (begin + end) // 2
        if codes[middle] < code:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(inline="always")
def _first_above(codes: Index, begin: int, end: int, code: int) -> int:  # pragma: no cover - compiled
    while begin < end:
        middle = (begin + end) // 2
        if codes[middle] <= code:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit
def merged_blocks(order: Index, codes: Index, size: int) -> tuple[Index, Index]:  # pragma: no cover - compiled
    """Neighbouring sorted blocks of `size` positions merged into blocks of twice the size."""
    out_order, out_codes = np.empty_like(order), np.empty_like(codes)
    n = order.size
    for start in range(0, n, 2 * size):
        a, middle = start, min(start + size, n)
        b, end = middle, min(start + 2 * size, n)
        for at in range(start, end):
            if a < middle and (b >= end or codes[a] <= codes[b]):
                out_order[at], out_codes[at] = order[a], codes[a]
                a += 1
            else:
                out_order[at], out_codes[at] = order[b], codes[b]
                b += 1
    return out_order, out_codes


@njit
def block_ranges(
    codes: Index, size: int, begin: Index, end: Index, low: Index, high: Index
) -> tuple[Index, Index, Index, Index]:  # pragma: no cover - compiled
    """The matches of each row in the blocks of one size that its range [begin, end) consists of.

    `begin` and `end` count blocks of this size, and afterwards those of twice the size.  There are two results: those
    in the block at the beginning of the range, and those in the one at its end.
    """
    rows, n = begin.size, codes.size
    a, b = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    c, d = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    for k in range(rows):
        if begin[k] >= end[k]:
            continue
        if begin[k] & 1:
            first, last = begin[k] * size, min((begin[k] + 1) * size, n)
            a[k] = _first_at_least(codes, first, last, low[k])
            b[k] = _first_above(codes, a[k], last, high[k])
            begin[k] += 1
        if end[k] & 1 and begin[k] < end[k]:
            end[k] -= 1
            first, last = end[k] * size, min((end[k] + 1) * size, n)
            c[k] = _first_at_least(codes, first, last, low[k])
            d[k] = _first_above(codes, c[k], last, high[k])
        begin[k] >>= 1
        end[k] >>= 1
    return a, b, c, d

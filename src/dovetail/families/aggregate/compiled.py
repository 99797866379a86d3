"""Compiled merging of states over ranges: trees of partial sums, in which a query touches only what it matches.

Differences of prefix sums would do for whole numbers alone: one huge double anywhere would drown all later ones.  Sums
of doubles are kept as two doubles each (their sum and its rounding error), so that they are exact to about 106 bits and
depend neither on the order of the rows nor on how they are divided among cells.  Mean and squared deviations are merged
by the formula of Chan, Golub and LeVeque, in pairs of doubles as well.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Index: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Pair: TypeAlias = tuple[float, float]
Moments: TypeAlias = tuple[float, float, float, float, float]

_SPLITTER = 134217729.0
"""2**27 + 1 cuts a double into two halves whose products are exact."""
_MOST_SPLIT = 2.0**990
"""Beyond this a split would overflow."""


@njit(inline="always")
def _sum(a: float, b: float) -> Pair:  # pragma: no cover - compiled
    """Two doubles as their sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@njit(inline="always")
def add_pairs(ah: float, al: float, bh: float, bl: float) -> Pair:  # pragma: no cover - compiled
    """Two sums with their errors as one; an infinite one has no error."""
    high, low = _sum(ah, bh)
    if not np.isfinite(high):
        return high, 0.0
    more, rest = _sum(al, bl)
    low += more
    total = high + low
    low = low - (total - high) + rest
    high = total + low
    return high, low - (high - total)


@njit(inline="always")
def _times(ah: float, al: float, b: float) -> Pair:  # pragma: no cover - compiled
    """A pair times a double."""
    product = ah * b
    if not np.isfinite(product) or abs(ah) > _MOST_SPLIT or abs(b) > _MOST_SPLIT:
        return product, 0.0
    cut = _SPLITTER * ah
    a1 = cut - (cut - ah)
    a2 = ah - a1
    cut = _SPLITTER * b
    b1 = cut - (cut - b)
    b2 = b - b1
    error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    error += al * b
    total = product + error
    return total, error - (total - product)


@njit(inline="always")
def _divided(ah: float, al: float, b: float) -> Pair:  # pragma: no cover - compiled
    """A pair divided by a double."""
    first = ah / b
    if not np.isfinite(first):
        return first, 0.0
    back, error = _times(first, 0.0, b)
    rest, more = add_pairs(ah, al, -back, -error)
    second = (rest + more) / b
    total = first + second
    return total, second - (total - first)


@njit
def merge_moments(
    na: float, ah: float, al: float, pa: float, qa: float, nb: float, bh: float, bl: float, pb: float, qb: float
) -> Moments:  # pragma: no cover - compiled
    """Count, mean and squared deviations of two sets as those of their union; mean and deviations are pairs."""
    if na == 0.0:
        return nb, bh, bl, pb, qb
    if nb == 0.0:
        return na, ah, al, pa, qa
    n = na + nb
    dh, dl = add_pairs(bh, bl, -ah, -al)
    sh, sl = _times(dh, dl, nb)
    sh, sl = _divided(sh, sl, n)
    mh, ml = add_pairs(ah, al, sh, sl)
    # delta**2 * na * nb / n, in an order that overflows no sooner than the result.
    ph, pl = _times(sh, sl, na)
    xh, xl = _times(ph, pl, dh)
    if np.isfinite(xh):
        yh, _ = _times(ph, pl, dl)
        ph, pl = add_pairs(xh, xl, yh, 0.0)
    else:
        # A square is too large for a double; the small part of the product may be infinite, too, with the other sign.
        ph, pl = xh, 0.0
    qh, ql = add_pairs(pa, qa, pb, qb)
    qh, ql = add_pairs(qh, ql, ph, pl)
    return n, mh, ml, qh, ql


@njit
def pair_tree(high: Floats, low: Floats) -> tuple[Floats, Floats]:  # pragma: no cover - compiled
    """Partial sums of pairs: the pairs themselves in the second half, and before them the sums of two each."""
    n = high.size
    th, tl = np.empty(2 * n), np.empty(2 * n)
    for at in range(n):
        th[n + at], tl[n + at] = high[at], low[at]
    for node in range(n - 1, 0, -1):
        th[node], tl[node] = add_pairs(th[2 * node], tl[2 * node], th[2 * node + 1], tl[2 * node + 1])
    return th, tl


@njit
def pair_ranges(th: Floats, tl: Floats, begin: Index, end: Index) -> tuple[Floats, Floats]:  # pragma: no cover
    """Sums over ranges [begin, end) of the pairs of a tree."""
    n = th.size // 2
    out_h, out_l = np.zeros(begin.size), np.zeros(begin.size)
    for k in range(begin.size):
        if begin[k] >= end[k]:
            continue
        a, b = begin[k] + n, end[k] + n
        h, lo = 0.0, 0.0
        while a < b:
            if a & 1:
                h, lo = add_pairs(h, lo, th[a], tl[a])
                a += 1
            if b & 1:
                b -= 1
                h, lo = add_pairs(h, lo, th[b], tl[b])
            a >>= 1
            b >>= 1
        out_h[k], out_l[k] = h, lo
    return out_h, out_l


@njit
def moment_tree(states: Floats) -> Floats:  # pragma: no cover - compiled
    """Merged moments, as in `pair_tree`; a row has count, mean (2 columns) and deviations (2 columns)."""
    n = states.shape[0]
    tree = np.empty((2 * n, 5))
    for at in range(n):
        for column in range(5):
            tree[n + at, column] = states[at, column]
    for node in range(n - 1, 0, -1):
        a, b = tree[2 * node], tree[2 * node + 1]
        c, mh, ml, qh, ql = merge_moments(a[0], a[1], a[2], a[3], a[4], b[0], b[1], b[2], b[3], b[4])
        tree[node, 0], tree[node, 1], tree[node, 2], tree[node, 3], tree[node, 4] = c, mh, ml, qh, ql
    return tree


@njit
def moment_ranges(tree: Floats, begin: Index, end: Index) -> Floats:  # pragma: no cover - compiled
    """Moments over ranges [begin, end) of the rows of a tree."""
    n = tree.shape[0] // 2
    out = np.zeros((begin.size, 5))
    for k in range(begin.size):
        if begin[k] >= end[k]:
            continue
        i, j = begin[k] + n, end[k] + n
        c, mh, ml, qh, ql = 0.0, 0.0, 0.0, 0.0, 0.0
        while i < j:
            if i & 1:
                t = tree[i]
                c, mh, ml, qh, ql = merge_moments(c, mh, ml, qh, ql, t[0], t[1], t[2], t[3], t[4])
                i += 1
            if j & 1:
                j -= 1
                t = tree[j]
                c, mh, ml, qh, ql = merge_moments(c, mh, ml, qh, ql, t[0], t[1], t[2], t[3], t[4])
            i >>= 1
            j >>= 1
        out[k, 0], out[k, 1], out[k, 2], out[k, 3], out[k, 4] = c, mh, ml, qh, ql
    return out


@njit
def least_tree(ranks: Index) -> Index:  # pragma: no cover - compiled
    """The smaller of two ranks each, as in `pair_tree`."""
    n = ranks.size
    tree = np.empty(2 * n, dtype=np.int64)
    for at in range(n):
        tree[n + at] = ranks[at]
    for node in range(n - 1, 0, -1):
        tree[node] = min(tree[2 * node], tree[2 * node + 1])
    return tree


@njit
def least_ranges(tree: Index, begin: Index, end: Index, none: int) -> Index:  # pragma: no cover - compiled
    """The smallest rank of a tree in each range [begin, end); `none` for empty ones."""
    n = tree.size // 2
    out = np.full(begin.size, none, dtype=np.int64)
    for k in range(begin.size):
        if begin[k] >= end[k]:
            continue
        a, b = begin[k] + n, end[k] + n
        best = np.int64(none)
        while a < b:
            if a & 1:
                best = min(best, tree[a])
                a += 1
            if b & 1:
                b -= 1
                best = min(best, tree[b])
            a >>= 1
            b >>= 1
        out[k] = best
    return out


@njit
def merge_pairs_into(ah: Floats, al: Floats, bh: Floats, bl: Floats) -> None:  # pragma: no cover - compiled
    """Add sums with errors to others, row by row."""
    for k in range(ah.size):
        ah[k], al[k] = add_pairs(ah[k], al[k], bh[k], bl[k])


@njit
def merge_moments_into(a: Floats, b: Floats) -> None:  # pragma: no cover - compiled
    """Merge moments into others, row by row."""
    for k in range(a.shape[0]):
        x, y = a[k], b[k]
        c, mh, ml, qh, ql = merge_moments(x[0], x[1], x[2], x[3], x[4], y[0], y[1], y[2], y[3], y[4])
        a[k, 0], a[k, 1], a[k, 2], a[k, 3], a[k, 4] = c, mh, ml, qh, ql

"""Compiled sums of doubles over ranges by prefix sums, where those lose no bit.

Doubles are whole multiples of a power of two.  Where the smallest and the largest bit of all values lie close enough,
their prefix sums fit into 127 bits, and the difference of two of them is the exact sum of a range.  Values of common
data do; a column that holds both 1e300 and 1e-300 does not, and goes through a tree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit
from dovetail.families.aggregate.compiled import Floats, Index, Pair, add_pairs

_MOST_BITS = 126
_LEAST_UNIT, _NONE = -1022, 1 << 20


def fixed_unit(values: Floats) -> int | None:
    """The power of two that all finite values are multiples of, if their sums fit into 127 bits; else None.

    Examples
    --------
    >>> fixed_unit(np.array([0.75, -2.0])), fixed_unit(np.array([1e300, 1e-300]))
    (-2, None)
    """
    low, high = _bits(np.ascontiguousarray(values))
    if low == _NONE:
        return 0  # nothing but zeros
    wide = high - low + 1 + int(values.size).bit_length()
    return int(low) if wide <= _MOST_BITS and low >= _LEAST_UNIT else None


@njit
def _bits(values: Floats) -> tuple[int, int]:  # pragma: no cover - compiled
    """The powers of two of the smallest and of the largest bit of all values that are not zero."""
    low, high = 1 << 20, -(1 << 20)
    bits = values.view(np.int64)
    for at in range(values.size):
        stored = bits[at] & 0x7FFF_FFFF_FFFF_FFFF
        if stored == 0:
            continue
        exponent = stored >> 52
        mantissa = stored & 0xF_FFFF_FFFF_FFFF
        if exponent == 0:
            exponent = 1
        else:
            mantissa |= 1 << 52
        least = exponent - 1075
        if least + 53 > high:
            high = least + 53
        if least < low:
            # Only now is it worth the while to look for zeros at the end.
            zeros = 0
            while mantissa & 1 == 0:
                mantissa >>= 1
                zeros += 1
            if least + zeros < low:
                low = least + zeros
    return low, high


@njit
def fixed_prefix(values: Floats, unit: int) -> tuple[Index, npt.NDArray[np.uint64]]:  # pragma: no cover - compiled
    """Prefix sums of the values as multiples of 2**unit, in two words each; `unit` is that of :func:`fixed_unit`."""
    upper, lower = np.zeros(values.size + 1, dtype=np.int64), np.zeros(values.size + 1, dtype=np.uint64)
    bits = values.view(np.int64)
    one, full, none = np.uint64(1), np.uint64(64), np.uint64(0)
    sum_upper, sum_lower = np.int64(0), np.uint64(0)
    for at in range(values.size):
        stored = bits[at] & 0x7FFF_FFFF_FFFF_FFFF
        if stored:
            exponent = stored >> 52
            mantissa = np.uint64(stored & 0xF_FFFF_FFFF_FFFF)
            if exponent == 0:
                exponent = 1
            else:
                mantissa |= one << np.uint64(52)
            shift = exponent - 1075 - unit
            high, low = none, mantissa
            if shift < 0:
                low = mantissa >> np.uint64(-shift)
            elif shift >= 64:
                high, low = mantissa << np.uint64(shift - 64), none
            elif shift > 0:
                places = np.uint64(shift)
                high, low = mantissa >> (full - places), mantissa << places
            if bits[at] < 0:
                low = ~low + one
                high = ~high + (one if low == none else none)
            before = sum_lower
            sum_lower += low
            sum_upper += np.int64(high) + np.int64(sum_lower < before)
        upper[at + 1], lower[at + 1] = sum_upper, sum_lower
    return upper, lower


@njit(inline="always")
def _whole_words(top: float, middle: float, least: float) -> Pair:  # pragma: no cover - compiled
    """Three words of 32 bits, each at its place, as their sum and its error.

    A word is zero or larger than those after it, so what an addition leaves is exact; of 96 bits it fits into a double.
    """
    first = top + middle
    rest = middle - (first - top)
    second = first + least
    rest += least - (second - first)
    total = second + rest
    return total, rest - (total - second)


@njit
def fixed_ranges(
    upper: Index, lower: npt.NDArray[np.uint64], unit: int, begin: Index, end: Index
) -> tuple[Floats, Floats]:  # pragma: no cover - compiled
    """Sums over ranges [begin, end) of prefix sums, each as a double and its error."""
    out_h, out_l = np.zeros(begin.size), np.zeros(begin.size)
    scale = 2.0**unit
    one, none, half, word = np.uint64(1), np.uint64(0), np.uint64(32), np.uint64(0xFFFF_FFFF)
    for k in range(begin.size):
        a, b = begin[k], end[k]
        if a >= b:
            continue
        low = lower[b] - lower[a]
        high = np.uint64(upper[b] - upper[a]) - (one if lower[b] < lower[a] else none)
        negative = np.int64(high) < 0
        if negative:
            low = ~low + one
            high = ~high + (one if low == none else none)
        middle, least = np.float64(low >> half) * 2.0**32, np.float64(low & word)
        if high >> half == none:
            h, lo = _whole_words(np.float64(high) * 2.0**64, middle, least)
        else:
            h, lo = add_pairs(np.float64(high >> half) * 2.0**96, 0.0, np.float64(high & word) * 2.0**64, 0.0)
            h, lo = add_pairs(h, lo, middle, 0.0)
            h, lo = add_pairs(h, lo, least, 0.0)
        h, lo = h * scale, lo * scale
        if not np.isfinite(h):
            lo = 0.0
        out_h[k], out_l[k] = (-h, -lo) if negative else (h, lo)
    return out_h, out_l

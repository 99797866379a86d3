"""Order codes: every orderable column as ``int64``, so that one compiled kernel serves all types.

A code keeps order and equality: ``code(a) < code(b)`` exactly where Spark says ``a < b``, and equal codes
mean equal values.  Spark's order decides the corner cases: ``-0.0`` equals ``0.0``, and NaN equals itself and
is larger than everything else.

Three kinds of column exist.

``int``
    integers, booleans, dates, timestamps, day-time intervals and decimals of up to 18 digits: the stored
    integer is the code.
``float32``, ``float64``
    the bits of the float, with the order of the negative half reversed.
``rank``
    strings, binary and wide decimals have no 64-bit code of their own.  Both sides of a cell are ranked
    together, which gives codes that hold within that cell; :func:`prefix_codes` gives a coarser, global code
    that a router can cut into ranges (it keeps ``<=`` but not ``<``).
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.numba_cache import njit
from dovetail.conditions.comparison import Kind

Column: TypeAlias = "pa.Array[Any]"
Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

_Scalar = TypeVar("_Scalar", bound=np.generic)

LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max

# Of each width: the code of -inf, the code of NaN, and the bits that reverse the order of the negative half.
_ENDS_64 = (~0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF)
_ENDS_32 = (~0x7F80_0000, 0x7FC0_0000, 0x7FFF_FFFF)


def valid_mask(column: Column) -> Mask:
    """Which rows of a column are not NULL."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=np.bool_)


def order_codes(column: Column, kind: Kind) -> Codes:
    """Codes of a column of kind ``int``, ``float32`` or ``float64``; NULL rows get an arbitrary code.

    Examples
    --------
    >>> order_codes(pa.array([2.5, -1.0, float("nan"), -0.0, 0.0]), "float64").argsort(kind="stable").tolist()
    [1, 3, 4, 0, 2]
    """
    if kind == "float64":
        return float_codes(slots(column, 1, np.float64))
    if kind == "float32":
        return float_codes(slots(column, 1, np.float32))
    if pa.types.is_decimal(column.type):
        # A decimal128 is a little-endian 128-bit integer; up to 18 digits live in its low half.
        return slots(column, 1, np.int64, width=2)[::2].copy()
    if pa.types.is_boolean(column.type):
        return slots(column.cast(pa.int8()), 1, np.int8).astype(np.int64)
    stored = np.dtype(f"int{column.type.bit_width}")
    return slots(column, 1, stored.type).astype(np.int64, copy=False)


def slots(column: Column, at: int, dtype: type[_Scalar], *, width: int = 1, more: int = 0) -> npt.NDArray[_Scalar]:
    """The numbers of a column in its buffer `at`, not those of a parent array: `width` a row, NULL rows included."""
    buffer = column.buffers()[at]
    if buffer is None or len(column) == 0:
        return np.zeros(more, dtype=dtype)
    begin, count = column.offset * width, len(column) * width + more
    return np.frombuffer(memoryview(buffer), dtype, count=count, offset=begin * np.dtype(dtype).itemsize)


def float_codes(values: Floats) -> Codes:
    """Order codes of floats; 32-bit floats get 32-bit codes, widened."""
    if values.dtype == np.float32:
        with np.errstate(invalid="ignore"):  # a signalling NaN
            small = values.astype(np.float32, copy=False) + np.float32(0)  # -0.0 becomes 0.0
        bits = small.view(np.int32)
        ordered = np.where(bits < 0, bits ^ np.int32(_ENDS_32[2]), bits)
        return np.where(np.isnan(small), np.int32(_ENDS_32[1]), ordered).astype(np.int64)
    return _float64_codes(np.ascontiguousarray(values))


@njit
def _float64_codes(values: npt.NDArray[np.float64]) -> Codes:  # pragma: no cover - compiled
    codes = np.empty(values.size, dtype=np.int64)
    bits = values.view(np.int64)
    for i in range(values.size):
        value = values[i]
        if value != value:
            codes[i] = 0x7FF8_0000_0000_0000
        elif value == 0.0:
            codes[i] = 0
        elif bits[i] < 0:
            codes[i] = bits[i] ^ 0x7FFF_FFFF_FFFF_FFFF
        else:
            codes[i] = bits[i]
    return codes


def float_values(codes: Codes, kind: Kind) -> npt.NDArray[np.float64]:
    """Codes of kind ``int``, ``float32`` or ``float64`` as numbers on a line: the inverse of :func:`order_codes`.

    Order is kept, though neighbours among large integers may fall together.

    Examples
    --------
    >>> float_values(order_codes(pa.array([-1.5, 0.25]), "float64"), "float64").tolist()
    [-1.5, 0.25]
    >>> float_values(order_codes(pa.array([-1.5, 0.25], pa.float32()), "float32"), "float32").tolist()
    [-1.5, 0.25]
    """
    if kind == "int":
        return codes.astype(np.float64)
    if kind == "float32":
        small = np.clip(codes, -(1 << 31), (1 << 31) - 1).astype(np.int32)
        bits = np.where(small < 0, small ^ np.int32(_ENDS_32[2]), small).astype(np.int32)
        with np.errstate(invalid="ignore"):  # some codes beyond the infinities are signalling NaNs
            values: npt.NDArray[np.float64] = bits.view(np.float32).astype(np.float64)
        return values
    return np.where(codes < 0, codes ^ np.int64(_ENDS_64[2]), codes).view(np.float64)


def joint_codes(left: Column, right: Column) -> tuple[Codes, Codes]:
    """Ranks of two columns of kind ``rank`` in their common order; equal values share a rank.

    Examples
    --------
    >>> left, right = joint_codes(pa.array(["b", "a"]), pa.array(["c", "b"]))
    >>> left.tolist(), right.tolist()
    ([2, 1], [3, 2])
    """
    both = pa.concat_arrays([left, right])
    if pa.types.is_large_string(both.type) or pa.types.is_string(both.type):
        # Spark orders strings by their UTF-8 bytes, as Arrow orders binary.
        both = both.view(pa.large_binary() if pa.types.is_large_string(both.type) else pa.binary())
    ranks = pc.rank(both, sort_keys="ascending", tiebreaker="dense")
    codes = ranks.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[: len(left)], codes[len(left) :]


def prefix_codes(column: Column) -> Codes:
    """A global code that keeps ``<=`` for kind ``rank``: eight leading bytes, or the nearest float.

    Examples
    --------
    >>> codes = prefix_codes(pa.array(["", "abc", "abd", "longer than eight", "longer than nine"]))
    >>> bool((codes[:-1] <= codes[1:]).all())
    True
    """
    if pa.types.is_decimal(column.type):
        return float_codes(np.nan_to_num(column.cast(pa.float64()).to_numpy(zero_copy_only=False)))
    column = column.cast(pa.large_binary())
    offsets = slots(column, 1, np.int64, more=1)
    data = column.buffers()[2]
    payload = np.frombuffer(memoryview(data), np.uint8) if data else np.empty(0, dtype=np.uint8)
    return _prefixes(offsets, payload)


@njit
def _prefixes(offsets: npt.NDArray[np.int64], payload: npt.NDArray[np.uint8]) -> Codes:  # pragma: no cover - compiled
    codes = np.empty(offsets.size - 1, dtype=np.int64)
    for i in range(codes.size):
        prefix = np.uint64(0)
        length = offsets[i + 1] - offsets[i]
        for byte in range(8):
            prefix <<= np.uint64(8)
            if byte < length:
                prefix |= np.uint64(payload[offsets[i] + byte])
        codes[i] = np.int64(prefix ^ np.uint64(0x8000_0000_0000_0000))
    return codes


# ----------------------------------------------------------------------------------------------------------
# Bands: for a right value y, the codes of x with low <= x - y <= high.
# ----------------------------------------------------------------------------------------------------------


def int_band(codes: Codes, low: int | None, high: int | None) -> tuple[Codes, Codes]:
    """Inclusive code ranges of ``low <= x - y <= high`` for integer codes `y`; sums saturate, never wrap.

    Examples
    --------
    >>> low, high = int_band(np.array([10, HIGHEST]), -2, 3)
    >>> low.tolist() == [8, HIGHEST - 2], high.tolist() == [13, HIGHEST]
    (True, True)
    """
    lows, below = (np.full(codes.size, LOWEST), 0) if low is None else _moved(codes, low)
    highs, above = (np.full(codes.size, HIGHEST), 0) if high is None else _moved(codes, high)
    # A lower end past the top, or an upper end past the bottom, leaves no code between them.
    empty = (below > 0) | (above < 0)
    lows[empty], highs[empty] = HIGHEST, LOWEST
    return lows, highs


def _moved(codes: Codes, shift: int) -> tuple[Codes, npt.NDArray[np.int8]]:
    """Codes shifted by any whole number, saturated; and where they leave int64: -1 below, 1 above, 0 nowhere."""
    beyond = np.zeros(codes.size, dtype=np.int8)
    shift = max(-(1 << 64), min(1 << 64, shift))
    moved = codes.copy()
    while shift:
        # Half the largest int64 at a time: then the sum of two int64 shows its overflow in its sign.
        part = max(-(1 << 62), min(1 << 62, shift))
        with np.errstate(over="ignore"):
            after = moved + np.int64(part)
        over, under = (part > 0) & (after < moved), (part < 0) & (after > moved)
        beyond[over], beyond[under] = 1, -1
        moved = np.where(beyond > 0, HIGHEST, np.where(beyond < 0, LOWEST, after))
        shift -= part
    return moved, beyond


def float_band(
    values: Floats, low: float | None, high: float | None, *, strict_low: bool, strict_high: bool
) -> tuple[Codes, Codes]:
    """Inclusive code ranges of ``low <= x - y <= high`` where ``x - y`` is rounded as floats are.

    The bounds are finite.  Spark compares a rounded 32-bit difference with them in 64 bits.

    ``x - y <= high`` and ``x <= y + high`` differ in the last bit.  For a fixed y the rounded difference
    never falls as x grows, so the x that satisfy it form one range of codes; each end is searched for in
    code space, starting from the code of ``y + high``, where it nearly always is.

    Examples
    --------
    >>> low, high = float_band(np.array([1.0]), -0.5, 0.5, strict_low=False, strict_high=True)
    >>> x = float_codes(np.array([0.25, 0.5, 1.0, 1.5, np.nan]))
    >>> ((low <= x) & (x <= high)).tolist()
    [False, True, True, False, False]
    """
    single = values.dtype == np.float32
    y = np.ascontiguousarray(values)
    ends = _ENDS_32 if single else _ENDS_64
    lows = np.full(y.size, ends[0])
    highs = np.full(y.size, ends[1])
    # The same bytes twice: what the search writes as an integer, it reads as a float of the width of y.
    bits: npt.NDArray[np.signedinteger[Any]] = np.empty(1, dtype=np.int32 if single else np.int64)
    decoded = bits.view(y.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        if low is not None:
            guess = float_codes(y + y.dtype.type(low))
            # The first code whose difference reaches `low`: one past the last that stays below it.
            lows = _last_below(y, guess, float(low), not strict_low, ends, bits, decoded) + 1
        if high is not None:
            guess = float_codes(y + y.dtype.type(high))
            highs = _last_below(y, guess, float(high), strict_high, ends, bits, decoded)
    return lows, highs


_GALLOPS = 6
"""Doubling steps away from the guess before plain bisection takes over."""


@njit
def _last_below(
    y: Floats,
    guess: Codes,
    bound: float,
    strict: bool,
    ends: tuple[int, int, int],
    bits: npt.NDArray[np.signedinteger[Any]],
    decoded: Floats,
) -> Codes:  # pragma: no cover - compiled
    """The last code whose float exceeds y by less than `bound`, or by no more; ``bottom - 1`` if none."""
    bottom, top, turn = ends
    found = np.empty(y.size, dtype=np.int64)
    for i in range(y.size):
        # Invariant: every code <= good passes, every code >= bad fails.
        good = bottom - 1
        bad = top + 1
        at = min(max(guess[i], bottom), top)
        gallops = 0
        while good + 1 < bad:
            bits[0] = at if at >= 0 else at ^ turn
            difference = decoded[0] - y[i]
            # NaN is the largest value, so it stays below nothing.
            passes = difference < bound if strict else difference <= bound
            if passes:
                good = at
            else:
                bad = at
            if gallops < _GALLOPS:
                at += (1 << gallops) if passes else -(1 << gallops)
                gallops += 1
            if gallops == _GALLOPS or at <= good or at >= bad:
                at = (good & bad) + ((good ^ bad) >> 1)  # their mean, without overflow
                gallops = _GALLOPS
        found[i] = good
    return found


_FEW, _STEP = 64, 16
"""Up to `_FEW` cuts are counted, not searched: a search spends its time on mispredicted branches.  Of more cuts, every
`_STEP`-th is counted first, and then those in between."""


@njit
def cuts_passed(cuts: Codes, codes: Codes) -> Codes:  # pragma: no cover - compiled
    """For each code how many of the ascending cuts are not above it.

    Examples
    --------
    >>> cuts_passed(np.array([3, 7]), np.array([2, 3, 6, 7, 9])).tolist()
    [0, 1, 1, 2, 2]
    """
    out = np.empty(codes.size, dtype=np.int64)
    coarse = cuts[_STEP - 1 :: _STEP].copy() if cuts.size > _FEW else cuts[:0].copy()
    for i in range(codes.size):
        code, begin, end = codes[i], np.int64(0), np.int64(cuts.size)
        if coarse.size > _FEW:
            begin = np.searchsorted(coarse, code, side="right") * _STEP
        elif coarse.size:
            blocks = np.int64(0)
            for c in range(coarse.size):
                blocks += np.int64(coarse[c] <= code)
            begin = blocks * _STEP
        if coarse.size:
            end = min(begin + _STEP, end)
        passed = np.int64(begin)
        for c in range(begin, end):
            passed += np.int64(cuts[c] <= code)
        out[i] = passed
    return out


def moved(times: Codes, by: int) -> Codes:
    """Times moved by a length, as far as there are any.

    Examples
    --------
    >>> moved(np.array([5, 2**63 - 2]), 3).tolist() == [8, 2**63 - 1]
    True
    """
    if by >= 0:
        return np.where(times > HIGHEST - by, HIGHEST, times + by)
    return np.where(times < LOWEST - by, LOWEST, times + by)


def window_ends(times: Codes, low: int, high: int) -> tuple[Codes, Codes]:
    """The first and the last time from each one + `low` up to it + `high`; where there is none, the last is earlier.

    Examples
    --------
    >>> [end.tolist() for end in window_ends(np.array([5, 9]), -3, 0)]
    [[2, 6], [5, 9]]
    """
    first, last = moved(times, low), moved(times, high)
    beyond = times > HIGHEST - low if low > 0 else times < LOWEST - high if high < 0 else None
    if beyond is not None and beyond.any():
        first, last = np.where(beyond, HIGHEST, first), np.where(beyond, LOWEST, last)
    return first, last


def codes_within(column: pa.Array[Any], kind: Kind) -> Codes:
    """Codes that order one column; strings and wide decimals are ranked."""
    if kind != "rank":
        return order_codes(column, kind)
    return joint_codes(column, column.slice(0, 0))[0]

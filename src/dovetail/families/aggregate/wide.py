"""Whole numbers of 160 bits, as five limbs of 32 bits each: exact sums and averages of decimals.

A sum of 2**31 decimals of 38 digits has at most 158 bits.  Limbs are int64 columns, the last one with the sign.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.numba_cache import njit
from dovetail.families.aggregate.compiled import Index

Words: TypeAlias = npt.NDArray[np.int64]
"""Five limbs of each number, the smallest first, all but the last between 0 and 2**32."""

LIMBS = 5
_BITS = 32
_MASK = (1 << _BITS) - 1
_MOST_COUNT = 1 << 31


def to_words(limbs: list[Index]) -> Words:
    """Sums of limbs with their carries resolved; the last of the given limbs has the sign."""
    words = np.zeros((limbs[0].size, LIMBS), dtype=np.int64)
    carry = np.zeros(limbs[0].size, dtype=np.int64)
    for at in range(LIMBS - 1):
        total = carry + limbs[at] if at < len(limbs) else carry
        words[:, at] = total & _MASK
        carry = total >> _BITS
    words[:, LIMBS - 1] = carry
    return words


def fits(words: Words, digits: int) -> Mask:
    """Whether numbers have at most so many digits."""
    negative = words[:, LIMBS - 1] < 0
    size = _negated(words, negative)
    bound = 10**digits
    limit = [(bound >> (_BITS * at)) & _MASK for at in range(LIMBS)]
    below = np.zeros(size.shape[0], dtype=np.bool_)
    same = np.ones(size.shape[0], dtype=np.bool_)
    for at in range(LIMBS - 1, -1, -1):
        below |= same & (size[:, at] < limit[at])
        same &= size[:, at] == limit[at]
    return below


def averaged(words: Words, counts: Index, gain: int) -> Words:
    """Numbers times 10**gain, divided by counts, rounded half away from zero."""
    if counts.size and int(counts.max()) >= _MOST_COUNT:
        return _averaged_slowly(words, counts, gain)
    negative = words[:, LIMBS - 1] < 0
    size = _negated(words, negative)
    return _negated(_divided(size, counts, 10**gain), negative)


def decimal_column(words: Words, kind: pa.DataType, missing: Mask) -> pa.Array[Any]:
    """Numbers of up to 128 bits as a column of decimals."""
    pairs = np.empty((words.shape[0], 2), dtype=np.int64)
    pairs[:, 0] = words[:, 0] | (words[:, 1] << _BITS)
    pairs[:, 1] = words[:, 2] | (words[:, 3] << _BITS)
    valid = pa.array(~missing).buffers()[1] if missing.any() else None
    return pa.Array.from_buffers(kind, words.shape[0], [valid, pa.py_buffer(pairs.tobytes())])


def _negated(words: Words, where: Mask) -> Words:
    """The numbers with the other sign, where asked for."""
    out = words.copy()
    carry = np.ones(words.shape[0], dtype=np.int64)
    for at in range(LIMBS):
        flipped = (_MASK - words[:, at] if at < LIMBS - 1 else ~words[:, at]) + carry
        carry = flipped >> _BITS
        out[:, at] = np.where(where, flipped & _MASK if at < LIMBS - 1 else flipped, words[:, at])
    return out


@njit
def _divided(size: Words, counts: Index, factor: int) -> Words:  # pragma: no cover - compiled
    out = np.zeros_like(size)
    limbs = size.shape[1]
    scaled = np.zeros(limbs + 1, dtype=np.int64)
    for k in range(size.shape[0]):
        carry = np.int64(0)
        for at in range(limbs):
            total = size[k, at] * factor + carry
            scaled[at] = total & 0xFFFFFFFF
            carry = total >> 32
        scaled[limbs] = carry
        rest = np.int64(0)
        for at in range(limbs, -1, -1):
            total = (rest << 32) | scaled[at]
            if at < limbs:
                out[k, at] = total // counts[k]
            rest = total % counts[k]
        if 2 * rest >= counts[k]:
            at = 0
            while at < limbs:
                out[k, at] += 1
                if out[k, at] <= 0xFFFFFFFF:
                    break
                out[k, at] = 0
                at += 1
    return out


def _averaged_slowly(words: Words, counts: Index, gain: int) -> Words:
    """The same for counts of more than 31 bits, one by one: there cannot be many."""
    out = np.empty_like(words)
    for k in range(words.shape[0]):
        number = sum(int(words[k, at]) << (_BITS * at) for at in range(LIMBS))
        size, count = abs(number) * 10**gain, int(counts[k])
        quotient, rest = divmod(size, count)
        quotient = (quotient + (2 * rest >= count)) * (-1 if number < 0 else 1)
        out[k] = [(quotient >> (_BITS * at)) & _MASK for at in range(LIMBS - 1)] + [quotient >> (_BITS * (LIMBS - 1))]
    return out

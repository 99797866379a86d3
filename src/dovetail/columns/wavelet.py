"""A wavelet matrix: which numbers lie at a range of positions, without looking at each of them.

Numbers below 2**levels, one for each position, are cut into bits, the highest first.  Each level has one bit of every
number, in an order in which those with a 0 so far lie before those with a 1; so the numbers of a range of positions lie
in one range again on the next level, and how many ones there are before a position tells where.  The smallest number
but k of a range, or how many numbers of it are below a given one, takes a look at two places of each level
(Claude, Navarro and Ordóñez, "The wavelet matrix", Information Systems 47, 2015).

Bits lie 64 to a word, each word beside the number of ones before it: a quarter of a byte for each number and level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Wavelets(NamedTuple):
    """The levels, and how many numbers of each have a 0 there."""

    words: Words
    """(levels, words, 2): the ones before the word, and its bits."""
    zeros: Index


@njit(inline="always")
def _ones(word: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """How many bits of a word are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(inline="always")
def _ones_before(words: Words, level: int, at: int) -> int:  # pragma: no cover - compiled
    """How many of the first `at` bits of a level are set."""
    word = at >> 6
    below = (np.uint64(1) << np.uint64(at & 63)) - np.uint64(1)
    return np.int64(words[level, word, 0] + _ones(words[level, word, 1] & below))  # type: ignore[return-value]


@njit
def _built(numbers: Index, levels: int) -> Wavelets:  # pragma: no cover - compiled
    size = numbers.size
    words = np.zeros((levels, (size >> 6) + 1, 2), dtype=np.uint64)
    zeros = np.zeros(levels, dtype=np.int64)
    own, other = numbers.copy(), np.empty_like(numbers)
    for level in range(levels):
        shift = levels - 1 - level
        count = 0
        for at in range(size):
            count += 1 - ((own[at] >> shift) & 1)
        zeros[level] = count
        low, high = 0, count
        for at in range(size):
            if at & 63 == 0:
                words[level, at >> 6, 0] = np.uint64(high - count)
            if (own[at] >> shift) & 1:
                words[level, at >> 6, 1] |= np.uint64(1) << np.uint64(at & 63)
                other[high] = own[at]
                high += 1
            else:
                other[low] = own[at]
                low += 1
        if size & 63 == 0:
            words[level, size >> 6, 0] = np.uint64(high - count)
        own, other = other, own
    return Wavelets(words, zeros)


def build(numbers: Index) -> Wavelets:
    """The matrix of numbers that are 0 or more.

    Examples
    --------
    >>> matrix = build(np.array([3, 1, 4, 1, 5]))
    >>> kth(matrix, 1, 4, 0), kth(matrix, 1, 4, 2), below(matrix, 0, 5, 4)
    (1, 4, 3)
    """
    return _built(numbers, max(1, int(numbers.max(initial=0)).bit_length()))


@njit
def kth(matrix: Wavelets, begin: int, end: int, k: int) -> int:  # pragma: no cover - compiled
    """The smallest number but `k` at the positions from `begin` up to `end`, of which there are more than `k`."""
    words, zeros = matrix.words, matrix.zeros
    found = 0
    for level in range(zeros.size):
        first, last = _ones_before(words, level, begin), _ones_before(words, level, end)
        small = (end - last) - (begin - first)
        found <<= 1
        if k < small:
            begin, end = begin - first, end - last
        else:
            k -= small
            begin, end = zeros[level] + first, zeros[level] + last
            found |= 1
    return found


@njit
def below(matrix: Wavelets, begin: int, end: int, number: int) -> int:  # pragma: no cover - compiled
    """How many numbers at the positions from `begin` up to `end` are below `number`."""
    words, zeros = matrix.words, matrix.zeros
    levels = zeros.size
    if number >> levels:
        return end - begin if number > 0 else 0
    total = 0
    for level in range(levels):
        first, last = _ones_before(words, level, begin), _ones_before(words, level, end)
        if (number >> (levels - 1 - level)) & 1:
            total += (end - last) - (begin - first)
            begin, end = zeros[level] + first, zeros[level] + last
        else:
            begin, end = begin - first, end - last
        if begin == end:
            break
    return total

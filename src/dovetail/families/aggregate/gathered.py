"""Aggregates whose states cannot be merged: distinct values counted, and percentiles, over ranges of sorted rows.

All matches of a row have to lie in one cell.  There they are a range of positions, and a wavelet matrix
(:mod:`dovetail.columns.wavelet`) answers about it without looking at each of them:

    percentiles    the matrix of the ranks of the values; the smallest but k of the range
    distinct       the matrix of the last position before that has the same value; how many in the range have none in it
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, valid_mask
from dovetail.columns.numba_cache import njit
from dovetail.columns.segments import nulls
from dovetail.columns.wavelet import Wavelets, below, build, kth
from dovetail.families.aggregate.compiled import Index

Floats = npt.NDArray[np.float64]


class _Ranges:
    """The values of the rows that are not NULL, by their codes; ranges of rows as ranges of those."""

    def __init__(self, column: pa.Array[Any], codes: Codes) -> None:
        self._column, self._codes, self._valid = column, codes, valid_mask(column)

    def known(self, order: Index, begin: Index, end: Index) -> tuple[Index, Index, Index]:
        """The rows with a value in an order of all, and the ranges among them."""
        kept = self._valid[order]
        if kept.all():
            return order, begin, end
        before = np.zeros(order.size + 1, dtype=np.int64)
        np.cumsum(kept, out=before[1:])
        return order[kept], before[begin], before[end]


class Distinct(_Ranges):
    """How many values differ."""

    def __init__(self, column: pa.Array[Any], codes: Codes, rows: int) -> None:
        super().__init__(column, codes)
        self._counts = np.zeros(rows, dtype=np.int64)

    def add(self, order: Index, begin: Index, end: Index) -> None:
        """Count in the ranges, which hold all matches of a row."""
        order, begin, end = self.known(order, begin, end)
        codes = self._codes[order]
        by_code = np.argsort(codes, kind="stable")
        # Positions are counted from 1, so that 0 is before all of them.
        before = np.zeros(order.size, dtype=np.int64)
        same = np.flatnonzero(codes[by_code][1:] == codes[by_code][:-1])
        before[by_code[same + 1]] = by_code[same] + 1
        self._counts = _first_ones(build(before), begin, end)

    def state(self) -> list[pa.Array[Any]]:
        """One column of counts."""
        return [pa.array(self._counts)]


class Quantile(_Ranges):
    """The values at some fractions of the matches in their order.

    Without an `error` they are interpolated, as ``percentile`` does; with one they are values that occur, as
    ``percentile_approx`` gives where it is exact.
    """

    def __init__(
        self, column: pa.Array[Any], codes: Codes, rows: int, fractions: tuple[float, ...], error: float | None
    ) -> None:
        super().__init__(column, codes)
        self._fractions, self._error = fractions, error
        kind = column.type if error is not None else pa.float64()
        self._found: list[pa.Array[Any]] = [nulls(rows, kind) for _ in fractions]

    def add(self, order: Index, begin: Index, end: Index) -> None:
        """Look in the ranges, which hold all matches of a row."""
        order, begin, end = self.known(order, begin, end)
        if not order.size:
            return
        # Equal values share a rank, and one row stands for all of them.
        _, places, ranks = np.unique(self._codes[order], return_index=True, return_inverse=True)
        matrix, stands = build(ranks.astype(np.int64)), order[places]
        empty = begin == end
        if self._error is not None:
            for at, fraction in enumerate(self._fractions):
                chosen = stands[_element(matrix, begin, end, fraction, self._error)]
                self._found[at] = self._column.take(pa.array(chosen, mask=empty))
            return
        values = self._column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)[stands]
        for at, fraction in enumerate(self._fractions):
            self._found[at] = pa.array(_interpolated(matrix, values, begin, end, fraction), mask=empty)

    def state(self) -> list[pa.Array[Any]]:
        """A column for each fraction; NULL without a value."""
        return self._found


@njit
def _first_ones(matrix: Wavelets, begin: Index, end: Index) -> Index:  # pragma: no cover - compiled
    """How many of each range have no equal before them in it."""
    out = np.zeros(begin.size, dtype=np.int64)
    for row in range(begin.size):
        if begin[row] < end[row]:
            out[row] = below(matrix, begin[row], end[row], begin[row] + 1)
    return out


@njit
def _element(
    matrix: Wavelets, begin: Index, end: Index, fraction: float, error: float
) -> Index:  # pragma: no cover - compiled
    """The rank of the value at a fraction of each range, as Spark counts: the first that so many do not exceed."""
    out = np.zeros(begin.size, dtype=np.int64)
    for row in range(begin.size):
        size = end[row] - begin[row]
        if size == 0:
            continue
        place = int(np.ceil(fraction * size)) - 1
        if fraction <= error or place < 0:
            place = 0
        elif fraction >= 1 - error or place >= size:
            place = size - 1
        out[row] = kth(matrix, begin[row], end[row], place)
    return out


@njit
def _interpolated(
    matrix: Wavelets, values: Floats, begin: Index, end: Index, fraction: float
) -> Floats:  # pragma: no cover - compiled
    """The value at a fraction of each range, between its two neighbours, in the arithmetic of Spark."""
    out = np.zeros(begin.size)
    for row in range(begin.size):
        size = end[row] - begin[row]
        if size == 0:
            continue
        position = (size - 1) * fraction
        lower, higher = np.floor(position), np.ceil(position)
        one = kth(matrix, begin[row], end[row], int(lower))
        out[row] = values[one]
        if higher > lower:
            other = kth(matrix, begin[row], end[row], int(higher))
            if other != one:
                out[row] = values[one] + (position - lower) * (values[other] - values[one])
    return out

"""Rows of an input as a search sees them.

A :class:`Piece` is some rows of one input, a :class:`Pile` all pieces of an input.  A piece is sorted on demand, once
for each way to look it up, and stays sorted as long as a worker remembers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes
from dovetail.columns.segments import concat
from dovetail.families.window.encode import Encoded, Index, buckets, code_values, encode_rows
from dovetail.families.window.spec import PairComparison, WindowJoinSpec

Partial: TypeAlias = "dict[int, Index]"
Way = tuple[str, int]
"""How an input is looked up: ("group", 0), ("equality", e), ("bucket", c) or ("time", 0)."""


@dataclass(frozen=True)
class Sorted:
    """A piece in the order of (slot, time)."""

    order: Index
    slots: Codes
    times: Index
    reach: float = 0.0
    """The widest range of the piece, where slots are buckets of lower ends."""
    held: dict[tuple[tuple[str, int], ...], tuple[Codes, Codes]] = field(default_factory=dict)

    def ranges(self, piece: Piece, conditions: tuple[tuple[str, int], ...]) -> tuple[Codes, Codes]:
        """The ranges of some conditions in this order, each of shape (conditions, rows)."""
        if conditions not in self.held:
            low = np.empty((len(conditions), piece.size), dtype=np.int64)
            high = np.empty_like(low)
            for c, condition in enumerate(conditions):
                low[c], high[c] = piece.codes.low[condition][self.order], piece.codes.high[condition][self.order]
            self.held[conditions] = low, high
        return self.held[conditions]


@dataclass
class Piece:
    """Rows of one input and, once asked for, their codes and orders."""

    spec: WindowJoinSpec
    side: int
    rows: pa.RecordBatch
    orders: dict[Way, Sorted] = field(default_factory=dict)

    @cached_property
    def codes(self) -> Encoded:
        """The rows in numbers."""
        return encode_rows(self.spec, self.side, self.rows)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.num_rows

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last time."""
        times = self.codes.times
        return int(times.min()), int(times.max())

    def sorted(self, way: Way) -> Sorted:
        """The rows in the order that a way of looking up needs."""
        if way not in self.orders:
            slots, reach = self._slots(way)
            order = np.lexsort((self.codes.times, slots))
            self.orders[way] = Sorted(order, slots[order], self.codes.times[order], reach)
        return self.orders[way]

    def _slots(self, way: Way) -> tuple[Codes, float]:
        kind, at = way
        codes = self.codes
        if kind == "group":
            return codes.group, 0.0
        if kind == "equality":
            return codes.low["e", at], 0.0
        if kind == "bucket":
            comparison = self.spec.comparisons[at]
            low = code_values(codes.low["c", at], comparison.axis.kind)
            if self.side == comparison.point_side:
                return buckets(low, bucket_width(comparison)), 0.0
            high = code_values(codes.high["c", at], comparison.axis.kind)
            with np.errstate(invalid="ignore"):
                widths = high - low
            widest = float(np.max(widths[np.isfinite(widths)], initial=0.0))
            return buckets(low, bucket_width(comparison)), float(np.nextafter(widest, np.inf))
        return np.zeros(len(codes), dtype=np.int64), 0.0


def is_band(comparison: PairComparison) -> bool:
    """Whether a comparison bounds a difference on both ends, which makes values worth an index."""
    axis = comparison.axis
    ends = (axis.low, axis.high)
    return axis.kind != "rank" and all(end is not None and end.shift is not None for end in ends)


def bucket_width(comparison: PairComparison) -> float:
    """Buckets as wide as the band, so that a range touches two or three."""
    low, high = comparison.axis.low, comparison.axis.high
    assert low is not None
    assert high is not None
    width = float(high.shift or 0) - float(low.shift or 0)
    return width if width > 0 and np.isfinite(width) else 1.0


@dataclass
class Pile:
    """The pieces of one input, their rows numbered through."""

    pieces: list[Piece]

    @cached_property
    def starts(self) -> Index:
        """The number of the first row of each piece, and the number of rows."""
        return np.concatenate([[0], np.cumsum([piece.size for piece in self.pieces])]).astype(np.int64)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return int(self.starts[-1])

    @cached_property
    def times(self) -> Index:
        """The times of all rows."""
        return _joined([piece.codes.times for piece in self.pieces])

    @cached_property
    def group(self) -> Codes:
        """The codes of the equality classes."""
        return _joined([piece.codes.group for piece in self.pieces])

    def ranges(self, condition: tuple[str, int]) -> tuple[Codes, Codes]:
        """The ranges of a condition over all rows."""
        if condition not in self._ranges:
            low = _joined([piece.codes.low[condition] for piece in self.pieces])
            high = _joined([piece.codes.high[condition] for piece in self.pieces])
            self._ranges[condition] = low, high
        return self._ranges[condition]

    @cached_property
    def _ranges(self) -> dict[tuple[str, int], tuple[Codes, Codes]]:
        return {}

    def take(self, columns: Sequence[int], rows: Index) -> pa.RecordBatch:
        """Some columns of some rows, in the order asked for."""
        parts = [piece.rows.select(list(columns)) for piece in self.pieces]
        if len(parts) == 1:
            return parts[0].take(rows)
        if self.size <= 4 * rows.size:
            return concat(parts).take(rows)
        # Few of many rows: gathering them piece by piece spares copying the pieces together.
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(parts) + 1))
        gathered = [
            parts[at].take(rows[order[bounds[at] : bounds[at + 1]]] - self.starts[at])
            for at in range(len(parts))
            if bounds[at] < bounds[at + 1]
        ]
        back = np.empty(rows.size, dtype=np.int64)
        back[order] = np.arange(rows.size)
        return concat(gathered).take(back) if gathered else parts[0].slice(0, 0)


def moved(times: Index, by: int) -> Index:
    """Times moved by a window's end; those that would leave 64 bits stop at the last number."""
    with np.errstate(over="ignore"):
        there = times + np.int64(by)
    if by > 0:
        there[there < times] = np.iinfo(np.int64).max
    elif by < 0:
        there[there > times] = np.iinfo(np.int64).min
    return there


def _joined(arrays: list[Index]) -> Index:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *arrays])

"""Rows of an input, indexed: what a search looks up.

An :class:`IndexedSegment` is a segment of one input, an :class:`IndexedInput` all segments of an input.  A segment is
sorted on demand, once for each access path, and stays sorted as long as a worker remembers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, Mask, float_values
from dovetail.columns.segments import concat
from dovetail.families.window.encode import ConditionKey, Encoded, Index, buckets, completable_rows, encode_rows
from dovetail.families.window.spec import WindowJoinSpec

PartialMatches: TypeAlias = "dict[int, Index]"
"""Matches of some of the inputs: for each of these the row numbers, one a match."""


class AccessPath(NamedTuple):
    """How an input is looked up: by the code of all equality classes, by one equality or band, or by time alone."""

    kind: Literal["group", "equality", "bucket", "time"]
    number: int = 0


BY_GROUP = AccessPath("group")
BY_TIME = AccessPath("time")


@dataclass(frozen=True)
class TimeIndex:
    """A segment in the order of (slot, time); a slot is what an access path looks for before the time."""

    order: Index
    slots: Codes
    times: Index
    reach: float = 0.0
    """The widest range in the segment, where slots are buckets of lower ends."""
    held: dict[tuple[ConditionKey, ...], tuple[Codes, Codes]] = field(default_factory=dict)

    def ranges(self, segment: IndexedSegment, conditions: tuple[ConditionKey, ...]) -> tuple[Codes, Codes]:
        """The ranges of some conditions in this order, each of shape (conditions, rows)."""
        if conditions not in self.held:
            low = np.empty((len(conditions), segment.size), dtype=np.int64)
            high = np.empty_like(low)
            for c, condition in enumerate(conditions):
                low[c], high[c] = segment.codes.low[condition][self.order], segment.codes.high[condition][self.order]
            self.held[conditions] = low, high
        return self.held[conditions]


@dataclass
class IndexedSegment:
    """Rows of one input and, once asked for, their codes and indexes."""

    spec: WindowJoinSpec
    side: int
    rows: pa.RecordBatch
    indexes: dict[AccessPath, TimeIndex] = field(default_factory=dict)
    has_keys: dict[int, Mask | None] = field(default_factory=dict)

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

    def completable(self, extra: int) -> Mask | None:
        """Which rows have the keys that tie them to an extra input; None for all."""
        if extra not in self.has_keys:
            self.has_keys[extra] = completable_rows(self.spec, self.side, extra, self.rows)
        return self.has_keys[extra]

    def index(self, path: AccessPath) -> TimeIndex:
        """The rows in the order that an access path needs."""
        if path not in self.indexes:
            slots, reach = self._slots(path)
            order = np.lexsort((self.codes.times, slots))
            self.indexes[path] = TimeIndex(order, slots[order], self.codes.times[order], reach)
        return self.indexes[path]

    def _slots(self, path: AccessPath) -> tuple[Codes, float]:
        codes = self.codes
        if path.kind == "group":
            return codes.group, 0.0
        if path.kind == "equality":
            return codes.low[ConditionKey("equality", path.number)], 0.0
        if path.kind == "bucket":
            comparison, condition = self.spec.comparisons[path.number], ConditionKey("comparison", path.number)
            low = float_values(codes.low[condition], comparison.axis.kind)
            if self.side == comparison.point_side:
                return buckets(low, comparison.bucket_width), 0.0
            high = float_values(codes.high[condition], comparison.axis.kind)
            with np.errstate(invalid="ignore"):
                widths = high - low
            widest = float(np.max(widths[np.isfinite(widths)], initial=0.0))
            return buckets(low, comparison.bucket_width), float(np.nextafter(widest, np.inf))
        return np.zeros(len(codes), dtype=np.int64), 0.0


@dataclass
class IndexedInput:
    """The segments of one input, their rows numbered consecutively."""

    segments: list[IndexedSegment]

    @cached_property
    def starts(self) -> Index:
        """The number of the first row of each segment, and the number of rows."""
        return np.concatenate([[0], np.cumsum([segment.size for segment in self.segments])]).astype(np.int64)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return int(self.starts[-1])

    @cached_property
    def times(self) -> Index:
        """The times of all rows."""
        return _joined([segment.codes.times for segment in self.segments])

    @cached_property
    def group(self) -> Codes:
        """The codes of the equality classes."""
        return _joined([segment.codes.group for segment in self.segments])

    def order(self, path: AccessPath) -> Index:
        """All rows, segment by segment in the order that an access path needs."""
        starts = self.starts[:-1].tolist()
        return _joined([segment.index(path).order + at for segment, at in zip(self.segments, starts, strict=True)])

    def ranges(self, condition: ConditionKey) -> tuple[Codes, Codes]:
        """The ranges of a condition over all rows."""
        if condition not in self._ranges:
            low = _joined([segment.codes.low[condition] for segment in self.segments])
            high = _joined([segment.codes.high[condition] for segment in self.segments])
            self._ranges[condition] = low, high
        return self._ranges[condition]

    @cached_property
    def _ranges(self) -> dict[ConditionKey, tuple[Codes, Codes]]:
        return {}

    def completable(self, extra: int) -> Mask | None:
        """Which rows have the keys that tie them to an extra input; None for all."""
        if extra not in self._completable:
            parts = [segment.completable(extra) for segment in self.segments]
            known = any(part is not None for part in parts)
            whole = [
                np.ones(segment.size, dtype=np.bool_) if part is None else part
                for part, segment in zip(parts, self.segments, strict=True)
            ]
            self._completable[extra] = np.concatenate(whole) if known else None
        return self._completable[extra]

    @cached_property
    def _completable(self) -> dict[int, Mask | None]:
        return {}

    def take(self, columns: Sequence[int], rows: Index) -> pa.RecordBatch:
        """Some columns of some rows, in the order asked for."""
        parts = [segment.rows.select(list(columns)) for segment in self.segments]
        if len(parts) == 1:
            return parts[0].take(rows)
        if self.size <= 4 * rows.size:
            return concat(parts).take(rows)
        # Few of many rows: gathering them segment by segment avoids copying all segments into one.
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


def _joined(arrays: list[Index]) -> Index:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *arrays])

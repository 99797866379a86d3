"""How far each stream has progressed: below which value of the ordering axis no more rows will arrive.

One of these promises says so: Spark's watermark; a count (once so many consecutive rows lie above a value, nothing
below it is still to come); the largest value so far less a constant; epsilon-grid order, in which cells of the axis
come one after the other; or punctuation in the rows themselves.  A row that breaks the promise of its own stream is
late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, Mask, order_codes, valid_mask
from dovetail.families.bestmatch.compiled import pair_costs
from dovetail.families.bestmatch.router import axis_codes
from dovetail.families.bestmatch.spec import Axis, BestSpec

Column: TypeAlias = "pa.Array[Any]"
NAN = 0x7FF8_0000_0000_0000


class Progress:
    """The bounds of both streams, as codes of the ordering axis; None as long as nothing is known."""

    def __init__(self, spec: BestSpec) -> None:
        assert spec.order is not None
        self._spec = spec
        self.axis: Axis = spec.compiled[spec.order]
        self.before: list[int | None] = [None, None]
        """The bounds when the state was stored."""
        self.now: list[int | None] = [None, None]
        self._tails: list[Codes] = [np.empty(0, dtype=np.int64) for _ in range(2)]

    def restore(self, head: Mapping[str, list[int]], watermark: int | None) -> None:
        """Take up what was stored, and Spark's watermark."""
        for side in (0, 1):
            stored = head.get(f"bound{side}", [])
            self.before[side] = self.now[side] = stored[0] if stored else None
            self._tails[side] = np.array(head.get(f"tail{side}", []), dtype=np.int64)
        if self._spec.disorder == "watermark" and watermark is not None:
            for side in (0, 1):
                bound = self.now[side]
                self.now[side] = watermark if bound is None else max(bound, watermark)

    def head(self) -> dict[str, list[int]]:
        """What to store."""
        stored = {f"tail{side}": self._tails[side].tolist() for side in (0, 1)}
        for side in (0, 1):
            bound = self.now[side]
            if bound is not None:
                stored[f"bound{side}"] = [bound]
        return stored

    def column(self, side: int, rows: pa.RecordBatch) -> Column:
        """The ordering axis of a batch."""
        assert self._spec.order is not None
        return rows.column(self._spec.payload[side] + len(self._spec.by) + self._spec.order)

    def ordered(self, side: int, rows: pa.RecordBatch) -> Mask:
        """Rows that have a value on the ordering axis: not NULL, and not NaN, which is near to nothing."""
        column = self.column(side, rows)
        ordered = valid_mask(column)
        return ordered & (axis_codes(self.axis, column) != NAN) if self.axis.is_float else ordered

    def arrived(self, side: int, rows: pa.RecordBatch) -> Mask:
        """Advance the bound of a stream by new rows; returns which of them are late."""
        ordered = self.ordered(side, rows)
        codes = axis_codes(self.axis, self.column(side, rows))
        late = np.zeros(rows.num_rows, dtype=np.bool_)
        lowest = np.iinfo(np.int64).min
        bound = self.now[side]
        before = np.full(rows.num_rows, lowest if bound is None else bound)
        if self._spec.disorder == "ahead":
            positions = np.flatnonzero(ordered)
            if positions.size == 0:
                return late
            tail, ahead = self._tails[side], self._spec.ahead
            sequence = np.concatenate([tail, codes[positions]])
            self._tails[side] = sequence[max(0, sequence.size - ahead + 1) :] if ahead > 1 else sequence[:0]
            reached = np.full(sequence.size, lowest)
            if sequence.size >= ahead:
                minima = np.lib.stride_tricks.sliding_window_view(sequence, ahead).min(axis=1)
                reached[ahead - 1 :] = np.maximum.accumulate(minima)
            seen = np.concatenate([[lowest], reached])[tail.size : -1]
            before[positions] = np.maximum(before[positions], seen)
            self._raise(side, int(reached[-1]))
        elif self._spec.disorder in ("value", "grid"):
            positions = np.flatnonzero(ordered)
            if positions.size == 0:
                return late
            # The tail is the largest value so far.
            largest = np.maximum.accumulate(np.concatenate([self._tails[side], codes[positions]]))
            reached = self._below(largest)
            seen = reached[:-1] if self._tails[side].size else np.concatenate([[lowest], reached[:-1]])
            self._tails[side] = largest[-1:]
            before[positions] = np.maximum(before[positions], seen)
            self._raise(side, int(reached[-1]))
        elif self._spec.disorder == "marks":
            punctuation = rows.column(self._spec.payload[side] + self._spec.keys)
            promised = np.where(valid_mask(punctuation), axis_codes(self.axis, punctuation), lowest)
            reached = np.maximum.accumulate(promised)
            before = np.maximum(before, np.concatenate([[lowest], reached[:-1]]))
            if rows.num_rows:
                self._raise(side, int(reached[-1]))
        late[ordered] = codes[ordered] < before[ordered]
        return late

    def _below(self, largest: Codes) -> Codes:
        """What is still to come lies at or above these values, after the largest ones so far."""
        grid = self._spec.disorder == "grid"
        width = self.axis.within if grid else self._spec.lateness
        assert width is not None
        if width == 0:
            return largest
        if not self.axis.is_float:
            return _int_below(largest, int(width), grid=grid)
        values = raw(self.axis, largest).view(np.float64)
        if not grid:
            return order_codes(pa.array(values - width), "float64")
        edges = np.floor(values / width) * width
        # The source divides and rounds down, and a value a little below the edge may fall into the cell.
        finite = np.where(np.isfinite(edges), edges, 0.0)
        return order_codes(
            pa.array(np.where(np.isfinite(edges), edges - 4 * np.spacing(np.abs(finite)), edges)), "float64"
        )

    def _raise(self, side: int, bound: int) -> None:
        if bound != np.iinfo(np.int64).min:
            known = self.now[side]
            self.now[side] = bound if known is None else max(known, bound)

    def passed(self, side: int, rows: pa.RecordBatch, bound: int | None) -> Mask:
        """Rows that no row at or above a bound can match; those without a value on the axis match nothing anyway."""
        ordered = self.ordered(side, rows)
        if bound is None:
            return ~ordered
        return ~ordered | self._beyond(axis_codes(self.axis, self.column(side, rows)), bound)

    def _beyond(self, codes: Codes, bound: int) -> Mask:
        """Values that lie below a bound by more than the maximum distance."""
        kinds = np.array([self.axis.number])
        values = raw(self.axis, codes).reshape(-1, 1)
        limit = raw(self.axis, np.array([bound])).reshape(-1, 1)
        none = np.zeros(codes.size, dtype=np.int64)
        far = pair_costs(kinds, values, limit, np.arange(codes.size), none)[:, 0] > self.axis.limit
        beyond: Mask = far & (codes < bound)
        return beyond

    def lowest(self, side: int, rows: pa.RecordBatch, chosen: Mask) -> int | None:
        """The smallest value of the chosen rows on the ordering axis."""
        codes = axis_codes(self.axis, self.column(side, rows))[chosen & self.ordered(side, rows)]
        return int(codes.min()) if codes.size else None


def _int_below(largest: Codes, width: int, *, grid: bool) -> Codes:
    """The lower edges of the cells that values lie in, or the values less a width; at the lowest of all, that one."""
    lowest, width = np.iinfo(np.int64).min, min(width, np.iinfo(np.int64).max)
    if grid:
        first = lowest // width
        cells = largest // width
        return np.where((cells == first) & (lowest % width != 0), lowest, cells * width)
    return np.where(largest < lowest + width, lowest, largest - width)


def raw(axis: Axis, codes: Codes) -> npt.NDArray[np.int64]:
    """Codes as the values that the kernels read: floats as their bits."""
    if not axis.is_float:
        return codes
    return np.where(codes < 0, codes ^ np.iinfo(np.int64).max, codes)

"""The answer over the last T, computed again whenever rows arrive (section 3.5.1).

Time is no criterion here; it decides which rows take part.  At every instant at which a row of either input arrives,
the join is computed over the rows of the last T, and the result carries that instant.  Updating the last answer would
not be enough: a pair that was beaten must come back when the pair that beat it becomes too old.

A row that can match nothing arrives at an instant, too, and so does a row whose keys belong to another cell.  Of those
a cell gets the times alone, and holds them until they are answered.  Where the join is computed at multiples of a
length of time, no such times are needed: it has an answer at all those at which some row is young enough.

An instant is answered once the watermark has passed it.  So the answers depend on the times of rows, and not on how
they were divided into micro-batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, Mask, order_codes, valid_mask
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.kernel import best
from dovetail.families.bestmatch.outputs import METRICS, has_row_columns, output_names, payload_columns
from dovetail.families.bestmatch.router import COPY
from dovetail.families.bestmatch.spec import BestSpec, Counters
from dovetail.families.bestmatch.windows import Window
from dovetail.family import Changes

_HEAD = "head"
_START = np.iinfo(np.int64).min


class RecentKernel:
    """The rows of the last T of both inputs, in one cell."""

    def __init__(self, spec: BestSpec) -> None:
        assert spec.max_age is not None
        self.spec = spec
        self.counters = dict.fromkeys(METRICS, 0)
        self._windows = [Window(side, numbered=False) for side in (0, 1)]
        self._answered = _START
        """All instants before this one have been answered."""
        self._bound = _START
        self._over = False
        self._counters = Counters()

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state of the last call."""
        if _HEAD in state:
            self._answered = int(state[_HEAD].column(0)[0].as_py())
        self._bound = max(self._answered, _START if watermark is None else watermark)
        for window in self._windows:
            window.restore(state, 0)

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows, without those that have no time and those that are late: before the watermark.

        Of a row that travels as a copy the time alone counts.
        """
        own, side = side < COPY, side % COPY
        times = rows.column(self._time_at(side))
        late = valid_mask(times) & (order_codes(times, "int") < self._bound)
        if own:
            self.counters["rows"] += rows.num_rows
            self.counters["late"] += int(late.sum())
        kept = valid_mask(times) & ~late
        if kept.any():
            self._windows[side].add(rows.filter(pa.array(kept)), own=own)

    def end(self) -> None:
        """Promise that no more rows come."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """The answers at all instants that the watermark has passed."""
        started = time.perf_counter_ns()
        assert self.spec.max_age is not None
        times, own = [self._times(side) for side in (0, 1)], [self._own(side) for side in (0, 1)]
        for instant in self._instants(times, None if self._over else self._bound):
            recent = [
                np.flatnonzero(mine & (moments >= instant - self.spec.max_age) & (moments <= instant))
                for moments, mine in zip(times, own, strict=True)
            ]
            rows = self._answer(recent, instant)
            if rows is not None and rows.num_rows:
                self.counters["results"] += rows.num_rows
                yield rows
        if self._bound > _START:
            self._answered = self._bound
        self._evict(times, own)
        self.counters["kernel_us"] += (time.perf_counter_ns() - started) // 1000
        for name in ("comparisons", "candidates", "judged"):
            self.counters[name] += getattr(self._counters, name)
        for window in self._windows:
            self.counters["held_rows"] += window.rows.num_rows if window.rows is not None else 0
            self.counters["held_bytes"] += window.rows.nbytes if window.rows is not None else 0

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        changes = Changes()
        for window in self._windows:
            window.changes(changes)
        changes.stored[_HEAD] = pa.RecordBatch.from_pydict({"answered": [self._answered]})
        return changes

    def wake_at(self) -> int | None:
        """Just after the first instant that waits for its answer."""
        waiting = next(self._instants([self._times(side) for side in (0, 1)], None, self._bound), None)
        return None if waiting is None else waiting + 1

    # ------------------------------------------------------------------------------------------------------------------

    def _time_at(self, side: int) -> int:
        return self.spec.payload[side] + self.spec.keys

    def _times(self, side: int) -> Codes:
        rows = self._windows[side].rows
        return np.empty(0, dtype=np.int64) if rows is None else order_codes(rows.column(self._time_at(side)), "int")

    def _own(self, side: int) -> Mask:
        window = self._windows[side]
        return np.empty(0, dtype=np.bool_) if window.rows is None else window.own()

    def _instants(self, times: list[Codes], until: int | None, since: int | None = None) -> Iterator[int]:
        """The instants that are not answered yet, or those from `since` on, in order and before `until`."""
        since = self._answered if since is None else since
        moments = np.unique(np.concatenate(times))
        every, age = self.spec.every, self.spec.max_age
        if every is None:
            moments = moments[moments >= since]
            yield from (moments if until is None else moments[moments < until]).tolist()
            return
        assert age is not None
        # At every multiple at which some row is young enough, from the first after its arrival on.  One by one: a long
        # age has more multiples than an array should hold.
        after = since
        for moment in moments.tolist():
            first, last = -(-max(moment, after) // every) * every, moment + age
            for instant in range(first, last + 1, every):
                if until is not None and instant >= until:
                    return
                yield instant
            after = max(after, last + 1)

    def _answer(self, recent: list[Index], instant: int) -> pa.RecordBatch | None:
        left, right = (window.rows for window in self._windows)
        if left is None or right is None:
            parts = [np.empty(0, dtype=np.int64)] * 2
        else:
            i, j = best(self.spec.without_stream(), left.take(recent[0]), right.take(recent[1]), self._counters)
            parts = [recent[0][i], recent[1][j]]
        if self.spec.keep:
            for side in self.spec.answers:
                unmatched = np.setdiff1d(recent[side], parts[side])
                parts = [
                    np.concatenate([part, unmatched if at == side else np.full(unmatched.size, -1)])
                    for at, part in enumerate(parts)
                ]
        return self._rows(parts, instant) if parts[0].size else None

    def _rows(self, parts: list[Index], instant: int) -> pa.RecordBatch:
        columns: list[pa.Array[Any]] = []
        for side, window in enumerate(self._windows):
            numbers: pa.Array[Any] = pa.array(parts[side], mask=parts[side] < 0)
            columns += payload_columns(self.spec, side, window.rows, numbers)
        if self.spec.keep:
            columns += has_row_columns(parts)
        columns.append(pa.array(np.full(parts[0].size, instant), pa.timestamp("us", "UTC")))
        return pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))

    def _evict(self, times: list[Codes], own: list[Mask]) -> None:
        assert self.spec.max_age is not None
        for window, moments, mine in zip(self._windows, times, own, strict=True):
            if window.rows is not None:
                needed: Mask = np.zeros(moments.size, dtype=np.bool_)
                if not self._over and self._bound == _START:
                    needed = ~needed
                elif not self._over:
                    # The next instant is not before the watermark, even where instants are multiples of a length.
                    needed = moments >= np.where(mine, self._bound - self.spec.max_age, self._bound)
                self.counters["evicted"] += window.evict(needed)

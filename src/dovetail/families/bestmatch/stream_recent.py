"""The answer over the last T, evaluated anew whenever rows arrive (section 3.5.1).

Time is no criterion here; it decides which rows take part.  At every instant at which a row arrives, in either input,
the join is computed over the rows of the last T and leaves with that instant beside it.  Updating the last answer
would not do: a pair that was beaten by one that has grown too old must come back.

An instant counts once the watermark has passed it.  So the answers depend on the times of rows, and not on how they
were cut into micro-batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, Mask, order_codes, valid_mask
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.kernel import Work, best
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.stream import METRICS, output_names
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
        """Up to here instants have had their answers."""
        self._bound = _START
        self._over = False
        self._work = Work()

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state of the last call."""
        if _HEAD in state:
            self._answered = int(state[_HEAD].column(0)[0].as_py())
        self._bound = max(self._answered, _START if watermark is None else watermark)
        for window in self._windows:
            window.restore(state, 0)

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; a row without a time has no age, and an earlier one than the watermark is late."""
        self.counters["rows"] += rows.num_rows
        times = rows.column(self._time_at(side))
        late = valid_mask(times) & (order_codes(times, "int") < self._bound)
        self.counters["late"] += int(late.sum())
        kept = valid_mask(times) & ~late
        if kept.any():
            self._windows[side].add(rows.filter(pa.array(kept)), own=True)

    def end(self) -> None:
        """Promise that no more rows come."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """The answers at all instants that the watermark has passed."""
        began = time.perf_counter_ns()
        assert self.spec.max_age is not None
        times = [self._times(side) for side in (0, 1)]
        for instant in self._instants(times).tolist():
            recent = [
                np.flatnonzero((moments >= instant - self.spec.max_age) & (moments <= instant)) for moments in times
            ]
            rows = self._answer(recent, instant)
            if rows is not None and rows.num_rows:
                self.counters["results"] += rows.num_rows
                yield rows
        if self._bound > _START:
            self._answered = self._bound
        self._evict(times)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        for name in ("comparisons", "candidates", "judged"):
            self.counters[name] += getattr(self._work, name)
        for window in self._windows:
            self.counters["held_rows"] += window.rows.num_rows if window.rows is not None else 0
            self.counters["held_bytes"] += window.rows.nbytes if window.rows is not None else 0

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        found = Changes()
        for window in self._windows:
            window.changes(found)
        found.stored[_HEAD] = pa.RecordBatch.from_pydict({"answered": [self._answered]})
        return found

    def wake_at(self) -> int | None:
        """Behind the first instant that waits for its answer."""
        waiting = self._all_instants([self._times(side) for side in (0, 1)])
        waiting = waiting[waiting >= self._bound]
        return int(waiting[0]) + 1 if waiting.size else None

    # ------------------------------------------------------------------------------------------------------------------

    def _time_at(self, side: int) -> int:
        return self.spec.payload[side] + self.spec.keys

    def _times(self, side: int) -> Codes:
        rows = self._windows[side].rows
        return np.empty(0, dtype=np.int64) if rows is None else order_codes(rows.column(self._time_at(side)), "int")

    def _all_instants(self, times: list[Codes]) -> Index:
        every = np.unique(np.concatenate(times))
        if self.spec.every is not None:
            every = np.unique(-(-every // self.spec.every) * self.spec.every)
        return every

    def _instants(self, times: list[Codes]) -> Index:
        instants = self._all_instants(times)
        instants = instants[instants >= self._answered]
        return instants if self._over else instants[instants < self._bound]

    def _answer(self, recent: list[Index], instant: int) -> pa.RecordBatch | None:
        left, right = (window.rows for window in self._windows)
        if left is None or right is None:
            parts = [np.empty(0, dtype=np.int64)] * 2
        else:
            i, j = best(self.spec.without_stream(), left.take(recent[0]), right.take(recent[1]), self._work)
            parts = [recent[0][i], recent[1][j]]
        if self.spec.keep:
            for side in self.spec.answers:
                alone = np.setdiff1d(recent[side], parts[side])
                parts = [
                    np.concatenate([part, alone if at == side else np.full(alone.size, -1)])
                    for at, part in enumerate(parts)
                ]
        return self._rows(parts, instant) if parts[0].size else None

    def _rows(self, parts: list[Index], instant: int) -> pa.RecordBatch:
        columns: list[pa.Array[Any]] = []
        for side, window in enumerate(self._windows):
            none: pa.Array[Any] = pa.array(parts[side], mask=parts[side] < 0)
            if window.rows is None:
                columns += [pa.nulls(len(none), kind) for kind in self.spec.types[side]]  # type: ignore[call-overload]
            else:
                columns += window.rows.select(range(self.spec.payload[side])).take(none).columns
        if self.spec.keep:
            columns += [pa.array(part >= 0) for part in parts]
        columns.append(pa.array(np.full(parts[0].size, instant), pa.timestamp("us", "UTC")))
        return pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))

    def _evict(self, times: list[Codes]) -> None:
        assert self.spec.max_age is not None
        for window, moments in zip(self._windows, times, strict=True):
            if window.rows is not None:
                needed: Mask = np.zeros(moments.size, dtype=np.bool_)
                if not self._over:
                    # The next instant is the watermark at the earliest, even where instants are rounded up.
                    needed = moments >= self._bound - self.spec.max_age if self._bound > _START else ~needed
                self.counters["evicted"] += window.evict(needed)

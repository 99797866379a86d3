"""Aggregates over the matches of two streams within a window of time: one cell, whose state is named segments.

A row asks about times from its own + `low` up to its own + `high`.  Once the watermark has passed the last of them, no
row that may still come could match it: it is answered from the rows that are there, by the same kernel as in batch, and
leaves.  A row of the matched side stays as long as a row that waits, or one that may still come, could ask for it.  So
the state holds the window and the lateness of the streams, and no pair.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST, Codes, Mask, order_codes, valid_mask
from dovetail.columns.layout import COUNTERS
from dovetail.columns.segments import concat, in_utc
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.finish import matches
from dovetail.families.aggregate.join_stages import ResultStage
from dovetail.families.aggregate.kernel import State, states
from dovetail.families.aggregate.overlaps import whole_states
from dovetail.families.aggregate.router import modulo
from dovetail.families.aggregate.stages import ANSWERING, ASKING, empty_state
from dovetail.family import Changes

STREAM_METRICS = ("rows", "late", "evicted", "held_rows", "held_bytes", "matches", "results", "kernel_us")
"""What a call counts, in the order in which it leaves the operator."""

CELLS = 32
"""Cells of streams with keys.  Stored state depends on the number, so it must not follow the session."""

MOST_SEGMENTS = 8
"""Segments of a side in the state; one more, and all of them become one."""

_LETTERS = "QT"
"""Segments of the matched and of the asking side."""


@dataclass(frozen=True)
class CellOfHash:
    """The cell of each row, by the hash of its keys in one of its columns."""

    column: int
    cells: int = CELLS

    def __call__(self, rows: pa.RecordBatch) -> Index:
        """Called for each block of rows."""
        return modulo(order_codes(rows.column(self.column), "int"), self.cells)


class AggregateKernel:
    """The rows of one cell that still matter; their last column is their time."""

    def __init__(self, stage: ResultStage, low: int, high: int) -> None:
        self.stage = stage
        self.spec = stage.spec
        self.counters = dict.fromkeys(STREAM_METRICS, 0)
        self._low, self._high = low, high
        self._segments: tuple[dict[str, pa.RecordBatch], dict[str, pa.RecordBatch]] = ({}, {})
        self._fresh: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        self._timeless: list[pa.RecordBatch] = []
        self._serial = 0
        self._watermark: int | None = None
        self._over = False
        self._wake: int | None = None
        self._changes = Changes()

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Restore the state of the last call."""
        self._watermark = watermark
        for name in sorted(state, key=_serial_of):
            self._segments[_LETTERS.index(name[0])][name] = state[name]
            self._serial = _serial_of(name) + 1

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; those before the watermark are late, and dropped."""
        self.counters["rows"] += rows.num_rows
        rows = in_utc(rows.select([*range(self._width(side)), rows.num_columns - 1]))
        known = valid_mask(rows.column(rows.num_columns - 1))
        if not known.all():
            # Without a time a row matches nothing, whatever comes.
            if side == ASKING:
                self._timeless.append(rows.filter(pa.array(~known)))
            rows = rows.filter(pa.array(known))
        if self._watermark is not None:
            late = _times(rows) < self._watermark
            if late.any():
                self.counters["late"] += int(np.count_nonzero(late))
                rows = rows.filter(pa.array(~late))
        if rows.num_rows:
            self._fresh[side].append(rows)

    def end(self) -> None:
        """Promise that no more rows come: every answer is final."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """The rows whose windows have closed, each with its aggregates."""
        began = time.perf_counter_ns()
        for rows in self._timeless:
            yield from self._answered(rows, empty_state(self.spec, rows.num_rows))
        parts = tuple([*self._segments[side].values(), *self._fresh[side]] for side in (ANSWERING, ASKING))
        first = HIGHEST if self._watermark is None else self._watermark
        if parts[ASKING]:
            asking = concat(parts[ASKING])
            times = _times(asking)
            final = self._passed(_moved(times, self._high))
            chosen = np.flatnonzero(final)
            if chosen.size:
                rows = asking.take(chosen)
                yield from self._answered(rows, self._state(parts[ANSWERING], rows))
            if not final.all():
                waiting = times[~final]
                first = min(first, int(waiting.min()))
                self._wake = min(int(_moved(waiting, self._high).min()), HIGHEST - 1) + 1
            self._keep(ASKING, parts[ASKING], ~final)
        if parts[ANSWERING]:
            times = np.concatenate([_times(rows) for rows in parts[ANSWERING]])
            if self._over:
                needed = np.zeros(times.size, dtype=np.bool_)
            elif self._watermark is None:
                needed = np.ones(times.size, dtype=np.bool_)
            else:
                needed = times >= int(_moved(np.array([first]), self._low)[0])
            self.counters["evicted"] += self._keep(ANSWERING, parts[ANSWERING], needed)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        for side in self._segments:
            self.counters["held_rows"] += sum(rows.num_rows for rows in side.values())
            self.counters["held_bytes"] += sum(rows.nbytes for rows in side.values())

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        return self._changes

    def wake_at(self) -> int | None:
        """The first watermark that closes the window of a waiting row."""
        return self._wake

    # ----------------------------------------------------------------------------------------------------------

    def _width(self, side: int) -> int:
        """How many columns of a side are stored before its time; behind them came a hash, which only routes."""
        if side == ANSWERING:
            return self.stage.key_counts[ANSWERING] + len(self.spec.arguments)
        return len(self.spec.payload) + self.stage.travelling

    def _state(self, parts: list[pa.RecordBatch], asking: pa.RecordBatch) -> State:
        if not parts:
            return empty_state(self.spec, asking.num_rows)
        answering = concat(parts)
        answer = states if self.spec.overlap is None else whole_states
        return answer(self.spec, answering.select(range(answering.num_columns - 1)), self.stage.asking_keys(asking))

    def _answered(self, rows: pa.RecordBatch, state: State) -> Iterator[pa.RecordBatch]:
        self.counters["matches"] += int(matches(state).sum())
        out, _ = self.stage.rows_out(list(rows.columns[: len(self.spec.payload)]), state)
        self.counters["results"] += out.num_rows
        if out.num_rows:
            yield out.drop_columns([COUNTERS])

    def _passed(self, horizon: Codes) -> Mask:
        if self._over:
            return np.ones(horizon.size, dtype=np.bool_)
        return horizon < self._watermark if self._watermark is not None else np.zeros(horizon.size, dtype=np.bool_)

    def _keep(self, side: int, parts: list[pa.RecordBatch], alive: Mask) -> int:
        """Store what is new, forget what is dead; returns how many rows have left the state.

        Dead rows of the matched side in a segment that stays do no harm, since nobody asks about their times.  A row
        that has been answered must not come again.
        """
        held, names = self._segments[side], [*self._segments[side], *[None] * len(self._fresh[side])]
        added: list[pa.RecordBatch] = []
        gone, end = 0, 0
        for name, rows in zip(names, parts, strict=True):
            mask = alive[end : end + rows.num_rows]
            end += rows.num_rows
            count = int(np.count_nonzero(mask))
            if name is None:
                kept = rows if count == rows.num_rows else rows.filter(pa.array(mask))
                added += [kept] if count else []
            elif count == 0:
                del held[name]
                self._changes.dropped.add(name)
            elif count < rows.num_rows and (side == ASKING or 2 * count < rows.num_rows):
                held[name] = self._changes.stored[name] = rows.filter(pa.array(mask))
            else:
                count = rows.num_rows
            gone += rows.num_rows - count
        if added and len(held) >= MOST_SEGMENTS:
            added = [*held.values(), *added]
            for name in held:
                self._changes.stored.pop(name, None)
                self._changes.dropped.add(name)
            held.clear()
        if added:
            name = f"{_LETTERS[side]}/{self._serial}"
            self._serial += 1
            held[name] = self._changes.stored[name] = concat(added)
        return gone


def _times(rows: pa.RecordBatch) -> Codes:
    return order_codes(rows.column(rows.num_columns - 1), "int")


def _moved(times: Codes, by: int) -> Codes:
    """Times moved by a length, as far as there are any."""
    if by >= 0:
        return np.where(times > HIGHEST - by, HIGHEST, times + by)
    return np.where(times < LOWEST - by, LOWEST, times + by)


def _serial_of(name: str) -> int:
    """Segments are restored in the order in which they were made."""
    return int(name.partition("/")[2])

"""What a cell of two streams keeps between two calls: named segments of either side, and rows that wait for a window.

:class:`HeldSegments` has the bookkeeping of every cell whose state is rows of two sides.  :class:`WaitingRows` is a
cell whose rows ask about a window of time around their own, and are answered once the window has closed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, Codes, Mask, moved, order_codes, valid_mask
from dovetail.columns.layout import SINCE
from dovetail.columns.segments import concat, in_utc

MOST_SEGMENTS = 8
"""Segments of a side in the state; one more, and all of them become one."""

STREAM_CELLS = 32
"""Cells of streams with keys.  Stored state depends on the number, so it must not follow the session."""

WAITING_METRICS = ("rows", "late", "evicted", "held_rows", "held_bytes", "matches", "results", "kernel_us")
"""What a call of :class:`WaitingRows` counts, in the order in which it leaves the operator."""


@dataclass(frozen=True)
class CellOfHash:
    """The cell of each row, by the hash of its keys in one of its columns."""

    column: int
    cells: int = STREAM_CELLS

    def __call__(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Called for each block of rows."""
        hashes = order_codes(rows.column(self.column), "int").view(np.uint64)
        return (hashes % np.uint64(self.cells)).astype(np.int64)


def since_segment(since: int) -> pa.RecordBatch:
    """What is stored under :data:`~dovetail.columns.layout.SINCE`.

    Examples
    --------
    >>> since_of({SINCE: since_segment(12)}), since_of({})
    (12, None)
    """
    return pa.RecordBatch.from_pydict({SINCE: pa.array([since], pa.int64())})


def since_of(state: Mapping[str, pa.RecordBatch]) -> int | None:
    """The time from which on rows are answered; None for all of them."""
    return order_codes(state[SINCE].column(0), "int").tolist()[0] if SINCE in state else None


def on_time(
    rows: pa.RecordBatch, times: pa.Array[Any], codes: Codes, watermark: int | None
) -> tuple[pa.RecordBatch, int]:
    """The rows that are not before the watermark, and how many are; a row without a time is never late.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"t": [3, 9, None]})
    >>> kept, late = on_time(rows, rows.column("t"), order_codes(rows.column("t"), "int"), 5)
    >>> kept.column("t").to_pylist(), late
    ([9, None], 1)
    """
    if watermark is None:
        return rows, 0
    late = (codes < watermark) & valid_mask(times)
    count = int(np.count_nonzero(late))
    return (rows.filter(pa.array(~late)) if count else rows), count


class HeldSegments:
    """The segments of two sides, each under the letter of its side and a serial number.

    Examples
    --------
    >>> held = HeldSegments("LR")
    >>> held.restore({})
    >>> held.add(0, pa.RecordBatch.from_pydict({"x": [1, 2, 3]}))
    >>> held.keep(0, held.parts(0), np.array([True, False, True]), exact=True)
    1
    >>> {name: rows.column(0).to_pylist() for name, rows in held.stored.items()}, held.rows
    ({'L/0': [1, 3]}, 2)
    """

    def __init__(self, letters: str) -> None:
        self.stored: dict[str, pa.RecordBatch] = {}
        self.dropped: set[str] = set()
        """What a call changed: segments to store under their names, and names to forget."""
        self._letters = letters
        self._segments: tuple[dict[str, pa.RecordBatch], dict[str, pa.RecordBatch]] = ({}, {})
        self._fresh: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        self._serial = 0
        self.since: int | None = None
        """The time from which on rows are answered, where that is not all of them."""

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(rows.num_rows for side in self._segments for rows in side.values())

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum(rows.nbytes for side in self._segments for rows in side.values())

    def restore(self, state: Mapping[str, pa.RecordBatch]) -> None:
        """Take over what the last call stored, in the order in which it was made."""
        names = list(state)
        if SINCE in names:
            self.since = since_of(state)
            names.remove(SINCE)
        for name in sorted(names, key=_serial_of):
            self._segments[self._letters.index(name[0])][name] = state[name]
            self._serial = _serial_of(name) + 1

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        """Rows that have come."""
        self._fresh[side].append(rows)

    def answerable(
        self, rows: pa.RecordBatch, times: pa.Array[Any], codes: Codes, watermark: int | None
    ) -> tuple[pa.RecordBatch, int]:
        """The rows that ask in time and from when on they are answered, and how many do not."""
        first = watermark
        if self.since is not None:
            first = self.since if watermark is None else max(self.since, watermark)
            if watermark is not None and watermark >= self.since:
                self.since = None  # whatever comes is later
                self.dropped.add(SINCE)
        return on_time(rows, times, codes, first)

    def parts(self, side: int) -> list[pa.RecordBatch]:
        """All rows of a side, those that have come last."""
        return [*self._segments[side].values(), *self._fresh[side]]

    def keep(self, side: int, parts: Sequence[pa.RecordBatch], alive: Mask, *, exact: bool) -> int:
        """Store what is new, forget what is dead; returns how many rows have left the state.

        `parts` are those of :meth:`parts`, or others in their places, which are stored again.  Not `exact`, dead rows
        stay in a segment of which at least half is alive: rewriting it would cost more than they do.
        """
        held, names = self._segments[side], [*self._segments[side], *[None] * len(self._fresh[side])]
        added: list[pa.RecordBatch] = []
        gone, end = 0, 0
        for name, rows in zip(names, parts, strict=True):
            mask = alive[end : end + rows.num_rows]
            end += rows.num_rows
            count = int(np.count_nonzero(mask))
            if name is None:
                added += [_those(rows, mask, count)] if count else []
            elif count == 0:
                del held[name]
                self.dropped.add(name)
            elif rows is not held[name] or (count < rows.num_rows and (exact or 2 * count < rows.num_rows)):
                held[name] = self.stored[name] = _those(rows, mask, count)
            else:
                count = rows.num_rows
            gone += rows.num_rows - count
        if added and len(held) >= MOST_SEGMENTS:
            added = [*held.values(), *added]
            for name in held:
                self.stored.pop(name, None)
                self.dropped.add(name)
            held.clear()
        if added:
            name = f"{self._letters[side]}/{self._serial}"
            self._serial += 1
            held[name] = self.stored[name] = concat(added)
        return gone


class WaitingRows:
    """Rows that ask about times from their own + `low` up to their own + `high`, and the rows that they ask for.

    Once the watermark has passed the last of those times, no row that may still come could match: a row is answered
    from the rows that are there, and leaves.  A row that answers stays as long as a row that waits, or one that may
    still come, could ask for it.  So the state holds the window and the lateness of the streams, and no pair.
    """

    def __init__(self, letters: str, asking: int, low: int, high: int) -> None:
        self.counters = dict.fromkeys(WAITING_METRICS, 0)
        self.held = HeldSegments(letters)
        self._asking, self._answering = asking, 1 - asking
        self._low, self._high = low, high
        self._unmatched: list[pa.RecordBatch] = []
        self._watermark: int | None = None
        self._over = False
        self._wake: int | None = None

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Restore the state of the last call."""
        self._watermark = watermark
        self.held.restore(state)

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; those before the watermark are late, and dropped."""
        self.counters["rows"] += rows.num_rows
        rows = in_utc(self.kept(side, rows))
        times = self.times(side, rows)
        codes = order_codes(times, "int")
        accepted = self.held.answerable if side == self._asking else on_time
        rows, late = accepted(rows, times, codes, self._watermark)
        self.counters["late"] += late
        good = self.usable(side, rows)
        if not good.all():
            # Such a row matches nothing, whatever comes.
            if side == self._asking:
                self._unmatched.append(rows.filter(pa.array(~good)))
            rows = rows.filter(pa.array(good))
        if rows.num_rows:
            self.held.add(side, rows)

    def end(self) -> None:
        """Promise that no more rows come: every answer is final."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """The rows whose windows have closed, each with its answer."""
        began = time.perf_counter_ns()
        for rows in self._unmatched:
            yield from self._counted(self.answers(rows, []))
        asking, answering = self.held.parts(self._asking), self.held.parts(self._answering)
        first = HIGHEST if self._watermark is None else self._watermark
        if asking:
            together = concat(asking)
            times = order_codes(self.times(self._asking, together), "int")
            final = self._passed(moved(times, self._high))
            chosen = np.flatnonzero(final)
            if chosen.size:
                yield from self._counted(self.answers(together.take(chosen), answering))
            if not final.all():
                waiting = times[~final]
                first = min(first, int(waiting.min()))
                self._wake = min(int(moved(waiting, self._high).min()), HIGHEST - 1) + 1
            # A row that has been answered must not come again.
            self.held.keep(self._asking, asking, ~final, exact=True)
        if answering:
            times = np.concatenate([order_codes(self.times(self._answering, rows), "int") for rows in answering])
            if self._over:
                needed = np.zeros(times.size, dtype=np.bool_)
            elif self._watermark is None:
                needed = np.ones(times.size, dtype=np.bool_)
            else:
                needed = times >= int(moved(np.array([first]), self._low)[0])
            # Dead rows in a segment that stays do no harm, since nobody asks about their times.
            self.counters["evicted"] += self.held.keep(self._answering, answering, needed, exact=False)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        self.counters["held_rows"] += self.held.rows
        self.counters["held_bytes"] += self.held.size

    def wake_at(self) -> int | None:
        """The first watermark that closes the window of a waiting row."""
        return self._wake

    # --- what a family says -----------------------------------------------------------------------------------

    def kept(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of new rows that are stored."""
        return rows

    def times(self, side: int, rows: pa.RecordBatch) -> pa.Array[Any]:
        """The times of rows."""
        raise NotImplementedError

    def usable(self, side: int, rows: pa.RecordBatch) -> Mask:
        """The rows that could match at all: those with a time, to begin with."""
        return valid_mask(self.times(side, rows))

    def answers(self, asking: pa.RecordBatch, answering: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What comes out for rows that ask, from the rows that are there; without any for rows that match nothing."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------------------------------

    def _counted(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for out in answers:
            if out.num_rows:
                self.counters["results"] += out.num_rows
                yield out

    def _passed(self, horizon: Codes) -> Mask:
        if self._over:
            return np.ones(horizon.size, dtype=np.bool_)
        return horizon < self._watermark if self._watermark is not None else np.zeros(horizon.size, dtype=np.bool_)


def _those(rows: pa.RecordBatch, mask: Mask, count: int) -> pa.RecordBatch:
    return rows if count == rows.num_rows else rows.filter(pa.array(mask))


def _serial_of(name: str) -> int:
    return int(name.partition("/")[2])

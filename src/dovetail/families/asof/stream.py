"""As-of joins of streams: one cell, whose state is named segments.

A left row leaves once no right row that may still come could change its match.  The watermark says which may: none with
an earlier time.  So every left row has a *horizon*, the last time at which a right row could still matter:

    backward    its own time
    forward     the time of its match so far, else its own time + within
    nearest     as far ahead as its match so far is away, else its own time + within

and it is final when the watermark has passed that.  Of the right rows stay those from the watermark on, the last one
before it of each key unless rows only look ahead or `within` puts it out of reach, and the matches of left rows that
wait.  With further conditions any row may be the best of those that satisfy them: `within` has to bound the join, and
all right rows in reach of the watermark stay.

A right join gives a right row that no left row chose once none can: that is the moment at which the row leaves the
state, for the rule above keeps it exactly as long as somebody may choose it.

    lost a tie          at once: whoever could choose it has a better row
    backward, nearest   when the watermark passes the next right row of its key, or its own time + within
    forward             when the watermark passes its own time
    with conditions     when the watermark passes its own time + within, or looking forward its own time

Why none can, and none that left has: a left row that waits has its best match among the rows that are there, and rows
that come can only replace it by a better one, so a row that is not its match now never will be.  A left row that comes
has a time from the watermark on; looking back from there it finds the last row before the watermark, or a later one,
first.  And a left row that left had its match before the watermark, so that no row can come any more that ties with the
match and takes its place.  Whether a row was chosen is a column of its segment, and a row that has come out or been
evicted is no longer in any segment: it comes out once, across restarts.  Without `within` the last right row of a key
has no end: it stays, as one row for each key, until a newer one takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, Codes, Mask
from dovetail.columns.held import HeldSegments, on_time
from dovetail.columns.layout import COUNTERS
from dovetail.columns.segments import concat, in_utc
from dovetail.families.asof.compiled import RowNumbers, last_before
from dovetail.families.asof.encode import Column, key_columns, time_codes, usable
from dovetail.families.asof.join_stages import PairStage
from dovetail.families.asof.kernel import RightIndex
from dovetail.families.asof.spec import LEFT, RIGHT
from dovetail.families.asof.where import index_of
from dovetail.family import Changes

STREAM_METRICS = ("rows", "late", "evicted", "held_rows", "held_bytes", "ties", "matched", "results", "kernel_us")
"""What a call counts, in the order in which it leaves the operator."""

_LETTERS = "LR"

CHOSEN = "x"
"""The last column of right rows in the state, where unmatched ones come out: whether a left row that left chose it."""


class AsofKernel:
    """The rows of one cell that still matter, and the join among them."""

    def __init__(self, stage: PairStage) -> None:
        self.stage = stage
        self.spec = stage.spec
        self.counters = dict.fromkeys(STREAM_METRICS, 0)
        self.held = HeldSegments(_LETTERS)
        self._null_key_rows: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        self._answers_for_right = self.spec.kind.preserved[RIGHT]
        self._watermark: int | None = None
        self._over = False
        self._wake: int | None = None

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Restore the state of the last call."""
        self._watermark = watermark
        self.held.restore(state)

    def keys_of(self, side: int, rows: pa.RecordBatch) -> list[Column]:
        """The equality keys of rows."""
        return key_columns(self.spec, rows, side)

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; those before the watermark are late, and dropped."""
        self.counters["rows"] += rows.num_rows
        rows = in_utc(rows)
        times = rows.column(self.spec.times[side])
        accepted = self.held.answerable if side == LEFT else on_time
        rows, late = accepted(rows, times, time_codes(self.spec, rows, side), self._watermark)
        self.counters["late"] += late
        good = usable(self.spec, rows, side)
        if good is not None:
            if self.spec.kind.preserved[side]:
                self._null_key_rows[side].append(rows.filter(pa.array(~good)))
            rows = rows.filter(pa.array(good))
        if rows.num_rows:
            if side == RIGHT and self._answers_for_right:
                rows = rows.append_column(CHOSEN, pa.array(np.zeros(rows.num_rows, dtype=np.bool_)))
            self.held.add(side, rows)

    def end(self) -> None:
        """Promise that no more rows come: every match is final."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """Left rows whose match is now certain, each with it; right rows that nobody can choose any more."""
        began = time.perf_counter_ns()
        for rows in self._null_key_rows[LEFT]:
            yield from self._joined(rows, None, np.full(rows.num_rows, -1, dtype=np.int32))
        for rows in self._null_key_rows[RIGHT]:
            yield from self._unmatched(rows)
        parts = tuple(self.held.parts(side) for side in (LEFT, RIGHT))
        index = index_of(self.spec, concat(parts[RIGHT])) if parts[RIGHT] else None
        waiting_for = chosen_now = np.empty(0, dtype=np.int32)
        if parts[LEFT]:
            left = concat(parts[LEFT])
            matches = self._matches(left, index)
            horizon = self._horizon(time_codes(self.spec, left, LEFT), index, matches)
            final = self._passed(horizon)
            chosen = np.flatnonzero(final)
            yield from self._joined(left.take(chosen), index, matches[chosen])
            waiting_for, chosen_now = matches[~final], matches[chosen]
            if not final.all():
                self._wake = min(int(horizon[~final].min()), HIGHEST - 1) + 1
            # A left row that has left must not come again.
            self.held.keep(LEFT, parts[LEFT], ~final, exact=True)
        if index is not None:
            self.counters["ties"] += index.ties
            needed = self._needed(index, waiting_for[waiting_for >= 0])
            self.counters["evicted"] += index.rows.num_rows - int(np.count_nonzero(needed))
            if self._answers_for_right:
                yield from self._settle(parts[RIGHT], index, needed, chosen_now[chosen_now >= 0])
            else:
                # Dead right rows in a segment that stays do no harm: whoever could choose one has a better row.
                self.held.keep(RIGHT, parts[RIGHT], needed, exact=False)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        self.counters["held_rows"] += self.held.rows
        self.counters["held_bytes"] += self.held.size

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        return Changes(self.held.stored, self.held.dropped)

    def wake_at(self) -> int | None:
        """The first watermark that makes a waiting row final."""
        return self._wake

    # ----------------------------------------------------------------------------------------------------------

    def _matches(self, left: pa.RecordBatch, index: RightIndex | None) -> RowNumbers:
        return np.full(left.num_rows, -1, dtype=np.int32) if index is None else index.match(left)

    def _joined(self, left: pa.RecordBatch, index: RightIndex | None, matches: RowNumbers) -> Iterator[pa.RecordBatch]:
        if left.num_rows == 0:
            return
        self.counters["matched"] += int(np.count_nonzero(matches >= 0))
        out = self.stage.rows_out(left, None if index is None else index.rows, matches)
        if out is not None:
            self.counters["results"] += out.num_rows
            yield out.drop_columns([COUNTERS])

    def _unmatched(self, right: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if right.num_rows:
            self.counters["results"] += right.num_rows
            yield self.stage.unmatched_right(right).drop_columns([COUNTERS])

    def _settle(
        self, parts: list[pa.RecordBatch], index: RightIndex, needed: Mask, chosen_now: RowNumbers
    ) -> Iterator[pa.RecordBatch]:
        """Remember which right rows were chosen; those that leave without having been come out."""
        was = index.rows.column(CHOSEN).to_numpy(zero_copy_only=False)
        chosen = was.copy()
        chosen[chosen_now] = True
        yield from self._unmatched(index.rows.take(np.flatnonzero(~needed & ~chosen)))
        ends = np.cumsum([rows.num_rows for rows in parts])
        at = parts[0].schema.get_field_index(CHOSEN)
        marked = []
        for rows, end in zip(parts, ends.tolist(), strict=True):
            own = slice(end - rows.num_rows, end)
            changed = bool((chosen[own] & ~was[own] & needed[own]).any())
            marked.append(rows.set_column(at, CHOSEN, pa.array(chosen[own])) if changed else rows)
        due = self._due(index, needed & ~chosen)
        if due is not None:
            self._wake = due if self._wake is None else min(due, self._wake)
        # Nor must a right row come again that came out without a match.
        self.held.keep(RIGHT, marked, needed, exact=True)

    def _due(self, index: RightIndex, open_rows: Mask) -> int | None:
        """The first watermark at which a right row can no longer be chosen."""
        times = index.times
        if self.spec.direction == "forward":
            ends = times
        else:
            ends = np.full(times.size, HIGHEST, dtype=np.int64)
            if not self.spec.picky:
                followed = np.ones(times.size, dtype=np.bool_)
                followed[index.starts[1:] - 1] = False
                ends[np.flatnonzero(followed)] = times[np.flatnonzero(followed) + 1]
            if self.spec.within is not None:
                within = min(int(self.spec.within), HIGHEST)
                ends = np.minimum(ends, np.where(times > HIGHEST - within, HIGHEST, times + within))
        ends = ends[open_rows[index.order] & (ends < HIGHEST)]
        if self._watermark is not None:
            # The match of a row that waits may be past its own end; it is looked at again when that row leaves.
            ends = ends[ends >= self._watermark]
        return int(ends.min()) + 1 if ends.size else None

    def _horizon(self, times: Codes, index: RightIndex | None, matches: RowNumbers) -> Codes:
        """The last time at which a right row could still change a match."""
        spec = self.spec
        if spec.direction == "backward":
            return times
        # Without a tolerance a row may wait for ever; the plan refuses that for streams.
        within = min(int(spec.within), HIGHEST) if spec.within is not None else HIGHEST
        reach = np.full(times.size, within, dtype=np.int64)
        if index is not None:
            hit = matches >= 0
            gaps = time_codes(spec, index.rows, RIGHT)[matches[hit]] - times[hit]
            reach[hit] = np.abs(gaps)
        return np.where(times > HIGHEST - reach, HIGHEST, times + reach)

    def _passed(self, horizon: Codes) -> Mask:
        if self._over:
            return np.ones(horizon.size, dtype=np.bool_)
        return horizon < self._watermark if self._watermark is not None else np.zeros(horizon.size, dtype=np.bool_)

    def _needed(self, index: RightIndex, waiting_for: RowNumbers) -> Mask:
        """Which right rows a left row may still choose; of those that tie, only the one that wins."""
        needed = np.zeros(index.rows.num_rows, dtype=np.bool_)
        if self._over:
            return needed
        if self._watermark is None:
            needed[index.order] = True
        else:
            self._mark_needed(needed, index, self._watermark, waiting_for)
        return needed

    def _mark_needed(self, needed: Mask, index: RightIndex, watermark: int, waiting_for: RowNumbers) -> None:
        needed[index.order[index.times >= watermark]] = True
        needed[waiting_for] = True
        if self.spec.picky and self.spec.direction != "forward":
            # Any row in reach may be the best that satisfies the conditions; the plan sees to it that there is a bound.
            needed[index.order[index.times >= watermark - int(self.spec.within or 0)]] = True
        elif self.spec.direction != "forward":
            last = last_before(index.times, index.starts, watermark)
            last = last[last >= 0]
            if self.spec.within is not None:
                last = last[index.times[last] >= watermark - int(self.spec.within)]
            needed[index.order[last]] = True

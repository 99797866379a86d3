"""The streaming kernel of a window join: rows come in, matches and closed rows go out, old rows are evicted.

The same kernel serves streams and batch, where all rows come at once and nothing is remembered.

*Watermarks.*  Each input has its own: the largest time seen of it, in any cell, less the delay its rows may have.  Rows
below it are late and dropped.  An input that the others have left behind by more than ``idle`` is taken to be silent,
and its watermark follows them at that distance.

*Eviction.*  A row goes when it lies before every other input's watermark by more than their window: no row that is
still to come can match it.  A window to one of the others alone is not enough, since a later row of one input may
complete a match with earlier rows of another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.encode import Keys
from dovetail.columns.layout import MAX_TIME_HEADER
from dovetail.columns.segments import concat
from dovetail.families.window.encode import Index, key_arrays, time_codes, usable_rows
from dovetail.families.window.eviction import NEVER, expiry_of, watermarks_of
from dovetail.families.window.indexes import IndexedInput, IndexedSegment, PartialMatches
from dovetail.families.window.kernel import CHUNK, Search
from dovetail.families.window.paper.published import published_matches
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.state import CellState, StoredSegment, pending_name
from dovetail.family import Changes


def metric_names(aliases: Sequence[str]) -> tuple[str, ...]:
    """The counters of a cell, in the order in which they leave it."""
    totals = ("rows", "results", "candidates", "comparisons", "kernel_us", "cells")
    each = ("held_rows", "state_bytes", "evicted", "late")
    return (*totals, *(f"{name}_{alias}" for name in each for alias in aliases))


Origins: TypeAlias = "list[list[StoredSegment | None]]"
"""For each input the stored segments that its rows come from, None for its new rows."""


class MatchBatch(NamedTuple):
    """Matches, and the inputs that their row numbers refer to."""

    inputs: list[IndexedInput]
    matches: PartialMatches
    origins: Origins


def _ahead(times: list[int] | None, reached: list[int]) -> list[int] | None:
    """Times of which some have not been reached; None where all have."""
    return None if times is None or all(a <= b for a, b in zip(times, reached, strict=True)) else times


@dataclass
class NewRows:
    """New rows of one input, and which of them have matched."""

    segment: IndexedSegment
    matched: Mask


@dataclass
class WindowJoinKernel:
    """The kernel of one cell; see :class:`dovetail.family.StreamKernel`."""

    spec: WindowJoinSpec
    counters: dict[str, int] = field(default_factory=dict)

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state.  The watermarks are the kernel's own, so Spark's is not used."""
        self.counters = dict.fromkeys(metric_names(self.spec.aliases), 0)
        self.counters["cells"] = 1
        self._state = CellState.load(self.spec, state)
        self._watermarks_before = self._watermarks(self._state.max_times)
        self._arrived: list[list[pa.RecordBatch]] = [[] for _ in self.spec.aliases]
        self._null_key_rows: list[list[pa.RecordBatch]] = [[] for _ in self.spec.aliases]
        self._arrival_order: list[tuple[int, int]] = []
        self._max_times: list[int | None] = list(self._state.max_times)
        self._ended = False
        closed = self._state.closed
        if closed is not None and not self._state.adopted and closed != self._expiry_at(self._watermarks_before):
            # Rows may be later, or less late, than in the run before.  What it has given must not be given again, and
            # what it would still have given must be: of the rows that it was not through with, nothing is known.
            self._state.leave_behind(closed)
            self._state.adopted = True
        self._pending: list[str] = []
        if self._state.adopted:
            for side in self.spec.reported:
                if pending_name(side) in state:
                    self._pending.append(pending_name(side))
                    self._null_key_rows[side].append(state[pending_name(side)])

    def keys_of(self, side: int, rows: pa.RecordBatch) -> Keys:
        """The equality keys of rows."""
        keys = key_arrays(self.spec, side, rows)
        return [keys[equal.members[side]] for equal in self.spec.classes]

    @property
    def slides(self) -> bool:
        """Whether static rows may come in the order of time: the paper's algorithms want them all."""
        return self.spec.options.algorithm == "auto"

    def moments(self, side: int, rows: pa.RecordBatch) -> Index:
        """The times of rows."""
        return time_codes(rows.column(self.spec.times[side]))

    def passed(self, time: int) -> None:
        """Note that no input will have a row before `time` any more."""
        for side in self.spec.sides:
            self._advance(side, time)

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows, or a header that says how far an input has come."""
        metadata = rows.schema.metadata or {}
        if MAX_TIME_HEADER in metadata:
            self._advance(side, int(metadata[MAX_TIME_HEADER]))
            return
        self.counters["rows"] += rows.num_rows
        usable = usable_rows(self.spec, side, rows)
        if not usable.all():
            if side in self.spec.reported:
                self._null_key_rows[side].append(rows.filter(pa.array(~usable)))
            rows = rows.filter(pa.array(usable))
        times = time_codes(rows.column(self.spec.times[side]))
        late = times < self._watermarks_before[side]
        if late.any():
            self.counters[f"late_{self.spec.aliases[side]}"] += int(late.sum())
            rows = rows.filter(pa.array(~late))
        if rows.num_rows:
            self._arrived[side].append(rows)
            self._arrival_order.append((side, rows.num_rows))

    def end(self) -> None:
        """Nothing more comes: every window closes."""
        self._ended = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """Matches that need a new row, then the unmatched rows whose windows have closed."""
        began = time.perf_counter_ns()
        new = [self._new_rows(side) for side in self.spec.sides]
        stored = [[segment for segment in self._state.segments if segment.side == side] for side in self.spec.sides]
        for batch in self._find_matches(new, stored):
            self.counters["candidates"] += next(iter(batch.matches.values())).size
            out = self._emit(batch, new)
            if out is not None:
                self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
                yield self._counted(out)
                began = time.perf_counter_ns()
        for out in self._unmatched(new, stored):
            yield self._counted(out)
        self._update_state(new)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000

    def changes(self) -> Changes:
        """What to store and what to forget."""
        self._state.max_times = self._max_times
        self._state.changes.dropped.update(self._pending)
        if self.spec.preserved:
            self._state.closed = self._expiry_at(self._watermarks(self._max_times))
        watermarks = self._watermarks(self._max_times)
        # Nothing can come any more that would ask for what has gone, or of which it would not be known.
        self._state.lacking = _ahead(self._state.lacking, self._expiry_at(watermarks))
        self._state.sure = _ahead(self._state.sure, watermarks)
        for stored in self._state.segments:
            alias = self.spec.aliases[stored.side]
            self.counters[f"held_rows_{alias}"] += stored.rows
            self.counters[f"state_bytes_{alias}"] += stored.size
        return self._state.finish()

    def wake_at(self) -> None:
        """Every cell hears of every micro-batch, so none asks to be woken."""
        return

    # ----------------------------------------------------------------------------------------------------------
    # Time
    # ----------------------------------------------------------------------------------------------------------

    def _advance(self, side: int, max_time: int) -> None:
        known = self._max_times[side]
        self._max_times[side] = max_time if known is None else max(known, max_time)

    def _watermarks(self, max_times: Sequence[int | None]) -> list[int]:
        """For each input the earliest time that is not late."""
        return watermarks_of(max_times, self.spec.delays or [0] * len(max_times), self.spec.idle)

    def _expiry(self) -> list[int]:
        """For each input the time before which its rows can match nothing that is still to come."""
        if self._ended:
            return [NEVER] * len(self.spec.aliases)
        return self._expiry_at(self._watermarks(self._max_times))

    def _expiry_at(self, watermarks: list[int]) -> list[int]:
        return expiry_of(self.spec.hull, watermarks)

    # ----------------------------------------------------------------------------------------------------------
    # Matches
    # ----------------------------------------------------------------------------------------------------------

    def _new_rows(self, side: int) -> NewRows | None:
        if not self._arrived[side]:
            return None
        rows = concat([part.replace_schema_metadata(None) for part in self._arrived[side]])
        segment = IndexedSegment(self.spec, side, rows)
        matched = np.zeros(rows.num_rows, dtype=np.bool_)
        if self._state.sure is not None and side in self.spec.preserved:
            # What it may have matched has gone: such a row does not come out as one without a match.
            matched = segment.codes.times < self._state.sure[side]
        return NewRows(segment, matched)

    def _find_matches(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        """Matches that need a new row."""
        find = self._indexed if self.spec.options.algorithm == "auto" else self._published
        return find(new, stored)

    def _indexed(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        for turn, inputs, origins in self._turns(new, stored):
            search = Search(self.spec, inputs)
            for matches in search.matches(turn):
                yield MatchBatch(inputs, matches, origins)
            self.counters["comparisons"] += search.compared

    def _turns(
        self, new: list[NewRows | None], stored: list[list[StoredSegment]]
    ) -> Iterator[tuple[int, list[IndexedInput], Origins]]:
        """What meets: new rows of one input, the stored rows of the others, and new rows of inputs before it."""
        for turn in self.spec.sides:
            if new[turn] is None:
                continue
            origins: Origins = []
            for side in self.spec.sides:
                old: list[StoredSegment | None] = [] if side == turn else list(stored[side])
                arrived: list[StoredSegment | None] = [None] if new[side] is not None and side <= turn else []
                origins.append(old + arrived)
            if not all(origins):
                continue
            yield turn, [self._input(origin, new[side]) for side, origin in enumerate(origins)], origins

    def _input(self, origin: list[StoredSegment | None], new: NewRows | None) -> IndexedInput:
        segments = []
        for stored in origin:
            if stored is not None:
                segments.append(self._state.indexed(stored))
            elif new is not None:
                segments.append(new.segment)
        return IndexedInput(segments)

    def _published(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        """Matches by one of the paper's algorithms."""
        origins: Origins = [[*stored[side], *([None] if new[side] is not None else [])] for side in self.spec.sides]
        if not all(origins) or not any(new):
            return
        inputs = [self._input(origin, new[side]) for side, origin in enumerate(origins)]
        held = np.array([sum(segment.rows for segment in segments) for segments in stored], dtype=np.int64)
        order = np.concatenate([np.full(count, side, dtype=np.int32) for side, count in self._arrival_order])
        matches, comparisons = published_matches(self.spec, inputs, order, held)
        self.counters["comparisons"] += comparisons
        for begin in range(0, matches[0].size, CHUNK):
            chunk = {side: rows[begin : begin + CHUNK] for side, rows in matches.items()}
            yield MatchBatch(inputs, chunk, origins)

    # ----------------------------------------------------------------------------------------------------------
    # Output
    # ----------------------------------------------------------------------------------------------------------

    def _counted(self, out: pa.RecordBatch) -> pa.RecordBatch:
        self.counters["results"] += out.num_rows
        return out

    def _emit(self, batch: MatchBatch, new: list[NewRows | None]) -> pa.RecordBatch | None:
        """Output rows of matches; records which rows have matched where that counts."""
        inputs, matches, origins = batch
        first_matches: Index | None = None
        for side in self.spec.flagged:
            hit = np.zeros(inputs[side].size, dtype=np.bool_)
            hit[matches[side]] = True
            if not self.spec.kind.pairs:
                first_matches = np.flatnonzero(hit & ~self._matched(origins[side], new[side]))
            self._record_matches(inputs[side], origins[side], new[side], hit)
        if not self.spec.kind.pairs:
            assert first_matches is not None
            if self.spec.kind.unmatched or not first_matches.size:
                return None
            return self._rows({0: inputs[0].take(range(self.spec.payload[0]), first_matches)}, first_matches.size)
        return self._rows(self._payload(inputs, matches), next(iter(matches.values())).size)

    def _payload(self, inputs: list[IndexedInput], matches: PartialMatches) -> dict[int, pa.RecordBatch]:
        return {s: inputs[s].take(range(self.spec.payload[s]), matches[s]) for s in self.spec.emitted if s in matches}

    def _matched(self, origin: list[StoredSegment | None], new: NewRows | None) -> Mask:
        flags = []
        for stored in origin:
            if stored is not None:
                flags.append(self._state.matched(stored))
            elif new is not None:
                flags.append(new.matched)
        return np.concatenate(flags)

    def _record_matches(
        self, rows: IndexedInput, origin: list[StoredSegment | None], new: NewRows | None, hit: Mask
    ) -> None:
        for stored, begin, end in zip(origin, rows.starts[:-1], rows.starts[1:], strict=True):
            if stored is not None:
                self._state.record_matches(stored, hit[begin:end])
            elif new is not None:
                new.matched |= hit[begin:end]

    def _rows(self, parts: dict[int, pa.RecordBatch], count: int) -> pa.RecordBatch:
        """Output rows: the payload of every input, NULL for inputs that `parts` lacks."""
        columns: list[pa.Array[Any]] = []
        for side in self.spec.emitted:
            if side in parts:
                columns += parts[side].columns
            else:
                columns += [pa.nulls(count, kind) for kind in self.spec.types[side]]  # type: ignore[call-overload]
        if self.spec.outer:
            columns += [pa.array(np.full(count, side in parts)) for side in self.spec.emitted]
        return pa.RecordBatch.from_arrays(columns, names=self.spec.output_names())

    def _unmatched(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[pa.RecordBatch]:
        """Rows without a match that can no longer get one, each once."""
        before, after = self._reported_before(), self._expiry()
        for side in self.spec.reported:
            payload = range(self.spec.payload[side])
            unmatched = [part.select(payload) for part in self._null_key_rows[side]]
            waiting = side in self.spec.preserved
            for segment in stored[side] if waiting else ():
                if segment.last >= before[side] and segment.first < after[side]:
                    indexed = self._state.indexed(segment)
                    times = indexed.codes.times
                    due = (times >= before[side]) & (times < after[side]) & ~self._state.matched(segment)
                    unmatched.append(indexed.rows.select(payload).filter(pa.array(due)))
            arrived = new[side]
            if waiting and arrived is not None:
                due = (arrived.segment.codes.times < after[side]) & ~arrived.matched
                unmatched.append(arrived.segment.rows.select(payload).filter(pa.array(due)))
            for part in unmatched:
                if part.num_rows:
                    yield self._rows({side: part}, part.num_rows)

    def _reported_before(self) -> list[int]:
        """For each input the time before which rows have been reported: what the last call closed, it reported."""
        if self._state.adopted:
            # Rows that another definition of the join had closed have not come with the others.
            return [-NEVER] * len(self.spec.aliases)
        return self._expiry_at(self._watermarks_before)

    def _update_state(self, new: list[NewRows | None]) -> None:
        """Evict rows that can match nothing more, and remember the new ones that still can."""
        expiry = self._expiry()
        state = self._state
        for stored in [stored for stored in state.segments if stored.last < expiry[stored.side]]:
            state.evict(stored)
            self.counters[f"evicted_{self.spec.aliases[stored.side]}"] += stored.rows
        for side, arrived in enumerate(new):
            if arrived is None:
                continue
            times = arrived.segment.codes.times
            kept = np.flatnonzero(times >= expiry[side])
            self.counters[f"evicted_{self.spec.aliases[side]}"] += times.size - kept.size
            matched = arrived.matched[kept] if side in self.spec.flagged else None
            state.add(side, arrived.segment.rows.take(kept), times[kept], matched)
        for side, evicted in enumerate(state.merge(expiry)):
            self.counters[f"evicted_{self.spec.aliases[side]}"] += evicted

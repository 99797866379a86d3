"""A cell of a window join: rows come in, matches and closed rows go out, old rows go.

The same kernel serves streams and batch, where all rows come at once and nothing is remembered.

*Watermarks.*  Each input has its own: the largest time seen of it, in any cell, less the delay its rows may have.  Rows
below it are late and dropped.  An input that the others have left behind by more than ``idle`` is taken to be silent,
and its watermark follows them at that distance.

*Removal.*  A row goes when it lies before every other input's watermark by more than their window: no row that is
still to come can match it.  A window to one of the others alone is not enough, since a later row of one input may
complete a match with earlier rows of another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.segments import concat
from dovetail.families.window.encode import Index, usable_rows
from dovetail.families.window.kernel import CHUNK, Search
from dovetail.families.window.paper import algorithms as papers
from dovetail.families.window.pieces import Partial, Piece, Pile
from dovetail.families.window.rows import Condition, Side
from dovetail.families.window.spec import WindowJoinSpec, time_codes
from dovetail.families.window.state import Entry, Memory
from dovetail.families.window.verdict import verdict
from dovetail.family import Changes

TOP = b"top"
"""Metadata of a segment without rows: the largest time of an input that a packing task has seen."""

NEVER = 1 << 63  # one more than the last time that there is


def metric_names(aliases: Sequence[str]) -> tuple[str, ...]:
    """The counters of a cell, in the order in which they leave it."""
    totals = ("rows", "results", "candidates", "comparisons", "kernel_us", "cells")
    each = ("held_rows", "state_bytes", "evicted", "late")
    return (*totals, *(f"{name}_{alias}" for name in each for alias in aliases))


Owners: TypeAlias = "list[list[Entry | None]]"
"""For each input the segments that its pile consists of, None for its new rows."""
Found: TypeAlias = "tuple[list[Pile], Partial, Owners]"


@dataclass
class Fresh:
    """New rows of one input: a piece, and which of its rows have matched."""

    piece: Piece
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
        self._memory = Memory.load(self.spec, state)
        self._before = self._watermarks(self._memory.tops)
        self._arrived: list[list[pa.RecordBatch]] = [[] for _ in self.spec.aliases]
        self._stray: list[list[pa.RecordBatch]] = [[] for _ in self.spec.aliases]
        self._order: list[tuple[int, int]] = []
        self._tops: list[int | None] = list(self._memory.tops)
        self._ended = False

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows, or the news of how far an input has come."""
        metadata = rows.schema.metadata or {}
        if TOP in metadata:
            self._see(side, int(metadata[TOP]))
            return
        self.counters["rows"] += rows.num_rows
        usable = usable_rows(self.spec, side, rows)
        if not usable.all():
            if side in self.spec.preserved:
                self._stray[side].append(rows.filter(pa.array(~usable)))
            rows = rows.filter(pa.array(usable))
        times = time_codes(rows.column(self.spec.times[side]))
        late = times < self._before[side]
        if late.any():
            self.counters[f"late_{self.spec.aliases[side]}"] += int(late.sum())
            rows = rows.filter(pa.array(~late))
        if rows.num_rows:
            self._arrived[side].append(rows)
            self._order.append((side, rows.num_rows))

    def end(self) -> None:
        """Nothing more comes: every window closes."""
        self._ended = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """Matches that need a new row, then the rows whose windows have closed."""
        began = time.perf_counter_ns()
        fresh = [self._fresh(side) for side in self.spec.sides]
        held = [[e for e in self._memory.entries if e.side == side] for side in self.spec.sides]
        for piles, matches, owners in self._found(fresh, held):
            self.counters["candidates"] += next(iter(matches.values())).size
            out = self._emit(piles, matches, owners, fresh)
            if out is not None:
                self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
                yield self._counted(out)
                began = time.perf_counter_ns()
        for out in self._closed(fresh, held):
            yield self._counted(out)
        self._store(fresh)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000

    def changes(self) -> Changes:
        """What to store and what to forget."""
        memory = self._memory
        memory.tops = self._tops
        for entry in memory.entries:
            alias = self.spec.aliases[entry.side]
            self.counters[f"held_rows_{alias}"] += entry.rows
            self.counters[f"state_bytes_{alias}"] += entry.size
        return memory.finish()

    def wake_at(self) -> None:
        """Every cell hears of every micro-batch, so none asks to be woken."""
        return

    # ----------------------------------------------------------------------------------------------------------
    # Time
    # ----------------------------------------------------------------------------------------------------------

    def _see(self, side: int, top: int) -> None:
        known = self._tops[side]
        self._tops[side] = top if known is None else max(known, top)

    def _watermarks(self, tops: Sequence[int | None]) -> list[int]:
        """For each input the earliest time that is not late."""
        lowest = np.iinfo(np.int64).min
        marks = [
            lowest if top is None else max(lowest, top - delay)
            for top, delay in zip(tops, self.spec.delays or [0] * len(tops), strict=True)
        ]
        seen = [top for top in tops if top is not None]
        if self.spec.idle is not None and seen:
            marks = [max(mark, max(seen) - self.spec.idle) for mark in marks]
        return [int(mark) for mark in marks]

    def _closing(self) -> list[int]:
        """For each input the time before which its rows can match nothing that is still to come."""
        if self._ended:
            return [NEVER] * len(self.spec.aliases)
        return self._closed_by(self._watermarks(self._tops))

    def _closed_by(self, marks: list[int]) -> list[int]:
        hull = self.spec.hull
        return [
            min(max(-NEVER, marks[other] - int(hull[side, other, 1])) for other in self.spec.sides if other != side)
            for side in self.spec.sides
        ]

    # ----------------------------------------------------------------------------------------------------------
    # Matches
    # ----------------------------------------------------------------------------------------------------------

    def _fresh(self, side: int) -> Fresh | None:
        if not self._arrived[side]:
            return None
        rows = concat([part.replace_schema_metadata(None) for part in self._arrived[side]])
        return Fresh(Piece(self.spec, side, rows), np.zeros(rows.num_rows, dtype=np.bool_))

    def _found(self, fresh: list[Fresh | None], held: list[list[Entry]]) -> Iterator[Found]:
        """Matches that need a new row."""
        return self._indexed(fresh, held) if self.spec.options.algorithm == "auto" else self._published(fresh, held)

    def _indexed(self, fresh: list[Fresh | None], held: list[list[Entry]]) -> Iterator[Found]:
        for turn, piles, owners in self._turns(fresh, held):
            search = Search(self.spec, piles)
            for matches in search.matches(turn):
                yield piles, matches, owners
            self.counters["comparisons"] += search.compared

    def _turns(self, fresh: list[Fresh | None], held: list[list[Entry]]) -> Iterator[tuple[int, list[Pile], Owners]]:
        """What meets: new rows of one input, all that was there of the others, and new rows of inputs before it."""
        for turn in self.spec.sides:
            if fresh[turn] is None:
                continue
            owners: Owners = []
            for side in self.spec.sides:
                old: list[Entry | None] = [] if side == turn else list(held[side])
                new: list[Entry | None] = [None] if fresh[side] is not None and side <= turn else []
                owners.append(old + new)
            if not all(owners):
                continue
            yield turn, [self._pile(owner, fresh[side]) for side, owner in enumerate(owners)], owners

    def _pile(self, owners: list[Entry | None], fresh: Fresh | None) -> Pile:
        pieces = []
        for entry in owners:
            if entry is not None:
                pieces.append(self._memory.piece(entry))
            elif fresh is not None:
                pieces.append(fresh.piece)
        return Pile(pieces)

    def _published(self, fresh: list[Fresh | None], held: list[list[Entry]]) -> Iterator[Found]:
        """Matches by one of the paper's algorithms."""
        owners: Owners = [[*held[side], *([None] if fresh[side] is not None else [])] for side in self.spec.sides]
        if not all(owners) or not any(fresh):
            return
        piles = [self._pile(owner, fresh[side]) for side, owner in enumerate(owners)]
        counts = np.array([sum(entry.rows for entry in entries) for entries in held], dtype=np.int64)
        order = np.concatenate([np.full(count, side, dtype=np.int32) for side, count in self._order])
        windows = self.spec.graph.alternatives
        found, counted = papers.find(
            self.spec.options.algorithm, self.spec.options.approach,
            [Side(pile.times, pile.group) for pile in piles], self._conditions(piles),
            windows if len(windows) > 1 else windows[0], order, counts,
        )  # fmt: skip
        self.counters["comparisons"] += counted["comparisons"]
        matches = dict(enumerate(found))
        kept = verdict(self.spec, piles, matches)
        if kept is not None:
            matches = {side: rows[kept] for side, rows in matches.items()}
        for begin in range(0, matches[0].size, CHUNK):
            yield piles, {side: rows[begin : begin + CHUNK] for side, rows in matches.items()}, owners

    def _conditions(self, piles: list[Pile]) -> list[Condition]:
        """Everything beyond the group and the windows, as the paper's algorithms take it."""
        spec = self.spec
        found: list[Condition] = []

        def equal(one: int, other: int, what: tuple[str, int]) -> None:
            low, high = piles[other].ranges(what)
            found.append(Condition(one, other, piles[one].ranges(what)[0], low, high))

        if len(spec.classes) > 1:
            for at in range(len(spec.classes)):
                for side in spec.sides[1:]:
                    equal(0, side, ("q", at))
        if spec.grid is not None:
            for side in spec.sides[1:]:
                equal(0, side, ("s", 0))
        for at, equality in enumerate(spec.equalities):
            equal(*equality.sides, ("e", at))
        for at, comparison in enumerate(spec.comparisons):
            if comparison.axis.kind != "rank":
                low, high = piles[comparison.box_side].ranges(("c", at))
                point = piles[comparison.point_side].ranges(("c", at))[0]
                found.append(Condition(comparison.point_side, comparison.box_side, point, low, high))
        return found

    # ----------------------------------------------------------------------------------------------------------
    # Output
    # ----------------------------------------------------------------------------------------------------------

    def _counted(self, out: pa.RecordBatch) -> pa.RecordBatch:
        self.counters["results"] += out.num_rows
        return out

    def _emit(
        self, piles: list[Pile], matches: Partial, owners: Owners, fresh: list[Fresh | None]
    ) -> pa.RecordBatch | None:
        """Output rows of matches; marks rows whose first match counts."""
        how = self.spec.options.how
        new: Index | None = None
        for side in self.spec.flagged:
            rows = matches[side]
            hit = np.zeros(piles[side].size, dtype=np.bool_)
            hit[rows] = True
            known = self._flags(piles[side], owners[side], fresh[side])
            if how == "semi":
                new = np.flatnonzero(hit & ~known)
            self._mark(piles[side], owners[side], fresh[side], hit)
        if how == "anti":
            return None
        if how == "semi":
            assert new is not None
            return self._rows({0: piles[0].take(range(self.spec.payload[0]), new)}, new.size) if new.size else None
        count = matches[0].size
        parts = {s: piles[s].take(range(self.spec.payload[s]), matches[s]) for s in self.spec.sides}
        return self._rows(parts, count)

    def _flags(self, pile: Pile, owners: list[Entry | None], fresh: Fresh | None) -> Mask:
        flags = []
        for entry in owners:
            if entry is not None:
                flags.append(self._memory.matched(entry))
            elif fresh is not None:
                flags.append(fresh.matched)
        return np.concatenate(flags)

    def _mark(self, pile: Pile, owners: list[Entry | None], fresh: Fresh | None, hit: Mask) -> None:
        for entry, begin, end in zip(owners, pile.starts[:-1], pile.starts[1:], strict=True):
            if entry is not None:
                self._memory.mark(entry, hit[begin:end])
            elif fresh is not None:
                fresh.matched |= hit[begin:end]

    def _rows(self, parts: dict[int, pa.RecordBatch], count: int) -> pa.RecordBatch:
        """Output rows: the payload of every input, NULL for inputs that `parts` lacks."""
        columns: list[pa.Array[Any]] = []
        for side in self.spec.emitted:
            if side in parts:
                columns += parts[side].columns
            else:
                columns += [pa.nulls(count, kind) for kind in self.spec.types[side]]  # type: ignore[call-overload]
        if self.spec.options.how in ("left", "right", "full"):
            columns += [pa.array(np.full(count, side in parts)) for side in self.spec.emitted]
        return pa.RecordBatch.from_arrays(columns, names=self.spec.output_names())

    def _closed(self, fresh: list[Fresh | None], held: list[list[Entry]]) -> Iterator[pa.RecordBatch]:
        """Rows without a match that can no longer get one, each once."""
        # What the last call closed, it reported.
        before, after = self._closed_by(self._before), self._closing()
        for side in self.spec.preserved:
            payload = range(self.spec.payload[side])
            lonely = [part.select(payload) for part in self._stray[side]]
            for entry in held[side]:
                if entry.last >= before[side] and entry.first < after[side]:
                    times = self._memory.piece(entry).codes.times
                    due = (times >= before[side]) & (times < after[side]) & ~self._memory.matched(entry)
                    lonely.append(self._memory.piece(entry).rows.select(payload).filter(pa.array(due)))
            new = fresh[side]
            if new is not None:
                due = (new.piece.codes.times < after[side]) & ~new.matched
                lonely.append(new.piece.rows.select(payload).filter(pa.array(due)))
            for part in lonely:
                if part.num_rows:
                    yield self._rows({side: part}, part.num_rows)

    def _store(self, fresh: list[Fresh | None]) -> None:
        """Let go of rows that can match nothing more, and remember the new ones that still can."""
        alive = self._closing()
        memory = self._memory
        for entry in [entry for entry in memory.entries if entry.last < alive[entry.side]]:
            memory.forget(entry)
            self.counters[f"evicted_{self.spec.aliases[entry.side]}"] += entry.rows
        for side, new in enumerate(fresh):
            if new is None:
                continue
            times = new.piece.codes.times
            kept = np.flatnonzero(times >= alive[side])
            self.counters[f"evicted_{self.spec.aliases[side]}"] += times.size - kept.size
            matched = new.matched[kept] if side in self.spec.flagged else None
            memory.add(side, new.piece.rows.take(kept), times[kept], matched)
        for side, removed in enumerate(memory.merge(alive)):
            self.counters[f"evicted_{self.spec.aliases[side]}"] += removed

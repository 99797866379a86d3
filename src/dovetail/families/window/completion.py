"""Matches that some inputs may complete: window joins with optional, present and absent inputs.

A match of the core inputs is *closed* when no row that may still come can complete it.  Of the extra inputs' rows those
that complete it are then all there, and what it gives is certain.

*When.*  A row of an extra input lies within the windows of every row of the match.  So the first of the match's rows
that lies, for every extra input, before that input's watermark by more than their window closes it.

*Once.*  A closed match is found again, in the call that closes it, from rows that the state holds: it stores rows, and
neither partial matches nor what became of them.  Rows of the core stay until the matches they are in are closed, as in
any window join; rows of extra inputs stay until the matches that they may complete are.

Results that have a row of every input come out as soon as their last row is there, unless another input must be known
to be present or absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.columns.codes import HIGHEST, LOWEST, Mask
from dovetail.families.window.encode import Index
from dovetail.families.window.eviction import NEVER, closing_of, completed_expiry_of
from dovetail.families.window.indexes import PartialMatches
from dovetail.families.window.kernel import Search
from dovetail.families.window.residual import residual_mask, settled_by_codes
from dovetail.families.window.state import StoredSegment
from dovetail.families.window.stream import MatchBatch, NewRows, Origins, WindowJoinKernel


@dataclass
class CoreSearch(Search):
    """A search for matches of the core, of rows from certain times on, and for rows that complete them."""

    floors: dict[int, int] = field(default_factory=dict)
    """For some inputs the first time that counts."""

    @property
    def wanted(self) -> Sequence[int]:
        """The core."""
        return self.spec.core

    def time_ranges(self, partial: PartialMatches, side: int) -> Iterator[tuple[Index, Index]]:
        """The windows, from the first time on that counts."""
        for earliest, latest in super().time_ranges(partial, side):
            if side in self.floors:
                np.maximum(earliest, min(max(self.floors[side], LOWEST), HIGHEST), out=earliest)
            yield earliest, latest

    def completions(self, matches: PartialMatches, extra: int) -> Iterator[tuple[Index, Index]]:
        """Matches by number, and the rows of an extra input that complete them."""
        numbers = self._completable(matches, extra)
        if numbers is not None:
            matches = _some(matches, numbers)
        _, path, via = self.best_path(extra, self.spec.core)
        for found, rows in self.extended(matches, extra, path, via):
            kept = residual_mask(self.spec, self.inputs, {**_some(matches, found), extra: rows})
            if kept is not None:
                found, rows = found[kept], rows[kept]
            yield (found if numbers is None else numbers[found]), rows

    def completed(self, matches: PartialMatches, extra: int) -> Mask:
        """Which matches a row of an extra input completes."""
        mask = np.zeros(_size(matches), dtype=np.bool_)
        self.once = settled_by_codes(self.spec, extra)
        for found, _ in self.completions(matches, extra):
            mask[found] = True
        self.once = False
        return mask

    def _completable(self, matches: PartialMatches, extra: int) -> Index | None:
        """Matches whose rows have all keys that tie them to an extra input; None for all."""
        masks = [(side, self.inputs[side].completable(extra)) for side in self.spec.core]
        known = [mask[matches[side]] for side, mask in masks if mask is not None]
        return np.flatnonzero(np.logical_and.reduce(known)) if known else None


@dataclass
class CompletingKernel(WindowJoinKernel):
    """The kernel of one cell of a join with optional, present or absent inputs."""

    def _find_matches(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        """Matches of all inputs that need a new row, then what the matches give that are closed now."""
        roles = self.spec.roles
        assert roles is not None
        # Where every window closes in this call and none has before, the matches that are closed are all there are.
        begun = any(time is not None for time in self._state.max_times)
        at_once = not roles.filtering and (begun or not self._ended)
        if at_once:
            yield from super()._find_matches(new, stored)
        before = self._closed_before()
        now = [NEVER] * len(before) if self._ended else self._closing(self._watermarks(self._max_times))
        # Rows may be later than in the run before: what it has closed stays so.
        now = [max(ends) for ends in zip(before, now, strict=True)]
        if not self._ended:
            self._state.closing = now
        for search, matches, origins in self._closed(new, stored, before, now):
            yield from self._results(search, matches, origins, complete=not at_once)

    # ----------------------------------------------------------------------------------------------------------
    # Time
    # ----------------------------------------------------------------------------------------------------------

    def _closing(self, watermarks: list[int]) -> list[int]:
        """For each input of the core the time before which its rows close their matches."""
        return closing_of(self.spec.hull, self.spec.core, self.spec.extras, watermarks)

    def _closed_before(self) -> list[int]:
        """For each input of the core the time before which its rows have closed their matches."""
        if self._state.closing is not None:
            return self._state.closing
        # Of rows that another definition of the join has held, no match is closed.
        return [-NEVER] * len(self.spec.aliases) if self._state.adopted else self._closing(self._watermarks_before)

    def _expiry_at(self, watermarks: list[int]) -> list[int]:
        return completed_expiry_of(self.spec.hull, self.spec.core, self.spec.extras, watermarks)

    # ----------------------------------------------------------------------------------------------------------
    # Matches
    # ----------------------------------------------------------------------------------------------------------

    def _closed(
        self, new: list[NewRows | None], stored: list[list[StoredSegment]], before: list[int], now: list[int]
    ) -> Iterator[tuple[CoreSearch, PartialMatches, Origins]]:
        """Matches of the core that this call closes, each once.

        Each is found from the first of its inputs whose row closes it: inputs before that one have rows that do not,
        and none has a row that had closed it earlier.
        """
        core = self.spec.core
        for at, start in enumerate(core):
            if now[start] <= before[start]:
                continue
            origins = self._around(new, stored, start, before[start], now[start] - 1)
            inputs = [self._input(origin, new[side]) for side, origin in enumerate(origins)]
            floors = {side: now[side] if side in core[:at] else before[side] for side in core}
            times = inputs[start].times
            first = before[start]
            for side in core[:at]:  # rows that are too early for those that count would find none of them
                first = max(first, now[side] - int(self.spec.hull[start, side, 1]))
            rows = np.flatnonzero((times >= first) & (times < now[start]))
            yield from self._searched(CoreSearch(self.spec, inputs, floors=floors), start, rows, origins)
            if self._ended:
                return
        yield from self._closed_at_birth(new, stored, before)

    def _closed_at_birth(
        self, new: list[NewRows | None], stored: list[list[StoredSegment]], before: list[int]
    ) -> Iterator[tuple[CoreSearch, PartialMatches, Origins]]:
        """Matches with a new row that an earlier call would have closed: the extra inputs are far ahead of the core."""
        spec, hull = self.spec, self.spec.hull
        for turn in spec.core:
            arrived = new[turn]
            if arrived is None:
                continue
            times = arrived.segment.codes.times
            # A row that closes a match lies before its input's time, and a row of another input not far after it.
            reach = [before[side] + (int(hull[side, turn, 1]) if side != turn else 0) for side in spec.core]
            rows = np.flatnonzero(times < max(reach))
            if not rows.size:
                continue
            origins: Origins = []
            for side in spec.sides:
                old: list[StoredSegment | None] = [] if side == turn else list(stored[side])
                joins = new[side] is not None and (side <= turn or side in spec.extras)
                origins.append([*old, None] if joins else old)
            inputs = [self._input(origin, new[side]) for side, origin in enumerate(origins)]
            search = CoreSearch(spec, inputs)
            for _, matches, _ in self._searched(search, turn, rows, origins):
                early = [inputs[side].times[matches[side]] < before[side] for side in spec.core]
                kept = np.flatnonzero(np.logical_or.reduce(early))
                if kept.size:
                    yield search, _some(matches, kept), origins

    def _searched(
        self, search: CoreSearch, start: int, rows: Index, origins: Origins
    ) -> Iterator[tuple[CoreSearch, PartialMatches, Origins]]:
        if rows.size:
            for matches in search.matches(start, rows):
                yield search, matches, origins
            self.counters["comparisons"] += search.compared

    def _around(
        self, new: list[NewRows | None], stored: list[list[StoredSegment]], start: int, first: int, last: int
    ) -> Origins:
        """Of each input the segments that may hold a row within the windows of rows between two times."""
        hull = self.spec.hull
        origins: Origins = []
        for side in self.spec.sides:
            low, high = (0, 0) if side == start else (int(hull[start, side, 0]), int(hull[start, side, 1]))
            near: list[StoredSegment | None] = [
                segment for segment in stored[side] if segment.last >= first + low and segment.first <= last + high
            ]
            origins.append([*near, None] if new[side] is not None else near)
        return origins

    def _results(
        self, search: CoreSearch, matches: PartialMatches, origins: Origins, *, complete: bool
    ) -> Iterator[MatchBatch]:
        """What closed matches give: all of it, or where they are not `complete` what lacks an optional input."""
        roles = self.spec.roles
        assert roles is not None
        for extra in roles.extras:
            if roles.roles[extra] != "optional":
                wanted = roles.roles[extra] == "present"
                matches = _some(matches, np.flatnonzero(search.completed(matches, extra) == wanted))
        if not complete:
            found = [search.completed(matches, extra) for extra in roles.optional]
            matches = _some(matches, np.flatnonzero(~np.logical_and.reduce(found)))
        if _size(matches):
            # All rows of a batch lack the same inputs.  Where there is one input to lack, it has just been looked for.
            one = not complete and len(roles.optional) == 1
            for combined in [matches] if one else self._combined(search, matches, roles.optional):
                yield MatchBatch(search.inputs, combined, origins)

    def _combined(
        self, search: CoreSearch, matches: PartialMatches, optional: tuple[int, ...]
    ) -> Iterator[PartialMatches]:
        """Matches with the rows of each optional input that complete them, or without where there are none."""
        if not optional:
            yield matches
            return
        found = np.zeros(_size(matches), dtype=np.bool_)
        core = {side: matches[side] for side in self.spec.core}
        for numbers, rows in search.completions(core, optional[0]):
            found[numbers] = True
            if numbers.size:
                yield from self._combined(search, {**_some(matches, numbers), optional[0]: rows}, optional[1:])
        missing = np.flatnonzero(~found)
        if missing.size:
            yield from self._combined(search, _some(matches, missing), optional[1:])


def _some(matches: PartialMatches, numbers: Index) -> PartialMatches:
    return {side: rows[numbers] for side, rows in matches.items()}


def _size(matches: PartialMatches) -> int:
    return int(next(iter(matches.values())).size)

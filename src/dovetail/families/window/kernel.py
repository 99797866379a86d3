"""The search for matches: partial matches grow by one input at a time, through an index of time within keys or values.

It knows rows as numbers only, and neither state nor watermarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.columns.codes import Codes, float_values
from dovetail.families.window.compiled import extend
from dovetail.families.window.encode import SAME_SLICE, ConditionKey, Index, buckets, shifted
from dovetail.families.window.indexes import BY_GROUP, BY_TIME, AccessPath, IndexedInput, PartialMatches, TimeIndex
from dovetail.families.window.residual import residual_mask
from dovetail.families.window.spec import WindowJoinSpec

CHUNK = 1 << 18
"""Matches found at a time."""
BLOCK = 1 << 16
"""Partial matches that grow at a time: what one level of a join holds in memory."""


class Probes(NamedTuple):
    """Where partial matches look into one segment, and the ranges in which its rows and theirs must overlap."""

    first_slot: Codes
    last_slot: Codes
    earliest: Index
    latest: Index
    row_low: Codes
    row_high: Codes
    partial_low: Codes
    partial_high: Codes


@dataclass
class Search:
    """One search for matches among inputs; `compared` counts rows that were looked at."""

    spec: WindowJoinSpec
    inputs: list[IndexedInput]
    compared: int = 0
    once: bool = False
    """Whether one row of a segment is enough to know that a partial match can grow."""

    @property
    def wanted(self) -> Sequence[int]:
        """The inputs that a match has a row of."""
        return self.spec.sides

    def matches(self, start: int, rows: Index | None = None) -> Iterator[PartialMatches]:
        """Matches of the wanted inputs, beginning with every row of the input `start`, or with some of them."""
        first = self.inputs[start]
        if any(self.inputs[side].size == 0 for side in self.wanted):
            return
        # Neighbours in key and time look up neighbours: in that order searches stay within a cache's reach.
        order = first.order(BY_GROUP if self.spec.classes else BY_TIME)
        if rows is not None:
            wanted = np.zeros(first.size, dtype=np.bool_)
            wanted[rows] = True
            order = order[wanted[order]]
        for begin in range(0, order.size, BLOCK):
            yield from self._grown({start: order[begin : begin + BLOCK]})

    def _grown(self, partial: PartialMatches) -> Iterator[PartialMatches]:
        if len(partial) == len(self.wanted):
            kept = self._checked(partial)
            if next(iter(kept.values())).size:
                yield kept
            return
        side, path, via = self.next_input(tuple(partial))
        for matched, found in self.extended(partial, side, path, via):
            for begin in range(0, matched.size, BLOCK):
                part = matched[begin : begin + BLOCK]
                yield from self._grown({**{s: r[part] for s, r in partial.items()}, side: found[begin : begin + BLOCK]})

    def next_input(self, chosen: tuple[int, ...]) -> tuple[int, AccessPath, int]:
        """The input to look up next, how, and from which of those chosen: equality before band before time alone.

        Among equals the one with the fewest rows within its window goes first.
        """
        hull = self.spec.hull
        options = []
        for side in self.wanted:
            if side in chosen:
                continue
            rank, path, via = self.best_path(side, chosen)
            within = min(float(hull[other, side, 1]) - float(hull[other, side, 0]) for other in chosen)
            rows = self.inputs[side]
            span = max(1.0, float(rows.times.max()) - float(rows.times.min())) if rows.size else 1.0
            options.append((rank, rows.size * min(1.0, within / span), side, path, via))
        _, _, side, path, via = min(options)
        return side, path, via

    def best_path(self, side: int, chosen: tuple[int, ...]) -> tuple[int, AccessPath, int]:
        """The best access path to an input, its rank, and the chosen input that it starts from."""
        if self.spec.classes:
            return 0, BY_GROUP, chosen[0]
        for number, equality in enumerate(self.spec.equalities):
            if side in equality.sides:
                other = equality.sides[1 - equality.sides.index(side)]
                if other in chosen:
                    return 1, AccessPath("equality", number), other
        for number, comparison in enumerate(self.spec.comparisons):
            pair = (comparison.point_side, comparison.box_side)
            if comparison.is_band and side in pair:
                other = pair[1 - pair.index(side)]
                if other in chosen:
                    return 2, AccessPath("bucket", number), other
        return 3, BY_TIME, chosen[0]

    def extended(self, partial: PartialMatches, side: int, path: AccessPath, via: int) -> Iterator[tuple[Index, Index]]:
        """Partial matches by number, and the rows of one more input that codes let extend them."""
        size = partial[via].size
        checks = self._checks(side, tuple(partial), path)
        partial_low = np.empty((len(checks), size), dtype=np.int64)
        partial_high = np.empty_like(partial_low)
        for c, (condition, other) in enumerate(checks):
            low, high = self.inputs[other].ranges(condition)
            partial_low[c], partial_high[c] = low[partial[other]], high[partial[other]]
        for earliest, latest in self.time_ranges(partial, side):
            begin, end = earliest.min(initial=np.iinfo(np.int64).max), latest.max(initial=np.iinfo(np.int64).min)
            looked_up = self.inputs[side]
            for start, segment in zip(looked_up.starts[:-1].tolist(), looked_up.segments, strict=True):
                if segment.size == 0 or segment.span[0] > end or segment.span[1] < begin:
                    continue
                index = segment.index(path)
                first, last = self._slots(path, partial, via, index.reach)
                ranges = index.ranges(segment, tuple(condition for condition, _ in checks))
                probes = Probes(first, last, earliest, latest, *ranges, partial_low, partial_high)
                for matched, rows in self.walk(len(partial), index, probes):
                    if matched.size:
                        yield matched, rows + start
                        if self.once:
                            earliest[matched] = np.iinfo(np.int64).max  # found: it looks no further

    def time_ranges(self, partial: PartialMatches, side: int) -> Iterator[tuple[Index, Index]]:
        """The earliest and the latest time that each partial match looks for, once for every range of times."""
        hull = self.spec.hull
        size = next(iter(partial.values())).size
        earliest, latest = np.full(size, np.iinfo(np.int64).min), np.full(size, np.iinfo(np.int64).max)
        for other, rows in partial.items():
            times = self.inputs[other].times[rows]
            np.maximum(earliest, shifted(times, int(hull[other, side, 0])), out=earliest)
            np.minimum(latest, shifted(times, int(hull[other, side, 1])), out=latest)
        yield earliest, latest

    def walk(self, level: int, index: TimeIndex, probes: Probes) -> Iterator[tuple[Index, Index]]:
        """Partial matches and the rows of a segment that extend them; `level` inputs are matched so far."""
        state = np.array([0, 0, -1, 0], dtype=np.int64)
        while state[0] < probes.earliest.size:
            matched, rows, compared = extend(state, index.slots, index.times, index.order, *probes, CHUNK, self.once)
            self.tally(level, compared)
            yield matched, rows

    def tally(self, level: int, compared: int) -> None:
        """Count rows that partial matches of `level` inputs were compared with."""
        self.compared += compared

    def _slots(self, path: AccessPath, partial: PartialMatches, via: int, reach: float) -> tuple[Codes, Codes]:
        """The first and the last slot in which each partial match looks."""
        source, rows = self.inputs[via], partial[via]
        if path.kind == "group":
            slots = source.group[rows]
            return slots, slots
        if path.kind == "equality":
            slots = source.ranges(ConditionKey("equality", path.number))[0][rows]
            return slots, slots
        if path.kind == "bucket":
            comparison = self.spec.comparisons[path.number]
            ends = [codes[rows] for codes in source.ranges(ConditionKey("comparison", path.number))]
            low, high = (float_values(codes, comparison.axis.kind) for codes in ends)
            width = comparison.bucket_width
            if via == comparison.point_side:
                # Ranges that hold the point begin at most the widest range below it.
                with np.errstate(invalid="ignore"):
                    low = np.nextafter(low - reach, -np.inf)
            first, last = buckets(low, width), buckets(high, width)
            # An empty range holds nothing, whatever its ends become as floats.
            return first, np.where(ends[0] > ends[1], np.iinfo(np.int64).min, last)
        none = np.zeros(rows.size, dtype=np.int64)
        return none, none

    def _checks(self, side: int, chosen: tuple[int, ...], path: AccessPath) -> list[tuple[ConditionKey, int]]:
        """Conditions between `side` and the chosen inputs that the access path does not settle."""
        spec = self.spec
        checks: list[tuple[ConditionKey, int]] = []
        if not (path == BY_GROUP and len(spec.classes) == 1):
            checks += [(ConditionKey("class", number), chosen[0]) for number in range(len(spec.classes))]
        if spec.grid is not None:
            checks.append((SAME_SLICE, chosen[0]))
        for number, equality in enumerate(spec.equalities):
            if side in equality.sides and path != AccessPath("equality", number):
                other = equality.sides[1 - equality.sides.index(side)]
                if other in chosen:
                    checks.append((ConditionKey("equality", number), other))
        for number, comparison in enumerate(spec.comparisons):
            pair = (comparison.point_side, comparison.box_side)
            if side in pair and comparison.axis.kind != "rank":
                other = pair[1 - pair.index(side)]
                if other in chosen:
                    checks.append((ConditionKey("comparison", number), other))
        return checks

    def _checked(self, partial: PartialMatches) -> PartialMatches:
        """Matches that pass what only whole matches, or the values themselves, can tell."""
        kept = residual_mask(self.spec, self.inputs, partial)
        return partial if kept is None else {side: rows[kept] for side, rows in partial.items()}

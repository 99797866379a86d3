"""Finding matches: partial matches grow by one input at a time, through an index of time within keys or values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.columns.codes import Codes
from dovetail.families.window.compiled import extend
from dovetail.families.window.encode import Index, buckets, code_values
from dovetail.families.window.pieces import Partial, Pile, Sorted, Way, bucket_width, is_band, moved
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.verdict import verdict

CHUNK = 1 << 18
"""Matches found at a time."""
BLOCK = 1 << 16
"""Partial matches that grow at a time: what one level of a join holds in memory."""


class Looks(NamedTuple):
    """Where partial matches look into one piece, and what its rows and theirs have to agree on."""

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
    """One search for matches among piles; `compared` counts rows that were looked at."""

    spec: WindowJoinSpec
    piles: list[Pile]
    compared: int = 0

    def matches(self, start: int, rows: Index | None = None) -> Iterator[Partial]:
        """Matches of all inputs, beginning with every row of the pile `start`, or with some of them."""
        pile = self.piles[start]
        if any(other.size == 0 for other in self.piles):
            return
        # Neighbours in key and time look up neighbours: in that order searches stay within a cache's reach.
        if rows is None:
            order = np.lexsort((pile.times, pile.group))
        else:
            order = rows[np.lexsort((pile.times[rows], pile.group[rows]))]
        for begin in range(0, order.size, BLOCK):
            yield from self._grown({start: order[begin : begin + BLOCK]})

    def _grown(self, partial: Partial) -> Iterator[Partial]:
        if len(partial) == len(self.piles):
            kept = self._checked(partial)
            if next(iter(kept.values())).size:
                yield kept
            return
        side, way, via = self.next_input(tuple(partial))
        for found in self._extended(partial, side, way, via):
            size = next(iter(found.values())).size
            for begin in range(0, size, BLOCK):
                yield from self._grown({s: rows[begin : begin + BLOCK] for s, rows in found.items()})

    def next_input(self, chosen: tuple[int, ...]) -> tuple[int, Way, int]:
        """The input to look up next, how, and from which of those chosen: equality before band before time alone.

        Among equals the one with the fewest rows within its window goes first.
        """
        hull = self.spec.hull
        options = []
        for side in self.spec.sides:
            if side in chosen:
                continue
            rank, way, via = self._best_way(side, chosen)
            within = min(float(hull[other, side, 1]) - float(hull[other, side, 0]) for other in chosen)
            pile = self.piles[side]
            span = max(1.0, float(pile.times.max()) - float(pile.times.min())) if pile.size else 1.0
            options.append((rank, pile.size * min(1.0, within / span), side, way, via))
        _, _, side, way, via = min(options)
        return side, way, via

    def _best_way(self, side: int, chosen: tuple[int, ...]) -> tuple[int, Way, int]:
        if self.spec.classes:
            return 0, ("group", 0), chosen[0]
        for at, equality in enumerate(self.spec.equalities):
            if side in equality.sides:
                other = equality.sides[1 - equality.sides.index(side)]
                if other in chosen:
                    return 1, ("equality", at), other
        for at, comparison in enumerate(self.spec.comparisons):
            pair = (comparison.point_side, comparison.box_side)
            if is_band(comparison) and side in pair:
                other = pair[1 - pair.index(side)]
                if other in chosen:
                    return 2, ("bucket", at), other
        return 3, ("time", 0), chosen[0]

    def _extended(self, partial: Partial, side: int, way: Way, via: int) -> Iterator[Partial]:
        size = partial[via].size
        checks = self._checks(side, tuple(partial), way)
        partial_low = np.empty((len(checks), size), dtype=np.int64)
        partial_high = np.empty_like(partial_low)
        for c, (condition, other) in enumerate(checks):
            low, high = self.piles[other].ranges(condition)
            partial_low[c], partial_high[c] = low[partial[other]], high[partial[other]]
        for earliest, latest in self.time_ranges(partial, side):
            begin, end = earliest.min(initial=np.iinfo(np.int64).max), latest.max(initial=np.iinfo(np.int64).min)
            for start, piece in zip(self.piles[side].starts[:-1].tolist(), self.piles[side].pieces, strict=True):
                if piece.size == 0 or piece.span[0] > end or piece.span[1] < begin:
                    continue
                index = piece.sorted(way)
                first, last = self._slots(way, partial, via, index.reach)
                rows = index.ranges(piece, tuple(condition for condition, _ in checks))
                looks = Looks(first, last, earliest, latest, *rows, partial_low, partial_high)
                for at, found in self.walk(len(partial), index, looks):
                    if at.size:
                        yield {**{s: r[at] for s, r in partial.items()}, side: found + start}

    def time_ranges(self, partial: Partial, side: int) -> Iterator[tuple[Index, Index]]:
        """The earliest and the latest time that each partial match looks for, once for every range of times."""
        hull = self.spec.hull
        size = next(iter(partial.values())).size
        earliest, latest = np.full(size, np.iinfo(np.int64).min), np.full(size, np.iinfo(np.int64).max)
        for other, rows in partial.items():
            times = self.piles[other].times[rows]
            np.maximum(earliest, moved(times, int(hull[other, side, 0])), out=earliest)
            np.minimum(latest, moved(times, int(hull[other, side, 1])), out=latest)
        yield earliest, latest

    def walk(self, level: int, index: Sorted, looks: Looks) -> Iterator[tuple[Index, Index]]:
        """Partial matches and the rows of a piece that extend them; `level` inputs are matched so far."""
        state = np.array([0, 0, -1, 0], dtype=np.int64)
        while state[0] < looks.earliest.size:
            at, rows, compared = extend(state, index.slots, index.times, index.order, *looks, CHUNK)
            self.tally(level, compared)
            yield at, rows

    def tally(self, level: int, compared: int) -> None:
        """Count rows that partial matches of `level` inputs were compared with."""
        self.compared += compared

    def _slots(self, way: Way, partial: Partial, via: int, reach: float) -> tuple[Codes, Codes]:
        """The first and the last slot in which each partial match looks."""
        kind, at = way
        pile, rows = self.piles[via], partial[via]
        if kind == "group":
            slots = pile.group[rows]
            return slots, slots
        if kind == "equality":
            slots = pile.ranges(("e", at))[0][rows]
            return slots, slots
        if kind == "bucket":
            comparison = self.spec.comparisons[at]
            low, high = (code_values(codes[rows], comparison.axis.kind) for codes in pile.ranges(("c", at)))
            width = bucket_width(comparison)
            if via == comparison.point_side:
                # Ranges that hold the point begin at most the widest range below it.
                with np.errstate(invalid="ignore"):
                    low = np.nextafter(low - reach, -np.inf)
            first, last = buckets(low, width), buckets(high, width)
            # An empty range holds nothing, whatever its ends become as floats.
            codes_low, codes_high = (codes[rows] for codes in pile.ranges(("c", at)))
            return first, np.where(codes_low > codes_high, np.iinfo(np.int64).min, last)
        none = np.zeros(rows.size, dtype=np.int64)
        return none, none

    def _checks(self, side: int, chosen: tuple[int, ...], way: Way) -> list[tuple[tuple[str, int], int]]:
        """Conditions between `side` and the chosen inputs that the way of looking up does not settle."""
        spec = self.spec
        checks: list[tuple[tuple[str, int], int]] = []
        if not (way[0] == "group" and len(spec.classes) == 1):
            checks += [(("q", at), chosen[0]) for at in range(len(spec.classes))]
        if spec.grid is not None:
            checks.append((("s", 0), chosen[0]))
        for at, equality in enumerate(spec.equalities):
            if side in equality.sides and way != ("equality", at):
                other = equality.sides[1 - equality.sides.index(side)]
                if other in chosen:
                    checks.append((("e", at), other))
        for at, comparison in enumerate(spec.comparisons):
            pair = (comparison.point_side, comparison.box_side)
            if side in pair and comparison.axis.kind != "rank":
                other = pair[1 - pair.index(side)]
                if other in chosen:
                    checks.append((("c", at), other))
        return checks

    def _checked(self, partial: Partial) -> Partial:
        """Matches that pass what only whole matches, or the values themselves, can tell."""
        kept = verdict(self.spec, self.piles, partial)
        return partial if kept is None else {side: rows[kept] for side, rows in partial.items()}


__all__ = ["BLOCK", "CHUNK", "Looks", "Search"]

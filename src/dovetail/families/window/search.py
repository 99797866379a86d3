"""Finding matches: partial matches grow by one input at a time, through an index of time within keys or values.

A :class:`Piece` is some rows of one input, a :class:`Pile` all pieces of an input.  A piece is sorted on demand, once
for each way to look it up, and stays sorted as long as a worker remembers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.codes import Codes, Mask, joint_codes
from dovetail.families.window.compiled import extend
from dovetail.families.window.encode import Encoded, Index, buckets, code_values, encode_rows, key_arrays
from dovetail.families.window.spec import PairComparison, WindowJoinSpec
from dovetail.segments import concat

CHUNK = 1 << 18
"""Matches found at a time."""
BLOCK = 1 << 16
"""Partial matches that grow at a time: what one level of a join holds in memory."""

Partial: TypeAlias = "dict[int, Index]"
Way = tuple[str, int]
"""How an input is looked up: ("group", 0), ("equality", e), ("bucket", c) or ("time", 0)."""


@dataclass(frozen=True)
class Sorted:
    """A piece in the order of (slot, time)."""

    order: Index
    slots: Codes
    times: Index
    reach: float = 0.0
    """The widest range of the piece, where slots are buckets of lower ends."""
    held: dict[tuple[tuple[str, int], ...], tuple[Codes, Codes]] = field(default_factory=dict)

    def ranges(self, piece: Piece, conditions: tuple[tuple[str, int], ...]) -> tuple[Codes, Codes]:
        """The ranges of some conditions in this order, each of shape (conditions, rows)."""
        if conditions not in self.held:
            low = np.empty((len(conditions), piece.size), dtype=np.int64)
            high = np.empty_like(low)
            for c, condition in enumerate(conditions):
                low[c], high[c] = piece.codes.low[condition][self.order], piece.codes.high[condition][self.order]
            self.held[conditions] = low, high
        return self.held[conditions]


@dataclass
class Piece:
    """Rows of one input and, once asked for, their codes and orders."""

    spec: WindowJoinSpec
    side: int
    rows: pa.RecordBatch
    orders: dict[Way, Sorted] = field(default_factory=dict)

    @cached_property
    def codes(self) -> Encoded:
        """The rows in numbers."""
        return encode_rows(self.spec, self.side, self.rows)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.num_rows

    def sorted(self, way: Way) -> Sorted:
        """The rows in the order that a way of looking up needs."""
        if way not in self.orders:
            slots, reach = self._slots(way)
            order = np.lexsort((self.codes.times, slots))
            self.orders[way] = Sorted(order, slots[order], self.codes.times[order], reach)
        return self.orders[way]

    def _slots(self, way: Way) -> tuple[Codes, float]:
        kind, at = way
        codes = self.codes
        if kind == "group":
            return codes.group, 0.0
        if kind == "equality":
            return codes.low["e", at], 0.0
        if kind == "bucket":
            comparison = self.spec.comparisons[at]
            low = code_values(codes.low["c", at], comparison.axis.kind)
            if self.side == comparison.point_side:
                return buckets(low, bucket_width(comparison)), 0.0
            high = code_values(codes.high["c", at], comparison.axis.kind)
            with np.errstate(invalid="ignore"):
                widths = high - low
            widest = float(np.max(widths[np.isfinite(widths)], initial=0.0))
            return buckets(low, bucket_width(comparison)), float(np.nextafter(widest, np.inf))
        return np.zeros(len(codes), dtype=np.int64), 0.0


def is_band(comparison: PairComparison) -> bool:
    """Whether a comparison bounds a difference on both ends, which makes values worth an index."""
    axis = comparison.axis
    ends = (axis.low, axis.high)
    return axis.kind != "rank" and all(end is not None and end.shift is not None for end in ends)


def bucket_width(comparison: PairComparison) -> float:
    """Buckets as wide as the band, so that a range touches two or three."""
    low, high = comparison.axis.low, comparison.axis.high
    assert low is not None
    assert high is not None
    width = float(high.shift or 0) - float(low.shift or 0)
    return width if width > 0 and np.isfinite(width) else 1.0


@dataclass
class Pile:
    """The pieces of one input, their rows numbered through."""

    pieces: list[Piece]

    @cached_property
    def starts(self) -> Index:
        """The number of the first row of each piece, and the number of rows."""
        return np.concatenate([[0], np.cumsum([piece.size for piece in self.pieces])]).astype(np.int64)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return int(self.starts[-1])

    @cached_property
    def times(self) -> Index:
        """The times of all rows."""
        return _joined([piece.codes.times for piece in self.pieces])

    @cached_property
    def group(self) -> Codes:
        """The codes of the equality classes."""
        return _joined([piece.codes.group for piece in self.pieces])

    def ranges(self, condition: tuple[str, int]) -> tuple[Codes, Codes]:
        """The ranges of a condition over all rows."""
        if condition not in self._ranges:
            low = _joined([piece.codes.low[condition] for piece in self.pieces])
            high = _joined([piece.codes.high[condition] for piece in self.pieces])
            self._ranges[condition] = low, high
        return self._ranges[condition]

    @cached_property
    def _ranges(self) -> dict[tuple[str, int], tuple[Codes, Codes]]:
        return {}

    def take(self, columns: Sequence[int], rows: Index) -> pa.RecordBatch:
        """Some columns of some rows, in the order asked for."""
        parts = [piece.rows.select(list(columns)) for piece in self.pieces]
        if len(parts) == 1:
            return parts[0].take(rows)
        if self.size <= 4 * rows.size:
            return concat(parts).take(rows)
        # Few of many rows: gathering them piece by piece spares copying the pieces together.
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(parts) + 1))
        gathered = [
            parts[at].take(rows[order[bounds[at] : bounds[at + 1]]] - self.starts[at])
            for at in range(len(parts))
            if bounds[at] < bounds[at + 1]
        ]
        back = np.empty(rows.size, dtype=np.int64)
        back[order] = np.arange(rows.size)
        return concat(gathered).take(back) if gathered else parts[0].slice(0, 0)


def moved(times: Index, by: int) -> Index:
    """Times moved by a window's end; those that would leave 64 bits stop at the last number."""
    with np.errstate(over="ignore"):
        there = times + np.int64(by)
    if by > 0:
        there[there < times] = np.iinfo(np.int64).max
    elif by < 0:
        there[there > times] = np.iinfo(np.int64).min
    return there


def _joined(arrays: list[Index]) -> Index:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *arrays])


@dataclass
class Search:
    """One search for matches among piles; `compared` counts rows that were looked at."""

    spec: WindowJoinSpec
    piles: list[Pile]
    compared: int = 0

    def matches(self, start: int) -> Iterator[Partial]:
        """Matches of all inputs, beginning with every row of the pile `start`."""
        pile = self.piles[start]
        if any(other.size == 0 for other in self.piles):
            return
        # Neighbours in key and time look up neighbours: in that order searches stay within a cache's reach.
        order = np.lexsort((pile.times, pile.group))
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
            within = min(float(hull[other, side, 1] - hull[other, side, 0]) for other in chosen)
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
        hull = self.spec.hull
        size = partial[via].size
        earliest, latest = np.full(size, np.iinfo(np.int64).min), np.full(size, np.iinfo(np.int64).max)
        for other, rows in partial.items():
            times = self.piles[other].times[rows]
            np.maximum(earliest, moved(times, int(hull[other, side, 0])), out=earliest)
            np.minimum(latest, moved(times, int(hull[other, side, 1])), out=latest)
        checks = self._checks(side, tuple(partial), way)
        partial_low = np.empty((len(checks), size), dtype=np.int64)
        partial_high = np.empty_like(partial_low)
        for c, (condition, other) in enumerate(checks):
            low, high = self.piles[other].ranges(condition)
            partial_low[c], partial_high[c] = low[partial[other]], high[partial[other]]
        for start, piece in zip(self.piles[side].starts[:-1].tolist(), self.piles[side].pieces, strict=True):
            if piece.size == 0:
                continue
            index = piece.sorted(way)
            first, last = self._slots(way, partial, via, index.reach)
            row_low, row_high = index.ranges(piece, tuple(condition for condition, _ in checks))
            state = np.array([0, 0, -1, 0], dtype=np.int64)
            while state[0] < size:
                at, rows, compared = extend(
                    state, index.slots, index.times, index.order, first, last, earliest, latest,
                    row_low, row_high, partial_low, partial_high, CHUNK,
                )  # fmt: skip
                self.compared += compared
                if at.size:
                    yield {**{s: r[at] for s, r in partial.items()}, side: rows + start}

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


def verdict(spec: WindowJoinSpec, piles: Sequence[Pile], partial: Partial) -> Mask | None:
    """Which candidates are matches, where codes and the hull of the windows leave it open; None for all."""
    kept: Mask | None = None
    alternatives = spec.graph.alternatives
    if len(alternatives) > 1:
        times = np.stack([piles[side].times[partial[side]] for side in spec.sides])
        apart = times[None, :, :] - times[:, None, :]
        fits = (apart >= alternatives[:, :, :, 0, None]) & (apart <= alternatives[:, :, :, 1, None])
        kept = np.asarray(fits.all(axis=(1, 2)).any(axis=0), dtype=np.bool_)
    for sides, keys in _texts(spec):
        both = zip(sides, keys, strict=True)
        columns = [_key_column(spec, piles[side], side, key, partial[side]) for side, key in both]
        same = pc.equal(*columns).to_numpy(zero_copy_only=False).astype(np.bool_)
        kept = same if kept is None else kept & same
    for comparison in spec.comparisons:
        if comparison.axis.kind == "rank":
            fits_rank = _ranked(spec, piles, partial, comparison)
            kept = fits_rank if kept is None else kept & fits_rank
    return kept


def _texts(spec: WindowJoinSpec) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Equalities whose codes are hashes, two inputs at a time."""
    for found in spec.classes:
        if found.kind == "rank":
            for side in spec.sides[1:]:
                yield (0, side), (found.members[0], found.members[side])
    for equality in spec.equalities:
        if equality.kind == "rank":
            yield equality.sides, equality.keys


def _key_column(spec: WindowJoinSpec, pile: Pile, side: int, key: int, rows: Index) -> pa.Array:  # type: ignore[type-arg]
    source = spec.sources[side][key]
    if source is None:
        source = spec.payload[side] + sum(s is None for s in spec.sources[side][:key])
    return pile.take([source], rows).column(0)


def _ranked(spec: WindowJoinSpec, piles: Sequence[Pile], partial: Partial, comparison: PairComparison) -> Mask:
    """An inequality of texts or wide decimals, on candidates."""
    point_side, box_side, axis = comparison.point_side, comparison.box_side, comparison.axis
    point = _key_column(spec, piles[point_side], point_side, axis.point, partial[point_side])
    kept = np.ones(len(point), dtype=np.bool_)
    for end, is_low in ((axis.low, True), (axis.high, False)):
        if end is None:
            continue
        bound = _key_column(spec, piles[box_side], box_side, end.key, partial[box_side])
        here, there = joint_codes(point, bound)
        if is_low:
            kept &= here > there if end.strict else here >= there
        else:
            kept &= here < there if end.strict else here <= there
    return kept


__all__ = ["BLOCK", "CHUNK", "Partial", "Piece", "Pile", "Search", "key_arrays", "verdict"]

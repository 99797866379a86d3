"""Scouting: a sample of the pairs that Spark judges first, where only Spark can tell which pairs are results.

    a sample of the rows -> scout: pairs -> Spark's condition -> results of the sample ┐
    all rows ──────────────────────────────────────────────────────────────────────────┴> harvest -> Spark's condition

Harvesting must know where *results* are (section 5.2: scores come from output tuples), and Spark evaluates a condition
after the operator that would have to learn from it.  What it learns from is a sample in any case, the output of window
shredding.  So the sample has an operator of its own, before the one that harvests: its pairs are judged on the way
from the one to the other, in the same micro-batch.  Nothing that the scout finds comes out of the join; it only tells
where to look.

The scout shreds as the paper does, one row in ten through whole windows.  Where the paper thins out a window while it
is looked at, rows are thinned out before they are stored: the sample is all that the scout's state holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.hashing import GOLDEN
from dovetail.columns.layout import CELL, EVENT_TIME, ROW, TURN, WEIGHT, columns_of, input_payload
from dovetail.families.shedding.control import arrays_of, numbers_segment
from dovetail.families.shedding.inventory import SCOUTING as SEGMENT
from dovetail.families.shedding.kernel import ShredSearch
from dovetail.families.shedding.memory import amount
from dovetail.families.shedding.optimizer.model import Floats
from dovetail.families.shedding.optimizer.orders import join_orders
from dovetail.families.shedding.optimizer.statistics import links
from dovetail.families.shedding.spec import Harvest
from dovetail.families.window.encode import Index, shifted, time_codes
from dovetail.families.window.indexes import BY_TIME, IndexedInput, IndexedSegment
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.state import StoredSegment
from dovetail.families.window.stream import MatchBatch, NewRows, WindowJoinKernel
from dovetail.family import Changes

THINNED = 0.2
"""The part of a row's matches that is left once the rows of the windows are thinned out."""
MOST_PAIRS = 20_000
"""Pairs of one direction that Spark judges in one cell and micro-batch, or nearly so: enough to know where results are,
and a few hundredths of a second of Spark's time.
"""
SCOUT_SHARE = 0.2
"""The part of a memory limit that the scout may take."""
SCOUTING = ("scouted_pairs", "scout_rows", "scout_bytes")
"""The counters of a scout: pairs for Spark to judge, rows of its sample, and what they take."""


def kept_rate(inputs: int) -> float:
    """The part of the rows that a scout holds in its windows.

    Examples
    --------
    >>> kept_rate(2), round(kept_rate(3), 3)
    (0.2, 0.447)
    """
    return float(THINNED ** (1 / (inputs - 1)))


def scout_columns(spec: WindowJoinSpec) -> list[tuple[str, pa.DataType]]:
    """What a scout gives: the payload of every input for Spark to judge, then what :func:`told_columns` names."""
    payload = [
        (name, kind)
        for side in spec.sides
        for name, kind in zip(columns_of(input_payload(side), spec.payload[side]), spec.types[side], strict=True)
    ]
    return payload + told_columns(spec)


def told_columns(spec: WindowJoinSpec) -> list[tuple[str, pa.DataType]]:
    """What goes on to the harvest, of results: the cell, the direction, the row that drives it, what a result stands
    for, and the time of every input.
    """
    numbers: list[tuple[str, pa.DataType]] = [(CELL, pa.int64()), (TURN, pa.int64()), (ROW, pa.int64())]
    times: list[tuple[str, pa.DataType]] = [(name, pa.int64()) for name in columns_of(EVENT_TIME, len(spec.aliases))]
    return [*numbers, (WEIGHT, pa.float64()), *times]


@dataclass(frozen=True)
class ScoutRouter(WindowRouter):
    """The router of a window join, for a sample of the rows."""

    sample: float = 0.1
    """The part of the rows that shred."""
    seed: int = 0

    def parts(self, block: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each cell that are in the sample, to shred or to stay in a window."""
        kept = kept_rate(len(self.spec.aliases))
        times = time_codes(block.column(self.spec.times[self.side]))
        chosen = drawn(times, self.side, self.seed) < self.sample + kept - self.sample * kept
        return super().parts(block.filter(pa.array(chosen)))


def drawn(times: Index, side: int, seed: int) -> Floats:
    """A number in [0, 1) for each row of a block, the same whenever its micro-batch runs again.

    It goes by the time and the position of a row: rows in the same order in every micro-batch have other times.
    """
    with np.errstate(over="ignore"):
        mixed = np.add(times.view(np.uint64) * GOLDEN, np.arange(times.size), dtype=np.uint64, casting="unsafe")
        mixed += np.uint64((seed * 1_000_003 + side * 7919) & (2**64 - 1))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = np.multiply(mixed ^ (mixed >> np.uint64(shift)), np.uint64(factor), dtype=np.uint64)
    return np.asarray(((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53)


@dataclass
class ScoutKernel(WindowJoinKernel):
    """The scout of one cell; see :class:`dovetail.family.StreamKernel`.  Its spec is that of an inner join."""

    shed: Harvest = field(default_factory=Harvest)
    cell: int = 0
    """The number of the cell, in which the harvest hears of the results."""

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the sample."""
        super().restore(state, watermark)
        self.counters |= dict.fromkeys(SCOUTING, 0)
        m = len(self.spec.aliases)
        known = arrays_of(state[SEGMENT]) if SEGMENT in state else {}
        self._call = int(known.get("call", np.zeros(())))
        # Pairs for each row of the first window that a driving row reaches; NaN before anything is known.
        self._fanout = known.get("fanout", np.full(m, np.nan))
        self._random = np.random.default_rng([self.shed.seed, self._call, 1])
        self._drivers: list[IndexedSegment | None] = [None] * m
        self._orders = join_orders(np.zeros((m, m)), links(self.spec))
        self._turn, self._part = 0, 1.0

    def changes(self) -> Changes:
        """What to store and what to forget."""
        changes = super().changes()
        names = self.spec.aliases
        self.counters["scouted_pairs"] = self.counters["candidates"]
        self.counters["scout_rows"] = sum(self.counters[f"held_rows_{alias}"] for alias in names)
        self.counters["scout_bytes"] = sum(self.counters[f"state_bytes_{alias}"] for alias in names)
        control = {"call": np.asarray(float(self._call + 1)), "fanout": self._fanout}
        changes.stored[SEGMENT] = numbers_segment(control)
        return changes

    # ----------------------------------------------------------------------------------------------------------

    def _new_rows(self, side: int) -> NewRows | None:
        """New rows that stay in the windows; beside them those that shred."""
        arrived = super()._new_rows(side)
        if arrived is None:
            return None
        rows, sample, kept = arrived.segment.rows, self.shed.sample_fraction, kept_rate(len(self.spec.aliases))
        # The router let through what does one or the other; which of them, or both, is drawn here.
        draw = self._random.random(rows.num_rows) * (sample + kept - sample * kept)
        shredding = np.flatnonzero(draw < sample)
        if shredding.size:
            self._drivers[side] = IndexedSegment(self.spec, side, rows.take(shredding))
        stays = rows.take(np.flatnonzero(draw >= sample * (1 - kept)))
        if stays.num_rows == 0:
            return None
        stays = stays.append_column(WEIGHT, pa.array(np.full(stays.num_rows, 1 / kept)))
        return NewRows(IndexedSegment(self.spec, side, stays), np.zeros(stays.num_rows, dtype=np.bool_))

    def _find_matches(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        """Pairs of rows that shred, with the sample of the windows that the harvest's rows would have before them."""
        for turn, drivers in enumerate(self._drivers):
            if drivers is None:
                continue
            inputs = []
            for side in self.spec.sides:
                segments = [drivers] if side == turn else [self._state.indexed(segment) for segment in stored[side]]
                arrived = new[side]
                inputs.append(IndexedInput(segments + ([arrived.segment] if arrived and side < turn else [])))
            if not all(rows.segments for rows in inputs):
                continue
            reached = self._reached(turn, inputs)
            self._turn, self._part = turn, min(1.0, MOST_PAIRS / max(reached * self._pairs_each(turn, inputs), 1.0))
            order = tuple(int(side) for side in self._orders[turn])
            search = ShredSearch(self.spec, inputs, driver=turn, order=order, part=self._part, random=self._random)
            for matches in search.matches(turn):
                yield MatchBatch(inputs, matches, [])
            self.counters["comparisons"] += search.compared
            if reached:
                seen = (search.found[-1] / self._part + 1) / (reached + 1)
                before = self._fanout[turn]
                self._fanout[turn] = seen if np.isnan(before) else max(seen, (before + seen) / 2)

    def _reached(self, turn: int, inputs: list[IndexedInput]) -> float:
        """Pairs of a driving row and a row in the first window it looks into."""
        first = int(self._orders[turn][0])
        times, hull = inputs[turn].times, self.spec.hull
        total = 0
        for segment in inputs[first].segments:
            if segment.size:
                ordered = segment.index(BY_TIME).times
                begin = np.searchsorted(ordered, shifted(times, int(hull[turn, first, 0])), side="left")
                end = np.searchsorted(ordered, shifted(times, int(hull[turn, first, 1])), side="right")
                total += int((end - begin).sum())
        return float(total)

    def _pairs_each(self, turn: int, inputs: list[IndexedInput]) -> float:
        """What each of these is expected to give; before anything is known, as if every other row fitted."""
        if not np.isnan(self._fanout[turn]):
            return float(self._fanout[turn])
        return float(np.prod([float(inputs[int(side)].size) for side in self._orders[turn][1:]]))

    def _emit(self, batch: MatchBatch, new: list[NewRows | None]) -> pa.RecordBatch | None:
        inputs, matches, _ = batch
        spec, turn = self.spec, self._turn
        count = matches[turn].size
        if not count:
            return None
        weight = np.full(count, 1 / self._part)
        columns: list[pa.Array[Any]] = []
        for side in spec.sides:
            columns += inputs[side].take(range(spec.payload[side]), matches[side]).columns
            if side != turn:
                last = inputs[side].segments[0].rows.num_columns - 1
                weight *= inputs[side].take([last], matches[side]).column(0).to_numpy()
        numbers = (np.full(count, self.cell), np.full(count, turn), matches[turn])
        columns += [pa.array(values, pa.int64()) for values in numbers]
        columns.append(pa.array(weight))
        columns += [pa.array(inputs[side].times[matches[side]], pa.int64()) for side in spec.sides]
        return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in scout_columns(spec)])

    def _update_state(self, new: list[NewRows | None]) -> None:
        super()._update_state(new)
        limit = self.shed.limit
        if limit is None:
            return
        most = SCOUT_SHARE * limit.amount / self.spec.cells
        while self._state.segments and sum(amount(stored, limit.unit) for stored in self._state.segments) > most:
            self._thin()

    def _thin(self) -> None:
        """Keep about half of the sample, of which each row then stands for twice as much."""
        for stored in list(self._state.segments):
            rows = self._state.indexed(stored).rows
            rows = rows.filter(pa.array(self._random.random(rows.num_rows) < 0.5))
            doubled = pa.array(2.0 * rows.column(WEIGHT).to_numpy())
            self._state.evict(stored)
            rows = rows.set_column(rows.num_columns - 1, WEIGHT, doubled)
            self._state.add(stored.side, rows, time_codes(rows.column(self.spec.times[stored.side])), None)

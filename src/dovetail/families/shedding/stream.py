"""The streaming kernels of window joins that shed load: what they have in common, and the harvesting of windows.

Harvesting and dropping (`stream_drop.py`) are the window join's own kernel.  What they change is where partial matches
look, and which rows come in; so with the throttle at 1 they give what it gives, and otherwise a subset of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.columns.layout import PACKED_AT_HEADER
from dovetail.families.shedding import unmet
from dovetail.families.shedding.budget import Budget, Portion, Portions
from dovetail.families.shedding.control import Control, Pace, WallPace
from dovetail.families.shedding.inventory import CONTROL
from dovetail.families.shedding.kernel import HarvestSearch, ShredSearch
from dovetail.families.shedding.memory import (
    SHARE,
    EvictedSample,
    amount,
    looked_at_since,
    match_weights,
    segment_value,
)
from dovetail.families.shedding.optimizer.fractions import harvest_counts
from dovetail.families.shedding.optimizer.model import INDEXED, NESTED, Costs, Flags, Floats, Ints
from dovetail.families.shedding.optimizer.orders import beginning_with, steady_orders
from dovetail.families.shedding.recall import Missed, Sample, missed_matches
from dovetail.families.shedding.slices import Slices, slice_rows
from dovetail.families.shedding.spec import Harvest, Shed
from dovetail.families.window.encode import Index
from dovetail.families.window.indexes import BY_TIME, IndexedInput, PartialMatches
from dovetail.families.window.state import StoredSegment
from dovetail.families.window.stream import MatchBatch, NewRows, Origins, WindowJoinKernel
from dovetail.families.window.stream import metric_names as window_metrics
from dovetail.family import Changes

MILLION = 1_000_000
Turn: TypeAlias = tuple[int, list[IndexedInput], Origins]
"""An input, the rows that meet in its turn, and where they come from."""
TOTALS = ("throttle", "shredded", "work", "work_full", "rows_dropped", "rows_forgotten")
RECALL = ("missed", "missed_variance", "missed_event")


def shed_metrics(aliases: Sequence[str], slices: Slices) -> tuple[str, ...]:
    """The counters of a cell that sheds: those of a window join, what was shed, and the slices looked at."""
    each = [name for names in slice_metrics(aliases, slices).values() for name in names]
    return (*window_metrics(aliases), *TOTALS, *RECALL, *each)


def slice_metrics(aliases: Sequence[str], slices: Slices) -> dict[tuple[int, int], list[str]]:
    """For each direction and window the counters that say which slices were looked at, youngest first."""
    return {
        (i, side): [f"harvest_{aliases[i]}_{aliases[side]}_{k}" for k in range(int(slices.counts[i, side]))]
        for i, side in permutations(range(len(aliases)), 2)
    }


@dataclass
class SheddingKernel(WindowJoinKernel):
    """What harvesting and dropping share: the throttle, the join orders and the accounting."""

    shed: Shed = field(default_factory=Harvest)
    slices: Slices | None = None
    pace: Pace | None = None
    """Decides the throttle; None for the wall clock."""
    costs: Costs = INDEXED
    timed: Costs = INDEXED
    """What takes time, of which the throttle learns how much."""
    seconds: Callable[[], float] = time.perf_counter
    """The clock that joining is measured by."""
    divisible: ClassVar[bool] = False
    """Whether the throttle can change while a micro-batch is joined."""

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state."""
        super().restore(state, watermark)
        self._slices = self.slices or Slices.of(self.spec.hull)
        self._scan = self.spec.options.algorithm == "nested"
        if self._scan:
            self.costs = NESTED
        self.counters = dict.fromkeys(shed_metrics(self.spec.aliases, self._slices), 0) | {"cells": 1}
        self.control = Control.load(self._slices, state)
        self.missed = Missed()
        self.work = 0.0
        self.effort = 0.0
        self.joined = 0.0
        self._present: tuple[Floats, Floats] | None = None
        self._began: int | None = None
        self._portions = Portions()
        self._random = np.random.default_rng([self.shed.seed, self.control.call])

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows, or a header that says how far an input has come and when its packing began."""
        metadata = rows.schema.metadata or {}
        if PACKED_AT_HEADER in metadata:
            began = int(metadata[PACKED_AT_HEADER])
            self._began = began if self._began is None else min(began, self._began)
        super().push(side, rows)

    def changes(self) -> Changes:
        """What to store and what to forget."""
        changes = super().changes()
        control = self.control
        control.call += 1
        if isinstance(self._pace, WallPace):
            self._pace.done(control, self.joined, self.effort)
            if control.wall.calls > 1 and self.shed.throttle is None:
                took = control.wall.ended - control.wall.began + control.wall.outside
                unmet.observe(self.spec.aliases, self.shed.target, control.call, took, self.joined)
        self.counters["throttle"] = round(control.z * MILLION)
        self.counters["work"] = round(self.work)
        values = (self.missed.total, self.missed.variance, self.missed.event)
        self.counters |= {name: min(round(value), 1 << 60) for name, value in zip(RECALL, values, strict=True)}
        changes.stored[CONTROL] = control.batch()
        return changes

    # ----------------------------------------------------------------------------------------------------------

    def _find_matches(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        began = self.seconds()
        turns = list(self._turns(new, stored))
        self._pace = self.pace or WallPace(self.shed, None if self._began is None else self._began / MILLION)
        z = self._pace.decide(self.control, lambda: self._full_work(turns))
        if z is not None:
            self._adapt(z)
        budget = self._pace.budget(self.control) if self.divisible else None
        if budget is not None and budget.divides(self.control.z, sum(inputs[turn].size for turn, inputs, _ in turns)):
            yield from self._in_portions(turns, budget)
        else:
            self._portions.portions.append(Portion(0.0, 1.0, self.control.z, self.control.selected))
            for turn, inputs, origins in turns:
                for searched, matches in self._matches(turn, inputs, np.arange(inputs[turn].size)):
                    yield MatchBatch(searched, matches, origins)
        # Passing results on is part of it: fewer matches, less to pass on.
        self.joined = self.seconds() - began

    def _in_portions(self, turns: list[Turn], budget: Budget) -> Iterator[MatchBatch]:
        """Matches of a micro-batch that may have to shed more, or less, than was decided before it."""
        control, portions = self.control, self._portions
        orders = {turn: inputs[turn].order(BY_TIME) for turn, inputs, _ in turns}
        portions.times = {turn: inputs[turn].times[orders[turn]] for turn, inputs, _ in turns}
        while budget.done < 1.0:
            portion = Portion(budget.done, budget.next_end(control.z), control.z, control.selected)
            began, before = self.seconds(), self.effort
            for turn, inputs, origins in turns:
                rows = portion.rows(orders[turn])
                if rows.size:
                    for searched, matches in self._matches(turn, inputs, rows):
                        yield MatchBatch(searched, matches, origins)
            portions.portions.append(portion)
            budget.record(control.z, self.seconds() - began, self.effort - before)
            z = budget.throttle(control.z)
            if budget.done < 1.0 and z != control.z:
                control.z = z
                self._choose(z)
        # The micro-batches to come begin with what this one needed on the whole, not with what made up for its errors.
        control.z = portions.throttle()
        if budget.full is not None:
            control.wall.planned = budget.asked * budget.full / control.wall.overrun

    def _matches(
        self, turn: int, inputs: list[IndexedInput], rows: Index
    ) -> Iterator[tuple[list[IndexedInput], PartialMatches]]:
        """Matches of some of the new rows of one input, and the inputs that their row numbers refer to."""
        raise NotImplementedError

    def _full_work(self, turns: list[Turn]) -> float | None:
        """Comparisons of the full join of what is there now, by the model; None where nothing is known yet."""
        control, learned = self.control, self.control.learned
        rates, rows = np.zeros(len(self.spec.aliases)), np.zeros_like(learned.rows)
        for turn, inputs, _ in turns:
            rates[turn] = inputs[turn].size / control.keep[turn]
            for side, looked_up in enumerate(inputs):
                if side != turn:
                    counts = slice_rows(self._slices, turn, side, inputs[turn].times, looked_up)
                    rows[turn, side] = counts / inputs[turn].size / control.held[side]
        model = learned.model(self._slices, control.orders, "pair", self.timed, rates=rates, rows=rows)
        if len(turns) == rates.size:
            self._present = rates, rows
        return None if model is None else model.cost(model.full)

    def _adapt(self, z: float) -> None:
        """The adaptation step: join orders, then what to look at or to keep."""
        self.control.z = z
        self._fade()
        self._configure(z)

    def _configure(self, z: float) -> None:
        """Join orders, and what to look at or to keep."""
        raise NotImplementedError

    def _choose(self, z: float) -> None:
        """What to look at, in the join orders that there are."""
        raise NotImplementedError

    def _reorder(self, orders: Ints) -> None:
        """Take up other join orders; what was known of the positions in the old ones does not hold."""
        control = self.control
        for i in np.flatnonzero((orders != control.orders).any(axis=1)):
            control.learned.forget_positions(int(i))
        control.orders = orders

    def _fade(self) -> None:
        seen = [max_time for max_time in self._max_times if max_time is not None]
        if not seen:
            return
        now, since = float(max(seen)), self.control.since
        self.control.since = now
        if now > since:
            reach = max(abs(int(self.spec.hull.min())), int(self.spec.hull.max()), 1)
            self.control.learned.fade(0.5 ** min(60.0, 4 * (now - since) / reach))
            stays = np.exp(-2 * (now - since) / reach)
            self.control.held = stays * self.control.held + (1 - stays) * self.control.keep

    def _search(self, turn: int, inputs: list[IndexedInput], order: Ints, **more: object) -> HarvestSearch:
        kind = ShredSearch if "part" in more else HarvestSearch
        sides = tuple(int(side) for side in order)
        return kind(self.spec, inputs, driver=turn, order=sides, scan=self._scan, **more)  # type: ignore[arg-type]

    def _count_work(self, search: HarvestSearch) -> None:
        """Count the work of a search."""
        self.counters["comparisons"] += search.compared
        self.work += search.work(self.costs)
        self.effort += search.work(self.timed)

    def _learn(
        self, turn: int, inputs: list[IndexedInput], rows: Index, search: HarvestSearch, part: float, usual: bool
    ) -> None:
        """What some rows that looked everywhere tell about selectivities and costs."""
        learned, slices = self.control.learned, self._slices
        times = inputs[turn].times[rows]
        learned.drivers[turn] += rows.size
        windows = np.zeros(len(inputs))
        for side, looked_up in enumerate(inputs):
            if side != turn:
                counts = slice_rows(slices, turn, side, times, looked_up)
                learned.rows[turn, side] += counts / self.control.held[side]
                windows[side] = counts.sum() / max(rows.size, 1)
        first = search.order[0]
        learned.first_reach[turn, first] += windows[first] * rows.size
        learned.first_found[turn, first] += search.found[0] / part
        if not usual:
            return
        # Partial matches at each position, had the first window not been thinned out.
        probes = np.concatenate([[float(rows.size)], search.found[:-1] / part])
        scale = np.array([1.0, *[1 / part] * (len(search.order) - 1)])
        learned.reach[turn] += probes * windows[list(search.order)]
        learned.looked[turn] += search.looked * scale
        learned.found[turn] += search.found / part


@dataclass
class HarvestKernel(SheddingKernel):
    """Window harvesting, with shredding of a sample of the rows."""

    divisible: ClassVar[bool] = True
    share: float = 1.0
    """The part of a memory limit that this kernel may take."""

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state."""
        super().restore(state, watermark)
        assert isinstance(self.shed, Harvest)
        self._harvest: Harvest = self.shed
        self._evicted = EvictedSample.load(self.spec, state)

    def _configure(self, z: float) -> None:
        control, learned = self.control, self.control.learned
        self._reorder(steady_orders(learned.selectivity(), control.orders, learned.orders(self.spec)))
        self._choose(z)

    def _choose(self, z: float) -> None:
        control, shed = self.control, self._harvest
        # Where every micro-batch adapts, the rows that it has before it are known: no need to go by those of late.
        rates, rows = self._present or (None, None)
        model = control.learned.model(self._slices, control.orders, shed.histograms, self.costs, rates=rates, rows=rows)
        if z >= 1.0 or model is None:
            # Without any knowledge nothing can be chosen; what was looked at so far is as good as anything.
            control.selected = self._slices.everything() if z >= 1.0 else control.selected
            return
        control.selected = model.selected(harvest_counts(model, z, method=shed.method, metric=shed.metric))

    def _matches(
        self, turn: int, inputs: list[IndexedInput], rows: Index
    ) -> Iterator[tuple[list[IndexedInput], PartialMatches]]:
        self.control.learned.pace[turn] += rows.size
        shredded = self._random.random(rows.size) < self._harvest.sample_fraction
        self.counters["shredded"] += int(shredded.sum())
        yield from self._harvested(turn, inputs, rows[~shredded])
        yield from self._shredded(turn, inputs, rows[shredded], rows.size)

    def _harvested(
        self, turn: int, inputs: list[IndexedInput], rows: Index
    ) -> Iterator[tuple[list[IndexedInput], PartialMatches]]:
        selected = self.control.selected[turn]
        spans = [self._slices.spans(turn, side, selected[side]) for side in self.spec.sides]
        if rows.size == 0 or not all(spans[side] for side in self.spec.sides if side != turn):
            return
        search = self._search(turn, inputs, self.control.orders[turn], spans=spans)
        for matches in search.matches(turn, rows):
            yield inputs, matches
        self._count_work(search)

    def _shredded(
        self, turn: int, inputs: list[IndexedInput], rows: Index, size: int
    ) -> Iterator[tuple[list[IndexedInput], PartialMatches]]:
        part, fraction = min(1.0, self.control.z), self._harvest.sample_fraction
        everywhere = bool(self.control.selected[turn][self._slices.everything()[turn]].all())
        if rows.size == 0:
            self.missed += missed_matches(Sample.of([]), 0, fraction, part, everywhere=everywhere)
            return
        order, usual = self._order_to_try(turn)
        inputs, weights = self._evicted.appended(inputs, turn)
        search = self._search(turn, inputs, order, part=part, random=self._random)
        sampled = []
        for matches in search.matches(turn, rows):
            weight, source = match_weights(inputs, weights, matches)
            sampled.append((matches[turn], self._would_harvest(turn, inputs, matches) & (source < 0), weight, source))
            times = {side: inputs[side].times[matches[side]] for side in self.spec.sides}
            self._see_matches(turn, times, weight / part, source)
            yield inputs, matches
        self._count_work(search)
        self._learn(turn, inputs, rows, search, part, usual)
        self.missed += missed_matches(Sample.of(sampled), rows.size, fraction, part, everywhere=everywhere)
        looked = search.looked[0] + search.looked[1:].sum() / part + self.costs.probe * search.probes.sum() / part
        self.counters["work_full"] += round((looked + self.costs.emit * search.found.sum() / part) * size / rows.size)

    def _see_matches(self, turn: int, times: Mapping[int, Index], weight: Floats, source: Index) -> None:
        """Learn where matches of shredded rows are; those with a `source` have a row that has left the windows."""
        self.control.learned.see_matches(self._slices, turn, times, weight)

    def _order_to_try(self, turn: int) -> tuple[Ints, bool]:
        """The join order, or every other time one that begins elsewhere, so that all selectivities are known."""
        order = self.control.orders[turn]
        if self.control.call % 2 == 0 or order.size == 1:
            return order, True
        first = int(order[(self.control.call // 2) % order.size])
        return beginning_with(order, first), bool(first == order[0])

    def _would_harvest(self, turn: int, inputs: list[IndexedInput], matches: Mapping[int, Index]) -> Flags:
        selected = self.control.selected[turn]
        times = inputs[turn].times[matches[turn]]
        kept = np.ones(times.size, dtype=np.bool_)
        for side in self.spec.sides:
            if side != turn:
                ages = times - inputs[side].times[matches[side]]
                kept &= selected[side][self._slices.number(turn, side, ages)]
        return kept

    def changes(self) -> Changes:
        """What to store and what to forget, with the slices that were looked at."""
        looked = self._portions.looked()
        for (i, side), names in slice_metrics(self.spec.aliases, self._slices).items():
            self.counters |= {name: round(MILLION * part) for name, part in zip(names, looked[i, side], strict=False)}
        changes = super().changes()
        self._evicted.finish(changes)
        return changes

    def _update_state(self, new: list[NewRows | None]) -> None:
        super()._update_state(new)
        self._evicted.expire(self._expiry())
        shed, state = self._harvest, self._state
        most = None if shed.limit is None else int(self.share * shed.limit.amount) // self.spec.cells
        unit = "bytes" if shed.limit is None else shed.limit.unit
        held = sum(amount(stored, unit) for stored in state.segments)
        full = most is not None and held + self._evicted.amount(unit) > most
        if shed.keep == "windows" and not full:
            return
        watermarks = self._watermarks(self._max_times)
        since = looked_at_since(self._slices, self.control.selected, watermarks)
        for stored in [stored for stored in state.segments if stored.last < since[stored.side]]:
            held -= amount(stored, unit)
            self._evict_early(stored)
        if most is None:
            return
        self._evicted.thin_to(SHARE * most, unit, self._random)
        learned = self.control.learned
        by_value = sorted(
            state.segments,
            key=lambda s: (segment_value(self._slices, learned, watermarks, s, unit), s.last),
            reverse=True,
        )
        while by_value and held + self._evicted.amount(unit) > most:
            stored = by_value.pop()
            held -= amount(stored, unit)
            self._evict_early(stored)
            self._evicted.thin_to(SHARE * most, unit, self._random)

    def _evict_early(self, stored: StoredSegment) -> None:
        """Evict a segment whose windows are still open, except for a sample of its rows."""
        self._evicted.add(stored.side, self._state.indexed(stored).rows, self._random)
        self._state.evict(stored)
        self.counters["rows_forgotten"] += stored.rows

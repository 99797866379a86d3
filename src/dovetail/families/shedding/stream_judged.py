"""Harvesting where only Spark can tell which pairs are results: what to look at goes by the results of a scout.

The kernel finds candidates, and Spark evaluates the rest of the condition on them.  How much work a slice is goes by
its candidates, as they are what takes time; what it is worth goes by results, which
:mod:`dovetail.families.shedding.scout` has found in a sample before this kernel is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.layout import EVENT_TIME, ROW, TURN, WEIGHT
from dovetail.columns.segments import concat
from dovetail.families.shedding.optimizer.model import JUDGED, Costs, Floats
from dovetail.families.shedding.recall import Missed, judged_matches
from dovetail.families.shedding.scout import SCOUT_SHARE, THINNED
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.stream import HarvestKernel, shed_metrics
from dovetail.families.shedding.stream_drop import DropKernel
from dovetail.families.window.encode import Index
from dovetail.families.window.state import StoredSegment
from dovetail.families.window.stream import MatchBatch, NewRows
from dovetail.families.window.undecided import UndecidedKernel
from dovetail.family import Changes

RESULTS = "results_estimate"
"""The counter of the results that come out, once Spark has judged what the kernel finds; an estimate, as is recall."""


def judged_metrics(aliases: Sequence[str], slices: Slices) -> tuple[str, ...]:
    """The counters of a cell that sheds, and an estimate of its results."""
    return (*shed_metrics(aliases, slices), RESULTS)


@dataclass
class JudgedHarvestKernel(HarvestKernel):
    """Window harvesting of candidates, by where their results are."""

    costs: Costs = JUDGED
    timed: Costs = JUDGED
    share: float = 1 - SCOUT_SHARE

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state."""
        super().restore(state, watermark)
        self.counters[RESULTS] = 0
        self._told: list[pa.RecordBatch] = []
        m, n = len(self.spec.aliases), self._slices.most
        self._seen, self._gone = np.zeros((m, m, n)), np.zeros((m, m, n))

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows, or, beyond the last input, results of the scout."""
        if side == len(self.spec.aliases):
            self._told.append(rows.replace_schema_metadata(None))
        else:
            super().push(side, rows)

    def changes(self) -> Changes:
        """What to store and what to forget, and what was missed by the scout's results."""
        found, self.missed = self._estimate()
        self.counters[RESULTS] = min(round(found), 1 << 60)
        return super().changes()

    # ----------------------------------------------------------------------------------------------------------

    def _find_matches(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[MatchBatch]:
        # Before the adaptation step: what the scout found in this micro-batch counts in this micro-batch.
        for turn, told in self._results():
            times = {side: told.column(f"{EVENT_TIME}{side}").to_numpy() for side in self.spec.sides}
            self.control.learned.see_matches(self._slices, turn, times, told.column(WEIGHT).to_numpy())
        yield from super()._find_matches(new, stored)

    def _results(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """What the scout found, by direction."""
        if not self._told:
            return
        told = concat(self._told)
        turns = told.column(TURN).to_numpy()
        for turn in np.unique(turns):
            yield int(turn), told.filter(pa.array(turns == turn))

    def _see_matches(self, turn: int, times: Mapping[int, Index], weight: Floats, source: Index) -> None:
        """Learn where candidates are; results are the scout's to tell."""
        self.control.learned.see_candidates(self._slices, turn, times, weight)
        for side in self.spec.sides:
            if side != turn:
                number = self._slices.number(turn, side, times[turn] - times[side])
                self._seen[turn, side] += np.bincount(number, weights=weight, minlength=self._slices.most)
                gone = np.where(source >= 0, weight, 0.0)
                self._gone[turn, side] += np.bincount(number, weights=gone, minlength=self._slices.most)

    def _estimate(self) -> tuple[float, Missed]:
        """Results found and missed, from those of the scout and the chance that this kernel finds each."""
        sample = self._harvest.sample_fraction
        portions = self._portions.portions
        whole = self._slices.everything()
        everywhere = all(portion.z >= 1.0 and bool(portion.selected[whole].all()) for portion in portions)
        if everywhere and not self._gone.any():
            weights = [told.column(WEIGHT).to_numpy().sum() for _, told in self._results()]
            return float(sum(weights)) / sample, Missed()
        held = 1 - self._gone / np.maximum(self._seen, 1e-9)
        found, missed = 0.0, Missed(event=1 / (sample * THINNED))
        for turn, told in self._results():
            times = [told.column(f"{EVENT_TIME}{side}").to_numpy() for side in self.spec.sides]
            stays = np.ones(told.num_rows)
            numbers = {
                side: self._slices.number(turn, side, times[turn] - times[side])
                for side in self.spec.sides
                if side != turn
            }
            for side, number in numbers.items():
                stays = np.minimum(stays, held[turn, side][number])
            chance = np.zeros(told.num_rows)
            for portion, inside in zip(portions, self._portions.shares(turn, times[turn]), strict=True):
                looked = np.logical_and.reduce([portion.selected[turn, side][at] for side, at in numbers.items()])
                # A row that shreds finds a part of what is held anywhere, any other all that is held where it looks.
                chance += inside * stays * (np.where(looked, 1 - sample, 0.0) + sample * min(1.0, portion.z))
            rows = [told.column(ROW).to_numpy(), *(times[side] for side in self.spec.sides if side != turn)]
            more, lost = judged_matches(told.column(WEIGHT).to_numpy() / sample, chance, rows)
            found, missed = found + more, missed + lost
        return found, missed


@dataclass
class UndecidedHarvestKernel(UndecidedKernel, JudgedHarvestKernel):
    """The same for a semi join: each candidate has the number of its row, so that one result of it comes out."""


@dataclass
class UndecidedDropKernel(UndecidedKernel, DropKernel):
    """RandomDrop of a semi join of which only Spark can evaluate a condition."""

"""The search of joins that shed: harvesting looks at selected slices, shredding at all of them, thinned out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.families.shedding.compiled import extend_thinned
from dovetail.families.shedding.optimizer.model import Costs, Floats
from dovetail.families.window.encode import Index, shifted
from dovetail.families.window.indexes import BY_TIME, AccessPath, PartialMatches, TimeIndex
from dovetail.families.window.kernel import Probes, Search

Spans = Sequence[Sequence[tuple[int, int]]]
"""For each input the ranges of its time less the driving row's, ends included."""


@dataclass
class HarvestSearch(Search):
    """A search in one direction along a given order; counts looks, rows examined and matches at each position."""

    driver: int = 0
    order: tuple[int, ...] = ()
    spans: Spans | None = None
    """Where to look; None for the whole windows."""
    scan: bool = False
    """Whether to examine every row of a slice, as the paper does, instead of using an index."""
    probes: Floats = field(init=False)
    looked: Floats = field(init=False)
    found: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.probes, self.looked, self.found = (np.zeros(len(self.order)) for _ in range(3))

    def next_input(self, chosen: tuple[int, ...]) -> tuple[int, AccessPath, int]:
        """The next input of the order."""
        side = self.order[len(chosen) - 1]
        _, path, via = self.best_path(side, chosen)
        return (side, BY_TIME, chosen[0]) if self.scan else (side, path, via)

    def time_ranges(self, partial: PartialMatches, side: int) -> Iterator[tuple[Index, Index]]:
        """The windows, cut down to the selected slices."""
        earliest, latest = next(super().time_ranges(partial, side))
        level = len(partial) - 1
        if self.spans is None:
            self.probes[level] += earliest.size
            yield earliest, latest
            return
        times = self.inputs[self.driver].times[partial[self.driver]]
        for low, high in self.spans[side]:
            self.probes[level] += times.size
            yield np.maximum(earliest, shifted(times, low)), np.minimum(latest, shifted(times, high))

    def walk(self, level: int, index: TimeIndex, probes: Probes) -> Iterator[tuple[Index, Index]]:
        """As in a full search, counted by position."""
        for matched, rows in super().walk(level, index, probes):
            self.found[level - 1] += matched.size
            yield matched, rows

    def work(self, costs: Costs) -> float:
        """What was done, in comparisons."""
        return float(self.compared + costs.probe * self.probes.sum() + costs.emit * self.found.sum())

    def tally(self, level: int, compared: int) -> None:
        """Count rows examined at a position of the order."""
        super().tally(level, compared)
        self.looked[level - 1] += compared


@dataclass
class ShredSearch(HarvestSearch):
    """Window shredding (section 5.2.1): the whole windows, but only a part of the first one, evenly spread."""

    part: float = 1.0
    random: np.random.Generator = field(default_factory=np.random.default_rng)

    def walk(self, level: int, index: TimeIndex, probes: Probes) -> Iterator[tuple[Index, Index]]:
        """Every so many rows of the first window; all of the others.  `looked` counts the rows in reach."""
        if level > 1 or self.part >= 1.0:
            yield from super().walk(level, index, probes)
            return
        step = 1.0 / self.part
        phases = self.random.random(probes.earliest.size) * step
        matched, rows, compared, reached = extend_thinned(step, phases, index.slots, index.times, index.order, *probes)
        self.compared += compared
        self.looked[0] += reached
        self.found[0] += matched.size
        yield matched, rows

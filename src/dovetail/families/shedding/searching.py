"""Partial looks into windows: harvesting looks at selected slices, shredding at all of them, thinned out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.families.shedding.compiled import extend_thinned
from dovetail.families.shedding.model import Costs, Floats
from dovetail.families.window.encode import Index
from dovetail.families.window.kernel import Looks, Search
from dovetail.families.window.pieces import Partial, Sorted, Way, moved

Spans = Sequence[Sequence[tuple[int, int]]]
"""For each input the ranges of its time less the driving row's, ends included."""


@dataclass
class HarvestSearch(Search):
    """A search in one direction along a given order; counts looks, rows examined and matches at each place."""

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

    def next_input(self, chosen: tuple[int, ...]) -> tuple[int, Way, int]:
        """The next input of the order."""
        side = self.order[len(chosen) - 1]
        _, way, via = self._best_way(side, chosen)
        return (side, ("time", 0), chosen[0]) if self.scan else (side, way, via)

    def time_ranges(self, partial: Partial, side: int) -> Iterator[tuple[Index, Index]]:
        """The windows, cut down to the selected slices."""
        whole = next(super().time_ranges(partial, side))
        level = len(partial) - 1
        if self.spans is None:
            self.probes[level] += whole[0].size
            yield whole
            return
        times = self.piles[self.driver].times[partial[self.driver]]
        for low, high in self.spans[side]:
            self.probes[level] += times.size
            yield np.maximum(whole[0], moved(times, low)), np.minimum(whole[1], moved(times, high))

    def walk(self, level: int, index: Sorted, looks: Looks) -> Iterator[tuple[Index, Index]]:
        """As in a full search, counted by place."""
        for at, rows in super().walk(level, index, looks):
            self.found[level - 1] += at.size
            yield at, rows

    def work(self, costs: Costs) -> float:
        """What was done, in comparisons."""
        return float(self.compared + costs.probe * self.probes.sum() + costs.emit * self.found.sum())

    def tally(self, level: int, compared: int) -> None:
        """Count rows examined at a place of the order."""
        super().tally(level, compared)
        self.looked[level - 1] += compared


@dataclass
class ShredSearch(HarvestSearch):
    """Window shredding (section 5.2.1): the whole windows, but only a part of the first one, evenly spread."""

    part: float = 1.0
    random: np.random.Generator = field(default_factory=np.random.default_rng)

    def walk(self, level: int, index: Sorted, looks: Looks) -> Iterator[tuple[Index, Index]]:
        """Every so many rows of the first window; all of the others.  `looked` counts the rows in reach."""
        if level > 1 or self.part >= 1.0:
            yield from super().walk(level, index, looks)
            return
        step = 1.0 / self.part
        phases = self.random.random(looks.earliest.size) * step
        at, rows, compared, reached = extend_thinned(step, phases, index.slots, index.times, index.order, *looks)
        self.compared += compared
        self.looked[0] += reached
        self.found[0] += at.size
        yield at, rows

"""Memory shedding: which rows a join evicts before their windows close (section 7), and a limit that is held.

The paper drops the slices of a window that no direction looks at, unless some direction looks at an older one.  Rows
that are gone cannot be shredded either, so such a join would never learn that matches have moved to where it no
longer looks, nor how many it misses.  Here one evicted row in five stays behind, for shredding only, and stands for
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from dovetail.columns.segments import concat
from dovetail.families.shedding.optimizer.model import Flags, Floats
from dovetail.families.shedding.optimizer.statistics import Learned
from dovetail.families.shedding.slices import Slices
from dovetail.families.window.encode import Index, time_codes
from dovetail.families.window.indexes import IndexedInput, IndexedSegment
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.state import StoredSegment
from dovetail.family import Changes

Unit = Literal["rows", "bytes"]

STAYS = 0.2
"""The part of the evicted rows that stays for shredding."""
SHARE = 0.2
"""The part of a memory limit that these may take."""
WEIGHT = "weight"


def amount(stored: StoredSegment, unit: Unit) -> int:
    """What a segment takes of a memory limit."""
    return stored.rows if unit == "rows" else stored.size


@dataclass
class EvictedSample:
    """A sample of the rows evicted early, by input; each has a weight, the number of rows it stands for."""

    spec: WindowJoinSpec
    rows: list[pa.RecordBatch | None] = field(default_factory=list)
    _changed: set[int] = field(default_factory=set)

    @classmethod
    def load(cls, spec: WindowJoinSpec, state: Mapping[str, pa.RecordBatch]) -> EvictedSample:
        """Take up what an earlier call stored."""
        return cls(spec, [state.get(_name(side)) for side in spec.sides])

    def add(self, side: int, rows: pa.RecordBatch, random: np.random.Generator) -> None:
        """Keep some of the rows that are evicted."""
        chosen = np.flatnonzero(random.random(rows.num_rows) < STAYS)
        if chosen.size:
            weights = pa.array(np.full(chosen.size, 1 / STAYS))
            before = self.rows[side]
            added = rows.take(chosen).append_column(WEIGHT, weights)
            self._set(side, added if before is None else concat([before, added]))

    def expire(self, expiry: list[int]) -> None:
        """Drop rows that can match nothing more."""
        for side, rows in enumerate(self.rows):
            if rows is not None:
                kept = time_codes(rows.column(self.spec.times[side])) >= expiry[side]
                if not kept.all():
                    self._set(side, rows.filter(pa.array(kept)))

    def thin_to(self, most: float, unit: Unit, random: np.random.Generator) -> None:
        """Drop every second row, so that the others count twice, until the sample takes no more than that."""
        while self.amount(unit) > most and self.amount(unit):
            self.thin(random)

    def thin(self, random: np.random.Generator) -> None:
        """Drop every second row, so that the others count twice."""
        for side, rows in enumerate(self.rows):
            if rows is not None:
                kept = rows.filter(pa.array(random.random(rows.num_rows) < 0.5))
                doubled = pa.array(2.0 * kept.column(WEIGHT).to_numpy())
                self._set(side, kept.set_column(kept.num_columns - 1, WEIGHT, doubled))

    def amount(self, unit: Unit) -> int:
        """What the sample takes of a memory limit."""
        return sum(rows.num_rows if unit == "rows" else rows.nbytes for rows in self.rows if rows is not None)

    def appended(self, inputs: list[IndexedInput], turn: int) -> tuple[list[IndexedInput], list[Floats | None]]:
        """Inputs with these rows as their last segment, and the weights of that segment."""
        wider: list[IndexedInput] = []
        weights: list[Floats | None] = []
        for side, held in enumerate(inputs):
            rows = self.rows[side]
            if rows is None or side == turn or rows.num_rows == 0:
                wider.append(held)
                weights.append(None)
            else:
                wider.append(IndexedInput([*held.segments, IndexedSegment(self.spec, side, rows)]))
                weights.append(np.asarray(rows.column(WEIGHT).to_numpy(), dtype=np.float64))
        return wider, weights

    def finish(self, changes: Changes) -> None:
        """Add what changed to the changes of a call."""
        for side in self._changed:
            rows = self.rows[side]
            if rows is not None and rows.num_rows:
                changes.stored[_name(side)] = rows
            else:
                changes.dropped.add(_name(side))

    def _set(self, side: int, rows: pa.RecordBatch) -> None:
        self.rows[side] = rows
        self._changed.add(side)


def _name(side: int) -> str:
    """The segment of state that holds the sample of one input."""
    return f"left/{side}"


def match_weights(
    inputs: list[IndexedInput], weights: list[Floats | None], matches: Mapping[int, Index]
) -> tuple[Floats, Index]:
    """What each match stands for, and a number of the row that makes it so: -1 where all its rows are held."""
    total = np.ones(next(iter(matches.values())).size)
    sources = np.full(total.size, -1, dtype=np.int64)
    for side, rows in matches.items():
        own = weights[side]
        if own is not None:
            begin = int(inputs[side].starts[-2])
            behind = rows >= begin
            total[behind] *= own[rows[behind] - begin]
            sources[behind] = (rows[behind] - begin) * len(inputs) + side
    return total, sources


def looked_at_since(slices: Slices, selected: Flags, watermarks: list[int]) -> list[int]:
    """For each input the time before which no direction will look at its rows: the paper's rule."""
    m = len(watermarks)
    never = np.iinfo(np.int64).max
    times = []
    for side in range(m):
        since = never
        for i in range(m):
            chosen = np.flatnonzero(selected[i, side][: slices.counts[i, side]]) if i != side else np.empty(0)
            if chosen.size:
                oldest = int(slices.ages(i, side)[int(chosen[-1]) + 1]) - 1
                since = min(since, max(-never, watermarks[i] - oldest))
        times.append(since)
    return times


def segment_value(slices: Slices, learned: Learned, watermarks: list[int], stored: StoredSegment, unit: Unit) -> float:
    """What a segment may still contribute for what it takes of the limit: matches of its rows' age or older."""
    side, value = stored.side, 0.0
    for i in range(len(watermarks)):
        if i == side:
            continue
        age = min(max(watermarks[i] - stored.last, int(slices.youngest[i, side])), int(slices.oldest[i, side]))
        at = int(slices.number(i, side, np.array([age]))[0])
        value += float(learned.pairs[i, side, at:].sum())
    return value * stored.rows / max(amount(stored, unit), 1)

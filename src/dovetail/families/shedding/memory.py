"""Memory shedding: which rows a join lets go of before their windows close (section 7), and a limit that is held.

The paper drops the slices of a window that no direction looks at, unless some direction looks at an older one.  Rows
that are gone cannot be shredded either, so such a join would never learn that matches have moved to where it no
longer looks, nor how many it misses.  Here one row in five of those let go of stays behind, for shredding only, and
stands for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.columns.segments import concat
from dovetail.families.shedding.learning import Learned
from dovetail.families.shedding.model import Flags, Floats
from dovetail.families.shedding.slices import Slices
from dovetail.families.window.encode import Index
from dovetail.families.window.pieces import Piece, Pile
from dovetail.families.window.spec import WindowJoinSpec, time_codes
from dovetail.families.window.state import Entry
from dovetail.family import Changes

STAYS = 0.2
"""The part of the rows let go of that stays for shredding."""
SHARE = 0.2
"""The part of a limit in bytes that these may take."""
WEIGHT = "weight"


@dataclass
class Left:
    """Rows of which others have been let go, by input; each has a weight, the number of rows it stands for."""

    spec: WindowJoinSpec
    rows: list[pa.RecordBatch | None] = field(default_factory=list)
    _changed: set[int] = field(default_factory=set)

    @classmethod
    def load(cls, spec: WindowJoinSpec, state: Mapping[str, pa.RecordBatch]) -> Left:
        """Take up what an earlier call stored."""
        return cls(spec, [state.get(_name(side)) for side in spec.sides])

    def add(self, side: int, rows: pa.RecordBatch, random: np.random.Generator) -> None:
        """Keep some of the rows that are let go."""
        chosen = np.flatnonzero(random.random(rows.num_rows) < STAYS)
        if chosen.size:
            weights = pa.array(np.full(chosen.size, 1 / STAYS))
            self._put(side, [rows.take(chosen).append_column(WEIGHT, weights)])

    def evict(self, alive: list[int]) -> None:
        """Let go of rows that can match nothing more."""
        for side, rows in enumerate(self.rows):
            if rows is not None:
                kept = time_codes(rows.column(self.spec.times[side])) >= alive[side]
                if not kept.all():
                    self._set(side, rows.filter(pa.array(kept)))

    def thin(self, random: np.random.Generator) -> None:
        """Let go of every second one, so that the others count twice."""
        for side, rows in enumerate(self.rows):
            if rows is not None:
                kept = rows.filter(pa.array(random.random(rows.num_rows) < 0.5))
                doubled = pa.array(2.0 * kept.column(WEIGHT).to_numpy())
                self._set(side, kept.set_column(kept.num_columns - 1, WEIGHT, doubled))

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(rows.nbytes for rows in self.rows if rows is not None)

    def piles(self, piles: list[Pile], turn: int) -> tuple[list[Pile], list[Floats | None]]:
        """Piles with these rows behind them, and the weights of their last piece."""
        wider: list[Pile] = []
        weights: list[Floats | None] = []
        for side, pile in enumerate(piles):
            rows = self.rows[side]
            if rows is None or side == turn or rows.num_rows == 0:
                wider.append(pile)
                weights.append(None)
            else:
                wider.append(Pile([*pile.pieces, Piece(self.spec, side, rows)]))
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

    def _put(self, side: int, more: list[pa.RecordBatch]) -> None:
        before = self.rows[side]
        self._set(side, concat([*([] if before is None else [before]), *more]))

    def _set(self, side: int, rows: pa.RecordBatch) -> None:
        self.rows[side] = rows
        self._changed.add(side)


def _name(side: int) -> str:
    return f"left/{side}"


def match_weights(
    piles: list[Pile], weights: list[Floats | None], matches: Mapping[int, Index]
) -> tuple[Floats, Index]:
    """What each match stands for, and a number of the row that makes it so: -1 where all its rows are held."""
    total = np.ones(next(iter(matches.values())).size)
    sources = np.full(total.size, -1, dtype=np.int64)
    for side, rows in matches.items():
        own = weights[side]
        if own is not None:
            begin = int(piles[side].starts[-2])
            behind = rows >= begin
            total[behind] *= own[rows[behind] - begin]
            sources[behind] = (rows[behind] - begin) * len(piles) + side
    return total, sources


def looked_at_since(slices: Slices, selected: Flags, marks: list[int]) -> list[int]:
    """For each input the time before which no direction will look at its rows: the paper's rule."""
    m = len(marks)
    never = np.iinfo(np.int64).max
    times = []
    for side in range(m):
        since = never
        for i in range(m):
            chosen = np.flatnonzero(selected[i, side][: slices.counts[i, side]]) if i != side else np.empty(0)
            if chosen.size:
                oldest = int(slices.ages(i, side)[int(chosen[-1]) + 1]) - 1
                since = min(since, max(-never, marks[i] - oldest))
        times.append(since)
    return times


def entry_value(slices: Slices, learned: Learned, marks: list[int], entry: Entry) -> float:
    """What the rows of a segment may still contribute, for each of their bytes: matches at their age or older."""
    side, value = entry.side, 0.0
    for i in range(len(marks)):
        if i == side:
            continue
        age = min(max(marks[i] - entry.last, int(slices.youngest[i, side])), int(slices.oldest[i, side]))
        at = int(slices.number(i, side, np.array([age]))[0])
        value += float(learned.pairs[i, side, at:].sum())
    return value * entry.rows / max(entry.size, 1)

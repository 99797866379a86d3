"""A cell whose right rows are more than a worker may hold: both sides on disk, in slices of time.

Left rows come back piece by piece.  A piece looks for its matches in the slices of right rows that span its own times,
and then in those before them or behind them, from the nearest outward, until every row has found one: whatever lies
further away is worse.  Within a slice right rows may come in several pieces, too.  Which of two right rows a left row
prefers does not depend on the others, so the best of all is among the best of the pieces: one index of these, which are
few, decides between them with the very rules of the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.columns.pieces import Pieces, gathered
from dovetail.columns.segments import concat
from dovetail.columns.slices import Slice, Slices, Spans
from dovetail.families.asof.compiled import Index, RowNumbers
from dovetail.families.asof.encode import routing_codes, usable
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec
from dovetail.families.asof.where import index_of

COPY = "copy"
"""Whether a row is a copy, behind its other columns."""


@dataclass(frozen=True)
class Best:
    """Right rows that left rows prefer to all others so far, each once."""

    rows: pa.RecordBatch
    numbers: Index
    """The number of each of them in its cell."""
    chosen: RowNumbers
    """For each left row the position of its right row among them, -1 where it has none."""

    @classmethod
    def of(cls, rows: pa.RecordBatch, numbers: Index, found: RowNumbers) -> Best:
        """The rows among others that left rows have found, by their positions there."""
        hit = found >= 0
        taken, places = np.unique(found[hit], return_inverse=True)
        chosen = np.full(found.size, -1, dtype=np.int32)
        chosen[hit] = places
        return cls(rows.take(taken), numbers[taken], chosen)

    def against(self, spec: AsofSpec, left: pa.RecordBatch, other: Best) -> Best:
        """What left rows prefer of two choices."""
        if not self.numbers.size or not other.numbers.size:
            return self if self.numbers.size else other
        rows, numbers = concat([self.rows, other.rows]), np.concatenate([self.numbers, other.numbers])
        return Best.of(rows, numbers, index_of(spec, rows).match(left))

    def completed(self, asking: Index, other: Best) -> Best:
        """These choices, and those that some left rows without one have made elsewhere."""
        if not other.numbers.size:
            return self
        hit = other.chosen >= 0
        chosen = self.chosen.copy()
        chosen[asking[hit]] = other.chosen[hit] + self.numbers.size
        rows = concat([self.rows, other.rows])
        return Best(rows, np.concatenate([self.numbers, other.numbers]), chosen)


@dataclass
class Contest:
    """The left rows of a split cell, piece by piece, each with its right row."""

    spec: AsofSpec
    cell: Pieces
    segments: Sequence[tuple[int, int]]
    """Of every segment of right rows how many it has, and how many of them, the last ones, are copies."""
    ties: int = 0
    """Right rows that lost a tie, in the slices that somebody has looked into."""
    sides: list[Slices] = field(default_factory=list)
    _right: list[Slice] = field(default_factory=list)
    _firsts: dict[int, int] = field(default_factory=dict)
    """The number of the first row of each slice of right rows."""
    _visited: set[int] = field(default_factory=set)

    @property
    def spilled(self) -> int:
        """The bytes that have been written, besides those of the cell."""
        return sum(slices.size for slices in self.sides)

    def decided(self) -> Iterator[tuple[pa.RecordBatch, Best]]:
        """Left rows and what they chose of all right rows."""
        self.sides = [Slices(self._spans) for _ in (LEFT, RIGHT)]
        for rows, (count, copies) in zip(self.cell.on_disk, self.segments, strict=True):
            marks = pa.array(np.arange(count) >= count - copies)
            self.sides[RIGHT].add(RIGHT, rows.append_column(COPY, marks))
        for rows in self.cell.passing:
            self.sides[LEFT].add(LEFT, rows)
        self.cell.close()
        left, self._right = (slices.ordered(self.cell.limit()) for slices in self.sides)
        self._firsts = dict(enumerate(np.cumsum([0, *(one.rows for one in self._right)]).tolist()))
        for here in left:
            for rows in self._pieces(LEFT, here):
                yield rows, self._best(rows, here)

    def right_pieces(self) -> Iterator[pa.RecordBatch]:
        """All right rows, in the order of their numbers, once all left rows have been decided."""
        for one in self._right:
            yield from self._pieces(RIGHT, one)

    def close(self) -> None:
        """Give the disk back."""
        for slices in self.sides:
            slices.close()

    def _spans(self, side: int, rows: pa.RecordBatch) -> Spans:
        return Spans.of_points(routing_codes(rows.column(self.spec.times[side]), self.spec.time))

    def _pieces(self, side: int, one: Slice) -> Iterator[pa.RecordBatch]:
        return gathered((rows for _, rows in self.sides[side].batches(one)), self.cell.limit())

    def _best(self, left: pa.RecordBatch, here: Slice) -> Best:
        spec = self.spec
        numbered = list(enumerate(self._right))
        around = [number for number, one in numbered if one.concerns(here)]
        best = self._among(around, left)
        if spec.direction != "forward":
            before = [number for number, one in reversed(numbered) if one.high < here.low and self._near(one, here)]
            best = self._outward(before, left, best)
        if spec.direction != "backward":
            behind = [number for number, one in numbered if one.low > here.high and self._near(one, here)]
            best = self._outward(behind, left, best)
        return best

    def _near(self, one: Slice, here: Slice) -> bool:
        """Whether a row of one slice may lie within the tolerance of a row of the other, where codes tell."""
        within = self.spec.within
        return (
            not isinstance(within, int)
            or self.spec.time != "int"
            or (one.high >= here.low - within and one.low <= here.high + within)
        )

    def _outward(self, numbers: Iterable[int], left: pa.RecordBatch, best: Best) -> Best:
        """What left rows choose once they have looked on one side of their own times, too.

        A row that has a match nearer by need not look.  Where both sides count, it has to look at each of them.
        """
        nearest = self.spec.direction == "nearest"
        nothing = Best(best.rows.slice(0, 0), best.numbers[:0], np.full(left.num_rows, -1, dtype=np.int32))
        found = nothing if nearest else best
        good = usable(self.spec, left, LEFT)
        for number in numbers:
            asking = np.flatnonzero(found.chosen < 0 if good is None else (found.chosen < 0) & good)
            if not asking.size:
                break
            found = found.completed(asking, self._among([number], left.take(asking)))
        return best.against(self.spec, left, found) if nearest else found

    def _among(self, numbers: Sequence[int], left: pa.RecordBatch) -> Best:
        """What left rows choose of some slices."""
        best: Best | None = None
        for number in numbers:
            first = self._firsts[number]
            for right in self._pieces(RIGHT, self._right[number]):
                index = index_of(self.spec, right)
                self.ties += index.ties if number not in self._visited else 0
                found = Best.of(right, np.arange(first, first + right.num_rows), index.match(left))
                best = found if best is None else best.against(self.spec, left, found)
                first += right.num_rows
            self._visited.add(number)
        if best is not None:
            return best
        empty = next(self._pieces(RIGHT, next(one for one in self._right if one.rows))).slice(0, 0)
        return Best(empty, np.empty(0, dtype=np.int64), np.full(left.num_rows, -1, dtype=np.int32))

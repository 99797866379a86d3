"""The match of a left row where right rows come in pieces: the best of each piece, and then the best of these.

Which of two right rows a left row prefers does not depend on the others.  So the best of all is among the best of the
pieces, and one index of the best so far and the best of the next piece, which are few, decides between them with the
very rules of the join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa

from dovetail.columns.pieces import Pieces, Spool
from dovetail.columns.segments import concat
from dovetail.families.asof.compiled import Index, RowNumbers
from dovetail.families.asof.kernel import RightIndex
from dovetail.families.asof.spec import AsofSpec
from dovetail.families.asof.where import index_of

_NUMBER, _CHOSEN = "number", "chosen"


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
        return cls(rows.take(pa.array(taken)), numbers[taken], chosen)

    def against(self, spec: AsofSpec, left: pa.RecordBatch, other: Best) -> Best:
        """What left rows prefer of two choices."""
        if not self.numbers.size or not other.numbers.size:
            return self if self.numbers.size else other
        rows, numbers = concat([self.rows, other.rows]), np.concatenate([self.numbers, other.numbers])
        return Best.of(rows, numbers, index_of(spec, rows).match(left))


@dataclass
class _Choices:
    """The choices of all left rows, on disk."""

    rows: Spool = field(default_factory=Spool)
    chosen: Spool = field(default_factory=Spool)

    def add(self, best: Best) -> None:
        self.rows.add(best.rows.append_column(_NUMBER, pa.array(best.numbers)))
        self.chosen.add(pa.RecordBatch.from_arrays([pa.array(best.chosen)], names=[_CHOSEN]))

    def __iter__(self) -> Iterator[Best]:
        for rows, chosen in zip(self.rows, self.chosen, strict=True):
            own = rows.select(range(rows.num_columns - 1))
            yield Best(own, rows.column(_NUMBER).to_numpy(), chosen.column(0).to_numpy())

    @property
    def size(self) -> int:
        return self.rows.size + self.chosen.size

    def close(self) -> None:
        self.rows.close()
        self.chosen.close()


@dataclass
class Contest:
    """The left rows of a split cell, piece by piece, each with its right row."""

    spec: AsofSpec
    pieces: Pieces
    ties: int = 0
    spilled: int = 0
    """Bytes that choices took on disk."""

    def decided(self) -> Iterator[tuple[pa.RecordBatch, Best]]:
        """Left rows and what they chose of all right rows."""
        choices: _Choices | None = None
        first = 0
        for right in self.pieces.held_pieces():
            index = index_of(self.spec, right)
            self.ties += index.ties
            choices = self._round(index, first, choices)
            first += right.num_rows
        if choices is not None:
            yield from zip(self.pieces.passing_pieces(), choices, strict=True)
            choices.close()

    def _round(self, index: RightIndex, first: int, choices: _Choices | None) -> _Choices:
        """What left rows choose once they have seen one more piece."""
        later = _Choices()
        numbers = np.arange(first, first + index.rows.num_rows)
        earlier: Iterator[Best | None] = repeat(None) if choices is None else iter(choices)
        for left, before in zip(self.pieces.passing_pieces(), earlier, strict=False):
            best = Best.of(index.rows, numbers, index.match(left))
            later.add(best if before is None else before.against(self.spec, left, best))
        self.spilled += later.size
        if choices is not None:
            choices.close()
        return later

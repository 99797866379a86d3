"""A nearest join of two streams that is defined otherwise: what of the old state goes on, and how cells store it.

Rows that wait are answered by the new definition, from the rows that are there; how many, how near and how far apart in
time may change.  What is measured may not: rows without it have been dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dovetail.changing import (
    Carry,
    Definition,
    KeyedAdoption,
    Pieces,
    Standing,
    TakeLettered,
    asked_carry,
    lettered,
    same_parts,
)
from dovetail.columns.segments import concat

_LETTERS = "RS"


def carry(old: Definition, new: Definition, standing: Standing) -> Carry:
    """What goes on from one definition to the other; refuses what the rows that are held cannot answer."""
    same_parts(old, new, "inputs", "time", "condition")
    asking, answering = (held.name for held in new.layout.inputs)
    return asked_carry(old, new, standing, asking, answering)


class TakeRows(TakeLettered):
    """The segments of an old cell in; the rows of one side out."""

    letters = _LETTERS


@dataclass(frozen=True)
class NearestAdoption(KeyedAdoption):
    """How the cells of a new nearest join store held rows; see :class:`dovetail.changing.Adoption`."""

    widths: tuple[int, int]
    """How many columns of each side are stored; a hash behind them only routes."""

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows of both sides, of which the first call answers what is to be answered."""
        sides = [
            concat(parts).select(range(width)) if parts else None
            for parts, width in zip(pieces, self.widths, strict=True)
        ]
        yield from lettered(_LETTERS, sides, self.told["since"])

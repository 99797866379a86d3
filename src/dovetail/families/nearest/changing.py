"""A nearest join of two streams that is defined otherwise: what of the old state goes on, and how cells store it.

Rows that wait are answered by the new definition, from the rows that are there; how many, how near and how far apart in
time may change.  What is measured may not: rows without it have been dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.changing import (
    GIVEN,
    Carry,
    Definition,
    Pieces,
    Standing,
    asked_carry,
    lettered,
    same_parts,
    take_lettered,
)
from dovetail.columns.codes import order_codes
from dovetail.columns.held import STREAM_CELLS
from dovetail.columns.segments import concat
from dovetail.inventory import StateLayout

_LETTERS = "RS"


def carry(old: Definition, new: Definition, standing: Standing) -> Carry:
    """What goes on from one definition to the other; refuses what the rows that are held cannot answer."""
    same_parts(old, new, "inputs", "time", "condition")
    asking, answering = (held.name for held in new.layout.inputs)
    return asked_carry(old, new, standing, asking, answering)


@dataclass(frozen=True)
class TakeRows:
    """The segments of an old cell in; the rows of one side out."""

    layout: StateLayout
    side: int
    since: int
    columns: tuple[int, ...]

    def __call__(self, operators: Mapping[int, Mapping[str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Batches of the columns that are wanted, and a mark that says nothing."""
        time = self.layout.inputs[self.side].time or 0
        for rows, marks in take_lettered(operators, _LETTERS[self.side]):
            kept = np.flatnonzero(order_codes(rows.column(time), "int") >= self.since)
            wanted = rows.select(list(self.columns)).take(kept)
            yield pa.RecordBatch.from_arrays(
                [*wanted.columns, pa.array(marks[kept])], names=[*wanted.schema.names, GIVEN]
            )


@dataclass(frozen=True)
class NearestAdoption:
    """How the cells of a new nearest join store held rows; see :class:`dovetail.changing.Adoption`."""

    keyed: bool
    widths: tuple[int, int]
    """How many columns of each side are stored; a hash behind them only routes."""
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of the cells."""
        return tuple(range(STREAM_CELLS if self.keyed else 1))

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows of both sides, of which the first call answers what is to be answered."""
        sides = [
            concat(parts).select(range(width)) if parts else None
            for parts, width in zip(pieces, self.widths, strict=True)
        ]
        yield from lettered(_LETTERS, sides, self.told["since"])

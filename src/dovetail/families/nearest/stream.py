"""The nearest rows of two streams within a window of time: one cell, whose state is named segments.

Rows wait until their windows have closed, and then look for their neighbours as in batch:
:class:`~dovetail.columns.held.WaitingRows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.encode import usable
from dovetail.columns.held import WaitingRows
from dovetail.columns.layout import COUNTERS
from dovetail.columns.segments import concat
from dovetail.families.nearest.join_stages import ResultStage
from dovetail.families.nearest.kernel import coordinates
from dovetail.families.nearest.spec import ASKING
from dovetail.family import Changes

_LETTERS = "RS"
"""Segments of the asking and of the answering side."""


class NearestKernel(WaitingRows):
    """The rows of one cell that still matter."""

    def __init__(self, stage: ResultStage) -> None:
        if stage.spec.window is None:
            raise AssertionError("rows of two streams wait for the end of a window")
        super().__init__(_LETTERS, ASKING, *stage.spec.window)
        self.stage = stage
        self.spec = stage.spec

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        return Changes(self.held.stored, self.held.dropped)

    def kept(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Payload, keys, coordinates and time; a hash behind them only routes."""
        return rows.select(range(self.stage.held(side) + self.stage.travelling(side)))

    def times(self, side: int, rows: pa.RecordBatch) -> pa.Array[Any]:
        """The last of the columns that are compared."""
        return self.stage.columns(side, rows)[-1]

    def usable(self, side: int, rows: pa.RecordBatch) -> Mask:
        """The rows with a place, a time and all keys."""
        count, columns = len(self.spec.keys), self.stage.columns(side, rows)
        good = coordinates(self.spec, columns[count:])[1]
        return good & usable(columns[:count]) if count else good

    def answers(self, asking: pa.RecordBatch, answering: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that ask, each with its neighbours."""
        rows = concat(answering) if answering else None
        found = self.stage.found(self.stage.index(rows), rows, self.stage.columns(ASKING, asking))
        self.counters["matches"] += found[0].size
        payload = asking.columns[: self.stage.held(ASKING)]
        yield self.stage.rows_out(payload, asking.num_rows, *self.stage.ordered(found)).drop_columns([COUNTERS])

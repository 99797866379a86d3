"""Aggregates over the matches of two streams within a window of time: one cell, whose state is named segments.

Rows wait until their windows have closed, and are then answered by the same kernel as in batch:
:class:`~dovetail.columns.held.WaitingRows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dovetail.columns.held import WaitingRows
from dovetail.columns.layout import COUNTERS
from dovetail.columns.segments import concat
from dovetail.families.aggregate.finish import matches
from dovetail.families.aggregate.join_stages import ResultStage
from dovetail.families.aggregate.kernel import states
from dovetail.families.aggregate.measures import State
from dovetail.families.aggregate.overlaps import whole_states
from dovetail.families.aggregate.stages import ANSWERING, ASKING, empty_state
from dovetail.family import Changes

_LETTERS = "QT"
"""Segments of the matched and of the asking side."""


class AggregateKernel(WaitingRows):
    """The rows of one cell that still matter; their last column is their time."""

    def __init__(self, stage: ResultStage, low: int, high: int) -> None:
        super().__init__(_LETTERS, ASKING, low, high)
        self.stage = stage
        self.spec = stage.spec

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        return Changes(self.held.stored, self.held.dropped)

    def kept(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keys and arguments, or payload and keys, and the time; a hash before it only routes."""
        if side == ANSWERING:
            width = self.stage.key_counts[ANSWERING] + len(self.spec.arguments)
        else:
            width = len(self.spec.payload) + self.stage.travelling
        return rows.select([*range(width), rows.num_columns - 1])

    def times(self, side: int, rows: pa.RecordBatch) -> pa.Array[Any]:
        """The last column."""
        return rows.column(rows.num_columns - 1)

    def answers(self, asking: pa.RecordBatch, answering: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that ask, each with its aggregates."""
        state = self._state(answering, asking)
        self.counters["matches"] += int(matches(state).sum())
        out, _ = self.stage.rows_out(list(asking.columns[: len(self.spec.payload)]), state)
        yield out.drop_columns([COUNTERS])

    def _state(self, parts: list[pa.RecordBatch], asking: pa.RecordBatch) -> State:
        if not parts:
            return empty_state(self.spec, asking.num_rows)
        answering = concat(parts)
        answer = states if self.spec.overlap is None else whole_states
        return answer(self.spec, answering.select(range(answering.num_columns - 1)), self.stage.asking_keys(asking))

"""As-of joins of streams with conditions that only Spark can evaluate.

Whether a pair satisfies them nobody knows until it has left the state.  So no left row has a match so far, and all
right rows that may be one have to stay until the row is final:

    backward    when the watermark passes its own time
    forward     when the watermark passes its own time + within
    nearest     the same

Then all its candidates leave together, the best one first.  Spark judges them on their way, and a stage behind it in
the same task keeps the first that it approved (:class:`dovetail.families.asof.judged.FinishStage`): no second state is
needed.  A right row that is nobody's match cannot be told in this way, for the verdicts on it come one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, Mask
from dovetail.columns.layout import COUNTERS
from dovetail.families.asof.compiled import RowNumbers
from dovetail.families.asof.join_stages import PairStage
from dovetail.families.asof.judged import MOST_PAIRS, CandidateStage
from dovetail.families.asof.kernel import RightIndex
from dovetail.families.asof.stream import AsofKernel
from dovetail.families.asof.where import ConditionIndex

_cells = itertools.count()
"""Tells the cells of a task apart, which one process works on."""


class CandidateKernel(AsofKernel):
    """The rows of one cell that still matter; the candidates of left rows that have become final."""

    def __init__(self, stage: CandidateStage) -> None:
        super().__init__(PairStage(stage.spec))
        self._candidates = stage
        self._cell = next(_cells) % (1 << 31)
        self._seen = 0

    def _matches(self, left: pa.RecordBatch, index: RightIndex | None) -> RowNumbers:
        """None so far."""
        return np.full(left.num_rows, -1, dtype=np.int32)

    def _joined(self, left: pa.RecordBatch, index: RightIndex | None, matches: RowNumbers) -> Iterator[pa.RecordBatch]:
        none = np.empty(0, dtype=np.int32)
        blocks = iter([(0, left.num_rows, np.empty(0, dtype=np.int64), none)])
        if isinstance(index, ConditionIndex):
            blocks = index.candidates(left, MOST_PAIRS)
        stage = self._candidates
        for begin, end, i, j in blocks:
            out = []
            if index is not None and i.size:
                self.counters["matched"] += i.size
                out.append(stage.rows(left, i, index.rows, j, self._cell, self._seen))
            if end > begin:
                out.append(stage.rows(left, np.arange(begin, end), None, none, self._cell, self._seen))
            for rows in out:
                self.counters["results"] += rows.num_rows
                yield rows.drop_columns([COUNTERS])
        self._seen += left.num_rows

    def _mark_needed(self, needed: Mask, index: RightIndex, watermark: int, waiting_for: RowNumbers) -> None:
        """Mark the right rows that a left row, one that waits or one that comes, may still have for a candidate."""
        # A row that waits has a time from the watermark less its horizon on, and looks back from there.
        waits = 0 if self.spec.direction == "backward" else 1
        looks_back = 0 if self.spec.direction == "forward" else 1
        first = watermark - (waits + looks_back) * self._within()
        needed[index.order[index.times >= first]] = True

    def _within(self) -> int:
        # Without a tolerance all right rows would have to stay; the plan refuses that for streams.
        return min(int(self.spec.within), HIGHEST) if self.spec.within is not None else HIGHEST

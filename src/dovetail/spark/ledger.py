"""Counters of a batch join on their way to the driver, apart from the rows.

A counter that travels on a row of its own makes Spark look at every row to find it, copy the others, and drop it: half
of the time that results take from Python to Spark.  An accumulator costs nothing per row.  Spark Connect has none, so
there counters stay on rows (:mod:`dovetail.spark.metrics`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext

if TYPE_CHECKING:
    from pyspark import SparkContext

Entry = tuple[str, str, tuple[int, int], list[int]]
"""Which ledger, which action, which cell of which task, and the counters."""

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Ledger:
    """The counters of the latest action on a frame."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._action = ""
        self._cells: dict[tuple[int, int], list[int]] = {}
        _open[self.name] = self

    def take(self, action: str, cell: tuple[int, int], counts: list[int]) -> None:
        """Record the counters of a cell; a task that runs again replaces what it recorded before."""
        if action != self._action:
            self._action, self._cells = action, {}
        self._cells[cell] = counts

    def cells(self) -> list[list[int]]:
        """The counters of all cells."""
        return list(self._cells.values())


_open: WeakValueDictionary[str, Ledger] = WeakValueDictionary()
"""Ledgers of frames that are still in use.  Counters of other frames are dropped as they come in."""


class _Delivery(AccumulatorParam[list[Entry]]):
    """Workers collect entries; the driver hands them to their ledgers and keeps none."""

    def zero(self, value: list[Entry]) -> list[Entry]:
        """No entries."""
        return []

    def addInPlace(self, value: list[Entry], more: list[Entry]) -> list[Entry]:  # noqa: N802
        """Called by Spark wherever it merges entries."""
        if _accumulators:
            for name, action, cell, counts in more:
                ledger = _open.get(name)
                if ledger is not None:
                    ledger.take(action, cell, counts)
            return value
        value.extend(more)
        return value


_accumulators: dict[str, Accumulator[list[Entry]]] = {}
"""One accumulator for each application, because Spark never frees one.  Workers have none."""


def posting(ledger: Ledger, context: SparkContext) -> Callable[[list[int]], None]:
    """What a task calls with the counters of each of its cells, for the ledger."""
    application = str(context.applicationId)
    if application not in _accumulators:
        _accumulators[application] = context.accumulator([], _Delivery())
    accumulator, name, serial = _accumulators[application], ledger.name, [0]

    def post(counts: list[int]) -> None:
        task: Any = TaskContext.get()
        action = task.getLocalProperty("spark.sql.execution.id") or ""
        # Every task gets a new copy of this function, so each counts its cells from 0.
        accumulator.add([(name, action, (task.partitionId(), serial[0]), counts)])
        serial[0] += 1

    return post


def tapped(stage: Stage, ledger: Ledger, context: SparkContext) -> Stage:
    """A stage whose counters (the row that has them) go to a ledger, and whose rows come out without that column."""
    post = posting(ledger, context)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in stage(batches):
            counts = rows.column(rows.num_columns - 1)
            if rows.num_rows == 1 and counts[0].is_valid:
                post(counts[0].as_py())
            elif rows.num_rows:
                yield rows.select(range(rows.num_columns - 1))

    return run

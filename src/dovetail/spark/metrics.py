"""Counters of a join, from the workers to the user.

Kernels put their counters on rows of their own.  In a stream an observation adds them up on the way, so they reach the
query's progress and every listener of Spark; then the rows are dropped.  A batch join takes them off the rows before
they leave Python (:mod:`dovetail.spark.ledger`), and its observation only tells that an action has finished.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.utils import is_remote

from dovetail.columns.structs import Nested, nest
from dovetail.errors import ArgumentError
from dovetail.plan import Plan
from dovetail.spark.frames import nested_fields, never_null
from dovetail.spark.ledger import Ledger, Stage, tapped
from dovetail.spark.routing import arrow_function, cell_function

_HANDLE = "_dovetail"
_INCOMING = ("rows", "rows_left", "rows_right")
"""Counters of rows that reached a cell, in the families whose cells do not count for their tasks."""
_numbers = itertools.count(1)


class Recorder:
    """The observations of one step of a join."""

    def __init__(
        self,
        name: str,
        tasks: int,
        *,
        streaming: bool,
        names: tuple[str, ...],
        sums: list[Column] | None = None,
    ) -> None:
        self.name = name
        self.sums = sums
        self.names = names
        self.tasks = tasks
        self.streaming = streaming
        self.counters: list[Observation] = []
        self.ledgers: list[Ledger] = []
        self.results: Observation | None = None

    def run(
        self,
        inputs: DataFrame,
        stage: Stage,
        schema: T.StructType,
        *,
        by: str | None = None,
        shape: Sequence[Nested] | None = None,
    ) -> DataFrame:
        """The rows that a stage makes of its inputs, in groups `by` a column or task by task; its counters recorded.

        The last column of `schema` (``m``) holds the counters of a cell, on a row of its own.  With a `shape`, the
        other columns come out as its structs.
        """
        apart = not self.streaming and not is_remote()
        if shape is not None:
            # Counters that travel among the rows make a row of NULLs.
            stage = nesting(stage, shape, never_null(schema.fields) if apart else None)
            schema = T.StructType([*nested_fields(schema.fields, shape, whole=apart), schema.fields[-1]])
        if apart:
            ledger = Ledger()
            self.ledgers.append(ledger)
            stage = tapped(stage, ledger, inputs.sparkSession.sparkContext)
            observation = Observation(f"{self.name}#{next(_numbers)}")
            self.counters.append(observation)
            inputs = inputs.observe(observation, F.count(F.lit(1)).alias("segments"))
            return _applied(inputs, stage, T.StructType(schema.fields[:-1]), by)
        return self.counted(_applied(inputs, stage, schema, by))

    def counted(self, found: DataFrame) -> DataFrame:
        """What a kernel found, without its counters (``m``), which an observation collects.

        Batch collects the counters of all cells as they are and adds them up in :func:`metrics`: one expression a row
        costs little, ten would cost more than the join.  A stream reports named sums, for listeners.
        """
        counter = F.col("m")
        if self.streaming:
            observed = found.observe(self.name, *(self.sums or named_sums(self.names)))
        else:
            observation = Observation(f"{self.name}#{next(_numbers)}")
            self.counters.append(observation)
            observed = found.observe(observation, F.collect_list(counter).alias("cells"))
        return observed.filter(counter.isNull()).drop("m")

    def finished(self, rows: DataFrame) -> DataFrame:
        """Rows that conditions of Spark's own have thinned out, counted."""
        if self.streaming:
            return rows
        self.results = Observation(f"{self.name}#{next(_numbers)}")
        return rows.observe(self.results, F.count(F.lit(1)).alias("results"))

    def read(self, timeout: float) -> dict[str, Any]:
        """The counters of an action that has finished."""
        seen = [_get(one, timeout) for one in self.counters]
        cells = [row for ledger in self.ledgers for row in ledger.cells()]
        cells += [row for one in seen for row in one.get("cells", [])]
        raw = {name: _total(name, [row[at] for row in cells]) for at, name in enumerate(self.names)}
        incoming = [at for at, name in enumerate(self.names) if name in _INCOMING]
        if incoming:
            raw["largest"] = max((sum(row[at] for at in incoming) for row in cells), default=0)
        if self.results is not None:
            raw["results"] = _get(self.results, timeout)["results"]
        return _derived(raw, self.tasks)


def nesting(stage: Stage, shape: Sequence[Nested], certain: Collection[str] | None) -> Stage:
    """A stage whose rows come out in the structs of a shape, before the column of the counters."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in stage(batches):
            yield nest(rows, shape, certain).append_column("m", rows.column(rows.num_columns - 1))

    return run


def _applied(inputs: DataFrame, stage: Stage, schema: T.StructType, by: str | None) -> DataFrame:
    if by is None:
        return inputs.mapInArrow(arrow_function(stage), schema)
    return inputs.groupBy(by).applyInArrow(cell_function(stage), schema)


def named_sums(names: Sequence[str]) -> list[Column]:
    """One aggregate for each counter in the array ``m``: running totals of a task are maxima, the others sums."""
    sums = []
    for at, name in enumerate(names):
        total = F.max if name.startswith("task_") else F.sum
        sums.append(F.coalesce(total(F.col("m")[at]), F.lit(0)).alias(name.replace("task_", "most_")))
    return sums


def _total(name: str, values: list[int]) -> int:
    return max(values, default=0) if name.startswith("task_") else sum(values)


@dataclass
class Handle:
    """What Dovetail remembers of a frame it returned."""

    plan: Plan
    recorders: list[Recorder] = field(default_factory=list)


def attach(frame: DataFrame, handle: Handle) -> DataFrame:
    """The frame, with the handle where :func:`handle_of` finds it."""
    setattr(frame, _HANDLE, handle)
    return frame


def handle_of(frame: DataFrame, function: str) -> Handle:
    """The handle of a frame that Dovetail returned."""
    handle = getattr(frame, "__dict__", {}).get(_HANDLE)
    if not isinstance(handle, Handle):
        raise ArgumentError(
            f"{function} got a {type(frame).__name__} that no Dovetail join returned",
            accepted="the very DataFrame that a join returned",
            hint="keep it before you go on: pairs = dt.theta_join(...); top = pairs.limit(5); dt.explain(pairs)",
        )
    return handle


def metrics(frame: DataFrame, *, timeout: float = 10.0) -> dict[str, Any]:
    """Return the counters of a batch join, after an action on its frame has finished.

    Parameters
    ----------
    frame : DataFrame
        The DataFrame that a join returned, after an action on it or on a DataFrame derived from it.
    timeout : float, default 10.0
        Seconds to wait for the counters of an action; none come if no action has run.

    Returns
    -------
    dict of str to Any
        The counters; for more than two inputs, a dictionary of them for each step.  The notes explain their names.

    Raises
    ------
    ArgumentError
        If no join returned the frame, the join is a stream, or no action has finished in time.

    See Also
    --------
    explain : What a join will do, before it runs.

    Notes
    -----
    ``results``
        Rows of the result.
    ``candidates``
        Pairs that the kernel found, before conditions that only Spark evaluates.
    ``comparisons``
        Pairs of rows that were compared one by one: the paper's Cartesian products.
    ``rows_points``, ``rows_boxes``
        Rows that reached cells, copies included.
    ``cells``, ``tasks``
        Cells with rows, and shuffle partitions.
    ``kernel_ms``
        Time in kernels, over all tasks.
    ``balance_in``, ``balance_out``
        The largest load of a task divided by the average load, for rows in and pairs out; 1 is perfect.  Joins other
        than theta joins report the size of their largest cell as a multiple of the even share of a task; the busiest
        task has at least that.

    Examples
    --------
    >>> r, s = spark.range(100), spark.range(50)
    >>> pairs = dt.theta_join({"R": r, "S": s}, on="R.id < S.id")
    >>> pairs.count()
    1225
    >>> dt.metrics(pairs)["results"]
    1225
    """
    handle = handle_of(frame, "metrics")
    if handle.plan.streams:
        raise ArgumentError(
            "metrics of a streaming join",
            accepted="a batch join",
            hint="a stream reports them with its progress: query.lastProgress['observedMetrics']",
        )
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= threading.TIMEOUT_MAX:
        raise ArgumentError(f"timeout={timeout!r}", accepted="a number of seconds, 0 or more")
    found = {recorder.name: recorder.read(timeout) for recorder in handle.recorders}
    return next(iter(found.values())) if len(found) == 1 else found


def _get(observation: Observation, timeout: float) -> dict[str, Any]:
    """The result of an observation.

    Where no action has run, its own accessor waits for ever, and on Spark Connect it gives nothing at once.
    """
    box: list[dict[str, Any]] = []
    failures: list[Exception] = []
    deadline = time.monotonic() + timeout

    def wait() -> None:
        try:
            found = observation.get
            while not found and time.monotonic() < deadline:
                time.sleep(0.02)
                found = observation.get
        except Exception as error:
            # Whatever it is goes to the one who waits.  Spark also ends waiters that were given up long ago.
            failures.append(error)
            return
        if found:
            box.append(found)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(timeout)
    if failures:
        raise failures[0]
    if not box:
        raise ArgumentError(
            f"no action on this join has finished within {timeout:g} s",
            accepted="a join whose frame has been written, counted, collected or shown",
            hint="run an action first, such as .count() or .write.save(...)",
        )
    return box[0]


def _derived(raw: dict[str, Any], tasks: int) -> dict[str, Any]:
    """Raw counters with what a person asks for: milliseconds and balance."""
    counts = dict(raw)
    counts["kernel_ms"] = counts.pop("kernel_us") / 1000
    if "largest" in counts:
        largest, rows = counts.pop("largest"), sum(counts.get(name, 0) for name in _INCOMING)
        # The busiest task has at least the average, however small its cells are.
        counts["balance_in"] = max(1.0, largest * tasks / rows) if rows else 1.0
    if "task_rows" not in counts:
        return counts
    counts["tasks"] = tasks
    most_rows, most_pairs = counts.pop("task_rows"), counts.pop("task_pairs")
    rows = counts["rows_points"] + counts["rows_boxes"]
    counts["balance_in"] = most_rows * tasks / rows if rows else 1.0
    counts["balance_out"] = most_pairs * tasks / counts["candidates"] if counts["candidates"] else 1.0
    return counts

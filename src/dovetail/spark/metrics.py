"""Counters of a join, from the workers to the user.

Kernels put their counters on rows of their own.  In a stream an observation adds them up on the way, so they reach the
query's progress and every listener of Spark; then the rows are dropped.  A batch join takes them off the rows before
they leave Python (:mod:`dovetail.spark.ledger`), and its observation only tells that an action has finished.
:mod:`dovetail.spark.counters` adds up what the cells report.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.utils import is_remote

from dovetail.checkpoints import CheckpointHeader
from dovetail.columns.layout import COUNTERS
from dovetail.columns.structs import Nested, nest
from dovetail.errors import ArgumentError
from dovetail.plan import Plan
from dovetail.plan.prediction import Prediction
from dovetail.reports import observations, over_sources
from dovetail.spark.carriers import carried_fields, restored
from dovetail.spark.counters import added_up, fullest, named_sums, observed, readable, totals
from dovetail.spark.frames import nested_fields, never_null
from dovetail.spark.ledger import Ledger, Stage, posting, tapped
from dovetail.spark.routing import arrow_function
from dovetail.spark.runtime.versions import OBSERVES_AGAIN, ArrowFunction, apply_by_group

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from dovetail.spark.intake import Intake

_HANDLE = "_dovetail"
_NUMBER = "_dovetail_row"
"""The number of a row, the same whenever a task reads it: where an observation counts rows again, this tells."""
_ROW_BITS = 33
"""How many bits Spark gives to the number of a row within its task."""
_numbers = itertools.count(1)
_PLANS, _PLANS_OF_A_NAME = 200, 5
_plans: dict[str, list[Plan]] = {}
"""The last plans of streaming joins by the names of their observations: all that a report tells of its join."""


class Recorder:
    """Takes the counters of one step of a join, by the way that fits the session, and reads them after an action."""

    def __init__(
        self,
        name: str,
        tasks: int | None,
        *,
        streaming: bool,
        names: tuple[str, ...],
        sums: list[Column] | None = None,
    ) -> None:
        self.name = name
        self.sums = sums
        self.names = names
        self.tasks = tasks
        """How many tasks join; None for as many as have rows of the input that is not broadcast."""
        self.streaming = streaming
        self.counters: list[Observation] = []
        self.ledgers: list[Ledger] = []
        self.results: Observation | None = None
        self.header: CheckpointHeader | None = None
        """What identifies the join in the checkpoint of a stream."""
        self.timers = False
        """Whether a stream uses Spark's watermark and timers."""
        self.intake: Intake | None = None
        """How a stream takes in rows, where it can take over those of another definition of the join."""
        self.above = 0
        """How many stateful operators of the same join come after this one.  Spark numbers them from the last."""

    def run(
        self,
        inputs: DataFrame,
        stage: Stage,
        schema: T.StructType,
        *,
        by: str | None = None,
        shape: Sequence[Nested] | None = None,
    ) -> DataFrame:
        """The rows that a stage makes of its inputs, in groups `by` a column or task by task, counters recorded.

        The last column of `schema` holds the counters of a cell, on a row of its own.  With a `shape`, the
        other columns come out as its structs.
        """
        by_ledger = not self.among_rows
        if shape is not None:
            # Counters that travel among the rows make a row of NULLs.
            stage = nesting(stage, shape, never_null(schema.fields) if by_ledger else None)
        if by_ledger:
            ledger = Ledger()
            self.ledgers.append(ledger)
            stage = tapped(stage, ledger, inputs.sparkSession.sparkContext)
            inputs = inputs.observe(self._counter_observation(), F.count(F.lit(1)).alias("segments"))
        counters = [] if by_ledger else [schema.fields[-1]]
        flat = carried_fields(schema.fields), schema.fields
        sent, wanted = (
            [*(fields[:-1] if shape is None else nested_fields(fields, shape, whole=by_ledger)), *counters]
            for fields in flat
        )
        rows = restored(_applied(inputs, arrow_function(stage, self.cell), T.StructType(sent), by), wanted)
        return rows if by_ledger else self.counted(rows)

    def clock(self, inputs: DataFrame) -> Callable[[int], None] | None:
        """What a stage before a shuffle calls with the microseconds that a cell took; None where nothing can be told.

        Beside the rows, because Spark compares what a stage gives when it runs again: where that differs, as times do,
        a lost executor ends the whole job.
        """
        if self.among_rows:
            return None
        ledger = Ledger()
        self.ledgers.append(ledger)
        post, at, size = (
            posting(ledger, inputs.sparkSession.sparkContext),
            self.names.index("kernel_us"),
            len(self.names),
        )

        def took(microseconds: int) -> None:
            post([microseconds if which == at else 0 for which in range(size)])

        return took

    @property
    def cell(self) -> str:
        """One of the cells of this step, in words."""
        return f"a cell of {self.name}"

    @property
    def among_rows(self) -> bool:
        """Whether counters travel among the rows, on rows of NULLs."""
        return self.streaming or is_remote()

    def counted(self, rows: DataFrame) -> DataFrame:
        """The rows of a kernel without its counters, which an observation collects.

        Batch collects the counters of all cells as they are and adds them up in :func:`metrics`: one expression a row
        costs little, ten would cost more than the join.  A stream reports named sums, for listeners.
        """
        counter = F.col(COUNTERS)
        if self.streaming:
            counted = rows.observe(self.name, *(self.sums or [*named_sums(self.names), *fullest(self.names)]))
        else:
            # As text: Spark Connect 4.0 fails to send an array of arrays.
            numbered = F.when(counter.isNotNull(), F.struct(F.col(_NUMBER).alias("row"), counter.alias("counts")))
            cells = F.to_json(F.collect_list(numbered))
            counted = _numbered(rows).observe(self._counter_observation(), cells.alias("cells"))
        return counted.filter(counter.isNull()).drop(COUNTERS, _NUMBER)

    def finished(self, rows: DataFrame) -> DataFrame:
        """The rows that are left after conditions which only Spark evaluates, counted."""
        if self.streaming:
            return rows
        self.results = self._observation()
        results = F.count(F.lit(1)).alias("results")
        if not OBSERVES_AGAIN:
            return rows.observe(self.results, results)
        number = F.col(_NUMBER)
        first = number.bitwiseAND((1 << _ROW_BITS) - 1) == 0
        read, tasks = F.count_if(first), F.collect_set(F.when(first, F.shiftright(number, _ROW_BITS)))
        observed_rows = _numbered(rows).observe(self.results, results, read.alias("read"), F.size(tasks).alias("tasks"))
        return observed_rows.drop(_NUMBER)

    def _counter_observation(self) -> Observation:
        observation = self._observation()
        self.counters.append(observation)
        return observation

    def _observation(self) -> Observation:
        # Spark refuses two observations of one name in a query, and a user may join the same inputs twice.
        return Observation(f"{self.name}#{next(_numbers)}")

    def read(self, timeout: float) -> dict[str, Any]:
        """The counters of an action that has finished."""
        finished = [observed(observation, timeout) for observation in self.counters]
        cells = [counts for ledger in self.ledgers for counts in ledger.cells()]
        for values in finished:
            cells += {cell["row"]: cell["counts"] for cell in json.loads(values.get("cells") or "[]")}.values()
        raw = totals(self.names, cells)
        if self.results is not None:
            values = observed(self.results, timeout)
            # A job that reads the rows of one task again reads those of all.
            raw["results"] = values["results"] * values.get("tasks", 1) // max(1, values.get("read", 1))
        # A task of a broadcast join counts itself as a cell.
        return readable(raw, max(1, raw["cells"]) if self.tasks is None else self.tasks)


def _numbered(rows: DataFrame) -> DataFrame:
    return rows.withColumn(_NUMBER, F.monotonically_increasing_id())


def nesting(stage: Stage, shape: Sequence[Nested], certain: Collection[str] | None) -> Stage:
    """A stage whose rows come out in the structs of a shape, before the column of the counters."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in stage(batches):
            yield nest(rows, shape, certain).append_column(COUNTERS, rows.column(rows.num_columns - 1))

    return run


def _applied(inputs: DataFrame, function: ArrowFunction, schema: T.StructType, by: str | None) -> DataFrame:
    if by is None:
        return inputs.mapInArrow(function, schema)
    return apply_by_group(inputs, by, function, schema)


@dataclass(frozen=True)
class Call:
    """A call of a join, which can be made again on other inputs."""

    name: str
    join: Callable[..., DataFrame]
    inputs: Mapping[str, DataFrame | str] | None
    named: Mapping[str, DataFrame | str]
    options: Mapping[str, Any]


@dataclass
class Handle:
    """What Dovetail remembers of a frame it returned."""

    plan: Plan
    recorders: list[Recorder] = field(default_factory=list)
    call: Call | None = None
    predicted: Prediction | None = None


def attach(frame: DataFrame, handle: Handle) -> DataFrame:
    """The frame, with the handle where :func:`handle_of` finds it."""
    setattr(frame, _HANDLE, handle)
    for recorder in handle.recorders:
        if recorder.streaming:
            # The plan of a selection takes the place of the plan that it is made of.
            known = [one for one in _plans.pop(recorder.name, []) if one is not getattr(handle.plan, "plan", None)]
            _plans[recorder.name] = [*known, handle.plan][-_PLANS_OF_A_NAME:]
    while len(_plans) > _PLANS:
        del _plans[next(iter(_plans))]
    return frame


def plans_named(observation: str) -> list[Plan]:
    """Plans of streaming joins of this process, by the name under which a query reports their counters."""
    return list(_plans.get(observation, []))


def remember_call(frame: DataFrame, call: Call) -> None:
    """Note on the frame of a join how it was asked for."""
    handle = getattr(frame, "__dict__", {}).get(_HANDLE)
    if isinstance(handle, Handle):
        handle.call = call


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


def metrics(frame: DataFrame | StreamingQuery, *, timeout: float = 10.0) -> dict[str, Any]:
    """Return the counters of a batch join, after an action on its frame has finished, or those of a streaming query.

    Parameters
    ----------
    frame : DataFrame or StreamingQuery
        The DataFrame that a batch join returned, after an action on it or on a DataFrame derived from it; or a query
        that runs or has run, whose counters are added up over ``query.recentProgress``.
    timeout : float, default 10.0
        Seconds to wait for the counters of an action; none come if no action has run.

    Returns
    -------
    dict of str to Any
        The counters; for more than two inputs, a dictionary of them for each step, and for a query with several
        joins one for each join.  The notes explain their names.

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
        Pairs that the kernel found, before conditions that only Spark evaluates.  Of a nearest join: the neighbours
        that cells have found, of which the nearest come out.
    ``matches``
        Of an aggregate join: the matches that its answers stand for, none of which was formed.  Of a nearest join of
        two streams: the neighbours that came out.
    ``comparisons``
        Pairs of rows that were compared one by one: the paper's Cartesian products.
    ``rows_points``, ``rows_boxes``
        Rows that reached cells, copies included.
    ``cells``, ``tasks``
        Cells with rows, and shuffle partitions.  Of a broadcast join both are the tasks that had rows to join.
    ``kernel_ms``
        Time in kernels, over all tasks.  Of aggregate and nearest joins on Spark Connect: in their last stage.
    ``balance_in``, ``balance_out``
        The largest load of a task divided by the average load, for rows in and pairs out; 1 is perfect.  Joins other
        than theta joins report the size of their largest cell as a multiple of the even share of a task; the busiest
        task has at least that.
    ``load_largest``, ``load_least``
        The load of the busiest task, and the least that is possible: rows in and half of the pairs out, without copies,
        divided evenly among the tasks.  Joins other than theta joins count the rows of their largest cell, and all rows
        that reached cells.
    ``rows_in``, ``copies``
        Of a theta or an as-of join: the rows that had a cell to go to, and how many times one of them went to a further
        cell.  Of a broadcast theta join, all rows of the small side in every task.
    ``split_cells``, ``spilled_bytes``
        Of theta and as-of joins: cells that were more than a worker may hold and were joined in pieces, and the bytes
        that waited on disk meanwhile.
    ``predicted_results``, ``predicted_low``, ``predicted_high``, ``predicted_core_seconds``
        What ``explain(frame, sample=True)`` predicted, if it was called: rows of the result, the ends of their interval
        of 95 %, and the work of all cores.
    ``micro_batches``
        Of a query: the micro-batches that are added up.  Spark keeps the last 100
        (``spark.sql.streaming.numRecentProgressUpdates``).  ``late``, ``evicted`` and ``rows_dropped`` are counts of
        rows, too; ``held_rows``, ``held_bytes``, ``state_bytes`` and ``throttle`` are those of the last micro-batch
        that had something to do.  A single report, such as ``query.lastProgress``, may be empty: after the last rows of
        ``availableNow`` there is one more micro-batch, which only moves the watermark.

    ``input_rows``, ``seconds``
        Of a query: the rows that its sources gave, and how long the micro-batches took that had any.  One divided by
        the other is the rate that it can keep up with as it is; docs/operations.md says which limit follows from it.

    Examples
    --------
    >>> r, s = spark.range(100), spark.range(50)
    >>> pairs = dt.theta_join({"R": r, "S": s}, on="R.id < S.id")
    >>> pairs.count()
    1225
    >>> dt.metrics(pairs)["results"]
    1225
    """
    if hasattr(type(frame), "recentProgress"):
        return _query_metrics(cast("StreamingQuery", frame))
    handle = handle_of(cast(DataFrame, frame), "metrics")
    if handle.plan.streams:
        raise ArgumentError(
            "metrics of a streaming join",
            accepted="a batch join, or a query that runs the stream",
            hint="dt.metrics(query) adds up what query.recentProgress reports, batch by batch",
        )
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= threading.TIMEOUT_MAX:
        raise ArgumentError(f"timeout={timeout!r}", accepted="a number of seconds, 0 or more")
    counters = {recorder.name: recorder.read(timeout) for recorder in handle.recorders}
    found = next(iter(counters.values())) if len(counters) == 1 else counters
    return found if handle.predicted is None else {**found, **handle.predicted.counters()}


def _query_metrics(query: StreamingQuery) -> dict[str, Any]:
    """What the joins of a query have counted, added up over the progress that Spark still has."""
    batches: dict[str, list[dict[str, Any]]] = {}
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    for report in reports:
        for name, counts in observations(report).items():
            batches.setdefault(name, []).append(counts)
    total = {name: added_up(counts) for name, counts in batches.items()}
    joins = [name for name in total if name.startswith("dovetail(")]
    if len(joins) == 1:
        # Whatever else the query observes, such as early rows of an input, belongs to its only join.
        total = {key: value for name in [*joins, *total] for key, value in total[name].items()}
    busy = [report for report in reports if over_sources(report, "numInputRows")]
    return {
        **total,
        "micro_batches": len(reports),
        "input_rows": sum(over_sources(report, "numInputRows") for report in busy),
        "seconds": sum((report.get("durationMs") or {}).get("triggerExecution", 0) for report in busy) / 1000,
    }

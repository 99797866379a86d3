"""Job to frames: its inputs, its join and its output.  What Spark refuses is an error of the line that asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.api.joins import JOINS
from dovetail.errors import CheckpointError, DovetailError, JobError, PredicateError
from dovetail.jobs.fields import refused
from dovetail.jobs.job import AVAILABLE_NOW, Input, Job, Join
from dovetail.jobs.positions import Node
from dovetail.spark import queries
from dovetail.spark.metrics import handle_of, metrics
from dovetail.spark.plan_text import plan_text, predicted_text
from dovetail.spark.runtime.failures import ANALYSIS_ERRORS, SPARK_ERRORS, brief
from dovetail.spark.sources import analysed, read_frame, reader, start_query, write_frame
from dovetail.spark.sql import statement_frame
from dovetail.spark.watermarks import watermarked
from dovetail.statements.syntax.statement import read_statement
from dovetail.watch.records import Record, record_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class BuiltJob:
    """A job whose frames exist; nothing has run.

    Parameters
    ----------
    job : Job
        What the file says.
    spark : SparkSession
        The session to run it in.
    """

    def __init__(self, job: Job, spark: SparkSession) -> None:
        self.job = job
        self.spark = spark
        frames = {name: _input_frame(spark, source, job.mode == "stream") for name, source in job.inputs.items()}
        self.joined = join_frames(job.join, frames, exact=job.mode == "batch")
        with _blaming(job.join.node, "select"):
            # A call has selected already, and left out what nobody needs.
            chosen = job.join.select if job.join.sql else ()
            self.frame = analysed(self.joined.selectExpr(*chosen) if chosen else self.joined)
        _check_columns(job, self.frame)

    def plan(self, *, sample: bool = False) -> str:
        """What the join will do, in words; with a sample also what it will give, for which small jobs run."""
        return plan_text(self.joined) + (predicted_text(self.joined) if sample else "")

    def schema(self) -> str:
        """The columns of the result."""
        return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self.frame.schema.fields)

    def write(self) -> None:
        """Run a batch job to its end."""
        node = self.job.output.node
        with _blaming(node, "mode" if "mode" in node.keys else "format", "output", only=ANALYSIS_ERRORS):
            write_frame(self.frame, **self._sink())

    def cancel(self) -> None:
        """Cancel what :meth:`write` runs."""
        queries.cancel(self.spark)

    def start(self) -> StreamingQuery:
        """Start a stream."""
        output = self.job.output
        interval = None if output.trigger == AVAILABLE_NOW else output.trigger
        if output.checkpoint is not None:
            # State that cannot be read here is for the query to find; its workers look once more.
            with (
                suppress(*SPARK_ERRORS),
                _blaming(output.node, "checkpoint", "output.checkpoint", only=(CheckpointError,)),
            ):
                queries.check_checkpoint(self.joined, output.checkpoint)
        with _blaming(output.node, "format", "output"):
            return start_query(
                self.frame, name=self.job.name, checkpoint=output.checkpoint, interval=interval, **self._sink()
            )

    def _sink(self) -> dict[str, Any]:
        output = self.job.output
        return {
            "format": output.format,
            "path": output.path,
            "table": output.table,
            "mode": output.modes[self.job.mode],
            "options": output.options,
            "partition_by": output.partition_by,
        }

    def described(self) -> Record:
        """What a record of the start says of the join: its plan, and the target of one that sheds."""
        target = getattr(getattr(handle_of(self.joined, "explain").plan, "shed", None), "target", None)
        return {"plan": self.plan()} | ({} if target is None else {"target": target})

    def counters(self) -> dict[str, Any]:
        """What a batch job counted, if its join counts anything."""
        return metrics(self.joined) if handle_of(self.joined, "metrics").recorders else {}


def follow(query: StreamingQuery, report: Callable[[Record], None], stopping: Callable[[], bool]) -> None:
    """Report the record of every micro-batch of a query until it ends or is to stop."""
    queries.follow(query, lambda progress: report(record_of(progress)), stopping)


def join_frames(join: Join, frames: Mapping[str, DataFrame], *, exact: bool = False) -> DataFrame:
    """The lazy frame of a join; what its function refuses is an error of the line that asked for it.

    An `exact` one sheds nothing, whatever the statement says: static tables set no pace to keep up with.
    """
    if join.sql is not None:
        joins = {**JOINS, "window": _unshed_window_join} if exact else JOINS
        with _blaming(join.node, "sql", "join.sql"):
            return statement_frame(read_statement(join.sql), frames, joins)
    assert join.kind is not None
    inputs = {alias: frames[name] for alias, name in join.inputs.items()}
    with _blaming(join.node, "kind", "join"):
        chosen = {"select": list(join.select)} if join.select else {}
        joined: DataFrame = JOINS[join.kind](inputs, **join.arguments, **chosen)
    return joined


def _unshed_window_join(inputs: Mapping[str, DataFrame], **options: Any) -> DataFrame:
    joined: DataFrame = JOINS["window"](inputs, **{key: value for key, value in options.items() if key != "shed"})
    return joined


def _check_columns(job: Job, frame: DataFrame) -> None:
    """Refuse columns that a file of text cannot hold, which Spark would refuse in the middle of a stream."""
    nested = [
        field.name
        for field in frame.schema.fields
        if field.dataType.simpleString().startswith(("struct<", "array<", "map<"))
    ]
    if (job.output.format or "").lower() != "csv" or not nested:
        return
    fields = [f"{name}.{field.name}" for name in nested for field in getattr(frame.schema[name].dataType, "fields", [])]
    wanted = ", ".join(fields[:2] or nested[:1])
    hint = f"SELECT {wanted}, ... in the statement" if job.join.sql else f"select: [{wanted}, ...] under join"
    raise job.output.node.key_error(
        "format", f"output is csv, and the column {nested[0]} is {frame.schema[nested[0]].dataType.typeName()}",
        accepted="columns of single values, or a format that nests, such as parquet or json",
        hint=f"name the columns to write: {hint}" if fields else "write it as text: to_json(...)",
    )  # fmt: skip


def _input_frame(spark: SparkSession, source: Input, streaming: bool) -> DataFrame:
    streams = streaming and not source.static
    node = source.node
    with _blaming(node, "table" if source.table else "format", node.name):
        options = reader(spark, source.options, streaming=streams)
        if source.schema is not None:
            with _blaming(node, "schema", f"{node.name}.schema"):
                options = options.schema(source.schema)
        frame = read_frame(options, format=source.format, path=source.path, table=source.table)
    for key, apply in _steps(source, streams):
        with _blaming(node, key, f"{node.name}.{key}"):
            frame = analysed(apply(frame))
    return frame


def _steps(source: Input, streams: bool) -> Iterator[tuple[str, Callable[[DataFrame], DataFrame]]]:
    """What happens to the rows of an input, by the key that asks for it."""
    where, watermark = source.where, source.watermark
    if source.select:
        yield "select", lambda frame: frame.selectExpr(*source.select)
    if where is not None:
        yield "where", lambda frame: frame.where(where)
    if watermark is None or not streams:
        return
    column, delay, max_ahead = watermark.column, watermark.delay, watermark.max_ahead
    if max_ahead is None:
        yield "watermark", lambda frame: frame.withWatermark(column, delay)
    else:
        guard = partial(watermarked, time=column, delay=delay, max_ahead=max_ahead)
        yield "watermark", lambda frame: guard({source.name: frame})[source.name]


@contextmanager
def _blaming(node: Node, key: str, what: str = "", *, only: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what a step refuses into an error of the line that asked for it."""
    prefix = f"{what}: " if what else ""
    expected = only or (DovetailError, *SPARK_ERRORS)
    try:
        yield
    except JobError:
        raise
    except expected as error:
        if isinstance(error, DovetailError):
            raise refused(node, _culprit(node, key, error), what, error) from error
        # Spark knows whether a query can run in an output mode only when it starts.
        asked = "mode" if "OUTPUT_MODE" in str(error) and "mode" in node.keys else key
        raise node.key_error(asked, prefix + brief(error)) from error


def _culprit(node: Node, key: str, error: DovetailError) -> str:
    """The key of a join that an error of its function is about."""
    if isinstance(error, PredicateError):
        return "on" if "on" in node.keys else key
    named = [one for one in node.keys if f"{one}=" in error.given or error.given.startswith((f"{one} ", f"{one}["))]
    if named:
        return named[0]
    return "on" if " on " in f" {error.given} " and "on" in node.keys else key

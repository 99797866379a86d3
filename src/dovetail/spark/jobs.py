"""Job files on Spark: inputs to frames, the join, the output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from dovetail.api.sql import sql
from dovetail.errors import DovetailError, JobError, PredicateError
from dovetail.jobs.calls import function_of
from dovetail.jobs.job import AVAILABLE_NOW, Input, Job, Join
from dovetail.jobs.marks import Node
from dovetail.jobs.progress import Record, record_of
from dovetail.spark.metrics import Handle, handle_of, metrics
from dovetail.spark.runtime.quiet import SPARK_ERRORS
from dovetail.spark.watermarks import watermarked

_PATIENCE = 30
"""Seconds that a micro-batch gets to end by itself once its stream is to stop."""


class Built:
    """A job whose frames exist; nothing has run.

    Parameters
    ----------
    job
        What the file says.
    spark
        The session.
    """

    def __init__(self, job: Job, spark: SparkSession) -> None:
        self.job = job
        self.spark = spark
        frames = {name: _input(spark, one, streaming=job.mode == "stream") for name, one in job.inputs.items()}
        self.joined = join_frames(job.join, frames)
        with _pointing(job.join.node, "select"):
            self.frame = self.joined.selectExpr(*job.join.select) if job.join.select else self.joined
            # Spark Connect looks at nothing before it is asked.
            self.frame.schema  # noqa: B018

    def plan(self) -> str:
        """What the join will do, in words."""
        return handle_of(self.joined, "explain").plan.text()

    def schema(self) -> str:
        """The columns that come out."""
        return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self.frame.schema.fields)

    def write(self) -> None:
        """Run a batch job to its end."""
        output = self.job.output
        writer = self.frame.write.mode(output.modes["batch"]).options(**output.options)
        if output.partition_by:
            writer = writer.partitionBy(*output.partition_by)
        with _pointing(
            output.node, "mode" if "mode" in output.node.keys else "format", "output", only=AnalysisException
        ):
            if output.table is not None:
                writer.saveAsTable(output.table)
            else:
                assert output.format is not None
                writer.format(output.format).save(output.path)

    def counters(self) -> dict[str, Any]:
        """What a batch job counted, if its join counts anything."""
        handle = getattr(self.joined, "__dict__", {}).get("_dovetail")
        return metrics(self.joined) if isinstance(handle, Handle) and handle.recorders else {}

    def start(self) -> StreamingQuery:
        """Start a stream."""
        output = self.job.output
        writer = self.frame.writeStream.outputMode(output.modes["stream"]).queryName(self.job.name)
        writer = writer.options(**output.options)
        if output.checkpoint is not None:
            writer = writer.option("checkpointLocation", output.checkpoint)
        if output.partition_by:
            writer = writer.partitionBy(*output.partition_by)
        if output.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=output.trigger)
        with _pointing(output.node, "format", "output"):
            if output.table is not None:
                return writer.toTable(output.table)
            assert output.format is not None
            return writer.format(output.format).start(output.path)


def _input(spark: SparkSession, one: Input, *, streaming: bool) -> DataFrame:
    streams = streaming and not one.static
    with _pointing(one.node, "table" if one.table else "format", f"inputs.{one.name}"):
        reader: Any = spark.readStream if streams else spark.read
        reader = reader.options(**one.options)
        if one.schema is not None:
            with _pointing(one.node, "schema", f"inputs.{one.name}.schema"):
                reader = reader.schema(one.schema)
        if one.table is not None:
            frame: DataFrame = reader.table(one.table)
        else:
            loader = reader.format(one.format)
            frame = loader.load(one.path) if one.path is not None else loader.load()
        # Spark looks at what it was told here, and not before.
        frame.schema  # noqa: B018
    for key, apply in _steps(one, streams):
        with _pointing(one.node, key, f"inputs.{one.name}.{key}"):
            frame = apply(frame)
            frame.schema  # noqa: B018
    return frame


def _steps(one: Input, streams: bool) -> Iterator[tuple[str, Callable[[DataFrame], DataFrame]]]:
    where, watermark, ahead = one.where, one.watermark, one.max_ahead
    if one.select:
        yield "select", lambda frame: frame.selectExpr(*one.select)
    if where is not None:
        yield "where", lambda frame: frame.where(where)
    if watermark is not None and streams:
        column, delay = watermark
        if ahead is None:
            yield "watermark", lambda frame: frame.withWatermark(column, delay)
        else:
            guard = partial(watermarked, time=column, delay=delay, max_ahead=ahead)
            yield "watermark", lambda frame: guard({one.name: frame})[one.name]


def join_frames(join: Join, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The lazy frame of a join; what its function refuses is an error of the line that asked for it."""
    if join.sql is not None:
        with _pointing(join.node, "sql", "join.sql"):
            return sql(join.sql, **frames)
    assert join.kind is not None
    inputs = {alias: frames[name] for alias, name in join.inputs.items()}
    with _pointing(join.node, "kind", "join"):
        joined: DataFrame = function_of(join.kind)(inputs, **join.arguments)
    return joined


@contextmanager
def _pointing(node: Node, key: str, what: str = "", *, only: type[Exception] | None = None) -> Iterator[None]:
    """Turn what a step refuses into an error of the line that asked for it."""
    prefix = f"{what}: " if what else ""
    refused: tuple[type[Exception], ...] = (DovetailError, *SPARK_ERRORS) if only is None else (only,)
    try:
        yield
    except JobError:
        raise
    except refused as error:
        if isinstance(error, DovetailError):
            _raise_within(node, prefix, error)
            raise node.key_error(
                _culprit(node, key, error), prefix + error.given, accepted=error.accepted, hint=error.hint
            ) from error
        # Spark knows whether a query can run in an output mode only when it starts.
        asked = "mode" if "OUTPUT_MODE" in str(error) and "mode" in node.keys else key
        raise node.key_error(asked, prefix + brief(error)) from error


_PLACE = re.compile(r"(?P<key>SQL|on), line (?P<line>\d+): ")


def _raise_within(node: Node, prefix: str, error: DovetailError) -> None:
    """Raise an error that knows its line within an SQL text with the line of the file; its picture shows the place."""
    place = _PLACE.match(error.given)
    value = (node.content if isinstance(node.content, dict) else {}).get(place["key"].lower()) if place else None
    if place is None or value is None:
        return
    line = value.line_of(int(place["line"]))
    given = f"{node.source.name}:{line}: {prefix}{error.given[place.end() :]}"
    raise JobError(given, accepted=error.accepted, hint=error.hint) from error


def _culprit(node: Node, key: str, error: DovetailError) -> str:
    """The key of a join that an error of its function is about."""
    if isinstance(error, PredicateError):
        return "on" if "on" in node.keys else key
    named = [one for one in node.keys if f"{one}=" in error.given or error.given.startswith((f"{one} ", f"{one}["))]
    if named:
        return named[0]
    return "on" if " on " in f" {error.given} " and "on" in node.keys else key


def brief(error: Exception) -> str:
    """The first lines of a message; those of Spark carry the traces of two languages after them."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return "\n".join(line for line in lines[:3] if not line.startswith(("JVM stacktrace", "== SQL")))


def follow(query: StreamingQuery, report: Callable[[Record], None], stopping: Callable[[], bool]) -> None:
    """Report every micro-batch of a query until it ends, or until it is to stop and has ended a micro-batch.

    A micro-batch that is cut off would be done again by the next run, so it gets some time to end.
    """
    seen: set[tuple[object, object]] = set()
    waited, step = 0, 1
    try:
        over = False
        while not over:
            over = bool(query.awaitTermination(step))
            fresh = _fresh(query, seen)
            for record in fresh:
                report(record)
            if stopping():
                waited += step
                over = over or bool(fresh) or waited >= _PATIENCE or not query.status["isTriggerActive"]
    finally:
        query.stop()
    for record in _fresh(query, seen):
        report(record)


def _fresh(query: StreamingQuery, seen: set[tuple[object, object]]) -> list[Record]:
    found = []
    for progress in query.recentProgress:
        report = json.loads(progress.json)
        key = (report["batchId"], report["timestamp"])
        if key not in seen:
            seen.add(key)
            found.append(record_of(report))
    return found


def tasks(spark: SparkSession) -> tuple[int, int] | None:
    """Finished and all tasks of the stages that run, where the session can tell."""
    if is_remote():
        return None
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

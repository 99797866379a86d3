"""Queries: whether a checkpoint is theirs, the reports of their micro-batches, a graceful stop, and running tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from dovetail.checkpoints import HEADER, SEGMENTS_STATE, check_headers
from dovetail.errors import ArgumentError
from dovetail.spark.metrics import handle_of
from dovetail.spark.runtime.failures import ANSWERS, is_jvm_gone, is_state_missing

_STATEFUL = "transformWithState"
"""How the name of Spark's operator begins that keeps the state of a join."""
_PATIENCE = 30
"""Seconds that a micro-batch gets to end by itself once its stream is to stop."""


def check_checkpoint(frame: DataFrame, path: str | Path) -> None:
    """Check that a checkpoint belongs to a join of streams, before a query starts on it.

    A query that is started on the checkpoint of another join fails in its first micro-batch.  This function finds out
    before, and changes nothing.

    Parameters
    ----------
    frame : DataFrame
        The streaming DataFrame that a join or :func:`sql` returned.
    path : str or Path
        The ``checkpointLocation`` of the query.  One that does not exist, or in which no micro-batch has been
        committed yet, belongs to any join.

    Raises
    ------
    CheckpointError
        If another join or another version of Dovetail wrote the checkpoint; the message names the difference.
    ArgumentError
        If no join of streams returned the frame.

    See Also
    --------
    explain : What a join will do.

    Notes
    -----
    It runs a small Spark job for each stateful join, which reads the state of as many partitions as it takes to find
    one with rows, usually one.  A stream that keeps no state, such as one that joins a static table, fits any
    checkpoint; Spark itself compares the rest of the query.

    Examples
    --------
    >>> import tempfile
    >>> rate = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    >>> pairs = dt.window_join({"A": rate, "B": rate}, on="A.value = B.value", time="timestamp", within="5 seconds")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dt.check_checkpoint(pairs, folder)  # nothing has been written there
    """
    handle = handle_of(frame, "check_checkpoint")
    if not handle.plan.streams:
        raise ArgumentError("check_checkpoint got a join of static inputs", accepted="a join of streams")
    if not isinstance(path, str | Path) or not str(path):
        raise ArgumentError(f"path={path!r}", accepted="the folder of a checkpoint, as text or Path")
    expected = [recorder.header for recorder in handle.recorders if recorder.header is not None]
    check_headers(expected, stored_headers(frame.sparkSession, str(path)) if expected else [])


def stored_headers(spark: SparkSession, path: str) -> list[bytes]:
    """The headers that the joins of a query have stored in its checkpoint, in the order of Spark's operators."""
    return [
        header
        for operator in stateful_operators(spark, path)
        for header in stored_header(spark, path, operator.operatorId)
    ]


def stateful_operators(spark: SparkSession, path: str, *, joins_only: bool = True) -> list[Any]:
    """What Spark says of the operators in a checkpoint that may be joins, in their order; none where nothing is."""
    operators = _read(spark.read.format("state-metadata"), path)
    joins = [row for row in operators if not joins_only or row.operatorName.startswith(_STATEFUL)]
    return sorted(joins, key=lambda row: row.operatorId)


def stored_header(spark: SparkSession, path: str, operator: int) -> list[bytes]:
    """The header of one cell: all cells of a join have the same."""
    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", SEGMENTS_STATE)
    rows = _read(reader, path, lambda state: state.where(F.col("user_map_key.name") == HEADER).limit(1))
    return [bytes(row.user_map_value.segment) for row in rows]


def _read(reader: Any, path: str, taking: Callable[[DataFrame], DataFrame] = lambda state: state) -> list[Any]:
    """Rows of one of Spark's sources of state; none where there is nothing to read yet, or it is somebody else's."""
    try:
        rows: list[Any] = taking(reader.load(path)).collect()
    except PySparkException as error:
        if not is_state_missing(error):
            raise
        return []
    return rows


def follow(query: StreamingQuery, report: Callable[[dict[str, Any]], None], stopping: Callable[[], bool]) -> None:
    """Report every micro-batch of a query until it ends, or until it is to stop and has ended a micro-batch.

    A micro-batch that is cut off would be done again by the next run, so it gets some time to end.

    Parameters
    ----------
    query
        A query that has been started; it is stopped at the end.
    report
        Gets the progress of each micro-batch as the JSON form of ``query.lastProgress``.
    stopping
        Asked about every second whether the query is to stop.
    """
    seen: set[tuple[object, object]] = set()
    waited, step = 0, 1
    try:
        over = False
        while not over:
            over = bool(query.awaitTermination(step))
            reports = list(_unseen_reports(query, seen))
            for progress in reports:
                report(progress)
            if stopping():
                waited += step
                over = over or bool(reports) or waited >= _PATIENCE or not query.status["isTriggerActive"]
    finally:
        query.stop()
    for progress in _unseen_reports(query, seen):
        report(progress)


def _unseen_reports(query: StreamingQuery, seen: set[tuple[object, object]]) -> Iterator[dict[str, Any]]:
    for progress in query.recentProgress:
        report = json.loads(progress.json)
        key = (report["batchId"], report["timestamp"])
        if key not in seen:
            seen.add(key)
            yield report


def cancel(spark: SparkSession) -> None:
    """Cancel the jobs of a session; nothing is left to cancel where its JVM has ended already."""
    try:
        spark.interruptAll()
    except ANSWERS as error:
        if not is_jvm_gone(error):
            raise


def running_tasks(spark: SparkSession) -> tuple[int, int] | None:
    """Finished and all tasks of the stages that run; None where the session cannot tell."""
    if is_remote():
        return None
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

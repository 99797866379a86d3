"""Running queries: the reports of their micro-batches, a graceful stop, and the tasks of a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

_PATIENCE = 30
"""Seconds that a micro-batch gets to end by itself once its stream is to stop."""


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


def running_tasks(spark: SparkSession) -> tuple[int, int] | None:
    """Finished and all tasks of the stages that run; None where the session cannot tell."""
    if is_remote():
        return None
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

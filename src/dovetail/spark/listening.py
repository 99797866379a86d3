"""`listen`: progress records of any program's streaming queries, on a classic session and on Spark Connect."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from dovetail.errors import ArgumentError
from dovetail.reports import observations
from dovetail.spark.metrics import plans_named
from dovetail.spark.runtime.failures import ANSWERS, brief
from dovetail.watch.files import state_folder
from dovetail.watch.records import Record
from dovetail.watch.serving import Serving
from dovetail.watch.writer import RunWriter

_CLASS = re.compile(r"^(?:[a-z]\w*\.)+\w+: ")
"""The name of Java's class before what Spark says of an error."""
_UNWATCHED = "unwatched"
"""The status of a query that goes on after its listener has stopped."""
_LAST_EVENTS = 3.0
"""Seconds that Spark gets to report the end of a query that has been stopped already."""


class _Listener(StreamingQueryListener):
    """Passes events on, and does nothing else: the query waits meanwhile."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._writer.put("start", str(event.runId), {"id": str(event.id), "name": event.name})

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        facts = json.loads(progress.json)
        self._writer.put("batch", str(progress.runId), {**facts, "id": str(progress.id), "name": progress.name})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        said = event.exception
        ending = (
            {"status": "failed", "error": _CLASS.sub("", brief(Exception(said)))} if said else {"status": "finished"}
        )
        self._writer.put("end", str(event.runId), ending)


class Listening:
    """A listener that writes; :func:`listen` returns it.

    Use it as a context manager, or call :meth:`stop`.
    """

    url: str | None = None
    """Where the page of these queries is, if one was asked for."""

    def __init__(self, spark: SparkSession, folder: Path | None, serving: Serving | None) -> None:
        self._spark = spark
        self._serving = serving
        self.url = None if serving is None else serving.url
        self._writer = RunWriter(folder, _plan_of)
        self._listener = _Listener(self._writer)
        self._stopped = False
        # Spark reports no start of a query that runs already.
        for query in spark.streams.active:
            self._writer.put("start", str(query.runId), {"id": str(query.id), "name": query.name})
        spark.streams.addListener(self._listener)

    def stop(self) -> None:
        """Stop listening, and finish the files; the queries go on."""
        if self._stopped:
            return
        self._stopped = True
        ends: dict[str, str] = {}
        try:
            active = {str(query.runId) for query in self._spark.streams.active}
            deadline = time.monotonic() + _LAST_EVENTS
            # A query that has been stopped a moment ago: the event of its end is on its way.
            while self._writer.open_runs() - active and time.monotonic() < deadline:
                time.sleep(0.05)
            self._spark.streams.removeListener(self._listener)
            ends = {run: _UNWATCHED if run in active else "finished" for run in self._writer.open_runs()}
        except ANSWERS:
            # The session has gone, and its queries with it.
            ends = dict.fromkeys(self._writer.open_runs(), "finished")
        self._writer.stop(ends)
        if self._serving is not None:
            self._serving.stop()

    def __enter__(self) -> Listening:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def listen(
    spark: SparkSession,
    *,
    folder: str | Path | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
) -> Listening:
    """Write the progress of all streaming queries of a session, for ``dovetail top`` and ``dovetail watch``.

    Each run of a query gets a file of its own with a record for its start, every micro-batch and its end, with the
    error if it failed.  Queries that run already are written from now on.  Queries without a join of Dovetail
    are written, too; they have no counters of a join.

    Parameters
    ----------
    spark : SparkSession
        A classic session or one of Spark Connect.
    folder : str or Path, optional
        Where the files go; by default the folder in which ``dovetail run`` has them.
    port : int, optional
        Serve the page of ``dovetail watch``, and ``/metrics`` for Prometheus, from this program; 0 takes any port that
        is free.  The result's ``url`` says where.
    host : str, default "127.0.0.1"
        The address that it listens on.  With one that others can reach, they need the token.
    token : str, optional
        What requests must bring, of at least 16 characters; made where others can reach the page, unless given.

    Returns
    -------
    Listening
        Call its ``stop()``, or use it in a ``with`` block; the queries go on.

    Raises
    ------
    ArgumentError
        If an argument is not one of these.
    SetupError
        If nothing can listen on the port.

    See Also
    --------
    metrics : What a query counted so far.

    Notes
    -----
    A thread writes; neither a slow disk nor a full one makes a query wait or fail.  Batch joins are not seen, because
    Spark tells listeners of streams nothing about them; a job file of ``dovetail run`` writes its own start and end.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with dt.listen(spark, folder=folder):
    ...         rate = spark.readStream.format("rate").load()
    ...         query = rate.writeStream.format("noop").queryName("numbers").start()
    ...         query.stop()
    ...     len(list(Path(folder).glob("numbers-*.jsonl")))
    1
    """
    if not hasattr(spark, "streams"):
        raise ArgumentError(f"listen got a {type(spark).__name__}", accepted="a SparkSession", hint="dt.listen(spark)")
    if folder is not None and (not isinstance(folder, str | Path) or not str(folder)):
        raise ArgumentError(f"folder={folder!r}", accepted="a folder, as text or Path")
    place = None if folder is None else Path(folder)
    serving = None if port is None else Serving(place or state_folder(), host=host, port=port, token=token)
    return Listening(spark, place, serving)


def _plan_of(report: Mapping[str, Any]) -> Record:
    """The plans of the joins that a report has counters of; several where their inputs have the same names."""
    texts: list[str] = []
    target: object = None
    for name, counters in observations(report).items():
        for plan in plans_named(name):
            # All that tells two joins apart whose inputs have the same names.
            if ("throttle" in counters) != (getattr(plan, "shed", None) is not None):
                continue
            text = plan.text()
            if text not in texts:
                texts.append(text)
                target = getattr(getattr(plan, "shed", None), "target", None) or target
    if not texts:
        return {}
    known: Record = {"plan": texts[0] if len(texts) == 1 else "\n\nor\n\n".join(texts)}
    return known if target is None or len(texts) > 1 else {**known, "target": target}

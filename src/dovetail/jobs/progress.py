"""The progress of a running job: records that `dovetail run` writes and `dovetail top` and the plots read.

Each run has a file of its own in the user's state folder, with one JSON record a line: a ``start``, a ``batch`` for
every micro-batch, an ``end``.  The folder and its files are readable by their owner only.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from dovetail.errors import ArgumentError, is_whole
from dovetail.reports import observations, over_sources

Record = dict[str, Any]

_KEPT = 50
"""Files of past runs that stay."""

_SUMS = {
    "held_rows": ("held_rows",),
    "held_bytes": ("held_bytes", "state_bytes"),
    "late": ("late",),
    "early": ("early",),
    "evicted": ("evicted",),
}
"""Totals, and the counters they add up; some joins have one for each input, such as held_rows_A."""

_PICKED = ("throttle", "recall", "recall_low", "recall_high")


def state_folder() -> Path:
    """Where the files are: ``$DOVETAIL_STATE``, or ``dovetail`` in the user's state folder."""
    chosen = os.environ.get("DOVETAIL_STATE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "dovetail"


def record_of(report: Mapping[str, Any]) -> Record:
    """The record of a micro-batch, from the JSON form of a query's progress.

    Parameters
    ----------
    report
        What ``json.loads(progress.json)`` gives for a progress of ``query.recentProgress``.

    Examples
    --------
    >>> report = {"batchId": 3, "timestamp": "2026-03-02T00:00:00.000Z", "numInputRows": 10,
    ...           "durationMs": {"triggerExecution": 500},
    ...           "observedMetrics": {"join": {"results": 4, "held_rows_A": 5, "held_rows_B": 6}}}
    >>> record = record_of(report)
    >>> record["batch"], record["rows"], record["results"], record["held_rows"], record["seconds"]
    (3, 10, 4, 11, 0.5)
    """
    counters: dict[str, Any] = {}
    for observed in observations(report).values():
        counters.update(observed)
    event = report.get("eventTime") or {}
    record: Record = {
        "kind": "batch",
        "time": report.get("timestamp"),
        "batch": report.get("batchId"),
        "seconds": (report.get("durationMs") or {}).get("triggerExecution", 0) / 1000,
        "rows": over_sources(report, "numInputRows") or 0,
        "arrived_per_second": _number(over_sources(report, "inputRowsPerSecond")),
        "done_per_second": _number(over_sources(report, "processedRowsPerSecond")),
        "results": counters.get("results"),
        "lag": _seconds_between(event.get("watermark"), event.get("max")),
        "behind": _behind(report),
        "counters": counters,
    }
    for total, names in _SUMS.items():
        starts = tuple(f"{name}_" for name in names)
        parts = [value for key, value in counters.items() if key in names or key.startswith(starts)]
        record[total] = sum(parts) if parts else None
    return {**record, **{name: counters[name] for name in _PICKED if name in counters}}


def _number(value: object) -> float | None:
    # Spark writes "NaN" and "Infinity" for a first micro-batch.
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None


def _seconds_between(first: str | None, last: str | None) -> float | None:
    if not first or not last:
        return None
    # A watermark that has not moved is at the beginning of 1970.
    began, ended = (datetime.fromisoformat(text) for text in (first, last))
    return max(0.0, (ended - began).total_seconds()) if began.year > 1970 else None


def _behind(report: Mapping[str, Any]) -> float | None:
    """How many rows the sources hold that the query has not read, if they say so, as Kafka does."""
    found = [
        _number(float(source["metrics"]["avgOffsetsBehindLatest"]))
        for source in report.get("sources") or []
        if "avgOffsetsBehindLatest" in (source.get("metrics") or {})
    ]
    known = [value for value in found if value is not None]
    return max(known) if known else None


class ProgressFile:
    """Writes the records of one run.

    Parameters
    ----------
    job
        The name of the job.
    mode
        ``batch`` or ``stream``.
    folder
        Where the file goes; the state folder by default.
    """

    def __init__(self, job: str, mode: str, *, folder: Path | None = None) -> None:
        target = folder or state_folder()
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_oldest(target)
        began = datetime.now(UTC)
        safe = re.sub(r"[^\w.-]+", "_", job)
        self.path = target / f"{safe}-{began:%Y%m%dT%H%M%S}-{os.getpid()}.jsonl"
        handle = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._file: TextIO = os.fdopen(handle, "a", encoding="utf-8")
        self.status = "failed"
        self.start = {"kind": "start", "job": job, "mode": mode, "pid": os.getpid(), "time": began.isoformat()}
        self.write(self.start)

    def __enter__(self) -> ProgressFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.status = "stopped"
        self.write({"kind": "end", "status": self.status, "time": datetime.now(UTC).isoformat()})
        self._file.close()

    def write(self, record: Record) -> None:
        """Add a record; a reader sees it at once."""
        self._file.write(json.dumps(record, default=str) + "\n")
        self._file.flush()


def _remove_oldest(folder: Path) -> None:
    """Remove the oldest files of past runs."""
    for old in files(folder)[_KEPT:]:
        old.unlink(missing_ok=True)


def files(folder: Path | None = None) -> list[Path]:
    """The files of all runs, the newest first."""
    return sorted((folder or state_folder()).glob("*.jsonl"), key=lambda file: file.stat().st_mtime, reverse=True)


def read_records(file: Path) -> list[Record]:
    """All records of a file; a line that is still being written is left out.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ProgressFile("cameras", "stream", folder=Path(folder)) as run:
    ...         run.status = "finished"
    ...     [record["kind"] for record in read_records(run.path)]
    ['start', 'end']

    Raises
    ------
    ArgumentError
        If the file holds anything but records.
    """
    try:
        return list(_parsed(file.read_text(encoding="utf-8").splitlines(keepends=True)))
    except (ValueError, RecursionError):
        raise no_progress_file(file) from None


def no_progress_file(file: Path) -> ArgumentError:
    """The error for a file that `dovetail run` did not write."""
    return ArgumentError(
        f"{file} is not a progress file",
        accepted="a file that dovetail run wrote: one JSON record in each line, the first of them a start",
        hint=f"they are in {state_folder()}; the name of a job will do, too",
    )


def _parsed(lines: list[str]) -> Iterator[Record]:
    for line in lines:
        if line.endswith("\n") and line.strip():
            record = json.loads(line)
            if not isinstance(record, dict) or "kind" not in record:
                raise ValueError(line)
            yield record


def is_running(records: list[Record]) -> bool:
    """Whether the run that wrote these records goes on: it wrote no end, and its process is there."""
    if not records or records[0].get("kind") != "start" or records[-1].get("kind") == "end":
        return False
    process: Any = records[0].get("pid")
    if not is_whole(process, most=2**31 - 1):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def follow(file: Path, interval: float) -> Iterator[list[Record]]:
    """All records so far, again and again, until the run is over."""
    while True:
        records = read_records(file)
        yield records
        if not is_running(records):
            return
        time.sleep(interval)

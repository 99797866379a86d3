"""Progress records: what a run says of itself, one JSON record at a time.

A run has a ``start``, a ``batch`` for every micro-batch and an ``end``; a ``plan`` comes where the start could not
know it yet, and ``tasks`` while a batch job runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dovetail.errors import is_whole, visible
from dovetail.reports import observations, over_sources

Record = dict[str, Any]

_SUMS = {
    "held_rows": ("held_rows",),
    "held_bytes": ("held_bytes", "state_bytes"),
    "late": ("late",),
    "early": ("early",),
    "evicted": ("evicted",),
}
"""Totals, and the counters they add up; some joins have one for each input, such as held_rows_A."""

_PICKED = ("throttle", "recall", "recall_low", "recall_high")


def read_json(line: str | bytes) -> Any:
    r"""A line of a progress file; halves of a character, which no encoding has, become question marks.

    JSON can spell them, Python reads them, and whoever writes them on would fail.

    Examples
    --------
    >>> read_json(r'{"host": "\ud800 node"}'), read_json(r'"\ud83d\ude00"') == chr(0x1F600)
    ({'host': '? node'}, True)

    Controls, which a terminal would obey, become question marks, too:

    >>> read_json(r'{"job": "a\u001b[2J"}')
    {'job': 'a?[2J'}
    """
    found = _shown(json.loads(line))
    if not (b"\\ud" in line.lower() or b"\xed" in line if isinstance(line, bytes) else "\\ud" in line.lower()):
        return found
    text = json.dumps(found, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return found


def _shown(found: Any) -> Any:
    if isinstance(found, str):
        return visible(found)
    if isinstance(found, list):
        return [_shown(one) for one in found]
    if isinstance(found, dict):
        return {visible(name): _shown(one) for name, one in found.items()}
    return found


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
        "parts": _parts(report.get("durationMs") or {}),
        "event": {name: event[name] for name in ("min", "avg", "max", "watermark") if name in event},
        "written": _written(report),
        "counters": counters,
    }
    for total, names in _SUMS.items():
        starts = tuple(f"{name}_" for name in names)
        parts = [value for key, value in counters.items() if key in names or key.startswith(starts)]
        record[total] = sum(parts) if parts else None
    return {**record, **{name: counters[name] for name in _PICKED if name in counters}}


def tasks_record(done: int, total: int) -> Record:
    """How far a batch job is: the tasks of the stages that run now."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"kind": "tasks", "time": now, "done": done, "total": total}


def _number(value: object) -> float | None:
    # Spark writes "NaN" and "Infinity" for a first micro-batch.
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None


def _seconds_between(first: str | None, last: str | None) -> float | None:
    if not first or not last:
        return None
    # A watermark that has not moved is at the beginning of 1970.
    began, ended = (datetime.fromisoformat(text) for text in (first, last))
    return max(0.0, (ended - began).total_seconds()) if began.year > 1970 else None


def _parts(durations: Mapping[str, Any]) -> dict[str, float]:
    """Where the time of a micro-batch went, in seconds, by Spark's own names."""
    known = {name: _number(value) for name, value in durations.items() if name != "triggerExecution"}
    return {name: value / 1000 for name, value in known.items() if value is not None}


def _written(report: Mapping[str, Any]) -> int | None:
    """Rows that the sink took; most sinks do not say, and Spark writes -1 then."""
    rows = (report.get("sink") or {}).get("numOutputRows")
    return rows if is_whole(rows, least=0) else None


def _behind(report: Mapping[str, Any]) -> float | None:
    """How many rows the sources hold that the query has not read, if they say so, as Kafka does.

    Kafka's source reports the average of its partitions; how many they are stands in its offsets.
    """
    found = [
        known * max(1, _partitions(source.get("latestOffset") or source.get("endOffset")))
        for source in report.get("sources") or []
        if (known := _number_of((source.get("metrics") or {}).get("avgOffsetsBehindLatest"))) is not None
    ]
    return sum(found) if found else None


def _number_of(text: object) -> float | None:
    """Spark writes the metrics of a source as text."""
    try:
        return None if text is None else _number(float(str(text)))
    except ValueError:
        return None


def _partitions(offsets: object) -> int:
    """The partitions of all topics in Kafka's offsets, ``{"topic": {"0": 12, "1": 7}}``, or JSON text of that."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except (ValueError, RecursionError):
            return 0
    if not isinstance(offsets, Mapping):
        return 0
    return sum(len(topic) for topic in offsets.values() if isinstance(topic, Mapping))

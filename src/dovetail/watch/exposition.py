"""Metrics for Prometheus, from the history: names, units and types by its conventions.

A run is exposed as long as it goes on and for an hour after its end, so that an alert sees how it ended.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dovetail.errors import missing_extra
from dovetail.watch.collect import DURATIONS, FAILED, GONE, RUNNING
from dovetail.watch.figures import Point
from dovetail.watch.histogram import LAST, edge
from dovetail.watch.store import read_points

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_AFTER = 3600.0
_NEWEST = 5
"""So many runs of a name: a query that fails and starts again every ten seconds would make thousands of series."""
LABELS = ("query", "run")

_COUNTERS = {
    "batches": ("dovetail_batches", "Micro-batches that have ended."),
    "rows": ("dovetail_input_rows", "Rows that came in."),
    "results": ("dovetail_result_rows", "Rows that the join gave out."),
    "written": ("dovetail_output_rows", "Rows that the sink took, if it says so."),
    "late": ("dovetail_late_rows", "Rows dropped because they came after the watermark."),
    "early": ("dovetail_early_rows", "Rows dropped because they were dated too far ahead of the clock."),
    "evicted": ("dovetail_evicted_rows", "Rows that left the state because nothing could match them any more."),
}
_MILLISECONDS = {"kernel": ("dovetail_kernel_seconds", "Seconds in the kernel of the join, all cells added up.")}
_GAUGES = {
    "lag": ("dovetail_event_lag_seconds", "From the watermark to the newest event time.", 1000),
    "clock_lag": ("dovetail_clock_lag_seconds", "Age of the newest row when its micro-batch was committed.", 1000),
    "watermark_lag": ("dovetail_watermark_lag_seconds", "Age of the watermark at the end of the micro-batch.", 1000),
    "behind": ("dovetail_unread_rows", "Rows that the sources hold unread, if they say so.", 1),
    "throttle": ("dovetail_throttle_ratio", "Part of the full work that a join which sheds does.", 1),
    "recall": ("dovetail_recall_ratio", "Estimated part of the results that are found.", 1),
    "recall_low": ("dovetail_recall_low_ratio", "Lower end of the interval of the recall.", 1),
    "recall_high": ("dovetail_recall_high_ratio", "Upper end of the interval of the recall.", 1),
    "skew": ("dovetail_skew_ratio", "Rows of the fullest cell or task beside the average.", 1),
}
_STATE = {
    0: ("dovetail_state_rows", "Rows held for later matches, by input."),
    1: ("dovetail_state_bytes", "Bytes of state, by input."),
}
_LATENCIES = tuple(range(1, LAST + 1, 4))
"""The buckets of latency that are exposed: each twice as wide as the one before it."""


def exposition(sql: sqlite3.Connection, now: float) -> tuple[bytes, str]:
    """The text of all metrics, and its content type."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise missing_extra("/metrics needs prometheus-client, which is not installed", "watch") from None

    class Collected:
        def collect(self) -> Iterator[Metric]:
            return _metrics(_runs(sql, now))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())  # type: ignore[arg-type, unused-ignore]
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Run:
    """A run with what is exposed of it."""

    def __init__(self, sql: sqlite3.Connection, row: tuple[Any, ...]) -> None:
        self.id, self.job, key, self.status, self.started, self.seen, totals, advice = row
        self.labels = [self.job, str(key)[:8] if len(str(key)) == 36 else str(self.id)]
        self.totals: dict[str, Any] = json.loads(totals)
        self.rules = [one["rule"] for one in json.loads(advice)]
        found = read_points(sql, 60, self.id, 0.0, most=1)
        self.last: Point | None = found[0] if found else None


def _runs(sql: sqlite3.Connection, now: float) -> list[_Run]:
    rows = sql.execute(
        "SELECT id, job, key, status, started, seen, totals, advice FROM (SELECT *, "
        "ROW_NUMBER() OVER (PARTITION BY job ORDER BY started DESC, id DESC) AS place FROM runs "
        "WHERE mode = 'stream' AND (status = ? OR MAX(seen, ifnull(ended, 0)) >= ?)) "
        "WHERE status = ? OR place <= ? ORDER BY id",
        (RUNNING, now - _AFTER, RUNNING, _NEWEST),
    ).fetchall()
    return [_Run(sql, row) for row in rows]


def _metrics(runs: list[_Run]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    def gauge(name: str, text: str, value: Callable[[_Run], float | None]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=LABELS)
        for run in runs:
            known = value(run)
            if known is not None:
                family.add_metric(run.labels, known)
        return family

    def counter(name: str, text: str, key: str, scale: float = 1) -> Metric:
        family = CounterMetricFamily(name, text, labels=LABELS)
        for run in runs:
            if key in run.totals:
                family.add_metric(run.labels, run.totals[key] / scale, created=run.started)
        return family

    yield gauge("dovetail_query_running", "1 as long as the query runs.", lambda run: float(run.status == RUNNING))
    yield gauge(
        "dovetail_query_failed", "1 if the query failed, or its process went away without a word.",
        lambda run: float(run.status in (FAILED, GONE)),
    )  # fmt: skip
    yield gauge("dovetail_query_start_time_seconds", "When the query began.", lambda run: run.started)
    yield gauge("dovetail_last_batch_time_seconds", "When its last micro-batch ended.", lambda run: run.seen)
    for key, (name, text) in _COUNTERS.items():
        yield counter(name, text, key)
    for key, (name, text) in _MILLISECONDS.items():
        yield counter(name, text, key, 1000)
    for key, (name, text, scale) in _GAUGES.items():
        yield gauge(name, text, lambda run, key=key, scale=scale: _last(run, key, scale))  # type: ignore[misc]
    for at, (name, text) in _STATE.items():
        family = GaugeMetricFamily(name, text, labels=(*LABELS, "input"))
        for run in runs:
            for alias, values in (run.last["inputs"] if run.last else {}).items():
                if values[at] is not None:
                    family.add_metric([*run.labels, alias], values[at])
        yield family
    warnings = GaugeMetricFamily("dovetail_warning", "1 for each warning of the console.", labels=(*LABELS, "rule"))
    for run in runs:
        for rule in run.rules:
            warnings.add_metric([*run.labels, rule], 1)
    yield warnings
    durations = HistogramMetricFamily("dovetail_batch_duration_seconds", "What micro-batches took.", labels=LABELS)
    latencies = HistogramMetricFamily(
        "dovetail_event_latency_seconds", "From event time to commit, estimated from a micro-batch's event times.",
        labels=LABELS,
    )  # fmt: skip
    for run in runs:
        durations.add_metric(run.labels, _duration_buckets(run), run.totals.get("took", 0) / 1000)
        latencies.add_metric(run.labels, *_latency_buckets(run))
    yield durations
    yield latencies


def _last(run: _Run, key: str, scale: float) -> float | None:
    value = run.last[key] if run.last else None
    return None if value is None else value / scale


def _duration_buckets(run: _Run) -> list[tuple[str, float]]:
    counts = run.totals.get("durations", [0] * (len(DURATIONS) + 1))
    bounds = [*(str(bound) for bound in DURATIONS), "+Inf"]
    return [(bound, float(sum(counts[: at + 1]))) for at, bound in enumerate(bounds)]


def _latency_buckets(run: _Run) -> tuple[list[tuple[str, float]], float]:
    counts = {int(at): float(rows) for at, rows in run.totals.get("latency", {}).items()}
    buckets = [
        (f"{edge(first) / 1000:.4g}", sum(rows for at, rows in counts.items() if at < first)) for first in _LATENCIES
    ]
    # The sum follows from the middles of the buckets: an estimate, as the rows of a bucket are.
    total = sum(rows * (edge(at) + edge(at + 1)) / 2000 for at, rows in counts.items())
    return [*buckets, ("+Inf", sum(counts.values()))], total

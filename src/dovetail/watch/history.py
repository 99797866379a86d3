"""What the page shows, read from the history: all runs at a glance, and the charts of one."""

from __future__ import annotations

import json
import math
import sqlite3
import statistics
from typing import Any

from dovetail.watch.figures import FIGURES, INPUT_FIGURES, PARTS, Point, together
from dovetail.watch.histogram import merge, quantile, unpacked
from dovetail.watch.store import RAW, read_points

MOST_POINTS = 240
MOST_RUNS = 200
_RECENT = 86400.0
_COURSE = 1800.0
_JUST_NOW = 3600.0
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
RANGES = {"15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000}
"""What a chart may span, in seconds."""

_RUN = "id, job, mode, pid, host, started, ended, seen, status, error, advice"

Answer = dict[str, Any]


def overview(sql: sqlite3.Connection, now: float) -> Answer:
    """All runs that go on or ended within a day: their state, last figures and course of the last half hour."""
    rows = sql.execute(
        f"SELECT {_RUN} FROM runs WHERE status = 'running' OR MAX(seen, ifnull(ended, 0)) >= ? "
        # Whoever is woken at night looks for what failed just now.
        "ORDER BY status IN ('failed', 'gone') AND ended >= ? DESC, status = 'running' DESC, "
        "MAX(seen, ifnull(ended, 0)) DESC LIMIT ?",
        (now - _RECENT, now - _JUST_NOW, MOST_RUNS),
    ).fetchall()
    runs = [_run(row) for row in rows]
    return {"now": now, "runs": [run | _glance(sql, run, now) for run in runs]}


def _run(row: tuple[Any, ...]) -> Answer:
    known = dict(zip(_RUN.split(", "), row, strict=True))
    return known | {"advice": json.loads(known["advice"])}


def _glance(sql: sqlite3.Connection, run: Answer, now: float) -> Answer:
    if run["mode"] == "batch":
        return {"course": [], "figures": None}
    found = sql.execute(
        "SELECT time, batches, rows, results, took, held_rows, held_bytes, throttle, recall, clock_lag, latency "
        "FROM points WHERE level = 60 AND run = ? AND time >= ? ORDER BY time",
        (run["id"], round((now - _COURSE) * 1000)),
    ).fetchall()
    if not found:
        return {"course": [], "figures": None}
    spans = [_span(row[0] / 1000, 60, now) for row in found]
    # A minute that has just begun tells little of a rate.
    at = -2 if len(found) > 1 and spans[-1] < 30 else -1
    last, span = found[at], spans[at]
    newest = found[-1]
    latency = merge(unpacked(row[-1]) for row in found[-2:])
    figures = {
        "input_rate": (last[2] or 0) / span,
        "result_rate": None if last[3] is None else last[3] / span,
        "batch_seconds": last[4] / 1000 / last[1],
        "held_rows": newest[5],
        "held_bytes": newest[6],
        "throttle": newest[7],
        "recall": newest[8],
        "clock_lag": None if newest[9] is None else newest[9] / 1000,
        "latency_p95": _seconds(quantile(latency, 0.95)),
    }
    course = [[row[0] / 1000, (row[2] or 0) / span] for row, span in zip(found, spans, strict=True)]
    return {"course": course, "figures": figures}


def _span(start: float, level: int, now: float) -> float:
    """Seconds that a point stands for: the last one is not over."""
    return max(1.0, min(float(level), now - start))


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def run_details(sql: sqlite3.Connection, run: int, seconds: int, now: float) -> Answer | None:
    """One run with its charts over the last `seconds`; None where there is no such run."""
    row = sql.execute(f"SELECT {_RUN}, plan, target, last FROM runs WHERE id = ?", (run,)).fetchone()
    if row is None:
        return None
    *known, plan, target, last = row
    until = now if known[_RUN.split(", ").index("status")] == "running" else min(now, known[7] + 1)
    level = RAW if seconds <= 1800 else 60 if seconds <= 86400 else 900
    points = read_points(sql, level, run, until - seconds)
    if level == RAW and not points:
        # Micro-batches stay for hours, their minutes for days.
        level = 60
        points = read_points(sql, level, run, until - seconds)
    return {
        "now": now,
        "until": until,
        "run": _run(tuple(known)) | {"plan": plan, "target": target, "last": json.loads(last) if last else None},
        "level": level,
        "series": _series(points, level, now),
        "total": _total(points),
    }


def _series(points: list[Point], level: int, now: float) -> dict[str, list[Any]]:
    """Columns of at most so many points; neighbours become one where there are more."""
    several = math.ceil(len(points) / MOST_POINTS) or 1
    series: dict[str, list[Any]] = {name: [] for name in ("time", *_drawn({}, 1.0))}
    inputs = sorted({alias for point in points for alias in point["inputs"]})
    by_input: dict[str, dict[str, list[Any]]] = {name: {alias: [] for alias in inputs} for name in INPUT_FIGURES}
    before: float | None = None
    for at in range(0, len(points), several):
        part = points[at : at + several]
        total = together(part)
        if level == RAW:
            span = total["time"] - before if before is not None else part[0]["took"] / 1000
            before = total["time"]
        else:
            span = sum(_span(point["time"], level, now) for point in part)
        series["time"].append(round(total["time"], 3))
        for name, value in _drawn(total, max(span, 0.001)).items():
            series[name].append(value)
        for position, name in enumerate(INPUT_FIGURES):
            for alias in inputs:
                by_input[name][alias].append(total["inputs"].get(alias, [None] * len(INPUT_FIGURES))[position])
    return {**series, "inputs": by_input}  # type: ignore[dict-item]


def _drawn(point: Point, span: float) -> dict[str, Any]:
    """The figures of a point as charts have them: rates by the second, times in seconds and for one micro-batch."""

    def value(name: str) -> Any:
        return point.get(name)

    def rate(name: str) -> float | None:
        return None if value(name) is None else _short(value(name) / span)

    def each(name: str) -> float | None:
        return None if value(name) is None else _short(value(name) / 1000 / (value("batches") or 1))

    known = sum(value(name) or 0 for name in PARTS)
    other = None if value("took") is None else max(0, value("took") - known) / 1000 / (value("batches") or 1)
    latency = value("latency") or {}
    return {
        "input_rate": rate("rows"),
        "result_rate": rate("results"),
        "written_rate": rate("written"),
        "seconds": each("took"),
        "longest": _seconds(value("longest")),
        **{f"part_{name}": each(name) for name in PARTS},
        "part_other": _short(other),
        "kernel": each("kernel"),
        **{name: _seconds(value(name)) for name in ("lag", "clock_lag", "watermark_lag")},
        **{f"latency_{name}": _short(_seconds(quantile(latency, part))) for name, part in QUANTILES.items()},
        **{name: value(name) for name in ("behind", "held_rows", "held_bytes", "late", "early", "evicted", "skew")},
        **{name: _short(value(name)) for name in ("throttle", "recall", "recall_low", "recall_high")},
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _total(points: list[Point]) -> Answer | None:
    """What a chart's whole range adds up to."""
    if not points:
        return None
    total = together(points)
    steps = [point["took"] / 1000 / point["batches"] for point in points]
    return {
        **{name: total[name] for name, how in FIGURES.items() if how == "sum"},
        "seconds_median": _short(statistics.median(steps)),
        "seconds_longest": _seconds(total["longest"]),
        **{f"latency_{name}": _short(_seconds(quantile(total["latency"], part))) for name, part in QUANTILES.items()},
    }

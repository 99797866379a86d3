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
_MOST_OTHERS = 10
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
        # One row for each name: a query that fails and is started again, and again, must not hide all others.
        f"SELECT {_RUN}, place, over, failures FROM (SELECT *, "
        "ROW_NUMBER() OVER (PARTITION BY job, mode ORDER BY started DESC, id DESC) AS place, "
        "SUM(status != 'running') OVER (PARTITION BY job, mode) AS over, "
        "SUM(status IN ('failed', 'gone')) OVER (PARTITION BY job, mode) AS failures "
        "FROM runs WHERE status = 'running' OR MAX(seen, ifnull(ended, 0)) >= ?) "
        "WHERE place = 1 OR status = 'running' "
        # Whoever is woken at night looks for what failed just now.
        "ORDER BY status IN ('failed', 'gone') AND ended >= ? DESC, status = 'running' DESC, "
        "MAX(seen, ifnull(ended, 0)) DESC LIMIT ?",
        (now - _RECENT, now - _JUST_NOW, MOST_RUNS),
    ).fetchall()
    runs = []
    for *known, place, over, failures in rows:
        run = _run(tuple(known))
        runs.append(run | _before(place, over, failures, run["status"]))
    return {"now": now, "runs": [run | _glance(sql, run, now) for run in runs]}


def _before(place: int, over: int, failures: int, status: str) -> Answer:
    """How many runs of a name ended before this one, and how many of them failed; the newest run has it."""
    if place > 1:
        return {"earlier": 0, "earlier_failed": 0}
    return {"earlier": over - (status != "running"), "earlier_failed": failures - (status in ("failed", "gone"))}


def _run(row: tuple[Any, ...]) -> Answer:
    known = dict(zip(_RUN.split(", "), row, strict=True))
    return known | {"advice": json.loads(known["advice"])}


def _glance(sql: sqlite3.Connection, run: Answer, now: float) -> Answer:
    if run["mode"] == "batch":
        [(last,)] = sql.execute("SELECT last FROM runs WHERE id = ?", (run["id"],)).fetchall()
        known = json.loads(last) if last else {}
        counters = known.get("counters") or {}
        return {"course": [], "figures": None, "tasks": known.get("tasks"), "results": counters.get("results")}
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
        "others": _others(sql, _run(tuple(known))),
        "level": level,
        "series": _series(points, level, now),
        "total": _total(points),
    }


def _others(sql: sqlite3.Connection, run: Answer) -> list[Answer]:
    """The newest of the other runs of this name."""
    found = sql.execute(
        "SELECT id, status, started, ended, error FROM runs WHERE job = ? AND mode = ? AND id != ? "
        "ORDER BY started DESC, id DESC LIMIT ?",
        (run["job"], run["mode"], run["id"], _MOST_OTHERS),
    )
    return [dict(zip(("id", "status", "started", "ended", "error"), row, strict=True)) for row in found]


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
            span = total["time"] - before if before is not None else _first_span(points, several)
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


def _first_span(points: list[Point], several: int) -> float:
    """Seconds that the first of the points stands for: nobody knows when the one before it ended.

    As long as the next ones, so that a short micro-batch after a pause is no peak of the rate.
    """
    first, following = points[:several], points[several : 2 * several]
    took = (first[-1]["time"] - first[0]["time"]) + first[0]["took"] / 1000
    return float(max(took, following[-1]["time"] - first[-1]["time"])) if following else float(took)


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
        **{name: value(name) for name in ("behind", "held_rows", "held_bytes", "skew")},
        **{name: rate(name) for name in ("late", "early", "evicted")},
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

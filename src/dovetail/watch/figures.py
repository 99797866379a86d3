"""The figures of a micro-batch that are kept and charted, and how many micro-batches become one point.

Records come from files, so nothing in them is trusted: what is not a finite number counts as unknown.
Lengths of time are whole milliseconds here, which SQLite stores in two or three bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from dovetail.watch.histogram import Histogram, add_spread, merge
from dovetail.watch.records import Record

FIGURES: dict[str, str] = {
    "batches": "sum",
    "rows": "sum",
    "results": "sum",
    "written": "sum",
    "took": "sum",
    "longest": "max",
    "offsets": "sum",
    "planning": "sum",
    "wal": "sum",
    "work": "sum",
    "commits": "sum",
    "kernel": "sum",
    "lag": "max",
    "clock_lag": "max",
    "watermark_lag": "max",
    "watermark": "last",
    "behind": "max",
    "arrived": "max",
    "held_rows": "last",
    "held_bytes": "last",
    "late": "sum",
    "early": "sum",
    "evicted": "sum",
    "shed": "sum",
    "throttle": "mean",
    "recall": "mean",
    "recall_low": "mean",
    "recall_high": "mean",
    "skew": "max",
}
"""Each figure, and what it is of several micro-batches; the means are over those that shed (``shed``)."""

PARTS = {
    "offsets": ("latestOffset", "getOffset", "setOffsetRange", "getBatch", "getEndOffset"),
    "planning": ("queryPlanning",),
    "wal": ("walCommit",),
    "work": ("addBatch",),
    "commits": ("commitOffsets", "commitBatch"),
}
"""Where the time of a micro-batch goes, and Spark's names for it; the rest has no name."""

INPUT_FIGURES = ("held_rows", "held_bytes", "late", "early", "evicted")
_LASTING = 2
"""So many of them describe a state; the others count."""
_STARTS = {"state_bytes_": "held_bytes", **{f"{name}_": name for name in INPUT_FIGURES}}
_MOST_INPUTS = 50

Value = float | int | None
Point = dict[str, Any]
"""A micro-batch or several: ``time`` (seconds since 1970), the figures, ``latency`` (a histogram) and ``inputs``."""


def number(value: object) -> Value:
    """A number as it may be stored; None for anything else.

    Examples
    --------
    >>> number(3), number("3"), number(float("nan")), number(True), number(1e300)
    (3, None, None, None, None)
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53
    return value if fits and math.isfinite(value) else None  # type: ignore[arg-type, return-value]


def seconds_of(text: object) -> float | None:
    """A time as seconds since 1970; None for what is none.

    Examples
    --------
    >>> seconds_of("1970-01-01T00:00:01Z"), seconds_of("yesterday"), seconds_of(None)
    (1.0, None, None)
    """
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def point_of(record: Record, *, now: float) -> Point:
    """The figures of a record of a micro-batch; `now` stands in for a time that it lacks."""
    counters = record.get("counters")
    counters = counters if isinstance(counters, Mapping) else {}
    took = _milliseconds(record.get("seconds")) or 0
    began = seconds_of(record.get("time"))
    ended = now if began is None else began + took / 1000
    rows = number(record.get("rows")) or 0
    point: Point = dict.fromkeys(FIGURES)
    point |= {"time": ended, "batches": 1, "rows": rows, "took": took, "longest": took}
    for name in ("results", "written", "behind", "late", "early", "evicted", "held_rows", "held_bytes"):
        point[name] = number(record.get(name))
    point["arrived"] = number(record.get("arrived_per_second"))
    _add_parts(point, record.get("parts"))
    kernel = number(counters.get("kernel_us")), number(counters.get("kernel_ms"))
    if kernel != (None, None):
        point["kernel"] = round(kernel[0] / 1000 if kernel[0] is not None else kernel[1] or 0)
    _add_times(point, record, ended, rows)
    # Where no cell was called, the throttle and the recall are 1 and mean nothing.
    if rows and number(record.get("throttle")) is not None:
        point["shed"] = 1
        point |= {name: number(record.get(name)) for name in ("throttle", "recall", "recall_low", "recall_high")}
    point["skew"] = _skew(counters)
    point["inputs"] = _by_input(counters)
    return point


def _milliseconds(seconds: object) -> int | None:
    known = number(seconds)
    return None if known is None else round(known * 1000)


def _add_parts(point: Point, parts: object) -> None:
    if isinstance(parts, Mapping):
        for name, spelled in PARTS.items():
            known = [value for key in spelled if (value := _milliseconds(parts.get(key))) is not None]
            point[name] = sum(known) if known else None


def _add_times(point: Point, record: Record, ended: float, rows: float) -> None:
    """Lags and latencies."""
    point["lag"] = _milliseconds(record.get("lag"))
    point["latency"] = {}
    event = record.get("event")
    if not isinstance(event, Mapping):
        return
    least, mean, most, watermark = (seconds_of(event.get(name)) for name in ("min", "avg", "max", "watermark"))
    # A watermark that has not moved is at the beginning of 1970.
    if watermark is not None and watermark > 0:
        point["watermark"] = watermark
        point["watermark_lag"] = round((ended - watermark) * 1000)
    if most is not None:
        point["clock_lag"] = round((ended - most) * 1000)
        ends = [ended - (most if at is None else at) for at in (most, mean, least)]
        add_spread(point["latency"], max(rows, 1), *(end * 1000 for end in ends))


def _skew(counters: Mapping[str, Any]) -> float | None:
    """Rows of the fullest task or cell beside the average."""
    balance = number(counters.get("balance_in"))
    if balance is not None:
        return balance
    most, rows, cells = (number(counters.get(name)) for name in ("most_rows", "rows", "cells"))
    return most * cells / rows if most and rows and cells else None


def _by_input(counters: Mapping[str, Any]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for key, value in counters.items():
        place = _place(str(key))
        known = None if place is None else number(value)
        if place is None or known is None:
            continue
        alias, at = place
        if alias in found or len(found) < _MOST_INPUTS:
            found.setdefault(alias, [None] * len(INPUT_FIGURES))[at] = known
    return found


@lru_cache(10_000)
def _place(key: str) -> tuple[str, int] | None:
    """The input that a counter is about, and which figure of it; None for all other counters."""
    start = next((start for start in _STARTS if key.startswith(start)), None)
    return None if start is None else (key[len(start) : len(start) + 60], INPUT_FIGURES.index(_STARTS[start]))


def together(points: list[Point]) -> Point:
    """Several points, in the order of time, as one.

    Examples
    --------
    >>> one, two = (point_of({"seconds": 1, "rows": rows, "held_rows": rows}, now=rows) for rows in (3, 4))
    >>> both = together([one, two])
    >>> both["rows"], both["held_rows"], both["longest"], both["batches"]
    (7, 4, 1000, 2)
    """
    first, *rest = points
    if not rest:
        return first
    total: Point = {"time": points[-1]["time"]}
    for name, how in FIGURES.items():
        known = [value for point in points if (value := point[name]) is not None]
        if not known:
            total[name] = None
        elif how == "sum":
            total[name] = sum(known)
        elif how == "max":
            total[name] = max(known)
        elif how == "last":
            total[name] = known[-1]
        else:
            weighed = [(point[name], point["shed"]) for point in points if point[name] is not None and point["shed"]]
            weight = sum(shed for _, shed in weighed)
            total[name] = sum(value * shed for value, shed in weighed) / weight if weight else None
    histograms: list[Histogram] = [point["latency"] for point in points]
    total["latency"] = merge(histograms)
    total["inputs"] = _inputs_together([point["inputs"] for point in points])
    return total


def _inputs_together(several: list[dict[str, list[Value]]]) -> dict[str, list[Value]]:
    total: dict[str, list[Value]] = {}
    for inputs in several:
        for alias, values in inputs.items():
            so_far = total.get(alias)
            if so_far is None:
                total[alias] = list(values)
                continue
            for at, value in enumerate(values):
                if value is not None:
                    before = so_far[at]
                    so_far[at] = value if at < _LASTING or before is None else before + value
    return total

"""What Spark reports of a micro-batch, read the same way wherever the report comes from.

A report is the JSON form of a query's progress.  Spark Connect 4.3 spells it differently: an observation there is a row
of values with a schema, and totals over the sources are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]

_UNMET = 3
"""Micro-batches in a row beyond their target before anything is said."""
_SMALL = 0.25
"""The part of a micro-batch up to which its joining does not explain how long it took."""


def observations(report: Report) -> dict[str, dict[str, Any]]:
    """The counters of a report by the name of the observation that took them.

    Examples
    --------
    >>> classic = {"observedMetrics": {"dovetail(A,B)": {"rows": 20, "results": 7}}}
    >>> connect = {"observedMetrics": {"dovetail(A,B)": {
    ...     "values": [20, 7], "schema": {"type": "struct", "fields": [{"name": "rows"}, {"name": "results"}]}}}}
    >>> observations(classic) == observations(connect) == classic["observedMetrics"]
    True
    """
    return {name: _counters(counted) for name, counted in (report.get("observedMetrics") or {}).items()}


def _counters(counted: Mapping[str, Any]) -> dict[str, Any]:
    if counted.keys() != {"values", "schema"}:
        return dict(counted)
    names = [field["name"] for field in counted["schema"]["fields"]]
    return dict(zip(names, counted["values"], strict=True))


def over_sources(report: Report, name: str) -> Any:
    """A figure of the whole query, such as ``numInputRows``: its own, or the sum over its sources.

    Examples
    --------
    >>> over_sources({"numInputRows": 5}, "numInputRows")
    5
    >>> over_sources({"sources": [{"numInputRows": 2}, {"numInputRows": 3}]}, "numInputRows")
    5
    """
    if name in report:
        return report[name]
    found = [source.get(name) for source in report.get("sources") or []]
    numbers = [value for value in found if isinstance(value, int | float)]
    return sum(numbers) if numbers else None


def unmet_target(target: float | None, batches: Sequence[tuple[float, float | None]]) -> str | None:
    """What to say of a target that shedding cannot meet; None where it can, or where it is too early to tell.

    Parameters
    ----------
    target
        Seconds that a micro-batch may take.
    batches
        The last micro-batches: seconds that each took, and seconds of it in the join's kernel, all cells together.

    Examples
    --------
    >>> unmet_target(3.0, [(9.0, 0.1), (12.0, 0.1), (10.0, 0.2)])
    'micro-batches take 10 s at a target of 3 s, and 0.1 s of it is joining: shedding cannot make them shorter'
    >>> unmet_target(3.0, [(9.0, 8.0), (12.0, 11.0), (10.0, 9.0)]) is None
    True
    """
    last = batches[-_UNMET:]
    if target is None or len(last) < _UNMET:
        return None
    if not all(took > target and kernel is not None and kernel < _SMALL * took for took, kernel in last):
        return None
    took, kernel = statistics.median(took for took, _ in last), statistics.median(kernel or 0.0 for _, kernel in last)
    return (
        f"micro-batches take {took:.3g} s at a target of {target:g} s, and {kernel:.2g} s of it is joining: "
        "shedding cannot make them shorter"
    )

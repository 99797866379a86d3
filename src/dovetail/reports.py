"""What Spark reports of a micro-batch, read the same way wherever the report comes from.

A report is the JSON form of a query's progress.  Spark Connect 4.3 spells it differently: an observation there is a row
of values with a schema, and totals over the sources are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Any]


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

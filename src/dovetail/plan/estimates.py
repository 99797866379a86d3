"""What :func:`dovetail.estimates` is asked for: measures, groups and confidence, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dovetail.errors import ArgumentError

_MEASURE = re.compile(r"\s*(count|sum|avg|mean)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_ACCEPTED = "count(*), count(expression), sum(expression) or avg(expression)"
_KINDS: dict[str, Literal["count", "sum", "avg"]] = {"count": "count", "sum": "sum", "avg": "avg", "mean": "avg"}


@dataclass(frozen=True)
class Measure:
    """A figure of the complete join under a name: the count, sum or average of an expression (``*`` counts rows)."""

    name: str
    kind: Literal["count", "sum", "avg"]
    sql: str


@dataclass(frozen=True)
class EstimatesPlan:
    """What to estimate, by which groups, and how sure the intervals must be."""

    measures: tuple[Measure, ...]
    groups: tuple[str, ...]
    confidence: float


def plan_estimates(
    measures: Mapping[str, str] | None, by: str | Sequence[str], confidence: float, *, streaming: bool
) -> EstimatesPlan:
    """Read the arguments of :func:`dovetail.estimates`, or say what is wrong with them.

    Examples
    --------
    >>> plan_estimates({"mean": "mean(R.x)"}, "R.k", 0.95, streaming=False).measures
    (Measure(name='mean', kind='avg', sql='R.x'),)
    """
    if streaming:
        raise ArgumentError(
            "estimates of a streaming frame",
            accepted="a static frame of results",
            hint="write the results of the stream to a table, and estimate from what it holds: any prefix will do",
        )
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise ArgumentError(f"confidence={confidence!r}", accepted="a number between 0 and 1, such as 0.95")
    return EstimatesPlan(_measures({"rows": "count(*)"} if measures is None else measures), _groups(by), confidence)


def _measures(given: Mapping[str, str]) -> tuple[Measure, ...]:
    accepted = f"a mapping from names to {_ACCEPTED}"
    if not isinstance(given, Mapping) or not given:
        raise ArgumentError(f"measures={given!r}", accepted=accepted)
    measures = []
    for name, text in given.items():
        match = _MEASURE.fullmatch(text) if isinstance(text, str) else None
        if match is None or re.match(r"\s*distinct\b", match[2], re.IGNORECASE):
            raise ArgumentError(f"the measure {name}={text!r}", accepted=_ACCEPTED)
        kind, sql = _KINDS[match[1].lower()], match[2].strip()
        if sql == "*" and kind != "count":
            raise ArgumentError(f"the measure {name}={text!r}", accepted=_ACCEPTED)
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a measure with the name {name!r}", accepted=accepted)
        measures.append(Measure(name, kind, sql))
    return tuple(measures)


def _groups(by: object) -> tuple[str, ...]:
    groups: list[object] = [by] if isinstance(by, str) else list(by) if isinstance(by, Sequence) else [None]
    if any(not isinstance(sql, str) or not sql.strip() for sql in groups):
        raise ArgumentError(f"by={by!r}", accepted="an expression such as 'R.region', or a list of them")
    return tuple(str(sql) for sql in groups)

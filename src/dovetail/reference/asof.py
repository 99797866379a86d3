"""The as-of join as a nested loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.reference.values import at_most, equal, less

Row = Mapping[str, Any]
Joined = dict[str, Row | None]


def asof_join(
    inputs: Mapping[str, Sequence[Row]],
    *,
    time: str | Mapping[str, str],
    by: Sequence[str] | Mapping[str, Sequence[str]] = (),
    direction: str = "backward",
    within: Any = None,
    how: str = "inner",
    allow_exact_matches: bool = True,
    ties: Sequence[str] = (),
) -> list[Joined]:
    """For every row of the first input, the best row of the second one.

    Parameters
    ----------
    inputs
        The rows of two inputs by alias.
    time, by
        The column that is compared, and the columns that must be equal: names, or names for each alias.
    direction, within, how, allow_exact_matches, ties
        As in :func:`dovetail.asof_join`.  Numbers stand for times too.

    Examples
    --------
    >>> trades = [{"t": 5}, {"t": 1}]
    >>> quotes = [{"t": 2, "bid": 10}, {"t": 4, "bid": 11}, {"t": 7, "bid": 12}]
    >>> asof_join({"trade": trades, "quote": quotes}, time="t", how="left")
    [{'trade': {'t': 5}, 'quote': {'t': 4, 'bid': 11}}, {'trade': {'t': 1}, 'quote': None}]
    """
    left, right = inputs
    times = (time, time) if isinstance(time, str) else (time[left], time[right])
    keys = (by[left], by[right]) if isinstance(by, Mapping) else (by, by)
    result: list[Joined] = []
    for row in inputs[left]:
        before, after = None, None
        for other in inputs[right]:
            if not all(equal(row[a], other[b]) for a, b in zip(*keys, strict=True)):
                continue
            a, b = row[times[0]], other[times[1]]
            if equal(a, b) and not allow_exact_matches:
                continue
            if at_most(b, a) and _replaces(before, other, times[1], ties, later=True):
                before = other
            if at_most(a, b) and _replaces(after, other, times[1], ties, later=False):
                after = other
        best = _chosen(row[times[0]], before, after, times[1], direction)
        if best is not None and within is not None and not _within(row[times[0]], best[times[1]], within):
            best = None
        if best is not None or how == "left":
            result.append({left: row, right: best})
    return result


def _chosen(moment: Any, before: Row | None, after: Row | None, time: str, direction: str) -> Row | None:
    """The row that the direction asks for; of two equally near ones, the earlier."""
    if direction == "backward" or after is None:
        return before if direction != "forward" else None
    if direction == "forward" or before is None:
        return after
    nearer = less(_distance(moment, after[time]), _distance(moment, before[time]))
    return after if nearer else before


def _distance(a: Any, b: Any) -> Any:
    """How far apart two times are: nothing where they are equal, which NaN and infinity are to themselves."""
    if equal(a, b):
        return 0
    if any(isinstance(value, float) and math.isnan(value) for value in (a, b)):
        return math.nan
    return a - b if less(b, a) else b - a


def _within(a: Any, b: Any, within: Any) -> bool:
    return bool(equal(a, b) or at_most(_distance(a, b), within))


def _replaces(best: Row | None, other: Row, time: str, ties: Sequence[str], *, later: bool) -> bool:
    """Whether a row is better than the best so far: nearer in time, or at the same time the last in order."""
    if best is None:
        return True
    if not equal(best[time], other[time]):
        return less(best[time], other[time]) is later
    for name in (*ties, *other):
        a, b = best[name], other[name]
        if a is None or b is None:
            if (a is None) != (b is None):
                return a is None
        elif not equal(a, b):
            return bool(less(a, b))
    return False

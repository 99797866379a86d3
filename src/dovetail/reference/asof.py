"""The as-of join as a nested loop."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.conditions.join_kind import How
from dovetail.reference.assemble import Inputs, Joined, Row, assembled
from dovetail.reference.values import agree, at_most, equal, less

Condition = Callable[[Row, Row], bool | None]
Numbered = tuple[int, Row]
"""A row with its position in its input."""


def asof_join(
    inputs: Inputs,
    *,
    time: str | Mapping[str, str],
    by: Sequence[str] | Mapping[str, Sequence[str]] = (),
    direction: str = "backward",
    within: Any = None,
    how: How = "inner",
    allow_exact_matches: bool = True,
    ties: Sequence[str] = (),
    where: Condition | None = None,
) -> list[Joined]:
    """For every row of the first input, the best row of the second one.

    Parameters
    ----------
    inputs : mapping of str to sequence of rows
        The rows of two inputs by alias.
    time : str, or mapping of str to str
        The column that is compared: one name, or one for each alias.
    by : sequence of str, or mapping of str to sequence of str
        The columns that must be equal: names, or names for each alias.
    direction, within, how, allow_exact_matches, ties
        As in :func:`dovetail.asof_join`.  Times may be plain numbers.  The pairs are the same for every `how`: each row
        of the first input with its best row of the second.
    where : callable, optional
        A condition on a row of each input: the best row is the best of those for which it is true.  Unknown (None) is
        not true.

    Returns
    -------
    list of dict
        A row of the first input and its best row of the second, by alias; None for a row that is missing.

    Examples
    --------
    >>> trades = [{"t": 5}, {"t": 1}]
    >>> quotes = [{"t": 2, "bid": 10}, {"t": 4, "bid": 11}, {"t": 7, "bid": 12}]
    >>> asof_join({"trade": trades, "quote": quotes}, time="t", how="left")
    [{'trade': {'t': 5}, 'quote': {'t': 4, 'bid': 11}}, {'trade': {'t': 1}, 'quote': None}]
    >>> [found["quote"]["bid"] for found in asof_join({"trade": trades, "quote": quotes}, time="t", how="right")]
    [11, 10, 12]
    >>> asof_join({"trade": trades, "quote": quotes}, time="t", how="anti")
    [{'trade': {'t': 1}}]
    """
    left, right = inputs
    times = (time, time) if isinstance(time, str) else (time[left], time[right])
    keys = (by[left], by[right]) if isinstance(by, Mapping) else (by, by)
    equalities = list(zip(*keys, strict=True))
    pairs: list[tuple[int, int]] = []
    for number, row in enumerate(inputs[left]):
        moment = row[times[0]]
        before, after = None, None
        for candidate in enumerate(inputs[right]):
            other = candidate[1]
            if not agree(row, other, equalities):
                continue
            if where is not None and not where(row, other):
                continue
            if not allow_exact_matches and equal(moment, other[times[1]]):
                continue
            if at_most(other[times[1]], moment) and _replaces(before, other, times[1], ties, later=True):
                before = candidate
            if at_most(moment, other[times[1]]) and _replaces(after, other, times[1], ties, later=False):
                after = candidate
        best = _chosen(moment, before, after, times[1], direction)
        if best is not None and (within is None or _within(moment, best[1][times[1]], within)):
            pairs.append((number, best[0]))
    return assembled(inputs, pairs, how)


def asof_lookups(
    inputs: Inputs, how: How = "inner", *, each: Mapping[str, Mapping[str, Any]], **common: Any
) -> list[Joined]:
    """For every row of the first input, the best row of each of the others, by itself.

    `each` has the arguments of :func:`asof_join` that belong to one of the others, by alias; `common` those of all.  A
    row comes out with all its matches: where it has one everywhere (``inner``, ``semi``), always (``left``), or where
    it lacks one (``anti``).

    Examples
    --------
    >>> rows = {"a": [{"t": 5}, {"t": 2}], "b": [{"t": 1}], "c": [{"t": 4}]}
    >>> asof_lookups(rows, each={}, time="t")
    [{'a': {'t': 5}, 'b': {'t': 1}, 'c': {'t': 4}}]
    >>> asof_lookups(rows, "anti", each={}, time="t")
    [{'a': {'t': 2}}]
    """
    first, *others = inputs
    results: list[Joined] = []
    for row in inputs[first]:
        found: Joined = {first: row}
        for alias in others:
            told = {**common, **each.get(alias, {})}
            found |= asof_join({first: [row], alias: inputs[alias]}, how="left", **told)[0]
        complete = all(found[alias] is not None for alias in others)
        if how == "left" or complete == (how != "anti"):
            results.append(found if how in ("inner", "left") else {first: row})
    return results


def _chosen(moment: Any, before: Numbered | None, after: Numbered | None, time: str, direction: str) -> Numbered | None:
    """The row that the direction asks for; of two equally near ones, the earlier."""
    if direction == "backward" or after is None:
        return before if direction != "forward" else None
    if direction == "forward" or before is None:
        return after
    nearer = less(_distance(moment, after[1][time]), _distance(moment, before[1][time]))
    return after if nearer else before


def _distance(a: Any, b: Any) -> Any:
    """How far apart two times are: 0 where they are equal, and NaN and infinity equal themselves."""
    if equal(a, b):
        return 0
    if any(isinstance(value, float) and math.isnan(value) for value in (a, b)):
        return math.nan
    if isinstance(a, datetime.time):
        midnight = datetime.date.min
        a, b = datetime.datetime.combine(midnight, a), datetime.datetime.combine(midnight, b)
    return a - b if less(b, a) else b - a


def _within(a: Any, b: Any, within: Any) -> bool:
    return bool(equal(a, b) or at_most(_distance(a, b), within))


def _replaces(best: Numbered | None, other: Row, time: str, ties: Sequence[str], *, later: bool) -> bool:
    """Whether a row is better than the best so far: nearer in time, or at the same time the last in order."""
    if best is None:
        return True
    row = best[1]
    if not equal(row[time], other[time]):
        return less(row[time], other[time]) is later
    for name in (*ties, *other):
        a, b = row[name], other[name]
        if a is None or b is None:
            if (a is None) != (b is None):
                return a is None
        elif not equal(a, b):
            return bool(less(a, b))
    return False

"""The theta join as a nested loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

Row = Mapping[str, Any]
Joined = dict[str, Row | None]
Condition = Callable[..., bool | None]


def theta_join(
    inputs: Mapping[str, Sequence[Row]], condition: Condition, how: str = "inner", window: int | None = None
) -> list[Joined]:
    """Every combination of rows for which the condition is true, and what `how` adds to it.

    Parameters
    ----------
    inputs
        Rows by alias, in the order of arrival.
    condition
        Takes one row per input, in order.
    how
        As in :func:`dovetail.theta_join`.
    window
        Rows join only with rows of the same window of so many rows.

    Examples
    --------
    >>> from dovetail.reference import less
    >>> r, s = [{"x": 1}, {"x": 5}], [{"x": 3}]
    >>> theta_join({"R": r, "S": s}, lambda a, b: less(a["x"], b["x"]), "left")
    [{'R': {'x': 1}, 'S': {'x': 3}}, {'R': {'x': 5}, 'S': None}]
    """
    aliases = list(inputs)
    rows = [list(enumerate(inputs[alias])) for alias in aliases]

    def matches(combination: tuple[tuple[int, Row], ...]) -> bool:
        if window is not None and len({at // window for at, _ in combination}) > 1:
            return False
        return condition(*(row for _, row in combination)) is True

    if how == "inner":
        found = (combination for combination in product(*rows) if matches(combination))
        return [dict(zip(aliases, (row for _, row in combination), strict=True)) for combination in found]
    left, right = aliases
    result: list[Joined] = []
    matched_right: set[int] = set()
    for row in rows[0]:
        hits = [other for other in rows[1] if matches((row, other))]
        matched_right.update(at for at, _ in hits)
        if how in ("left", "right", "full"):
            result.extend({left: row[1], right: other[1]} for other in hits)
        if (how in ("left", "full", "anti") and not hits) or (how == "semi" and hits):
            result.append({left: row[1]} if how in ("semi", "anti") else {left: row[1], right: None})
    if how in ("right", "full"):
        result.extend({left: None, right: other} for at, other in rows[1] if at not in matched_right)
    return result

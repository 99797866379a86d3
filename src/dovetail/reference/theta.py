"""The theta join as a nested loop."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.conditions.join_kind import How
from dovetail.conditions.roles import Role
from dovetail.reference.assemble import (
    Condition,
    Conjuncts,
    Inputs,
    Joined,
    Row,
    conjuncts_hold,
    nested_loop,
    nested_loop_by_role,
)


def theta_join(
    inputs: Inputs,
    condition: Condition | Conjuncts,
    how: How | Mapping[str, Role] = "inner",
    window: int | None = None,
) -> list[Joined]:
    """Every combination of rows for which the condition is true, and the rows that `how` keeps without a match.

    Parameters
    ----------
    inputs : mapping of str to sequence of rows
        Rows by alias, in the order of arrival.
    condition : callable, or sequence of (aliases, callable)
        Takes one row per input, in order.  Where `how` is a mapping: its parts, each with the aliases it is about.
    how : str, or mapping of str to str
        As in :func:`dovetail.theta_join`.
    window : int, optional
        Rows join only with rows of the same window of so many rows.

    Returns
    -------
    list of dict
        One row, or None, for each alias.

    Examples
    --------
    >>> from dovetail.reference import less
    >>> r, s = [{"x": 1}, {"x": 5}], [{"x": 3}]
    >>> theta_join({"R": r, "S": s}, lambda a, b: less(a["x"], b["x"]), "left")
    [{'R': {'x': 1}, 'S': {'x': 3}}, {'R': {'x': 5}, 'S': None}]
    """

    def matches(positions: tuple[int, ...], rows: tuple[Row, ...]) -> bool:
        if window is not None and len({position // window for position in positions}) > 1:
            return False
        return callable(condition) and condition(*rows) is True

    if not isinstance(how, Mapping):
        return nested_loop(inputs, matches, how)
    if callable(condition):
        raise TypeError("a mapping for how needs a condition in parts")
    parts = condition
    return nested_loop_by_role(inputs, lambda rows: conjuncts_hold(parts, rows), how)

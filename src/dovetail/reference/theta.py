"""The theta join as a nested loop."""

from __future__ import annotations

from dovetail.conditions.join_kind import How
from dovetail.reference.assemble import Condition, Inputs, Joined, Row, nested_loop


def theta_join(inputs: Inputs, condition: Condition, how: How = "inner", window: int | None = None) -> list[Joined]:
    """Every combination of rows for which the condition is true, and the rows that `how` keeps without a match.

    Parameters
    ----------
    inputs : mapping of str to sequence of rows
        Rows by alias, in the order of arrival.
    condition : callable
        Takes one row per input, in order.
    how : str
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
        return condition(*rows) is True

    return nested_loop(inputs, matches, how)

"""The window join as a nested loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.conditions.join_kind import How
from dovetail.reference.assemble import Inputs, Joined, Row, nested_loop
from dovetail.reference.theta import Condition

Bounds = Mapping[tuple[str, str], tuple[int, int]]


def window_join(
    inputs: Inputs,
    condition: Condition,
    windows: Bounds | Sequence[Bounds],
    how: How = "inner",
    time: str | Mapping[str, str] = "t",
) -> list[Joined]:
    """Every combination of rows that satisfies the condition and the windows, and the rows `how` keeps without a match.

    Parameters
    ----------
    inputs : mapping of str to sequence of rows
        Rows by alias.
    condition : callable
        Takes one row per input, in order.
    windows : mapping, or sequence of mappings
        For pairs of aliases (a, b) the lowest and the highest t_b - t_a; pairs that are not named are unbounded.  Of
        several such mappings one must hold.
    how : str
        ``inner``; for two inputs also ``left``, ``right``, ``full``, ``semi`` or ``anti``.
    time : str, or mapping of str to str
        The column with the time, or one for each alias.  A row without a time matches nothing.

    Returns
    -------
    list of dict
        One row, or None, for each alias.

    Examples
    --------
    >>> a, b = [{"t": 0}, {"t": 9}], [{"t": 3}, {"t": None}]
    >>> window_join({"A": a, "B": b}, lambda *_: True, {("A", "B"): (0, 5)}, "left")
    [{'A': {'t': 0}, 'B': {'t': 3}}, {'A': {'t': 9}, 'B': None}]
    """
    alternatives = [windows] if isinstance(windows, Mapping) else list(windows)
    column = {alias: time if isinstance(time, str) else time[alias] for alias in inputs}

    def near(times: Mapping[str, int], bounds: Bounds) -> bool:
        return all(low <= times[b] - times[a] <= high for (a, b), (low, high) in bounds.items())

    def matches(positions: tuple[int, ...], rows: tuple[Row, ...]) -> bool:
        times = {alias: row[column[alias]] for alias, row in zip(inputs, rows, strict=True)}
        if any(value is None for value in times.values()):
            return False
        if not any(near(times, bounds) for bounds in alternatives):
            return False
        return condition(*rows) is True

    return nested_loop(inputs, matches, how)

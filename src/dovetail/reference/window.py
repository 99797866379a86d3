"""The window join as a nested loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

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

Bounds = Mapping[tuple[str, str], tuple[int, int]]


def window_join(
    inputs: Inputs,
    condition: Condition | Conjuncts,
    windows: Bounds | Sequence[Bounds],
    how: How | Mapping[str, Role] = "inner",
    time: str | Mapping[str, str] = "t",
) -> list[Joined]:
    """Every combination of rows that satisfies the condition and the windows, and the rows `how` keeps without a match.

    Parameters
    ----------
    inputs : mapping of str to sequence of rows
        Rows by alias.
    condition : callable, or sequence of (aliases, callable)
        Takes one row per input, in order.  Where `how` is a mapping: a sequence of parts, each the aliases that it is
        about and a callable that takes their rows.  A part counts for rows of all its inputs.
    windows : mapping, or sequence of mappings
        For pairs of aliases (a, b) the lowest and the highest t_b - t_a; pairs that are not named are unbounded.  Of
        several such mappings one must hold.
    how : str, or mapping of str to str
        ``inner``; for two inputs also ``left``, ``right``, ``full``, ``semi`` or ``anti``.  Or a mapping from aliases
        to what each input is to the join, as :func:`~dovetail.reference.assemble.nested_loop_by_role` says.  Then rows
        of some inputs fit if, at some time of the other inputs, all windows hold.
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
        return callable(condition) and condition(*rows) is True

    if not isinstance(how, Mapping):
        if not callable(condition):
            raise TypeError("a condition in parts needs a mapping for how")
        return nested_loop(inputs, matches, how)
    if callable(condition):
        raise TypeError("a mapping for how needs a condition in parts")
    parts = condition
    implied = [_shortest(bounds, list(inputs)) for bounds in alternatives]

    def fits(rows: Mapping[str, Row]) -> bool:
        times = {alias: row[column[alias]] for alias, row in rows.items()}
        if len(rows) > 1:
            if any(value is None for value in times.values()):
                return False
            if not any(
                all(times[b] - times[a] <= most[a, b] for a, b in product(rows, rows) if a != b) for most in implied
            ):
                return False
        return conjuncts_hold(parts, rows)

    return nested_loop_by_role(inputs, fits, how)


def _shortest(bounds: Bounds, aliases: Sequence[str]) -> dict[tuple[str, str], float]:
    """The most by which the time of one input may lie after that of another, along any path of windows."""
    most = {(a, b): 0.0 if a == b else float("inf") for a, b in product(aliases, aliases)}
    for (a, b), (low, high) in bounds.items():
        most[a, b], most[b, a] = min(most[a, b], high), min(most[b, a], -low)
    for via, a, b in product(aliases, aliases, aliases):
        most[a, b] = min(most[a, b], most[a, via] + most[via, b])
    return most

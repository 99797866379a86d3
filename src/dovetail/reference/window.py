"""The window join as a nested loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from dovetail.reference.theta import Condition, Joined, Row

Bounds = Mapping[tuple[str, str], tuple[int, int]]


def window_join(
    inputs: Mapping[str, Sequence[Row]],
    condition: Condition,
    windows: Bounds | Sequence[Bounds],
    how: str = "inner",
    time: str | Mapping[str, str] = "t",
) -> list[Joined]:
    """Every combination of rows that satisfies the condition and the windows, and what `how` adds to it.

    Parameters
    ----------
    inputs
        Rows by alias.
    condition
        Takes one row per input, in order.
    windows
        For pairs of aliases (a, b) the lowest and the highest t_b - t_a; pairs that are not named are free.  Of
        several such mappings one has to hold.
    how
        ``inner``; for two inputs also ``left``, ``right``, ``full``, ``semi`` or ``anti``.
    time
        The column with the time, or one for each alias.  A row without a time matches nothing.

    Examples
    --------
    >>> a, b = [{"t": 0}, {"t": 9}], [{"t": 3}, {"t": None}]
    >>> window_join({"A": a, "B": b}, lambda *_: True, {("A", "B"): (0, 5)}, "left")
    [{'A': {'t': 0}, 'B': {'t': 3}}, {'A': {'t': 9}, 'B': None}]
    """
    aliases = list(inputs)
    alternatives = [windows] if isinstance(windows, Mapping) else list(windows)
    column = {alias: time if isinstance(time, str) else time[alias] for alias in aliases}
    rows = [list(enumerate(inputs[alias])) for alias in aliases]

    def near(times: Mapping[str, int], bounds: Bounds) -> bool:
        return all(low <= times[b] - times[a] <= high for (a, b), (low, high) in bounds.items())

    def matches(combination: tuple[tuple[int, Row], ...]) -> bool:
        times = {alias: row[column[alias]] for alias, (_, row) in zip(aliases, combination, strict=True)}
        if any(value is None for value in times.values()):
            return False
        if not any(near(times, bounds) for bounds in alternatives):
            return False
        return condition(*(row for _, row in combination)) is True

    if how == "inner":
        found = (combination for combination in product(*rows) if matches(combination))
        return [dict(zip(aliases, (row for _, row in combination), strict=True)) for combination in found]
    left, right = aliases
    pairs = [(one, other) for one in rows[0] for other in rows[1] if matches((one, other))]
    hit_left, hit_right = {at for (at, _), _ in pairs}, {at for _, (at, _) in pairs}
    if how in ("semi", "anti"):
        return [{left: row} for at, row in rows[0] if (at in hit_left) == (how == "semi")]
    result: list[Joined] = [{left: one, right: other} for (_, one), (_, other) in pairs]
    if how in ("left", "full"):
        result.extend({left: row, right: None} for at, row in rows[0] if at not in hit_left)
    if how in ("right", "full"):
        result.extend({left: None, right: row} for at, row in rows[1] if at not in hit_right)
    return result

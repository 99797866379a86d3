"""Matching rows as the result of a join: the pairs, and what ``how`` says about rows without a match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from dovetail.conditions.join_kind import How, JoinKind

Row = Mapping[str, Any]
Joined = dict[str, Row | None]
Inputs = Mapping[str, Sequence[Row]]
"""The rows of each input, by alias."""
Matches = Callable[[tuple[int, ...], tuple[Row, ...]], bool]
"""Whether one row of each input match: takes their positions in the inputs, and the rows."""


def nested_loop(inputs: Inputs, matches: Matches, how: How) -> list[Joined]:
    """Every combination of one row of each input that matches, and the rows that `how` keeps without a match.

    Examples
    --------
    >>> inputs = {"R": [{"x": 1}, {"x": 2}], "S": [{"x": 2}]}
    >>> nested_loop(inputs, lambda positions, rows: rows[0]["x"] == rows[1]["x"], "left")
    [{'R': {'x': 2}, 'S': {'x': 2}}, {'R': {'x': 1}, 'S': None}]
    """
    numbered = [list(enumerate(rows)) for rows in inputs.values()]
    matching: list[tuple[int, ...]] = []
    for combination in product(*numbered):
        positions, rows = zip(*combination, strict=True)
        if matches(positions, rows):
            matching.append(positions)
    return assembled(inputs, matching, how)


def assembled(inputs: Inputs, matching: Iterable[tuple[int, ...]], how: How) -> list[Joined]:
    """The result of a join whose matches are known, each as one position in each input.

    Only a join of two inputs keeps rows without a match.

    Examples
    --------
    >>> inputs = {"R": [{"x": 1}, {"x": 2}], "S": [{"y": 3}, {"y": 4}]}
    >>> assembled(inputs, [(0, 0), (0, 1)], "inner")
    [{'R': {'x': 1}, 'S': {'y': 3}}, {'R': {'x': 1}, 'S': {'y': 4}}]
    >>> assembled(inputs, [(0, 0), (0, 1)], "semi"), assembled(inputs, [(0, 0), (0, 1)], "anti")
    ([{'R': {'x': 1}}], [{'R': {'x': 2}}])
    """
    matching = list(matching)
    kind = JoinKind.of(how)
    if not kind.pairs:
        left = next(iter(inputs))
        matched = {position for position, _ in matching}
        return [{left: row} for at, row in enumerate(inputs[left]) if (at in matched) != kind.unmatched]
    result: list[Joined] = [
        {alias: inputs[alias][position] for alias, position in zip(inputs, positions, strict=True)}
        for positions in matching
    ]
    return result + unmatched(inputs, matching, how) if kind.outer else result


def unmatched(inputs: Inputs, matching: Collection[tuple[int, ...]], how: How) -> list[Joined]:
    """The rows of two inputs that are in no match and that an outer join keeps, with None for the other input.

    Examples
    --------
    >>> unmatched({"R": [{"x": 1}, {"x": 2}], "S": [{"y": 3}]}, [(1, 0)], "full")
    [{'R': {'x': 1}, 'S': None}]
    """
    result: list[Joined] = []
    for side, (alias, preserved) in enumerate(zip(inputs, JoinKind.of(how).preserved, strict=True)):
        if preserved:
            matched = {positions[side] for positions in matching}
            nothing: Joined = dict.fromkeys(inputs)
            result += [{**nothing, alias: row} for at, row in enumerate(inputs[alias]) if at not in matched]
    return result

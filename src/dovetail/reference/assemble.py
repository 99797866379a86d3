"""Matching rows as the result of a join: the pairs, and what ``how`` says about rows without a match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from dovetail.conditions.join_kind import How, JoinKind
from dovetail.conditions.roles import Role

Row = Mapping[str, Any]
Joined = dict[str, Row | None]
Inputs = Mapping[str, Sequence[Row]]
"""The rows of each input, by alias."""
Matches = Callable[[tuple[int, ...], tuple[Row, ...]], bool]
"""Whether one row of each input match: takes their positions in the inputs, and the rows."""
Condition = Callable[..., bool | None]
Conjuncts = Sequence[tuple[Sequence[str], Condition]]
"""A condition taken apart: the inputs that each part is about, and the part, which takes their rows."""
Fits = Callable[[Mapping[str, Row]], bool]
"""Whether one row of each of some inputs fit each other, as far as these inputs go."""


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


def nested_loop_by_role(inputs: Inputs, fits: Fits, how: Mapping[str, Role]) -> list[Joined]:
    """The join of inputs that play different parts in it.

    A *match* has one row of each required and each kept input, and these fit each other.  A row of any other input
    *completes* a match if it fits the match's rows.  Then

    * a match with no completing row of a ``present`` input, or with one of an ``absent`` input, is left out; neither
      kind of input has a column in the result;
    * each other match comes out with every combination of the completing rows of its ``optional`` inputs, None for one
      that has none;
    * each row of a ``keep`` input that is in none of these results comes out alone, with None for the others.

    Examples
    --------
    >>> inputs = {"A": [{"x": 1}, {"x": 2}], "B": [{"x": 1}, {"x": 2}], "C": [{"x": 2}]}
    >>> same = lambda rows: len({row["x"] for row in rows.values()}) == 1
    >>> nested_loop_by_role(inputs, same, {"C": "optional"})
    [{'A': {'x': 1}, 'B': {'x': 1}, 'C': None}, {'A': {'x': 2}, 'B': {'x': 2}, 'C': {'x': 2}}]
    >>> nested_loop_by_role(inputs, same, {"C": "absent"})
    [{'A': {'x': 1}, 'B': {'x': 1}}]
    """
    role = {alias: how.get(alias, "required") for alias in inputs}
    core = [alias for alias in inputs if role[alias] in ("required", "keep")]
    shown = [alias for alias in inputs if role[alias] not in ("present", "absent")]
    result: list[Joined] = []
    came_out: set[tuple[str, int]] = set()
    for positions in product(*(range(len(inputs[alias])) for alias in core)):
        match = {alias: inputs[alias][position] for alias, position in zip(core, positions, strict=True)}
        if not fits(match):
            continue
        completing = {
            alias: [row for row in rows if fits({**match, alias: row})]
            for alias, rows in inputs.items()
            if alias not in core
        }
        if any(role[alias] == "present" and not rows for alias, rows in completing.items()):
            continue
        if any(role[alias] == "absent" and rows for alias, rows in completing.items()):
            continue
        choices: list[Sequence[Row | None]] = [
            [match[alias]] if alias in match else completing[alias] or [None] for alias in shown
        ]
        result += [dict(zip(shown, rows, strict=True)) for rows in product(*choices)]
        came_out |= set(zip(core, positions, strict=True))
    for alias in core:
        if role[alias] == "keep":
            alone = [row for at, row in enumerate(inputs[alias]) if (alias, at) not in came_out]
            result += [{**dict.fromkeys(shown), alias: row} for row in alone]
    return result


def conjuncts_hold(conjuncts: Conjuncts, rows: Mapping[str, Row]) -> bool:
    """Whether all parts of a condition are true that are about these inputs alone.

    Examples
    --------
    >>> less = (("A", "B"), lambda a, b: a["x"] < b["x"])
    >>> conjuncts_hold([less], {"A": {"x": 1}}), conjuncts_hold([less], {"A": {"x": 1}, "B": {"x": 0}})
    (True, False)
    """
    return all(
        condition(*(rows[alias] for alias in aliases)) is True
        for aliases, condition in conjuncts
        if all(alias in rows for alias in aliases)
    )

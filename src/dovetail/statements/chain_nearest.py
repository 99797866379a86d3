"""``NEAREST JOIN`` as a call: its distance, and what must be equal beside it."""

from __future__ import annotations

from typing import Any

from dovetail.errors import in_statement
from dovetail.statements.calls import Conditions, Facts, JoinCall, broadcast
from dovetail.statements.steps import Keys, Step, columns_of, commuting
from dovetail.statements.windows import asked_window

_OWN = ("distance", "rank")
"""The columns of the result that belong to no relation."""


def nearest_call(step: Step, text: str, facts: Facts) -> JoinCall:
    """The call of a ``NEAREST JOIN``: the rows on its left come out, each with its nearest ones."""
    near = step.join.near
    if near is None:
        raise AssertionError("a nearest join says how many rows it looks for")
    _refuse_further_joins(step, text)
    _refuse_doubles(step, text, facts)
    conditions = Conditions(text, columns_of(step, facts))
    keys = Keys(step.inputs, facts)
    moved = commuting(step, conditions, keys, 0)
    on = conditions.joined(step.join.on)
    if keys.inputs[0].nested:
        parts = conditions.parsed(step.join.on).parts
        on = " AND ".join(f"({conditions.within(part.sql, keys.inputs)})" for part in parts)
    options: dict[str, Any] = {"on": on, "k": near.k, "ties": near.ties, "how": step.join.how}
    options |= asked_window(step.block, text, facts, "window")
    options |= broadcast(step.block, tuple(keys.inputs))
    return JoinCall("nearest", tuple(keys.inputs), options, step.slice, "it is a NEAREST JOIN", moved)


def _refuse_further_joins(step: Step, text: str) -> None:
    """Distance and rank are columns of no relation: a join behind them would lose them."""
    behind = step.block.joins[step.block.joins.index(step.join) + 1 :]
    if behind:
        raise in_statement(
            text, behind[0].slice.start, "a join behind a NEAREST JOIN", accepted="NEAREST JOIN as the last join",
            hint="put the NEAREST JOIN into a subquery, and join that",
        )  # fmt: skip


def _refuse_doubles(step: Step, text: str, facts: Facts) -> None:
    for relation in (*step.left, step.join.relation):
        for column in facts.columns[relation.alias]:
            if column.casefold() in _OWN:
                raise in_statement(
                    text, relation.slice.start, f"{relation.alias} has a column {column}, as a NEAREST JOIN has",
                    accepted="other names for columns of the relations",
                    hint=f"name a subquery: (SELECT *, {column} AS its_{column} FROM ...) without that column",
                )  # fmt: skip

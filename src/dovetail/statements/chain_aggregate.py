"""``AGGREGATE JOIN`` as a call: its condition, and the aggregates behind COMPUTE."""

from __future__ import annotations

from typing import Any

from dovetail.errors import in_statement
from dovetail.statements.calls import Conditions, Facts, JoinCall, broadcast
from dovetail.statements.steps import Keys, Step, columns_of, commuting
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.windows import asked_window


def aggregate_call(step: Step, text: str, facts: Facts) -> JoinCall:
    """The call of an ``AGGREGATE JOIN``: the rows on its left come out, each with its aggregates."""
    compute = step.join.compute
    if compute is None:
        raise AssertionError("an aggregate join has aggregates")
    _refuse_further_joins(step, text)
    if not step.join.on and not step.block.extras.windows:
        raise in_statement(
            text, step.join.slice.start, "ON is missing behind AGGREGATE JOIN", accepted="ON q.k = t.k AND q.x <= t.x",
            hint="only a WINDOW clause behind COMPUTE makes it superfluous",
        )  # fmt: skip
    conditions = Conditions(text, columns_of(step, facts))
    keys = Keys(step.inputs, facts)
    moved = commuting(step, conditions, keys, 0)
    asking = keys.inputs[0]
    on = conditions.joined(step.join.on) if step.join.on else None
    if asking.nested and step.join.on:
        parts = conditions.parsed(step.join.on).parts
        on = " AND ".join(f"({conditions.within(part.sql, keys.inputs)})" for part in parts)
    agg: dict[str, str] = {}
    for name, at in compute.aggregates:
        _refuse_double(step, text, name, at, agg, facts)
        agg[name] = at.of(text)
    options: dict[str, Any] = {"on": on, "by": asking.alias, "agg": agg, "how": "left" if compute.keep else "inner"}
    options |= asked_window(step.block, text, facts, "within")
    options |= broadcast(step.block, tuple(keys.inputs))
    return JoinCall("aggregate", tuple(keys.inputs), options, step.slice, "it is an AGGREGATE JOIN", moved)


def _refuse_further_joins(step: Step, text: str) -> None:
    """The aggregates are columns of no relation: a join behind them would lose them."""
    behind = step.block.joins[step.block.joins.index(step.join) + 1 :]
    if behind:
        raise in_statement(
            text, behind[0].slice.start, "a join behind an AGGREGATE JOIN", accepted="AGGREGATE JOIN as the last join",
            hint="put the AGGREGATE JOIN into a subquery, and join that",
        )  # fmt: skip


def _refuse_double(step: Step, text: str, name: str, at: Slice, known: dict[str, str], facts: Facts) -> None:
    columns = {column.casefold() for relation in step.left for column in facts.columns[relation.alias]}
    if name.casefold() in {one.casefold() for one in known}:
        given = f"two aggregates are called {name}"
    elif name.casefold() in columns:
        given = f"an aggregate is called {name}, as a column on the left of AGGREGATE JOIN is"
    else:
        return
    raise in_statement(text, at.start, given, accepted="names that differ in more than case")

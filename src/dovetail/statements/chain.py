"""Joins one after another: outer, semi and anti joins on inequalities, as-of and best-match joins.

The left side of such a join is everything before it, up to the last comma.  Where that is more than one relation, Spark
or an earlier join makes it, and it goes into the join as one input with a column for each relation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dovetail.conditions.either import either_of
from dovetail.conditions.forms import Part, aliases_of
from dovetail.conditions.join_kind import How, JoinKind
from dovetail.statements.calls import (
    Conditions,
    Facts,
    JoinCall,
    broadcast,
    refuse_relations_of_spark,
    refuse_two_streams,
)
from dovetail.statements.chain_aggregate import aggregate_call
from dovetail.statements.chain_asof import asof_call
from dovetail.statements.chain_bestmatch import bestmatch_call
from dovetail.statements.chain_nearest import nearest_call
from dovetail.statements.steps import Keys, Step, columns_of, commuting, steps_of
from dovetail.statements.syntax.statement import Block

_MAKERS: dict[str, Callable[[Step, str, Facts], JoinCall]] = {
    "asof": asof_call, "bestmatch": bestmatch_call, "aggregate": aggregate_call, "nearest": nearest_call,
}  # fmt: skip


def chain_calls(block: Block, text: str, facts: Facts, *, plain: bool = True) -> tuple[JoinCall, ...]:
    """The joins of a chain that Dovetail runs, in order; unless `plain`, only those that a clause asks for."""
    calls = []
    for step in steps_of(block):
        if step.join.kind in _MAKERS:
            refuse_relations_of_spark(
                text, replace(block, joins=tuple(one for one in block.joins if one.kind != "spark")), "this join"
            )
            calls.append(_MAKERS[step.join.kind](step, text, facts))
        elif plain and step.join.kind == "plain" and step.join.on:
            call = _theta(step, text, facts)
            if call is not None:
                calls.append(call)
    return tuple(calls)


def _theta(step: Step, text: str, facts: Facts) -> JoinCall | None:
    """A plain join, if it has an inequality and no equality between its sides."""
    inputs = step.inputs
    if not all(relation.separate for relation in (step.join.relation, *step.left)):
        return None
    conditions = Conditions(text, columns_of(step, facts))
    if len(conditions.readable(step.join.on)) < len(step.join.on):
        return None
    predicate = conditions.parsed(step.join.on)
    right = step.join.relation.alias
    compared: list[Part] = [*predicate.inequalities, *predicate.bands]
    compared += [part for part in predicate.rests if part.implied]
    crossing = [part for part in compared if right in aliases_of(part)]
    equal = [part for part in predicate.equalities if right in aliases_of(part)]
    if not crossing and not equal and not either_of(predicate, columns_of(step, facts)):
        return None
    if equal and (not crossing or "DOVETAIL" not in step.block.hints):
        return None
    refuse_two_streams(text, step.join.slice.start, inputs, facts)
    how = step.join.how
    keys = Keys(inputs, facts)
    moved = commuting(step, conditions, keys, 0) if _keeps_left_only(how) else frozenset()
    on = conditions.joined(step.join.on)
    if inputs[0].nested:
        on = " AND ".join(f"({conditions.within(part.sql, inputs)})" for part in predicate.parts)
    options = {"on": on, "how": how} | broadcast(step.block, inputs)
    why = "the hint asks for it" if equal else f"no equality connects {inputs[0].alias} with {right}"
    return JoinCall("theta", tuple(keys.inputs), options, step.slice, why, moved)


def _keeps_left_only(how: How) -> bool:
    """Whether each row of the result has a row of the left input, and each of those may come out unmatched or once."""
    kind = JoinKind.of(how)
    return kind.preserved == (True, False) or not kind.pairs

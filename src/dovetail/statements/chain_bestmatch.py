"""``BESTMATCH JOIN`` as a call: criteria, equalities, and maximum distances from WHERE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.conditions.criteria import Criterion, least, most
from dovetail.conditions.forms import Band
from dovetail.conditions.literals import Value
from dovetail.errors import in_statement
from dovetail.statements import orders
from dovetail.statements.calls import Conditions, Facts, JoinCall
from dovetail.statements.steps import Keys, Step, columns_of, commuting, reach_of, sides_of
from dovetail.statements.syntax.grammar import Agreeing, Extreme, Ordered, Slice


def bestmatch_call(step: Step, text: str, facts: Facts) -> JoinCall:
    """The call of a ``BESTMATCH JOIN``."""
    best, how = step.join.best, step.join.how
    if best is None:
        raise AssertionError("a best-match join has criteria")
    conditions = Conditions(text, columns_of(step, facts))
    keys = Keys(step.inputs, facts)
    limits, moved = _limits(step, text, conditions, best.criteria)
    criteria: list[Criterion] = []
    by: list[str] = []
    for one in best.criteria:
        if isinstance(one, Extreme):
            sql = conditions.within(one.expression.of(text), keys.inputs)
            criteria.append(most(sql) if one.largest else least(sql))
            continue
        (left, left_sql), (right, right_sql) = _operands(step, text, conditions, one)
        if isinstance(one, Agreeing):
            by.append(keys.same(left_sql, right_sql))
            continue
        columns = [
            orders.Column(
                keys.inputs[keys.side(alias)].alias, keys.name(alias, sql), conditions.within(sql, keys.inputs)
            )
            for alias, sql in ((left, left_sql), (right, right_sql))
        ]
        criterion = orders.criterion(one.order, columns[0], columns[1], limits.get((left_sql, right_sql)))
        if criterion is None:
            accepted, register = orders.known()
            raise in_statement(
                text, one.offset, f"the order {one.order!r} is unknown", accepted=accepted,
                hint=orders.similar(one.order) or register,
            )  # fmt: skip
        criteria.append(criterion)
    side = {"left": 0, "right": 1}.get(how)
    if side is not None:
        moved |= commuting(step, conditions, keys, side)
    options: dict[str, Any] = {"on": criteria, "how": how}
    if by:
        options["by"] = by
    if best.keep:
        options["unmatched"] = "keep"
    return JoinCall("bestmatch", tuple(keys.inputs), options, step.slice, "it is a BESTMATCH JOIN", moved)


def _operands(
    step: Step, text: str, conditions: Conditions, one: Ordered | Agreeing
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two operands of a criterion in the order of the inputs, each with its relation."""
    operands = []
    for operand in (one.left, one.right):
        alias, sql = conditions.operand(operand.of(text))
        if alias is None:
            raise in_statement(
                text, operand.start, "this is not an expression over one input", accepted="a column, such as R.x"
            )
        operands.append((alias, sql))
    right = step.join.relation.alias
    if (operands[0][0] == right) == (operands[1][0] == right):
        raise in_statement(
            text,
            one.left.start,
            "both sides of this are the same input",
            accepted=f"something of {right}, and of what it joins",
        )
    first, second = operands
    return (second, first) if first[0] == right else (first, second)


def _limits(
    step: Step, text: str, conditions: Conditions, criteria: Sequence[Any]
) -> tuple[dict[tuple[str, str], Value], frozenset[Slice]]:
    """Maximum distances in WHERE, by the two columns they are about, and the conditions that state them."""
    near = [
        tuple(sql for _, sql in _operands(step, text, conditions, one))
        for one in criteria
        if isinstance(one, Ordered) and one.order.casefold() == "minattrdist"
    ]
    limits: dict[tuple[str, str], Value] = {}
    moved = set()
    for conjunct, predicate in conditions.readable(step.block.conjuncts).items():
        for band in predicate.bands:
            left, right = (
                sides_of(step, text, band.left, band.right) if _crosses(step, band) else (band.left, band.right)
            )
            if (left.sql, right.sql) not in near:
                continue
            far = reach_of(band)
            if far is None:
                raise in_statement(
                    text, conjunct.start, "this bounds a distance that the join minimises, but is no maximum distance",
                    accepted=f"ABS(...) <= ..., as in ABS({left} - {right}) <= 10",
                )  # fmt: skip
            pair = (left.sql, right.sql)
            limits[pair] = min(limits.get(pair, far), far)
            moved.add(conjunct)
    return limits, frozenset(moved)


def _crosses(step: Step, band: Band) -> bool:
    right = step.join.relation.alias
    return (band.left.alias == right) != (band.right.alias == right)

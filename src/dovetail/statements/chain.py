"""Joins one after another: outer, semi and anti joins on inequalities, as-of and best-match joins.

The left side of such a join is everything before it, up to the last comma.  Where that is more than one relation, Spark
or an earlier join makes it, and it goes into the join as one input with a column for each relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dovetail.conditions.criteria import Criterion, least, most
from dovetail.conditions.forms import Band, Filter, Part, Predicate, Rest, Term
from dovetail.conditions.join_kind import How, JoinKind
from dovetail.conditions.literals import Value
from dovetail.conditions.names import bare
from dovetail.errors import in_statement
from dovetail.statements import orders
from dovetail.statements.calls import (
    Conditions,
    Facts,
    JoinCall,
    JoinInput,
    aliases_of,
    broadcast,
    group_alias,
    parts_of,
    plain_column,
    refuse_relations_of_spark,
    refuse_two_streams,
)
from dovetail.statements.grammar import Agreeing, Extreme, Ordered, Slice
from dovetail.statements.statement import Block, Join, Relation

_ASOF = "ON with equalities and one inequality of the times, such as t.item = q.item AND t.ts >= q.ts"


@dataclass(frozen=True)
class _Step:
    """A join of a chain, the relations that it sees on its left, and the part of FROM that gives them."""

    block: Block
    join: Join
    left: tuple[Relation, ...]
    prefix: Slice | None
    slice: Slice

    @property
    def inputs(self) -> tuple[JoinInput, JoinInput]:
        members = tuple(relation.alias for relation in self.left)
        right = self.join.relation.alias
        alias = members[0] if len(members) == 1 else group_alias(members, [*members, right])
        return JoinInput(alias, members, prefix=self.prefix), JoinInput(right, (right,))

    @property
    def is_only_join(self) -> bool:
        """Whether FROM holds this join and nothing else."""
        return len(self.block.joins) == 1


def _steps(block: Block) -> list[_Step]:
    steps: list[_Step] = []
    visible: list[Relation] = [block.first]
    start, stop, first = block.first.slice.start, block.first.slice.stop, True
    for join in block.joins:
        if join.comma:
            visible, first = [join.relation], True
            start, stop = join.relation.slice.start, join.slice.stop
            continue
        prefix = None if first else Slice(start, stop)
        steps.append(_Step(block, join, tuple(visible), prefix, Slice(start, join.slice.stop)))
        if JoinKind.of(join.how).pairs:
            visible.append(join.relation)
        stop, first = join.slice.stop, False
    return steps


def chain_calls(block: Block, text: str, facts: Facts) -> tuple[JoinCall, ...]:
    """The joins of a chain that Dovetail runs, in order."""
    calls = []
    for step in _steps(block):
        if step.join.kind in ("asof", "bestmatch"):
            refuse_relations_of_spark(
                text, replace(block, joins=tuple(one for one in block.joins if one.kind != "spark")), "this join"
            )
            make = _asof if step.join.kind == "asof" else _best
            calls.append(make(step, text, facts))
        elif step.join.kind == "plain" and step.join.on:
            call = _theta(step, text, facts)
            if call is not None:
                calls.append(call)
    return tuple(calls)


def _columns(step: _Step, facts: Facts) -> dict[str, Sequence[str]]:
    return {relation.alias: facts.columns[relation.alias] for relation in (*step.left, step.join.relation)}


class _Keys:
    """Columns that a join compares, by name: columns of an input as they are, anything else as a further column."""

    def __init__(self, inputs: Sequence[JoinInput], facts: Facts) -> None:
        self.inputs = list(inputs)
        self._facts = facts

    def side(self, alias: str) -> int:
        return next(at for at, one in enumerate(self.inputs) if alias in one.members)

    def name(self, alias: str, sql: str) -> str:
        """The column of an input that holds the expression."""
        one = self.inputs[self.side(alias)]
        column = None if one.nested else plain_column(sql, alias, self._facts.columns[alias])
        return column or self._added(self.side(alias), sql)

    def same(self, left: str, right: str) -> str:
        """One name on both sides for two expressions, left and right in the order of the inputs."""
        single = [one.alias for one in self.inputs if not one.nested]
        if len(single) == 2:
            names = [plain_column(sql, a, self._facts.columns[a]) for a, sql in zip(single, (left, right), strict=True)]
            if names[0] is not None and names[0] == names[1]:
                return names[0]
        name = f"__by_{sum(len(one.keys) for one in self.inputs)}"
        self._added(0, left, name)
        return self._added(1, right, name)

    def _added(self, at: int, sql: str, name: str | None = None) -> str:
        one = self.inputs[at]
        for existing, given in one.keys:
            if given == sql and name is None:
                return existing
        name = name or f"__key_{len(one.keys)}"
        self.inputs[at] = replace(one, keys=(*one.keys, (name, sql)))
        return name

    def filtered(self, at: int, sql: str) -> None:
        one = self.inputs[at]
        self.inputs[at] = replace(one, conditions=(*one.conditions, f"({sql})"))


# --- inequalities ------------------------------------------------------------------------------------------------


def _theta(step: _Step, text: str, facts: Facts) -> JoinCall | None:
    """A plain join, if it has an inequality and no equality between its sides."""
    inputs = step.inputs
    if not all(relation.separate for relation in (step.join.relation, *step.left)):
        return None
    conditions = Conditions(text, _columns(step, facts))
    if len(conditions.readable(step.join.on)) < len(step.join.on):
        return None
    predicate = conditions.parsed(step.join.on)
    right = step.join.relation.alias
    compared: list[Part] = [*predicate.inequalities, *predicate.bands]
    crossing = [part for part in compared if right in aliases_of(part)]
    equal = [part for part in predicate.equalities if right in aliases_of(part)]
    if not crossing or (equal and "DOVETAIL" not in step.block.hints):
        return None
    refuse_two_streams(text, step.join.slice.start, inputs, facts)
    how = step.join.how
    keys = _Keys(inputs, facts)
    moved = _commuting(step, conditions, keys, 0) if _keeps_left_only(how) else frozenset()
    on = conditions.joined(step.join.on)
    if inputs[0].nested:
        on = " AND ".join(f"({conditions.within(part.sql, inputs)})" for part in parts_of(predicate))
    options = {"on": on, "how": how} | broadcast(step.block, inputs)
    why = "the hint asks for it" if equal else f"no equality connects {inputs[0].alias} with {right}"
    return JoinCall("theta", tuple(keys.inputs), options, step.slice, why, moved)


def _keeps_left_only(how: How) -> bool:
    """Whether each row of the result has a row of the left input, and each of those may come out unmatched or once."""
    kind = JoinKind.of(how)
    return kind.preserved == (True, False) or not kind.pairs


def _commuting(step: _Step, conditions: Conditions, keys: _Keys, side: int) -> frozenset[Slice]:
    """Conditions of WHERE on the side whose rows the join keeps apart: they may be applied before the join."""
    if not step.is_only_join:
        return frozenset()
    moved = set()
    for conjunct, predicate in conditions.readable(step.block.conjuncts).items():
        parts = parts_of(predicate)
        if parts and all(aliases_of(part) and aliases_of(part) <= set(keys.inputs[side].members) for part in parts):
            for part in parts:
                keys.filtered(side, part.sql)
            moved.add(conjunct)
    return frozenset(moved)


# --- as-of -------------------------------------------------------------------------------------------------------


def _asof(step: _Step, text: str, facts: Facts) -> JoinCall:
    if step.join.how not in ("inner", "left"):
        raise in_statement(
            text, step.join.slice.start, f"ASOF {step.join.how.upper()} JOIN", accepted="ASOF [LEFT] JOIN"
        )
    if not step.join.on:
        raise in_statement(text, step.join.slice.start, "ASOF JOIN without ON", accepted=_ASOF)
    conditions = Conditions(text, _columns(step, facts))
    keys = _Keys(step.inputs, facts)
    predicate = conditions.parsed(step.join.on)
    _filters(step, text, predicate, keys)
    by: list[tuple[str, str]] = []
    for part in predicate.equalities:
        left, right = _sides(step, text, part.left, part.right)
        by.append((keys.name(left.alias, left.sql), keys.name(right.alias, right.sql)))
    options = _direction(step, text, predicate)
    left, right = options.pop("terms")
    first, second = (one.alias for one in keys.inputs)
    options["time"] = {first: keys.name(left.alias, left.sql), second: keys.name(right.alias, right.sql)}
    if by:
        options["by"] = {first: [one for one, _ in by], second: [other for _, other in by]}
    named = [name.casefold() for name in step.block.hints.get("BROADCAST", ())]
    if second.casefold() in named:
        options["broadcast"] = second
    moved = _commuting(step, conditions, keys, 0)
    return JoinCall(
        "asof", tuple(keys.inputs), {**options, "how": step.join.how}, step.slice, "it is an ASOF JOIN", moved
    )


def _filters(step: _Step, text: str, predicate: Predicate, keys: _Keys) -> None:
    """Conditions on one side restrict its rows; a left join keeps its left rows all the same."""
    further: list[Filter | Rest] = [*predicate.filters, *predicate.rests]
    for part in further:
        aliases = aliases_of(part)
        sides = {keys.side(alias) for alias in aliases}
        if len(sides) != 1 or (sides == {0} and step.join.how == "left"):
            raise in_statement(
                text, step.join.slice.start, f"ASOF JOIN with the condition {bare(part.sql)}",
                accepted=_ASOF, hint="put further conditions into WHERE",
            )  # fmt: skip
        keys.filtered(next(iter(sides)), part.sql)


def _sides(step: _Step, text: str, one: Term, other: Term) -> tuple[Term, Term]:
    """Two terms in the order of the inputs."""
    right = step.join.relation.alias
    if (one.alias == right) == (other.alias == right):
        raise in_statement(
            text, step.join.slice.start, f"a condition of {step.join.kind.upper()} JOIN that does not connect {right}",
            accepted="conditions between the two sides of the join",
        )  # fmt: skip
    return (other, one) if one.alias == right else (one, other)


def _direction(step: _Step, text: str, predicate: Predicate) -> dict[str, Any]:
    """What the inequality and the band of ON say: the direction, the tolerance and the two times."""
    at = step.join.slice.start
    if len(predicate.inequalities) > 1 or len(predicate.bands) > 1:
        raise in_statement(text, at, "ASOF JOIN with more than one inequality", accepted=_ASOF)
    bands = [(_sides(step, text, band.left, band.right), band) for band in predicate.bands]
    if not predicate.inequalities:
        if bands and _reach(bands[0][1]) is not None:
            return {"direction": "nearest", "within": _reach(bands[0][1]), "terms": bands[0][0]}
        raise in_statement(
            text, at, "ASOF JOIN without an inequality of the times", accepted=_ASOF,
            hint="ABS(t.ts - q.ts) <= INTERVAL 5 SECONDS without an inequality takes the nearest row",
        )  # fmt: skip
    inequality = predicate.inequalities[0]
    left, right = _sides(step, text, inequality.left, inequality.right)
    backward = inequality.left is right
    options: dict[str, Any] = {
        "direction": "backward" if backward else "forward",
        "allow_exact_matches": not inequality.strict,
        "terms": (left, right),
    }
    for terms, band in bands:
        far = _reach(band) or _one_sided(band, band.left == left, backward)
        if terms != (left, right) or far is None:
            raise in_statement(
                text, at, "ASOF JOIN with a tolerance that cannot be read",
                accepted="the same two times, such as t.ts - q.ts <= INTERVAL 10 SECONDS",
            )  # fmt: skip
        options["within"] = far
    return options


def _reach(band: Band) -> Value | None:
    """The maximum distance that a band is, if it is one: ``ABS(a - b) <= e``."""
    low, high = band.low, band.high
    if low is None or high is None or low.strict or high.strict or low.value != -high.value:
        return None
    return high.value


def _one_sided(band: Band, left_first: bool, backward: bool) -> Value | None:
    """The tolerance in ``later - earlier <= e``, however it is written."""
    end, other = (band.high, band.low) if left_first == backward else (band.low, band.high)
    if end is None or end.strict or other is not None:
        return None
    return end.value if left_first == backward else -end.value


# --- best match ----------------------------------------------------------------------------------------------------


def _best(step: _Step, text: str, facts: Facts) -> JoinCall:
    best, how = step.join.best, step.join.how
    if best is None:
        raise AssertionError("a best-match join has criteria")
    conditions = Conditions(text, _columns(step, facts))
    keys = _Keys(step.inputs, facts)
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
        moved |= _commuting(step, conditions, keys, side)
    options: dict[str, Any] = {"on": criteria, "how": how}
    if by:
        options["by"] = by
    if best.keep:
        options["unmatched"] = "keep"
    return JoinCall("bestmatch", tuple(keys.inputs), options, step.slice, "it is a BESTMATCH JOIN", moved)


def _operands(
    step: _Step, text: str, conditions: Conditions, one: Ordered | Agreeing
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
    step: _Step, text: str, conditions: Conditions, criteria: Sequence[Any]
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
            left, right = _sides(step, text, band.left, band.right) if _crosses(step, band) else (band.left, band.right)
            if (left.sql, right.sql) not in near:
                continue
            far = _reach(band)
            if far is None:
                raise in_statement(
                    text, conjunct.start, "this bounds a distance that the join minimises, but is no maximum distance",
                    accepted=f"ABS(...) <= ..., as in ABS({left} - {right}) <= 10",
                )  # fmt: skip
            pair = (left.sql, right.sql)
            limits[pair] = min(limits.get(pair, far), far)
            moved.add(conjunct)
    return limits, frozenset(moved)


def _crosses(step: _Step, band: Band) -> bool:
    right = step.join.relation.alias
    return (band.left.alias == right) != (band.right.alias == right)

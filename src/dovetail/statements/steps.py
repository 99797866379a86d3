"""A join of a chain with what it sees on its left, and the columns that it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.conditions.forms import Band, Term, aliases_of
from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.literals import Value
from dovetail.errors import in_statement
from dovetail.statements.calls import Conditions, Facts, JoinInput, group_alias, plain_column
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.syntax.statement import Block, Join, Relation


@dataclass(frozen=True)
class Step:
    """A join of a chain, the relations that it sees on its left, and the part of FROM that gives them."""

    block: Block
    join: Join
    left: tuple[Relation, ...]
    prefix: Slice | None
    slice: Slice

    @property
    def inputs(self) -> tuple[JoinInput, JoinInput]:
        """What is on its left, as one input, and its own relation."""
        members = tuple(relation.alias for relation in self.left)
        right = self.join.relation.alias
        alias = members[0] if len(members) == 1 else group_alias(members, [*members, right])
        return JoinInput(alias, members, prefix=self.prefix), JoinInput(right, (right,))

    @property
    def is_only_join(self) -> bool:
        """Whether FROM holds this join and nothing else."""
        return len(self.block.joins) == 1


def steps_of(block: Block) -> list[Step]:
    """The joins of a SELECT, those behind a comma apart."""
    steps: list[Step] = []
    visible: list[Relation] = [block.first]
    start, stop, first = block.first.slice.start, block.first.slice.stop, True
    for join in block.joins:
        if join.comma:
            visible, first = [join.relation], True
            start, stop = join.relation.slice.start, join.slice.stop
            continue
        prefix = None if first else Slice(start, stop)
        steps.append(Step(block, join, tuple(visible), prefix, Slice(start, join.slice.stop)))
        if JoinKind.of(join.how).pairs:
            visible.append(join.relation)
        stop, first = join.slice.stop, False
    return steps


def columns_of(step: Step, facts: Facts) -> dict[str, Sequence[str]]:
    """The columns of the relations that a join sees."""
    return {relation.alias: facts.columns[relation.alias] for relation in (*step.left, step.join.relation)}


class Keys:
    """Columns that a join compares, by name: columns of an input as they are, anything else as a further column."""

    def __init__(self, inputs: Sequence[JoinInput], facts: Facts) -> None:
        self.inputs = list(inputs)
        self._facts = facts

    def side(self, alias: str) -> int:
        """The number of the input that holds a relation."""
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
        """Restrict the rows of an input."""
        one = self.inputs[at]
        self.inputs[at] = replace(one, conditions=(*one.conditions, f"({sql})"))


def commuting(step: Step, conditions: Conditions, keys: Keys, side: int) -> frozenset[Slice]:
    """Conditions of WHERE on the side whose rows the join keeps apart: they may be applied before the join."""
    if not step.is_only_join:
        return frozenset()
    moved = set()
    for conjunct, predicate in conditions.readable(step.block.conjuncts).items():
        parts = predicate.parts
        if parts and all(aliases_of(part) and aliases_of(part) <= set(keys.inputs[side].members) for part in parts):
            for part in parts:
                keys.filtered(side, part.sql)
            moved.add(conjunct)
    return frozenset(moved)


def sides_of(step: Step, text: str, one: Term, other: Term) -> tuple[Term, Term]:
    """Two terms in the order of the inputs."""
    right = step.join.relation.alias
    if (one.alias == right) == (other.alias == right):
        raise in_statement(
            text, step.join.slice.start, f"a condition of {step.join.kind.upper()} JOIN that does not connect {right}",
            accepted="conditions between the two sides of the join",
        )  # fmt: skip
    return (other, one) if one.alias == right else (one, other)


def reach_of(band: Band) -> Value | None:
    """The maximum distance that a band is, if it is one: ``ABS(a - b) <= e``."""
    low, high = band.low, band.high
    if low is None or high is None or low.strict or high.strict or low.value != -high.value:
        return None
    return high.value

"""The joins of a SELECT as calls of join functions, and the conditions that they are made of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dovetail.conditions.clauses import Clauses, Span
from dovetail.conditions.forms import Predicate, aliases_of
from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.names import quoted
from dovetail.conditions.predicates import parse
from dovetail.conditions.tokens import read
from dovetail.errors import PredicateError, UnboundedJoinError, UnknownNameError, closest, in_statement, listing
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.syntax.statement import Block, Join

Family = Literal["theta", "aggregate", "window", "asof", "bestmatch", "approx", "nearest"]


@dataclass(frozen=True)
class Facts:
    """What Spark knows of the relations of a SELECT, by alias."""

    columns: Mapping[str, Sequence[str]]
    streams: frozenset[str] = frozenset()
    watermarked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timestamps: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinInput:
    """An input of a join: one relation, or several that Spark joins first."""

    alias: str
    members: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    """Spark SQL over the members."""
    prefix: Slice | None = None
    """The part of FROM that gives the members, where it holds more than the members."""
    keys: tuple[tuple[str, str], ...] = ()
    """Further columns, by name: expressions over the members that the join compares."""

    @property
    def nested(self) -> bool:
        """Whether every member is a column of its own."""
        return len(self.members) > 1


@dataclass(frozen=True)
class JoinCall:
    """A join that Dovetail runs: the call, and the part of FROM that its result replaces."""

    family: Family
    inputs: tuple[JoinInput, ...]
    options: Mapping[str, Any]
    slice: Slice
    why: str
    moved: frozenset[Slice] = frozenset()
    """Conditions of WHERE that the join evaluates."""
    coalesced: tuple[str, ...] = ()
    """Columns of USING of a full join: the value of either side."""

    @property
    def outputs(self) -> tuple[JoinInput, ...]:
        """The inputs whose rows come out."""
        if self.family == "aggregate":
            return self.inputs[:1]
        how = self.options.get("how", "inner")
        if isinstance(how, Mapping):
            return tuple(one for one in self.inputs if how.get(one.alias) not in ("present", "absent"))
        return self.inputs if JoinKind.of(how).pairs else self.inputs[:1]


class Conditions:
    """The conditions of a SELECT over the columns of its relations."""

    def __init__(self, text: str, columns: Mapping[str, Sequence[str]]) -> None:
        self.text = text
        self.columns = columns

    def readable(self, conditions: Iterable[Slice]) -> dict[Slice, Predicate]:
        """Those conditions that only concern rows of these relations: no constants, no subqueries, no outer columns."""
        found = {}
        for condition in conditions:
            try:
                predicate = parse(condition.of(self.text), self.columns)
            except (PredicateError, UnknownNameError):
                continue
            if all(map(aliases_of, predicate.parts)):
                found[condition] = predicate
        return found

    def joined(self, conditions: Iterable[Slice]) -> str:
        """Conditions in the user's words, connected by AND."""
        texts = [condition.of(self.text) for condition in conditions]
        return " AND ".join(f"({text})" if re.search(r"\bOR\b", text, re.IGNORECASE) else text for text in texts)

    def parsed(self, conditions: Iterable[Slice]) -> Predicate:
        """Conditions as one predicate."""
        text = self.joined(conditions)
        return parse(text, self.columns) if text else Predicate("TRUE")

    def operand(self, text: str) -> tuple[str | None, str]:
        """The relation that an expression is about (None for none or several), and its full spelling."""
        items = read(text, self.columns)
        aliases = {item.alias for item in items} - {None}
        return (next(iter(aliases)) if len(aliases) == 1 else None), Clauses(items).sql(Span(0, len(items)))

    def within(self, sql: str, inputs: Iterable[JoinInput]) -> str:
        """An expression over relations as one over the inputs that hold them."""
        owner = {member: one.alias for one in inputs if one.nested for member in one.members}
        items = [
            item._replace(sql=f"{quoted(owner[item.alias])}.{item.sql}") if item.alias in owner else item
            for item in read(sql, self.columns)
        ]
        return Clauses(items).sql(Span(0, len(items)))


def group_alias(members: Sequence[str], taken: Collection[str]) -> str:
    """A name for several relations that go into a join as one."""
    name = "_".join(members)
    used = {alias.casefold() for alias in taken}
    while name.casefold() in used:
        name += "_"
    return name


def plain_column(sql: str, alias: str, columns: Sequence[str]) -> str | None:
    """The column that an expression is, if it is one."""
    return next((column for column in columns if sql == f"{quoted(alias)}.{quoted(column)}"), None)


def alias_named(text: str, at: int, name: str, aliases: Collection[str], where: str) -> str:
    """The alias that a clause means, whatever the case of its letters."""
    for alias in aliases:
        if alias.casefold() == name.casefold():
            return alias
    raise in_statement(
        text, at, f"{where} names the input {name!r}, which FROM does not have",
        accepted=f"one of the aliases {listing(aliases)}", hint=closest(name, aliases),
    )  # fmt: skip


def refuse_relations_of_spark(text: str, block: Block, what: str) -> None:
    """Refuse relations and joins that only Spark can do, next to a clause of the dialect."""
    for join in block.joins:
        if join.kind == "spark":
            raise in_statement(
                text,
                join.slice.start,
                f"NATURAL, USING or PIVOT together with {what}",
                accepted="JOIN ... ON with all conditions",
            )
    for relation in block.relations:
        if not relation.separate:
            raise in_statement(
                text, relation.slice.start, f"a nested, lateral or pivoted relation together with {what}",
                accepted="tables, views and subqueries", hint="put it into a WITH clause and name that",
            )  # fmt: skip


def refuse_other_clauses(text: str, joins: Iterable[Join], what: str) -> None:
    """Refuse ASOF, BESTMATCH, AGGREGATE and NEAREST where another clause already says what the join is."""
    for join in joins:
        if join.kind in ("asof", "bestmatch", "aggregate", "nearest"):
            raise in_statement(
                text, join.slice.start, f"{join.kind.upper()} JOIN together with {what}", accepted="one of the two",
                hint="put one of them into a subquery",
            )  # fmt: skip


def refuse_doubles(block: Block, text: str, facts: Facts) -> None:
    """Refuse names that mean two relations or two columns, and ``*`` where it would mean columns of ours."""
    aliases = [relation.alias.casefold() for relation in block.relations]
    for relation in block.relations:
        names = [name.casefold() for name in facts.columns.get(relation.alias, ())]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None or aliases.count(relation.alias.casefold()) > 1:
            what = f"two relations are called {relation.alias}"
            raise in_statement(
                text, relation.slice.start, what if double is None else f"{relation.alias} has two columns {double}",
                accepted="names that differ, also in other letters than their case", hint="AS gives another name",
            )  # fmt: skip
    if block.stars_elsewhere:
        raise in_statement(
            text, block.slice.start, "* outside the select list", accepted="the columns by name",
            hint="put the join into a WITH clause and name that",
        )  # fmt: skip


def refuse_two_streams(text: str, at: int, inputs: tuple[JoinInput, ...], facts: Facts) -> None:
    """Two streams that only an inequality connects would be held forever."""
    streams = [one.alias for one in inputs if facts.streams.intersection(one.members)]
    if len(streams) > 1:
        error = in_statement(
            text, at, f"the streams {listing(streams)} are connected by inequalities only",
            accepted="a window, such as WINDOW = 10 SECONDS behind FROM",
        )  # fmt: skip
        raise UnboundedJoinError(error.given, accepted=error.accepted)


def broadcast(block: Block, inputs: tuple[JoinInput, ...]) -> dict[str, str]:
    """Spark's own hint, for a join of two."""
    named = [
        name.casefold() for hint in ("BROADCAST", "BROADCASTJOIN", "MAPJOIN") for name in block.hints.get(hint, ())
    ]
    found = [one.alias for one in inputs if one.alias.casefold() in named]
    return {"broadcast": found[0]} if len(inputs) == 2 and len(found) == 1 else {}

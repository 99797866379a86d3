"""Which joins of a SELECT Dovetail runs, and by which call.

A clause of the dialect decides by itself.  Dovetail runs a plain join where Spark would compare all pairs: where an
inequality or a band connects the two sides, but no equality.  Everything else stays with Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from dovetail.conditions.components import components
from dovetail.conditions.durations import duration
from dovetail.conditions.either import either_of
from dovetail.conditions.forms import Predicate, aliases_of
from dovetail.conditions.join_kind import How
from dovetail.conditions.roles import Role
from dovetail.errors import ArgumentError, in_statement, listing
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.statements.calls import (
    Conditions,
    Facts,
    JoinCall,
    JoinInput,
    broadcast,
    group_alias,
    refuse_other_clauses,
    refuse_relations_of_spark,
    refuse_two_streams,
)
from dovetail.statements.chain import chain_calls
from dovetail.statements.syntax.grammar import Shed, Slice
from dovetail.statements.syntax.statement import Block
from dovetail.statements.windows import asks_in_window, times_of, windows_of

_COMPARES = re.compile(r"[<>]|\bBETWEEN\b", re.IGNORECASE)


@dataclass(frozen=True)
class Decision:
    """The joins that Dovetail runs, in their order, or why there are none."""

    calls: tuple[JoinCall, ...]
    why: str


def left_to_spark(block: Block, text: str) -> str | None:
    """Why a SELECT stays with Spark, whatever its columns; None where the columns decide."""
    if block.recursive and has_clause(block):
        raise in_statement(
            text, block.slice.start, "a join of Dovetail inside WITH RECURSIVE", accepted="a WITH without RECURSIVE"
        )
    if has_clause(block):
        return None
    if not block.joins:
        return "no join"
    if block.recursive:
        return "part of a recursive definition"
    conditions = [*block.conjuncts, *_on_conditions(block)]
    if not any(_COMPARES.search(condition.of(text)) for condition in conditions):
        return "only equalities, which Spark does well"
    return None


def has_clause(block: Block) -> bool:
    """Whether a SELECT uses the dialect, so that Spark alone cannot run it."""
    return bool(block.extras) or any(
        join.kind in ("bestmatch", "aggregate", "nearest") or (join.kind == "asof" and not join.matched)
        for join in block.joins
    )


def decide(block: Block, text: str, facts: Facts, *, plain: bool = True) -> Decision:
    """Decide on a SELECT; unless `plain`, only on the joins that it asks for by a clause.

    Examples
    --------
    >>> from dovetail.statements.syntax.statement import read_statement
    >>> text = "SELECT * FROM R, S WHERE R.x < S.x AND R.y > 0"
    >>> facts = Facts({"R": ["x", "y"], "S": ["x"]})
    >>> (call,) = decide(read_statement(text).blocks[0], text, facts).calls
    >>> call.family, call.options["on"]
    ('theta', 'R.x < S.x AND R.y > 0')
    >>> text = "SELECT * FROM R JOIN S ON R.x = S.x AND R.y < S.y"
    >>> decide(read_statement(text).blocks[0], text, Facts({"R": ["x", "y"], "S": ["x", "y"]})).why
    'an equality connects all of R, S, which Spark does well'
    """
    if block.extras and not asks_in_window(block):
        if block.extras.shed is not None and not block.extras.windows:
            raise in_statement(
                text,
                block.extras.shed.offset,
                "SHED without a WINDOW clause",
                accepted="WINDOW = 1 HOUR SHED HARVEST",
            )
        call = _window_call(block, text, facts) if block.extras.windows else _approx_call(block, text, facts)
        return Decision((call,), call.why)
    if all(join.kind == "plain" and join.how == "inner" for join in block.joins):
        return _inner_joins(block, text, facts)
    calls = chain_calls(block, text, facts, plain=plain)
    return Decision(calls, calls[0].why if calls else "every join has an equality or only Spark can do it")


def _whole_condition(block: Block, text: str, facts: Facts, how: object) -> tuple[str | None, frozenset[Slice]]:
    """The condition of a join of all relations, and the conditions of WHERE that are part of it."""
    conditions = Conditions(text, facts.columns)
    moved = list(conditions.readable(block.conjuncts)) if how == "inner" else []
    return conditions.joined([*_on_conditions(block), *moved]) or None, frozenset(moved)


def _on_conditions(block: Block) -> list[Slice]:
    return [condition for join in block.joins for condition in join.on]


def _inputs(block: Block) -> tuple[JoinInput, ...]:
    return tuple(JoinInput(relation.alias, (relation.alias,)) for relation in block.relations)


# --- windows and memory --------------------------------------------------------------------------------------


def _window_call(block: Block, text: str, facts: Facts) -> JoinCall:
    extras = block.extras
    refuse_relations_of_spark(text, block, "a WINDOW clause")
    refuse_other_clauses(text, block.joins, "a WINDOW clause")
    if extras.memory is not None:
        raise in_statement(
            text, extras.memory.offset, "WITHIN MEMORY together with a WINDOW clause", accepted="one of the two",
            hint="a window bounds the memory of a join by itself",
        )  # fmt: skip
    aliases = [relation.alias for relation in block.relations]
    if len(aliases) < 2:
        raise in_statement(
            text, extras.windows[0].offset, "a window of one input", accepted="two or more inputs in FROM"
        )
    how: How | dict[str, Role] = block.joins[0].how if len(aliases) == 2 else "inner"
    if len(aliases) > 2 and {join.how for join in block.joins} != {"inner"}:
        how = _roles(block, text, facts)
    on, moved = _whole_condition(block, text, facts, how)
    options: dict[str, Any] = {
        "on": on,
        "time": times_of(block, text, facts),
        "within": windows_of(extras.windows, text, aliases),
        "how": how,
    }
    if extras.shed is not None:
        options["shed"] = _shedding(extras.shed, text)
    return JoinCall("window", _inputs(block), options, block.slice, "it has windows", moved)


_ROLES: dict[How, Role] = {"left": "optional", "semi": "present", "anti": "absent"}


def _roles(block: Block, text: str, facts: Facts) -> dict[str, Role]:
    """What LEFT, SEMI and ANTI JOIN make of further inputs, each of which is tied to inner joined ones alone.

    Otherwise the window join of all would not be the chain of joins that the statement is.
    """
    further = [join for join in block.joins if join.how != "inner"]
    for join in further:
        if join.how not in _ROLES:
            raise in_statement(
                text, join.slice.start, f"a {join.how} join among {len(block.relations)} inputs with windows",
                accepted="inner, left, semi and anti joins, or two inputs",
            )  # fmt: skip
    roles = {join.relation.alias: _ROLES[join.how] for join in further}
    conditions = Conditions(text, facts.columns)
    for join in block.joins:
        own = {join.relation.alias} & roles.keys()
        known = conditions.readable(join.on)
        for condition in join.on:
            parts = known[condition].parts if condition in known else []
            if not parts or any(own != aliases_of(part) & roles.keys() for part in parts):
                raise in_statement(
                    text, condition.start, f"a condition of this {join.how} join beside windows of several inputs",
                    accepted=f"conditions of {join.relation.alias} with inner joined relations",
                    hint="join what this relation depends on in a subquery first",
                )  # fmt: skip
    return roles


def _shedding(shed: Shed, text: str) -> Harvest | RandomDrop:
    """The SHED clause as the argument of a window join."""
    options: dict[str, Any] = dict(shed.options)
    try:
        if isinstance(options.get("target"), str):
            options["target"] = duration(options["target"], argument="TARGET") / 1e6
        if shed.harvest:
            return Harvest(**options)
        known = {field.name for field in fields(RandomDrop)}
        unknown = [name for name in options if name not in known]
        if unknown:
            raise ArgumentError(
                f"SHED RANDOM DROP with {listing(name.upper().replace('_', ' ') for name in unknown)}",
                accepted=listing(sorted(name.upper() for name in known)),
                hint="SHED HARVEST has the other options",
            )
        return RandomDrop(**options)
    except ArgumentError as error:
        raise in_statement(text, shed.offset, error.given, accepted=error.accepted or "", hint=error.hint) from error


def _approx_call(block: Block, text: str, facts: Facts) -> JoinCall:
    memory = block.extras.memory
    if memory is None:
        raise AssertionError("a SELECT with extras has windows or a memory limit")
    refuse_relations_of_spark(text, block, "WITHIN MEMORY")
    refuse_other_clauses(text, block.joins, "WITHIN MEMORY")
    for join in block.joins:
        if join.how != "inner":
            raise in_statement(text, join.slice.start, f"a {join.how} join within memory", accepted="inner joins")
    on, moved = _whole_condition(block, text, facts, "inner")
    if on is None:
        raise in_statement(text, memory.offset, "WITHIN MEMORY without a condition", accepted="JOIN ... ON R.k = S.k")
    options: dict[str, Any] = {"on": on, "memory": memory.amount}
    if memory.policy is not None:
        options["policy"] = memory.policy.lower()
    if memory.seed is not None:
        options["seed"] = memory.seed
    if memory.results is not None:
        options["results"] = memory.results
    return JoinCall("approx", _inputs(block), options, block.slice, "it has a memory limit", moved)


# --- inequalities ----------------------------------------------------------------------------------------------


def _inner_joins(block: Block, text: str, facts: Facts) -> Decision:
    """Inner joins: it does not matter whether a condition is in ON or in WHERE."""
    if any(not relation.separate for relation in block.relations):
        return Decision((), "a lateral or nested relation")
    conditions = Conditions(text, facts.columns)
    written = _on_conditions(block)
    if len(conditions.readable(written)) < len(written):
        return Decision((), "a condition that only Spark can evaluate")
    moved = list(conditions.readable(block.conjuncts))
    predicate = conditions.parsed([*written, *moved])
    aliases = [relation.alias for relation in block.relations]
    forced = "DOVETAIL" in block.hints
    groups = _connected(aliases, [] if forced else [aliases_of(part) for part in predicate.equalities])
    named = listing(aliases)
    if len(groups) == 1:
        return Decision((), f"an equality connects all of {named}, which Spark does well")
    apart = len(_connected(aliases, [*predicate.edges()])) > 1
    if apart and not either_of(predicate, {alias: facts.columns[alias] for alias in aliases}):
        return Decision((), f"no comparison connects all of {named}: a product, which Spark does as well")
    inputs, on = _grouped(conditions, predicate, groups, aliases)
    if all(not one.nested for one in inputs):
        on = conditions.joined([*written, *moved])
    refuse_two_streams(text, block.slice.start, inputs, facts)
    options: dict[str, Any] = {"on": on} | broadcast(block, inputs)
    why = "the hint asks for it" if forced else f"no equality connects {' with '.join(one.alias for one in inputs)}"
    return Decision((JoinCall("theta", inputs, options, block.slice, why, frozenset(moved)),), why)


def _connected(aliases: list[str], edges: list[frozenset[str]]) -> list[list[str]]:
    """Aliases in groups that edges connect, in the order of FROM."""
    return [sorted(group, key=aliases.index) for group in components([*([alias] for alias in aliases), *edges])]


def _grouped(
    conditions: Conditions, predicate: Predicate, groups: list[list[str]], aliases: list[str]
) -> tuple[tuple[JoinInput, ...], str]:
    """Groups as inputs, with the conditions that Spark evaluates within each, and the condition between them."""
    inputs, outside = [], predicate.parts
    for group in groups:
        if len(group) == 1:
            inputs.append(JoinInput(group[0], (group[0],)))
            continue
        own = [part for part in outside if aliases_of(part) and aliases_of(part) <= set(group)]
        outside = [part for part in outside if part not in own]
        alias = group_alias(group, aliases)
        inputs.append(JoinInput(alias, tuple(group), tuple(f"({part.sql})" for part in own)))
    return tuple(inputs), " AND ".join(f"({conditions.within(part.sql, inputs)})" for part in outside)

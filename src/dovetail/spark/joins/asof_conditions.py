"""What Spark knows of the further conditions of an as-of join: their types, and keys as columns that have codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import types as T
from sqlglot import TokenType

from dovetail.conditions.clauses import Clauses, Span
from dovetail.conditions.forms import Predicate, Rest, Term
from dovetail.conditions.tokens import read
from dovetail.errors import UnsupportedTypeError
from dovetail.plan.asof_columns import ComputedKey, Conditions
from dovetail.spark.conjuncts import equal_keys, typed_conjuncts
from dovetail.spark.frames import Side, is_ansi
from dovetail.spark.types import check_deterministic, check_rest, compared_type, expression_types


def conditions_of(frames: Mapping[str, DataFrame], predicate: Predicate) -> Conditions:
    """Further conditions with the types of what they compare; refuses what Spark cannot evaluate."""
    left, right = frames
    columns = {alias: frame.columns for alias, frame in frames.items()}
    unequal, rests = _sorted_out(predicate.rests, columns)
    pairs = [*((e.left, e.right) for e in predicate.equalities), *((p.left, p.right) for p in predicate.inequalities)]
    pairs += [*((band.left, band.right) for band in predicate.bands), *unequal]
    types: dict[Term, T.DataType] = {}
    for alias, frame in frames.items():
        types |= expression_types(alias, frame, [term for pair in pairs for term in pair if term.alias == alias])
    for part in predicate.filters:
        check_rest(Side.of(part.alias, frames[part.alias]).frame, part.sql)
    both = reduce(
        lambda a, b: a.crossJoin(b), [Side.of(alias, frame).frame.limit(0) for alias, frame in frames.items()]
    )
    for rest in rests:
        check_rest(both, rest.sql)
    texts = [term.sql for pair in pairs for term in pair]
    texts += [*(part.sql for part in predicate.filters), *(rest.sql for rest in rests)]
    check_deterministic(frames, texts, f"on={predicate.text!r}")
    session = next(iter(frames.values())).sparkSession
    zone, ansi = session.conf.get("spark.sql.session.timeZone") or "UTC", is_ansi(frames)
    conjuncts = typed_conjuncts(replace(predicate, equalities=(), rests=()), types, zone=zone, ansi=ansi)
    for rest in conjuncts.rests:
        check_rest(both, rest.sql)
    keys: list[ComputedKey] = []
    for equality in predicate.equalities:
        one, other = equality.left, equality.right
        if one.alias != left:
            one, other = other, one
        keys += computed_keys(one, other, types[one], types[other], null_safe=equality.null_safe, ansi=ansi)
    differing, judged = [], [rest.sql for rest in (*rests, *conjuncts.rests)]
    for one, other in unequal:
        try:
            kind = compared_type(types[one], types[other], f"{one.sql} <> {other.sql}", ansi=ansi)
            differing.append((one, other, kind))
        except UnsupportedTypeError:
            judged.append(f"{one.sql} <> {other.sql}")
    return Conditions(
        text=predicate.text,
        keys=tuple(keys),
        comparisons=tuple(conjuncts.comparisons),
        unequal=tuple(differing),
        filters=(
            tuple(part.sql for part in predicate.filters if part.alias == left),
            tuple(part.sql for part in predicate.filters if part.alias == right),
        ),
        rests=tuple(judged),
    )


Pairs = list[tuple[Term, Term]]


def _sorted_out(rests: Sequence[Rest], columns: Mapping[str, Sequence[str]]) -> tuple[Pairs, list[Rest]]:
    """``<>`` between the inputs, and what is left."""
    unequal: Pairs = []
    others = []
    for rest in rests:
        clauses = Clauses(items := read(rest.sql, columns))
        span = clauses.bare(Span(0, len(items)))
        found = clauses.comparisons(span)
        sides: tuple[Span, Span] | None = None
        if [kind for _, kind in found] == [TokenType.NEQ]:
            sides = Span(span.start, found[0][0]), Span(found[0][0] + 1, span.stop)
        if sides is None or any(len(clauses.aliases(side)) != 1 for side in sides):
            others.append(rest)
            continue
        one, other = (Term(next(iter(clauses.aliases(side))), clauses.sql(clauses.bare(side))) for side in sides)
        if one.alias == other.alias:
            others.append(rest)
        else:
            unequal.append((one, other))
    return unequal, others


def computed_keys(
    left: Term, right: Term, left_type: T.DataType, right_type: T.DataType, *, null_safe: bool, ansi: bool
) -> list[ComputedKey]:
    """An equality as keys that have codes, or why it has none."""
    keys = equal_keys(left, right, left_type, right_type, null_safe=null_safe, ansi=ansi)
    if keys is None:
        raise UnsupportedTypeError(
            f"{left.sql} {'<=>' if null_safe else '='} {right.sql} compares {left_type.simpleString()} "
            f"with {right_type.simpleString()}",
            accepted="values that compare, two structs with as many fields of these, or two arrays of one type",
            hint="cast one side, such as CAST(A.x AS ARRAY<INT>)",
        )
    return [ComputedKey(one.sql, other.sql, kind) for one, other, kind in keys]

"""What Spark knows of the further conditions of an as-of join: their types, and keys as columns that have codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import types as T
from sqlglot import TokenType

from dovetail.conditions.clauses import Clauses, Span
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.forms import Predicate, Rest, Term
from dovetail.conditions.names import quoted
from dovetail.conditions.tokens import read
from dovetail.errors import UnsupportedTypeError
from dovetail.plan.asof_columns import ComputedKey, Conditions
from dovetail.spark.conjuncts import typed_conjuncts
from dovetail.spark.frames import Side, is_ansi
from dovetail.spark.types import check_deterministic, check_rest, compared_type, expression_types

_NEUTRAL = {
    "STRING": "''", "BINARY": "X''", "BOOLEAN": "FALSE", "DATE": "DATE'1970-01-01'", "TIMESTAMP": "timestamp_micros(0)",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'1970-01-01 00:00:00'", "INTERVAL DAY TO SECOND": "INTERVAL '0' SECOND",
}  # fmt: skip
"""A value of each type that is no number, the same in every session; it stands for NULL."""


def conditions_of(frames: Mapping[str, DataFrame], predicate: Predicate) -> Conditions:
    """Further conditions with the types of what they compare; refuses what Spark cannot evaluate."""
    left, right = frames
    columns = {alias: frame.columns for alias, frame in frames.items()}
    null_safe = [(e.left, e.right) for e in predicate.equalities if e.null_safe]
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
    plain = [(e.left, e.right) for e in predicate.equalities if not e.null_safe]
    for safe, compared in ((False, plain), (True, null_safe)):
        for pair in compared:
            one, other = pair if pair[0].alias == left else pair[::-1]
            what = f"{one.sql} {'<=>' if safe else '='} {other.sql}"
            keys += expanded((one.sql, other.sql), (types[one], types[other]), what, null_safe=safe, ansi=ansi)
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


def expanded(
    sql: tuple[str, str], types: tuple[T.DataType, T.DataType], what: str, *, null_safe: bool, ansi: bool
) -> Iterator[ComputedKey]:
    """An equality as keys that have codes: of structs one for each field, of arrays their text.

    A key that is NULL matches nothing.  Where NULL is a value, as in fields of structs, there are two keys: whether the
    value is NULL, and the value, with some other in place of NULL.
    """
    left, right = types
    nested = [kind for kind in types if isinstance(kind, T.StructType | T.ArrayType)]
    if not nested:
        kind = compared_type(left, right, what, ansi=ansi)
        if not null_safe:
            yield ComputedKey(*sql, kind)
            return
        neutral = _NEUTRAL.get(kind.ddl, f"CAST(0 AS {kind.ddl})")
        yield _both(sql, "({}) IS NULL", _BOOLEAN)
        yield _both(sql, f"coalesce(CAST(({{}}) AS {kind.ddl}), {neutral})", kind)
        return
    yield _both(sql, "({}) IS NULL" if null_safe else "CASE WHEN ({}) IS NOT NULL THEN TRUE END", _BOOLEAN)
    if isinstance(left, T.StructType) and isinstance(right, T.StructType) and len(left) == len(right):
        for a, b in zip(left.fields, right.fields, strict=True):
            fields = f"({sql[0]}).{quoted(a.name)}", f"({sql[1]}).{quoted(b.name)}"
            yield from expanded(fields, (a.dataType, b.dataType), what, null_safe=True, ansi=ansi)
        return
    same = left.simpleString() == right.simpleString()
    if isinstance(left, T.ArrayType) and same and _has_text(left):
        one, other = (f"coalesce(to_json({_plain(text, left)}), '')" for text in sql)
        yield ComputedKey(one, other, KeyType("STRING", "rank"))
        return
    raise UnsupportedTypeError(
        f"{what} compares {left.simpleString()} with {right.simpleString()}",
        accepted="two structs with as many fields, or two arrays of one type, of values that compare",
        hint="cast one side, such as CAST(A.x AS ARRAY<INT>)",
    )


_BOOLEAN = KeyType("BOOLEAN", "int")


def _both(sql: tuple[str, str], form: str, kind: KeyType) -> ComputedKey:
    """A key of one form over the expressions of both sides."""
    return ComputedKey(form.replace("{}", sql[0]), form.replace("{}", sql[1]), kind)


def _plain(sql: str, kind: T.DataType, depth: int = 0) -> str:
    """A value as one whose JSON text is the same exactly where the values are equal."""
    if isinstance(kind, T.ArrayType):
        name = f"x{depth}"
        return f"transform({sql}, {name} -> {_plain(name, kind.elementType, depth + 1)})"
    if isinstance(kind, T.StructType):
        # A field that is NULL would be left out of the text, and a struct that is NULL is not one of NULLs.
        fields = [_plain(f"({sql}).{quoted(field.name)}", field.dataType, depth) for field in kind.fields]
        texts = [f"coalesce(to_json(array({field})), '')" for field in fields]
        return f"CASE WHEN ({sql}) IS NOT NULL THEN array({', '.join(texts)}) END"
    if isinstance(kind, T.FloatType | T.DoubleType):
        return f"(({sql}) + CAST(0 AS {kind.simpleString()}))"  # -0.0 becomes 0.0
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({sql})"  # texts of timestamps leave out microseconds
    if isinstance(kind, T.TimestampNTZType | T.DayTimeIntervalType | T.BinaryType | T.DateType):
        return f"hex(CAST(({sql}) AS STRING))" if not isinstance(kind, T.BinaryType) else f"hex({sql})"
    return sql


def _has_text(kind: T.DataType) -> bool:
    """Whether the texts of values are equal exactly where the values are."""
    if isinstance(kind, T.ArrayType):
        return _has_text(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(_has_text(field.dataType) for field in kind.fields)
    plain_text = isinstance(kind, T.StringType) and kind.simpleString() == "string"
    numbers = T.IntegralType | T.FractionalType
    times = T.DateType | T.TimestampType | T.TimestampNTZType | T.DayTimeIntervalType
    return plain_text or isinstance(kind, numbers | times | T.BooleanType | T.BinaryType)

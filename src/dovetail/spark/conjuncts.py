"""Conjuncts with the types that Spark gives them: what a kernel compares, and what only Spark can evaluate.

A kernel compares numbers, times, texts and the like.  Where types are others, or a comparison is none of one value with
another, Spark evaluates the conjunct on the pairs that are found, and whatever it implies narrows the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation

from pyspark.sql import types as T

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.forms import Addend, Band, Bound, Equality, Inequality, Predicate, Rest, Separable, Term
from dovetail.conditions.literals import literal_sql
from dovetail.conditions.names import quoted
from dovetail.conditions.ranges import TermKind, separated
from dovetail.errors import UnsupportedTypeError
from dovetail.spark.types import clocks_change, comparison_type, term_kind

EqualKey = tuple[Term, Term, KeyType]
"""Two expressions that must be equal, and the type in which they are compared."""


@dataclass
class Conjuncts:
    """The conjuncts of a condition: equalities and comparisons that the kernels know, and what is left to Spark."""

    equalities: list[tuple[Equality, KeyType]] = field(default_factory=list)
    comparisons: list[tuple[Inequality | Band, KeyType]] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)


def typed_conjuncts(
    predicate: Predicate, types: Mapping[Term, T.DataType], *, zone: str = "UTC", ansi: bool = True
) -> Conjuncts:
    """Each conjunct with the type in which its two sides are compared, or among those that Spark evaluates."""
    found = Conjuncts(rests=list(predicate.rests))
    for equality in predicate.equalities:
        _add_equality(found, equality, types[equality.left], types[equality.right], ansi=ansi)
    for inequality in predicate.inequalities:
        left, right = inequality.left, inequality.right
        keys = _keys(left, right, types[left], types[right], ansi=ansi)
        if keys is None:
            found.rests.append(Rest(inequality.sql, frozenset((left.alias, right.alias))))
        else:
            found.comparisons.append((replace(inequality, left=keys[0], right=keys[1]), keys[2]))
    for band in predicate.bands:
        _add_band(found, band, types, zone=zone, ansi=ansi)
    kinds = {term: term_kind(kind) for term, kind in types.items()}
    kinds |= {bound: _number_kind(bound) for band in predicate.bands for bound in _ends(band) if bound not in kinds}
    for one in dict.fromkeys(one for rest in found.rests for one in rest.implied):
        if isinstance(one, Band):
            _add_implied_band(found, one, types, ansi=ansi)
            continue
        comparison = separated(one, kinds, zoned=clocks_change(zone))
        if comparison is not None:
            found.comparisons.append(comparison)
    return found


def _keys(
    left: Term, right: Term, left_type: T.DataType, right_type: T.DataType, *, ansi: bool
) -> tuple[Term, Term, KeyType] | None:
    """Two values in a form that compares as Spark compares them, and its type; None where there is no such form."""
    kind = comparison_type(left_type, right_type, ansi=ansi)
    form = "{}"
    if kind is None:
        if isinstance(left_type, T.YearMonthIntervalType) and isinstance(right_type, T.YearMonthIntervalType):
            form, kind = "CAST(CAST(({}) AS INTERVAL MONTH) AS INT)", KeyType("BIGINT", "int")
        elif left_type.typeName() == right_type.typeName() == "time":
            # The hours, minutes and seconds of a time have two digits each, so times sort as their texts do.
            form, kind = "CAST(({}) AS STRING)", KeyType("STRING", "rank")
        else:
            return None
    return Term(left.alias, form.format(left.sql)), Term(right.alias, form.format(right.sql)), kind


# --- equalities ------------------------------------------------------------------------------------------------


def _add_equality(
    found: Conjuncts, equality: Equality, left_type: T.DataType, right_type: T.DataType, *, ansi: bool
) -> None:
    left, right = equality.left, equality.right
    keys = equal_keys(left, right, left_type, right_type, null_safe=equality.null_safe, ansi=ansi)
    if keys is None:
        found.rests.append(Rest(equality.sql, frozenset((left.alias, right.alias))))
    else:
        found.equalities += [(Equality(one, other), kind) for one, other, kind in keys]


def equal_keys(
    left: Term, right: Term, left_type: T.DataType, right_type: T.DataType, *, null_safe: bool = False, ansi: bool
) -> list[EqualKey] | None:
    """An equality as keys that kernels know, to which NULL is never equal; None where there are no such keys.

    A struct is equal where each of its fields is, NULL to NULL as well, and an array where its text is.  Where NULL
    is a value, there are two keys: whether it is NULL, and the value, with some other in the place of NULL.
    """
    keys = _keys(left, right, left_type, right_type, ansi=ansi)
    if keys is not None:
        if not null_safe:
            return [keys]
        one, other, kind = keys
        zero = _ZEROS.get(kind.ddl, f"CAST(0 AS {kind.ddl})")
        present = f"COALESCE(CAST(({{}}) AS {kind.ddl}), {zero})"
        return [_both(one, other, "({}) IS NULL", _BOOLEAN), _both(one, other, present, kind)]
    present = "({}) IS NULL" if null_safe else "CASE WHEN ({}) IS NOT NULL THEN TRUE END"
    found = [_both(left, right, present, _BOOLEAN)]
    if isinstance(left_type, T.StructType) and isinstance(right_type, T.StructType):
        names = [{field.name.casefold() for field in kind.fields} for kind in (left_type, right_type)]
        if any(len(some) != len(left_type.fields) for some in names):
            # Other structs do not compare, or have fields that no name tells apart.
            return None
        for a, b in zip(left_type.fields, right_type.fields, strict=True):
            one = Term(left.alias, f"({left.sql}).{quoted(a.name)}")
            other = Term(right.alias, f"({right.sql}).{quoted(b.name)}")
            of_field = equal_keys(one, other, a.dataType, b.dataType, null_safe=True, ansi=ansi)
            if of_field is None:
                return None
            found += of_field
        return found
    same = left_type.simpleString() == right_type.simpleString()
    if not isinstance(left_type, T.ArrayType) or not same or not _has_text(left_type):
        return None
    texts = [f"COALESCE(to_json({_plain(term.sql, left_type)}), '')" for term in (left, right)]
    return [*found, (Term(left.alias, texts[0]), Term(right.alias, texts[1]), KeyType("STRING", "rank"))]


def _both(left: Term, right: Term, form: str, kind: KeyType) -> EqualKey:
    """A key of one form over the expressions of both sides."""
    return (
        Term(left.alias, form.replace("{}", left.sql)),
        Term(right.alias, form.replace("{}", right.sql)),
        kind,
    )


_BOOLEAN = KeyType("BOOLEAN", "int")
_ZEROS = {
    "STRING": "''", "BINARY": "X''", "BOOLEAN": "FALSE", "DATE": "DATE'1970-01-01'",
    "TIMESTAMP": "timestamp_micros(0)", "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'1970-01-01 00:00:00'",
    "INTERVAL DAY TO SECOND": "INTERVAL '0' SECOND",
}  # fmt: skip
"""A value of each type that is no number, the same in every session."""


def _plain(sql: str, kind: T.DataType, depth: int = 0) -> str:
    """A value as one whose JSON text is the same exactly where the values are equal."""
    if isinstance(kind, T.ArrayType):
        name = f"x{depth}"
        return f"transform({sql}, {name} -> {_plain(name, kind.elementType, depth + 1)})"
    if isinstance(kind, T.StructType):
        # A field that is NULL would be left out of the text, and a struct that is NULL is not one of NULLs.
        fields = [_plain(f"({sql}).{quoted(field.name)}", field.dataType, depth) for field in kind.fields]
        texts = [f"COALESCE(to_json(array({field})), '')" for field in fields]
        return f"CASE WHEN ({sql}) IS NOT NULL THEN array({', '.join(texts)}) END"
    if isinstance(kind, T.FloatType | T.DoubleType):
        return f"(({sql}) + CAST(0 AS {kind.simpleString()}))"  # -0.0 becomes 0.0
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({sql})"  # texts of timestamps leave out microseconds
    if isinstance(kind, T.BinaryType | T.StringType):
        return f"hex({sql})"  # bytes that are no UTF-8 would all have one text
    if isinstance(kind, T.TimestampNTZType | T.DayTimeIntervalType | T.DateType):
        return f"CAST(({sql}) AS STRING)"
    return sql


def _has_text(kind: T.DataType) -> bool:
    """Whether the texts of values are equal exactly where the values are."""
    if isinstance(kind, T.ArrayType):
        return _has_text(kind.elementType)
    if isinstance(kind, T.StructType):
        names = {field.name.casefold() for field in kind.fields}
        return len(names) == len(kind.fields) and all(_has_text(field.dataType) for field in kind.fields)
    plain_text = isinstance(kind, T.StringType) and kind.simpleString() == "string"
    numbers = T.IntegralType | T.FractionalType
    times = T.DateType | T.TimestampType | T.TimestampNTZType | T.DayTimeIntervalType
    return plain_text or isinstance(kind, numbers | times | T.BooleanType | T.BinaryType)


# --- bands -----------------------------------------------------------------------------------------------------


def _add_band(found: Conjuncts, band: Band, types: Mapping[Term, T.DataType], *, zone: str, ansi: bool) -> None:
    left, right = types[band.left], types[band.right]
    kind = comparison_type(left, right, ansi=ansi)
    if kind is not None and kind.ddl == "TIMESTAMP" and clocks_change(zone):
        # Spark subtracts timestamps as local times.  In a zone whose clocks never change, instants give the same.
        kind = KeyType("TIMESTAMP_NTZ", "int", micros=1)
        band = Band(midnight(band.left, left), midnight(band.right, right), band.low, band.high)
    text = isinstance(left, T.StringType) or isinstance(right, T.StringType)
    if kind is None or text or kind.kind == "rank" or kind.ddl == "BOOLEAN":
        found.rests.append(Rest(band.sql, frozenset((band.left.alias, band.right.alias)), tuple(_as_ranges(band))))
        return
    _check_band(band, kind)
    found.comparisons.append((band, kind))


def _add_implied_band(found: Conjuncts, band: Band, types: Mapping[Term, T.DataType], *, ansi: bool) -> None:
    """A band that narrows the search, where its terms are numbers of at most 64 bits."""
    left, right = types[band.left], types[band.right]
    kind = comparison_type(left, right, ansi=ansi)
    numbers = all(isinstance(one, T.NumericType) for one in (left, right))
    if kind is None or kind.kind == "rank" or not numbers:
        return
    if any(isinstance(one, T.DecimalType) for one in (left, right)):
        # Spark rounds squares of decimals to six digits behind the point where they would have too many.
        band = replace(band, low=_moved(band.low, -0.01), high=_moved(band.high, 0.01))
    found.comparisons.append((band, kind))


def _moved(end: Bound | None, step: float) -> Bound | None:
    return end if end is None or isinstance(end.value, timedelta) else Bound(float(end.value) + step, end.strict)


def _as_ranges(band: Band) -> list[Separable]:
    """The ends of a band as sums."""
    difference = Addend(band.left), Addend(band.right, negative=True)
    ends = dict(zip([end for end in (band.low, band.high) if end is not None], _ends(band), strict=True))
    ranges = []
    if band.low is not None:
        ranges.append(Separable((Addend(ends[band.low]),), difference, band.low.strict))
    if band.high is not None:
        ranges.append(Separable(difference, (Addend(ends[band.high]),), band.high.strict))
    return ranges


def _ends(band: Band) -> list[Term]:
    """The ends of a band as terms, which belong to its right side."""
    return [Term(band.right.alias, literal_sql(end.value)) for end in (band.low, band.high) if end is not None]


def _number_kind(bound: Term) -> TermKind | None:
    """What a literal is in sums, if it is a number."""
    try:
        value = Decimal(bound.sql).as_tuple()
    except InvalidOperation:
        return None
    behind = max(0, -value.exponent) if isinstance(value.exponent, int) else 0
    return TermKind("number", (max(1, len(value.digits) - behind), behind))


def midnight(term: Term, kind: T.DataType) -> Term:
    """A date as the timestamp that Spark makes of it: where clocks skip midnight, a later one.

    A timestamp without a zone stays as it is: where Spark subtracts one from a timestamp, or a timestamp from one, it
    makes the other a local time, too.
    """
    return Term(term.alias, f"CAST(({term.sql}) AS TIMESTAMP)") if isinstance(kind, T.DateType) else term


def _check_band(band: Band, kind: KeyType) -> None:
    what = f"{band.left.sql} - {band.right.sql}"
    for bound in (band.high, band.low):
        if bound is None:
            continue
        is_time = hasattr(bound.value, "total_seconds")
        if is_time and kind.micros is None:
            raise UnsupportedTypeError(
                f"{what} is a number, but its bound is a length of time", accepted="a number as the bound"
            )
        if not is_time and kind.micros is not None:
            raise UnsupportedTypeError(
                f"{what} is a length of time, but its bound is the number {bound.value}",
                accepted="an interval as the bound, such as INTERVAL 10 MINUTES",
            )

"""Types as Spark sees them: what an expression has, and in which type Spark compares two of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.forms import Term
from dovetail.conditions.names import quoted
from dovetail.conditions.ranges import TermKind
from dovetail.conditions.tokens import may_be_random
from dovetail.errors import PredicateError, UnsupportedTypeError
from dovetail.spark.frames import Side

_DAY = 86_400_000_000
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FIXED = re.compile(r"(Z|UTC|GMT|UT|Etc/.*)?([+-]\d{1,2}(:?\d{2}){0,2})?", re.IGNORECASE)


def expression_types(alias: str, frame: DataFrame, terms: Sequence[Term]) -> dict[Term, T.DataType]:
    """The types of terms over one input; raises PredicateError for the first that Spark cannot evaluate."""
    columns = {f"{quoted(alias)}.{quoted(field.name)}": field.dataType for field in frame.schema.fields}
    types = {term: columns[term.sql] for term in terms if term.sql in columns}
    # Spark takes some milliseconds to analyse a projection, so plain columns do without.
    unknown = [term for term in terms if term not in types]
    if not unknown:
        return types
    try:
        kinds = Side.of(alias, frame).frame.selectExpr(*[term.sql for term in unknown]).schema.fields
        return types | {term: kind.dataType for term, kind in zip(unknown, kinds, strict=True)}
    except AnalysisException as error:
        if len(unknown) > 1:
            for term in unknown:
                expression_types(alias, frame, [term])
        term = unknown[0]
        raise PredicateError(
            f"Spark cannot evaluate {term.sql} over the input {term.alias!r}",
            accepted="an expression of Spark SQL over the columns of one input",
            hint=_first_line(error),
        ) from error


def check_rest(frame: DataFrame, sql: str, whole: str | None = None) -> None:
    """Refuse a further condition that Spark cannot evaluate, or that is not a condition; `whole` is what was given."""
    try:
        kind = frame.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as error:
        raise PredicateError(
            f"Spark cannot evaluate the condition {sql}"
            + ("" if whole is None or sql in whole else f", which is on={whole!r} or a part of it"),
            accepted="a condition of Spark SQL over the inputs",
            hint=_first_line(error),
        ) from error
    if not isinstance(kind, T.BooleanType | T.NullType):
        raise PredicateError(
            f"{sql} is a value of type {kind.simpleString()}, not a condition",
            accepted="conjuncts that are true or false",
        )


def check_deterministic(frames: Mapping[str, DataFrame], texts: Sequence[str], what: str) -> None:
    """Refuse expressions that may have another value each time, such as calls of a non-deterministic UDF.

    Spark evaluates a key once for the sample and once for the join, and a condition that is left to it on candidates
    alone.  Whether a function is deterministic only Spark knows, and it says so where a join has it in its condition.
    Spark takes some milliseconds to analyse a join, so expressions without such a function do without.
    """
    asked = [sql for sql in texts if may_be_random(sql)]
    if not asked:
        return
    sides = [Side.of(alias, frame).frame.limit(0) for alias, frame in frames.items()]
    condition = " AND ".join(f"({sql}) IS NOT NULL" for sql in asked)
    joined = reduce(lambda a, b: a.crossJoin(b), sides[:-1])
    try:
        # Spark Connect analyses a frame once somebody asks for its schema.
        _ = joined.join(sides[-1], F.expr(condition)).schema
    except AnalysisException as error:
        if "NON_DETERMINISTIC" not in (error.getCondition() or ""):
            raise
        raise PredicateError(
            f"{what} calls a function that is not deterministic",
            accepted="functions that give the same value for the same row each time",
            hint="compute the value in a column of its input, and write the input to a table or cache it",
        ) from error


def _first_line(error: AnalysisException) -> str:
    """The first line of Spark's message that has text; a syntax error begins with an empty one."""
    return next((line for line in str(error).splitlines() if line.strip()), "")


def comparison_type(left: T.DataType, right: T.DataType, *, ansi: bool = True) -> KeyType | None:
    """The type in which Spark compares two values, with what the kernels need to know about it; None for others."""
    text, other = (left, right) if isinstance(left, T.StringType) else (right, left)
    if isinstance(text, T.StringType) and not isinstance(other, T.StringType | T.NullType) and _is_plain(text):
        return _with_text(other, ansi=ansi)
    return _common(left, right, ansi=ansi)


def _with_text(other: T.DataType, *, ansi: bool) -> KeyType | None:
    """The type in which Spark compares a text with a value of another type."""
    if isinstance(other, T.FloatType):
        return KeyType("DOUBLE", "float64") if ansi else KeyType("FLOAT", "float32")
    if isinstance(other, T.DecimalType | T.DoubleType):
        return KeyType("DOUBLE", "float64")
    if isinstance(other, _INTEGERS):
        # Without ANSI mode a text that is no such number is NULL, and so matches nothing.
        return KeyType("BIGINT" if ansi else other.simpleString().upper(), "int")
    same = isinstance(other, T.DateType | T.TimestampType | T.TimestampNTZType | T.BooleanType)
    return _common(other, other, ansi=ansi) if same else None


def compared_type(left: T.DataType, right: T.DataType, what: str, *, ansi: bool = True) -> KeyType:
    """The type in which Spark compares two values, with what the kernels need to know about it."""
    common = _common(left, right, ansi=ansi)
    if common is None:
        raise UnsupportedTypeError(
            f"{what} compares {left.simpleString()} with {right.simpleString()}",
            accepted="two numbers, two dates or timestamps, two strings, two booleans or two binary values",
            hint="cast one side in the condition, such as CAST(A.x AS DOUBLE)",
        )
    return common


def _common(left: T.DataType, right: T.DataType, *, ansi: bool) -> KeyType | None:
    if isinstance(left, T.NullType):
        left = right
    if isinstance(right, T.NullType):
        right = left
    if isinstance(left, T.FractionalType | T.IntegralType) and isinstance(right, T.FractionalType | T.IntegralType):
        return _numeric(left, right, ansi=ansi)
    times = (T.DateType, T.TimestampType, T.TimestampNTZType)
    if isinstance(left, times) and isinstance(right, times):
        if isinstance(left, T.DateType) and isinstance(right, T.DateType):
            return KeyType("DATE", "int", micros=_DAY)
        # Spark widens dates and zoneless timestamps to TIMESTAMP where the other side is one.
        if isinstance(left, T.TimestampType) or isinstance(right, T.TimestampType):
            return KeyType("TIMESTAMP", "int", micros=1)
        return KeyType("TIMESTAMP_NTZ", "int", micros=1)
    if isinstance(left, T.StringType) and isinstance(right, T.StringType):
        return KeyType("STRING", "rank") if _is_plain(left) and _is_plain(right) else None
    if isinstance(left, T.BinaryType) and isinstance(right, T.BinaryType):
        return KeyType("BINARY", "rank")
    if isinstance(left, T.BooleanType) and isinstance(right, T.BooleanType):
        return KeyType("BOOLEAN", "int")
    if isinstance(left, T.DayTimeIntervalType) and isinstance(right, T.DayTimeIntervalType):
        return KeyType("INTERVAL DAY TO SECOND", "int", micros=1)
    return None


def _is_plain(kind: T.DataType) -> bool:
    """Whether texts of a type are compared by their bytes."""
    return kind.simpleString() == "string" or kind.simpleString().startswith(("char", "varchar"))


def _numeric(left: T.DataType, right: T.DataType, *, ansi: bool) -> KeyType | None:
    if isinstance(left, T.DecimalType) or isinstance(right, T.DecimalType):
        if isinstance(left, T.DoubleType | T.FloatType) or isinstance(right, T.DoubleType | T.FloatType):
            return KeyType("DOUBLE", "float64")
        a, b = _as_decimal(left), _as_decimal(right)
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale
        if precision > 38:
            return None
        if precision > 18:
            return KeyType(f"DECIMAL({precision},{scale})", "rank", unit=10**scale)
        return KeyType(f"DECIMAL({precision},{scale})", "int", unit=10**scale)
    if isinstance(left, _INTEGERS) and isinstance(right, _INTEGERS):
        return KeyType("BIGINT", "int")
    if isinstance(left, T.DoubleType) or isinstance(right, T.DoubleType):
        return KeyType("DOUBLE", "float64")
    both_float = isinstance(left, T.FloatType) and isinstance(right, T.FloatType)
    # A float and an integer: under ANSI Spark compares them as doubles, without it as floats, where 16777217 equals
    # 16777216.
    return KeyType("DOUBLE", "float64") if ansi and not both_float else KeyType("FLOAT", "float32")


def _as_decimal(kind: T.DataType) -> T.DecimalType:
    if isinstance(kind, T.DecimalType):
        return kind
    digits: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
    return T.DecimalType(digits[type(kind)], 0)


def clocks_change(zone: str) -> bool:
    """Whether the clocks of a time zone may change, as for daylight saving time: all zones but fixed offsets.

    Examples
    --------
    >>> [clocks_change(zone) for zone in ("UTC", "+05:30", "GMT-3", "Etc/GMT+1", "Europe/Oslo", "CET")]
    [False, False, False, False, True, True]
    """
    return _FIXED.fullmatch(zone) is None


def term_kind(kind: T.DataType) -> TermKind | None:
    """What terms of a type are in sums; None for those that cannot be added."""
    if isinstance(kind, T.DecimalType):
        return TermKind("number", (kind.precision - kind.scale, kind.scale))
    if isinstance(kind, _INTEGERS):
        return TermKind("number", (_as_decimal(kind).precision, 0))
    words: dict[type[T.DataType], TermKind] = {
        T.DoubleType: TermKind("number"), T.FloatType: TermKind("float"), T.TimestampType: TermKind("time"),
        T.TimestampNTZType: TermKind("local"), T.DateType: TermKind("date"),
        T.DayTimeIntervalType: TermKind("interval"),
    }  # fmt: skip
    return words.get(type(kind))

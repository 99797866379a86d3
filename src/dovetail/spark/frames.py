"""Inputs of a join as Spark sees them: checks, types, and the flat frames that the stages read.

Everything here is analysis.  It asks Spark for schemas, never for rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.columns.structs import Nested, nullable
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.forms import Band, Equality, Inequality, Predicate, Term
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, PredicateError, UnsupportedTypeError, listing

_DAY = 86_400_000_000
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


@dataclass(frozen=True)
class Side:
    """A frame with one struct column per alias, and the fields of each."""

    frame: DataFrame
    fields: dict[str, T.StructType]

    @classmethod
    def of(cls, alias: str, frame: DataFrame) -> Side:
        """The side that a user's frame makes under `alias`."""
        columns = ", ".join(map(quoted, frame.columns))
        return cls(frame.selectExpr(f"struct({columns}) AS {quoted(alias)}"), {alias: frame.schema})

    @property
    def payload(self) -> list[tuple[str, T.StructField]]:
        """All fields of all aliases, in order."""
        return [(alias, field) for alias, struct in self.fields.items() for field in struct.fields]

    def payload_columns(self, prefix: str = "c") -> list[Column]:
        """The payload as flat columns c0, c1 ..."""
        return [
            F.expr(f"{quoted(alias)}.{quoted(field.name)} AS {prefix}{at}")
            for at, (alias, field) in enumerate(self.payload)
        ]

    def arrow_types(self) -> tuple[pa.DataType, ...]:
        """The payload's Arrow types, as Spark sends and expects them."""
        return tuple(to_arrow_type(field.dataType, timezone="UTC") for _, field in self.payload)

    def width(self) -> int:
        """About how many bytes a row takes; texts and nested values are guessed, since only rows could tell."""
        kinds = self.arrow_types()
        return sum(kind.bit_width // 8 if pa.types.is_primitive(kind) else 64 for kind in kinds)

    def structs(self, prefix: str, *, present: Column | None = None) -> list[Column]:
        """The inverse of :meth:`payload_columns`: one struct column per alias, NULL where not `present`."""
        columns: list[Column] = []
        at = 0
        for alias, struct in self.fields.items():
            parts = []
            for field in struct.fields:
                parts.append(F.col(f"{prefix}{at}").alias(field.name))
                at += 1
            whole = F.struct(*parts)
            columns.append((whole if present is None else F.when(present, whole)).alias(alias))
        return columns

    def shape(self, prefix: str, *, present: str | None = None) -> list[Nested]:
        """What :meth:`structs` makes, for a stage that makes it before its rows leave Python."""
        shapes = []
        at = 0
        for alias, struct in self.fields.items():
            names = struct.fieldNames()
            shapes.append(Nested(alias, tuple((name, f"{prefix}{at + n}") for n, name in enumerate(names)), present))
            at += len(names)
        return shapes

    def missing(self) -> list[Column]:
        """One NULL struct per alias."""
        return [F.lit(None).cast(struct).alias(alias) for alias, struct in self.fields.items()]


def filtered_sides(frames: Mapping[str, DataFrame], filters: Sequence[tuple[str, str]]) -> dict[str, Side]:
    """Inputs in struct form, without the rows that a condition on one input drops: (alias, condition)."""
    sides = {}
    for alias, frame in frames.items():
        side = Side.of(alias, frame)
        kept = side.frame
        for sql in (sql for filtered, sql in filters if filtered == alias):
            kept = kept.filter(F.expr(sql))
        sides[alias] = Side(kept, side.fields)
    return sides


def nested_fields(flat: Sequence[T.StructField], shape: Sequence[Nested], *, whole: bool) -> list[T.StructField]:
    """The structs of a shape as Spark's fields, with the types of the flat columns.

    Rows that are `whole` have no NULL where the flat fields say so, nor a struct that is NULL for no reason of its own.
    What cannot be NULL Spark does not look at, row by row.
    """
    kinds = {field.name: field.dataType for field in flat}
    certain = never_null(flat) if whole else None

    def kind(part: str | Nested) -> T.DataType:
        if isinstance(part, str):
            return kinds[part]
        return T.StructType([field(name, inner) for name, inner in part.fields])

    def field(name: str, part: str | Nested) -> T.StructField:
        return T.StructField(name, kind(part), nullable(part, certain))

    return [field(one.name, one) for one in shape]


def never_null(flat: Sequence[T.StructField]) -> frozenset[str]:
    """The flat columns that are declared to have no NULL."""
    return frozenset(field.name for field in flat if not field.nullable)


def check_inputs(inputs: Mapping[str, DataFrame], *, least: int = 2) -> dict[str, DataFrame]:
    """The inputs, or an error that says what is wrong with them."""
    accepted = "a mapping from an alias to a Spark DataFrame, such as {'R': r, 'S': s}"
    if not isinstance(inputs, Mapping):
        raise ArgumentError(f"inputs is a {type(inputs).__name__}", accepted=accepted)
    if len(inputs) < least:
        raise ArgumentError(f"inputs holds {len(inputs)} input(s); a join needs at least {least}", accepted=accepted)
    folded: dict[str, str] = {}
    for alias, frame in inputs.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            raise ArgumentError(
                f"the alias {alias!r} cannot be written in a condition",
                accepted="a name of letters, digits and underscores that does not begin with a digit",
            )
        if alias.casefold() in folded:
            raise ArgumentError(
                f"the aliases {folded[alias.casefold()]!r} and {alias!r} differ only in case",
                accepted="aliases that differ, since Spark SQL ignores case",
            )
        folded[alias.casefold()] = alias
        given: object = frame
        if not isinstance(given, DataFrame):
            hint = None
            if type(given).__module__.split(".")[0] in ("pandas", "polars", "pyarrow", "duckdb"):
                hint = "turn it into a Spark DataFrame first: spark.createDataFrame(...)"
            raise ArgumentError(f"the input {alias!r} is a {type(given).__name__}", accepted=accepted, hint=hint)
        _check_columns(alias, frame)
    return dict(inputs)


def check_frame(argument: str, frame: object) -> None:
    """Refuse what is not a DataFrame."""
    if not isinstance(frame, DataFrame):
        raise ArgumentError(f"{argument} is a {type(frame).__name__}", accepted="a Spark DataFrame")


def _check_columns(alias: str, frame: DataFrame) -> None:
    seen: dict[str, str] = {}
    for field in frame.schema.fields:
        if field.name.casefold() in seen:
            raise ArgumentError(
                f"the input {alias!r} has two columns named {field.name!r}",
                accepted="columns with names of their own, in any case of letters",
                hint="rename one with withColumnRenamed before the join",
            )
        seen[field.name.casefold()] = field.name
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except (PySparkException, ValueError) as error:  # the latter from Arrow, of arrays and maps without a type
            raise UnsupportedTypeError(
                f"the column {alias}.{field.name} has the type {field.dataType.simpleString()}, "
                "which cannot leave the JVM as Arrow",
                accepted="any type that PySpark converts to Arrow",
                hint="cast the column, or drop it before the join",
            ) from error


def _complaint(error: AnalysisException) -> str:
    """The first line of Spark's message; that of a syntax error is empty."""
    return next((line for line in str(error).splitlines() if line.strip()), "")


def expression_types(alias: str, frame: DataFrame, terms: Sequence[Term]) -> dict[Term, T.DataType]:
    """The types of terms over one input, or Spark's complaint about the first that it cannot evaluate, in our words."""
    columns = {f"{quoted(alias)}.{quoted(field.name)}": field.dataType for field in frame.schema.fields}
    types = {term: columns[term.sql] for term in terms if term.sql in columns}
    # Spark takes some milliseconds to analyse a projection: it is asked only of what is more than a column.
    asked = [term for term in terms if term not in types]
    if not asked:
        return types
    try:
        kinds = Side.of(alias, frame).frame.selectExpr(*[term.sql for term in asked]).schema.fields
        return types | {term: kind.dataType for term, kind in zip(asked, kinds, strict=True)}
    except AnalysisException as error:
        if len(asked) > 1:
            for term in asked:
                expression_types(alias, frame, [term])
        term = asked[0]
        raise PredicateError(
            f"Spark cannot evaluate {term.sql} over the input {term.alias!r}",
            accepted="an expression of Spark SQL over the columns of one input",
            hint=_complaint(error),
        ) from error


def check_rest(frame: DataFrame, sql: str) -> None:
    """Refuse a further condition that Spark cannot evaluate, or that is not a condition."""
    try:
        kind = frame.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as error:
        raise PredicateError(
            f"Spark cannot evaluate the condition {sql}",
            accepted="a condition of Spark SQL over the inputs",
            hint=_complaint(error),
        ) from error
    if not isinstance(kind, T.BooleanType | T.NullType):
        raise PredicateError(
            f"{sql} is a value of type {kind.simpleString()}, not a condition",
            accepted="conjuncts that are true or false",
        )


def conjunction(conditions: Sequence[str]) -> Column:
    """All of some conditions; NULL as the only one has a type of its own, which a filter does not take."""
    return F.expr(" AND ".join(f"({sql})" for sql in conditions)).cast("boolean")


def compared_type(left: T.DataType, right: T.DataType, what: str) -> KeyType:
    """The type in which Spark compares two values, with what the kernels need to know of it."""
    common = _common(left, right)
    if common is None:
        raise UnsupportedTypeError(
            f"{what} compares {left.simpleString()} with {right.simpleString()}",
            accepted="two numbers, two dates or timestamps, two strings, two booleans or two binary values",
            hint="cast one side in the condition, such as CAST(A.x AS DOUBLE)",
        )
    return common


def _common(left: T.DataType, right: T.DataType) -> KeyType | None:
    if isinstance(left, T.NullType):
        left = right
    if isinstance(right, T.NullType):
        right = left
    if isinstance(left, T.FractionalType | T.IntegralType) and isinstance(right, T.FractionalType | T.IntegralType):
        return _numeric(left, right)
    times = (T.DateType, T.TimestampType, T.TimestampNTZType)
    if isinstance(left, times) and isinstance(right, times):
        if isinstance(left, T.DateType) and isinstance(right, T.DateType):
            return KeyType("DATE", "int", micros=_DAY)
        # Spark widens dates and zoneless timestamps to TIMESTAMP where the other side is one.
        if isinstance(left, T.TimestampType) or isinstance(right, T.TimestampType):
            return KeyType("TIMESTAMP", "int", micros=1)
        return KeyType("TIMESTAMP_NTZ", "int", micros=1)
    if isinstance(left, T.StringType) and isinstance(right, T.StringType):
        plain = all(
            kind.simpleString() in ("string",) or kind.simpleString().startswith(("char", "varchar"))
            for kind in (left, right)
        )
        return KeyType("STRING", "rank") if plain else None
    if isinstance(left, T.BinaryType) and isinstance(right, T.BinaryType):
        return KeyType("BINARY", "rank")
    if isinstance(left, T.BooleanType) and isinstance(right, T.BooleanType):
        return KeyType("BOOLEAN", "int")
    if isinstance(left, T.DayTimeIntervalType) and isinstance(right, T.DayTimeIntervalType):
        return KeyType("INTERVAL DAY TO SECOND", "int", micros=1)
    return None


def _numeric(left: T.DataType, right: T.DataType) -> KeyType | None:
    if isinstance(left, T.DecimalType) or isinstance(right, T.DecimalType):
        if isinstance(left, T.DoubleType | T.FloatType) or isinstance(right, T.DoubleType | T.FloatType):
            return KeyType("DOUBLE", "float64")
        one, other = _as_decimal(left), _as_decimal(right)
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        if precision > 38:
            return None
        if precision > 18:
            return KeyType(f"DECIMAL({precision},{scale})", "rank", unit=10**scale)
        return KeyType(f"DECIMAL({precision},{scale})", "int", unit=10**scale)
    if isinstance(left, _INTEGERS) and isinstance(right, _INTEGERS):
        return KeyType("BIGINT", "int")
    if isinstance(left, T.DoubleType) or isinstance(right, T.DoubleType):
        return KeyType("DOUBLE", "float64")
    if isinstance(left, T.FloatType) and isinstance(right, T.FloatType):
        return KeyType("FLOAT", "float32")
    # One float and one integer: Spark compares them as doubles from 4.0 on under ANSI, which is also exact for
    # every float and every 32-bit integer.
    return KeyType("DOUBLE", "float64")


def _as_decimal(kind: T.DataType) -> T.DecimalType:
    if isinstance(kind, T.DecimalType):
        return kind
    digits: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
    return T.DecimalType(digits[type(kind)], 0)


_FIXED = re.compile(r"(Z|UTC|GMT|UT|Etc/.*)?([+-]\d{1,2}(:?\d{2}){0,2})?", re.IGNORECASE)


def clocks_change(zone: str) -> bool:
    """Whether the clocks of a time zone may change: of all but fixed offsets.

    Examples
    --------
    >>> [clocks_change(zone) for zone in ("UTC", "+05:30", "GMT-3", "Etc/GMT+1", "Europe/Oslo", "CET")]
    [False, False, False, False, True, True]
    """
    return _FIXED.fullmatch(zone) is None


def typed_conjuncts(
    predicate: Predicate, types: Mapping[Term, T.DataType], *, zone: str = "UTC"
) -> tuple[list[tuple[Equality, KeyType]], list[tuple[Inequality | Band, KeyType]]]:
    """Each conjunct with the type in which its two sides are compared."""
    equalities = [
        (e, compared_type(types[e.left], types[e.right], f"{e.left.sql} = {e.right.sql}")) for e in predicate.equalities
    ]
    comparisons: list[tuple[Inequality | Band, KeyType]] = []
    for inequality in predicate.inequalities:
        what = f"{inequality.left.sql} {'<' if inequality.strict else '<='} {inequality.right.sql}"
        comparisons.append((inequality, compared_type(types[inequality.left], types[inequality.right], what)))
    for band in predicate.bands:
        what = f"{band.left.sql} - {band.right.sql}"
        kind = compared_type(types[band.left], types[band.right], what)
        if kind.ddl == "TIMESTAMP" and clocks_change(zone):
            # Spark subtracts timestamps by the clock on the wall.  Where it never changes, instants will do.
            kind = KeyType("TIMESTAMP_NTZ", "int", micros=1)
        _check_band(band, kind, what)
        comparisons.append((band, kind))
    return equalities, comparisons


def _check_band(band: Band, kind: KeyType, what: str) -> None:
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
        if kind.kind == "rank" or kind.ddl == "BOOLEAN":
            raise UnsupportedTypeError(
                f"{what} subtracts values of type {kind.ddl}",
                accepted="numbers (decimals of up to 18 digits), dates or timestamps in a band",
                hint="cast both sides, such as CAST(A.x AS DOUBLE)",
            )


def identity(frames: Mapping[str, DataFrame], join: Mapping[str, str]) -> dict[str, str]:
    """What a stream may not change between two runs on one checkpoint: the join, and the columns it stores."""
    columns = {
        f"columns of {alias}": ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema.fields)
        for alias, frame in frames.items()
    }
    return {**join, **columns}


def same_session(frames: Mapping[str, DataFrame]) -> None:
    """Refuse inputs that belong to different sessions."""
    # Classic sessions of one process share a context and may be mixed, as in foreachBatch, whose frames belong to a
    # session of their own.  Sessions of Spark Connect have nothing in common.
    sessions = {getattr(frame.sparkSession, "session_id", None): alias for alias, frame in frames.items()}
    if len(sessions) > 1:
        raise ArgumentError(
            f"the inputs {listing(sessions.values())} belong to different Spark sessions",
            accepted="inputs of one session",
        )

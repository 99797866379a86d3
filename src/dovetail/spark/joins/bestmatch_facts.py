"""What the planner of best-match joins has to know of the inputs: types, keys, and what Spark can evaluate.

Everything here is analysis.  It asks Spark for schemas, never for rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.comparison import Key, KeyType, Kind
from dovetail.conditions.criteria import Closest, Criterion, Extreme, Overlap, Prefer, Youngest
from dovetail.conditions.distances import float_distance, whole_distance
from dovetail.conditions.durations import duration
from dovetail.conditions.names import quoted
from dovetail.conditions.tokens import read
from dovetail.errors import ArgumentError, PredicateError, UnsupportedTypeError, unknown_column
from dovetail.families.bestmatch.spec import Axis
from dovetail.families.bestmatch.terms import Sum, split_sum
from dovetail.plan.bestmatch import Facts, Typed
from dovetail.spark.frames import Side, same_session, shuffle_partitions
from dovetail.spark.types import compared_type

_INTEGRAL = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_ZERO = "CAST(0 AS BIGINT)"


def best_facts(
    frames: Mapping[str, DataFrame],
    criteria: Sequence[Criterion],
    by: Sequence[str],
    *,
    punctuation: str | None,
    time: str | None,
    order: str | None,
) -> tuple[tuple[Typed, ...], Facts]:
    """The criteria with their types, and what else the planner needs; refuses what Spark cannot evaluate."""
    same_session(frames)
    typed = tuple(_typed(frames, criterion) for criterion in criteria)
    sides = [Side.of(alias, frame) for alias, frame in frames.items()]
    keys: list[tuple[Kind, Key, Key]] = []
    for name in by:
        fields = [_field(frames, alias, name, "by=") for alias in frames]
        common = compared_type(fields[0].dataType, fields[1].dataType, f"by={name!r}")
        left, right = (Key(_sql(alias, f.name), common.ddl, alias) for alias, f in zip(frames, fields, strict=True))
        keys.append((common.kind, left, right))
    facts = Facts(
        streams=frozenset(alias for alias, frame in frames.items() if frame.isStreaming),
        names=(tuple(sides[0].frame.schema[0].dataType.names), tuple(sides[1].frame.schema[0].dataType.names)),  # type: ignore[attr-defined]
        types=(sides[0].arrow_types(), sides[1].arrow_types()),
        by=tuple(keys),
        marks=_marks(frames, typed, punctuation, order) if punctuation is not None else None,
        times=_times(frames, time) if time is not None else None,
        timed=time is not None and all(_watermarked(_field(frames, alias, time, "time=")) for alias in frames),
        shuffle_partitions=shuffle_partitions(frames),
    )
    return typed, facts


def _sql(alias: str, column: str) -> str:
    return f"{quoted(alias)}.{quoted(column)}"


def _field(frames: Mapping[str, DataFrame], alias: str, name: str, where: str) -> T.StructField:
    """A column of an input, by its name or by alias and name."""
    frame = frames[alias]
    bare = name
    for prefix in frames:
        if name.casefold().startswith(f"{prefix.casefold()}.") and prefix == alias:
            bare = name[len(prefix) + 1 :]
    for field in frame.schema.fields:
        if field.name.casefold() == bare.casefold():
            return field
    raise unknown_column(bare, alias, frame.columns, where=where)


def _watermarked(field: T.StructField) -> bool:
    return "spark.watermarkDelayMs" in field.metadata


def _pair(frames: Mapping[str, DataFrame], criterion: Closest | Overlap | Youngest) -> list[T.StructField]:
    names = criterion.left, criterion.right
    return [_field(frames, a, n, f"on ({criterion})") for a, n in zip(frames, names, strict=True)]


def _keys_of(frames: Mapping[str, DataFrame], fields: list[T.StructField], ddl: str) -> tuple[Key, Key]:
    left, right = (Key(_sql(alias, f.name), ddl, alias) for alias, f in zip(frames, fields, strict=True))
    return left, right


def _typed(frames: Mapping[str, DataFrame], criterion: Criterion) -> Typed:
    if isinstance(criterion, Prefer):
        return Typed(criterion)
    if isinstance(criterion, Extreme):
        return _extreme(frames, criterion)
    fields = _pair(frames, criterion)
    if isinstance(criterion, Overlap):
        return _overlap(frames, criterion, fields)
    common = compared_type(fields[0].dataType, fields[1].dataType, str(criterion))
    if isinstance(criterion, Youngest):
        if common.kind != "int" or common.ddl == "BOOLEAN":
            raise UnsupportedTypeError(
                f"{criterion} has the type {common.ddl}", accepted="dates, timestamps or whole numbers"
            )
        return Typed(criterion, Axis("latest", largest=True), _keys_of(frames, fields, common.ddl))
    if common.kind == "rank" or common.ddl == "BOOLEAN":
        raise UnsupportedTypeError(
            f"{criterion} has the type {common.ddl}, which has no distances",
            accepted="numbers (decimals of up to 18 digits), dates or timestamps",
            hint="cast the column in its input, such as CAST(x AS DOUBLE)",
        )
    floats = common.kind != "int"
    axis = Axis("near_float" if floats else "near_int", within=_within(criterion, common))
    ddl = "DOUBLE" if floats else common.ddl
    return Typed(criterion, axis, _keys_of(frames, fields, ddl), watermarked=all(map(_watermarked, fields)))


def _within(criterion: Closest, kind: KeyType) -> int | float | None:
    """A maximum distance in the unit of the codes, or as a float."""
    within = criterion.within
    if within is None:
        return None
    if kind.micros is not None:
        if isinstance(within, int | float | Decimal):
            raise ArgumentError(
                f"{criterion}: the column holds times, and within={within!r} is a number",
                accepted="a length of time, such as within='10 minutes'",
            )
        return duration(within, argument="within") // kind.micros
    if not isinstance(within, int | float | Decimal):
        raise ArgumentError(
            f"{criterion}: the column holds numbers, and within={within!r} is a length of time",
            accepted="a number, such as within=100",
        )
    if kind.kind != "int":
        return float_distance(within)
    return whole_distance(within, kind.unit)


def _overlap(frames: Mapping[str, DataFrame], criterion: Overlap, fields: list[T.StructField]) -> Typed:
    kinds = []
    for alias, field in zip(frames, fields, strict=True):
        if not isinstance(field.dataType, T.ArrayType):
            raise UnsupportedTypeError(
                f"{criterion}: {alias}.{field.name} has the type {field.dataType.simpleString()}",
                accepted="a column of type array",
            )
        kinds.append(field.dataType.elementType)
    common = compared_type(kinds[0], kinds[1], str(criterion))
    return Typed(criterion, keys=_keys_of(frames, fields, f"ARRAY<{common.ddl}>"), elements=common.kind)


def _extreme(frames: Mapping[str, DataFrame], criterion: Extreme) -> Typed:
    """A sum of two one-sided terms where it is one; else a value that Spark evaluates on candidate pairs."""
    items = read(criterion.sql, {alias: frame.columns for alias, frame in frames.items()})
    first, second = frames
    sides = {alias: Side.of(alias, frame) for alias, frame in frames.items()}
    both = sides[first].frame.limit(0).crossJoin(sides[second].frame.limit(0))
    text = "".join(f"{' ' if item.spaced else ''}{item.sql}" for item in items).strip()
    kind = _type(both, text, criterion)
    if not any(item.alias for item in items):
        raise PredicateError(f"{criterion} holds no column", accepted="an expression over the inputs")
    parts = split_sum(items, (first, second))
    if parts is not None:
        found = _sum(sides, parts, criterion)
        if found is not None:
            return found
    ddl, of_code = _value_type(kind, criterion)
    return Typed(criterion, Axis("given", largest=criterion.largest, kind=of_code), value=f"CAST(({text}) AS {ddl})")


def _type(frame: DataFrame, sql: str, criterion: Extreme) -> T.DataType:
    try:
        return frame.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as error:
        raise PredicateError(
            f"Spark cannot evaluate {criterion}",
            accepted="an expression of Spark SQL over both inputs",
            hint=next((line for line in str(error).splitlines() if line.strip()), ""),
        ) from error


def _sum(sides: Mapping[str, Side], parts: Sum, criterion: Extreme) -> Typed | None:
    aliases = list(sides)
    terms = [parts.left, parts.right]
    kinds = [
        None if term is None else _type(sides[alias].frame, term, criterion)
        for alias, term in zip(aliases, terms, strict=True)
    ]
    present = [kind for kind in kinds if kind is not None]
    if all(isinstance(kind, _INTEGRAL) for kind in present):
        rule, ddls = "sum_int", ["BIGINT"] * 2
    elif len(present) == 1:
        ddl, of_code = _value_type(present[0], criterion)
        rule = "sum_float" if of_code == "float64" else "sum_int"
        ddls = ["DOUBLE"] * 2 if of_code == "float64" else [ddl if kind is not None else "BIGINT" for kind in kinds]
    elif any(isinstance(kind, T.DoubleType) for kind in present) and all(
        isinstance(kind, T.NumericType) for kind in present
    ):
        rule, ddls = "sum_float", ["DOUBLE"] * 2
    elif all(isinstance(kind, (*_INTEGRAL, T.DecimalType)) for kind in present):
        common = compared_type(present[0], present[1], str(criterion))
        if common.kind != "int":
            return None
        rule, ddls = "sum_int", [common.ddl] * 2
    else:
        return None
    left, right = (
        Key(_ZERO if term is None else term, ddl, alias) for alias, term, ddl in zip(aliases, terms, ddls, strict=True)
    )
    return Typed(criterion, Axis(rule, largest=criterion.largest), (left, right))  # type: ignore[arg-type]


def _value_type(kind: T.DataType, criterion: Extreme) -> tuple[str, Kind]:
    """The type in which values are compared, and the kind of their codes."""
    if isinstance(kind, T.DoubleType | T.FloatType):
        return "DOUBLE", "float64"
    if isinstance(kind, (*_INTEGRAL, *_TIMES, T.BooleanType, T.DayTimeIntervalType)):
        return kind.simpleString().upper(), "int"
    if isinstance(kind, T.DecimalType):
        return ("DOUBLE", "float64") if kind.precision > 18 else (kind.simpleString().upper(), "int")
    raise UnsupportedTypeError(
        f"{criterion} has the type {kind.simpleString()}", accepted="numbers, dates, timestamps, booleans or intervals"
    )


def _marks(
    frames: Mapping[str, DataFrame], typed: Sequence[Typed], punctuation: str, order: str | None
) -> tuple[Key, Key]:
    """The columns that promise how far a stream has come, in the type of the criterion that orders it."""
    ordered = [
        one
        for one in typed
        if isinstance(one.criterion, Closest)
        and one.criterion.within is not None
        and (order is None or order in (one.criterion.left, one.criterion.right))
    ]
    fields = [_field(frames, alias, punctuation, "punctuation=") for alias in frames]
    if not ordered or ordered[0].keys is None:
        return _keys_of(frames, fields, "BIGINT")  # the planner refuses what has no order
    return _keys_of(frames, fields, ordered[0].keys[0].ddl)


def _times(frames: Mapping[str, DataFrame], time: str) -> tuple[Key, Key]:
    fields = [_field(frames, alias, time, "time=") for alias in frames]
    for alias, field in zip(frames, fields, strict=True):
        if not isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
            raise UnsupportedTypeError(
                f"time={time!r} has the type {field.dataType.simpleString()} in {alias!r}",
                accepted="a column of type timestamp or timestamp_ntz",
            )
    common = compared_type(fields[0].dataType, fields[1].dataType, f"time={time!r}")
    return _keys_of(frames, fields, common.ddl)

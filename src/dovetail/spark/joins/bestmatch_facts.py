"""What the planner of best-match joins has to know of the inputs: types, watermarks, and what Spark can evaluate.

Everything here is analysis.  It asks Spark for schemas, never for rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.criteria import Criterion, Extreme, Overlap, Prefer
from dovetail.conditions.names import quoted
from dovetail.conditions.sums import split_sum
from dovetail.conditions.tokens import read
from dovetail.errors import PredicateError
from dovetail.plan.bestmatch import Facts
from dovetail.plan.bestmatch_criteria import ColumnPair, CriterionFacts, Expression, ValueType
from dovetail.spark.frames import Side, field_of, is_ansi, same_session, shuffle_partitions
from dovetail.spark.types import check_deterministic, compared_type
from dovetail.spark.watermarks import watermark_delay

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMESTAMPS = (T.TimestampType, T.TimestampNTZType)


def best_facts(
    frames: Mapping[str, DataFrame],
    criteria: Sequence[Criterion],
    by: Sequence[str],
    *,
    punctuation: str | None,
    time: str | None,
) -> Facts:
    """What the planner needs; refuses columns that do not exist and expressions that Spark cannot evaluate."""
    same_session(frames)
    schemas = [frame.schema for frame in frames.values()]
    sides = [Side.of(alias, frame) for alias, frame in frames.items()]
    return Facts(
        streams=frozenset(alias for alias, frame in frames.items() if frame.isStreaming),
        names=(tuple(schemas[0].names), tuple(schemas[1].names)),
        types=(sides[0].arrow_types(), sides[1].arrow_types()),
        criteria=tuple(_criterion(frames, sides, criterion) for criterion in criteria),
        by=tuple(_columns(frames, (name, name), "by=", f"by={name!r}", ansi=is_ansi(frames)) for name in by),
        punctuation=_columns(frames, (punctuation, punctuation), "punctuation=") if punctuation is not None else None,
        times=_columns(frames, (time, time), "time=") if time is not None else None,
        shuffle_partitions=shuffle_partitions(frames),
    )


def _criterion(frames: Mapping[str, DataFrame], sides: Sequence[Side], criterion: Criterion) -> CriterionFacts:
    if isinstance(criterion, Prefer):
        return None
    if isinstance(criterion, Extreme):
        return _expression(frames, sides, criterion)
    names, where = (criterion.left, criterion.right), f"on ({criterion})"
    return _columns(frames, names, where, str(criterion), elements=isinstance(criterion, Overlap))


def _columns(
    frames: Mapping[str, DataFrame],
    names: tuple[str, str],
    where: str,
    comparison: str | None = None,
    *,
    elements: bool = False,
    ansi: bool = True,
) -> ColumnPair:
    """A column of each input, by its name or by alias and name; `comparison` says what compares them, in messages."""
    (left, left_frame), (right, right_frame) = frames.items()
    fields = [
        field_of(alias, frame, _unqualified(alias, frame, name), where)
        for alias, frame, name in ((left, left_frame, names[0]), (right, right_frame, names[1]))
    ]
    return ColumnPair(
        aliases=(left, right),
        names=(fields[0].name, fields[1].name),
        sql=(f"{quoted(left)}.{quoted(fields[0].name)}", f"{quoted(right)}.{quoted(fields[1].name)}"),
        types=(fields[0].dataType.simpleString(), fields[1].dataType.simpleString()),
        common=_common([field.dataType for field in fields], comparison, elements=elements, ansi=ansi),
        watermarked=all(watermark_delay(field) is not None for field in fields),
    )


def _unqualified(alias: str, frame: DataFrame, name: str) -> str:
    """The name of a column without the alias in front of it; a column may have such a name itself."""
    own = name.casefold() in (column.casefold() for column in frame.columns)
    qualified = name.casefold().startswith(f"{alias.casefold()}.")
    return name[len(alias) + 1 :] if qualified and not own else name


def _common(kinds: Sequence[T.DataType], comparison: str | None, *, elements: bool, ansi: bool) -> KeyType | None:
    if elements:
        if not all(isinstance(kind, T.ArrayType) for kind in kinds):
            return None
        kinds = [kind.elementType for kind in kinds if isinstance(kind, T.ArrayType)]
    if comparison is None:
        # Columns that are not compared with each other: the planner asks for the type of timestamps only.
        timestamps = all(isinstance(kind, _TIMESTAMPS) for kind in kinds)
        return compared_type(kinds[0], kinds[1], "time=") if timestamps else None
    return compared_type(kinds[0], kinds[1], comparison, ansi=ansi)


def _expression(frames: Mapping[str, DataFrame], sides: Sequence[Side], criterion: Extreme) -> Expression:
    items = read(criterion.sql, {alias: frame.columns for alias, frame in frames.items()})
    first, second = frames
    both = sides[0].frame.limit(0).crossJoin(sides[1].frame.limit(0))
    text = "".join(f"{' ' if item.spaced else ''}{item.sql}" for item in items).strip()
    kind = _value_type(_analysed(both, text, criterion))
    check_deterministic(frames, [text], f"on ({criterion})")
    if not any(item.alias for item in items):
        raise PredicateError(f"{criterion} has no column", accepted="an expression over the inputs")
    terms = split_sum(items, (first, second))
    if terms is None:
        return Expression((first, second), text, kind)
    kinds = [
        None if term is None else _analysed(side.frame, term, criterion)
        for side, term in zip(sides, (terms.left, terms.right), strict=True)
    ]
    left, right = (None if analysed is None else _value_type(analysed) for analysed in kinds)
    exact = [analysed for analysed in kinds if isinstance(analysed, (*_WHOLE, T.DecimalType))]
    common = compared_type(exact[0], exact[1], str(criterion)) if len(exact) == 2 else None
    return Expression((first, second), text, kind, terms, (left, right), common)


def _analysed(frame: DataFrame, sql: str, criterion: Extreme) -> T.DataType:
    try:
        return frame.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as error:
        raise PredicateError(
            f"Spark cannot evaluate {criterion}",
            accepted="an expression of Spark SQL over both inputs",
            hint=next((line for line in str(error).splitlines() if line.strip()), ""),
        ) from error


def _value_type(kind: T.DataType) -> ValueType:
    name = kind.simpleString()
    if isinstance(kind, _WHOLE):
        return ValueType(name, "whole")
    if isinstance(kind, T.DoubleType):
        return ValueType(name, "double")
    if isinstance(kind, T.FloatType):
        return ValueType(name, "float")
    if isinstance(kind, T.DecimalType):
        return ValueType(name, "decimal", kind.precision)
    if isinstance(kind, (T.DateType, *_TIMESTAMPS)):
        return ValueType(name, "time")
    return ValueType(name, "other comparable" if isinstance(kind, T.BooleanType | T.DayTimeIntervalType) else "other")

"""Aggregates by forming the pairs: a theta join of distinct keys, Spark's own grouping, and the rows again.

Rows with the same keys have the same matches, so each distinct key is joined once, and no row needs a number of its
own, which a task that runs again might give to another row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, PredicateError, UnsupportedTypeError
from dovetail.plan.aggregate_calls import Call
from dovetail.plan.aggregate_pairs import PairsPlan
from dovetail.spark.frames import Side
from dovetail.spark.metrics import Handle, attach, handle_of

_MINE, _THEIRS, _VALUE, _KNOWN = "#mine", "#theirs", "#value", "#known"
"""No alias of a user contains a #."""

Pairs = Callable[[Mapping[str, DataFrame]], DataFrame]
"""Forms the pairs of inputs, with a struct column for each."""


def check_calls(frames: Mapping[str, DataFrame], calls: Sequence[Call]) -> None:
    """Refuse aggregates that Spark cannot evaluate over the pairs."""
    try:
        _ = _empty_answers(frames, calls).schema
    except AnalysisException as error:
        if len(calls) > 1:
            for call in calls:
                check_calls(frames, [call])
        words = next((line for line in str(error).splitlines() if line.strip()), None)
        what = f"agg[{calls[0].name!r}]={calls[0].text!r}"
        if "NONDETERMINISTIC" in (error.getCondition() or "").replace("_", ""):
            raise PredicateError(
                f"{what} calls a function that is not deterministic",
                accepted="functions that give the same value for the same row each time",
            ) from error
        raise ArgumentError(
            f"{what}, which Spark cannot evaluate over the matches", accepted="an aggregate of Spark SQL", hint=words
        ) from error


def pairs_frame(
    frames: Mapping[str, DataFrame], by: str, used: Mapping[str, Mapping[str, str]], calls: Sequence[Call], how: str,
    reasons: Sequence[str], pairs: Pairs,
) -> DataFrame:  # fmt: skip
    """The lazy frame: a struct column for the asking input, then the aggregates over the pairs of used columns."""
    asking = Side.of(by, frames[by]).frame
    sqls = list(used[by].values())
    kinds = [frames[by].schema[name].dataType for name in used[by]]
    size = range(len(sqls))

    def told(prefix: str) -> list[Column]:
        return [_told_apart(sqls[at], kinds[at], by).alias(f"{prefix}{at}") for at in size]

    flat = asking.select(*told(_MINE), *(F.expr(f"{sql} AS {quoted(name)}") for name, sql in used[by].items()))
    distinct = flat.dropDuplicates([f"{_MINE}{at}" for at in size]).select(*map(quoted, used[by]))
    other = next(alias for alias in frames if alias != by)
    narrow = {by: distinct, other: frames[other].select(*map(quoted, used[other]))}
    found = pairs({alias: narrow[alias] for alias in frames})
    inner = handle_of(found, "aggregate_join")
    answers = found.groupBy(*told(_THEIRS)).agg(F.lit(True).alias(_KNOWN), *_values(calls))
    keyed = asking.select(quoted(by), *told(_MINE))
    same = reduce(lambda a, b: a & b, [F.col(f"{_MINE}{at}").eqNullSafe(F.col(f"{_THEIRS}{at}")) for at in size])
    joined = keyed.join(answers, same, "left" if how == "left" else "inner")
    columns = [F.col(f"{_VALUE}{at}").alias(call.name) for at, call in enumerate(calls)]
    if how == "left":
        # What an aggregate gives for no rows at all: 0 for a count, an empty list, and NULL for most.
        alone = _empty_answers(frames, calls)
        nothing = alone.select(F.struct(*alone.columns).alias("none")).scalar()
        columns = [
            F.when(F.col(_KNOWN), F.col(f"{_VALUE}{at}")).otherwise(nothing.getField(f"{_VALUE}{at}")).alias(call.name)
            for at, call in enumerate(calls)
        ]
    handle = Handle(PairsPlan(tuple(frames), by, how, tuple(calls), tuple(reasons), inner.plan.text()))
    handle.recorders += inner.recorders
    return attach(joined.select(quoted(by), *columns), handle)


def _values(calls: Sequence[Call]) -> list[Column]:
    return [F.expr(call.sql).alias(f"{_VALUE}{at}") for at, call in enumerate(calls)]


def _empty_answers(frames: Mapping[str, DataFrame], calls: Sequence[Call]) -> DataFrame:
    """The aggregates over no pairs."""
    sides = [Side.of(alias, frame).frame.limit(0) for alias, frame in frames.items()]
    return sides[0].crossJoin(sides[1]).agg(*_values(calls))


def _told_apart(sql: str, kind: T.DataType, by: str) -> Column:
    """A value in a form that is equal for equal values only: -0.0 is not 0.0, nor A a, even where Spark folds them."""
    if isinstance(kind, T.FloatType | T.DoubleType):
        return F.expr(sql).cast("string")
    if isinstance(kind, T.StringType):
        return F.expr(sql).cast("binary")
    if kind.typeName() in ("map", "variant", "geometry", "geography", "interval", "udt"):
        raise UnsupportedTypeError(
            f"the join depends on {sql} of the input {by!r}, of the type {kind.simpleString()}, which has no equality",
            accepted="columns of other types in the condition",
            hint="compute what the condition needs of the column before the join",
        )
    return F.expr(sql)

"""Estimates and quality of sampled joins as Spark frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.layout import JOIN_VALUE, MOMENT, SAMPLE_CELL, STRATUM, WEIGHT, columns_of
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, PredicateError
from dovetail.families.approx.estimate import ROUNDING, Sampled, moments
from dovetail.families.approx.spec import FACTS, fact_column
from dovetail.plan.approx import RESERVED
from dovetail.plan.estimates import EstimatesPlan, Measure

_GROUP, _TOTAL, _COUNT = "b", "v", "n"
"""Prefixes of the flat columns: groups, and for each measure its value and whether there is one."""
_SUMS = ("total", "number", "tt", "tn", "nn")
"""What a cell finds out for a measure: the total of the values, the number of rows, and their covariances."""


def estimates_frame(frame: DataFrame, plan: EstimatesPlan) -> DataFrame:
    """The lazy frame of :func:`dovetail.estimates`."""
    aliases = _aliases(frame)
    flat = _flat(frame, plan, aliases)
    names = _group_names(frame, plan.groups)
    keys = columns_of(_GROUP, len(plan.groups))
    per_cell = _per_cell(flat, keys, len(plan.measures), len(aliases))
    sums = [F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in _sum_names(len(plan.measures))]
    rows = F.coalesce(F.sum("rows"), F.lit(0)).alias("rows")
    total = per_cell.groupBy(*keys).agg(*sums, rows) if keys else per_cell.agg(*sums, rows)
    columns = [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
    return total.select(*columns, *[_figure(measure, at, plan.reach) for at, measure in enumerate(plan.measures)])


def _aliases(frame: DataFrame) -> list[str]:
    """The inputs of a sampled join, read off its column ``sampling``."""
    fields = {field.name: field.dataType for field in frame.schema.fields}
    kind = fields.get(RESERVED)
    rows = kind["rows"].dataType if isinstance(kind, T.StructType) and "rows" in kind.names else None
    if not isinstance(rows, T.StructType):
        raise ArgumentError(
            f"a frame whose results carry no weights; its columns are {', '.join(fields)}",
            accepted="results of approx_join with policy='raj_hash', 'raj' or 'exact', and their column sampling",
            hint="detail=False leaves them out; prob, prob_hash and arrpj keep the rows that promise most, "
            "so what they left out is unknown",
        )
    return list(rows.names)


def _check_weights(frame: DataFrame) -> None:
    kind = next((field.dataType for field in frame.schema.fields if field.name == RESERVED), None)
    if not isinstance(kind, T.StructType) or WEIGHT not in kind.names:
        raise ArgumentError(
            "quality of results without weights and without the complete result",
            accepted="complete=, or results of approx_join with policy='raj_hash', 'raj' or 'exact'",
        )


def check_value(name: str, text: object, frame: DataFrame) -> None:
    """Refuse what Spark cannot evaluate to one value that it can group by."""
    if not isinstance(text, str) or not text.strip():
        raise ArgumentError(f"{name}={text!r}", accepted="an expression of Spark SQL")
    try:
        frame.groupBy(F.expr(text).alias("v")).count().columns  # noqa: B018 - analysed here, so that a mistake shows here
    except (AnalysisException, ArithmeticException) as error:
        raise _complaint(f"{name}={text!r}", error) from error


def _group_names(frame: DataFrame, groups: Sequence[str]) -> list[str]:
    try:
        return frame.select(*[F.expr(sql) for sql in groups]).columns
    except (AnalysisException, ArithmeticException) as error:
        raise _complaint("by", error) from error


def _complaint(what: str, error: PySparkException) -> PredicateError:
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return PredicateError(
        f"Spark cannot evaluate {what}", accepted="expressions of Spark SQL over the columns of the frame", hint=line
    )


def _flat(frame: DataFrame, plan: EstimatesPlan, aliases: Sequence[str]) -> DataFrame:
    columns: list[Column] = [F.expr(sql).alias(f"{_GROUP}{at}") for at, sql in enumerate(plan.groups)]
    for at, measure in enumerate(plan.measures):
        value = F.lit(1.0) if measure.sql == "*" else F.expr(measure.sql)
        count = F.when(value.isNotNull(), F.lit(1.0)).otherwise(F.lit(0.0))
        total = count if measure.kind == "count" else F.coalesce(value.cast("double"), F.lit(0.0))
        columns += [total.alias(f"{_TOTAL}{at}"), count.alias(f"{_COUNT}{at}")]
    columns += [F.col(f"{RESERVED}.{name}") for name in (SAMPLE_CELL, MOMENT, WEIGHT, STRATUM, JOIN_VALUE)]
    for side, alias in enumerate(aliases):
        columns += [F.col(f"{RESERVED}.rows.{quoted(alias)}.{fact}").alias(fact_column(fact, side)) for fact in FACTS]
    try:
        flat = frame.select(*columns)
        flat.columns  # noqa: B018 - analysed here, so that a mistake shows here
    except (AnalysisException, ArithmeticException) as error:
        raise _complaint("a measure or a group", error) from error
    return flat


def _sum_names(measures: int) -> list[str]:
    return [f"{name}{at}" for at in range(measures) for name in _SUMS]


def _per_cell(flat: DataFrame, keys: list[str], measures: int, sides: int) -> DataFrame:
    """Totals and covariances of every group in every cell; cells are independent, so both add up."""
    names = _sum_names(measures)
    schema = T.StructType(
        [flat.schema[key] for key in keys]
        + [T.StructField(name, T.DoubleType()) for name in names]
        + [T.StructField("rows", T.LongType())]
    )

    def run(table: pa.Table) -> pa.Table:
        sampled = Sampled.of(table, sides)
        values = np.stack(
            [table.column(f"{prefix}{at}").to_numpy() for at in range(measures) for prefix in (_TOTAL, _COUNT)]
        )
        totals, covariances = moments(values, sampled)
        out: dict[str, Any] = {key: table.column(key).slice(0, 1) for key in keys}
        for at in range(measures):
            v, n = 2 * at, 2 * at + 1
            numbers = (totals[v], totals[n], covariances[v, v], covariances[v, n], covariances[n, n])
            out.update({f"{name}{at}": [float(number)] for name, number in zip(_SUMS, numbers, strict=True)})
        return pa.table({**out, "rows": [table.num_rows]})

    run.__annotations__ = {"table": pa.Table, "return": pa.Table}
    return flat.groupBy(*keys, SAMPLE_CELL).applyInArrow(run, schema)


def _figure(measure: Measure, at: int, reach: float) -> Column:
    """Estimate, standard error and interval of one measure from its sums."""
    total, number, tt, tn, nn = (F.col(f"{name}{at}") for name in _SUMS)
    if measure.kind == "avg":
        estimate = total / F.nullif(number, F.lit(0.0))
        variance = (tt - 2 * estimate * tn + estimate * estimate * nn) / (number * number)
    else:
        estimate, variance = total, tt
    error = F.sqrt(F.greatest(variance, F.lit(0.0)))
    far = reach * error + ROUNDING * F.abs(estimate)
    low = estimate - far
    if measure.sql == "*":
        # The complete join has at least the rows of the sample.
        low = F.greatest(low, F.col("rows").cast("double"))
    return F.struct(
        estimate.alias("estimate"), error.alias("error"), low.alias("low"), (estimate + far).alias("high")
    ).alias(measure.name)


def quality_frame(frame: DataFrame, complete: DataFrame | None, on: str, over: str | None) -> DataFrame:
    """The lazy frame of :func:`dovetail.quality`."""
    check_value("on", on, frame)
    if complete is not None:
        check_value("on", on, complete)
    if over is not None:
        check_value("over", over, frame)
    if complete is None:
        _check_weights(frame)
        expected = frame.groupBy(F.expr(on).alias("v")).agg(F.sum(f"{RESERVED}.{WEIGHT}").alias("c"))
    else:
        expected = complete.groupBy(F.expr(on).alias("v")).agg(F.count(F.lit(1)).cast("double").alias("c"))
    moment = F.lit(0) if over is None else F.expr(over)
    counts = frame.groupBy(moment.alias("moment"), F.expr(on).alias("v")).agg(F.count(F.lit(1)).alias("n"))
    instants = counts.select(F.col("moment").alias("m")).distinct()
    # All results up to a moment: the counts of every earlier one, added up.
    upto = counts.join(instants, F.col("moment") <= F.col("m")).groupBy("m", "v").agg(F.sum("n").alias("n"))
    everything = instants.crossJoin(expected.withColumnRenamed("v", "w"))
    both = everything.alias("e").join(
        upto.alias("u"), (F.col("e.m") == F.col("u.m")) & F.col("e.w").eqNullSafe(F.col("u.v")), "left"
    )
    counted = both.select(
        F.col("e.m").alias("moment"), F.col("c"), F.coalesce(F.col("n"), F.lit(0)).cast("double").alias("n")
    )
    sizes = counted.groupBy("moment").agg(F.sum("n").alias("results"), F.sum("c").alias("complete"))
    shares = counted.join(sizes, "moment").select(
        "moment",
        "results",
        "complete",
        (F.col("c") / F.col("complete")).alias("p"),
        (F.col("n") / F.col("results")).alias("q"),
    )
    p, q = F.col("p"), F.col("q")

    def half(x: Column) -> Column:
        return F.when(x > 0, x * F.log(2 * x / (p + q))).otherwise(F.lit(0.0))

    measured = shares.groupBy("moment").agg(
        F.first("results").cast("long").alias("results"),
        F.first("complete").alias("complete"),
        (F.first("results") / F.first("complete")).alias("share"),
        F.sum((p - q) * (p - q)).alias("mse"),
        (F.sum(half(p) + half(q)) / 2).alias("js"),
    )
    return measured.drop("moment") if over is None else measured.orderBy("moment")

"""Estimates and quality of sampled joins as Spark frames."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.errors import ArgumentError, PredicateError
from dovetail.families.approx.estimate import ROUNDING, Sampled, moments
from dovetail.families.approx.spec import FACTS
from dovetail.plan.approx import RESERVED
from dovetail.spark.frames import check_frame

_MEASURE = re.compile(r"\s*(count|sum|avg|mean)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_ACCEPTED = "count(*), count(expression), sum(expression) or avg(expression)"
_SUMS = ("total", "number", "tt", "tn", "nn")
"""What a cell finds out for a measure: the total of the values, the number of rows, and their covariances."""


@dataclass(frozen=True)
class _Measure:
    name: str
    kind: str
    sql: str


def estimates_frame(
    sample: DataFrame, measures: Mapping[str, str] | None, by: str | Sequence[str], confidence: float
) -> DataFrame:
    """The lazy frame of :func:`dovetail.estimates`."""
    check_frame("sample", sample)
    aliases = _aliases(sample)
    if sample.isStreaming:
        raise ArgumentError(
            "estimates of a streaming frame",
            accepted="a static frame of results",
            hint="write the results of the stream to a table, and estimate from what it holds: any prefix will do",
        )
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise ArgumentError(f"confidence={confidence!r}", accepted="a number between 0 and 1, such as 0.95")
    wanted = _measures({"rows": "count(*)"} if measures is None else measures)
    groups = _groups(by)
    flat = _flat(sample, wanted, groups, aliases)
    names = _group_names(sample, groups)
    keys = [f"b{at}" for at in range(len(groups))]
    found = _per_cell(flat, keys, len(wanted), len(aliases))
    sums = [F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in _sum_names(len(wanted))]
    rows = F.coalesce(F.sum("rows"), F.lit(0)).alias("rows")
    total = found.groupBy(*keys).agg(*sums, rows) if keys else found.agg(*sums, rows)
    columns = [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
    reach = NormalDist().inv_cdf((1 + confidence) / 2)
    return total.select(*columns, *[_figure(measure, at, reach) for at, measure in enumerate(wanted)])


def _aliases(sample: DataFrame) -> list[str]:
    """The inputs of a sampled join, read off its column ``sampling``."""
    fields = {field.name: field.dataType for field in sample.schema.fields}
    kind = fields.get(RESERVED)
    rows = kind["rows"].dataType if isinstance(kind, T.StructType) and "rows" in kind.names else None
    if not isinstance(rows, T.StructType):
        raise ArgumentError(
            f"a frame whose results carry no weights; its columns are {', '.join(fields)}",
            accepted="results of approx_join with policy='raj_hash', 'raj' or 'exact', and their column sampling",
            hint="detail=False leaves them out; prob, prob_hash and arrpj keep the rows that promise most, "
            "so nobody knows what they left out",
        )
    return list(rows.names)


def _check_weights(sample: DataFrame) -> None:
    kind = next((field.dataType for field in sample.schema.fields if field.name == RESERVED), None)
    if not isinstance(kind, T.StructType) or "weight" not in kind.names:
        raise ArgumentError(
            "quality of results without weights, and no complete result beside them",
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


def _measures(given: Mapping[str, str]) -> list[_Measure]:
    if not isinstance(given, Mapping) or not given:
        raise ArgumentError(f"measures={given!r}", accepted=f"a mapping from names to {_ACCEPTED}")
    found = []
    for name, text in given.items():
        match = _MEASURE.fullmatch(text) if isinstance(text, str) else None
        if match is None or re.match(r"\s*distinct\b", match[2], re.IGNORECASE):
            raise ArgumentError(f"the measure {name}={text!r}", accepted=_ACCEPTED)
        kind, sql = match[1].lower().replace("mean", "avg"), match[2].strip()
        if sql == "*" and kind != "count":
            raise ArgumentError(f"the measure {name}={text!r}", accepted=_ACCEPTED)
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a measure with the name {name!r}", accepted=f"a mapping from names to {_ACCEPTED}")
        found.append(_Measure(name, kind, sql))
    return found


def _groups(by: object) -> list[str]:
    groups: list[object] = [by] if isinstance(by, str) else list(by) if isinstance(by, Sequence) else [None]
    if any(not isinstance(one, str) or not one.strip() for one in groups):
        raise ArgumentError(f"by={by!r}", accepted="an expression such as 'R.region', or a list of them")
    return [str(one) for one in groups]


def _group_names(sample: DataFrame, groups: Sequence[str]) -> list[str]:
    try:
        return sample.select(*[F.expr(sql) for sql in groups]).columns
    except (AnalysisException, ArithmeticException) as error:
        raise _complaint("by", error) from error


def _complaint(what: str, error: PySparkException) -> PredicateError:
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return PredicateError(
        f"Spark cannot evaluate {what}", accepted="expressions of Spark SQL over the columns of the sample", hint=line
    )


def _flat(sample: DataFrame, measures: Sequence[_Measure], groups: Sequence[str], aliases: Sequence[str]) -> DataFrame:
    columns: list[Column] = [F.expr(sql).alias(f"b{at}") for at, sql in enumerate(groups)]
    for at, measure in enumerate(measures):
        value = F.lit(1.0) if measure.sql == "*" else F.expr(measure.sql)
        there = value.isNotNull()
        one = F.when(there, F.lit(1.0)).otherwise(F.lit(0.0))
        columns.append(
            (one if measure.kind == "count" else F.coalesce(value.cast("double"), F.lit(0.0))).alias(f"v{at}")
        )
        columns.append(one.alias(f"n{at}"))
    columns += [F.col(f"{RESERVED}.{name}") for name in ("cell", "at", "weight", "stratum", "value")]
    for at, alias in enumerate(aliases):
        columns += [F.col(f"{RESERVED}.rows.`{alias}`.{what}").alias(f"{what}{at}") for what in FACTS]
    try:
        flat = sample.select(*columns)
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
        values = np.stack([table.column(f"{what}{at}").to_numpy() for at in range(measures) for what in "vn"])
        totals, covariances = moments(values, sampled)
        out: dict[str, Any] = {key: table.column(key).slice(0, 1) for key in keys}
        for at in range(measures):
            v, n = 2 * at, 2 * at + 1
            numbers = (totals[v], totals[n], covariances[v, v], covariances[v, n], covariances[n, n])
            out.update({f"{name}{at}": [float(number)] for name, number in zip(_SUMS, numbers, strict=True)})
        return pa.table({**out, "rows": [table.num_rows]})

    run.__annotations__ = {"table": pa.Table, "return": pa.Table}
    return flat.groupBy(*keys, "cell").applyInArrow(run, schema)


def _figure(measure: _Measure, at: int, reach: float) -> Column:
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


def quality_frame(sample: DataFrame, complete: DataFrame | None, on: str, over: str | None) -> DataFrame:
    """The lazy frame of :func:`dovetail.quality`."""
    check_frame("sample", sample)
    if complete is not None:
        check_frame("complete", complete)
    check_value("on", on, sample)
    if complete is not None:
        check_value("on", on, complete)
    if over is not None:
        check_value("over", over, sample)
    if complete is None:
        _check_weights(sample)
        whole = sample.groupBy(F.expr(on).alias("v")).agg(F.sum(f"{RESERVED}.weight").alias("c"))
    else:
        whole = complete.groupBy(F.expr(on).alias("v")).agg(F.count(F.lit(1)).cast("double").alias("c"))
    moment = F.lit(0) if over is None else F.expr(over)
    found = sample.groupBy(moment.alias("moment"), F.expr(on).alias("v")).agg(F.count(F.lit(1)).alias("n"))
    moments_seen = found.select(F.col("moment").alias("m")).distinct()
    # All results up to a moment: the counts of every earlier one, added up.
    upto = found.join(moments_seen, F.col("moment") <= F.col("m")).groupBy("m", "v").agg(F.sum("n").alias("n"))
    everything = moments_seen.crossJoin(whole.withColumnRenamed("v", "w"))
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

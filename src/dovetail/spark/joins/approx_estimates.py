"""Estimates and quality of sampled joins as Spark frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.layout import MIXED, MOMENT, SAMPLE_CELL, STRATUM, WEIGHT, columns_of
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, PredicateError
from dovetail.families.approx.estimate import Sampled
from dovetail.families.approx.intervals import SUMS, Figures, cell_sums, figures
from dovetail.families.approx.spec import FACTS, RETURNED, fact_column
from dovetail.plan.approx import RESERVED
from dovetail.plan.estimates import EstimatesPlan, Measure
from dovetail.spark.routing import arrow_function

_GROUP, _TOTAL, _COUNT = "b", "v", "n"
"""Prefixes of the flat columns: groups, and for each measure its value and whether there is one."""
_FIGURE = T.StructType([T.StructField(name, T.DoubleType()) for name in ("estimate", "error", "low", "high")])


def estimates_frame(frame: DataFrame, plan: EstimatesPlan) -> DataFrame:
    """The lazy frame of :func:`dovetail.estimates`."""
    aliases = _aliases(frame)
    flat = _flat(frame, plan, aliases)
    names = _group_names(frame, plan.groups)
    keys = columns_of(_GROUP, len(plan.groups))
    per_cell = _per_cell(flat, keys, len(plan.measures), len(aliases))
    sums = [F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in _sum_names(len(plan.measures))]
    total = per_cell.groupBy(*keys).agg(*sums) if keys else per_cell.agg(*sums)
    values = columns_of(_TOTAL, len(plan.measures))
    schema = T.StructType([*[flat.schema[key] for key in keys], *[T.StructField(name, _FIGURE) for name in values]])
    stage = FigureStage(tuple(keys), plan.measures, plan.confidence)
    found = total.mapInArrow(arrow_function(stage), schema)
    outer = [*names, *[measure.name for measure in plan.measures]]
    return found.select(*[F.col(inner).alias(name) for inner, name in zip([*keys, *values], outer, strict=True)])


def _aliases(frame: DataFrame) -> list[str]:
    """The inputs of a sampled join, read off its column ``sampling``."""
    fields = {field.name: field.dataType for field in frame.schema.fields}
    kind = fields.get(RESERVED)
    rows = kind["rows"].dataType if isinstance(kind, T.StructType) and "rows" in kind.names else None
    if isinstance(rows, T.StructType) and set(FACTS) - set(rows.fields[0].dataType.fieldNames()):  # type: ignore[attr-defined]
        raise ArgumentError(
            "results that an older version of Dovetail stored",
            accepted="results of this version: they say how many rows had arrived, which the intervals need",
            hint="totals need no intervals: sum the weights, sum(sampling.weight * value)",
        )
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
    columns += [F.col(f"{RESERVED}.{name}") for name in (SAMPLE_CELL, MOMENT, WEIGHT, STRATUM, MIXED)]
    for side, alias in enumerate(aliases):
        columns += [F.col(f"{RESERVED}.rows.{quoted(alias)}.{fact}").alias(fact_column(fact, side)) for fact in FACTS]
    bounded = set(RETURNED) <= set(frame.schema[RESERVED].dataType.fieldNames())  # type: ignore[attr-defined]
    columns += [F.col(f"{RESERVED}.{name}") for name in RETURNED if bounded]
    try:
        flat = frame.select(*columns)
        flat.columns  # noqa: B018 - analysed here, so that a mistake shows here
    except (AnalysisException, ArithmeticException) as error:
        raise _complaint("a measure or a group", error) from error
    return flat


def _sum_names(measures: int) -> list[str]:
    return [f"{name}{at}" for at in range(measures) for name in SUMS]


def _per_cell(flat: DataFrame, keys: list[str], measures: int, sides: int) -> DataFrame:
    """Totals and covariances of every group in every cell; cells are independent, so both add up."""
    names = _sum_names(measures)
    schema = T.StructType([flat.schema[key] for key in keys] + [T.StructField(name, T.DoubleType()) for name in names])

    def run(table: pa.Table) -> pa.Table:
        sampled = Sampled.of(table, sides)
        values = np.stack(
            [table.column(f"{prefix}{at}").to_numpy() for at in range(measures) for prefix in (_TOTAL, _COUNT)]
        )
        out: dict[str, Any] = {key: table.column(key).slice(0, 1) for key in keys}
        for at, sums in enumerate(cell_sums(values, sampled)):
            out.update({f"{name}{at}": [number] for name, number in sums.items()})
        return pa.table(out)

    run.__annotations__ = {"table": pa.Table, "return": pa.Table}
    return flat.groupBy(*keys, SAMPLE_CELL).applyInArrow(run, schema)


@dataclass(frozen=True)
class FigureStage:
    """Sums in, one row for each group; the groups and a struct for each measure out."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    confidence: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        for batch in batches:
            columns = [batch.column(key) for key in self.keys]
            for at, measure in enumerate(self.measures):
                sums = {name: batch.column(f"{name}{at}").to_numpy() for name in SUMS}
                columns.append(_struct(figures(measure.kind, sums, self.confidence, rows=measure.sql == "*")))
            names = [*self.keys, *columns_of(_TOTAL, len(self.measures))]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _struct(found: Figures) -> pa.StructArray:
    parts = (found.estimate, found.error, found.low, found.high)
    return pa.StructArray.from_arrays([pa.array(part, from_pandas=True) for part in parts], names=list(_FIGURE.names))


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
    # Without moments there is one answer, even if there is no result.
    instants = counts.select(F.col("moment").alias("m")).distinct() if over else counts.agg(F.lit(0).alias("m"))
    # All results up to a moment: the counts of every earlier one, added up.
    upto = counts.join(instants, F.col("moment") <= F.col("m")).groupBy("m", "v").agg(F.sum("n").alias("n"))
    everything = instants.join(expected.withColumnRenamed("v", "w"), F.lit(True), "left")
    both = everything.alias("e").join(
        upto.alias("u"), (F.col("e.m") == F.col("u.m")) & F.col("e.w").eqNullSafe(F.col("u.v")), "left"
    )
    counted = both.select(
        F.col("e.m").alias("moment"), F.col("c"), F.coalesce(F.col("n"), F.lit(0)).cast("double").alias("n")
    )
    complete_rows = F.coalesce(F.sum("c"), F.lit(0.0))
    sizes = counted.groupBy("moment").agg(F.sum("n").alias("results"), complete_rows.alias("complete"))
    shares = counted.join(sizes, "moment").select(
        "moment",
        "results",
        "complete",
        (F.col("c") / F.nullif("complete", F.lit(0.0))).alias("p"),
        (F.col("n") / F.nullif("results", F.lit(0.0))).alias("q"),
    )
    p, q = F.col("p"), F.col("q")

    def half(x: Column) -> Column:
        return F.when(x > 0, x * F.log(2 * x / (p + q))).when(x == 0, F.lit(0.0))

    measured = shares.groupBy("moment").agg(
        F.first("results").cast("long").alias("results"),
        F.first("complete").alias("complete"),
        (F.first("results") / F.nullif(F.first("complete"), F.lit(0.0))).alias("share"),
        F.sum((p - q) * (p - q)).alias("mse"),
        (F.sum(half(p) + half(q)) / 2).alias("js"),
    )
    return measured.drop("moment") if over is None else measured.orderBy("moment")

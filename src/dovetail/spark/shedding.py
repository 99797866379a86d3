"""Metrics of joins that shed load: what was shed, and how much of the exact join came out."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from dovetail.families.shedding.kernel import MILLION, TOTALS, shed_metrics, slice_metrics
from dovetail.families.shedding.recall import CRITICAL
from dovetail.families.shedding.slices import Slices
from dovetail.families.window.kernel import metric_names
from dovetail.spark.metrics import named_sums


def shed_sums(aliases: Sequence[str], slices: Slices, *, harvesting: bool) -> list[Column]:
    """One aggregate for each metric, of the array ``m`` that cells fill in the order of `shed_metrics`.

    Sums for counts; for the throttle and the slices looked at the mean over cells; for the recall an estimate and
    its interval (:func:`dovetail.families.shedding.recall.recall_interval`, as an expression).
    """
    names = shed_metrics(aliases, slices)
    sums = dict(zip(names, named_sums(names), strict=True))
    kept = [sums[name] for name in (*metric_names(aliases), *TOTALS[1:], "missed")]
    kept += [_mean(names.index("throttle")).alias("throttle"), *_recall(names)]
    if harvesting:
        for (i, side), slots in slice_metrics(aliases, slices).items():
            shares = [_mean(names.index(name)) for name in slots]
            kept.append(F.array(*shares).alias(f"harvest_{aliases[i]}_{aliases[side]}"))
    return kept


def _mean(at: int) -> Column:
    return F.coalesce(F.avg(F.col("m")[at]) / MILLION, F.lit(1.0))


def _recall(names: Sequence[str]) -> list[Column]:
    def total(name: str) -> Column:
        return F.coalesce(F.sum(F.col("m")[names.index(name)]), F.lit(0)).cast("double")

    found, missed, variance = total("candidates"), total("missed"), total("missed_variance")
    event = F.coalesce(F.max(F.col("m")[names.index("missed_event")]), F.lit(0)).cast("double")
    event = F.greatest(event, F.when(missed > 0, variance / missed).otherwise(F.lit(0.0)))
    count = F.when(event > 0, missed / event).otherwise(F.lit(0.0))
    middle, half = count + CRITICAL**2 / 2, CRITICAL * F.sqrt(count + CRITICAL**2 / 4)
    low = F.greatest(F.lit(0.0), event * (middle - half))
    high = event * (middle + half)

    def recall(missing: Column) -> Column:
        return F.when(found > 0, found / (found + missing))

    nothing = F.when(event > 0, F.lit(0.0)).otherwise(F.lit(1.0))
    return [
        F.coalesce(recall(missed), F.lit(1.0)).alias("recall"),
        F.coalesce(recall(high), nothing).alias("recall_low"),
        F.coalesce(recall(low), F.lit(1.0)).alias("recall_high"),
    ]

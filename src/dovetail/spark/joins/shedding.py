"""Metrics of joins that shed load: what was shed, and how much of the exact join came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from dovetail.columns.layout import COUNTERS
from dovetail.families.shedding.recall import CRITICAL
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.stream import MILLION, TOTALS, shed_metrics, slice_metrics
from dovetail.families.window.stream import metric_names
from dovetail.spark.counters import named_sums


def shed_sums(aliases: Sequence[str], slices: Slices, *, harvesting: bool) -> list[Column]:
    """One aggregate for each metric, of the array ``m`` that cells fill in the order of `shed_metrics`.

    Sums for counts; for the throttle and the slices looked at the mean over cells; for the recall an estimate and
    its interval (:func:`dovetail.families.shedding.recall.recall_interval`, as an expression).
    """
    names = shed_metrics(aliases, slices)
    sums = dict(zip(names, named_sums(names), strict=True))
    kept = [sums[name] for name in (*metric_names(aliases), *TOTALS[1:], "missed")]
    kept.append(_mean(names.index("throttle")).alias("throttle"))
    kept += [end.alias(name) for name, end in zip(("recall", "recall_low", "recall_high"), _recall(names), strict=True)]
    if harvesting:
        for (i, side), slots in slice_metrics(aliases, slices).items():
            kept.append(_means(names.index(slots[0]), len(slots)).alias(f"harvest_{aliases[i]}_{aliases[side]}"))
    return kept


def _mean(at: int) -> Column:
    return F.coalesce(F.avg(F.col(COUNTERS)[at]) / MILLION, F.lit(1.0))


def _means(first: int, count: int) -> Column:
    """The means of neighbouring counters: one aggregate for all, since each of its own takes Spark time to plan."""
    cells = F.collect_list(COUNTERS)
    none = F.array_repeat(F.lit(0.0), count)
    sums = F.aggregate(
        cells, none, lambda total, cell: F.zip_with(total, F.slice(cell, first + 1, count), lambda a, b: a + b)
    )
    means = F.transform(sums, lambda total: total / (F.size(cells) * MILLION))
    return F.when(F.size(cells) > 0, means).otherwise(F.array_repeat(F.lit(1.0), count))


def _recall(names: Sequence[str]) -> list[Column]:
    def total(name: str) -> Column:
        return F.coalesce(F.sum(F.col(COUNTERS)[names.index(name)]), F.lit(0)).cast("double").alias(name)

    event = (
        F.coalesce(F.max(F.col(COUNTERS)[names.index("missed_event")]), F.lit(0)).cast("double").alias("missed_event")
    )
    sums = F.struct(total("candidates"), total("missed"), total("missed_variance"), event.alias("missed_event"))
    return [
        _let(sums, lambda s: F.when(s.candidates > 0, s.candidates / (s.candidates + s.missed)).otherwise(1.0)),
        _let(sums, lambda s: _bound(s, 1)),
        _let(sums, lambda s: _bound(s, -1)),
    ]


def _bound(sums: Column, sign: int) -> Column:
    """One end of the interval of the recall: the more was missed, the lower it is."""
    spread = F.when(sums.missed > 0, sums.missed_variance / sums.missed).otherwise(0.0)
    event = F.greatest(sums.missed_event, spread)

    def recall(event: Column) -> Column:
        count = F.when(event > 0, sums.missed / event).otherwise(0.0)
        missed = event * (count + CRITICAL**2 / 2 + sign * CRITICAL * F.sqrt(count + CRITICAL**2 / 4))
        estimate = sums.candidates / (sums.candidates + F.greatest(F.lit(0.0), missed))
        nothing = F.when(event > 0, 0.0).otherwise(1.0) if sign > 0 else F.lit(1.0)
        return F.when(sums.candidates > 0, estimate).otherwise(nothing)

    return _let(event, recall)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """An expression of a value that Spark plans and computes once, however often the expression names it."""
    return F.transform(F.array(value), body)[0]

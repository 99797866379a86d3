"""Joins that shed load: the results of a scout, where Spark judges pairs, and metrics of what was shed and came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.layout import CELL, COUNTERS, WEIGHT, input_payload
from dovetail.families.shedding.recall import CRITICAL
from dovetail.families.shedding.scout import SCOUTING, ScoutKernel, ScoutRouter, told_columns
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest, Shed
from dovetail.families.shedding.stream import (
    MILLION,
    TOTALS,
    HarvestKernel,
    SheddingKernel,
    shed_metrics,
    slice_metrics,
)
from dovetail.families.shedding.stream_drop import DropKernel
from dovetail.families.shedding.stream_judged import (
    RESULTS,
    JudgedHarvestKernel,
    UndecidedDropKernel,
    UndecidedHarvestKernel,
    judged_metrics,
)
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.stream import metric_names
from dovetail.inventory import StateLayout
from dovetail.plan.window_plan import WindowPlan
from dovetail.spark.counters import fullest, named_sums
from dovetail.spark.frames import Side, conjunction, with_structs
from dovetail.spark.metrics import Recorder
from dovetail.spark.routing import arrow_function
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel


def shedding_kernel(plan: WindowPlan, shed: Shed) -> Callable[[], SheddingKernel]:
    """The kernel of a join that sheds."""
    kind: type[SheddingKernel]
    if isinstance(shed, Harvest):
        kind = UndecidedHarvestKernel if plan.verdicts else JudgedHarvestKernel if plan.rests else HarvestKernel
    else:
        kind = UndecidedDropKernel if plan.verdicts else DropKernel
    return partial(kind, plan.spec, shed=shed, slices=plan.slices)


def scout_router(plan: WindowPlan, shed: Harvest, side: int) -> ScoutRouter:
    """Where the sample of one input goes."""
    return ScoutRouter(_scouted(plan.spec), side, sample=shed.sample_fraction, seed=shed.seed)


def scouted_results(
    packed: list[DataFrame],
    plan: WindowPlan,
    shed: Harvest,
    sides: Mapping[str, Side],
    join: Mapping[str, str],
    recorder: Recorder,
    layout: StateLayout,
) -> DataFrame:
    """Results of a sample, packed for the harvest as if they were one more input.

    Spark judges pairs on their way to the operator that harvests, in the same micro-batch.  The inputs are read once
    more for it: were rows to pass through the scout instead, they would pass by Spark's condition, too, and a Python
    function is called for every row there is, also for those that are no pair.
    """
    spec = plan.spec
    told = [T.StructField(name, T.DoubleType() if name == WEIGHT else T.LongType()) for name, _ in told_columns(spec)]
    payload = [
        T.StructField(f"{input_payload(side)}{at}", field.dataType)
        for side, alias in enumerate(spec.aliases)
        for at, (_, field) in enumerate(sides[alias].payload)
    ]
    kernel = partial(ScoutKernel, _scouted(spec), shed=shed)
    pairs = run_kernel(packed, kernel, recorder, [*payload, *told], join, layout=layout)
    structs = [one for at, alias in enumerate(plan.inputs) for one in sides[alias].structs(input_payload(at))]
    both = with_structs(pairs, structs, "#told", [field.name for field in told])
    results = both.filter(conjunction(plan.judged)).select("#told.*")
    pack = PackRows(len(plan.inputs), cells=cell_of)
    return results.mapInArrow(arrow_function(pack), PACKED_ROWS)


def scout_recorder(plan: WindowPlan) -> Recorder:
    """Takes the counters of a scout."""
    return Recorder(f"scout({','.join(plan.inputs)})", plan.partitions, streaming=True, names=SCOUTING)


def cell_of(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The cells that pairs come from, in which more is decided about them."""
    cells: npt.NDArray[np.int64] = rows.column(CELL).to_numpy()
    return cells


def _scouted(spec: WindowJoinSpec) -> WindowJoinSpec:
    """The join that a scout samples: its pairs, whatever is made of them."""
    return replace(spec, options=replace(spec.options, how="inner"))


def shed_names(plan: WindowPlan, slices: Slices) -> tuple[str, ...]:
    """The counters of a cell."""
    return (judged_metrics if plan.scouted else shed_metrics)(plan.inputs, slices)


def shed_sums(aliases: Sequence[str], slices: Slices, *, harvesting: bool, judged: bool = False) -> list[Column]:
    """One aggregate for each metric, of the array that cells fill in the order of `shed_metrics`.

    Sums for counts; for the throttle and the slices looked at the mean over cells; for the recall an estimate and
    its interval (:func:`dovetail.families.shedding.recall.recall_interval`, as an expression).
    """
    names = (judged_metrics if judged else shed_metrics)(aliases, slices)
    sums = dict(zip(names, named_sums(names), strict=True))
    kept = [sums[name] for name in (*metric_names(aliases), *TOTALS[1:], "missed")]
    kept += [*fullest(names), *([sums[RESULTS]] if judged else [])]
    kept.append(_mean(names.index("throttle")).alias("throttle"))
    ends = _recall(names, RESULTS if judged else "candidates")
    kept += [end.alias(name) for name, end in zip(("recall", "recall_low", "recall_high"), ends, strict=True)]
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


def _recall(names: Sequence[str], found: str) -> list[Column]:
    def total(name: str) -> Column:
        return F.coalesce(F.sum(F.col(COUNTERS)[names.index(name)]), F.lit(0)).cast("double").alias(name)

    event = (
        F.coalesce(F.max(F.col(COUNTERS)[names.index("missed_event")]), F.lit(0)).cast("double").alias("missed_event")
    )
    sums = F.struct(total(found).alias("found"), total("missed"), total("missed_variance"), event.alias("missed_event"))
    return [
        _let(sums, lambda s: F.when(s.found > 0, s.found / (s.found + s.missed)).otherwise(1.0)),
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
        estimate = sums.found / (sums.found + F.greatest(F.lit(0.0), missed))
        nothing = F.when(event > 0, 0.0).otherwise(1.0) if sign > 0 else F.lit(1.0)
        return F.when(sums.found > 0, estimate).otherwise(nothing)

    return _let(event, recall)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """An expression of a value that Spark plans and computes once, however often the expression names it."""
    return F.transform(F.array(value), body)[0]

"""Best-match joins as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from dovetail.columns.layout import (
    CHANGE,
    GROUP,
    HAS_ROW,
    INSTANT,
    KEY,
    KEY_HASH,
    LEFT_ROW,
    OWNED,
    RIGHT_ROW,
    VALUE,
    columns_of,
    input_payload,
)
from dovetail.families.bestmatch import inventory
from dovetail.families.bestmatch.outputs import METRICS, key_prefix, output_names
from dovetail.families.bestmatch.router import cut_axes, static_routing
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.stages import FinishStage, FitStage, RouteStage
from dovetail.families.bestmatch.stream import BestKernel
from dovetail.families.bestmatch.stream_recent import RecentKernel
from dovetail.family import StreamKernel
from dovetail.plan.bestmatch import BestPlan
from dovetail.spark.carriers import arrowed, carried_fields, restored
from dovetail.spark.cells import SPLIT_METRICS
from dovetail.spark.frames import Side, identity, with_structs
from dovetail.spark.keys import hash_column, key_columns
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function, fitted, sampled
from dovetail.spark.stream import PACKED_ROWS, run_kernel


def best_frame(frames: Mapping[str, DataFrame], plan: BestPlan) -> DataFrame:
    """The lazy frame of a plan, one struct column per alias."""
    sides = [Side.of(alias, frame) for alias, frame in frames.items()]
    spec = plan.spec
    flat = [_flat(side, plan, at) for at, side in enumerate(sides)]
    streaming = bool(plan.streams)
    blind = static_routing(spec, plan.cells, numbered=not streaming).to_buffer().to_pybytes()
    routing = _routing(flat, plan, blind) if plan.sampled else None
    packed = []
    for at, frame in enumerate(flat):
        stage = RouteStage(
            spec, at, spec.payload[at] + len(plan.keys[at]), blind if routing is None else None, _task_number
        )
        sent = frame if routing is None else frame.select("*", routing)
        packed.append(sent.mapInArrow(arrow_function(stage), PACKED_ROWS))
    make: Callable[[], StreamKernel] = partial(RecentKernel if spec.max_age is not None else BestKernel, spec)
    handle = Handle(plan)
    names = METRICS if streaming else METRICS + SPLIT_METRICS
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", plan.partitions, streaming=streaming, names=names)
    handle.recorders.append(recorder)
    event_time = spec.disorder == "watermark" or spec.max_age is not None
    fields = _fields(spec, sides, flat)
    join = identity(frames, plan.identity())
    layout = inventory.layout(spec, plan.inputs, [frame.columns for frame in frames.values()])
    rows = run_kernel(
        packed, make, recorder, fields, join, event_time=event_time, partitions=plan.partitions, layout=layout
    )
    return attach(_finished(recorder, rows, sides, plan), handle)


def _task_number() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _flat(side: Side, plan: BestPlan, at: int) -> DataFrame:
    """Payload, keys, and the hash of the equality keys if there are any."""
    columns = side.payload_columns()
    columns += key_columns(plan.keys[at])
    if plan.by:
        columns.append(hash_column([pair[at] for pair in plan.by]))
    return side.frame.selectExpr(*columns)


def _routing(flat: list[DataFrame], plan: BestPlan, blind: bytes) -> Column:
    """Cells cut at quantiles of a sample; without a key or a maximum distance only the number of rows counts."""
    first = len(plan.spec.by)
    names = [*[f"{KEY}{first + at}" for at in cut_axes(plan.spec)], *([KEY_HASH] if plan.by else [])]
    sample = sampled([(frame, names) for frame in flat])
    return fitted(sample, FitStage(plan.spec, plan.partitions), blind)


def _finished(recorder: Recorder, rows: DataFrame, sides: list[Side], plan: BestPlan) -> DataFrame:
    """The results of the cells as the user's rows."""
    spec = plan.spec
    if plan.values:
        rows = _evaluated(rows, sides, plan)
    if spec.wide and (spec.global_best or not plan.values):
        # The best pairs of every cell are few, and one task finds the best of all.
        finish = FinishStage(spec, grouped=False)
        rows = _through(rows.repartition(1), finish)
    if spec.wide:
        rows = recorder.finished(rows)
    columns: list[str] = []
    for at, side in enumerate(sides):
        columns += side.structs(input_payload(at), present=f"{HAS_ROW}{at}" if spec.keep else None)
    extra = [name for name in (CHANGE, INSTANT) if name in rows.columns]
    return rows.selectExpr(*columns, *extra)


def _evaluated(rows: DataFrame, sides: list[Side], plan: BestPlan) -> DataFrame:
    """Candidates with the values that Spark computes, and of them the best of each task."""
    structs: list[str] = []
    for at, side in enumerate(sides):
        structs += side.structs(input_payload(at))
    both = with_structs(rows, structs, "#candidate")
    values = [f"{sql} AS {VALUE}{number}" for number, sql in enumerate(plan.values)]
    evaluated = both.selectExpr("`#candidate`.*", *values)
    finish = FinishStage(plan.spec, grouped=not plan.spec.global_best)
    return _through(evaluated, finish)


def _through(rows: DataFrame, finish: FinishStage) -> DataFrame:
    """The rows that a stage leaves of others."""
    fields = rows.schema.fields
    left = arrowed(rows, fields).mapInArrow(arrow_function(finish), T.StructType(carried_fields(fields)))
    return restored(left, fields)


def _fields(spec: BestSpec, sides: list[Side], flat: list[DataFrame]) -> list[T.StructField]:
    """What leaves the kernel, with Spark's types."""
    kinds: dict[str, T.DataType] = {
        **dict.fromkeys(columns_of(HAS_ROW, 2), T.BooleanType()), OWNED: T.BooleanType(), CHANGE: T.StringType(),
        INSTANT: T.TimestampType(), GROUP: T.LongType(), LEFT_ROW: T.LongType(), RIGHT_ROW: T.LongType(),
    }  # fmt: skip
    for at, side in enumerate(sides):
        kinds |= {f"{input_payload(at)}{number}": field.dataType for number, (_, field) in enumerate(side.payload)}
        kinds |= {f"{key_prefix(at)}{n}": flat[at].schema[f"{KEY}{n}"].dataType for n in range(spec.keys)}
    return [T.StructField(name, kinds[name]) for name in output_names(spec)]

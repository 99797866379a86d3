"""Best-match joins as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.families.bestmatch.matwin import METRICS, BestKernel, output_names
from dovetail.families.bestmatch.recent import RecentKernel
from dovetail.families.bestmatch.router import cut_axes, static_routing
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.stages import FinishStage, FitStage, RouteStage
from dovetail.plan.bestmatch import BestPlan
from dovetail.segments import unpack
from dovetail.spark.batch import arrow_function, first_row
from dovetail.spark.frames import Side, hash_column, key_columns
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.stream import PACKED, UnpackRows, run_stream
from dovetail.spark.windowed import check_store

SAMPLED = 64
"""One row in so many decides where cells are cut."""


# ---------------------------------------------------------------------------------------------------------


def best_frame(frames: Mapping[str, DataFrame], plan: BestPlan) -> DataFrame:
    """The lazy frame of a plan, one struct column per alias."""
    sides = [Side.of(alias, frame) for alias, frame in frames.items()]
    spec = plan.spec
    flat = [_flat(side, plan, at) for at, side in enumerate(sides)]
    streaming = bool(plan.streams)
    routing, static = None, None
    if plan.sampled:
        routing = _routing(flat, plan)
    else:
        static = static_routing(spec, plan.cells, numbered=not streaming).to_buffer().to_pybytes()
    packed = []
    for at, frame in enumerate(flat):
        stage = RouteStage(spec, at, spec.payload[at] + len(plan.keys[at]), static, _task_number)
        rows = frame if routing is None else frame.select("*", first_row(routing).alias("g"))
        packed.append(rows.mapInArrow(arrow_function(stage), PACKED))
    make: Any = partial(RecentKernel if spec.max_age is not None else BestKernel, spec)
    if streaming:
        check_store(next(iter(frames.values())))
        event_time = spec.disorder == "watermark" or spec.max_age is not None
        found = run_stream(packed, make, METRICS, event_time=event_time)
    else:
        found = _cells(packed, make, plan, _fields(spec, sides, flat))
    handle = Handle(plan)
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", plan.partitions, streaming=streaming, names=METRICS)
    handle.recorders.append(recorder)
    return attach(_finished(recorder, found, sides, flat, plan), handle)


def _arrow_types(fields: list[T.StructField]) -> tuple[pa.DataType, ...]:
    return tuple(to_arrow_type(field.dataType, timezone="UTC") for field in fields)


def _cells(packed: list[DataFrame], make: Any, plan: BestPlan, fields: list[T.StructField]) -> DataFrame:
    """The kernel on static inputs, one cell at a time; rows leave as rows, since nothing has to store them."""
    types = _arrow_types(fields)
    names = [*[field.name for field in fields], "m"]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kernel = make()
        kernel.restore({}, None)
        arrived: list[tuple[int, int, Any]] = []
        for batch in batches:
            places, sides = batch.column("place").to_numpy(), batch.column("side").to_numpy()
            arrived.extend(zip(places.tolist(), sides.tolist(), batch.column("segment"), strict=True))
        for _, side, segment in sorted(arrived, key=lambda one: one[:2]):
            kernel.push(side, unpack(segment.as_buffer()))
        kernel.end()
        for batch in kernel.results():
            columns = [column.cast(kind) for column, kind in zip(batch.columns, types, strict=True)]
            nothing = pa.nulls(batch.num_rows, pa.list_(pa.int64()))
            yield pa.RecordBatch.from_arrays([*columns, nothing], names=names)
        counts = pa.array([[kernel.counters[name] for name in METRICS]], pa.list_(pa.int64()))
        none = [pa.nulls(1, kind) for kind in types]  # type: ignore[call-overload]
        yield pa.RecordBatch.from_arrays([*none, counts], names=names)

    run.__annotations__ = {"batches": Iterator[pa.RecordBatch], "return": Iterator[pa.RecordBatch]}
    schema = T.StructType([*fields, T.StructField("m", T.ArrayType(T.LongType()))])
    together = packed[0].unionByName(packed[1]).repartition(plan.partitions, "cell")
    return together.groupBy("cell").applyInArrow(run, schema)


def _task_number() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _flat(side: Side, plan: BestPlan, at: int) -> DataFrame:
    """Payload, keys, and the hash of the equality keys where there are any."""
    columns: list[Column] = side.payload_columns()
    columns += key_columns(plan.keys[at])
    if plan.by:
        columns.append(hash_column([pair[at] for pair in plan.by]))
    return side.frame.select(*columns)


def _routing(flat: list[DataFrame], plan: BestPlan) -> Column:
    """Cells cut at quantiles of a sample.  Spark draws it, by a hash of the row's number; one task does the rest."""
    first = len(plan.spec.by)
    names = [*[f"k{first + at}" for at in cut_axes(plan.spec)], *(["h"] if plan.by else [])]
    samples = []
    for side, frame in enumerate(flat):
        draw = F.xxhash64(F.monotonically_increasing_id(), F.lit(side)).bitwiseAND(F.lit(SAMPLED - 1)) == 0
        # Without a key or a maximum distance only the number of rows counts.
        samples.append(frame.filter(draw).select(*names) if names else frame.filter(draw).select(F.lit(0).alias("row")))
    fit = FitStage(plan.spec, plan.partitions, 1 / SAMPLED)
    gathered = samples[0].unionByName(samples[1]).repartition(1)
    return gathered.mapInArrow(arrow_function(fit), T.StructType([T.StructField("routing", T.BinaryType())])).scalar()


def _finished(
    recorder: Recorder, found: DataFrame, sides: list[Side], flat: list[DataFrame], plan: BestPlan
) -> DataFrame:
    """Packed results as the user's rows."""
    spec = plan.spec
    rows = recorder.counted(found)
    if plan.streams:
        fields = _fields(spec, sides, flat)
        rows = rows.mapInArrow(arrow_function(UnpackRows(_arrow_types(fields))), T.StructType(fields))
    if plan.values:
        rows = _evaluated(rows, sides, plan)
    if spec.wide and not (plan.values and spec.how != "inner"):
        # The best of every cell are few, and one task tells the best of all.
        finish = FinishStage(spec, grouped=False)
        rows = rows.repartition(1).mapInArrow(arrow_function(finish), rows.schema)
    if spec.wide:
        rows = recorder.finished(rows)
    columns: list[Column] = []
    for at, side in enumerate(sides):
        columns += side.structs(f"i{at}_", present=F.col(f"p{at}") if spec.keep else None)
    extra = [F.col(name) for name in ("_change", "_time") if name in rows.columns]
    return rows.select(*columns, *extra)


def _evaluated(rows: DataFrame, sides: list[Side], plan: BestPlan) -> DataFrame:
    """Candidates with the values that Spark computes, and of them the best of each task."""
    structs: list[Column] = []
    for at, side in enumerate(sides):
        structs += side.structs(f"i{at}_")
    # An alias may be called as our own columns are.  No alias contains a #.
    both = rows.select(*structs, F.struct(*rows.columns).alias("#found"))
    values = [F.expr(sql).alias(f"e{number}") for number, sql in enumerate(plan.values)]
    judged = both.select("#found.*", *values)
    finish = FinishStage(plan.spec, grouped=plan.spec.how != "inner")
    return judged.mapInArrow(arrow_function(finish), judged.schema)


def _fields(spec: BestSpec, sides: list[Side], flat: list[DataFrame]) -> list[T.StructField]:
    """What leaves the kernel, with Spark's types."""
    kinds: dict[str, T.DataType] = {
        "p0": T.BooleanType(), "p1": T.BooleanType(), "o": T.BooleanType(), "_change": T.StringType(),
        "_time": T.TimestampType(), "g": T.LongType(), "i": T.LongType(), "j": T.LongType(),
    }  # fmt: skip
    for at, side in enumerate(sides):
        kinds |= {f"i{at}_{number}": field.dataType for number, (_, field) in enumerate(side.payload)}
        kinds |= {f"k{at}_{number}": flat[at].schema[f"k{number}"].dataType for number in range(spec.keys)}
    return [T.StructField(name, kinds[name]) for name in output_names(spec)]

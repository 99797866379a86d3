"""The batch driver: a theta step as one lazy Spark plan.

    rows -> route -> shuffle by cell -> join -> rows                         one shuffle of packed segments

The routing reaches the workers inside the data.  So nothing runs before the user's action, and the plan works wherever
Spark SQL does, Spark Connect included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.broadcast import PackStage
from dovetail.columns.layout import Source
from dovetail.columns.sampling import DENSE, SPARSE
from dovetail.columns.structs import Nested
from dovetail.families.theta.join_stages import BesideStage, FinishStage, JoinStage, PairStage, TaskLoad
from dovetail.families.theta.router import without_sample
from dovetail.families.theta.stages import BOXES, POINTS, FitStage, RouteStage
from dovetail.plan.theta import ThetaStep
from dovetail.spark.frames import Side, conjunction
from dovetail.spark.keys import hash_column, key_columns, payload_source
from dovetail.spark.metrics import Recorder
from dovetail.spark.routing import SEGMENT, arrow_function, carrying, fitted, handover, sampled

_SEGMENTS = handover(number=T.IntegerType(), cell=T.IntegerType(), side=T.IntegerType(), segment=T.BinaryType())


def join_step(left: Side, right: Side, plan: ThetaStep, recorder: Recorder) -> DataFrame:
    """The joined rows of two sides.  Both inputs come in struct form, and so does the result."""
    if plan.options.how == "full":
        # Every left row with its matches, and the right rows that have none: two passes, because a router that
        # copies one side can vouch only for the unmatched rows of the other.
        outer = _joined(left, right, plan.with_how("left"), recorder)
        lonely = _joined(right, left, plan.mirrored("anti"), recorder)
        rows = outer.unionByName(lonely.select(*left.missing(), "*"))
    else:
        rows = _joined(left, right, plan, recorder)
    return recorder.finished(rows) if plan.rests else rows


def _joined(left: Side, right: Side, plan: ThetaStep, recorder: Recorder) -> DataFrame:
    points, boxes = (right, left) if plan.step.swapped else (left, right)
    counted = _Counted(plan, points, boxes)
    shape = counted.shape([*left.fields, *right.fields])
    found = (_beside if plan.broadcast else _shuffled)(counted, recorder, shape)
    return found if shape and not plan.rests else counted.finished(found, left, right)


class _Counted:
    """The columns that leave a pair stage, and how they become the user's rows."""

    def __init__(self, plan: ThetaStep, points: Side, boxes: Side) -> None:
        self.plan = plan
        self.points = points
        self.boxes = boxes
        self.payload = (len(points.payload), len(boxes.payload))
        self.sources = (self._sources(POINTS), self._sources(BOXES))
        self.candidates = bool(plan.rests) and plan.options.how != "inner"

    def arguments(self) -> dict[str, Any]:
        return {
            "step": self.plan.step,
            "options": self.plan.kernel_options,
            "payload": self.payload,
            "sources": self.sources,
            "candidates": self.candidates,
            "point_types": self.points.arrow_types(),
            "box_types": self.boxes.arrow_types(),
        }

    def schema(self, stage: PairStage) -> T.StructType:
        fields = self._fields("c", POINTS)
        if stage.lists_pairs:
            fields += self._fields("d", BOXES)
            if self.plan.kernel_options.how == "left" or self.candidates:
                fields.append(T.StructField("b", T.BooleanType()))
        if self.candidates:
            fields += [T.StructField("n", T.IntegerType()), T.StructField("r", T.LongType())]
        return T.StructType([*fields, T.StructField("m", T.ArrayType(T.LongType()))])

    def _fields(self, prefix: str, side: int) -> list[T.StructField]:
        payload = (self.points, self.boxes)[side].payload
        # Rows that stay alone have NULL for the other side.  In an inner join NULL matches nothing, so what is compared
        # has none.
        inner = self.plan.kernel_options.how == "inner" and not self.candidates
        compared = {source.column for source in self.sources[side] if source is not None}
        return [
            T.StructField(f"{prefix}{at}", field.dataType, not inner or (field.nullable and at not in compared))
            for at, (_, field) in enumerate(payload)
        ]

    def _sources(self, side: int) -> tuple[Source | None, ...]:
        """Which keys are in the payload already; a filter that hides keys makes them columns of their own."""
        step = self.plan.step
        keys, of = (step.point_keys, self.points) if side == POINTS else (step.box_keys, self.boxes)
        if self._filter(side):
            return (None,) * len(keys)
        return tuple(payload_source(of, key) for key in keys)

    def _filter(self, side: int) -> str | None:
        return self.plan.point_filter if side == POINTS else self.plan.mirror_filter

    def keys(self, side: int, prefix: str = "k") -> list[Column]:
        """All key columns and the hash; a filter that must not drop rows hides their keys instead."""
        step = self.plan.step
        keys = step.point_keys if side == POINTS else step.box_keys
        columns = key_columns(keys, prefix, only=self._filter(side))
        if step.equalities:
            columns.append(hash_column(keys[: len(step.equalities)], f"{prefix}{len(keys)}"))
        return columns

    def flat(self, side: int, routing: Column | None = None) -> DataFrame:
        """The payload, the keys that are not in it, and the hash; then what the first row of a task carries."""
        of = self.points if side == POINTS else self.boxes
        every = self.keys(side)
        travelling = [key for key, source in zip(every, self.sources[side], strict=False) if source is None]
        columns = [*of.payload_columns(), *travelling, *every[len(self.sources[side]) :]]
        return carrying(of.frame, columns, routing)

    def shape(self, order: list[str]) -> list[Nested] | None:
        """The structs that leave a pair stage, in the order of the aliases; None while Spark has to judge pairs."""
        how = self.plan.kernel_options.how
        if self.candidates:
            return None
        shapes = self.points.shape("c")
        if how in ("inner", "left"):
            shapes += self.boxes.shape("d", present="b" if how == "left" else None)
        return sorted(shapes, key=lambda one: order.index(one.name))

    def finished(self, found: DataFrame, left: Side, right: Side) -> DataFrame:
        """The rows for which the conditions hold that only Spark can evaluate."""
        how = self.plan.kernel_options.how
        verdict = conjunction(self.plan.rests)
        if not self.candidates:
            return found.filter(verdict)
        columns = [*self.points.structs("c"), *self.boxes.structs("d", present=F.col("b"))]
        # An alias may be called c0 or R, as our own columns are.  No alias contains a #.
        both = found.select(*columns, F.struct(*found.columns).alias("#found"))
        keep = F.coalesce(F.when(F.col("#found.b"), verdict), F.lit(False))
        judged = both.select("#found.*", keep.alias("keep"))
        finish = FinishStage(how, self.payload[POINTS], self.payload[BOXES])
        wanted = self.payload[POINTS] + (self.payload[BOXES] + 1 if how == "left" else 0)
        schema = self.schema(JoinStage(**self.arguments()))
        rows = judged.mapInArrow(arrow_function(finish), T.StructType(schema.fields[:wanted]))
        columns = self.points.structs("c")
        if how != "left":
            return rows.select(*columns)
        return rows.select(*columns, *self.boxes.structs("d", present=F.col("b"))).select(*left.fields, *right.fields)


def _shuffled(counted: _Counted, recorder: Recorder, shape: list[Nested] | None) -> DataFrame:
    plan = counted.plan
    arguments: dict[str, Any] = {
        "step": plan.step,
        "options": plan.kernel_options,
        "payload": counted.payload,
        "sources": counted.sources,
    }
    partitions = plan.shuffle_partitions
    blind = without_sample(plan.step, partitions).to_buffer().to_pybytes()
    routing = _routing(counted, blind) if plan.sampled else None
    segments = []
    for side in (POINTS, BOXES):
        stage = RouteStage(**arguments, side=side, routing=blind if routing is None else None)
        segments.append(counted.flat(side, routing).mapInArrow(arrow_function(stage), _SEGMENTS))
    join = JoinStage(**counted.arguments())
    dealt = segments[POINTS].unionByName(segments[BOXES]).repartition(partitions, "number")
    # Points before boxes: a cell keeps its points and lets its boxes pass by.
    in_turn = dealt.sortWithinPartitions("number", "side")

    def of_cell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join.run(batches, _task_load())

    return recorder.run(in_turn, of_cell, counted.schema(join), by="number", shape=shape)


def _routing(counted: _Counted, blind: bytes) -> Column:
    plan = counted.plan
    # The paper's algorithms look at every value.
    everything = plan.kernel_options.algorithm != "auto"
    fit = FitStage(
        step=plan.step,
        options=plan.kernel_options,
        payload=counted.payload,
        partitions=plan.shuffle_partitions,
        widths=(counted.points.width(), counted.boxes.width()),
        fractions=(1.0, 1.0) if everything else (1 / DENSE, 1 / SPARSE),
    )
    samples = []
    for side, of in ((POINTS, counted.points), (BOXES, counted.boxes)):
        # The union lists the columns of the points, then those that only the boxes have: the stage expects that order.
        columns = [F.expr(f"{side} AS side"), *counted.keys(side, "pb"[side])]
        samples.append(sampled(of.frame, columns, side=side, everything=everything))
    return fitted(samples, fit, blind)


def _beside(counted: _Counted, recorder: Recorder, shape: list[Nested] | None) -> DataFrame:
    whole = counted.flat(BOXES).coalesce(1).mapInArrow(arrow_function(PackStage()), SEGMENT).scalar()
    stage = BesideStage(**counted.arguments(), packed=recorder.streaming)
    if recorder.streaming:
        blocks = counted.flat(POINTS).mapInArrow(arrow_function(PackStage(whole=False)), SEGMENT)
        points = blocks.select("segment", whole.alias("g"))
    else:
        points = counted.flat(POINTS, F.array(whole))
    return recorder.run(points, stage, counted.schema(stage), shape=shape)


_loads: dict[int, TaskLoad] = {}


def _task_load() -> TaskLoad:
    """The running totals of the current task; those of earlier tasks of this worker are dropped."""
    context = TaskContext.get()
    task = context.taskAttemptId() if context is not None else -1
    if task not in _loads:
        _loads.clear()
        _loads[task] = TaskLoad()
    return _loads[task]

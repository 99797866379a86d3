"""A theta plan as a Spark frame: the steps one after the other, with their counters observed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.layout import (
    BOX_PAYLOAD,
    CELL,
    COUNTERS,
    HAS_MATCH,
    KEY,
    PAYLOADS,
    POINT_PAYLOAD,
    ROW,
    SAMPLED_KEYS,
    SIDE,
    VERDICT,
    Source,
)
from dovetail.columns.sampling import DENSE, SPARSE
from dovetail.columns.structs import Nested
from dovetail.conditions.comparison import Key
from dovetail.conditions.forms import Band, Equality, Inequality, Predicate, Rest, Term
from dovetail.conditions.tokens import may_be_random
from dovetail.families.theta.join_stages import METRICS, BroadcastStage, FinishStage, JoinStage, PairStage, load_of
from dovetail.families.theta.router import without_sample
from dovetail.families.theta.spec import BOXES, POINTS
from dovetail.families.theta.stages import FitStage, RouteStage
from dovetail.plan.broadcast import reads_both
from dovetail.plan.theta import Facts
from dovetail.plan.theta_plan import ThetaPlan, ThetaStep
from dovetail.spark.batch import FlatSide, Joined, Routed, Sampling, broadcast_join, shuffled_join
from dovetail.spark.carriers import arrow_type, arrowed, carried_fields, restored
from dovetail.spark.conjuncts import typed_conjuncts
from dovetail.spark.frames import (
    Side,
    conjunction,
    filtered_sides,
    is_ansi,
    same_session,
    shuffle_partitions,
    with_structs,
)
from dovetail.spark.keys import hash_column, key_columns, payload_source
from dovetail.spark.ledger import Stage
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function
from dovetail.spark.sizes import small_inputs
from dovetail.spark.types import (
    check_deterministic,
    check_rest,
    expression_types,
)


def theta_facts(frames: Mapping[str, DataFrame], predicate: Predicate, *, sized: bool = True) -> Facts:
    """What the planner needs to know of the inputs; refuses conditions that Spark cannot evaluate.

    Without `sized` no input counts as small, and Spark is not asked: somebody has decided what is broadcast.
    """
    same_session(frames)
    types: dict[Term, T.DataType] = {}
    terms: dict[str, list[Term]] = {alias: [] for alias in frames}
    parts: list[Equality | Inequality | Band] = [*predicate.equalities, *predicate.inequalities, *predicate.bands]
    for part in parts:
        for term in (part.left, part.right):
            terms[term.alias].append(term)
    for rest in predicate.rests:
        for one in rest.implied:
            some = (one.left, one.right) if isinstance(one, Band) else [a.term for a in (*one.small, *one.large)]
            for term in some:
                terms[term.alias].append(term)
    for alias, frame in frames.items():
        types |= expression_types(alias, frame, terms[alias])
    for condition in predicate.filters:
        check_rest(Side.of(condition.alias, frames[condition.alias]).frame, condition.sql)
    _check_rests(frames, predicate.rests, predicate.text)
    if may_be_random(predicate.text):
        texts = [term.sql for some in terms.values() for term in some]
        texts += [condition.sql for condition in predicate.filters]
        texts += [rest.sql for rest in predicate.rests]
        check_deterministic(frames, texts, f"on={predicate.text!r}")
    session = next(iter(frames.values())).sparkSession
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    conjuncts = typed_conjuncts(predicate, types, zone=zone, ansi=is_ansi(frames))
    _check_rests(frames, [rest for rest in conjuncts.rests if rest not in predicate.rests], predicate.text)
    return Facts(
        streams=frozenset(alias for alias, frame in frames.items() if frame.isStreaming),
        equalities=tuple(conjuncts.equalities),
        comparisons=tuple(conjuncts.comparisons),
        rests=tuple(conjuncts.rests),
        shuffle_partitions=shuffle_partitions(frames),
        payload_types={
            alias: tuple(arrow_type(field.dataType) for field in frame.schema.fields) for alias, frame in frames.items()
        },
        sizes=small_inputs(frames) if sized else {},
    )


def _check_rests(frames: Mapping[str, DataFrame], rests: Iterable[Rest], whole: str) -> None:
    for rest in rests:
        # A condition over no input at all is checked over the first.
        named = [alias for alias in frames if alias in rest.aliases] or list(frames)[:1]
        empty = [Side.of(alias, frames[alias]).frame.limit(0) for alias in named]
        check_rest(reduce(lambda a, b: a.crossJoin(b), empty), rest.sql, whole)


def theta_frame(frames: Mapping[str, DataFrame], plan: ThetaPlan, search: int = 1) -> DataFrame:
    """The lazy frame that a plan describes, one struct column per alias; `search` numbers those of one join."""
    handle = Handle(plan)
    sides = filtered_sides(frames, plan.filters)
    joined = sides[plan.steps[0].left[0]]
    for step in plan.steps:
        name = f"dovetail({','.join([*step.left, step.right])})"
        if search > 1:
            name += f" search {search}"
        tasks = None if step.broadcast else step.shuffle_partitions
        recorder = Recorder(name, tasks, streaming=plan.mode == "stream-static", names=METRICS)
        handle.recorders.append(recorder)
        joined = _observed_step(joined, sides[step.right], step, recorder)
    # The inputs may have been joined in another order than the user listed them.
    names = [alias for alias in plan.inputs if alias in joined.fields]
    result = joined.frame if list(joined.fields) == names else joined.frame.select(*names)
    return attach(result, handle)


def _observed_step(left: Side, right: Side, step: ThetaStep, recorder: Recorder) -> Side:
    rows = _step_rows(left, right, step, recorder)
    fields = {**left.fields, **(right.fields if step.kind.pairs else {})}
    return Side(recorder.finished(rows) if step.rests else rows, fields)


def _step_rows(left: Side, right: Side, step: ThetaStep, recorder: Recorder) -> DataFrame:
    """The joined rows of two sides.  Both inputs come in struct form, and so does the result."""
    if not all(step.kind.preserved):
        return _one_pass(left, right, step, recorder)
    # Every left row with its matches, and the right rows that have none: two passes, because a router that copies one
    # side can vouch only for the unmatched rows of the other.
    outer = _one_pass(left, right, step.with_how("left"), recorder)
    unmatched = _one_pass(right, left, step.mirrored("anti"), recorder)
    return outer.unionByName(unmatched.select(*left.missing(), "*"))


def _one_pass(left: Side, right: Side, step: ThetaStep, recorder: Recorder) -> DataFrame:
    points, boxes = (right, left) if step.step.swapped else (left, right)
    columns = _PairColumns(step, points, boxes)
    shape = columns.shape([*left.fields, *right.fields])
    pairs = (_broadcast if step.broadcast else _shuffled)(columns, recorder, shape)
    return pairs if shape and not step.rests else columns.finished(pairs, left, right)


class _PairColumns:
    """The columns of both sides that reach the stages, those that leave a pair stage, and how they become rows."""

    def __init__(self, plan: ThetaStep, points: Side, boxes: Side) -> None:
        self.plan = plan
        self.sides = (points, boxes)
        self.options = plan.kernel_options
        self.kind = self.options.kind
        self.payload = (len(points.payload), len(boxes.payload))
        self.sources = (self._sources(POINTS), self._sources(BOXES))
        self.candidates = bool(plan.rests) and not self.kind.pairs_only

    def stage_arguments(self) -> dict[str, Any]:
        """What every stage of the step is told."""
        return {
            "step": self.plan.step,
            "options": self.options,
            "payload": self.payload,
        }

    def pair_arguments(self) -> dict[str, Any]:
        """What every stage that finds pairs is told."""
        return {
            **self.stage_arguments(),
            "sources": self.sources,
            "candidates": self.candidates,
            "point_types": self.sides[POINTS].arrow_types(),
            "box_types": self.sides[BOXES].arrow_types(),
        }

    def schema(self, stage: PairStage) -> T.StructType:
        """What leaves a stage that finds pairs, as Spark's fields."""
        fields = self._fields(POINTS)
        if stage.lists_pairs:
            fields += self._fields(BOXES)
            if self.kind.outer or self.candidates:
                fields.append(T.StructField(HAS_MATCH, T.BooleanType()))
        if self.candidates:
            fields += [T.StructField(CELL, T.IntegerType()), T.StructField(ROW, T.LongType())]
        return T.StructType([*fields, T.StructField(COUNTERS, T.ArrayType(T.LongType()))])

    def _fields(self, side: int) -> list[T.StructField]:
        # Unmatched rows have NULL for the other side.  What an inner join compares has no NULL, but Spark's own joins
        # leave it nullable, and the type of struct(*) shows it.
        inner = self.kind.pairs_only and not self.candidates
        return [
            T.StructField(f"{PAYLOADS[side]}{at}", field.dataType, not inner or field.nullable)
            for at, (_, field) in enumerate(self.sides[side].payload)
        ]

    def _sources(self, side: int) -> tuple[Source | None, ...]:
        """Which keys are in the payload already; a filter that hides keys makes them columns of their own."""
        keys = self._keys_of(side)
        if self._filter(side):
            return (None,) * len(keys)
        return tuple(payload_source(self.sides[side], key) for key in keys)

    def _keys_of(self, side: int) -> tuple[Key, ...]:
        return self.plan.step.point_keys if side == POINTS else self.plan.step.box_keys

    def _filter(self, side: int) -> str | None:
        return self.plan.point_filter if side == POINTS else self.plan.mirror_filter

    def keys(self, side: int, prefix: str = KEY) -> list[str]:
        """All key columns and the hash; a filter that must not drop rows hides their keys instead."""
        keys, equalities = self._keys_of(side), len(self.plan.step.equalities)
        columns = key_columns(keys, prefix, only=self._filter(side))
        if equalities:
            columns.append(hash_column(keys[:equalities], f"{prefix}{len(keys)}"))
        return columns

    def flat(self, side: int, *, hashed: bool = True) -> FlatSide:
        """The payload, the keys that are not in it, and the hash, by which rows are routed."""
        keys, sources = self.keys(side), self.sources[side]
        travelling = [key for key, source in zip(keys, sources, strict=False) if source is None]
        columns = [*self.sides[side].payload_columns(), *travelling, *(keys[len(sources) :] if hashed else [])]
        return FlatSide(self.sides[side].frame, columns)

    def shape(self, order: list[str]) -> list[Nested] | None:
        """The structs that leave a pair stage, in the order of the aliases; None while Spark has to judge pairs."""
        if self.candidates:
            return None
        shapes = self.sides[POINTS].shape(POINT_PAYLOAD)
        if self.kind.pairs:
            shapes += self.sides[BOXES].shape(BOX_PAYLOAD, present=HAS_MATCH if self.kind.outer else None)
        return sorted(shapes, key=lambda struct: order.index(struct.name))

    def finished(self, pairs: DataFrame, left: Side, right: Side) -> DataFrame:
        """The rows for which the conditions hold that only Spark can evaluate."""
        verdict = conjunction(self.plan.rests)
        if not self.candidates:
            return pairs.filter(verdict)
        points, boxes = self.sides
        columns = [*points.structs(POINT_PAYLOAD), *boxes.structs(BOX_PAYLOAD, present=HAS_MATCH)]
        both = with_structs(pairs, columns, "#found")
        keep = F.coalesce(F.when(F.col(f"#found.{HAS_MATCH}"), verdict), F.lit(False))
        judged = both.select("#found.*", keep.alias(VERDICT))
        finish = FinishStage(self.kind, *self.payload)
        wanted = self.payload[POINTS] + (self.payload[BOXES] + 1 if self.kind.pairs else 0)
        schema = self.schema(JoinStage(**self.pair_arguments()))
        sent = arrowed(judged, schema.fields)
        rows = sent.mapInArrow(arrow_function(finish), T.StructType(carried_fields(schema.fields[:wanted])))
        rows = restored(rows, schema.fields[:wanted])
        structs = points.structs(POINT_PAYLOAD)
        if not self.kind.pairs:
            return rows.selectExpr(*structs)
        structs += boxes.structs(BOX_PAYLOAD, present=HAS_MATCH)
        return rows.selectExpr(*structs).select(*left.fields, *right.fields)


def _shuffled(columns: _PairColumns, recorder: Recorder, shape: list[Nested] | None) -> DataFrame:
    plan = columns.plan
    join = JoinStage(**columns.pair_arguments())

    def of_cell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        return join.run(batches, load_of(context.taskAttemptId() if context is not None else -1))

    def route(side: int, routing: bytes | None) -> Stage:
        return RouteStage(**columns.stage_arguments(), sources=columns.sources, side=side, routing=routing)

    routed = Routed(
        route=route,
        without_sample=without_sample(plan.step, plan.shuffle_partitions).to_buffer().to_pybytes(),
        sampling=_sampling(columns) if plan.sampled else None,
        partitions=plan.shuffle_partitions,
        held=POINTS,
    )
    sides = columns.flat(POINTS), columns.flat(BOXES)
    return shuffled_join(sides, routed, Joined(of_cell, columns.schema(join), shape), recorder)


def _sampling(columns: _PairColumns) -> Sampling:
    # The paper's algorithms look at every value.
    everything = columns.options.partitioning is not None
    points, boxes = columns.sides
    fit = FitStage(
        **columns.stage_arguments(),
        partitions=columns.plan.shuffle_partitions,
        widths=(points.width(), boxes.width()),
        fractions=(1.0, 1.0) if everything else (1 / DENSE, 1 / SPARSE),
        lists_pairs=columns.kind.pairs or columns.candidates or len(columns.plan.step.axes) > 1,
    )

    def sampled_columns(side: int) -> list[str]:
        # The union lists the columns of the points, then those that only the boxes have: the stage expects that order.
        return [f"{side} AS {SIDE}", *columns.keys(side, SAMPLED_KEYS[side])]

    return Sampling(fit, (sampled_columns(POINTS), sampled_columns(BOXES)), everything)


def _broadcast(columns: _PairColumns, recorder: Recorder, shape: list[Nested] | None) -> DataFrame:
    stage = BroadcastStage(**columns.pair_arguments(), packed=recorder.streaming)
    joined = Joined(stage, columns.schema(stage), shape)
    sides = columns.flat(POINTS, hashed=False), columns.flat(BOXES, hashed=False)
    return broadcast_join(*sides, joined, recorder, together=reads_both(columns.plan.broadcast))

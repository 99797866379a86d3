"""As-of joins as Spark frames: batch, streams, and a stream with a static input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.columns.layout import COUNTERS, HAS_MATCH, KEY, PAYLOADS, POINT_PAYLOAD
from dovetail.columns.structs import Nested
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.names import quoted
from dovetail.families.asof.join_stages import METRICS, BroadcastStage, JoinStage, PairStage
from dovetail.families.asof.router import CELLS, CellOfKeys, without_sample
from dovetail.families.asof.spec import HAS_LEFT, LEFT, RIGHT
from dovetail.families.asof.stages import FitStage, RouteStage
from dovetail.families.asof.stream import STREAM_METRICS, AsofKernel
from dovetail.plan.asof import AsofPlan, Columns, DerivedColumn, Facts, SideFacts
from dovetail.plan.time_columns import check_final_times
from dovetail.spark.batch import FlatSide, Joined, Routed, Sampling, broadcast_join, shuffled_join
from dovetail.spark.frames import field_of, identity, is_ansi, same_session, shuffle_partitions
from dovetail.spark.keys import ddl_of
from dovetail.spark.ledger import Stage
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel
from dovetail.spark.time_columns import time_column
from dovetail.spark.types import compared_type


def asof_facts(frames: Mapping[str, DataFrame], columns: Columns) -> tuple[Columns, Facts]:
    """The columns in the spelling of the inputs, and what the planner needs to know; refuses what is not there."""
    same_session(frames)
    left, right = frames
    by = [
        [field_of(alias, frames[alias], name, "by=") for name in columns.by[side]] for side, alias in enumerate(frames)
    ]
    time = [field_of(alias, frames[alias], columns.time[side], "time=") for side, alias in enumerate(frames)]
    ties = tuple(field_of(right, frames[right], name, "ties=").name for name in columns.ties)
    ansi = is_ansi(frames)
    keys = tuple(
        compared_type(a.dataType, b.dataType, f"{left}.{a.name} = {right}.{b.name}", ansi=ansi)
        for a, b in zip(*by, strict=True)
    )
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    if len(streams) == 2:
        check_final_times([time_column(alias, frames[alias], time[side].name) for side, alias in enumerate(frames)])
    what = f"{left}.{time[LEFT].name} with {right}.{time[RIGHT].name}"
    compared = compared_type(time[LEFT].dataType, time[RIGHT].dataType, what, ansi=ansi)
    sides = [
        _side_facts(frames[alias], [*zip(by[side], keys, strict=True), (time[side], compared)])
        for side, alias in enumerate(frames)
    ]
    facts = Facts(streams, keys, compared, shuffle_partitions(frames), (sides[LEFT], sides[RIGHT]))
    spelled = [tuple(field.name for field in fields) for fields in by]
    return Columns((time[LEFT].name, time[RIGHT].name), (spelled[LEFT], spelled[RIGHT]), ties), facts


def _side_facts(frame: DataFrame, compared: Sequence[tuple[T.StructField, KeyType]]) -> SideFacts:
    fields = frame.schema.fields
    return SideFacts(
        names=tuple(field.name for field in fields),
        types=tuple(to_arrow_type(field.dataType, timezone="UTC") for field in fields),
        ready=frozenset((field.name, kind.ddl) for field, kind in compared if _is_ready(field.dataType, kind)),
    )


def _is_ready(given: T.DataType, kind: KeyType) -> bool:
    """Whether a column has the codes of the type in which it is compared; integers of all widths have the same."""
    return ddl_of(given) == kind.ddl or (kind.ddl == "BIGINT" and isinstance(given, T.IntegralType))


class _Flat:
    """The two inputs as the stages read them, and the columns that come out."""

    def __init__(self, frames: Mapping[str, DataFrame], plan: AsofPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.frames = [frames[alias] for alias in plan.inputs]
        self.sides = self._side(LEFT), self._side(RIGHT)

    def _side(self, side: int) -> FlatSide:
        """The payload, the keys that are not in it, and the texts that decide ties."""
        frame = self.frames[side]
        columns = [F.col(quoted(name)) for name in frame.columns]
        columns += [_derived(column) for column in self.plan.derived[side]]
        return FlatSide(frame, [column.alias(f"{POINT_PAYLOAD}{at}") for at, column in enumerate(columns)])

    def keys(self, side: int) -> list[Column]:
        """The keys and the time alone, in the types in which they are compared."""
        plan = self.plan
        names, kinds = [*plan.columns.by[side], plan.columns.time[side]], [*plan.keys, plan.time]
        texts = [f"CAST({quoted(name)} AS {kind.ddl})" for name, kind in zip(names, kinds, strict=True)]
        return [F.expr(f"{text} AS {KEY}{at}") for at, text in enumerate(texts)]

    def fields(self) -> list[T.StructField]:
        """The columns that the joining stages give."""
        kind = self.spec.kind
        fields = [
            field
            for frame, emitted in zip(self.frames, kind.emitted, strict=True)
            if emitted
            for field in frame.schema.fields
        ]
        flag = T.StructField("", T.BooleanType())
        named = zip_longest(self.spec.outputs(), fields, fillvalue=flag)
        return [T.StructField(name, field.dataType, field.nullable or kind.outer) for (name, _), field in named]

    def shape(self) -> list[Nested]:
        """The structs that those columns come out as, one for each input."""
        return [
            Nested(
                alias,
                tuple((name, f"{PAYLOADS[side]}{at}") for at, name in enumerate(self.frames[side].schema.names)),
                (HAS_LEFT, HAS_MATCH)[side] if self.spec.kind.optional[side] else None,
            )
            for side, alias in enumerate(self.plan.inputs)
            if self.spec.kind.emitted[side]
        ]

    def joined(self, stage: Stage) -> Joined:
        """What a joining stage gives: those columns, and its counters."""
        schema = T.StructType([*self.fields(), T.StructField(COUNTERS, T.ArrayType(T.LongType()))])
        return Joined(stage, schema, self.shape())


def _derived(column: DerivedColumn) -> Column:
    value = F.col(quoted(column.name))
    if column.ddl is not None:
        return value.cast(column.ddl)
    return F.when(value.isNotNull(), F.to_json(F.struct(value)))


def asof_frame(frames: Mapping[str, DataFrame], plan: AsofPlan) -> DataFrame:
    """The lazy frame that a plan describes, one struct column per alias."""
    flat = _Flat(frames, plan)
    names = STREAM_METRICS if plan.mode == "stream" else METRICS
    recorder = Recorder(
        f"dovetail({','.join(plan.inputs)})", plan.shuffle_partitions, streaming=bool(plan.streams), names=names
    )
    return attach(_DRIVERS[plan.mode](flat, recorder), Handle(plan, [recorder]))


def _shuffled(flat: _Flat, recorder: Recorder) -> DataFrame:
    plan = flat.plan
    sampling = None
    if plan.sampled:
        sampling = Sampling(FitStage(plan.time.kind, plan.shuffle_partitions), (flat.keys(LEFT), flat.keys(RIGHT)))
    routed = Routed(
        route=partial(RouteStage, flat.spec),
        without_sample=without_sample(plan.keyed, plan.shuffle_partitions).to_buffer().to_pybytes(),
        sampling=sampling,
        partitions=plan.shuffle_partitions,
        held=RIGHT,
    )
    return shuffled_join(flat.sides, routed, flat.joined(JoinStage(flat.spec)), recorder)


def _broadcast(flat: _Flat, recorder: Recorder) -> DataFrame:
    joined = flat.joined(BroadcastStage(flat.spec, packed=recorder.streaming))
    return broadcast_join(flat.sides[LEFT], flat.sides[RIGHT], joined, recorder)


def _streamed(flat: _Flat, recorder: Recorder) -> DataFrame:
    spec, plan = flat.spec, flat.plan
    packed = []
    for side in (LEFT, RIGHT):
        cells = CellOfKeys(spec.keys[side], CELLS) if plan.keyed else None
        packed.append(flat.sides[side].flat().mapInArrow(arrow_function(PackRows(side, cells)), PACKED_ROWS))
    make = partial(AsofKernel, PairStage(spec))
    join = identity(dict(zip(plan.inputs, flat.frames, strict=True)), plan.identity())
    return run_kernel(packed, make, recorder, flat.fields(), join, event_time=True, shape=flat.shape())


_DRIVERS = {"stream": _streamed, "broadcast": _broadcast, "batch": _shuffled}

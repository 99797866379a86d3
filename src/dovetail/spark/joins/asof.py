"""As-of joins as Spark frames: batch, streams, and a stream with a static input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.changing import GIVEN
from dovetail.columns.held import STREAM_CELLS
from dovetail.columns.layout import COUNTERS, HAS_MATCH, KEY, PAYLOADS, POINT_PAYLOAD, VERDICT
from dovetail.columns.memory import width
from dovetail.columns.structs import Nested, nest
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.forms import Predicate, Term
from dovetail.conditions.names import quoted
from dovetail.families.asof import inventory
from dovetail.families.asof.changing import AsofAdoption
from dovetail.families.asof.join_stages import METRICS, BroadcastStage, JoinStage, PairStage
from dovetail.families.asof.judged import BroadcastCandidates, CandidateStage, FinishStage
from dovetail.families.asof.router import CellOfKeys, without_sample
from dovetail.families.asof.spec import HAS_LEFT, LEFT, RIGHT
from dovetail.families.asof.stages import FitStage, RouteStage
from dovetail.families.asof.stream import STREAM_METRICS, AsofKernel
from dovetail.families.asof.stream_judged import CandidateKernel
from dovetail.plan.asof import AsofPlan
from dovetail.plan.asof_columns import Columns, ComputedKey, DerivedColumn, Facts, SideFacts
from dovetail.plan.broadcast import reads_both
from dovetail.plan.time_columns import check_final_times
from dovetail.spark.batch import FlatSide, Joined, Routed, Sampling, broadcast_join, shuffled_join
from dovetail.spark.carriers import arrow_type, arrowed, carried, carried_fields, json_text, restored
from dovetail.spark.frames import (
    Side,
    conjunction,
    field_of,
    identity,
    is_ansi,
    nested_fields,
    never_null,
    same_session,
    shuffle_partitions,
    with_structs,
)
from dovetail.spark.intake import Intake, with_types
from dovetail.spark.joins.asof_conditions import computed_keys, conditions_of
from dovetail.spark.keys import ddl_of
from dovetail.spark.ledger import Stage
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function
from dovetail.spark.runtime.versions import TIME_TYPES
from dovetail.spark.sizes import small_inputs
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel
from dovetail.spark.time_columns import time_column
from dovetail.spark.types import compared_type

_NESTED = (T.StructType, T.ArrayType)


def asof_facts(frames: Mapping[str, DataFrame], columns: Columns, on: Predicate | None) -> tuple[Columns, Facts]:
    """The columns in the spelling of the inputs, and what the planner needs to know; refuses what is not there."""
    same_session(frames)
    left, right = frames
    by = [
        [field_of(alias, frames[alias], name, "by=") for name in columns.by[side]] for side, alias in enumerate(frames)
    ]
    time = [field_of(alias, frames[alias], columns.time[side], "time=") for side, alias in enumerate(frames)]
    ties = tuple(field_of(right, frames[right], name, "ties=").name for name in columns.ties)
    ansi = is_ansi(frames)
    keys: list[KeyType] = []
    computed: list[ComputedKey] = []
    plain: list[tuple[str, str]] = []
    nested: list[tuple[str, str]] = []
    for a, b in zip(*by, strict=True):
        what = f"{left}.{a.name} = {right}.{b.name}"
        if isinstance(a.dataType, _NESTED) or isinstance(b.dataType, _NESTED):
            one = Term(left, f"{quoted(left)}.{quoted(a.name)}")
            other = Term(right, f"{quoted(right)}.{quoted(b.name)}")
            computed += computed_keys(one, other, a.dataType, b.dataType, null_safe=False, ansi=ansi)
            nested.append((a.name, b.name))
        else:
            keys.append(_compared(a.dataType, b.dataType, what, ansi=ansi))
            plain.append((a.name, b.name))
    conditions = None if on is None else conditions_of(frames, on)
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    if len(streams) == 2:
        check_final_times([time_column(alias, frames[alias], time[side].name) for side, alias in enumerate(frames)])
    what = f"{left}.{time[LEFT].name} with {right}.{time[RIGHT].name}"
    compared = _compared(time[LEFT].dataType, time[RIGHT].dataType, what, ansi=ansi)
    facts = Facts(
        streams=streams,
        keys=tuple(keys),
        time=compared,
        shuffle_partitions=shuffle_partitions(frames),
        sides=(_side_facts(frames[left]), _side_facts(frames[right])),
        computed_keys=(*computed, *(conditions.keys if conditions is not None else ())),
        conditions=conditions,
        sizes=small_inputs(frames),
    )
    return Columns((time[LEFT].name, time[RIGHT].name), _sides(plain), _sides(nested), ties), facts


def _compared(left: T.DataType, right: T.DataType, what: str, *, ansi: bool) -> KeyType:
    """The type in which Spark compares two columns; times of day in the finer of their precisions."""
    if isinstance(left, TIME_TYPES) and isinstance(right, TIME_TYPES):
        return KeyType(f"TIME({max(left.precision, right.precision)})", "int", micros=1)
    return compared_type(left, right, what, ansi=ansi)


def _sides(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)


def _side_facts(frame: DataFrame) -> SideFacts:
    fields = frame.schema.fields
    return SideFacts(
        names=tuple(field.name for field in fields),
        types=tuple(arrow_type(field.dataType) for field in fields),
        ready=frozenset((field.name, ddl) for field in fields for ddl in _ready(field.dataType)),
    )


def _ready(given: T.DataType) -> list[str]:
    """The types in which a column is compared as it is; integers of all widths have the same codes."""
    return [ddl_of(given), *(["BIGINT"] if isinstance(given, T.IntegralType) else [])]


class _Flat:
    """The two inputs as the stages read them, and the columns that come out."""

    def __init__(self, frames: Mapping[str, DataFrame], plan: AsofPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.frames = [frames[alias] for alias in plan.inputs]
        self.prepared = [_prepared(alias, frames[alias], plan, side) for side, alias in enumerate(plan.inputs)]
        self.sides = self._side(LEFT), self._side(RIGHT)

    def _side(self, side: int) -> FlatSide:
        """The payload, the keys that are not in it, and the texts that decide ties."""
        fields = [field for field in self.frames[side].schema.fields if field.name != GIVEN]
        columns = [carried(quoted(field.name), field.dataType) for field in fields]
        kinds = {field.name: field.dataType for field in fields}
        columns += [_derived(column, kinds) for column in self.plan.derived[side]]
        # Rows that another definition of the join has held carry a mark, behind all else.
        columns += [quoted(GIVEN)] * (len(self.frames[side].columns) - len(fields))
        return FlatSide(self.prepared[side], [f"{sql} AS {POINT_PAYLOAD}{at}" for at, sql in enumerate(columns)])

    def keys(self, side: int) -> list[str]:
        """The keys and the time alone, in the types in which they are compared."""
        plan = self.plan
        names, kinds = plan.compared[side], [*plan.keys, plan.time]
        texts = [f"CAST({quoted(name)} AS {kind.ddl})" for name, kind in zip(names, kinds, strict=True)]
        return [f"{text} AS {KEY}{at}" for at, text in enumerate(texts)]

    def fields(self) -> list[T.StructField]:
        """The columns that the joining stages give."""
        kind = self.spec.kind
        fields = [
            field
            for frame, emitted in zip(self.frames, kind.emitted, strict=True)
            if emitted
            for field in frame.schema.fields
        ]
        names = [name for name, _ in self.spec.outputs()]
        fields += [T.StructField(name, T.BooleanType()) for name in names[len(fields) :]]
        named = zip(names, fields, strict=True)
        return [T.StructField(name, field.dataType, field.nullable or kind.outer) for name, field in named]

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

    def candidates(self, stage: CandidateStage) -> Joined:
        """What a stage gives whose pairs Spark has still to judge."""
        kinds: list[T.DataType] = [T.BooleanType(), T.BooleanType(), T.IntegerType(), T.LongType(), T.LongType()]
        payload = self.candidate_fields()
        names = [name for name, _ in stage.outputs()][len(payload) :]
        fields = [*payload, *(T.StructField(name, kind) for name, kind in zip(names, kinds, strict=True))]
        return Joined(stage, T.StructType([*fields, T.StructField(COUNTERS, T.ArrayType(T.LongType()))]), None)

    def candidate_fields(self) -> list[T.StructField]:
        """The payload of pairs that Spark has still to judge."""
        return [
            T.StructField(f"{PAYLOADS[side]}{at}", field.dataType)
            for side, frame in enumerate(self.frames)
            for at, field in enumerate(frame.schema.fields)
        ]

    def judged(self, pairs: DataFrame, recorder: Recorder) -> DataFrame:
        """The rows of the join: the first pair of each left row that satisfies what only Spark can evaluate."""
        conditions = self.plan.conditions
        structs = [
            struct
            for side, flag in ((LEFT, HAS_LEFT), (RIGHT, HAS_MATCH))
            for struct in Side.of(self.plan.inputs[side], self.frames[side]).structs(PAYLOADS[side], present=flag)
        ]
        both = with_structs(pairs, structs, "#found")
        is_pair = F.col(f"#found.{HAS_MATCH}") & F.col(f"#found.{HAS_LEFT}")
        verdict = conjunction(conditions.rests if conditions is not None else ("TRUE",))
        keep = F.coalesce(F.when(is_pair, verdict), F.lit(False))
        found = both.select("#found.*", keep.alias(VERDICT))
        fields, shape, finish = self.fields(), self.shape(), FinishStage(self.spec)
        certain = never_null(fields)

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (nest(batch, shape, certain) for batch in finish(batches))

        sent = T.StructType(nested_fields(carried_fields(fields), shape, whole=True))
        decided = arrowed(found, self.candidate_fields()).mapInArrow(arrow_function(rows), sent)
        return recorder.finished(restored(decided, nested_fields(fields, shape, whole=True)))

    def joined(self, stage: Stage) -> Joined:
        """What a joining stage gives: those columns, and its counters."""
        schema = T.StructType([*self.fields(), T.StructField(COUNTERS, T.ArrayType(T.LongType()))])
        return Joined(stage, schema, self.shape())


def _prepared(alias: str, frame: DataFrame, plan: AsofPlan, side: int) -> DataFrame:
    """An input without the rows that its own conditions exclude, and with the columns that are computed."""
    computed = [f"{column.sql} AS {quoted(column.name)}" for column in plan.derived[side] if column.sql is not None]
    if not computed and not plan.filters[side]:
        return frame
    rows = Side.of(alias, frame).frame
    if plan.filters[side]:
        rows = rows.filter(conjunction(plan.filters[side]))
    return rows.selectExpr(f"{quoted(alias)}.*", *computed)


def _derived(column: DerivedColumn, kinds: Mapping[str, T.DataType]) -> str:
    name = quoted(column.name)
    return json_text(name, kinds[column.name]) if column.ddl is None else f"CAST({name} AS {column.ddl})"


def asof_frame(frames: Mapping[str, DataFrame], plan: AsofPlan) -> DataFrame:
    """The lazy frame that a plan describes, one struct column per alias."""
    flat = _Flat(frames, plan)
    names = STREAM_METRICS if plan.mode == "stream" else METRICS
    tasks = None if plan.mode == "broadcast" else plan.shuffle_partitions
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", tasks, streaming=bool(plan.streams), names=names)
    return attach(_DRIVERS[plan.mode](flat, recorder), Handle(plan, [recorder]))


def _shuffled(flat: _Flat, recorder: Recorder) -> DataFrame:
    plan = flat.plan
    sampling = None
    if plan.sampled:
        widest = max(width(types) for types in flat.spec.types)
        fit = FitStage(plan.time.kind, plan.shuffle_partitions, widest)
        sampling = Sampling(fit, (flat.keys(LEFT), flat.keys(RIGHT)))
    routed = Routed(
        route=partial(RouteStage, flat.spec),
        without_sample=without_sample(plan.keyed, plan.shuffle_partitions).to_buffer().to_pybytes(),
        sampling=sampling,
        partitions=plan.shuffle_partitions,
        held=RIGHT,
    )
    if flat.spec.judged:
        pairs = shuffled_join(flat.sides, routed, flat.candidates(CandidateStage(flat.spec)), recorder)
        return flat.judged(pairs, recorder)
    return shuffled_join(flat.sides, routed, flat.joined(JoinStage(flat.spec)), recorder)


def _broadcast(flat: _Flat, recorder: Recorder) -> DataFrame:
    together = reads_both(flat.plan.small)
    if flat.spec.judged:
        candidates = flat.candidates(BroadcastCandidates(flat.spec, packed=recorder.streaming))
        return flat.judged(broadcast_join(*flat.sides, candidates, recorder, together=together), recorder)
    joined = flat.joined(BroadcastStage(flat.spec, packed=recorder.streaming))
    return broadcast_join(*flat.sides, joined, recorder, together=together)


def _packed(flat: _Flat) -> list[DataFrame]:
    """Both inputs in the cells of their keys."""
    packed = []
    for side in (LEFT, RIGHT):
        cells = CellOfKeys(flat.spec.keys[side], STREAM_CELLS) if flat.plan.keyed else None
        packed.append(flat.sides[side].flat().mapInArrow(arrow_function(PackRows(side, cells)), PACKED_ROWS))
    return packed


def _streamed(flat: _Flat, recorder: Recorder) -> DataFrame:
    spec, plan = flat.spec, flat.plan
    packed = _packed(flat)
    frames = dict(zip(plan.inputs, flat.frames, strict=True))
    join = identity(frames, plan.identity())
    layout = with_types(inventory.layout(spec, plan.inputs, [frame.columns for frame in flat.frames]), frames)
    compares = (plan.conditions.text,) if plan.conditions is not None else ()
    recorder.intake = Intake(
        lambda held: _packed(_Flat(held, plan)),
        partial(AsofAdoption, plan.keyed, marked=spec.kind.preserved[RIGHT]),
        {alias: frame.schema for alias, frame in frames.items()},
        compares,
    )
    if spec.judged:
        stage = CandidateStage(spec)
        found = flat.candidates(stage).schema.fields[:-1]
        kernel = partial(CandidateKernel, stage)
        pairs = run_kernel(packed, kernel, recorder, found, join, event_time=True, layout=layout)
        return flat.judged(pairs, recorder)
    make = partial(AsofKernel, PairStage(spec))
    fields, shape = flat.fields(), flat.shape()
    return run_kernel(packed, make, recorder, fields, join, event_time=True, shape=shape, layout=layout)


_DRIVERS = {"stream": _streamed, "broadcast": _broadcast, "batch": _shuffled}

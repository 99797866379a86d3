"""A nearest plan as a Spark frame: route, answer in cells, merge; or the whole second input in every task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.columns.held import WAITING_METRICS, CellOfHash
from dovetail.columns.layout import (
    CELL_NUMBER,
    COUNTERS,
    HAS_MATCH,
    KEY,
    PAYLOADS,
    ROW,
    SAMPLED_KEYS,
    SIDE,
)
from dovetail.columns.sampling import DENSE, SPARSE
from dovetail.columns.structs import nest
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.names import quoted
from dovetail.conditions.nearness import Distance
from dovetail.conditions.tokens import may_be_random
from dovetail.errors import UnsupportedTypeError
from dovetail.families.nearest import inventory
from dovetail.families.nearest.changing import NearestAdoption
from dovetail.families.nearest.join_stages import DISTANCE, METRICS, RANK, BroadcastStage, MergeStage, ResultStage
from dovetail.families.nearest.line import by_hash, for_everybody
from dovetail.families.nearest.line_stages import LineFitStage, LineJoinStage, LineRouteStage
from dovetail.families.nearest.router import without_sample
from dovetail.families.nearest.spec import ANSWERING, ASKING
from dovetail.families.nearest.stages import AnswerStage, FitStage, RouteStage, Sources
from dovetail.families.nearest.stream import NearestKernel
from dovetail.plan.broadcast import reads_both
from dovetail.plan.nearest_plan import Measured, NearestPlan
from dovetail.spark.batch import (
    FlatSide,
    Joined,
    Routed,
    Sampling,
    broadcast_join,
    in_turn,
    segments_by_cell,
    shuffled_join,
)
from dovetail.spark.carriers import arrow_type, json_text
from dovetail.spark.conjuncts import midnight
from dovetail.spark.frames import Side, filtered_sides, identity, is_ansi
from dovetail.spark.intake import Intake, held_side, with_types
from dovetail.spark.keys import hash_column, key_columns, payload_source
from dovetail.spark.ledger import Stage
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import SEGMENTS, arrow_function
from dovetail.spark.runtime.versions import apply_by_group
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel
from dovetail.spark.types import check_deterministic, clocks_change, compared_type, expression_types

_ON_A_LINE = (
    T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType,
)  # fmt: skip


def measured_distance(frames: Mapping[str, DataFrame], distance: Distance) -> Measured:
    """The types of a distance; refuses values that have none."""
    asking, answering = frames
    own, others = zip(*distance.terms, strict=True)
    types = expression_types(asking, frames[asking], own) | expression_types(answering, frames[answering], others)
    texts = [term.sql for pair in distance.terms for term in pair]
    if any(may_be_random(sql) for sql in texts):
        check_deterministic(frames, texts, f"on={distance.text!r}")
    line = distance.metric == "line"
    for pair in distance.terms:
        for term in pair:
            kind = types[term]
            if not isinstance(kind, _ON_A_LINE if line else T.NumericType):
                raise UnsupportedTypeError(
                    f"{distance.text} measures {term}, of type {kind.simpleString()}",
                    accepted="numbers, dates, timestamps and intervals of days" if line else "numbers",
                    hint="times are numbers as well: unix_micros(r.ts) / 1e6 are seconds" if not line else None,
                )
    if not line:
        return Measured(KeyType("DOUBLE", "float64"), pa.float64())
    left, right = distance.terms[0]
    found = compared_type(types[left], types[right], distance.text, ansi=is_ansi(frames))
    if found.kind in ("float32", "float64"):
        return Measured(KeyType("DOUBLE", "float64"), pa.float64())
    if found.kind == "rank":
        raise UnsupportedTypeError(
            f"{distance.text} measures values of type {found.ddl}",
            accepted="decimals of at most 18 digits",
            hint="cast both to DOUBLE, or to a decimal of fewer digits",
        )
    terms = None
    session = frames[asking].sparkSession
    if found.ddl == "TIMESTAMP" and clocks_change(session.conf.get("spark.sql.session.timeZone") or "UTC"):
        # Spark subtracts timestamps as local times.  In a zone whose clocks never change, instants give the same.
        found = KeyType("TIMESTAMP_NTZ", "int", micros=1)
        terms = ((midnight(left, types[left]), midnight(right, types[right])),)
    return Measured(found, arrow_type(_distance_type(found)), found.micros or 1, terms)


def _distance_type(kind: KeyType) -> T.DataType:
    """The type of the difference, as Spark has it."""
    if kind.ddl == "DATE":
        return T.DayTimeIntervalType(0, 0)
    if kind.micros is not None:
        return T.DayTimeIntervalType(0, 3)
    if kind.ddl.startswith("DECIMAL"):
        precision, scale = map(int, kind.ddl.removeprefix("DECIMAL(").removesuffix(")").split(","))
        return T.DecimalType(precision + 1, scale)
    return T.LongType() if kind.kind == "int" else T.DoubleType()


def nearest_frame(frames: Mapping[str, DataFrame], plan: NearestPlan) -> DataFrame:
    """The lazy frame that a plan describes: a struct column for each input, the distance and the rank."""
    handle = Handle(plan)
    names = WAITING_METRICS if plan.two_streams else METRICS
    recorder = Recorder(
        f"dovetail({','.join(plan.inputs)})", plan.shuffle_partitions, streaming=bool(plan.streams), names=names
    )
    columns = _Columns(plan, filtered_sides(frames, plan.filters), recorder)
    handle.recorders.append(recorder)
    if plan.two_streams:
        rows = _streamed(columns, recorder, identity(frames, plan.identity()), frames)
    else:
        rows = _broadcast(columns, recorder) if plan.broadcast else _shuffled(columns, recorder)
    return attach(rows, handle)


class _Columns:
    """The columns of both sides that reach the stages, and those that leave them."""

    def __init__(self, plan: NearestPlan, sides: Mapping[str, Side], recorder: Recorder) -> None:
        self.plan = plan
        self.counted = recorder.among_rows
        self.spec = plan.spec
        self.sides = tuple(sides[alias] for alias in plan.inputs)
        self.sources: tuple[Sources, Sources] = (self._sources(ASKING), self._sources(ANSWERING))

    def keys(self, side: int, prefix: str = KEY, *, hashed: bool = True) -> list[str]:
        """Keys, coordinates and a hash; a filter that must not drop asking rows hides their keys instead."""
        keys = self.plan.keys[side]
        columns = key_columns(keys, prefix, only=self.plan.hidden if side == ASKING else None)
        if self.spec.window is not None:
            # A row whose keys are hidden has its time all the same: it may be late.
            columns[-1] = key_columns(keys, prefix)[-1]
        if self.spec.keys and hashed:
            columns.append(hash_column(keys[: len(self.spec.keys)], f"{prefix}{len(keys)}"))
        return columns

    def _sources(self, side: int) -> Sources:
        """Which keys are in the payload; a filter that hides keys makes them columns of their own."""
        keys = self.plan.keys[side]
        if self.plan.hidden and side == ASKING:
            return (None,) * len(keys)
        return tuple(payload_source(self.sides[side], key) for key in keys)

    def flat(self, side: int, *, hashed: bool = True, numbered: bool = False) -> FlatSide:
        """Payload and texts, keys, hash, and the number of an asking row where what it finds comes together."""
        whole, keys, sources = self.sides[side], self.keys(side, hashed=hashed), self.sources[side]
        columns = whole.payload_columns()
        if side == ANSWERING:
            kinds = {field.name: field.dataType for field in whole.fields[self.plan.inputs[side]].fields}
            alias = quoted(self.plan.inputs[side])
            columns += [
                f"{json_text(f'{alias}.{quoted(name)}', kinds[name])} AS j{at}"
                for at, name in enumerate(self.plan.texts)
            ]
        columns += [key for key, source in zip(keys, sources, strict=False) if source is None]
        columns += keys[len(sources) :]
        if numbered:
            columns.append(f"monotonically_increasing_id() AS {ROW}")
        return FlatSide(whole.frame, columns)

    def result_fields(self) -> list[T.StructField]:
        """What comes out; NULL only where an asking row may come out alone, or a row of counters among the others."""
        may = [self.counted, self.counted or self.spec.keep]
        fields = [
            T.StructField(
                alias, T.StructType([T.StructField(f.name, f.dataType) for f in side.fields[alias].fields]), null
            )
            for alias, side, null in zip(self.plan.inputs, self.sides, may, strict=True)
        ]
        kind = _result_type(self.spec.distance, self.plan.keys[ASKING][len(self.spec.keys)].ddl)
        return [*fields, T.StructField(DISTANCE, kind, may[1]), T.StructField(RANK, T.IntegerType(), may[1])]

    def flat_fields(self) -> list[T.StructField]:
        """What leaves a cell of streams: the payload of both, whether there is a neighbour, distance and rank."""
        payload = [
            T.StructField(f"{PAYLOADS[side]}{at}", field.dataType)
            for side in (ASKING, ANSWERING)
            for at, (_, field) in enumerate(self.sides[side].payload)
        ]
        return [*payload, T.StructField(HAS_MATCH, T.BooleanType()), *self.result_fields()[2:]]

    def schema(self) -> T.StructType:
        """What leaves a stage, with the counters last."""
        return T.StructType([*self.result_fields(), T.StructField(COUNTERS, T.ArrayType(T.LongType()))])

    def named(self, stage: Stage) -> Stage:
        """A stage whose rows come out as the user sees them: a struct for each input, distance and rank."""
        present = HAS_MATCH if self.counted or self.spec.keep else None
        shape = [
            *self.sides[ASKING].shape(PAYLOADS[ASKING]),
            *self.sides[ANSWERING].shape(PAYLOADS[ANSWERING], present=present),
        ]
        names = [*self.plan.inputs, DISTANCE, RANK, COUNTERS]

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in stage(batches):
                columns = [*nest(rows, shape).columns, *(rows.column(name) for name in names[2:])]
                yield pa.RecordBatch.from_arrays(columns, names=names)

        return run


def _result_type(kind: pa.DataType, ddl: str) -> T.DataType:
    """The type of the distance, as Spark has it."""
    if pa.types.is_duration(kind):
        return T.DayTimeIntervalType(0, 0) if ddl == "DATE" else T.DayTimeIntervalType(0, 3)
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    return T.LongType() if pa.types.is_int64(kind) else T.DoubleType()


def _on_line(columns: _Columns, recorder: Recorder) -> DataFrame:
    """One shuffle: rows that ask to one cell each, rows that answer to all that may need them."""
    plan, spec, partitions = columns.plan, columns.spec, columns.plan.shuffle_partitions

    def route(side: int, routing: bytes | None) -> Stage:
        return LineRouteStage(spec, partitions, columns.sources, side=side, routing=routing)

    sampling = None
    if plan.sampled:
        fit = LineFitStage(spec, partitions, fractions=(1 / DENSE, 1 / SPARSE))
        sampling = replace(_sampling(columns), fit=fit)
    unknown = for_everybody if plan.window is not None and not spec.keys else by_hash
    routed = Routed(
        route=route,
        without_sample=unknown(partitions).to_buffer().to_pybytes(),
        sampling=sampling,
        partitions=partitions,
        held=ANSWERING,
    )
    joined = Joined(columns.named(LineJoinStage(spec, partitions, columns.sources)), columns.schema(), None)
    return shuffled_join((columns.flat(ASKING), columns.flat(ANSWERING)), routed, joined, recorder)


def _shuffled(columns: _Columns, recorder: Recorder) -> DataFrame:
    if columns.plan.one_shuffle:
        return _on_line(columns, recorder)
    plan, spec, partitions = columns.plan, columns.spec, columns.plan.shuffle_partitions

    def route(side: int, routing: bytes | None) -> Stage:
        return RouteStage(spec, partitions, columns.sources, side=side, routing=routing)

    routed = Routed(
        route=route,
        without_sample=without_sample(spec, partitions).to_buffer().to_pybytes(),
        sampling=_sampling(columns) if plan.sampled else None,
        partitions=partitions,
        held=ANSWERING,
    )
    cells = segments_by_cell((columns.flat(ASKING, numbered=True), columns.flat(ANSWERING)), routed)
    stage = AnswerStage(spec, partitions, columns.sources, clock=recorder.clock(cells))
    answered = apply_by_group(cells, CELL_NUMBER, arrow_function(stage, numbered=True), SEGMENTS)
    merging = columns.named(MergeStage(spec, partitions, columns.sources))
    return recorder.run(in_turn(answered, partitions), merging, columns.schema(), by=CELL_NUMBER)


def _sampling(columns: _Columns) -> Sampling:
    fit = FitStage(columns.spec, columns.plan.shuffle_partitions, fractions=(1 / DENSE, 1 / SPARSE))
    sampled = [[f"{side} AS {SIDE}", *columns.keys(side, SAMPLED_KEYS[side])] for side in (ASKING, ANSWERING)]
    return Sampling(fit, (sampled[ASKING], sampled[ANSWERING]))


def _packed(columns: _Columns, stage: ResultStage) -> list[DataFrame]:
    """Both streams in the cells of their keys."""
    packed = []
    for side in (ASKING, ANSWERING):
        cells = CellOfHash(stage.held(side) + stage.travelling(side)) if columns.spec.keys else None
        packed.append(columns.flat(side).flat().mapInArrow(arrow_function(PackRows(side, cells)), PACKED_ROWS))
    return packed


def _streamed(
    columns: _Columns, recorder: Recorder, join: Mapping[str, str], frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Both streams in the cells of their keys, where rows wait for the end of their windows."""
    plan, stage = columns.plan, ResultStage(columns.spec, sources=columns.sources)
    packed = _packed(columns, stage)
    make = partial(NearestKernel, stage)
    names = [[field.name for _, field in side.payload] for side in columns.sides]
    layout = with_types(inventory.layout(stage, plan.inputs, names), frames)

    def pack(held: Mapping[str, DataFrame]) -> list[DataFrame]:
        filters = {alias: [sql for filtered, sql in plan.filters if filtered == alias] for alias in held}
        sides = {alias: held_side(alias, rows, filters[alias]) for alias, rows in held.items()}
        return _packed(_Columns(plan, sides, recorder), stage)

    asking, answering = (stage.held(side) + stage.travelling(side) for side in (ASKING, ANSWERING))
    adopt = partial(NearestAdoption, bool(columns.spec.keys), widths=(asking, answering))
    recorder.intake = Intake(pack, adopt, {alias: frames[alias].schema for alias in plan.inputs}, ())
    rows = run_kernel(packed, make, recorder, columns.flat_fields(), join, event_time=True, layout=layout)
    present = HAS_MATCH if columns.spec.keep else None
    structs = [
        *columns.sides[ASKING].structs(PAYLOADS[ASKING]),
        *columns.sides[ANSWERING].structs(PAYLOADS[ANSWERING], present=present),
    ]
    return rows.selectExpr(*structs, DISTANCE, RANK)


def _broadcast(columns: _Columns, recorder: Recorder) -> DataFrame:
    stage = BroadcastStage(columns.spec, sources=columns.sources, packed=recorder.streaming)
    joined = Joined(columns.named(stage), columns.schema(), None)
    sides = columns.flat(ASKING, hashed=False), columns.flat(ANSWERING, hashed=False)
    return broadcast_join(*sides, joined, recorder, together=reads_both(columns.plan.broadcast))

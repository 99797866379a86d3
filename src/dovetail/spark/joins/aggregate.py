"""An aggregate plan as a Spark frame: route, answer in cells, merge; or the whole matched side in every task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.columns.held import WAITING_METRICS, CellOfHash
from dovetail.columns.layout import CELL_NUMBER, COUNTERS, KEY, POINT_PAYLOAD, SAMPLED_KEYS, SIDE, Source, columns_of
from dovetail.columns.sampling import DENSE, SPARSE
from dovetail.columns.structs import nest
from dovetail.conditions.forms import Band, Equality, Inequality, Predicate
from dovetail.conditions.names import bare, quoted
from dovetail.conditions.tokens import may_be_random
from dovetail.errors import ArgumentError
from dovetail.families.aggregate import inventory
from dovetail.families.aggregate.changing import AggregateAdoption
from dovetail.families.aggregate.join_stages import METRICS, RESULT, BroadcastStage, IndexStage, MergeStage, ResultStage
from dovetail.families.aggregate.router import gathered, without_sample
from dovetail.families.aggregate.stages import ANSWERING, ASKING, AnswerStage, FitStage, RouteStage
from dovetail.families.aggregate.stream import AggregateKernel
from dovetail.plan.aggregate import AggregatePlan
from dovetail.plan.aggregate_calls import Argument, Call, TypedCall, from_pairs_by_type
from dovetail.plan.asked_window import AskedWindow
from dovetail.plan.broadcast import reads_both
from dovetail.plan.theta import Facts
from dovetail.spark.batch import FlatSide, Joined, Routed, Sampling, broadcast_in_parts, in_turn, segments_by_cell
from dovetail.spark.carriers import arrow_type, carrier, is_carried
from dovetail.spark.frames import Side, filtered_sides, identity, is_ansi, nested_fields, never_null
from dovetail.spark.intake import Intake, held_side, with_types
from dovetail.spark.keys import hash_column, key_columns, payload_source
from dovetail.spark.ledger import Stage
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import SEGMENTS, arrow_function
from dovetail.spark.runtime.versions import apply_by_group
from dovetail.spark.sizes import small_inputs
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel
from dovetail.spark.types import check_deterministic, comparison_type

_SMALL = 4 << 20
"""Bytes of a matched side that may travel on a row among others."""
_TIME = "tm"
_ARGUMENT = "a"
"""Prefix of the argument columns."""


def typed_calls(frames: Mapping[str, DataFrame], other: str, calls: Sequence[Call]) -> list[TypedCall]:
    """The calls with the types that Spark gives them; refuses those that Spark cannot evaluate."""
    if not calls:
        return []
    matched = Side.of(other, frames[other]).frame
    ansi = is_ansi(frames)
    sqls = [sql for call in calls for sql in call.arguments]
    try:
        # Any one of its values has the type of an argument, and aggregates are analysed with it at once.
        fields = _fields(matched, [*(call.sql for call in calls), *(f"any_value({sql})" for sql in sqls)])
        results, kinds = fields[: len(calls)], iter([field.dataType for field in fields[len(calls) :]])
    except AnalysisException as error:
        if len(calls) > 1:
            for call in calls:
                typed_calls(frames, other, [call])
        raise ArgumentError(
            f"agg[{calls[0].name!r}]={calls[0].text!r}, which Spark cannot evaluate over {other!r}",
            accepted="an aggregate over an expression of Spark SQL",
            hint=next((line for line in str(error).splitlines() if line.strip()), None),
        ) from error
    typed = []
    for call, result in zip(calls, results, strict=True):
        if any(may_be_random(sql) for sql in call.arguments):
            check_deterministic(frames, list(call.arguments), f"agg[{call.name!r}]={call.text!r}")
        arguments = [_argument(sql, next(kinds), ansi=ansi) for sql in call.arguments]
        kind = result.dataType
        text = kind.simpleString(), arrow_type(kind), kind.json()
        typed.append(TypedCall(call, tuple(arguments), *text, nullable=result.nullable))
    return typed


def settled(calls: Sequence[Call], typed: Sequence[TypedCall]) -> list[Call]:
    """The calls, of which those come from the pairs that kernels lack the type for."""
    found = {one.call.name: one for one in typed}
    return [from_pairs_by_type(found[call.name]) if call.name in found else call for call in calls]


def narrowed(frames: Mapping[str, DataFrame], facts: Facts, predicate: Predicate, calls: Sequence[TypedCall]) -> Facts:
    """The facts with the size of what travels of an input that is too large as a whole: keys and arguments."""
    found = dict(facts.sizes)
    parts: list[Equality | Inequality | Band] = [*predicate.equalities, *predicate.inequalities, *predicate.bands]
    for alias, frame in frames.items():
        if alias in found or frame.isStreaming:
            continue
        sqls = [term.sql for part in parts for term in (part.left, part.right) if term.alias == alias]
        sqls += [argument.sql for call in calls for argument in call.arguments]
        if sqls:
            named = [f"({sql}) AS {_ARGUMENT}{at}" for at, sql in enumerate(dict.fromkeys(sqls))]
            found |= small_inputs({alias: Side.of(alias, frame).frame.selectExpr(*named)})
    return replace(facts, sizes=found)


def _fields(matched: DataFrame, expressions: Sequence[str]) -> list[T.StructField]:
    """Expressions as Spark types them; it takes some milliseconds to analyse a frame, so all of them in one."""
    named = [f"{sql} AS {_ARGUMENT}{at}" for at, sql in enumerate(expressions)]
    return matched.selectExpr(*named).schema.fields


def _argument(sql: str, kind: T.DataType, *, ansi: bool) -> Argument:
    key = comparison_type(kind, kind, ansi=ansi) if carrier(kind) is kind else None
    return Argument(sql, kind.simpleString(), arrow_type(kind), key)


def aggregate_frame(frames: Mapping[str, DataFrame], plan: AggregatePlan) -> DataFrame:
    """The lazy frame that a plan describes: a struct column for the asking input, then the aggregates."""
    name, names = f"dovetail({','.join(plan.inputs)})", METRICS if plan.window is None else WAITING_METRICS
    recorder = Recorder(name, plan.shuffle_partitions, streaming=bool(plan.streams), names=names)
    columns = _Columns(plan, filtered_sides(frames, plan.filters), whole=not recorder.among_rows)
    if plan.window is not None:
        rows = _streamed(columns, recorder, identity(frames, plan.identity()), plan.window, frames)
    else:
        rows = _broadcast(columns, recorder) if plan.broadcast else _shuffled(columns, recorder)
    return attach(rows, Handle(plan, [recorder]))


class _Columns:
    """The columns of both sides that reach the stages, and those that leave them."""

    def __init__(self, plan: AggregatePlan, sides: Mapping[str, Side], *, whole: bool) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.asking, self.answering = sides[plan.by], sides[plan.other]
        self.whole = whole and not is_carried(self.payload())
        """Whether no row of NULLs travels among the results: what is never NULL is declared so, and not checked."""

    def keys(self, side: int, prefix: str = KEY, *, hashed: bool = True) -> list[str]:
        """The key columns and their hash; a filter that must not drop asking rows hides their keys instead."""
        step = self.spec.step
        keys = step.point_keys if side == ANSWERING else step.box_keys
        columns = key_columns(keys, prefix, only=self.plan.hidden if side == ASKING else None)
        if step.equalities and hashed:
            columns.append(hash_column(keys[: len(step.equalities)], f"{prefix}{len(keys)}"))
        return columns

    def stored(self) -> tuple[list[str], list[str]]:
        """What a stream stores of the matched rows and of those that ask: columns, or the texts they come from."""
        step = self.spec.step
        texts = [bare(key.sql) for key in step.point_keys]
        texts += [f"aggregated {number + 1}" for number in range(len(self.spec.arguments))]
        return texts, [field.name for _, field in self.asking.payload]

    def matched(self) -> list[tuple[str, str]]:
        """What is stored of the matched rows, with the types."""
        keys = [(bare(key.sql), key.ddl) for key in self.spec.step.point_keys]
        return [
            *keys,
            *((bare(sql), str(kind)) for sql, kind in zip(self.plan.columns, self.spec.arguments, strict=True)),
        ]

    def sources(self) -> tuple[Source | None, ...]:
        """Which asking keys are in the payload; a filter that hides keys makes them columns of their own."""
        keys = self.spec.step.box_keys
        if self.plan.hidden:
            return (None,) * len(keys)
        return tuple(payload_source(self.asking, key) for key in keys)

    def answering_side(self, *, hashed: bool = True) -> FlatSide:
        """Keys, arguments, hash."""
        keys = self.keys(ANSWERING, hashed=hashed)
        count = len(self.spec.step.point_keys)
        arguments = [f"{sql} AS {_ARGUMENT}{at}" for at, sql in enumerate(self.plan.columns)]
        return FlatSide(self.answering.frame, [*keys[:count], *arguments, *keys[count:]])

    def asking_side(self, *, hashed: bool = True) -> FlatSide:
        """Payload, keys, hash."""
        keys, sources = self.keys(ASKING, hashed=hashed), self.sources()
        travelling = [key for key, source in zip(keys, sources, strict=False) if source is None]
        return FlatSide(self.asking.frame, [*self.asking.payload_columns(), *travelling, *keys[len(sources) :]])

    def schema(self) -> T.StructType:
        """What leaves a stage, with the counters last."""
        structs = nested_fields(self.payload(), self.asking.shape(POINT_PAYLOAD), whole=self.whole)
        return T.StructType([*structs, *self.results(), T.StructField(COUNTERS, T.ArrayType(T.LongType()))])

    def payload(self) -> list[T.StructField]:
        """The flat columns of the asking input."""
        fields = [field for _, field in self.asking.payload]
        return [T.StructField(f"{POINT_PAYLOAD}{at}", one.dataType, one.nullable) for at, one in enumerate(fields)]

    def results(self) -> list[T.StructField]:
        """The columns of the aggregates."""
        results = [
            {
                "name": call.call.name,
                "type": json.loads(call.json),
                "nullable": call.nullable or not self.whole,
                "metadata": {},
            }
            for call in self.plan.calls
        ]
        return T.StructType.fromJson({"type": "struct", "fields": results}).fields

    def named(self, stage: Stage) -> Stage:
        """A stage whose rows come out as the user sees them: the struct of the asking input, and named results."""
        shape, certain = self.asking.shape(POINT_PAYLOAD), never_null(self.payload()) if self.whole else None
        payload, names = (
            len(self.spec.payload),
            [self.plan.by, *(output.name for output in self.spec.outputs), COUNTERS],
        )

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in stage(batches):
                columns = [nest(rows, shape, certain).column(0), *rows.columns[payload:]]
                yield pa.RecordBatch.from_arrays(columns, names=names)

        return run


def _shuffled(columns: _Columns, recorder: Recorder) -> DataFrame:
    plan, spec, partitions = columns.plan, columns.spec, columns.plan.shuffle_partitions

    def route(side: int, routing: bytes | None) -> Stage:
        return RouteStage(spec, partitions, columns.sources(), side=side, routing=routing)

    routed = Routed(
        route=route,
        without_sample=(gathered if spec.gathered else without_sample)(spec.step, partitions).to_buffer().to_pybytes(),
        sampling=_sampling(columns) if plan.sampled else None,
        partitions=partitions,
        held=ANSWERING,
    )
    cells = segments_by_cell((columns.answering_side(), columns.asking_side()), routed)
    answer = AnswerStage(spec, partitions, columns.sources(), clock=recorder.clock(cells))
    answered = apply_by_group(cells, CELL_NUMBER, arrow_function(answer, numbered=True), SEGMENTS)
    merging = columns.named(MergeStage(spec, partitions, columns.sources()))
    return recorder.run(in_turn(answered, partitions), merging, columns.schema(), by=CELL_NUMBER)


def _sampling(columns: _Columns) -> Sampling:
    fit = FitStage(columns.spec, columns.plan.shuffle_partitions, fractions=(1 / DENSE, 1 / SPARSE))
    sampled = [[f"{side} AS {SIDE}", *columns.keys(side, SAMPLED_KEYS[side])] for side in (ANSWERING, ASKING)]
    return Sampling(fit, (sampled[ANSWERING], sampled[ASKING]))


def _packed(flat: FlatSide, stage: ResultStage, side: int, alias: str, time: str) -> DataFrame:
    """An input in the cells of its keys; its time is the last column, and a hash before it finds the cell."""
    spec = stage.spec
    hashed = len(spec.step.point_keys) + len(spec.arguments), len(spec.payload) + stage.travelling
    cells = CellOfHash(hashed[side]) if stage.hashed else None
    columns = [*flat.columns, f"{quoted(alias)}.{quoted(time)} AS {_TIME}"]
    rows = FlatSide(flat.frame, columns).flat()
    return rows.mapInArrow(arrow_function(PackRows(side, cells)), PACKED_ROWS)


def _streamed(
    columns: _Columns,
    recorder: Recorder,
    join: Mapping[str, str],
    window: AskedWindow,
    frames: Mapping[str, DataFrame],
) -> DataFrame:
    plan, spec = columns.plan, columns.spec
    stage = ResultStage(spec, sources=columns.sources())
    packed = [
        _packed(columns.answering_side(), stage, ANSWERING, plan.other, window.times[1]),
        _packed(columns.asking_side(), stage, ASKING, plan.by, window.times[0]),
    ]
    answers = columns.results()
    fields = [*columns.payload(), *(T.StructField(f"{RESULT}{at}", field.dataType) for at, field in enumerate(answers))]
    make = partial(AggregateKernel, stage, window.low, window.high)
    held = (plan.other, plan.by), columns.stored(), window.low, window.high, columns.matched()
    layout = with_types(inventory.layout(*held), frames)

    def pack(held: Mapping[str, DataFrame]) -> list[DataFrame]:
        asked = [sql for filtered, sql in plan.filters if filtered == plan.by]
        sides = {plan.other: columns.answering, plan.by: held_side(plan.by, held[plan.by], asked)}
        again = _Columns(plan, sides, whole=False)
        return [_packed(again.asking_side(), stage, ASKING, plan.by, window.times[0])]

    names = (*columns_of(KEY, len(spec.step.point_keys)), *columns_of(_ARGUMENT, len(spec.arguments)), _TIME)
    adopt = partial(AggregateAdoption, stage.hashed, width=len(spec.payload) + stage.travelling, names=names)
    recorder.intake = Intake(pack, adopt, {plan.by: frames[plan.by].schema}, ())
    rows = run_kernel(packed, make, recorder, fields, join, event_time=True, layout=layout)
    named = [f"{RESULT}{at} AS {quoted(field.name)}" for at, field in enumerate(answers)]
    return rows.selectExpr(*columns.asking.structs(POINT_PAYLOAD), *named)


def _broadcast(columns: _Columns, recorder: Recorder) -> DataFrame:
    small = columns.plan.broadcast
    together = reads_both(small)
    packed = not together and (recorder.streaming or small is None or small.size is None or small.size > _SMALL)
    stage = columns.named(BroadcastStage(columns.spec, sources=columns.sources(), packed=packed))
    sides = columns.asking_side(hashed=False), columns.answering_side(hashed=False)
    joined = Joined(stage, columns.schema(), None)
    return broadcast_in_parts(sides, IndexStage(columns.spec), joined, recorder, packed=packed, together=together)

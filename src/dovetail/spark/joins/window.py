"""Window joins as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.changing import GIVEN
from dovetail.columns.layout import HAS_ROW, RECORD, VERDICT, input_payload
from dovetail.columns.structs import Nested, nest
from dovetail.conditions.names import quoted
from dovetail.families.shedding.router import SheddingRouter
from dovetail.families.shedding.spec import Harvest, Shed
from dovetail.families.window import inventory
from dovetail.families.window.changing import WindowAdoption
from dovetail.families.window.completion import CompletingKernel
from dovetail.families.window.judged import CandidateKernel, FinishStage, candidate_columns
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.stream import WindowJoinKernel, metric_names
from dovetail.families.window.undecided import DECISIONS, DecisionKernel, UndecidedKernel, undecided_columns
from dovetail.plan.window import InputColumns
from dovetail.plan.window_plan import WindowPlan
from dovetail.spark.carriers import arrow_type, arrowed, carried_fields, restored
from dovetail.spark.cells import SPLIT_METRICS
from dovetail.spark.frames import (
    Side,
    conjunction,
    field_of,
    filtered_sides,
    identity,
    nested_fields,
    never_null,
    with_structs,
)
from dovetail.spark.intake import Intake, held_side, with_types
from dovetail.spark.joins.further import with_tables
from dovetail.spark.joins.shedding import (
    cell_of,
    scout_recorder,
    scout_router,
    scouted_results,
    shed_names,
    shed_sums,
    shedding_kernel,
)
from dovetail.spark.keys import key_columns
from dovetail.spark.metrics import Handle, Recorder, attach, handle_of
from dovetail.spark.routing import arrow_function
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel
from dovetail.spark.watermarks import watermark_delay


def window_join_frame(frames: Mapping[str, DataFrame], plan: WindowPlan) -> DataFrame:
    """The lazy frame of a plan, one struct column per alias."""
    sides = filtered_sides(frames, plan.filters)
    spec = plan.spec
    streaming = bool(plan.streams)
    router = WindowRouter if plan.shed is None or plan.shed.throttle is not None else SheddingRouter
    packed = [_packed(sides[alias], router(spec, at), streaming=streaming) for at, alias in enumerate(plan.inputs)]
    handle = Handle(plan)
    names, sums, kernel = _running(plan)
    if not streaming:
        names += SPLIT_METRICS
    recorder = Recorder(
        f"dovetail({','.join(plan.inputs)})", plan.partitions, streaming=streaming, names=names, sums=sums
    )
    handle.recorders.append(recorder)
    shape: list[Nested] = []
    for at, side in enumerate(spec.emitted):
        present = f"{HAS_ROW}{at}" if spec.outer else None
        shape += sides[spec.aliases[side]].shape(input_payload(side), present=present)
    join = identity(frames, plan.identity())
    fields = _fields(sides, spec)
    layout = inventory.layout(
        spec, [frames[alias].columns for alias in plan.inputs], tasks=plan.partitions,
        family="window" if plan.shed is None else "shedding", sheds=_sheds(plan.shed), judged=bool(plan.verdicts),
    )  # fmt: skip
    layout = with_types(layout, frames)
    if streaming:
        recorder.intake = _intake(frames, plan)
        recorder.above = int(bool(plan.verdicts))
    if plan.scouted and isinstance(plan.shed, Harvest):
        scouting = scout_recorder(plan)
        scouting.above = recorder.above + 1
        handle.recorders.append(scouting)
        sample = [
            _packed(sides[alias], scout_router(plan, plan.shed, at), streaming=True)
            for at, alias in enumerate(plan.inputs)
        ]
        packed.append(scouted_results(sample, plan, plan.shed, sides, join, scouting, layout))
    if plan.verdicts and streaming:
        found = _candidate_fields(sides, spec, undecided_columns(spec))
        undecided = run_kernel(packed, kernel, recorder, found, join, layout=layout)
        deciding = Recorder(f"decided({','.join(plan.inputs)})", plan.partitions, streaming=True, names=DECISIONS)
        handle.recorders.append(deciding)
        pack = PackRows(0, cells=cell_of)
        judged = _judged(undecided, plan, sides).mapInArrow(arrow_function(pack), PACKED_ROWS)
        decision = partial(DecisionKernel, spec)
        rows = run_kernel([judged], decision, deciding, fields, join, shape=shape, layout=layout)
        return attach(rows, handle)
    if plan.verdicts:
        candidates = run_kernel(
            packed, partial(CandidateKernel, spec), recorder,
            _candidate_fields(sides, spec, candidate_columns(spec)), join, partitions=plan.partitions,
        )  # fmt: skip
        return attach(recorder.finished(_finished(candidates, plan, sides, fields, shape)), handle)
    rows = run_kernel(packed, kernel, recorder, fields, join, partitions=plan.partitions, shape=shape, layout=layout)
    if plan.rests:
        rows = recorder.finished(rows.filter(conjunction(plan.rests)))
    return attach(rows, handle)


def beside_tables(frames: Mapping[str, DataFrame], plan: WindowPlan, inputs: Sequence[str]) -> DataFrame:
    """The frame of a plan whose streams are joined with tables; `inputs` are all aliases in the user's order."""
    streams = {alias: frames[alias] for alias in plan.inputs}
    joined = window_join_frame(streams, plan)
    handle = handle_of(joined, "window_join")
    return attach(with_tables(joined, frames, plan.tables, inputs), handle)


def _running(plan: WindowPlan) -> tuple[tuple[str, ...], list[Column] | None, Callable[[], WindowJoinKernel]]:
    """The counters of a join, how they add up where not as sums, and its kernel."""
    if plan.shed is None or plan.slices is None:
        kind = CompletingKernel if plan.spec.extras else UndecidedKernel if plan.verdicts else WindowJoinKernel
        return metric_names(plan.inputs), None, partial(kind, plan.spec)
    harvesting = isinstance(plan.shed, Harvest)
    sums = shed_sums(plan.inputs, plan.slices, harvesting=harvesting, judged=plan.scouted)
    return shed_names(plan, plan.slices), sums, shedding_kernel(plan, plan.shed)


def _intake(frames: Mapping[str, DataFrame], plan: WindowPlan) -> Intake:
    """How the join takes over rows that another definition of it has held."""
    spec = plan.spec

    def pack(held: Mapping[str, DataFrame]) -> list[DataFrame]:
        packed = []
        for at, alias in enumerate(plan.inputs):
            if alias in held:
                side = held_side(alias, held[alias], [sql for filtered, sql in plan.filters if filtered == alias])
                packed.append(_packed(side, WindowRouter(spec, at), streaming=False, marks=(quoted(GIVEN),)))
        return packed

    def adopt(told: Mapping[str, Any]) -> WindowAdoption:
        return WindowAdoption(spec, bool(plan.verdicts), told)

    return Intake(pack, adopt, {alias: frames[alias].schema for alias in plan.inputs}, (plan.predicate.sql,))


def _sheds(shed: Shed | None) -> str | None:
    """What a join sheds: work, of which nothing is seen in the rows that it holds, or rows."""
    if shed is None:
        return None
    whole = isinstance(shed, Harvest) and shed.memory is None and shed.keep == "windows"
    return "work" if whole else "rows"


def _packed(side: Side, router: WindowRouter, *, streaming: bool, marks: Sequence[str] = ()) -> DataFrame:
    spec, at = router.spec, router.side
    travelling = [key for key, source in zip(spec.keys[at], spec.sources[at], strict=True) if source is None]
    columns = [*side.payload_columns(), *key_columns(travelling), *marks]
    pack = PackRows(at, router=router, ticks=streaming)
    return side.frame.selectExpr(*columns).mapInArrow(arrow_function(pack), PACKED_ROWS)


def _fields(sides: Mapping[str, Side], spec: WindowJoinSpec) -> list[T.StructField]:
    """The flat columns that leave a kernel; those behind the payloads say which inputs are present."""
    names, outer = spec.output_names(), spec.outer
    fields = [field for side in spec.emitted for _, field in sides[spec.aliases[side]].payload]
    fields += [T.StructField("present", T.BooleanType())] * (len(names) - len(fields))
    return [
        T.StructField(name, field.dataType, field.nullable or outer) for name, field in zip(names, fields, strict=True)
    ]


def _candidate_fields(
    sides: Mapping[str, Side], spec: WindowJoinSpec, columns: list[tuple[str, pa.DataType]]
) -> list[T.StructField]:
    """The flat columns of candidates: the payload of every input, then numbers."""
    payload = [field.dataType for alias in spec.aliases for _, field in sides[alias].payload]
    names = [name for name, _ in columns]
    numbers: list[T.DataType] = [T.IntegerType() if name == RECORD else T.LongType() for name in names[len(payload) :]]
    return [T.StructField(name, kind) for name, kind in zip(names, [*payload, *numbers], strict=True)]


def _finished(
    candidates: DataFrame,
    plan: WindowPlan,
    sides: Mapping[str, Side],
    fields: list[T.StructField],
    shape: list[Nested],
) -> DataFrame:
    """The results that are left of candidates once Spark has judged them, decided in the task that found them."""
    finish, certain = FinishStage(plan.spec), never_null(fields)

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in finish(batches):
            yield nest(rows, shape, certain)

    sent = T.StructType(nested_fields(carried_fields(fields), shape, whole=True))
    rows = _judged(candidates, plan, sides).mapInArrow(arrow_function(stage), sent)
    return restored(rows, nested_fields(fields, shape, whole=True))


def _judged(candidates: DataFrame, plan: WindowPlan, sides: Mapping[str, Side]) -> DataFrame:
    """Candidates with Spark's verdicts."""
    structs = [one for at, alias in enumerate(plan.inputs) for one in sides[alias].structs(input_payload(at))]
    both = with_structs(candidates, structs, "#found")
    verdict = F.lit(True)
    for side, conditions in plan.verdicts:
        verdict = F.when(F.col(f"#found.{RECORD}") == side, conjunction(conditions)).otherwise(verdict)
    payload = [
        T.StructField(f"{input_payload(at)}{number}", field.dataType)
        for at, alias in enumerate(plan.inputs)
        for number, (_, field) in enumerate(sides[alias].payload)
    ]
    return arrowed(both.select("#found.*", verdict.alias(VERDICT)), payload)


def input_columns(frames: Mapping[str, DataFrame]) -> dict[str, InputColumns]:
    """What a plan knows of the columns of each input."""
    return {
        alias: InputColumns(
            tuple(field.name for field in frame.schema.fields),
            tuple(field.dataType.simpleString() for field in frame.schema.fields),
            tuple(arrow_type(field.dataType) for field in frame.schema.fields),
        )
        for alias, frame in frames.items()
    }


def watermark_delays(frames: Mapping[str, DataFrame], times: Mapping[str, str]) -> dict[str, int | None]:
    """For each input the delay of its own watermark, in microseconds; None where it has none."""
    return {alias: watermark_delay(field_of(alias, frame, times[alias], "time=")) for alias, frame in frames.items()}

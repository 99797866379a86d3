"""Theta joins in windows as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.columns.layout import EVENT_TIME, HAS_ROW, input_payload
from dovetail.columns.structs import Nested
from dovetail.conditions.comparison import Key
from dovetail.conditions.durations import TimeWindow
from dovetail.conditions.names import quoted
from dovetail.families.theta import inventory
from dovetail.families.theta.changing import ThetaAdoption
from dovetail.families.theta.router import CELLS, CellOfTime
from dovetail.families.theta.spec import WindowSpec
from dovetail.families.theta.stream import METRICS, WindowKernel
from dovetail.plan.theta_plan import ThetaPlan
from dovetail.spark.frames import Side, conjunction, filtered_sides, identity
from dovetail.spark.intake import Intake, held_side, with_types
from dovetail.spark.keys import key_columns
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel


def window_frame(frames: Mapping[str, DataFrame], plan: ThetaPlan) -> DataFrame:
    """The lazy frame of a windowed plan, one struct column per alias."""
    assert plan.spec is not None
    spec, sides = plan.spec, filtered_sides(frames, plan.filters)
    packed = [_packed(sides[alias], side, plan, spec) for side, alias in enumerate(plan.inputs)]
    handle = Handle(plan)
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", 1, streaming=bool(plan.streams), names=METRICS)
    handle.recorders.append(recorder)
    emitted = [sides[spec.aliases[side]] for side in spec.emitted]
    fields, shape = _fields(emitted, spec), _shape(emitted, spec)
    join, kernel = identity(frames, plan.identity()), partial(WindowKernel, spec)
    event_time = isinstance(plan.window, TimeWindow)
    layout = with_types(inventory.layout(spec, [frames[alias].columns for alias in plan.inputs]), frames)
    if plan.streams:
        recorder.intake = _intake(frames, plan, spec)
    rows = run_kernel(packed, kernel, recorder, fields, join, event_time=event_time, shape=shape, layout=layout)
    rests = [sql for step in plan.steps for sql in step.rests]
    if rests:
        rows = recorder.finished(rows.filter(conjunction(rests)))
    return attach(rows, handle)


def _intake(frames: Mapping[str, DataFrame], plan: ThetaPlan, spec: WindowSpec) -> Intake:
    """How the join takes over rows that another definition of it has held."""

    def pack(held: Mapping[str, DataFrame]) -> list[DataFrame]:
        packed = []
        for number, alias in enumerate(plan.inputs):
            side = held_side(alias, held[alias], [sql for filtered, sql in plan.filters if filtered == alias])
            packed.append(_packed(side, number, plan, spec))
        return packed

    schemas = {alias: frames[alias].schema for alias in plan.inputs}
    return Intake(pack, partial(ThetaAdoption, spec), schemas, (plan.predicate.sql,))


def _packed(side: Side, number: int, plan: ThetaPlan, spec: WindowSpec) -> DataFrame:
    alias = plan.inputs[number]
    columns = [*side.payload_columns(), *_keys(spec.keys[number], plan, alias)]
    window = plan.window
    cells = None
    if isinstance(window, TimeWindow):
        # Times without a zone are cut as they are written, whatever zone the session is in.
        columns.append(f"{quoted(alias)}.{quoted(window.time)} AS {EVENT_TIME}")
        cells = CellOfTime(window.every, CELLS if plan.streams else plan.steps[0].shuffle_partitions)
    pack = PackRows(number, cells)
    return side.frame.selectExpr(*columns).mapInArrow(arrow_function(pack), PACKED_ROWS)


def _keys(keys: tuple[Key, ...], plan: ThetaPlan, alias: str) -> list[str]:
    """Key columns; a condition on an input whose unmatched rows count hides keys instead of dropping rows."""
    dropped = {filtered for filtered, _ in plan.filters}
    conditions = [f"({f.sql})" for f in plan.predicate.filters if f.alias == alias and alias not in dropped]
    return key_columns(keys, only=" AND ".join(conditions) or None)


def _fields(emitted: list[Side], spec: WindowSpec) -> list[T.StructField]:
    """The columns that the kernel gives, with Spark's types."""
    payload = [field for side in emitted for _, field in side.payload]
    present = [T.StructField("", T.BooleanType())] * len(emitted)
    # Only an outer join says which inputs are there.
    named = zip(spec.output_names(), [*payload, *present], strict=False)
    return [T.StructField(name, field.dataType, field.nullable or spec.kind.outer) for name, field in named]


def _shape(emitted: list[Side], spec: WindowSpec) -> list[Nested]:
    shape: list[Nested] = []
    for number, side in enumerate(emitted):
        shape += side.shape(input_payload(number), present=f"{HAS_ROW}{number}" if spec.kind.outer else None)
    return shape

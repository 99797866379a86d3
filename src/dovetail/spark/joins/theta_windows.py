"""Theta joins in windows as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.structs import Nested
from dovetail.conditions.comparison import Key
from dovetail.conditions.durations import CountWindow, TimeWindow
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, UnboundedJoinError, UnsupportedTypeError, unknown_column
from dovetail.families.theta.stream import CELLS, METRICS, CellOfTime, WindowKernel, WindowSpec, WindowStep
from dovetail.plan.theta import ThetaPlan
from dovetail.spark.frames import Side, conjunction, filtered_sides, identity
from dovetail.spark.keys import key_columns
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel


def window_frame(frames: Mapping[str, DataFrame], plan: ThetaPlan) -> DataFrame:
    """The lazy frame of a windowed plan, one struct column per alias."""
    _check(plan)
    sides = filtered_sides(frames, plan.filters)
    spec = window_spec(sides, plan)
    packed = [_packed(sides[alias], spec, at, plan) for at, alias in enumerate(plan.inputs)]
    handle = Handle(plan)
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", 1, streaming=bool(plan.streams), names=METRICS)
    handle.recorders.append(recorder)
    event_time = isinstance(plan.window, TimeWindow)
    fields = _fields(sides, plan)
    join, shape, kernel = identity(frames, plan.identity()), _shape(sides, plan), partial(WindowKernel, spec)
    rows = run_kernel(packed, kernel, recorder, fields, join, event_time=event_time, shape=shape)
    rests = [sql for step in plan.steps for sql in step.rests]
    if rests:
        rows = recorder.finished(rows.filter(conjunction(rests)))
    return attach(rows, handle)


def _check(plan: ThetaPlan) -> None:
    how = plan.steps[0].options.how
    if how != "inner" and any(step.rests for step in plan.steps):
        rest = next(sql for step in plan.steps for sql in step.rests)
        raise ArgumentError(
            f"how={how!r} in windows with the condition {rest.replace('`', '')}, which only Spark can evaluate",
            accepted="how='inner' with any condition, or another how with comparisons of two inputs only",
            hint="move a condition on one input into a filter of that input",
        )


def check_time(frames: Mapping[str, DataFrame], window: TimeWindow) -> None:
    """Refuse a time column that an input lacks or that holds no times."""
    kinds: dict[str, str] = {}
    for alias, frame in frames.items():
        names = {field.name.casefold(): field for field in frame.schema.fields}
        field = names.get(window.time.casefold())
        if field is None:
            raise unknown_column(window.time, alias, frame.columns, where="time=")
        if not isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
            raise UnsupportedTypeError(
                f"time={window.time!r} has the type {field.dataType.simpleString()} in {alias!r}",
                accepted="a column of type timestamp or timestamp_ntz",
            )
        kinds.setdefault(field.dataType.simpleString(), alias)
        if frame.isStreaming and "spark.watermarkDelayMs" not in field.metadata:
            raise UnboundedJoinError(
                f"the stream {alias!r} has no watermark on {window.time!r}, so no window of it would ever close",
                accepted=f"a stream with a watermark, such as frame.withWatermark({window.time!r}, '10 seconds')",
            )
    if len(kinds) > 1:
        given = " and ".join(f"{kind} in {alias!r}" for kind, alias in kinds.items())
        raise UnsupportedTypeError(
            f"time={window.time!r} has the type {given}", accepted="one type of timestamp in all inputs"
        )


def window_spec(sides: Mapping[str, Side], plan: ThetaPlan) -> WindowSpec:
    """The kernel's description of the join."""
    order = [*plan.steps[0].left, *[step.right for step in plan.steps]]
    keys: dict[str, list[Key]] = {alias: [] for alias in plan.inputs}
    for step in plan.steps:
        for key in (*step.step.point_keys, *step.step.box_keys):
            if key not in keys[key.alias]:
                keys[key.alias].append(key)
    window = plan.window
    return WindowSpec(
        payload=tuple(len(sides[alias].payload) for alias in plan.inputs),
        keys=tuple(tuple(keys[alias]) for alias in plan.inputs),
        aliases=plan.inputs,
        first=plan.inputs.index(order[0]),
        steps=tuple(WindowStep(step.step, plan.inputs.index(step.right)) for step in plan.steps),
        options=plan.steps[0].options,
        rows=window.rows if isinstance(window, CountWindow) else None,
        every=window.every if isinstance(window, TimeWindow) else None,
        types=tuple(sides[alias].arrow_types() for alias in plan.inputs),
    )


def _packed(side: Side, spec: WindowSpec, at: int, plan: ThetaPlan) -> DataFrame:
    alias = plan.inputs[at]
    columns: list[Column] = [*side.payload_columns(), *_keys(spec.keys[at], plan, alias)]
    window = plan.window
    cells = None
    if isinstance(window, TimeWindow):
        # Times without a zone are cut as they are written, whatever zone the session is in.
        columns.append(F.col(f"{quoted(alias)}.{quoted(window.time)}").alias("t"))
        cells = CellOfTime(window.every, CELLS if plan.streams else plan.steps[0].shuffle_partitions)
    pack = PackRows(at, cells)
    return side.frame.select(*columns).mapInArrow(arrow_function(pack), PACKED_ROWS)


def _keys(keys: tuple[Key, ...], plan: ThetaPlan, alias: str) -> list[Column]:
    """Key columns; a condition on an input whose unmatched rows count hides keys instead of dropping rows."""
    dropped = {filtered for filtered, _ in plan.filters}
    conditions = [f"({f.sql})" for f in plan.predicate.filters if f.alias == alias and alias not in dropped]
    return key_columns(keys, only=" AND ".join(conditions) or None)


def _emitted(plan: ThetaPlan) -> tuple[str, ...]:
    return plan.inputs[:1] if plan.steps[0].options.how in ("semi", "anti") else plan.inputs


def _is_outer(plan: ThetaPlan) -> bool:
    return plan.steps[0].options.how in ("left", "right", "full")


def _fields(sides: Mapping[str, Side], plan: ThetaPlan) -> list[T.StructField]:
    inputs = _emitted(plan)
    fields = [
        T.StructField(f"i{at}_{number}", field.dataType, field.nullable or _is_outer(plan))
        for at, alias in enumerate(inputs)
        for number, (_, field) in enumerate(sides[alias].payload)
    ]
    if _is_outer(plan):
        fields += [T.StructField(f"p{at}", T.BooleanType()) for at in range(len(inputs))]
    return fields


def _shape(sides: Mapping[str, Side], plan: ThetaPlan) -> list[Nested]:
    shape: list[Nested] = []
    for at, alias in enumerate(_emitted(plan)):
        shape += sides[alias].shape(f"i{at}_", present=f"p{at}" if _is_outer(plan) else None)
    return shape

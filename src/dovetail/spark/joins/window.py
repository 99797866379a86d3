"""Window joins as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from dovetail.columns.spark_hash import placed
from dovetail.columns.structs import Nested
from dovetail.conditions.comparison import Key
from dovetail.errors import ArgumentError, UnsupportedTypeError, unknown_alias, unknown_column
from dovetail.families.shedding.router import SheddingRouter
from dovetail.families.shedding.spec import Harvest
from dovetail.families.shedding.stream import HarvestKernel, shed_metrics
from dovetail.families.shedding.stream_drop import DropKernel
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.stream import WindowJoinKernel, metric_names
from dovetail.plan.window import WindowPlan
from dovetail.spark.frames import Side, conjunction, filtered_sides, identity
from dovetail.spark.joins.shedding import shed_sums
from dovetail.spark.keys import key_columns, payload_source
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)


def window_join_frame(frames: Mapping[str, DataFrame], plan: WindowPlan) -> DataFrame:
    """The lazy frame of a plan, one struct column per alias."""
    sides = filtered_sides(frames, plan.filters)
    spec = window_join_spec(sides, plan)
    streaming = bool(plan.streams)
    router = WindowRouter if plan.shed is None else SheddingRouter
    packed = [_packed(sides[alias], router(spec, at), streaming=streaming) for at, alias in enumerate(plan.inputs)]
    handle = Handle(plan)
    names, sums, kernel = _running(plan, spec)
    recorder = Recorder(
        f"dovetail({','.join(plan.inputs)})", plan.partitions, streaming=streaming, names=names, sums=sums
    )
    handle.recorders.append(recorder)
    fields = _fields(sides, spec)
    outer = len(fields) > sum(spec.payload[side] for side in spec.emitted)
    shape: list[Nested] = []
    for side in spec.emitted:
        shape += sides[spec.aliases[side]].shape(f"i{side}_", present=f"p{side}" if outer else None)
    join = identity(frames, plan.identity())
    rows = run_kernel(packed, kernel, recorder, fields, join, partitions=plan.partitions, shape=shape)
    if plan.rests:
        rows = recorder.finished(rows.filter(conjunction(plan.rests)))
    return attach(rows, handle)


def _running(
    plan: WindowPlan, spec: WindowJoinSpec
) -> tuple[tuple[str, ...], list[Column] | None, Callable[[], WindowJoinKernel]]:
    """The counters of a join, how they add up where not as sums, and its kernel."""
    if plan.shed is None or plan.slices is None:
        return metric_names(plan.inputs), None, partial(WindowJoinKernel, spec)
    harvesting = isinstance(plan.shed, Harvest)
    kind = HarvestKernel if harvesting else DropKernel
    kernel = partial(kind, spec, shed=plan.shed, slices=plan.slices)
    sums = shed_sums(plan.inputs, plan.slices, harvesting=harvesting)
    return shed_metrics(plan.inputs, plan.slices), sums, kernel


def window_join_spec(sides: Mapping[str, Side], plan: WindowPlan) -> WindowJoinSpec:
    """The kernel's description of the join."""
    conditions = plan.conditions
    return WindowJoinSpec(
        aliases=plan.inputs,
        options=plan.options,
        graph=plan.graph,
        times=tuple(_place(sides[alias], name) for alias, name in zip(plan.inputs, plan.times, strict=True)),
        payload=tuple(len(sides[alias].payload) for alias in plan.inputs),
        types=tuple(sides[alias].arrow_types() for alias in plan.inputs),
        keys=conditions.keys,
        sources=tuple(_sources(sides[alias], keys) for alias, keys in zip(plan.inputs, conditions.keys, strict=True)),
        classes=conditions.classes,
        equalities=conditions.equalities,
        comparisons=conditions.comparisons,
        delays=plan.delays,
        idle=plan.idle,
        cells=plan.cells,
        grid=plan.grid,
        numbers=placed(plan.cells, plan.partitions),
    )


def _place(side: Side, name: str) -> int:
    return next(at for at, (_, field) in enumerate(side.payload) if field.name.casefold() == name.casefold())


def _sources(side: Side, keys: Sequence[Key]) -> tuple[int | None, ...]:
    found = [payload_source(side, key) for key in keys]
    return tuple(source.column if source is not None and source.shift == 0 else None for source in found)


def _packed(side: Side, router: WindowRouter, *, streaming: bool) -> DataFrame:
    spec, at = router.spec, router.side
    travelling = [key for key, source in zip(spec.keys[at], spec.sources[at], strict=True) if source is None]
    columns: list[Column] = [*side.payload_columns(), *key_columns(travelling)]
    pack = PackRows(at, router=router, ticks=streaming)
    return side.frame.select(*columns).mapInArrow(arrow_function(pack), PACKED_ROWS)


def _fields(sides: Mapping[str, Side], spec: WindowJoinSpec) -> list[T.StructField]:
    """The flat columns that leave a kernel; those behind the payloads say which inputs are present."""
    names = spec.output_names()
    given = [field for side in spec.emitted for _, field in sides[spec.aliases[side]].payload]
    outer = len(names) > len(given)
    given += [T.StructField("present", T.BooleanType())] * (len(names) - len(given))
    return [
        T.StructField(name, field.dataType, field.nullable or outer) for name, field in zip(names, given, strict=True)
    ]


def check_times(frames: Mapping[str, DataFrame], time: str | Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The time column of each input as it is spelled there, and whether it holds whole numbers."""
    if isinstance(time, Mapping):
        for alias in time:
            if alias not in frames:
                raise unknown_alias(str(alias), frames, where="time=")
        missing = [alias for alias in frames if alias not in time]
        if missing:
            raise ArgumentError(
                f"time= names no column for the input {missing[0]!r}", accepted="a column for every input"
            )
    elif not isinstance(time, str) or not time.strip():
        raise ArgumentError(
            f"time={time!r} is not a column name",
            accepted="the name of the time column of all inputs, or a mapping from an alias to a name",
        )
    found: dict[str, str] = {}
    kinds: dict[str, str] = {}
    numeric: dict[str, bool] = {}
    for alias, frame in frames.items():
        name = time if isinstance(time, str) else time[alias]
        fields = {field.name.casefold(): field for field in frame.schema.fields}
        field = fields.get(str(name).casefold())
        if field is None:
            raise unknown_column(str(name), alias, frame.columns, where="time=")
        kind = field.dataType
        if not isinstance(kind, (*_TIMES, *_INTEGERS)):
            hint = None
            if isinstance(kind, T.FractionalType):
                hint = f"scale it to whole numbers first, such as CAST({name} * 1000 AS BIGINT)"
            elif isinstance(kind, T.StringType):
                hint = f"turn it into a timestamp first: to_timestamp({name})"
            raise UnsupportedTypeError(
                f"time={name!r} has the type {kind.simpleString()} in {alias!r}",
                accepted="timestamps, dates or whole numbers", hint=hint,
            )  # fmt: skip
        found[alias] = field.name
        numeric[alias] = isinstance(kind, _INTEGERS)
        word = (
            "bigint" if numeric[alias] else ("timestamp_ntz" if isinstance(kind, T.TimestampNTZType) else "timestamp")
        )
        kinds.setdefault(word, alias)
    if len(kinds) > 1:
        given = " and ".join(f"{kind} in {alias!r}" for kind, alias in kinds.items())
        raise UnsupportedTypeError(f"the times of the inputs are {given}", accepted="times of one kind in all inputs")
    return found, next(iter(numeric.values()))


def watermark_delays(frames: Mapping[str, DataFrame], times: Mapping[str, str]) -> dict[str, int | None]:
    """For each input the delay of its own watermark, in microseconds; None where it has none."""
    found: dict[str, int | None] = {}
    for alias, frame in frames.items():
        field = next(field for field in frame.schema.fields if field.name == times[alias])
        delay = field.metadata.get("spark.watermarkDelayMs")
        found[alias] = None if delay is None else int(delay) * 1000
    return found

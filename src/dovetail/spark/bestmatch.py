"""Best-match joins as Spark frames, batch and streaming alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.codes import Kind
from dovetail.criteria import Closest, Criterion, Extreme, Overlap, Prefer, Youngest
from dovetail.errors import ArgumentError, PredicateError, UnsupportedTypeError, unknown_column
from dovetail.families.bestmatch.matwin import METRICS, BestKernel, output_names
from dovetail.families.bestmatch.recent import RecentKernel
from dovetail.families.bestmatch.router import cut_axes, static_routing
from dovetail.families.bestmatch.spec import Axis, BestSpec
from dovetail.families.bestmatch.stages import FinishStage, FitStage, RouteStage
from dovetail.families.bestmatch.terms import Sum, split_sum
from dovetail.families.theta.spec import Key, KeyType
from dovetail.plan.bestmatch import BestPlan, Facts, Typed
from dovetail.spark.batch import arrow_function, first_row
from dovetail.spark.frames import Side, compared_type, hash_column, key_columns, quoted, same_session
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.stream import PACKED, UnpackRows, run_batch, run_stream
from dovetail.spark.windowed import check_store as check_store
from dovetail.sqltext import read
from dovetail.windows import duration

_INTEGRAL = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_ZERO = "CAST(0 AS BIGINT)"

SAMPLED = 64
"""One row in so many decides where cells are cut."""


# --- what the planner has to know ------------------------------------------------------------------------------------


def best_facts(
    frames: Mapping[str, DataFrame],
    criteria: Sequence[Criterion],
    by: Sequence[str],
    *,
    punctuation: str | None,
    time: str | None,
    order: str | None,
) -> tuple[tuple[Typed, ...], Facts]:
    """The criteria with their types, and what else the planner needs; refuses what Spark cannot evaluate."""
    same_session(frames)
    typed = tuple(_typed(frames, criterion) for criterion in criteria)
    sides = [Side.of(alias, frame) for alias, frame in frames.items()]
    keys: list[tuple[Kind, Key, Key]] = []
    for name in by:
        fields = [_field(frames, alias, name, "by=") for alias in frames]
        common = compared_type(fields[0].dataType, fields[1].dataType, f"by={name!r}")
        left, right = (Key(_sql(alias, f.name), common.ddl, alias) for alias, f in zip(frames, fields, strict=True))
        keys.append((common.kind, left, right))
    session = next(iter(frames.values())).sparkSession
    facts = Facts(
        streams=frozenset(alias for alias, frame in frames.items() if frame.isStreaming),
        names=(tuple(sides[0].frame.schema[0].dataType.names), tuple(sides[1].frame.schema[0].dataType.names)),  # type: ignore[attr-defined]
        types=(sides[0].arrow_types(), sides[1].arrow_types()),
        by=tuple(keys),
        marks=_marks(frames, typed, punctuation, order) if punctuation is not None else None,
        times=_times(frames, time) if time is not None else None,
        timed=time is not None and all(_watermarked(_field(frames, alias, time, "time=")) for alias in frames),
        shuffle_partitions=int(session.conf.get("spark.sql.shuffle.partitions") or 200),
    )
    return typed, facts


def _sql(alias: str, column: str) -> str:
    return f"{quoted(alias)}.{quoted(column)}"


def _field(frames: Mapping[str, DataFrame], alias: str, name: str, where: str) -> T.StructField:
    """A column of an input, by its name or by alias and name."""
    frame = frames[alias]
    bare = name
    for prefix in frames:
        if name.casefold().startswith(f"{prefix.casefold()}.") and prefix == alias:
            bare = name[len(prefix) + 1 :]
    for field in frame.schema.fields:
        if field.name.casefold() == bare.casefold():
            return field
    raise unknown_column(bare, alias, frame.columns, where=where)


def _watermarked(field: T.StructField) -> bool:
    return "spark.watermarkDelayMs" in field.metadata


def _pair(frames: Mapping[str, DataFrame], criterion: Closest | Overlap | Youngest) -> list[T.StructField]:
    names = criterion.left, criterion.right
    return [_field(frames, a, n, f"on ({criterion})") for a, n in zip(frames, names, strict=True)]


def _keys_of(frames: Mapping[str, DataFrame], fields: list[T.StructField], ddl: str) -> tuple[Key, Key]:
    left, right = (Key(_sql(alias, f.name), ddl, alias) for alias, f in zip(frames, fields, strict=True))
    return left, right


def _typed(frames: Mapping[str, DataFrame], criterion: Criterion) -> Typed:
    if isinstance(criterion, Prefer):
        return Typed(criterion)
    if isinstance(criterion, Extreme):
        return _extreme(frames, criterion)
    fields = _pair(frames, criterion)
    if isinstance(criterion, Overlap):
        return _overlap(frames, criterion, fields)
    common = compared_type(fields[0].dataType, fields[1].dataType, str(criterion))
    if isinstance(criterion, Youngest):
        if common.kind != "int" or common.ddl == "BOOLEAN":
            raise UnsupportedTypeError(
                f"{criterion} has the type {common.ddl}", accepted="dates, timestamps or whole numbers"
            )
        return Typed(criterion, Axis("latest", largest=True), _keys_of(frames, fields, common.ddl))
    if common.kind == "rank" or common.ddl == "BOOLEAN":
        raise UnsupportedTypeError(
            f"{criterion} has the type {common.ddl}, which has no distances",
            accepted="numbers (decimals of up to 18 digits), dates or timestamps",
            hint="cast the column in its input, such as CAST(x AS DOUBLE)",
        )
    floats = common.kind != "int"
    axis = Axis("near_float" if floats else "near_int", within=_within(criterion, common))
    ddl = "DOUBLE" if floats else common.ddl
    return Typed(criterion, axis, _keys_of(frames, fields, ddl), watermarked=all(map(_watermarked, fields)))


def _within(criterion: Closest, kind: KeyType) -> int | float | None:
    """A maximum distance in the unit of the codes, or as a float."""
    within = criterion.within
    if within is None:
        return None
    if kind.micros is not None:
        if isinstance(within, int | float | Decimal):
            raise ArgumentError(
                f"{criterion}: the column holds times, and within={within!r} is a number",
                accepted="a length of time, such as within='10 minutes'",
            )
        return duration(within, argument="within") // kind.micros
    if not isinstance(within, int | float | Decimal):
        raise ArgumentError(
            f"{criterion}: the column holds numbers, and within={within!r} is a length of time",
            accepted="a number, such as within=100",
        )
    return float(within) if kind.kind != "int" else int(Decimal(str(within)) * kind.unit)


def _overlap(frames: Mapping[str, DataFrame], criterion: Overlap, fields: list[T.StructField]) -> Typed:
    kinds = []
    for alias, field in zip(frames, fields, strict=True):
        if not isinstance(field.dataType, T.ArrayType):
            raise UnsupportedTypeError(
                f"{criterion}: {alias}.{field.name} has the type {field.dataType.simpleString()}",
                accepted="a column of type array",
            )
        kinds.append(field.dataType.elementType)
    common = compared_type(kinds[0], kinds[1], str(criterion))
    return Typed(criterion, keys=_keys_of(frames, fields, f"ARRAY<{common.ddl}>"), elements=common.kind)


def _extreme(frames: Mapping[str, DataFrame], criterion: Extreme) -> Typed:
    """A sum of two one-sided terms where it is one; else a value that Spark evaluates on candidate pairs."""
    items = read(criterion.sql, {alias: frame.columns for alias, frame in frames.items()})
    first, second = frames
    sides = {alias: Side.of(alias, frame) for alias, frame in frames.items()}
    both = sides[first].frame.limit(0).crossJoin(sides[second].frame.limit(0))
    text = "".join(f"{' ' if item.spaced else ''}{item.sql}" for item in items).strip()
    kind = _type(both, text, criterion)
    if not any(item.alias for item in items):
        raise PredicateError(f"{criterion} holds no column", accepted="an expression over the inputs")
    parts = split_sum(items, (first, second))
    if parts is not None:
        found = _sum(sides, parts, criterion)
        if found is not None:
            return found
    ddl, of_code = _value_type(kind, criterion)
    return Typed(criterion, Axis("given", largest=criterion.largest, kind=of_code), value=f"CAST(({text}) AS {ddl})")


def _type(frame: DataFrame, sql: str, criterion: Extreme) -> T.DataType:
    try:
        return frame.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as error:
        raise PredicateError(
            f"Spark cannot evaluate {criterion}",
            accepted="an expression of Spark SQL over both inputs",
            hint=next((line for line in str(error).splitlines() if line.strip()), ""),
        ) from error


def _sum(sides: Mapping[str, Side], parts: Sum, criterion: Extreme) -> Typed | None:
    aliases = list(sides)
    terms = [parts.left, parts.right]
    kinds = [
        None if term is None else _type(sides[alias].frame, term, criterion)
        for alias, term in zip(aliases, terms, strict=True)
    ]
    present = [kind for kind in kinds if kind is not None]
    if all(isinstance(kind, _INTEGRAL) for kind in present):
        rule, ddls = "sum_int", ["BIGINT"] * 2
    elif len(present) == 1:
        ddl, of_code = _value_type(present[0], criterion)
        rule = "sum_float" if of_code == "float64" else "sum_int"
        ddls = ["DOUBLE"] * 2 if of_code == "float64" else [ddl if kind is not None else "BIGINT" for kind in kinds]
    elif any(isinstance(kind, T.DoubleType) for kind in present) and all(
        isinstance(kind, T.NumericType) for kind in present
    ):
        rule, ddls = "sum_float", ["DOUBLE"] * 2
    elif all(isinstance(kind, (*_INTEGRAL, T.DecimalType)) for kind in present):
        common = compared_type(present[0], present[1], str(criterion))
        if common.kind != "int":
            return None
        rule, ddls = "sum_int", [common.ddl] * 2
    else:
        return None
    left, right = (
        Key(_ZERO if term is None else term, ddl, alias) for alias, term, ddl in zip(aliases, terms, ddls, strict=True)
    )
    return Typed(criterion, Axis(rule, largest=criterion.largest), (left, right))  # type: ignore[arg-type]


def _value_type(kind: T.DataType, criterion: Extreme) -> tuple[str, Kind]:
    """The type in which values are compared, and the kind of their codes."""
    if isinstance(kind, T.DoubleType | T.FloatType):
        return "DOUBLE", "float64"
    if isinstance(kind, (*_INTEGRAL, *_TIMES, T.BooleanType, T.DayTimeIntervalType)):
        return kind.simpleString().upper(), "int"
    if isinstance(kind, T.DecimalType):
        return ("DOUBLE", "float64") if kind.precision > 18 else (kind.simpleString().upper(), "int")
    raise UnsupportedTypeError(
        f"{criterion} has the type {kind.simpleString()}", accepted="numbers, dates, timestamps, booleans or intervals"
    )


def _marks(
    frames: Mapping[str, DataFrame], typed: Sequence[Typed], punctuation: str, order: str | None
) -> tuple[Key, Key]:
    """The columns that promise how far a stream has come, in the type of the criterion that orders it."""
    ordered = [
        one
        for one in typed
        if isinstance(one.criterion, Closest)
        and one.criterion.within is not None
        and (order is None or order in (one.criterion.left, one.criterion.right))
    ]
    fields = [_field(frames, alias, punctuation, "punctuation=") for alias in frames]
    if not ordered or ordered[0].keys is None:
        return _keys_of(frames, fields, "BIGINT")  # the planner refuses what has no order
    return _keys_of(frames, fields, ordered[0].keys[0].ddl)


def _times(frames: Mapping[str, DataFrame], time: str) -> tuple[Key, Key]:
    fields = [_field(frames, alias, time, "time=") for alias in frames]
    for alias, field in zip(frames, fields, strict=True):
        if not isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
            raise UnsupportedTypeError(
                f"time={time!r} has the type {field.dataType.simpleString()} in {alias!r}",
                accepted="a column of type timestamp or timestamp_ntz",
            )
    common = compared_type(fields[0].dataType, fields[1].dataType, f"time={time!r}")
    return _keys_of(frames, fields, common.ddl)


# --- the frame
# ---------------------------------------------------------------------------------------------------------


def best_frame(frames: Mapping[str, DataFrame], plan: BestPlan) -> DataFrame:
    """The lazy frame of a plan, one struct column per alias."""
    sides = [Side.of(alias, frame) for alias, frame in frames.items()]
    spec = plan.spec
    flat = [_flat(side, plan, at) for at, side in enumerate(sides)]
    streaming = bool(plan.streams)
    routing, static = None, None
    if plan.sampled:
        routing = _routing(flat, plan)
    else:
        static = static_routing(spec, plan.cells, numbered=not streaming).to_buffer().to_pybytes()
    packed = []
    for at, frame in enumerate(flat):
        stage = RouteStage(spec, at, spec.payload[at] + len(plan.keys[at]), static, _task_number)
        rows = frame if routing is None else frame.select("*", first_row(routing).alias("g"))
        packed.append(rows.mapInArrow(arrow_function(stage), PACKED))
    make: Any = partial(RecentKernel if spec.max_age is not None else BestKernel, spec)
    if streaming:
        check_store(next(iter(frames.values())))
        event_time = spec.disorder == "watermark" or spec.max_age is not None
        found = run_stream(packed, make, METRICS, event_time=event_time)
    else:
        found = run_batch(packed, make, METRICS, partitions=plan.partitions)
    handle = Handle(plan)
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", plan.partitions, streaming=streaming, names=METRICS)
    handle.recorders.append(recorder)
    return attach(_finished(recorder, found, sides, flat, plan), handle)


def _task_number() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _flat(side: Side, plan: BestPlan, at: int) -> DataFrame:
    """Payload, keys, and the hash of the equality keys where there are any."""
    columns: list[Column] = side.payload_columns()
    columns += key_columns(plan.keys[at])
    if plan.by:
        columns.append(hash_column([pair[at] for pair in plan.by]))
    return side.frame.select(*columns)


def _routing(flat: list[DataFrame], plan: BestPlan) -> Column:
    """Cells cut at quantiles of a sample.  Spark draws it, by a hash of the row's number; one task does the rest."""
    first = len(plan.spec.by)
    names = [*[f"k{first + at}" for at in cut_axes(plan.spec)], *(["h"] if plan.by else [])]
    samples = []
    for side, frame in enumerate(flat):
        draw = F.xxhash64(F.monotonically_increasing_id(), F.lit(side)).bitwiseAND(F.lit(SAMPLED - 1)) == 0
        # Without a key or a maximum distance only the number of rows counts.
        samples.append(frame.filter(draw).select(*names) if names else frame.filter(draw).select(F.lit(0).alias("row")))
    fit = FitStage(plan.spec, plan.partitions, 1 / SAMPLED)
    gathered = samples[0].unionByName(samples[1]).repartition(1)
    return gathered.mapInArrow(arrow_function(fit), T.StructType([T.StructField("routing", T.BinaryType())])).scalar()


def _finished(
    recorder: Recorder, found: DataFrame, sides: list[Side], flat: list[DataFrame], plan: BestPlan
) -> DataFrame:
    """Packed results as the user's rows."""
    spec = plan.spec
    fields = _fields(spec, sides, flat)
    unpacked = UnpackRows(tuple(to_arrow_type(field.dataType, timezone="UTC") for field in fields))
    rows = recorder.counted(found).mapInArrow(arrow_function(unpacked), T.StructType(fields))
    if plan.values:
        rows = _evaluated(rows, sides, plan)
    if spec.wide and not (plan.values and spec.how != "inner"):
        # The best of every cell are few, and one task tells the best of all.
        finish = FinishStage(spec, grouped=False)
        rows = rows.repartition(1).mapInArrow(arrow_function(finish), rows.schema)
    if spec.wide:
        rows = recorder.finished(rows)
    columns: list[Column] = []
    for at, side in enumerate(sides):
        columns += side.structs(f"i{at}_", present=F.col(f"p{at}") if spec.keep else None)
    extra = [F.col(name) for name in ("_change", "_time") if name in rows.columns]
    return rows.select(*columns, *extra)


def _evaluated(rows: DataFrame, sides: list[Side], plan: BestPlan) -> DataFrame:
    """Candidates with the values that Spark computes, and of them the best of each task."""
    structs: list[Column] = []
    for at, side in enumerate(sides):
        structs += side.structs(f"i{at}_")
    # An alias may be called as our own columns are.  No alias contains a #.
    both = rows.select(*structs, F.struct(*rows.columns).alias("#found"))
    values = [F.expr(sql).alias(f"e{number}") for number, sql in enumerate(plan.values)]
    judged = both.select("#found.*", *values)
    finish = FinishStage(plan.spec, grouped=plan.spec.how != "inner")
    return judged.mapInArrow(arrow_function(finish), judged.schema)


def _fields(spec: BestSpec, sides: list[Side], flat: list[DataFrame]) -> list[T.StructField]:
    """What leaves the kernel, with Spark's types."""
    kinds: dict[str, T.DataType] = {
        "p0": T.BooleanType(), "p1": T.BooleanType(), "o": T.BooleanType(), "_change": T.StringType(),
        "_time": T.TimestampType(), "g": T.LongType(), "i": T.LongType(), "j": T.LongType(),
    }  # fmt: skip
    for at, side in enumerate(sides):
        kinds |= {f"i{at}_{number}": field.dataType for number, (_, field) in enumerate(side.payload)}
        kinds |= {f"k{at}_{number}": flat[at].schema[f"k{number}"].dataType for number in range(spec.keys)}
    return [T.StructField(name, kinds[name]) for name in output_names(spec)]

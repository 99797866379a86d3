"""As-of joins as Spark frames: batch, streams, and a stream beside a static input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.columns.broadcast import PackStage
from dovetail.columns.structs import Nested
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.names import quoted
from dovetail.errors import UnboundedJoinError, UnsupportedTypeError, unknown_column
from dovetail.families.asof.kernel import tie_kind
from dovetail.families.asof.router import without_sample
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec
from dovetail.families.asof.stages import METRICS, BesideStage, FitStage, JoinStage, RouteStage
from dovetail.families.asof.stream import CELLS, STREAM_METRICS, AsofKernel, CellOfKeys
from dovetail.plan.asof import AsofPlan, Columns, Facts
from dovetail.spark.frames import identity, same_session, shuffle_partitions
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import SEGMENT, arrow_function, carrying, fitted, handover, sampled
from dovetail.spark.stream import PACKED_ROWS, PackRows, run_kernel
from dovetail.spark.types import compared_type

_SEGMENTS = handover(number=T.IntegerType(), turn=T.IntegerType(), copies=T.LongType(), segment=T.BinaryType())


def asof_facts(frames: Mapping[str, DataFrame], columns: Columns) -> tuple[Columns, Facts]:
    """The columns in the spelling of the inputs, and what the planner needs to know; refuses what is not there."""
    same_session(frames)
    left, right = frames
    by = tuple(
        tuple(_field(alias, frames[alias], name, "by=") for name in columns.by[side])
        for side, alias in enumerate(frames)
    )
    time = tuple(_field(alias, frames[alias], columns.time[side], "time=") for side, alias in enumerate(frames))
    ties = tuple(_field(right, frames[right], name, "ties=").name for name in columns.ties)
    keys = [
        compared_type(a.dataType, b.dataType, f"{left}.{a.name} = {right}.{b.name}") for a, b in zip(*by, strict=True)
    ]
    what = f"{left}.{time[LEFT].name} with {right}.{time[RIGHT].name}"
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    if len(streams) == 2:
        _check_watermarks(frames, time)
    facts = Facts(
        streams=streams,
        keys=tuple(keys),
        time=compared_type(time[LEFT].dataType, time[RIGHT].dataType, what),
        shuffle_partitions=shuffle_partitions(frames),
    )
    spelled = [tuple(field.name for field in fields) for fields in by]
    return Columns((time[LEFT].name, time[RIGHT].name), (spelled[LEFT], spelled[RIGHT]), ties), facts


def _field(alias: str, frame: DataFrame, name: str, where: str) -> T.StructField:
    for field in frame.schema.fields:
        if field.name.casefold() == name.casefold():
            return field
    raise unknown_column(name, alias, frame.columns, where=where)


def _check_watermarks(frames: Mapping[str, DataFrame], times: Sequence[T.StructField]) -> None:
    for alias, field in zip(frames, times, strict=True):
        if not isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
            raise UnsupportedTypeError(
                f"time={field.name!r} has the type {field.dataType.simpleString()} in the stream {alias!r}",
                accepted="a column of type timestamp or timestamp_ntz, which can carry a watermark",
            )
        if "spark.watermarkDelayMs" not in field.metadata:
            raise UnboundedJoinError(
                f"the stream {alias!r} has no watermark on {field.name!r}, so no match of it would ever be final",
                accepted=f"a stream with a watermark, such as frame.withWatermark({field.name!r}, '10 seconds')",
            )
    if len({type(field.dataType) for field in times}) > 1:
        raise UnsupportedTypeError(
            f"{' and '.join(field.dataType.simpleString() for field in times)} as the times of two streams",
            accepted="one type of timestamp in both",
        )


class _Flat:
    """The two inputs as the stages read them, and the spec that goes with them."""

    def __init__(self, frames: Mapping[str, DataFrame], plan: AsofPlan) -> None:
        self.frames = [frames[alias] for alias in plan.inputs]
        self.columns: list[list[Column]] = []
        keys: list[tuple[int, ...]] = []
        times: list[int] = []
        for side, frame in enumerate(self.frames):
            columns = [F.col(quoted(name)).alias(f"c{at}") for at, name in enumerate(frame.columns)]
            places = [
                self._place(frame, name, kind, columns)
                for name, kind in zip(plan.columns.by[side], plan.keys, strict=True)
            ]
            times.append(self._place(frame, plan.columns.time[side], plan.time, columns))
            keys.append(tuple(places))
            self.columns.append(columns)
        self.types = [frame.schema for frame in self.frames]
        arrow = [tuple(to_arrow_type(f.dataType, timezone="UTC") for f in kind.fields) for kind in self.types]
        self.spec = AsofSpec(
            payload=(len(arrow[LEFT]), len(arrow[RIGHT])),
            types=(arrow[LEFT], arrow[RIGHT]),
            keys=(keys[LEFT], keys[RIGHT]),
            times=(times[LEFT], times[RIGHT]),
            kinds=tuple(kind.kind for kind in plan.keys),
            time=plan.time.kind,
            ties=self._ties(plan.columns.ties, arrow[RIGHT]),
            direction=plan.options.direction,
            how=plan.options.how,
            exact=plan.options.allow_exact_matches,
            within=plan.within,
        )

    @staticmethod
    def _place(frame: DataFrame, name: str, kind: KeyType, columns: list[Column]) -> int:
        """Where a key is among the columns; one that is compared in another type becomes a column of its own."""
        at = frame.columns.index(name)
        given = frame.schema.fields[at].dataType
        spelled = given.simpleString().replace("decimal", "DECIMAL").upper()
        if spelled == kind.ddl or (kind.ddl == "BIGINT" and isinstance(given, T.IntegralType)):
            return at
        columns.append(F.col(quoted(name)).cast(kind.ddl).alias(f"c{len(columns)}"))
        return len(columns) - 1

    def _ties(self, first: tuple[str, ...], kinds: tuple[pa.DataType, ...]) -> tuple[int, ...]:
        """Places of the columns that decide ties; what has no order of its own is ordered by its text as JSON."""
        frame, columns = self.frames[RIGHT], self.columns[RIGHT]
        places = []
        for name in [*first, *[name for name in frame.columns if name not in first]]:
            at = frame.columns.index(name)
            if tie_kind(kinds[at]) is None:
                value = F.col(quoted(name))
                text = F.when(value.isNotNull(), F.to_json(F.struct(value)))
                columns.append(text.alias(f"c{len(columns)}"))
                at = len(columns) - 1
            places.append(at)
        return tuple(places)

    def flat(self, side: int, routing: Column | None = None) -> DataFrame:
        """The payload, the keys that are not in it, and the texts that decide ties; then what a first row carries."""
        return carrying(self.frames[side], self.columns[side], routing)

    def keys(self, side: int, plan: AsofPlan) -> list[Column]:
        """The keys and the time alone, in the types in which they are compared."""
        names = [*plan.columns.by[side], plan.columns.time[side]]
        kinds = [*plan.keys, plan.time]
        texts = [f"CAST({quoted(name)} AS {kind.ddl})" for name, kind in zip(names, kinds, strict=True)]
        return [F.expr(f"{text} AS k{at}") for at, text in enumerate(texts)]

    def fields(self) -> list[T.StructField]:
        """The columns that the joining stages give."""
        given = [*self.types[LEFT].fields, *self.types[RIGHT].fields, T.StructField("b", T.BooleanType())]
        named = zip(self.spec.output_names(), given, strict=False)
        outer = self.spec.how == "left"
        return [T.StructField(name, field.dataType, field.nullable or outer) for name, field in named]

    def schema(self) -> T.StructType:
        """The same and the counters."""
        return T.StructType([*self.fields(), T.StructField("m", T.ArrayType(T.LongType()))])

    def shape(self, aliases: Sequence[str]) -> list[Nested]:
        """The structs that those columns come out as, one for each input."""
        present = (None, "b" if self.spec.how == "left" else None)
        return [
            Nested(alias, tuple((name, f"{'cd'[side]}{at}") for at, name in enumerate(self.types[side].names)), there)
            for side, (alias, there) in enumerate(zip(aliases, present, strict=True))
        ]


def asof_frame(frames: Mapping[str, DataFrame], plan: AsofPlan) -> DataFrame:
    """The lazy frame that a plan describes, one struct column per alias."""
    flat = _Flat(frames, plan)
    names = STREAM_METRICS if plan.mode == "stream" else METRICS
    recorder = Recorder(
        f"dovetail({','.join(plan.inputs)})", plan.shuffle_partitions, streaming=bool(plan.streams), names=names
    )
    joined = _WAYS[plan.mode](flat, plan, recorder)
    return attach(joined, Handle(plan, [recorder]))


def _shuffled(flat: _Flat, plan: AsofPlan, recorder: Recorder) -> DataFrame:
    partitions = plan.shuffle_partitions
    blind = without_sample(plan.keyed, partitions).to_buffer().to_pybytes()
    routing = _routing(flat, plan, blind) if plan.sampled else None
    segments = []
    for side in (RIGHT, LEFT):
        stage = RouteStage(flat.spec, side, blind if routing is None else None)
        segments.append(flat.flat(side, routing).mapInArrow(arrow_function(stage), _SEGMENTS))
    dealt = segments[0].unionByName(segments[1]).repartition(partitions, "number")
    # Right rows first: a cell keeps them, and lets its left rows pass by.
    in_turn = dealt.sortWithinPartitions("number", "turn")
    return recorder.run(in_turn, JoinStage(flat.spec), flat.schema(), by="number", shape=flat.shape(plan.inputs))


def _routing(flat: _Flat, plan: AsofPlan, blind: bytes) -> Column:
    samples = [sampled(flat.frames[side], flat.keys(side, plan), side=side) for side in (LEFT, RIGHT)]
    return fitted(samples, FitStage(plan.time.kind, plan.shuffle_partitions), blind)


def _beside(flat: _Flat, plan: AsofPlan, recorder: Recorder) -> DataFrame:
    whole = flat.flat(RIGHT).coalesce(1).mapInArrow(arrow_function(PackStage()), SEGMENT).scalar()
    streaming = bool(plan.streams)
    stage = BesideStage(flat.spec, packed=streaming)
    if streaming:
        blocks = flat.flat(LEFT).mapInArrow(arrow_function(PackStage(whole=False)), SEGMENT)
        rows = blocks.select("segment", whole.alias("g"))
    else:
        rows = flat.flat(LEFT, F.array(whole))
    return recorder.run(rows, stage, flat.schema(), shape=flat.shape(plan.inputs))


def _streamed(flat: _Flat, plan: AsofPlan, recorder: Recorder) -> DataFrame:
    spec = flat.spec
    packed = []
    for side in (LEFT, RIGHT):
        cells = CellOfKeys(spec.keys[side], CELLS) if plan.keyed else None
        packed.append(flat.flat(side).mapInArrow(arrow_function(PackRows(side, cells)), PACKED_ROWS))
    make = partial(AsofKernel, JoinStage(flat.spec))
    join = identity(dict(zip(plan.inputs, flat.frames, strict=True)), plan.identity())
    shape = flat.shape(plan.inputs)
    return run_kernel(packed, make, recorder, flat.fields(), join, event_time=True, shape=shape)


_WAYS = {"stream": _streamed, "beside": _beside, "batch": _shuffled}

"""The batch driver: two inputs as one lazy Spark plan, for every family that shuffles on its own.

    rows -> route -> shuffle by cell -> join -> rows                         one shuffle of packed segments
    rows, and the packed small side -> join -> rows                          no shuffle
    rows of both sides -> pack -> join -> rows                               no shuffle, one task

The routing, or the small side, reaches the workers inside the data.  So nothing runs before the user's action, and the
plan works wherever Spark SQL does, Spark Connect included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.broadcast import PackStage, TogetherStage
from dovetail.columns.layout import ARRIVAL, CELL_NUMBER, ROUTING, SIDE, TURN
from dovetail.columns.layout import SEGMENT as SEGMENT_COLUMN
from dovetail.columns.structs import Nested
from dovetail.spark.frames import is_adaptive
from dovetail.spark.ledger import Stage
from dovetail.spark.metrics import Recorder
from dovetail.spark.routing import (
    SEGMENT,
    SEGMENT_OR_NONE,
    SEGMENTS,
    arrow_function,
    carried_by_first_rows,
    fitted,
    sampled,
)


@dataclass(frozen=True)
class FlatSide:
    """One input, and the flat columns of it that the stages read."""

    frame: DataFrame
    columns: Sequence[str]
    """As text."""

    def flat(self, value: Column | None = None) -> DataFrame:
        """The columns; behind them `value`, if there is one."""
        columns = self.frame.selectExpr(*self.columns)
        return columns if value is None else columns.select("*", value)


Sides = tuple[FlatSide, FlatSide]


@dataclass(frozen=True)
class Sampling:
    """How a routing is fitted to a sample of both inputs."""

    fit: Stage
    columns: tuple[Sequence[str], Sequence[str]]
    """The columns of each side that the stage reads, as text."""
    everything: bool = False
    """Whether it needs every row, not a sample."""

    def routing(self, sides: Sides, default: bytes) -> Column:
        """The fitted routing, carried by the first row of each task."""
        inputs = [(flat.frame, columns) for flat, columns in zip(sides, self.columns, strict=True)]
        return fitted(sampled(inputs, everything=self.everything), self.fit, default)


@dataclass(frozen=True)
class Routed:
    """How the rows of both inputs find their cells."""

    route: Callable[[int, bytes | None], Stage]
    """The stage that routes a side: by the given routing, or by the one that its rows carry."""
    without_sample: bytes
    """The routing that knows nothing of the data."""
    sampling: Sampling | None
    partitions: int
    held: int
    """The side that a cell holds; the rows of the other side pass by."""


@dataclass(frozen=True)
class Joined:
    """The stage that joins, and the columns that leave it: the last one is that of its counters."""

    stage: Stage
    schema: T.StructType
    shape: Sequence[Nested] | None
    """The structs that those columns come out as; None leaves them flat."""


def shuffled_join(sides: Sides, routed: Routed, joined: Joined, recorder: Recorder) -> DataFrame:
    """Both inputs routed to cells, shuffled as packed segments, and joined cell by cell."""
    ordered = segments_by_cell(sides, routed)
    return recorder.run(ordered, joined.stage, joined.schema, by=CELL_NUMBER, shape=joined.shape)


def segments_by_cell(sides: Sides, routed: Routed) -> DataFrame:
    """Both inputs routed to cells and shuffled as packed segments, the cells of a task one after the other."""
    default, sampling = routed.without_sample, routed.sampling
    routing = None if sampling is None else sampling.routing(sides, default)
    segments = []
    for side in (routed.held, 1 - routed.held):
        stage = routed.route(side, default if routing is None else None)
        segments.append(sides[side].flat(routing).mapInArrow(arrow_function(stage, numbered=True), SEGMENTS))
    return in_turn(segments[0].union(segments[1]), routed.partitions)


def in_turn(segments: DataFrame, partitions: int) -> DataFrame:
    """Segments shuffled by the number of their cell, those of a cell by their turns, then by their numbers."""
    # The held side before the other: a cell keeps its rows, and lets those of the other side pass by.
    return segments.repartition(partitions, CELL_NUMBER).sortWithinPartitions(CELL_NUMBER, TURN, ARRIVAL)


def broadcast_join(
    large: FlatSide, small: FlatSide, joined: Joined, recorder: Recorder, *, together: bool = False
) -> DataFrame:
    """The rows of one input, each task with the whole of the other; `together` one task reads both.  No shuffle."""
    if together:
        return _joined_together((large, small), PackStage(), joined, recorder, listed=False)
    packed_side = small.flat().coalesce(1).mapInArrow(arrow_function(PackStage()), SEGMENT).scalar()
    rows = _packed(large, packed_side) if recorder.streaming else large.flat(carried_by_first_rows(packed_side))
    return recorder.run(rows, joined.stage, joined.schema, shape=joined.shape)


def _joined_together(sides: Sides, pack: Stage, joined: Joined, recorder: Recorder, *, listed: bool) -> DataFrame:
    """Both inputs read and joined by one task: for few rows the stage that broadcasts takes longer than the join."""
    frames = [side.flat() for side in sides]
    # A column of one side and one of the other share a column of the union where their types are the same: Spark takes
    # as long to write a NULL as a value.
    names = _shared_names([[field.dataType for field in frame.schema.fields] for frame in frames])
    tagged = [
        frame.selectExpr(f"{number} AS {SIDE}", *(f"{a} AS {b}" for a, b in zip(frame.columns, named, strict=True)))
        for number, (frame, named) in enumerate(zip(frames, names, strict=True))
    ]
    # Rows of one side have NULL where only the other has a column; their order does not matter.
    rows = tagged[0].unionByName(tagged[1], allowMissingColumns=True).coalesce(1)
    at = {name: number for number, name in enumerate(rows.columns)}
    large, small = (
        {column: at[name] for column, name in zip(frame.columns, named, strict=True)}
        for frame, named in zip(frames, names, strict=True)
    )
    stage = TogetherStage(joined.stage, pack, large, small, listed)
    return recorder.run(rows, stage, joined.schema, shape=joined.shape)


def _shared_names(sides: Sequence[Sequence[T.DataType]]) -> list[list[str]]:
    """Names for the columns of several inputs: the first one of a type has the same name in all, so has the second."""
    types: list[T.DataType] = []
    names = []
    for kinds in sides:
        counted: Counter[int] = Counter()
        named = []
        for kind in kinds:
            if kind not in types:
                types.append(kind)
            number = types.index(kind)
            named.append(f"t{number}_{counted[number]}")
            counted[number] += 1
        names.append(named)
    return names


def broadcast_in_parts(
    sides: Sides, pack: Stage, joined: Joined, recorder: Recorder, *, packed: bool, together: bool = False
) -> DataFrame:
    """The rows of the first input, each task with the whole of the second; every task that reads that packs a part.

    Spark clears the buffers of a column for every Arrow batch, at the size of the largest value that they ever held:
    64 MB on the first of 4M rows cost 3 s.  So where parts are large, rows come `packed`, which makes few batches; a
    task begins with a row that is no segment, and that row, and no other, is joined to every part.
    """
    if together:
        return _joined_together(sides, pack, joined, recorder, listed=True)
    large, small = sides
    parts = small.flat().mapInArrow(arrow_function(pack), SEGMENT)
    if packed:
        blocks = large.flat().mapInArrow(arrow_function(PackStage(whole=False, opens=True)), SEGMENT_OR_NONE)
        rows = _with_parts(blocks, parts, streaming=recorder.streaming)
    else:
        none = F.array().cast(T.ArrayType(T.BinaryType()))
        rows = large.flat(carried_by_first_rows(_gathered(parts), none))
    return recorder.run(rows, joined.stage, joined.schema, shape=joined.shape)


def _with_parts(blocks: DataFrame, parts: DataFrame, *, streaming: bool) -> DataFrame:
    """Blocks of rows, and behind the NULL before them the parts of the other side.

    Spark broadcasts parts as they are, which takes one stage less than to gather them in a value: 0.2 of 1.9 s for 1M x
    1M rows.  Only adaptive plans wait as long as it takes to compute them, and streams have none.
    """
    opening = F.col(SEGMENT_COLUMN).isNull()
    if not streaming and is_adaptive(blocks):
        return blocks.join(F.broadcast(parts.withColumnRenamed(SEGMENT_COLUMN, ROUTING)), opening, "left")
    return blocks.select(SEGMENT_COLUMN, F.explode_outer(F.when(opening, _gathered(parts))).alias(ROUTING))


def _gathered(parts: DataFrame) -> Column:
    return parts.agg(F.collect_list(SEGMENT_COLUMN)).scalar()


def _packed(large: FlatSide, value: Column) -> DataFrame:
    """Segments of rows, each with the value: a stream has no first row of a task that could carry it."""
    blocks = large.flat().mapInArrow(arrow_function(PackStage(whole=False)), SEGMENT)
    return blocks.select(SEGMENT_COLUMN, value.alias(ROUTING))

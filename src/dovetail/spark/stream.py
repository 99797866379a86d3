"""The streaming driver: a kernel whose state Spark keeps.

    rows -> pack by cell -> one stateful operator for all inputs -> unpack -> rows

Segments travel and are stored, not rows (``benchmarks/state.md`` has the figures).  The operator is
``transformWithState``: it is the one that sees the watermark of the inputs behind the packing, and its map
state stores a segment under a name, so a micro-batch writes what it changed and nothing else.  Exactly-once across
restarts is Spark's: all that a kernel knows is in that map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.checkpoints import HEADER, SEGMENTS_STATE, CheckpointHeader
from dovetail.columns import memory
from dovetail.columns.layout import ARRIVAL, COUNTERS, SEGMENT, SIDE, STREAM_CELL, STREAM_COLUMNS
from dovetail.columns.segments import binary_column, blocks, cast_columns, pack, unpack
from dovetail.columns.stored import opened, read_as_state
from dovetail.columns.structs import Nested, nest
from dovetail.errors import SetupError
from dovetail.family import Router, StreamKernel
from dovetail.inventory import StateLayout
from dovetail.spark.carriers import arrow_type, carried_fields, restored
from dovetail.spark.cells import STREAM_HELPS, StaticCell, check_room, frequent_key
from dovetail.spark.frames import nested_fields, never_null
from dovetail.spark.metrics import Recorder
from dovetail.spark.routing import arrow_function
from dovetail.spark.runtime.versions import together, transform_with_state
from dovetail.spark.runtime.worker import plain_refusals, settle

PACKED_ROWS = T.StructType(
    [
        T.StructField(STREAM_CELL, T.IntegerType()),
        T.StructField(SIDE, T.IntegerType()),
        T.StructField(ARRIVAL, T.LongType()),
        T.StructField(SEGMENT, T.BinaryType()),
    ]
)
"""What reaches the cells: segments of rows."""
PACKED_RESULTS = T.StructType(
    [T.StructField(SEGMENT, T.BinaryType()), T.StructField(COUNTERS, T.ArrayType(T.LongType()))]
)
"""What leaves them: segments of results, and on a row of their own the counters of the call."""

MAP_STATE = (SEGMENTS_STATE, "name string", "segment binary")
"""The map in which a cell keeps its segments: its name, its keys and its values."""
_PARTITION_BITS = 33
"""Arrival positions count the rows of a partition in their low bits, as Spark's own row ids do."""


@dataclass(frozen=True)
class PackRows:
    """Rows in; segments out, with the cell they belong to and their position in the order of arrival.

    Within a micro-batch rows arrive in the order of their partitions.  `cells` gives the cell of each row, or a
    `router` divides them; without either there is one cell.
    """

    side: int
    cells: Callable[[pa.RecordBatch], npt.NDArray[np.int64]] | None = None
    router: Router | None = None
    ticks: bool = False
    """Whether every cell hears how far this task's rows have come."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        context = TaskContext.get()
        arrival = (context.partitionId() if context is not None else 0) << _PARTITION_BITS
        top: int | None = None
        for block in blocks(batches):
            yield self._packed(self._parts(block), arrival)
            arrival += block.num_rows
            if self.ticks and self.router is not None:
                top = max((t for t in (top, self.router.top(block)) if t is not None), default=None)
        if top is not None and self.router is not None:
            yield self._packed(self.router.ticks(top), arrival)

    def _parts(self, block: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if self.router is not None:
            return self.router.parts(block)
        if self.cells is None:
            return [(0, block)]
        cells = self.cells(block)
        return [(int(cell), block.take(np.flatnonzero(cells == cell))) for cell in np.unique(cells)]

    def _packed(self, parts: list[tuple[int, pa.RecordBatch]], arrival: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([cell for cell, _ in parts], pa.int32()),
                pa.array([self.side] * len(parts), pa.int32()),
                pa.array([arrival] * len(parts), pa.int64()),
                binary_column([pack(rows) for _, rows in parts]),
            ],
            names=list(STREAM_COLUMNS),
        )


class CellProcessor(StatefulProcessor):
    """Spark's side of a kernel: state in, rows in, results out, state back.

    Spark calls it once for each cell with new rows, and once when the watermark passes the cell's timer.
    """

    def __init__(
        self,
        make: Callable[[], StreamKernel],
        metrics: tuple[str, ...],
        mark: CheckpointHeader,
        what: str = "a cell of a join",
    ) -> None:
        self._make = make
        self._metrics = metrics
        self._mark = mark
        self._what = what

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before the first cell of a task."""
        self.open(handle, handle.getMapState(*MAP_STATE))

    def open(self, handle: StatefulProcessorHandle, segments: Any) -> None:
        """Begin a task with the state that Spark keeps for it."""
        self._handle = handle
        self._segments = segments
        self._called: set[Any] = set()

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802
        """Called by Spark with the new segments of a cell."""
        self._called.add(key)
        arrived: list[tuple[int, int, bytes]] = []
        with plain_refusals(self._what, lambda: frequent_key(self._make(), _unpacked(arrived)), STREAM_HELPS):
            size, ask = 0, memory.FLOOR
            for row in rows:
                arrived.append((row[ARRIVAL], row[SIDE], bytes(row[SEGMENT])))
                size += len(arrived[-1][-1])
                if size > ask:
                    check_room(self._what, self._make(), _unpacked(arrived), 0)
                    ask = size + memory.FLOOR
            arrived.sort(key=lambda one: one[:2])
            yield from self._run(key, _unpacked(arrived), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802
        """Called by Spark when the watermark has passed the timer of a cell, after all new rows."""
        # One call at a watermark does it all, and counts what the cell holds once.
        if key not in self._called:
            self._called.add(key)
            with plain_refusals(self._what):
                yield from self._run(key, [], timerValues)

    def close(self) -> None:
        """Called by Spark after the last cell of a task."""
        settle(type(self).__name__)

    def _run(self, key: Any, segments: list[tuple[int, pa.RecordBatch]], timer_values: Any) -> Iterator[Row]:
        kernel = self._make()
        if hasattr(kernel, "cell"):
            kernel.cell = int(key[0])
        watermark = timer_values.getCurrentWatermarkInMs() if timer_values is not None else -1
        stored = StoredSegments(self._segments, self._mark, partial(check_room, self._what, kernel, segments))
        stored.check(0)
        kernel.restore(stored, watermark * 1000 if watermark is not None and watermark > 0 else None)
        for side, rows in segments:
            kernel.push(side, rows)
        for batch in kernel.results():
            yield Row(**{SEGMENT: pack(batch).to_pybytes(), COUNTERS: None})
        self._save(kernel, has_header=stored.header == self._mark.stored())
        counts = [kernel.counters[name] for name in self._metrics]
        yield Row(**{SEGMENT: None, COUNTERS: counts})

    def _save(self, kernel: StreamKernel, *, has_header: bool) -> None:
        changes = kernel.changes()
        for name in changes.dropped:
            self._segments.removeKey((name,))
        for name, rows in changes.stored.items():
            self._segments.updateValue((name,), (pack(rows).to_pybytes(),))
        if changes.stored and not has_header:
            # Also over one that an earlier version wrote, or a run with another lateness: the join is the same.
            self._segments.updateValue((HEADER,), (self._mark.stored(),))
        wake = kernel.wake_at()
        if wake is not None:
            # Timers are in milliseconds and fire once the watermark reaches them.  A watermark of 0 only says that
            # there is none yet: a timer before 1970 would fire at once, do nothing, and be gone.
            self._handle.registerTimer(max(1, -(-wake // 1000)))


def _unpacked(arrived: Iterable[tuple[int, int, bytes]]) -> list[tuple[int, pa.RecordBatch]]:
    return [(side, unpack(segment)) for _, side, segment in arrived]


def opened_on_workers(cell: CellProcessor) -> StatefulProcessor:
    """A processor that carries `cell` as bytes and opens it where rows arrive.

    Spark also opens a processor on the driver, to learn about its state, in a Python process without the packages that
    were shipped with ``--py-files`` or ``addArtifacts``.  A class defined within a function travels by value, so this
    one needs no package; and only workers load the kernel and the compiler behind it.
    """

    class OpenedOnWorkers(StatefulProcessor):
        def __init__(self, content: bytes) -> None:
            self._content = content

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle, self._segments = handle, handle.getMapState(*MAP_STATE)
            self._cell: Any = None

        def _opened(self) -> Any:
            if self._cell is None:
                self._cell = cloudpickle.loads(self._content)
                self._cell.open(self._handle, self._segments)
            return self._cell

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802
            yield from self._opened().handleInputRows(key, rows, timerValues)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802
            yield from self._opened().handleExpiredTimer(key, timerValues, expiredTimerInfo)

        def close(self) -> None:
            if self._cell is not None:
                self._cell.close()

    return OpenedOnWorkers(cloudpickle.dumps(cell))  # type: ignore[no-untyped-call]


class StoredSegments(Mapping[str, pa.RecordBatch]):
    """The stored segments of a cell by name, each read when a kernel asks for it: it may know most of them already.

    `check` is told how many bytes have been read, and refuses what does not fit.
    """

    def __init__(self, segments: Any, mark: CheckpointHeader, check: Callable[[int], None] = lambda size: None) -> None:
        self._segments = segments
        self._read = 0
        self.check = check
        self._names: list[str] | None = None
        # Before anything is opened: another format may not be Arrow at all.
        self.header: bytes | None = None
        if segments.containsKey((HEADER,)):
            self.header = bytes(segments.getValue((HEADER,))[0])
            mark.check(self.header)
        elif segments.exists():
            mark.check(None)
        else:
            self._names = []

    def _stored_names(self) -> list[str]:
        if self._names is None:
            self._names = [key[0] for key in self._segments.keys() if key[0] != HEADER]  # noqa: SIM118
        return self._names

    def __contains__(self, name: object) -> bool:
        if self._names is not None:
            return name in self._names
        return bool(self._segments.containsKey((name,)))

    def __getitem__(self, name: str) -> pa.RecordBatch:
        if name not in self:
            raise KeyError(name)
        segment = bytes(self._segments.getValue((name,))[0])
        self._read += len(segment)
        self.check(self._read)
        with read_as_state(f"the segment {name!r} of the state"):
            return opened(segment)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored_names())

    def __len__(self) -> int:
        return len(self._stored_names())


@dataclass(frozen=True)
class UnpackRows:
    """Packed results in; their rows out, with these types and, if there is one, in this shape."""

    types: tuple[pa.DataType, ...]
    shape: Sequence[Nested] | None = None
    certain: Collection[str] = ()
    """Columns that have no NULL."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        for batch in batches:
            for segment in batch.column(0):
                if segment.is_valid:
                    rows = unpack(segment.as_buffer())
                    rows = pa.RecordBatch.from_arrays(cast_columns(rows.columns, self.types), names=rows.schema.names)
                    yield rows if self.shape is None else nest(rows, self.shape, self.certain)


def run_kernel(
    packed: list[DataFrame],
    make: Callable[[], StreamKernel],
    recorder: Recorder,
    fields: Sequence[T.StructField],
    join: Mapping[str, str],
    *,
    event_time: bool = False,
    partitions: int | None = None,
    shape: Sequence[Nested] | None = None,
    layout: StateLayout | None = None,
) -> DataFrame:
    """The rows that a kernel makes of packed inputs, streaming or static; a recorder takes its counters.

    Parameters
    ----------
    packed
        Frames of the schema `PACKED_ROWS`, one for each input.
    make
        Makes the kernel of a cell.
    recorder
        Takes the counters, and knows whether this is a stream.
    fields
        The columns of the kernel's results.
    join
        What must stay the same between two runs on one checkpoint, in words.
    event_time
        Whether the kernel of a stream uses Spark's watermark and timers.
    partitions
        Shuffle partitions of a static join, the session's by default.
    shape
        The structs that those columns come out as.
    layout
        What the state of a stream looks like, for those who read it without the join.
    """
    all_rows = packed[0]
    for other in packed[1:]:
        all_rows = all_rows.union(other)
    types = tuple(arrow_type(field.dataType) for field in fields)
    if not recorder.streaming:
        all_rows = together(all_rows, STREAM_CELL, partitions)
        schema = T.StructType([*fields, T.StructField(COUNTERS, T.ArrayType(T.LongType()))])
        stage = StaticCell(make, recorder.names, recorder.cell, types, tuple(schema.names))
        return recorder.run(all_rows, stage, schema, by=STREAM_CELL, shape=shape)
    _check_store(all_rows)
    recorder.header = CheckpointHeader.of(join, layout)
    recorder.timers = event_time
    processor = opened_on_workers(CellProcessor(make, recorder.names, recorder.header, recorder.cell))
    time_mode = "EventTime" if event_time else "None"
    results = transform_with_state(all_rows, STREAM_CELL, processor, PACKED_RESULTS, time_mode)
    sent, wanted = (
        list(flat) if shape is None else nested_fields(flat, shape, whole=True)
        for flat in (carried_fields(fields), fields)
    )
    unpacking = arrow_function(UnpackRows(types, shape, never_null(fields)))
    return restored(recorder.counted(results).mapInArrow(unpacking, T.StructType(sent)), wanted)


def _check_store(frame: DataFrame) -> None:
    """Refuse the state store that Spark would refuse once the query runs, deep in a stack trace."""
    setting = "spark.sql.streaming.stateStore.providerClass"
    provider = frame.sparkSession.conf.get(setting) or ""
    if provider.endswith(".HDFSBackedStateStoreProvider"):
        raise SetupError(
            f"the session keeps streaming state in {provider}, which cannot hold named segments",
            accepted=f"{setting}=org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            hint="set it with spark.conf.set(...) before the join; a session of dt.session() has it",
        )

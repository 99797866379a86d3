"""`resume`: a new checkpoint with the state of an old one, for another number of partitions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.utils import is_remote

from dovetail.checkpoints import CheckpointHeader, check_headers
from dovetail.errors import ArgumentError, CheckpointError, SetupError, is_whole
from dovetail.families.window.rerouting import Rerouting
from dovetail.inventory import StateLayout
from dovetail.moving import MOVED, ROUTED, PutTogether, TakeApart
from dovetail.spark.checkpoint_files import PARTITIONS, CheckpointFiles, local_folder, take_state
from dovetail.spark.metrics import handle_of
from dovetail.spark.queries import stateful_operators, stored_header
from dovetail.spark.routing import arrow_function
from dovetail.spark.runtime.versions import apply_by_group, load_state
from dovetail.spark.state import read_segments, read_state
from dovetail.spark.stream import MAP_STATE

CELLS = "number of partitions"
"""The part of a window join's identity that a rescale changes: its number of cells."""
_MOVED_SCHEMA = T.StructType(
    [
        T.StructField("operator", T.IntegerType()),
        T.StructField("cell", T.IntegerType()),
        T.StructField("name", T.StringType()),
        T.StructField("segment", T.BinaryType()),
    ]
)
_LOADING = ".loading"


@dataclass(frozen=True)
class Move:
    """What becomes of one operator: its header, and the layout by which its rows find new cells, if they do."""

    operator: int
    timers: bool
    header: bytes
    layout: StateLayout | None


def resume(frame: DataFrame, checkpoint: str | Path, into: str | Path, *, partitions: int | None = None) -> None:
    """Lay down a checkpoint from which a join goes on where an old query has stopped, in another number of partitions.

    The number of state partitions of a streaming query is fixed for the life of its checkpoint.  This function makes a
    new checkpoint with the same rows in the state, sent to their new places, and with the same offsets.  The old one
    is only read.

    Parameters
    ----------
    frame : DataFrame
        The streaming DataFrame that a join or :func:`sql` returned, as the new query will use it.  It is the join that
        wrote the old checkpoint; a window join may have another ``partitions=``.
    checkpoint : str or Path
        The ``checkpointLocation`` of the old query, which must have stopped.
    into : str or Path
        The new one: a folder that does not exist yet, or is empty.
    partitions : int, optional
        How many state partitions the new query gets; by default ``spark.sql.shuffle.partitions`` of the session.

    Raises
    ------
    CheckpointError
        If another join wrote the checkpoint, if a query still runs on it or was cut off within a micro-batch, if the
        new folder exists, or if Spark keeps the checkpoint in a form that cannot be carried on.
    ArgumentError
        If an argument is not what is accepted.
    SetupError
        On Spark Connect, and on Spark 4.0.

    See Also
    --------
    state : What a checkpoint holds.
    check_checkpoint : Whether a checkpoint belongs to a join.

    Notes
    -----
    The new query has the id of the old one and goes on with the number of its next micro-batch, so that a sink that
    remembers what it has written recognises it.  A micro-batch that the old query had planned and not committed must be
    done first, by that query: its sink may have it already.  Never start both: each would write what the other does.

    A folder whose making was cut off cannot be started; remove it and begin again.

    Examples
    --------
    >>> import tempfile
    >>> def pairs(tasks):
    ...     rows = spark.readStream.schema("id long, ts timestamp").parquet(f"{folder}/rows")
    ...     rows = rows.withWatermark("ts", "5 seconds")
    ...     return dt.window_join(
    ...         {"A": rows, "B": rows}, on="A.id = B.id", time="ts", within="10 seconds", partitions=tasks
    ...     )
    >>> def run(frame, checkpoint):
    ...     write = frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/{checkpoint}")
    ...     return write.trigger(availableNow=True).start().awaitTermination()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spark.sql("SELECT id, timestamp_seconds(id) AS ts FROM range(100)").write.parquet(f"{folder}/rows")
    ...     run(pairs(1), "old")
    ...     dt.resume(pairs(3), f"{folder}/old", f"{folder}/new", partitions=3)
    ...     held = dt.state(spark, f"{folder}/new").where("input IS NOT NULL")
    ...     held.selectExpr("sum(rows)", "count(DISTINCT partition)").collect()
    [Row(sum(rows)=32, count(DISTINCT partition)=3)]
    """
    handle = handle_of(frame, "resume")
    if not handle.plan.streams:
        raise ArgumentError("resume got a join of static inputs", accepted="a join of streams")
    spark = frame.sparkSession
    tasks = int(spark.conf.get(PARTITIONS) or 200) if partitions is None else partitions
    expected = [recorder.header for recorder in handle.recorders if recorder.header is not None]
    migrate(spark, checkpoint, into, tasks, expected)


def migrate(
    spark: SparkSession,
    checkpoint: str | Path,
    into: str | Path,
    partitions: int,
    expected: list[CheckpointHeader] | None = None,
) -> None:
    """What :func:`resume` does; without the headers of the new join, for the join as it is, in other partitions."""
    if not is_whole(partitions, least=1):
        raise ArgumentError(f"partitions={partitions!r}", accepted="a whole number of at least 1")
    if is_remote():
        raise SetupError(
            "resume on Spark Connect", accepted="a session without Spark Connect, where the checkpoint is",
            hint="dovetail migrate OLD NEW --partitions 64 does it from a shell",
        )  # fmt: skip
    old, new = CheckpointFiles(local_folder(checkpoint, "checkpoint")), local_folder(into, "into")
    batch = old.check()
    _check_stopped(spark, old)
    moves = _moves(spark, old.folder, partitions, expected)
    old.begin(new)
    try:
        for group in _groups(moves):
            _load(spark, old, new, batch, partitions, group)
        if old.committed() != batch:
            raise CheckpointError(
                f"a query still runs on {old.folder}: micro-batch {old.committed()} was committed meanwhile",
                accepted="the checkpoint of a query that has stopped",
            )
        old.copy_logs(new, batch, partitions)
        shutil.rmtree(new / _LOADING)
    except BaseException:
        # Nothing of it could be started, and the next attempt finds its place free.
        shutil.rmtree(new, ignore_errors=True)
        raise
    old.finish(new)


def _check_stopped(spark: SparkSession, old: CheckpointFiles) -> None:
    running = [query for query in spark.streams.active if str(query.id) == old.query()]
    if running:
        raise CheckpointError(
            f"the query {running[0].name or running[0].id} still runs on {old.folder}",
            accepted="the checkpoint of a query that has stopped", hint="query.stop() first",
        )  # fmt: skip


def _moves(spark: SparkSession, folder: Path, partitions: int, expected: list[CheckpointHeader] | None) -> list[Move]:
    """What becomes of each operator; refuses those that cannot be moved."""
    operators = stateful_operators(spark, str(folder), joins_only=False)
    foreign = [row.operatorName for row in operators if not row.operatorName.startswith("transformWithState")]
    if foreign or not operators:
        raise CheckpointError(
            f"the query in {folder} keeps state of its own in {foreign[0]}" if foreign
            else f"no join has left state in {folder}",
            accepted="a query whose joins of streams are all that keeps state",
            hint="a stream beside static inputs keeps no state, and needs no resume" if not foreign else None,
        )  # fmt: skip
    stored = {row.operatorId: stored_header(spark, str(folder), row.operatorId) for row in operators}
    known = {number: CheckpointHeader.read(found[0]) for number, found in stored.items() if found}
    if expected is not None:
        check_headers([_scaled(one) for one in expected], [_scaled(one).stored() for one in known.values()])
    moves = []
    for row in operators:
        header = known.get(row.operatorId)
        timers = json.loads(row.operatorProperties)["timeMode"] == "EventTime"
        if header is None:
            # Nothing was ever stored by it: a second kernel that has not had to remember anything.
            if len(known) == 0:
                raise CheckpointError(f"no join has left state in {folder}", accepted="a query that has run")
            header = next(iter(known.values()))
        target = _wanted(header, expected) if expected is not None else _rescaled(header, partitions, folder)
        routed = target.layout is not None and target.layout.family in ROUTED
        moves.append(Move(row.operatorId, timers, target.stored(), target.layout if routed else None))
    return moves


def _scaled(header: CheckpointHeader) -> CheckpointHeader:
    """A header without what a rescale may change."""
    return replace(header, parts=tuple(part for part in header.parts if part[0] != CELLS))


def _wanted(header: CheckpointHeader, expected: list[CheckpointHeader]) -> CheckpointHeader:
    """The header that the new join has where the old one had this."""
    parts = dict(_scaled(header).parts)
    found = [one for one in expected if dict(_scaled(one).parts) == parts]
    if not found:
        raise CheckpointError(
            f"the checkpoint holds {parts.get('join')} of {parts.get('inputs')}, which the new query has not",
            accepted="the joins that wrote the checkpoint, all of them",
        )
    return found[0]


def _rescaled(header: CheckpointHeader, partitions: int, folder: Path) -> CheckpointHeader:
    """The header of the same join for other partitions."""
    if CELLS not in dict(header.parts):
        return header
    if header.layout is None:
        raise CheckpointError(
            f"{folder} was last written by a version of Dovetail that did not note how rows find their cells",
            accepted="a checkpoint on which this version has run",
            hint="dt.resume(frame, old, new) knows it from the join itself",
        )
    facts = dict(header.layout.facts)
    cells = facts["cells"] // facts["tasks"] * partitions if facts["routing"] is not None else 1
    facts |= {"cells": cells, "tasks": partitions}
    parts = tuple((name, str(cells) if name == CELLS else text) for name, text in header.parts)
    return CheckpointHeader(parts, replace(header.layout, facts=facts))


def _groups(moves: list[Move]) -> Iterator[list[Move]]:
    """Operators that are moved together: those of one window join, of which one may know the rows of another."""
    by_header: dict[bytes, list[Move]] = {}
    for move in moves:
        if move.layout is None:
            yield [move]
        else:
            by_header.setdefault(move.header, []).append(move)
    yield from by_header.values()


def _load(spark: SparkSession, old: CheckpointFiles, new: Path, batch: int, partitions: int, group: list[Move]) -> None:
    """Have Spark write the state of some operators again."""
    session = spark.newSession()
    for name, value in old.settings(batch).items():
        session.conf.set(name, value)
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    session.conf.set(PARTITIONS, str(partitions))
    path = str(old.folder)
    segments = read_segments(session, path, group[0].operator, batch).select(*MOVED)
    for move in group[1:]:
        segments = segments.union(read_segments(session, path, move.operator, batch).select(*MOVED))
    layout = group[0].layout
    if layout is not None:
        routing, headers = Rerouting(layout), {move.operator: move.header for move in group}
        pieces = apply_by_group(segments, "cell", arrow_function(TakeApart(routing)), _MOVED_SCHEMA)
        segments = apply_by_group(pieces, "cell", arrow_function(PutTogether(routing, headers)), _MOVED_SCHEMA)
        if len(group) > 1:
            segments = segments.persist()
    for move in group:
        initial = segments.where(F.col("operator") == move.operator).selectExpr(
            "cell", "name", "segment", "CAST(NULL AS BIGINT) AS timer"
        )
        if move.timers:
            timers: DataFrame = read_state(session, move.operator, batch, readRegisteredTimers=True).load(path)
            initial = initial.union(
                timers.selectExpr("key.cell", "CAST(NULL AS STRING)", "CAST(NULL AS BINARY)", "expiration_timestamp_ms")
            )
        place = new / _LOADING / str(move.operator)
        _write(session, initial, place, timers=move.timers)
        take_state(place, new, move.operator, batch)
    if len(group) > 1:
        segments.unpersist()


_SETTINGS: Mapping[str, str] = {
    # Whole snapshots, whose files bear no mark of the micro-batch that wrote them but their name.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    "spark.sql.adaptive.enabled": "false",
    # Segments are large, and what travels together must not exceed 2 GB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
}
"""Settings of the session that writes state; it is a session of its own."""


def _write(session: SparkSession, initial: DataFrame, place: Path, *, timers: bool) -> None:
    """Run a query of one micro-batch without rows, whose operator begins with this state."""
    ticks = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    nothing = ticks.withWatermark("timestamp", "0 seconds").where("value < 0")
    nothing = nothing.selectExpr("CAST(value AS INT) AS cell", "timestamp")
    written = load_state(nothing, "cell", initial, _loader(), "EventTime" if timers else "None")
    query = written.writeStream.format("noop").option("checkpointLocation", str(place)).trigger(once=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _loader() -> StatefulProcessor:
    """A processor that stores what it begins with; it needs no package, since Spark opens it on the driver, too."""
    name, keys, values = MAP_STATE

    class StoreInitialState(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle, self._segments = handle, handle.getMapState(name, keys, values)

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802
            if initialState["timer"] is not None:
                self._handle.registerTimer(initialState["timer"])
            else:
                self._segments.updateValue((initialState["name"],), (bytes(initialState["segment"]),))

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
            yield from ()

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802
            yield from ()

        def close(self) -> None:
            pass

    return StoreInitialState()

"""`resume`: a new checkpoint with the state of an old one, for other partitions or another definition of the join."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from dovetail.changing import Definition, Resumed, refused
from dovetail.checkpoints import CheckpointHeader
from dovetail.columns.stored import read_as_state
from dovetail.errors import ArgumentError, CheckpointError, SetupError, is_whole
from dovetail.families.window.rerouting import Rerouting
from dovetail.inventory import StateLayout
from dovetail.moving import MOVED, ROUTED, PutTogether, TakeApart
from dovetail.spark.change import MOVED_SCHEMA, Adopted, adopted, check_run, compared, decided, heads
from dovetail.spark.checkpoint_files import PARTITIONS, CheckpointFiles, local_folder, take_state
from dovetail.spark.metrics import Recorder, handle_of
from dovetail.spark.queries import stateful_operators, stored_header
from dovetail.spark.routing import arrow_function
from dovetail.spark.runtime.versions import apply_by_group
from dovetail.spark.state import read_segments, read_state
from dovetail.spark.writing import write_state, writing_session

CELLS = "number of partitions"
"""The part of a window join's identity that a rescale changes: its number of cells."""
SCOUTED = "shedding"
"""The part of its identity that a window join has whose conditions a scout lets Spark judge first."""
_LOADING = ".loading"


@dataclass(frozen=True)
class Move:
    """What becomes of one operator: its header, and the layout by which its rows find new cells, if they do."""

    operator: int
    timers: bool
    header: bytes
    layout: StateLayout | None


def resume(
    frame: DataFrame, checkpoint: str | Path, into: str | Path | None = None, *, partitions: int | None = None
) -> Resumed:
    """Lay down a checkpoint from which a join goes on where an old query has stopped, changed or in other partitions.

    The joins and the number of state partitions of a streaming query are fixed for the life of its checkpoint.  This
    function makes a new checkpoint with the same rows in the state, sent to their new places, and with the same
    offsets.  The join may be defined otherwise: with another window, condition or lateness, more or fewer inputs or
    columns, with or without shedding.  The old checkpoint is only read.

    Parameters
    ----------
    frame : DataFrame
        The streaming DataFrame that a join or :func:`sql` returned, as the new query will use it.
    checkpoint : str or Path
        The ``checkpointLocation`` of the old query, which must have stopped.
    into : str or Path, optional
        The new one: a folder that does not exist yet, or is empty.  Without it nothing is written, and the answer says
        what would change.
    partitions : int, optional
        How many state partitions the new query gets; by default ``spark.sql.shuffle.partitions`` of the session.

    Returns
    -------
    Resumed
        What has changed, and the event time from which on results are complete.

    Raises
    ------
    CheckpointError
        If what changed cannot be answered from the rows that are held, if a query still runs on the checkpoint or was
        cut off within a micro-batch, if the new folder exists, or if Spark keeps the checkpoint in a form that cannot
        be carried on.
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

    A result is judged by the definition in force when the last of its rows arrives.  So the new query gives every
    result of the new definition with at least one row that arrives after the change, provided that the old join still
    held the others: of a longer window the rows that had left the old one are gone, and ``complete_from`` says since
    when none of them is missing.  Results whose rows had all arrived are those of the old query.  A row without a
    match comes out if it has had none under either definition, and once.

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
    ...     print(dt.resume(pairs(3), f"{folder}/old", f"{folder}/new", partitions=3))
    ...     held = dt.state(spark, f"{folder}/new").where("input IS NOT NULL")
    ...     held.selectExpr("sum(rows)", "count(DISTINCT partition)").collect()
    the same join
    complete
    [Row(sum(rows)=32, count(DISTINCT partition)=3)]
    """
    handle = handle_of(frame, "resume")
    if not handle.plan.streams:
        raise ArgumentError("resume got a join of static inputs", accepted="a join of streams")
    spark = frame.sparkSession
    tasks = int(spark.conf.get(PARTITIONS) or 200) if partitions is None else partitions
    old, batch = _stopped(spark, checkpoint, tasks)
    recorders = [recorder for recorder in handle.recorders if recorder.header is not None]
    known = _headers(spark, old.folder)
    changed, same = compared(known, recorders, old.folder)
    watermark = old.watermark(batch)
    adoptions = [decided(spark, old.folder, batch, watermark, one) for one in changed]
    sources = _sources(old, batch, adoptions)
    resumed = _together([one.resumed() for one in adoptions])
    if into is not None:
        moves = _moves(spark, old.folder, batch, tasks, known, same)
        _lay_down(spark, old, local_folder(into, "into"), batch, tasks, moves, adoptions, sources)
    return resumed


def _together(parts: list[Resumed]) -> Resumed:
    """What is to be said of all joins of a query."""
    times = [part.complete_from for part in parts if part.complete_from is not None]
    latest = max(times, key=lambda time: time.timestamp() if isinstance(time, datetime) else time, default=None)
    changes = (text for part in parts for text in part.changes)
    notes = (text for part in parts for text in part.notes)
    return Resumed(tuple(changes), latest, tuple(dict.fromkeys(notes)))


def migrate(spark: SparkSession, checkpoint: str | Path, into: str | Path, partitions: int) -> None:
    """A checkpoint for the joins as they are, in other partitions."""
    old, batch = _stopped(spark, checkpoint, partitions)
    new = local_folder(into, "into")
    known = _headers(spark, old.folder)
    moves = _moves(spark, old.folder, batch, partitions, known, None)
    _lay_down(spark, old, new, batch, partitions, moves, [], None)


def _stopped(spark: SparkSession, checkpoint: str | Path, partitions: int) -> tuple[CheckpointFiles, int]:
    """The files of a checkpoint that can be carried on, and its last micro-batch."""
    if not is_whole(partitions, least=1):
        raise ArgumentError(f"partitions={partitions!r}", accepted="a whole number of at least 1")
    if is_remote():
        raise SetupError(
            "resume on Spark Connect", accepted="a session without Spark Connect, where the checkpoint is",
            hint="dovetail migrate OLD NEW --partitions 64 does it from a shell",
        )  # fmt: skip
    old = CheckpointFiles(local_folder(checkpoint, "checkpoint"))
    batch = old.check()
    _check_stopped(spark, old)
    return old, batch


def _lay_down(
    spark: SparkSession,
    old: CheckpointFiles,
    new: Path,
    batch: int,
    partitions: int,
    moves: list[Move],
    adoptions: list[Adopted],
    sources: list[int | None] | None,
) -> None:
    """Write the new checkpoint."""
    old.begin(new)
    try:
        for group in _groups(moves):
            _load(spark, old, new, batch, partitions, group)
        for number, one in enumerate(adoptions):
            _load_adopted(spark, old, new, batch, partitions, one, number)
        if old.committed() != batch:
            raise CheckpointError(
                f"a query still runs on {old.folder}: micro-batch {old.committed()} was committed meanwhile",
                accepted="the checkpoint of a query that has stopped",
            )
        old.copy_logs(new, batch, partitions, sources)
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


def _headers(spark: SparkSession, folder: Path) -> dict[int, CheckpointHeader]:
    """The header of each operator; refuses a query in which something else keeps state, too."""
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
    if not known:
        raise CheckpointError(f"no join has left state in {folder}", accepted="a query that has run")
    # Nothing was ever stored by some: second kernels that have not had to remember anything.
    return {number: known.get(number, next(iter(known.values()))) for number in stored}


def _moves(
    spark: SparkSession,
    folder: Path,
    batch: int,
    partitions: int,
    known: Mapping[int, CheckpointHeader],
    same: Mapping[int, Recorder] | None,
) -> list[Move]:
    """What becomes of each operator of a join that stays the same: those in `same`, or without it all of them."""
    moves = []
    for row in stateful_operators(spark, str(folder), joins_only=False):
        number = row.operatorId
        if same is not None and number not in same:
            continue
        target = _rescaled(known[number], partitions, folder) if same is None else same[number].header
        assert target is not None
        timers = json.loads(row.operatorProperties)["timeMode"] == "EventTime"
        routed = target.layout is not None and target.layout.family in ROUTED
        if routed:
            check_run(list(heads(spark, folder, batch, number)), folder)
        moves.append(Move(number, timers, target.stored(), target.layout if routed else None))
    return moves


def _sources(old: CheckpointFiles, batch: int, adoptions: list[Adopted]) -> list[int | None] | None:
    """For each source of the new query its number in the old one, None for a new one; None where all stay."""
    inputs = [[_read_by(one) for one in (adoption.changed.old, adoption.changed.new)] for adoption in adoptions]
    if all(before == now for before, now in inputs):
        return None
    before, now = inputs[0]
    count = old.sources(batch)
    if len(inputs) > 1 or count != len(before):
        raise refused(
            f"the inputs were {', '.join(before)} and are {', '.join(now)}",
            f"the query reads {count} sources for {len(before)} inputs of {len(inputs)} joins: "
            "which source belongs to which input is not known",
        )
    return [before.index(name) if name in before else None for name in now]


def _read_by(definition: Definition) -> list[str]:
    """The inputs that each source of a join belongs to: Spark numbers sources in the order in which a plan has them."""
    names = [held.name for held in definition.layout.inputs]
    return names * 2 if SCOUTED in definition.parts else names  # a scout reads all inputs once more


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
    Rerouting(header.layout)  # refuses numbers that are none
    with read_as_state(str(folder)):
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


def _load_adopted(
    spark: SparkSession, old: CheckpointFiles, new: Path, batch: int, partitions: int, one: Adopted, number: int
) -> None:
    """Have Spark write the state of a join that has changed."""
    changed = one.changed
    alone = len(changed.operators) != len(changed.recorders)
    operators = range(len(changed.recorders)) if alone else changed.operators
    own = dict(zip((recorder.name for recorder in changed.recorders), operators, strict=True))
    holding = next(recorder for recorder in changed.recorders if recorder.intake is not None)
    # The operator that decides comes last in the plan, and so first.
    deciding = [changed.recorders[0]] if holding.above else []
    segments = adopted(spark, old.folder, batch, one, [own[recorder.name] for recorder in (holding, *deciding)])
    # In the user's session, which knows the functions and the time zone of the conditions.
    place = new / _LOADING / f"segments-{number}"
    segments.write.parquet(str(place))
    session = writing_session(spark, old, batch, partitions)
    stored = session.read.schema(MOVED_SCHEMA).parquet(str(place))
    for recorder in changed.recorders:
        initial = stored.where(F.col("operator") == own[recorder.name]).selectExpr(
            "cell", "name", "segment", "CAST(NULL AS BIGINT) AS timer"
        )
        if recorder.timers:
            # At the first watermark every cell looks at what it has got.
            due = "cell", "CAST(NULL AS STRING)", "CAST(NULL AS BINARY)", "1L"
            initial = initial.union(initial.select("cell").distinct().selectExpr(*due))
        loaded = new / _LOADING / str(own[recorder.name])
        write_state(session, initial, loaded, timers=recorder.timers)
        take_state(loaded, new, own[recorder.name], batch)


def _load(spark: SparkSession, old: CheckpointFiles, new: Path, batch: int, partitions: int, group: list[Move]) -> None:
    """Have Spark write the state of some operators again."""
    session = writing_session(spark, old, batch, partitions)
    path = str(old.folder)
    segments = read_segments(session, path, group[0].operator, batch).select(*MOVED)
    for move in group[1:]:
        segments = segments.union(read_segments(session, path, move.operator, batch).select(*MOVED))
    layout = group[0].layout
    if layout is not None:
        routing, headers = Rerouting(layout), {move.operator: move.header for move in group}
        pieces = apply_by_group(segments, "cell", arrow_function(TakeApart(routing)), MOVED_SCHEMA)
        segments = apply_by_group(pieces, "cell", arrow_function(PutTogether(routing, headers)), MOVED_SCHEMA)
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
        write_state(session, initial, place, timers=move.timers)
        take_state(place, new, move.operator, batch)
    if len(group) > 1:
        segments.unpersist()

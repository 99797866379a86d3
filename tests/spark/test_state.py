"""What `dt.state` says of the state of every streaming family, beside a plain reading of the same bytes."""

from __future__ import annotations

import json
from io import StringIO

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console
from tests.checkpoints.joins import JOINS, run, streams, write_file
from tests.spark.test_checkpoints import by_rows, restored

import dovetail as dt
from dovetail.checkpoints import CheckpointHeader
from dovetail.columns.segments import pack
from dovetail.command.state import by_input, show
from dovetail.contents import STORED, DescribeCells
from dovetail.errors import CheckpointError
from dovetail.inventory import HeldInput, StateLayout

pytestmark = pytest.mark.usefixtures("few_partitions")

SECOND = 1_000_000
# By the names of the segments: which input their rows belong to.
INPUTS = {
    "window": {"0/": "A", "1/": "B"},
    "theta-rows": {"0/0/": "A", "0/1/": "B", "1/0/": "A", "1/1/": "B"},
    "asof": {"L/": "A", "R/": "B"},
    "best": {"0/": "A", "1/": "B"},
    "approx": {"rows/0/": "A", "rows/1/": "B"},
    "aggregate": {"Q/": "B", "T/": "A"},
    "nearest": {"R/": "A", "S/": "B"},
}
# How long after its own time a row is needed, in seconds, by the definition of each join.
NEEDED = {
    "asof": {"A": 5, "B": 10},
    "aggregate": {"A": 4, "B": 8},
    "nearest": {"A": 4, "B": 8},
}


def plain(spark, checkpoint) -> list[tuple[int, str, pa.Table]]:
    """All segments, by Spark's own reader and Arrow's."""
    stored = spark.read.format("statestore").option("stateVarName", "segments").load(str(checkpoint)).collect()
    return [
        (row.key.cell, row.user_map_key.name, pa.ipc.open_stream(bytes(row.user_map_value.segment)).read_all())
        for row in stored
        if row.user_map_key.name != "format"
    ]


def input_of(name: str, segment: str) -> str | None:
    if name == "theta-time":
        parts = segment.split("/")
        return "AB"[int(parts[1])] if len(parts) == 3 else None
    if segment.endswith("/matched"):
        return None
    return next((alias for begin, alias in INPUTS[name].items() if segment.startswith(begin)), None)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", JOINS)
def test_rows_bytes_and_times_are_those_that_lie_there(spark, tmp_path, name):
    for alias in "AB":
        write_file(tmp_path, alias, 0)
    run(JOINS[name](streams(spark, tmp_path)), tmp_path / name, tmp_path / "out")
    checkpoint = tmp_path / name / "checkpoint"
    segments = plain(spark, checkpoint)
    held = dt.state(spark, checkpoint, samples=100).collect()
    expected: dict[tuple[int, str], list[pa.Table]] = {}
    for cell, segment, rows in segments:
        alias = input_of(name, segment)
        if alias is not None:
            expected.setdefault((cell, alias), []).append(rows)
    assert expected, "nothing was held, so nothing is tested"
    found = {(row.cell, row.input): row for row in held if row.input is not None}
    assert set(found) == set(expected)
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    watermark = json.loads(commits[-1].read_text().splitlines()[1])["nextBatchWatermarkMs"] * 1000
    for key, tables in expected.items():
        row = found[key]
        assert row.rows == sum(table.num_rows for table in tables)
        assert len(row.samples) == row.rows
        assert row.segments == len(tables)
        if name in ("theta-rows", "approx"):
            assert (row.oldest, row.freed) == (None, None)
            continue
        times = [
            value
            for table in tables
            for value in table.column(
                [at for at, kind in enumerate(table.schema.types) if pa.types.is_timestamp(kind)][-1]
            )
            .cast(pa.int64())
            .to_pylist()
        ]
        assert (row.oldest.timestamp(), row.newest.timestamp()) == (min(times) / SECOND, max(times) / SECOND)
        if name in NEEDED:
            needed = NEEDED[name][key[1]] * SECOND
            assert row.freed == sum(time + needed < watermark for time in times)
        samples = [json.loads(sample) for sample in row.samples]
        if (name, key[1]) != ("aggregate", "B"):
            ids = sorted(value for table in tables for value in table.column(0).to_pylist())
            assert sorted(sample["id"] for sample in samples) == ids
            assert set(samples[0]) == {"id", "k", "v", "ts"}
    everything = sum(row.bytes for row in held)
    stored = spark.read.format("statestore").option("stateVarName", "segments").load(str(checkpoint))
    lengths = stored.where("user_map_key.name <> 'format'").selectExpr("sum(length(user_map_value.segment))")
    assert everything == lengths.collect()[0][0]


@pytest.mark.in_turns
def test_what_a_window_join_says_goes_next_goes(spark, tmp_path):
    """The rows that are left after a micro-batch that only moves time on are those that were not to go."""
    for alias in "AB":
        write_file(tmp_path, alias, 0)
    made = dt.window_join(streams(spark, tmp_path), on="A.k = B.k", time="ts", within="4 seconds", partitions=1)
    run(made, tmp_path, tmp_path / "out")
    held = dt.state(spark, tmp_path / "checkpoint").where("input IS NOT NULL").collect()
    # By the definition: rows of A are needed until B has come 4 seconds further, and the other way round.
    for row in held:
        [times] = [
            pc.cast(rows.column(3), pa.int64()).to_pylist()
            for cell, name, rows in plain(spark, tmp_path / "checkpoint")
            if cell == row.cell and name.startswith(f"{'AB'.index(row.input)}/")
        ]
        latest = max(time for _, name, rows in plain(spark, tmp_path / "checkpoint") if name[:2] in ("0/", "1/")
                     for time in pc.cast(rows.column(3), pa.int64()).to_pylist())  # fmt: skip
        assert row.freed == sum(time < latest - 6 * SECOND for time in times)
    assert held


@by_rows
@pytest.mark.parametrize("name", ["window", "asof"])
def test_state_of_an_earlier_version_shows_rows_and_no_times(spark, tmp_path, name):
    restored(tmp_path, name)
    held = [row for row in dt.state(spark, tmp_path / name / "checkpoint").collect() if row.input is not None]
    assert {row.input for row in held} == {"A", "B"}
    assert all(row.rows > 0 and row.oldest is None and row.freed is None for row in held)


def test_what_holds_nothing_is_refused(spark, tmp_path):
    with pytest.raises(CheckpointError, match="no join has left state in"):
        dt.state(spark, tmp_path / "nowhere")
    with pytest.raises(dt.ArgumentError, match="checkpoint=5"):
        dt.state(spark, 5)
    with pytest.raises(dt.ArgumentError, match="samples=-1"):
        dt.state(spark, tmp_path, samples=-1)


@pytest.mark.in_turns
def test_a_running_query_can_be_looked_at_and_goes_on(spark, tmp_path):
    for alias in "AB":
        write_file(tmp_path, alias, 0)
    made = JOINS["asof"](streams(spark, tmp_path))
    query = (
        made.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        before = sorted(str(file) for file in (tmp_path / "checkpoint").rglob("*"))
        held = dt.state(spark, tmp_path / "checkpoint").collect()
        assert sum(row.rows or 0 for row in held) > 0
        assert sorted(str(file) for file in (tmp_path / "checkpoint").rglob("*")) == before
        for alias in "AB":
            write_file(tmp_path, alias, 1)
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    console = Console(file=StringIO(), width=200)
    show(console, [row.asDict() for row in dt.state(spark, tmp_path / "checkpoint", samples=1).collect()], cells=True)
    text = console.file.getvalue()
    assert "an as-of join, operator 0" in text
    assert '"ts": "2026-03-01 12:00:' in text


def test_times_that_no_datetime_can_hold_are_shown():
    """Spark takes any time that fits into 64 bits, as a broken clock may give it."""
    times = pa.array([-(10**18), 0, 9 * 10**18], pa.timestamp("us", "UTC"))
    segment = pack(pa.RecordBatch.from_pydict({"k": [1, 2, 3], "t": times}))
    layout = StateLayout("asof", (HeldInput("A", ("k", "t"), 1, 0), HeldInput("B", ("k", "t"), 1, 0)))
    header = CheckpointHeader.of({"join": "an as-of join", "inputs": "A, B"}, layout).stored()
    where = {"operator": 0, "partition": 0, "cell": 3, "watermark": None}
    stored = [where | {"name": name, "segment": bytes(part)} for name, part in (("L/1", segment), ("format", header))]
    kinds = [pa.int32(), pa.int32(), pa.int32(), pa.string(), pa.binary(), pa.int64()]
    batch = pa.RecordBatch.from_pylist(stored, schema=pa.schema(list(zip(STORED, kinds, strict=True))))
    [found] = DescribeCells(samples=3)([batch])
    [row] = found.to_pylist()
    assert (row["oldest"].year, row["newest"].year) == (1, 9999)
    assert json.loads(row["samples"][2]) == {"k": 3, "t": 9 * 10**18}
    assert json.loads(row["samples"][1])["t"].startswith("1970-01-01")


def test_entries_add_up_cells_and_tell_the_fullest():
    row = {"operator": 1, "join": "x", "input": "A", "rows": 1, "bytes": 5, "segments": 1, "freed": None, "cell": 3}
    beside = {"operator": 1, "join": "x", "input": None, "beside": "flags", "bytes": 2, "segments": 1, "cell": 3}
    entries = by_input([row, row | {"cell": 4, "rows": 5}, beside, beside | {"cell": 4}])
    assert [(entry["input"], entry["beside"], entry["bytes"]) for entry in entries] == [
        ("A", None, 10),
        (None, "flags", 4),
    ]
    assert (entries[0]["fullest"], entries[0]["skew"], entries[0]["freed"]) == (4, 1.67, None)


def test_tables_are_whole_where_a_line_is_short():
    """Rich takes a file, and a pipe, for 80 columns."""
    row = {"operator": 0, "join": "x", "input": "a_long_name", "rows": 1_234_567, "bytes": 98_765_432, "segments": 1}
    row |= {"cell": 3, "partition": 1, "freed": 7, "oldest_number": 10**18, "newest_number": 2 * 10**18}
    console = Console(file=StringIO(), width=40)
    show(console, [row, row | {"input": None, "beside": "flags of rows that have matched", "rows": None}], cells=True)
    said = console.file.getvalue()
    assert "…" not in said
    assert said.count("1,234,567") == said.count("98,765,432") - 1 == 2
    assert console.width == 40

"""Theta joins of streams in Spark: what comes out, when, and what survives a restart."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail as dt
from dovetail import reference
from dovetail.errors import (
    ArgumentError,
    SetupError,
    UnboundedJoinError,
    UnknownNameError,
    UnsupportedTypeError,
)
from dovetail.families.theta.stream import METRICS
from dovetail.reference import at_most, both, less

from . import streams
from .streams import ids, run, written

SCHEMA = "id long, x long, k string, t timestamp"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STORE = "spark.sql.streaming.stateStore.providerClass"


pytestmark = pytest.mark.usefixtures("few_partitions")


@pytest.fixture
def zone(spark):
    """Set the session's time zone for one test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda name: spark.conf.set("spark.sql.session.timeZone", name)
    spark.conf.set("spark.sql.session.timeZone", before)


def rows(seed: int, size: int) -> list[dict]:
    return [
        {
            "id": at,
            "x": None if at % 7 == seed else (at * 37 + seed * 11) % 20,
            "k": "abc"[(at + seed) % 3],
            "t": None,
        }
        for at in range(size)
    ]


def file_schema(zone: str | None = "UTC") -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("x", pa.int64()), ("k", pa.string()), ("t", pa.timestamp("us", zone))])


def put(folder: Path, made: list[dict], zone: str | None = "UTC") -> None:
    streams.put(folder, made, file_schema(zone))


def stream(spark, folder: Path, schema: str = SCHEMA) -> DataFrame:
    return streams.source(spark, folder, schema)


def expected(inputs: dict[str, list[dict]], condition, how: str = "inner", window: int | None = None) -> Counter:
    joined = reference.theta_join(inputs, condition, how, window)
    return Counter(tuple(None if row is None else row["id"] for row in found.values()) for found in joined)


ON = "A.x <= B.x AND A.k <> 'b' AND concat(A.k, B.k) <> 'ac'"


def meaning(a: dict, b: dict) -> bool | None:
    return both(at_most(a["x"], b["x"]), a["k"] != "b", a["k"] + b["k"] != "ac")


@pytest.mark.in_turns(group="streams across a restart")
def test_count_windows_do_not_depend_on_the_cut_nor_on_a_restart(spark, tmp_path):
    a, b = rows(0, 47), rows(1, 38)
    truth = expected({"A": a, "B": b}, meaning, window=10)
    assert truth.total() > 40

    put(tmp_path / "A1", a)
    put(tmp_path / "B1", b)
    whole = [spark.read.schema(SCHEMA).parquet(str(tmp_path / name)) for name in ("A1", "B1")]
    batch = dt.theta_join({"A": whole[0], "B": whole[1]}, on=ON, window=10)
    assert ids(batch) == truth
    counts = dt.metrics(batch)
    assert (counts["rows"], counts["results"]) == (85, truth.total())
    assert counts["candidates"] > counts["results"]

    def joined() -> DataFrame:
        inputs = {name: stream(spark, tmp_path / f"{name}2") for name in "AB"}
        return dt.theta_join(inputs, on=ON, window=10)

    place = tmp_path / "query"
    put(tmp_path / "A2", a[:3])
    put(tmp_path / "B2", b[:25])
    put(tmp_path / "A2", a[3:16])
    first = run(joined(), place)
    # A match is out as soon as both its rows are there.
    assert written(spark, place) == expected({"A": a[:16], "B": b[:25]}, meaning, window=10)
    put(tmp_path / "B2", b[25:26])
    put(tmp_path / "A2", a[16:])
    put(tmp_path / "B2", b[26:])
    second = run(joined(), place)
    assert written(spark, place) == truth
    assert all(set(counts) == set(METRICS) for counts in [*first, *second])
    assert sum(counts["rows"] for counts in [*first, *second]) == 85
    assert sum(counts["candidates"] for counts in [*first, *second]) >= truth.total()
    # Three windows of both inputs are full and forgotten.
    usable = [row for row in [*a[30:], *b[30:]] if row["x"] is not None]
    hidden = [row for row in a[30:] if row["x"] is not None and row["k"] == "b"]
    assert second[-1]["held_rows"] == len(usable) - len(hidden)


def at(number: int, second: int | None, x: int) -> dict:
    moment = None if second is None else NOON + timedelta(seconds=second)
    return {"id": number, "x": x, "k": "a", "t": moment}


EVERY = timedelta(seconds=10)
DELAY = timedelta(seconds=5)
A_FILES = [
    [at(0, 1, 5), at(1, 9, 50), at(2, None, 1), at(3, 12, 5), at(4, 0, 60)],
    [at(5, 8, 2), at(6, 27, 3), at(7, 19, 99)],
    [at(8, 11, 1), at(9, 2, 1), at(10, 31, 5), at(11, 25, 99)],
    [at(12, 29, 1), at(13, 15, 1), at(14, 45, 99)],
]
B_FILES = [
    [at(0, 3, 10), at(1, None, 90), at(2, 14, 10)],
    [at(3, 5, 70), at(4, 24, 10)],
    [at(5, 18, 10), at(6, 4, 99), at(7, 33, 4)],
    [at(8, 28, 10), at(9, 47, 1)],
]


def window_of(row: dict) -> int:
    return (row["t"] - datetime(1970, 1, 1, tzinfo=UTC)) // EVERY


def closes(row: dict) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + (window_of(row) + 1) * EVERY


def in_window(a: dict, b: dict) -> bool | None:
    same = None if a["t"] is None or b["t"] is None else window_of(a) == window_of(b)
    return both(same, less(a["x"], b["x"]))


def simulated(files: int, how: str) -> tuple[Counter, int]:
    """What is out after so many files of both inputs, and how many rows were late.

    The watermark of a micro-batch comes from those before it: the slower input's latest time, less the delay.
    """
    taken: dict[str, list[dict]] = {"A": [], "B": []}
    latest: dict[str, datetime | None] = {"A": None, "B": None}
    watermark, late = datetime(1970, 1, 1, tzinfo=UTC), 0
    for file in range(files):
        for alias, made in (("A", A_FILES[file]), ("B", B_FILES[file])):
            for row in made:
                if row["t"] is not None and closes(row) <= watermark:
                    late += 1
                else:
                    taken[alias].append(row)
            moments = [row["t"] for row in made if row["t"] is not None]
            latest[alias] = max([*moments, *([latest[alias]] if latest[alias] else [])])
        watermark = max(watermark, min(latest.values()) - DELAY)
    found: Counter = Counter()
    by_id = {row["id"]: row for row in taken["A"]}
    for pair, count in expected(taken, in_window, how).items():
        unmatched = len(pair) == 2 and pair[1] is None
        if not unmatched or by_id[pair[0]]["t"] is None or closes(by_id[pair[0]]) <= watermark:
            found[pair] += count
    return found, late


@pytest.mark.in_turns(group="streams across a restart")
def test_left_join_in_windows_of_time(spark, tmp_path, zone):
    """Unmatched rows come out with their window, late rows are counted, and a restart changes nothing."""
    zone("America/New_York")

    def joined() -> DataFrame:
        inputs = {name: stream(spark, tmp_path / name).withWatermark("t", "5 seconds") for name in "AB"}
        return dt.theta_join(inputs, on="A.x < B.x", how="left", window="10 seconds", time="t")

    place = tmp_path / "query"
    for name, files in (("A", A_FILES), ("B", B_FILES)):
        for made in files[:2]:
            put(tmp_path / name, made)
    first = run(joined(), place)
    truth, late = simulated(2, "left")
    assert written(spark, place) == truth
    assert sum(counts["late"] for counts in first) == late
    for name, files in (("A", A_FILES), ("B", B_FILES)):
        for made in files[2:]:
            put(tmp_path / name, made)
    # Where windows live must not follow a setting that may change between two runs.
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        second = run(joined(), place)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    truth, late = simulated(4, "left")
    assert written(spark, place) == truth
    assert late >= 3
    assert sum(counts["late"] for counts in [*first, *second]) == late
    assert sum(counts["rows"] for counts in [*first, *second]) == sum(map(len, [*A_FILES, *B_FILES]))
    back = spark.read.parquet(str(place / "out")).where("A.id = 0 AND B.id = 0").select("A.t", "B.t").first()
    assert [moment.astimezone(UTC) for moment in back] == [A_FILES[0][0]["t"], B_FILES[0][0]["t"]]


@pytest.mark.in_turns(group="several seconds")
def test_windows_of_time_in_batch_know_no_lateness_and_no_zone(spark, tmp_path, zone):
    """Times without a zone are cut as they are written; nothing is late where all rows are there."""
    zone("Asia/Kolkata")
    for name, files in (("A", A_FILES), ("B", B_FILES)):
        for made in files:
            put(tmp_path / name, [{**row, "t": row["t"] and row["t"].replace(tzinfo=None)} for row in made], zone=None)
    schema = SCHEMA.replace("timestamp", "timestamp_ntz")
    inputs = {name: spark.read.schema(schema).parquet(str(tmp_path / name)) for name in "AB"}
    every = {name: [row for made in files for row in made] for name, files in (("A", A_FILES), ("B", B_FILES))}
    for how, algorithm in (("inner", "prefap"), ("full", "auto"), ("anti", "rbm")):
        joined = dt.theta_join(inputs, on="A.x < B.x", how=how, window="10 seconds", time="t", algorithm=algorithm)
        assert ids(joined) == expected(every, in_window, how), how
    days = dt.theta_join({"A": inputs["A"], "B": inputs["A"]}, on="A.id < B.id", window="1 day", time="t")
    timed = [row for row in every["A"] if row["t"] is not None]
    # All of them lie in one day as written, and on both sides of midnight in no zone.
    assert days.count() == len(timed) * (len(timed) - 1) // 2


@pytest.mark.in_turns(group="several seconds")
def test_stream_beside_a_static_input(spark, tmp_path):
    """Several joins in one query, for its start is the expensive part."""
    a, b = rows(0, 30), rows(1, 25)
    put(tmp_path / "A", a[:11])
    put(tmp_path / "A", a[11:])
    put(tmp_path / "B", b)
    static = spark.read.schema(SCHEMA).parquet(str(tmp_path / "B"))
    union = None
    hows = ("inner", "left", "anti")
    for number, how in enumerate(hows):
        left, right = f"A{number}", f"B{number}"
        inputs = {left: stream(spark, tmp_path / "A"), right: static}
        joined = dt.theta_join(inputs, on=ON.replace("A.", f"{left}.").replace("B.", f"{right}."), how=how)
        other = F.col(f"{right}.id") if right in joined.columns else F.lit(None).cast("long")
        part = joined.select(F.lit(how).alias("how"), F.col(f"{left}.id").alias("a"), other.alias("b"))
        union = part if union is None else union.unionAll(part)
    query = union.writeStream.format("memory").queryName("beside").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(900)
        progress = query.recentProgress
    finally:
        query.stop()
    found = {how: Counter() for how in hows}
    for how, left, right in spark.table("beside").collect():
        found[how][(left,) if how in ("semi", "anti") else (left, right)] += 1
    for how in hows:
        assert found[how] == expected({"A": a, "B": b}, meaning, how), how
    observed = [p["observedMetrics"] for p in progress if p["numInputRows"]]
    assert set(observed[0]) == {f"dovetail(A{n},B{n})" for n in range(3)}
    # The filter on A drops rows before an inner join; a left join keeps them.
    usable = sum(row["k"] != "b" for row in a)
    assert sum(one["dovetail(A0,B0)"]["rows_points"] for one in observed) == usable
    assert all(one["dovetail(A1,B1)"]["candidates"] > 0 for one in observed)


def test_what_streams_refuse(spark, tmp_path):
    put(tmp_path / "A", [])
    plain = stream(spark, tmp_path / "A")
    marked = plain.withWatermark("t", "5 seconds")
    static = spark.read.schema(SCHEMA).parquet(str(tmp_path / "A"))
    zoneless = static.withColumn("t", F.col("t").cast("timestamp_ntz"))
    in_time = {"window": "10 seconds", "time": "t"}
    refused = [
        ({"A": plain, "B": marked}, in_time, UnboundedJoinError, "the stream 'A' has no watermark on 't'"),
        ({"A": marked, "B": marked.drop("t")}, in_time, UnknownNameError, "time= names the column B.t"),
        ({"A": static, "B": static}, {**in_time, "time": "x"}, UnsupportedTypeError, "has the type bigint in 'A'"),
        ({"A": static, "B": zoneless}, in_time, UnsupportedTypeError, "timestamp in 'A' and timestamp_ntz in 'B'"),
        ({"A": plain, "B": plain}, {}, UnboundedJoinError, "no window bounds what to remember"),
        ({"A": plain, "B": static}, {"window": 5}, ArgumentError, "window= beside the static input(s) B"),
        ({"A": plain, "B": plain}, {"window": 5, "broadcast": "B"}, ArgumentError, "broadcast= together with window="),
        ({"A": plain, "B": static}, {"how": "right"}, ArgumentError, "how='right' keeps or counts rows of 'B'"),
        ({"A": static, "B": plain}, {"how": "semi"}, ArgumentError, "how='semi' keeps or counts rows of 'A'"),
        ({"A": plain, "B": static}, {"how": "full"}, ArgumentError, "how='full' keeps or counts rows of 'B'"),
        ({"A": plain, "B": static}, {"algorithm": "prefap"}, ArgumentError, "algorithm='prefap' beside the static"),
    ]
    for inputs, arguments, error, text in refused:
        with pytest.raises(error) as caught:
            dt.theta_join(inputs, on="A.x < B.x", **arguments)
        assert text in str(caught.value)
    with pytest.raises(ArgumentError, match="how='left' in windows with the condition") as caught:
        dt.theta_join({"A": plain, "B": plain}, on=ON, how="left", window=5)
    assert "only Spark can evaluate" in str(caught.value)
    with pytest.raises(ArgumentError, match="how='anti' with 3 inputs"):
        dt.theta_join({"A": plain, "B": plain, "C": plain}, on="A.x < B.x AND B.x < C.x", how="anti", window=5)
    with pytest.raises(ArgumentError, match="metrics of a streaming join"):
        dt.metrics(dt.theta_join({"A": plain, "B": plain}, on="A.x < B.x", window=5))


def test_a_state_store_without_named_segments_is_refused_at_once(spark, tmp_path):
    put(tmp_path / "A", [])
    inputs = {name: stream(spark, tmp_path / "A") for name in "AB"}
    before = spark.conf.get(STORE)
    spark.conf.set(STORE, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(SetupError, match="RocksDBStateStoreProvider"):
            dt.theta_join(inputs, on="A.x < B.x", window=5)
    finally:
        spark.conf.set(STORE, before)

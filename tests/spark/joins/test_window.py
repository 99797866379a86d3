"""Window joins in Spark: the definition, DuckDB, streams across restarts, counters, and what is refused."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail as dt
from dovetail import reference
from dovetail.errors import ArgumentError, PredicateError, UnboundedJoinError, UnknownNameError, UnsupportedTypeError
from dovetail.reference import both, equal

from .streams import ids, put, run, source, written

SCHEMA = "id long, k string, v double, ts timestamp"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


pytestmark = pytest.mark.usefixtures("few_partitions")


def made(alias: str, count: int = 40) -> list[dict]:
    """Rows in the order of arrival: times out of order by up to 3 s, some keys and times NULL."""
    random = np.random.default_rng(ord(alias))
    rows = []
    for at in range(count):
        ts = NOON + (at // 2 - int(random.integers(0, 4))) * SECOND
        rows.append(
            {
                "id": at,
                "k": None if at % 11 == 3 else "abc"[int(random.integers(0, 3))],
                "v": float(random.integers(0, 20)) / 2,
                "ts": None if at % 17 == 5 else ts,
            }
        )
    return rows


def frame(spark, rows: list[dict]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


FILE = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])


def stream(spark, folder: Path) -> DataFrame:
    return source(spark, folder, SCHEMA).withWatermark("ts", "4 seconds")


def meant(inputs: dict[str, list[dict]], condition, windows, how="inner") -> Counter:
    def numbered(rows):
        return [{**row, "ts": None if row["ts"] is None else (row["ts"] - NOON) // SECOND} for row in rows]

    found = reference.window_join({a: numbered(rows) for a, rows in inputs.items()}, condition, windows, how, time="ts")
    return Counter(tuple(None if row is None else row["id"] for row in match.values()) for match in found)


def same_key(*rows):
    return both(*(equal(one["k"], other["k"]) for one, other in pairwise(rows)))


def test_three_inputs_with_a_path_and_a_condition_of_sparks_own(spark):
    inputs = {alias: made(alias) for alias in "ABC"}
    joined = dt.window_join(
        {alias: frame(spark, rows) for alias, rows in inputs.items()},
        on="A.k = B.k AND B.k = C.k AND A.v + B.v <> C.v",
        time="ts",
        within=dt.path("C -> A -> B", ["3 seconds", "2 seconds"], both_ways=True),
    )
    hops = {("C", "A"): (0, 3), ("A", "B"): (0, 2)}
    back = {pair: (-high, -low) for pair, (low, high) in hops.items()}

    def condition(a, b, c):
        return both(same_key(a, b, c), a["v"] + b["v"] != c["v"])

    assert ids(joined) == meant(inputs, condition, [hops, back])
    counts = dt.metrics(joined)
    assert counts["results"] == sum(ids(joined).values())
    assert counts["rows"] >= 100


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_hows_in_batch_and_in_a_stream_across_a_restart(spark, tmp_path, how):
    """The stream is stopped and started again after each file, and gives what the batch gives."""
    inputs = {alias: made(alias) for alias in "AB"}
    call = {"on": "A.k = B.k", "time": "ts", "within": {("A", "B"): ("-1 second", "2 seconds")}, "how": how}
    batch = dt.window_join({alias: frame(spark, rows) for alias, rows in inputs.items()}, **call)
    answer = meant(inputs, same_key, {("A", "B"): (-1, 2)}, how)
    assert ids(batch) == answer
    if how not in ("inner", "full", "semi"):
        return  # streams of these are tested without Spark; each one here takes many seconds
    place = tmp_path / "query"
    reports = []
    for at in range(0, 40, 20):
        for alias, rows in inputs.items():
            put(tmp_path / alias, rows[at : at + 20], FILE)
        reports += run(dt.window_join({a: stream(spark, tmp_path / a) for a in "AB"}, **call), place)
    # One more row each, which closes the windows of all others and matches nothing.
    for alias in "AB":
        put(tmp_path / alias, [{"id": 99, "k": f"last {alias}", "v": 0.0, "ts": NOON + 1000 * SECOND}], FILE)
    reports += run(dt.window_join({a: stream(spark, tmp_path / a) for a in "AB"}, **call), place)
    # Spark runs a micro-batch without rows where its own watermark moves; no cell hears of it.
    reports = [report for report in reports if report["rows"]]
    assert written(spark, place) == answer
    assert sum(report["late_A"] + report["late_B"] for report in reports) == 0
    assert reports[-1]["held_rows_A"] == 1
    assert reports[-1]["state_bytes_A"] > 0
    assert sum(report["evicted_B"] for report in reports) > 30
    assert all(report["kernel_us"] > 0 for report in reports)


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_conditions_of_sparks_own_decide_what_has_no_match(spark, how):
    inputs = {alias: made(alias) for alias in "AB"}
    joined = dt.window_join(
        {alias: frame(spark, rows) for alias, rows in inputs.items()},
        on="A.k = B.k AND A.v <> B.v AND (A.v > 3 OR B.v > 3)", time="ts", within="2 seconds", how=how,
    )  # fmt: skip

    def condition(a, b):
        return both(same_key(a, b), a["v"] != b["v"], a["v"] > 3 or b["v"] > 3)

    answer = meant(inputs, condition, {("A", "B"): (-2, 2)}, how)
    assert ids(joined) == answer
    assert dt.metrics(joined)["results"] == sum(answer.values()) > 5


@pytest.mark.in_turns(group="streams across a restart")
@pytest.mark.parametrize("how", ["full", "semi"])
def test_conditions_of_sparks_own_in_a_stream_across_a_restart(spark, tmp_path, how):
    """Two stateful operators, one after the other: the query is stopped and started again after each file."""
    inputs = {alias: made(alias) for alias in "AB"}
    call = {"on": "A.k = B.k AND A.v <> B.v AND (A.v > 3 OR B.v > 3)", "time": "ts", "within": "2 seconds", "how": how}

    def condition(a, b):
        return both(same_key(a, b), a["v"] != b["v"], a["v"] > 3 or b["v"] > 3)

    place = tmp_path / "query"
    for at in range(0, 40, 20):
        for alias, rows in inputs.items():
            put(tmp_path / alias, rows[at : at + 20], FILE)
        run(dt.window_join({a: stream(spark, tmp_path / a) for a in "AB"}, **call), place)
    for alias in "AB":
        put(tmp_path / alias, [{"id": 99, "k": f"last {alias}", "v": 0.0, "ts": NOON + 1000 * SECOND}], FILE)
    joined = dt.window_join({a: stream(spark, tmp_path / a) for a in "AB"}, **call)
    run(joined, place)
    answer = meant(inputs, condition, {("A", "B"): (-2, 2)}, how)
    assert written(spark, place) == answer
    assert sum(answer.values()) > 5
    dt.check_checkpoint(joined, place / "checkpoint")
    other = dt.window_join({a: stream(spark, tmp_path / a) for a in "AB"}, **{**call, "on": "A.k = B.k AND A.v <> B.v"})
    with pytest.raises(dt.CheckpointError, match="condition"):
        dt.check_checkpoint(other, place / "checkpoint")


@pytest.mark.in_turns(group="several seconds")
def test_a_stream_without_any_equality(spark, tmp_path):
    inputs = {alias: made(alias) for alias in "ABC"}
    for alias, rows in inputs.items():
        for at in range(0, 40, 20):
            put(tmp_path / alias, rows[at : at + 20], FILE)
    joined = dt.window_join(
        {alias: stream(spark, tmp_path / alias) for alias in "ABC"},
        on="ABS(A.v - B.v) <= 0.5 AND ABS(B.v - C.v) <= 0.5",
        time="ts",
        within="2 seconds",
    )
    run(joined, tmp_path / "query")

    def condition(a, b, c):
        return abs(a["v"] - b["v"]) <= 0.5 and abs(b["v"] - c["v"]) <= 0.5

    pairs = {("A", "B"): (-2, 2), ("A", "C"): (-2, 2), ("B", "C"): (-2, 2)}
    assert ids(spark.read.parquet(str(tmp_path / "query" / "out"))) == meant(inputs, condition, pairs)


def test_larger_inputs_agree_with_duckdb(spark, tmp_path):
    random = np.random.default_rng(5)
    for alias in "ABC":
        table = pa.table(
            {"id": np.arange(20_000), "k": random.integers(0, 500, 20_000), "t": random.integers(0, 100_000, 20_000)}
        )
        pq.write_table(table, tmp_path / f"{alias}.parquet", row_group_size=5_000)
    joined = dt.window_join(
        {alias: spark.read.parquet(str(tmp_path / f"{alias}.parquet")) for alias in "ABC"},
        on="A.k = B.k AND B.k = C.k AND A.id < C.id",
        time="t",
        within={("A", "B"): 1000, ("B", "C"): dt.after(2000)},
    )
    files = ", ".join(f"'{tmp_path}/{alias}.parquet' {alias}" for alias in "ABC")
    sql = f"""SELECT count(*), sum(A.id * 7 + B.id * 11 + C.id * 13) FROM {files}
        WHERE A.k = B.k AND B.k = C.k AND A.id < C.id
        AND abs(A.t - B.t) <= 1000 AND C.t - B.t BETWEEN 0 AND 2000"""
    found = joined.agg(F.count("*"), F.sum(F.expr("A.id * 7 + B.id * 11 + C.id * 13"))).first()
    assert tuple(found) == tuple(int(value) for value in duckdb.sql(sql).fetchall()[0])
    assert found[0] > 1000


def test_explain_tells_windows_kernel_and_state(spark, tmp_path, capsys):
    for alias in "ABC":
        put(tmp_path / alias, made(alias, 1), FILE)
    joined = dt.window_join(
        {alias: stream(spark, tmp_path / alias) for alias in "ABC"},
        on="A.k = B.k AND B.k = C.k",
        time="ts",
        within={("A", "B"): "5 seconds", ("B", "C"): dt.after("10 seconds")},
        idle_timeout="1 minute",
    )
    dt.explain(joined)
    text = capsys.readouterr().out
    for part in (
        "window join, stream, how='inner'",
        "A and B at most 5 seconds apart",
        "C at most 10 seconds after B",
        "by the shortest path",
        "index of time within key",
        "by hash of the keys; 4 cells",
        "an input that falls behind by more than 1 minute is not waited for",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"within": "5 parsecs"}, ArgumentError, "unknown unit"),
        ({"time": "when"}, UnknownNameError, "'A' does not have"),
        ({"time": {"A": "ts"}}, ArgumentError, "no column for the input 'B'"),
        ({"time": "v"}, UnsupportedTypeError, "scale it to whole numbers first"),
        ({"time": "k"}, UnsupportedTypeError, "to_timestamp(k)"),
        ({"time": {"A": "ts", "B": "id"}}, UnsupportedTypeError, "timestamp in 'A' and bigint in 'B'"),
        ({"on": "A.k = B.nothing"}, UnknownNameError, "nothing"),
        ({"on": "A.k + B.k"}, PredicateError, "A.k + B.k"),
        ({"how": "lef"}, ArgumentError, "how='lef'"),
        ({"algorithm": "magic"}, ArgumentError, "algorithm='magic'"),
        ({"algorithm": "hash", "on": "A.v < B.v"}, ArgumentError, "without an equality"),
        ({"partitions": 0}, ArgumentError, "partitions=0"),
        ({"lateness": {"Z": "1 s"}}, UnknownNameError, "lateness="),
        ({"idle_timeout": "soon"}, ArgumentError, "idle_timeout='soon'"),
    ],
)
def test_bad_input_is_refused_before_any_job(spark, change, kind, text):
    inputs = {alias: frame(spark, made(alias, 3)) for alias in "AB"}
    with pytest.raises(kind) as caught:
        dt.window_join(inputs, **{"on": "A.k = B.k", "time": "ts", "within": "5 seconds", **change})
    assert text in str(caught.value)


def test_streams_need_a_watermark_and_company_of_their_kind(spark, tmp_path):
    for alias in "AB":
        put(tmp_path / alias, made(alias, 1), FILE)
    raw = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "A"))
    call = {"on": "A.k = B.k", "time": "ts", "within": "5 seconds"}
    with pytest.raises(UnboundedJoinError, match="'A' has no watermark on 'ts'"):
        dt.window_join({"A": raw, "B": stream(spark, tmp_path / "B")}, **call)
    assert dt.window_join({"A": raw, "B": stream(spark, tmp_path / "B")}, **call, lateness="1 second").isStreaming
    rest = {**call, "on": "A.k = B.k AND A.v <> B.v", "how": {"B": "optional"}, "lateness": "1 second"}
    with pytest.raises(ArgumentError, match="which only Spark can evaluate, on streams"):
        dt.window_join({a: stream(spark, tmp_path / a) for a in "AB"}, **rest)
    with pytest.raises(ArgumentError, match=r"static input\(s\) B beside the stream\(s\) A"):
        dt.window_join({"A": stream(spark, tmp_path / "A"), "B": frame(spark, made("B", 3))}, **call)


def test_a_condition_that_is_true_decides_nothing(spark):
    a = spark.createDataFrame([(1, 0), (2, 100)], "id int, t int")
    b = spark.createDataFrame([(3, 4)], "id int, t int")
    kept = dt.window_join({"A": a, "B": b}, on="TRUE", time="t", within=5, how="left")
    assert {(row.A.id, row.B and row.B.id) for row in kept.collect()} == {(1, 3), (2, None)}


@pytest.mark.in_turns
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_a_date_beside_timestamps_is_midnight_in_the_zone_of_the_session(spark, tmp_path, zone):
    """As Spark casts it, over a change of the clocks; in batch and in a stream."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        start = datetime(2024, 3, 9, tzinfo=UTC)
        moments = [start + timedelta(hours=3 * at) for at in range(24)]
        days = [start.date() + timedelta(days=at) for at in range(4)]
        put(tmp_path / "A", pa.table({"id": range(24), "ts": pa.array(moments, pa.timestamp("us", "UTC"))}))
        put(tmp_path / "B", pa.table({"id": range(4), "day": pa.array(days, pa.date32())}))
        inputs = {"A": ("id long, ts timestamp", "ts"), "B": ("id long, day date", "day")}
        frames = {a: spark.read.schema(schema).parquet(str(tmp_path / a)) for a, (schema, _) in inputs.items()}
        call = {"time": {"A": "ts", "B": "day"}, "within": {("A", "B"): ("-5 hours", "1 hour")}}
        apart = "unix_micros(CAST(B.day AS TIMESTAMP)) - unix_micros(A.ts) BETWEEN -18000000000 AND 3600000000"
        structs = [frame.select(F.struct("*").alias(alias)) for alias, frame in frames.items()]
        meant = ids(structs[0].join(structs[1], F.expr(apart), "left"))
        assert ids(dt.window_join(frames, **call, how="left")) == meant
        streams = {a: source(spark, tmp_path / a, schema) for a, (schema, _) in inputs.items()}
        run(dt.window_join(streams, **call, lateness="1 second"), tmp_path / "query")
        assert written(spark, tmp_path / "query") == Counter({p: n for p, n in meant.items() if p[1] is not None})
        zoneless = {"A": frames["A"].withColumn("ts", F.col("ts").cast("timestamp_ntz")), "B": frames["B"]}
        apart = "timestampdiff(MICROSECOND, A.ts, CAST(B.day AS TIMESTAMP_NTZ)) BETWEEN -18000000000 AND 3600000000"
        structs = [frame.select(F.struct("*").alias(alias)) for alias, frame in zoneless.items()]
        assert ids(dt.window_join(zoneless, **call)) == ids(structs[0].join(structs[1], F.expr(apart)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

"""As-of joins in Spark: batch, streams, a stream beside a static input."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail as dt
from dovetail import reference
from dovetail.errors import ArgumentError, PredicateError, UnboundedJoinError, UnknownNameError, UnsupportedTypeError
from dovetail.families.asof.stream import STREAM_METRICS

from .streams import put, run, source

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEFT = "n long, k string, t timestamp"
RIGHT = "k string, t timestamp, v double"


def left_rows(seed: int, size: int) -> list[dict]:
    random = np.random.default_rng(seed)
    return [
        {
            "n": at,
            "k": None if at % 13 == 5 else "abc"[int(random.integers(3))],
            "t": None if at % 11 == 7 else NOON + timedelta(seconds=int(random.integers(60))),
        }
        for at in range(size)
    ]


def right_rows(seed: int, size: int) -> list[dict]:
    random = np.random.default_rng(seed)
    return [
        {
            "k": None if at % 17 == 3 else "abd"[int(random.integers(3))],
            "t": None if at % 19 == 5 else NOON + timedelta(seconds=int(random.integers(60))),
            "v": None if at % 5 == 0 else float(random.integers(100)),
        }
        for at in range(size)
    ]


def pairs(joined: DataFrame) -> Counter:
    a, *others = joined.columns
    right = [column for b in others for column in (F.col(b).isNotNull(), f"{b}.k", f"{b}.t", f"{b}.v")]
    return Counter(tuple(row) for row in joined.select(f"{a}.n", *right).collect())


def expected(left: list[dict], right: list[dict], **options) -> Counter:
    found = reference.asof_join({"L": left, "R": right}, **options)

    def flat(row: dict | None) -> tuple:
        if row is None:
            return False, None, None, None
        # A collected timestamp is naive, in the zone of the driver.
        return True, row["k"], row["t"] and row["t"].astimezone().replace(tzinfo=None), row["v"]

    return Counter((one["L"] and one["L"]["n"], *(flat(one["R"]) if "R" in one else ())) for one in found)


@pytest.mark.in_turns
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_batch_is_the_nested_loop(spark, direction, how):
    left, right = left_rows(1, 60), right_rows(2, 80)
    frames = {
        "L": spark.createDataFrame(left, LEFT).repartition(3),
        "R": spark.createDataFrame(right, RIGHT).repartition(2),
    }
    calls = (
        (["k"], None, {}),
        (["k"], timedelta(seconds=2), {"sample": True}),
        ([], None, {}),
        ([], timedelta(seconds=0.5), {"sample": False}),
        (["k"], None, {"broadcast": "R"} if how not in ("right", "full") else {"partitions": 1}),
    )
    for by, within, options in calls if how in ("inner", "left") else calls[::2]:
        joined = dt.asof_join(frames, by=by or None, time="t", direction=direction, how=how, within=within, **options)
        truth = expected(left, right, by=by, time="t", direction=direction, how=how, within=within)
        assert truth.total() > 4
        assert pairs(joined) == truth
        assert dt.metrics(joined)["results"] == truth.total()


def test_names_types_and_ties(spark):
    left = spark.createDataFrame([(1, 5, Decimal("2.50")), (2, 7, Decimal("9.00"))], "N int, Key int, at decimal(9,2)")
    right = spark.createDataFrame(
        [(5, 2, [1, 2], {"a": 1}), (5, 2, [1, 3], {"a": 1}), (7, 8, None, None), (7, 8, [], {"b": 2})],
        "id long, moment int, list array<int>, map map<string,int>",
    )
    joined = dt.asof_join(
        {"x": left, "y": right}, by={"x": "key", "y": "ID"}, time={"x": "at", "y": "moment"}, within=1
    )
    assert joined.columns == ["x", "y"]
    assert joined.select("y.*").columns == right.columns
    rows = {row.x.N: row.y for row in joined.collect()}
    assert rows[1].list == [1, 3]
    assert rows[2].list == []
    keys, times = {"x": "Key", "y": "id"}, {"x": "at", "y": "moment"}
    first = dt.asof_join({"x": left, "y": right}, by=keys, time=times, ties="map")
    assert {row.x.N: row.y.map for row in first.collect()} == {1: {"a": 1}, 2: {"b": 2}}
    assert "the last one by map, then all its columns" in first._dovetail.plan.text()


@pytest.mark.in_turns(group="several seconds")
def test_what_cannot_be_null(spark):
    """Spark need not look for a NULL where there is none: structs, and what the user's own schema rules out."""
    left = spark.range(3).selectExpr("id", "nullif(id, 1) AS v")
    right = spark.range(3).selectExpr("id", "nullif(id, 2) AS w")
    for how, missing in (("inner", False), ("left", True)):
        joined = dt.asof_join({"L": left, "R": right}, time="id", how=how, allow_exact_matches=False)
        assert [field.nullable for field in joined.schema] == [False, missing]
        for alias in "LR":
            assert [field.nullable for field in joined.schema[alias].dataType] == [missing, True]
        found = {row.L.id: (row.L.v, row.R and (row.R.id, row.R.w)) for row in joined.collect()}
        assert found.pop(0, (0, None)) == (0, None)
        assert found == {1: (None, (0, 0)), 2: (2, (1, 1))}
    pairs = dt.theta_join({"L": left, "R": right}, on="L.v < R.w", sample=False)
    assert [field.nullable for field in pairs.schema["L"].dataType] == [False, True]  # as Spark declares it, too
    assert [tuple(row.L) + tuple(row.R) for row in pairs.collect()] == [(0, 0, 1, 1)]


def test_dates_and_strict_matches(spark):
    days = spark.createDataFrame([(date(2026, 1, d),) for d in (1, 2, 5)], "d date")
    joined = dt.asof_join({"a": days, "b": days}, time="d", allow_exact_matches=False, within="36 hours", how="left")
    found = {row.a.d.day: row.b and row.b.d.day for row in joined.collect()}
    assert found == {1: None, 2: 1, 5: None}


@pytest.mark.since("4.1", "the type TIME")
def test_times_of_day(spark):
    before = spark.conf.get("spark.sql.timeType.enabled")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        days = spark.sql("SELECT make_time(9, id, 0) AS at, id FROM range(0, 30, 10)")
        frames = {"a": spark.sql("SELECT make_time(9, 14, 59.5) AS at"), "b": days}
        near = dt.asof_join(frames, time="at", direction="nearest", within="5 minutes")
        assert [row.b.id for row in near.collect()] == [10]
        assert dt.asof_join(frames, time="at", within="4 minutes").count() == 0
        assert dt.asof_join(frames, time="at", by="at", how="left").where("b IS NOT NULL").count() == 0
    finally:
        spark.conf.set("spark.sql.timeType.enabled", before)


@pytest.mark.in_turns(group="several seconds")
def test_text_and_wide_decimals_as_times(spark):
    texts = {"a": spark.sql("SELECT '10x' AS t"), "b": spark.sql("SELECT id, string(id) AS t FROM range(0, 30, 10)")}
    assert [row.b.id for row in dt.asof_join(texts, time="t").collect()] == [10]
    assert [row.b.id for row in dt.asof_join(texts, time="t", direction="forward").collect()] == [20]
    wide = "CAST({} AS DECIMAL(38,2))"
    left = spark.range(1).selectExpr(f"{wide.format('1e30')} + 7.5 AS t")
    right = spark.range(3).selectExpr(f"{wide.format('1e30')} + id * 5 AS t", "id")
    found = dt.asof_join({"l": left, "r": right}, time="t", direction="nearest", within=3)
    assert [row.r.id for row in found.collect()] == [1]
    assert dt.asof_join({"l": left, "r": right}, time="t", within=2).count() == 0


@pytest.mark.in_turns(group="several seconds")
def test_keys_within_structs_and_arrays(spark):
    """NULL, NaN and zeros inside a key are values; a key that is NULL as a whole matches nothing."""
    nan, t = float("nan"), "t int"
    kinds = "struct<a:double,b:struct<c:string>>"
    given = [(nan, ("x",)), (-0.0, (None,)), (None, None), (1.0, ("y",)), None]
    left = spark.createDataFrame([(n, key, 5) for n, key in enumerate(given)], f"n int, k {kinds}, {t}")
    right = spark.createDataFrame(
        [((nan, ("x",)), 1), ((0.0, (None,)), 2), ((None, None), 3), ((1.0, ("z",)), 4), (None, 4)], f"k {kinds}, {t}"
    )
    found = dt.asof_join({"l": left, "r": right}, by="k", time="t")
    assert {row.l.n: row.r.t for row in found.collect()} == {0: 1, 1: 2, 2: 3}
    safe = dt.asof_join({"l": left, "r": right}, on="l.k <=> r.k", time="t")
    assert {row.l.n: row.r.t for row in safe.collect()} == {0: 1, 1: 2, 2: 3, 4: 4}
    lists = "k array<timestamp>"
    stamps = [[NOON, None], [NOON + timedelta(microseconds=1), None], [], None]
    left = spark.createDataFrame([(n, key, 5) for n, key in enumerate(stamps)], f"n int, {lists}, {t}")
    right = spark.createDataFrame([(key, at) for at, key in enumerate(stamps)], f"{lists}, {t}")
    found = dt.asof_join({"l": left, "r": right}, by="k", time="t", how="left")
    assert {row.l.n: row.r and row.r.t for row in found.collect()} == {0: 0, 1: 1, 2: 2, 3: None}


@pytest.mark.in_turns(group="several seconds")
def test_pandas_agrees(spark):
    random = np.random.default_rng(5)
    left = pd.DataFrame({"t": np.sort(random.integers(0, 5000, 400)), "k": random.integers(0, 5, 400), "n": range(400)})
    times = np.sort(random.choice(5000, 900, replace=False))  # no ties, which pandas breaks by the order of rows
    right = pd.DataFrame({"t": times, "k": random.integers(0, 5, 900), "v": range(900)})
    frames = {"l": spark.createDataFrame(left), "r": spark.createDataFrame(right)}
    for direction in ("backward", "forward", "nearest"):
        for exact in (True, False):
            wanted = pd.merge_asof(
                left, right, on="t", by="k", direction=direction, tolerance=7, allow_exact_matches=exact
            ).dropna()
            joined = dt.asof_join(
                frames, by="k", time="t", direction=direction, within=7, allow_exact_matches=exact, partitions=3
            )
            got = Counter(tuple(row) for row in joined.select("l.n", "r.v").collect())
            assert got == Counter(zip(wanted["n"], wanted["v"].astype(int), strict=True))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"time": "x"}, UnknownNameError, "time= names the column l.x"),
        ({"time": "t", "by": "nope"}, UnknownNameError, "by= names the column l.nope"),
        (
            {"time": "k", "within": 5},
            UnsupportedTypeError,
            "within=5, but .* STRING, whose values have an order",
        ),
        ({"time": "k", "direction": "nearest"}, UnsupportedTypeError, "direction='nearest', but the time columns are"),
        ({"time": "b"}, UnsupportedTypeError, "time= compares values of type BOOLEAN"),
        ({"time": "t", "on": "l.n >"}, PredicateError, "on|breaks off|cannot be read"),
        ({"time": "t", "on": "l.n + r.v"}, PredicateError, "not a condition"),
        ({"time": "t", "on": "l.none = r.v"}, UnknownNameError, "none"),
        ({"time": "t", "on": "l.n > rand() + r.v"}, PredicateError, "non-deterministic"),
        ({"time": "t", "on": "array(l.n) = array(r.k)"}, UnsupportedTypeError, r"array<bigint> with array<string>"),
        ({"time": "t", "on": "map(l.k, 1) <=> r.k"}, UnsupportedTypeError, "map<"),
        ({"time": "t", "broadcast": "r", "how": "full"}, ArgumentError, "no task sees what the others choose"),
        ({"time": "t", "by": {"l": "k"}}, ArgumentError, "by= has no entry for r"),
        ({"time": "t", "by": {"l": ["k", "n"], "r": ["k"]}}, ArgumentError, "names 2 column"),
        ({"time": "t", "by": {"l": "k", "z": "k"}}, UnknownNameError, "'z'"),
        ({"time": ["t", "n"]}, ArgumentError, "names 2 columns|time="),
        ({"time": "t", "within": 5}, UnsupportedTypeError, "within=5 is a number"),
        ({"time": {"l": "n", "r": "v"}, "within": "5 s"}, UnsupportedTypeError, "is not a number"),
        ({"time": {"l": "n", "r": "v"}, "within": -1}, ArgumentError, "within=-1"),
        ({"time": "t", "direction": "back"}, ArgumentError, "direction='back'"),
        ({"time": "t", "how": "fully"}, ArgumentError, "how='fully'"),
        ({"time": "t", "broadcast": "l"}, ArgumentError, "broadcast='l'"),
        ({"time": "t", "ties": "n"}, UnknownNameError, "ties= names the column r.n"),
        ({"time": "t", "allow_exact_matches": 1}, ArgumentError, "allow_exact_matches=1"),
        ({"time": "t", "partitions": 0}, ArgumentError, "partitions=0"),
    ],
)
def test_refusals(spark, options, error, words):
    frames = {
        "l": spark.createDataFrame([], LEFT).withColumn("b", F.lit(True)),
        "r": spark.createDataFrame([], RIGHT).withColumn("b", F.lit(True)),
    }
    with pytest.raises(error, match=words):
        dt.asof_join(frames, **options)


def test_a_full_join_of_three_inputs_is_refused(spark):
    frame = spark.createDataFrame([], LEFT)
    with pytest.raises(ArgumentError, match="how='full' of 3 inputs"):
        dt.asof_join({"a": frame, "b": frame, "c": frame}, time="t", how="full")


# ----------------------------------------------------------------------------------------------------------------------
# Streams
# ----------------------------------------------------------------------------------------------------------------------


STAMP = pa.timestamp("us", "UTC")
LEFT_FILE = pa.schema([("n", pa.int64()), ("k", pa.string()), ("t", STAMP)])
RIGHT_FILE = pa.schema([("k", pa.string()), ("t", STAMP), ("v", pa.float64())])


def stream(spark, folder: Path, schema: str) -> DataFrame:
    return source(spark, folder, schema).withWatermark("t", "5 seconds")


MEANINGS = {
    None: None,
    "L.n % 3 <> 0 AND R.v > 20": lambda a, b: a["n"] % 3 != 0 and b["v"] is not None and b["v"] > 20,
    "L.k <=> R.k AND L.n > R.v / 4": lambda a, b: a["k"] == b["k"] and b["v"] is not None and a["n"] > b["v"] / 4,
    "L.n > R.v / 4 AND R.v <> 7": lambda a, b: b["v"] is not None and a["n"] > b["v"] / 4 and b["v"] != 7,
    "(L.n + R.v) % 2 = 0": lambda a, b: b["v"] is not None and (a["n"] + b["v"]) % 2 == 0,
}


def moved(rows: list[dict], seconds: int) -> list[dict]:
    return [row | {"t": None if row["t"] is None else row["t"] + timedelta(seconds=seconds)} for row in rows]


@pytest.mark.in_turns(group="streams across a restart")
@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize(
    ("direction", "by", "how", "on"),
    [
        ("backward", "k", "left", None),
        ("nearest", None, "full", None),
        ("backward", "k", "full", "L.n % 3 <> 0 AND R.v > 20"),
        ("forward", None, "right", "L.k <=> R.k AND L.n > R.v / 4"),
        ("nearest", "k", "anti", "L.n > R.v / 4 AND R.v <> 7"),
    ],
)
def test_streams_with_a_restart(spark, tmp_path, direction, by, how, on):
    """Each file holds a minute; after the last one has moved the watermark far ahead, everything before it is out."""
    files = [(moved(left_rows(s, 20), 60 * s), moved(right_rows(s + 9, 25), 60 * s)) for s in range(3)]
    later = NOON + timedelta(hours=1)
    ends = [[{"n": 100, "k": "a", "t": later}], [{"k": "a", "t": later, "v": 50.0}]]
    within = timedelta(seconds=100)

    def joined() -> DataFrame:
        inputs = {"L": stream(spark, tmp_path / "l", LEFT), "R": stream(spark, tmp_path / "r", RIGHT)}
        return dt.asof_join(inputs, by=by, time="t", direction=direction, how=how, within=within, on=on)

    place = tmp_path / "query"
    for left, right in files[:2]:
        put(tmp_path / "l", left, LEFT_FILE)
        put(tmp_path / "r", right, RIGHT_FILE)
    first = run(joined(), place)
    put(tmp_path / "l", files[2][0], LEFT_FILE)
    put(tmp_path / "r", files[2][1], RIGHT_FILE)
    put(tmp_path / "l", ends[0], LEFT_FILE)
    put(tmp_path / "r", ends[1], RIGHT_FILE)
    second = run(joined(), place)
    counts = [*first, *second]
    assert all(set(one) == set(STREAM_METRICS) for one in counts)
    left = [row for rows, _ in files for row in rows]
    right = [row for _, rows in files for row in rows]
    truth = expected(
        left, right, by=["k"] if by else [], time="t", direction=direction, how=how, within=within, where=MEANINGS[on]
    )
    # Every file begins before the last one ends, less the delay: nothing of it is late.
    assert sum(one["late"] for one in counts) == 0
    assert pairs(spark.read.parquet(str(place / "out"))) == truth
    assert counts[-1]["held_rows"] < 10


@pytest.mark.in_turns
@pytest.mark.parametrize(("how", "on"), [("inner", None), ("left", "(L.n + R.v) % 2 = 0"), ("anti", None)])
def test_a_stream_beside_a_static_input(spark, tmp_path, how, on):
    left, right = left_rows(1, 30), right_rows(2, 40)
    put(tmp_path / "l", left[:20], LEFT_FILE)
    put(tmp_path / "l", left[20:], LEFT_FILE)
    source = spark.readStream.schema(LEFT).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "l"))
    inputs = {"L": source, "R": spark.createDataFrame(right, RIGHT)}
    joined = dt.asof_join(inputs, by="k", time="t", direction="nearest", how=how, on=on)
    run(joined, tmp_path / "query")
    truth = expected(left, right, by=["k"], time="t", direction="nearest", how=how, where=MEANINGS[on])
    assert pairs(spark.read.parquet(str(tmp_path / "query" / "out"))) == truth


def test_streams_that_would_never_end_are_refused(spark, tmp_path):
    put(tmp_path / "l", [], LEFT_FILE)
    marked = stream(spark, tmp_path / "l", LEFT)
    bare = spark.readStream.schema(LEFT).parquet(str(tmp_path / "l"))
    with pytest.raises(UnboundedJoinError, match="no watermark on 't'"):
        dt.asof_join({"a": marked, "b": bare}, time="t")
    with pytest.raises(UnboundedJoinError, match="without within="):
        dt.asof_join({"a": marked, "b": marked}, time="t", direction="forward")
    with pytest.raises(UnboundedJoinError, match="none could ever be forgotten"):
        dt.asof_join({"a": marked, "b": marked}, time="t", on="a.n > b.n")
    with pytest.raises(ArgumentError, match="a condition that only Spark can evaluate"):
        dt.asof_join({"a": marked, "b": marked}, time="t", on="(a.n + b.n) % 2 = 0", within="1 hour", how="full")
    with pytest.raises(UnboundedJoinError, match="might still find one, for ever"):
        dt.asof_join({"a": marked, "b": spark.createDataFrame([], LEFT)}, time="t", how="full")
    with pytest.raises(UnsupportedTypeError, match="bigint in the stream"):
        dt.asof_join({"a": marked, "b": marked}, time="n")
    with pytest.raises(ArgumentError, match="is a stream and"):
        dt.asof_join({"a": spark.createDataFrame([], LEFT), "b": bare}, time="t")

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
from dovetail.errors import ArgumentError, UnboundedJoinError, UnknownNameError, UnsupportedTypeError
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
    a, b = joined.columns
    shown = joined.select(f"{a}.n", F.col(b).isNotNull(), f"{b}.k", f"{b}.t", f"{b}.v")
    return Counter(tuple(row) for row in shown.collect())


def expected(left: list[dict], right: list[dict], **options) -> Counter:
    found = reference.asof_join({"L": left, "R": right}, **options)

    def flat(row: dict | None) -> tuple:
        if row is None:
            return False, None, None, None
        # A collected timestamp is naive, in the zone of the driver.
        return True, row["k"], row["t"].astimezone().replace(tzinfo=None), row["v"]

    return Counter((one["L"]["n"], *flat(one["R"])) for one in found)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_batch_is_the_nested_loop(spark, direction, how):
    left, right = left_rows(1, 60), right_rows(2, 80)
    frames = {
        "L": spark.createDataFrame(left, LEFT).repartition(3),
        "R": spark.createDataFrame(right, RIGHT).repartition(2),
    }
    for by, within, options in (
        (["k"], None, {}),
        (["k"], timedelta(seconds=2), {"sample": True}),
        ([], None, {}),
        ([], timedelta(seconds=0.5), {"sample": False}),
        (["k"], None, {"broadcast": "R"}),
    ):
        joined = dt.asof_join(frames, by=by or None, time="t", direction=direction, how=how, within=within, **options)
        truth = expected(left, right, by=by, time="t", direction=direction, how=how, within=within)
        assert truth.total() > 5
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
        ({"time": "k"}, UnsupportedTypeError, "time= compares values of type STRING"),
        ({"time": "t", "by": {"l": "k"}}, ArgumentError, "by= has no entry for r"),
        ({"time": "t", "by": {"l": ["k", "n"], "r": ["k"]}}, ArgumentError, "names 2 column"),
        ({"time": "t", "by": {"l": "k", "z": "k"}}, UnknownNameError, "'z'"),
        ({"time": ["t", "n"]}, ArgumentError, "names 2 columns|time="),
        ({"time": "t", "within": 5}, UnsupportedTypeError, "within=5 is a number"),
        ({"time": {"l": "n", "r": "v"}, "within": "5 s"}, UnsupportedTypeError, "is not a number"),
        ({"time": {"l": "n", "r": "v"}, "within": -1}, ArgumentError, "within=-1"),
        ({"time": "t", "direction": "back"}, ArgumentError, "direction='back'"),
        ({"time": "t", "how": "full"}, ArgumentError, "how='full'"),
        ({"time": "t", "broadcast": "l"}, ArgumentError, "broadcast='l'"),
        ({"time": "t", "ties": "n"}, UnknownNameError, "ties= names the column r.n"),
        ({"time": "t", "allow_exact_matches": 1}, ArgumentError, "allow_exact_matches=1"),
        ({"time": "t", "partitions": 0}, ArgumentError, "partitions=0"),
    ],
)
def test_refusals(spark, options, error, words):
    frames = {"l": spark.createDataFrame([], LEFT), "r": spark.createDataFrame([], RIGHT)}
    with pytest.raises(error, match=words):
        dt.asof_join(frames, **options)


def test_three_inputs_are_refused(spark):
    frame = spark.createDataFrame([], LEFT)
    with pytest.raises(ArgumentError, match="3 inputs"):
        dt.asof_join({"a": frame, "b": frame, "c": frame}, time="t")


# ----------------------------------------------------------------------------------------------------------------------
# Streams
# ----------------------------------------------------------------------------------------------------------------------


STAMP = pa.timestamp("us", "UTC")
LEFT_FILE = pa.schema([("n", pa.int64()), ("k", pa.string()), ("t", STAMP)])
RIGHT_FILE = pa.schema([("k", pa.string()), ("t", STAMP), ("v", pa.float64())])


def stream(spark, folder: Path, schema: str) -> DataFrame:
    return source(spark, folder, schema).withWatermark("t", "5 seconds")


def moved(rows: list[dict], seconds: int) -> list[dict]:
    return [row | {"t": None if row["t"] is None else row["t"] + timedelta(seconds=seconds)} for row in rows]


@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize(("direction", "by"), [("backward", "k"), ("nearest", None)])
def test_streams_with_a_restart(spark, tmp_path, direction, by):
    """Each file holds a minute; after the last one has moved the watermark far ahead, everything before it is out."""
    files = [(moved(left_rows(s, 20), 60 * s), moved(right_rows(s + 9, 25), 60 * s)) for s in range(3)]
    later = NOON + timedelta(hours=1)
    ends = [[{"n": 99, "k": "a", "t": later}], [{"k": "a", "t": later, "v": 0.0}]]
    within = timedelta(seconds=100)

    def joined() -> DataFrame:
        inputs = {"L": stream(spark, tmp_path / "l", LEFT), "R": stream(spark, tmp_path / "r", RIGHT)}
        return dt.asof_join(inputs, by=by, time="t", direction=direction, how="left", within=within)

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
    truth = expected(left, right, by=["k"] if by else [], time="t", direction=direction, how="left", within=within)
    # Every file begins before the last one ends, less the delay: nothing of it is late.
    assert sum(one["late"] for one in counts) == 0
    assert pairs(spark.read.parquet(str(place / "out"))) == truth
    assert counts[-1]["held_rows"] < 10


def test_a_stream_beside_a_static_input(spark, tmp_path):
    left, right = left_rows(1, 30), right_rows(2, 40)
    put(tmp_path / "l", left[:20], LEFT_FILE)
    put(tmp_path / "l", left[20:], LEFT_FILE)
    source = spark.readStream.schema(LEFT).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "l"))
    inputs = {"L": source, "R": spark.createDataFrame(right, RIGHT)}
    joined = dt.asof_join(inputs, by="k", time="t", direction="nearest")
    run(joined, tmp_path / "query")
    truth = expected(left, right, by=["k"], time="t", direction="nearest")
    assert pairs(spark.read.parquet(str(tmp_path / "query" / "out"))) == truth


def test_streams_that_would_never_end_are_refused(spark, tmp_path):
    put(tmp_path / "l", [], LEFT_FILE)
    marked = stream(spark, tmp_path / "l", LEFT)
    bare = spark.readStream.schema(LEFT).parquet(str(tmp_path / "l"))
    with pytest.raises(UnboundedJoinError, match="no watermark on 't'"):
        dt.asof_join({"a": marked, "b": bare}, time="t")
    with pytest.raises(UnboundedJoinError, match="without within="):
        dt.asof_join({"a": marked, "b": marked}, time="t", direction="forward")
    with pytest.raises(UnsupportedTypeError, match="bigint in the stream"):
        dt.asof_join({"a": marked, "b": marked}, time="n")
    with pytest.raises(ArgumentError, match="is a stream and"):
        dt.asof_join({"a": spark.createDataFrame([], LEFT), "b": bare}, time="t")

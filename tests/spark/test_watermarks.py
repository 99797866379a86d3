"""Rows of the far future: dropped before they move a watermark, and counted."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dovetail as dt
from dovetail.errors import ArgumentError, UnknownNameError, UnsupportedTypeError

SCHEMA = "id long, k long, ts timestamp, seen timestamp"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STAMP = pa.timestamp("us", "UTC")
KINDS = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", STAMP), ("seen", STAMP)])


def row(number: int, second: float, seen: float) -> dict:
    moments = {"ts": NOON + timedelta(seconds=second), "seen": NOON + timedelta(seconds=seen)}
    return {"id": number, "k": number % 3, **moments}


def put(folder: Path, number: int, rows: list[dict]) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / f"{number:03}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, KINDS), file)
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def raw(spark, folder: Path):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.in_turns
@pytest.mark.parametrize("guarded", [True, False])
def test_a_row_of_next_year_moves_nothing(spark, tmp_path, guarded):
    """The second file of A ends with a row of next year; rows of the third one are late unless it was dropped."""
    year = 365 * 86_400
    for name in "AB":
        put(tmp_path / name, 0, [row(at, at, at) for at in range(5)])
        put(
            tmp_path / name,
            1,
            [*[row(at, at, at) for at in range(5, 10)], *([row(99, year, 9)] if name == "A" else [])],
        )
        put(tmp_path / name, 2, [row(at, at, at) for at in range(10, 15)])
    inputs = {name: raw(spark, tmp_path / name) for name in "AB"}
    if guarded:
        inputs = dt.watermarked(inputs, time="ts", delay="1 second", max_ahead="1 minute", clock="seen")
    else:
        inputs = {name: frame.withWatermark("ts", "1 second") for name, frame in inputs.items()}
    joined = dt.window_join(inputs, on="A.k = B.k", time="ts", within="3 seconds", partitions=1)
    name = f"early_{guarded}"
    query = joined.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(900)
        observed = [report["observedMetrics"] for report in query.recentProgress if report["numInputRows"]]
    finally:
        query.stop()
    found = Counter((a, b) for a, b in spark.table(name).select("A.id", "B.id").collect())
    wanted = Counter((a, b) for a in range(15) for b in range(15) if a % 3 == b % 3 and abs(a - b) <= 3)
    late = sum(one["dovetail(A,B)"]["late_A"] for one in observed)
    if guarded:
        assert found == wanted
        assert late == 0
        assert [one["early(A)"]["early_A"] for one in observed] == [0, 1, 0]
        assert [one["early(B)"]["early_B"] for one in observed] == [0, 0, 0]
    else:
        # What the guard is for.  The loss is not silent: the rows are counted as late.
        assert found < wanted
        assert late == 5


def test_the_clock_on_the_wall(spark):
    now = datetime.now(UTC)
    moments = [now - timedelta(days=9000), now, now + timedelta(hours=2), None]
    rows = spark.createDataFrame([(at, moment) for at, moment in enumerate(moments)], "id long, ts timestamp")
    for kind in ("timestamp", "timestamp_ntz"):
        frame = rows.withColumn("ts", rows.ts.cast(kind))
        kept = dt.watermarked({"A": frame}, time="TS", delay="1 second", max_ahead=timedelta(hours=1))
        assert sorted(found.id for found in kept["A"].collect()) == [0, 1, 3]


def test_what_is_refused(spark, tmp_path):
    put(tmp_path / "A", 0, [])
    frame = raw(spark, tmp_path / "A")
    given = {"time": "ts", "delay": "1 second", "max_ahead": "1 hour"}
    refused = [
        ({"A": frame}, {"time": "when"}, UnknownNameError, "time= names the column A.when"),
        ({"A": frame}, {"time": "id"}, UnsupportedTypeError, "has the type bigint in 'A'"),
        ({"A": frame}, {"clock": "k"}, UnsupportedTypeError, "clock='k' has the type bigint"),
        ({"A": frame}, {"max_ahead": "soon"}, ArgumentError, "max_ahead='soon'"),
        ({"A": frame}, {"delay": {"B": "1 second"}}, UnknownNameError, "delay= names the input 'B'"),
        ({"A": frame, "B": frame}, {"delay": {"A": "1 second"}}, ArgumentError, "delay= has no entry for 'B'"),
        ({"A": frame.withWatermark("ts", "1 second")}, {}, ArgumentError, "has a watermark on 'ts' already"),
        ({}, {}, ArgumentError, "a mapping from an alias to a DataFrame"),
    ]
    for inputs, change, kind, words in refused:
        with pytest.raises(kind, match=words):
            dt.watermarked(inputs, **{**given, **change})

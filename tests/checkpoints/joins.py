"""The joins whose checkpoints are kept, and their input: small, so that the files are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import dovetail as dt

SCHEMA = "id long, k long, v long, ts timestamp"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAST = 1000
"""Rows from this number on only move the watermarks."""
PLACE = "@PLACE@"
"""Stands in the kept files for the folder that they are in."""

_KINDS = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])

Inputs = Mapping[str, DataFrame]
JOINS: dict[str, Callable[[Inputs], DataFrame]] = {
    "window": lambda inputs: dt.window_join(
        inputs, on="A.k = B.k", time="ts", within="4 seconds", how="left", partitions=1
    ),
    "theta-rows": lambda inputs: dt.theta_join(inputs, on="A.v <= B.v", window=5),
    "theta-time": lambda inputs: dt.theta_join(inputs, on="A.v < B.v", how="left", window="10 seconds", time="ts"),
    "asof": lambda inputs: dt.asof_join(inputs, by="k", time="ts", direction="nearest", how="left", within="5 seconds"),
    "best": lambda inputs: dt.bestmatch_join(
        inputs, on=[dt.closest("ts", within="4 seconds"), dt.closest("v", within=3)], by="k"
    ),
    "approx": lambda inputs: dt.approx_join(inputs, on="A.k = B.k", memory=500, seed=1, partitions=1),
    "aggregate": lambda inputs: dt.aggregate_join(
        inputs, on="A.k = B.k", by="A", time="ts", within="4 seconds", agg={"b": "max(B.id)", "n": "sum(B.v)"}
    ),
    "nearest": lambda inputs: dt.nearest_join(
        inputs, on="A.k = B.k AND ABS(A.v - B.v)", k=2, how="left", time="ts", window="4 seconds"
    ),
}


def write_file(folder: Path, name: str, number: int) -> None:
    """Put file `number` of an input: 0 was read before the checkpoint was kept, 1 comes after it, 2 and 3 close it."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    shift = 0 if name == "A" else 1
    if number < 2:
        made = [
            {
                "id": at,
                "k": (at * 5 + shift) % 3,
                "v": (at * 7 + 3 * shift) % 11,
                "ts": NOON + at * timedelta(seconds=1),
            }
            for at in range(8 * number, 8 * number + 8)
        ]
    else:
        later = NOON + number * timedelta(hours=1)
        made = [{"id": LAST + number, "k": -1 - shift, "v": -100 * (1 + shift), "ts": later}]
    file = place / f"{number:03}.parquet"
    pq.write_table(pa.Table.from_pylist(made, _KINDS), file)
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def streams(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """The inputs, a file a micro-batch."""

    def stream(name: str) -> DataFrame:
        raw = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return raw.withWatermark("ts", "2 seconds")

    return {name: stream(name) for name in "AB"}


def tables(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """The same as static inputs, in the order of the streams: windows of rows go by it."""
    read = {name: spark.read.schema(SCHEMA).parquet(str(folder / name)) for name in "AB"}
    return {name: frame.coalesce(1).sortWithinPartitions("ts") for name, frame in read.items()}


def pairs(joined: DataFrame) -> list[list[object]]:
    """Numbers of the rows of each result, or of the last match, and what became of it where the join says so."""
    change = ["_change"] if "_change" in joined.columns else ["'insert' AS _change"]
    other = "B.id AS b" if "B" in joined.columns else "b"
    return [list(row) for row in joined.selectExpr("A.id AS a", other, *change).collect()]


def run(joined: DataFrame, place: Path, out: Path) -> DataFrame:
    """Run a query over all there is, from the checkpoint in `place`; what it wrote comes back."""
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(900)
    finally:
        query.stop()
    # By its files: the log of the sink lacks the batches from before the checkpoint was kept.
    return joined.sparkSession.read.schema(joined.schema).parquet(str(out / "*.parquet"))

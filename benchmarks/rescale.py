"""How long a change of partitions takes: a three-way window join with 5 million rows of state, from 4 to 16.

    python benchmarks/rescale.py [--rows 5000000] [--write]

Shows the seconds of `dt.resume`, and those of the micro-batches before and after it.  The first micro-batch of a query
starts its workers and opens its state, whether or not anything was moved, so that before the change counts as one, too.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from _timing import show
from pyspark.sql import DataFrame

import dovetail as dt

BEFORE, AFTER = 4, 16
USUAL = 50_000
"""Rows of each input in a usual micro-batch."""


def main(
    rows: Annotated[int, typer.Option(help="Rows of state.")] = 5_000_000,
    write: Annotated[bool, typer.Option(help="Write the table to benchmarks/rescale.md.")] = False,
) -> None:
    """Run the benchmark and print its table."""
    each = rows // 3
    spark = dt.session(master="local[2]", conf={"spark.sql.shuffle.partitions": BEFORE})
    with tempfile.TemporaryDirectory(prefix="rescale-") as folder:
        place = Path(folder)

        def stream(name: str) -> DataFrame:
            raw = spark.readStream.schema("id long, k long, ts timestamp")
            return raw.option("maxFilesPerTrigger", 1).parquet(f"{place}/{name}").withWatermark("ts", "10 seconds")

        def put(number: int, first: int, count: int) -> None:
            for seed, name in enumerate("ABC"):
                made = spark.range(first, first + count, 1, 1).selectExpr(
                    "id", f"xxhash64(id, {seed}) % 4000000 AS k", "timestamp_micros(id * 100) AS ts"
                )
                made.write.mode("append").parquet(f"{place}/{name}-new")
                for file in (place / f"{name}-new").glob("*.parquet"):
                    (place / name).mkdir(exist_ok=True)
                    file.rename(place / name / f"{number:03}.parquet")
                time.sleep(1.1)  # files of one second are read in any order

        def joined(tasks: int) -> DataFrame:
            return dt.window_join(
                {name: stream(name) for name in "ABC"}, on="A.k = B.k AND B.k = C.k", time="ts", within="1 hour",
                partitions=tasks,
            )  # fmt: skip

        def run(tasks: int, checkpoint: str) -> list[tuple[int, float]]:
            query = (
                joined(tasks).writeStream.format("noop").option("checkpointLocation", f"{place}/{checkpoint}")
                .trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination()
            reports = [json.loads(progress.json) for progress in query.recentProgress]
            filled = [report for report in reports if report["numInputRows"]]
            return [(one["numInputRows"], one["durationMs"]["triggerExecution"] / 1000) for one in filled]

        put(0, 0, each)
        run(BEFORE, "old")
        first = each
        for number in range(1, 5):
            put(number, first, USUAL)
            first += USUAL
        before = run(BEFORE, "old")
        held = dt.state(spark, f"{place}/old").selectExpr("sum(rows)", "sum(bytes)").collect()[0]
        began = time.perf_counter()
        dt.resume(joined(AFTER), f"{place}/old", f"{place}/new", partitions=AFTER)
        took = time.perf_counter() - began
        for number in range(5, 9):
            put(number, first, USUAL)
            first += USUAL
        after = run(AFTER, "new")
        moved = dt.state(spark, f"{place}/new").selectExpr("sum(rows)").collect()[0][0]
    spark.stop()

    def timed(laps: list[tuple[int, float]]) -> str:
        return ", ".join(f"{seconds:.2f}" for _, seconds in laps)

    table = [
        ["state before", f"{held[0]:,} rows, {held[1] / 1e6:.0f} MB"],
        ["`dt.resume`", f"{took:.1f} s"],
        [f"micro-batches in {BEFORE} partitions, after a restart", f"{timed(before)} s"],
        [f"micro-batches in {AFTER} partitions, after `dt.resume`", f"{timed(after)} s"],
        ["state after the last of them", f"{moved:,} rows"],
    ]
    file = Path(__file__).parent / "rescale.md" if write else None
    title = f"A three-way window join from {BEFORE} to {AFTER} partitions"
    show(["", f"micro-batches of {3 * USUAL:,} rows"], table, title=title, file=file)


if __name__ == "__main__":
    typer.run(main)

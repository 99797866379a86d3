"""How long a change of partitions takes: a three-way window join with 5 million rows of state, from 4 to 16.

    python benchmarks/rescale.py [ROWS]

Prints the seconds of `dt.resume`, and those of the micro-batches before and after it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame

import dovetail as dt

BEFORE, AFTER = 4, 16
USUAL = 50_000
"""Rows of each input in a usual micro-batch."""


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
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
    print(f"state before {held[0]:,} rows, {held[1] / 1e6:.0f} MB; after the last micro-batch {moved:,} rows")
    print(f"dt.resume from {BEFORE} to {AFTER} partitions: {took:.1f} s")
    print("micro-batches before:", ", ".join(f"{seconds:.2f} s" for _, seconds in before))
    print("micro-batches after:", ", ".join(f"{seconds:.2f} s" for _, seconds in after))
    spark.stop()


if __name__ == "__main__":
    main()

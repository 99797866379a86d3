"""Objects that pass three cameras in turn: a stream of sightings in, passages and speeders out.

python examples/window_cameras.py [folder] [--minutes 5] [--objects 2000]

Three folders receive a file of sightings a minute, as a camera would deliver them.  A window join of the three streams
finds each object that passes all cameras in time; the last sightings of a minute join with the next minute's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import dovetail as dt
from dovetail.datasets import camera_sightings

SAME = "A.obj = B.obj AND B.obj = C.obj AND ABS(A.speed - C.speed) <= 2"


def deliver(folder: Path, minutes: int, objects: int) -> None:
    """What the cameras write: one file each, a minute."""
    for name in "ABC":
        (folder / name).mkdir(parents=True)
    for minute, seen in enumerate(camera_sightings(minutes, objects)):
        for name, table in zip("ABC", seen, strict=True):
            file = folder / name / f"{minute:04}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1_000_000_000 + minute * 60,) * 2)


def main(folder: Path, minutes: int, objects: int) -> None:
    deliver(folder, minutes, objects)
    spark = dt.session("cameras", conf={"spark.sql.shuffle.partitions": 2})
    cameras = {
        name: spark.readStream.schema("obj long, speed long, ts timestamp")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        .withWatermark("ts", "5 seconds")
        for name in "ABC"
    }
    passages = dt.window_join(cameras, on=SAME, time="ts", within=dt.path("A -> B -> C", ["5 seconds", "10 seconds"]))
    dt.explain(passages)

    query = (
        passages.selectExpr("A.obj", "A.ts AS first", "C.ts AS last", "greatest(A.speed, B.speed, C.speed) AS fastest")
        .writeStream.format("parquet")
        .option("path", str(folder / "passages"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    for progress in query.recentProgress:
        for name, counts in progress.observedMetrics.items():
            held = sum(counts[f"held_rows_{camera}"] for camera in "ABC")
            print(f"{name}: {counts['rows']} rows in, {counts['results']} passages, {held} rows held")
    found = spark.read.parquet(str(folder / "passages"))
    print(f"{found.count()} passages, written to {folder / 'passages'}")
    found.orderBy("first").show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--minutes", type=int, default=5)
    parser.add_argument("--objects", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.minutes, arguments.objects)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.minutes, arguments.objects)

"""How long do packets take from one network to the next?  A window join of three streams, with a window for each leg.

python examples/window_packets.py [folder] [--packets 5000]

A packet that passes only one network leaves no trace in the result, and none in the state once its windows have passed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets.files import write

SCHEMA = "packet long, bytes int, ts timestamp"


def main(folder: Path, packets: int) -> None:
    write("packets", folder, batches=4, packets=packets)
    spark = dt.session("packets", conf={"spark.sql.shuffle.partitions": 2})
    networks = {
        name: spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        .withWatermark("ts", "1 second")
        for name in "ABC"
    }
    seen = dt.window_join(
        networks,
        on="A.packet = B.packet AND B.packet = C.packet",
        time="ts",
        within={("A", "B"): dt.after("500 milliseconds"), ("B", "C"): dt.after("500 milliseconds")},
    )
    dt.explain(seen)
    query = (
        seen.selectExpr("A.packet", "A.bytes", "B.ts - A.ts AS first_leg", "C.ts - B.ts AS second_leg")
        .writeStream.format("parquet")
        .option("path", str(folder / "legs"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        for counts in progress.observedMetrics.values():
            held = sum(counts[f"held_rows_{network}"] for network in "ABC")
            print(f"{counts['rows']} packets seen, {counts['results']} passed all three, {held} rows held")
    legs = spark.read.parquet(str(folder / "legs"))
    print(f"{legs.count()} packets passed all networks, written to {folder / 'legs'}")
    legs.groupBy("bytes").agg({"first_leg": "avg", "second_leg": "avg"}).orderBy("bytes").show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--packets", type=int, default=5000)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.packets)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.packets)

"""Which items of three news agencies are about the same event?  A stream join without any equality, under overload.

python examples/window_news.py [folder] [--items 500] [--throttle 0.2]

The topic of an item is a number: items on one event differ by at most 1.  In the middle third of the time the agencies
send five times as much.  Where that is more than the machine can join in time, the join looks only where matches are
likely, and says how many it missed.  A machine that is never overloaded shows the same with --throttle, the part of the
full work that the join may do.  The picture rates.png shows how the stream copes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets.files import write

SCHEMA = "headline string, v double, ts timestamp"


def main(folder: Path, items: int, throttle: float | None = None) -> None:
    write("news", folder, batches=6, items=items)
    spark = dt.session("news", conf={"spark.sql.shuffle.partitions": 2})
    agencies = {
        name: spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        .withWatermark("ts", "1 second")
        for name in "ABC"
    }
    same = dt.window_join(
        agencies,
        on="ABS(A.v - B.v) <= 1 AND ABS(B.v - C.v) <= 1",
        time="ts",
        within="2 seconds",
        shed=dt.Harvest(throttle=throttle, basic_window="200 milliseconds"),
    )
    dt.explain(same)
    query = (
        same.selectExpr("A.headline AS first", "B.headline AS second", "C.headline AS third", "A.ts")
        .writeStream.format("parquet")
        .option("path", str(folder / "same_event"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        for counts in progress["observedMetrics"].values():
            low, high = counts["recall_low"], counts["recall_high"]
            print(
                f"micro-batch {progress['batchId']}: {progress['numInputRows']} items, "
                f"throttle {counts['throttle']:.2f}, recall {counts['recall']:.2f} ({low:.2f} to {high:.2f})"
            )
    dt.plot.rates(query.recentProgress).savefig(folder / "rates.png")
    found = spark.read.parquet(str(folder / "same_event"))
    print(f"{found.count()} triples about one event, written to {folder / 'same_event'}, with rates.png next to them")
    found.orderBy("ts", "first", "second", "third").show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--throttle", type=float, help="shed down to this part of the full work, whatever the load")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.items, arguments.throttle)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.items, arguments.throttle)

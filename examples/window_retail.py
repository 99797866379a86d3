"""Which items did three stores sell within an hour of each other?  A window join of three tables, and of three streams.

python examples/window_retail.py [folder] [--per-hour 400]

The same call joins a finished day and a day as it happens; both give the same rows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets.files import write

SCHEMA = "item long, quantity int, price double, ts timestamp"


def sold_together(stores):
    return dt.window_join(stores, on="A.item = B.item AND B.item = C.item", time="ts", within="1 hour")


def main(folder: Path, per_hour: int) -> None:
    write("sales", folder, per_hour=per_hour, items=10 * per_hour)
    spark = dt.session("retail", conf={"spark.sql.shuffle.partitions": 2})
    tables = {name: spark.read.schema(SCHEMA).parquet(str(folder / name)) for name in "ABC"}
    together = sold_together(tables)
    dt.explain(together)
    flat = ["A.item", "A.ts AS a", "B.ts AS b", "C.ts AS c", "A.quantity + B.quantity + C.quantity AS pieces"]
    target = folder / "sold_together"
    together.selectExpr(*flat).write.mode("overwrite").parquet(str(target))
    stored = spark.read.parquet(str(target))
    print(f"{stored.count()} times three stores sold an item within an hour, written to {target}")
    stored.groupBy("item").count().orderBy("count", "item", ascending=[False, True]).show(5)

    streams = {
        name: spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        .withWatermark("ts", "1 minute")
        for name in "ABC"
    }
    query = (
        sold_together(streams)
        .selectExpr(*flat)
        .writeStream.format("parquet")
        .option("path", str(folder / "live"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    live = spark.read.parquet(str(folder / "live"))
    assert live.exceptAll(stored).isEmpty()
    assert stored.exceptAll(live).isEmpty()
    print("the stream gave the same rows")
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--per-hour", type=int, default=400)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.per_hour)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.per_hour)

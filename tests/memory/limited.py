"""Joins whose Python workers may take so much memory, in a process of its own; how each ended, as a line of JSON.

    python -m tests.memory.limited FOLDER theta asof '{"join": "window", "within": 100}' --memory 1200m

FOLDER has what ``tests.memory.inputs`` wrote.  With ``"stream": true`` among the arguments, both inputs are streams of
one file a micro-batch.  ``--data-limit`` limits, in place of the address space, what a worker
alone can write, which is nearer to what it holds: libraries and space that was only reserved do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

import dovetail as dt
from dovetail.spark.runtime.failures import SPARK_ERRORS, brief

Join = Callable[[DataFrame, DataFrame], DataFrame]

DIGEST = ("count(*)", "sum(a.id % 65521)", "sum(b.id % 65521)", "sum((a.id % 65521) * (b.id % 65521))")
"""What stands for all pairs: sums that an oracle can compute without forming them."""


def joins(options: dict[str, Any]) -> dict[str, Join]:
    """The joins by name."""
    return {
        "band": lambda a, b: dt.theta_join({"a": a, "b": b}, on="ABS(a.x - b.x) <= 0.5", broadcast=False, **options),
        "theta": lambda a, b: dt.theta_join(
            {"a": a, "b": b}, on="a.k = b.k AND ABS(a.x - b.x) <= 0.5", broadcast=False, **options
        ),
        "asof": lambda a, b: dt.asof_join({"a": a, "b": b}, time="t", by="k", broadcast=False, **options),
        "window": lambda a, b: dt.window_join(
            {"a": a, "b": b}, on="a.k = b.k AND ABS(a.x - b.x) <= 0.5", time="t", **options
        ),
        "bestmatch": lambda a, b: dt.bestmatch_join(
            {"a": a, "b": b}, on=[dt.closest("x")], by="k", how="left", **options
        ),
    }


class Watch:
    """The largest that any Python worker has been: in memory, and in address space."""

    def __init__(self) -> None:
        self.resident = self.address = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if "python" in process.name() and "daemon" in " ".join(process.cmdline()):
                        taken = process.memory_info()
                        self.resident = max(self.resident, taken.rss)
                        self.address = max(self.address, taken.vms)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def streamed(joined: DataFrame) -> list[int]:
    """The sums over the pairs of a stream, added up by micro-batches."""
    found = [0] * len(DIGEST)

    def add(results: DataFrame, _: int) -> None:
        for at, value in enumerate(results.selectExpr(*DIGEST).collect()[0]):
            found[at] += int(value or 0)

    with tempfile.TemporaryDirectory() as checkpoint:
        writer = joined.writeStream.foreachBatch(add).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    return found


def sides(spark: SparkSession, folder: str, *, stream: bool) -> list[DataFrame]:
    """Both inputs; those of a stream have event times in place of numbers."""
    if not stream:
        return [spark.read.parquet(f"{folder}/{side}") for side in "ab"]
    columns = "id", "k", "x", "timestamp_seconds(t) AS t"
    files = spark.readStream.schema("id LONG, k INT, x DOUBLE, t LONG").option("maxFilesPerTrigger", 1)
    return [files.parquet(f"{folder}/{side}").selectExpr(*columns) for side in "ab"]


def told(joined: DataFrame) -> dict[str, Any]:
    """How a join ends: the sums over its pairs and its counters, or what it says."""
    began = time.perf_counter()
    watch = Watch()
    report: dict[str, Any] = {}
    try:
        if joined.isStreaming:
            report["digest"] = streamed(joined)
        else:
            report["digest"] = [int(value or 0) for value in joined.selectExpr(*DIGEST).collect()[0]]
        report["metrics"] = {
            name: value for name, value in dt.metrics(joined).items() if isinstance(value, int | float)
        }
    except SPARK_ERRORS as error:
        report |= {"failed": brief(error), "said": str(error)[:3000]}
    watch.stop()
    report["seconds"] = round(time.perf_counter() - began, 1)
    return report | {"resident_mib": watch.resident >> 20, "address_mib": watch.address >> 20}


def main() -> None:
    """Run some joins one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("joins", nargs="+", help="the name of a join, or an object with its name and arguments")
    parser.add_argument("--memory")
    parser.add_argument("--data-limit", help="MiB")
    parser.add_argument("--conf", default="{}")
    parser.add_argument("--cores", default="2")
    given = parser.parse_args()
    conf = json.loads(given.conf)
    if given.memory:
        conf["spark.executor.pyspark.memory"] = given.memory
    if given.data_limit:
        os.environ["TEST_DATA_LIMIT"] = given.data_limit
        conf["spark.python.daemon.module"] = "tests.memory.daemon"
        # What dt.session() chooses for workers that Spark itself limits.
        conf.setdefault("spark.sql.execution.arrow.maxBytesPerBatch", (int(given.data_limit) << 20) // 32)
    spark = dt.session(master=f"local[{given.cores}]", conf=conf)
    for text in given.joins:
        options = json.loads(text) if text.startswith("{") else {"join": text}
        name, stream = options.pop("join"), options.pop("stream", False)
        a, b = sides(spark, given.folder, stream=stream)
        print(json.dumps({"join": name, **told(joins(options)[name](a, b))}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

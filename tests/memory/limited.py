"""A join whose Python workers may take so much memory, in a process of its own; how it ended, as one line of JSON.

    python -m tests.memory.limited theta FOLDER --memory 1200m

FOLDER has what ``tests.memory.inputs`` wrote.  ``--data-limit`` limits, in place of the address space, what a worker
alone can write, which is nearer to what it holds: libraries and space that was only reserved do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
from pyspark.sql import DataFrame

import dovetail as dt
from dovetail.spark.runtime.failures import brief

Join = Callable[[DataFrame, DataFrame], DataFrame]

DIGEST = ("count(*)", "sum(a.id % 65521)", "sum(b.id % 65521)", "sum((a.id % 65521) * (b.id % 65521))")
"""What stands for all pairs: sums that an oracle can compute without forming them."""


def joins(options: dict[str, Any]) -> dict[str, Join]:
    """The joins by name."""
    return {
        "band": lambda a, b: dt.theta_join(
            {"a": a, "b": b}, on="ABS(a.x - b.x) <= 0.5", broadcast=False, select=["a.id", "b.id AS other"], **options
        ),
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


def main() -> None:
    """Run one join."""
    parser = argparse.ArgumentParser()
    parser.add_argument("join")
    parser.add_argument("folder")
    parser.add_argument("--memory")
    parser.add_argument("--data-limit")
    parser.add_argument("--options", default="{}")
    parser.add_argument("--conf", default="{}")
    parser.add_argument("--cores", default="2")
    given = parser.parse_args()
    conf = json.loads(given.conf)
    if given.memory:
        conf["spark.executor.pyspark.memory"] = given.memory
    if given.data_limit:
        os.environ["TEST_DATA_LIMIT"] = given.data_limit
        conf["spark.python.worker.module"] = "tests.memory.worker"
    spark = dt.session(master=f"local[{given.cores}]", conf=conf)
    a, b = (spark.read.parquet(f"{given.folder}/{side}") for side in "ab")
    watch = Watch()
    joined = joins(json.loads(given.options))[given.join](a, b)
    began = time.perf_counter()
    report: dict[str, Any] = {"join": given.join}
    try:
        if given.join == "band":
            rows = joined.selectExpr(*[text.replace("b.id", "other").replace("a.id", "id") for text in DIGEST])
        else:
            rows = joined.selectExpr(*DIGEST)
        report["digest"] = [int(value or 0) for value in rows.collect()[0]]
        counted = dt.metrics(joined)
        report["metrics"] = {name: value for name, value in counted.items() if isinstance(value, int | float)}
    except Exception as error:
        report["failed"] = brief(error)
        report["said"] = str(error)[:3000]
    report["seconds"] = round(time.perf_counter() - began, 1)
    watch.stop()
    report |= {"resident_mib": watch.resident >> 20, "address_mib": watch.address >> 20}
    print(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main()

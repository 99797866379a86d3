"""A streaming join over Parquet files, one file of each input a micro-batch, with the seconds of every micro-batch."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

SPAN = 10_000_000
"""Microseconds of event time in a micro-batch, and the length of the windows."""
ROW = "id long, k long, ts timestamp, v double"
STORE = "spark.sql.streaming.stateStore.providerClass"
STORES = {
    "memory": {STORE: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"},
    "rocksdb": {
        STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.join.stateFormatVersion": "4",
    },
    "ours": {STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"},
}
console = Console()


@dataclass
class Run:
    """Seconds of each micro-batch, the rows that came out, and the last progress report."""

    seconds: list[float]
    rows: int
    progress: list[dict[str, Any]] = field(default_factory=list)

    @property
    def warm(self) -> float:
        """The median micro-batch once warm."""
        return statistics.median(self.seconds[2:] or self.seconds)


def write_inputs(root: Path, names: str, rows: int, batches: int, *, span: int = SPAN, values: float = 1.0) -> None:
    """Files in time order; keys spread so that a row meets about one partner of each other input within the window."""
    random = np.random.default_rng(7)
    for name in names:
        folder = root / name
        folder.mkdir(parents=True)
        for at in range(batches):
            ts = np.sort(random.integers(at * span, (at + 1) * span, rows)) + 1_700_000_000_000_000
            table = pa.table(
                {
                    "id": np.arange(rows, dtype=np.int64) + at * rows,
                    "k": random.integers(0, max(1, 2 * rows), rows),
                    "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                    "v": random.uniform(0, values, rows),
                }
            )
            path = folder / f"{at:05d}.parquet"
            pq.write_table(table, path, row_group_size=max(1, rows // 2))
            # The file source orders by modification time, so the files must not share one.
            os.utime(path, (1_700_000_000 + at, 1_700_000_000 + at))


def run(
    spark: SparkSession,
    root: Path,
    names: str,
    build: Callable[[dict[str, DataFrame]], DataFrame],
    store: str,
    label: str,
) -> Run:
    """Run a streaming query over all files, one of each input a micro-batch."""
    for key, value in STORES[store].items():
        spark.conf.set(key, value)
    streams = {
        name: spark.readStream.schema(ROW).option("maxFilesPerTrigger", 1).parquet(str(root / name)) for name in names
    }
    frame = build({name: stream.withWatermark("ts", "0 seconds") for name, stream in streams.items()})
    checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=root)
    counted = frame.observe("out", F.count(F.lit(1)).alias("n"))
    query = (
        counted.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    for key in STORES[store]:
        spark.conf.unset(key)
    shutil.rmtree(checkpoint)
    rows, seconds, reports = 0, [], []
    for progress in query.recentProgress:
        found = progress.observedMetrics.get("out")
        rows += found.n if found is not None else 0
        if progress.numInputRows:
            seconds.append(progress.durationMs["triggerExecution"] / 1000)
            observed = {k: v.asDict() for k, v in progress.observedMetrics.items() if k.startswith("dovetail")}
            reports.append(next(iter(observed.values()), {}))
    shown = " ".join(f"{s:.2f}" for s in seconds)
    console.print(f"  {label:<24} {rows:>10,} rows   {shown}", highlight=False)
    return Run(seconds, rows, reports)

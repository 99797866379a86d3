"""The program that `spark-submit` runs: every join, on whatever cluster it was submitted to."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import dovetail

# The driver runs where the tests are; its workers have what was shipped to them.
sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.cluster.families import CASES, settings


def where() -> Callable[..., Iterator[pa.RecordBatch]]:
    """A stage that tells where a worker found the package, and where its executor works."""

    def imported(batches):
        import dovetail.families.theta.compiled

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [dovetail.__file__], "executor": [str(Path.cwd())]})

    return imported


def main(folder: Path, out: Path, names: list[str]) -> None:
    builder = SparkSession.builder.appName("every join")
    for name, value in settings().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found, seconds = {}, {}
    for name in names or CASES:
        began = time.perf_counter()
        found[name] = CASES[name](spark, folder)
        seconds[name] = round(time.perf_counter() - began, 1)
        print(name, seconds[name], flush=True)
    rows = spark.range(0, 8, 1, 8).mapInArrow(where(), "file string, executor string").collect()
    report = {
        "found": found,
        "seconds": seconds,
        "master": spark.sparkContext.master,
        "driver": dovetail.__file__,
        "workers": sorted({tuple(row) for row in rows}),
    }
    out.write_text(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

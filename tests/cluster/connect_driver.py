"""The program of a Spark Connect client: every public name, the package shipped with `addArtifacts`.

The server that it starts inherits PYTHONPATH, where streams find the package: Spark 4.3 does not hand the artifacts of
a session to the tasks of its streaming queries.

A classic session and one of Spark Connect cannot live in one process, so this is a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.connect.session
from pyspark.sql import SparkSession
from tests.cluster.families import SCHEMA, settings
from tests.cluster.public import JOB, JOB_ON, PUBLIC

import dovetail


def imported(batches):
    """Where a worker found the package."""
    import dovetail.families.theta.compiled

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [dovetail.__file__]})


def run_job(folder: Path, place: Path) -> list[str]:
    """A job file by the command, which takes the session in use and stops it at the end."""
    from dovetail.command.cli import app

    file = place / "job.yaml"
    file.write_text(JOB.format(folder=folder, schema=SCHEMA, on=JOB_ON, out=place / "near"))
    app(["run", str(file)], standalone_mode=False)
    return sorted(json.dumps(row, separators=(",", ":")) for row in pq.read_table(place / "near").to_pylist())


def main(shipped: Path, folder: Path, place: Path) -> None:
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert isinstance(spark, pyspark.sql.connect.session.SparkSession)
    spark.addArtifacts(str(shipped), pyfile=True)
    report = {"driver": dovetail.__file__, "found": {}, "seconds": {}}
    for name, case in PUBLIC.items():
        began = time.perf_counter()
        try:
            report["found"][name] = case(spark, folder)
        except Exception as error:  # one that fails is told beside the others, not instead of them
            report["found"][name] = [f"{type(error).__name__}: {error}"]
        report["seconds"][name] = round(time.perf_counter() - began, 1)
        print(name, report["seconds"][name], flush=True)
    rows = spark.range(0, 4, 1, 4).mapInArrow(imported, "file string").collect()
    report["workers"] = sorted({row.file for row in rows})
    report["job"] = run_job(folder, place)
    (place / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))

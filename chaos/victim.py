"""The process that is killed: it runs queries to file sinks until they have read all input.

    python -m chaos.victim PLACE INPUTS FAMILY...

A query leaves its checkpoint and its output in PLACE/<number>; started again, it goes on from there.  CHAOS_SETTINGS
may have more settings of Spark, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException

import dovetail as dt
from chaos.families import FAMILIES, Family, Files
from dovetail.spark.runtime.classes import sharing_options
from dovetail.spark.runtime.failures import brief
from dovetail.spark.runtime.java import check_java

MASTER = "local-cluster[2,1,1024]"
# These JVMs live for seconds: only the first compiler and the simplest garbage collector start them fastest.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: dict[str, object] = {
    "spark.driver.extraJavaOptions": _SHORT_LIVED,
    "spark.sql.shuffle.partitions": 2,
    # Each file is read by a task of its own, however many a micro-batch has: parts of a sample depend on that.
    "spark.sql.files.openCostInBytes": 128 << 20,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.executor.memory": "1g",
    # A killed worker or executor fails tasks; only so many failures of one task end the query.
    "spark.task.maxFailures": 20,
    "spark.stage.maxConsecutiveAttempts": 20,
}


FAILED = "FAILED:"
"""What a line begins with that says why a query has failed."""


def place_of(place: Path, family: str) -> Path:
    """Where a family leaves its files."""
    return place / f"{list(FAMILIES).index(family):02}"


def run(place: Path, inputs: Path, families: list[Family], master: str, more: dict[str, object]) -> bool:
    """Run the queries to their end; whether none has failed."""
    # dt.session does this for the driver alone, since executors are on other machines.
    executors = f"{_SHORT_LIVED} {sharing_options(check_java(), _SHORT_LIVED)}".strip()
    settings = {"spark.executor.extraJavaOptions": executors, **SETTINGS, **more}
    spark = dt.session("chaos", master=master, driver_memory="768m", conf=settings)
    queries = []
    for family in families:
        own = place_of(place, family.name)
        joined = family.build(Files(spark, inputs)).selectExpr(*family.columns)
        writer = joined.writeStream.format("parquet").option("path", str(own / "out"))
        writer = writer.option("checkpointLocation", str(own / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    right = True
    for query in queries:
        try:
            query.awaitTermination()
        except PySparkException as error:
            right = False
            # What a person would be told, and all that Spark says.
            print(FAILED, " ".join(f"{brief(error)} | {error}".split()), flush=True)
    spark.stop()
    return right


if __name__ == "__main__":
    _, place, inputs, *names = sys.argv
    more = json.loads(os.environ.get("CHAOS_SETTINGS", "{}"))
    chosen = [FAMILIES[name] for name in names]
    sys.exit(0 if run(Path(place), Path(inputs), chosen, MASTER, more) else 1)

"""The process that is killed: it runs queries to file sinks until they have read all input.

    python -m chaos.victim PLACE INPUTS FAMILY...

A query leaves its checkpoint and its output in PLACE/<number>; started again, it goes on from there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dovetail as dt
from chaos.families import FAMILIES, Family, Files

MASTER = "local-cluster[2,1,1024]"
# These JVMs live for seconds: only the first compiler and the simplest garbage collector start them fastest.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: dict[str, object] = {
    "spark.driver.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.extraJavaOptions": _SHORT_LIVED,
    "spark.sql.shuffle.partitions": 2,
    "spark.executor.memory": "1g",
    # A killed worker or executor fails tasks; only so many failures of one task end the query.
    "spark.task.maxFailures": 20,
    "spark.stage.maxConsecutiveAttempts": 20,
}


def place_of(place: Path, family: str) -> Path:
    """Where a family leaves its files."""
    return place / f"{list(FAMILIES).index(family):02}"


def run(place: Path, inputs: Path, families: list[Family], master: str) -> None:
    """Run the queries to their end; a query that fails ends the process."""
    spark = dt.session("chaos", master=master, driver_memory="768m", conf=SETTINGS)
    queries = []
    for family in families:
        own = place_of(place, family.name)
        joined = family.build(Files(spark, inputs)).selectExpr(*family.columns)
        writer = joined.writeStream.format("parquet").option("path", str(own / "out"))
        writer = writer.option("checkpointLocation", str(own / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, place, inputs, *names = sys.argv
    run(Path(place), Path(inputs), [FAMILIES[name] for name in names], MASTER)

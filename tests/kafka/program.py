"""The program that is killed: joins of topics, each with one query to files and one to a topic.

    python -m tests.kafka.program PLACE INPUTS FAMILY...

``INPUTS/kafka.json`` says where the broker is, how many records a micro-batch takes, and which archives Spark needs.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from chaos.families import FAMILIES, Family
from chaos.inputs import DELAY, SCHEMA
from chaos.victim import MASTER, SETTINGS, place_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from tests.kafka.topics import DECODED, PATIENCE, SHIFT

import dovetail as dt

IDS = ("a", "b", "c", "s", "change")
"""Columns that tell the results of a join apart, where it has them: together the key of a result."""
IN_ORDER = ("theta, rows",)
"""Joins that follow the order of arrival, which only a single partition has."""

TOO_BUSY = "Python worker failed to connect back"


@dataclass(frozen=True)
class Topics:
    """The inputs of a join, read from a broker."""

    spark: SparkSession
    inputs: Path
    servers: str
    limit: int
    prefix: str = ""
    ordered: bool = False

    def stream(self, name: str) -> DataFrame:
        """Read a topic from its start, and decode its values."""
        return self.decoded(self.raw(name), name).withWatermark("ts", DELAY)

    def raw(self, name: str) -> DataFrame:
        """The records of a topic."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("kafka.default.api.timeout.ms", round(PATIENCE * 1000))
        reader = reader.option("subscribe", f"{self.prefix}{name}{'-one' if self.ordered else ''}")
        return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", self.limit).load()

    @staticmethod
    def decoded(raw: DataFrame, name: str) -> DataFrame:
        """The columns of an input."""
        if name == "B":
            numbers = raw.selectExpr(*DECODED["B"])
            return numbers.selectExpr(
                "id", f"nullif(k, 0) - {SHIFT} AS k", f"nullif(v, 0) - {SHIFT} AS v", "timestamp_millis(ms) AS ts"
            )
        if name == "C":
            parsed = raw.selectExpr("from_json(string(value), 'id long, k long, v long') AS row", "timestamp AS ts")
            return parsed.selectExpr("row.*", "ts")
        return raw.selectExpr(f"from_json(string(value), '{SCHEMA}') AS row").selectExpr("row.*")

    def ranges(self) -> DataFrame:
        """The static table."""
        return self.spark.read.parquet(str(self.inputs / "S"))


def topic_of(family: str) -> str:
    """Where the results of a join go."""
    return f"out-{list(FAMILIES).index(family):02}"


def as_records(joined: DataFrame) -> DataFrame:
    """Results as records: what tells a result apart is its key, so that a result that comes twice has one key twice."""
    ids = [name for name in IDS if name in joined.columns]
    return joined.selectExpr(f"to_json(struct({', '.join(ids)})) AS key", "to_json(struct(*)) AS value")


def writers(place: Path, source: Topics, family: Family) -> list[DataStreamWriter]:
    """Both queries of a join, on all that lies in the topics now."""
    own = place_of(place, family.name)
    joined = family.build(source).selectExpr(*family.columns)
    to_files = joined.writeStream.format("parquet").option("path", str(own / "out"))
    to_topic = as_records(joined).writeStream.format("kafka").option("topic", topic_of(family.name))
    to_topic = to_topic.option("kafka.bootstrap.servers", source.servers)
    to_topic = to_topic.option("kafka.delivery.timeout.ms", round(PATIENCE * 1000))
    return [
        writer.option("checkpointLocation", str(own / name)).trigger(availableNow=True)
        for writer, name in ((to_files, "checkpoint"), (to_topic, "checkpoint-topic"))
    ]


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, and come back when it has done a micro-batch.

    Spark gives the process that prepares a stateful operator ten seconds to start; queries that begin at once on a busy
    machine take them from each other.
    """
    while True:
        query = writer.start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.1)
        failed = query.exception()
        if failed is None or TOO_BUSY not in str(failed):
            return query


def run(place: Path, inputs: Path, families: list[Family]) -> None:
    """Run all queries to their end; one that fails ends the process."""
    given = json.loads((inputs / "kafka.json").read_text(encoding="utf-8"))
    jars = {"spark.jars": ",".join(given["jars"])}
    spark = dt.session("kafka", master=MASTER, driver_memory="1g", conf={**SETTINGS, **jars})
    queries = []
    for family in families:
        ordered = family.name in IN_ORDER
        source = Topics(spark, inputs, given["servers"], given["limit"], given["prefix"], ordered=ordered)
        queries += [begun(writer) for writer in writers(place, source, family)]
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, place, inputs, *names = sys.argv
    run(Path(place), Path(inputs), [FAMILIES[name] for name in names])

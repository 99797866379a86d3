"""A stream beside a static table: the table is the one that is there when a micro-batch runs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")


def test_every_micro_batch_reads_the_table(spark, tmp_path):
    """Both joins in one query, for its start is the expensive part."""
    table, arriving = tmp_path / "B.csv", tmp_path / "A"
    arriving.mkdir()
    table.write_text("1,5\n")
    static = spark.read.schema("id long, x long").csv(str(table))
    stream = spark.readStream.schema("id long, x long").parquet(str(arriving))
    theta = dt.theta_join({"A": stream, "B": static}, on="A.x <= B.x AND A.x + 1 > B.x")
    asof = dt.asof_join({"C": stream, "D": static}, time="x")
    pairs = theta.select(F.lit("theta").alias("join"), F.col("A.id").alias("a"), F.col("B.id").alias("b")).unionAll(
        asof.select(F.lit("asof"), "C.id", "D.id")
    )

    def micro_batch(number: int, x: int) -> set[tuple[str, int, int]]:
        pq.write_table(pa.table({"id": [number], "x": [x]}), arriving / f"{number}.parquet")
        writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        try:
            assert query.awaitTermination(900)
        finally:
            query.stop()
        return {tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).where(f"a = {number}").collect()}

    assert micro_batch(10, 5) == {("theta", 10, 1), ("asof", 10, 1)}
    table.write_text("2,7\n")  # as many bytes: Spark has looked at the file's length
    assert micro_batch(11, 7) == {("theta", 11, 2), ("asof", 11, 2)}

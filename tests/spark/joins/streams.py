"""Files that arrive, streams that read them, queries that end: what the tests of streams share."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def put(folder: Path, rows: list[dict] | pa.Table, schema: pa.Schema | None = None) -> None:
    """One more file, newer than all before it: a stream reads one a micro-batch, in the order of their times."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    file = folder / f"{number:03}.parquet"
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema), file)
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def source(spark, folder: Path, schema: str) -> DataFrame:
    """A stream of the files in a folder, without a watermark."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(joined: DataFrame, place: Path) -> list[dict]:
    """Run a query over all there is, into files; what it observed in each micro-batch comes back."""
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(900)
        observed = [progress["observedMetrics"] for progress in query.recentProgress]
        return [next(iter(found.values())).asDict() for found in observed if found]
    finally:
        query.stop()


def ids(joined: DataFrame, aliases: str | None = None) -> Counter:
    """Tuples of row numbers; a missing row is None, and a row of NULLs is told apart from it."""
    parts = [F.when(F.col(a).isNotNull(), F.coalesce(F.col(f"{a}.id"), F.lit(-1))) for a in aliases or joined.columns]
    return Counter(tuple(row) for row in joined.select(*parts).collect())


def written(spark, place: Path, aliases: str | None = None) -> Counter:
    """What a query has written, as tuples of row numbers."""
    return ids(spark.read.parquet(str(place / "out")), aliases)

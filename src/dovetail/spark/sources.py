"""Sources and sinks by their names and options: what a reader or a writer of Spark is told, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def reader(spark: SparkSession, options: Mapping[str, str], *, streaming: bool) -> Any:
    """A reader of streams or of tables with these options."""
    made: Any = spark.readStream if streaming else spark.read
    return made.options(**options)


def read_frame(reader: Any, *, format: str | None, path: str | None, table: str | None) -> DataFrame:
    """The frame of a table, or of what a format finds at a path; its schema is known."""
    if table is not None:
        frame: DataFrame = reader.table(table)
    else:
        loader = reader.format(format)
        frame = loader.load(path) if path is not None else loader.load()
    return analysed(frame)


def analysed(frame: DataFrame) -> DataFrame:
    """The same frame, once Spark has accepted it: Spark Connect checks nothing before it is asked."""
    frame.schema  # noqa: B018
    return frame


def write_frame(
    frame: DataFrame,
    *,
    format: str | None,
    path: str | None,
    table: str | None,
    mode: str,
    options: Mapping[str, str],
    partition_by: Sequence[str],
) -> None:
    """Write a batch frame to a table, or to a path in a format."""
    writer = frame.write.mode(mode).options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    if table is not None:
        writer.saveAsTable(table)
    else:
        assert format is not None
        writer.format(format).save(path)


def start_query(
    frame: DataFrame,
    *,
    name: str,
    format: str | None,
    path: str | None,
    table: str | None,
    mode: str,
    options: Mapping[str, str],
    partition_by: Sequence[str],
    checkpoint: str | None,
    interval: str | None,
) -> StreamingQuery:
    """Start a stream into a table, or to a path in a format.

    Without an `interval` between its micro-batches it takes what is available now, and ends.
    """
    writer = frame.writeStream.outputMode(mode).queryName(name).options(**options)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
    if table is not None:
        return writer.toTable(table)
    assert format is not None
    return writer.format(format).start(path)

"""Watermarks that a row dated far in the future cannot move."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.durations import duration
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, UnsupportedTypeError, unknown_alias
from dovetail.spark.frames import field_of

Length = str | timedelta
Value = TypeVar("Value", str, str | timedelta)
_TIMES = (T.TimestampType, T.TimestampNTZType)


def watermarked(
    inputs: Mapping[str, DataFrame],
    *,
    time: str | Mapping[str, str],
    delay: Length | Mapping[str, Length],
    max_ahead: Length | Mapping[str, Length],
    clock: str | Mapping[str, str] | None = None,
) -> dict[str, DataFrame]:
    """Add watermarks to streams, after dropping and counting the rows that lie too far in the future.

    A watermark follows the largest time that a stream has shown.  A single row dated next year makes all rows until
    then late: joins drop them and evict their state.  Spark computes the watermark at ``withWatermark``, before any
    join sees the row, so such rows must be dropped before that.  This function does both, in that order.

    Parameters
    ----------
    inputs : mapping of str to DataFrame
        DataFrames by alias, as the joins take them, without a watermark.
    time : str or mapping of str to str
        The time column, one name for all inputs or one for each alias; a timestamp, with or without a zone.
    delay : str, timedelta or a mapping of these
        How late a row may come, as in ``withWatermark``; one for all inputs or one for each alias.
    max_ahead : str, timedelta or a mapping of these
        How far ahead of the clock a row's time may be.  Rows without a time stay.
    clock : str or mapping of str to str, optional
        A column that says when a row arrived, such as the ``timestamp`` of Kafka.  By default it is the time at which
        the micro-batch was planned, which Spark records: a micro-batch that is run again drops the same rows.  Name a
        column to replay old data, whose future has passed by now.

    Returns
    -------
    dict of str to DataFrame
        The inputs, to be handed to a join.  The progress of a query that reads them has ``early(A)`` among its observed
        metrics, with the number of rows dropped as ``early_A``.

    Raises
    ------
    ArgumentError
        If a mapping lacks an input, a frame has a watermark already, or a length of time cannot be read.
    UnknownNameError
        If an input does not have the column, or a mapping names no input.
    UnsupportedTypeError
        If the column is not a timestamp.

    See Also
    --------
    window_join : A join of the streams.

    Examples
    --------
    >>> import dovetail as dt
    >>> spark = dt.session()
    >>> rate = spark.readStream.format("rate").load()
    >>> inputs = dt.watermarked({"A": rate, "B": rate}, time="timestamp", delay="10 seconds", max_ahead="1 hour")
    >>> pairs = dt.window_join(inputs, on="A.value = B.value", time="timestamp", within="1 minute")
    >>> pairs.isStreaming
    True
    """
    if not isinstance(inputs, Mapping) or not inputs:
        raise ArgumentError(
            f"the inputs are {type(inputs).__name__}", accepted="a mapping from an alias to a DataFrame, not empty"
        )
    guarded = {}
    for alias, frame in inputs.items():
        column = _value_for(alias, time, inputs, "time=")
        arrived = None if clock is None else _value_for(alias, clock, inputs, "clock=")
        late = duration(_value_for(alias, delay, inputs, "delay="), argument="delay")
        ahead = duration(_value_for(alias, max_ahead, inputs, "max_ahead="), argument="max_ahead")
        guarded[alias] = _guarded(alias, frame, column, arrived, ahead).withWatermark(column, f"{late} microseconds")
    return guarded


def _value_for(alias: str, given: Value | Mapping[str, Value], inputs: Mapping[str, object], where: str) -> Value:
    """The value for one input of an argument that has one for all or one for each."""
    if not isinstance(given, Mapping):
        return given
    for name in given:
        if name not in inputs:
            raise unknown_alias(str(name), inputs, where=where)
    if alias not in given:
        raise ArgumentError(f"{where} has no entry for {alias!r}", accepted="an entry for every input, or one for all")
    return given[alias]


def _guarded(alias: str, frame: DataFrame, column: str, arrived: str | None, ahead: int) -> DataFrame:
    """The frame without rows that are dated too far ahead, which an observation counts."""
    field = _time_field(alias, frame, column, "time=")
    if watermark_delay(field) is not None:
        raise ArgumentError(
            f"{alias!r} has a watermark on {column!r} already, which future rows move before they are dropped",
            accepted="a stream without a watermark: this function gives it one",
        )
    now: Column = F.current_timestamp()
    if arrived is not None:
        _time_field(alias, frame, arrived, "clock=")
        now = F.col(quoted(arrived))
    early = F.coalesce(F.col(quoted(column)) > F.timestamp_add("MICROSECOND", F.lit(ahead), now), F.lit(False))
    counted = frame.observe(f"early({alias})", F.coalesce(F.sum(early.cast("long")), F.lit(0)).alias(f"early_{alias}"))
    return counted.filter(~early)


def _time_field(alias: str, frame: DataFrame, column: str, where: str) -> T.StructField:
    field = field_of(alias, frame, column, where)
    if not isinstance(field.dataType, _TIMES):
        raise UnsupportedTypeError(
            f"{where.rstrip('=')}={column!r} has the type {field.dataType.simpleString()} in {alias!r}",
            accepted="a column of type timestamp or timestamp_ntz, which can be compared with a clock",
        )
    return field


def watermark_delay(field: T.StructField) -> int | None:
    """The delay of the watermark on a column, in microseconds; None where it has none."""
    delay = field.metadata.get("spark.watermarkDelayMs")
    return None if delay is None else int(delay) * 1000

"""Time columns of the inputs, as the plans ask for them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.plan.time_columns import TimeColumn
from dovetail.spark.frames import field_of
from dovetail.spark.watermarks import watermark_delay


def time_column(alias: str, frame: DataFrame, name: str) -> TimeColumn:
    """What a plan needs to know of the time column of an input; refuses one that the input does not have."""
    field = field_of(alias, frame, name, "time=")
    return TimeColumn(
        alias=alias,
        name=field.name,
        type=field.dataType.simpleString(),
        is_timestamp=isinstance(field.dataType, T.TimestampType | T.TimestampNTZType),
        has_watermark=watermark_delay(field) is not None,
        is_streaming=frame.isStreaming,
    )

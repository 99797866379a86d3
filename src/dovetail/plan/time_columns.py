"""The time columns of streams: which ones a join can wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.errors import UnboundedJoinError, UnsupportedTypeError


@dataclass(frozen=True)
class TimeColumn:
    """What a plan needs to know of the time column of one input."""

    alias: str
    name: str
    type: str
    """Spark's name of its type."""
    is_timestamp: bool
    has_watermark: bool
    is_streaming: bool


def check_window_times(time: str, columns: Sequence[TimeColumn]) -> None:
    """Refuse columns that cannot cut windows of time; `time` is the argument as the user wrote it."""
    types: dict[str, str] = {}
    for column in columns:
        if not column.is_timestamp:
            raise UnsupportedTypeError(
                f"time={time!r} has the type {column.type} in {column.alias!r}",
                accepted="a column of type timestamp or timestamp_ntz",
            )
        types.setdefault(column.type, column.alias)
        if column.is_streaming and not column.has_watermark:
            raise UnboundedJoinError(
                f"the stream {column.alias!r} has no watermark on {time!r}, so no window of it would ever close",
                accepted=f"a stream with a watermark, such as frame.withWatermark({time!r}, '10 seconds')",
            )
    if len(types) > 1:
        given = " and ".join(f"{kind} in {alias!r}" for kind, alias in types.items())
        raise UnsupportedTypeError(
            f"time={time!r} has the type {given}", accepted="one type of timestamp in all inputs"
        )


def check_final_times(columns: Sequence[TimeColumn]) -> None:
    """Refuse columns of streams by which no row would ever be final."""
    for column in columns:
        if not column.is_timestamp:
            raise UnsupportedTypeError(
                f"time={column.name!r} has the type {column.type} in the stream {column.alias!r}",
                accepted="a column of type timestamp or timestamp_ntz, which can carry a watermark",
            )
        if not column.has_watermark:
            raise UnboundedJoinError(
                f"the stream {column.alias!r} has no watermark on {column.name!r}, "
                "so no match of it would ever be final",
                accepted=f"a stream with a watermark, such as frame.withWatermark({column.name!r}, '10 seconds')",
            )
    if len({column.type for column in columns}) > 1:
        raise UnsupportedTypeError(
            f"{' and '.join(column.type for column in columns)} as the times of two streams",
            accepted="one type of timestamp in both",
        )

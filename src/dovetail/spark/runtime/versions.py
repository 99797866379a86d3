"""What differs between the versions of Spark that Dovetail runs on, in one place.

Each difference is a name here, with a line that says what it is and since when.  It is found by looking for the
feature, not by comparing numbers, wherever Python can see it: distributions of Spark take features from newer versions.
What a version cannot do is refused on the driver, and the message names the version.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.util import PythonEvalType

from dovetail.errors import SetupError

# timezone= replaced timestamp_utc= in 4.2; both stand for instants in UTC.
_TAKES_TIMEZONE = "timezone" in inspect.signature(to_arrow_type).parameters
# The type TIME came with 4.1.  Where it is missing, no column has it.
TIME_TYPES: tuple[type[Any], ...] = (T.TimeType,) if hasattr(T, "TimeType") else ()
# applyInArrow hands over a group as an iterator of batches since 4.1; before, as one table, and takes one table back.
_ITERATES_GROUPS = hasattr(PythonEvalType, "SQL_GROUPED_MAP_ARROW_ITER_UDF")
# An observation counts rows again that a job reads again, as a sort does to find its ranges; not since 4.3.
OBSERVES_AGAIN = tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3)
# transformWithState on rows came with 4.1; in 4.0 there is transformWithStateInPandas, and neither on Spark Connect.
_ROW_STATE, _FRAME_STATE = "transformWithState", "transformWithStateInPandas"

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def spark_version() -> str:
    """The version of PySpark in words, for messages."""
    return f"PySpark {pyspark.__version__}"


def arrow_type(kind: T.DataType) -> pa.DataType:
    """The Arrow type in which Spark sends and expects values of a type.

    Examples
    --------
    >>> arrow_type(T.TimestampType())
    TimestampType(timestamp[us, tz=UTC])
    """
    return to_arrow_type(kind, timezone="UTC") if _TAKES_TIMEZONE else to_arrow_type(kind)


def together(frame: DataFrame, column: str, partitions: int | None) -> DataFrame:
    """The frame as :func:`apply_by_group` wants it, in as many partitions as given or as the session says."""
    if _ITERATES_GROUPS:
        return frame if partitions is None else frame.repartition(partitions, column)
    shuffled = frame.repartition(column) if partitions is None else frame.repartition(partitions, column)
    return shuffled.sortWithinPartitions(column)


def apply_by_group(frame: DataFrame, column: str, function: ArrowFunction, schema: T.StructType) -> DataFrame:
    """What a function makes of each group of rows, which gets and gives batches one at a time.

    Where groups come as tables, all results of a group would be in memory at once.  There a task goes through its
    rows and calls the function for one group after the other; :func:`together` has them lie together and in order.
    """
    if _ITERATES_GROUPS:

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return function(batches)

        # PySpark reads the form off the annotations, which are text here.
        run.__annotations__ = {"batches": Iterator[pa.RecordBatch], "return": Iterator[pa.RecordBatch]}
        return frame.groupBy(column).applyInArrow(run, schema)
    return frame.mapInArrow(one_by_one(function, column), schema)


def one_by_one(function: ArrowFunction, column: str) -> ArrowFunction:
    """A function of groups as one of all rows of a task, in which the rows of a group follow each other."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = chain.from_iterable(_cut(batch, column) for batch in batches)
        for _, group in groupby(parts, key=lambda part: part[0]):
            yield from function(rows for _, rows in group)

    return run


def _cut(batch: pa.RecordBatch, column: str) -> Iterable[tuple[int, pa.RecordBatch]]:
    """The parts of a batch in which a column of whole numbers does not change, with the number."""
    numbers = batch.column(column).to_numpy()
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)] if len(numbers) else []
    begin = 0
    for end in ends:
        yield int(numbers[begin]), batch.slice(begin, end - begin)
        begin = end


def natural_ignores_case(session: SparkSession) -> bool:
    """Whether NATURAL merges names that differ in case, in a session that ignores case.  It does since 4.2.

    Spark analyses a statement for that, and runs nothing.
    """
    text = "SELECT * FROM VALUES (1) AS a (I) NATURAL JOIN VALUES (1) AS b (i)"
    return len(session.sql(text).columns) == 1


def transform_with_state(frame: DataFrame, column: str, processor: Any, schema: T.StructType, time: str) -> DataFrame:
    """What a stateful processor of rows makes of a stream in groups; both operators keep the same state."""
    grouped: Any = frame.groupBy(column)
    # Asked of the very object: a session of Spark Connect may lack what a classic one has.
    if hasattr(grouped, _ROW_STATE):
        return grouped.transformWithState(processor, schema, "append", time)  # type: ignore[no-any-return]
    if hasattr(grouped, _FRAME_STATE):
        in_frames = by_frames(processor, schema.names)
        return grouped.transformWithStateInPandas(in_frames, schema, "append", time)  # type: ignore[no-any-return]
    raise SetupError(
        f"{spark_version()} has no stateful streams of Python on Spark Connect",
        accepted="static inputs, a stream beside static ones, a session without Spark Connect, or PySpark 4.1 or newer",
    )


def load_state(frame: DataFrame, column: str, initial: DataFrame, processor: Any, time: str) -> DataFrame:
    """A stream whose stateful processor begins with rows of state; nothing comes out of it."""
    grouped: Any = frame.groupBy(column)
    if not hasattr(grouped, _ROW_STATE):
        raise SetupError(
            f"{spark_version()} keeps the state of streams in a form that cannot be written again",
            accepted="PySpark 4.1 or newer, without Spark Connect",
        )
    begun = initial.groupBy(column)
    return grouped.transformWithState(processor, "none int", "append", time, begun)  # type: ignore[no-any-return]


def by_frames(processor: Any, names: list[str]) -> Any:
    """A processor of rows as one of Pandas frames.

    Its class is defined within a function, and imports what it needs where it runs: so it travels by value, as the
    processor does (``opened_on_workers``).
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class ByFrames(StatefulProcessor):
        def __init__(self, rows: Any, names: list[str]) -> None:
            self._rows, self._names = rows, names

        def init(self, handle: Any) -> None:
            self._rows.init(handle)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802
            arrived = (row for frame in rows for row in frame.to_dict("records"))
            yield from self._frames(self._rows.handleInputRows(key, arrived, timerValues))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802
            yield from self._frames(self._rows.handleExpiredTimer(key, timerValues, expiredTimerInfo))

        def _frames(self, rows: Iterator[Any]) -> Iterator[Any]:
            import pandas as pd

            for row in rows:
                yield pd.DataFrame({name: pd.Series([row[name]], dtype="object") for name in self._names})

        def close(self) -> None:
            self._rows.close()

    return ByFrames(processor, names)

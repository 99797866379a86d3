"""How a routing comes about and reaches the workers, without a job before the user's action.

sample both sides -> fit (one task)                                      a scalar subquery
rows -> route                                                            the first row of each task carries it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns import layout
from dovetail.columns.sampling import DEEP, DENSE, SPARSE
from dovetail.spark.runtime.versions import ArrowFunction
from dovetail.spark.runtime.worker import plain_refusals, settle

_FIRST_ROW = (1 << 33) - 1
"""monotonically_increasing_id counts the rows of a task in its low 33 bits."""


def handover(**columns: T.DataType) -> T.StructType:
    """The schema of what stages hand to each other: none of it is ever NULL.

    Spark does not ask what cannot be NULL whether it is.  Against nullable columns the JVM took about 4 % less for a
    band join of 4M x 4M rows, in five pairs of runs.
    """
    return T.StructType([T.StructField(name, kind, nullable=False) for name, kind in columns.items()])


SEGMENT = handover(**{layout.SEGMENT: T.BinaryType()})
"""Packed rows that nobody shuffles."""
SEGMENTS = handover(
    **{
        layout.CELL_NUMBER: T.IntegerType(),
        layout.TURN: T.IntegerType(),
        layout.COPIES: T.LongType(),
        layout.SEGMENT: T.BinaryType(),
    }
)
"""Packed rows on their way through a shuffle: the schema of :func:`~dovetail.columns.partition.shuffle_batch`."""
_ROUTING = handover(**{layout.FITTED: T.BinaryType()})


def sampled(frame: DataFrame, columns: Sequence[Column | str], *, side: int, everything: bool = False) -> DataFrame:
    """Columns of some rows, behind two of their own: a random number (``draw``), and whether they lie ``deep``.

    Spark samples: a Python task for each part of the input would cost more.
    """
    # As text: every function of a Column is a few calls into the JVM, which a small join feels.
    draw, deep = layout.DRAW, layout.DEEP
    if everything:
        return frame.select(F.expr(f"0L AS {draw}"), F.expr(f"false AS {deep}"), *columns)
    row = "monotonically_increasing_id()"
    # A hash of the row's number instead of Spark's random sample, which takes twice the time.
    marks = [f"xxhash64({row} ^ {side << 61}L) AS {draw}", f"{row} & {_FIRST_ROW} >= {DEEP} AS {deep}"]
    numbered = frame.select(*map(F.expr, marks), *columns)
    return numbered.where(f"{draw} & {DENSE - 1} = 0 AND (NOT {deep} OR {draw} & {SPARSE - 1} = 0)")


def fitted(samples: Sequence[DataFrame], fit: Callable[..., Iterator[pa.RecordBatch]], default: bytes) -> Column:
    """The routing that one task fits to the samples, as a scalar subquery, in an array for :func:`carrying`.

    Where Spark sees that all samples are empty it runs no task to fit one; then it is `default`, a routing without a
    sample.
    """
    gathered = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), samples)
    routing = gathered.repartition(1).mapInArrow(arrow_function(fit), _ROUTING).scalar()
    return F.array(F.coalesce(routing, F.lit(default)))


def carrying(frame: DataFrame, columns: Sequence[Column | str], value: Column | None) -> DataFrame:
    """Columns and behind them ``g``: `value`, an array, on the first row of each task, and NULL on all others.

    Without a value, the columns alone.
    """
    if value is None:
        return frame.select(*columns)
    first = F.expr(f"monotonically_increasing_id() & {_FIRST_ROW} = 0")
    return frame.select(*columns, F.when(first, value).alias(layout.ROUTING))


def arrow_function(stage: Callable[..., Iterator[pa.RecordBatch]]) -> ArrowFunction:
    """A stage as the plain function that mapInArrow wants."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_refusals():
            yield from stage(batches)
        settle(type(stage).__name__)

    return run

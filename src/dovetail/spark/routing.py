"""How a routing comes about and reaches the workers, without a job before the user's action.

sample both sides -> fit (one task)                                      a scalar subquery
rows -> route                                                            the first row of each task carries it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns import layout
from dovetail.columns.sampling import DEEP, DENSE, SPARSE
from dovetail.spark.runtime.versions import ArrowFunction
from dovetail.spark.runtime.worker import plain_refusals, settle

_TASK_BITS = 33
_FIRST_ROW = (1 << _TASK_BITS) - 1
"""monotonically_increasing_id counts the rows of a task in its low 33 bits."""


def handover(**columns: T.DataType) -> T.StructType:
    """The schema of what stages hand to each other: none of it is ever NULL.

    Spark does not ask what cannot be NULL whether it is.  Against nullable columns the JVM took about 4 % less for a
    band join of 4M x 4M rows, in five pairs of runs.
    """
    return T.StructType([T.StructField(name, kind, nullable=False) for name, kind in columns.items()])


SEGMENT = handover(**{layout.SEGMENT: T.BinaryType()})
"""Packed rows that nobody shuffles."""
SEGMENT_OR_NONE = T.StructType([T.StructField(layout.SEGMENT, T.BinaryType())])
"""The same after a NULL, to which the small side of a join is joined."""
SEGMENTS = handover(
    **{
        layout.CELL_NUMBER: T.IntegerType(),
        layout.TURN: T.IntegerType(),
        layout.COPIES: T.LongType(),
        layout.SEGMENT: T.BinaryType(),
        layout.ARRIVAL: T.LongType(),
    }
)
"""Packed rows on their way through a shuffle: :func:`~dovetail.columns.partition.shuffle_batch`, and their numbers."""
_ROUTING = handover(**{layout.FITTED: T.BinaryType()})


def sampled(inputs: Sequence[tuple[DataFrame, Sequence[str]]], *, everything: bool = False) -> DataFrame:
    """Columns of some rows of all inputs.  Before them a random number (``draw``), and whether the row lies ``deep``.

    Spark samples: a Python task for each part of the input would cost more.
    """
    draw, deep = layout.DRAW, layout.DEEP
    row = "monotonically_increasing_id()"
    numbered = []
    for side, (frame, columns) in enumerate(inputs):
        # A hash of the row's number instead of Spark's random sample, which takes twice the time.
        marks = [f"xxhash64({row} ^ {side << 61}L) AS {draw}", f"{row} & {_FIRST_ROW} >= {DEEP} AS {deep}"]
        numbered.append(frame.selectExpr(*([f"0L AS {draw}", f"false AS {deep}"] if everything else marks), *columns))
    gathered = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), numbered)
    if everything:
        return gathered
    return gathered.where(f"{draw} & {DENSE - 1} = 0 AND (NOT {deep} OR {draw} & {SPARSE - 1} = 0)")


def fitted(sample: DataFrame, fit: Callable[..., Iterator[pa.RecordBatch]], default: bytes) -> Column:
    """The routing that one task fits to a sample: a scalar subquery, carried by the first row of each task.

    Where Spark sees that the sample is empty it runs no task to fit one; then it is `default`, a routing without a
    sample.
    """
    routing = sample.repartition(1).mapInArrow(arrow_function(fit), _ROUTING).scalar()
    return carried_by_first_rows(F.coalesce(routing, F.lit(default)))


def carried_by_first_rows(value: Column, others: Column | None = None) -> Column:
    """A column ``g``: `value` on the first row of each task, and on all others NULL, or what they have in its place.

    No row may have a NULL list: where Spark 4.3 asks an Arrow batch for its size after every row, it passes over all
    NULL lists so far each time.  400,000 such rows took 12.8 s to Python, and 0.6 s with NULL bytes or empty lists.
    """
    first = F.expr(f"monotonically_increasing_id() & {_FIRST_ROW} = 0")
    carried = F.when(first, value)
    return (carried if others is None else carried.otherwise(others)).alias(layout.ROUTING)


def arrow_function(
    stage: Callable[..., Iterator[pa.RecordBatch]], what: str = "sending rows to their cells", *, numbered: bool = False
) -> ArrowFunction:
    """A stage as the plain function that mapInArrow wants; `what` names it in messages.

    What goes through a shuffle is `numbered` by its task and its position there, so that a cell can have it in one
    order however it is fetched: after a lost executor Spark compares what is made again, and ends a job in which that
    differs.
    """
    sent = 0

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal sent
        with plain_refusals(what):
            for out in stage(batches):
                if not numbered:
                    yield out
                    continue
                task: Any = TaskContext.get()
                # A task may call this for one cell after the other.
                first = (task.partitionId() << _TASK_BITS) + sent
                sent += out.num_rows
                yield out.append_column(layout.ARRIVAL, pa.array(range(first, first + out.num_rows), pa.int64()))
        settle(type(stage).__name__)

    return run

"""What a Python worker of the cluster does: the Cartesian products that its task has been dealt, one by one.

Workers import this module and nothing else of the experiment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

Theta = Callable[[Decimal, Decimal], bool]

COMPARISONS: dict[str, Theta] = {
    "<": lambda r, s: r.compare(s) < 0,
    "<=": lambda r, s: r.compare(s) <= 0,
    ">": lambda r, s: r.compare(s) > 0,
    ">=": lambda r, s: r.compare(s) >= 0,
}
"""Conditions of which nobody knows more than their answer, on decimals, which are exact.

One costs 0.3 to 0.6 microseconds here, as the machine is idle or busy; a product of the paper's Tables 3 and 4 comes to
0.32 and 0.16.  A match costs a tenth of that on top, so it is products that take the time.
"""

SCHEMA = "pair int, task int, worker long, seconds double, found binary"
"""What comes back of a pair of partitions: who compared it, in which task, how long; matches as i * |S_j| + j."""


def compare(r: Sequence[Decimal], s: Sequence[Decimal], theta: Theta) -> list[int]:
    """Every pair of rows, handed to the condition (A3.25 to A3.27)."""
    found = []
    for i, x in enumerate(r):
        first = i * len(s)
        for j, y in enumerate(s):
            if theta(x, y):
                found.append(first + j)
    return found


def products(op: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The stage that performs products.  A row of its input is a task: its pairs of partitions, with all their rows."""

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task, theta = TaskContext.get().partitionId(), COMPARISONS[op]
        rows: list[tuple] = []
        for batch in batches:
            for pairs, r_parts, s_parts in zip(*(batch.column(name) for name in ("pair", "r", "s")), strict=True):
                for pair, r, s in zip(pairs.as_py(), r_parts.values, s_parts.values, strict=True):
                    # Processor time: four workers share two cores, and wait for them.
                    begin = time.thread_time()
                    found = compare([Decimal(x) for x in r.as_py()], [Decimal(y) for y in s.as_py()], theta)
                    seconds = time.thread_time() - begin
                    # An executor has one core and one daemon, the parent of whatever worker it lends the core to.
                    rows.append((pair, task, os.getppid(), seconds, np.array(found, np.int64).tobytes()))
        kinds = (pa.int32(), pa.int32(), pa.int64(), pa.float64(), pa.binary())
        yield pa.RecordBatch.from_arrays(
            [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)],
            names=[column.split()[0] for column in SCHEMA.split(", ")],
        )

    return perform

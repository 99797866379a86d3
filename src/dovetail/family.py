"""The contract between a family of joins and the drivers that run it.

A family brings three things, and none of them knows Spark:

* a **spec**: a frozen description of the join, checked when it is made;
* a **router**: which cells a row goes to, so that every pair that may match meets in exactly one of them;
* a **kernel**: what happens in a cell.

The batch driver hands a kernel all rows of a cell at once.  The streaming driver keeps a kernel's state between
micro-batches and talks to it as :class:`StreamKernel` says.  Any cut of the same rows into calls must give the same
results.

A class need not derive from the protocols below.  ``mypy`` checks each one where the driver takes it: kernels in
:func:`dovetail.spark.stream.run_kernel`, routers in :class:`dovetail.spark.stream.PackRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass
class Changes:
    """What a call did to a kernel's state: segments to store under their names, and names to remove."""

    stored: dict[str, pa.RecordBatch] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)


class StreamKernel(Protocol):
    """One cell of a streaming join.

    For each micro-batch that concerns the cell, the driver makes a kernel, calls :meth:`restore` with the state that
    it stored last, :meth:`push` once for every new segment in the order of arrival, :meth:`results` once, and
    :meth:`changes` once.  State consists of named segments, so that a call writes only what it changed.
    """

    counters: dict[str, int]
    """What this call did; the driver reads it last."""

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Load the state; `watermark` (microseconds) promises that no earlier event time will still arrive."""

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows of one input."""

    def end(self) -> None:
        """Note that no more rows will arrive; the batch driver says so before :meth:`results`."""

    def results(self) -> Iterator[pa.RecordBatch]:
        """Join what was pushed, close what the watermark closes, and give the rows that are now certain."""

    def changes(self) -> Changes:
        """What to store and what to remove."""

    def wake_at(self) -> int | None:
        """The watermark (microseconds) at which the cell wants a call even without new rows."""


@runtime_checkable
class NamesKeys(Protocol):
    """A kernel that can say which key a row has, for the message where the rows of a cell are too many."""

    def keys_of(self, side: int, rows: pa.RecordBatch) -> Sequence[pa.Array[Any]]:
        """The equality keys of new rows of one input; none where the join has none."""


@runtime_checkable
class Slides(Protocol):
    """A kernel that can take the rows of static inputs in the order of their times, and forgets what lies behind.

    The batch driver asks for it where a cell is more than a worker may hold.  Then it is a stream in windows of time:
    slice after slice of the rows, and :meth:`passed` after each but the last.
    """

    @property
    def slides(self) -> bool:
        """Whether this one can."""

    def moments(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The times of rows of one input; any number for a row without one."""

    def passed(self, time: int) -> None:
        """Note that no row before `time` is still to come, of any input."""


@runtime_checkable
class Divides(Protocol):
    """A kernel that can join pieces of static inputs, where all rows of a cell are more than a worker may hold."""

    @property
    def divides(self) -> bool:
        """Whether this one can."""

    def join_pieces(self, rows_of: Callable[[int], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """The results; `rows_of` gives the rows that travel as a side, piece by piece, as often as it is called."""


class Router(Protocol):
    """Divides the rows of one input among cells, and tells all cells how far the input has come."""

    def parts(self, block: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each cell, with the number of the cell."""

    def top(self, block: pa.RecordBatch) -> int | None:
        """The latest event time of some rows."""

    def ticks(self, top: int) -> list[tuple[int, pa.RecordBatch]]:
        """For every cell a segment without rows that says how far the input has come."""

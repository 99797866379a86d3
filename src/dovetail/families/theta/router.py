"""Where rows go: cells that follow the data, so that every pair that may match meets in exactly one of them.

Rows are ordered by (hash of the equality keys, coordinate on one axis, hash of the row), and cells are
consecutive ranges of that order, cut at quantiles of a sample of both sides.  A point goes to the one cell
that holds it; a box goes to every cell its range touches.  Three things follow from the order alone:

* without equality keys the hash is constant and cells are ranges of values; with them, light keys share a
  cell and a heavy key is cut by value;
* a value too frequent for one cell is cut by the hash of its rows, and its boxes go to all its cells;
* a box is copied into a further cell only where that cell lies inside its range, that is, where all of the
  cell's points match on this axis: copies cost no more than the output they lead to.

Interval overlap has a second way.  Both sides are intervals there, both are copied into the cells they touch,
and the cell that holds the later of two starts owns the pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.cells import NO_BOUNDS, Bounds, cells_of, hash_slices, pack_cells, spans, unpack_cells
from dovetail.columns.codes import HIGHEST, LOWEST, Codes, order_codes, valid_mask
from dovetail.columns.encode import Keys, routing_boxes, routing_points
from dovetail.conditions.comparison import Step
from dovetail.families.theta.kernel import Index

Mode = Literal["axis", "overlap", "spread"]

CELLS = 64
"""Cells of a stream in windows of time.  Stored state depends on the number, so it must not follow the session."""


@dataclass(frozen=True)
class Sample:
    """A weighted sample of one side: hashes of its equality keys and its codes on every axis.

    For points, `low` and `high` are the same array.  `rows` estimates how many rows the side has.
    """

    hash: Index
    low: Codes
    high: Codes
    rows: float


@dataclass(frozen=True)
class Routing:
    """How to place rows.  Holds for both sides and for every task of a join.

    `owner` tells the kernel that cells share rows and a pair belongs to the cell of its later start.
    """

    mode: Mode
    axes: tuple[int, ...]
    bounds: Bounds
    numbers: npt.NDArray[np.int32]
    cost: npt.NDArray[np.float64]

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.numbers.size)

    @property
    def owner(self) -> bool:
        """Whether a pair can meet in several cells, so that only the one that owns it may give it."""
        return self.mode == "overlap"

    @property
    def splits_values(self) -> bool:
        """Whether some value is cut by the hash of its rows."""
        return bool((self.bounds.tie != LOWEST).any())

    def points(self, step: Step, hashes: Index, keys: Keys, ties: Index) -> tuple[Index, Index]:
        """(row, cell) for each cell that each point goes to."""
        if self.mode == "spread":
            return np.arange(hashes.size), ties.view(np.uint64).astype(np.int64) % self.cells
        start = routing_points(step.axes[self.axes[0]], keys) if self.axes else np.zeros_like(hashes)
        first = cells_of(self.bounds, hashes, start, ties)
        if self.mode == "axis":
            return np.arange(hashes.size), first
        end = routing_points(step.axes[self.axes[1]], keys)
        last = cells_of(self.bounds, hashes, np.maximum(start, end), HIGHEST)
        return spans(first, last)

    def boxes(self, step: Step, hashes: Index, keys: Keys) -> tuple[Index, Index]:
        """(row, cell) for each cell that each box goes to."""
        if self.mode == "spread":
            everywhere = np.full(hashes.size, self.cells - 1)
            return spans(np.zeros_like(everywhere), everywhere)
        if not self.axes:
            low, high = np.full(hashes.size, LOWEST), np.full(hashes.size, HIGHEST)
        elif self.mode == "axis":
            low, high = routing_boxes(step.axes[self.axes[0]], keys)
        else:
            _, high = routing_boxes(step.axes[self.axes[0]], keys)
            low, _ = routing_boxes(step.axes[self.axes[1]], keys)
            high = np.maximum(low, high)
        first = cells_of(self.bounds, hashes, low, LOWEST)
        last = cells_of(self.bounds, hashes, high, HIGHEST)
        return spans(first, last)

    def to_buffer(self) -> pa.Buffer:
        """The routing as bytes, for its way to the workers."""
        head = {"mode": self.mode, "axes": self.axes}
        return pack_cells(head, self.bounds, number=self.numbers, cost=self.cost)

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> Routing:
        """The inverse of :meth:`to_buffer`."""
        head, bounds, (number, cost) = unpack_cells(buffer)
        return cls(head["mode"], tuple(head["axes"]), bounds, number, cost)


def without_sample(step: Step, partitions: int) -> Routing:
    """A routing that knows nothing of the data: even slices of the key's hash, or points spread at random."""
    numbers = spark_hash.cell_numbers(np.arange(partitions), partitions)
    cost = np.ones(partitions)
    if not step.equalities:
        return Routing("spread", (), NO_BOUNDS, numbers, cost)
    return Routing("axis", (), hash_slices(partitions), numbers, cost)


@dataclass(frozen=True)
class CellOfTime:
    """The cell of each row in windows of time: rows of one window share a cell, and windows take turns.

    Examples
    --------
    >>> CellOfTime(every=10, cells=4)(pa.RecordBatch.from_pydict({"t": [-1, 0, 9, 45, None]})).tolist()
    [3, 0, 0, 0, 0]
    """

    every: int
    cells: int

    def __call__(self, rows: pa.RecordBatch) -> Index:
        """The time is the last column; rows without one match nothing, so any cell will do."""
        times = rows.column(rows.num_columns - 1)
        return np.where(valid_mask(times), windows_of(times, self.every) % self.cells, 0)


def windows_of(times: pa.Array[Any], every: int) -> Index:
    """The number of the window of each time, for windows of `every` microseconds."""
    return order_codes(times, "int") // every

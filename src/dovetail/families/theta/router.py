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

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.cells import Bounds, cells_of, loads, quantiles, spans
from dovetail.columns.codes import HIGHEST, LOWEST, Codes, order_codes, valid_mask
from dovetail.columns.encode import Keys, routing_boxes, routing_points
from dovetail.columns.segments import pack, unpack
from dovetail.conditions.comparison import Step
from dovetail.families.theta.kernel import Index

Mode = Literal["axis", "overlap", "spread"]

CELLS = 64
"""Cells of a stream in windows of time.  Stored state depends on the number, so it must not follow the session."""

CELL_ROWS = 200_000
"""Rows of both sides that a cell should hold: their keys then sort within a core's cache."""

FINE_CELLS, MOST_ROWS = 512, 400_000
"""From so many cells on they hold up to so many rows: every task cuts its rows into as many segments."""

CELL_BYTES = 64 << 20
"""Bytes of both sides that a cell should hold, as far as the schema tells; wide rows make smaller cells."""


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
        head = {"mode": self.mode, "axes": self.axes, "bounds": self.bounds.hash.size}
        # A batch has columns of one length; spread cells have no bounds at all.
        padded = [np.append(column, np.full(self.cells - column.size, LOWEST)) for column in self.bounds]
        columns = {
            "hash": padded[0],
            "value": padded[1],
            "tie": padded[2],
            "number": self.numbers,
            "cost": self.cost,
        }
        batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
        return pack(batch.replace_schema_metadata({"routing": json.dumps(head)}))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> Routing:
        """The inverse of :meth:`to_buffer`."""
        batch = unpack(buffer)
        head = json.loads(batch.schema.metadata[b"routing"])
        hashes, value, tie, number, cost = (column.to_numpy() for column in batch.columns)
        size = head["bounds"]
        bounds = Bounds(hashes[:size], value[:size], tie[:size])
        return cls(head["mode"], tuple(head["axes"]), bounds, number, cost)


def without_sample(step: Step, partitions: int) -> Routing:
    """A routing that knows nothing of the data: even slices of the key's hash, or points spread at random."""
    numbers = spark_hash.cell_numbers(np.arange(partitions), partitions)
    cost = np.ones(partitions)
    empty = np.empty(0, dtype=np.int64)
    if not step.equalities:
        return Routing("spread", (), Bounds(empty, empty, empty), numbers, cost)
    cuts = np.array([LOWEST + (c * (1 << 64)) // partitions for c in range(1, partitions)], dtype=np.int64)
    floor = np.full(cuts.size, LOWEST)
    return Routing("axis", (), Bounds(cuts, floor, floor), numbers, cost)


def fit(
    step: Step,
    points: Sample,
    boxes: Sample,
    *,
    partitions: int,
    may_copy_points: bool,
    widths: tuple[int, int] = (8, 8),
) -> Routing:
    """The cheapest routing for what the samples show.

    `may_copy_points` allows the overlap mode, which is wrong where an unmatched point must be reported once;
    `widths` are the bytes of a row of each side.
    """
    rows, size = points.rows + boxes.rows, points.rows * widths[0] + boxes.rows * widths[1]
    fine = min(int(np.ceil(rows / CELL_ROWS)), FINE_CELLS)
    cells = max(partitions, fine, int(np.ceil(rows / MOST_ROWS)), int(np.ceil(size / CELL_BYTES)))
    candidates: list[tuple[Mode, tuple[int, ...]]] = [("axis", (d,)) for d in range(len(step.axes))]
    if not candidates:
        candidates = [("axis", ())]
    if may_copy_points:
        candidates += [("overlap", pair) for pair in overlap_axes(step)]
    return min(
        (_fitted(mode, axes, points, boxes, cells, partitions) for mode, axes in candidates),
        key=lambda routing: float(routing.cost.sum()),
    )


def overlap_axes(step: Step) -> list[tuple[int, int]]:
    """Pairs of axes (start, end) that make both sides intervals: starts bounded above, ends bounded below."""
    upper = [d for d, axis in enumerate(step.axes) if axis.low is None]
    lower = [d for d, axis in enumerate(step.axes) if axis.high is None]
    same = [(s, e) for s in upper for e in lower if step.axes[s].kind == step.axes[e].kind != "rank"]
    return [
        (s, e) for s, e in same
        if step.point_keys[step.axes[s].point].ddl == step.point_keys[step.axes[e].point].ddl
    ]  # fmt: skip


def _fitted(mode: Mode, axes: tuple[int, ...], points: Sample, boxes: Sample, cells: int, partitions: int) -> Routing:
    point_start, point_end = _interval(mode, axes, points, of_points=True)
    box_start, box_end = _interval(mode, axes, boxes, of_points=False)
    anchor = np.where(box_start == LOWEST, box_end, box_start)
    # Sampled points get evenly spread ties, so that a frequent value shows where it can be cut.
    ties = np.random.default_rng(0).integers(LOWEST, HIGHEST, points.hash.size)
    bounds = quantiles(
        np.concatenate([points.hash, boxes.hash]),
        np.concatenate([point_start, anchor]),
        np.concatenate([ties, np.full(boxes.hash.size, LOWEST)]),
        np.concatenate([_weights(points), _weights(boxes)]),
        cells,
    )
    count = bounds.hash.size + 1
    first = cells_of(bounds, points.hash, point_start, ties)
    last = first if mode == "axis" else cells_of(bounds, points.hash, point_end, HIGHEST)
    box_first = cells_of(bounds, boxes.hash, box_start, LOWEST)
    box_last = cells_of(bounds, boxes.hash, box_end, HIGHEST)
    left = loads(first, last, _weights(points), count)
    right = loads(box_first, box_last, _weights(boxes), count)
    # A cell costs its rows, and its output where the sample can tell: a cell inside a box matches wholly on
    # this axis.
    around = loads(box_first + 1, box_last - 1, _weights(boxes), count)
    pairs = around * loads(first, first, _weights(points), count)
    cost = left + right + 0.5 * pairs
    numbers = spark_hash.cell_numbers(spark_hash.balance(cost, partitions), partitions)
    return Routing(mode, axes, bounds, numbers, cost)


def _interval(mode: Mode, axes: tuple[int, ...], sample: Sample, *, of_points: bool) -> tuple[Codes, Codes]:
    if not axes:
        size = sample.hash.size
        return (np.zeros(size, dtype=np.int64),) * 2 if of_points else (np.full(size, LOWEST), np.full(size, HIGHEST))
    if mode == "axis":
        return sample.low[axes[0]], sample.high[axes[0]]
    start, end = (axes[0], axes[1]) if of_points else (axes[1], axes[0])
    return sample.low[start], np.maximum(sample.low[start], sample.high[end])


def _weights(sample: Sample) -> npt.NDArray[np.float64]:
    size = sample.hash.size
    return np.full(size, sample.rows / size if size else 0.0)


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

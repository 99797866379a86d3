"""Where rows go: those that answer to one cell each, those that ask to the cells at the ends of their range.

Cells are consecutive ranges of the order (hash of the equality keys, value, hash of the row), as in
:mod:`dovetail.columns.cells`.  A row asks in the cells that its range touches in part, of which there are at most two.
Cells that its range covers as a whole are not asked: their totals are merged into its state afterwards, so that a row
which matches everything travels no further than one that matches little.  One of the cells is the *home* of the row,
where its own columns go and its partial states come together.

Where two axes bound the matches, or the order of a text is known only by its first bytes, no cell is covered as a
whole, and a row asks in every cell that it touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.cells import (
    NO_BOUNDS,
    Bounds,
    cells_of,
    hash_slices,
    loads,
    pack_cells,
    quantiles,
    spans,
    unpack_cells,
)
from dovetail.columns.codes import HIGHEST, LOWEST, Codes
from dovetail.columns.encode import Keys, routing_boxes, routing_points
from dovetail.conditions.comparison import Step
from dovetail.families.aggregate.compiled import Index

CELL_ROWS = 200_000
"""Rows of both sides that a cell should hold."""
MOST_CELLS = 512
"""More cells only where they would hold more than twice as many rows: tasks cut their rows into as many segments."""

MOST_COPIES = 32
"""Cells that each get all answering rows at most."""

Mode = Literal["order", "spread", "copied"]


class Visits(NamedTuple):
    """The rows that ask, once for each cell they visit, and what is known of each row."""

    rows: Index
    cells: Index
    home: Index
    """For each row the cell where its states come together; it visits that cell, or has no need to."""
    covered: Index
    """For each row the first cell that it covers as a whole ..."""
    beyond: Index
    """... and the one after the last."""


@dataclass(frozen=True)
class Sample:
    """A weighted sample of one side: hashes, and the range of codes on each axis (the same twice for points)."""

    hash: Index
    low: list[Codes]
    high: list[Codes]
    rows: float


@dataclass(frozen=True)
class Routing:
    """Bounds of cells, the axis that they cut, and the numbers by which Spark finds their tasks."""

    mode: Mode
    axis: int
    bounds: Bounds
    numbers: npt.NDArray[np.int32]

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.numbers.size)

    @property
    def splits_values(self) -> bool:
        """Whether rows are divided by their own hash."""
        return self.mode == "spread" or bool((self.bounds.tie != LOWEST).any())

    def points(self, step: Step, hashes: Index, keys: Keys, ties: Index) -> Index:
        """The cell of each answering row."""
        if self.mode == "spread":
            return modulo(ties, self.cells)
        values = routing_points(step.axes[self.axis], keys) if step.axes else np.zeros_like(hashes)
        return cells_of(self.bounds, hashes, values, ties)

    def boxes(self, step: Step, hashes: Index, keys: Keys, spread: Index, *, exhaustive: bool) -> Visits:
        """Where each asking row goes; `spread` are numbers that divide rows evenly which visit no cell."""
        anywhere = modulo(spread, self.cells)
        none = np.zeros(hashes.size, dtype=np.int64)
        if self.mode == "copied":
            return Visits(np.arange(hashes.size), anywhere, anywhere, none, none)
        if self.mode == "spread":
            rows, cells = spans(none, none + self.cells - 1)
            return Visits(rows, cells, anywhere, none, none)
        if step.axes:
            low, high = routing_boxes(step.axes[self.axis], keys)
        else:
            low, high = np.full(hashes.size, LOWEST), np.full(hashes.size, HIGHEST)
        first, last = cells_of(self.bounds, hashes, low, LOWEST), cells_of(self.bounds, hashes, high, HIGHEST)
        last = np.where(low > high, first - 1, last)
        if exhaustive:
            rows, cells = spans(first, last)
            return Visits(rows, cells, np.where(first <= last, first, anywhere), none, none)
        covered, beyond = self._covered(step, hashes, low, high)
        beyond = np.where(first <= last, np.maximum(covered, beyond), covered)
        full = covered < beyond
        # The touched cells before those that are covered, and those behind them.
        before = np.where(full, covered - 1, last)
        after = np.where(full, beyond, last + 1)
        rows, cells = _both(spans(first, before), spans(after, last))
        some = (first <= before) | (after <= last)
        # A range that is open below asks in its last cell: its first one is the same for all.
        end = np.where(after <= last, last, before)
        begin = np.where(first <= before, first, end)
        home = np.where(low == LOWEST, end, begin)
        return Visits(rows, cells, np.where(some, home, anywhere), covered, beyond)

    def place(self, hashes: Index, values: Codes, ties: Index | int) -> Index:
        """The cell of each (hash, value, tie)."""
        return cells_of(self.bounds, hashes, values, ties)

    def whole(self, step: Step) -> npt.NDArray[np.bool_]:
        """The cells that some range may cover as a whole: those of one hash."""
        if self.mode != "order":
            return np.zeros(self.cells, dtype=np.bool_)
        begin, end = self._ends(step)
        same = begin.hash == end.hash
        following = (begin.hash + 1 == end.hash) & (end.value == LOWEST) & (end.tie == LOWEST)
        found: npt.NDArray[np.bool_] = same | following
        return found

    def _ends(self, step: Step) -> tuple[Bounds, Bounds]:
        """The first row that each cell may hold, and the first that lies behind it."""
        # Without equality keys all hashes are 0.
        first = (LOWEST, LOWEST, LOWEST) if step.equalities else (0, LOWEST, LOWEST)
        last = (HIGHEST, HIGHEST, HIGHEST) if step.equalities else (1, LOWEST, LOWEST)
        begin, end = [], []
        for one, other, part in zip(first, last, self.bounds, strict=True):
            begin.append(np.concatenate([np.array([one], dtype=np.int64), part]))
            end.append(np.concatenate([part, np.array([other], dtype=np.int64)]))
        return Bounds(*begin), Bounds(*end)

    def _covered(self, step: Step, hashes: Index, low: Codes, high: Codes) -> tuple[Index, Index]:
        """The cells of which every row lies in the range: from the first, up to the one after the last."""
        begin, end = self._ends(step)
        # How many cells begin before the range, which is how many begin at or before the row just below it.
        covered = _before(begin, hashes, low)
        # The range ends before (hash, high + 1), or before the next hash.
        top = high == HIGHEST
        after_hash = np.where(top & (hashes < HIGHEST), hashes + 1, hashes)
        after_value = np.where(top, np.where(hashes < HIGHEST, LOWEST, HIGHEST), np.where(top, 0, high) + 1)
        beyond = cells_of(end, after_hash, after_value, LOWEST)
        return covered, beyond

    def to_buffer(self) -> pa.Buffer:
        """The routing as bytes, for its way to the workers."""
        return pack_cells({"mode": self.mode, "axis": self.axis}, self.bounds, number=self.numbers)

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> Routing:
        """The inverse of :meth:`to_buffer`."""
        head, bounds, (numbers,) = unpack_cells(buffer)
        return cls(head["mode"], head["axis"], bounds, numbers)


def modulo(numbers: Index, cells: int) -> Index:
    """A cell for each number, whatever its sign."""
    return (numbers.view(np.uint64) % np.uint64(cells)).astype(np.int64)


def _before(begin: Bounds, hashes: Index, values: Codes) -> Index:
    """How many cells begin before (hash, value, lowest tie)."""
    counted = cells_of(begin, hashes, values, LOWEST)
    # A cell that begins exactly there is counted, too.
    at = np.maximum(counted - 1, 0)
    exact = (begin.hash[at] == hashes) & (begin.value[at] == values) & (begin.tie[at] == LOWEST) & (counted > 0)
    strictly: Index = counted - exact
    return strictly


def _both(one: tuple[Index, Index], other: tuple[Index, Index]) -> tuple[Index, Index]:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def without_sample(step: Step, partitions: int) -> Routing:
    """A routing that knows nothing of the data: slices of the hash of the key, or answering rows spread at random."""
    numbers = spark_hash.cell_numbers(np.arange(partitions), partitions)
    if not step.equalities:
        return Routing("spread", 0, NO_BOUNDS, numbers)
    return Routing("order", 0, hash_slices(partitions), numbers)


def gathered(step: Step, partitions: int) -> Routing:
    """A routing by which all matches of a row are in one cell: by the keys, or else all answering rows everywhere."""
    if step.equalities:
        return without_sample(step, partitions)
    numbers = spark_hash.cell_numbers(np.arange(min(partitions, MOST_COPIES)), partitions)
    return Routing("copied", 0, NO_BOUNDS, numbers)


def fit(
    step: Step,
    points: Sample,
    boxes: Sample,
    *,
    partitions: int,
    exhaustive: bool,
    overlap: tuple[int, int] | None = None,
) -> Routing:
    """Cells of about equal work for what the samples show, cut along the axis that copies least.

    Of intervals that `overlap`, begins and ends lie in one order.
    """
    if overlap is not None:
        begins, ends = overlap
        low, high = boxes.low[ends], np.maximum(boxes.low[ends], boxes.high[begins])
        points = Sample(points.hash, [points.low[begins]], [points.low[begins]], points.rows)
        boxes = Sample(boxes.hash, [low], [high], boxes.rows)
    rows = points.rows + boxes.rows
    cells = max(partitions, min(int(np.ceil(rows / CELL_ROWS)), MOST_CELLS), int(np.ceil(rows / (2 * CELL_ROWS))))
    axes = range(len(points.low))
    fitted = [_fitted(step, axis, points, boxes, cells, partitions, exhaustive=exhaustive) for axis in axes]
    return min(fitted, key=lambda pair: pair[0])[1]


def _fitted(
    step: Step, axis: int, points: Sample, boxes: Sample, cells: int, partitions: int, *, exhaustive: bool
) -> tuple[float, Routing]:
    values, low, high = points.low[axis], boxes.low[axis], boxes.high[axis]
    weights = [np.full(side.hash.size, side.rows / max(1, side.hash.size)) for side in (points, boxes)]
    ties = np.random.default_rng(0).integers(LOWEST, HIGHEST, points.hash.size)
    bounds = quantiles(
        np.concatenate([points.hash, boxes.hash]),
        np.concatenate([values, np.where(low == LOWEST, high, low)]),
        np.concatenate([ties, np.full(boxes.hash.size, LOWEST)]),
        np.concatenate(weights),
        cells,
    )
    if step.equalities:
        bounds = _pure(bounds)
    count = bounds.hash.size + 1
    placed = cells_of(bounds, points.hash, values, ties)
    first, last = cells_of(bounds, boxes.hash, low, LOWEST), cells_of(bounds, boxes.hash, high, HIGHEST)
    cost = loads(placed, placed, weights[0], count)
    if exhaustive:
        cost += loads(first, last, weights[1], count)
    else:
        cost += loads(first, first, weights[1], count) + loads(last, last, weights[1], count)
    numbers = spark_hash.cell_numbers(spark_hash.balance(cost, partitions), partitions)
    return float(cost.sum()), Routing("order", axis, bounds, numbers)


def _pure(bounds: Bounds) -> Bounds:
    """The bounds, and where a hash is cut, further ones at its beginning and its end.

    Then a key lies in one cell, or all its cells are its own, and ranges that are open on one side cover those on that
    side.
    """
    known, times = np.unique(bounds.hash, return_counts=True)
    cut = known[times > 1]
    # A hash that is cut once fits into a cell: it need not be cut at all.
    inside = np.isin(bounds.hash, cut)
    behind = cut[cut < HIGHEST] + 1
    hashes = np.concatenate([bounds.hash, cut, behind])
    floor = np.full(hashes.size - bounds.hash.size, LOWEST)
    values = np.concatenate([np.where(inside, bounds.value, LOWEST), floor])
    ties = np.concatenate([np.where(inside, bounds.tie, LOWEST), floor])
    order = np.lexsort((ties, values, hashes))
    h, v, t = hashes[order], values[order], ties[order]
    distinct = np.ones(h.size, dtype=np.bool_)
    distinct[1:] = (h[1:] != h[:-1]) | (v[1:] != v[:-1]) | (t[1:] != t[:-1])
    return Bounds(h[distinct], v[distinct], t[distinct])

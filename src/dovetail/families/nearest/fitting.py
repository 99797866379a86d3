"""A routing of nearest joins, fitted to a sample of both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.encode import Keys
from dovetail.families.nearest.compiled import Index
from dovetail.families.nearest.router import Floats, Routing, within_space, without_sample
from dovetail.families.nearest.spec import NearestSpec

CELL_ROWS = 200_000
"""Rows of both sides that a cell should hold."""
MOST_CELLS = 512
"""More cells only where they would hold more than twice as many rows: tasks cut their rows into as many segments."""
MOST_POINTS = 1 << 16
"""Answering rows that travel with a routing at most."""
LEAST = 32
"""Sampled answering rows that a region has at least: with fewer, balls would be larger than regions."""
HEAVY = 1.5
"""A key is cut where it weighs this many times the average cell."""


@dataclass(frozen=True)
class Sample:
    """A sample of one side: hashes of the keys, places in the space of cells, keys, and how many rows it stands for."""

    hash: Index
    places: Floats
    keys: Keys
    rows: float


@dataclass
class _Cuts:
    """Nodes of the cuts through heavy keys, while they are made."""

    spec: NearestSpec
    average: float
    weights: tuple[float, float]
    """How many rows each asking and each answering row of the sample stands for."""
    axis: list[int] = field(default_factory=list)
    cut: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    """For each cell the work in it."""

    @property
    def least(self) -> int:
        """Sampled answering rows that a region has at least."""
        return least_points(self.spec)

    def divide(self, asking: Floats, answering: Floats, first: int) -> int:
        """Nodes for the rows of a heavy key, or a part of them; `first` is the number of the next cell."""
        node = len(self.axis)
        for part, value in ((self.axis, -1), (self.left, first), (self.right, 1)):
            part.append(value)
        self.cut.append(0.0)
        asks, answers = asking.shape[0] * self.weights[0], answering.shape[0] * self.weights[1]
        found = None
        if asks + answers > HEAVY * self.average and answering.shape[0] >= 2 * self.least:
            found = self._cut(asking, answering)
        if found is None:
            shared = max(1, min(MOST_CELLS, round(asks / max(self.average, answers))))
            self.right[node] = shared
            self.costs += [asks / shared + answers] * shared
            return node
        axis, cut = found
        self.axis[node], self.cut[node] = axis, cut
        for child, above in ((self.left, False), (self.right, True)):
            parts = [side[(side[:, axis] >= cut) == above] for side in (asking, answering)]
            child[node] = self.divide(parts[0], parts[1], len(self.costs))
        return node

    def _cut(self, asking: Floats, answering: Floats) -> tuple[int, float] | None:
        """The axis along which answering rows spread most, and the value that halves the rows of both sides."""
        for axis in np.argsort(-np.ptp(answering, axis=0), kind="stable").tolist():
            mine = np.sort(answering[:, axis])
            low, high = mine[self.least], mine[-self.least]
            both = np.concatenate([mine, asking[:, axis]])
            weights = np.repeat([self.weights[1], self.weights[0]], [mine.size, asking.shape[0]])
            order = np.argsort(both, kind="stable")
            total = np.cumsum(weights[order])
            middle = both[order[np.searchsorted(total, total[-1] / 2)]]
            cut = float(min(max(middle, low), high))
            if mine[0] < cut:
                return axis, cut
        return None


def least_points(spec: NearestSpec) -> int:
    """Sampled answering rows that a region has at least."""
    return max(LEAST, 4 * spec.k)


def cell_count(rows: float, partitions: int) -> int:
    """How many cells rows of both sides should be cut into."""
    return max(partitions, min(math.ceil(rows / CELL_ROWS), MOST_CELLS), math.ceil(rows / (2 * CELL_ROWS)))


def fit(spec: NearestSpec, asking: Sample, answering: Sample, *, partitions: int) -> Routing:
    """Slices of light keys and regions of heavy ones, each of about equal work, for what the samples show."""
    rows = asking.rows + answering.rows
    cells = cell_count(rows, partitions)
    weights = (
        asking.rows / max(1, asking.hash.size),
        answering.rows / max(1, answering.hash.size),
    )
    average = max(1.0, rows / cells)
    hashes = np.concatenate([asking.hash, answering.hash])
    both = np.repeat(weights, [asking.hash.size, answering.hash.size])
    names, numbered = np.unique(hashes, return_inverse=True)
    load = np.bincount(numbered, weights=both, minlength=names.size).astype(np.float64)
    is_heavy = load > HEAVY * average if spec.keys else np.ones(names.size, dtype=np.bool_)
    if not spec.keys and not names.size:
        return without_sample(spec, partitions)
    light: list[int] = []
    cuts = _Cuts(spec, average, weights)
    if spec.keys:
        light, cuts.costs = slices_of(names[~is_heavy], load[~is_heavy], average)
    heavy = names[is_heavy]
    roots = []
    for name in heavy.tolist():
        parts = [side.places[side.hash == name] for side in (asking, answering)]
        roots.append(cuts.divide(parts[0], parts[1], len(cuts.costs)))
    numbers = spark_hash.cell_numbers(spark_hash.balance(np.array(cuts.costs), partitions), partitions)
    return Routing(
        False, np.array(light, dtype=np.int64), heavy, np.array(roots, dtype=np.int64),
        np.array(cuts.axis, dtype=np.int64), np.array(cuts.cut, dtype=np.float64), np.array(cuts.left, dtype=np.int64),
        np.array(cuts.right, dtype=np.int64), numbers, _points(spec, answering, heavy),
    )  # fmt: skip


def slices_of(names: Index, load: Floats, average: float) -> tuple[list[int], list[float]]:
    """Hashes at which slices of light keys begin, and the work in each slice; there is always one."""
    total = np.cumsum(load)
    whole = float(total[-1]) if names.size else 0.0
    count = max(1, round(whole / average))
    at = np.unique(np.searchsorted(total, whole * np.arange(1, count) / count, side="right"))
    begins = [int(names[one]) for one in at.tolist() if 0 < one < names.size]
    ends = np.concatenate([[0], np.searchsorted(names, begins), [names.size]]).astype(np.int64)
    sums = np.concatenate([[0.0], total])
    return begins, (sums[ends[1:]] - sums[ends[:-1]]).tolist()


def _points(spec: NearestSpec, answering: Sample, heavy: Index) -> pa.RecordBatch:
    """The sampled answering rows of heavy keys, or as many of them as may travel."""
    rows = np.flatnonzero(np.isin(answering.hash, heavy) & within_space(answering.places))
    if rows.size > MOST_POINTS:
        rows = rows[np.linspace(0, rows.size - 1, MOST_POINTS).astype(np.int64)]
    chosen = rows
    columns: list[pa.Array[Any]] = [key.take(chosen) for key in answering.keys]
    columns += [pa.array(answering.places[rows, d]) for d in range(spec.dimensions)]
    return pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(columns))])

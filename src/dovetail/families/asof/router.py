"""Where the rows of an as-of join go.

The hash of its keys puts a row into a bucket (without keys there is one), and times may cut a bucket into slices.  Each
slice belongs to a cell; a left row goes to the cell of its slice, and nowhere else.  Its match may lie in another slice
of the bucket, but then it is the last right row of its key before the slice (or the first one behind it).  So every
task sends those of its own rows along: a few copies for each cut, and no cell has to wait for another.  Copies do
no harm, because a right row comes out only beside a left row that chose it.

A right join also gives the right rows that nobody chose, and the cell of its slice answers for a row.  If a left row
of another slice chose it, then so did the left row of that key that is nearest to the slice on that side: there is no
right row between the two, and that left row is nearer.  So tasks send that left row along as well, and the right row
nearest to the slice on that side, which tells whether it would be preferred.  A copy of a left row says what it chooses
and does not come out.  The argument fails in one case, which is not cut: without exact matches, the *nearest* row of a
left row may lie beyond a right row at its own time, which a nearer left row chooses
(:attr:`~.spec.AsofSpec.cuttable`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, cuts_passed
from dovetail.columns.numba_cache import njit
from dovetail.columns.segments import pack, unpack
from dovetail.columns.spark_hash import balance, cell_numbers
from dovetail.families.asof.compiled import Index
from dovetail.families.asof.encode import hashes_of

BUCKETS = 1024
"""Buckets where a sample has told which of them are heavy: the finer, the fewer keys are cut along with a heavy one."""

CELL_ROWS = 1 << 21
"""Rows of both sides that a cell should not exceed by much."""

CELL_BYTES = 256 << 20
"""Bytes that a cell should not exceed by much, as far as the schema tells: wide rows make smaller cells."""

_HEAVY = 1.5
"""A bucket is cut where it weighs this many times the average cell."""


@dataclass(frozen=True)
class Routing:
    """Buckets, their cuts, and the cells of their slices.

    The cuts of bucket b are ``cuts[offsets[b]:offsets[b + 1]]``, ascending: slice s of it holds the codes from its cut
    s - 1 up to, not including, its cut s.  The cell of that slice is ``cells[offsets[b] + b + s]``.
    """

    offsets: Index
    cuts: Codes
    cells: Index
    numbers: npt.NDArray[np.int32]
    """For each cell the number that Spark's hash sends to the cell's task."""

    @property
    def buckets(self) -> int:
        """How many buckets there are: a power of two, or as many as cells."""
        return self.offsets.size - 1

    def bucket_of(self, hashes: Index) -> Index:
        """The bucket of each hash."""
        return buckets_of(hashes, self.buckets)

    def slice_of(self, hashes: Index, codes: Codes) -> Index:
        """The number of each row's slice among all slices."""
        if self.buckets == 1:
            return cuts_passed(self.cuts, codes)
        return slices_of(hashes, codes, self.offsets, self.cuts)

    def to_buffer(self) -> pa.Buffer:
        """The routing as a segment of one row."""
        parts = [self.offsets, self.cuts, self.cells, self.numbers.astype(np.int64)]
        columns = [pa.array([values.tolist()], pa.list_(pa.int64())) for values in parts]
        return pack(pa.RecordBatch.from_arrays(columns, names=["offsets", "cuts", "cells", "numbers"]))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> Routing:
        """The inverse of :meth:`to_buffer`."""
        rows = unpack(buffer)
        offsets, cuts, cells, numbers = (np.array(rows.column(at)[0].as_py(), dtype=np.int64) for at in range(4))
        return cls(offsets, cuts, cells, numbers.astype(np.int32))


@njit(inline="always")
def _bucket(code: int, buckets: int) -> Any:  # pragma: no cover
    """The bucket of a hash: its upper half, scaled, since a division would take as long as all the rest."""
    return np.int64(((np.uint64(code) >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32))


@njit
def buckets_of(hashes: Index, buckets: int) -> Index:  # pragma: no cover
    """The bucket of each hash."""
    out = np.empty(hashes.size, dtype=np.int64)
    for i in range(hashes.size):
        out[i] = _bucket(hashes[i], buckets)
    return out


@njit
def slices_of(hashes: Index, codes: Codes, offsets: Index, cuts: Codes) -> Index:  # pragma: no cover
    """The slice of each row: how many cuts of its bucket are not above its code."""
    out = np.empty(codes.size, dtype=np.int64)
    for i in range(codes.size):
        b = _bucket(hashes[i], offsets.size - 1)
        low, high = offsets[b], offsets[b + 1]
        while low < high:
            middle = (low + high) >> 1
            if cuts[middle] <= codes[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low + b
    return out


def without_sample(keyed: bool, partitions: int) -> Routing:
    """Keys spread by their hash, each wholly in one cell; without keys all rows in one cell."""
    cells = max(partitions, min(4 * partitions, 64)) if keyed else 1
    offsets = np.zeros(cells + 1, dtype=np.int64)
    tasks = np.arange(cells, dtype=np.int64) % partitions
    return Routing(offsets, np.empty(0, dtype=np.int64), np.arange(cells), cell_numbers(tasks, partitions))


def fit(
    hashes: Index,
    codes: Codes,
    weights: npt.NDArray[np.float64],
    *,
    keyed: bool,
    partitions: int,
    cell_rows: int | None = None,
) -> Routing:
    """Cells of about equal weight: light buckets share one, a heavy bucket is cut by time.

    Parameters
    ----------
    hashes, codes, weights
        Sampled rows of both sides: hashes of their keys, codes of their times, how many rows they stand for.
    keyed
        Whether there are keys; without them all rows are in one bucket.
    partitions, cell_rows
        How many tasks there will be, and how many rows a cell should have at most.
    """
    count = BUCKETS if keyed else 1
    buckets = buckets_of(hashes, count)
    load = _loads(buckets, weights, count)
    wanted = max(2 * partitions, int(load.sum()) // (cell_rows or CELL_ROWS))
    average = max(1.0, float(load.sum()) / wanted)
    cuts: list[Codes] = []
    sizes = np.zeros(count, dtype=np.int64)
    for bucket in np.flatnonzero(load > _HEAVY * average).tolist():
        mine = buckets == bucket
        cut = quantiles(codes[mine], weights[mine], round(load[bucket] / average))
        sizes[bucket] = cut.size
        cuts.append(cut)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # Each slice of a cut bucket is a cell of its own; the whole buckets fill the cells that remain.
    slices = np.repeat(np.arange(count), sizes + 1)
    cut_slices = sizes[slices] > 0
    cells = np.empty(slices.size, dtype=np.int64)
    cells[cut_slices] = np.arange(int(cut_slices.sum()))
    whole = np.flatnonzero(~cut_slices)
    first = int(cut_slices.sum())
    rest = max(1, min(whole.size, wanted - first)) if whole.size else 0
    if rest:
        cells[whole] = first + balance(load[slices[whole]], rest)
    # The slices of a bucket weigh about the same.
    costs = _loads(cells, load[slices] / (sizes[slices] + 1), first + rest)
    all_cuts = np.concatenate(cuts) if cuts else np.empty(0, dtype=np.int64)
    return Routing(offsets, all_cuts, cells, cell_numbers(balance(costs, partitions), partitions))


def _loads(groups: Index, weights: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """The sum of the weights in each group."""
    return np.bincount(groups, weights, minlength=count).astype(np.float64)


def quantiles(codes: Codes, weights: npt.NDArray[np.float64], parts: int) -> Codes:
    """Ascending, distinct codes that cut weighted values into parts of about equal weight.

    Examples
    --------
    >>> quantiles(np.array([5, 1, 3, 7]), np.ones(4), 2).tolist()
    [5]
    """
    order = np.argsort(codes, kind="stable")
    summed = np.cumsum(weights[order])
    positions = np.searchsorted(summed, summed[-1] * np.arange(1, parts) / parts, side="right")
    cuts: Codes = np.unique(codes[order][np.minimum(positions, codes.size - 1)])
    return np.asarray(cuts[cuts > codes.min()], dtype=np.int64)


@njit
def nearest_in_slices(
    keys: Index, slices: Index, codes: Codes, bases: Index, sizes: Index, last: bool
) -> Index:  # pragma: no cover
    """Which rows are the last (or first) of their key in their slice; several, where times tie.

    `slices` counts slices within the bucket; ``bases[key]`` is where the slices of a key begin and ``sizes[key]`` how
    many there are.
    """
    total = bases[-1] + sizes[-1] if bases.size else 0
    best = np.empty(total, dtype=np.int64)
    seen = np.zeros(total, dtype=np.bool_)
    for i in range(codes.size):
        at = bases[keys[i]] + slices[i]
        if not seen[at] or (codes[i] > best[at] if last else codes[i] < best[at]):
            best[at], seen[at] = codes[i], True
    out = np.empty(codes.size, dtype=np.int64)
    found = 0
    for i in range(codes.size):
        if best[bases[keys[i]] + slices[i]] == codes[i]:
            out[found] = i
            found += 1
    return out[:found]


@njit
def passed_on(winners: Index, bases: Index, sizes: Index, last: bool) -> tuple[Index, Index]:  # pragma: no cover
    """For each slice of each key the winner of the nearest slice before it (or behind it) that has one.

    `winners` holds a row for each slice of each key, -1 for none.  Comes back as rows and the slices they go to.
    """
    rows = np.empty(winners.size, dtype=np.int64)
    to = np.empty(winners.size, dtype=np.int64)
    found = 0
    for key in range(bases.size):
        row = np.int64(-1)
        for step in range(sizes[key]):
            at = bases[key] + (step if last else sizes[key] - 1 - step)
            if row >= 0:
                rows[found], to[found] = row, at
                found += 1
            if winners[at] >= 0:
                row = winners[at]
    return rows[:found], to[:found]


@dataclass(frozen=True)
class CellOfKeys:
    """The cell of each row: rows with equal keys share one.

    Examples
    --------
    >>> cells = CellOfKeys((0,), 8)(pa.RecordBatch.from_pydict({"k": ["a", "b", "a"]}))
    >>> bool(cells[0] == cells[2])
    True
    """

    keys: tuple[int, ...]
    """The positions of the key columns."""
    cells: int

    def __call__(self, rows: pa.RecordBatch) -> Index:
        """Rows without a key match nothing, so any cell will do."""
        return buckets_of(hashes_of([rows.column(at) for at in self.keys], rows.num_rows), self.cells)

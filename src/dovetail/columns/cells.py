"""Cells as consecutive ranges of one order of rows, cut at quantiles of a sample.

Rows are ordered by (hash of the equality keys, value, hash of the row).  Without equality keys the hash is constant and
cells are ranges of values; with them, light keys share a cell and a heavy key is cut by value; a value too frequent for
one cell is cut by the hash of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import LOWEST, Codes, cuts_passed
from dovetail.columns.numba_cache import njit
from dovetail.columns.segments import pack, unpack

Index = npt.NDArray[np.int64]


class Bounds(NamedTuple):
    """Where cells begin, from the second on: three columns that compare as one."""

    hash: Index
    value: Index
    tie: Index


NO_BOUNDS = Bounds(*(np.empty(0, dtype=np.int64) for _ in range(3)))
"""The bounds of a single cell, or of cells that rows are spread over."""


def hash_slices(cells: int) -> Bounds:
    """Bounds that cut the range of hashes into so many even slices, whatever the data."""
    cuts = np.array([LOWEST + (cell * (1 << 64)) // cells for cell in range(1, cells)], dtype=np.int64)
    floor = np.full(cuts.size, LOWEST)
    return Bounds(cuts, floor, floor)


def pack_cells(head: Mapping[str, Any], bounds: Bounds, **columns: npt.NDArray[Any]) -> pa.Buffer:
    """A routing as bytes, for its way to the workers: its head, its bounds, and columns with a value for each cell."""
    cells = len(next(iter(columns.values())))
    # A batch has columns of one length, and there are fewer bounds than cells.
    padded = {name: np.append(c, np.full(cells - c.size, LOWEST)) for name, c in bounds._asdict().items()}
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in {**padded, **columns}.items()})
    return pack(batch.replace_schema_metadata({"routing": json.dumps({**head, "bounds": int(bounds.hash.size)})}))


def unpack_cells(buffer: pa.Buffer | bytes) -> tuple[dict[str, Any], Bounds, list[npt.NDArray[Any]]]:
    """The inverse of :func:`pack_cells`: the head, the bounds, and the columns in their order.

    Examples
    --------
    >>> head, bounds, (numbers,) = unpack_cells(pack_cells({"mode": "axis"}, hash_slices(2), number=np.array([4, 7])))
    >>> head["mode"], bounds.hash.tolist(), numbers.tolist()
    ('axis', [0], [4, 7])
    """
    batch = unpack(buffer)
    head = json.loads(batch.schema.metadata[b"routing"])
    hashes, values, ties, *columns = (column.to_numpy() for column in batch.columns)
    size = head["bounds"]
    return head, Bounds(hashes[:size], values[:size], ties[:size]), columns


def quantiles(hashes: Index, values: Codes, ties: Index, weights: npt.NDArray[np.float64], cells: int) -> Bounds:
    """Bounds that cut weighted rows into so many cells of about equal weight."""
    if hashes.size == 0 or cells <= 1:
        empty = np.empty(0, dtype=np.int64)
        return Bounds(empty, empty, empty)
    one_hash = (hashes == hashes[0]).all()  # without equality keys
    order = np.lexsort((ties, values) if one_hash else (ties, values, hashes))
    total = np.cumsum(weights[order])
    cuts = order[np.searchsorted(total, total[-1] * np.arange(1, cells) / cells)]
    h, v, t = hashes[cuts], values[cuts], ties[cuts]
    # A cut inside a value matters only if the value fills whole cells; else it would copy boxes for nothing.
    repeated = np.zeros(cuts.size, dtype=np.bool_)
    same = (h[1:] == h[:-1]) & (v[1:] == v[:-1])
    repeated[1:] |= same
    repeated[:-1] |= same
    t = np.where(repeated, t, LOWEST)
    distinct = np.ones(cuts.size, dtype=np.bool_)
    distinct[1:] = ~(same & (t[1:] == t[:-1]))
    return Bounds(h[distinct], v[distinct], t[distinct])


def loads(first: Index, last: Index, weights: npt.NDArray[np.float64], cells: int) -> npt.NDArray[np.float64]:
    """Total weight in each cell of rows that lie in all cells from first to last."""
    sane = first <= last
    change = np.zeros(cells + 1)
    np.add.at(change, first[sane], weights[sane])
    np.subtract.at(change, last[sane] + 1, weights[sane])
    return np.cumsum(change)[:cells].clip(min=0.0)


@njit
def located(
    bh: Index, bv: Index, bt: Index, hashes: Index, values: Codes, ties: Index
) -> Index:  # pragma: no cover - compiled
    """How many bounds begin at or before each (hash, value, tie)."""
    out = np.empty(hashes.size, dtype=np.int64)
    for k in range(hashes.size):
        h, v, t = hashes[k], values[k], ties[k]
        low, high = 0, bh.size
        while low < high:
            middle = (low + high) // 2
            if bh[middle] != h:
                before = bh[middle] < h
            elif bv[middle] != v:
                before = bv[middle] < v
            else:
                before = bt[middle] <= t
            if before:
                low = middle + 1
            else:
                high = middle
        out[k] = low
    return out


def cells_of(bounds: Bounds, hashes: Index, values: Codes, ties: Index | int) -> Index:
    """The cell of each (hash, value, tie): how many cells begin at or before it.  One tie serves all rows."""
    one_hash = bounds.value.size and (bounds.tie == LOWEST).all() and (bounds.hash == bounds.hash[0]).all()
    if one_hash and (hashes == bounds.hash[0]).all():
        # Without equality keys all hashes are alike, and the value alone decides.
        return cuts_passed(bounds.value, values)
    all_ties = ties if isinstance(ties, np.ndarray) else np.full(hashes.size, ties)
    return located(bounds.hash, bounds.value, bounds.tie, hashes, values, all_ties)


@njit
def spans(first: Index, last: Index) -> tuple[Index, Index]:  # pragma: no cover - compiled
    """(row, cell) for every cell from first to last of each row; rows with first > last have none."""
    total = 0
    for k in range(first.size):
        total += max(0, last[k] - first[k] + 1)
    rows = np.empty(total, dtype=np.int64)
    cells = np.empty(total, dtype=np.int64)
    at = 0
    for k in range(first.size):
        for cell in range(first[k], last[k] + 1):
            rows[at] = k
            cells[at] = cell
            at += 1
    return rows, cells

"""Where rows of an approximate join go, and how the cells share the memory.

Rows with one join value go to one cell, so every matching pair meets there and nowhere else.  Cells are strata: each
samples its own rows with its own part of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.columns.partition import parts_by_cell
from dovetail.families.approx.compiled import Index
from dovetail.families.approx.spec import FEWEST_RETURNED, ApproxSpec

WIDE_ROW = 1 << 14
"""A row of so many bytes should find a slot even in a cell that has few rows."""


def cells_of(hashes: Index, cells: int) -> Index:
    """The cell of each hash.

    Examples
    --------
    >>> cells_of(np.array([5, -1, 16]), 4).tolist()
    [1, 3, 0]
    """
    return np.mod(hashes, cells)


def rows_by_cell(rows: pa.RecordBatch, cells: Index, count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The cells that have rows, each with its rows in their order."""
    yield from parts_by_cell(rows, cells, count)


def budgets(memory: int, rows: Index, least: int, *, each: int = 1) -> Index:
    """Memory of each cell in proportion to its rows, so that a row has the same chance in every cell.

    A cell gets at least `least`, or `each` for every row if that is less.  The parts add up to `memory` at most.

    Examples
    --------
    >>> budgets(100, np.array([900, 90, 10, 0]), least=2).tolist()
    [89, 8, 2, 0]
    >>> budgets(100, np.array([40, 30]), least=2).tolist()
    [57, 42]
    >>> budgets(10_000, np.array([90, 8, 2]), least=1000, each=400).tolist()
    [8200, 1000, 800]
    """
    floor = np.array([min(int(count) * each, least) for count in rows], dtype=np.int64)
    if not rows.any() or int(floor.sum()) > memory:
        return np.full(rows.size, memory // max(1, rows.size), dtype=np.int64)
    small = np.zeros(rows.size, dtype=np.bool_)
    while True:
        rest, others = memory - int(floor[small].sum()), int(rows[~small].sum())
        # Python's whole numbers: the product of two large counts need not fit in 64 bits.
        parts = np.array([rest * int(count) // max(1, others) for count in rows], dtype=np.int64)
        parts[small] = floor[small]
        too_small = parts < floor
        if not too_small.any():
            return parts
        small |= too_small


def memory_shares(spec: ApproxSpec, rows: Index) -> Index:
    """The memory of each cell, where their rows have been counted: room for a row of each input at the very least."""
    assert spec.memory is not None
    if spec.memory.unit == "rows":
        return budgets(spec.memory.amount, rows, spec.sides)
    # How wide rows are is not known.  A cell with few rows gets enough for wide ones, up to half of an equal part.
    return budgets(spec.memory.amount, rows, spec.memory.amount // (2 * spec.cells), each=WIDE_ROW)


def result_shares(spec: ApproxSpec, rows: Index) -> Index:
    """How many results each cell may return, where their rows have been counted: two of them show how they differ."""
    assert spec.results is not None
    return budgets(spec.results, rows, FEWEST_RETURNED, each=FEWEST_RETURNED)

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


def budgets(memory: int, rows: Index, least: int) -> Index:
    """Memory of each cell in proportion to its rows, so that a row has the same chance in every cell.

    A cell gets at least `least`, or as much as it has rows.  The parts never add up to more than `memory`.

    Examples
    --------
    >>> budgets(100, np.array([900, 90, 10, 0]), least=2).tolist()
    [89, 9, 2, 0]
    >>> budgets(100, np.array([40, 30]), least=2).tolist()
    [57, 42]
    """
    total = int(rows.sum())
    floor = np.minimum(rows, least)
    if total == 0 or int(floor.sum()) > memory:
        return np.full(rows.size, memory // max(1, rows.size), dtype=np.int64)
    # Python's whole numbers: the product of two large counts need not fit in 64 bits.
    parts = np.array([memory * int(count) // total for count in rows], dtype=np.int64)
    if total <= memory:
        return parts
    parts += np.maximum(floor - parts, 0)
    # The large cells give up what the small ones were given, the largest first.
    excess = int(parts.sum()) - memory
    for cell in np.argsort(-parts, kind="stable"):
        if excess <= 0:
            break
        given_up = min(excess, max(0, int(parts[cell] - floor[cell]) // 2 + 1))
        parts[cell] -= given_up
        excess -= given_up
    return parts

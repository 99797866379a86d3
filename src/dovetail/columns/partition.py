"""Rows divided among cells.

A row may go to several cells, or to none.  Whoever routes rows lists pairs of a row number and the cell that the row
goes to; everything here puts such a list into the order of the cells in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import slots
from dovetail.columns.layout import CELL_NUMBER, COPIES, SEGMENT, TURN
from dovetail.columns.numba_cache import njit
from dovetail.columns.segments import binary_column, concat, pack, packed_column, take_unchecked, unpack

Index = npt.NDArray[np.int64]
_Row = TypeVar("_Row", np.int64, np.bool_)


@njit
def _bounds(cells: Index, count: int) -> Index:  # pragma: no cover - compiled
    bounds = np.zeros(count + 1, dtype=np.int64)
    for cell in cells:
        bounds[cell + 1] += 1
    for cell in range(count):
        bounds[cell + 1] += bounds[cell]
    return bounds


@njit
def _moved(values: npt.NDArray[Any], rows: Index, cells: Index, bounds: Index) -> Any:  # pragma: no cover - compiled
    free = bounds[:-1].copy()
    out = np.empty(cells.size, dtype=values.dtype)
    for k in range(cells.size):
        cell = cells[k]
        out[free[cell]] = values[rows[k]]
        free[cell] += 1
    return out


def group_by_cell(rows: npt.NDArray[_Row], cells: Index, count: int) -> tuple[npt.NDArray[_Row], Index]:
    """Rows in the order of the cells they go to, each cell's in their own; bounds[c] is where cell c begins.

    Examples
    --------
    >>> rows, bounds = group_by_cell(np.array([5, 6, 7]), np.array([1, 0, 1]), 2)
    >>> rows.tolist(), bounds.tolist()
    ([6, 5, 7], [0, 1, 3])
    """
    bounds = _bounds(cells, count)
    return _moved(rows, np.arange(cells.size), cells, bounds), bounds


def group_rows_by_cell(table: pa.RecordBatch, rows: Index, cells: Index, count: int) -> tuple[pa.RecordBatch, Index]:
    """What :func:`group_by_cell` gives, for the rows of a table by their numbers, which must be within.

    Examples
    --------
    >>> table = pa.RecordBatch.from_pydict({"x": [5, 6, 7], "y": ["a", "b", "c"]})
    >>> rows, bounds = group_rows_by_cell(table, np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), 2)
    >>> rows.to_pydict(), bounds.tolist()
    ({'x': [5, 7, 5, 6], 'y': ['a', 'c', 'a', 'b']}, [0, 2, 4])
    """
    bounds = _bounds(cells, count)
    columns = list(table.columns)
    others = []
    for at, column in enumerate(columns):
        kind = column.type
        if not pa.types.is_primitive(kind) or kind.bit_width not in (32, 64) or column.null_count:
            others.append(at)
            continue
        # To read in the order of the rows and write to one position for each cell takes 16 ns for a row of two columns,
        # to pick the rows of one cell after the other 40: cells are few, so all their positions are in the cache.
        values = slots(column, 1, np.int32 if kind.bit_width == 32 else np.int64)
        moved = memoryview(_moved(values, rows, cells, bounds))
        columns[at] = pa.Array.from_buffers(kind, cells.size, [None, pa.py_buffer(moved)])
    if others:
        ordered = take_unchecked(table.select(others), group_by_cell(rows, cells, count)[0])
        for at, column in zip(others, ordered.columns, strict=True):
            columns[at] = column
    return pa.RecordBatch.from_arrays(columns, schema=table.schema), bounds


def filled_cells(table: pa.RecordBatch, bounds: Index) -> tuple[Index, list[pa.RecordBatch]]:
    """The cells that have rows, and the rows of each, of a table in the order of its cells."""
    filled = np.flatnonzero(np.diff(bounds))
    return filled, [table.slice(bounds[cell], bounds[cell + 1] - bounds[cell]) for cell in filled]


def parts_by_cell(
    table: pa.RecordBatch, cells: Index, count: int | None = None, *, rows: Index | None = None
) -> list[tuple[int, pa.RecordBatch]]:
    """Each cell that has rows, in ascending order, with its rows in their own order.

    Parameters
    ----------
    table, cells
        The rows, and the cell of each.
    count
        Cells are numbered from 0 up to this; None for numbers of any size and sign.
    rows
        The numbers of the rows that `cells` speaks of; all of them once by default.

    Examples
    --------
    >>> table = pa.RecordBatch.from_pydict({"x": [5, 6, 7]})
    >>> [(cell, part.column("x").to_pylist()) for cell, part in parts_by_cell(table, np.array([9, -2, 9]))]
    [(-2, [6]), (9, [5, 7])]
    """
    if count is None:
        names, numbered = np.unique(cells, return_inverse=True)
    else:
        names, numbered = np.arange(count), cells
    if rows is None:
        rows = np.arange(cells.size)
    filled, parts = filled_cells(*group_rows_by_cell(table, rows, numbered, names.size))
    return list(zip(names[filled].tolist(), parts, strict=True))


def shuffle_batch(
    numbers: npt.NDArray[np.int32], turn: int, table: pa.RecordBatch, bounds: Index, copies: Index | None = None
) -> pa.RecordBatch:
    """One packed segment for each cell that has rows, with what the shuffle and the joining stage need to know of it.

    Parameters
    ----------
    numbers
        For each cell the number that Spark's hash sends to the cell's task.
    turn
        0 for the side that a cell holds, 1 for the side that passes by.
    table, bounds
        Rows in the order of their cells, as :func:`group_rows_by_cell` gives them.
    copies
        How many rows of each cell are copies, where that is counted.
    """
    filled, parts = filled_cells(table, bounds)
    copied = np.zeros(filled.size, dtype=np.int64) if copies is None else copies[filled]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers[filled], pa.int32()),
            pa.array(np.full(filled.size, turn), pa.int32()),
            pa.array(copied, pa.int64()),
            packed_column(parts),
        ],
        names=[CELL_NUMBER, TURN, COPIES, SEGMENT],
    )


def one_segment(number: int, turn: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as one segment for the cell of that number; they may be none, and have only something to tell."""
    columns: list[pa.Array[Any]] = [
        pa.array([number], pa.int32()), pa.array([turn], pa.int32()), pa.array([0], pa.int64()),
        binary_column([pack(rows)]),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, names=[CELL_NUMBER, TURN, COPIES, SEGMENT])


def segments_by_turn(
    batches: Iterable[pa.RecordBatch], turns: Sequence[int]
) -> tuple[int, list[pa.RecordBatch | None]]:
    """What :func:`shuffle_batch` sent to one cell: its note, and its rows of each turn; None for a turn without any."""
    held: dict[int, list[pa.RecordBatch]] = {turn: [] for turn in turns}
    note = 0
    for batch in batches:
        for at in range(batch.num_rows):
            note = batch.column(COPIES)[at].as_py()
            held[batch.column(TURN)[at].as_py()].append(unpack(batch.column(SEGMENT)[at].as_buffer()))
    return note, [concat(parts) if parts else None for parts in held.values()]

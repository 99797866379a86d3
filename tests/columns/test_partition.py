"""Rows divided among cells: whatever their types, as picking them one by one would give them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.partition import group_rows_by_cell, parts_by_cell

TYPES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.duration("us"), pa.decimal128(21, 2), pa.string(), pa.list_(pa.int64()),
    pa.struct([pa.field("x", pa.int32(), nullable=False)]), pa.null(),
]  # fmt: skip


def column(kind: pa.DataType, count: int, *, nulls: bool) -> pa.Array:
    """Some values of a type, every third NULL if there are to be any; a part of a longer column."""
    longer = pa.array(np.arange(count + 2) % 100)
    if pa.types.is_boolean(kind):
        values = pa.array((np.arange(count + 2) % 3 == 0).tolist())
    elif pa.types.is_list(kind):
        values = pa.array([[one, one] for one in range(count + 2)], kind)
    elif pa.types.is_struct(kind):
        values = pa.StructArray.from_arrays([longer.cast(pa.int32())], fields=list(kind))
    elif pa.types.is_null(kind):
        values = pa.nulls(count + 2)
    else:
        values = (longer.cast(pa.int32()) if pa.types.is_date(kind) else longer).cast(kind)
    if nulls and not pa.types.is_struct(kind):
        values = pa.array([None if at % 3 == 0 else one for at, one in enumerate(values.to_pylist())], kind)
    return values.slice(1, count)


@given(data=st.data(), nulls=st.booleans(), count=st.integers(0, 9), cells=st.integers(1, 5))
def test_every_type_comes_out_as_if_picked_row_by_row(data, nulls, count, cells):
    table = pa.RecordBatch.from_arrays([column(kind, count, nulls=nulls) for kind in TYPES], names=[*map(str, TYPES)])
    place = st.tuples(st.integers(0, count - 1), st.integers(0, cells - 1))
    places = data.draw(st.lists(place, max_size=20)) if count else []
    rows, homes = (np.array([one[at] for one in places], dtype=np.int64) for at in (0, 1))
    found, bounds = group_rows_by_cell(table, rows, homes, cells)
    wanted = [row for cell in range(cells) for row, home in places if home == cell]
    assert found.equals(table.take(pa.array(wanted, pa.int64())))
    assert bounds.tolist() == [sum(home < cell for _, home in places) for cell in range(cells + 1)]


@pytest.mark.parametrize("value", [float("nan"), -0.0, float("-inf")])
def test_odd_numbers_keep_their_bits(value):
    table = pa.RecordBatch.from_pydict({"x": pa.array([1.0, value])})
    found, _ = group_rows_by_cell(table, np.array([1, 0]), np.array([0, 1]), 2)
    assert found.column("x").to_numpy().tobytes() == np.array([value, 1.0]).tobytes()


@given(cells=st.lists(st.integers(-3, 3), max_size=20), dense=st.booleans(), data=st.data())
def test_parts_are_the_rows_of_each_cell_in_their_order(cells, dense, data):
    cells = [abs(cell) for cell in cells] if dense else cells
    table = pa.RecordBatch.from_pydict({"x": pa.array(range(len(cells)), pa.int64())})
    rows = data.draw(st.none() | st.permutations(range(len(cells))))
    parts = parts_by_cell(
        table, np.array(cells, dtype=np.int64), 4 if dense else None,
        rows=None if rows is None else np.array(rows, dtype=np.int64),
    )  # fmt: skip
    order = range(len(cells)) if rows is None else rows
    wanted = {
        home: [row for row, cell in zip(order, cells, strict=True) if cell == home] for home in sorted(set(cells))
    }
    assert [(cell, part.column("x").to_pylist()) for cell, part in parts] == list(wanted.items())

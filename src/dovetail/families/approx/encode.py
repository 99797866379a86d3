"""Columns of a call as the numbers that the compiled loops compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import order_codes
from dovetail.columns.encode import Keys, encode
from dovetail.conditions.comparison import Kind
from dovetail.families.approx.compiled import Axes, Index
from dovetail.families.approx.spec import Edge


def join_values(kinds: Sequence[Kind], sides: Sequence[Keys]) -> Index:
    """Numbers 0, 1, 2 ... for the join values of all rows of all inputs, one input after the other.

    Examples
    --------
    >>> left, right = [pa.array(["a", "a"]), pa.array([1, 2])], [pa.array(["a"]), pa.array([2])]
    >>> join_values(("rank", "int"), [left, right]).tolist()
    [0, 1, 1]
    """
    numbers: Index | None = None
    for at, kind in enumerate(kinds):
        column = pa.concat_arrays([keys[at] for keys in sides])
        codes = column if kind == "rank" else pa.array(order_codes(column, kind))
        dense = codes.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers is None:
            numbers = dense
        else:
            # Both are below the number of rows, so the product fits.
            pairs = pa.array(numbers * (int(dense.max(initial=0)) + 1) + dense)
            numbers = pairs.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    assert numbers is not None
    return numbers


def axes_of(edges: Sequence[Edge], sides: Sequence[Sequence[Keys]], begin: Index) -> Axes:
    """Comparisons of all edges; ``sides[e]`` holds the key columns of the points and of the boxes of edge `e`."""
    rows = int(begin[-1])
    count = sum(len(edge.step.axes) + bool(edge.step.equalities) for edge in edges)
    coordinate, low, high = (np.zeros((count, rows), dtype=np.int64) for _ in range(3))
    point, box = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    d = 0
    for edge, (point_keys, box_keys) in zip(edges, sides, strict=True):
        points, boxes = encode(edge.step, list(point_keys), list(box_keys))
        point_rows = slice(begin[edge.point], begin[edge.point + 1])
        box_rows = slice(begin[edge.box], begin[edge.box + 1])
        for axis in range(len(edge.step.axes)):
            coordinate[d, point_rows] = points.coordinates[axis]
            low[d, box_rows], high[d, box_rows] = boxes.low[axis], boxes.high[axis]
            point[d], box[d] = edge.point, edge.box
            d += 1
        if edge.step.equalities:
            # An equality that not all inputs share is a range of one value.
            coordinate[d, point_rows] = points.numbers
            low[d, box_rows] = high[d, box_rows] = boxes.numbers
            point[d], box[d] = edge.point, edge.box
            d += 1
    return Axes(point, box, coordinate, low, high)


def row_bytes(columns: Sequence[pa.Array[Any]]) -> Index:
    """How many bytes of Arrow data each row takes, all columns together.

    Examples
    --------
    >>> row_bytes([pa.array([1, 2]), pa.array(["", "four"])]).tolist()
    [12, 16]
    """
    total = np.zeros(len(columns[0]), dtype=np.int64) if columns else np.zeros(0, dtype=np.int64)
    for column in columns:
        total += _sizes(column)
    return total


def least_bytes(kinds: Sequence[pa.DataType], *, text: int = 0) -> int:
    """How many bytes a row of columns of these types takes at least, where texts, lists and maps take `text` bytes.

    Examples
    --------
    >>> least_bytes([pa.int64(), pa.string(), pa.struct({"a": pa.int16(), "b": pa.list_(pa.int64())})])
    18
    """
    total = 0
    for kind in kinds:
        if pa.types.is_boolean(kind) or pa.types.is_null(kind):
            total += 1
        elif pa.types.is_struct(kind):
            total += max(1, least_bytes([kind.field(at).type for at in range(kind.num_fields)], text=text))
        elif pa.types.is_nested(kind) or _is_text(kind):
            total += 4 + text
        else:
            total += max(1, kind.bit_width // 8)
    return total


def _sizes(column: Any) -> Index:
    kind, rows = column.type, len(column)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return np.ones(rows, dtype=np.int64)
    if pa.types.is_struct(kind):
        return row_bytes(column.flatten()) if kind.num_fields else np.ones(rows, dtype=np.int64)
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_sizes(column)
    if _is_text(kind):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths.astype(np.int64) + 4)
    return np.full(rows, max(1, kind.bit_width // 8), dtype=np.int64)


def _is_text(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in texts)


def _list_sizes(column: Any) -> Index:
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    inner = row_bytes([column.keys, column.items] if pa.types.is_map(column.type) else [column.values])
    ends = np.concatenate([[0], np.cumsum(inner)])
    return np.asarray(ends[offsets[1:]] - ends[offsets[:-1]] + 4)

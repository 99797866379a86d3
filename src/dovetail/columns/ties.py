"""The order of whole rows, by their columns from left to right: what decides where nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, joint_codes, order_codes, valid_mask
from dovetail.conditions.comparison import Kind

Column: TypeAlias = "pa.Array[Any]"
Index = npt.NDArray[np.int64]


def content_ranks(columns: Sequence[Column], size: int) -> Index:
    """The rank of each row in the order of these columns, from left to right; equal rows share one.

    NULL comes first and NaN last, as where Spark sorts; types without an order decide nothing.

    Examples
    --------
    >>> content_ranks([pa.array([2, 1, None, 1]), pa.array(["a", "b", "c", "a"])], 4).tolist()
    [3, 2, 0, 1]
    """
    levels = [codes for column in columns for codes in tie_levels(column)]
    ranks = np.zeros(size, dtype=np.int64)
    if levels and size:
        order = np.lexsort(levels[::-1])
        changes = np.zeros(size, dtype=np.bool_)
        for codes in levels:
            ordered = codes[order]
            changes[1:] |= ordered[1:] != ordered[:-1]
        ranks[order] = np.cumsum(changes)
    return ranks


def tie_levels(column: Column) -> list[Codes]:
    """The codes that order a column; where there are NULLs, first whether a row is none."""
    kind = tie_kind(column.type)
    if kind is None:
        return []
    codes = joint_codes(column, column.slice(0, 0))[0] if kind == "rank" else order_codes(column, kind)
    if not column.null_count:
        return [codes]
    valid = valid_mask(column)
    return [valid.astype(np.int64), np.where(valid, codes, 0)]


def tie_kind(kind: pa.DataType) -> Kind | None:
    """The kind of code that orders a column; None for types without an order of their own.

    Examples
    --------
    >>> tie_kind(pa.int8()), tie_kind(pa.string()), tie_kind(pa.list_(pa.int8()))
    ('int', 'rank', None)
    """
    if pa.types.is_float32(kind):
        return "float32"
    if pa.types.is_float64(kind):
        return "float64"
    if pa.types.is_decimal128(kind):
        return "int" if kind.precision <= 18 else "rank"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if any(test(kind) for test in text):
        return "rank"
    whole_numbers = (
        pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time,
        pa.types.is_duration,
    )  # fmt: skip
    return "int" if any(test(kind) for test in whole_numbers) else None

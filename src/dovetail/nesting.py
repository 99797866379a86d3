"""Flat columns as the structs that a user sees, one for each alias.

Kernels know flat columns.  Spark could nest them, but it would write every row once more to do so; here nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Nested:
    """A struct: its name, its fields, each with the flat column or the struct that holds it.

    Where the flat column `present` is false, the whole struct is NULL.
    """

    name: str
    fields: tuple[tuple[str, str | Nested], ...]
    present: str | None = None


def nest(rows: pa.RecordBatch, shape: Sequence[Nested]) -> pa.RecordBatch:
    """The structs of a shape.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"c0": [1, 2], "d0": [3, None], "b": [True, False]})
    >>> shape = [Nested("R", (("id", "c0"),)), Nested("S", (("id", "d0"),), present="b")]
    >>> nest(rows, shape).to_pylist()
    [{'R': {'id': 1}, 'S': {'id': 3}}, {'R': {'id': 2}, 'S': None}]
    """
    return pa.RecordBatch.from_arrays([_struct(rows, one) for one in shape], names=[one.name for one in shape])


def _struct(rows: pa.RecordBatch, shape: Nested) -> pa.Array[Any]:
    parts = [rows.column(part) if isinstance(part, str) else _struct(rows, part) for _, part in shape.fields]
    mask = None
    if shape.present is not None:
        there = rows.column(shape.present).to_numpy(zero_copy_only=False)
        mask = None if there.all() else pa.array(np.logical_not(there))
    return pa.StructArray.from_arrays(parts, names=[name for name, _ in shape.fields], mask=mask)

"""Flat columns as the structs that a user sees, one for each alias.

Kernels know flat columns.  Spark could nest them, but it would write every row once more to do so; here nothing moves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


def nest(rows: pa.RecordBatch, shape: Sequence[Nested], never_null: Collection[str] | None = None) -> pa.RecordBatch:
    """The structs of a shape, where some flat columns are known to have no NULL.

    None says that anything may be NULL, structs too: the types then have to say so, or Spark refuses them.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"c0": [1, 2], "d0": [3, None], "b": [True, False]})
    >>> shape = [Nested("R", (("id", "c0"),)), Nested("S", (("id", "d0"),), present="b")]
    >>> nest(rows, shape).to_pylist()
    [{'R': {'id': 1}, 'S': {'id': 3}}, {'R': {'id': 2}, 'S': None}]
    """
    return pa.RecordBatch.from_arrays(
        [_struct(rows, one, never_null) for one in shape], names=[one.name for one in shape]
    )


def nullable(part: str | Nested, never_null: Collection[str] | None) -> bool:
    """Whether a flat column or a struct may be NULL; with None, anything may."""
    if never_null is None:
        return True
    return part not in never_null if isinstance(part, str) else part.present is not None


def _struct(rows: pa.RecordBatch, shape: Nested, never_null: Collection[str] | None) -> pa.Array[Any]:
    parts, fields = [], []
    for name, part in shape.fields:
        parts.append(rows.column(part) if isinstance(part, str) else _struct(rows, part, never_null))
        fields.append(pa.field(name, parts[-1].type, nullable=nullable(part, never_null)))
    mask = None
    if shape.present is not None:
        there = rows.column(shape.present).to_numpy(zero_copy_only=False)
        mask = None if there.all() else pa.array(np.logical_not(there))
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)

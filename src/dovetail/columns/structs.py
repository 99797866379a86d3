"""Flat columns as the structs that a user sees, one for each alias.

Kernels know flat columns.  Spark could nest them, but would write every row once more to do so; here no value moves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Nested:
    """The shape of a struct: its name, and its fields, each with the flat column or the struct that holds it.

    Where the flat column `present` is false, the whole struct is NULL.
    """

    name: str
    fields: tuple[tuple[str, str | Nested], ...]
    present: str | None = None


def nest(rows: pa.RecordBatch, shape: Sequence[Nested], never_null: Collection[str] | None = None) -> pa.RecordBatch:
    """Flat columns as the structs of a shape; the flat columns in `never_null` are known to have no NULL.

    None says that anything may be NULL, structs too: the types must then say so, or Spark refuses them.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"c0": [1, 2], "d0": [3, None], "b": [True, False]})
    >>> shape = [Nested("R", (("id", "c0"),)), Nested("S", (("id", "d0"),), present="b")]
    >>> nest(rows, shape).to_pylist()
    [{'R': {'id': 1}, 'S': {'id': 3}}, {'R': {'id': 2}, 'S': None}]
    """
    return pa.RecordBatch.from_arrays(
        [_struct(rows, struct, never_null) for struct in shape], names=[struct.name for struct in shape]
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
        present = rows.column(shape.present).to_numpy(zero_copy_only=False)
        mask = None if present.all() else pa.array(np.logical_not(present))
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)

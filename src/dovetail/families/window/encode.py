"""Rows of an input as numbers: times, equality classes, and one range per condition.

A condition between two inputs holds where their ranges overlap.  A point is a range of one code, so the same test
serves whichever input is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, Mask, order_codes, valid_mask
from dovetail.columns.encode import Keys, box_range
from dovetail.columns.hashing import row_hashes
from dovetail.columns.numba_cache import njit
from dovetail.conditions.comparison import Kind
from dovetail.families.window.spec import WindowJoinSpec, time_codes

Index: TypeAlias = npt.NDArray[np.int64]
SLICE = "slice"
"""The column with the number of a row's slice, behind all others, where the join has a grid."""


@dataclass(frozen=True)
class Encoded:
    """Rows in numbers.  `low` and `high` are keyed by condition: ("q", class), ("e", equality), ("c", comparison)."""

    times: Index
    low: dict[tuple[str, int], Codes]
    high: dict[tuple[str, int], Codes]
    group: Codes
    """A code that equal keys of all classes share; unequal keys may share it only where there are several classes."""

    def __len__(self) -> int:
        return int(self.times.size)


def key_arrays(spec: WindowJoinSpec, side: int, rows: pa.RecordBatch) -> Keys:
    """The key columns of an input, from its payload or behind it."""
    keys: Keys = []
    behind = spec.payload[side]
    for source in spec.sources[side]:
        if source is None:
            keys.append(rows.column(behind))
            behind += 1
        else:
            keys.append(rows.column(source))
    return keys


def usable_rows(spec: WindowJoinSpec, side: int, rows: pa.RecordBatch) -> Mask:
    """Rows that may match: those with a time and all keys."""
    mask = valid_mask(rows.column(spec.times[side])).copy()
    for key in key_arrays(spec, side, rows):
        if key.null_count:
            mask &= valid_mask(key)
    return mask


def equality_codes(key: pa.Array[Any], kind: Kind) -> Codes:
    """Codes that equal values share; only texts and wide decimals may share them otherwise."""
    if kind != "rank":
        return order_codes(key, kind)
    if pa.types.is_decimal(key.type):
        key = key.cast(pa.string())
    return row_hashes(pa.RecordBatch.from_arrays([key], names=["k"]), 1)


def encode_rows(spec: WindowJoinSpec, side: int, rows: pa.RecordBatch) -> Encoded:
    """Usable rows in numbers."""
    keys = key_arrays(spec, side, rows)
    times = time_codes(rows.column(spec.times[side]))
    low: dict[tuple[str, int], Codes] = {}
    high: dict[tuple[str, int], Codes] = {}
    for at, found in enumerate(spec.classes):
        low["q", at] = high["q", at] = equality_codes(keys[found.members[side]], found.kind)
    for at, equality in enumerate(spec.equalities):
        if side in equality.sides:
            key = keys[equality.keys[equality.sides.index(side)]]
            low["e", at] = high["e", at] = equality_codes(key, equality.kind)
    for at, comparison in enumerate(spec.comparisons):
        if comparison.axis.kind == "rank":
            continue  # texts and wide decimals have no code of their own: matches are checked one by one
        if side == comparison.point_side:
            low["c", at] = high["c", at] = order_codes(keys[comparison.axis.point], comparison.axis.kind)
        elif side == comparison.box_side:
            low["c", at], high["c", at] = box_range(comparison.axis, keys)
    if spec.grid is not None:
        low["s", 0] = high["s", 0] = order_codes(rows.column(SLICE), "int")
    return Encoded(times, low, high, group_codes([low["q", at] for at in range(len(spec.classes))], times.size))


def group_codes(classes: list[Codes], size: int) -> Codes:
    """One code for all classes: the code itself where there is one class, else a hash."""
    if not classes:
        return np.zeros(size, dtype=np.int64)
    group = classes[0]
    for codes in classes[1:]:
        group = _mixed(group, codes)
    return group


@njit
def _mixed(one: Codes, other: Codes) -> Codes:  # pragma: no cover - compiled
    out = np.empty(one.size, dtype=np.int64)
    for i in range(one.size):
        value = np.uint64(one[i]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(other[i])
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = np.int64(value ^ (value >> np.uint64(31)))
    return out


def code_values(codes: Codes, kind: Kind) -> npt.NDArray[np.float64]:
    """Codes as numbers on a line.  Order is kept, though neighbours among large integers may fall together.

    Examples
    --------
    >>> code_values(order_codes(pa.array([-1.5, 0.25]), "float64"), "float64").tolist()
    [-1.5, 0.25]
    """
    if kind == "int":
        return codes.astype(np.float64)
    if kind == "float32":
        small = np.clip(codes, -(1 << 31), (1 << 31) - 1).astype(np.int32)
        bits = np.where(small < 0, small ^ np.int32(0x7FFF_FFFF), small).astype(np.int32)
        values: npt.NDArray[np.float64] = bits.view(np.float32).astype(np.float64)
        return values
    wide = np.where(codes < 0, codes ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), codes)
    return wide.view(np.float64)


FARTHEST = float(1 << 53)


def buckets(values: npt.NDArray[np.float64], width: float) -> Codes:
    """Numbers of buckets of equal width; they never fall as values rise, NaN is past the last."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.floor(values / width)
        numbers = np.where(np.isnan(values), FARTHEST, np.clip(numbers, -FARTHEST, FARTHEST))
    return numbers.astype(np.int64)

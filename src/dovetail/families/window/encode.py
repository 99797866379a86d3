"""Rows of an input as numbers: times, equality classes, and one range per condition.

A condition between two inputs holds where their ranges overlap.  A point is a range of one code, so the same test
serves whichever input is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, Mask, order_codes, valid_mask
from dovetail.columns.encode import Keys, box_range
from dovetail.columns.hashing import GOLDEN, mixed, row_hashes
from dovetail.columns.layout import KEY, SLICE
from dovetail.columns.numba_cache import njit
from dovetail.conditions.comparison import Kind
from dovetail.families.window.spec import WindowJoinSpec

Index: TypeAlias = npt.NDArray[np.int64]

_DAY = 86_400_000_000


class ConditionKey(NamedTuple):
    """A condition of a join by its kind and its number in the spec; a join has at most one grid of slices."""

    kind: Literal["class", "equality", "comparison", "slice"]
    number: int = 0


SAME_SLICE = ConditionKey("slice")
"""Rows of different slices of the grid do not match."""


@dataclass(frozen=True)
class Encoded:
    """Rows in numbers, with a range of codes for every condition that concerns their input."""

    times: Index
    low: dict[ConditionKey, Codes]
    high: dict[ConditionKey, Codes]
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
    """Rows that may match: those with a time and all keys that a match needs."""
    mask = valid_mask(rows.column(spec.times[side])).copy()
    keys = key_arrays(spec, side, rows)
    for number in spec.needed_keys[side]:
        if keys[number].null_count:
            mask &= valid_mask(keys[number])
    return mask


def completable_rows(spec: WindowJoinSpec, side: int, extra: int, rows: pa.RecordBatch) -> Mask | None:
    """Rows of a core input that have all keys which tie them to an extra input; None for all."""
    keys = key_arrays(spec, side, rows)
    mask: Mask | None = None
    for number in spec.keys_with(side, extra):
        if keys[number].null_count:
            valid = valid_mask(keys[number])
            mask = valid if mask is None else mask & valid
    return mask


def time_codes(column: pa.Array) -> npt.NDArray[np.int64]:  # type: ignore[type-arg]
    """Times as whole numbers: microseconds for timestamps and dates, the number itself for integers.

    Examples
    --------
    >>> from datetime import date
    >>> time_codes(pa.array([date(1970, 1, 2)])).tolist()
    [86400000000]
    """
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) * np.int64(_DAY)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    else:
        column = column.cast(pa.int64())
    values: npt.NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def equality_codes(key: pa.Array[Any], kind: Kind) -> Codes:
    """Codes that equal values share; only texts and wide decimals may share them otherwise."""
    if kind != "rank":
        return order_codes(key, kind)
    if pa.types.is_decimal(key.type):
        key = key.cast(pa.string())
    return row_hashes(pa.RecordBatch.from_arrays([key], names=[KEY]), 1)


def encode_rows(spec: WindowJoinSpec, side: int, rows: pa.RecordBatch) -> Encoded:
    """Usable rows in numbers."""
    keys = key_arrays(spec, side, rows)
    times = time_codes(rows.column(spec.times[side]))
    low: dict[ConditionKey, Codes] = {}
    high: dict[ConditionKey, Codes] = {}
    classes: list[Codes] = []
    for number, equal in enumerate(spec.classes):
        classes.append(equality_codes(keys[equal.members[side]], equal.kind))
        condition = ConditionKey("class", number)
        low[condition] = high[condition] = classes[-1]
    for number, equality in enumerate(spec.equalities):
        if side in equality.sides:
            key = keys[equality.keys[equality.sides.index(side)]]
            condition = ConditionKey("equality", number)
            low[condition] = high[condition] = equality_codes(key, equality.kind)
    for number, comparison in enumerate(spec.comparisons):
        if comparison.axis.kind == "rank":
            continue  # texts and wide decimals have no code of their own: matches are checked one by one
        condition = ConditionKey("comparison", number)
        if side == comparison.point_side:
            low[condition] = high[condition] = order_codes(keys[comparison.axis.point], comparison.axis.kind)
        elif side == comparison.box_side:
            low[condition], high[condition] = box_range(comparison.axis, keys)
    if spec.grid is not None:
        low[SAME_SLICE] = high[SAME_SLICE] = order_codes(rows.column(SLICE), "int")
    return Encoded(times, low, high, group_codes(classes, times.size))


def group_codes(classes: list[Codes], size: int) -> Codes:
    """One code for all classes: the code itself where there is one class, else a hash."""
    if not classes:
        return np.zeros(size, dtype=np.int64)
    group = classes[0]
    for codes in classes[1:]:
        group = _combined(group, codes)
    return group


@njit
def _combined(one: Codes, other: Codes) -> Codes:  # pragma: no cover - compiled
    out = np.empty(one.size, dtype=np.int64)
    for i in range(one.size):
        out[i] = np.int64(mixed(np.uint64(one[i]) * GOLDEN + np.uint64(other[i])))
    return out


def shifted(times: Index, by: int) -> Index:
    """Times moved by the end of a window; those that would leave 64 bits stop at the last number."""
    with np.errstate(over="ignore"):
        moved = times + np.int64(by)
    if by > 0:
        moved[moved < times] = np.iinfo(np.int64).max
    elif by < 0:
        moved[moved > times] = np.iinfo(np.int64).min
    return moved


FARTHEST = float(1 << 53)


def buckets(values: npt.NDArray[np.float64], width: float) -> Codes:
    """Numbers of buckets of equal width; they never fall as values rise, NaN is past the last."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.floor(values / width)
        numbers = np.where(np.isnan(values), FARTHEST, np.clip(numbers, -FARTHEST, FARTHEST))
    return numbers.astype(np.int64)

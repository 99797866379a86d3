"""Key columns of a cell as points and boxes.

NULL keys match nothing, so rows that hold one never reach a kernel; the row numbers that come back say which rows
did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import (
    HIGHEST,
    LOWEST,
    Codes,
    Mask,
    float_band,
    int_band,
    joint_codes,
    order_codes,
    prefix_codes,
    valid_mask,
)
from dovetail.columns.layout import Source
from dovetail.conditions.comparison import Axis, Edge, Kind, Step

Index = npt.NDArray[np.int64]

Keys: TypeAlias = "list[pa.Array[Any]]"


@dataclass(frozen=True)
class Points:
    """The left side: `coordinates` is (dimensions, rows); `group` numbers the equality keys."""

    coordinates: Codes
    group: Index | None = None

    def __len__(self) -> int:
        return int(self.coordinates.shape[1])

    @property
    def numbers(self) -> Index:
        """Group numbers, 0 for all rows where there is no equality key."""
        return np.zeros(len(self), dtype=np.int64) if self.group is None else self.group

    def groups_with(self, boxes: Boxes) -> int:
        """How many groups both sides have together."""
        if self.group is None and boxes.group is None:
            return 1
        return 1 + int(max(self.numbers.max(initial=0), boxes.numbers.max(initial=0)))


@dataclass(frozen=True)
class Boxes:
    """The right side: inclusive `low` and `high`, each (dimensions, rows); `group` as on the left."""

    low: Codes
    high: Codes
    group: Index | None = None

    def __len__(self) -> int:
        return int(self.low.shape[1])

    @property
    def numbers(self) -> Index:
        """Group numbers, 0 for all rows where there is no equality key."""
        return np.zeros(len(self), dtype=np.int64) if self.group is None else self.group


def keys_from(batch: pa.RecordBatch, sources: Sequence[Source | None], first: int) -> Keys:
    """The key columns of a side: those in its payload, and the others from column `first` on."""
    keys: Keys = []
    for source in sources:
        if source is None:
            keys.append(batch.column(first))
            first += 1
        elif source.widened:
            keys.append(batch.column(source.column).cast(pa.int64()))
        elif source.shift == 0:
            keys.append(batch.column(source.column))
        else:
            keys.append(pc.add(batch.column(source.column), source.shift))
    return keys


def usable(keys: Keys) -> Mask:
    """Rows without a NULL among their keys."""
    mask = np.ones(len(keys[0]), dtype=np.bool_)
    for key in keys:
        if key.null_count:
            mask &= valid_mask(key)
    return mask


def usable_rows(keys: Keys) -> Index | None:
    """The numbers of the rows without a NULL among their keys; None where all are."""
    return np.flatnonzero(usable(keys)) if any(key.null_count for key in keys) else None


def encode(step: Step, point_keys: Keys, box_keys: Keys) -> tuple[Points, Boxes]:
    """Points and boxes of two sides without NULL keys."""
    rows = (len(point_keys[0]), len(box_keys[0]))
    coordinates = np.empty((len(step.axes), rows[0]), dtype=np.int64)
    low = np.empty((len(step.axes), rows[1]), dtype=np.int64)
    high = np.empty_like(low)
    for d, axis in enumerate(step.axes):
        if axis.kind == "rank":
            coordinates[d], low[d], high[d] = _ranked(axis, point_keys, box_keys)
        else:
            coordinates[d] = order_codes(point_keys[axis.point], axis.kind)
            low[d], high[d] = box_range(axis, box_keys)
    if not step.equalities:
        return Points(coordinates), Boxes(low, high)
    groups = group_numbers(step.equalities, point_keys, box_keys)
    return Points(coordinates, groups[0]), Boxes(low, high, groups[1])


def box_range(axis: Axis, keys: Keys) -> tuple[Codes, Codes]:
    """Inclusive ranges of an axis whose kind has global codes."""
    low: Codes | None = None
    high: Codes | None = None
    # Each end bounds both sides: one that no code satisfies leaves an empty range, and the other end must keep it so.
    for lows, highs in _ends(axis, keys, axis.low, axis.high):
        low = lows if low is None else low if lows is None else np.maximum(low, lows)
        high = highs if high is None else high if highs is None else np.minimum(high, highs)
    size = len(keys[0])
    return np.full(size, LOWEST) if low is None else low, np.full(size, HIGHEST) if high is None else high


def _ends(
    axis: Axis, keys: Keys, low_end: Edge | None, high_end: Edge | None
) -> Iterator[tuple[Codes | None, Codes | None]]:
    """The range that each end leaves on its own; None where it leaves a side open."""
    if low_end is not None:
        key = keys[low_end.key]
        if low_end.shift is not None:
            yield _band(axis, key, low_end.shift, None)
        else:
            yield _beyond(order_codes(key, axis.kind), low_end.strict)
    if high_end is not None:
        key = keys[high_end.key]
        if high_end.shift is not None:
            yield _band(axis, key, None, high_end.shift)
        else:
            # ~x turns the order of codes round, so an upper end is the lower end of the mirror image.
            low, high = _beyond(~order_codes(key, axis.kind), high_end.strict)
            yield None if high is None else ~high, ~low


def _beyond(codes: Codes, strict: bool) -> tuple[Codes, Codes | None]:
    """Ranges from `codes` upward; ``x > largest`` holds for nothing, and must not wrap round."""
    if not strict:
        return codes, None
    none = codes == HIGHEST
    if not none.any():
        return codes + 1, None
    return np.where(none, HIGHEST, codes + 1), np.where(none, LOWEST, HIGHEST)


def _band(
    axis: Axis, key: pa.Array[Any], low: int | float | None, high: int | float | None
) -> tuple[Codes | None, Codes | None]:
    if axis.kind in ("float32", "float64"):
        dtype: npt.DTypeLike = np.float32 if axis.kind == "float32" else np.float64
        values = key.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        lows, highs = float_band(
            values, low, high,
            strict_low=bool(axis.low and axis.low.strict),
            strict_high=bool(axis.high and axis.high.strict),
        )  # fmt: skip
        return None if low is None else lows, None if high is None else highs
    assert not isinstance(low, float)
    assert not isinstance(high, float)
    return int_band(order_codes(key, axis.kind), low, high)


def _ranked(axis: Axis, point_keys: Keys, box_keys: Keys) -> tuple[Codes, Codes, Codes]:
    """Strings and wide decimals: ranks among the values of both sides."""
    size = len(box_keys[0])
    ends = [end for end in (axis.low, axis.high) if end is not None]
    stacked = pa.concat_arrays([box_keys[end.key] for end in ends])
    points, codes = joint_codes(point_keys[axis.point], stacked)
    low, high = np.full(size, LOWEST), np.full(size, HIGHEST)
    at = 0
    if axis.low is not None:
        low = codes[:size] + int(axis.low.strict)
        at = size
    if axis.high is not None:
        high = codes[at : at + size] - int(axis.high.strict)
    return points, low, high


def group_numbers(kinds: tuple[Kind, ...], left: Keys, right: Keys) -> tuple[Index, Index]:
    """Equality keys of both sides as common group numbers 0, 1, 2 ..."""
    size = len(left[0])
    numbers: Index | None = None
    for at, kind in enumerate(kinds):
        if kind == "rank":
            codes = _numbered(pa.concat_arrays([left[at], right[at]]))
        else:
            codes = _dense(np.concatenate([order_codes(left[at], kind), order_codes(right[at], kind)]))
        # Both are below 2**31, so their product fits.
        numbers = codes if numbers is None else _dense(numbers * (int(codes.max(initial=0)) + 1) + codes)
    if numbers is None:
        numbers = np.zeros(size + len(right[0]), dtype=np.int64)
    return numbers[:size], numbers[size:]


def _dense(values: Index) -> Index:
    """Numbers 0, 1, 2 ... for the distinct values, in the order of their first appearance."""
    return _numbered(pa.array(values))


def _numbered(values: pa.Array[Any]) -> Index:
    indices = values.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.asarray(indices, dtype=np.int64)


# --------------------------------------------------------------------------------------------------------------
# What a router needs: codes that mean the same in every task.
# --------------------------------------------------------------------------------------------------------------


def routing_points(axis: Axis, keys: Keys) -> Codes:
    """Global codes of the point side; for kind ``rank`` they keep only ``<=``."""
    key = keys[axis.point]
    return prefix_codes(key) if axis.kind == "rank" else order_codes(key, axis.kind)


def routing_boxes(axis: Axis, keys: Keys) -> tuple[Codes, Codes]:
    """Global ranges of the box side that hold every point which may match."""
    if axis.kind != "rank":
        return box_range(axis, keys)
    size = len(keys[0])
    low = np.full(size, LOWEST) if axis.low is None else prefix_codes(keys[axis.low.key])
    high = np.full(size, HIGHEST) if axis.high is None else prefix_codes(keys[axis.high.key])
    return low, high

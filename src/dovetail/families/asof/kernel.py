"""The as-of kernel: an index of right rows, and the search of left rows in it.

Batch and streams use the same two steps.  :class:`RightIndex` takes all right rows of a cell, sorts them by key and
time and settles ties; :meth:`RightIndex.match` gives for each left row the number of its right row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import Codes, Floats, Mask, joint_codes, order_codes, valid_mask
from dovetail.conditions.comparison import Kind
from dovetail.families.asof import compiled
from dovetail.families.asof.compiled import BACKWARD, FORWARD, NEAREST, Index, Places
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec

Column: TypeAlias = "pa.Array[Any]"

_DIRECTIONS = {"backward": BACKWARD, "forward": FORWARD, "nearest": NEAREST}
_NO_FLOATS = np.empty(0, dtype=np.float64)
_FARTHEST = (1 << 64) - 1


def key_columns(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> list[Column]:
    """The equality keys of a segment."""
    return [rows.column(at) for at in spec.keys[side]]


def usable(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> Mask | None:
    """Rows without NULL in keys and time; None where all are."""
    columns = [*key_columns(spec, rows, side), rows.column(spec.times[side])]
    mask: Mask | None = None
    for column in columns:
        if column.null_count:
            mask = valid_mask(column) if mask is None else mask & valid_mask(column)
    return mask


def time_codes(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> Codes:
    """Codes of the time column; NULL rows get an arbitrary one."""
    return order_codes(rows.column(spec.times[side]), spec.time)


def _floats(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> Floats:
    """Times as floats where distances are those of floats."""
    if spec.time == "int" or (spec.within is None and spec.direction != "nearest"):
        return _NO_FLOATS
    values = rows.column(spec.times[side]).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float32 if spec.time == "float32" else np.float64)


@dataclass
class _Numbers:
    """A table from codes to the numbers 0, 1, 2 ..."""

    codes: Codes
    table: Codes = field(init=False)
    slots: Index = field(init=False)
    low: int = field(init=False)
    count: int = field(init=False)
    rows: Index = field(init=False)

    def __post_init__(self) -> None:
        codes = self.codes
        self.low = int(codes.min(initial=np.iinfo(np.int64).max)) if codes.size else 0
        span = int(codes.max(initial=self.low)) - self.low + 1 if codes.size else 1
        if span <= 4 * codes.size + 1024:
            self.table, places = np.empty(0, dtype=np.int64), span
        else:
            places = 1 << int(2 * codes.size).bit_length()
            self.table = np.empty(places, dtype=np.int64)
        self.slots = np.full(places, -1, dtype=np.int64)
        self.rows, self.count = compiled.number_keys(codes, self.table, self.slots, self.low)

    def find(self, codes: Codes) -> Index:
        """The numbers of codes, -1 for unknown ones."""
        return compiled.find_keys(codes, self.table, self.slots, self.low)


def _filled(numbers: pa.Array[Any], value: int) -> Index:
    """Whole numbers with `value` in place of NULL."""
    codes = order_codes(numbers, "int")
    return codes if numbers.null_count == 0 else np.where(valid_mask(numbers), codes, value)


class KeyNumbers:
    """The distinct keys of the right side, numbered; and the numbers of left keys among them."""

    def __init__(self, kinds: Sequence[Kind], columns: Sequence[Column], size: int) -> None:
        self.kinds = kinds
        self._parts: list[_Numbers | Column] = []
        self._pairs: list[_Numbers] = []
        self.rows: Index = np.zeros(size, dtype=np.int64)
        self.count = 1
        for at, (kind, column) in enumerate(zip(kinds, columns, strict=True)):
            rows, count = self._part(kind, column)
            if at == 0:
                self.rows, self.count = rows, count
                continue
            # Both factors are below 2**31, so the product fits.
            pairs = _Numbers(self.rows * count + rows)
            self._pairs.append(pairs)
            self.rows, self.count = pairs.rows, pairs.count

    def _part(self, kind: Kind, column: Column) -> tuple[Index, int]:
        if kind == "rank":
            encoded = column.dictionary_encode()
            self._parts.append(encoded.dictionary)
            return _filled(encoded.indices, 0), max(1, len(encoded.dictionary))
        numbers = _Numbers(order_codes(column, kind))
        self._parts.append(numbers)
        return numbers.rows, max(1, numbers.count)

    def find(self, columns: Sequence[Column], size: int) -> Index:
        """The numbers of left keys; -1 where the right side does not have the key."""
        found: Index = np.zeros(size, dtype=np.int64)
        for at, (kind, part, column) in enumerate(zip(self.kinds, self._parts, columns, strict=True)):
            if isinstance(part, _Numbers):
                numbers, count = part.find(order_codes(column, kind)), max(1, part.count)
            else:
                numbers, count = _filled(pc.index_in(column, value_set=part), -1), max(1, len(part))
            if at == 0:
                found = numbers
                continue
            both = self._pairs[at - 1].find(found * count + numbers)
            found = np.where((found < 0) | (numbers < 0), -1, both)
        return found


class RightIndex:
    """Right rows by key and time, one for each distinct pair of them."""

    def __init__(self, spec: AsofSpec, rows: pa.RecordBatch) -> None:
        self.spec = spec
        self.rows = rows
        self.keys = KeyNumbers(spec.kinds, key_columns(spec, rows, RIGHT), rows.num_rows)
        numbers, good = self.keys.rows, usable(spec, rows, RIGHT)
        codes = time_codes(spec, rows, RIGHT)
        if good is not None:
            numbers = np.where(good, numbers, -1)
        found = compiled.sort_runs(numbers, codes, self.keys.count)
        self.order, self.times, self.starts, self.table, self.begins, self.shifts = found
        self.ties = self._settle_ties()
        values = _floats(spec, rows, RIGHT)
        self.values = values[self.order] if values.size else values

    def _settle_ties(self) -> int:
        """Keep the last of the rows that share key and time; how many others there were."""
        positions, runs = compiled.tied(self.times, self.starts)
        if positions.size == 0:
            return 0
        winners = positions[last_of_runs(self.rows, self.spec.ties, self.order[positions], runs)]
        mask = compiled.kept(positions, winners, self.times.size)
        self.order, self.times = self.order[mask], self.times[mask]
        before = np.concatenate([[0], np.cumsum(mask)])  # how many rows before a place have stayed
        self.starts, self.table = before[self.starts], before[self.table].astype(np.int32)
        return positions.size - winners.size

    def match(self, left: pa.RecordBatch) -> Places:
        """For each left row the number of its right row, -1 where it has none."""
        spec = self.spec
        numbers = self.keys.find(key_columns(spec, left, LEFT), left.num_rows)
        good = usable(spec, left, LEFT)
        if good is not None:
            numbers = np.where(good, numbers, -1)
        within = spec.within
        return compiled.match(
            numbers, time_codes(spec, left, LEFT), _floats(spec, left, LEFT),
            self.order, self.times, self.values, self.starts, self.table, self.begins, self.shifts,
            _DIRECTIONS[spec.direction], spec.exact, within is not None,
            np.uint64(min(within, _FARTHEST) if isinstance(within, int) else 0), float(within or 0),
        )  # fmt: skip


def last_of_runs(rows: pa.RecordBatch, ties: Sequence[int], chosen: Index | Places, runs: Index) -> Index:
    """For each run of tied rows the place in `chosen` of the one that comes last in the order of the columns `ties`.

    Columns narrow the runs one after another, so those behind the first that differ are hardly looked at.  NULL comes
    first, NaN last.  Of rows that are equal throughout, any will do.
    """
    alive = np.arange(chosen.size)
    count = int(runs[-1]) + 1
    for at in ties:
        if alive.size == count:
            break
        narrowed = np.arange(alive.size)
        for codes in _levels(rows.column(at).take(chosen[alive])):
            codes = codes[narrowed]
            of = runs[alive]
            best = np.maximum.reduceat(codes, np.flatnonzero(np.diff(of, prepend=-1)))
            stays = np.flatnonzero(codes == best[of])
            narrowed, alive = narrowed[stays], alive[stays]
    ends = np.flatnonzero(np.diff(runs[alive], append=count))
    return alive[ends]


def _levels(column: Column) -> list[Codes]:
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
    whole = (
        pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time,
        pa.types.is_duration,
    )  # fmt: skip
    return "int" if any(test(kind) for test in whole) else None

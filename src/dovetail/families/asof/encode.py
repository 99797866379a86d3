"""Columns of an as-of join as numbers: times as codes, keys as numbers 0, 1, 2 ..., keys as hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import Codes, Floats, Mask, codes_within, joint_codes, order_codes, prefix_codes, valid_mask
from dovetail.columns.hashing import row_hashes
from dovetail.conditions.comparison import Kind
from dovetail.families.asof import compiled
from dovetail.families.asof.compiled import Index
from dovetail.families.asof.spec import AsofSpec

Column: TypeAlias = "pa.Array[Any]"

_NO_FLOATS = np.empty(0, dtype=np.float64)


def key_columns(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> list[Column]:
    """The equality keys of a segment."""
    return [rows.column(at) for at in spec.keys[side]]


def usable(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> Mask | None:
    """Rows that may match: without NULL in keys, time and what else is compared; None where all may."""
    columns = [*key_columns(spec, rows, side), rows.column(spec.times[side])]
    if spec.where is not None:
        columns += [rows.column(at) for at in spec.where.compared(side)]
    mask: Mask | None = None
    gate = spec.gates[side]
    if gate is not None:
        mask = np.asarray(rows.column(gate).to_numpy(zero_copy_only=False), dtype=np.bool_)
    for column in columns:
        if column.null_count:
            mask = valid_mask(column) if mask is None else mask & valid_mask(column)
    return mask


def hashes_of(columns: list[Column], size: int) -> Index:
    """Hashes of the equality keys; all alike without any."""
    if not columns:
        return np.zeros(size, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(columns))])
    return row_hashes(batch, len(columns))


def time_codes(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> Codes:
    """Codes of the time column; NULL rows get an arbitrary one.  Ranks are those among these rows."""
    return codes_within(rows.column(spec.times[side]), spec.time)


def routing_codes(column: Column, kind: Kind) -> Codes:
    """Codes of times that mean the same in every task; of kind ``rank`` later times may share one."""
    return prefix_codes(column) if kind == "rank" else order_codes(column, kind)


def ranked_times(column: Column) -> tuple[Codes, Column]:
    """Times without a code of their own as even numbers in their order, and the distinct ones; NULL rows get any.

    Examples
    --------
    >>> codes, moments = ranked_times(pa.array(["b", "a", "b"]))
    >>> codes.tolist(), moments.to_pylist(), ranks_among(moments, pa.array(["a", "az", "c"])).tolist()
    ([2, 0, 2], ['a', 'b'], [0, 1, 3])
    """
    valid = np.flatnonzero(valid_mask(column))
    ranks = joint_codes(column.take(valid), column.slice(0, 0))[0]
    _, firsts, places = np.unique(ranks, return_index=True, return_inverse=True)
    codes = np.zeros(len(column), dtype=np.int64)
    codes[valid] = 2 * places
    return codes, column.take(valid[firsts])


def ranks_among(moments: Column, column: Column) -> Codes:
    """The codes of other times in that order: odd numbers for those that lie between."""
    ranks, known = joint_codes(column, moments)
    places = np.searchsorted(known, ranks)
    same = known[np.minimum(places, max(known.size - 1, 0))] == ranks if known.size else np.zeros(ranks.size, bool)
    return np.asarray(2 * places - np.where(same & (places < known.size), 0, 1), dtype=np.int64)


def time_floats(spec: AsofSpec, rows: pa.RecordBatch, side: int) -> Floats:
    """Times as floats where distances are those of floats, and else nothing."""
    if spec.time in ("int", "rank") or (spec.within is None and spec.direction != "nearest"):
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
            self.table, slots = np.empty(0, dtype=np.int64), span
        else:
            slots = 1 << int(2 * codes.size).bit_length()
            self.table = np.empty(slots, dtype=np.int64)
        self.slots = np.full(slots, -1, dtype=np.int64)
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
        combined: Index = np.zeros(size, dtype=np.int64)
        for at, (kind, part, column) in enumerate(zip(self.kinds, self._parts, columns, strict=True)):
            if isinstance(part, _Numbers):
                numbers, count = part.find(order_codes(column, kind)), max(1, part.count)
            else:
                numbers, count = _filled(pc.index_in(column, value_set=part), -1), max(1, len(part))
            if at == 0:
                combined = numbers
                continue
            both = self._pairs[at - 1].find(combined * count + numbers)
            combined = np.where((combined < 0) | (numbers < 0), -1, both)
        return combined

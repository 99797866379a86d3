"""Where rows go, so that each row meets all its candidates in one cell.

Rows are ordered by (hash of the keys, value on one constrained axis), and each cell is a range of that order.  Rows of
the home side (the left one, in a right join the right one) go to one cell each.  Rows of the other side go to every
cell that a row within the maximum distance may be in: to their own, and rarely to the next.  In a full join the left
side is copied too, up to twice the distance away, so that a cell also knows the rivals of its own pairs.

There are three ways to divide the order into cells:

cuts
    at quantiles of a sample of both sides: batch joins.
slices
    strips of the axis, eight maximum distances wide, which the cells take in turn: streams, and joins without a sample.
spread
    without a key or a maximum distance, rows of the home side are divided evenly, and the others go to every cell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST, Codes, float_band, float_codes, float_values, int_band, order_codes
from dovetail.columns.numba_cache import njit
from dovetail.columns.segments import pack, unpack
from dovetail.columns.spark_hash import cell_numbers
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import usable
from dovetail.families.bestmatch.spec import Axis, BestSpec

Mode = Literal["cuts", "slices", "spread"]
Column: TypeAlias = "pa.Array[Any]"

CELL_ROWS = 5_000
"""Rows of both sides that justify a further cell."""

MOST_ROWS = 1 << 21
"""Rows of both sides that a cell should not exceed by much: a task then has several cells."""

SLICE = 8
"""The width of a strip in maximum distances: an eighth of the other side is copied to each neighbour."""

COPY = 2
"""A copy of a row of side s travels as side s + COPY."""


@dataclass(frozen=True)
class Routing:
    """A way to divide rows among cells."""

    mode: Mode
    cells: int
    numbers: npt.NDArray[np.int32]
    """The number of each cell in the shuffle."""
    axis: int | None = None
    """The axis that is cut, by its index among the compiled axes."""
    hashes: Codes | None = None
    codes: Codes | None = None
    """Where all cells but the first begin."""

    def to_buffer(self) -> pa.Buffer:
        """The routing as bytes."""
        none = np.empty(0, dtype=np.int64)
        head = {"mode": self.mode, "cells": self.cells, "axis": self.axis, "numbers": self.numbers.tolist()}
        batch = pa.RecordBatch.from_pydict(
            {"h": self.hashes if self.hashes is not None else none, "x": self.codes if self.codes is not None else none}
        )
        return pack(batch.replace_schema_metadata({"routing": json.dumps(head)}))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> Routing:
        """The inverse of :meth:`to_buffer`."""
        batch = unpack(buffer)
        head = json.loads(batch.schema.metadata[b"routing"])
        return cls(
            head["mode"], head["cells"], np.array(head["numbers"], dtype=np.int32), head["axis"],
            batch.column(0).to_numpy(), batch.column(1).to_numpy(),
        )  # fmt: skip

    def assign(
        self, spec: BestSpec, side: int, hashes: Codes, keys: list[Column], ties: Codes
    ) -> tuple[Index, Index, Index]:
        """Row numbers, the cells they go to, and the side they travel as; for each cell and side in ascending order.

        `ties` spreads the rows that match nothing, and those of the mode ``spread``.
        """
        at_home = side == spec.home_side
        rows = hashes.size
        numbers = np.arange(rows)
        if self.mode == "spread":
            if at_home:
                return numbers, ties % self.cells, np.full(rows, side)
            copies = rows * self.cells
            return np.repeat(numbers, self.cells), np.tile(np.arange(self.cells), rows), np.full(copies, side)
        can_match = usable(keys, rows)
        low = high = codes = np.zeros(rows, dtype=np.int64)
        if self.axis is not None:
            axis = spec.compiled[self.axis]
            column = keys[len(spec.by) + self.axis]
            codes = axis_codes(axis, column)
            if axis.is_float:
                # NaN is further away from everything than any distance allows.
                can_match &= codes != float_codes(np.array([np.nan]))[0]
            reach = 1 if not at_home else 2 if spec.both_answer else 0
            low, high = reached(axis, column, codes, reach)
        own = self._cells(spec, hashes, codes)
        if spec.keep:
            own = np.where(can_match, own, ties % self.cells)
            kept = numbers
        else:
            kept = np.flatnonzero(can_match)
        copied = np.flatnonzero(can_match & ((low != codes) | (high != codes)))
        copy_rows, copy_cells = self._touched(spec, hashes[copied], low[copied], high[copied])
        copy_rows = copied[copy_rows]
        other = copy_cells != own[copy_rows]
        return (
            np.concatenate([kept, copy_rows[other]]),
            np.concatenate([own[kept], copy_cells[other]]),
            np.concatenate([np.full(kept.size, side), np.full(int(other.sum()), side + COPY)]),
        )

    def _cells(self, spec: BestSpec, hashes: Codes, codes: Codes) -> Index:
        if self.mode == "cuts":
            assert self.hashes is not None
            assert self.codes is not None
            return _cell_of(hashes, codes, self.hashes, self.codes)
        return (_hash_offsets(hashes) + self._slices(spec, codes)) % self.cells

    def _slices(self, spec: BestSpec, codes: Codes) -> Index:
        """The strip of the axis in which each value lies."""
        if self.axis is None:
            return np.zeros(codes.size, dtype=np.int64)
        axis = spec.compiled[self.axis]
        assert axis.within is not None
        width = SLICE * axis.within if axis.within else 1
        if not axis.is_float:
            return codes // min(int(width), HIGHEST)
        with np.errstate(over="ignore"):
            # Clipped, so that no value leaves 64 bits: clipped values share one strip.
            return np.floor(np.clip(np.nan_to_num(float_values(codes, "float64") / width), -(2.0**60), 2.0**60)).astype(
                np.int64
            )

    def _touched(self, spec: BestSpec, hashes: Codes, low: Codes, high: Codes) -> tuple[Index, Index]:
        """The cells between two values, for each row."""
        if self.mode == "cuts":
            first, last = self._cells(spec, hashes, low), self._cells(spec, hashes, high)
        else:
            first, last = self._slices(spec, low), self._slices(spec, high)
        sizes = np.minimum(last - first + 1, self.cells)
        rows = np.repeat(np.arange(sizes.size), sizes)
        cells = np.repeat(first, sizes) + np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        if self.mode == "slices":
            cells = (_hash_offsets(hashes)[rows] + cells) % self.cells
        return rows, cells


def axis_codes(axis: Axis, column: Column) -> Codes:
    """Values of an axis as codes that keep their order, NULL included."""
    return order_codes(column, "float64" if axis.is_float else "int")


def reached(axis: Axis, column: Column, codes: Codes, reach: int) -> tuple[Codes, Codes]:
    """The codes within so many maximum distances of each value."""
    if reach == 0:
        return codes, codes
    assert axis.within is not None
    if not axis.is_float:
        return int_band(codes, -reach * int(axis.within), reach * int(axis.within))
    # Two rounded distances add up to a little more than twice the maximum.
    width = float(axis.within) * reach * (1 + 1e-9 * (reach - 1))
    values = np.nan_to_num(np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64), nan=0.0)
    low, high = float_band(values, -width, width, strict_low=False, strict_high=False)
    # A band around an infinite value is empty: then take just the value.
    return np.minimum(low, codes), np.maximum(high, codes)


def _hash_offsets(hashes: Codes) -> Index:
    """Hashes as numbers so small that the number of a strip can be added."""
    return (hashes >> 33) & 0x3FFF_FFFF


@njit
def _cell_of(hashes: Codes, codes: Codes, cut_hashes: Codes, cut_codes: Codes) -> Index:  # pragma: no cover - compiled
    """How many cuts lie at or before each row."""
    cells = np.empty(hashes.size, dtype=np.int64)
    for row in range(hashes.size):
        begin, end = 0, cut_hashes.size
        while begin < end:
            middle = (begin + end) // 2
            before = cut_hashes[middle] < hashes[row] or (
                cut_hashes[middle] == hashes[row] and cut_codes[middle] <= codes[row]
            )
            if before:
                begin = middle + 1
            else:
                end = middle
        cells[row] = begin
    return cells


def static_routing(spec: BestSpec, cells: int, *, numbered: bool = False) -> Routing:
    """Cells that need no sample; `numbered` gives them numbers that Spark hashes to as many tasks."""
    numbers = cell_numbers(np.arange(cells), cells) if numbered else np.arange(cells, dtype=np.int32)
    axis = cut_axes(spec)[0] if cut_axes(spec) else None
    if axis is None and not spec.by:
        if spec.both_answer or spec.max_age is not None or spec.order is not None:
            # Rows of both sides may be best with any row of the other, or the kernel has to see all rows.
            return Routing("slices", 1, numbers[:1])
        return Routing("spread", cells, numbers)
    return Routing("slices", cells, numbers, axis)


def cut_axes(spec: BestSpec) -> list[int]:
    """Axes with a maximum distance, on which cells may be cut; an inner join keeps each key in one cell."""
    if (spec.global_best and spec.by) or spec.max_age is not None:
        return []
    if spec.order is not None and len(spec.answers) != 1:
        # Pairs that have left are recognised by the numbers of their rows, which copies do not share.
        return []
    # The axis on which a stream is ordered advances: at any time all rows would be in one or two strips of it.
    return [at for at, axis in enumerate(spec.compiled) if axis.within is not None and at != spec.order]


def fit(spec: BestSpec, rows: float, hashes: Codes, codes: dict[int, Codes], partitions: int) -> Routing:
    """Cells from a sample: (hash, code on each axis that may be cut), for so many rows in all."""
    cells = max(1, min(partitions, int(rows / CELL_ROWS)), int(np.ceil(rows / MOST_ROWS)))
    if not spec.by and not codes:
        return static_routing(spec, cells, numbered=True)
    if cells == 1 or hashes.size == 0:
        return Routing("cuts", 1, np.zeros(1, np.int32), None, np.empty(0, np.int64), np.empty(0, np.int64))
    axis = max(codes, key=lambda at: _strips(spec.compiled[at], codes[at]), default=None)
    values = codes[axis] if axis is not None else np.zeros(hashes.size, dtype=np.int64)
    order = np.lexsort((values, hashes))
    quantiles = order[(np.arange(1, cells) * hashes.size) // cells]
    cuts = np.unique(np.stack([hashes[quantiles], values[quantiles]], axis=1), axis=0)
    if spec.global_best and spec.by:
        # The rows of a key must not be divided: cells begin with its hash.
        cuts = np.unique(np.stack([cuts[:, 0], np.full(cuts.shape[0], LOWEST)], axis=1), axis=0)
    numbers = cell_numbers(np.arange(cuts.shape[0] + 1) % partitions, partitions)
    return Routing("cuts", cuts.shape[0] + 1, numbers, axis, cuts[:, 0].copy(), cuts[:, 1].copy())


def _strips(axis: Axis, codes: Codes) -> float:
    """How many maximum distances lie between the outer values of a sample, a twentieth left out on either side."""
    if codes.size == 0:
        return 0.0
    low, high = np.quantile(codes, [0.05, 0.95], method="nearest")
    ends = np.array([low, high], dtype=np.int64)
    assert axis.within is not None
    values = float_values(ends, "float64") if axis.is_float else ends.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # Infinity less infinity is NaN: such values lie in one strip.
        spread = float(np.nan_to_num(values[1] - values[0]))
    return spread / float(axis.within) if axis.within else np.inf if spread else 0.0

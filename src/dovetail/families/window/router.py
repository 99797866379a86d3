"""Where rows of a window join go: to the cell of their keys, or of their slice of time or value.

Rows that can match meet in exactly one cell.  Equality keys that reach every input decide by hash.  A
:class:`~dovetail.families.window.spec.Grid` cuts one dimension into slices; rows near a border are copied, except those
of the pivot input, whose slice owns a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import float_values, order_codes, valid_mask
from dovetail.columns.hashing import GOLDEN, row_hashes
from dovetail.columns.layout import MAX_TIME_HEADER, SLICE
from dovetail.columns.partition import parts_by_cell
from dovetail.conditions.comparison import Kind
from dovetail.families.window.encode import (
    Index,
    buckets,
    equality_codes,
    group_codes,
    key_arrays,
    shifted,
    time_codes,
    usable_rows,
)
from dovetail.families.window.graph import WindowGraph
from dovetail.families.window.spec import Conditions, Grid, Options, PairComparison, WindowJoinSpec

COARSE = 64
"""Slices of time are so many windows long: one row in 64 or so is copied."""
_LONGEST = 1 << 62
WIDE = 16
"""Slices of value are so many bands wide."""


@dataclass(frozen=True)
class WindowRouter:
    """Divides the rows of one input among cells, and tells all cells how far the input has come."""

    spec: WindowJoinSpec
    side: int

    def parts(self, block: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each cell.  Rows that match nothing are left out, unless they are to be reported."""
        spec, side = self.spec, self.side
        usable = usable_rows(spec, side, block)
        rows = np.flatnonzero(usable)
        kept = block if rows.size == block.num_rows else block.take(rows)
        keys = key_arrays(spec, side, kept)
        group = group_codes(
            [equality_codes(keys[equal.members[side]], equal.kind) for equal in spec.classes], kept.num_rows
        )
        if spec.grid is not None:
            copied, slices = self._slices(spec.grid, kept)
            kept = kept.take(copied).append_column(SLICE, pa.array(slices))
            group = group[copied]
        else:
            slices = None
        parts = parts_by_cell(kept, cells_of(group, slices, spec.cells), spec.cells)
        unusable = np.flatnonzero(~usable)
        if side in spec.reported and unusable.size:
            null_key_rows = block.take(unusable)
            cells = np.mod(row_hashes(null_key_rows, spec.payload[side]), spec.cells)
            if spec.grid is not None:
                null_key_rows = null_key_rows.append_column(SLICE, pa.array(np.zeros(unusable.size, dtype=np.int64)))
            parts += parts_by_cell(null_key_rows, cells, spec.cells)
        return [(spec.numbers[cell], part) for cell, part in parts]

    def top(self, block: pa.RecordBatch) -> int | None:
        """The largest time of some rows."""
        column = block.column(self.spec.times[self.side])
        times = time_codes(column)
        if column.null_count:
            times = times[valid_mask(column)]
        return int(times.max()) if times.size else None

    def ticks(self, top: int) -> list[tuple[int, pa.RecordBatch]]:
        """A segment without rows for every cell, which says how far the input has come."""
        header = pa.RecordBatch.from_pydict({"top": pa.array([], pa.int64())}).replace_schema_metadata(
            {MAX_TIME_HEADER: str(top)}
        )
        return [(number, header) for number in self.spec.numbers]

    def _slices(self, grid: Grid, rows: pa.RecordBatch) -> tuple[Index, Index]:
        """Row numbers, repeated for every slice that the row belongs to, and the slices."""
        low, high = grid.reach[self.side]
        if grid.keys is None:
            times = time_codes(rows.column(self.spec.times[self.side]))
            length = int(grid.length)
            first, last = shifted(times, int(low)) // length, shifted(times, int(high)) // length
        else:
            key = key_arrays(self.spec, self.side, rows)[grid.keys[self.side]]
            values = float_values(order_codes(key, grid.kind), grid.kind)
            moved, farthest = int(self.side != grid.pivot), max(abs(low), abs(high))
            first = slices_at(values, low, grid.length, -moved, farthest)
            last = slices_at(values, high, grid.length, moved, farthest)
        counts = last - first + 1
        copied = np.repeat(np.arange(rows.num_rows), counts)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if counts.size else counts
        return copied, first[copied] + (np.arange(copied.size) - starts[copied])


def slices_at(values: npt.NDArray[np.float64], end: float, length: float, direction: int, farthest: float) -> Index:
    """The slices in which values lie once they are moved to one end of what they reach.

    Sums of floats are rounded: a little more reach in the `direction` of that end, 1 or -1, makes up for it.  Values
    that are not moved have 0; `farthest` is the largest move.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        slack = direction * 4 * np.spacing(np.abs(values) + farthest)
        found = buckets(values + end + slack, length)
    # Infinities and NaN lie in no band.  One slice is as good as another.
    found[~np.isfinite(values)] = 0
    return found


def cells_of(group: Index, slices: Index | None, cells: int) -> Index:
    """The cell of each row, by the code of its keys and its slice."""
    if slices is not None:
        group = _spread(group) ^ slices
    return np.mod(_spread(group), cells)


def _spread(codes: Index) -> Index:
    """Codes hashed so that their remainders are evenly distributed; cells of stored state depend on every bit."""
    with np.errstate(over="ignore"):
        hashed = codes.view(np.uint64) * GOLDEN
        hashed = (hashed ^ (hashed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (hashed ^ (hashed >> np.uint64(32))).view(np.int64)


def choose_grid(
    conditions: Conditions, graph: WindowGraph, options: Options, *, streaming: bool, numeric: bool
) -> Grid | None:
    """How to cut a join into slices: by time in batch, by value in a stream that has no equality to go by.

    A match belongs to the slice of its pivot row.  So the pivot is in the core, and it is the input of which all rows
    come out: a copy cannot tell whether another copy has matched.  Two such inputs allow no slices.
    """
    preserved = options.preserved()
    if len(preserved) > 1:
        return None
    core = range(len(graph.aliases)) if options.roles is None else options.roles.core
    pivot = preserved[0] if preserved else core[0]
    if not streaming:
        hull = graph.hull
        span = int(max(abs(int(hull.min())), int(hull.max())))
        length = min(max(COARSE * span, COARSE if numeric else 1_000_000), _LONGEST)
        # Whole numbers: as a float, a long window could lose its last unit.
        reach = [(int(hull[side, pivot, 0]), int(hull[side, pivot, 1])) for side in range(len(graph.aliases))]
        return Grid(pivot, length, tuple(reach))
    if conditions.classes:
        return None
    return _value_grid(conditions.comparisons, len(graph.aliases), pivot, core)


def _value_grid(comparisons: Sequence[PairComparison], sides: int, pivot: int, core: Sequence[int]) -> Grid | None:
    """Slices of a value that bands tie together across all inputs, through the same key of each.

    Only bands of core inputs lead on to a third input: one that may be missing ties no others together.
    """
    for seed in comparisons:
        if not seed.is_band:
            continue
        keys: dict[int, int] = {seed.point_side: seed.axis.point}
        kind: Kind = seed.axis.kind
        bounds = np.full((sides, sides), np.inf)  # the most by which the value of j exceeds that of i
        np.fill_diagonal(bounds, 0.0)
        for _ in range(sides):
            for band in comparisons:
                low, high = band.axis.low, band.axis.high
                if not band.is_band or band.axis.kind != kind or low is None or high is None or low.key != high.key:
                    continue
                ends = {band.point_side: band.axis.point, band.box_side: low.key}
                if not any(keys.get(side) == key for side, key in ends.items()):
                    continue
                if any(keys.get(side, key) != key for side, key in ends.items()):
                    continue
                keys.update(ends)
                i, j = band.box_side, band.point_side
                bounds[i, j] = min(bounds[i, j], float(high.shift or 0))
                bounds[j, i] = min(bounds[j, i], -float(low.shift or 0))
        if len(keys) < sides:
            continue
        for via in core:
            bounds = np.minimum(bounds, bounds[:, via : via + 1] + bounds[via : via + 1, :])
        if np.isinf(bounds[pivot]).any() or np.isinf(bounds[:, pivot]).any():
            continue
        widest = max(seed.bucket_width, float(bounds[np.isfinite(bounds)].max()))
        reach = tuple((float(-bounds[pivot, side]), float(bounds[side, pivot])) for side in range(sides))
        return Grid(pivot, WIDE * widest, reach, tuple(keys[side] for side in range(sides)), kind)
    return None

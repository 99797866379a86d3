"""The as-of kernel: an index of right rows, and the search of left rows in it.

Batch and streams use the same two steps.  :class:`RightIndex` takes all right rows of a cell, sorts them by key and
time and settles ties; :meth:`RightIndex.match` gives for each left row the number of its right row.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import Codes
from dovetail.columns.ties import tie_levels
from dovetail.families.asof import compiled
from dovetail.families.asof.compiled import BACKWARD, FORWARD, NEAREST, Index, RowNumbers
from dovetail.families.asof.encode import (
    KeyNumbers,
    key_columns,
    ranked_times,
    ranks_among,
    time_codes,
    time_floats,
    usable,
)
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec

DIRECTIONS = {"backward": BACKWARD, "forward": FORWARD, "nearest": NEAREST}
_FARTHEST = (1 << 64) - 1

Tolerance = tuple[bool, np.uint64, float]


class RightIndex:
    """Right rows by key and time, one for each distinct pair of them."""

    def __init__(self, spec: AsofSpec, rows: pa.RecordBatch) -> None:
        self.spec = spec
        self.rows = rows
        self.keys = KeyNumbers(spec.kinds, key_columns(spec, rows, RIGHT), rows.num_rows)
        numbers, good = self.keys.rows, usable(spec, rows, RIGHT)
        codes = self._times_of_right()
        if good is not None:
            numbers = np.where(good, numbers, -1)
        runs = compiled.sort_runs(numbers, codes, self.keys.count)
        self.order, self.times, self.starts, self.table, self.begins, self.shifts = runs
        self.ties = self._settle_ties()
        values = time_floats(spec, rows, RIGHT)
        self.values = values[self.order] if values.size else values

    def _times_of_right(self) -> Codes:
        if self.spec.time != "rank":
            return time_codes(self.spec, self.rows, RIGHT)
        codes, self._moments = ranked_times(self.rows.column(self.spec.times[RIGHT]))
        return codes

    def times_of(self, left: pa.RecordBatch) -> Codes:
        """The codes of the times of left rows."""
        if self.spec.time != "rank":
            return time_codes(self.spec, left, LEFT)
        return ranks_among(self._moments, left.column(self.spec.times[LEFT]))

    def _settle_ties(self) -> int:
        """Keep the last of the rows that share key and time; how many others there were."""
        positions, runs = compiled.tied(self.times, self.starts)
        if positions.size == 0:
            return 0
        winners = positions[last_of_runs(self.rows, self.spec.ties, self.order[positions], runs)]
        mask = compiled.kept(positions, winners, self.times.size)
        self.order, self.times = self.order[mask], self.times[mask]
        before = np.concatenate([[0], np.cumsum(mask)])  # how many rows before a position have stayed
        self.starts, self.table = before[self.starts], before[self.table].astype(np.int32)
        return positions.size - winners.size

    def match(self, left: pa.RecordBatch) -> RowNumbers:
        """For each left row the number of its right row, -1 where it has none."""
        return self._match(left, DIRECTIONS[self.spec.direction], tolerance(self.spec))

    def _match(self, left: pa.RecordBatch, direction: int, within: Tolerance) -> RowNumbers:
        return compiled.match(
            self.numbers_of(left), self.times_of(left), time_floats(self.spec, left, LEFT),
            self.order, self.times, self.values, self.starts, self.table, self.begins, self.shifts,
            direction, self.spec.exact, *within,
        )  # fmt: skip

    def numbers_of(self, left: pa.RecordBatch) -> Index:
        """The number of the key of each left row, -1 where it cannot match."""
        numbers = self.keys.find(key_columns(self.spec, left, LEFT), left.num_rows)
        good = usable(self.spec, left, LEFT)
        return numbers if good is None else np.where(good, numbers, -1)


def tolerance(spec: AsofSpec) -> Tolerance:
    """Whether there is a largest distance, and that distance in codes and as a float."""
    within = spec.within
    return (
        within is not None,
        np.uint64(min(within, _FARTHEST) if isinstance(within, int) else 0),
        float(within or 0),
    )


class WideIndex(RightIndex):
    """Right rows whose times are decimals without a code: their distances are computed for matches alone."""

    def match(self, left: pa.RecordBatch) -> RowNumbers:
        """For each left row the number of its right row, -1 where it has none."""
        spec, anywhere = self.spec, (False, np.uint64(0), 0.0)
        if spec.direction != "nearest":
            found = self._match(left, DIRECTIONS[spec.direction], anywhere)
        else:
            before, after = (self._match(left, direction, anywhere) for direction in (BACKWARD, FORWARD))
            nearer = pc.less(self._distance(left, after), self._distance(left, before)).fill_null(False)
            found = np.where((before < 0) | nearer.to_numpy(zero_copy_only=False), after, before)
        if spec.within is not None:
            scale = left.column(spec.times[LEFT]).type.scale
            # No two decimals of 38 digits are farther apart.
            within = Decimal(min(int(spec.within), 10**39)).scaleb(-scale, _EXACT)
            near = pc.less_equal(self._distance(left, found), pa.scalar(within, pa.decimal256(76, scale)))
            found = np.where(near.fill_null(False).to_numpy(zero_copy_only=False), found, -1)
        return found.astype(np.int32)

    def _distance(self, left: pa.RecordBatch, rows: RowNumbers) -> pa.Array[Any]:
        """How far apart each left row and a right row are; NULL where there is none."""
        mine, other = left.column(self.spec.times[LEFT]), self.rows.column(self.spec.times[RIGHT])
        wide = pa.decimal256(38, mine.type.scale)
        chosen = pa.array(rows, pa.int32(), mask=rows < 0)
        return pc.abs(pc.subtract(mine.cast(wide), other.take(chosen).cast(wide)))


_EXACT = Context(prec=80)


def last_of_runs(rows: pa.RecordBatch, ties: Sequence[int], chosen: Index | RowNumbers, runs: Index) -> Index:
    """For each run of tied rows the position in `chosen` of the one that comes last in the order of the columns `ties`.

    Columns narrow the runs one after another, so those behind the first that differ are hardly looked at.  NULL comes
    first, NaN last.  Of rows that are equal throughout, any will do.
    """
    alive = np.arange(chosen.size)
    count = int(runs[-1]) + 1
    for at in ties:
        if alive.size == count:
            break
        narrowed = np.arange(alive.size)
        for codes in tie_levels(rows.column(at).take(chosen[alive])):
            codes = codes[narrowed]
            run = runs[alive]
            best = np.maximum.reduceat(codes, np.flatnonzero(np.diff(run, prepend=-1)))
            stays = np.flatnonzero(codes == best[run])
            narrowed, alive = narrowed[stays], alive[stays]
    ends = np.flatnonzero(np.diff(runs[alive], append=count))
    return alive[ends]

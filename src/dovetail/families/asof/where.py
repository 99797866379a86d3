"""As-of joins with further conditions: an index of all right rows, and the search for the best that satisfies them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, joint_codes, order_codes
from dovetail.columns.encode import encode
from dovetail.columns.ties import tie_levels
from dovetail.families.asof import compiled, compiled_where
from dovetail.families.asof.compiled import BACKWARD, NEAREST, Index, RowNumbers
from dovetail.families.asof.encode import time_floats
from dovetail.families.asof.kernel import DIRECTIONS, RightIndex, WideIndex, tolerance
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec


def index_of(spec: AsofSpec, rows: pa.RecordBatch) -> RightIndex:
    """The index that a join needs of its right rows."""
    if spec.picky:
        return ConditionIndex(spec, rows)
    far = spec.time == "rank" and (spec.within is not None or spec.direction == "nearest")
    return WideIndex(spec, rows) if far else RightIndex(spec, rows)


@dataclass(frozen=True)
class _Ranges:
    """What the conditions compare: of left rows as they are, of right rows in the order of the index."""

    points: Codes
    low: Codes
    high: Codes
    mine: Codes
    other: Codes


@dataclass(frozen=True)
class _Reach:
    """Where the candidates of each left row are, by its time and the tolerance."""

    numbers: Index
    codes: Codes
    values: Any
    befores: RowNumbers
    afters: RowNumbers
    firsts: Index
    ends: Index


class ConditionIndex(RightIndex):
    """Right rows by key, time and the order of ties, every one of them."""

    def __init__(self, spec: AsofSpec, rows: pa.RecordBatch) -> None:
        self._right: tuple[Codes, Codes, Codes] | None = None
        self._blocks: tuple[Codes, Codes, Index] | None = None
        super().__init__(spec, rows)

    def _settle_ties(self) -> int:
        """Put rows that share key and time into their order; none of them is left out."""
        positions, runs = compiled.tied(self.times, self.starts)
        if positions.size:
            rows = self.order[positions]
            levels = [codes for at in self.spec.ties for codes in tie_levels(self.rows.column(at).take(rows))]
            self.order[positions] = rows[np.lexsort([*reversed(levels), runs])]
        return 0

    def match(self, left: pa.RecordBatch) -> RowNumbers:
        """For each left row the number of the best right row that satisfies its conditions, -1 where none does."""
        reach, ranges = self._reach(left), self._ranges(left)
        if self._blocks is None:
            lows, levels = compiled_where.block_ends(ranges.low, False)
            self._blocks = lows, compiled_where.block_ends(ranges.high, True)[0], levels
        lows, highs, levels = self._blocks
        return compiled_where.match_where(
            reach.numbers, reach.codes, reach.values, self.order, self.times, self.values,
            reach.befores, reach.afters, reach.firsts, reach.ends, DIRECTIONS[self.spec.direction],
            ranges.points, ranges.low, ranges.high, ranges.mine, ranges.other, lows, highs, levels,
        )  # fmt: skip

    def candidates(self, left: pa.RecordBatch, most: int) -> Iterator[tuple[int, int, Index, RowNumbers]]:
        """Left rows in blocks, from one number to another, and all right rows that may be their matches.

        Each block comes with the numbers of left and right rows of its pairs: those of a left row one after another,
        its best one first.  A block ends with the row that brings it to `most` pairs.
        """
        reach, ranges = self._reach(left), self._ranges(left)
        begin = 0
        while begin < left.num_rows:
            rows, found, end = compiled_where.list_candidates(
                begin, most, reach.numbers, reach.codes, reach.values, self.times, self.values,
                reach.befores, reach.afters, reach.firsts, reach.ends, DIRECTIONS[self.spec.direction],
                ranges.points, ranges.low, ranges.high, ranges.mine, ranges.other,
            )  # fmt: skip
            yield begin, end, rows, self.order[found]
            begin = end

    def _reach(self, left: pa.RecordBatch) -> _Reach:
        spec = self.spec
        direction = DIRECTIONS[spec.direction]
        numbers, codes, values = self.numbers_of(left), self.times_of(left), time_floats(spec, left, LEFT)

        def first_not_below(or_equal: bool) -> RowNumbers:
            return compiled.first_not_below(
                numbers, codes, or_equal, self.times, self.starts, self.table, self.begins, self.shifts
            )

        befores = first_not_below(spec.exact if direction in (BACKWARD, NEAREST) else not spec.exact)
        afters = first_not_below(True) if direction == NEAREST and not spec.exact else befores
        firsts, ends = compiled_where.reach(
            numbers, codes, values, self.times, self.values, self.starts, befores, afters, *tolerance(spec)
        )
        return _Reach(numbers, codes, values, befores, afters, firsts, ends)

    def _ranges(self, left: pa.RecordBatch) -> _Ranges:
        where, size = self.spec.where, left.num_rows
        if where is None:
            nothing, none = compiled_where.no_conditions(size), compiled_where.no_conditions(self.order.size)
            return _Ranges(nothing, none, none, nothing, none)
        keys = [[rows.column(at) for at in where.columns[side]] for side, rows in ((LEFT, left), (RIGHT, self.rows))]
        points = compiled_where.no_conditions(size)
        if self._right is None:
            # Ranks hold among the rows that were ranked together, all other codes for ever.
            ranked = any(axis.kind == "rank" for axis in where.step.axes)
            low = high = compiled_where.no_conditions(self.order.size)
            if where.step.axes:
                found, boxes = encode(where.step, *keys)
                points, low, high = found.coordinates, boxes.low[:, self.order], boxes.high[:, self.order]
            mine, other, fixed = self._unequal(left)
            if not ranked and fixed:
                self._right = low, high, other
            else:
                self._blocks = None
            return _Ranges(points, low, high, mine, other)
        low, high, other = self._right
        if where.step.axes:
            codes = [order_codes(keys[LEFT][axis.point], axis.kind) for axis in where.step.axes]
            points = np.array(codes, dtype=np.int64)
        kinds = [order_codes(left.column(a), kind) for a, _, kind in where.unequal]
        mine = np.array(kinds, dtype=np.int64) if kinds else compiled_where.no_conditions(size)
        return _Ranges(points, low, high, mine, other)

    def _unequal(self, left: pa.RecordBatch) -> tuple[Codes, Codes, bool]:
        """The codes that must differ, of left and of right rows; and whether those of right rows hold for ever."""
        where = self.spec.where
        pairs = [] if where is None else where.unequal
        if not pairs:
            return compiled_where.no_conditions(left.num_rows), compiled_where.no_conditions(self.order.size), True
        mine, other = [], []
        for a, b, kind in pairs:
            if kind == "rank":
                one, two = joint_codes(left.column(a), self.rows.column(b))
            else:
                one, two = order_codes(left.column(a), kind), order_codes(self.rows.column(b), kind)
            mine.append(one)
            other.append(two[self.order])
        return np.array(mine), np.array(other), all(kind != "rank" for _, _, kind in pairs)

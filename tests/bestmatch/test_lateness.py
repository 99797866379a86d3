"""How far a stream has come, by its largest value or cell by cell, and what is late by it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.families.bestmatch.bounds import Progress, _int_below

from .shapes import BY_NAME, Join
from .streams import Run, cut, place_on, row, streams


def by_cell(value: Any, within: Any) -> int:
    return math.floor(value / within) if within and math.isfinite(value) else value


@pytest.mark.parametrize("disorder", ["value", "grid"])
@given(streams(hows=["left", "right", "full"], judged=False), st.sampled_from([0, 1, 2.5, 7]), st.data())
def test_rows_behind_the_largest_value(disorder, made, lateness, data):
    """Rows at most a constant behind the largest so far, or cell by cell: what is out is final, and none is late."""
    join, *sides = made
    join = replace(join, by=())
    axis = join.shapes[0].axis
    lateness = lateness if axis.is_float else int(lateness)

    def late_by(row: dict) -> Any:
        value = place_on(join, row)
        if value is None:
            return -math.inf
        if disorder == "grid":
            return by_cell(value, axis.within)
        return value + data.draw(st.sampled_from([0, lateness / 2, lateness]))

    # Within a cell, and with equal sums, the order is that of the drawn table.
    sides = [sorted(side, key=late_by) for side in sides]
    # A sum of floats is rounded, and one row may come out a little further behind.
    allowed = lateness + 1e-9 if axis.is_float else lateness
    run = Run(replace(join.spec(), order=0, disorder=disorder, lateness=allowed))
    truth = join.expected(*sides)
    parts = 3
    pieces = [cut(data.draw, side, parts) for side in sides]
    for part in range(parts):
        run.step([(side, join.batch(pieces[side][part])) for side in (0, 1) if pieces[side][part]])
        assert not run.pairs() - truth
    assert run.counters["late"] == 0
    run.step([], end=True)
    assert run.pairs() == truth


@pytest.mark.parametrize(
    ("disorder", "lateness", "values", "bounds"),
    [
        ("value", 3, [10, 8, 7, 20, 16, 17], [7, 7, 7, 17, 17, 17]),
        ("value", 0, [10, 9, 10], [10, 10, 10]),
        ("grid", 0, [-5, -8, 1, 3, 0, 9, 8], [-8, -8, 0, 0, 0, 8, 8]),
    ],
)
def test_how_far_a_stream_has_come(disorder, lateness, values, bounds):
    """The paper's max_y1 - c, and the lower edge of the cell of the largest value; cells are 4 wide."""
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), "left")
    spec = replace(join.spec(), order=0, disorder=disorder, lateness=lateness)
    whole, parts = Progress(spec), Progress(spec)
    late = []
    for at, value in enumerate(values):
        batch = join.batch([row(at, value)])
        again = Progress(spec)
        again.restore(parts.head(), None)
        parts = again
        late.append(bool(parts.arrived(0, batch)[0]))
        assert parts.now[0] == bounds[at]
    assert late == [value < bound for value, bound in zip(values, [-math.inf, *bounds], strict=False)]
    assert whole.arrived(0, join.batch([row(at, value) for at, value in enumerate(values)])).tolist() == late
    assert whole.now == parts.now


def test_bounds_stay_within_64_bits():
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    codes = np.array([lowest, lowest + 3, -1, 0, highest])
    assert _int_below(codes, 5, grid=False).tolist() == [lowest, lowest, -6, -5, highest - 5]
    assert _int_below(codes, 10**30, grid=False).tolist() == [lowest, lowest, lowest, -highest, 0]
    assert _int_below(codes, 10, grid=True).tolist() == [lowest, lowest, -10, 0, highest - 7]
    assert _int_below(codes, 8, grid=True).tolist() == [lowest, lowest, -8, 0, highest - 7]

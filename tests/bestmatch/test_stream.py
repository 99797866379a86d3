"""Best-match joins of streams: any cut, any restart and any disorder that the promise allows give the definition."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.segments import unpack

from .shapes import BY_NAME, NAMES, Join
from .streams import Run, cut, ordered_by, row, streams


@given(streams(), st.integers(1, 4), st.booleans(), st.data())
def test_ordered_streams(made, parts, over, data):
    """Streams in order: each row is a promise.  What is out at any time is part of the answer, and at the end all
    is."""
    join, left, right = made
    left, right = ordered_by(join, left), ordered_by(join, right)
    spec = replace(join.spec(), order=0, disorder="ahead", ahead=1)
    truth = join.expected(left, right)
    run = Run(spec)
    pieces = [cut(data.draw, side, parts) for side in (left, right)]
    for part in range(parts):
        segments = [(side, join.batch(pieces[side][part])) for side in (0, 1) if pieces[side][part]]
        run.step(segments, end=over and part == parts - 1)
        if join.how != "inner":
            assert not run.pairs() - truth
    if not over and join.how != "inner":
        run.step([], end=True)
    assert run.pairs() == truth
    assert run.counters["late"] == 0


@given(streams(hows=["left", "right", "full"], judged=False), st.integers(1, 3), st.integers(1, 4), st.data())
def test_rows_leave_as_soon_as_they_are_final(made, ahead, parts, data):
    """With a read-ahead of c rows, what has left is what an independent count of c rows allows, no less and no more."""
    join, left, right = made
    join = replace(join, by=())
    column = join.shapes[0].column
    within = join.shapes[0].axis.within
    sides = [ordered_by(join, side) for side in (left, right)]
    for side in sides:
        for at in range(0, len(side) - ahead + 1, ahead):
            side[at : at + ahead] = data.draw(st.permutations(side[at : at + ahead]))

    def place(row: dict) -> Any:
        return None if row[column] is None or row[column] != row[column] else row[column]

    def bound(rows: list[dict]) -> Any:
        values = [place(row) for row in rows if place(row) is not None]
        return max((min(values[a : a + ahead]) for a in range(len(values) - ahead + 1)), default=None)

    run = Run(replace(join.spec(), order=0, disorder="ahead", ahead=ahead))
    pieces = [cut(data.draw, side, parts) for side in sides]
    seen: list[list[dict]] = [[], []]
    for part in range(parts):
        run.step([(side, join.batch(pieces[side][part])) for side in (0, 1) if pieces[side][part]])
        seen = [seen[side] + pieces[side][part] for side in (0, 1)]
        bounds = [bound(rows) for rows in seen]

        def final(side: int, number: int | None, bounds: list = bounds, seen: list = seen) -> bool:
            if number is None:
                return False
            value = place(next(row for row in seen[side] if row["id"] == number))
            return value is None or (
                bounds[1 - side] is not None and bounds[1 - side] > value and bounds[1 - side] - value > within
            )

        truth: Counter = Counter()
        for side, how in enumerate(("left", "right")):
            if join.how in (how, "full"):
                of_side = replace(join, how=how).expected(*seen)
                truth |= Counter({pair: 1 for pair in of_side if final(side, pair[side])})
        assert run.pairs() == truth
    assert run.counters["late"] == 0


@given(streams(judged=False), st.integers(1, 4), st.data())
def test_watermark(made, parts, data):
    """Rows come in any order that the watermark allows; the last empty micro-batch closes what is left."""
    join, left, right = made
    join = replace(join, shapes=(BY_NAME["t4"], *[s for s in join.shapes if s.name != "t4"][:3]))
    spec = replace(join.spec(), order=0, disorder="watermark")
    run = Run(spec)
    waiting = [list(left), list(right)]
    watermark = None
    for _ in range(parts):
        segments = []
        for side in (0, 1):
            size = data.draw(st.integers(0, len(waiting[side])))
            chosen = data.draw(st.permutations(waiting[side]))[:size]
            waiting[side] = [row for row in waiting[side] if row not in chosen]
            if chosen:
                segments.append((side, join.batch(chosen)))
        run.step(segments, watermark)
        # No row that is still to come may lie before the next watermark.
        least = min([row["t"] for side in waiting for row in side if row["t"] is not None], default=100)
        watermark = max(watermark or 0, data.draw(st.integers(0, least))) or None
    run.step([(side, join.batch(rows)) for side, rows in enumerate(waiting) if rows], watermark)
    if join.how != "inner":
        # Timers and nothing else bring out the rest.
        while run.wake is not None:
            watermark = max(watermark or 0, run.wake)
            run.step([], watermark)
    assert run.pairs() == join.expected(left, right)
    assert run.counters["late"] == 0
    if join.how != "inner":
        run.step([], 1000)
        assert not [name for name in run.state if name[0] in "01"]


@given(streams(judged=False), st.integers(1, 4), st.data())
def test_marks(made, parts, data):
    """A mark, on a row or on a row of its own, says that no smaller value comes after it."""
    join, left, right = made
    column = join.shapes[0].column
    sides = []
    for rows in (left, right):
        arrived = []
        for at, arriving in enumerate(rows):
            later = [r[column] for r in rows[at + 1 :] if r[column] is not None and r[column] == r[column]]
            mark = min(later) if later and data.draw(st.booleans()) else None
            arrived.append({**arriving, "mark": mark})
        sides.append(arrived)
    nothing = dict.fromkeys(NAMES)

    def batch(rows: list[dict]) -> pa.RecordBatch:
        whole = join.batch(rows)
        kind = whole.schema.field(len(NAMES) + len(join.by)).type
        return whole.append_column("mark", pa.array([row["mark"] for row in rows], kind))

    run = Run(replace(join.spec(), order=0, disorder="marks", keep=False))
    pieces = [cut(data.draw, side, parts) for side in sides]
    for part in range(parts):
        run.step([(side, batch(pieces[side][part])) for side in (0, 1) if pieces[side][part]])
    if join.how != "inner":
        last = {**nothing, "mark": 100 if column == "t" else float("inf") if column == "y" else 2**62}
        run.step([(side, batch([last])) for side in (0, 1)])
        highest = {"x": 2**62, "y": float("inf")}.get(column)
        far = [row for side in sides for row in side if row[column] is not None and row[column] == highest]
        if far:
            run.step([], end=True)
    assert run.pairs() == replace(join, keep=False).expected(left, right)
    assert run.counters["late"] == 0


def test_state_stays_small_and_late_rows_are_counted():
    join = Join((BY_NAME["t4"],), "left")
    run = Run(replace(join.spec(), order=0, disorder="watermark"))
    for step in range(50):
        rows = [row(step * 10 + at, step * 10 + at) for at in range(10)]
        run.step([(0, join.batch(rows)), (1, join.batch(rows))], step * 10 or None)
        held = sum(unpack(s).num_rows for name, s in run.state.items() if name[0] in "01")
        assert held <= 50
    # The two would be each other's best.
    run.step([(0, join.batch([row(1000, 3)])), (1, join.batch([row(1000, 4)]))], 490)
    assert run.counters["late"] == 2
    assert run.pairs() == Counter({(at, at): 1 for at in range(486)})


def test_a_full_join_sends_no_pair_twice():
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), "full")
    run = Run(replace(join.spec(), order=0, disorder="watermark"))
    left, right = [row(0, 1, h=0)], [row(0, 4, h=0), row(1, 5, h=9)]
    run.step([(0, join.batch(left)), (1, join.batch(right))])
    assert run.pairs() == Counter()
    assert run.wake == 6
    run.step([], 6)
    assert run.pairs() == Counter({(0, 0): 1})
    run.step([], 9)
    assert run.pairs() == Counter({(0, 0): 1})
    run.step([], 11)
    assert run.pairs() == Counter({(0, 0): 1, (0, 1): 1})
    assert unpack(run.state["sent"]).num_rows == 0


def test_an_inner_join_takes_back_what_is_beaten():
    join = Join((BY_NAME["t4"],), "inner")
    run = Run(replace(join.spec(), order=0, disorder="watermark"))
    run.step([(0, join.batch([row(0, 1)])), (1, join.batch([row(0, 4)]))])
    run.step([(1, join.batch([row(1, 2)]))])
    assert [(r["i0_0"], r["i1_0"], r["_change"]) for r in run.rows] == [
        (0, 0, "insert"),
        (0, 0, "retract"),
        (0, 1, "insert"),
    ]
    run.step([(1, join.batch([row(2, 1)]))])
    assert [(r["i0_0"], r["i1_0"], r["_change"]) for r in run.rows[3:]] == [(0, 1, "retract"), (0, 2, "insert")]
    assert unpack(run.state["best"]).num_rows == 1


def test_an_inner_join_holds_the_best_pairs_and_what_may_still_enter_one():
    join = Join((BY_NAME["t4"],), "inner")
    run = Run(replace(join.spec(), order=0, disorder="watermark"))
    for step in range(50):
        rows = [row(step * 10 + at, step * 10 + at) for at in range(10)]
        run.step([(0, join.batch(rows)), (1, join.batch(rows[5:]))], step * 10 or None)
        # Of the last three micro-batches at most; the watermark is one behind.
        assert sum(unpack(s).num_rows for name, s in run.state.items() if name[0] in "01") <= 30
    assert run.pairs() == Counter({(at, at): 1 for at in range(500) if at % 10 >= 5})
    assert unpack(run.state["best"]).num_rows == 250


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_row_stays_while_a_row_at_the_watermark_can_reach_it(how):
    join = Join((BY_NAME["t4"],), how)
    for first in (0, 1):
        run = Run(replace(join.spec(), order=0, disorder="watermark"))
        run.step([(first, join.batch([row(0, 1)]))])
        run.step([], 5)
        run.step([(1 - first, join.batch([row(0, 5)]))], 5)
        run.step([], 100)
        assert run.pairs() == Counter({(0, 0): 1})


@pytest.mark.parametrize("disorder", ["ahead", "watermark"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_dense_streams(how, disorder):
    """Rows close together, a few in every micro-batch, and one stream now and then ahead of the other."""
    draw = random.Random(how + disorder)
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), how)
    sides = [
        [row(at, t, h=draw.randrange(5)) for at, t in enumerate(sorted(draw.randrange(30) for _ in range(40)))]
        for _ in (0, 1)
    ]
    truth = join.expected(*sides)
    run = Run(replace(join.spec(), order=0, disorder=disorder, ahead=1))
    at, watermark = [0, 0], None
    while at != [40, 40]:
        segments = []
        for side in (0, 1):
            part = sides[side][at[side] : at[side] + draw.choice([0, 0, 1, 1, 4])]
            at[side] += len(part)
            if part:
                segments.append((side, join.batch(part)))
        run.step(segments, watermark)
        if how != "inner":
            assert not run.pairs() - truth
        if disorder == "watermark" and all(at):
            watermark = min(rows[end - 1]["t"] for rows, end in zip(sides, at, strict=True))
    run.step([], watermark, end=True)
    assert run.pairs() == truth
    assert run.counters["late"] == 0


@pytest.mark.parametrize("how", ["left", "full"])
def test_what_a_waiting_row_can_reach_stays(how):
    """The left stream is far ahead of the right one; its first row still waits for rows that lie behind it."""
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), how)
    run = Run(replace(join.spec(), order=0, disorder="ahead", ahead=1))
    left = [row(0, 3, h=0), row(1, 30, h=0)]
    right = [row(0, 0, h=0), row(1, 1, h=5), row(2, 6, h=9), row(3, 40, h=0)]
    run.step([(0, join.batch(left))])
    for other in right:
        run.step([(1, join.batch([other]))])
    assert run.pairs() == Counter({(0, 0): 1, (0, 1): 1} | ({(0, 2): 1} if how == "full" else {}))
    run.step([], end=True)
    assert run.pairs() == join.expected(left, right)

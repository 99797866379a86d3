"""Best-match joins of streams: any cut, any restart and any disorder that the promise allows give the definition."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.segments import pack, unpack
from dovetail.conditions.limits import Limit
from dovetail.families.bestmatch.bounds import Progress, _int_below
from dovetail.families.bestmatch.outputs import METRICS, output_names
from dovetail.families.bestmatch.router import static_routing
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.stages import RouteStage
from dovetail.families.bestmatch.stream import BestKernel
from dovetail.families.bestmatch.stream_recent import RecentKernel
from dovetail.reference import bestmatch as definition

from .shapes import BY_NAME, NAMES, Join, joins, tables

ORDERS = {"t4": "t", "x1": "x", "y.3": "y"}


class Run:
    """A kernel that is stored and made again at every step, as Spark does."""

    def __init__(self, spec: BestSpec, kind: Any = BestKernel) -> None:
        self.spec, self.kind = spec, kind
        self.state: dict[str, bytes] = {}
        self.rows: list[dict[str, Any]] = []
        self.counters: Counter[str] = Counter()
        self.wake: int | None = None

    def step(
        self, segments: list[tuple[int, pa.RecordBatch]], watermark: int | None = None, *, end: bool = False
    ) -> None:
        kernel = self.kind(self.spec)
        kernel.restore({name: unpack(segment) for name, segment in self.state.items()}, watermark)
        for side, rows in segments:
            kernel.push(side, rows)
        if end:
            kernel.end()
        for batch in kernel.results():
            assert batch.schema.names == output_names(self.spec)
            self.rows += batch.to_pylist()
        changes = kernel.changes()
        for name in changes.dropped:
            self.state.pop(name, None)
        for name, rows in changes.stored.items():
            self.state[name] = pack(rows).to_pybytes()
        self.wake = kernel.wake_at()
        assert set(kernel.counters) == set(METRICS)
        self.counters.update(kernel.counters)

    def pairs(self) -> Counter:
        """What came out, retractions taken back."""
        found: Counter = Counter()
        for row in self.rows:
            pair = row["i0_0"], row[f"i1_{NAMES.index('id')}"]
            found[pair] += -1 if row.get("_change") == "retract" else 1
            assert found[pair] >= 0
        return +found


@st.composite
def streams(draw: Any, **options: Any) -> tuple[Join, list[dict[str, Any]], list[dict[str, Any]]]:
    """A join that is ordered on its first criterion, and rows."""
    ordered = draw(st.sampled_from(sorted(ORDERS)))
    join = draw(joins(**options))
    shapes = (BY_NAME[ordered], *[shape for shape in join.shapes if shape.name != ordered][:3])
    return replace(join, shapes=shapes), draw(tables(12)), draw(tables(12))


def ordered_by(join: Join, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of the first criterion; those without a place in it where they are."""
    column = join.shapes[0].column
    placed = [row for row in rows if row[column] is not None and row[column] == row[column]]
    waiting = iter(sorted(placed, key=lambda row: row[column]))
    return [next(waiting) if row in placed else row for row in rows]


def cut(draw: Any, rows: list[Any], parts: int) -> list[list[Any]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=parts - 1, max_size=parts - 1)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


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


def place_on(join: Join, row: dict) -> Any:
    """The value of a row on the first criterion, None where it has no place."""
    value = row[join.shapes[0].column]
    return None if value is None or value != value else value


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
        for at, row in enumerate(rows):
            later = [r[column] for r in rows[at + 1 :] if r[column] is not None and r[column] == r[column]]
            mark = min(later) if later and data.draw(st.booleans()) else None
            arrived.append({**row, "mark": mark})
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


def row(number: int, t: int | None, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "id": number, "t": t, **more}


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


@given(
    joins(judged=False), tables(10), tables(10), st.integers(1, 4), st.sampled_from([None, 1, 3, 7]),
    st.integers(1, 3), st.data(),
)  # fmt: skip
def test_the_answer_over_the_last_while(join, left, right, parts, every, cells, data):
    """At every instant the join over the rows of the last 4, whatever the cut and the number of cells."""
    spec = replace(join.spec(), max_age=4, every=every)
    routing = static_routing(spec, cells).to_buffer().to_pybytes()
    runs = {cell: Run(spec, RecentKernel) for cell in range(cells)}

    def segments(side: int, rows: list[dict]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """What reaches the cells: (cell, side, rows)."""
        batch = join.batch(rows).append_column("when", pa.array([r["t"] for r in rows], pa.timestamp("us", "UTC")))
        columns = batch.num_columns
        if join.by:
            hashes = [hash(tuple(r[name] for name in join.by)) & 0x7FFF_FFFF_FFFF_FFFF for r in rows]
            batch = batch.append_column("hash", pa.array(hashes, pa.int64()))
        for found in RouteStage(spec, side, columns, routing)(iter([batch])):
            for row in found.to_pylist():
                yield row["cell"], row["side"], unpack(row["segment"])

    ordered = [sorted(side, key=lambda r: -1 if r["t"] is None else r["t"]) for side in (left, right)]
    marks = sorted(data.draw(st.lists(st.integers(1, 14), min_size=parts, max_size=parts)))
    begin = -1
    watermark = None
    for mark in [*marks, 100]:
        arrived: dict[int, list[tuple[int, pa.RecordBatch]]] = {cell: [] for cell in runs}
        for side in (0, 1):
            some = [r for r in ordered[side] if begin <= (-1 if r["t"] is None else r["t"]) < mark]
            if some:
                for cell, travels_as, rows in segments(side, data.draw(st.permutations(some))):
                    arrived[cell].append((travels_as, rows))
        for cell, run in runs.items():
            # Spark calls a cell that has new rows, or whose timer the watermark has reached.
            due = run.wake is not None and watermark is not None and run.wake <= watermark
            if arrived[cell] or due:
                run.step(arrived[cell], watermark)
        begin, watermark = mark, mark
    for run in runs.values():
        run.step([], end=True)
    truth = definition.recent_bestmatch_join(
        {"R": left, "S": right}, [shape.definition for shape in join.shapes], join.how, join.by,
        time="t", max_age=4, every=every, keep_unmatched=join.keep,
    )  # fmt: skip
    meant = Counter((*(None if row is None else row["id"] for row in pair.values()), at) for at, pair in truth)
    found = Counter((r["i0_0"], r["i1_0"], r["_time"].microsecond) for run in runs.values() for r in run.rows)
    assert found == meant
    assert sum(run.counters["late"] for run in runs.values()) == 0


def test_the_answer_at_the_time_of_a_row_that_matches_nothing():
    """A row without a value arrives, too, and so does one of another key; ages count from then."""
    for by in ((), ("k",)):
        rows = [{**row(0, 1), "x": 5, "k": "a"}, {**row(1, 3), "x": None, "k": "a"}, {**row(2, 4), "x": 1, "k": "b"}]
        truth = definition.recent_bestmatch_join(
            {"R": rows, "S": rows[:1]}, [BY_NAME["x"].definition], "left", by, time="t", max_age=4
        )
        assert [at for at, pair in truth if pair["R"]["id"] == 0] == [1, 3, 4]


def test_every_multiple_at_which_some_row_is_young_enough():
    join = Join((BY_NAME["x"],), "left")
    rows = [{**row(0, 2), "x": 5}, {**row(1, 11), "x": 5}]
    run = Run(replace(join.spec(), max_age=4, every=2), RecentKernel)
    batch = join.batch(rows).append_column("when", pa.array([2, 11], pa.timestamp("us", "UTC")))
    run.step([(0, batch), (1, batch)])
    run.step([], 5)
    assert [r["_time"].microsecond for r in run.rows] == [2, 4]
    assert run.wake == 7
    run.step([], 7)
    run.step([], 14)
    assert [r["_time"].microsecond for r in run.rows] == [2, 4, 6, 12]
    run.step([], end=True)
    assert [r["_time"].microsecond for r in run.rows] == [2, 4, 6, 12, 14]


@pytest.mark.parametrize("materialise", ["standard", "grid"])
@given(
    made=streams(hows=["left", "right", "full"], judged=False),
    memory=st.builds(Limit, st.integers(1, 12)) | st.builds(Limit, st.integers(1, 2_000), st.just("bytes")),
)
def test_windows_on_disk(materialise, made, memory):
    join, left, right = made
    spec = replace(join.spec(), memory=memory, materialise=materialise)
    run = Run(spec)
    run.step([(0, join.batch(left)), (1, join.batch(right))], end=True)
    assert run.pairs() == join.expected(left, right)


@pytest.mark.parametrize(
    ("memory", "on_disk"),
    [(Limit(100), False), (Limit(99), True), (Limit(1, "bytes"), True), (Limit(10**6, "bytes"), False)],
)
def test_windows_beyond_the_limit_go_to_disk(memory, on_disk):
    """A limit in bytes counts as many rows as fit into it, at the width of the rows of the windows."""
    join = Join((BY_NAME["t4"],), "left")
    rows = join.batch([row(at, at) for at in range(50)])
    run = Run(replace(join.spec(), memory=memory))
    run.step([(0, rows), (1, rows)], end=True)
    assert (run.counters["page_reads"] > 0) == on_disk
    assert run.pairs() == Counter({(at, at): 1 for at in range(50)})


def test_a_limit_in_bytes_is_that_of_the_rows():
    join = Join((BY_NAME["t4"],), "left")
    rows = join.batch([row(at, at) for at in range(50)])
    size = 2 * rows.append_column("own", pa.array([True] * 50)).nbytes
    for memory, on_disk in ((size, False), (size - 100, True)):
        run = Run(replace(join.spec(), memory=Limit(memory, "bytes")))
        run.step([(0, rows), (1, rows)], end=True)
        assert (run.counters["page_reads"] > 0) == on_disk


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

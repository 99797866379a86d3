"""Windowed theta joins, as rows arrive: any cut, any restart, any order within the watermark gives the definition."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail import reference
from dovetail.columns.segments import pack, unpack
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.join_kind import HOWS
from dovetail.conditions.predicates import parse
from dovetail.families.theta.router import CellOfTime
from dovetail.families.theta.spec import ALGORITHMS, Options, WindowSpec
from dovetail.families.theta.stream import METRICS, WindowKernel
from dovetail.plan.theta import Facts, plan_theta
from dovetail.reference import at_most, both, difference, equal, less

ALIASES = ("A", "B", "C", "D")
COLUMNS = {"id": pa.int64(), "x": pa.int64(), "y": pa.float64(), "k": pa.string(), "t": pa.int64()}
TYPES = {
    "x": KeyType("BIGINT", "int"),
    "y": KeyType("DOUBLE", "float64"),
    "k": KeyType("STRING", "rank"),
}
EVERY = 10

# Conditions between two inputs, as SQL over L and R beside their meaning.
CONDITIONS = {
    "L.x < R.x": lambda a, b: less(a["x"], b["x"]),
    "R.y <= L.y": lambda a, b: at_most(b["y"], a["y"]),
    "ABS(L.x - R.x) <= 1": lambda a, b: both(
        at_most(-1, difference(a["x"], b["x"])), at_most(difference(a["x"], b["x"]), 1)
    ),
    "L.k = R.k AND L.x >= R.x": lambda a, b: both(equal(a["k"], b["k"]), at_most(b["x"], a["x"])),
    "L.k <= R.k": lambda a, b: at_most(a["k"], b["k"]),
    "R.x BETWEEN L.x AND L.z": lambda a, b: both(at_most(a["x"], b["x"]), at_most(b["x"], a["z"])),
    "L.x <= R.z AND R.x <= L.z": lambda a, b: both(at_most(a["x"], b["z"]), at_most(b["x"], a["z"])),
    "L.k = R.k": lambda a, b: equal(a["k"], b["k"]),
}
COLUMNS["z"] = pa.int64()
TYPES["z"] = TYPES["x"]
COMPARISONS = [sql for sql in CONDITIONS if sql != "L.k = R.k"]


def spec_of(on: str, inputs: int, how: str, algorithm: str, *, rows: int | None, every: int | None) -> WindowSpec:
    """The description that the planner would give a kernel."""
    aliases = ALIASES[:inputs]
    predicate = parse(on, {alias: list(COLUMNS) for alias in aliases})

    def typed(parts: Any) -> tuple[Any, ...]:
        return tuple((part, TYPES[part.left.sql.split("`")[3]]) for part in parts)

    facts = Facts(
        frozenset(aliases), typed(predicate.equalities), typed([*predicate.inequalities, *predicate.bands]), 2,
        payload_types=dict.fromkeys(aliases, tuple(COLUMNS.values())),
    )  # fmt: skip
    options = Options(how, algorithm)  # type: ignore[arg-type]
    from dovetail.conditions.durations import CountWindow, TimeWindow

    window = CountWindow(rows) if rows is not None else TimeWindow("t", every or 1)
    plan = plan_theta(aliases, predicate, facts, options, window=window, broadcast=None, sample=True)
    assert plan.spec is not None
    return plan.spec


def segment(spec: WindowSpec, side: int, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Payload, keys and time, as Spark packs them."""
    table = {name: pa.array([row[name] for row in rows], kind) for name, kind in COLUMNS.items()}
    columns = [*table.values(), *(table[key.sql.split("`")[3]] for key in spec.keys[side])]
    if spec.every is not None:
        columns.append(table["t"])
    return pa.RecordBatch.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])


@dataclass
class Driver:
    """The streaming driver's part: a new kernel for every call, with all it knows in a map of bytes."""

    spec: WindowSpec
    state: dict[str, bytes] = field(default_factory=dict)
    found: Counter[tuple[int | None, ...]] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)
    wake: int | None = None

    def call(self, pushes: list[tuple[int, list[dict[str, Any]]]], watermark: int | None = None, *, end: bool = False):
        kernel = WindowKernel(self.spec)
        kernel.restore({name: unpack(value) for name, value in self.state.items()}, watermark)
        for side, rows in pushes:
            kernel.push(side, segment(self.spec, side, rows))
        if end:
            kernel.end()
        for batch in kernel.results():
            assert batch.schema.names == self.spec.output_names()
            self.found.update(self._numbers(batch))
        changes = kernel.changes()
        assert not set(changes.stored) & changes.dropped
        assert changes.dropped <= set(self.state)
        assert not set(changes.stored) & (set(self.state) - {"head"})
        for name in changes.dropped:
            del self.state[name]
        self.state.update({name: pack(rows).to_pybytes() for name, rows in changes.stored.items()})
        self.counters.update(kernel.counters)
        self.last = dict(kernel.counters)
        self.wake = kernel.wake_at()
        assert set(kernel.counters) == set(METRICS)

    def _numbers(self, batch: pa.RecordBatch) -> list[tuple[int | None, ...]]:
        one = self.spec.options.how in ("semi", "anti")
        sides = range(1 if one else len(self.spec.payload))
        numbers = [batch.column(f"i{at}_0").to_pylist() for at in sides]
        if self.spec.options.how in ("left", "right", "full"):
            for at in sides:
                assert [n is not None for n in numbers[at]] == batch.column(f"p{at}").to_pylist()
        return list(zip(*numbers, strict=True))

    def open_windows(self) -> set[int]:
        return {int(name.split("/")[0]) for name in self.state if name != "head"}


def expected(inputs, condition, how, window=None) -> Counter[tuple[int | None, ...]]:
    joined = reference.theta_join(inputs, condition, how, window)
    return Counter(tuple(None if row is None else row["id"] for row in found.values()) for found in joined)


def in_time(condition, every: int = EVERY):
    """The condition, for rows of the same window of time only."""

    def holds(a, b):
        same = None if a["t"] is None or b["t"] is None else a["t"] // every == b["t"] // every
        return both(same, condition(a, b))

    return holds


def renamed(sql: str, left: str, right: str) -> str:
    return sql.replace("L.", "#.").replace("R.", f"{right}.").replace("#.", f"{left}.")


FLOATS = [0.0, -0.0, 1.0, -1.0, 2.5, math.nan, math.inf, -math.inf]
a_row = st.fixed_dictionaries(
    {
        "x": st.none() | st.integers(-4, 4),
        "y": st.none() | st.sampled_from(FLOATS),
        "k": st.none() | st.sampled_from(["", "a", "b"]),
        "z": st.none() | st.integers(-4, 4),
    }
)
times = st.none() | st.integers(-35, 35) | st.sampled_from([-10, -1, 0, 9, 10])


@st.composite
def inputs_of(draw, count: int, size: int, timed: bool = False):
    made = {}
    for alias in ALIASES[:count]:
        rows = draw(st.lists(a_row, max_size=size))
        made[alias] = [{"id": at, **row, "t": draw(times) if timed else None} for at, row in enumerate(rows)]
    return made


@st.composite
def calls_of(draw, inputs):
    """The rows of all inputs in their order, cut into calls of pushes; some pushes are empty."""
    rest = {side: list(rows) for side, rows in enumerate(inputs.values())}
    calls = []
    while any(rest.values()):
        call = []
        for _ in range(draw(st.integers(1, 4))):
            side = draw(st.integers(0, len(rest) - 1))
            count = draw(st.integers(0, 5))
            call.append((side, rest[side][:count]))
            rest[side] = rest[side][count:]
        calls.append(call)
        if len(calls) > 12:
            calls.append(list(rest.items()))
            break
    return calls


@given(st.data(), st.integers(2, 4), st.integers(1, 5), st.sampled_from(ALGORITHMS))
def test_count_windows_are_the_definition(data, count, rows, algorithm):
    pool = list(CONDITIONS) if algorithm == "auto" else COMPARISONS
    chosen = [data.draw(st.sampled_from(pool)) for _ in range(count - 1)]
    # A chain, or a star around the first input.
    star = data.draw(st.booleans())
    links = [(0 if star else at, at + 1, sql) for at, sql in enumerate(chosen)]
    on = " AND ".join(renamed(sql, ALIASES[a], ALIASES[b]) for a, b, sql in links)
    inputs = data.draw(inputs_of(count, 12 if count == 2 else 7))
    driver = Driver(spec_of(on, count, "inner", algorithm, rows=rows, every=None))
    seen = [0] * count
    for call in data.draw(calls_of(inputs)):
        driver.call(call)
        for side, pushed in call:
            seen[side] += len(pushed)
        # What is out is all that the rows so far can give, and a window that all inputs have passed is forgotten.
        so_far = {alias: made[: seen[at]] for at, (alias, made) in enumerate(inputs.items())}
        meaning = lambda *found: both(*(CONDITIONS[sql](found[a], found[b]) for a, b, sql in links))  # noqa: E731
        assert driver.found == expected(so_far, meaning, "inner", rows)
        assert all(window >= min(seen) // rows for window in driver.open_windows())
        assert driver.wake is None
    assert driver.counters["results"] == driver.counters["candidates"] == driver.found.total()
    driver.call([], end=True)
    assert set(driver.state) <= {"head"}
    assert driver.counters["rows"] == sum(seen)
    assert driver.counters["late"] == 0


@given(st.data(), st.integers(1, 5), st.sampled_from(HOWS), st.sampled_from(ALGORITHMS))
def test_all_hows_of_count_windows_are_right_in_the_end(data, rows, how, algorithm):
    sql = data.draw(st.sampled_from(list(CONDITIONS) if algorithm == "auto" else COMPARISONS))
    inputs = data.draw(inputs_of(2, 12))
    driver = Driver(spec_of(renamed(sql, "A", "B"), 2, how, algorithm, rows=rows, every=None))
    for call in data.draw(calls_of(inputs)):
        driver.call(call)
    driver.call([], end=True)
    assert driver.found == expected(inputs, CONDITIONS[sql], how, rows)
    assert set(driver.state) <= {"head"}


@given(st.data(), st.sampled_from(HOWS), st.sampled_from(ALGORITHMS))
@examples(200)
def test_time_windows_are_the_definition(data, how, algorithm):
    """Rows come in any order; those of a window that the watermark has passed are late, and only those."""
    sql = data.draw(st.sampled_from(list(CONDITIONS) if algorithm == "auto" else COMPARISONS))
    inputs = data.draw(inputs_of(2, 14, timed=True))
    shuffled = {alias: data.draw(st.permutations(rows)) for alias, rows in inputs.items()}
    delay = data.draw(st.sampled_from([0, 5, 12, 100]))
    driver = Driver(spec_of(renamed(sql, "A", "B"), 2, how, algorithm, rows=None, every=EVERY))
    watermark: int | None = None
    taken: dict[str, list[Any]] = {"A": [], "B": []}
    late = 0
    for call in data.draw(calls_of(shuffled)):
        driver.call(call, watermark)
        for side, pushed in call:
            for row in pushed:
                closed = row["t"] is not None and watermark is not None
                if closed and (row["t"] // EVERY + 1) * EVERY <= watermark:
                    late += 1
                else:
                    taken["AB"[side]].append(row)
        if watermark is not None:
            assert all((window + 1) * EVERY > watermark for window in driver.open_windows())
        if driver.open_windows():
            assert driver.wake is not None
            assert driver.wake == (min(driver.open_windows()) + 1) * EVERY
        else:
            assert driver.wake is None
        assert driver.counters["late"] == late

        # Pairs leave at once, and unmatched rows with their window.
        def is_out(row, watermark=watermark):
            if row["t"] is None or how == "inner":
                return True
            return watermark is not None and (row["t"] // EVERY + 1) * EVERY <= watermark

        so_far = expected(taken, in_time(CONDITIONS[sql]), how)
        by_id = {(at, row["id"]): row for at, rows in enumerate(taken.values()) for row in rows}
        certain = Counter()
        for found, times_ in so_far.items():
            rows = [by_id[at, number] for at, number in enumerate(found) if number is not None]
            if len(rows) == 2 or all(is_out(row) for row in rows):
                certain[found] += times_
        assert driver.found == certain
        seen = [row["t"] for rows in taken.values() for row in rows if row["t"] is not None]
        if seen and data.draw(st.booleans()):
            watermark = max(max(seen) - delay, -1000 if watermark is None else watermark)
    driver.call([], watermark, end=True)
    assert driver.found == expected(taken, in_time(CONDITIONS[sql]), how)
    assert driver.state == {}
    assert driver.wake is None
    assert driver.counters["results"] == driver.found.total()
    assert driver.counters["late"] == late


def rows_at(*moments: int | None, x: int | None = 0, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": first + at, "x": x, "y": 0.0, "k": "a", "z": 0, "t": moment} for at, moment in enumerate(moments)]


def test_wake_closes_windows_without_new_rows():
    driver = Driver(spec_of("A.x < B.x", 2, "left", "auto", rows=None, every=EVERY))
    driver.call([(0, rows_at(-1, 0, 25))])
    assert driver.found == Counter()
    assert driver.wake == 0
    driver.call([], 0)
    assert driver.found == Counter([(0, None)])
    assert driver.wake == 10
    driver.call([], 29)
    assert driver.found == Counter([(0, None), (1, None)])
    assert (driver.last["held_rows"], driver.last["evicted"]) == (1, 1)
    assert driver.last["held_bytes"] > 0
    assert driver.wake == 30
    driver.call([], 30)
    assert driver.state == {}
    assert driver.wake is None
    assert driver.last["held_rows"] == driver.last["held_bytes"] == 0


def test_late_is_a_closed_window_not_a_row_behind_the_watermark():
    driver = Driver(spec_of("A.x <= B.x", 2, "inner", "auto", rows=None, every=EVERY))
    driver.call([(0, rows_at(11))])
    # The rows at 8 and 9 share a window, and it has closed.
    driver.call([(0, rows_at(8, first=1)), (1, rows_at(10, 19, 9, -5, None))], 18)
    assert driver.found == Counter([(0, 0), (0, 1)])
    assert driver.counters["late"] == 3


def test_rows_that_cannot_match_are_not_held():
    driver = Driver(spec_of("A.x <= B.x", 2, "inner", "auto", rows=3, every=None))
    driver.call([(0, rows_at(0, 0, x=None)), (0, rows_at(0, 0, first=2))])
    assert driver.last["held_rows"] == 2
    driver.call([(1, rows_at(0, 0, 0, 0))])
    # The rows without a key still took their places: the first window ends with the row 2.
    assert driver.found == Counter([(2, 0), (2, 1), (2, 2), (3, 3)])
    assert driver.open_windows() == {1}


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "auto"])
@pytest.mark.parametrize("how", ["semi", "anti", "full"])
def test_comparisons_are_counted_whatever_comes_out(algorithm, how):
    driver = Driver(spec_of("A.x <= B.x", 2, how, algorithm, rows=10, every=None))
    driver.call([(0, rows_at(*[0] * 10)), (1, rows_at(*[0] * 10))])
    assert driver.counters["comparisons"] >= 100


@given(st.lists(times, max_size=30), st.integers(1, 50), st.integers(1, 7))
def test_rows_of_a_window_share_a_cell(moments, every, cells):
    batch = pa.RecordBatch.from_arrays([pa.array(moments, pa.int64())], names=["t"])
    for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "Asia/Tokyo")):
        column = pa.RecordBatch.from_arrays([batch.column(0).cast(kind)], names=["t"])
        found = CellOfTime(every, cells)(column).tolist()
        assert all(0 <= cell < cells for cell in found)
        assert found == [0 if at is None else at // every % cells for at in moments]

"""Times that misbehave: far in the future, backwards, absent, and a hundred times as many as usual.  No JVM."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from tests.asof.harness import Case, table
from tests.asof.test_stream import Run
from tests.theta.test_stream import Driver, spec_of
from tests.window.harness import make_plan, make_spec, run_batch, run_stream
from tests.window.shapes import table as window_table

FAR = 10**9


def timed(times, key=1):
    return window_table([{"t": t, "k": key, "s": "", "v": 0.0, "w": 0} for t in times])


def window_spec(tables, within=5, **options):
    return make_spec(make_plan("A.k = B.k", tables, within, streaming=True, **options))


def step_by_step(count, *, size=1):
    """One call for every `size` rows of both inputs."""
    return [[(side, range(at, at + size)) for side in (0, 1)] for at in range(0, count, size)]


# ----------------------------------------------------------------------------------------------------------------------
# The window join keeps watermarks of its own, one for each input.
# ----------------------------------------------------------------------------------------------------------------------


def test_a_row_of_the_far_future_leaves_a_trace():
    """It evicts what it overtakes; what comes after it is late, and every late row is counted."""
    times = [*range(10), FAR, *range(10, 20)]
    tables = {"A": timed(times), "B": timed(range(21))}
    joined = run_stream(window_spec(tables, delays=[0, 0]), tables, step_by_step(21))
    assert joined.total("late_A") == 10
    assert joined.counters[-1]["held_rows_B"] == 0
    # The pairs of the rows before it are all there; those after it have none, and nobody made one up.
    before = run_batch(window_spec(tables), {"A": timed(times[:10]), "B": timed(range(21))}).found
    assert not joined.found - before
    assert joined.found[0, 0] == 1


def test_a_clock_that_goes_back_makes_rows_late_and_nothing_else():
    there = [*range(100, 110), *range(50, 60), *range(110, 120)]
    tables = {"A": timed(there), "B": timed([*range(100, 110), *[109] * 10, *range(110, 120)])}
    joined = run_stream(window_spec(tables), tables, step_by_step(30))
    assert joined.total("late_A") == 10
    # The answer is that of the rows which were in time.
    in_time = {"A": timed([None if t < 100 else t for t in there]), "B": tables["B"]}
    assert joined.found == run_batch(window_spec(in_time), in_time).found
    assert max(counts["held_rows_A"] for counts in joined.counters) <= 20


def test_a_silent_input_emits_nothing_and_its_state_is_told():
    tables = {"A": timed(range(40)), "B": timed([])}
    for idle, most in ((None, 40), (10, 17)):
        joined = run_stream(window_spec(tables, idle=idle), tables, [[(0, [at])] for at in range(40)])
        assert not joined.found
        assert joined.counters[-1]["held_rows_A"] == pytest.approx(most, abs=2)


def test_a_burst_changes_neither_the_answer_nor_the_state_after_it():
    """One call brings a hundred times the rows of the others; a while later no trace of it is left in the state."""
    calm, burst = list(range(0, 200, 2)), [100] * 100
    times = sorted([*calm, *burst])
    tables = {"A": timed(times), "B": timed(times)}
    at = times.index(100)
    schedule = [
        *[[(0, [n]), (1, [n])] for n in range(at)],
        [(0, range(at, at + 101)), (1, range(at, at + 101))],
        *[[(0, [n]), (1, [n])] for n in range(at + 101, len(times))],
    ]
    spec = window_spec(tables)
    joined = run_stream(spec, tables, schedule)
    assert joined.found == run_batch(spec, tables).found
    assert joined.found.total() > 10_000
    assert max(counts["held_rows_A"] for counts in joined.counters) >= 101
    assert joined.counters[-1]["held_rows_A"] <= joined.counters[at - 1]["held_rows_A"] + 1


# ----------------------------------------------------------------------------------------------------------------------
# Theta joins in windows of time, and as-of joins: Spark's watermark tells.
# ----------------------------------------------------------------------------------------------------------------------


def theta_rows(times, first=0):
    return [{"id": first + at, "x": 1, "y": 0.0, "k": "a", "t": t, "z": 1} for at, t in enumerate(times)]


def test_theta_windows_with_odd_times():
    driver = Driver(spec_of("L.x <= R.x".replace("L", "A").replace("R", "B"), 2, "left", "auto", rows=None, every=10))
    driver.call([(0, theta_rows([1, 2])), (1, theta_rows([3]))])
    # One input is silent: the watermark stands still, nothing that waits comes out, and the counter tells what waits.
    driver.call([(0, theta_rows([11, 12, 21], 10))])
    assert driver.found == Counter({(0, 0): 1, (1, 0): 1})
    assert driver.last["held_rows"] == 6
    # A row of the far future has moved the watermark: windows close, and all that comes is late and counted.
    driver.call([(0, theta_rows([13, 14], 20)), (1, theta_rows([15], 20))], FAR)
    assert driver.last["late"] == 3
    assert driver.last["held_rows"] == 0
    assert driver.found[10, None] == driver.found[11, None] == driver.found[12, None] == 1
    # The clock goes back: late too, and what has left does not come again.
    driver.call([(0, theta_rows([1], 30))], FAR)
    assert driver.last["late"] == 1
    assert driver.found.total() == 5


def test_a_burst_in_a_theta_window():
    driver = Driver(spec_of("A.x <= B.x", 2, "inner", "auto", rows=None, every=10))
    driver.call([(0, theta_rows([1])), (1, theta_rows([2]))])
    driver.call([(0, theta_rows([3] * 100, 100)), (1, theta_rows([4] * 100, 100))], 0)
    driver.call([], 10)
    assert driver.found.total() == 101 * 101
    assert driver.last["held_rows"] == 0
    assert not driver.state


def asof_side(times, *, left):
    names = ["t", "v", "w", *(["n"] if left else [])]
    columns = [list(times), [0.5] * len(times), ["a"] * len(times), *([list(range(len(times)))] if left else [])]
    kinds = [pa.int64(), pa.float64(), pa.string(), *([pa.int64()] if left else [])]
    return table(kinds, columns, names)


def test_as_of_joins_with_odd_times():
    left, right = asof_side([1, 2, 3, 4, 5], left=True), asof_side([1, 3, 5], left=False)
    run = Run(Case(left, right, (), "bigint", how="left", within=2), None)
    nothing = right.slice(0, 0)
    # The right input is silent: no left row comes out alone as long as a match may still come.
    counts = run.step(left.slice(0, 2), nothing)
    assert not run.found
    assert counts["held_rows"] == 2
    run.step(left.slice(2, 1), right)
    # A row of the far future moves the watermark: what waits comes out with the best there is, what comes is late.
    run.watermark = FAR
    counts = run.step(left.slice(3), nothing)
    assert counts["late"] == 2
    assert counts["held_rows"] == 0
    assert run.found == Counter({(0, (1, 0.5, "a")): 1, (1, (1, 0.5, "a")): 1, (2, (3, 0.5, "a")): 1})


def test_a_burst_in_an_as_of_join():
    left, right = asof_side([5] * 100, left=True), asof_side([4] * 100, left=False)
    run = Run(Case(left, right, (), "bigint", within=2), None)
    run.step(left, right)
    run.watermark = 100
    counts = run.step(left.slice(0, 0), right.slice(0, 0))
    assert sum(run.found.values()) == 100
    assert counts["held_rows"] == 0

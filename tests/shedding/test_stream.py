"""Kernels that shed, against the window join: exact at full throttle, a subset at any other, whatever the join."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.window.harness import make_plan, run_batch, run_stream
from tests.window.shapes import cases, dense, schedules
from tests.window.test_stream import delays, spec_of

from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.families.shedding.stream import HarvestKernel
from dovetail.families.shedding.stream_drop import DropKernel

widths = st.integers(1, 12)


def harvesting(shed: Harvest, width: int):
    return lambda spec: HarvestKernel(spec, shed=shed, slices=Slices.of(spec.hull, width))


def dropping(shed: RandomDrop):
    return lambda spec: DropKernel(spec, shed=shed)


@pytest.mark.in_turns(group="several seconds")
@given(
    case=cases(most=5),
    data=st.data(),
    width=widths,
    sample=st.sampled_from([0.1, 0.5, 1.0]),
    algorithm=st.sampled_from(["auto", "nested"]),
)
def test_full_throttle_is_the_window_join(case, data, width, sample, algorithm):
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, delays=waits, algorithm=algorithm)
    schedule = data.draw(schedules(case.tables, waits))
    make = harvesting(Harvest(throttle=1.0, sample_fraction=sample, seed=data.draw(st.integers(0, 9))), width)
    joined = run_stream(spec, case.tables, schedule, flush=10_000, make=make)
    exact = run_stream(spec, case.tables, schedule, flush=10_000)
    assert joined.found == exact.found == case.expected()
    assert joined.by_call == exact.by_call
    assert joined.total("missed") == joined.total("missed_variance") == 0
    dropped = run_stream(spec, case.tables, schedule, flush=10_000, make=dropping(RandomDrop(throttle=1.0)))
    assert dropped.found == exact.found
    assert dropped.total("rows_dropped") == 0


@given(case=cases(most=4), width=widths)
def test_full_throttle_in_batch(case, width):
    spec = spec_of(case, streaming=False)
    assert run_batch(spec, case.tables, make=harvesting(Harvest(), width)).found == case.expected()


@given(
    case=cases(most=4),
    data=st.data(),
    width=widths,
    throttle=st.floats(0.01, 0.99),
    sample=st.sampled_from([0.1, 0.5]),
    algorithm=st.sampled_from(["auto", "nested"]),
    histograms=st.sampled_from(["stream", "pair"]),
)
def test_always_a_subset(case, data, width, throttle, sample, algorithm, histograms):
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, delays=waits, algorithm=algorithm)
    schedule = data.draw(schedules(case.tables, waits))
    expected = case.expected()
    shed = Harvest(throttle=throttle, sample_fraction=sample, histograms=histograms, **data.draw(MEMORY))
    assert run_stream(spec, case.tables, schedule, make=harvesting(shed, width)).found <= expected
    drop = RandomDrop(throttle=throttle)
    assert run_stream(spec, case.tables, schedule, make=dropping(drop)).found <= expected


@pytest.mark.parametrize("inputs", [2, 3])
@pytest.mark.parametrize("kind", ["harvest", "drop"])
def test_dense_streams(kind, inputs):
    """Many rows match: all of them come out at full throttle, and nothing else ever."""
    case, waits, schedule = dense(inputs, inputs, 24)
    spec = spec_of(case, streaming=True, delays=waits)
    exact = case.expected()
    for throttle in (0.3, 1.0):
        make = {
            "harvest": harvesting(Harvest(throttle=throttle, sample_fraction=0.5), 2),
            "drop": dropping(RandomDrop(throttle=throttle)),
        }
        found = run_stream(spec, case.tables, schedule, flush=10_000, make=make[kind]).found
        assert found == exact if throttle == 1.0 else found < exact
        assert found


MEMORY = st.sampled_from([{}, {"keep": "selected"}, {"memory": "300 B"}, {"memory": 5, "keep": "selected"}])


@pytest.mark.in_turns
@given(case=cases(most=2), data=st.data(), width=widths)
@pytest.mark.parametrize("throttle", [0.3, 1.0])
def test_semi_joins(throttle, case, data, width):
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, delays=waits, how="semi")
    schedule = data.draw(schedules(case.tables, waits))
    found = run_stream(spec, case.tables, schedule, make=harvesting(Harvest(throttle=throttle), width)).found
    expected = case.expected("semi")
    assert found == expected if throttle == 1.0 else found <= expected


@pytest.mark.in_turns
@given(case=cases(most=3), data=st.data(), width=widths, throttle=st.floats(0.05, 0.95))
@pytest.mark.parametrize("kind", ["harvest", "drop"])
def test_late_rows_and_times_of_results_are_those_of_the_window_join(kind, case, data, width, throttle):
    # Rows come in a disorder that the watermarks do not allow for, so some are late.
    allowed = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, delays=[0 for _ in allowed])
    schedule = data.draw(schedules(case.tables, allowed))
    make = (
        harvesting(Harvest(throttle=throttle), width) if kind == "harvest" else dropping(RandomDrop(throttle=throttle))
    )
    exact = run_stream(spec, case.tables, schedule, flush=10_000)
    shed = run_stream(spec, case.tables, schedule, flush=10_000, make=make)
    late = [f"late_{alias}" for alias in case.aliases]
    for counts, true in zip(shed.counters, exact.counters, strict=True):
        found, expected = ([one.get(name, 0) for name in late] for one in (counts, true))
        # A row that is shed before anybody looks at its time is counted as shed alone.
        assert found == expected if kind == "harvest" else all(map(int.__le__, found, expected))
    for some, every in zip(shed.by_call, exact.by_call, strict=True):
        assert some <= every


def test_late_rows_of_dense_streams_are_those_of_the_window_join():
    case, waits, schedule = dense(1, 2, 40, late=6)
    spec = spec_of(case, streaming=True, delays=waits)
    exact = run_stream(spec, case.tables, schedule, flush=10_000)
    shed = run_stream(spec, case.tables, schedule, flush=10_000, make=harvesting(Harvest(throttle=0.3), 2))
    late = [f"late_{alias}" for alias in case.aliases]
    for counts, true in zip(shed.counters, exact.counters, strict=True):
        assert [counts.get(name, 0) for name in late] == [true.get(name, 0) for name in late]
    assert min(exact.total(name) for name in late) > 0
    for some, every in zip(shed.by_call, exact.by_call, strict=True):
        assert some <= every


@pytest.mark.parametrize("kind", ["harvest", "drop"])
def test_a_fixed_throttle_sheds_the_same_when_a_micro_batch_runs_again(kind):
    # Every call begins with what the one before it has stored, so a run is a chain of micro-batches that restart.
    random = np.random.default_rng(5)
    tables = {
        alias: pa.table({"t": np.sort(random.integers(0, 400, 600)), "k": random.integers(0, 4, 600), "n": range(600)})
        for alias in "AB"
    }
    plan = make_plan("A.k = B.k", tables, 20, streaming=True)
    schedule = [[(side, range(at, at + 60)) for side in (0, 1)] for at in range(0, 600, 60)]
    make = {"harvest": harvesting(Harvest(throttle=0.3, seed=3), 4), "drop": dropping(RandomDrop(throttle=0.3, seed=3))}
    runs = [run_stream(plan.spec, tables, schedule, make=make[kind]) for _ in range(2)]
    assert runs[0].by_call == runs[1].by_call
    exact = run_stream(plan.spec, tables, schedule)
    assert 0 < runs[0].found.total() < 0.9 * exact.found.total()

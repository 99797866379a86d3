"""The budget of a micro-batch: rows go in portions, and what the forecast got wrong is made up for on the way."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shedding.judged import run_judged
from tests.shedding.test_judged import exact, in_batches, similar, spec_for, vectors
from tests.window.harness import run_stream
from tests.window.shapes import cases, schedules
from tests.window.test_stream import delays, spec_of

from dovetail.columns.layout import MAX_TIME_HEADER
from dovetail.families.shedding import budget as module
from dovetail.families.shedding.budget import MOST, Budget, Portion, Portions
from dovetail.families.shedding.control import Control, WallPace
from dovetail.families.shedding.paper.clock import SECOND
from dovetail.families.shedding.paper.workload import DriftingStreams, epsilon_join
from dovetail.families.shedding.recall import recall_interval
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest
from dovetail.families.shedding.stream import HarvestKernel
from dovetail.families.shedding.throttle import LEAST, UNIT, TimeModel

pytestmark = pytest.mark.unhurried

SPEC = epsilon_join(2, window=4 * SECOND, epsilon=0.25)
SLICES = Slices.of(SPEC.hull, SECOND // 2)


@pytest.fixture
def always_divided(monkeypatch):
    """Every micro-batch goes in portions, however few rows it has and however fast it is."""
    monkeypatch.setattr(Budget, "divides", lambda self, z, rows: True)


def timing(each: float) -> TimeModel:
    return TimeModel(np.array([0.0, each]), np.diag([0.05**2, (0.3 * each) ** 2]))


@given(
    z=st.floats(0.05, 1.0),
    forecast=st.one_of(st.none(), st.floats(0.1, 10.0)),
    slower=st.floats(0.3, 4.0),
    start=st.floats(0.0, 0.1),
    load=st.floats(0.1, 30.0),
)
def test_a_micro_batch_stays_within_its_room(z, forecast, slower, start, load):
    """Whatever the forecast says, and however the machine has changed since it was made.

    The full join takes `load` times the room; the throttle decided beforehand may be far off.
    """
    room, each = 2.0, 1.0
    full = load * room * UNIT / (each * slower)
    budget = Budget(room, None if forecast is None else full * forecast, timing(each), 2.0)
    spent, asked, throttles = 0.0, 0.0, []
    while budget.done < 1.0:
        before = budget.done
        share = budget.next_end(z) - before
        assert share > 0
        work = z * share * full
        seconds = (start if before == 0 else 0.0) + work * each * slower / UNIT
        spent, asked = spent + seconds, asked + z * share
        budget.record(z, seconds, work)
        throttles.append(z)
        z = budget.throttle(z)
    assert budget.done == 1.0
    assert len(throttles) <= MOST
    assert budget.asked == pytest.approx(asked)
    assert all(LEAST <= z <= 1.0 for z in throttles)
    # What the first portion takes at a throttle that nobody could check beforehand cannot be helped.
    unavoidable = throttles[0] * module.FIRST * load * room + start
    assert spent <= max(room, unavoidable) + 0.3 * room
    if load < 0.5 and throttles[0] > 0.25:
        assert throttles[-1] == 1.0


def test_a_good_forecast_is_kept():
    """Where all is as forecast, so is the throttle."""
    budget, z = Budget(2.0, 1e9, timing(0.5), 2.0), 0.4
    while budget.done < 1.0:
        share = budget.next_end(z) - budget.done
        budget.record(z, 0.5 * z * share * 10, z * share * 1e9)
        if budget.done < 1.0:
            assert budget.throttle(z) == pytest.approx(0.4, rel=0.06)
    assert 6 <= budget.count <= MOST


def test_loading_the_kernel_is_no_overload():
    """The first micro-batch of a query loads the compiled kernel while its first portion is joined."""
    budget = Budget(1.5, None, TimeModel(), 2.0, warm=False)
    budget.next_end(1.0)
    budget.record(1.0, seconds=20.0, work=1e5)
    assert budget.throttle(1.0) == 1.0


def test_what_is_not_divided():
    budget = Budget(2.0, 1e8, timing(1.0), 2.0)
    assert budget.divides(1.0, 5000)
    assert not budget.divides(1.0, 100)
    assert not budget.divides(0.05, 5000)  # a twentieth of a second, in a room of two
    assert Budget(2.0, 1e8, timing(1.0), 2.0, last=1.0).divides(0.05, 5000)
    assert WallPace(Harvest(throttle=0.3), 1.0).budget(Control.new(SLICES)) is None


def test_what_a_budget_learns_is_its_own():
    known = timing(1.0)
    budget = Budget(2.0, 1e8, known, 2.0)
    for seconds in (0.5, 0.1):
        budget.next_end(1.0)
        budget.record(1.0, seconds, 1e6)
    assert known.values.tolist() == [0.0, 1.0]
    assert budget.timing.values[1] > 1.0


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.lists(st.floats(0.01, 0.99), max_size=5))
def test_the_portion_of_a_row_by_its_time(times, cuts):
    ordered = np.sort(np.array(times, dtype=np.int64))
    edges = [0.0, *sorted(cuts), 1.0]
    flags = np.zeros((2, 2, 1), dtype=np.bool_)
    portions = [Portion(a, b, 1.0, flags) for a, b in itertools.pairwise(edges)]
    order = np.arange(ordered.size)
    rows = [portion.rows(order) for portion in portions]
    assert np.concatenate(rows).tolist() == order.tolist()
    asked = np.arange(-1, 15)
    shares = Portions(portions, {0: ordered}).shares(0, asked)
    assert np.sum(shares, axis=0) == pytest.approx(np.ones(asked.size))
    for portion, share in zip(rows, shares, strict=True):
        if len(portions) > 1:
            for at, time in enumerate(asked):
                same = np.flatnonzero(ordered == time)
                if same.size:
                    assert share[at] == pytest.approx(np.isin(same, portion).mean())


# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("always_divided")
@given(
    case=cases(most=4),
    data=st.data(),
    width=st.integers(1, 12),
    sample=st.sampled_from([0.1, 0.5, 1.0]),
    algorithm=st.sampled_from(["auto", "nested"]),
    how=st.sampled_from(["inner", "semi"]),
)
def test_portions_at_full_throttle_are_the_window_join(case, data, width, sample, algorithm, how):
    """On a machine that takes no time at all, in every micro-batch the rows of the window join."""
    waits = [data.draw(delays) for _ in case.aliases]
    if how == "semi" and len(case.aliases) > 2:
        how = "inner"
    spec = spec_of(case, streaming=True, delays=waits, algorithm=algorithm, how=how)
    schedule = data.draw(schedules(case.tables, waits))
    shed, slices = Harvest(target=600.0, sample_fraction=sample), Slices.of(spec.hull, width)
    joined = run_stream(
        spec, case.tables, schedule, flush=10_000,
        make=lambda spec: HarvestKernel(spec, shed=shed, slices=slices, seconds=lambda: 0.0),
    )  # fmt: skip
    assert joined.found == case.expected(how)
    assert joined.by_call == run_stream(spec, case.tables, schedule, flush=10_000).by_call
    assert joined.total("missed") == joined.total("missed_variance") == 0


class Whole(HarvestKernel):
    """As before: one throttle for all rows of a micro-batch."""

    divisible = False


def calls(
    kind: type[HarvestKernel], rates: list[float], nanoseconds: list[float], seed: int = 0
) -> list[HarvestKernel]:
    """Micro-batches of two seconds of rows, in which a comparison takes so long; the kernels that joined them."""
    state: dict[str, pa.RecordBatch] = {}
    made = []
    steps = tuple((2.0 * at, rate) for at, rate in enumerate(rates))
    inputs = DriftingStreams((2.0, 2.0), (0.0, 1.0), steps).made(2.0 * len(rates), seed)
    now = 1000.0
    for call, each in enumerate(nanoseconds):
        kernel = kind(SPEC, shed=Harvest(target=2.0, seed=seed), slices=SLICES)
        kernel.pace = WallPace(kernel.shed, now)
        kernel.restore(state, None)
        kernel.seconds = lambda kernel=kernel, each=each: kernel.effort * each * 1e-9
        for side, rows in enumerate(inputs):
            times = rows.column("t").to_numpy()
            begin, end = np.searchsorted(times, [2 * call * SECOND, 2 * (call + 1) * SECOND])
            part = rows.slice(int(begin), int(end - begin))
            kernel.push(side, part)
            kernel.push(side, part.slice(0, 0).replace_schema_metadata({MAX_TIME_HEADER: str(int(times[end - 1]))}))
        kernel.found = sum(batch.num_rows for batch in kernel.results())
        changes = kernel.changes()
        # By this machine's clock, not by the one that the tests run on.
        kernel.control.wall.ended = now + kernel.joined
        changes.stored["shedding"] = kernel.control.batch()
        for name in changes.dropped:
            state.pop(name, None)
        state |= changes.stored
        made.append(kernel)
        now += kernel.joined + 0.1
    return made


def test_a_machine_that_slows_down_meets_its_target():
    """A neighbour takes most of the machine while a micro-batch is joined: portions notice, one throttle does not."""
    usual, slow = 60.0, 600.0
    rates, times = [800.0] * 7, [*[usual] * 5, slow, usual]
    whole, divided = calls(Whole, rates, times), calls(HarvestKernel, rates, times)
    assert all(kernel.joined < 1.5 for kernel in [*whole[2:5], *divided[2:5]])
    assert whole[5].joined > 4.0
    assert divided[5].joined < 2.0
    assert len(divided[5]._portions.portions) > 3
    assert divided[5].found > 0


@pytest.mark.in_turns(group="an overload on the virtual clock")
def test_the_interval_holds_the_recall_where_the_throttle_changed():
    rates, times = [800.0] * 6, [60.0, 60.0, 500.0, 60.0, 600.0, 60.0]
    covered, shed = [], 0
    for seed in range(12):
        exact_calls = calls(Whole, rates, [1e-3] * 6, seed)
        divided = calls(HarvestKernel, rates, times, seed)
        for full, some in zip(exact_calls, divided, strict=True):
            assert full.control.z == 1.0
            _, low, high = recall_interval(some.found, some.missed)
            if some.found < full.found:
                shed += 1
            covered.append(low <= some.found / full.found <= high)
    assert shed >= 12
    # A 95 % interval of 72 micro-batches, most of which missed nothing.
    assert np.mean(covered) > 0.9


@pytest.mark.usefixtures("always_divided")
def test_results_that_spark_judges(monkeypatch):
    """Portions with throttles of their own: results are a subset, and the estimate of both is near the truth."""
    tables = vectors(5, 1500, 700)
    spec, truth = spec_for(tables), exact(tables)
    given_z = iter([0.5, 0.2, 0.1] * 10_000)
    monkeypatch.setattr(Budget, "throttle", lambda self, z: next(given_z))
    run = run_judged(spec, in_batches(spec, tables), similar, Harvest(target=1e6, seed=3), 100)
    assert run.found <= truth
    found, total = sum(run.found.values()), sum(truth.values())
    assert 0.5 < found / total < 1.0
    assert sum(counts["results_estimate"] for counts in run.counters) == pytest.approx(found, rel=0.35)
    missed = sum(counts["missed"] for counts in run.counters)
    assert found / (found + missed) == pytest.approx(found / total, abs=0.15)

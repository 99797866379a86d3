"""Overload under the virtual clock: throttle, learning, and what harvesting gains over dropping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.families.shedding.control import Control, WallPace
from dovetail.families.shedding.optimizer.statistics import Learned
from dovetail.families.shedding.paper.clock import SECOND, VirtualClock, paper_throttled
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join, maker
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.families.shedding.throttle import HEADROOM, LEAST, throttled

pytestmark = pytest.mark.unhurried

SPEC = epsilon_join(3, window=4 * SECOND, epsilon=4.0)
SLICES = Slices.of(SPEC.hull, SECOND)
KAPPAS, LAGS = (2.0, 2.0, 20.0), (0.0, 1.0, 3.0)


def clock(shed, capacity, **more):
    return VirtualClock(maker(SPEC, shed, width=SECOND // 2), capacity, interval=1.0, tick=0.25, **more)


def run(shed, rates, seconds, capacity, *, seed=1, kappas=KAPPAS, lags=LAGS, **more):
    inputs = DriftingStreams(kappas, lags, rates).made(seconds, seed)
    return clock(shed, capacity, **more).run(inputs, arrival_times(inputs), seconds)


def sustained(rate: float) -> float:
    return run(Harvest(), rate, 10.0, 1e15, fixed=1.0).rate("work", 5.0, 10.0)


@pytest.mark.in_turns(group="an overload on the virtual clock")
def test_overload_and_recovery():
    rates = ((0.0, 30.0), (8.0, 120.0), (20.0, 30.0))
    found = run(Harvest(), rates, 34.0, 1.5 * sustained(30.0))
    assert found.throttle(7.9) == 1.0
    loaded = [found.throttle(at) for at in np.arange(14.0, 20.0)]
    assert max(loaded) < 0.5
    # The windows are full of the overload until 24 s; a few intervals later the join is exact.
    assert found.throttle(31.0) == 1.0
    assert found.total("lost", 4.0, 8.0) == found.total("lost", 29.0) == 0


@pytest.mark.in_turns(group="an overload on the virtual clock")
def test_few_rows_are_lost_in_an_overload():
    """Four times what the join sustains: the throttle is found while rows get lost, few in the end."""
    lost, arrived, capacity = 0.0, 0.0, 1.5 * sustained(30.0)
    for seed in range(1, 5):
        found = run(Harvest(), ((0.0, 30.0), (8.0, 120.0)), 20.0, capacity, seed=seed)
        lost, arrived = lost + found.total("lost", 16.0, 20.0), arrived + found.total("arrived", 16.0, 20.0)
    assert lost < 0.25 * arrived


@pytest.mark.in_turns(group="an overload on the virtual clock")
def test_harvesting_is_ahead_of_dropping():
    capacity = 0.8 * sustained(40.0)
    outputs = {
        kind: run(shed, 100.0, 20.0, capacity).rate("results", 8.0, 20.0)
        for kind, shed in (("harvest", Harvest()), ("pair", Harvest(histograms="pair")), ("drop", RandomDrop()))
    }
    assert outputs["harvest"] > 1.65 * outputs["drop"]
    assert outputs["pair"] > 1.65 * outputs["drop"]


def test_runs_repeat_from_a_seed():
    one, other, third = (run(Harvest(seed=s), 60.0, 6.0, 1e5).served for s in (1, 1, 2))
    assert one == other
    assert one != third


@pytest.mark.in_turns(group="an overload on the virtual clock")
def test_learns_a_lag_that_moves():
    """Where the third stream's lag jumps, the scores of its slices follow."""
    before = DriftingStreams(KAPPAS, (0.0, 1.0, 3.0), 60.0).made(12.0, 1)
    after = DriftingStreams(KAPPAS, (0.0, 1.0, 0.5), 60.0).made(24.0, 1)
    cut = 12 * SECOND
    inputs = []
    for one, other in zip(before, after, strict=True):
        moved = other.slice(int(np.searchsorted(other.column("t").to_numpy(), cut)))
        inputs.append(type(one).from_arrays(
            [np.concatenate([a.to_numpy(), b.to_numpy()]) for a, b in zip(one.columns, moved.columns, strict=True)],
            names=one.schema.names,
        ))  # fmt: skip
    make, kernels = maker(SPEC, Harvest(), width=SECOND // 2), []

    def remembered(pace):
        kernels.append(make(pace))
        return kernels[-1]

    virtual = clock(Harvest(), 1e15, fixed=0.2)
    virtual.make = remembered
    found = virtual.run(inputs, arrival_times(inputs), 24.0)
    slices = Slices.of(SPEC.hull, SECOND // 2)
    for at, lag in ((11.5, 3.0), (23.5, 0.5)):
        learned = next(k for k, s in zip(reversed(kernels), reversed(found.served), strict=True) if s.began <= at)
        # X(t) = 20 (t + tau): a row of C has the value that A has a lag later, so rows of A find it at that age.
        best = learned.control.learned.scores(slices, "stream")[0, 2].argmax()
        assert slices.ages(0, 2)[best] / SECOND == pytest.approx(lag, abs=1.5)


def test_convolution_of_stream_histograms():
    """With the first input exact, scores of the others are those of the differences."""
    slices = Slices.of(SPEC.hull, SECOND // 2)
    learned = Learned.nothing(slices)
    random = np.random.default_rng(3)
    base = np.full(4000, 10 * SECOND)
    times = {0: base, 1: base - SECOND - random.integers(0, SECOND // 4, 4000), 2: base - 2 * SECOND + SECOND // 8}
    learned.rows[:] = slices.everything()
    learned.see_matches(slices, 2, times, np.ones(4000))
    by_stream, by_pair = learned.scores(slices, "stream"), learned.scores(slices, "pair")
    for side in (0, 1):
        assert by_stream[2, side].argmax() == by_pair[2, side].argmax()
        assert by_stream[2, side].sum() == pytest.approx(by_pair[2, side].sum())


@given(st.floats(LEAST, 1.0), st.floats(0.01, 100.0), st.floats(1.01, 4.0))
def test_throttle_stays_in_range(z, beta, boost):
    for rule in (throttled, paper_throttled):
        assert LEAST <= rule(z, beta, boost) <= 1.0
    assert throttled(z, beta, boost) <= max(LEAST, paper_throttled(z, beta, boost))


def finished(control: Control, ended: float, joined: float, calls: int, done: float | None = None) -> None:
    """What a cell remembers of a micro-batch, had it ended at this time."""
    wall = control.wall
    wall.ended, wall.joined, wall.calls = ended, joined, calls
    wall.done = wall.planned if done is None else done


@given(
    fixed=st.floats(0.1, 1.0),
    around=st.floats(0.1, 1.0),
    start=st.floats(0.0, 0.5),
    exact=st.floats(5.0, 200.0),
    target=st.one_of(st.none(), st.just(4.0)),
)
def test_micro_batches_settle(fixed, around, start, exact, target):
    """A simulated cell: what it sees of Spark's overhead, what it does not see, and joining.

    Joining takes a little by itself, and a time in proportion to the throttle and to what arrived.  Calm at first, then
    an overload: all micro-batches after its fifth fit into the trigger interval.
    """
    shed = Harvest(target=target or "keep up")
    control, trigger, lasted = Control.new(SLICES), 4.0, []
    now, before = 100.0, 100.0 - 4.0
    for call in range(20):
        full = exact * (now - before) / trigger * (0.1 if call < 3 else 1.0)
        control.z = WallPace(shed, began=now).decide(control, lambda full=full: full / 4e-9)
        joined = start + control.z * full
        finished(control, now + fixed + joined, joined, call + 1)
        lasted.append(fixed + joined + around)
        before, now = now, now + max(trigger, lasted[-1])
    assert max(lasted[8:]) <= trigger * 1.01


@given(st.floats(0.01, 0.5), st.floats(0.05, 1.0), st.sampled_from([4.0, 4.05, 10.0]))
def test_the_throttle_recovers(z, joining, trigger):
    """From any throttle, a load that fits is joined in full after a few micro-batches.

    However long Spark waits between them: triggers come a moment late, or are further apart than the target.
    """
    control, now = Control.new(SLICES), 100.0
    control.z = z
    finished(control, 99.0, 1.0, 2)
    control.wall.began = 96.0
    for call in range(8):
        control.z = WallPace(Harvest(target=4.0), began=now).decide(control, lambda: joining / 4e-9)
        finished(control, now + 0.5 + control.z * joining, control.z * joining, 3 + call)
        now += trigger
    assert control.z == 1.0


def test_the_wall_clock_decides():
    """The throttle of a cell whose micro-batches take twice as long as they may."""
    control = Control.new(SLICES)
    shed, work = Harvest(target=3.0), 3.8 / 4e-9

    def decided(began: float, full: float | None) -> float:
        return WallPace(shed, began).decide(control, lambda: full)

    assert decided(100.0, work) == 1.0  # before the first micro-batch
    for call in range(2, 12):
        # Little work and much in turn, so that both kinds of time can be told apart.
        part = 1.0 if call % 2 else 0.02
        finished(control, 100.0 + 5 * (call - 1) - 1.0, 3.8 * part, call, done=work * part)
        control.wall.planned = control.wall.done
        control.wall.began = control.wall.ended - 3.8 * part - 0.2
        z = decided(100.0 + 5 * (call - 1), work)
    # It sees 0.2 s besides joining, and 1 s passes between its end and the next beginning.
    assert z == pytest.approx((HEADROOM * 3.0 - 0.2 - 1.0) / 3.8, rel=0.2)
    assert decided(160.0, None) == 1.0  # the cell's own throttle is still what it was
    assert WallPace(Harvest(throttle=0.3), 1.0).decide(control, lambda: None) == 0.3


def test_a_gap_is_not_overhead_where_spark_waits():
    control = Control.new(SLICES)
    finished(control, 101.0, 0.5, 2, done=1e8)
    control.wall.began = 100.0
    WallPace(Harvest(target=4.0), 103.9).decide(control, lambda: 1e8)
    assert control.wall.outside == 1.0
    assert control.wall.rest == pytest.approx(0.5)
    finished(control, 109.9, 5.0, 3, done=1e9)
    WallPace(Harvest(target=4.0), 110.2).decide(control, lambda: 1e8)
    assert control.wall.outside == pytest.approx(0.3)
    finished(control, 111.2, 0.5, 4, done=1e8)
    WallPace(Harvest(target=4.0), 114.2).decide(control, lambda: 1e8)
    assert control.wall.outside == pytest.approx(1.05 * 0.3)


def test_a_slow_start_is_no_overload():
    """The first micro-batch loads the compiled kernel for a handful of rows; the second has many more."""
    control = Control.new(SLICES)
    WallPace(Harvest(target=2.0), began=100.0).decide(control, lambda: 500.0)
    finished(control, 106.0, 3.0, 1)
    assert WallPace(Harvest(target=2.0), began=106.0).decide(control, lambda: 1e8) == 1.0

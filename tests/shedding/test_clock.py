"""The virtual clock: rows wait in buffers, a service takes one tick of them, and what finds a buffer full is lost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.families.shedding.paper.clock import (
    SECOND,
    Buffers,
    Interval,
    VirtualClock,
    as_printed,
    by_room,
    paper_throttled,
)
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join, maker
from dovetail.families.shedding.spec import Harvest

pytestmark = pytest.mark.unhurried

SPEC = epsilon_join(2, window=2 * SECOND, epsilon=4.0)

times = st.lists(st.floats(0.0, 5.0, allow_subnormal=False), min_size=1, max_size=60).map(sorted).map(np.array)


@given(arrivals=st.lists(times, min_size=1, max_size=3), data=st.data(), tick=st.sampled_from([0.05, 0.25, 0.7]))
def test_every_row_is_taken_once_in_order_or_lost(arrivals, data, tick):
    """Whatever the services take, a queue of single rows would hold the same rows, and one service is one tick."""
    most = data.draw(st.integers(0, 8))
    buffers = Buffers(arrivals, most, tick)
    taken = [[] for _ in arrivals]
    came = lost = 0
    now = buffers.ready()
    while np.isfinite(now):
        more, gone = buffers.until(now)
        came, lost = came + more, lost + gone
        chosen = buffers.take()
        span = [arrivals[side][rows] for side, rows in enumerate(chosen) if rows.size]
        assert span
        assert max(part[-1] for part in span) - min(part[0] for part in span) <= tick
        for side, rows in enumerate(chosen):
            taken[side] += rows.tolist()
            assert buffers.waiting[side].size <= most
        now = max(now + data.draw(st.floats(0.0, 2.0)), buffers.ready())
    assert came == sum(times.size for times in arrivals)
    assert came == lost + sum(map(len, taken))
    assert all(rows == sorted(set(rows)) for rows in taken)


def test_a_full_buffer_loses_the_newest():
    arrivals = [np.array([0.1, 1.1, 2.1, 3.1, 4.1, 5.1, 6.1])]
    buffers = Buffers(arrivals, 2, 1.0)
    assert buffers.until(buffers.ready()) == (1, 0)
    assert buffers.take()[0].tolist() == [0]
    # A service of five seconds: one row goes to the next service, two wait, and two find the buffer full.
    assert buffers.until(5.5) == (5, 2)
    assert buffers.take()[0].tolist() == [1]
    assert buffers.waiting[0].tolist() == [2, 3]


def run(rate: float, capacity: float, **more):
    inputs = DriftingStreams((2.0, 2.0), (0.0, 1.0), rate).made(12.0, 1)
    clock = VirtualClock(maker(SPEC, Harvest(), width=SECOND // 2), capacity, interval=1.0, tick=0.1, **more)
    return clock.run(inputs, arrival_times(inputs), 12.0)


def test_a_join_that_keeps_up_loses_nothing_with_any_buffer():
    found = run(50.0, 1e12, buffer=0)
    assert found.total("lost") == 0
    assert found.total("taken") == found.total("arrived")
    assert [service.began for service in found.served] == pytest.approx(np.arange(1, 120) / 10)


def test_a_backlog_is_served_tick_by_tick():
    """Half the capacity that the join needs: services follow each other at once, and none takes more than a tick."""
    capacity = 0.5 * run(100.0, 1e12, fixed=1.0).rate("work", 6.0, 12.0)
    found = run(100.0, capacity, fixed=1.0, buffer=200)
    assert max(service.taken for service in found.served) <= 2 * 100.0 * 0.1 + 2
    late = [service for service in found.served if service.began > 6.0]
    gaps = [after.began - before.ended for before, after in itertools.pairwise(late)]
    assert max(gaps) == pytest.approx(0.0, abs=1e-9)
    assert found.total("lost", 6.0) > 0.2 * found.total("arrived", 6.0)


@pytest.mark.in_turns(group="an overload on the virtual clock")
def test_larger_buffers_lose_fewer_rows():
    """The throttle is found in an interval, whatever waits: a larger buffer bridges more of it."""
    capacity = 0.3 * run(100.0, 1e12, fixed=1.0).rate("work", 6.0, 12.0)
    shares = [run(100.0, capacity, buffer=buffer).total("lost") for buffer in (10, 50, 200)]
    assert shares[0] > shares[1] > shares[2]


def test_the_printed_rule_knows_no_room():
    """A join that is busy half of its time takes out all that comes in: the paper's beta is 1, ours is 2."""
    half = Interval(taken=100, arrived=100, busy=1.0, seconds=2.0)
    assert as_printed(0.4, half, 1.2) == paper_throttled(0.4, 1.0, 1.2) == pytest.approx(0.48)
    assert by_room(0.4, half, 4.0) == pytest.approx(0.4 * 2 * 0.97)
    behind = Interval(taken=50, arrived=100, busy=2.0, seconds=2.0)
    assert as_printed(0.4, behind, 1.2) == pytest.approx(0.2)
    idle = Interval(taken=0, arrived=0, busy=0.0, seconds=2.0)
    assert as_printed(0.4, idle, 1.2) == by_room(0.4, idle, 1.2) == 0.4


@pytest.mark.parametrize("interval", [0.5, 2.0])
def test_a_join_that_keeps_up_has_a_beta_of_one(interval):
    """Rows that wait for the end of their tick are not behind, also where the rate has just doubled."""
    inputs = DriftingStreams((2.0, 2.0), (0.0, 1.0), ((0.0, 50.0), (4.0, 100.0), (8.0, 20.0))).made(12.0, 1)
    make = maker(SPEC, Harvest(), width=SECOND // 2)
    clock = VirtualClock(make, 1e12, interval=interval, tick=0.25, rule=as_printed)
    found = clock.run(inputs, arrival_times(inputs), 12.0)
    assert len(found.adapted) in (12 / interval - 1, 12 / interval)
    assert all(step.interval.taken == step.interval.arrived for step in found.adapted)
    assert all(step.after == 1.0 and step.interval.waiting == 0 for step in found.adapted)


def test_adaptations_tell_what_waits():
    capacity = 0.3 * run(100.0, 1e12, fixed=1.0).rate("work", 6.0, 12.0)
    steps = run(100.0, capacity, buffer=100, boost=1.0, rule=as_printed).adapted
    assert max(step.interval.waiting for step in steps) > 100
    assert all(step.interval.waiting <= 200 for step in steps)
    assert all(after.before == before.after for before, after in itertools.pairwise(steps))

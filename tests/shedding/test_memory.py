"""Memory shedding: the paper's rule, a limit that is held, and the rows that stay for others."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest

from dovetail.conditions.limits import memory_limit
from dovetail.families.shedding.memory import STAYS, EvictedSample, looked_at_since
from dovetail.families.shedding.paper.clock import SECOND, VirtualClock
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join, maker
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest
from dovetail.families.shedding.stream import HarvestKernel

SPEC = epsilon_join(3, window=4 * SECOND, epsilon=4.0)


def kernels(shed: Harvest, *, rate: float = 60.0, seconds: float = 10.0) -> list[HarvestKernel]:
    inputs = DriftingStreams((2.0,) * 3, (0.0, 1.0, 2.0), rate).made(seconds, 1)
    make, made = maker(SPEC, shed, width=SECOND // 2), []

    def remembered(pace):
        made.append(make(pace))
        return made[-1]

    clock = VirtualClock(remembered, 1e12, fixed=shed.throttle or 1.0, tick=0.5, interval=1.0, buffer=1e9)
    clock.run(inputs, arrival_times(inputs), seconds)
    return made


def held(kernel: HarvestKernel, unit: str = "bytes") -> int:
    name = {"bytes": "state_bytes", "rows": "held_rows"}[unit]
    return sum(kernel.counters[f"{name}_{alias}"] for alias in SPEC.aliases) + kernel._evicted.amount(unit)


@functools.cache
def most_held(throttle: float, unit: str) -> int:
    """The most that is held without a limit, worked out once for all limits."""
    return max(held(kernel, unit) for kernel in kernels(Harvest(throttle=throttle)))


@pytest.mark.in_turns
@pytest.mark.parametrize("keep", ["windows", "selected"])
@pytest.mark.parametrize("memory", ["6 KB", "12 KB", 250, 500])
@pytest.mark.parametrize("throttle", [0.3, 1.0])
def test_the_limit_is_held(memory, throttle, keep):
    limit = memory_limit(memory)
    free = most_held(throttle, limit.unit)
    assert free > 1.2 * limit.amount
    limited = kernels(Harvest(throttle=throttle, memory=memory, keep=keep))
    assert max(held(kernel, limit.unit) for kernel in limited) <= limit.amount
    assert sum(kernel.counters["rows_forgotten"] for kernel in limited) > 0
    assert sum(kernel.counters["results"] for kernel in limited) > 0


def test_slices_that_nobody_looks_at_go():
    free, shed = (kernels(Harvest(throttle=0.15, keep=keep)) for keep in ("windows", "selected"))
    assert held(shed[-1]) < held(free[-1])
    assert shed[-1]._evicted.amount("rows") > 0


def test_a_limit_that_is_not_reached_changes_nothing():
    free = kernels(Harvest(throttle=0.15))
    for memory in (100_000, "100 MB"):
        limited = kernels(Harvest(throttle=0.15, memory=memory))
        assert [kernel.counters["results"] for kernel in limited] == [kernel.counters["results"] for kernel in free]
        assert sum(kernel.counters["rows_forgotten"] for kernel in limited) == 0


def test_the_papers_rule():
    """Rows stay as long as some direction looks at an age that they have not passed."""
    slices = Slices.of(SPEC.hull, SECOND)
    selected = np.zeros((3, 3, slices.most), dtype=bool)
    zero = -int(slices.first[0, 2])
    selected[0, 2, zero + 1] = True  # ages from 1 s to 2 s
    selected[1, 2, zero + 3] = True  # ages from 3 s to 4 s
    marks = [100 * SECOND, 90 * SECOND, 95 * SECOND]
    since = looked_at_since(slices, selected, marks)
    assert since[2] == min(100 * SECOND - (2 * SECOND - 1), 90 * SECOND - (4 * SECOND - 1))
    assert since[0] == since[1] == np.iinfo(np.int64).max  # no direction looks at them at all


def test_rows_that_stay_stand_for_all():
    random = np.random.default_rng(1)
    rows = pa.RecordBatch.from_pydict({"t": np.arange(5000), "v": np.zeros(5000), "n": np.arange(5000)})
    left = EvictedSample.load(SPEC, {})
    left.add(1, rows, random)
    kept = left.rows[1]
    assert kept is not None
    assert kept.num_rows == pytest.approx(5000 * STAYS, rel=0.1)
    assert kept.column("weight").to_numpy().sum() == pytest.approx(5000, rel=0.1)
    left.thin(random)
    assert left.rows[1].column("weight").to_numpy().sum() == pytest.approx(5000, rel=0.15)
    left.expire([0, 4000, 0])
    assert left.rows[1].column("t").to_numpy().min() >= 4000

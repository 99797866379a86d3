"""RandomDrop as it runs: it keeps to its throttle, and stays with the input that it thins."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.families.shedding.paper.clock import SECOND, VirtualClock
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join, maker
from dovetail.families.shedding.spec import Harvest, RandomDrop

SPEC = epsilon_join(3, window=4 * SECOND, epsilon=0.05)
UNTIL = 30.0


def run(shed, throttle: float):
    inputs = DriftingStreams((2.0, 2.0, 20.0), (0.0, 1.0, 2.0), ((0.0, 20.0), (6.0, 300.0))).made(UNTIL, 1)
    make, made = maker(SPEC, shed, width=SECOND // 2), []

    def kept(pace):
        made.append(make(pace))
        return made[-1]

    clock = VirtualClock(kept, 1e15, fixed=throttle, tick=3.0, interval=3.0, buffer=1e9)
    return clock.run(inputs, arrival_times(inputs), UNTIL).served, made


@pytest.mark.in_turns(group="several seconds")
def test_work_follows_the_throttle():
    """Windows hold rows of earlier rates for a while; that must not look like an input of many rows."""
    exact, _ = run(Harvest(), 1.0)
    dropped, kernels = run(RandomDrop(), 0.1)
    shares = [some.work / full.work for some, full in zip(dropped[5:], exact[5:], strict=True)]
    assert np.mean(shares) < 0.2
    assert len({int(kernel.control.keep.argmin()) for kernel in kernels[5:]}) == 1

"""The estimate of recall: its interval covers the truth, with and without rows that left memory."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dovetail.families.shedding.paper.clock import SECOND, VirtualClock
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join, maker
from dovetail.families.shedding.recall import Missed, Sample, missed_interval, missed_matches, recall_interval
from dovetail.families.shedding.spec import Harvest, RandomDrop, Shed

SPEC = epsilon_join(3, window=4 * SECOND, epsilon=4.0, algorithm="auto")
SECONDS, WARM = 8.0, 4


def streams(seed: int):
    return DriftingStreams((2.0, 2.0, 30.0), (0.0, 1.0, 2.0), 40.0).made(SECONDS, seed)


@cache
def exact(seed: int) -> list[int]:
    """Matches of each second, from one call with all rows: a match comes out when the last of its rows is there."""
    inputs, latest = streams(seed), []

    def take(batch) -> None:
        times = [batch.column(f"i{side}_0").to_numpy() for side in range(3)]
        latest.append(np.max(times, axis=0))

    clock = VirtualClock(maker(SPEC, Harvest(), width=SECOND // 2), 1e12, fixed=1.0, tick=SECONDS, buffer=1e9)
    clock.run(inputs, arrival_times(inputs), 2 * SECONDS, take)
    seconds = -(-np.concatenate(latest) // SECOND)
    return [int((seconds == now).sum()) for now in range(WARM + 1, int(SECONDS))]


def served(shed: Shed, seed: int):
    inputs = streams(seed)
    clock = VirtualClock(
        maker(SPEC, shed, width=SECOND // 2), 1e12, fixed=shed.throttle, tick=1.0, buffer=1e9, interval=1.0
    )
    return clock.run(inputs, arrival_times(inputs), SECONDS).served[WARM:]


def cover(make, seeds: range) -> tuple[float, float]:
    """How often the interval holds the true recall: of single micro-batches, and of whole runs."""
    single, whole = [], []
    for seed in seeds:
        shed = served(make(seed), seed)
        for truth, one in zip(exact(seed), shed, strict=True):
            _, low, high = recall_interval(one.results, one.missed)
            single.append(low <= one.results / truth <= high if truth else True)
        missed = sum((one.missed for one in shed), Missed())
        _, low, high = recall_interval(sum(one.results for one in shed), missed)
        whole.append(low <= sum(one.results for one in shed) / sum(exact(seed)) <= high)
    return float(np.mean(single)), float(np.mean(whole))


@pytest.mark.slow
def test_interval_covers_the_truth():
    """200 seeded runs.  A micro-batch has a dozen shredded rows: few for an interval, so less is asked of it."""
    single, whole = cover(lambda seed: Harvest(throttle=0.3, seed=seed), range(200))
    assert whole >= 0.95
    assert single >= 0.92


@pytest.mark.slow
def test_interval_covers_the_truth_with_little_memory():
    _, whole = cover(lambda seed: Harvest(throttle=0.4, seed=seed, keep="selected"), range(60))
    assert whole >= 0.92


def test_the_truth_is_the_join_at_full_throttle():
    assert [one.results for one in served(Harvest(throttle=1.0), 5)] == exact(5)


def test_estimate_is_near_the_truth():
    """A quick look at the same: the mean of few runs."""
    ratios = []
    for seed in range(12):
        truth = sum(exact(seed))
        shed = served(Harvest(throttle=0.3, seed=seed), seed)
        missed = sum(one.missed.total for one in shed)
        results = sum(one.results for one in shed)
        assert results < truth
        ratios.append((results + missed) / truth)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


def test_dropping_estimates_what_is_left():
    shed = served(RandomDrop(throttle=0.3), 3)
    results, missed = sum(one.results for one in shed), sum(one.missed.total for one in shed)
    assert results + missed == pytest.approx(sum(exact(3)), rel=0.5)


def test_nobody_looked():
    """Without a shredded row the interval says that nothing is known, unless harvesting looks everywhere."""
    low, high = missed_interval(missed_matches(Sample.of([]), 0, 0.1, 0.5, everywhere=False))
    assert low == 0.0
    assert high > 10
    assert missed_matches(Sample.of([]), 0, 0.1, 1.0, everywhere=True) == Missed()


def test_intervals():
    assert missed_interval(Missed()) == (0.0, 0.0)
    low, high = missed_interval(Missed(0.0, 0.0, 10.0))
    assert low == 0.0
    assert high == pytest.approx(38.4, abs=0.1)  # an event of ten that was not met at all
    low, high = missed_interval(Missed(1000.0, 2500.0, 1.0))
    assert low < 1000 < high
    assert high - low == pytest.approx(2 * 1.96 * 50, rel=0.05)
    assert recall_interval(0, Missed(5.0, 25.0, 5.0)) == (1.0, 0.0, 1.0)

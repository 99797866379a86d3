"""The statistical claims themselves: who is held with what chance, and how often an interval holds the truth.

Every test goes over many seeds, and all seeds are fixed, so a result is the same on every run.  Bounds are wide enough
for chance (one in ten thousand or less) and too narrow for the mistakes they are there for.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dovetail.families.approx.stream import ApproxKernel

from .coverage import Setting, coverage
from .harness import equality_spec

pytestmark = pytest.mark.unhurried

RARE = 1e-4


def segment(values: np.ndarray, payload: np.ndarray | None = None) -> pa.RecordBatch:
    """Rows of one input; row n of all inputs arrive together."""
    hashes = (values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x5EED)).view(np.int64)
    columns = [np.arange(values.size) if payload is None else payload, values, hashes, np.arange(values.size)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["c0", "k0", "h", "a"])


def zipf(rows: int, values: int, seed: int) -> np.ndarray:
    chance = 1 / np.arange(1, values + 1)
    return np.random.default_rng(seed).choice(values, rows, p=chance / chance.sum())


def held(spec, segments) -> tuple[list[np.ndarray], np.ndarray]:
    """Arrival numbers of the rows of each input that are held in the end, and the rows seen by stratum."""
    kernel = ApproxKernel(spec)
    for side, rows in enumerate(segments):
        kernel.push(side, rows)
    for _ in kernel.results():
        pass
    stored = kernel.changes().stored
    live = stored["live"]
    side, number = live.column("side").to_numpy(), live.column("number").to_numpy()
    return [number[side == at] for at in range(spec.sides)], np.abs(stored["strata"].column(0).to_numpy())


def test_raj_holds_every_row_with_the_same_chance():
    rows, memory, seeds = 120, 60, 1500
    segments = [segment(zipf(rows, 9, at)) for at in range(2)]
    counts = np.zeros((2, rows))
    for seed in range(seeds):
        for side, numbers in enumerate(held(equality_spec("raj", memory, seed=seed), segments)[0]):
            assert numbers.size == memory // 2
            counts[side, numbers] += 1
    chance = memory / 2 / rows
    for side in range(2):
        # A fixed number of rows is held, so the counts have rows - 1 degrees of freedom.
        statistic = ((counts[side] - seeds * chance) ** 2).sum() / (seeds * chance * (1 - chance)) * (rows - 1) / rows
        assert stats.chi2.sf(statistic, rows - 1) > RARE
    # The two inputs are sampled independently.
    assert abs(np.corrcoef(counts[0], counts[1])[0, 1]) < 0.4


def strata_of(values: np.ndarray, count: int) -> np.ndarray:
    from dovetail.families.approx.compiled import buckets_of

    return buckets_of(np.asarray(segment(values).column("h")), count, 1)


@pytest.mark.parametrize("order", ["mixed", "sorted"])
def test_raj_hash_holds_every_row_of_a_stratum_with_the_chance_it_claims(order):
    rows, memory, seeds = 160, 80, 1500
    values = zipf(rows, 24, 5)
    if order == "sorted":
        values = np.sort(values)[::-1].copy()  # most strata appear only when memory is full
    spec = equality_spec("raj_hash", memory)
    strata = strata_of(values, memory // 8)
    sizes = np.bincount(strata, minlength=memory // 8)
    found, claimed, spread = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for seed in range(seeds):
        (numbers, other), seen = held(dataclasses.replace(spec, seed=seed), [segment(values), segment(values + 1000)])
        assert numbers.size + other.size == memory
        kept = np.bincount(strata[numbers], minlength=sizes.size)
        assert (seen[: sizes.size] == sizes).all()
        assert (kept[sizes > 0] > 0).all(), "no stratum is without a row"
        chance = (kept / np.maximum(sizes, 1))[strata]
        found[numbers] += 1
        claimed += chance
        spread += chance * (1 - chance) * np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 1)[strata]
    uncertain = spread > 0
    statistic = ((found - claimed)[uncertain] ** 2 / spread[uncertain]).sum()
    freedom = uncertain.sum() - np.unique(strata[uncertain]).size
    assert RARE < stats.chi2.sf(statistic, freedom) < 1 - RARE
    # Strata share the places in proportion to their rows, whenever they appeared, but for those too small to share.
    large = sizes >= 12
    rate = np.array([claimed[strata == h].mean() / seeds for h in np.flatnonzero(large)])
    assert large.sum() >= 3
    assert rate.max() / rate.min() < 1.35


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", ["raj", "raj_hash"])
def test_weights_are_inverse_chances_of_every_pair(policy):
    rows, memory, seeds = 40, 24, 3000
    values = [zipf(rows, 5, 1), zipf(rows, 5, 2)]
    segments = [segment(one) for one in values]
    weight = np.zeros((rows, rows))
    squares = np.zeros((rows, rows))
    for seed in range(seeds):
        kernel = ApproxKernel(equality_spec(policy, memory, seed=seed))
        for side in range(2):
            kernel.push(side, segments[side])
        for batch in kernel.results():
            a, b = batch.column("i0_0").to_numpy(), batch.column("i1_0").to_numpy()
            w = batch.column("weight").to_numpy()
            weight[a, b] += w
            squares[a, b] += w**2
    match = values[0][:, None] == values[1]
    assert (weight[~match] == 0).all()
    assert (weight[match] > 0).all()
    mean = weight[match] / seeds
    error = np.sqrt(np.maximum(squares[match] / seeds - mean**2, 0) / seeds)
    certain = error < 1e-9
    assert np.allclose(mean[certain], 1)
    assert np.abs((mean - 1)[~certain] / error[~certain]).max() < stats.norm.isf(RARE / 2 / match.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        Setting("random", "raj", rows=1500, values=600),
        Setting("random", "raj_hash", rows=1500, values=600),
        Setting("random", "raj", rows=300, memory=270, values=30, sides=3),
        Setting("random", "raj_hash", rows=300, memory=270, values=30, sides=3),
        Setting("sorted", "raj_hash", rows=300, memory=270, values=30, sides=3),
    ],
    ids=lambda setting: f"{setting.order}, {setting.policy}, {setting.sides} inputs",
)
def test_totals_are_unbiased_and_errors_are_as_large_as_they_say(setting):
    seeds = 300 if setting.sides == 2 else 150
    found = coverage(setting, range(seeds))
    # Three of the four are unbiased; the average is a ratio, whose bias is small beside its error.
    spread = found.found.std(axis=0)
    far = (found.found.mean(axis=0) - 1) / (spread / np.sqrt(seeds))
    assert np.abs(far[[0, 1, 3]]).max() < stats.norm.isf(RARE / 2)
    ratio = np.nanmean(found.errors, axis=0) / spread
    assert (ratio > 0.85).all(), ratio
    assert (ratio < 1.2).all(), ratio

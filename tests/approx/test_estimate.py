"""The arithmetic of estimates against nested loops: covariances, the sample of results, quantiles, and what is NULL."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dovetail.conditions.limits import Limit
from dovetail.families.approx.estimate import Sampled, moments
from dovetail.families.approx.intervals import SUMS, cell_sums, figures, student
from dovetail.families.approx.output import Found, ResultSample
from dovetail.families.approx.spec import ALL_HELD, UNREPRESENTED
from dovetail.families.approx.stream import ApproxKernel

from .harness import equality_spec, segment


def sample(
    policy: str, memory: int, arrivals, *, sides: int = 2, results: int | None = None, seed: int = 0
) -> pa.Table:
    """The results of arrivals (input, join value), in one call."""
    kernel = ApproxKernel(equality_spec(policy, memory, sides=sides, results=results, seed=seed))
    for side in range(sides):
        rows = [(at, k, at) for at, (s, k) in enumerate(arrivals) if s == side]
        if rows:
            kernel.push(side, segment(rows))
    batches = list(kernel.results())
    names = kernel.spec.output_names()
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.array([], pa.int64()) for name in names})


def shared_chance(sampled: Sampled, side: int, early: int, late: int) -> float:
    """By how much two results vary together through the rows of one input, per product of their weighted values."""
    seen, kept = sampled.seen[early, side], sampled.kept[early, side]
    if sampled.stratum[early] != sampled.stratum[late] or kept == seen:
        return 0.0
    if sampled.number[early, side] == sampled.number[late, side]:
        return 1 - kept / seen
    if sampled.number[late, side] >= sampled.arrived[early, side] or kept == 1:
        return 0.0
    return -(1 - kept / seen) / (kept - 1)


def covariances_by_pairs(values: np.ndarray, sampled: Sampled) -> np.ndarray:
    """The definition: every pair of results, the product over the inputs, the sample of results as one more input."""
    weighted = values * sampled.weight
    total = np.zeros((len(values), len(values)))
    for a, b in itertools.product(range(sampled.at.size), repeat=2):
        early, late = (a, b) if sampled.at[a] <= sampled.at[b] else (b, a)
        independent = np.prod(
            [1 - shared_chance(sampled, side, early, late) for side in range(sampled.number.shape[1])]
        )
        if sampled.call[a] == sampled.call[b]:
            found, returned = sampled.found[a], sampled.returned[a]
            left_out = 1 - returned / found
            independent *= 1 - (left_out if a == b else -left_out / max(returned - 1, 1))
        total += (1 - independent) * np.outer(weighted[:, a], weighted[:, b])
    return (total + total.T) / 2


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", ["raj", "raj_hash"])
@pytest.mark.parametrize(("sides", "results"), [(2, None), (2, 8), (3, None), (3, 15)])
@given(data=st.data(), memory=st.integers(6, 24), seed=st.integers(0, 9))
def test_covariances_are_the_sum_over_all_pairs(policy, sides, results, data, memory, seed):
    arrivals = data.draw(
        st.lists(st.tuples(st.integers(0, sides - 1), st.integers(0, 2)), min_size=8, max_size=60 // sides)
    )
    if data.draw(st.booleans()):
        arrivals.sort(key=lambda row: row[1])
    table = sample(policy, memory, arrivals, sides=sides, results=results, seed=seed)
    if not table.num_rows:
        return
    sampled = Sampled.of(table, sides)
    values = np.stack([np.ones(table.num_rows), np.cos(np.arange(table.num_rows)) * 5])
    totals, found = moments(values, sampled)
    assert totals == pytest.approx((values * sampled.weight).sum(axis=1))
    expected = covariances_by_pairs(values, sampled)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * (1 + np.abs(values * sampled.weight).sum() ** 2))


@given(confidence=st.floats(0.5, 0.999), degrees=st.floats(3, 1e6))
def test_quantiles_are_those_of_student(confidence, degrees):
    exact = stats.t.ppf((1 + confidence) / 2, degrees)
    # The expansion is least exact for few degrees of freedom and a high confidence: 4 % too small for 3 and 0.999.
    assert float(student(confidence, np.array([degrees]))[0]) == pytest.approx(
        exact, rel=0.02 if degrees >= 5 else 0.05
    )


@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=6), limit=st.integers(1, 60), call=st.integers(0, 3))
def test_a_sample_of_results_does_not_depend_on_chunks(sizes, limit, call):
    def found(begin: int, count: int) -> Found:
        numbers = np.arange(begin, begin + count)
        empty = np.empty((2, 0), dtype=np.int64)
        return Found(np.stack([numbers] * 2), np.ones(count), numbers, empty[0], empty[0], empty, empty, empty)

    total = sum(sizes)
    one, many = (ResultSample(limit, 7, 0, 2, call) for _ in range(2))
    one.add(found(0, total))
    for begin, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        many.add(found(int(begin), size))
    kept = [[int(number) for part in sampled.results(7) for number in part.arrival] for sampled in (one, many)]
    assert kept[0] == kept[1]
    assert len(kept[0]) == min(limit, total)
    assert kept[0] == sorted(set(kept[0]))
    weights = sum(float(part.weight.sum()) for part in many.results(7))
    assert weights == pytest.approx(total)


def test_every_result_is_returned_with_the_same_chance():
    limit, total, seeds = 20, 60, 3000
    counts = np.zeros(total)
    empty = np.empty((2, 0), dtype=np.int64)
    numbers = np.arange(total)
    for seed in range(seeds):
        one = ResultSample(limit, seed, 3, 2, 0)
        one.add(Found(np.stack([numbers] * 2), np.ones(total), numbers, empty[0], empty[0], empty, empty, empty))
        counts[next(one.results(100)).arrival] += 1
    chance = limit / total
    statistic = ((counts - seeds * chance) ** 2).sum() / (seeds * chance * (1 - chance)) * (total - 1) / total
    assert 1e-4 < stats.chi2.sf(statistic, total - 1) < 1 - 1e-4


def sums(**given_) -> dict[str, np.ndarray]:
    return {name: np.array([float(given_.get(name, 0))]) for name in SUMS}


def test_an_interval_needs_enough_results_and_rows():
    usual = {"total": 100, "tt": 25, "rows": 40, "uncertain": 40, "s20": 25, "s40": 25}
    one = figures("count", sums(**usual), 0.95)
    assert one.low[0] < 100 < one.high[0]
    for change in ({"uncertain": 9}, {"unrepresented": 1}, {"s40": 300}):
        none = figures("count", sums(**{**usual, **change}), 0.95)
        assert none.estimate[0] == 100
        assert np.isnan([none.error[0], none.low[0], none.high[0]]).all()
    nothing = figures("count", sums(), 0.95, rows=True)
    assert nothing.estimate[0] == 0
    assert np.isnan([nothing.error[0], nothing.low[0], nothing.high[0]]).all()
    known = figures("count", sums(total=5, rows=5, certain=5), 0.95, rows=True)
    assert (known.error[0], known.low[0]) == (0, 5)
    assert known.high[0] == pytest.approx(5)


def strata_of(table: pa.Table) -> set[int]:
    return set(table.column("stratum").to_pylist())


def test_a_cell_that_held_everything_says_so():
    rows = [[(at, at % 5, at) for at in range(20)], [(at, at % 5, at) for at in range(20)]]

    def found(policy: str, memory: int | None, *, ended: bool) -> pa.Table:
        kernel = ApproxKernel(equality_spec(policy, memory))
        for side in range(2):
            kernel.push(side, segment(rows[side]))
        if ended:
            kernel.end()
        return pa.Table.from_batches(list(kernel.results()))

    assert strata_of(found("exact", None, ended=False)) == {ALL_HELD}
    assert strata_of(found("raj", 40, ended=True)) == {ALL_HELD}
    assert strata_of(found("raj", 39, ended=True)) == {0}
    # More rows may follow on a stream, so that nobody knows yet.
    assert strata_of(found("raj", 40, ended=False)) == {0}
    table = found("raj", 40, ended=True)
    (known,) = cell_sums(np.ones((2, table.num_rows)), Sampled.of(table, 2))
    one = figures("count", {name: np.array([number]) for name, number in known.items()}, 0.95)
    assert (one.estimate[0], one.error[0]) == (80, 0)


@pytest.mark.parametrize("cut", [False, True])
def test_rows_too_wide_to_hold_are_seen_and_leave_no_interval(cut):
    # Every third row of A is far wider than its part of the memory.
    texts = {False: "k", True: "k" + " " * 5000}
    kernels, found = None, []
    arrivals = [(side, at) for at in range(120) for side in range(2)]
    spec = dataclasses.replace(equality_spec("raj", Limit(8000, "bytes"), kind="rank"), payload=(2, 2))
    state: dict[str, pa.RecordBatch] = {}
    for part in (arrivals[:101], arrivals[101:]) if cut else (arrivals,):
        kernels = ApproxKernel(spec)
        kernels.restore(state, None)
        for side in range(2):
            ids = [at for s, at in part if s == side]
            wide = [texts[side == 0 and at % 3 == 2] for at in ids]
            columns = [ids, wide, ["k"] * len(ids), [7] * len(ids), ids]
            names = ["c0", "c1", "k0", "h", "a"]
            kernels.push(side, pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names))
        found += list(kernels.results())
        changes = kernels.changes()
        for name in changes.dropped:
            del state[name]
        state.update(changes.stored)
    table = pa.Table.from_batches(found)
    # All rows have one value, so the held ones stand for the wide ones, too: 120 x 120 results.
    assert sum(table.column("weight").to_pylist()) == pytest.approx(120 * 120)
    (known,) = cell_sums(np.ones((2, table.num_rows)), Sampled.of(table, 2))
    one = figures("count", {name: np.array([number]) for name, number in known.items()}, 0.95)
    assert np.isnan(one.high[0])
    assert UNREPRESENTED in strata_of(table)

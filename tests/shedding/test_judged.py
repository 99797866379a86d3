"""Harvesting by results that only Spark can tell from candidates: an oracle plays Spark, kernels are those that run."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shedding.judged import Run, run_judged
from tests.window.harness import flat, make_plan
from tests.window.shapes import cases
from tests.window.test_stream import spec_of

from dovetail.families.shedding.control import Control
from dovetail.families.shedding.inventory import CONTROL
from dovetail.families.shedding.optimizer.model import build_model
from dovetail.families.shedding.recall import Missed, judged_matches, recall_interval
from dovetail.families.shedding.scout import MOST_PAIRS, SCOUT_SHARE, drawn, kept_rate
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest

WINDOW, CALLS, SPAN = 1000, 12, 6000


def vectors(seed: int, count: int, lag: int, dimensions: int = 8) -> dict[str, pa.Table]:
    """Two streams of vectors of length 1: those of B are those of A, `lag` later."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, SPAN, count))
    topics = random.normal(size=(count, dimensions))
    topics /= np.linalg.norm(topics, axis=1, keepdims=True)
    keys = random.integers(0, 2, count)
    return {
        name: pa.table({"t": times + by, "k": keys, "v": pa.array(list(topics)), "n": np.arange(count)})
        for name, by in (("A", 0), ("B", lag))
    }


def similar(parts) -> np.ndarray:
    """The inner product of two arrays, the paper's first example: no index helps with it."""
    left, right = (part.column(2).flatten().to_numpy().reshape(part.num_rows, -1) for part in parts)
    return (left * right).sum(axis=1) > 0.95


def in_batches(spec, tables, calls: int = CALLS) -> list[list[pa.RecordBatch]]:
    whole = [flat(spec, side, tables[alias]) for side, alias in enumerate(spec.aliases)]
    times = [tables[alias].column("t").to_numpy() for alias in spec.aliases]
    edges = np.linspace(0, max(int(at.max()) for at in times) + 1, calls + 1)
    return [
        [rows.filter(pa.array((at >= begin) & (at < end))) for rows, at in zip(whole, times, strict=True)]
        for begin, end in pairwise(edges)
    ]


def exact(tables, *, keyed: bool = False) -> Counter:
    """All pairs within the window of which the condition is true."""
    a, b = (table.to_pydict() for table in tables.values())
    near = np.abs(np.subtract.outer(a["t"], b["t"])) <= WINDOW
    alike = np.array(a["v"]) @ np.array(b["v"]).T > 0.95
    if keyed:
        alike &= np.equal.outer(a["k"], b["k"])
    return Counter(zip(*(rows.tolist() for rows in np.nonzero(near & alike)), strict=True))


def spec_for(tables, on=None):
    return make_plan(on, tables, WINDOW, streaming=True, partitions=2).spec


def share(run: Run, truth: Counter) -> float:
    assert run.found <= truth
    return sum(run.found.values()) / sum(truth.values())


@pytest.mark.parametrize("histograms", ["stream", "pair"])
@pytest.mark.parametrize("lag", [150, 700])
def test_slices_are_those_of_results_and_not_of_candidates(lag, histograms):
    """Every pair in the window is a candidate, wherever; results lie at one lag."""
    tables = vectors(lag, 1500, lag)
    spec, truth = spec_for(tables), exact(tables)
    batches = in_batches(spec, tables)
    shed = Harvest(throttle=0.15, seed=3, histograms=histograms)
    by_results = share(run_judged(spec, batches, similar, shed, 100), truth)
    by_candidates = share(run_judged(spec, batches, similar, shed, 100, by_results=False), truth)
    # Candidates do not tell where to look, so a part of the work gives about that part of the results.
    assert by_candidates < 0.4
    assert by_results > 0.75


def test_work_is_within_the_throttle_and_goes_by_candidates():
    tables = vectors(4, 1500, 700)
    spec = spec_for(tables)
    run = run_judged(spec, in_batches(spec, tables), similar, Harvest(throttle=0.15, seed=3), 100)
    work, full = (sum(counts[name] for counts in run.counters[2:]) for name in ("work", "work_full"))
    assert 0.05 * full < work < 0.22 * full


def test_with_an_equality_beside_it():
    """The index finds what the equality lets through, at every lag; Spark judges that."""
    tables = vectors(5, 2500, 700)
    spec, truth = spec_for(tables, "A.k = B.k"), exact(tables, keyed=True)
    batches = in_batches(spec, tables)
    shed = Harvest(throttle=0.15, seed=1)
    assert share(run_judged(spec, batches, similar, shed, 100), truth) > 0.7
    assert share(run_judged(spec, batches, similar, shed, 100, by_results=False), truth) < 0.4


def test_three_inputs():
    """Keys leave dozens of candidates for each row, at every lag; of each row of A one result comes, at two lags."""
    random = np.random.default_rng(1)
    count = 1200
    times, keys = np.sort(random.integers(0, SPAN, count)), random.integers(0, 12, count)
    tables = {
        alias: pa.table({"t": times + lag, "k": keys, "n": np.arange(count)})
        for alias, lag in (("A", 0), ("B", 300), ("C", 800))
    }
    spec = spec_for(tables, "A.k = B.k AND B.k = C.k")

    def same(parts) -> np.ndarray:
        first, second, third = (part.column(2).to_numpy() for part in parts)
        return (first == second) & (second == third)

    truth = Counter((row, row, row) for row in range(count))
    batches, shed = in_batches(spec, tables), Harvest(throttle=0.15, seed=1)
    assert share(run_judged(spec, batches, same, shed, 100), truth) > 0.7
    assert share(run_judged(spec, batches, same, shed, 100, by_results=False), truth) < 0.4


def test_a_lag_that_moves_is_followed():
    first, second = vectors(6, 1500, 700), vectors(7, 1500, -400)
    gap = SPAN + 2 * WINDOW
    tables = {}
    for alias in "AB":
        later = second[alias].set_column(0, "t", pa.array(second[alias].column("t").to_numpy() + gap))
        both = pa.concat_tables([first[alias], later])
        tables[alias] = both.set_column(3, "n", pa.array(np.arange(both.num_rows)))
    spec, truth = spec_for(tables), exact(tables)
    run = run_judged(spec, in_batches(spec, tables, 24), similar, Harvest(throttle=0.15, seed=2), 100)
    assert share(run, truth) > 0.6
    late = Counter({pair: 1 for pair in run.found if pair[0] >= 1500 + 750})
    assert sum(late.values()) > 0.7 * sum(1 for pair in truth if pair[0] >= 1500 + 750)


@given(case=cases(most=3), data=st.data(), width=st.integers(1, 12), sample=st.sampled_from([0.1, 0.5, 1.0]))
def test_exact_at_full_throttle_and_a_subset_at_any_other(case, data, width, sample):
    """Any join, any cut into micro-batches; what Spark would judge is a condition on all rows of a match."""
    spec = spec_of(case, streaming=True, delays=[100] * len(case.aliases))
    modulus = data.draw(st.integers(1, 3))

    def judge(parts) -> np.ndarray:
        return sum(part.column(part.num_columns - 1).to_numpy() for part in parts) % modulus == 0

    expected = Counter({rows: n for rows, n in case.expected().items() if sum(rows) % modulus == 0})
    cuts = [
        sorted(data.draw(st.lists(st.integers(0, table.num_rows), min_size=2, max_size=2)))
        for table in case.tables.values()
    ]
    whole = [flat(spec, side, case.tables[alias]) for side, alias in enumerate(case.aliases)]
    batches = [
        [rows.slice(edges[at], edges[at + 1] - edges[at]) for rows, edges in zip(whole, ends, strict=True)]
        for ends in [[[0, *cut, rows.num_rows] for cut, rows in zip(cuts, whole, strict=True)]]
        for at in range(3)
    ]
    full = run_judged(spec, batches, judge, Harvest(throttle=1.0, sample_fraction=sample), width)
    assert full.found == expected
    assert sum(counts["missed"] for counts in full.counters) == 0
    throttle = data.draw(st.floats(0.01, 0.99))
    memory = data.draw(st.sampled_from([{}, {"keep": "selected"}, {"memory": 6}]))
    assert run_judged(spec, batches, judge, Harvest(throttle=throttle, **memory), width).found <= expected


def test_nothing_depends_on_what_the_scout_says():
    """Its results may get lost: the join knows less of where to look, and stays a subset, or exact."""
    tables = vectors(8, 800, 700)
    spec, truth = spec_for(tables), exact(tables)
    batches = in_batches(spec, tables)
    for throttle in (0.15, 1.0):
        lost = run_judged(spec, batches, similar, Harvest(throttle=throttle), 100, told=lambda call: call % 3 == 0)
        never = run_judged(spec, batches, similar, Harvest(throttle=throttle), 100, told=lambda call: False)
        for run in (lost, never):
            assert run.found <= truth
            assert (run.found == truth) == (throttle == 1.0)
    assert share(never, truth) == 1.0


def test_the_same_again():
    """A micro-batch that runs again sheds the same, with a fixed throttle: all that is random comes from the seed."""
    tables = vectors(9, 600, 300)
    spec = spec_for(tables)
    batches = in_batches(spec, tables, 5)
    first, again, other = (
        run_judged(spec, batches, similar, Harvest(throttle=0.3, seed=seed), 100) for seed in (4, 4, 5)
    )
    assert first.results == again.results
    pairs = [[counts["scouted_pairs"] for counts in run.scouted] for run in (first, again, other)]
    assert pairs[0] == pairs[1] != pairs[2]


def test_what_the_scout_takes_is_bounded():
    """A window of thousands of rows: pairs to judge stay near the bound, the state near its part of the rows."""
    random = np.random.default_rng(1)
    tables = {
        alias: pa.table(
            {"t": np.sort(random.integers(0, 2000, 12_000)), "k": np.zeros(12_000, int), "n": np.arange(12_000)}
        )
        for alias in "AB"
    }
    spec = spec_for(tables)
    run = run_judged(spec, in_batches(spec, tables, 3), lambda parts: np.zeros(parts[0].num_rows, bool), Harvest())
    pairs = [counts["scouted_pairs"] for counts in run.scouted]
    assert max(pairs) < 2 * 1.2 * MOST_PAIRS  # two directions
    assert max(pairs) > MOST_PAIRS
    held = run.scouted[-1]["scout_rows"] / sum(run.counters[-1][f"held_rows_{alias}"] for alias in "AB")
    assert held == pytest.approx(kept_rate(2), abs=0.05)


def test_a_memory_limit_holds_for_both():
    tables = vectors(10, 1500, 700)
    spec, truth = spec_for(tables), exact(tables)
    run = run_judged(spec, in_batches(spec, tables), similar, Harvest(throttle=0.3, memory=200), 100)
    assert run.found <= truth
    for counts, scout in zip(run.counters, run.scouted, strict=True):
        assert scout["scout_rows"] <= SCOUT_SHARE * 200
        assert scout["scout_rows"] + counts["held_rows_A"] + counts["held_rows_B"] <= 200
    # What was evicted is missed, and the estimate knows.
    missed, found = (sum(counts[name] for counts in run.counters) for name in ("missed", "results_estimate"))
    assert found / (found + missed) < 0.7


def test_samples_are_even():
    """Also of rows that share their time, or come in the same order in every micro-batch."""
    for times in (np.zeros(40_000, int), np.tile(np.arange(40), 1000), np.arange(40_000) * 1_000_000):
        chosen = drawn(times.astype(np.int64), 0, 0)
        assert chosen.min() >= 0
        assert chosen.max() < 1
        assert np.histogram(chosen, 10, (0, 1))[0] == pytest.approx(np.full(10, 4000), rel=0.1)
    here, there = (drawn(np.full(1000, at), 0, 0) < 0.3 for at in (5, 6))
    assert abs(np.corrcoef(here, there)[0, 1]) < 0.15


def test_recall_is_that_of_results():
    ratios, covered = [], []
    for seed in range(8):
        tables = vectors(seed, 1500, 700)
        spec, truth = spec_for(tables), exact(tables)
        run = run_judged(spec, in_batches(spec, tables), similar, Harvest(throttle=0.1, seed=seed), 100)
        found = sum(counts["results_estimate"] for counts in run.counters)
        missed = sum(
            (Missed(c["missed"], c["missed_variance"], c["missed_event"]) for c in run.counters), Missed()
        )  # fmt: skip
        recall, low, high = recall_interval(found, missed)
        ratios.append(recall / share(run, truth))
        covered.append(low <= share(run, truth) <= high)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.12)
    assert sum(covered) >= 7


def test_the_estimate_of_results():
    found, missed = judged_matches(np.full(4, 10.0), np.array([1.0, 1, 0.5, 0]), [np.array([1, 1, 2, 3])])
    assert (found, missed.total) == (25.0, 15.0)
    assert judged_matches(np.ones(3), np.ones(3), [np.arange(3)]) == (3.0, Missed())
    alone, together = (
        judged_matches(np.ones(4), np.array([1.0, 1, 0, 0]), [rows])[1] for rows in (np.arange(4), [0, 0, 1, 1])
    )
    assert together.variance == pytest.approx(2 * alone.variance)


def test_a_model_tells_work_and_results_apart():
    """Slices whose candidates are many and whose results are none are worth nothing, and cost as much."""
    rows, few = np.full((2, 2, 4), 10.0), np.tile([0.7, 0.1, 0.1, 0.1], (2, 2, 1))
    scores = np.tile([0.0, 0.0, 1.0, 0.0], (2, 2, 1))
    orders, fanouts = np.array([[1], [0]]), np.full((2, 1), 5.0)
    model = build_model([1.0, 1.0], orders, rows, scores, fanouts, found=few, worth=np.array([0.5, 0.1]))
    assert model.ranking[0, 0, 0] == 2
    assert model.output(np.array([[1], [0]])) == pytest.approx(5.0 * 0.5)
    assert model.output(model.full) == pytest.approx(5.0 * 0.6)
    assert model.yields[0, 0].tolist() == pytest.approx([0, 0.1, 0.8, 0.9, 1.0])


def test_control_of_an_older_version_is_taken_up():
    """State without the sums of candidates keeps all else that it has learned."""
    slices = Slices.of(spec_for(vectors(1, 10, 0)).hull, 100)
    control = Control.new(slices)
    control.learned.drivers += 7
    control.learned.pairs += 3
    stored = control.batch()
    older = stored.filter(pa.compute.not_equal(stored.column("name"), "candidates"))
    taken = Control.load(slices, {CONTROL: older})
    assert taken.learned.drivers.tolist() == [7, 7]
    assert taken.learned.pairs.min() == 3
    assert not taken.learned.candidates.any()

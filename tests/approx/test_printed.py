"""The paper's algorithms as printed, against their definition, its example, and what it says of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.conditions.limits import Limit
from dovetail.errors import ArgumentError
from dovetail.families.approx.compiled import Chains, Rows
from dovetail.families.approx.memory import Memory
from dovetail.families.approx.paper.compiled import update_sample
from dovetail.families.approx.paper.slots import empty_slots
from dovetail.families.approx.spec import PRINTED, Options
from dovetail.reference.approx_printed import printed_join

from .harness import bucket_of, draw_of, equality_spec, exact, run
from .test_plan import planned
from .test_stream import arrivals_of

SETTINGS = [
    ("raj_printed", {}),
    ("raj_hash_printed", {"strata": 3}),
    ("raj_hash_printed", {"strata": 64}),
    ("prob_printed", {}),
    ("prob_printed", {"allocation": "variable", "ties": "oldest"}),
    ("prob_printed", {"discard": 3}),
    ("prob_hash_printed", {"strata": 4}),
    ("prob_hash_printed", {"strata": 64, "discard": 2, "ties": "oldest"}),
]


def expected(spec, arrivals):
    usable = [(side, (number, k)) for side, number, k in arrivals if k is not None]
    parts = spec.strata if "hash" in spec.policy else 1
    found = printed_join(
        usable,
        matches=lambda a, b: a[1] == b[1],
        policy=spec.policy,
        memory=spec.memory.amount,
        draw=draw_of(spec),
        part=lambda row: bucket_of(parts, 1)(row[1]) if parts > 1 else 0,
        value=lambda row: bucket_of(1024, 2)(row[1]),
        allocation=spec.allocation,
        discard=spec.discard,
        ties=spec.ties,
    )
    ids = [[row[0] for at, row in usable if at == side] for side in range(2)]
    return [(ids[0][a], ids[1][b]) for a, b in found]


@pytest.mark.parametrize(("policy", "settings"), SETTINGS)
@given(data=st.data(), arrivals=arrivals_of(), memory=st.integers(2, 40), seed=st.integers(0, 5))
def test_each_is_its_definition_however_arrivals_are_cut(policy, settings, data, arrivals, memory, seed):
    spec = equality_spec(policy, memory, seed=seed, **settings)
    done = run(spec, arrivals, data.draw(st.lists(st.integers(1, len(arrivals)), max_size=5)))
    assert sorted(done.found) == sorted(expected(spec, arrivals))
    assert set(done.found) <= exact(arrivals)
    assert all(counters["peak_rows"] <= memory for counters in done.counters)


@pytest.mark.parametrize(("policy", "settings"), SETTINGS)
def test_any_cut_of_many_rows_gives_the_same_results(policy, settings):
    random = np.random.default_rng(5)
    sides, values = random.integers(0, 2, 3000), random.zipf(1.4, 3000) % 97
    counts = [np.cumsum(sides == side) - 1 for side in range(2)]
    arrivals = [(int(s), int(counts[s][at]), int(k)) for at, (s, k) in enumerate(zip(sides, values, strict=True))]
    spec = equality_spec(policy, 200, seed=9, **settings)
    whole = run(spec, arrivals)
    cut = run(spec, arrivals, random.integers(1, 3000, 20).tolist())
    assert sorted(whole.found) == sorted(cut.found)
    assert len(whole.found) < len(exact(arrivals))
    assert (
        sorted(run(dataclasses.replace(spec, seed=10), arrivals).found) != sorted(whole.found) or spec.ties == "oldest"
    )


@pytest.mark.parametrize("policy", PRINTED)
@given(arrivals=arrivals_of(), cut=st.integers(1, 60))
def test_with_memory_for_each_input_the_join_is_complete(policy, arrivals, cut):
    done = run(equality_spec(policy, 2 * len(arrivals) + 2), arrivals, [cut])
    assert sorted(done.found) == sorted(exact(arrivals))


def _filled(values: list[int], rhos: dict[int, int], slots: int = 5):
    """One stream through RAJHash with f(t) = value mod 10; the n-th row draws `rhos[n]`, counted from 1."""
    count = len(values)
    zeros = np.zeros(count, dtype=np.int64)
    draw = np.array([rhos.get(n, n) - 1 for n in range(1, count + 1)])
    part = np.array(values) % 10
    rows = Rows(zeros, part, np.arange(count), zeros, draw, np.ones(count, dtype=np.int64))
    chains = Chains(
        np.full((2, 10), -1), np.full(count, -1, dtype=np.int32), np.full(count, -1, dtype=np.int32), zeros.copy(),
        np.zeros((2, count), dtype=np.int64), np.ones(1, dtype=np.int64),
    )  # fmt: skip
    two = [np.zeros(2, dtype=np.int64) for _ in range(7)]
    memory = Memory(np.array([2 * slots]), *two)
    spec = equality_spec("raj_hash_printed", 2 * slots, strata=10)
    made = empty_slots(spec, rows, part, zeros, 1)
    for row in range(count):
        update_sample(row, rows, chains, memory, made)
    held = {
        p: [values[row] for row in made.members[made.begin[0, p] :][: made.sizes[0, p]]]
        for p in range(10)
        if made.sizes[0, p]
    }
    assert sorted(value for part in held.values() for value in part) == sorted(
        values[row] for row in np.flatnonzero(chains.held)
    )
    return held


def test_the_example_of_section_4_6_1():
    full = {0: [10, 30], 1: [11], 2: [22], 4: [34]}
    assert _filled([10, 22, 34, 11, 30], {}) == full
    # The sixth row of the first stream, 90, with rho = 4: 4 mod 2 = 0, so it replaces the first of its sub-reservoir.
    assert _filled([10, 22, 34, 11, 30, 90], {6: 4}) == full | {0: [90, 30]}
    # The sixth of the second, 58, with rho = 6: discarded.
    assert _filled([10, 48, 20, 35, 12, 58], {6: 6}) == {0: [10, 20], 2: [12], 5: [35], 8: [48]}
    # rho = 5 is still accepted, as the text says and line 6 does not: 5 mod 1 = 0.
    assert _filled([10, 48, 20, 35, 12, 58], {6: 5})[8] == [58]
    # Line 8 divides by zero for a row without a sub-reservoir: rho = 3 takes the third row of all, 11.
    assert _filled([10, 22, 34, 11, 30, 7], {6: 3}) == {0: [10, 30], 2: [22], 4: [34], 7: [7]}


@pytest.mark.parametrize("policy", ["prob_hash_printed", "raj_hash_printed"])
def test_more_parts_take_fewer_comparisons(policy):
    arrivals = [(at % 2, at // 2, at * at % 101) for at in range(2000)]
    done = [run(equality_spec(policy, 300, seed=2, strata=parts), arrivals) for parts in (1, 8, 64)]
    comparisons = [one.counters[-1]["comparisons"] for one in done]
    assert comparisons[0] > 5 * comparisons[1] > 5 * comparisons[2]
    if policy == "prob_hash_printed":
        assert sorted(done[0].found) == sorted(done[1].found) == sorted(done[2].found), "queues only speed it up"


def test_prob_hash_is_prob_where_both_inputs_share_the_memory():
    arrivals = [(at % 2, at // 2, at * at % 31) for at in range(1500)]
    queue = run(equality_spec("prob_printed", 100, allocation="variable"), arrivals)
    queues = run(equality_spec("prob_hash_printed", 100, strata=16), arrivals)
    assert sorted(queue.found) == sorted(queues.found)


def test_early_rows_keep_the_priority_they_arrived_with():
    """What our `prob` mends: the row that would have had every result arrives before anybody knows."""
    rest = [row for n in range(1, 200) for row in ((0, n, 2), (1, n, 1))]
    arrivals = [(0, 0, 1), (1, 0, 2), *rest]
    printed, ours = (run(equality_spec(policy, 40), arrivals).found for policy in ("prob_printed", "prob"))
    assert len(ours) == len(exact(arrivals)) == 398
    assert 0 < len(printed) < 60


@pytest.mark.in_turns
@pytest.mark.parametrize("slots", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_raj_holds_every_row_with_the_same_chance(slots):
    rows, runs = 4 * slots, 3000
    held = np.zeros(rows)
    probe = [(1, at, at) for at in range(rows)]
    for seed in range(runs):
        # Rows of the second input meet the held ones, and are held where they do not matter.
        done = run(equality_spec("raj_printed", 2 * slots, seed=seed), [*[(0, at, at) for at in range(rows)], *probe])
        held[[a for a, _ in done.found]] += 1
    expected_, deviation = runs / 4, (runs * 0.25 * 0.75) ** 0.5
    assert held.sum() == runs * slots
    assert abs(held - expected_).max() < 4.5 * deviation


def test_what_printed_policies_do_not_take():
    for policy in PRINTED:
        with pytest.raises(ArgumentError, match="counts rows"):
            Options(memory=Limit(10_000, "bytes"), policy=policy)
        with pytest.raises(ArgumentError, match="with 3 inputs"):
            planned("A.k = B.k AND B.k = C.k", "ABC", policy=policy)
    for wrong in ({"discard": 0}, {"discard": True}, {"ties": "newest"}):
        with pytest.raises(ArgumentError):
            Options(memory=Limit(10), policy="prob_printed", **wrong)
    for policy in ("raj_hash", "prob", "raj_printed"):
        with pytest.raises(ArgumentError, match="discard=2 with"):
            Options(memory=Limit(10), policy=policy, discard=2)
        with pytest.raises(ArgumentError, match="ties='oldest' with"):
            Options(memory=Limit(10), policy=policy, ties="oldest")
    with pytest.raises(ArgumentError, match="strata=5"):
        Options(memory=Limit(10), policy="raj_printed", strata=5)


def test_the_plan_says_what_is_printed():
    plan = planned("A.k = B.k", policy="prob_hash_printed", strata=7, discard=3, ties="oldest", partitions=1)
    assert "7 parts of each input; 3 at once leave when memory is full; of equals the oldest" in plan.text()
    assert (plan.spec.strata, plan.spec.discard, plan.spec.ties) == (7, 3, "oldest")
    assert plan.identity()["ties"] == "oldest"
    assert planned("A.k = B.k", policy="raj_hash_printed").spec.strata == 64
    assert "discard" not in planned("A.k = B.k").identity(), "checkpoints of other policies go on"

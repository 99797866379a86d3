"""Every policy against its definition, for any arrivals and any cut into calls."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.segments import unpack
from dovetail.conditions.comparison import KeyType, build_step
from dovetail.conditions.forms import Band, Bound, Term
from dovetail.conditions.limits import Limit
from dovetail.errors import DovetailError
from dovetail.families.approx.spec import POLICIES, PRINTED, Edge
from dovetail.reference.approx import approx_join

from .harness import Driver, bucket_of, draw_of, equality_spec, exact, run

VARIANTS = [*[(policy, "fixed") for policy in POLICIES if policy not in PRINTED], ("prob", "variable")]


@st.composite
def arrivals_of(draw, sides: int = 2, size: int = 60, values: int = 6):
    made = draw(
        st.lists(
            st.tuples(st.integers(0, sides - 1), st.none() | st.integers(0, values - 1)), min_size=1, max_size=size
        )
    )
    counts = [0] * sides
    rows = []
    for side, k in made:
        rows.append((side, counts[side], k))
        counts[side] += 1
    return rows


def expected(spec, arrivals, strata=1, buckets=1024):
    usable = [(side, (number, k)) for side, number, k in arrivals if k is not None]
    found = approx_join(
        usable,
        sides=spec.sides,
        matches=lambda *rows: len({row[1] for row in rows}) == 1,
        policy=spec.policy,
        memory=spec.memory.amount,
        draw=draw_of(spec),
        stratum=lambda row: bucket_of(strata, 1)(row[1]) if strata > 1 else 0,
        bucket=lambda row: bucket_of(buckets, 2)(row[1]),
        allocation=spec.allocation,
    )
    ids = [[row[0] for at, row in usable if at == side] for side in range(spec.sides)]
    return [(tuple(ids[side][n] for side, n in enumerate(numbers)), weight) for numbers, weight in found]


@pytest.mark.parametrize(("policy", "allocation"), VARIANTS)
@given(data=st.data(), arrivals=arrivals_of(), memory=st.integers(2, 40), seed=st.integers(0, 5))
def test_policies_are_their_definition(policy, allocation, data, arrivals, memory, seed):
    if policy == "exact":
        memory = len(arrivals) + 1
    spec = equality_spec(policy, memory, allocation=allocation, seed=seed)
    cuts = data.draw(st.lists(st.integers(1, len(arrivals)), max_size=5))
    done = run(spec, arrivals, cuts)
    strata = max(1, min(1024, memory // 8)) if policy == "raj_hash" else 1
    wanted = expected(spec, arrivals, strata)
    assert sorted(done.found) == sorted(ids for ids, _ in wanted)
    if spec.weighted:
        assert dict(zip(done.found, done.weights, strict=True)) == pytest.approx(dict(wanted))
    complete = exact(arrivals)
    assert len(set(done.found)) == len(done.found)
    assert set(done.found) <= complete
    for counters in done.counters:
        assert counters["held_rows"] <= memory
        assert counters["peak_rows"] <= memory


@given(data=st.data(), arrivals=arrivals_of(sides=3, size=40, values=3), memory=st.integers(3, 30))
@pytest.mark.parametrize("policy", ["raj", "raj_hash"])
def test_three_inputs(policy, data, arrivals, memory):
    spec = equality_spec(policy, memory, sides=3, seed=3)
    cuts = data.draw(st.lists(st.integers(1, len(arrivals)), max_size=4))
    done = run(spec, arrivals, cuts)
    wanted = expected(spec, arrivals, max(1, memory // 12) if policy == "raj_hash" else 1)
    assert dict(zip(done.found, done.weights, strict=True)) == pytest.approx(dict(wanted))
    assert len(done.found) == len(wanted)
    assert set(done.found) <= exact(arrivals, 3)
    assert all(counters["peak_rows"] <= memory for counters in done.counters)


@pytest.mark.parametrize(("policy", "allocation"), VARIANTS)
@given(arrivals=arrivals_of(), seed=st.integers(0, 3), cuts=st.lists(st.integers(1, 60), max_size=3))
def test_with_memory_for_all_rows_every_policy_is_exact(policy, allocation, arrivals, seed, cuts):
    done = run(equality_spec(policy, max(2, len(arrivals)), allocation=allocation, seed=seed), arrivals, cuts)
    assert sorted(done.found) == sorted(exact(arrivals))
    assert all(weight == 1.0 for weight in done.weights)


@pytest.mark.parametrize("policy", ["raj", "prob"])
@given(arrivals=arrivals_of(), memory=st.integers(2, 30))
def test_a_scan_finds_what_the_lists_find(policy, arrivals, memory):
    plain = run(equality_spec(policy, memory), arrivals)
    scan = run(equality_spec(policy, memory, scan=True), arrivals)
    assert sorted(scan.found) == sorted(plain.found)
    assert scan.counters[-1]["comparisons"] >= plain.counters[-1]["comparisons"]


TEXTS = st.none() | st.sampled_from(["", "a", "b", "ab", "\u00e9", "longer than eight bytes"])
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan])


@given(st.data(), st.sampled_from([(TEXTS, pa.string(), "rank"), (FLOATS, pa.float64(), "float64")]))
def test_values_of_other_types(data, kind):
    values, arrow, code = kind
    made = data.draw(st.lists(st.tuples(st.integers(0, 1), values), min_size=1, max_size=40))
    counts = [0, 0]
    arrivals = []
    for side, k in made:
        # The hash is Spark's business: it hashes equal values alike.
        k = 0.0 if isinstance(k, float) and k == 0 else math.nan if isinstance(k, float) and math.isnan(k) else k
        arrivals.append((side, counts[side], k))
        counts[side] += 1
    spec = equality_spec("raj_hash", 400, kind=code)
    done = run(spec, arrivals, [len(arrivals) // 2], arrow)
    assert sorted(done.found) == sorted(exact([(s, n, "nan" if k != k else k) for s, n, k in arrivals]))


def test_the_limit_in_bytes_holds_and_the_widest_row_decides():
    random = np.random.default_rng(3)
    words = ["x" * int(n) for n in random.integers(1, 60, 40)]
    arrivals = [(int(random.integers(0, 2)), at, words[int(random.integers(0, 40))]) for at in range(3000)]
    for policy in ("raj", "raj_hash", "prob", "prob_hash", "arrpj"):
        limit = Limit(20_000, "bytes")
        whole = run(equality_spec(policy, limit, kind="rank"), arrivals, (), pa.string())
        cut = run(equality_spec(policy, limit, kind="rank"), arrivals, [700, 701, 2000], pa.string())
        assert sorted(whole.found) == sorted(cut.found), policy
        assert 0 < whole.counters[-1]["held_bytes"] <= limit.amount
        assert all(counters["held_bytes"] <= limit.amount for counters in cut.counters)
        assert set(whole.found) <= exact(arrivals)


def test_a_row_larger_than_its_part_is_never_held_but_meets_what_is():
    arrivals = [(0, 0, "k"), (1, 0, "k" * 5000), (1, 1, "k"), (0, 1, "k" * 5000), (0, 2, "k")]
    done = run(equality_spec("raj", Limit(4000, "bytes"), kind="rank"), arrivals, (), pa.string())
    assert sorted(done.found) == [(0, 1), (2, 1)]
    assert done.counters[-1]["oversized"] == 2


@pytest.mark.parametrize(("policy", "allocation"), VARIANTS)
def test_any_cut_of_many_rows_gives_the_same_results(policy, allocation):
    random = np.random.default_rng(11)
    counts = [0, 0]
    arrivals = []
    for k in random.zipf(1.4, 4000) % 97:
        side = int(random.integers(0, 2))
        arrivals.append((side, counts[side], int(k)))
        counts[side] += 1
    spec = equality_spec(policy, None if policy == "exact" else 300, allocation=allocation, seed=9)
    whole = run(spec, arrivals)
    cut = run(spec, arrivals, random.integers(1, 4000, 25).tolist())
    assert sorted(whole.found) == sorted(cut.found)
    assert sorted(whole.weights) == pytest.approx(sorted(cut.weights))
    other = run(dataclasses.replace(spec, seed=10), arrivals)
    if policy in ("raj", "raj_hash"):
        assert sorted(other.found) != sorted(whole.found)
    # Stored rows are those that are held, and at most as many again that no longer are.
    stored = sum(unpack(rows).num_rows for name, rows in cut.state.items() if name.startswith("rows/"))
    assert cut.counters[-1]["held_rows"] <= stored <= 2 * cut.counters[-1]["held_rows"] + 2


@pytest.mark.parametrize("policy", ["raj", "raj_hash", "prob", "prob_hash", "arrpj", "exact"])
def test_a_result_leaves_in_the_micro_batch_in_which_it_is_found(policy):
    arrivals = [(at % 2, at // 2, at * at % 7) for at in range(300)]
    spec = equality_spec(policy, None if policy == "exact" else 60, seed=1)
    driver = Driver(spec)
    for begin in range(0, 300, 60):
        driver.call(arrivals[begin : begin + 60], begin)
        assert sorted(driver.found) == sorted(run(spec, arrivals[: begin + 60]).found)


def test_a_restart_goes_on_with_the_seed_it_began_with():
    arrivals = [(at % 2, at // 2, at % 7) for at in range(400)]
    spec = equality_spec("raj_hash", 60, seed=1)
    whole = run(spec, arrivals)
    again = Driver(spec)
    again.call(arrivals[:200], 0)
    again.spec = dataclasses.replace(spec, seed=2)
    again.call(arrivals[200:], 200)
    assert sorted(again.found) == sorted(whole.found)


def test_exact_stops_rather_than_drop_a_row():
    with pytest.raises(DovetailError, match="needs more than its memory"):
        run(equality_spec("exact", 3), [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)])


def test_an_input_that_needs_little_leaves_the_rest_to_the_other():
    arrivals = [(1, 0, 0), *[(0, at, at % 5) for at in range(500)]]
    done = run(equality_spec("raj", 101), arrivals)
    assert done.counters[-1]["held_rows"] == 101


def band(spec_policy: str, memory: int):
    """ABS(A.k - B.k) <= 2 without any equality."""
    kind = KeyType("BIGINT", "int")
    band = Band(Term("A", "`A`.`k`"), Term("B", "`B`.`k`"), Bound(-2, False), Bound(2, False))
    step = build_step([], [(band, kind)], left=frozenset("A"), how="inner")
    sides = (1, 0) if step.swapped else (0, 1)
    spec = equality_spec(spec_policy, memory)
    return dataclasses.replace(spec, value=((), ()), kinds=(), edges=(Edge(step, *sides),))


@given(arrivals=arrivals_of(values=12), memory=st.integers(2, 70), cut=st.integers(0, 60))
def test_bands_with_raj(arrivals, memory, cut):
    done = run(band("raj", memory), arrivals, [cut])
    usable = [(side, (number, k)) for side, number, k in arrivals if k is not None]
    wanted = approx_join(
        usable, matches=lambda a, b: abs(a[1] - b[1]) <= 2, policy="raj", memory=memory, draw=draw_of(done.spec)
    )
    ids = [[row[0] for at, row in usable if at == side] for side in range(2)]
    found = {(ids[0][a], ids[1][b]): weight for (a, b), weight in wanted}
    assert dict(zip(done.found, done.weights, strict=True)) == pytest.approx(found)

"""The kernel against the nested loop."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.columns.segments import one_batch
from dovetail.families.asof.encode import KeyNumbers
from dovetail.families.asof.kernel import RightIndex
from dovetail.families.asof.where import ConditionIndex, index_of

from .harness import Case, cases, pair_of, table


def found_by(case: Case) -> Counter:
    index = index_of(case.spec(), one_batch(case.right))
    rows = index.match(one_batch(case.left)).tolist()
    left, right = case.left.to_pylist(), case.right.to_pylist()
    pairs = [(a, right[at] if at >= 0 else None) for a, at in zip(left, rows, strict=True)]
    return Counter(pair_of(a, b) for a, b in pairs)


@pytest.mark.in_turns(group="several seconds")
@given(cases())
@examples(150)
def test_every_case_is_the_nested_loop(case):
    assert found_by(case) == case.replace(how="left").expected()


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_a_distance_of_more_than_64_bits(direction):
    times = [Decimal(2**90).scaleb(-2), Decimal("0.00"), Decimal(10**30) + 1]
    kinds, names = [pa.decimal128(38, 2), pa.float64(), pa.string()], ["t", "v", "w"]
    right = table(kinds, [times, [1.0, 2.0, 3.0], ["", "a", "b"]], names)
    left = right.append_column("n", pa.array([0, 1, 2]))
    case = Case(left, right, (), "wide", direction=direction, within=10**30, exact=False)
    assert found_by(case) == case.replace(how="left").expected()
    assert sum(count for (_, b), count in found_by(case).items() if b is not None) >= 1


@pytest.mark.in_turns(group="several seconds")
@given(cases(), st.integers(1, 9))
def test_the_first_candidate_of_each_row_is_its_match(case, most):
    index = ConditionIndex(case.spec(), one_batch(case.right))
    left, seen = one_batch(case.left), 0
    found = np.full(left.num_rows, -1, dtype=np.int32)
    for begin, end, rows, candidates in index.candidates(left, most):
        assert begin == seen < end
        assert np.all(np.diff(rows) >= 0)
        assert rows.size == 0 or begin <= rows[0] <= rows[-1] < end
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        found[rows[first]] = candidates[first]
        seen = end
    assert seen == left.num_rows
    assert found.tolist() == index.match(left).tolist()


@pytest.mark.in_turns
@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("rare", [False, True])
def test_duckdb_agrees_on_conditions_over_larger_data(direction, rare):
    """Its one inequality is that of the times, so the condition is a difference; without ties.

    A rare match lies far away, behind many blocks of rows without any.
    """
    duckdb = pytest.importorskip("duckdb")
    random = np.random.default_rng(17)
    size = 20_000
    prices = random.normal(size=size) + (3.5 if rare else 0)
    names, types = ["k0", "t", "v"], [pa.string(), pa.int64(), pa.float64()]
    keys = [[f"key {k}" for k in random.integers(0, 3, size)] for _ in range(2)]
    quotes = table(types, [keys[0], random.choice(200_000, size, replace=False).tolist(), prices.tolist()], names)
    lots = [keys[1][:4000], random.integers(0, 200_000, 4000).tolist(), random.normal(size=4000).tolist()]
    trades = table([*types, pa.int64()], [*lots, list(range(4000))], [*names, "n"])
    case = Case(trades, quotes, ("string",), "bigint", direction=direction, where=("v from",))
    found = index_of(case.spec(), one_batch(quotes)).match(one_batch(trades))
    sign = ">=" if direction == "backward" else "<="
    rows = duckdb.sql(
        f"SELECT l.n, r.t FROM trades l ASOF JOIN quotes r ON l.k0 = r.k0 AND l.t {sign} r.t AND l.v - r.v >= 0"
    ).fetchall()
    times = quotes["t"].to_numpy()
    assert {n: int(times[at]) for n, at in enumerate(found.tolist()) if at >= 0} == dict(rows)
    assert 0 < len(rows) < 4000


@pytest.mark.parametrize("key", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_keys_at_the_ends_of_their_type_are_found(key):
    others = [-(1 << 63), -5, 1 << 62, (1 << 63) - 1]
    numbers = KeyNumbers(("int",), [pa.array([key], pa.int64())], 1)
    found = numbers.find([pa.array([key, *others], pa.int64())], 5)
    assert found.tolist() == [0, *(0 if other == key else -1 for other in others)]


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("keys", [0, 1, 7])
def test_duckdb_agrees_on_larger_data(direction, keys):
    """Without ties, which DuckDB may break as it likes."""
    duckdb = pytest.importorskip("duckdb")
    random = np.random.default_rng(keys)
    size = 20_000
    trades = pa.table(
        {
            "k0": [f"key {k}" for k in random.integers(0, max(1, keys), size)],
            "t": random.integers(0, 200_000, size),
            "n": np.arange(size),
        }
    )
    quotes = pa.table(
        {
            "k0": [f"key {k}" for k in random.integers(0, max(1, keys), size)],
            "t": random.choice(200_000, size, replace=False),
        }
    )
    case = Case(trades, quotes, ("string",), "bigint", direction=direction)
    found = RightIndex(case.spec(), one_batch(quotes)).match(one_batch(trades))
    sign = ">=" if direction == "backward" else "<="
    rows = duckdb.sql(f"SELECT l.n, r.t FROM trades l ASOF JOIN quotes r ON l.k0 = r.k0 AND l.t {sign} r.t").fetchall()
    times = quotes["t"].to_numpy()
    assert {n: int(times[at]) for n, at in enumerate(found.tolist()) if at >= 0} == dict(rows)


@pytest.mark.in_turns
@pytest.mark.parametrize("spread", ["even", "one far away", "all at once"])
def test_any_spread_of_times_is_sorted(spread):
    """Buckets of times hold few rows, or nearly all of them."""
    random = np.random.default_rng(3)
    times = random.integers(0, 1000, 500)
    if spread == "one far away":
        times[100] = np.iinfo(np.int64).min
    elif spread == "all at once":
        times[:] = 5
    right = pa.table({"t": times, "v": np.arange(500.0)})
    left = pa.table({"t": np.arange(-5, 1005), "n": np.arange(1010)})
    case = Case(left, right, (), "bigint", how="left")
    index = RightIndex(case.spec(), one_batch(right))
    assert index.ties == 500 - np.unique(times).size
    assert np.all(index.times[1:] > index.times[:-1])
    assert found_by(case) == case.expected()


def test_ties_go_by_columns_from_left_to_right():
    right = pa.table({"t": [1, 1, 1, 1], "v": [None, 2.0, 2.0, 1.0], "w": ["z", "a", "b", "c"]})
    left = pa.table({"t": [1], "n": [0]})
    for ties, row in (((), 2), (("w",), 0), (("v", "w"), 2)):
        case = Case(left, right, (), "bigint", ties=ties)
        assert RightIndex(case.spec(), one_batch(right)).match(one_batch(left)).tolist() == [row]

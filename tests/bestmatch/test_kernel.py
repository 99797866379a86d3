"""The best-match kernel against its definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import ArgumentError, DovetailError
from dovetail.families.bestmatch import tree
from dovetail.families.bestmatch.kernel import best, best_of_pairs, candidates
from dovetail.families.bestmatch.spec import Axis, BestSpec, Counters, Options

from .shapes import BY_NAME, NAMES, Join, joins, tables


def pairs(join: Join, left, right, **options) -> Counter:
    i, j = best(join.spec(), join.batch(left), join.batch(right), Counters(), **options)
    return Counter(zip(i.tolist(), j.tolist(), strict=True))


@given(joins(), tables(16), tables(16), st.sampled_from([1, 2, 8]))
def test_the_definition_decides(join, left, right, leaf):
    """Small leaves make a tree of even a few rows, so that parts of it are skipped."""
    join = replace(join, keep=False)
    with patch.object(tree, "LEAF", leaf):
        assert pairs(join, left, right) == join.expected(left, right)


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_a_tie_with_a_bound_is_no_reason_to_skip(how):
    """Rows on a lattice: many pairs are equally good, and many parts of the tree begin where a pair ends."""
    rows = [{"id": at, **dict.fromkeys(NAMES[1:]), "y": float(at % 5), "z": float(at // 5 % 4)} for at in range(40)]
    join = Join((BY_NAME["y"], BY_NAME["z1"]), how)
    with patch.object(tree, "LEAF", 1):
        assert pairs(join, rows[3:27], rows[8:]) == _numbered(join.expected(rows[3:27], rows[8:]), 3, 8)


def _numbered(found: Counter, left: int, right: int) -> Counter:
    """Numbers of rows as places in slices that begin there."""
    return Counter({(i - left, j - right): count for (i, j), count in found.items()})


@given(joins(hows=["left", "right", "full"]), tables(), tables(), st.data())
def test_rows_that_are_not_asked_have_no_pairs_of_their_own(join, left, right, data):
    join = replace(join, keep=False)
    asked = [
        np.array(sorted(data.draw(st.sets(st.integers(0, len(side) - 1)))) if side else [], dtype=np.int64)
        for side in (left, right)
    ]
    of_left = replace(join, how="left").expected(left, right)
    of_right = replace(join, how="right").expected(left, right)
    truth = set()
    if join.how in ("left", "full"):
        truth |= {pair for pair in of_left if pair[0] in asked[0]}
    if join.how in ("right", "full"):
        truth |= {pair for pair in of_right if pair[1] in asked[1]}
    assert set(pairs(join, left, right, asked=(asked[0], asked[1]))) == truth


@given(joins(judged=False), tables(), tables())
def test_the_best_of_the_candidates_are_the_best(join, left, right):
    """Listing all candidates and comparing them afterwards, as is done where Spark computes a criterion."""
    spec = join.spec()
    rows = join.batch(left), join.batch(right)
    found = [(i, j) for i, j in candidates(spec, *rows, Counters())]
    i = np.concatenate([np.empty(0, dtype=np.int64), *[part[0] for part in found]])
    j = np.concatenate([np.empty(0, dtype=np.int64), *[part[1] for part in found]])
    taken = rows[0].take(pa.array(i)), rows[1].take(pa.array(j))
    groups = {"left": [i], "right": [j], "full": [i, j]}.get(join.how)
    if groups is None:
        keys = [tuple(left[at][name] for name in join.by) for at in i]
        groups = [np.array([sorted(set(keys)).index(key) for key in keys], dtype=np.int64)]
    kept = {at for group in groups for at in best_of_pairs(spec, *taken, group, None, Counters()).tolist()}
    assert Counter((int(i[at]), int(j[at])) for at in kept) == replace(join, keep=False).expected(left, right)


@given(tables(), tables(), st.sampled_from(["left", "inner"]))
def test_a_cost_of_sparks_counts_like_any_other(left, right, how):
    join = Join((BY_NAME["y"], BY_NAME["least h"]), how)
    spec = replace(join.spec(), axes=(Axis("near_float"), Axis("given", kind="int")))
    rows = Join((BY_NAME["y"],), how)
    usable = [[row for row in side if row["y"] is not None and row["h"] is not None] for side in (left, right)]
    i, j = (part.ravel() for part in np.indices((len(usable[0]), len(usable[1]))))
    taken = [rows.batch(side).take(pa.array(at)) for side, at in zip(usable, (i, j), strict=True)]
    costs = np.array([usable[0][a]["h"] + usable[1][b]["h"] for a, b in zip(i, j, strict=True)], dtype=np.int64)
    kept = best_of_pairs(spec, *taken, i if how == "left" else np.zeros_like(i), costs.reshape(-1, 1), Counters())
    found = Counter((usable[0][i[at]]["id"], usable[1][j[at]]["id"]) for at in kept)
    assert found == join.expected(left, right)


def test_equal_pairs_all_stay_and_the_papers_formula_would_lose_them():
    rows = [
        {"id": at, **dict.fromkeys(("x", "y", "z", "t", "k", "h", "tags"), None), "y": float(at)} for at in range(3)
    ]
    join = Join((BY_NAME["y"],), "inner")
    assert pairs(join, rows, rows) == Counter({(0, 0): 1, (1, 1): 1, (2, 2): 1})


def test_distances_of_integers_are_exact_to_the_last_bit():
    numbers = [-(2**63), 2**63 - 1, 2**53, 2**53 + 1]
    left = pa.RecordBatch.from_pydict({"x": pa.array([2**53 - 1, -(2**63)])})
    right = pa.RecordBatch.from_pydict({"x": pa.array(numbers)})
    spec = BestSpec("left", (0, 0), ((), ()), axes=(Axis("near_int"),))
    i, j = best(spec, left, right, Counters())
    assert dict(zip(i.tolist(), j.tolist(), strict=True)) == {0: 2, 1: 0}
    far = BestSpec("left", (0, 0), ((), ()), axes=(Axis("near_int", within=2**64 - 2),))
    i, j = best(far, left.slice(1), right.slice(1, 1), Counters())
    assert i.size == 0
    i, j = best(replace(far, axes=(Axis("near_int", within=2**64 - 1),)), left.slice(1), right.slice(1, 1), Counters())
    assert i.size == 1


def test_a_sum_beyond_64_bits_is_refused():
    side = pa.RecordBatch.from_pydict({"x": pa.array([2**62 + 1])})
    spec = BestSpec("left", (0, 0), ((), ()), axes=(Axis("sum_int"),))
    with pytest.raises(DovetailError, match="leaves 64 bits"):
        best(spec, side, side, Counters())


@pytest.mark.parametrize("axes", [2, 3])
def test_the_best_of_all_pairs_are_found_among_few(axes):
    """A million pairs, of which the kernel looks at a few in a hundred."""
    random = np.random.default_rng(5)
    sides = [random.random((1_000, axes)) for _ in range(2)]
    batches = [
        pa.RecordBatch.from_arrays([pa.array(column) for column in side.T], names=[str(a) for a in range(axes)])
        for side in sides
    ]
    counters = Counters()
    spec = BestSpec("inner", (0, 0), ((), ()), axes=(Axis("near_float"),) * axes)
    i, j = best(spec, *batches, counters)
    assert counters.comparisons < 60_000
    costs = np.abs(sides[0][:, None, :] - sides[1][None, :, :]).reshape(-1, axes)
    unbeaten = np.arange(costs.shape[0])
    for cost in np.abs(sides[0][i] - sides[1][j]):
        # A pair that is beaten may go: whatever it beats, its own beater beats, too.
        rest = costs[unbeaten]
        assert not ((rest <= cost).all(axis=1) & (rest < cost).any(axis=1)).any()
        unbeaten = unbeaten[~((cost <= rest).all(axis=1) & (cost < rest).any(axis=1))]
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == {divmod(int(at), 1_000) for at in unbeaten}


def test_a_judge_who_says_something_else_is_refused():
    rows = [{"id": at, **dict.fromkeys(("x", "y", "z", "t", "k", "h", "tags"), None), "y": 1.0} for at in range(2)]
    join = Join((BY_NAME["y"],), "left")
    spec = replace(join.spec(), judges=(lambda p, q: "nicer",))
    with pytest.raises(ArgumentError, match="'nicer'"):
        best(spec, join.batch(rows), join.batch(rows), Counters())


def test_options_say_what_they_take():
    with pytest.raises(ArgumentError, match="how='outer'"):
        Options(how="outer")
    with pytest.raises(ArgumentError, match="unmatched"):
        Options(how="inner", unmatched="keep")

"""Layouts against the nested loop, the paper's examples, and the paper's Table 3."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.errors import ArgumentError
from dovetail.families.theta.paper.layouts import balance, cross, layout, matches_per_pair
from dovetail.families.theta.paper.prefap import (
    REMOVED,
    Values,
    boundaries,
    extremes,
    prefap_layout,
    repartition,
    sizes,
    stream_filter,
)
from dovetail.families.theta.paper.rivals import range_partitions, share_partitions

ALGORITHMS = ("prefap", "ftj", "cfs", "obt", "rbm")
OPERATORS = ("<", "<=", ">", ">=")
COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
INT64 = np.iinfo(np.int64)


def _data_file(name: str) -> Path:
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("DOVETAIL_DATA", root.parent / "shared" / "data"))
    path = folder / name
    if not path.is_file():
        pytest.skip(f"{path} is absent: set DOVETAIL_DATA to the folder that holds {name}")
    return path


def _highs(symbol: str, begin: str, end: str) -> Values:
    with _data_file("stocks.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["symbol"] == symbol and begin <= row["date"] <= end]
    return Values.of(np.array([float(row["high"]) for row in rows]))


# --- generators -------------------------------------------------------------------------------------------

_floats = st.one_of(
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7e308, -1.7e308, 1.0, 2.0]),
    st.integers(-5, 5).map(float),
    st.floats(width=64),
)
_ints = st.one_of(
    st.integers(-3, 3),
    # Neighbours that share a position, and the ends of the type.
    st.integers(2**53 - 2, 2**53 + 3),
    st.sampled_from([INT64.min, INT64.min + 1, INT64.max, INT64.max - 1]),
    st.integers(INT64.min, INT64.max),
)


@st.composite
def _skewed(draw) -> np.ndarray:
    exponent = draw(st.floats(1.1, 3.0))
    count = draw(st.integers(0, 60))
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1))).zipf(exponent, count).clip(max=2**62)


def _side(kind: str) -> st.SearchStrategy[Values]:
    if kind == "float":
        return st.lists(_floats, max_size=40).map(lambda x: Values.of(np.array(x, np.float64)))
    if kind == "int":
        return st.lists(_ints, max_size=40).map(lambda x: Values.of(np.array(x, np.int64)))
    return _skewed().map(Values.of)


_sides = st.sampled_from(["float", "int", "skew"]).flatmap(lambda kind: st.tuples(_side(kind), _side(kind)))


def _check(found, r: Values, s: Values, op: str) -> None:
    """Every match lies in exactly one surviving pair; the layout's own figures are consistent."""
    assert found.r_part.dtype == found.s_part.dtype == np.int32
    assert found.pairs.dtype == np.int64
    assert found.pairs.shape == (len(found.pairs), 2)
    for part, bounds, side in ((found.r_part, found.r_bounds, r), (found.s_part, found.s_bounds, s)):
        assert len(part) == len(side)
        assert set(part.tolist()) - {REMOVED} == set(range(len(bounds)))
        assert (sizes(part) > 0).all()
    met = np.zeros((len(found.r_bounds) + 1, len(found.s_bounds) + 1), np.int64)
    np.add.at(met, (found.pairs[:, 0], found.pairs[:, 1]), 1)
    times = met[found.r_part[:, None], found.s_part[None, :]]
    wanted = COMPARE[op](r.codes[:, None], s.codes[None, :])
    assert (times <= 1).all()
    assert times[wanted].all()
    assert found.products == times.sum()
    i, j = cross(r.codes, s.codes, found, op)
    got = np.zeros_like(wanted, np.int64)
    np.add.at(got, (i, j), 1)
    np.testing.assert_array_equal(got, wanted)
    counts = matches_per_pair(r.codes, s.codes, found, op)
    assert counts.sum() == wanted.sum()
    for ratio in balance(found, 3, matches=counts):
        assert 1.0 <= ratio <= 3.0


# --- every layout is complete -----------------------------------------------------------------------------


@examples(400)
@given(
    sides=_sides,
    algorithm=st.sampled_from(ALGORITHMS),
    op=st.sampled_from(OPERATORS),
    partitions=st.integers(1, 12),
    window=st.none() | st.integers(1, 100),
)
@example(
    sides=(Values.of([1.7e308, -1.7e308, 0.0]), Values.of([-1.7e308, 1.7e308])),
    algorithm="prefap",
    op="<",
    partitions=10,
    window=1,
)
@example(
    sides=(Values.of(np.arange(2**53 - 2, 2**53 + 3)), Values.of(np.arange(2**53 - 2, 2**53 + 3))),
    algorithm="prefap",
    op=">",
    partitions=7,
    window=None,
)
def test_any_layout_is_complete(sides, algorithm, op, partitions, window):
    r, s = sides
    _check(layout(algorithm, r, s, op=op, partitions=partitions, window=window), r, s, op)


@examples(300)
@given(
    sides=_sides,
    op=st.sampled_from(OPERATORS),
    partitions=st.integers(1, 12),
    window=st.none() | st.integers(1, 100),
    prefilter=st.booleans(),
    amalgamate=st.booleans(),
    round_up=st.booleans(),
)
def test_any_switch_setting_is_complete(sides, op, partitions, window, prefilter, amalgamate, round_up):
    r, s = sides
    found = prefap_layout(
        r, s, op=op, partitions=partitions, window=window,
        prefilter=prefilter, amalgamate=amalgamate, round_up=round_up,
    )  # fmt: skip
    _check(found, r, s, op)


@examples(200)
@given(sides=_sides, op=st.sampled_from(OPERATORS))
def test_prefilter_removes_exactly_the_hopeless_rows(sides, op):
    r, s = sides
    matches = COMPARE[op](r.codes[:, None], s.codes[None, :])
    keep_r, keep_s = stream_filter(r.codes, s.codes, op)
    np.testing.assert_array_equal(keep_r, matches.any(axis=1))
    np.testing.assert_array_equal(keep_s, matches.any(axis=0))


@examples(200)
@given(sides=_sides, op=st.sampled_from(OPERATORS), partitions=st.integers(1, 12))
def test_every_surviving_pair_of_the_partition_filter_has_a_match(sides, op, partitions):
    r, s = sides
    for name in ("prefap", "ftj"):
        found = layout(name, r, s, op=op, partitions=partitions)
        assert (matches_per_pair(r.codes, s.codes, found, op) > 0).all()


# --- corners ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    ("r", "s"),
    [
        ([], []),
        ([], [1, 2]),
        ([1, 2], []),
        ([7] * 5, [7] * 4),
        ([9, 8, 8], [1, 1, 2]),
        ([1, 2], [8, 9]),
        ([np.inf, -np.inf, np.nan], [np.inf, -np.inf, np.nan]),
        ([np.nan] * 3, [np.nan]),
        ([INT64.min, INT64.max], [INT64.min, INT64.max]),
    ],
)
def test_corners(algorithm, op, r, s):
    left, right = Values.of(np.array(r or np.empty(0))), Values.of(np.array(s or np.empty(0)))
    _check(layout(algorithm, left, right, op=op), left, right, op)


def test_all_filtered_away_leaves_no_partition():
    found = layout("prefap", Values.of([1, 2]), Values.of([8, 9]), op=">")
    assert found.products == 0
    assert found.pairs.shape == (0, 2)
    assert found.r_part.tolist() == [REMOVED, REMOVED]
    assert balance(found, matches=np.empty(0, np.int64)) == (1.0, 1.0)


def test_infinite_rows_join_the_first_and_the_last_partition():
    r = Values.of(np.array([-np.inf, 0.0, 1.0, 2.0, 3.0, np.inf, np.nan]))
    found = layout("prefap", r, r, op="<=", partitions=2, window=10**6)
    assert found.r_part.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_codes_and_not_positions_decide():
    # All four share one float64 position; only the codes tell them apart.
    r, s = Values.of(np.array([2**60 + 1, 2**60 + 3])), Values.of(np.array([2**60 + 2, 2**60 + 4]))
    assert len(set(r.positions) | set(s.positions)) == 1
    found = layout("prefap", r, s, op=">")
    assert found.r_part.tolist() == [REMOVED, 0]
    assert found.s_part.tolist() == [0, REMOVED]


def test_partitions_follow_the_order_of_values():
    rng = np.random.default_rng(5)
    r, s = Values.of(rng.normal(size=2000)), Values.of(rng.normal(1, 2, size=1500))
    found = layout("prefap", r, s, op="<")
    for codes, part in ((r.codes, found.r_part), (s.codes, found.s_part)):
        low, high = extremes(codes, part)
        assert (high[:-1] < low[1:]).all()


# --- the paper's examples ---------------------------------------------------------------------------------


def test_amalgamated_boundaries_of_figure_2e():
    r, s = np.array([1.0, 9.0]), np.array([0.0, 8.0])
    cuts = np.unique(np.concatenate([boundaries(r, 3), boundaries(s, 3)]))
    np.testing.assert_allclose(cuts, [0, 1, 8 / 3, 11 / 3, 16 / 3, 19 / 3, 8, 9])
    # The paper prints [6.33, 8), [8, 9]; the end of S is closed, so 8 itself belongs to the left.
    assert cuts[-2] > 8.0


def test_sampled_ranges_of_figure_2a():
    assert range_partitions(np.array([0, 1, 2, 3, 4, 5, 6, 7, 9]), 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    # (-inf, 1) has no row, and the numbering has no gap.
    assert range_partitions(np.array([1, 1, 1, 1, 1, 1, 2, 2, 3]), 3).tolist() == [0] * 6 + [1] * 3


def test_equal_shares_of_figure_2b():
    assert share_partitions(np.array([1, 1, 1, 1, 1, 1, 2, 2, 3]), 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_stream_filter_of_figure_2c():
    # S's last range begins at R's maximum, 9: it goes as a whole.  R's first range keeps its hopeless 0.
    r, s = Values.of([0, 1, 2, 3, 4, 5, 6, 7, 9]), Values.of([0, 1, 2, 4, 5, 8, 9, 10, 12])
    found = layout("cfs", r, s, op=">", partitions=3)
    assert found.s_part.tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1]
    assert found.r_part.min() == 0
    assert found.products == 9 * 6
    order = [layout(name, r, s, op=">", partitions=3).products for name in ("prefap", "ftj", "cfs", "obt")]
    assert order == sorted(order)


def test_repartitioning_splits_only_the_oversized():
    positions = np.concatenate([np.linspace(0, 1, 30), np.linspace(5, 6, 4)])
    part = np.repeat([0, 1], [30, 4]).astype(np.int32)
    # AS = 34 / 2, so rn = ceil(30 / 17) = 2 for the first and the second stays whole.
    assert sizes(repartition(positions, part, 34)).tolist() == [15, 15, 4]
    # A span rounded up to a whole number covers [0, 1] at once.
    assert sizes(repartition(positions, part, 34, round_up=True)).tolist() == [29, 1, 4]
    assert sizes(repartition(positions, part, 100)).tolist() == [30, 4]
    assert sizes(repartition(positions, part, 1)).sum() == 34


def test_balance_counts_what_table_2_counts():
    r, s = Values.of([0, 10, 10, 10]), Values.of([0, 10])
    found = layout("rbm", r, s, op="<=", partitions=2)
    counts = matches_per_pair(r.codes, s.codes, found, "<=")
    # Pairs of 1+1, 1+1, 3+1, 3+1 rows, in turn over two processes: 6 and 6.
    assert found.r_sizes.tolist() == [1, 3]
    ratio_in, ratio_out = balance(found, 2, matches=counts, dispatch="round_robin")
    assert counts.tolist() == [1, 1, 0, 3]
    assert ratio_in == pytest.approx(1.0)
    assert ratio_out == pytest.approx(4 / 2.5)
    assert balance(found, 2)[1] is None


# --- the paper's tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefilter", "amalgamate", "products"),
    [(True, True, 104_138), (False, True, 105_132), (True, False, 121_647), (False, False, 134_449)],
)
@pytest.mark.parametrize("round_up", [True, False], ids=["printed", "spans kept"])
def test_table_3(prefilter, amalgamate, products, round_up):
    # The text says p = 10 and 755 rows; the printed counts follow from p = 5 on the 754 rows before 2020.
    r, s = (_highs(symbol, "2017-01-03", "2019-12-31") for symbol in ("JNJ", "MSFT"))
    assert len(r) == len(s) == 754
    found = layout(
        "prefap", r, s, op="<=", partitions=5, window=1000,
        prefilter=prefilter, amalgamate=amalgamate, round_up=round_up,
    )  # fmt: skip
    assert found.products == products
    assert len(cross(r.codes, s.codes, found, "<=")[0]) == 92_240
    if not prefilter and not amalgamate:
        assert layout("ftj", r, s, op="<=", partitions=5, window=1000, round_up=round_up).products == products


def test_the_printed_spans_are_whole_numbers():
    # One unit is the least span of A3.5, so partitions within [0, 1] stay whole, and FTJ's likewise.
    r, s = Values.of(np.linspace(0, 1, 200)), Values.of(np.linspace(0, 1, 200))
    for name in ("prefap", "ftj"):
        printed, kept = (layout(name, r, s, op="<", partitions=2, window=40, round_up=up) for up in (True, False))
        assert len(printed.pairs) < len(kept.pairs), name
        assert printed.products > kept.products, name


def test_prefap_never_does_more_than_ftj_on_the_papers_shapes():
    rng = np.random.default_rng(1)
    shapes = {
        "uniform": (rng.uniform(20, 50, 1000), rng.uniform(10, 40, 1000), "<="),
        "zipf": (rng.zipf(1.2, 1000).clip(max=2**62), rng.zipf(1.3, 1000).clip(max=2**62), "<="),
        "normal": (rng.normal(1.2, 1, 1000), rng.normal(1, 1, 1000), ">"),
    }
    for name, (left, right, op) in shapes.items():
        r, s = Values.of(left), Values.of(right)
        ours, theirs = (layout(a, r, s, op=op, window=1000).products for a in ("prefap", "ftj"))
        assert ours < theirs, name


# --- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_",
    [{"algorithm": "prefab"}, {"op": "="}, {"partitions": 0}, {"window": 0}],
)
def test_refuses(given_):
    arguments = {"algorithm": "prefap", "op": "<", **given_}
    with pytest.raises(ArgumentError):
        layout(r=Values.of([1]), s=Values.of([1]), **arguments)


def test_refuses_a_nan_position_and_mixed_lengths():
    with pytest.raises(ArgumentError, match=r"\+inf"):
        Values(np.zeros(1, np.int64), np.array([np.nan]))
    with pytest.raises(ArgumentError, match="one length"):
        Values(np.zeros(2, np.int64), np.zeros(1))
    with pytest.raises(ArgumentError, match="int64"):
        Values(np.zeros(2), np.zeros(2))


@examples(200)
@given(st.lists(_floats, max_size=40))
def test_codes_keep_the_order_of_floats(numbers):
    array = np.array(numbers, np.float64)
    values = Values.of(array)
    rank = np.where(np.isnan(array), np.inf, array)
    key = list(zip(rank.tolist(), np.isnan(array).tolist(), strict=True))  # NaN after +inf
    for a in range(len(array)):
        for b in range(len(array)):
            assert (values.codes[a] < values.codes[b]) == (key[a] < key[b])
            assert (values.codes[a] == values.codes[b]) == (key[a] == key[b])

"""The paper's algorithms against every combination of rows, and the places where the printed text goes wrong."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.errors import ArgumentError
from dovetail.families.window.paper.algorithms import ALGORITHMS, Operator, find, limits
from dovetail.families.window.paper.inputs import Condition, Side

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
WAYS = [(algorithm, approach) for algorithm in ALGORITHMS for approach in ("global", "local")] + [
    ("pipeline", "path"),
    ("nested", "path"),
    ("hash", "path"),
]
SHAPES = ["one", "pairs", "missing", "directed", "apart", "path", "path both ways"]

# ---------------------------------------------------------------------------------------------------------
# The definition, and inputs for it
# ---------------------------------------------------------------------------------------------------------


def closed(edges: dict[tuple[int, int], tuple[int, int]], n: int) -> np.ndarray | None:
    """Windows for all pairs by shortest paths, or None where no times can satisfy them."""
    far = [[0 if i == j else None for j in range(n)] for i in range(n)]
    for (i, j), (low, high) in edges.items():
        far[i][j], far[j][i] = high, -low
    for k, i, j in itertools.product(range(n), repeat=3):
        if far[i][k] is not None and far[k][j] is not None:
            through = far[i][k] + far[k][j]
            far[i][j] = through if far[i][j] is None else min(far[i][j], through)
    if any(far[i][i] < 0 for i in range(n)):
        return None
    return np.array([[[-far[j][i], far[i][j]] for j in range(n)] for i in range(n)], dtype=np.int64)


def same(w: int, n: int = 2) -> np.ndarray:
    """One window for all pairs."""
    return closed(dict.fromkeys(itertools.combinations(range(n), 2), (-w, w)), n)


@st.composite
def window_shapes(draw, n):
    shape = draw(st.sampled_from(SHAPES))
    length = st.integers(0, 6)
    pairs = list(itertools.combinations(range(n), 2))
    chain = [(i, i + 1) for i in range(n - 1)]
    if shape == "one":
        return same(draw(length), n)
    if shape == "pairs":
        return closed({pair: (-w, w) for pair, w in zip(pairs, draw(lists_of(length, len(pairs))), strict=True)}, n)
    if shape == "missing":
        tree = [(draw(st.integers(0, j - 1)), j) for j in range(1, n)]
        return closed({pair: (-w, w) for pair in tree for w in [draw(length)]}, n)
    if shape == "path":
        return closed({pair: (0, draw(length)) for pair in chain}, n)
    if shape == "path both ways":
        there = closed({pair: (0, draw(length)) for pair in chain}, n)
        return np.stack([there, np.swapaxes(there, 0, 1)])
    tree = [(draw(st.integers(0, j - 1)), j) for j in range(1, n)]
    low, high = (-2, 5) if shape == "directed" else (1, 6)
    edges = {}
    for pair in tree:
        ends = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
        edges[pair] = (ends[0], ends[1]) if draw(st.booleans()) else (-ends[1], -ends[0])
    return closed(edges, n)


def lists_of(values, size):
    return st.lists(values, min_size=size, max_size=size)


@st.composite
def joins(draw, *, ordered=False):
    """Inputs with windows and conditions; random rows of five inputs would hardly ever match, so a match is planted."""
    n = draw(st.integers(2, 5))
    windows = draw(window_shapes(n))
    assume(windows is not None)
    # The far ends of the windows around one time of the first input satisfy every window among themselves.
    planted = (windows if windows.ndim == 3 else windows[0])[0, :, 1].tolist()
    base = draw(st.sampled_from([0, 0, HIGHEST - max(planted) - 6, LOWEST - min(planted) + 6]))
    planted = [base + time for time in planted]
    most = {2: 9, 3: 6, 4: 4, 5: 3}[n]
    least = draw(st.sampled_from([1, 1, 1, 0]))
    sizes = [draw(st.integers(least, most)) for _ in range(n)]
    jitter = draw(st.sampled_from([st.integers(-1, 1), st.integers(-6, 6), st.just(0)]))
    extreme = st.sampled_from([LOWEST, LOWEST + 1, LOWEST + 4, HIGHEST - 4, HIGHEST - 1, HIGHEST])
    outlier = draw(st.sampled_from([None, st.integers(-5, 30), extreme]))
    keys = draw(st.sampled_from([st.just(0), st.integers(0, 1), st.sampled_from([0, LOWEST, HIGHEST])]))
    sides, chosen = [], []
    for i, size in enumerate(sizes):
        near = st.builds(int.__add__, st.just(planted[i]), jitter)
        rows = draw(lists_of(st.tuples(near if outlier is None else near | outlier, keys), size))
        if size:
            rows[draw(st.integers(0, size - 1))] = (planted[i], 0)
        rows = sorted(rows) if ordered else rows
        chosen.append(rows.index((planted[i], 0)) if size else 0)
        sides.append(Side(numbers([t for t, _ in rows]), numbers([key for _, key in rows])))
    conditions = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 2, 3]))):
        p, b = draw(st.permutations(range(n)))[:2]
        point = numbers(draw(lists_of(st.integers(-1, 1), sizes[p])))
        low = numbers(draw(lists_of(st.integers(-2, 0), sizes[b])))
        high = numbers(draw(lists_of(st.integers(-1, 2), sizes[b])))
        point[chosen[p] : chosen[p] + 1], high[chosen[b] : chosen[b] + 1] = 0, 1
        conditions.append(Condition(p, b, point, low, high))
    held = [0] * n if ordered else [draw(st.integers(0, size)) for size in sizes]
    order = draw(st.permutations([i for i in range(n) for _ in range(held[i], sizes[i])]))
    return sides, conditions, windows, np.array(order, dtype=np.int32), numbers(held)


def numbers(values) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def expected(sides, conditions, windows, held) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    n = len(sides)
    ways = (windows if windows.ndim == 4 else windows[None]).tolist()  # Python's numbers do not overflow
    for rows in itertools.product(*(range(side.times.size) for side in sides)):
        if all(row < count for row, count in zip(rows, held, strict=True)):
            continue
        if len({int(side.groups[row]) for side, row in zip(sides, rows, strict=True)}) > 1:
            continue
        times = [int(side.times[row]) for side, row in zip(sides, rows, strict=True)]
        near = any(
            all(way[i][j][0] <= times[j] - times[i] <= way[i][j][1] for i in range(n) for j in range(n) if i != j)
            for way in ways
        )
        if near and all(
            c.low[rows[c.box_side]] <= c.point[rows[c.point_side]] <= c.high[rows[c.box_side]] for c in conditions
        ):
            found[rows] += 1
    return found


def as_counter(columns) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


# ---------------------------------------------------------------------------------------------------------
# Exactness
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.in_turns(group="several seconds")
@given(joins())
def test_every_way_finds_every_match_once(join):
    sides, conditions, windows, order, held = join
    wanted = expected(sides, conditions, windows, held)
    for algorithm, approach in WAYS:
        columns, counters = find(algorithm, approach, sides, conditions, windows, order, held)
        assert as_counter(columns) == wanted, (algorithm, approach)
        assert counters["results"] == sum(wanted.values())
        assert counters["comparisons"] >= 0


@given(joins(ordered=True), st.sampled_from([1, 2, 5, 10_000]), st.integers(1, 7), st.booleans())
def test_a_live_operator_forgets_nothing_that_is_needed(join, purge, slices, keep):
    """Inputs in the order of time, any interleaving, rows removed by the latest times seen, in slices."""
    sides, conditions, windows, order, held = join
    wanted = expected(sides, conditions, windows, held)
    for algorithm, approach in WAYS:
        live = Operator(algorithm, approach, sides, conditions, windows, order, held, live=True, purge=purge, keep=keep)
        while live.advance(slices):
            assert live.buffered >= 0
        assert live.counters["results"] == sum(wanted.values())
        if keep:
            assert as_counter(live.matches()) == wanted, (algorithm, approach)


def test_more_matches_than_the_first_buffer_holds():
    side = Side(np.zeros(60, dtype=np.int64), np.zeros(60, dtype=np.int64))
    order = np.tile(np.array([0, 1], dtype=np.int32), 60)
    for algorithm, approach in WAYS:
        columns, _ = find(algorithm, approach, [side, side], [], same(0), order, numbers([0, 0]))
        assert len(as_counter(columns)) == 3600


def test_inputs_without_rows():
    none = Side(numbers([]), numbers([]))
    for algorithm, approach in WAYS:
        columns, counters = find(
            algorithm, approach, [none, none, none], [], same(3, 3), np.array([], dtype=np.int32), numbers([0, 0, 0])
        )
        assert [column.size for column in columns] == [0, 0, 0]
        assert counters["comparisons"] == 0


def test_conditions_between_inputs_that_come_late_in_the_loop():
    """A row of B is not held against the row of C that the row of B before it met."""
    one = Side(numbers([0]), numbers([0]))
    two = Side(numbers([0, 0]), numbers([0, 0]))
    value = numbers([1, 2])
    held = numbers([0, 0, 0])
    for arrivals in itertools.permutations([0, 1, 1, 2, 2]):
        for algorithm, approach in WAYS:
            columns, _ = find(
                algorithm, approach, [one, two, two], [Condition(1, 2, value, value, value)], same(1, 3),
                np.array(arrivals, dtype=np.int32), held,
            )  # fmt: skip
            assert as_counter(columns) == {(0, 0, 0): 1, (0, 1, 1): 1}, (algorithm, approach, arrivals)


def test_windows_that_lie_behind():
    """A comes exactly 2 after B: the row of A that comes last is near the row of B, and still no match."""
    windows = closed({(0, 1): (-2, -2)}, 2)
    sides = [Side(numbers([0, 1, 3]), numbers([0, 0, 0])), Side(numbers([0, 1]), numbers([0, 0]))]
    for algorithm, approach in WAYS:
        columns, _ = find(
            algorithm, approach, sides, [], windows, np.array([0, 0, 0, 1, 1], dtype=np.int32), numbers([0, 0])
        )
        assert as_counter(columns) == {(2, 1): 1}, (algorithm, approach)


def test_six_inputs():
    random = np.random.default_rng(5)
    sides = [Side(random.integers(0, 6, 4), np.zeros(4, dtype=np.int64)) for _ in range(6)]
    held = numbers([1, 0, 2, 4, 0, 3])
    order = np.repeat(np.arange(6, dtype=np.int32), 4 - held)[::-1]
    wanted = expected(sides, [], same(3, 6), held)
    assert wanted
    for algorithm, approach in WAYS:
        assert as_counter(find(algorithm, approach, sides, [], same(3, 6), order, held)[0]) == wanted


# ---------------------------------------------------------------------------------------------------------
# What the approaches are for
# ---------------------------------------------------------------------------------------------------------


def streams(n: int, rows: int, values: int, gap: int = 10):
    random = np.random.default_rng(1)
    sides = [Side(np.cumsum(random.integers(1, 2 * gap, rows)), random.integers(0, values, rows)) for _ in range(n)]
    times = np.concatenate([side.times for side in sides])
    order = np.repeat(np.arange(n, dtype=np.int32), rows)[np.argsort(times, kind="stable")]
    return sides, order, np.zeros(n, dtype=np.int64)


def test_local_windows_compare_less_than_global_ones():
    sides, order, held = streams(3, 400, 4)
    windows = closed({(0, 1): (-50, 50), (0, 2): (-50, 50), (1, 2): (-100, 100)}, 3)
    assert windows[1, 2, 1] == 100
    for algorithm in ALGORITHMS:
        wide, narrow = (
            find(algorithm, approach, sides, [], windows, order, held)[1] for approach in ("global", "local")
        )
        assert narrow["results"] == wide["results"] > 0
        assert narrow["comparisons"] < wide["comparisons"]
        assert narrow["refused"] < wide["refused"]
        # Along the pipeline no filter of this join is wider than its window.
        assert (narrow["refused"] == 0) == (algorithm == "pipeline")


def test_one_window_needs_no_refinement():
    for algorithm, approach in itertools.product(ALGORITHMS, ("global", "local")):
        assert not limits(algorithm, approach, same(5, 4)).refine
    path = closed({(0, 1): (0, 5), (1, 2): (0, 3)}, 3)
    assert not limits("nested", "path", path).refine
    assert limits("nested", "path", same(5, 3)).refine  # neighbours alone do not say that 0 and 2 are near
    assert limits("nested", "path", np.stack([path, np.swapaxes(path, 0, 1)])).refine


def test_old_rows_leave_and_comparisons_stay_few():
    sides, order, held = streams(2, 2000, 5)
    for algorithm in ALGORITHMS:
        few, many = (
            Operator(algorithm, "global", sides, [], same(100), order, held, live=True, purge=purge)
            for purge in (1, 1_000)
        )
        few.advance()
        many.advance()
        assert few.counters["results"] == many.counters["results"] > 0
        assert few.buffered < 300
        if algorithm != "merge":
            assert few.counters["comparisons"] < many.counters["comparisons"] / 5
            assert few.counters["evicted"] > 3_700


def test_rarely_probed_buckets_lose_their_old_rows():
    """Keys that never come again: no probe meets their buckets, and the oldest rows leave all the same."""
    rows = 40_000
    sides = [Side(np.arange(rows), np.arange(rows) * 2 + side) for side in (0, 1)]
    order = np.tile(np.array([0, 1], dtype=np.int32), rows)
    live = Operator("hash", "global", sides, [], same(10), order, numbers([0, 0]), live=True)
    live.advance()
    assert live.counters["results"] == 0
    assert live.buffered < 200


def test_the_pipeline_keeps_what_the_first_inputs_have_in_common():
    """Figure 4: a row of the last input meets the m-tuples, not the rows, of the others."""
    sides = [Side(np.arange(50), np.full(50, 1 if i < 2 else 2)) for i in range(3)]
    order = np.concatenate([np.repeat([0, 1], 50), np.full(50, 2)]).astype(np.int32)
    counted = {}
    for algorithm in ("pipeline", "nested"):
        live = Operator(algorithm, "global", sides, [], same(1000, 3), order, numbers([0, 0, 0]), live=True)
        live.advance(100)
        before, filled = live.counters["comparisons"], live.buffered
        live.advance(50)
        counted[algorithm] = live.counters["comparisons"] - before, filled
    # All 2,500 pairs of the first two wait, and each row of the third is tested with each: time, then value.
    assert counted["pipeline"] == (50 * 2500 * 2, 50 + 50 + 2500)
    # Without them it meets the 50 rows of the first, none of which has its value.
    assert counted["nested"] == (50 * 50 * 2, 50 + 50)


def test_the_pipeline_gains_on_the_merge_where_matches_are_rare():
    """Figure 9(b) hangs on the matches of a row: where there are none, a row beyond the second input meets nothing.

    Then the rows of two inputs of n make two comparisons each, of time and of value, where the merge join makes one for
    every other row: 4 over n.  With one match in every window the pipeline stays ahead of that.
    """
    ratios = {}
    for values in (10**6, 80):
        for n in (3, 4, 5):
            sides, order, held = streams(n, 1200, values)
            counted = [
                find(algorithm, "global", sides, [], same(800, n), order, held)[1]
                for algorithm in ("pipeline", "merge")
            ]
            assert counted[0]["results"] == counted[1]["results"]
            ratios[values, n] = counted[0]["comparisons"] / counted[1]["comparisons"]
    for n in (3, 4, 5):
        assert ratios[10**6, n] == pytest.approx(4 / n, rel=0.1)
        assert ratios[80, n] > 1.2 * ratios[10**6, n]


def test_m_tuples_leave_when_their_period_is_over():
    """The mended removal: what lies ahead of a slow input stays, what lies behind it goes."""
    sides = [Side(numbers([10, 11]), numbers([0, 0])), Side(numbers([12]), numbers([0])),
             Side(numbers([3, 14, 30]), numbers([0, 0, 0]))]  # fmt: skip
    order = np.array([0, 0, 1, 2, 2, 2], dtype=np.int32)
    live = Operator("pipeline", "global", sides, [], same(5, 3), order, numbers([0, 0, 0]), live=True)
    live.advance(4)
    assert (live.counters["results"], live.counters["evicted"], live.buffered) == (0, 0, 2 + 1 + 2 + 1)
    live.advance(1)
    assert live.counters["results"] == 2
    assert sorted(zip(*[rows.tolist() for rows in live.matches()], strict=True)) == [(0, 0, 1), (1, 0, 1)]
    live.advance(1)
    assert live.counters["evicted"] == 2, "both m-tuples of the first two inputs end before 30"


def test_merge_passes_by_where_an_input_is_silent():
    busy = Side(np.arange(1000), np.zeros(1000, dtype=np.int64))
    rare = Side(numbers([500]), numbers([0]))
    order = np.array([0, 1] * 1000 + [2], dtype=np.int32)
    counters = {
        algorithm: find(algorithm, "global", [busy, busy, rare], [], same(5, 3), order, numbers([0, 0, 0]))[1]
        for algorithm in ALGORITHMS
    }
    assert counters["merge"]["idle"] > 1900
    assert counters["merge"]["results"] == counters["nested"]["results"] > 0
    assert counters["merge"]["comparisons"] < counters["nested"]["comparisons"] / 2


@pytest.mark.parametrize(("algorithm", "approach"), [("nestde", "global"), ("merge", "path"), ("nested", "globl")])
def test_words_that_are_none(algorithm, approach):
    none = Side(numbers([]), numbers([]))
    with pytest.raises(ArgumentError, match=r"algorithm|approach"):
        find(algorithm, approach, [none, none], [], same(1), np.array([], dtype=np.int32), numbers([0, 0]))

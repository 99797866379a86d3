"""The kernels against every pair, one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.columns.encode import Boxes, Points
from dovetail.columns.search import first_not_below
from dovetail.families.theta import compiled
from dovetail.families.theta.kernel import Counters, ascending, choose_dimensions, matched, pairs
from dovetail.families.theta.paper.cross import cross_pairs

EXTREMES = [LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]
codes = st.integers(-8, 8) | st.sampled_from(EXTREMES) | st.integers(LOWEST, HIGHEST)


@st.composite
def sides(draw):
    """Points and boxes in which every kernel has its turn: each dimension is bounded or open on one end."""
    dimensions = draw(st.integers(0, 4))
    rows, others = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    values = draw(st.sampled_from([st.integers(-3, 3), codes, st.just(5)]))
    column = st.lists(values, min_size=rows, max_size=rows)
    ends = st.lists(values, min_size=others, max_size=others)
    points = [draw(column) for _ in range(dimensions)]
    low, high = [], []
    for _ in range(dimensions):
        shape = draw(st.sampled_from(["bounded", "from", "up to", "mixed"]))
        one, other = draw(ends), draw(ends)
        if shape == "bounded":
            # Half of the ranges are turned the right way; the others may be empty, as ranges of data are.
            one, other = (
                zip(*(sorted(e) if draw(st.booleans()) else e for e in zip(one, other, strict=True)), strict=True)
                if one
                else ([], [])
            )
        if shape == "from" or (shape == "mixed" and draw(st.booleans())):
            other = [HIGHEST] * others
        elif shape == "up to":
            one = [LOWEST] * others
        low.append(list(one))
        high.append(list(other))
    group = draw(st.none() | st.integers(1, 4))
    groups = [None, None]
    if group is not None:
        number = st.integers(0, group - 1)
        groups = [np.array(draw(st.lists(number, min_size=n, max_size=n)), dtype=np.int64) for n in (rows, others)]
    shaped = [
        np.array(m, dtype=np.int64).reshape(dimensions, n) for m, n in ((points, rows), (low, others), (high, others))
    ]
    return Points(shaped[0], groups[0]), Boxes(shaped[1], shaped[2], groups[1])


def expected(left: Points, right: Boxes) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for i in range(len(left)):
        for j in range(len(right)):
            inside = all(
                int(right.low[d, j]) <= int(left.coordinates[d, i]) <= int(right.high[d, j])
                for d in range(len(left.coordinates))
            )
            if inside and left.numbers[i] == right.numbers[j]:
                found[i, j] += 1
    return found


def listed(chunks) -> Counter[tuple[int, int]]:
    return Counter(pair for i, j in chunks for pair in zip(i.tolist(), j.tolist(), strict=True))


@given(sides(), st.sampled_from([1, 2, 3, 7, 1000]))
def test_pairs_are_those_inside(both, chunk):
    left, right = both
    counters = Counters()
    chunks = list(pairs(left, right, counters, chunk=chunk))
    assert listed(chunks) == expected(left, right)
    assert all(0 < len(i) == len(j) <= chunk for i, j in chunks)
    assert counters.results == sum(len(i) for i, _ in chunks)


@given(sides())
def test_matched_points_have_a_pair(both):
    left, right = both
    mask = matched(left, right, Counters())
    assert np.flatnonzero(mask).tolist() == sorted({i for i, _ in expected(left, right)})


@given(sides(), st.sampled_from([1, 2, 5, 1000]))
def test_cross_pairs_look_at_every_pair(both, chunk):
    left, right = both
    counters = Counters()
    chunks = list(cross_pairs(left, right, counters, chunk=chunk))
    assert listed(chunks) == expected(left, right)
    assert counters.comparisons == len(left) * len(right)
    assert all(len(i) <= chunk for i, _ in chunks)


def random_sides(seed: int, shapes: str, rows: int, *, skew: bool, groups: int) -> tuple[Points, Boxes]:
    """Larger sides: `shapes` has a letter per dimension, b(ounded), f(rom), u(p to)."""
    random = np.random.default_rng(seed)
    top = 3 * rows
    points = random.integers(0, top, (len(shapes), rows))
    if skew:
        points[:, : rows // 2] = top // 2
    low = random.integers(0, top, (len(shapes), rows))
    high = low + random.integers(-2, top // 10, low.shape)
    for d, shape in enumerate(shapes):
        if shape == "f":
            high[d] = HIGHEST
        elif shape == "u":
            low[d] = LOWEST
    numbers = [random.integers(0, groups, rows) for _ in range(2)] if groups > 1 else [None, None]
    return Points(points, numbers[0]), Boxes(low, high, numbers[1])


@pytest.mark.parametrize("shapes", ["", "b", "f", "u", "ff", "fu", "uu", "bb", "bf", "fub", "bbb", "ffff", "fubb"])
@pytest.mark.parametrize("groups", [1, 7])
@pytest.mark.parametrize("skew", [False, True])
def test_larger_sides(shapes, groups, skew):
    # 300 points need two levels of the bitmap.
    left, right = random_sides(len(shapes) + groups, shapes, 300, skew=skew, groups=groups)
    want = np.ones((300, 300), dtype=bool)
    for d in range(len(shapes)):
        x = left.coordinates[d][:, None]
        want &= (right.low[d] <= x) & (x <= right.high[d])
    want &= left.numbers[:, None] == right.numbers
    for chunk in (1, 64, 1 << 18) if want.sum() < 5000 else (64, 1 << 18):
        got = np.zeros_like(want, dtype=np.int64)
        for i, j in pairs(left, right, Counters(), chunk=chunk):
            np.add.at(got, (i, j), 1)
        assert (got == want).all()
    assert (matched(left, right, Counters()) == want.any(axis=1)).all()


def test_three_levels_of_the_bitmap():
    # Past 64 * 64 points the bitmap has a third level; few bits are set, far from each other.
    rows = 10_000
    entry = np.full(rows, 10)
    entry[[0, 4095, 4096, 9999]] = 0
    left = Points(np.stack([entry, np.arange(rows)]))
    right = Boxes(np.array([[LOWEST] * 3, [0, 1, 4096]]), np.array([[0, 0, 5], [HIGHEST] * 3]))
    found = listed(pairs(left, right, Counters(), chunk=2))
    assert sorted(found) == [
        (0, 0), (4095, 0), (4095, 1), (4096, 0), (4096, 1), (4096, 2), (9999, 0), (9999, 1), (9999, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "chosen"),
    [("", 0), ("b", 1), ("f", 1), ("fu", 2), ("bb", 2), ("bf", 1), ("fub", 1), ("fff", 2)],
)
def test_choice_of_dimensions(shapes, chosen):
    _, right = random_sides(1, shapes, 50, skew=False, groups=1)
    dimensions = choose_dimensions(right)
    assert len(dimensions) == chosen
    assert all(shapes[d] == "b" for d in dimensions) or "b" not in shapes


def test_work_follows_results_not_pairs():
    # A million possible pairs, one thousand results: the range kernel compares none one by one, the
    # grid only neighbours.
    rows = 1000
    places = np.arange(rows) * 100
    for dimensions in (1, 2):
        points = Points(np.stack([places] * dimensions))
        boxes = Boxes(points.coordinates - 1, points.coordinates + 1)
        counters = Counters()
        list(pairs(points, boxes, counters))
        assert counters.results == rows
        assert counters.comparisons <= 3 * rows


@given(st.lists(codes, min_size=1, max_size=20))
@example([LOWEST, HIGHEST])
def test_whole_range_holds_every_point(values):
    points = Points(np.array([values] * 2))
    boxes = Boxes(np.array([[LOWEST, LOWEST + 1]] * 2), np.array([[HIGHEST - 1, HIGHEST]] * 2))
    assert listed(pairs(points, boxes, Counters())) == expected(points, boxes)


@given(st.lists(codes))
@example([])
@example([LOWEST, HIGHEST, 3, 1, 2, 1])  # no room for the numbers of rows: the low bits are put right by hand
@example([LOWEST, HIGHEST, *range(40, 0, -1)])  # too many that look alike without their low bits
def test_ascending_order_is_stable(values):
    array = np.array(values, dtype=np.int64)
    assert ascending(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(st.lists(codes), st.lists(codes), st.booleans())
def test_values_passed_by_ascending_ends(values, ends, inclusive):
    ordered, wanted = (np.array(sorted(side), dtype=np.int64) for side in (values, ends))
    counted = [(ordered <= end if inclusive else ordered < end).sum() for end in wanted]
    assert compiled.passed(ordered, wanted, inclusive).tolist() == counted


@given(st.lists(codes), st.data())
def test_search_from_any_hint(values, data):
    ordered = np.array(sorted(values), dtype=np.int64)
    low = data.draw(st.integers(0, ordered.size))
    high = data.draw(st.integers(low, ordered.size))
    hint, wanted = data.draw(st.integers(0, ordered.size + 1)), data.draw(codes)
    found = first_not_below(ordered, wanted, low, high, hint)
    assert found == low + int((ordered[low:high] < wanted).sum())

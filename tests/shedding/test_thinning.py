"""Shredding looks at every so many rows in reach: none twice, and all of them over all phases."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dovetail.families.shedding.compiled import extend_thinned
from dovetail.families.shedding.slices import Slices
from dovetail.families.window.compiled import extend


@st.composite
def looks(draw):
    """Rows sorted by (slot, time), and partial matches that look for slots, times and one range."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    rows, partials = draw(st.integers(1, 30)), draw(st.integers(1, 8))
    slots, times = random.integers(0, 4, rows), random.integers(0, 20, rows)
    order = np.lexsort((times, slots))
    first = random.integers(0, 4, partials)
    last = first + random.integers(-1, 3, partials)
    early = random.integers(0, 20, partials)
    late = early + random.integers(-1, 12, partials)
    late[random.random(partials) < 0.1] = np.iinfo(np.int64).max
    values, wanted = random.integers(0, 3, (1, rows)), random.integers(0, 3, (1, partials))
    return (
        slots[order],
        times[order],
        order,
        first,
        last,
        early,
        late,
        values[:, order],
        values[:, order],
        wanted,
        wanted,
    )


def pairs(at, rows) -> Counter:
    return Counter(zip(at.tolist(), rows.tolist(), strict=True))


def exact(arrays) -> Counter:
    at, rows, _ = extend(np.array([0, 0, -1, 0], dtype=np.int64), *arrays, 1 << 12)
    return pairs(at, rows)


@given(looks())
def test_every_row_is_the_whole(arrays):
    at, rows, compared, reached = extend_thinned(1.0, np.zeros(arrays[3].size), *arrays)
    assert pairs(at, rows) == exact(arrays)
    assert compared == reached


@given(looks(), st.integers(2, 5))
def test_phases_divide_the_whole(arrays, step):
    found, compared = Counter(), 0
    for phase in range(step):
        at, rows, looked, reached = extend_thinned(float(step), np.full(arrays[3].size, float(phase)), *arrays)
        found += pairs(at, rows)
        compared += looked
    assert found == exact(arrays)
    assert compared == reached


@given(st.integers(1, 9), st.integers(-30, 30), st.integers(0, 40), st.data())
def test_slices_cover_the_window_once(width, low, length, data):
    hull = np.zeros((2, 2, 2), dtype=np.int64)
    hull[0, 1], hull[1, 0] = (low, low + length), (-low - length, -low)
    slices = Slices.of(hull, width)
    count = int(slices.counts[0, 1])
    selected = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    spans = slices.spans(0, 1, selected)
    covered = Counter(offset for begin, end in spans for offset in range(begin, end + 1))
    wanted = {
        offset for offset in range(low, low + length + 1) if selected[int(slices.number(0, 1, np.array([-offset]))[0])]
    }
    assert covered == Counter(wanted)
    if selected.all():
        assert spans == [(low, low + length)]

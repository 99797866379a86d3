"""Windows as a user writes them: what they mean, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail as dt
from dovetail.errors import ArgumentError, UnknownNameError
from dovetail.families.window.graph import window_graph

from .shapes import windows


def holds(bounds, times):
    return all(low <= times[b] - times[a] <= high for (a, b), (low, high) in bounds.items())


@given(data=st.data(), count=st.integers(2, 5))
def test_the_closure_means_what_was_given(data, count):
    """For any times, the closed matrix and the windows as written agree."""
    aliases = list("ABCDE"[:count])
    within, meant = data.draw(windows(aliases))
    if not any(
        holds(bounds, dict(zip(aliases, times, strict=True)))
        for bounds in meant
        for times in product(range(0, 40, 4), repeat=count)
    ):
        return  # perhaps contradictory, which has a test of its own
    graph = window_graph(within, aliases, numeric=True)
    times = [data.draw(st.integers(0, 30)) for _ in aliases]
    apart = np.subtract.outer(times, times).T  # apart[i, j] = t_j - t_i
    closed = [bool(((m[..., 0] <= apart) & (apart <= m[..., 1])).all()) for m in graph.alternatives]
    assert closed == [holds(bounds, dict(zip(aliases, times, strict=True))) for bounds in meant]
    hull = graph.hull
    assert not any(closed) or bool(((hull[..., 0] <= apart) & (apart <= hull[..., 1])).all())


def test_missing_pairs_get_the_shortest_path():
    within = {("A", "B"): 3, ("B", "C"): 4, ("C", "D"): 5, ("B", "D"): 1}
    hull = window_graph(within, "ABCD", numeric=True).hull
    assert hull[0, 3].tolist() == [-4, 4]  # A - B - D, not A - B - C - D
    assert hull[0, 2].tolist() == [-7, 7]


def test_lengths_in_all_spellings():
    second = 1_000_000
    for length in ("5 seconds", "5 s", timedelta(seconds=5), "INTERVAL 5 SECONDS"):
        assert window_graph(length, "AB").hull[0, 1].tolist() == [-5 * second, 5 * second]
    assert window_graph({("B", "A"): dt.after("5 s")}, "AB").hull[0, 1].tolist() == [-5 * second, 0]
    assert window_graph({("A", "B"): ("-1 second", "5 s")}, "AB").hull[0, 1].tolist() == [-second, 5 * second]
    assert window_graph("0 seconds", "AB").hull[0, 1].tolist() == [0, 0]
    assert window_graph({("A", "B"): 9, ("B", "A"): (-2, 3)}, "AB", numeric=True).hull[0, 1].tolist() == [-3, 2]


@pytest.mark.parametrize(
    ("within", "numeric", "text"),
    [
        ({("A", "B"): "5 s"}, False, "in 2 parts that no window connects: {A, B}; {C}"),
        ({("A", "X"): "5 s"}, False, "within= names the input 'X'"),
        (dt.path("A -> B -> X", "5 s"), False, "the path in within= names the input 'X'"),
        (dt.path("A -> B", "5 s"), False, "{A, B}; {C}"),
        (5, False, "say the unit: within='5 seconds'"),
        ("5 parsecs", False, "unknown unit 'parsecs'"),
        ("5 s", True, "the time columns hold whole numbers"),
        (-5, True, "less than zero"),
        ({("A", "B"): (5, 2), ("B", "C"): 1}, True, "leaves no time between its ends"),
        ({("A", "B"): (5, 6), ("B", "C"): (5, 6), ("C", "A"): (5, 6)}, True, "contradict each other"),
        ({"AB": 5}, True, "a pair of two aliases"),
        ({("A", "B"): (1, 2, 3)}, True, "the lowest and the highest difference"),
        ([5], False, "is not a window"),
    ],
)
def test_refused(within, numeric, text):
    with pytest.raises((ArgumentError, UnknownNameError)) as caught:
        window_graph(within, "ABC", numeric=numeric)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("A", "5 s"), "two or more aliases"),
        (("A -> B -> A", "5 s"), "passes 'A' twice"),
        (("A -> B -> C", ["5 s"]), "has 2 hop(s) and 1 window(s)"),
        ((7, "5 s"), "two or more aliases"),
    ],
)
def test_paths_refused(arguments, text):
    with pytest.raises(ArgumentError) as caught:
        dt.path(*arguments)
    assert text in str(caught.value)

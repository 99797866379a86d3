"""Predictions: intervals hold the truth as often as they say, however results share rows, and words fit figures."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.plan.prediction import FEW, Input, Interval, Prediction, scaled

RUNS = 400


def drawn(kind: str, random: np.random.Generator) -> tuple[list[np.ndarray], list[int]]:
    """All results of a join as row numbers of each input, and how many rows the inputs have."""
    if kind == "each one":
        return [np.arange(4000), random.permutation(4000)], [4000, 4000]
    if kind == "many to many":
        left, right = np.repeat(np.arange(500), 40), random.integers(0, 500, 20_000)
        found = np.unique(np.stack([left, right]), axis=1)
        return [found[0], found[1]], [500, 500]
    if kind == "one has most":
        left = np.concatenate([np.arange(3000), np.zeros(1000, dtype=np.int64)])
        return [left, np.arange(4000)], [3000, 4000]
    rows = [random.integers(0, 60, 30_000) for _ in "abc"]
    found = np.unique(np.stack(rows), axis=1)
    return list(found), [60, 60, 60]


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        ("each one", (0.3, 0.3)), ("each one", (1.0, 0.1)), ("many to many", (0.2, 0.3)), ("many to many", (1.0, 0.1)),
        ("one has most", (1.0, 0.1)), ("three", (0.4, 0.5, 0.4)), ("three", (1.0, 0.5, 1.0)),
    ],
)  # fmt: skip
def test_the_truth_lies_within_as_often_as_is_said(kind, shares):
    random = np.random.default_rng(1)
    results, rows = drawn(kind, random)
    held, expected = 0, []
    for _ in range(RUNS):
        taken = [random.random(count) < share for count, share in zip(rows, shares, strict=True)]
        kept = np.logical_and.reduce([mask[of] for mask, of in zip(taken, results, strict=True)])
        found = scaled([of[kept] for of in results], shares)
        held += found.low <= results[0].size <= found.high
        expected.append(found.expected)
    assert held / RUNS > 0.91
    assert np.mean(expected) == pytest.approx(results[0].size, rel=0.03)


def test_few_results_give_an_upper_bound_only():
    rows = np.arange(FEW - 1)
    found = scaled([rows, rows], [0.01, 0.01])
    assert found.low == 0
    assert found.high > found.expected > 0
    assert found.text().startswith("at most ")
    assert scaled([rows[:0], rows[:0]], [0.1, 0.1]).text() == "at most 367 rows"


def test_words():
    inputs = (Input("a", 2_000_000, 24.0), Input("b", 1000, 8.0))
    found = Prediction(inputs, Interval(1_000_000, 900_000, 1_100_000, "because"), 32.0, 2, 0.5)
    lines = found.lines()
    assert lines[0] == "inputs      a 2M rows of 24 bytes, b 1k rows of 8 bytes"
    assert lines[1] == "results     1M rows (900k to 1.1M), 32 MB; because"
    total = sum(found.work().values())
    assert lines[2].startswith(f"seconds     {total:.1f} of a core (read and send ")
    assert f"or {total / 2:.1f} s on 2" in lines[2]
    assert found.counters()["predicted_low"] == 900_000
    nothing = Prediction(inputs, None, 32.0, None, 0.5)
    assert nothing.lines()[1] == "results     cannot be told from a sample"
    assert " on " not in nothing.lines()[2].split(",")[0]
    assert set(nothing.counters()) == {"predicted_core_seconds"}


def test_more_work_takes_longer():
    def seconds(rows: int, width: float, results: float) -> float:
        known = Interval.known(results, "")
        return sum(Prediction((Input("a", rows, width),), known, width, None, 0.0).work().values())

    assert seconds(10**6, 8, 0) < seconds(2 * 10**6, 8, 0) < seconds(2 * 10**6, 80, 0) < seconds(2 * 10**6, 80, 10**6)

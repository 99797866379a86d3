"""What a plan says about shedding, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.window.harness import make_plan

from dovetail.errors import ArgumentError
from dovetail.families.shedding.spec import Harvest, RandomDrop

TABLES = {alias: pa.table({"t": pa.array([], pa.int64()), "v": pa.array([], pa.float64())}) for alias in "ABC"}
ON = "ABS(A.v - B.v) <= 1 AND ABS(B.v - C.v) <= 1"


def plan(shed, **more):
    return make_plan(ON, TABLES, 100, streaming=True, shed=shed, **more)


def shed_lines(shed) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in plan(shed).text().splitlines() if line.startswith("  shed")]


def test_the_plan_in_words():
    assert shed_lines(Harvest()) == [
        "only where a micro-batch takes longer than its rows took to arrive",
        "work, not rows: slices of 10 where matches are unlikely are not looked at",
        "slices chosen double-sided by delta, from one histogram for each stream",
        "10% of the rows look everywhere, to learn where matches are and to estimate the recall",
    ]
    assert shed_lines(Harvest(target=4.0, memory=3000))[0] == "only where a micro-batch takes longer than 4 s"
    assert shed_lines(Harvest(memory=3000))[-1] == "state of at most 3,000 rows, 1,000 in a cell"
    assert shed_lines(Harvest(memory="3 KB"))[-1] == "state of at most 3,000 bytes, 1,000 in a cell"
    assert shed_lines(Harvest(keep="selected"))[-1].startswith("rows that no direction will look at leave the state")
    assert shed_lines(RandomDrop(throttle=0.5)) == [
        "always down to 0.5 of the full work",
        "rows dropped at random, each input at the rate that loses least output",
    ]
    assert shed_lines(None) == []


def test_slices_as_asked_for():
    assert plan(Harvest(basic_window=25)).slices.counts[0, 1] == 9  # ages from -100 to 100, cut at multiples of 25
    assert plan(Harvest()).slices.width == 10


@pytest.mark.parametrize(
    ("shed", "message"),
    [
        (lambda: Harvest(basic_window=-1), "basic_window=-1"),
        (lambda: Harvest(basic_window=4, method="exhaustive"), "method='exhaustive' with 2,601 settings"),
        (lambda: Harvest(target="fast"), "target='fast'"),
        (lambda: Harvest(target=0), "target=0"),
        (lambda: Harvest(boost=1), "boost=1"),
        (lambda: Harvest(sample_fraction=0), "sample_fraction=0"),
        (lambda: Harvest(memory=-5), "memory=-5"),
        (lambda: Harvest(memory="all"), "memory='all'"),
        (lambda: Harvest(memory="selected"), "memory='selected'"),
        (lambda: Harvest(keep="all"), "keep='all'"),
        (lambda: Harvest(histograms="both"), "histograms='both'"),
        (lambda: Harvest(seed=-1), "seed=-1"),
        (lambda: RandomDrop(throttle=2.0), r"throttle=2\.0"),
    ],
)
def test_refused(shed, message):
    with pytest.raises(ArgumentError, match=message):
        plan(shed())


def test_an_exhaustive_search_needs_few_settings():
    plan(Harvest(method="exhaustive", basic_window=20))

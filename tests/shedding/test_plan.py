"""What a plan says about shedding, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.window.harness import make_plan

from dovetail.errors import ArgumentError
from dovetail.families.shedding.spec import Harvest, RandomDrop

TABLES = {alias: pa.table({"t": pa.array([], pa.int64()), "v": pa.array([], pa.float64())}) for alias in "ABC"}
TABLES_OF_TWO = {alias: TABLES[alias] for alias in "AB"}
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


def test_the_plan_of_a_condition_that_only_spark_evaluates():
    alone = make_plan("A.v * B.v > 4", TABLES_OF_TWO, 100, streaming=True, shed=Harvest())
    first, *lines = alone.text().splitlines()
    assert first == (
        "window join, stream, how='inner': EVERY PAIR WITHIN THE WINDOW IS COMPARED (A with B); "
        "a comparison of a value of one with a value of the other would help: =, <, a band"
    )
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("  shed")][-2:] == [
        "10% of the rows look everywhere, to learn what the work is",
        "Spark judges a sample of the pairs first: their results say where to look, and the recall",
    ]
    assert alone.scouted
    # The window alone is all that is asked for: its pairs are the results.
    assert make_plan(None, TABLES_OF_TWO, 100, streaming=True).text().splitlines()[0].endswith("how='inner'")
    # One comparison is enough where there are two inputs; a third that nothing ties to them meets each of their pairs.
    beside = "A.v = B.v AND A.v * B.v > 4"
    assert make_plan(beside, TABLES_OF_TWO, 100, streaming=True).text().splitlines()[0].endswith("how='inner'")
    three = make_plan("A.v = B.v AND A.v * C.v > 4", TABLES, 100, streaming=False).text().splitlines()[0]
    assert "EVERY PAIR WITHIN THE WINDOW IS COMPARED (A x B with C)" in three
    # What is dropped at random does not go by results.
    assert not make_plan("A.v * B.v > 4", TABLES_OF_TWO, 100, streaming=True, shed=RandomDrop()).scouted


def test_a_checkpoint_knows_whether_results_say_where_to_look():
    """A query with a scout has one more operator with state."""
    given = [
        make_plan(on, TABLES_OF_TWO, 100, streaming=True, shed=shed).identity()
        for on, shed in (("A.v * B.v > 4", Harvest()), ("A.v * B.v > 4", None), ("A.v = B.v", Harvest()))
    ]
    assert [identity.get("shedding") for identity in given] == ["by the results of a sample", None, None]


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

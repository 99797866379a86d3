"""Window joins at the ends of time: the largest and the smallest 64-bit numbers, and windows as long as time."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.window.harness import make_plan, make_spec, run_batch, run_stream
from tests.window.shapes import Case, cases

from dovetail.conditions.join_kind import HOWS
from dovetail.errors import ArgumentError
from dovetail.families.window.graph import FAR

LOWEST, HIGHEST = -(2**63), 2**63 - 1
# What a small time of the usual shapes becomes.
PLACES = {
    "first": lambda t: LOWEST + t,
    "last": lambda t: HIGHEST - 40 + t,
    "both": lambda t: LOWEST + t if t % 2 else HIGHEST - 40 + t,
    "far": lambda t: (t - 20) * (FAR // 20),
}


def moved(case: Case, place: str) -> Case:
    tables = {}
    for alias, table in case.tables.items():
        times = [None if t is None else PLACES[place](t) for t in table.column("t").to_pylist()]
        times = [None if t is None else min(max(t, LOWEST), HIGHEST) for t in times]
        tables[alias] = table.set_column(0, "t", pa.array(times, pa.int64()))
    return dataclasses.replace(case, tables=tables)


def widened(case: Case, within: int) -> Case:
    pairs = [(a, b) for at, a in enumerate(case.aliases) for b in case.aliases[at + 1 :]]
    return dataclasses.replace(case, within=within, bounds=[dict.fromkeys(pairs, (-within, within))])


extreme = st.builds(
    lambda case, place, within: moved(case if within is None else widened(case, within), place),
    cases(most=3, rows=7),
    st.sampled_from(sorted(PLACES)),
    st.sampled_from([None, None, 2**53 + 1, 2**57 + 3, FAR - 1, FAR]),
)


def spec_of(case: Case, **options):
    try:
        plan = make_plan(case.on, case.tables, case.within, **options)
    except ArgumentError as error:
        assume("no rows can satisfy all windows" not in str(error))
        raise
    return make_spec(plan)


@given(case=extreme, algorithm=st.sampled_from(["auto", "auto", "nested"]))
def test_batch(case, algorithm):
    assert run_batch(spec_of(case, streaming=False, algorithm=algorithm), case.tables).found == case.expected()


@pytest.mark.in_turns
@pytest.mark.parametrize("how", HOWS)
@given(case=extreme.filter(lambda case: len(case.tables) == 2))
def test_batch_hows(how, case):
    assert run_batch(spec_of(case, streaming=False, how=how), case.tables).found == case.expected(how)


@given(case=extreme, data=st.data())
def test_stream(case, data):
    """Rows in the order of time, one input after the other: none is late, and all that may still match are held."""
    spec = spec_of(case, streaming=True, delays=[data.draw(st.sampled_from([0, 5, FAR])) for _ in case.aliases])
    schedule = []
    for side, table in enumerate(case.tables.values()):
        times = table.column("t").to_pylist()
        order = sorted(range(len(times)), key=lambda at: (times[at] is not None, times[at] or 0))
        cut = data.draw(st.integers(0, len(order)))
        schedule += [[(side, part)] for part in (order[:cut], order[cut:]) if part]
    assert run_stream(spec, case.tables, schedule).found == case.expected()

"""Whole joins through the stages, against the definition."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.families.theta.spec import ALGORITHMS, HOWS

from .harness import Knobs, join
from .shapes import Case, cases

RIVALS = [name for name in ALGORITHMS if name != "auto"]

knobs = st.builds(
    Knobs,
    partitions=st.integers(1, 5),
    sampled=st.booleans(),
    tasks=st.integers(1, 3),
    batch_rows=st.sampled_from([1, 3, 1000]),
    cell_rows=st.sampled_from([1, 4, 1000]),
    join_rows=st.sampled_from([1, 5, 1000]),
    block_rows=st.sampled_from([1, 4, 1000]),
    chunk=st.sampled_from([1, 3, 1000]),
    hashes=st.sampled_from([1, 2, 1 << 62]),
    fraction=st.sampled_from([1.0, 1.0, 0.3]),
    sources=st.booleans(),
)


def check(case: Case, how: str, **choices) -> None:
    result = join(case.on, case.left, case.right, how=how, **choices)
    assert Counter(result.pairs) == Counter(case.expected(how))


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(), knobs=knobs)
def test_auto(case, how, knobs):
    check(case, how, knobs=knobs)


@pytest.mark.parametrize("algorithm", RIVALS)
@given(case=cases(comparison=True), how=st.sampled_from(HOWS), knobs=knobs)
def test_rivals(case, algorithm, how, knobs):
    if all(c.kind == "=" for c in case.conjuncts):
        return
    check(case, how, algorithm=algorithm, knobs=knobs)


@pytest.mark.parametrize(
    ("how", "small"),
    [("inner", "R"), ("inner", "S"), ("left", "S"), ("right", "R"), ("semi", "S"), ("anti", "S")],
)
@settings(max_examples=25)
@given(case=cases(), knobs=knobs)
def test_beside(case, how, small, knobs):
    check(case, how, broadcast=small, knobs=knobs)

"""Whole joins through the stages, against the definition."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.conditions.join_kind import HOWS
from dovetail.families.theta.spec import ALGORITHMS

from .harness import Knobs, join
from .shapes import INT64, TYPES, Case, Conjunct, cases, others

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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(data=st.data(), how=st.sampled_from(HOWS), knobs=knobs)
def test_rows_may_differ_from_those_that_decided_where_they_go(algorithm, data, how, knobs):
    """An input may give other values when Spark computes it again, as rand() and sources that move do."""
    case = data.draw(cases(comparison=True))
    if all(c.kind == "=" for c in case.conjuncts):
        return
    seen = data.draw(others(case.left)), data.draw(others(case.right))
    check(case, how, algorithm=algorithm, knobs=knobs, fitted_to=seen)


@pytest.mark.parametrize(
    ("how", "small"),
    [("inner", "R"), ("inner", "S"), ("left", "S"), ("right", "R"), ("semi", "S"), ("anti", "S")],
)
@examples(25)
@given(case=cases(), knobs=knobs)
def test_beside(case, how, small, knobs):
    check(case, how, broadcast=small, knobs=knobs)


# --- corners that random data rarely meets ---------------------------------------------------------------------

CORNERS = {
    "int": [-(2**31), -1, 0, 1, 2**31 - 1, None],
    "bigint": [INT64.min, INT64.min + 1, -1, 0, 1, 2, INT64.max - 1, INT64.max, None],
    "double": [-math.inf, -1e308, -1.0, -0.0, 0.0, 5e-324, 0.1, 0.3, 1.0, 2.5, 1e308, math.inf, math.nan, None],
    "float": [-math.inf, -1.0, -0.0, 0.0, 0.10000000149011612, 0.30000001192092896, 1.0, 2.5, math.inf, math.nan, None],
    "decimal": [
        Decimal(f"-{10**16 - 1}.99"),
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("2.50"),
        Decimal(10**16 - 1),
        None,
    ],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 3), date(9999, 12, 31), None],
}


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["left", "right"])
@pytest.mark.parametrize("kind", CORNERS)
def test_bands_over_corner_values(kind, how):
    """Every corner with every other, for every form of a band, seen from either input."""
    left = pa.table({"a": pa.array(CORNERS[kind], TYPES[kind].arrow)})
    right = left.rename_columns(["x"])
    for (sql, value), strict, turned in product(TYPES[kind].bounds, [False, True], [False, True]):
        gap = "S.x - R.a" if turned else "R.a - S.x"
        less, more = ("<", ">") if strict else ("<=", ">=")
        single = kind == "float"
        end = (value, strict)
        found = [
            Conjunct(f"{gap} {less} {sql}", "a", "x", "band", None, end, single, turned),
            Conjunct(f"{gap} {more} {sql}", "a", "x", "band", end, None, single, turned),
            Conjunct(f"ABS({gap}) {less} {sql}", "a", "x", "band", (-value, strict), end, single, turned),
        ]
        for conjunct in found:
            check(Case((conjunct,), left, right), how)
            # A band and an inequality over the same columns share an axis.
            both = (conjunct, Conjunct("R.a <= S.x", "a", "x", "<="))
            check(Case(both, left, right), how)


@pytest.mark.parametrize("how", ["left", "right", "full"])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("kind", CORNERS)
def test_inequalities_over_corner_values(kind, op, how):
    left = pa.table({"a": pa.array(CORNERS[kind], TYPES[kind].arrow)})
    case = Case((Conjunct(f"R.a {op} S.x", "a", "x", op),), left, left.rename_columns(["x"]))
    for algorithm in ("auto", "prefap", "obt"):
        check(case, how, algorithm=algorithm, knobs=Knobs(partitions=2, cell_rows=3))

"""Distinct values and percentiles, whose states cannot be merged, against plain loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.aggregate.harness import broadcast, play
from tests.aggregate.shapes import answering, asking, box_keys, condition, points_batch, spec_of
from tests.aggregate.test_stream import END, stream
from tests.examples import examples

from dovetail.families.aggregate.finish import results
from dovetail.families.aggregate.kernel import states
from dovetail.families.aggregate.spec import Measure, Output
from dovetail.families.aggregate.stages import ANSWERING, ASKING

FRACTIONS = (0.0, 0.3, 0.5, 1.0)
MEASURES = (
    Measure("rows"),
    Measure("distinct", (0,)),
    Measure("distinct", (3,)),
    Measure("quantile", (0,), fractions=(0.5,)),
    Measure("quantile", (1,), fractions=FRACTIONS),
    Measure("quantile", (1,), fractions=(0.5,), error=1e-4),
    Measure("quantile", (4,), fractions=FRACTIONS, error=0.25),
)
OUTPUTS = (
    Output("n", "count", (0,), pa.int64()),
    Output("doubles", "count_distinct", (1,), pa.int64()),
    Output("texts", "count_distinct", (2,), pa.int64()),
    Output("median", "percentile", (3,), pa.float64()),
    Output("several", "percentile", (4,), pa.list_(pa.float64())),
    Output("middle", "percentile", (5,), pa.int64()),
    Output("about", "percentile", (6,), pa.list_(pa.int32())),
)


def gathered(*, keyed: bool, axes: str):
    return replace(spec_of(keyed=keyed, axes=axes), measures=MEASURES, outputs=OUTPUTS)


def in_order(values):
    """NaN is the largest, and -0.0 is 0.0."""
    return sorted((value for value in values if value is not None), key=lambda v: (v != v, v))


def between(values, fraction):
    values = in_order(values)
    if not values:
        return None
    position = (len(values) - 1) * fraction
    low, high = values[math.floor(position)], values[math.ceil(position)]
    if low == high or (low != low and high != high):
        return float(low)
    return low + (position - math.floor(position)) * (float(high) - float(low))


def element(values, fraction, error):
    values = in_order(values)
    if not values:
        return None
    if fraction <= error:
        return values[0]
    if fraction >= 1 - error:
        return values[-1]
    return values[max(1, math.ceil(fraction * len(values))) - 1]


def expected(rows, others, holds):
    for row in rows:
        found = [other for other in others if holds(row, other)]
        f, i, n = ([other[name] for other in found] for name in "fin")
        yield {
            "n": len(found),
            "doubles": len({"nan" if v != v else v + 0.0 for v in f if v is not None}),
            "texts": len({other["s"] for other in found} - {None}),
            "median": between(f, 0.5),
            "several": [between(i, one) for one in FRACTIONS] if in_order(i) else None,
            "middle": element(i, 0.5, 1e-4),
            "about": [element(n, one, 0.25) for one in FRACTIONS] if in_order(n) else None,
        }


def check(found, wanted):
    for name, value in wanted.items():
        assert repr(found[name]).replace("-0.0", "0.0") == repr(value).replace("-0.0", "0.0"), name


@examples(300)
@given(st.booleans(), st.sampled_from(["", "x", "X"]), asking, answering)
def test_every_row_gets_what_the_nested_loop_says(keyed, axes, rows, others):
    spec = gathered(keyed=keyed, axes=axes)
    state = states(spec, points_batch(spec, others), box_keys(spec, rows))
    columns = [column.to_pylist() for column in results(spec, state)]
    for at, wanted in enumerate(expected(rows, others, condition(keyed=keyed, axes=axes))):
        check({output.name: column[at] for output, column in zip(OUTPUTS, columns, strict=True)}, wanted)


@examples(60)
@given(st.booleans(), st.sampled_from(["x", "X"]), asking, answering, st.integers(1, 5), st.booleans())
def test_all_matches_of_a_row_are_in_one_cell(keyed, axes, rows, others, partitions, few):
    spec = gathered(keyed=keyed, axes=axes)
    with pytest.MonkeyPatch.context() as patch:
        from dovetail.families.aggregate.router import gathered as routing

        patch.setattr("tests.aggregate.harness.without_sample", routing)
        shuffled, counted = play(spec, rows, others, partitions=partitions, sample=False, few=few)
    whole, _ = broadcast(spec, rows, others)
    for at, wanted in enumerate(expected(rows, others, condition(keyed=keyed, axes=axes))):
        check(shuffled[at], wanted)
        check(whole[at], wanted)
    assert counted["results"] == len(rows)


def test_two_streams():
    spec = gathered(keyed=False, axes="x")
    some = [
        {"k": 0, "x": at, "f": float(at % 3), "i": at, "s": "ab"[at % 2], "y": 0, "d": None, "n": at} for at in range(9)
    ]
    rows = [{"k": 0, "t": at, "number": at, "x0": at - 4, "x1": at} for at in range(9)]
    calls = [
        (None, [(ANSWERING, some[:4]), (ASKING, rows[:6])]),
        (2, [(ANSWERING, some[4:]), (ASKING, rows[6:])]),
        (END, []),
    ]
    found, _, _, _ = stream(spec, calls, -4, 0)
    for at, wanted in enumerate(expected(rows, some, condition(keyed=False, axes="x"))):
        check(found[at][0], wanted)

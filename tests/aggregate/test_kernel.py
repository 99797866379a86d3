"""The kernel against the nested loop."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.aggregate.shapes import EXPECTED, answering, asking, box_keys, condition, points_batch, same, spec_of
from tests.examples import examples

from dovetail.families.aggregate.compiled_fixed import fixed_prefix, fixed_ranges, fixed_unit
from dovetail.families.aggregate.finish import results
from dovetail.families.aggregate.kernel import states
from dovetail.families.aggregate.wide import averaged, fits, to_words
from dovetail.reference.aggregate import aggregate_join


@pytest.mark.in_turns(group="several seconds")
@examples(300)
@given(st.booleans(), st.sampled_from(["", "x", "X", "xy", "XY", "xY"]), asking, answering)
def test_every_row_gets_what_the_nested_loop_says(keyed, axes, rows, others):
    spec = spec_of(keyed=keyed, axes=axes)
    state = states(spec, points_batch(spec, others), box_keys(spec, rows))
    columns = [column.to_pylist() for column in results(spec, state)]
    wanted = aggregate_join(rows, others, condition(keyed=keyed, axes=axes), EXPECTED)
    for at, (row, answers) in enumerate(wanted):
        for output, column in zip(spec.outputs, columns, strict=True):
            assert same(column[at], answers[output.name], output.name), (output.name, row, answers[output.name])


def test_a_huge_value_does_not_drown_later_ones():
    spec = spec_of(keyed=False, axes="x")
    others = [
        {"k": 0, "x": x, "y": 0, "f": f, "i": 0, "d": None, "s": None, "n": None}
        for x, f in enumerate([1e300, math.inf, math.nan, 0.1, 0.2, 0.3])
    ]
    rows = [{"k": 0, "x0": 3, "x1": 5, "y0": 0, "y1": 0}]
    state = states(spec, points_batch(spec, others), box_keys(spec, rows))
    found = dict(zip((output.name for output in spec.outputs), results(spec, state), strict=True))
    assert found["total"].to_pylist() == [0.6]
    assert math.isclose(found["spread"].to_pylist()[0], 0.1, rel_tol=1e-15)


def test_deviations_too_large_for_a_double_are_infinite():
    spec = spec_of(keyed=False, axes="")
    for values in permutations([1e300, 1e16, -1e300, 1.5]):
        others = [{"k": 0, "x": 0, "y": 0, "f": f, "i": 0, "d": None, "s": None, "n": None} for f in values]
        state = states(spec, points_batch(spec, others), box_keys(spec, [{}]))
        found = dict(zip((output.name for output in spec.outputs), results(spec, state), strict=True))
        assert found["spread"].to_pylist() == found["variance"].to_pylist() == [math.inf]


def test_sums_of_doubles_do_not_depend_on_the_order_of_rows():
    spec = spec_of(keyed=False, axes="")
    generator = np.random.default_rng(5)
    values = (generator.standard_normal(500) * 10.0 ** generator.integers(-12, 12, 500)).tolist()
    answers = set()
    for _ in range(20):
        generator.shuffle(values)
        others = [{"k": 0, "x": 0, "y": 0, "f": f, "i": 0, "d": None, "s": None, "n": None} for f in values]
        state = states(spec, points_batch(spec, others), box_keys(spec, [{}]))
        answers.add(tuple(str(column[0]) for column in results(spec, state)))
    assert len(answers) == 1
    assert str(math.fsum(values)) in next(iter(answers))


close = st.floats(-1e9, 1e9) | st.sampled_from([0.0, -0.0, 2.0**-30, 3.0, -1e-3])
far = close | st.sampled_from([5e-324, -5e-324, 1e-308, 1e300, -1e308, 1.7e308])


@examples(300)
@given(st.lists(close, max_size=20) | st.lists(far, max_size=6), st.data())
def test_prefix_sums_in_fixed_point_lose_no_bit(values, data):
    array = np.array(values, dtype=np.float64)
    unit = fixed_unit(array)
    if unit is None:
        sizes = [abs(value) for value in values if value]
        assert max(sizes) / min(sizes) > 2.0**40 or min(sizes) < 1e-290
        return
    begin = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(begin, len(values)))
    high, low = fixed_ranges(*fixed_prefix(array, unit), unit, np.array([begin]), np.array([end]))
    exact = sum(map(Fraction, values[begin:end]), Fraction(0))
    if math.isinf(high[0]):
        assert abs(exact) > 1.7e308
    else:
        assert abs(Fraction(high[0]) + Fraction(low[0]) - exact) <= abs(exact) / 2**104


def test_common_doubles_fit():
    assert fixed_unit(np.random.default_rng(1).normal(100.0, 15.0, 100_000)) is not None


@pytest.mark.parametrize("gain", [0, 4])
@given(numbers=st.lists(st.tuples(st.integers(-(2**150), 2**150), st.integers(1, 2**40)), min_size=1, max_size=8))
def test_wide_averages_are_exact(gain, numbers):
    limbs = [np.array([(n >> (32 * at)) & 0xFFFFFFFF for n, _ in numbers], dtype=np.int64) for at in range(4)]
    limbs.append(np.array([n >> 128 for n, _ in numbers], dtype=np.int64))
    words = to_words([*limbs[:3], limbs[3] + (limbs[4] << 32)])
    counts = np.array([count for _, count in numbers])
    found = averaged(words, counts, gain)
    digits = fits(words, 38).tolist()
    for at, (number, count) in enumerate(numbers):
        assert digits[at] == (abs(number) < 10**38)
        whole, rest = divmod(abs(number) * 10**gain, count)
        wanted = (whole + (2 * rest >= count)) * (-1 if number < 0 else 1)
        read = sum(int(found[at, limb]) << (32 * limb) for limb in range(5))
        assert (read - wanted) % 2**160 == 0

"""Order codes keep Spark's order, and bands hold exactly where the definition says."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import os
import subprocess
import sys
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.columns.codes import (
    HIGHEST,
    LOWEST,
    cuts_passed,
    float_band,
    float_codes,
    int_band,
    joint_codes,
    order_codes,
    prefix_codes,
    valid_mask,
)
from dovetail.columns.codes import float_values as numbers_of_codes

WIDTHS = {"float32": np.float32, "float64": np.float64}
UTC = dt.UTC


def dense(values):
    """The rank of each value among the distinct ones."""
    rank = {value: at for at, value in enumerate(sorted(set(values)))}
    return [rank[value] for value in values]


def spark_key(value):
    """Spark's order of floats: NaN equals itself and is the greatest; -0.0 equals 0.0."""
    return (1, 0.0) if math.isnan(value) else (0, value + 0.0)


@st.composite
def columns(draw, values, kind, max_size=12):
    """A column that begins and ends inside a longer one, and the values it holds."""
    held = draw(st.lists(st.none() | values, max_size=max_size))
    before, after = (draw(st.lists(st.none() | values, max_size=3)) for _ in range(2))
    return pa.array([*before, *held, *after], kind).slice(len(before), len(held)), held


def decimals(digits, scale):
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda whole: Decimal(whole).scaleb(-scale, _exact))


_exact = Context(prec=60)
LONGEST = dt.timedelta(microseconds=HIGHEST)
MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
INT_COLUMNS = {
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(LOWEST, HIGHEST)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    "timestamp_ntz": (pa.timestamp("us"), MOMENTS),
    "interval": (pa.duration("us"), st.timedeltas(-LONGEST, LONGEST)),
    "decimal(18,0)": (pa.decimal128(18, 0), decimals(18, 0)),
    "decimal(18,18)": (pa.decimal128(18, 18), decimals(18, 18)),
    "decimal(5,2)": (pa.decimal128(5, 2), decimals(5, 2)),
}


def check_mask_and_order(column, held, codes, key=lambda value: value):
    assert codes.dtype == np.int64
    assert valid_mask(column).tolist() == [value is not None for value in held]
    kept = [at for at, value in enumerate(held) if value is not None]
    assert dense(codes[kept].tolist()) == dense([key(held[at]) for at in kept])


class TestOrderCodes:
    @pytest.mark.parametrize("name", INT_COLUMNS)
    @given(data=st.data())
    def test_of_whole_numbers_keep_order(self, name, data):
        kind, values = INT_COLUMNS[name]
        column, held = data.draw(columns(values, kind))
        check_mask_and_order(column, held, order_codes(column, "int"))

    @pytest.mark.parametrize(
        ("value", "kind", "code"),
        [
            (True, pa.bool_(), 1),
            (dt.date(1969, 12, 31), pa.date32(), -1),
            (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), 1_000_000),
            (dt.timedelta(milliseconds=-1), pa.duration("us"), -1000),
            (Decimal("-1.25"), pa.decimal128(5, 2), -125),
            (Decimal(10**18 - 1), pa.decimal128(18, 0), 10**18 - 1),
        ],
    )
    def test_of_whole_numbers_are_what_is_stored(self, value, kind, code):
        # A band adds its bound to the code, so the unit matters.
        assert order_codes(pa.array([value], kind), "int").tolist() == [code]

    @pytest.mark.parametrize("name", WIDTHS)
    @given(data=st.data())
    def test_of_floats_keep_the_order_of_spark(self, name, data):
        values = st.floats(width=int(name[-2:])) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
        column, held = data.draw(columns(values, pa.type_for_alias(name)))
        check_mask_and_order(column, held, order_codes(column, name), spark_key)

    @pytest.mark.parametrize("name", WIDTHS)
    def test_of_every_nan_are_one(self, name):
        bits = {
            "float32": np.array([0x7FC00000, 0x7F800001, 0xFFC00000, 0xFF800001, 0x7FFFFFFF], np.uint32),
            "float64": np.array([0x7FF8 << 48, (0x7FF0 << 48) + 1, 0xFFF8 << 48, 2**64 - 1], np.uint64),
        }[name]
        codes = order_codes(pa.array(bits.view(name)), name)
        assert len(set(codes.tolist())) == 1
        assert codes[0] > order_codes(pa.array([math.inf], name), name)[0]

    @pytest.mark.parametrize("name", [*INT_COLUMNS, *WIDTHS])
    def test_of_no_rows_and_of_nothing_but_null(self, name):
        kind = INT_COLUMNS[name][0] if name in INT_COLUMNS else pa.type_for_alias(name)
        code_kind = name if name in WIDTHS else "int"
        for empty in (pa.array([], kind), pa.array([None, None], kind).slice(1, 0), pa.nulls(0, kind)):
            assert order_codes(empty, code_kind).tolist() == []
            assert valid_mask(empty).tolist() == []
        assert order_codes(pa.nulls(3, kind), code_kind).size == 3
        assert valid_mask(pa.nulls(3, kind)).tolist() == [False] * 3


RANKED = {
    "string": (pa.string(), st.text(max_size=10), str.encode),
    "large_string": (pa.large_string(), st.text(max_size=10), str.encode),
    "binary": (pa.binary(), st.binary(max_size=10), bytes),
    "large_binary": (pa.large_binary(), st.binary(max_size=10), bytes),
    "decimal(38,0)": (pa.decimal128(38, 0), decimals(38, 0), Decimal),
    "decimal(38,20)": (pa.decimal128(38, 20), decimals(38, 20), Decimal),
    "decimal(20,2)": (pa.decimal128(20, 2), decimals(20, 2), Decimal),
}


class TestJointCodes:
    @pytest.mark.parametrize("name", RANKED)
    @given(data=st.data())
    def test_keep_order_and_equality_across_both_sides(self, name, data):
        kind, values, key = RANKED[name]
        (left, held_left), (right, held_right) = (data.draw(columns(values, kind, 6)) for _ in range(2))
        codes = joint_codes(left, right)
        assert [side.size for side in codes] == [len(left), len(right)]
        check_mask_and_order(pa.concat_arrays([left, right]), [*held_left, *held_right], np.concatenate(codes), key)

    def test_of_strings_follow_bytes_and_not_utf16(self):
        left, right = joint_codes(pa.array(["\uffff"]), pa.array(["\U00010000"]))
        assert left[0] < right[0]

    @pytest.mark.parametrize("name", RANKED)
    def test_of_no_rows(self, name):
        empty = pa.array([], RANKED[name][0])
        assert [side.tolist() for side in joint_codes(empty, empty)] == [[], []]


class TestPrefixCodes:
    @pytest.mark.parametrize("name", ["string", "large_string", "binary", "large_binary"])
    @given(data=st.data())
    def test_of_bytes_are_those_of_the_first_eight(self, name, data):
        kind, values, key = RANKED[name]
        common = data.draw(st.sampled_from(["", "1234567"]))
        if "binary" in name:
            common = common.encode()
        column, held = data.draw(columns(values.map(lambda value: common + value), kind))
        check_mask_and_order(column, held, prefix_codes(column), lambda value: key(value)[:8].ljust(8, b"\0"))

    @pytest.mark.parametrize("name", RANKED)
    @given(data=st.data())
    def test_keep_at_most(self, name, data):
        kind, values, key = RANKED[name]
        column, held = data.draw(columns(values, kind))
        codes = prefix_codes(column).tolist()
        pairs = sorted((key(value), code) for value, code in zip(held, codes, strict=True) if value is not None)
        assert all(one[1] <= two[1] for one, two in itertools.pairwise(pairs))
        assert len({value for value, _ in pairs}) == len(set(pairs)), "equal values have equal codes"

    @pytest.mark.parametrize("scale", [0, 1, 9, 19, 20, 28, 38])
    @given(data=st.data())
    def test_of_neighbouring_decimals_keep_at_most(self, scale, data):
        # Whether the nearest float keeps the order shows in the last digits.
        first = data.draw(st.integers(-(10**38) + 101, 10**38 - 101))
        unit = 10 ** data.draw(st.integers(0, max(0, len(str(abs(first))) - 15)))
        whole = [w for w in range(first - 40 * unit, first + 40 * unit, unit) if abs(w) < 10**38]
        column = pa.array([Decimal(w).scaleb(-scale, _exact) for w in whole], pa.decimal128(38, scale))
        assert (np.diff(prefix_codes(column)) >= 0).all()

    @pytest.mark.parametrize("name", RANKED)
    def test_of_no_rows_and_of_nothing_but_null(self, name):
        kind = RANKED[name][0]
        for empty in (pa.array([], kind), pa.array([None, None], kind).slice(1, 0), pa.nulls(0, kind)):
            assert prefix_codes(empty).tolist() == []
        assert prefix_codes(pa.nulls(3, kind)).size == 3


WHOLE = st.integers(LOWEST, HIGHEST) | st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST])
SHIFTS = st.none() | WHOLE | st.integers(-(2**66), 2**66) | st.integers(-5, 5)


class TestIntBand:
    @given(ys=st.lists(WHOLE, max_size=6), xs=st.lists(WHOLE, max_size=6), low=SHIFTS, high=SHIFTS)
    @example([HIGHEST], [HIGHEST], 1, None)
    @example([LOWEST], [LOWEST], None, -1)
    @example([LOWEST], [HIGHEST], 2**64 - 1, 2**64 - 1)
    @example([LOWEST], [HIGHEST], 2**64, None)
    def test_holds_where_exact_arithmetic_says(self, ys, xs, low, high):
        lows, highs = int_band(np.array(ys, dtype=np.int64), low, high)
        assert lows.dtype == highs.dtype == np.int64
        # The ends themselves and their neighbours are where a mistake would show.
        near = {y + shift + by for y in ys for shift in (low or 0, high or 0) for by in (-1, 0, 1)}
        for x in {*xs, *(x for x in near if LOWEST <= x <= HIGHEST)}:
            expected = [(low is None or x - y >= low) and (high is None or x - y <= high) for y in ys]
            assert ((lows <= x) & (x <= highs)).tolist() == expected

    def test_leaves_its_argument_alone(self):
        codes = np.array([LOWEST, 0, HIGHEST])
        int_band(codes, 5, -5)
        assert codes.tolist() == [LOWEST, 0, HIGHEST]


EXTREME = {
    "float32": [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, float(np.finfo(np.float32).max)],
    "float64": [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, sys.float_info.max, -sys.float_info.max],
}
BOUNDS = (
    st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        [
            0.0,
            -0.0,
            5e-324,
            -5e-324,
            1e-45,
            1e-30,
            -1e-30,
            0.1,
            -0.1,
            1.0,
            3.4028235677973366e38,
            1e300,
            -1e300,
        ]
    )
)


def float_values(name):
    return (
        st.floats(width=int(name[-2:]))
        | st.sampled_from([*EXTREME[name], math.nan, math.inf, -math.inf])
        | st.integers(-100, 100).map(float)
    )


def neighbours(value, count=2):
    found = [value]
    for end in (-np.inf, np.inf):
        at = value
        for _ in range(count):
            at = np.nextafter(at, value.dtype.type(end))
            found.append(at)
    return found


def check_float_band(name, ys, xs, low, high, strict_low, strict_high):
    width = WIDTHS[name]
    y = np.array(ys, dtype=width)
    with np.errstate(all="ignore"):
        near = [x for one in y for end in (low, high) for x in neighbours(one + width(end or 0.0))]
        x = np.array([*xs, *near, -np.inf, np.inf, np.nan, 0.0, -0.0], dtype=width)[:, None]
        # Rounded to the width of the column, then compared in 64 bits; NaN exceeds every bound.
        difference = (x - y).astype(np.float64)
    expected = np.ones(difference.shape, dtype=bool)
    if low is not None:
        expected &= np.isnan(difference) | (difference > low if strict_low else difference >= low)
    if high is not None:
        expected &= difference < high if strict_high else difference <= high
    lows, highs = float_band(y, low, high, strict_low=strict_low, strict_high=strict_high)
    codes = float_codes(x[:, 0])[:, None]
    found = (lows <= codes) & (codes <= highs)
    wrong = [(x[i, 0], y[j]) for i, j in np.argwhere(found != expected)]
    assert wrong == []


class TestFloatBand:
    @pytest.mark.parametrize("name", WIDTHS)
    @given(data=st.data(), low=BOUNDS, high=BOUNDS, strict_low=st.booleans(), strict_high=st.booleans())
    def test_holds_where_the_rounded_difference_says(self, name, data, low, high, strict_low, strict_high):
        ys, xs = (data.draw(st.lists(float_values(name), max_size=5)) for _ in range(2))
        check_float_band(name, ys, xs, low, high, strict_low, strict_high)

    @pytest.mark.parametrize("name", WIDTHS)
    @given(data=st.data(), strict_low=st.booleans(), strict_high=st.booleans())
    def test_holds_at_bounds_that_are_differences(self, name, data, strict_low, strict_high):
        width = WIDTHS[name]
        ys, xs = (data.draw(st.lists(float_values(name), min_size=1, max_size=4)) for _ in range(2))
        with np.errstate(all="ignore"):
            differences = [float(width(x) - width(y)) for x in xs for y in ys]
        ends = st.sampled_from([None, *(end for end in differences if math.isfinite(end))])
        low, high = data.draw(ends), data.draw(ends)
        check_float_band(name, ys, xs, low, high, strict_low, strict_high)

    @pytest.mark.parametrize("name", WIDTHS)
    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("ends", [(-1.0, None), (None, 1.0), (None, None), (-1.0, 1.0), (1.0, -1.0)])
    def test_of_what_is_not_finite(self, name, strict, ends):
        odd = [math.nan, math.inf, -math.inf, *EXTREME[name]]
        check_float_band(name, odd, odd, *ends, strict, strict)

    @pytest.mark.parametrize("name", WIDTHS)
    def test_of_no_rows_and_of_a_view(self, name):
        assert [end.size for end in self.band(np.empty(0, WIDTHS[name]))] == [0, 0]
        y = np.arange(10, dtype=WIDTHS[name])
        every_other = [end.tolist() for end in self.band(y[::2])]
        assert every_other == [end[::2].tolist() for end in self.band(y)]
        y.flags.writeable = False
        assert every_other == [end.tolist() for end in self.band(y[::2])]

    @staticmethod
    def band(y):
        return float_band(y, -1.0, 1.0, strict_low=True, strict_high=False)

    def test_second_process_finds_the_compiled_search(self, tmp_path):
        script = """
import numpy as np
from dovetail.columns import codes
codes.float_band(np.ones(3, np.float32), -1, 1, strict_low=True, strict_high=False)
print(sum(codes._last_below.stats.cache_hits.values()), sum(codes._last_below.stats.cache_misses.values()))
"""
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "DOVETAIL_KERNELS": "compiled"}
        runs = [
            subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
        assert [run.stdout.split() for run in runs] == [["0", "1"], ["1", "0"]]


@pytest.mark.parametrize("count", [0, 1, 64, 65, 79, 80, 81, 1024, 1040, 1041])
def test_cuts_passed_are_those_not_above(count):
    random = np.random.default_rng(count)
    cuts = np.sort(random.integers(0, 3 * count + 1, count))
    codes = np.arange(-2, 3 * count + 3)
    assert cuts_passed(cuts, codes).tolist() == np.searchsorted(cuts, codes, side="right").tolist()


def test_codes_beyond_infinity_are_no_numbers_and_warn_of_nothing():
    """Cells are cut between codes, and a cut may lie anywhere; pytest makes an error of the warning."""
    codes = np.array([0x7F80_0000, 0x7F80_0001, 0x7FFF_FFFF], dtype=np.int64)
    values = numbers_of_codes(codes, "float32")
    assert values[0] == math.inf
    assert np.isnan(values[1:]).all()

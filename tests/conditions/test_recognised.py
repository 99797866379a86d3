"""Equalities, inequalities, bands and literals that a condition is taken apart into."""

from __future__ import annotations

import doctest
import math
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal

import pytest

from dovetail.conditions import predicates
from dovetail.conditions.forms import Band, Bound, Equality, Filter, Inequality, Rest, Term
from dovetail.conditions.predicates import parse

from .shapes import AX, AY, BTS, BY, COLUMNS, only, parts, term


def test_examples_in_docstrings():
    assert doctest.testmod(predicates).failed == 0


def test_import_loads_no_spark():
    code = (
        "import sys, dovetail.conditions.predicates; assert not any(m.split('.')[0] == 'pyspark' for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("text", ["A.x = B.y", "A.x == B.y", "(A.x)=((B.y))", "((a.X = `b`.`Y`))", "A . x = B.y -- c"])
def test_equality(text):
    assert only(text) == Equality(AX, BY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A.x < B.y", Inequality(AX, BY, strict=True)),
        ("A.x <= B.y", Inequality(AX, BY, strict=False)),
        ("A.x > B.y", Inequality(BY, AX, strict=True)),
        ("A.x >= B.y", Inequality(BY, AX, strict=False)),
        ("(B.y) > (A.x)", Inequality(AX, BY, strict=True)),
        ("A.x + 1 < B.y * 2", Inequality(Term("A", "`A`.`x` + 1"), Term("B", "`B`.`y` * 2"), strict=True)),
    ],
)
def test_inequality(text, expected):
    assert only(text) == expected


def test_between_is_two_inequalities():
    assert parts("A.x BETWEEN B.y - 5 AND B.y + 5 AND A.y = B.y") == [
        Equality(AY, BY),
        Inequality(Term("B", "`B`.`y` - 5"), AX, strict=False),
        Inequality(AX, Term("B", "`B`.`y` + 5"), strict=False),
    ]
    assert parts("A.x BETWEEN B.lo AND C.z") == [
        Inequality(term("B.lo"), AX, strict=False),
        Inequality(AX, term("C.z"), strict=False),
    ]
    assert parts("A.x BETWEEN 1 AND B.hi") == [
        Inequality(AX, term("B.hi"), strict=False),
        Filter("A", "`A`.`x` >= 1"),
    ]
    assert only("A.x BETWEEN 1 AND 2") == Filter("A", "`A`.`x` BETWEEN 1 AND 2")
    assert parts("A.x BETWEEN B.lo AND B.hi + C.z") == [
        Inequality(term("B.lo"), AX, strict=False),
        Rest("`A`.`x` <= `B`.`hi` + `C`.`z`", frozenset("ABC")),
    ]
    assert only("A.x * B.x BETWEEN 1 AND 2") == Rest("`A`.`x` * `B`.`x` BETWEEN 1 AND 2", frozenset("AB"))


def band(low, high, left=AX, right=BY, strict=False):
    ends = (None if end is None else Bound(end, strict) for end in (low, high))
    return Band(left, right, *ends)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABS(A.x - B.y) <= 3", band(-3, 3)),
        ("abs((A.x - B.y)) < 3", band(-3, 3, strict=True)),
        ("3 >= ABS(A.x - B.y)", band(-3, 3)),
        ("(3) > (ABS((A.x) - (B.y)))", band(-3, 3, strict=True)),
        ("ABS(A.x - B.y) <= -3", band(3, -3)),
        ("ABS(A.x - B.y) <= 0", band(0, 0)),
        (
            "ABS((A.x + 1) - B.y*2) <= 3",
            band(-3, 3, Term("A", "`A`.`x` + 1"), Term("B", "`B`.`y`*2")),
        ),
        ("A.x - B.y <= 3", band(None, 3)),
        ("A.x - B.y < - 3", band(None, -3, strict=True)),
        ("3 < A.x - B.y", band(3, None, strict=True)),
        ("A.x - B.y BETWEEN -1 AND +(2)", band(-1, 2)),
        ("A.x - B.y = 5", band(5, 5)),
        ("A.x - B.y >= -1 AND A.x - B.y <= 5", band(-1, 5)),
        ("A.x - B.y <= 7 AND -1 <= A.x - B.y AND A.x - B.y <= 5", band(-1, 5)),
        ("A.x - B.y <= 5 AND B.y - A.x <= 1", band(-1, 5)),
        ("A.x - B.y > 1 AND A.x - B.y > 2 AND A.x - B.y > 0", band(2, None, strict=True)),
        ("1 + A.x - B.y <= 3", band(None, 3, Term("A", "1 + `A`.`x`"))),
        ("A.x - 1 - B.y <= 3", band(None, 3, Term("A", "`A`.`x` - 1"))),
        ("A.x - -B.y <= 3", band(None, 3, right=Term("B", "-`B`.`y`"))),
        (
            "A.ts - INTERVAL -5 MINUTES - B.ts <= INTERVAL 1 DAY",
            band(None, timedelta(days=1), Term("A", "`A`.`ts` - INTERVAL -5 MINUTES"), BTS),
        ),
    ],
)
def test_band(text, expected):
    assert only(text) == expected


def test_strict_and_lax_ends_meet_in_one_band():
    expected = Band(AX, BY, Bound(-1, strict=True), Bound(5, strict=False))
    assert only("A.x - B.y > -1 AND A.x - B.y <= 5") == expected


def test_bands_that_only_look_alike_stay_apart():
    # NaN exceeds every bound: it passes both conjuncts here, and would fail the upper end of a merged band.
    assert len(parts("A.x - B.y >= -3 AND B.y - A.x >= -2")) == 2
    # As doubles both literals are the same number, and then the strict end is the tighter one.
    assert len(parts("A.x - B.y <= 0.1 AND A.x - B.y < 1e-1")) == 2
    assert len(parts("A.x - B.y <= 5 AND A.x - B.y >= INTERVAL 1 DAY")) == 2
    assert len(parts("A.x - B.y <= 5 AND A.y - B.y >= 1")) == 2


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("- -5", 5),
        ("5L", 5),
        ("5s", 5),
        ("127Y", 127),
        ("1.5", Decimal("1.5")),
        (".5", Decimal("0.5")),
        ("5.", Decimal("5")),
        ("1.50BD", Decimal("1.50")),
        ("1e3BD", Decimal("1000")),
        ("1e-3", 0.001),
        ("1.5E3", 1500.0),
        ("1.5D", 1.5),
        ("0.1F", 0.10000000149011612),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", Decimal(2**63)),
        ("-9223372036854775808", -(2**63)),
        ("12345678901234567890123456789012345.678", Decimal("12345678901234567890123456789012345.678")),
        ("INTERVAL 10 MINUTES", timedelta(minutes=10)),
        ("interval '10' minute", timedelta(minutes=10)),
        ("INTERVAL '-10' MINUTE", timedelta(minutes=-10)),
        ("- INTERVAL 10 MINUTES", timedelta(minutes=-10)),
        ("INTERVAL -'10' MINUTE", timedelta(minutes=-10)),
        ("INTERVAL '1 hour 30 minutes'", timedelta(minutes=90)),
        ("INTERVAL '-1 hour 30 minutes'", timedelta(minutes=-30)),
        ("INTERVAL 1 HOUR 30 MINUTES", timedelta(minutes=90)),
        ("INTERVAL '1' HOUR '30' MINUTE", timedelta(minutes=90)),
        ("INTERVAL 'interval 2 weeks'", timedelta(weeks=2)),
        ("INTERVAL '1.5' SECOND", timedelta(seconds=1.5)),
        ("INTERVAL 5 MILLISECONDS", timedelta(milliseconds=5)),
        ("INTERVAL '7' MICROSECOND", timedelta(microseconds=7)),
        ('INTERVAL "3 days"', timedelta(days=3)),
    ],
)
def test_literals_keep_their_type(literal, value):
    found = only(f"A.x - B.y <= {literal}")
    assert found == band(None, value)
    assert type(found.high.value) is type(value)
    # What a band writes down is what it read.
    assert parse(found.sql, COLUMNS).bands == (found,)
    negated = only(f"ABS(A.x - B.y) < {literal}").low.value
    assert negated + value == type(value)()
    assert math.copysign(1, negated) == 1 or negated != 0 if isinstance(negated, float) else True


def test_zero_has_no_sign():
    assert math.copysign(1, only("ABS(A.x - B.y) <= 0D").low.value) == 1
    assert str(only("ABS(A.x - B.y) <= 0.0").low.value) == "0.0"


@pytest.mark.parametrize(
    "literal",
    [
        "INTERVAL 1 MONTH",
        "INTERVAL '1 year 2 days'",
        "INTERVAL '1:30' HOUR TO MINUTE",
        "INTERVAL '1.5' MINUTE",
        "INTERVAL '5 ms'",
        "INTERVAL '5minutes'",
        "INTERVAL '1.1234567' SECOND",
        "INTERVAL 200000000 DAYS",
        "INTERVAL 5 MINUTES + INTERVAL 1 DAY",
        "1 + 1",
        "1e400",
        "1e39F",
        "200Y",
        "40000S",
        "1e40BD",
        "100000000000000000000000000000000000000000",
        "'5'",
        "NULL",
        "pi()",
        "DATE '2020-01-01'",
    ],
)
def test_what_is_no_fixed_literal_goes_to_the_rest(literal):
    part = only(f"A.x - B.y <= {literal}")
    assert isinstance(part, Rest)
    assert (part.sql, part.aliases) == (f"`A`.`x` - `B`.`y` <= {literal}", frozenset("AB"))


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("NOT A.x < B.y", "A.x >= B.y"),
        ("NOT (A.x >= B.y)", "A.x < B.y"),
        ("NOT NOT (A.x = B.y)", "A.x = B.y"),
        ("NOT A.x <> B.y", "A.x = B.y"),
        ("! (A.x != B.y)", "A.x = B.y"),
        ("NOT (A.x > B.y OR A.x < B.x)", "A.x <= B.y AND A.x >= B.x"),
        ("NOT (A.x NOT BETWEEN B.lo AND B.hi)", "A.x BETWEEN B.lo AND B.hi"),
        ("NOT (ABS(A.x - B.y) > 3)", "ABS(A.x - B.y) <= 3"),
        ("A.x IS NOT DISTINCT FROM B.y", "A.x <=> B.y"),
    ],
)
def test_not_moves_inward(text, same_as):
    assert parts(text) == parts(same_as)


def test_equality_that_null_satisfies():
    assert only("A.x <=> B.y") == Equality(AX, BY, null_safe=True)
    assert only("A.x <=> B.y").sql == "`A`.`x` <=> `B`.`y`"
    assert isinstance(only("NOT (A.x <=> B.y)"), Rest)
    assert isinstance(only("A.x IS DISTINCT FROM B.y"), Rest)


@pytest.mark.parametrize(
    ("text", "either"),
    [
        ("A.x < B.y OR A.x = B.x", ("`A`.`x` < `B`.`y`", "`A`.`x` = `B`.`x`")),
        ("A.x NOT BETWEEN B.lo AND B.hi", ("`A`.`x` < `B`.`lo`", "`A`.`x` > `B`.`hi`")),
        ("NOT (A.x BETWEEN B.lo AND B.hi)", ("`A`.`x` < `B`.`lo`", "`A`.`x` > `B`.`hi`")),
        ("A.x IN (B.x, 3, B.x)", ("(`A`.`x`) = (`B`.`x`)", "(`A`.`x`) = (3)")),
        ("NOT (A.x NOT IN (B.x, (B.y)))", ("(`A`.`x`) = (`B`.`x`)", "(`A`.`x`) = (`B`.`y`)")),
        ("A.x NOT IN (B.x, B.y)", ()),
        ("NOT (A.x IN (B.x, B.y))", ()),
        ("NOT (A.x < B.y AND A.x > 3)", ("NOT (`A`.`x` < `B`.`y`)", "NOT (`A`.`x` > 3)")),
    ],
)
def test_either_of_several_conditions(text, either):
    assert only(text).either == either


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("ABS(A.x - B.y) <= B.x", ["+A.x -B.y <= +B.x", "-A.x +B.y <= +B.x"]),
        ("B.x >= ABS(A.x - B.y)", ["+A.x -B.y <= +B.x", "-A.x +B.y <= +B.x"]),
        ("B.x = ABS(A.x - B.y)", ["+A.x -B.y <= +B.x", "-A.x +B.y <= +B.x"]),
        ("A.x - B.y > B.x", ["+B.x < +A.x -B.y"]),
        ("A.x + B.y < 5", ["+A.x +B.y < +5"]),
        ("-(A.x - B.y) < B.x", ["-A.x +B.y < +B.x"]),
        ("A.x - (B.y - A.y) = 3", ["+A.x -B.y +A.y <= +3", "+3 <= +A.x -B.y +A.y"]),
        ("A.x + B.y BETWEEN A.y AND B.hi", ["+A.y <= +A.x +B.y", "+A.x +B.y <= +B.hi"]),
        ("HYPOT(A.x - B.x, A.y - B.y) <= A.x + 1", [
            "+A.x -B.x <= +A.x + 1", "-A.x +B.x <= +A.x + 1", "+A.y -B.y <= +A.x + 1", "-A.y +B.y <= +A.x + 1",
        ]),
        ("A.x * B.y < 5", []),
        ("ABS(A.x - B.y) > B.x", []),
        ("(A.x - B.x) * (A.x - B.y) < 5", []),
        ("POW(A.x - B.x, 3) < 5", []),
        ("POW(A.x - B.x, 2) - POW(A.y - B.y, 2) < 5", []),
    ],
)  # fmt: skip
def test_what_a_comparison_implies(text, ranges):
    def shown(addends):
        return " ".join(f"{'-' if addend.negative else '+'}{addend.term}" for addend in addends)

    implied = only(text).implied
    assert [f"{shown(one.small)} {'<' if one.strict else '<='} {shown(one.large)}" for one in implied] == ranges


@pytest.mark.parametrize(
    ("text", "radius"),
    [
        ("(A.x - B.x) * (A.x - B.x) + (A.y - B.y) * (A.y - B.y) <= 25", 5),
        ("(A.x - B.x) * (A.x - B.x) + POW(A.y - B.y, 2) < 5 * 5", 5),
        ("SQRT(POW(A.x - B.x, 2) + POWER((A.y - B.y), 2)) <= 2.5", 2.5),
        ("HYPOT(A.x - B.x, A.y - B.y) <= 3", 3),
        ("POW(A.x - B.x, 2) + (A.y - B.y) * (A.y - B.y) < B.x * B.x", None),
        ("SQRT(POW(A.x - B.x, 2) + POW(A.y - B.y, 2)) < A.x", None),
    ],
)
def test_distances_are_a_band_on_each_axis(text, radius):
    implied = only(text).implied
    if radius is None:
        terms = [[str(addend.term) for addend in one.small] for one in implied]
        assert terms == [["A.x", "B.x"]] * 2 + [["A.y", "B.y"]] * 2
        return
    assert [(str(one.left), str(one.right)) for one in implied] == [("A.x", "B.x"), ("A.y", "B.y")]
    for one in implied:
        assert one.low.value == -one.high.value
        assert radius < one.high.value < radius * 1.0001

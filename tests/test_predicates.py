from __future__ import annotations

import doctest
import itertools
import math
import random
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import predicates
from dovetail.errors import PredicateError, UnknownNameError
from dovetail.predicates import Band, Bound, Equality, Filter, Inequality, Predicate, Rest, Term, parse

COLUMNS = {
    "A": ["x", "y", "k", "ts", "s", "tags", "m", "end", "only_a", "1L", "we ird`x"],
    "B": ["x", "y", "k", "ts", "s", "lo", "hi", "end", "and"],
    "C": ["x", "z"],
}


def term(name: str) -> Term:
    alias, column = name.split(".")
    return Term(alias, f"`{alias}`.`{column}`")


AX, AY, AK, ATS = (term(name) for name in ("A.x", "A.y", "A.k", "A.ts"))
BX, BY, BK, BTS = (term(name) for name in ("B.x", "B.y", "B.k", "B.ts"))


def parts(text: str) -> list:
    p = parse(text, COLUMNS)
    assert p.text == text
    return [*p.equalities, *p.inequalities, *p.bands, *p.filters, *p.rests]


def only(text: str):
    (part,) = parts(text)
    return part


def test_examples_in_docstrings():
    assert doctest.testmod(predicates).failed == 0


def test_import_loads_no_spark():
    code = "import sys, dovetail.predicates; assert not any(m.split('.')[0] == 'pyspark' for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what is recognised ---


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
    assert only(f"A.x - B.y <= {literal}") == Rest(f"`A`.`x` - `B`.`y` <= {literal}", frozenset("AB"))


@pytest.mark.parametrize(
    "text",
    [
        "NOT A.x < B.y",
        "! A.x = B.y",
        "A.x != B.y",
        "A.x <> B.y",
        "A.x <=> B.y",
        "A.x IS NOT DISTINCT FROM B.y",
        "A.x = 1 OR B.y = 2",
        "A.x = 1 AND B.y = 2 OR A.y = B.y",
        "A.s LIKE B.s",
        "A.s NOT RLIKE B.s",
        "A.x IN (B.x, B.y)",
        "A.x NOT BETWEEN B.lo AND B.hi",
        "A.x + B.y = A.y + B.x",
        "A.x + B.y < B.x",
        "A.x + B.y < 3",
        "A.x - B.y < B.x",
        "A.x - B.y - 1 < 3",
        "A.x - 1 + B.y < 3",
        "-A.x + B.y < 3",
        "A.x - (B.y - 1) - B.x < 3",
        "ABS(A.x - B.y) > 3",
        "ABS(A.x - B.y) = 3",
        "ABS(A.x - B.y) - 1 < 3",
        "ABS(A.x - B.y) + ABS(A.y - B.x) < 3",
        "A.x || '1' - B.y < 3",
        "A.x - B.y & 1 < 3",
        "A.x = B.y IS NULL",
        "A.x = B.y = TRUE",
        "A.x < B.y LIKE 'true'",
        "A.x >> 1 = B.y",
        "A.x::array<int> = B.y",
        "levenshtein(A.s, B.s) < 3",
        "exists(A.tags, t -> t = B.x)",
        "A.x + B.x",
    ],
)
def test_everything_else_is_rest_in_the_words_of_the_user(text):
    spelled = text
    for name in ("A.x", "A.y", "A.s", "A.tags", "B.x", "B.y", "B.s", "B.lo", "B.hi"):
        spelled = spelled.replace(name, term(name).sql)
    assert only(text) == Rest(spelled, frozenset("AB"))


def test_three_inputs_and_none():
    assert only("A.x < B.y + C.z").aliases == frozenset("ABC")
    assert only("A.x - B.y < C.z").aliases == frozenset("ABC")
    assert only("1 = 1") == Rest("1 = 1", frozenset())
    assert only("current_date() > DATE '2020-01-01'").aliases == frozenset()


@pytest.mark.parametrize(
    "text", ["A.x < A.x", "A.x = 5", "A.x - A.y <= 3", "A.x", "A.x IN (1,2)", "A.x = 1 OR A.y = 2"]
)
def test_one_input_is_a_filter(text):
    part = only(text)
    assert isinstance(part, Filter)
    assert part.alias == "A"


@pytest.mark.parametrize(
    ("side", "sql"),
    [
        ("A.tags[0]", "`A`.`tags`[0]"),
        ("A.m['k']", "`A`.`m`['k']"),
        ("A.m['k'].end.and", "`A`.`m`['k'].end.and"),
        ("A.m.a.b.c.end.e", "`A`.`m`.a.b.c.end.e"),
        ("CAST(A.x AS DATE)", "CAST(`A`.`x` AS DATE)"),
        ("A.x::int", "`A`.`x`::int"),
        ("A.x % 2", "`A`.`x` % 2"),
        ("A.x DIV 2", "`A`.`x` DIV 2"),
        ("A.ts - INTERVAL 1 HOUR 30 MINUTES", "`A`.`ts` - INTERVAL 1 HOUR 30 MINUTES"),
        ("concat(A.s, 'it''s', r'\\', \"A.x\")", "concat(`A`.`s`, 'it''s', r'\\', \"A.x\")"),
        ("A.x + 1L - 2BD", "`A`.`x` + 1L - 2BD"),
        ("A.x\n\t + /* A.y */ 1", "`A`.`x` + 1"),
        (
            "CASE WHEN A.x < 1 AND A.y > 2 THEN 1 ELSE 2 END",
            "CASE WHEN `A`.`x` < 1 AND `A`.`y` > 2 THEN 1 ELSE 2 END",
        ),
        ("transform(A.tags, x -> x.y + A.x)[0]", "transform(`A`.`tags`, x -> x.y + `A`.`x`)[0]"),
        ("A.`we ird``x`", "`A`.`we ird``x`"),
        ("A.1L", "`A`.`1L`"),
        ("a.END", "`A`.`end`"),
        ("only_a", "`A`.`only_a`"),
        ("ONLY_A.field", "`A`.`only_a`.field"),
        ("if(A.x > 1, 2, A.x)", "if(`A`.`x` > 1, 2, `A`.`x`)"),
        ("concat('é😀', A.s)", "concat('é😀', `A`.`s`)"),
        ("timestampdiff(MINUTE, A.ts, A.x)", "timestampdiff(MINUTE, `A`.`ts`, `A`.`x`)"),
        ("struct(A.x as p)", "struct(`A`.`x` as p)"),
        ("(A.x, A.y)", "(`A`.`x`, `A`.`y`)"),
        ("A.s COLLATE UTF8_LCASE", "`A`.`s` COLLATE UTF8_LCASE"),
    ],
)
def test_a_term_is_the_text_of_the_user(side, sql):
    assert only(f"{side} = B.y") == Equality(Term("A", sql), BY)
    assert only(f"B.y <= ({side})") == Inequality(BY, Term("A", sql), strict=False)


def test_columns_that_the_syntax_tree_drops():
    # sqlglot forgets the third argument of array_append, which is for Spark to refuse.
    assert only("array_append(A.tags, A.x, b.X) = A.k").aliases == frozenset("AB")
    assert only("array_append(A.tags, 'B.x', 1) = A.k").alias == "A"
    assert only("array_append(A.tags, transform(A.tags, b -> b.y), A.x) = A.k").alias == "A"
    assert only("and(A.x, B.y)").sql == "and(`A`.`x`, `B`.`y`)"


def test_keywords_as_column_names():
    assert only("A.end <= B.and") == Inequality(term("A.end"), term("B.and"), strict=False)
    assert parse("end < start", {"A": ["end"], "B": ["start"]}).inequalities == (
        Inequality(term("A.end"), term("B.start"), strict=True),
    )


def test_a_struct_column_named_like_no_alias():
    assert parse("a.b = t.x", {"s": ["a"], "t": ["x"]}).equalities == (Equality(Term("s", "`s`.`a`.b"), term("t.x")),)
    # An alias comes first, a column of that name second, as in Spark.
    assert parse("s.f = t.x", {"s": ["f"], "t": ["x", "s"]}).edges() == {frozenset("st")}
    assert parse("s.g = t.x", {"s": ["f"], "t": ["x", "s"]}).filters == (Filter("t", "`t`.`s`.g = `t`.`x`"),)


# --- the predicate ---


def test_between_edges_and_text():
    text = "A.x < B.x AND B.k = A.k AND B.y = C.z AND A.s LIKE B.s AND A.x > 1 AND A.x + B.x < C.z OR FALSE"
    assert parse(text, COLUMNS).edges() == set()
    p = parse(text.removesuffix(" OR FALSE"), COLUMNS)
    assert p.edges() == {frozenset("AB"), frozenset("BC")}
    view = p.between("B", "A")
    assert isinstance(view, Predicate)
    assert view == p.between("A", "B")
    assert view.equalities == (Equality(BK, AK),)
    assert view.inequalities == (Inequality(AX, BX, strict=True),)
    assert view.rests == (Rest("`A`.`s` LIKE `B`.`s`", frozenset("AB")),)
    assert view.filters == ()
    assert p.between("A", "C") == Predicate("TRUE")
    assert str(p.between("A", "C")) == "(no condition)"
    assert str(p) == "\n".join(
        [
            "equality    B.k = A.k",
            "equality    B.y = C.z",
            "inequality  A.x < B.x",
            "filter A    A.x > 1",
            "rest        A.s LIKE B.s",
            "rest        A.x + B.x < C.z",
        ]
    )


def test_the_same_conjunct_twice_is_one():
    assert parts("A.x = B.y AND (a.x = b.y)") == [Equality(AX, BY)]


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        (None, "not SQL text"),
        (5, "not SQL text"),
        ("", "empty"),
        ("  \n ", "empty"),
        ("-- nothing", "empty"),
        ("A.x IN (SELECT 1)", "a subquery"),
        ("EXISTS (SELECT 1)", "a subquery"),
        ("EXISTS (FROM t)", "a subquery"),
        ("(SELECT 1) = A.x", "a subquery"),
        ("A.x IN (VALUES 1)", "a subquery"),
        ("sum(A.x) > 1", "an aggregate"),
        ("A.x = B.y AND bit_and (A.x) > 1", "an aggregate"),
        ("any(A.x)", "an aggregate"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY A.x) = 1", "an aggregate"),
        ("row_number() OVER (ORDER BY A.x) = 1", "a window function"),
        ("lag(A.x) = 1", "a window function"),
        ("explode(A.tags) = 1", "a generator"),
        ("rand() < 0.5", "a non-deterministic function"),
        ("count(*) > 1", "a star"),
        ("A.* = B.x", "a star"),
        (":p = A.x", "a parameter"),
        ("A.x = ?", "a parameter"),
        ("A.x = B.y; B.x = 1", "a semicolon"),
        ("A.x = B.y;", "a semicolon"),
        ("SELECT A.x FROM A", "without SELECT"),
        ("WHERE A.x = 1", "without SELECT"),
        ("DROP TABLE a", "without SELECT"),
        ("A.x = B.y AS z", "not a condition"),
        ("A.x, B.y", "not a condition"),
        ("map(A.x) = B.x", "number of arguments"),
        ("A = B", "the input 'A' as if it were a column"),
    ],
)
def test_refused(text, wording):
    with pytest.raises(PredicateError) as caught:
        parse(text, COLUMNS)
    assert wording in str(caught.value)
    assert caught.value.accepted


def test_functions_of_rows_pass_for_no_aggregates():
    assert isinstance(only("A.s LIKE ANY ('x%', 'y%')"), Filter)
    assert isinstance(only("A.s NOT ILIKE SOME ('x%', 'y%')"), Filter)
    assert isinstance(only("aggregate(A.tags, 0, (acc, t) -> acc + t) < B.x"), Inequality)
    assert isinstance(only("A.s = 'sum(x)'"), Filter)


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        ("A.x = B.y foo", 1, "    A.x = B.y foo\n              ^"),
        ("A.x = B.y\nAND A.y = = 3", 2, "    AND A.y = = 3\n              ^"),
        ("A.x = 'abc", 1, "    A.x = 'abc\n          ^"),
        ("A.x = 'a' AND\n  B.`y = 3", 2, "      B.`y = 3\n        ^"),
        ("'", 1, "    '\n    ^"),
        ("A.x = B.y)", 1, "    A.x = B.y)\n             ^"),
        ("A.k = B.k AND\nmax(A.x) = B.x", 2, "    max(A.x) = B.x\n    ^"),
    ],
)
def test_the_caret_shows_the_place(text, line, place):
    with pytest.raises(PredicateError) as caught:
        parse(text, COLUMNS)
    assert f"line {line}:" in str(caught.value)
    assert place in str(caught.value).split("\n  accepted")[0] + "\n"


@pytest.mark.parametrize("text", ["(A.x = B.y", "A.x =", "A.x = B.y AND", "A..x = 1", "A.x B.y", "(A.x = 1) (B.y)"])
def test_syntax_errors(text):
    with pytest.raises(PredicateError, match="line 1"):
        parse(text, COLUMNS)


def test_deep_nesting_is_refused_in_words():
    with pytest.raises(PredicateError, match="nested too deeply"):
        parse("(" * 5000 + "A.x" + ")" * 5000, COLUMNS)


def test_a_long_conjunction_is_read():
    p = parse(" AND ".join(f"A.x < B.x + {i}" for i in range(1000)), COLUMNS)
    assert len(p.inequalities) == 1000


def test_unknown_names():
    with pytest.raises(UnknownNameError, match=r"'AA'(.|\n)*A, B, C"):
        parse("AA.x = B.x", COLUMNS)
    with pytest.raises(UnknownNameError, match=r"C.zz(.|\n)*one of its columns x, z(.|\n)*did you mean 'z'"):
        parse("C.zz = B.x", COLUMNS)
    with pytest.raises(UnknownNameError, match=r"'nowhere', which no input has(.|\n)*t\.b"):
        parse("nowhere = 1", {"s": ["a"], "t": ["b"]})


@pytest.mark.parametrize(
    ("text", "columns", "named"),
    [
        ("x = B.y", COLUMNS, "A.x, B.x, C.x"),
        ("A.val = B.x", {"A": ["Val", "VAL"], "B": ["x"]}, "A.VAL, A.Val"),
        ("val = B.x", {"A": ["Val", "VAL"], "B": ["x"]}, "A.VAL, A.Val"),
        ("A.v = B.x", {"A": ["v", "v"], "B": ["x"]}, "A.v, A.v"),
        ("x = Y", {"A": ["x"], "B": ["X", "y"]}, "A.x, B.X"),
        ("ab.x = c.x", {"Ab": ["x"], "AB": ["x"], "c": ["x"]}, "AB, Ab"),
    ],
)
def test_ambiguous_names(text, columns, named):
    with pytest.raises(PredicateError, match="ambiguous") as caught:
        parse(text, columns)
    assert named in str(caught.value)


def test_an_exact_name_is_not_ambiguous():
    assert parse("A.Val = B.x", {"A": ["Val", "VAL"], "B": ["x"]}).equalities[0].left.sql == "`A`.`Val`"
    assert parse("AB.x = Ab.x", {"Ab": ["x"], "AB": ["x"]}).equalities == (
        Equality(Term("AB", "`AB`.`x`"), Term("Ab", "`Ab`.`x`")),
    )


# --- random conjunctions: known parts in random spelling, and the same rows before and after ---

SIGNS = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "=": "__eq__"}
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
ALL = ["A.x", "A.y", "A.k", "B.x", "B.y", "B.k", "C.x", "C.z"]

columns = st.sampled_from(["A.x", "B.x"]) | st.sampled_from(ALL)  # the same pair often enough to merge bands
conjuncts = st.tuples(
    st.sampled_from(["compare", "difference", "absolute", "between", "unequal", "one"]),
    columns,
    columns,
    st.sampled_from(sorted(SIGNS)),
    st.integers(-3, 3),
    st.integers(-3, 3),
)


class Spelling:
    """Writes the same condition in one of many ways."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def wrap(self, text: str) -> str:
        return self._dice.choice([text, text, f"({text})", f"( {text} )", f"(({text}))"])

    def name(self, name: str) -> str:
        alias, column = (self._dice.choice([part, part.upper(), part.lower(), f"`{part}`"]) for part in name.split("."))
        return self.wrap(f"{alias}.{column}")

    def compare(self, left: str, sign: str, right: str) -> str:
        if self._dice.random() < 0.5:
            left, sign, right = right, MIRROR[sign], left
        sign = self._dice.choice(["=", "=="]) if sign == "=" else sign
        gap = self._dice.choice([" ", "", "\n", " /* and */ "])
        return self.wrap(f"{left}{gap}{sign}{gap}{right}")

    def join(self, texts: list[str]) -> str:
        joined = texts[0]
        for text in texts[1:]:
            joined = f"{joined} {self._dice.choice(['AND', 'and', 'And'])} {text}"
            joined = f"({joined})" if self._dice.random() < 0.3 else joined
        return joined

    def write(self, conjunct) -> str:
        kind, left, right, sign, low, high = conjunct
        difference = self.wrap(f"{self.name(left)} - {self.name(right)}")
        if kind == "compare":
            return self.compare(self.name(left), sign, self.name(right))
        if kind == "difference":
            return self.compare(difference, sign, self.wrap(str(low)))
        if kind == "absolute":
            return self.compare(f"ABS({difference})", "<=", self.wrap(str(high)))
        if kind == "between":
            return self.wrap(f"{difference} BETWEEN {low} AND {high}")
        if kind == "unequal":
            return self.wrap(f"{self.name(left)} <> {self.name(right)}")
        return self.compare(self.name(left), sign, str(low))


def holds(conjunct, row) -> bool:
    kind, left, right, sign, low, high = conjunct
    a, b = row[left], row[right]
    if kind in ("compare", "unequal"):
        return a != b if kind == "unequal" else getattr(a, SIGNS[sign])(b)
    if kind == "difference":
        return getattr(a - b, SIGNS[sign])(low)
    if kind == "absolute":
        return abs(a - b) <= high
    return low <= a - b <= high if kind == "between" else getattr(a, SIGNS[sign])(low)


def value(sql: str, row):
    return row[sql.replace("`", "")]


def found_holds(p: Predicate, row) -> bool:
    """The typed parts evaluated by what they mean; the others by a reading of their text."""
    for e in p.equalities:
        if value(e.left.sql, row) != value(e.right.sql, row):
            return False
    for i in p.inequalities:
        a, b = value(i.left.sql, row), value(i.right.sql, row)
        if not (a < b if i.strict else a <= b):
            return False
    for d in p.bands:
        gap = value(d.left.sql, row) - value(d.right.sql, row)
        if d.low is not None and not (gap > d.low.value if d.low.strict else gap >= d.low.value):
            return False
        if d.high is not None and not (gap < d.high.value if d.high.strict else gap <= d.high.value):
            return False
    return all(eval(python(part.sql), {"ABS": abs}, names(row)) for part in (*p.filters, *p.rests))


def python(sql: str) -> str:
    text = sql.replace("`", "").replace("<>", "!=").replace("==", "=").replace("=", "==")
    for sign in "<>!":
        text = text.replace(f"{sign}==", f"{sign}=")
    if "BETWEEN" in text:
        middle, bounds = text.split("BETWEEN")
        low, high = bounds.split("AND")
        text = f"{low} <= {middle} <= {high}"
    for name in ALL:
        text = text.replace(name, name.replace(".", "_"))
    return f"({text})"


def names(row):
    return {name.replace(".", "_"): number for name, number in row.items()}


def expected_kind(conjunct) -> type:
    kind, left, right, *_ = conjunct
    if kind == "one" or left[0] == right[0]:
        return Filter
    if kind == "unequal":
        return Rest
    return (Equality if conjunct[3] == "=" else Inequality) if kind == "compare" else Band


@given(st.lists(conjuncts, min_size=1, max_size=5), st.integers(0, 2**32))
def test_any_spelling_of_known_parts(chosen, seed):
    spelling = Spelling(seed)
    text = spelling.join([spelling.write(conjunct) for conjunct in chosen])
    p = parse(text, COLUMNS)

    assert {type(part) for part in parts(text)} == {expected_kind(conjunct) for conjunct in chosen}
    linked = {frozenset((c[1][0], c[2][0])) for c in chosen if expected_kind(c) in (Equality, Inequality, Band)}
    assert p.edges() == linked
    for a, b in itertools.combinations("ABC", 2):
        assert p.between(a, b).edges() <= {frozenset((a, b))}
    again = parse(p.sql, COLUMNS)
    assert (again.equalities, again.inequalities, again.bands) == (p.equalities, p.inequalities, p.bands)

    dice = random.Random(seed)
    for _ in range(25):
        row = {name: dice.randint(-3, 3) for name in ALL}
        assert found_holds(p, row) == all(holds(conjunct, row) for conjunct in chosen), row

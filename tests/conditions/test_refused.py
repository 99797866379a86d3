"""Conditions that are refused, and where the message points."""

from __future__ import annotations

import pytest

from dovetail.conditions import tokens
from dovetail.conditions.forms import Equality, Filter, Inequality, Term
from dovetail.conditions.predicates import parse
from dovetail.errors import PredicateError, UnknownNameError

from .shapes import COLUMNS, only


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


@pytest.mark.parametrize(
    ("before", "unfinished"),
    [
        ("A.x < ", "'a"), ("A.x = 'a' AND B.y < ", '"b'), ("A.`x` < B.", "`y"), ("A.x < B.y ", "/* why"),
        ("A.x /* 'one' */ < ", "'it''s"), ("A.x < '\"' AND B.y = ", "'a\"`"), ("", "/*" + "(" * 5000),
        ("A.", "`" + "{" * 5000), ("A.x = ", "'''b"),
    ],
)  # fmt: skip
def test_the_caret_shows_where_the_unfinished_begins(monkeypatch, before, unfinished):
    cut = []
    plain = tokens._SPARK.tokenize
    monkeypatch.setattr(tokens._SPARK, "tokenize", lambda text: cut.append(text) or plain(text))
    at = tokens.unfinished_at(before + unfinished, tokens._SPARK)
    assert at == len(before)
    assert len(cut) <= 6  # a long text is not cut again for every character

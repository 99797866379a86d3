"""What stays as the user wrote it: filters, terms, and the rest that Spark evaluates."""

from __future__ import annotations

import pytest

from dovetail.conditions.forms import Equality, Filter, Inequality, Predicate, Rest, Term
from dovetail.conditions.predicates import parse

from .shapes import AK, AX, BK, BX, BY, COLUMNS, only, parts, term


@pytest.mark.parametrize(
    "text",
    [
        "A.x != B.y",
        "A.x <> B.y",
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
    part = only(text)
    assert isinstance(part, Rest)
    assert (part.sql, part.aliases) == (spelled, frozenset("AB"))


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

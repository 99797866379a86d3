"""Statements as lists of SELECTs: conditions, scopes, stars, and what is put in their place."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from dovetail.statements.attributes import Attribute, Offer
from dovetail.statements.calls import JoinInput
from dovetail.statements.rewrite import Edits, input_query, placeholder, placeholders, scoped, template
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.syntax.statement import read_statement


def test_importing_it_does_not_import_pyspark_and_leaves_the_function():
    code = (
        "import sys, dovetail.statements.syntax.dialect, dovetail.statements.decide, dovetail as dt\n"
        "assert callable(dt.sql)\n"
        "assert not any(name.split('.')[0] == 'pyspark' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)


def test_conditions_are_slices_of_the_text():
    text = """SELECT 1 FROM a JOIN b ON (a.x < b.x AND a.end = 1L) /* note */ AND a.y BETWEEN 1 AND 2
              WHERE (a.s = 'x AND y' OR b.z > 1) AND CASE WHEN a.x = 1 AND b.x = 1 THEN TRUE END AND NOT a.x = 3"""
    (block,) = read_statement(text).blocks
    assert [condition.of(text) for condition in block.joins[0].on] == ["a.x < b.x", "a.end = 1L", "a.y BETWEEN 1 AND 2"]
    assert [condition.of(text) for condition in block.conjuncts] == [
        "a.s = 'x AND y' OR b.z > 1",
        "CASE WHEN a.x = 1 AND b.x = 1 THEN TRUE END",
        "NOT a.x = 3",
    ]


def test_kinds_of_joins_and_relations():
    text = """SELECT 1 FROM db.t JOIN u AS v ON t.a = v.a LEFT SEMI JOIN (SELECT 1 AS b) w ON w.b = v.a
              FULL OUTER JOIN x USING (a) NATURAL JOIN y CROSS JOIN z,
              LATERAL (SELECT t.a) l ASOF LEFT JOIN q ON t.a >= q.a"""
    block = read_statement(text).blocks[-1]
    assert [(r.alias, r.table, r.separate) for r in block.relations] == [
        ("t", None, True), ("v", "u", True), ("w", None, True), ("x", "x", True), ("y", "y", True), ("z", "z", True),
        ("l", None, False), ("q", "q", True),
    ]  # fmt: skip
    assert [(j.how, j.kind, j.comma) for j in block.joins] == [
        ("inner", "plain", False), ("semi", "plain", False), ("full", "spark", False), ("inner", "spark", False),
        ("inner", "plain", False), ("inner", "plain", True), ("left", "asof", False),
    ]  # fmt: skip


def test_scopes_of_with_clauses():
    text = """WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a JOIN a AS a2 ON a.x < a2.x)
              SELECT * FROM (WITH c AS (SELECT * FROM b) SELECT * FROM c, b WHERE c.x < b.x) d"""
    blocks = {block.relations[0].alias: block for block in read_statement(text).blocks}
    assert [scope.names for scope in blocks["a"].scopes] == [("a",)]
    assert [scope.names for scope in blocks["c"].scopes] == [("a", "b"), ("c",)]
    assert [scope.names for scope in blocks["d"].scopes] == [("a", "b")]
    statement = read_statement(text)
    assert statement.defined == {"a", "b"}
    assert statement.text[statement.opening[0] :].startswith("a AS")
    query = scoped("SELECT * FROM c", blocks["c"].scopes, Edits(text))
    assert query.startswith("WITH a AS (SELECT 1 AS x), b AS (")
    assert query.endswith("SELECT * FROM (WITH c AS (SELECT * FROM b) SELECT * FROM (SELECT * FROM c))")
    assert read_statement("WITH RECURSIVE r AS (SELECT 1 AS n) SELECT * FROM r").blocks[0].scopes[0].recursive


def test_stars_hints_and_group_by_window():
    text = """SELECT /*+ BROADCAST(S), DOVETAIL */ *, R.*, count(*), struct(* EXCEPT (x)), (SELECT * FROM T)
              FROM R, S GROUP BY window(ts, '5 seconds'), ALL"""
    outer = read_statement(text).blocks[-1]
    assert [text[star.offset :][:3] for star in outer.stars] == ["*, ", "R.*", "* E"]
    assert [star.alias for star in outer.stars] == [None, "R", None]
    assert outer.stars[0].excepted is None
    assert text[outer.stars[2].excepted :].startswith("x)")
    assert outer.hints == {"BROADCAST": ("S",), "DOVETAIL": ()}
    assert outer.hint.of(text) == "/*+ BROADCAST(S), DOVETAIL */"


def test_pipes_are_left_alone():
    assert read_statement("FROM a |> WHERE a.x < 1 |> SELECT x").blocks == ()


@given(
    st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.text(max_size=3)), max_size=6)
)
def test_edits_replace_disjoint_parts(text, wanted):
    edits, placed, end = Edits(text), [], 0
    for start, stop, new in sorted(wanted):
        if end <= start < stop <= len(text):
            edits.replace(Slice(start, stop), new)
            placed.append((start, stop, new))
            end = stop
    expected = text
    for start, stop, new in reversed(placed):
        expected = expected[:start] + new + expected[stop:]
    assert edits.render(Slice(0, len(text))) == expected
    edits.replace(Slice(0, len(text)), "all")
    assert edits.render(Slice(0, len(text))) == "all"


@given(st.text(st.characters(exclude_characters="\0"), max_size=20))
def test_braces_survive_formatting(text):
    formatted = template(text + placeholder("f"))
    assert placeholders(text + placeholder("f")) == ["f"]
    assert formatted.format(f="frame") == text + "frame"
    assert template(text) == text


def test_queries_of_inputs():
    one = JoinInput("a", ("a",), conditions=("(`a`.`x` > 1)",), keys=(("__key_0", "`a`.`x` + 1"),))
    columns = {"a": ["x"], "b": ["id", "y"]}
    expected = "SELECT `a`.*, `a`.`x` + 1 AS `__key_0` FROM t AS `a` WHERE (`a`.`x` > 1)"
    assert input_query(one, "t AS `a`", Offer(()), columns) == expected
    two = JoinInput("a_b", ("a", "b"))
    assert input_query(two, "t", Offer(()), columns) == "SELECT struct(`a`.*) AS `a`, struct(`b`.*) AS `b` FROM t"
    merging = Offer((Attribute("id", None), Attribute("x", "a")), (Attribute("id", "b"),))
    assert input_query(two, "t", merging, columns) == (
        "SELECT struct(`a`.*) AS `a`, struct(`b`.`id` AS `id`, `b`.`y` AS `y`) AS `b`, `id` AS `__merged_0` FROM t"
    )

"""``AGGREGATE JOIN``: what is read, which call it is, and what is refused."""

from __future__ import annotations

import pytest

from dovetail.errors import StatementError
from dovetail.statements.calls import Facts
from dovetail.statements.decide import decide, left_to_spark
from dovetail.statements.syntax.dialect import read_query, tokens_of, uses_dialect
from dovetail.statements.syntax.statement import read_statement

COLUMNS = {"t": ("k", "x", "ts"), "q": ("k", "y", "ts"), "r": ("k", "z"), "AGGREGATE": ("k",)}


def only(text: str):
    block = read_statement(text).blocks[-1]
    assert left_to_spark(block, text) is None
    columns = {relation.alias: COLUMNS[relation.alias] for relation in block.relations}
    (call,) = decide(block, text, Facts(columns)).calls
    return call


def test_the_call():
    call = only(
        "SELECT t.k, n FROM t AGGREGATE JOIN q ON q.k = t.k AND q.y BETWEEN t.x - 1 AND t.x "
        "COMPUTE count(*) AS n, avg(q.y + 1) AS `the mean` WHERE t.x > 3 AND n > 2"
    )
    assert call.family == "aggregate"
    assert [one.alias for one in call.outputs] == ["t"]
    assert call.options == {
        "on": "q.k = t.k AND q.y BETWEEN t.x - 1 AND t.x", "by": "t", "how": "left",
        "agg": {"n": "count(*)", "the mean": "avg(q.y + 1)"},
    }  # fmt: skip
    # A condition on the left alone is applied first; one on an aggregate stays.
    assert len(call.moved) == 1
    assert call.inputs[0].conditions == ("(`t`.`x` > 3)",)


def test_a_window_of_time():
    text = "SELECT t.k, n FROM t AGGREGATE JOIN q {} COMPUTE count(*) AS n {} WHERE n > 2"
    call = only(text.format("ON q.k = t.k", "WINDOW (t, q) BETWEEN -10 SECONDS AND 0 SECONDS TIME t.ts, q.ts"))
    assert call.options["on"] == "q.k = t.k"
    assert call.options["within"] == {("t", "q"): ("-10 SECONDS", "0 SECONDS")}
    assert call.options["time"] == {"t": "ts", "q": "ts"}
    call = only(text.format("", "WINDOW = 5 MINUTES TIME ts"))
    assert (call.options["on"], call.options["within"]) == (None, "5 MINUTES")
    window = "COMPUTE count(*) AS n WINDOW = 5 SECONDS TIME ts"
    assert only(f"SELECT n FROM t AGGREGATE JOIN (SELECT * FROM q) AS q {window}").options["on"] is None
    assert only(f"SELECT n FROM t AGGREGATE JOIN some.base q {window}").options["agg"] == {"n": "count(*)"}


def test_inner_leaves_rows_out():
    text = "SELECT 1 FROM t {} AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS n"
    assert only(text.format("INNER")).options["how"] == "inner"
    assert {only(text.format(side)).options["how"] for side in ("", "LEFT", "LEFT OUTER")} == {"left"}


def test_several_relations_on_the_left_are_one_input():
    call = only("SELECT n FROM t JOIN r ON t.k = r.k AGGREGATE JOIN q ON q.y <= r.z COMPUTE count(*) AS n")
    assert call.inputs[0].members == ("t", "r")
    assert call.options["by"] == call.inputs[0].alias == "t_r"
    assert call.options["on"] == "(`q`.`y` <= `t_r`.`r`.`z`)"


def test_a_table_may_be_called_aggregate():
    assert not uses_dialect(tokens_of("SELECT AGGREGATE.k FROM AGGREGATE, q"))
    assert uses_dialect(tokens_of("SELECT 1 FROM t AGGREGATE JOIN q ON t.k = q.k COMPUTE count(*) AS n"))
    assert read_query("SELECT aggregate(x, 0, (a, b) -> a + b) FROM AGGREGATE AS t JOIN q ON t.k = q.k") is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k", "COMPUTE is missing"),
        ("SELECT 1 FROM t AGGREGATE JOIN q COMPUTE count(*) AS n", "ON is missing"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*)", "AS is missing"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k COMPUTE", "an aggregate is missing"),
        ("SELECT 1 FROM t FULL AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS n", "FULL AGGREGATE JOIN"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS n, max(q.y) AS N", "two aggregates"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS X", "as a column on the left"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS n JOIN r ON t.k < r.z", "a join behind"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS n WINDOW = 5 SECONDS", "the time of t is"),
        ("SELECT 1 FROM t AGGREGATE JOIN q ON COMPUTE count(*) AS n", "is missing"),
        (
            "SELECT 1 FROM t JOIN r ON t.k = r.k AGGREGATE JOIN q ON q.k = t.k COMPUTE count(*) AS n "
            "WINDOW = 5 SECONDS TIME ts",
            "together with a WINDOW clause",
        ),
        ("SELECT 1 FROM t AGGREGATE JOIN q COMPUTE count(*) AS n WINDOW (t, z) = 5 SECONDS TIME ts", "z"),
        (
            "SELECT 1 FROM t AGGREGATE JOIN q COMPUTE count(*) AS n WINDOW = 5 SECONDS TIME ts SHED HARVEST",
            "together with",
        ),
    ],
)
def test_refusals(text, words):
    with pytest.raises(StatementError, match=words):
        only(text)

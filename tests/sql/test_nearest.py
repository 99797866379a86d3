"""``NEAREST JOIN``: what is read, which call it is, and what is refused."""

from __future__ import annotations

import pytest

from dovetail.errors import StatementError
from dovetail.statements.calls import Facts
from dovetail.statements.decide import decide, left_to_spark
from dovetail.statements.syntax.dialect import read_query, tokens_of, uses_dialect
from dovetail.statements.syntax.statement import read_statement

COLUMNS = {
    "r": ("k", "x", "y"), "s": ("k", "x", "y"), "u": ("k", "z"), "NEAREST": ("k", "x"), "d": ("x", "distance"),
}  # fmt: skip


def only(text: str):
    block = read_statement(text).blocks[-1]
    assert left_to_spark(block, text) is None
    columns = {relation.alias: COLUMNS[relation.alias] for relation in block.relations}
    (call,) = decide(block, text, Facts(columns)).calls
    return call


def test_the_call():
    call = only(
        "SELECT r.k, s.k, distance FROM r NEAREST 3 JOIN s ON s.k = r.k AND HYPOT(r.x - s.x, r.y - s.y) <= 5 "
        "TIES FIRST WHERE r.x > 3 AND s.x > 1"
    )
    assert call.family == "nearest"
    assert [one.alias for one in call.outputs] == ["r", "s"]
    assert call.options == {
        "on": "s.k = r.k AND HYPOT(r.x - s.x, r.y - s.y) <= 5", "k": 3, "ties": "first", "how": "inner",
    }  # fmt: skip
    # A condition on the left alone is applied first; one on the neighbours says which of them to show.
    assert len(call.moved) == 1
    assert call.inputs[0].conditions == ("(`r`.`x` > 3)",)
    assert call.inputs[1].conditions == ()


def test_a_window_of_time():
    call = only(
        "SELECT r.k, s.k FROM r NEAREST 3 JOIN s ON s.k = r.k AND ABS(r.x - s.x) TIES FIRST "
        "WINDOW (r, s) BETWEEN -10 AND 3 TIME y WHERE r.x > 3"
    )
    assert call.options == {
        "on": "s.k = r.k AND ABS(r.x - s.x)", "k": 3, "ties": "first", "how": "inner", "time": {"r": "y", "s": "y"},
        "window": {("r", "s"): (-10, 3)},
    }  # fmt: skip


def test_sides_and_defaults():
    text = "SELECT 1 FROM r {} JOIN s ON ABS(r.x - s.x)"
    assert only(text.format("NEAREST")).options["k"] == 1
    assert only(text.format("NEAREST")).options["ties"] == "all"
    assert {only(text.format(side)).options["how"] for side in ("NEAREST 2", "INNER NEAREST 2")} == {"inner"}
    assert {only(text.format(side)).options["how"] for side in ("LEFT NEAREST", "LEFT OUTER NEAREST 2")} == {"left"}


def test_several_relations_on_the_left_are_one_input():
    call = only("SELECT rank FROM r JOIN u ON r.k = u.k NEAREST JOIN s ON ABS(u.z - s.x) AND r.k = s.k")
    assert call.inputs[0].members == ("r", "u")
    assert call.options["on"] == "(`r_u`.`r`.`k` = `s`.`k`) AND (ABS(`r_u`.`u`.`z` - `s`.`x`))"


def test_a_table_may_be_called_nearest():
    assert not uses_dialect(tokens_of("SELECT NEAREST.k FROM NEAREST, s"))
    assert uses_dialect(tokens_of("SELECT 1 FROM r NEAREST JOIN s ON ABS(r.x - s.x)"))
    assert uses_dialect(tokens_of("SELECT 1 FROM r NEAREST 3 JOIN s ON ABS(r.x - s.x)"))
    assert read_query("SELECT nearest.k FROM nearest AS t JOIN s ON t.k = s.k") is not None
    assert only("SELECT 1 FROM NEAREST NEAREST 2 JOIN s ON ABS(NEAREST.x - s.x)").inputs[0].alias == "NEAREST"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT 1 FROM r NEAREST 2 JOIN s", "ON is missing"),
        ("SELECT 1 FROM r NEAREST few JOIN s ON ABS(r.x - s.x)", "a whole number is missing behind NEAREST"),
        ("SELECT 1 FROM r NEAREST 1.5 JOIN s ON ABS(r.x - s.x)", "a whole number is missing behind NEAREST"),
        ("SELECT 1 FROM r FULL NEAREST 2 JOIN s ON ABS(r.x - s.x)", "FULL NEAREST JOIN"),
        ("SELECT 1 FROM r NEAREST 2 JOIN s ON ABS(r.x - s.x) TIES", "a word behind TIES"),
        ("SELECT 1 FROM r NEAREST 2 JOIN s ON ABS(r.x - s.x) JOIN u ON r.k = u.k", "a join behind"),
        ("SELECT 1 FROM r NEAREST 2 JOIN d ON ABS(r.x - d.x)", "d has a column distance"),
        ("SELECT 1 FROM r NEAREST 2 JOIN s ON ABS(r.x - s.x) WINDOW = 5 SECONDS", "the time of r is not clear"),
        ("SELECT 1 FROM r NEAREST JOIN s ON ABS(r.x - s.x) WITHIN MEMORY 5 ROWS", "together with"),
        ("SELECT 1 FROM (r NEAREST 2 JOIN s ON ABS(r.x - s.x))", "in parentheses"),
    ],
)
def test_refusals(text, words):
    with pytest.raises(StatementError, match=words):
        only(text)

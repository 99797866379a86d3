"""What the dialect's parser reads, what it refuses, and where it points."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sql.papers import PRINTED

from dovetail.errors import StatementError
from dovetail.statements.syntax.dialect import read_query
from dovetail.statements.syntax.grammar import Agreeing, Extreme, Memory, Ordered, Shed, Time, Window
from dovetail.statements.syntax.statement import read_statement


def extras(tail: str):
    return read_query(f"SELECT * FROM A, B, C {tail}").meta["extras"]


def windows(tail: str) -> list[tuple]:
    return [(w.aliases, w.sizes, w.directed, w.both_ways, w.between) for w in extras(tail).windows]


def test_windows():
    assert windows("WINDOW = 1 HOUR") == [((), ("1 HOUR",), False, False, False)]
    assert windows("window=5") == [((), (5,), False, False, False)]
    assert windows("WINDOW (A,B) = 5 SECONDS AND WINDOW (B, C) = INTERVAL '10' SECONDS") == [
        (("A", "B"), ("5 SECONDS",), False, False, False),
        (("B", "C"), ("10 SECONDS",), False, False, False),
    ]
    assert windows("DWINDOW (A,B) = '5 s' AND DWINDOW (B,C) = 1 HOUR 30 MINUTES WHERE A.x = B.x") == [
        (("A", "B"), ("5 s",), True, False, False),
        (("B", "C"), ("1 HOUR 30 MINUTES",), True, False, False),
    ]
    assert windows("DWINDOW (A, B, C) = (5 s, 250ms) BOTH WAYS") == [
        (("A", "B", "C"), ("5 s", "250ms"), True, True, False)
    ]
    assert windows("WINDOW (A, B) BETWEEN -1 SECOND AND 5 SECONDS") == [
        (("A", "B"), ("-1 SECOND", "5 SECONDS"), False, False, True)
    ]
    assert windows("WINDOW (`A`, B) BETWEEN -1 AND 5s") == [(("A", "B"), (-1, "5s"), False, False, True)]


def test_times_and_memory():
    assert [(t.alias, t.column) for t in extras("WINDOW = 5 TIME ts").times] == [(None, "ts")]
    found = extras("WINDOW = 5 SECONDS TIME A.ts, B.`at`, C.t WHERE A.x = 1").times
    assert [(t.alias, t.column) for t in found] == [("A", "ts"), ("B", "at"), ("C", "t")]
    assert isinstance(found[0], Time)
    for text, amount, policy, seed in (
        ("WITHIN MEMORY 64 MB", "64 MB", None, None),
        ("WITHIN MEMORY 64MB SEED 3 POLICY raj", "64MB", "raj", 3),
        ("within memory '1 GiB' policy prob_hash", "1 GiB", "prob_hash", None),
        ("WITHIN MEMORY 10000 ROWS SEED 7", 10000, None, 7),
        ("WITHIN MEMORY 10000", 10000, None, None),
    ):
        memory = extras(text).memory
        assert isinstance(memory, Memory)
        assert (memory.amount, memory.policy, memory.seed) == (amount, policy, seed)


def test_shedding():
    assert extras("WINDOW = 5 SECONDS SHED HARVEST WHERE A.x = 1").shed == Shed(41, harvest=True)
    found = extras("WINDOW = 5 s SHED random drop SEED 7 TARGET 2 SECONDS THROTTLE 0.5").shed
    assert found == Shed(35, harvest=False, options={"seed": 7, "target": "2 SECONDS", "throttle": 0.5})
    every = (
        "SAMPLE 0.2 MEMORY 64 MB BASIC WINDOW 1 SECOND METHOD 'double-sided' METRIC output HISTOGRAMS pair "
        "KEEP selected BOOST 1.5 TARGET 3"
    )
    options = extras(f"WINDOW = 5 s SHED HARVEST {every}").shed.options
    assert options == {
        "sample_fraction": 0.2, "memory": "64 MB", "basic_window": "1 SECOND", "method": "double-sided",
        "metric": "output", "histograms": "pair", "keep": "selected", "boost": 1.5, "target": 3,
    }  # fmt: skip
    assert not read_query("SELECT shed.x FROM a shed JOIN b ON shed.x = b.x").meta["extras"]


def test_best_match():
    text = (
        "SELECT * FROM R FULL BESTMATCH JOIN S ON R.a minAttrDist S.a, S.b mine R.b + 1, MAXIMISE R.c * S.c, R.k = S.k"
    )
    (join,) = read_query(text).args["joins"]
    a, b, c, k = join.meta["best"].criteria
    assert isinstance(a, Ordered)
    assert isinstance(b, Ordered)
    assert (b.left.of(text), b.order, b.right.of(text)) == ("S.b", "mine", "R.b + 1")
    assert isinstance(c, Extreme)
    assert (c.expression.of(text), c.largest) == ("R.c * S.c", True)
    assert isinstance(k, Agreeing)
    assert not join.meta["best"].keep
    kept = read_query("SELECT * FROM R LEFT OUTER BESTMATCH JOIN S ON R.a subset S.a KEEP UNMATCHED WHERE R.a = 1")
    assert kept.args["joins"][0].meta["best"].keep


@pytest.mark.parametrize(
    "text",
    [
        "SELECT dwindow.within FROM dwindow AS within, bestmatch",
        "SELECT within FROM a within, time WHERE memory = 1",
        "SELECT minimize, sum(b) OVER w FROM maximize WINDOW w AS (PARTITION BY a ORDER BY b)",
        "SELECT window(ts, '5 seconds') FROM t GROUP BY window(ts, '5 seconds')",
        "SELECT a.window FROM window a",
        "SELECT bestmatch.x FROM a bestmatch JOIN b ON bestmatch.x = b.x",
    ],
)
def test_words_are_not_reserved(text):
    if "a bestmatch JOIN" in text:
        # Between a table and JOIN the word is the join: an alias of this name needs AS or backquotes.
        text = text.replace("a bestmatch", "a AS bestmatch")
    assert not any(block.extras or any(join.best for join in block.joins) for block in read_statement(text).blocks)


def test_a_window_of_spark_beside_ours():
    text = "SELECT sum(A.x) OVER w FROM A, B WINDOW = 5 SECONDS WHERE A.k = B.k WINDOW w AS (PARTITION BY A.k)"
    tree = read_query(text)
    assert isinstance(tree.meta["extras"].windows[0], Window)
    assert len(tree.args["windows"]) == 1


@pytest.mark.parametrize(
    ("text", "line", "at"),
    [
        ("SELECT A.x\nFROM A, B\nWINDOW = soon", 3, "soon"),
        ("SELECT A.x FROM A, B WINDOW (A) = 5 SECONDS", 1, "= 5"),
        ("SELECT A.x FROM A, B DWINDOW = 5 SECONDS", 1, "= 5"),
        ("SELECT A.x FROM A, B WINDOW (A, B = 5 SECONDS", 1, "= 5"),
        ("SELECT A.x FROM A, B WINDOW (A, B) = 5 SECONDS AND A.x = B.x", 1, "A.x = B.x"),
        ("SELECT * FROM R\nBESTMATCH JOIN S WHERE R.x = 1", 2, "WHERE"),
        ("SELECT * FROM R BESTMATCH JOIN S ON R.x, S.x", 1, ", S.x"),
        ("SELECT * FROM R BESTMATCH JOIN S ON R.x minAttrDist WHERE 1 = 1", 1, "WHERE"),
        ("SELECT * FROM R, S WITHIN MEMORY much", 1, "much"),
        ("SELECT * FROM R, S WITHIN MEMORY 5 SEED x", 1, "x"),
        ("SELECT *\nFROM R, S WINDOW = 5 s\nWHERE x = = 2", 3, "= 2"),
        ("SELECT * FROM A, B WINDOW = 5 s SHED HARVEST SEED 1 SEED 2", 1, "2"),
        ("SELECT * FROM R WHERE 'abc", 1, "'abc"),
        ("SELECT 1; SELECT 2", 1, "; SELECT 2"),
        ("INSERT INTO t SELECT 1", 1, "INSERT"),
    ],
)
def test_errors_point_at_the_place(text, line, at):
    with pytest.raises(StatementError) as caught:
        read_statement(text)
    given = caught.value.given.splitlines()
    assert given[0].startswith(f"SQL, line {line}: ")
    caret = len(given[2]) - 1
    assert given[2][caret] == "^"
    assert given[1][caret:].startswith(at)


def test_what_cannot_be_read_and_uses_no_clause_is_left_to_spark():
    statement = read_statement("SELECT *\nFROM R\nWHERE x = = 2")
    assert statement.blocks == ()
    assert str(statement.unread).startswith("SQL, line 3: ")


@pytest.mark.parametrize("text", ["", "  ;", None, 5, "SELECT (" * 3000])
def test_what_is_no_text_at_all(text):
    with pytest.raises(StatementError):
        read_statement(text)


VALID = [
    *(one.sql for one in PRINTED.values()),
    "WITH w AS (SELECT a, 'it''s' AS s FROM t /* note */) SELECT /*+ BROADCAST(w) */ * EXCEPT (a) FROM w "
    "ASOF LEFT JOIN q ON w.a = q.a AND w.ts >= q.ts WHERE EXISTS (SELECT 1 FROM z WHERE z.a = w.a) "
    "GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT 3",
    "SELECT * FROM A, B, C DWINDOW (A, B, C) = (5 s, 1 HOUR) BOTH WAYS TIME A.ts, B.ts, C.ts",
    "SELECT * FROM R JOIN S ON R.k = S.k WITHIN MEMORY 64 MB POLICY raj SEED 7 WHERE map('a', 1)['a'] < R.x",
]


@given(st.sampled_from(VALID), st.data())
def test_truncated_statements_give_our_error_or_a_statement(text, data):
    cut = text[: data.draw(st.integers(0, len(text)))]
    with contextlib.suppress(StatementError):
        read_statement(cut)


@given(st.sampled_from(VALID), st.data())
def test_mangled_statements_give_our_error_or_a_statement(text, data):
    words = text.split()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(words) - 1))
        words[at] = data.draw(
            st.sampled_from(["", ",", "(", ")", "ON", "WINDOW", "=", "SELECT", "'", "`", "5", "*", *words])
        )
    with contextlib.suppress(StatementError):
        read_statement(" ".join(words))

"""Which joins are taken, and as which call."""

from __future__ import annotations

from datetime import timedelta

import pytest

import dovetail as dt
from dovetail.conditions.criteria import Closest, Extreme, Overlap, Prefer, Youngest
from dovetail.errors import ArgumentError, DovetailError, PredicateError, StatementError, UnboundedJoinError
from dovetail.statements.calls import Facts
from dovetail.statements.decide import Decision, decide, left_to_spark
from dovetail.statements.syntax.statement import read_statement

COLUMNS = {
    name: ("k", "x", "y", "ts", f"only_{name.lower()}") for name in ("A", "B", "C", "R", "S", "T")
}  # fmt: skip
STAMPS = dict.fromkeys(COLUMNS, ("ts",))


def decided(text: str, **changes) -> Decision:
    block = read_statement(text).blocks[-1]
    why = left_to_spark(block, text)
    if why is not None:
        return Decision((), why)
    columns = {one.alias: COLUMNS[one.alias.upper()] for one in block.relations if one.separate}
    return decide(block, text, Facts(**{"columns": columns, "timestamps": STAMPS, **changes}))


def only(text: str, **changes):
    (call,) = decided(text, **changes).calls
    return call


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT 1 FROM A", "no join"),
        ("SELECT 1 FROM A JOIN B ON A.k = B.k", "only equalities"),
        ("SELECT 1 FROM A JOIN B ON A.k = B.k AND A.x < B.x", "an equality connects all of A, B"),
        ("SELECT 1 FROM A, B WHERE A.k = B.k AND A.x < B.x", "an equality connects"),
        ("SELECT 1 FROM A, B WHERE A.x < 5", "a product"),
        ("SELECT 1 FROM A, B, C WHERE A.x < B.x", "a product"),
        ("SELECT 1 FROM A LEFT JOIN B ON A.k = B.k AND A.x < B.x", "every join has an equality"),
        ("SELECT 1 FROM A JOIN B USING (k) WHERE A.x < B.x", "every join has an equality or only Spark"),
        ("SELECT 1 FROM A JOIN B ON A.x < (SELECT max(x) FROM C) AND A.x < B.y", "only Spark can evaluate"),
        ("SELECT 1 FROM A, LATERAL (SELECT A.x AS y) B WHERE A.x < B.y", "a lateral"),
        ("SELECT 1 FROM A CROSS JOIN LATERAL (SELECT A.x AS y) B LEFT JOIN C ON A.x < C.x", "only Spark can do it"),
    ],
)
def test_what_stays_with_spark(text, why):
    found = decided(text)
    assert not found.calls
    assert why in found.why


def test_inequalities_wherever_they_stand():
    assert only("SELECT 1 FROM A JOIN B ON A.x < B.x").options == {"on": "A.x < B.x"}
    text = "SELECT 1 FROM A, B WHERE A.x < B.x AND (only_a > 1 OR B.y = 2) AND EXISTS (SELECT 1 FROM C WHERE C.x < A.x)"
    call = only(text)
    assert call.options["on"] == "A.x < B.x AND (only_a > 1 OR B.y = 2)"
    assert len(call.moved) == 2
    assert only("SELECT 1 FROM A CROSS JOIN B WHERE ABS(A.x - B.x) <= 1").family == "theta"
    three = only("SELECT 1 FROM A JOIN B ON A.x >= B.x JOIN C ON B.x < C.x")
    assert [one.alias for one in three.inputs] == ["A", "B", "C"]


def test_equalities_are_joined_by_spark_first():
    call = only(
        "SELECT 1 FROM A, B, C WHERE A.k = B.k AND A.y > B.y AND B.x < C.x AND A.x = 3 AND C.x = 4 AND A.x+B.x <> C.x"
    )
    group, single = call.inputs
    assert (group.alias, group.members, single.alias) == ("A_B", ("A", "B"), "C")
    assert set(group.conditions) == {"(`A`.`k` = `B`.`k`)", "(`B`.`y` < `A`.`y`)", "(`A`.`x` = 3)"}
    assert call.options["on"] == (
        "(`A_B`.`B`.`x` < `C`.`x`) AND (`C`.`x` = 4) AND (`A_B`.`A`.`x`+`A_B`.`B`.`x` <> `C`.`x`)"
    )
    forced = only("SELECT /*+ DOVETAIL */ 1 FROM A JOIN B ON A.k = B.k AND A.x < B.x")
    assert forced.options == {"on": "A.k = B.k AND A.x < B.x"}


def test_outer_joins_on_inequalities():
    for words, how in (("LEFT", "left"), ("FULL OUTER", "full"), ("LEFT ANTI", "anti"), ("RIGHT", "right")):
        call = only(f"SELECT 1 FROM A {words} JOIN B ON A.x < B.x WHERE A.y > 1")
        assert call.options == {"on": "A.x < B.x", "how": how}
        # What concerns rows that the join keeps apart may come first.
        assert call.inputs[0].conditions == (("(`A`.`y` > 1)",) if how in ("left", "anti") else ())
        assert bool(call.moved) == (how in ("left", "anti"))
    assert not only("SELECT 1 FROM A LEFT JOIN B ON A.x < B.x WHERE B.y > 1").moved
    chained = only("SELECT 1 FROM A JOIN B ON A.k = B.k LEFT JOIN C ON B.x < C.x AND A.y < C.y")
    assert chained.options["on"] == "(`A_B`.`B`.`x` < `C`.`x`) AND (`A_B`.`A`.`y` < `C`.`y`)"
    assert chained.inputs[0].prefix is not None
    assert only("SELECT /*+ BROADCAST(b) */ 1 FROM A LEFT JOIN B ON A.x < B.x").options["broadcast"] == "B"


def test_streams_need_a_window():
    streams = frozenset("AB")
    with pytest.raises(UnboundedJoinError, match="WINDOW = 10 SECONDS"):
        decided("SELECT 1 FROM A, B WHERE A.x < B.x", streams=streams)
    with pytest.raises(UnboundedJoinError):
        decided("SELECT 1 FROM A LEFT JOIN B ON A.x < B.x", streams=streams)
    assert only("SELECT 1 FROM A, B WHERE A.x < B.x", streams=frozenset("A")).family == "theta"


def test_windows():
    call = only("SELECT 1 FROM A, B, C WINDOW = 1 HOUR WHERE A.k = B.k AND B.k = C.k AND A.x > 3 AND rand() < 1")
    assert call.options == {
        "on": "A.k = B.k AND B.k = C.k AND A.x > 3",
        "time": {"A": "ts", "B": "ts", "C": "ts"},
        "within": "1 HOUR",
        "how": "inner",
    }
    assert len(call.moved) == 3
    call = only("SELECT 1 FROM A, B, C DWINDOW (a,B) = 5 s AND WINDOW (B,C) BETWEEN -1 s AND 2 s TIME A.x, B.y, C.x")
    assert call.options["within"] == {("A", "B"): dt.after("5 s"), ("B", "C"): ("-1 s", "2 s")}
    assert call.options["time"] == {"A": "x", "B": "y", "C": "x"}
    assert call.options["on"] is None
    hops = only("SELECT 1 FROM A, B, C DWINDOW (A, B, C) = (5, 6) TIME x")
    assert hops.options["within"] == {("A", "B"): dt.after(5), ("B", "C"): dt.after(6)}
    both = only("SELECT 1 FROM A, B, C DWINDOW (A, B, C) = 5 s BOTH WAYS")
    assert both.options["within"] == dt.path("A -> B -> C", "5 s", both_ways=True)
    left = only("SELECT 1 FROM A LEFT JOIN B ON A.k = B.k WINDOW = 5 s WHERE B.x > 1")
    assert (left.options["on"], left.options["how"], left.moved) == ("A.k = B.k", "left", frozenset())


def test_a_table_among_streams_has_no_time():
    text = "SELECT 1 FROM A JOIN B ON A.k = B.k LEFT JOIN C ON B.k = C.k WINDOW = 5 s"
    streams = {"streams": frozenset("AB"), "watermarked": {"A": ("ts",), "B": ("ts",)}}
    call = only(text, **streams)
    assert (call.options["time"], call.options["how"]) == ({"A": "ts", "B": "ts"}, {"C": "optional"})
    assert only(f"{text} TIME x", **streams).options["time"] == {"A": "x", "B": "x"}
    # What TIME names has a time, which the call then refuses.
    assert only(f"{text} TIME C.x", **streams).options["time"] == {"A": "ts", "B": "ts", "C": "x"}


def test_further_inputs_that_may_be_missing():
    chain = "SELECT 1 FROM A JOIN B ON A.k = B.k LEFT JOIN C ON B.k = C.k AND C.x > 1 WINDOW = 5 s WHERE C.x > 2"
    call = only(chain)
    assert call.options["how"] == {"C": "optional"}
    assert call.options["on"] == "A.k = B.k AND B.k = C.k AND C.x > 1"
    assert not call.moved
    call = only("SELECT 1 FROM A LEFT ANTI JOIN B ON A.k = B.k LEFT SEMI JOIN C ON A.k = C.k WINDOW = 5 s")
    assert call.options["how"] == {"B": "absent", "C": "present"}
    assert [one.alias for one in call.outputs] == ["A"]


@pytest.mark.parametrize(
    "joins",
    [
        "LEFT JOIN B ON A.k = B.k LEFT JOIN C ON B.k = C.k",
        "LEFT JOIN B ON A.k = B.k JOIN C ON B.k = C.k",
        "LEFT JOIN B ON A.k = B.k AND A.x > 1 JOIN C ON A.k = C.k",
        "LEFT JOIN B ON A.k = B.k AND rand() < 1 JOIN C ON A.k = C.k",
    ],
)
def test_chains_that_no_window_join_is(joins):
    with pytest.raises(StatementError, match="a condition of this"):
        only(f"SELECT 1 FROM A {joins} WINDOW = 5 s")


def test_a_full_join_among_several_windows():
    with pytest.raises(StatementError, match="a full join among 3 inputs"):
        only("SELECT 1 FROM A FULL JOIN B ON A.k = B.k JOIN C ON A.k = C.k WINDOW = 5 s")


def test_the_time_of_a_window():
    text = "SELECT 1 FROM A, B WINDOW = 5 SECONDS WHERE A.k = B.k"
    both = {"A": ("ts", "ts2"), "B": ("ts",)}
    assert only(text, timestamps=both, watermarked={"A": ("ts2",)}).options["time"] == {"A": "ts2", "B": "ts"}
    with pytest.raises(StatementError, match="the time of A is not clear: it has the timestamps ts, ts2"):
        decided(text, timestamps=both)
    with pytest.raises(StatementError, match="has no column of type timestamp"):
        decided(text, timestamps={})


def test_best_match():
    call = only(
        """SELECT 1 FROM R LEFT OUTER BESTMATCH JOIN S ON R.ts minAttrDist S.ts, S.x minAttrDist R.y,
           MINIMIZE R.x + S.x, R.k subset S.k, R.ts youngest S.ts, R.k = S.k KEEP UNMATCHED
           WHERE ABS(S.ts - R.ts) <= INTERVAL 10 MINUTES AND ABS(R.y - S.x) <= 5 AND R.y > 1 AND S.y > 1"""
    )
    near, cross, least, common, young = call.options["on"]
    assert near == Closest("ts", "ts", timedelta(minutes=10))
    assert cross == Closest("y", "x", 5)
    assert least == Extreme("`R`.`x` + `S`.`x`", largest=False)
    assert (common, young) == (Overlap("k", "k"), Youngest("ts", "ts"))
    assert {key: call.options[key] for key in ("how", "by", "unmatched")} == {
        "how": "left", "by": ["k"], "unmatched": "keep",
    }  # fmt: skip
    assert call.inputs[0].conditions == ("(`R`.`y` > 1)",)
    assert len(call.moved) == 3  # S.y > 1 is about the pairs that come out

    chained = only("SELECT 1 FROM A JOIN B ON A.k = B.k BESTMATCH JOIN S ON B.x minAttrDist S.x, A.k = S.k")
    assert chained.options["on"] == [Closest("__key_0", "x")]
    assert chained.inputs[0].keys == (("__key_0", "`B`.`x`"), ("__by_1", "`A`.`k`"))
    assert chained.inputs[1].keys == (("__by_1", "`S`.`k`"),)


def test_registered_orders():
    def judge(p, q):
        return "better" if p[0] == p[1] else "worse"

    dt.register_order("shade", judge)
    dt.register_order("ratio", "abs(a - b) / greatest(A, B)", largest=True)
    function, ratio = only("SELECT 1 FROM R BESTMATCH JOIN S ON S.x Shade R.y, R.x ratio S.y").options["on"]
    assert isinstance(function, Prefer)
    assert str(function) == "prefer R.y shade S.x"
    assert function.judge({"R": {"y": 1}, "S": {"x": 1}}, {"R": {"y": 1}, "S": {"x": 2}}) == "better"
    assert ratio == Extreme("abs(`R`.`x` - `S`.`y`) / greatest(`R`.`x`, `S`.`y`)", largest=True)
    with pytest.raises(StatementError, match=r"the order 'shady' is unknown[^$]*did you mean 'shade'"):
        decided("SELECT 1 FROM R BESTMATCH JOIN S ON R.x shady S.x")
    for name, order in (("two words", judge), ("minattrdist", judge), ("x", 5)):
        with pytest.raises(ArgumentError):
            dt.register_order(name, order)
    with pytest.raises(ArgumentError):
        dt.register_order("x", judge, largest=True)
    with pytest.raises(DovetailError):
        dt.register_order("x", "abs(a - c)")
    with pytest.raises(PredicateError):
        dt.register_order("x", "abs(a)")


def test_as_of():
    call = only("SELECT 1 FROM R ASOF JOIN S ON R.k = S.k AND R.ts >= S.ts WHERE R.x > 1 AND S.x > 1")
    assert call.options == {
        "direction": "backward",
        "allow_exact_matches": True,
        "time": {"R": "ts", "S": "ts"},
        "by": {"R": ["k"], "S": ["k"]},
        "how": "inner",
    }
    assert call.inputs[0].conditions == ("(`R`.`x` > 1)",)
    ahead = only(
        "SELECT 1 FROM R ASOF LEFT JOIN S ON R.ts < S.ts AND S.ts - R.ts <= INTERVAL 5 SECONDS AND S.x > 1"
    ).options
    assert (ahead["direction"], ahead["allow_exact_matches"], ahead["how"]) == ("forward", False, "left")
    assert ahead["within"] == timedelta(seconds=5)
    for text in ("R.x - S.y <= 5", "S.y - R.x >= -5", "ABS(R.x - S.y) <= 5"):
        assert only(f"SELECT 1 FROM R ASOF JOIN S ON S.y <= R.x AND {text}").options["within"] == 5
    nearest = only("SELECT 1 FROM R ASOF JOIN S ON ABS(R.x - S.y) <= 5").options
    assert (nearest["direction"], nearest["within"], nearest["time"]) == ("nearest", 5, {"R": "x", "S": "y"})
    further = only(
        "SELECT 1 FROM R ASOF LEFT JOIN S ON R.x > S.x AND R.ts >= S.ts AND R.y = 1 AND S.y - R.y < 5"
    ).options
    assert further["time"] == {"R": "ts", "S": "ts"}, "of several inequalities that of the timestamps"
    assert further["on"] == "(`S`.`x` < `R`.`x`) AND (`S`.`y` - `R`.`y` < 5) AND (`R`.`y` = 1)"
    plain = only("SELECT 1 FROM R ASOF JOIN S ON R.y > S.y AND R.x >= S.x AND R.y = 1 AND R.k <=> S.k")
    assert plain.options["time"] == {"R": "y", "S": "y"}, "the first where none compares timestamps"
    assert plain.options["on"] == "(`R`.`k` <=> `S`.`k`) AND (`S`.`x` <= `R`.`x`)"
    assert plain.inputs[0].conditions == ("(`R`.`y` = 1)",)
    said = only("SELECT 1 FROM R ASOF JOIN S MATCH_CONDITION (R.x >= S.x) ON R.k = S.k AND R.ts > S.ts").options
    assert (said["time"], said["on"]) == ({"R": "x", "S": "x"}, "(`S`.`ts` < `R`.`ts`)")
    for words, how in (
        ("ASOF RIGHT", "right"), ("RIGHT ASOF", "right"), ("ASOF FULL OUTER", "full"), ("FULL OUTER ASOF", "full"),
        ("ASOF SEMI", "semi"), ("LEFT SEMI ASOF", "semi"), ("SEMI ASOF", "semi"), ("ASOF LEFT ANTI", "anti"),
        ("ANTI ASOF", "anti"), ("ASOF INNER", "inner"), ("LEFT OUTER ASOF", "left"),
    ):  # fmt: skip
        call = only(f"SELECT 1 FROM R {words} JOIN S USING (k, ts) WHERE R.x > 1")
        wanted = {"direction": "backward", "time": {"R": "ts", "S": "ts"}, "by": {"R": ["k"], "S": ["k"]}, "how": how}
        assert call.options == wanted
        # Rows of S without a match have no R.x, so the condition must not be taken before they are known.
        assert bool(call.moved) == (how not in ("right", "full"))
    first, second = decided("SELECT 1 FROM R ASOF JOIN S ON R.ts >= S.ts ASOF JOIN T ON S.x + 1 >= T.x").calls
    assert [one.alias for one in first.inputs] == ["R", "S"]
    assert (second.inputs[0].alias, second.options["time"]) == ("R_S", {"R_S": "__key_0", "T": "x"})
    assert second.inputs[0].keys == (("__key_0", "`S`.`x` + 1"),)


def test_shedding():
    call = only("SELECT 1 FROM A, B WINDOW = 5 SECONDS SHED HARVEST THROTTLE 0.5 SEED 3 WHERE A.k = B.k")
    assert call.options["shed"] == dt.Harvest(throttle=0.5, seed=3)
    call = only("SELECT 1 FROM A, B WINDOW = 5 SECONDS SHED RANDOM DROP TARGET 1500 ms WHERE A.k = B.k")
    assert call.options["shed"] == dt.RandomDrop(target=1.5)


def test_memory():
    call = only("SELECT 1 FROM R JOIN S ON R.k = S.k WITHIN MEMORY 64 MB POLICY RAJ SEED 7 RESULTS 500 WHERE R.x < 3")
    limits = {"memory": "64 MB", "policy": "raj", "seed": 7, "results": 500}
    assert call.options == {"on": "R.k = S.k AND R.x < 3"} | limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1 FROM A WINDOW = 5 SECONDS", "a window of one input"),
        ("SELECT 1 FROM A, B WINDOW (A, Q) = 5 SECONDS", "names the input 'Q'"),
        ("SELECT 1 FROM A, B WINDOW (A, A) = 5 SECONDS", "a window to itself"),
        ("SELECT 1 FROM A, B WINDOW (A, B) = 5 s AND WINDOW (A, B) = 6 s", "two windows"),
        ("SELECT 1 FROM A, B WINDOW = 5 s AND WINDOW (A, B) = 6 s", "for all inputs together with"),
        ("SELECT 1 FROM A, B, C DWINDOW (A, B, C) = (5 s, 6 s, 7 s)", "2 hop(s) and 3 lengths"),
        ("SELECT 1 FROM A, B, C DWINDOW (A, B) = 5 s BOTH WAYS AND WINDOW (B, C) = 5 s", "BOTH WAYS with"),
        ("SELECT 1 FROM A, B WINDOW = 5 s TIME Q.ts", "TIME names the input 'Q'"),
        ("SELECT 1 FROM A, B WINDOW = 5 s WITHIN MEMORY 5", "WITHIN MEMORY together with"),
        ("SELECT 1 FROM A RIGHT JOIN B ON A.k = B.k JOIN C ON A.k = C.k WINDOW = 5 s", "a right join among 3"),
        ("SELECT 1 FROM A JOIN B USING (k) WINDOW = 5 s", "NATURAL, USING"),
        ("SELECT 1 FROM A ASOF JOIN B ON A.x > B.x WINDOW = 5 s", "ASOF JOIN together with"),
        ("SELECT 1 FROM A, B SHED HARVEST WHERE A.k = B.k", "SHED without a WINDOW clause"),
        ("SELECT 1 FROM A, B WINDOW = 5 s SHED HARVEST THROTTLE 2", "throttle=2.0"),
        ("SELECT 1 FROM A, B WITHIN MEMORY 5", "without a condition"),
        ("SELECT 1 FROM A LEFT JOIN B ON A.k = B.k WITHIN MEMORY 5", "a left join within memory"),
        ("SELECT 1 FROM A ASOF RIGHT SEMI JOIN B ON A.x > B.x", "ASOF RIGHT SEMI JOIN"),
        ("SELECT 1 FROM A ASOF JOIN B ON A.k = B.k", "without an inequality"),
        ("SELECT 1 FROM A ASOF JOIN B", "without ON"),
        ("SELECT 1 FROM A ASOF JOIN B USING (k, none)", "which 0 columns of one side are called"),
        ("SELECT 1 FROM (A ASOF JOIN B ON A.x > B.x) JOIN C ON A.k = C.k", "in parentheses"),
        ("FROM A ASOF JOIN B ON A.x > B.x SELECT 1", "before SELECT"),
        ("FROM A ASOF JOIN B ON A.x > B.x |> SELECT A.x", "in a pipe"),
        ("SELECT 1 FROM A ASOF JOIN B ON ABS(A.x - B.x) <= 5 AND ABS(A.y - B.y) <= 5", "without an inequality"),
        ("SELECT 1 FROM R BESTMATCH JOIN S ON R.x minAttrDist R.y", "both sides of this are the same input"),
        ("SELECT 1 FROM R BESTMATCH JOIN S ON R.x + S.x minAttrDist S.y", "not an expression over one input"),
        ("SELECT 1 FROM R BESTMATCH JOIN S ON R.x minAttrDist S.x WHERE ABS(R.x - S.x) < 5", "no maximum distance"),
    ],
)
def test_refusals_point_at_the_place(text, message):
    with pytest.raises(StatementError) as caught:
        decided(text)
    assert message in str(caught.value)
    assert caught.value.given.splitlines()[2].endswith("^")


def test_recursive_definitions_are_sparks():
    text = "WITH RECURSIVE r AS (SELECT 1 FROM A, B WINDOW = 5 s) SELECT 1 FROM r"
    with pytest.raises(StatementError, match="inside WITH RECURSIVE"):
        left_to_spark(read_statement(text).blocks[0], text)
    text = "WITH RECURSIVE r AS (SELECT 1 FROM A, B WHERE A.x < B.x) SELECT 1 FROM r"
    assert left_to_spark(read_statement(text).blocks[0], text) == "part of a recursive definition"

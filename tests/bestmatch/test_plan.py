"""What the planner makes of criteria, without Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from dovetail.conditions import criteria
from dovetail.conditions.comparison import Key
from dovetail.conditions.criteria import closest, least, most, overlap, prefer, youngest
from dovetail.conditions.tokens import read
from dovetail.errors import ArgumentError, UnboundedJoinError
from dovetail.families.bestmatch.spec import Axis, Options
from dovetail.families.bestmatch.stream import BestKernel
from dovetail.families.bestmatch.terms import Sum, split_sum
from dovetail.plan.bestmatch import STREAM_CELLS, Facts, Stream, Typed, plan_bestmatch

COLUMNS = {"R": ["t", "x", "cost"], "S": ["t", "x", "cost"]}
NAMES = tuple(COLUMNS["R"])
TYPES = (pa.timestamp("us"), pa.float64(), pa.int64())


def key(name: str) -> tuple[Key, Key]:
    return Key(f"`R`.`{name}`", "DOUBLE", "R"), Key(f"`S`.`{name}`", "DOUBLE", "S")


T10 = Typed(closest("t", within="10 seconds"), Axis("near_int", within=10_000_000), key("t"), watermarked=True)
X5 = Typed(closest("x", within=5), Axis("near_float", within=5.0), key("x"))
X = Typed(closest("x"), Axis("near_float"), key("x"))
PRODUCT = Typed(least("R.cost * S.cost"), Axis("given", kind="int"), value="`R`.`cost` * `S`.`cost`")


def planned(
    *typed: Typed, streams: str = "", by: bool = False, options: Options | None = None, stream: Stream | None = None
):
    keys = (("rank", Key("`R`.`k`", "STRING", "R"), Key("`S`.`k`", "STRING", "S")),) if by else ()
    marks = key("t") if stream is not None and stream.punctuation else None
    facts = Facts(frozenset(streams), (NAMES, NAMES), (TYPES, TYPES), keys, marks, key("t"), bool(streams), 4)
    return plan_bestmatch(("R", "S"), typed, facts, options or Options("left"), stream or Stream(), sample=True)


def test_a_stream_is_ordered_by_what_carries_a_watermark():
    plan = planned(X5, T10, streams="RS")
    assert (plan.spec.order, plan.spec.disorder) == (1, "watermark")
    assert plan.cells == STREAM_CELLS  # strips of x
    assert planned(T10, streams="RS").cells == 1
    assert planned(T10, streams="RS", by=True).cells == STREAM_CELLS
    assert planned(X5, T10, streams="RS", options=Options("full")).cells == 1
    assert planned(T10, X5, streams="RS", stream=Stream(read_ahead=3)).spec.ahead == 3
    assert planned(X5, T10, streams="RS", stream=Stream(order="t", read_ahead=3)).spec.order == 1
    marked = planned(X5, T10, streams="RS", stream=Stream(punctuation="t"))
    assert (marked.spec.order, marked.spec.disorder, len(marked.keys[0])) == (0, "marks", 3)
    assert "a mark in the other stream has passed its last candidate" in marked.text()


def test_the_same_call_on_static_inputs_has_no_order():
    plan = planned(X5, T10, stream=Stream(read_ahead=3))
    assert (plan.spec.order, plan.spec.disorder) == (None, None)


def test_a_plan_travels():
    plan = planned(T10, X5, streams="RS")
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    BestKernel(again.spec).restore({}, None)


@pytest.mark.parametrize(
    ("typed", "more", "kind", "words"),
    [
        ((X,), {"streams": "RS"}, UnboundedJoinError, "maximum distance"),
        ((X5,), {"streams": "RS"}, UnboundedJoinError, "how far the streams"),
        ((T10,), {"streams": "R"}, ArgumentError, "beside the static input S"),
        ((T10, PRODUCT), {"streams": "RS"}, ArgumentError, "only Spark can evaluate"),
        ((X5,), {"streams": "RS", "stream": Stream(order="y")}, ArgumentError, "order='y'"),
    ],
)
def test_what_cannot_run_is_refused(typed, more, kind, words):
    with pytest.raises(kind, match=words):
        planned(*typed, **more)


def test_streams_say_what_they_take():
    for arguments in (
        {"read_ahead": 0},
        {"read_ahead": 2, "punctuation": "p"},
        {"every": 5},
        {"max_age": 5, "order": "t"},
    ):
        with pytest.raises(ArgumentError):
            Stream(**arguments)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("R.cost + S.cost", Sum("`R`.`cost`", "`S`.`cost`")),
        ("S.cost - R.cost", Sum("-(`R`.`cost`)", "`S`.`cost`")),
        ("R.cost * 2 + R.x - abs(S.cost)", Sum("`R`.`cost` * 2 + `R`.`x`", "-(abs(`S`.`cost`))")),
        ("S.cost", Sum(None, "`S`.`cost`")),
        (
            "CASE WHEN R.x > 1 THEN R.x ELSE R.cost END",
            Sum("CASE WHEN `R`.`x` > 1 THEN `R`.`x` ELSE `R`.`cost` END", None),
        ),
        ("R.cost + S.cost + R.x", None),
        ("R.cost * S.cost", None),
        ("abs(R.x - S.x)", None),
        ("R.cost + S.cost > 1", None),
        ("R.cost - S.cost | 1", None),
        ("-R.cost + S.cost", Sum("-`R`.`cost`", "`S`.`cost`")),
    ],
)
def test_sums_are_recognised(text, found):
    assert split_sum(read(text, COLUMNS), ("R", "S")) == found


def test_criteria_check_themselves():
    assert [str(one) for one in (closest("a", "b"), least("x"), most("y"), overlap("s"), youngest("t"))] == [
        "closest a ~ b", "least x", "most y", "overlap of s", "youngest t",
    ]  # fmt: skip
    for make in (
        lambda: closest(""), lambda: closest(5), lambda: closest("x", within=-1), lambda: closest("x", within=True),
        lambda: closest("x", within=float("nan")), lambda: least(" "), lambda: most(3), lambda: overlap(None),
        lambda: prefer("no function"), lambda: youngest("t", 4),
    ):  # fmt: skip
        with pytest.raises(ArgumentError):
            make()
    assert set(criteria.__all__) >= {"closest", "least", "most", "overlap", "prefer", "youngest"}

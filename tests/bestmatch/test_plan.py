"""What the planner makes of criteria, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from dovetail.conditions import criteria
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.criteria import Criterion, closest, least, most, overlap, prefer, youngest
from dovetail.conditions.sums import Sum, split_sum
from dovetail.conditions.tokens import read
from dovetail.errors import ArgumentError, UnboundedJoinError, UnsupportedTypeError
from dovetail.families.bestmatch.spec import Axis, Options
from dovetail.families.bestmatch.stream import BestKernel
from dovetail.plan.bestmatch import STREAM_CELLS, Facts, StreamOptions, plan_bestmatch
from dovetail.plan.bestmatch_criteria import ColumnPair, CriterionFacts, Expression, ValueType, typed

COLUMNS = {"R": ["t", "x", "cost"], "S": ["t", "x", "cost"]}
NAMES = tuple(COLUMNS["R"])
TYPES = (pa.timestamp("us"), pa.float64(), pa.int64())


def columns(name: str, kind: str, common: KeyType, watermarked: bool = False) -> ColumnPair:
    sql = f"`R`.`{name}`", f"`S`.`{name}`"
    return ColumnPair(("R", "S"), (name, name), sql, (kind, kind), common, watermarked)


NUMBER, TIME = KeyType("DOUBLE", "float64"), KeyType("TIMESTAMP", "int", micros=1)
Known = tuple[Criterion, CriterionFacts]
T10 = closest("t", within="10 seconds"), columns("t", "timestamp", TIME, True)
X5 = closest("x", within=5), columns("x", "double", NUMBER)
X = closest("x"), columns("x", "double", NUMBER)
PRODUCT = least("R.cost * S.cost"), Expression(("R", "S"), "`R`.`cost` * `S`.`cost`", ValueType("bigint", "whole"))


def planned(
    *known: Known,
    streams: str = "",
    by: bool = False,
    options: Options | None = None,
    stream: StreamOptions | None = None,
):
    stream = stream or StreamOptions()
    facts = Facts(
        frozenset(streams),
        (NAMES, NAMES),
        (TYPES, TYPES),
        tuple(facts for _, facts in known),
        by=(columns("k", "string", KeyType("STRING", "rank")),) if by else (),
        punctuation=columns("t", "timestamp", TIME) if stream.punctuation else None,
        times=columns("t", "timestamp", TIME, bool(streams)) if stream.time else None,
        shuffle_partitions=4,
    )
    given = [criterion for criterion, _ in known]
    return plan_bestmatch(("R", "S"), given, facts, options or Options("left"), stream, sample=True)


def test_a_stream_is_ordered_by_what_carries_a_watermark():
    plan = planned(X5, T10, streams="RS")
    assert (plan.spec.order, plan.spec.disorder) == (1, "watermark")
    assert plan.cells == STREAM_CELLS  # strips of x
    assert planned(T10, streams="RS").cells == 1
    assert planned(T10, streams="RS", by=True).cells == STREAM_CELLS
    assert planned(X5, T10, streams="RS", options=Options("full")).cells == 1
    assert planned(T10, X5, streams="RS", stream=StreamOptions(read_ahead=3)).spec.ahead == 3
    assert planned(X5, T10, streams="RS", stream=StreamOptions(order="t", read_ahead=3)).spec.order == 1
    marked = planned(X5, T10, streams="RS", stream=StreamOptions(punctuation="t"))
    assert (marked.spec.order, marked.spec.disorder, len(marked.keys[0])) == (0, "marks", 3)
    assert "punctuation in the other stream has passed its last candidate" in marked.text()


def test_a_lateness_counts_in_the_unit_of_its_criterion():
    plan = planned(X5, T10, streams="RS", stream=StreamOptions(lateness=2.5))
    assert (plan.spec.order, plan.spec.disorder, plan.spec.lateness, plan.cells) == (0, "value", 2.5, 1)
    assert "the largest value of the other stream, less its lateness, has passed its last candidate" in plan.text()
    assert plan.identity()["order of the streams"] == "value, at most 2.5 behind"
    timed = planned(X5, T10, streams="RS", stream=StreamOptions(order="t", lateness="3 seconds"))
    assert (timed.spec.order, timed.spec.lateness) == (1, 3_000_000)
    for given, order in (("3 seconds", None), (3, "t")):
        with pytest.raises(ArgumentError, match=r"the column holds .*lateness="):
            planned(X5, T10, streams="RS", stream=StreamOptions(order=order, lateness=given))
    grid = planned(X5, T10, streams="RS", stream=StreamOptions(lateness="grid"))
    assert (grid.spec.disorder, grid.cells) == ("grid", 1)
    assert "the cell that the other stream has come to" in grid.text()


def test_the_same_call_on_static_inputs_has_no_order():
    plan = planned(X5, T10, stream=StreamOptions(read_ahead=3))
    assert (plan.spec.order, plan.spec.disorder) == (None, None)


def test_a_plan_travels():
    plan = planned(T10, X5, streams="RS")
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    BestKernel(again.spec).restore({}, None)


@pytest.mark.parametrize(
    ("known", "more", "kind", "words"),
    [
        ((X,), {"streams": "RS"}, UnboundedJoinError, "maximum distance"),
        ((X5,), {"streams": "RS"}, UnboundedJoinError, "how far the streams"),
        ((T10,), {"streams": "R"}, ArgumentError, "together with the static input S"),
        ((T10, PRODUCT), {"streams": "RS"}, ArgumentError, "only Spark can evaluate"),
        ((X5,), {"streams": "RS", "stream": StreamOptions(order="y")}, ArgumentError, "order='y'"),
    ],
)
def test_what_cannot_run_is_refused(known, more, kind, words):
    with pytest.raises(kind, match=words):
        planned(*known, **more)


def test_punctuation_has_the_type_of_what_orders_the_streams():
    plan = planned(X5, T10, streams="RS", stream=StreamOptions(order="t", punctuation="t"))
    assert plan.keys[0][-1].ddl == "TIMESTAMP"


def test_only_rows_of_an_age_take_part():
    plan = planned(X5, stream=StreamOptions(max_age=5, time="t"))
    assert [key.ddl for key in plan.keys[0]] == ["DOUBLE", "TIMESTAMP"]


@pytest.mark.parametrize(
    ("left", "right", "common", "axis", "ddls"),
    [
        ("whole", "whole", None, Axis("sum_int"), ["BIGINT", "BIGINT"]),
        ("double", "whole", None, Axis("sum_float"), ["DOUBLE", "DOUBLE"]),
        ("decimal", "whole", KeyType("DECIMAL(12,2)", "int", 100), Axis("sum_int"), ["DECIMAL(12,2)"] * 2),
        ("decimal", "decimal", KeyType("DECIMAL(30,2)", "rank", 100), Axis("given", kind="float64"), None),
        ("time", None, None, Axis("sum_int"), ["TIME", "BIGINT"]),
        ("decimal", None, None, Axis("sum_int", kind="rank"), ["DECIMAL", "BIGINT"]),
        (None, "float", None, Axis("sum_float"), ["DOUBLE", "DOUBLE"]),
        ("float", "float", None, Axis("given", kind="float64"), None),
    ],
)
def test_types_decide_how_a_sum_is_computed(left, right, common, axis, ddls):
    kinds = [None if sort is None else ValueType(sort, sort, precision=30) for sort in (left, right)]
    terms = Sum(*(None if sort is None else sort for sort in (left, right)))
    whole = ValueType("double", "double")
    found = typed(least("a + b"), Expression(("R", "S"), "a + b", whole, terms, (kinds[0], kinds[1]), common))
    assert found.axis == axis
    assert (None if found.keys is None else [key.ddl for key in found.keys]) == ddls
    assert found.value == (None if ddls else "CAST((a + b) AS DOUBLE)")


def test_wide_decimals_are_compared_as_they_are():
    wide = ValueType("decimal(38,4)", "decimal", precision=38)
    found = typed(most("R.x * S.x"), Expression(("R", "S"), "R.x * S.x", wide))
    assert found.axis == Axis("given", largest=True, kind="rank")
    assert found.value == "CAST((R.x * S.x) AS DECIMAL(38,4))"
    # What such a criterion stores is of another type than before, so an old checkpoint must not be taken up.
    one_sided = most("R.x"), Expression(("R", "S"), "R.x", wide, Sum("R.x", None), (wide, None))
    assert planned(T10, one_sided, streams="RS").identity()["criteria"].endswith("most R.x, exact")


@pytest.mark.parametrize("arguments", [{"known": (T10, X5)}, {"stream": StreamOptions(max_age=5, time="t")}])
def test_watermarks_of_two_kinds_are_refused(arguments):
    """One of them counts in the zone of the session, and Spark would take the smaller of the two numbers."""
    mixed = replace(columns("t", "timestamp", TIME, True), types=("timestamp", "timestamp_ntz"))
    if "stream" in arguments:
        facts = Facts(frozenset("RS"), (NAMES, NAMES), (TYPES, TYPES), (X[1],), times=mixed)
        criteria = [X[0]]
    else:
        facts = Facts(frozenset("RS"), (NAMES, NAMES), (TYPES, TYPES), (mixed,))
        criteria = [T10[0]]
    stream = arguments.get("stream", StreamOptions())
    with pytest.raises(UnsupportedTypeError, match="timestamp and timestamp_ntz"):
        plan_bestmatch(("R", "S"), criteria, facts, Options("left"), stream, sample=True)
    static = replace(facts, streams=frozenset())
    plan_bestmatch(("R", "S"), criteria, static, Options("left"), stream, sample=True)


def test_types_that_a_criterion_cannot_compare():
    text = columns("x", "string", KeyType("STRING", "rank"))
    for criterion, facts in (
        (closest("x"), text),
        (youngest("x"), columns("x", "double", NUMBER)),
        (overlap("x"), text),
        (most("x"), Expression(("R", "S"), "x", ValueType("string", "other"))),
    ):
        with pytest.raises(UnsupportedTypeError):
            typed(criterion, facts)
    for within, facts in (("1 second", X[1]), (5, T10[1])):
        with pytest.raises(ArgumentError, match="the column holds"):
            typed(closest("x", within=within), facts)


def test_streams_say_what_they_take():
    for arguments in (
        {"read_ahead": 0},
        {"read_ahead": 2, "punctuation": "p"},
        {"read_ahead": 2, "lateness": 5},
        {"lateness": "grid", "punctuation": "p"},
        {"lateness": -1},
        {"lateness": True},
        {"lateness": [5]},
        {"max_age": 5, "time": "t", "lateness": 5},
        {"every": 5},
        {"max_age": 5, "time": "t", "order": "t"},
        {"max_age": 5},
        {"time": "t"},
        {"order": 5},
    ):
        with pytest.raises(ArgumentError):
            StreamOptions(**arguments)


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

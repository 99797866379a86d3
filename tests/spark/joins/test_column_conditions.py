"""`on=` as a Column or a list: the condition that Spark would join on, or a refusal, and never another one."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter

import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.conditions.predicates import parse
from dovetail.spark.joins.conditions import condition_text

pytestmark = pytest.mark.usefixtures("few_partitions")
T = datetime.datetime(2026, 1, 1)


@pytest.fixture(scope="module")
def a(spark):
    rows = [(k, k / 2, s, T + datetime.timedelta(minutes=k), k) for k, s in enumerate(["bid", "ask", "u", "b", "bid"])]
    return spark.createDataFrame(rows, "k int, x double, s string, t timestamp, `two words` int").coalesce(1)


@pytest.fixture(scope="module")
def b(spark):
    rows = [(k, 2 - k / 3, s, T + datetime.timedelta(minutes=2 * k)) for k, s in enumerate(["bid", "x", "u", None])]
    return spark.createDataFrame(rows, "k int, y double, u string, t timestamp").coalesce(1)


def col(name):
    return F.col(name)


COLUMNS = {
    "alias": lambda a, b: col("a.x") <= col("b.y"),
    "bare": lambda a, b: col("x") <= col("y"),
    "of frames": lambda a, b: a["x"] <= b["y"],
    "of frames that both have": lambda a, b: (a["k"] == b["k"]) & (b["t"] > a["t"]),
    "the other way round": lambda a, b: b["k"] < a["k"],
    "and": lambda a, b: (col("a.k") == col("b.k")) & (col("a.x") <= col("b.y")),
    "or": lambda a, b: (col("a.x") <= col("b.y")) & ((col("a.k") == 1) | (col("b.k") == 2)),
    "abs": lambda a, b: F.abs(col("a.k") - col("b.k")) <= 1,
    "between": lambda a, b: col("a.x").between(col("b.y") - 0.5, col("b.y") + 0.5),
    "fraction": lambda a, b: col("a.x") - col("b.y") <= 0.1,
    "a word": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "bid"),
    "words": lambda a, b: (col("a.x") <= col("b.y")) & col("a.s").isin("bid", "ask"),
    "numbers": lambda a, b: (col("a.x") <= col("b.y")) & col("a.k").isin(1, 2),
    "time": lambda a, b: (col("a.t") <= col("b.t")) & (col("a.t") >= F.lit(T + datetime.timedelta(minutes=1))),
    "date": lambda a, b: (col("a.t") <= col("b.t")) & (col("a.t") >= F.lit(T.date())),
    "interval": lambda a, b: col("a.t") - F.expr("INTERVAL 2 MINUTES") <= col("b.t"),
    "cast": lambda a, b: col("a.x").cast("int") <= col("b.y"),
    "case": lambda a, b: F.when(col("a.x") > 1, 1).otherwise(2) <= col("b.k"),
    "function": lambda a, b: F.lower(col("a.s")) == F.lower(col("b.u")),
    "odd name": lambda a, b: col("a.`two words`") <= col("b.k"),
    "expr": lambda a, b: F.expr("a.k <= b.k AND a.s <> 'it''s'"),
    "list": lambda a, b: [col("a.x") <= col("b.y"), "a.k = 1 OR b.k = 2", F.expr("a.k <= b.k -- at most")],
    "one": lambda a, b: [col("a.k") <= col("b.k")],
    "texts": lambda a, b: ("a.k <= b.k -- at most", "a.s = 'bid'"),
}


def by_spark(a, b, on):
    conditions = [
        F.expr(one) if isinstance(one, str) else one for one in (on if isinstance(on, list | tuple) else [on])
    ]
    joined = a.alias("a").crossJoin(b.alias("b"))
    for condition in conditions:
        joined = joined.where(condition)
    return Counter(map(str, joined.selectExpr("struct(a.*) AS a", "struct(b.*) AS b").collect()))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_mean_what_they_mean_in_spark(name, a, b):
    on = COLUMNS[name](a, b)
    expected = by_spark(a, b, on)
    joined = dt.theta_join(a=a, b=b, on=on, sample=False)
    assert Counter(map(str, joined.collect())) == expected
    assert 0 < sum(expected.values()) < 20, "a condition that tells pairs apart"


def test_columns_are_indexed_like_text(a, b):
    text = condition_text(COLUMNS["of frames that both have"](a, b), {"a": a, "b": b})
    parts = parse(text, {"a": a.columns, "b": b.columns})
    assert len(parts.equalities) == len(parts.inequalities) == 1
    assert not parts.rests


def test_a_window_and_an_approximate_join(a, b):
    close = dt.window_join(a=a, b=b, on=a["k"] == b["k"], time="t", within="1 minute")
    assert {(row.a.k, row.b.k) for row in close.collect()} == {(0, 0), (1, 1)}
    sample = dt.approx_join(a=a, b=b, on=[col("a.k") == col("b.k")], memory=100)
    assert sample.count() == 4


def twice(value):
    return value * 2


REFUSED = {
    "a string that is a column's name": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "u"),
    "a string that is an alias": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "b"),
    "a string with a quote": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "it's"),
    "a string of two words": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "New York"),
    "a string of digits": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "5"),
    "an injection": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.s") == "p) OR (1 = 1"),
    "NaN": lambda a, b: (col("a.x") <= col("b.y")) & (col("a.x") <= float("nan")),
    "a decimal": lambda a, b: (col("a.k") <= col("b.k")) & (col("a.k") <= F.lit(decimal.Decimal("1.5")) * F.lit(0.5)),
    "a UDF": lambda a, b: F.udf(twice, "double")(col("a.x")) <= col("b.y"),
    "a lambda": lambda a, b: F.exists(F.array(col("a.k")), lambda value: value == col("b.k")),
    "an alias": lambda a, b: (col("a.x") <= col("b.y")).alias("x"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_text_is_the_same_or_refused(name, a, b):
    """What Spark prints of these would be another condition, or none."""
    on = REFUSED[name](a, b)
    try:
        joined = dt.theta_join(a=a, b=b, on=on, sample=False)
    except dt.PredicateError:
        return
    assert Counter(map(str, joined.collect())) == by_spark(a, b, on)


@pytest.mark.parametrize("name", ["a string that is a column's name", "a string with a quote", "a UDF", "an alias"])
def test_the_refusal(name, a, b):
    with pytest.raises(dt.PredicateError, match="has no SQL text that means the same") as refused:
        dt.theta_join(a=a, b=b, on=REFUSED[name](a, b))
    assert "write that part as SQL text" in refused.value.hint


def test_a_udf_that_has_the_name_of_another_function(spark, a, b):
    """The text ``lower(a.s)`` would call Spark's."""
    lower = F.udf(lambda value: "never", "string").asNondeterministic()
    lower._name = "lower"
    spark.udf.register("calls_other", lambda value: "other", "string")
    mine = F.udf(lambda value: "mine", "string")
    mine._name = "calls_other"
    for udf in (lower, mine):
        with pytest.raises(dt.PredicateError, match="has no SQL text that means the same"):
            dt.theta_join(a=a, b=b, on=udf(col("a.s")) == col("b.u"))


def test_columns_of_other_frames(spark, a, b):
    with pytest.raises(dt.PredicateError, match="which Spark cannot resolve over the inputs a, b") as refused:
        dt.theta_join(a=a, b=b, on=spark.range(3)["id"] < col("b.k"))
    assert "F.col('a.x')" in refused.value.hint


def test_a_frame_with_itself_is_ambiguous(a):
    with pytest.raises(dt.PredicateError, match="cannot resolve"):
        dt.theta_join(a=a, b=a, on=a["k"] < a["k"])
    assert dt.theta_join(a=a, b=a, on=col("a.k") < col("b.k"), sample=False).count() == 10


@pytest.mark.parametrize("on", [[], (), [None], 5, {"a.k": "b.k"}, [["a.k < b.k"]]])
def test_what_is_no_condition(on, a, b):
    with pytest.raises(dt.PredicateError, match="is not a condition") as refused:
        dt.theta_join(a=a, b=b, on=on)
    assert "a Column such as" in refused.value.accepted


def test_no_job_runs(spark, a, b):
    spark.sparkContext.setJobGroup("columns", "no job may run here")
    dt.theta_join(a=a, b=b, on=COLUMNS["of frames that both have"](a, b))
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("columns") == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

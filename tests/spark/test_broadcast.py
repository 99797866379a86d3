"""Small inputs go to every task whole where Spark itself would broadcast them."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.plan.broadcast import Estimate
from dovetail.spark import sizes
from dovetail.spark.sizes import _Captured, estimate, small_inputs

pytestmark = pytest.mark.usefixtures("broadcasts")


@pytest.fixture
def inputs(spark):
    r = spark.range(300).selectExpr("id", "id % 7 AS k", "id % 50 AS x", "timestamp_seconds(id) AS t")
    s = spark.range(200).selectExpr("id", "id % 7 AS k", "id % 60 AS x", "timestamp_seconds(id * 3) AS t")
    return {"R": r, "S": s}


@pytest.fixture
def apart(monkeypatch):
    """One of two small inputs goes to every task, although one task could read both."""
    monkeypatch.setattr(sizes, "_most_at_once", lambda plan: -1)


def rows(frame):
    return Counter(tuple(None if part is None else part["id"] for part in row) for row in frame.collect())


def explained(frame, capsys):
    dt.explain(frame)
    return capsys.readouterr().out


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("together", [True, False])
def test_theta_joins_are_the_same(inputs, how, together, request):
    if not together:
        request.getfixturevalue("apart")
    on = "R.k = S.k AND ABS(R.x - S.x) <= 2 AND R.x < 40"
    found = rows(dt.theta_join(inputs, on=on, how=how))
    assert found == rows(dt.theta_join(inputs, on=on, how=how, broadcast=False))
    assert sum(found.values()) > 30


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize("together", [True, False])
def test_asof_joins_are_the_same(inputs, how, by, together, request):
    if not together:
        request.getfixturevalue("apart")
    within = "9 seconds" if by else "1 second"
    found = rows(dt.asof_join(inputs, time="t", by=by, within=within, how=how))
    assert found == rows(dt.asof_join(inputs, time="t", by=by, within=within, how=how, broadcast=False))
    assert sum(found.values()) > 30


@pytest.mark.parametrize(
    ("how", "broadcast"), [("inner", "S"), ("left", "S"), ("right", "R"), ("semi", "S"), ("anti", "S"), ("full", None)]
)
def test_the_smaller_input_that_need_not_report_its_rows(inputs, how, broadcast, capsys, apart):
    text = explained(dt.theta_join(inputs, on="R.x < S.x", how=how), capsys)
    if broadcast is None:
        assert "shuffle partitions" in text
    else:
        assert f"the whole of {broadcast} goes to every task: Spark estimates" in text


def test_each_step_of_more_inputs(spark, inputs, capsys):
    three = {**inputs, "T": inputs["S"].where("id < 20")}
    joined = dt.theta_join(three, on="R.x = S.x AND S.x < T.x")
    text = explained(joined, capsys)
    assert "one task reads both inputs" in text
    assert "the whole of T goes" in text
    assert rows(joined) == rows(dt.theta_join(three, on="R.x = S.x AND S.x < T.x", broadcast=False))


@pytest.mark.parametrize("options", [{"broadcast": False}, {"partitions": 3}])
def test_who_asks_for_a_shuffle_gets_it(inputs, options, capsys):
    for joined in (dt.theta_join(inputs, on="R.x < S.x", **options), dt.asof_join(inputs, time="t", **options)):
        text = explained(joined, capsys)
        assert "to every task" not in text
        assert "one task" not in text


def test_the_threshold_of_the_session(spark, inputs):
    found = small_inputs(inputs)
    assert set(found) == {"R", "S"}
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    try:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        assert small_inputs(inputs) == {}
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(found["S"].size))
        assert small_inputs(inputs) == {"S": found["S"]}
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1g")
        assert small_inputs(inputs) == found
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)


def test_what_has_no_estimate_or_too_low_a_one(spark, tmp_path):
    one = spark.range(10)
    assert estimate(one) == Estimate(80, at_once=True)
    assert estimate(spark.createDataFrame(pa.table({"x": [1, 2]}))).size < 1000
    assert estimate(one.select(F.explode(F.sequence(F.lit(0), F.col("id") * 1000)))) is None
    assert estimate(one.mapInArrow(lambda batches: batches, one.schema)) is None
    assert estimate(spark.createDataFrame([(1,)], "x int")).size > 1 << 60
    one.write.parquet(str(tmp_path / "rows"))
    assert estimate(spark.read.parquet(str(tmp_path / "rows")).where("id > 3")).size < 100_000


def test_what_many_tasks_read_faster_than_one(spark, tmp_path):
    """What is small itself may be made of much, or take long to compute; one task is not to do all of that."""
    rows = spark.range(100_000).selectExpr("id", *[f"uuid() AS u{at}" for at in range(5)])
    rows.coalesce(1).write.csv(str(tmp_path / "wide"))
    few = spark.range(10)
    for made, at_once in {
        few.where("id > 3").select(F.col("id") * 2): True,
        few.union(few): True,
        spark.createDataFrame(pa.table({"x": [1, 2]})): True,
        few.repartition(8).select(F.udf(lambda x: x, "long")("id")): False,
        few.groupBy((F.col("id") % 3).alias("k")).count(): False,
        spark.range(10**9).sample(1e-6): False,
        spark.read.csv(str(tmp_path / "wide")).select("_c0"): False,
        spark.range(77).cache(): False,
    }.items():
        found = estimate(made)
        assert found.at_once == at_once, made._jdf.queryExecution().optimizedPlan().toString()
        assert found.size < 4 << 20
        made.unpersist()


@pytest.mark.parametrize(
    ("on", "rows", "together"),
    [
        ("R.x < S.x", 10, True),
        ("R.x < S.x", 10_000, False),
        ("R.k = S.k AND R.x < S.x", 10_000, False),
        ("ABS(R.x - S.x) <= 2", 10_000, True),
        ("R.x <= S.y AND S.x <= R.y", 10_000, True),
        ("ABS(R.x - S.x) <= 2", 100_000, False),
    ],
)
def test_one_task_reads_what_is_small_and_has_few_results(spark, capsys, on, rows, together):
    some = spark.range(rows).selectExpr("id", "id % 7 AS k", "id AS x", "id + 3 AS y")
    text = explained(dt.theta_join({"R": some, "S": some}, on=on), capsys)
    assert ("one task reads both inputs: Spark estimates" in text) == together


@pytest.mark.parametrize(("rows", "together"), [(300_000, True), (1_000_000, False)])
def test_a_file_that_spark_reads_in_one_task(spark, tmp_path, rows, together, capsys):
    spark.range(rows).selectExpr("id", "rand(1) AS x").coalesce(1).write.parquet(str(tmp_path / "rows"))
    some = spark.read.parquet(str(tmp_path / "rows"))
    text = explained(dt.theta_join({"R": some, "S": some}, on="ABS(R.x - S.x) <= 1e-6"), capsys)
    assert ("one task reads both inputs: Spark estimates" in text) == together


LAYOUTS = {
    "as many": ("id", "x", "'r' AS s", "k"),
    "fewer": ("x", "id"),
    "more, otherwise": ("k", "array(s.k, NULL) AS l", "'r' AS s", "x", "named_struct('a', k) AS n", "id", "'r' AS u"),
    "of other types": ("CAST(id AS INT)", "CAST(x AS DOUBLE)", "CAST(k AS STRING) AS s", "named_struct('b', k) AS n"),
}


@pytest.mark.in_turns(n=4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("how", ["left", "right"])
def test_columns_that_both_inputs_have_and_others(inputs, layout, how, capsys):
    """One task reads columns of the same type as one column; a row keeps its own values."""
    r = inputs["R"].selectExpr("id", "x", "concat('s', k) AS s", "named_struct('a', k) AS n")
    sides = {"R": r, "S": inputs["S"].alias("s").selectExpr(*LAYOUTS[layout])}
    joins = [dt.theta_join(sides, on="ABS(R.x - S.x) <= 2", how=how, broadcast=way) for way in (None, False)]
    assert "one task reads both inputs" in explained(joins[0], capsys)
    found, expected = (Counter(map(str, joined.collect())) for joined in joins)
    assert found == expected
    assert joins[0].schema == joins[1].schema
    assert sum(found.values()) > 300


@pytest.mark.in_turns
@pytest.mark.parametrize("empty", ["RS", "R", "S"])
def test_one_task_with_nothing_to_read(spark, inputs, empty):
    some = {name: frame.where("x > 99") if name in empty else frame for name, frame in inputs.items()}
    left = 0 if "R" in empty else 300
    assert dt.theta_join(some, on="ABS(R.x - S.x) <= 2", how="left").count() == left
    assert dt.asof_join(some, time="t", how="left").count() == left
    assert dt.nearest_join(some, on="ABS(R.x - S.x)", how="left").count() == left
    counted = dt.aggregate_join(some, on="ABS(R.x - S.x) <= 2", by="R", agg={"n": "count(*)"})
    assert [row.n for row in counted.collect()] == [0] * left


def test_what_other_threads_print_meanwhile_is_theirs():
    printed = StringIO()
    with redirect_stdout(_Captured(printed)) as kept:
        print("the plan")
        other = threading.Thread(target=print, args=("from another thread",))
        other.start()
        other.join()
    assert (kept.getvalue(), printed.getvalue()) == ("the plan\n", "from another thread\n")


def test_estimates_in_several_threads(spark, capsys):
    frames = [spark.range(10 + at) for at in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert [one.size for one in pool.map(estimate, frames)] == [8 * (10 + at) for at in range(40)]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("join", ["theta_join", "asof_join"])
def test_what_is_no_alias(inputs, join):
    options = {"on": "R.x < S.x"} if join == "theta_join" else {"time": "t"}
    with pytest.raises(dt.ArgumentError, match="broadcast=True") as refused:
        getattr(dt, join)(inputs, **options, broadcast=True)
    assert "False for none" in refused.value.accepted


@pytest.mark.parametrize("empty", [0, 2])
@pytest.mark.parametrize("join", ["theta", "as-of"])
def test_work_that_is_even_is_told_to_be(spark, apart, join, empty):
    """The tasks are those of the large input, however many partitions a shuffle would have."""
    r = spark.range(0, 3000, 1, 3).selectExpr("id", "id % 40 AS x").where(f"id >= {empty} * 1000")
    sides = {"R": r, "S": spark.range(50).selectExpr("id", "id AS x")}
    joined = dt.theta_join(sides, on="ABS(R.x - S.x) <= 2") if join == "theta" else dt.asof_join(sides, time="x")
    assert joined.count() > 900
    counted = dt.metrics(joined)
    assert counted["tasks" if join == "theta" else "cells"] == 3 - empty
    assert 1 <= counted["balance_in"] < 1.01
    assert counted["load_largest"] <= counted["load_least"] * 1.01 + 50

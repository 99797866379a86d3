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
from dovetail.spark.sizes import _Captured, estimated_bytes, small_inputs

pytestmark = pytest.mark.usefixtures("broadcasts")


@pytest.fixture
def inputs(spark):
    r = spark.range(300).selectExpr("id", "id % 7 AS k", "id % 50 AS x", "timestamp_seconds(id) AS t")
    s = spark.range(200).selectExpr("id", "id % 7 AS k", "id % 60 AS x", "timestamp_seconds(id * 3) AS t")
    return {"R": r, "S": s}


def rows(frame):
    return Counter(tuple(None if part is None else part["id"] for part in row) for row in frame.collect())


def explained(frame, capsys):
    dt.explain(frame)
    return capsys.readouterr().out


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_theta_joins_are_the_same(inputs, how):
    on = "R.k = S.k AND ABS(R.x - S.x) <= 2 AND R.x < 40"
    found = rows(dt.theta_join(inputs, on=on, how=how))
    assert found == rows(dt.theta_join(inputs, on=on, how=how, broadcast=False))
    assert sum(found.values()) > 30


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("by", [None, "k"])
def test_asof_joins_are_the_same(inputs, how, by):
    within = "9 seconds" if by else "1 second"
    found = rows(dt.asof_join(inputs, time="t", by=by, within=within, how=how))
    assert found == rows(dt.asof_join(inputs, time="t", by=by, within=within, how=how, broadcast=False))
    assert sum(found.values()) > 30


@pytest.mark.parametrize(
    ("how", "broadcast"), [("inner", "S"), ("left", "S"), ("right", "R"), ("semi", "S"), ("anti", "S"), ("full", None)]
)
def test_the_smaller_input_that_need_not_report_its_rows(inputs, how, broadcast, capsys):
    text = explained(dt.theta_join(inputs, on="R.x < S.x", how=how), capsys)
    if broadcast is None:
        assert "shuffle partitions" in text
    else:
        assert f"the whole of {broadcast} goes to every task: Spark estimates" in text


def test_each_step_of_more_inputs(spark, inputs, capsys):
    three = {**inputs, "T": inputs["S"].where("id < 20")}
    joined = dt.theta_join(three, on="R.x = S.x AND S.x < T.x")
    text = explained(joined, capsys)
    assert "the whole of S goes" in text
    assert "the whole of T goes" in text
    assert rows(joined) == rows(dt.theta_join(three, on="R.x = S.x AND S.x < T.x", broadcast=False))


@pytest.mark.parametrize("options", [{"broadcast": False}, {"partitions": 3}])
def test_who_asks_for_a_shuffle_gets_it(inputs, options, capsys):
    assert "to every task" not in explained(dt.theta_join(inputs, on="R.x < S.x", **options), capsys)
    assert "to every task" not in explained(dt.asof_join(inputs, time="t", **options), capsys)


def test_the_threshold_of_the_session(spark, inputs):
    sizes = small_inputs(inputs)
    assert set(sizes) == {"R", "S"}
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    try:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        assert small_inputs(inputs) == {}
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(sizes["S"]))
        assert small_inputs(inputs) == {"S": sizes["S"]}
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1g")
        assert small_inputs(inputs) == sizes
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)


def test_what_has_no_estimate_or_too_low_a_one(spark, tmp_path):
    one = spark.range(10)
    assert estimated_bytes(one) == 80
    assert estimated_bytes(spark.createDataFrame(pa.table({"x": [1, 2]}))) < 1000
    assert estimated_bytes(one.select(F.explode(F.sequence(F.lit(0), F.col("id") * 1000)))) is None
    assert estimated_bytes(one.mapInArrow(lambda batches: batches, one.schema)) is None
    assert estimated_bytes(spark.createDataFrame([(1,)], "x int")) > 1 << 60
    one.write.parquet(str(tmp_path / "rows"))
    assert estimated_bytes(spark.read.parquet(str(tmp_path / "rows")).where("id > 3")) < 100_000


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
        assert list(pool.map(estimated_bytes, frames)) == [8 * (10 + at) for at in range(40)]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("join", ["theta_join", "asof_join"])
def test_what_is_no_alias(inputs, join):
    options = {"on": "R.x < S.x"} if join == "theta_join" else {"time": "t"}
    with pytest.raises(dt.ArgumentError, match="broadcast=True") as refused:
        getattr(dt, join)(inputs, **options, broadcast=True)
    assert "False for none" in refused.value.accepted

"""Aggregates that form the pairs, in Spark: against Spark's own join and GROUP BY."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F
from tests.spark.joins.test_aggregate import CONDITIONS, inputs

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")

BY_PAIRS = {
    "only Spark": "q.k = t.k AND CAST(q.id AS STRING) LIKE t.k || '%'",
    "or": "q.k = t.k AND q.x > t.x OR q.id = t.id",
    "three ranges": "q.x < t.x AND q.e < t.e AND q.v < t.v",
    "band": CONDITIONS["band"],
}
FROM_PAIRS = {
    "n": "count(*)", "known": "count(q.x)", "middle": "median(q.x)", "p": "percentile(q.x, array(0.1, 0.9))",
    "near": "percentile_approx(q.x, 0.5)", "keys": "count(DISTINCT q.k)", "about": "approx_count_distinct(q.id)",
    "three": "slice(array_sort(collect_list(q.id)), 1, 3)", "all": "array_sort(array_agg(q.k))",
    "gap": "max(q.x - t.x)", "first": "min_by(q.id, q.x)", "total": "sum(q.id)",
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("name", BY_PAIRS)
def test_what_needs_the_pairs_is_what_spark_gives(spark, name, how, capsys):
    _, frames = inputs(spark, 60)
    frames["t"] = frames["t"].unionAll(frames["t"].limit(20)).selectExpr("*", "map('a', id) AS odd").repartition(3)
    joined = dt.aggregate_join(frames, on=BY_PAIRS[name], by="t", agg=FROM_PAIRS, how=how)
    dt.explain(joined)
    text = capsys.readouterr().out
    assert f"how='{how}': for each row of t, by forming the pairs" in text
    assert "because     collect_list needs the matches themselves" in text
    found = joined.select("t.id", "t.odd", *FROM_PAIRS).orderBy("t.id").collect()
    marked = frames["q"].withColumn("here", F.lit(1)).alias("q")
    numbered = frames["t"].withColumn("number", F.monotonically_increasing_id()).cache().alias("t")
    pairs = numbered.join(marked, F.expr(BY_PAIRS[name]), how)
    texts = {column: call.replace("count(*)", "count(q.here)") for column, call in FROM_PAIRS.items()}
    wanted = pairs.groupBy("t.number").agg(
        F.first("t.id").alias("id"), F.first("t.odd").alias("odd"),
        *(F.expr(call).alias(column) for column, call in texts.items()),
    )  # fmt: skip
    assert found == wanted.drop("number").orderBy("id").collect()
    assert len(found) == 80 or how == "inner"
    if "Spark" in name:
        assert "because     only Spark can evaluate" in text
    if "three" in name:
        assert "because     the condition bounds the matches in q by 3 ranges" in text


# Spark takes these types, kernels do not: the pairs are formed. In batch, every aggregate of Spark has an answer.
OTHER_TYPES = {
    "sum of durations": "sum(q.id * INTERVAL '1' HOUR)", "avg of durations": "avg(q.id * INTERVAL '7' SECOND)",
    "avg of months": "avg(q.id * INTERVAL '1' MONTH)", "max of months": "max(q.id * INTERVAL '1' MONTH)",
    "min of arrays": "min(array(q.k, q.id))", "max of structs": "max(struct(q.k, q.id))",
    "a row": "max_by(struct(q.x, q.v), q.id)", "by a struct": "min_by(q.id, struct(q.k, q.id))",
    "nothing": "min(NULL)", "no truth": "bool_or(NULL)", "a collation": "max(CAST(q.id AS STRING) COLLATE UTF8_LCASE)",
}  # fmt: skip


def test_types_that_kernels_do_not_take_come_from_the_pairs(spark, capsys):
    _, frames = inputs(spark, 40)
    agg = {f"v{at}": text for at, text in enumerate(OTHER_TYPES.values())}
    joined = dt.aggregate_join(frames, on=CONDITIONS["band"], by="t", agg=agg)
    dt.explain(joined)
    text = capsys.readouterr().out
    assert "because     avg(q.id * INTERVAL '7' SECOND) is over a value of type interval day to second" in text
    assert text.count("because") == len(agg)
    # Not a left join: in its rows without a match array(q.k, q.id) is an array of NULLs, which min would take.
    pairs = frames["t"].alias("t").join(frames["q"].alias("q"), F.expr(CONDITIONS["band"]))
    matched = pairs.groupBy("t.id").agg(*(F.expr(call).alias(name) for name, call in agg.items()))
    wanted = frames["t"].select("id").join(matched, "id", "left")
    found = joined.select("t.id", *agg)
    assert [field.dataType for field in found.schema] == [field.dataType for field in wanted.schema]
    # As text: Python has no months.
    texts = ["id", *(F.col(name).cast("string") for name in agg)]
    answers = found.select(*texts).orderBy("id").collect()
    assert answers == wanted.select(*texts).orderBy("id").collect()
    assert len({row.v0 for row in answers}) > 10


def test_pairs_of_nothing(spark):
    _, frames = inputs(spark, 5)
    agg = {"n": "count(*)", "l": "collect_list(q.id)", "m": "median(q.x)", "d": "count(DISTINCT q.k)"}
    frames["q"] = frames["q"].limit(0)
    joined = dt.aggregate_join(frames, on="q.x < t.x", by="t", agg=agg)
    assert [tuple(row) for row in joined.drop("t").collect()] == [(0, [], None, 0)] * 5


def test_pairs_of_a_stream_are_refused(spark, tmp_path):
    _, frames = inputs(spark, 5)
    (tmp_path / "t").mkdir()
    stream = spark.readStream.schema(frames["t"].schema).parquet(str(tmp_path / "t"))
    for text, why in {
        "mode(q.x)": "mode needs the matches",
        "min(array(q.x))": re.escape("min(array(q.x)) is over a value of type array<double>"),
    }.items():
        with pytest.raises(dt.ArgumentError, match=f"has to form the pairs, because {why}"):
            dt.aggregate_join({"t": stream, "q": frames["q"]}, on="q.x <= t.x", by="t", agg={"m": text})

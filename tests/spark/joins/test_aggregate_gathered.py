"""Distinct counts and percentiles without pairs, in Spark: against Spark's own join and GROUP BY."""

from __future__ import annotations

import pytest
from tests.nets.test_aggregates import agree

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")

AGG = {
    "n": "count(*)", "middle": "median(q.x)", "some": "percentile(q.l, array(0, 0.1, 0.9D, 1))",
    "money": "percentile(q.c, 0.25)", "near": "percentile_approx(q.x, 0.5)", "day": "approx_percentile(q.d, 0.3, 5000)",
    "when": "percentile_approx(q.ts, array(0.25, 0.75))", "cents": "percentile_approx(q.c, 0.6)",
    "keys": "count(DISTINCT q.k)", "texts": "count(DISTINCT upper(q.s))", "xs": "count(DISTINCT q.x)",
    "about": "approx_count_distinct(q.s, 0.01)", "total": "sum(q.l)",
}  # fmt: skip
CONDITIONS = {
    "band": "q.p BETWEEN t.p - 30 AND t.p",
    "key and band": "q.k = t.k AND q.p BETWEEN t.p - 30 AND t.p",
    "half line": "q.p <= t.p",
    "key": "q.k = t.k",
    "texts": "q.s <= t.s",
}


@pytest.fixture(scope="module")
def frames(spark):
    def made(size: int, seed: int):
        odd = "CASE WHEN id % 11 = 3 THEN NULL WHEN id % 13 = 5 THEN double('NaN') WHEN id % 7 = 0 THEN -0D ELSE x END"
        return (
            spark.range(size)
            .selectExpr(
                "id", f"CAST(pmod(hash(id, {seed}), 4) AS INT) AS k", f"pmod(hash(id, {seed + 1}), 200) AS p",
                f"pmod(hash(id, {seed + 2}), 9) / 2D AS x", f"CAST(hash(id, {seed + 3}) AS BIGINT) AS l",
            )
            .selectExpr(
                "id", "IF(id % 17 = 4, NULL, k) AS k", "p", f"{odd} AS x", "IF(id % 9 = 2, NULL, l) AS l",
                "CAST(l % 1000 / 100 AS DECIMAL(12, 2)) AS c", "date_add(DATE'2026-01-01', k * 3) AS d",
                "timestamp_seconds(l % 100000) AS ts", "substr('abcABC', k + 1, 1) AS s",
            )
            .localCheckpoint()
        )  # fmt: skip

    return {"t": made(120, 1), "q": made(300, 77)}


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CONDITIONS)
def test_what_spark_gives(spark, frames, name, capsys):
    on = CONDITIONS[name]
    for alias, frame in frames.items():
        frame.createOrReplaceTempView(alias)
    calls = {**AGG, "n": "count(q.id)"}
    texts = ", ".join(f"{text} AS {column}" for column, text in calls.items())
    wanted = spark.sql(f"SELECT t.id, {texts} FROM t LEFT JOIN q ON {on} GROUP BY t.id ORDER BY t.id")
    rows = wanted.collect()
    for more in ({"broadcast": "q"}, {"broadcast": False}):
        joined = dt.aggregate_join(frames, on=on, by="t", agg=AGG, **more)
        found = joined.select("t.id", *AGG).orderBy("id")
        assert found.schema.simpleString() == wanted.schema.simpleString()
        assert agree([list(row) for row in found.collect()], [list(row) for row in rows])
        dt.explain(joined)
        text = capsys.readouterr().out
        assert "without forming pairs" in text
        assert "ranks in a wavelet matrix, earlier occurrences in a wavelet matrix" in text
    assert ("slices of the key hash" if "key" in name else "q to every cell, t to one") in text


def test_a_value_that_is_within_the_error(spark):
    """Of more rows than Spark keeps, its own percentile is near; the exact one is within any error."""
    q = spark.range(60_000).selectExpr("id", "pmod(hash(id), 50000) AS v")
    t = spark.range(2).selectExpr("id AS at")
    agg = {"p": "percentile_approx(q.v, 0.3, 100)", "n": "count(*)", "d": "approx_count_distinct(q.v)"}
    (row,) = dt.aggregate_join({"t": t, "q": q}, on="q.id >= t.at * 100000", by="t", agg=agg, how="inner").collect()
    values = sorted(one.v for one in q.collect())
    assert row.n == 60_000
    assert row.p == values[18_000 - 1]
    assert row.d == len(set(values))


@pytest.mark.in_turns(group="several seconds")
def test_what_still_needs_the_pairs(spark, frames, capsys):
    texts = {
        "median(q.p - t.p)": "q.p <= t.p",
        "count(DISTINCT q.k, q.s)": "q.p <= t.p", "sum(DISTINCT q.k)": "q.p <= t.p", "median(q.s)": "q.id <= t.id",
        "median(q.l)": "q.p <= t.p AND q.id >= t.id", "percentile(q.p, 0.5, q.k)": "q.p <= t.p",
    }  # fmt: skip
    for text, on in texts.items():
        q = frames["q"].where("k IS NOT NULL").selectExpr("* EXCEPT (s)", "CAST(p AS STRING) AS s")
        dt.explain(dt.aggregate_join({"t": frames["t"], "q": q}, on=on, by="t", agg={"v": text}))
        assert "by forming the pairs" in capsys.readouterr().out, text


def test_nothing_matches(spark, frames):
    agg = {name: AGG[name] for name in ("n", "middle", "some", "when", "keys")}
    empty = {"t": frames["t"].limit(3), "q": frames["q"].limit(0)}
    for more in ({}, {"broadcast": False}, {"broadcast": False, "sample": False}):
        joined = dt.aggregate_join(empty, on="q.p <= t.p", by="t", agg=agg, **more)
        assert [tuple(row) for row in joined.drop("t").collect()] == [(0, None, None, None, 0)] * 3


def test_fractions_beyond_1_are_refused_by_spark(frames):
    with pytest.raises(dt.ArgumentError, match="percentile"):
        dt.aggregate_join(frames, on="q.p <= t.p", by="t", agg={"v": "percentile(q.p, 1.5)"})

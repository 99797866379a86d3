"""Statements with ``AGGREGATE JOIN``, against Spark's own join and GROUP BY."""

from __future__ import annotations

import pytest

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")


@pytest.fixture(scope="module")
def frames(spark):
    t = spark.range(40).selectExpr("id", "id % 3 AS k", "CAST(id * 7 % 17 AS DOUBLE) AS x")
    q = spark.range(60).selectExpr("id AS qid", "id % 3 AS k", "CAST(id * 5 % 23 AS DOUBLE) AS y")
    made = {"t": t, "q": q}
    for name, frame in made.items():
        frame.createOrReplaceTempView(name)
    return made


@pytest.mark.in_turns
@pytest.mark.parametrize("inner", [False, True])
def test_a_statement_gives_what_spark_gives(spark, frames, inner):
    on = "q.k = t.k AND q.y BETWEEN t.x - 1 AND t.x"
    found = dt.sql(
        f"SELECT *, n * 2 AS twice FROM t {'INNER' if inner else ''} AGGREGATE JOIN q ON {on} "
        "COMPUTE count(*) AS n, sum(q.y) AS total WHERE t.id < 30 AND n < 4 ORDER BY id",
        **frames,
    )
    wanted = spark.sql(
        f"SELECT *, n * 2 AS twice FROM (SELECT t.id, t.k, t.x, count(q.qid) AS n, sum(q.y) AS total "
        f"FROM t {'' if inner else 'LEFT'} JOIN q ON {on} GROUP BY ALL) WHERE id < 30 AND n < 4 ORDER BY id"
    )
    assert found.columns == wanted.columns
    assert found.collect() == wanted.collect()
    assert found.count() > 3


def test_what_needs_the_pairs_and_an_order(spark, frames):
    found = dt.sql(
        "SELECT t.id, m, f, d FROM t AGGREGATE JOIN q ON q.k = t.k AND q.y <= t.x COMPUTE median(q.y) AS m, "
        "first(q.qid ORDER BY q.y * 100 + q.qid) AS f, count(DISTINCT q.y) AS d ORDER BY t.id",
        **frames,
    )
    wanted = spark.sql(
        "SELECT t.id, median(q.y) AS m, min_by(q.qid, q.y * 100 + q.qid) AS f, count(DISTINCT q.y) AS d "
        "FROM t LEFT JOIN q ON q.k = t.k AND q.y <= t.x GROUP BY t.id ORDER BY t.id"
    )
    assert found.collect() == wanted.collect()


@pytest.mark.in_turns(group="several seconds")
def test_relations_on_the_left_and_subqueries(spark, frames):
    found = dt.sql(
        "SELECT s.k, sum(s.n) AS n FROM (SELECT t.k, n FROM t JOIN q AS r ON t.id = r.qid "
        "AGGREGATE JOIN q ON q.y <= t.x AND q.qid >= r.qid COMPUTE count(*) AS n) s GROUP BY s.k ORDER BY s.k",
        **frames,
    )
    wanted = spark.sql(
        "SELECT t.k, count(q.qid) AS n FROM t JOIN q AS r ON t.id = r.qid LEFT JOIN q ON q.y <= t.x AND q.qid >= r.qid "
        "GROUP BY t.k ORDER BY t.k"
    )
    assert found.collect() == wanted.collect()

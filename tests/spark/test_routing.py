"""How a routing reaches the workers."""

from __future__ import annotations

import pytest

import dovetail as dt
from dovetail.columns.sampling import SPARSE
from dovetail.spark.routing import fitted, sampled

pytestmark = pytest.mark.spark


def _never(batches):
    yield from batches


def test_an_empty_sample_gives_the_blind_routing(spark):
    """Where Spark sees that the sample is empty it runs nobody to fit a routing, and the subquery is NULL."""
    empty = spark.range(10).filter("id < 0")
    routing = fitted(empty, _never, b"blind")
    rows = spark.range(4, numPartitions=2).select("id", routing).collect()
    assert sorted((row.id, bytes(row.g[0]) if row.g else b"") for row in rows) == [
        (0, b"blind"),
        (1, b""),
        (2, b"blind"),
        (3, b""),
    ]


def test_a_sample_is_a_part_of_the_rows(spark):
    rows = sampled([(spark.range(0, 100_000, numPartitions=3), ["id"])])
    drawn = rows.collect()
    assert 600 < len(drawn) < 1000
    assert 8 < sum(row.draw % SPARSE == 0 for row in drawn) < 60
    assert not any(row.deep for row in drawn)
    assert sampled([(spark.range(10), ["id"])], everything=True).count() == 10


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_inputs_too_small_for_a_sample(spark, rows):
    """Three families fit a routing; none may stumble over inputs of which no row is drawn."""
    frame = spark.range(rows).selectExpr("id", "CAST(id AS DOUBLE) AS x", "timestamp_seconds(id) AS t")
    pairs = {"R": frame, "S": frame}
    assert dt.theta_join(pairs, on="R.x <= S.x").count() == rows * (rows + 1) // 2
    assert dt.asof_join(pairs, time="t", within="1 hour").count() == rows
    near = dt.bestmatch_join(pairs, on=[dt.closest("x", within=0.5)], how="left")
    assert near.count() == rows

"""Building a join: no job, no setting, whatever the join."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tests.checkpoints.joins import JOINS, streams, tables, write_file

import dovetail as dt

MORE = {
    "theta": lambda inputs: dt.theta_join(inputs, on="A.v < B.v"),
    "theta, sampled": lambda inputs: dt.theta_join(inputs, on="ABS(A.v - B.v) <= 1", sample=True, how="full"),
    "best, inner": lambda inputs: dt.bestmatch_join(inputs, on=[dt.closest("v"), dt.least("A.k + B.k")], how="inner"),
    "asof, sampled": lambda inputs: dt.asof_join(inputs, time="ts", by="k", sample=True),
    "nearest": lambda inputs: dt.nearest_join(inputs, on="A.k = B.k AND ABS(A.v - B.v)", k=2, broadcast=False),
    "aggregates": lambda inputs: dt.aggregate_join(
        inputs, on="A.k = B.k AND B.v <= A.v", by="A", agg={"n": "count(*)", "s": "sum(B.id)"}
    ),
    "statement": lambda inputs: dt.sql("SELECT A.id FROM A, B WINDOW = 4 SECONDS WHERE A.k = B.k", **inputs),
    "plain statement": lambda inputs: dt.sql("SELECT count(*) FROM A, B WHERE A.v < B.v", **inputs),
    "approx, balanced": lambda inputs: dt.approx_join(inputs, on="A.k = B.k", memory="1 MB", seed=2),
}
STREAMS = {
    "shedding": lambda inputs: dt.window_join(
        inputs, on="A.k = B.k", time="ts", within="4 seconds", partitions=1, shed=dt.Harvest()
    ),
    "dropping": lambda inputs: dt.window_join(
        inputs, on="A.k = B.k", time="ts", within="4 seconds", shed=dt.RandomDrop(throttle=0.5)
    ),
}


def exploding(frames):
    """The same inputs, whose rows cannot be read."""
    return {
        name: frame.withColumn("id", F.raise_error(F.lit("evaluated")).cast("long")) for name, frame in frames.items()
    }


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_building_starts_no_job_and_changes_no_setting(spark, tmp_path, kind):
    for name in "AB":
        write_file(tmp_path, name, 0)
    inputs = exploding((tables if kind == "batch" else streams)(spark, tmp_path))
    joins = {**JOINS, **(MORE if kind == "batch" else STREAMS)}
    context, before = spark.sparkContext, dict(spark.conf.getAll)
    context.setJobGroup(f"building {kind}", "no job may run here")
    try:
        for join in joins.values():
            joined = join(inputs)
            assert joined.columns
            dt.explain(joined)
        ran = context.statusTracker().getJobIdsForGroup(f"building {kind}")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
    assert list(ran) == []
    assert dict(spark.conf.getAll) == before
    if kind == "batch":
        # The rows are as unreadable as they are meant to be.
        with pytest.raises(Exception, match="evaluated"):
            JOINS["window"](inputs).collect()

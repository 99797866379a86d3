"""Changes of a join that what is held cannot answer: refused before anything is written, with what changed."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tests.spark.changes import MAX, SAME, asof, begun, streams, summed, window

import dovetail as dt
from dovetail.errors import CheckpointError

pytestmark = [
    pytest.mark.since("4.1", "transformWithState on rows, whose state can be laid down"),
    pytest.mark.usefixtures("partitions_as_before"),
]


REFUSED = {
    "another time": (
        window(SAME, 4),
        lambda inputs, tasks: dt.window_join(inputs, on=SAME, time="n", within=4, partitions=tasks, lateness=2),
        "the time of A was 'ts' and is 'n'; rows were kept by the other",
    ),
    "a narrower type": (
        window(SAME, 4),
        lambda inputs, tasks: window(SAME, 4)(
            {alias: rows.withColumn("n", F.col("n").cast("int")) for alias, rows in inputs.items()}, tasks
        ),
        "the column A.n was of type bigint and is of type int; values that are held may not fit",
    ),
    "a column that is compared": (
        lambda inputs, tasks: window(SAME, 4)({alias: rows.drop("v") for alias, rows in inputs.items()}, tasks),
        window("A.k = B.k AND A.v < B.v", 4),
        "the condition compares A.v; rows of A that are held do not have that column",
    ),
    "a column that is never NULL": (
        window(SAME, 4),
        lambda inputs, tasks: window(SAME, 4)(inputs | {"A": inputs["A"].withColumn("x", F.lit(1))}, tasks),
        "the column A.x is new and never NULL; in rows that are held it is NULL",
    ),
    "no input stays": (
        window(SAME, 4),
        lambda inputs, tasks: window("X.k = Y.k", 4)({"X": inputs["A"], "Y": inputs["B"]}, tasks),
        "the inputs were A, B and are X, Y; none of them stays",
    ),
    "another join": (window(SAME, 4), asof(4), "it was a window join and is an as-of join; the two joins keep"),
    "windows of rows": (
        lambda inputs, tasks: dt.theta_join(inputs, on="A.v < B.v", window=5),
        lambda inputs, tasks: dt.theta_join(inputs, on="A.v < B.v", window=7),
        "windows of rows number them as they arrive",
    ),
    "without a tolerance": (asof(2), asof(None), "a row may then choose one that came at any time before"),
    "other keys": (
        asof(2),
        lambda inputs, tasks: dt.asof_join(inputs, by="n", time="ts", how="left", within="2 seconds"),
        "the keys was 'k = k' and is 'n = n'; rows that the old join has dropped would count",
    ),
    "chosen rows": (asof(2), asof(2, how="full"), "which rows of B have been chosen is not known"),
    "another aggregate": (
        summed(2, MAX),
        summed(2, MAX | {"s": "sum(B.v)"}),
        "the aggregates were 'max(B.id) AS b' and are 'max(B.id) AS b, sum(B.v) AS s'; "
        "CAST((B.v) AS DOUBLE) of type double is not held",
    ),
    "approximate": (
        lambda inputs, tasks: dt.approx_join(inputs, on=SAME, memory=500, seed=1, partitions=1),
        lambda inputs, tasks: dt.approx_join(inputs, on=SAME, memory=600, seed=1, partitions=1),
        "the memory was '500 rows' and is '600 rows'; an approximate join keeps more than rows",
    ),
}


@pytest.mark.in_turns(n=6)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_answered_is_refused_with_what_changed(spark, tmp_path, name):
    before, after, said = REFUSED[name]
    old = begun(spark, tmp_path, before)
    with pytest.raises(CheckpointError) as caught:
        dt.resume(after(streams(spark, tmp_path, "AB"), 2), old, tmp_path / "new")
    assert said in caught.value.given
    assert caught.value.given.startswith("the state cannot be carried over: ")
    assert "begin with an empty checkpoint" in str(caught.value.hint)
    assert not (tmp_path / "new").exists()

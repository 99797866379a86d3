"""How a routing reaches the workers."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.columns.layout import ARRIVAL, CELL_NUMBER, COPIES, SEGMENT, TURN
from dovetail.columns.sampling import SPARSE
from dovetail.spark.batch import in_turn
from dovetail.spark.routing import SEGMENTS, arrow_function, fitted, sampled

pytestmark = pytest.mark.spark


def _never(batches):
    yield from batches


def test_an_empty_sample_gives_the_blind_routing(spark):
    """Where Spark sees that the sample is empty it runs nobody to fit a routing, and the subquery is NULL."""
    empty = spark.range(10).filter("id < 0")
    routing = fitted(empty, _never, b"blind")
    rows = spark.range(4, numPartitions=2).select("id", routing).collect()
    assert sorted((row.id, bytes(row.g or b"")) for row in rows) == [
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


NEAR = [dt.closest("x", within=2), dt.closest("t", within="9 seconds")]
JOINS = {
    "theta": lambda sides, **where: dt.theta_join(sides, on="ABS(R.x - S.x) <= 2", **where),
    "multi-way": lambda sides, **where: dt.theta_join(
        sides | {"T": sides["S"]}, on=["R.x < S.x", "S.x < T.x + 3"], **({"partitions": 3} if where else {})
    ),
    "window": lambda sides, **_: dt.window_join(sides, on="R.k = S.k", time="t", within="5 seconds"),
    "as-of": lambda sides, **where: dt.asof_join(sides, time="t", by="k", **where),
    "as-of with a condition": lambda sides, **where: dt.asof_join(sides, time="t", on="R.x <= S.x", **where),
    "nearest": lambda sides, **where: dt.nearest_join(sides, on="ABS(R.x - S.x)", k=2, **where),
    "aggregate": lambda sides, **where: dt.aggregate_join(
        sides, on="ABS(R.x - S.x) <= 2", by="R", agg={"n": "count(*)"}, **where
    ),
    "best match": lambda sides, **_: dt.bestmatch_join(sides, on=NEAR),
    "approximate": lambda sides, **_: dt.approx_join(sides, on="R.k = S.k", memory=100, partitions=2),
}


@pytest.fixture(scope="module")
def files(spark, tmp_path_factory):
    """Both sides as files, which Spark knows the sizes of."""
    rows = spark.range(200).selectExpr("id", "id % 7 AS k", "CAST(id AS DOUBLE) AS x", "timestamp_seconds(id) AS t")
    file = str(tmp_path_factory.mktemp("routing") / "rows")
    rows.repartition(2).write.parquet(file)
    return {side: spark.read.parquet(file) for side in "RS"}


@pytest.mark.parametrize("broadcast", [None, False, "S"])
@pytest.mark.parametrize("name", JOINS)
def test_no_row_goes_to_python_with_a_null_list(files, monkeypatch, name, broadcast):
    """Spark 4.3 passes over all NULL lists of a batch after each row, unless its limit in bytes is out of reach."""
    handed = []

    def spied(frame, *arguments, **options):
        handed.append(frame)
        return into_python(frame, *arguments, **options)

    frame_type = type(files["R"])
    into_python = frame_type.mapInArrow
    monkeypatch.setattr(frame_type, "mapInArrow", spied)
    JOINS[name](files, **({} if broadcast is None else {"broadcast": broadcast}))
    assert handed
    for frame in handed:
        for column, kind in frame.dtypes:
            assert not kind.startswith("array") or not frame.where(F.col(column).isNull()).count(), (column, kind)


def _segments(batches):
    """Two batches of two segments each, whatever comes in."""
    for _ in batches:
        pass
    for turn in (1, 0):
        yield pa.RecordBatch.from_pydict(
            {
                CELL_NUMBER: pa.array([5, 3], pa.int32()),
                TURN: pa.array([turn, turn], pa.int32()),
                COPIES: pa.array([0, 0], pa.int64()),
                SEGMENT: pa.array([b"five", b"three"]),
            }
        )


def test_segments_are_numbered_by_task_and_position(spark):
    sent = spark.range(6, numPartitions=3).mapInArrow(arrow_function(_segments, numbered=True), SEGMENTS)
    found = [(row[CELL_NUMBER], row[TURN], row[ARRIVAL]) for row in sent.collect()]
    places = [(5, 1), (3, 1), (5, 0), (3, 0)]
    assert found == [(*place, (task << 33) + at) for task in range(3) for at, place in enumerate(places)]


def test_a_cell_has_its_segments_in_one_order(spark):
    """Whichever order they were fetched in: Spark ends a job in which a stage that runs again gives something else."""
    rows = [(cell, turn, number) for cell in (3, 5) for turn in (0, 1) for number in range(20)]
    orders = []
    for seed in (1, 2):
        random.Random(seed).shuffle(rows)
        segments = spark.createDataFrame(rows, f"{CELL_NUMBER} int, {TURN} int, {ARRIVAL} long").repartition(4)
        orders.append([tuple(row) for row in in_turn(segments, 1).collect()])
    assert orders[0] == orders[1] == sorted(rows)

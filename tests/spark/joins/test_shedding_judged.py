"""Shedding where only Spark can evaluate the condition: it goes by results, across restarts, and stays a subset."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.shedding.test_judged import WINDOW, exact, vectors
from tests.spark.joins.streams import put, run, source

import dovetail as dt
from dovetail.errors import CheckpointError

PRODUCT = "aggregate(zip_with(A.v, B.v, (x, y) -> x * y), 0D, (sum, x) -> sum + x) > 0.95"
SCHEMA = "t long, k long, v array<double>, n long"
CALLS = 4
TABLES = vectors(11, 700, 700)
TRUTH = exact(TABLES)


def files(folder, calls: range) -> None:
    """Put some of the micro-batches into the folders of the streams."""
    for name, table in TABLES.items():
        at = table.column("t").to_numpy()
        edges = np.linspace(0, max(table.column("t").to_numpy().max() for table in TABLES.values()) + 1, CALLS + 1)
        for call in calls:
            put(folder / name, table.filter(pa.array((at >= edges[call]) & (at < edges[call + 1]))))


def joined(spark, folder, on=PRODUCT, **more):
    inputs = {name: source(spark, folder / name, SCHEMA) for name in TABLES}
    given = {"time": "t", "within": WINDOW, "lateness": 0, "partitions": 2}
    return dt.window_join(inputs, on=on, **given, **more)


def pairs(frame) -> list[tuple[int, int]]:
    return sorted(map(tuple, frame.selectExpr("A.n AS a", "B.n AS b").collect()))


@pytest.fixture(scope="module")
def alike(spark) -> str:
    """A Python function that takes vectors and nothing else."""

    def dot(x, y) -> bool:
        assert x is not None
        assert y is not None
        return bool(np.dot(x, y) > 0.95)

    spark.udf.register("alike", dot, "boolean")
    return "alike(A.v, B.v)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("judged")
    files(place, range(CALLS))
    return place


@pytest.mark.in_turns(group="streams across a restart")
@pytest.mark.usefixtures("few_partitions")
def test_a_python_function_across_a_restart(spark, tmp_path, alike):
    """What was learned is in the checkpoint: the second run begins where the first ended."""
    seen = []
    for calls in (range(2), range(2, CALLS)):
        files(tmp_path, calls)
        frame = joined(spark, tmp_path, alike, shed=dt.Harvest(throttle=0.15, seed=3))
        seen += run(frame, tmp_path)
    found = pairs(spark.read.parquet(str(tmp_path / "out")))
    assert len(found) == len(set(found))
    assert set(found) <= set(TRUTH)
    reports = [report for report in seen if report.get("rows")]
    # Rows of B look for what came 700 before them; ages begin at -1000, and slices are 100 long.
    assert all(report["harvest_B_A"][17] == 1.0 for report in reports[1:])
    assert all(np.mean(report["harvest_B_A"]) < 0.5 for report in reports[1:])
    # The first micro-batch knows nothing and looks everywhere.  By candidates it would be a part like the throttle.
    assert len(found) > 0.6 * sum(TRUTH.values())
    assert all(report["recall_low"] <= report["recall"] <= report["recall_high"] for report in reports)
    # The inputs are read twice, from one place to the same place: the scout's rows are those of the harvest.
    offsets = [line for line in (tmp_path / "checkpoint/offsets/1").read_text().splitlines() if "logOffset" in line]
    assert len(offsets) == 4
    assert Counter(offsets[:2]) == Counter(offsets[2:])
    with pytest.raises(CheckpointError, match="the shedding was 'by the results of a sample' and is not given"):
        dt.check_checkpoint(joined(spark, tmp_path, alike), tmp_path / "checkpoint")


@pytest.mark.in_turns(group="an overload on Spark")
@pytest.mark.usefixtures("few_partitions")
def test_an_inner_product_of_arrays_sheds(spark, folder, tmp_path):
    """The paper's Example 1, evaluated by Spark alone: most results for a part of the pairs, and nothing else."""
    reports = run(joined(spark, folder, shed=dt.Harvest(throttle=0.15, seed=3)), tmp_path)
    found = pairs(spark.read.parquet(str(tmp_path / "out")))
    assert len(found) == len(set(found))
    assert set(found) <= set(TRUTH)
    assert len(found) > 0.6 * sum(TRUTH.values())
    formed = sum(report.get("candidates", 0) for report in reports)
    assert 0 < formed < 0.5 * _pairs_in_the_window()
    later = [report for report in reports if report.get("rows")][1:]
    assert later
    assert all(report["harvest_B_A"][17] == 1.0 and np.mean(report["harvest_B_A"]) < 0.5 for report in later)


@pytest.mark.in_turns(group="several seconds")
@pytest.mark.usefixtures("few_partitions")
def test_exact_where_nothing_is_overloaded(spark, folder, tmp_path):
    reports = run(joined(spark, folder, shed=dt.Harvest(target=600.0)), tmp_path)
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == sorted(TRUTH)
    assert all(report["recall"] == report["recall_low"] == report["throttle"] == 1.0 for report in reports)


@pytest.mark.in_turns(group="an overload on Spark")
@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize("shed", [dt.Harvest(throttle=0.15, seed=3), dt.RandomDrop(throttle=0.3)], ids=repr)
def test_semi_joins_shed_as_well(spark, folder, tmp_path, shed):
    frame = joined(spark, folder, how="semi", shed=shed)
    query = (
        frame.writeStream.format("memory").queryName("judged_semi")
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(180)
        counts = dt.metrics(query)
    finally:
        query.stop()
    found = [row[0] for row in spark.table("judged_semi").select("A.n").collect()]
    assert len(found) == len(set(found))
    assert set(found) <= {a for a, _ in TRUTH}
    assert found
    # Of 700 x 2 rows within a window of 1000 there are so many pairs; a part of them was formed.
    assert counts["candidates"] < 0.5 * _pairs_in_the_window()
    assert ("scouted_pairs" in counts) == isinstance(shed, dt.Harvest)


def _pairs_in_the_window() -> int:
    a, b = (table.column("t").to_numpy() for table in TABLES.values())
    return int((np.abs(np.subtract.outer(a, b)) <= WINDOW).sum())


@pytest.mark.in_turns
@pytest.mark.parametrize("on", ["sql", "python"])
def test_batch(spark, folder, alike, on, capsys):
    static = {name: spark.read.schema(SCHEMA).parquet(str(folder / name)) for name in TABLES}
    frame = dt.window_join(static, on=PRODUCT if on == "sql" else alike, time="t", within=WINDOW)
    assert pairs(frame) == sorted(TRUTH)
    dt.explain(frame)
    first = capsys.readouterr().out.splitlines()[0]
    assert "EVERY PAIR WITHIN THE WINDOW IS COMPARED (A with B)" in first
    assert "would help: =, <, a band" in first

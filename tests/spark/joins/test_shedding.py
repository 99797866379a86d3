"""Load shedding in Spark: the metrics of every micro-batch, exact at full throttle, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dovetail as dt
from dovetail.errors import ArgumentError
from dovetail.families.shedding.paper.workload import DriftingStreams

ON = "ABS(A.v - B.v) <= 1 AND ABS(B.v - C.v) <= 1"
LAGS = {"A": 0.0, "B": 1.0, "C": 2.0}
WINDOW, CALLS = 4_000_000, 2
TABLES = dict(zip(LAGS, DriftingStreams((2.0,) * 3, tuple(LAGS.values()), 60.0).made(10.0, seed=2), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A file of each stream for each micro-batch."""
    root = tmp_path_factory.mktemp("shedding")
    for name, rows in TABLES.items():
        (root / name).mkdir()
        at = rows.column("t").to_numpy() * CALLS // 10_000_000
        for call in range(CALLS):
            part = rows.filter(pa.array(at == call))
            file = root / name / f"{call}.parquet"
            pq.write_table(pa.Table.from_batches([part]), file)
            # Spark reads files by their time; of two that are as old, either may come first, and the other is late.
            os.utime(file, (1_700_000_000 + call,) * 2)
    return root


def exact() -> set[tuple[int, int, int]]:
    """The join as DuckDB computes it."""
    near = " AND ".join(f"ABS({a}.t - {b}.t) <= {WINDOW}" for a, b in ("AB", "BC", "AC"))
    database = duckdb.connect()
    for name, rows in TABLES.items():
        database.register(name, pa.Table.from_batches([rows]))
    return set(database.sql(f"SELECT A.n, B.n, C.n FROM A, B, C WHERE {ON} AND {near}").fetchall())


def streams(spark, folder: Path) -> dict:
    def stream(name: str):
        raw = spark.readStream.schema("t long, v double, n long").option("maxFilesPerTrigger", 1)
        return raw.parquet(str(folder / name))

    return {name: stream(name) for name in LAGS}


def run(spark, folder: Path, shed, name: str, **more):
    inputs = streams(spark, folder)
    joined = dt.window_join(
        inputs, on=ON, time="t", within=WINDOW, lateness=0, algorithm="nested", partitions=1, shed=shed, **more
    )
    query = joined.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(900)
        observed = [
            next(iter(p["observedMetrics"].values())).asDict() for p in query.recentProgress if p["numInputRows"]
        ]
    finally:
        query.stop()
    rows = spark.table(name).selectExpr("A.n AS a", "B.n AS b", "C.n AS c").collect()
    return {tuple(row) for row in rows}, observed


@pytest.mark.in_turns(group="an overload on Spark")
def test_exact_where_nothing_is_overloaded(spark, folder):
    same, calm = run(spark, folder, dt.Harvest(target=60.0), "shed_calm")
    assert same == exact()
    assert all(report["recall"] == report["recall_low"] == report["throttle"] == 1.0 for report in calm)


@pytest.mark.in_turns(group="an overload on Spark")
def test_a_subset_with_its_recall(spark, folder):
    some, reports = run(spark, folder, dt.Harvest(throttle=0.3, basic_window=500_000), "shed_some")
    assert some < exact()
    last = reports[-1]
    assert last["throttle"] == pytest.approx(0.3)
    assert 0 < last["recall_low"] <= last["recall"] <= last["recall_high"] <= 1
    assert 0 < last["work"] < last["work_full"]
    assert last["shredded"] > 0
    # From the second micro-batch on some slices are looked at and others are not.
    shares = [share for name, found in last.items() if name.startswith("harvest_") for share in found]
    assert 0 < np.mean(shares) < 1
    assert len(last["harvest_A_B"]) == 17


@pytest.mark.in_turns(group="an overload on Spark")
def test_dropping_is_a_subset(spark, folder):
    few, reports = run(spark, folder, dt.RandomDrop(throttle=0.3), "shed_drop")
    assert few < exact()
    # A fixed throttle holds from the first micro-batch on, before anything is learned.
    assert all(report["rows_dropped"] > 0 for report in reports)
    assert all(report["recall"] < 1 for report in reports)


@pytest.mark.parametrize("kind", [dt.Harvest, dt.RandomDrop])
def test_rows_carry_the_time_only_where_the_throttle_follows_the_clock(spark, folder, monkeypatch, kind):
    """Spark compares what a task gives when it runs again, and ends a query in which that differs."""

    def refuse(*_: object) -> None:
        raise AssertionError("a router that looks at the clock")

    monkeypatch.setattr("dovetail.spark.joins.window.SheddingRouter", refuse)
    given = {"on": ON, "time": "t", "within": WINDOW, "lateness": 0}
    dt.window_join(streams(spark, folder), **given, shed=kind(throttle=0.5))
    with pytest.raises(AssertionError, match="looks at the clock"):
        dt.window_join(streams(spark, folder), **given, shed=kind())


def test_the_plan_says_what_will_be_shed(spark, folder, capsys):
    joined = dt.window_join(
        streams(spark, folder), on=ON, time="t", within=WINDOW, lateness=0, shed=dt.Harvest(memory="1 MiB")
    )
    dt.explain(joined)
    text = capsys.readouterr().out
    assert "shed        only where a micro-batch takes longer than its rows took to arrive" in text
    assert "slices of 400000 where matches are unlikely are not looked at" in text
    assert "state of at most 1,048,576 bytes" in text


def test_refused(spark, folder):
    inputs = streams(spark, folder)
    two = {name: inputs[name] for name in "AB"}
    given = {"on": "A.v = B.v", "time": "t", "within": 5, "lateness": 0}
    with pytest.raises(ArgumentError, match=r"shed=0\.5"):
        dt.window_join(two, shed=0.5, **given)
    with pytest.raises(ArgumentError, match="how='left'"):
        dt.window_join(two, how="left", shed=dt.Harvest(), **given)
    with pytest.raises(ArgumentError, match="algorithm='merge'"):
        dt.window_join(two, algorithm="merge", shed=dt.RandomDrop(), **given)
    static = {name: spark.range(3).selectExpr("id AS t", "id AS v") for name in "AB"}
    with pytest.raises(ArgumentError, match="static inputs"):
        dt.window_join(static, on="A.v = B.v", time="t", within=5, shed=dt.Harvest())
    with pytest.raises(ArgumentError, match="memory=100"):
        dt.window_join(two, how="semi", shed=dt.Harvest(memory=100), **given)
    with pytest.raises(ArgumentError, match="at most 400 slices"):
        dt.window_join(two, shed=dt.Harvest(basic_window=1), **{**given, "within": 5000})

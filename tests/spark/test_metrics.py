"""What a query reports over all its micro-batches."""

from __future__ import annotations

import pytest
from tests.checkpoints.joins import JOINS, SCHEMA, streams, write_file

import dovetail as dt


def finished(frame):
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(900)
    return query


@pytest.fixture
def folder(tmp_path):
    for name in "AB":
        for number in range(2):
            write_file(tmp_path, name, number)
    return tmp_path


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["window", "asof", "approx"])
def test_a_query_is_added_up_over_its_micro_batches(spark, folder, name):
    joined = JOINS[name](streams(spark, folder))
    collected = joined.writeStream.format("memory").queryName(f"metrics_{name}").trigger(availableNow=True).start()
    assert collected.awaitTermination(900)
    total = dt.metrics(collected)
    assert total["rows"] == 32
    assert total["results"] == spark.table(f"metrics_{name}").count() > 0
    assert total["micro_batches"] == len(collected.recentProgress) > 2
    busy = [progress for progress in collected.recentProgress if progress.numInputRows]
    assert total["input_rows"] == sum(progress.numInputRows for progress in busy) > 0
    assert total["seconds"] * 1000 == pytest.approx(sum(one.durationMs["triggerExecution"] for one in busy))
    assert total["kernel_ms"] > 0
    held = sum(value for key, value in total.items() if key.startswith("held_rows"))
    assert 0 < held <= 32


@pytest.mark.parametrize("shed", [None, dt.Harvest(throttle=0.5, seed=1)], ids=["exact", "shedding"])
def test_a_stream_reports_its_fullest_cell(spark, tmp_path, shed):
    """One key for all rows fills one cell with them; rows without a key meet nothing, and are in none."""
    for name in "AB":
        frame = spark.sql("SELECT id, 7L AS k, timestamp_seconds(id) AS ts FROM range(40)")
        frame.coalesce(1).write.parquet(str(tmp_path / name))
    inputs = {
        name: spark.readStream.schema("id long, k long, ts timestamp").parquet(str(tmp_path / name)) for name in "AB"
    }
    inputs = {name: frame.withWatermark("ts", "5 seconds") for name, frame in inputs.items()}
    joined = dt.window_join(inputs, on="A.k = B.k", time="ts", within="4 seconds", partitions=4, shed=shed)
    [counters] = [
        next(iter(one.observedMetrics.values())) for one in finished(joined).recentProgress if one.numInputRows
    ]
    assert counters["most_rows"] == counters["rows"] == 80
    assert counters["cells"] >= 1


def test_the_last_report_alone_is_empty(spark, folder):
    """Why nobody should rely on it: after the last rows one more micro-batch moves the watermark."""
    query = finished(JOINS["window"](streams(spark, folder)))
    (last,) = query.lastProgress["observedMetrics"].values()
    assert last["rows"] == 0
    assert dt.metrics(query)["rows"] == 32


@pytest.mark.in_turns(group="several seconds")
def test_each_join_of_a_query_has_its_own(spark, folder):
    text = (
        "SELECT A.id FROM A, B WINDOW = 4 SECONDS WHERE A.k = B.k UNION ALL "
        "SELECT x.id FROM A AS x, B AS y WINDOW = 1 SECOND WHERE x.v = y.v"
    )
    total = dt.metrics(finished(dt.sql(text, **streams(spark, folder))))
    assert set(total) == {"dovetail(A,B)", "dovetail(x,y)", "micro_batches", "input_rows", "seconds"}
    assert total["dovetail(A,B)"]["rows"] == total["dovetail(x,y)"]["rows"] == 32


def test_early_rows_belong_to_the_only_join(spark, folder):
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    inputs = {name: reader.parquet(str(folder / name)) for name in "AB"}
    guarded = dt.watermarked(inputs, time="ts", delay="2 seconds", max_ahead="1 second", clock="ts")
    joined = dt.window_join(guarded, on="A.k = B.k", time="ts", within="4 seconds", partitions=1)
    total = dt.metrics(finished(joined))
    assert (total["early_A"], total["early_B"], total["rows"]) == (0, 0, 32)


def test_a_query_that_reports_nothing(spark, folder):
    query = finished(streams(spark, folder)["A"])
    rows = sum(progress.numInputRows for progress in query.recentProgress)
    known = dt.metrics(query)
    assert known.pop("seconds") >= 0
    assert known == {"micro_batches": len(query.recentProgress), "input_rows": rows}


@pytest.mark.in_turns
@pytest.mark.parametrize("among_rows", [False, True], ids=["aside", "among the rows"])
@pytest.mark.parametrize("rest", ["", " AND R.id % 3 + S.id % 2 < 3"], ids=["indexed", "judged by Spark"])
def test_what_follows_a_join_is_not_counted(spark, monkeypatch, among_rows, rest):
    """A sort reads its input twice, and observations of Spark before 4.3 count both times."""
    if among_rows:  # as on Spark Connect, which has no accumulators
        monkeypatch.setattr("dovetail.spark.metrics.is_remote", lambda: True)
    frame = spark.range(0, 60, 1, 3)
    found = {}
    for name, action in {
        "as it is": lambda rows: rows,
        "sorted": lambda rows: rows.orderBy("R.id", "S.id"),
        "sorted twice": lambda rows: rows.orderBy("S.id").repartition(3).orderBy("R.id"),
        "in groups": lambda rows: rows.groupBy("R.id").count().orderBy("count"),
    }.items():
        joined = dt.theta_join({"R": frame, "S": frame}, on="R.id < S.id" + rest, broadcast=False)
        action(joined).collect()
        counted = dt.metrics(joined)
        found[name] = {count: counted[count] for count in ("results", "candidates", "rows_points", "rows_boxes")}
    assert all(counts == found["as it is"] for counts in found.values()), found
    pairs = [(r, s) for r in range(60) for s in range(r + 1, 60) if not rest or r % 3 + s % 2 < 3]
    assert found["as it is"]["results"] == len(pairs)


NAMED = {
    "theta": lambda f, a, b: dt.theta_join(f, on=f"{a}.x <= {b}.x"),
    "theta, shuffled": lambda f, a, b: dt.theta_join(f, on=f"{a}.x <= {b}.x", broadcast=False),
    "window": lambda f, a, b: dt.window_join(f, on=f"{a}.k = {b}.k", time="t", within="5 seconds"),
    "as-of": lambda f, a, b: dt.asof_join(f, time="t", by="k"),
    "best match": lambda f, a, b: dt.bestmatch_join(f, on=[dt.closest("x")], by="k"),
    "approximate": lambda f, a, b: dt.approx_join(f, on=f"{a}.k = {b}.k", memory=100, seed=1),
    "nearest": lambda f, a, b: dt.nearest_join(f, on=f"ABS({a}.x - {b}.x)"),
    "aggregate": lambda f, a, b: dt.aggregate_join(f, on=f"{b}.k = {a}.k", by=a, agg={b.lower(): f"max({b}.x)"}),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("family", NAMED)
def test_inputs_may_be_called_as_internal_columns_are(spark, monkeypatch, family):
    """On Spark Connect, where counters travel among the rows, beside names that users have chosen."""
    monkeypatch.setattr("dovetail.spark.metrics.is_remote", lambda: True)
    columns = "id", "id % 3 AS k", "CAST(id * 7 % 11 AS DOUBLE) AS x", "timestamp_seconds(id) AS t"
    frame = spark.range(0, 12, 1, 2).selectExpr(*columns)
    found = []
    for names in (("A", "B"), ("g", "m"), ("segment", "M")):
        joined = NAMED[family](dict.fromkeys(names, frame), *names)
        found.append(sorted(str(tuple(row)[:2]) for row in joined.collect()))
        assert dt.metrics(joined)["results"] == len(found[-1]) > 0
    assert found[0] == found[1] == found[2]

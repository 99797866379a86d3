"""`dt.listen` on real queries."""

from __future__ import annotations

import json
import time

import pytest

import dovetail as dt
from dovetail.watch.files import read_records


def until(condition, seconds=120):
    """Wait for something; tests pass on a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def records_of(folder, name):
    """What has been written; nothing while the thread that writes has not begun."""
    files = list(folder.glob(f"{name}-*.jsonl"))
    assert len(files) <= 1
    return read_records(files[0]) if files else []


def test_a_query_of_any_program_leaves_its_start_its_batches_and_its_end(spark, tmp_path):
    with dt.listen(spark, folder=tmp_path):
        rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        query = rate.writeStream.format("noop").queryName("numbers").start()
        until(lambda: sum(progress["numInputRows"] for progress in query.recentProgress) > 0)
        query.stop()
    records = records_of(tmp_path, "numbers")
    assert [records[0]["kind"], records[-1]["kind"]] == ["start", "end"]
    assert (records[0]["job"], records[0]["mode"], records[0]["run"]) == ("numbers", "stream", str(query.runId))
    assert records[-1]["status"] == "finished"
    batches = [record for record in records if record["kind"] == "batch"]
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    assert sum(record["rows"] for record in batches) == sum(report["numInputRows"] for report in reports)
    assert "addBatch" in next(record for record in batches if record["rows"])["parts"]


def test_a_join_has_its_plan_and_its_target(spark, tmp_path):
    def side():
        rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        return rate.selectExpr("value AS id", "timestamp AS ts").withWatermark("ts", "1 second")

    with dt.listen(spark, folder=tmp_path):
        pairs = dt.window_join(
            {"left": side(), "right": side()}, on="left.id = right.id", time="ts", within="5 seconds",
            shed=dt.Harvest(target=60.0),
        )  # fmt: skip
        query = pairs.writeStream.format("noop").queryName("shed join").start()
        until(lambda: any(progress["numInputRows"] for progress in query.recentProgress))
        query.stop()
    records = records_of(tmp_path, "shed_join")
    [plan] = [record for record in records if record["kind"] == "plan"]
    assert plan["plan"].startswith("window join, stream")
    assert plan["target"] == 60.0
    batch = next(record for record in records if record["kind"] == "batch" and record["rows"])
    assert batch["throttle"] == 1.0
    assert set(batch["event"]) == {"min", "avg", "max", "watermark"}


def test_a_query_that_fails_says_why(spark, tmp_path):
    with dt.listen(spark, folder=tmp_path):
        rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        failing = rate.selectExpr("raise_error('the wheel came off') AS x")
        query = failing.writeStream.format("noop").queryName("broken").start()
        with pytest.raises(Exception, match="the wheel came off"):
            query.awaitTermination(120)
    end = records_of(tmp_path, "broken")[-1]
    assert (end["kind"], end["status"]) == ("end", "failed")
    assert "\n" not in end["error"]
    assert "the wheel came off" in end["error"] or "USER_RAISED_EXCEPTION" in end["error"]


def test_a_query_that_runs_already_and_goes_on(spark, tmp_path):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    query = rate.writeStream.format("noop").queryName("older").start()
    try:
        listening = dt.listen(spark, folder=tmp_path)
        until(lambda: any(record["kind"] == "batch" for record in records_of(tmp_path, "older")))
        listening.stop()
        listening.stop()
        assert query.isActive
    finally:
        query.stop()
    assert records_of(tmp_path, "older")[-1]["status"] == "unwatched"


def test_a_folder_that_cannot_be_written_fails_no_query(spark, tmp_path, caplog):
    place = tmp_path / "file"
    place.write_text("", encoding="utf-8")
    with dt.listen(spark, folder=place / "below"):
        rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        query = rate.writeStream.format("noop").start()
        until(lambda: len(query.recentProgress) > 1)
        query.stop()
    assert query.exception() is None
    assert "could not be written" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((7,), "listen got a int"), ((None,), "listen got a NoneType")],
)
def test_what_is_no_session_is_refused(arguments, said):
    with pytest.raises(dt.ArgumentError, match=said):
        dt.listen(*arguments)


def test_what_is_no_folder_is_refused(spark):
    with pytest.raises(dt.ArgumentError, match="folder=7"):
        dt.listen(spark, folder=7)

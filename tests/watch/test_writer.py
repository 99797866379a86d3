"""What a listener hears becomes files, and nothing makes the listener wait or fail."""

from __future__ import annotations

import threading
import time

import pytest
from tests.watch import made

from dovetail.watch import writer as module
from dovetail.watch.files import ProgressFile, read_records
from dovetail.watch.writer import RunWriter

NAMED = {"name": "pairs", "id": "id-of-the-query"}


def written(folder, name="pairs"):
    [file] = folder.glob(f"{name}-*.jsonl")
    return read_records(file)


def report(at, **more):
    return {**made.report(at, time.time(), **more), **NAMED}


def test_start_plan_batches_end(tmp_path):
    writer = RunWriter(tmp_path, lambda report: {"plan": "window join", "target": 3.0})
    writer.put("start", "run-1", NAMED)
    for at in range(3):
        writer.put("batch", "run-1", report(at))
    writer.put("end", "run-1", {"status": "failed", "error": "first\nsecond"})
    writer.stop({})
    records = written(tmp_path)
    assert [record["kind"] for record in records] == ["start", "plan", "batch", "batch", "batch", "end"]
    assert (records[-1]["status"], records[-1]["error"]) == ("failed", "first")


def test_a_run_that_nobody_ended_gets_its_end(tmp_path):
    writer = RunWriter(tmp_path, lambda report: {})
    writer.put("start", "run-1", NAMED)
    writer.stop({})
    assert written(tmp_path)[-1]["status"] == "finished"


def test_a_disk_that_hangs_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    go_on = threading.Event()
    whole = ProgressFile.write
    monkeypatch.setattr(ProgressFile, "write", lambda self, record: (go_on.wait(60), whole(self, record))[1])
    writer = RunWriter(tmp_path, lambda report: {})
    writer.put("start", "run-1", NAMED)
    for at in range(50):
        writer.put("batch", "run-1", report(at))
    writer.put("end", "run-1", {"status": "finished"})
    go_on.set()
    writer.stop({})
    records = written(tmp_path)
    assert records[-1]["kind"] == "end"
    batches = [record for record in records if record["kind"] == "batch"]
    assert 0 < len(batches) < 10
    assert sum(record.get("left_out", 0) for record in batches) >= 40


def test_a_report_of_another_shape_does_no_harm(tmp_path, caplog):
    writer = RunWriter(tmp_path, lambda report: {})
    writer.put("batch", "run-1", {**NAMED, "durationMs": 7})
    writer.put("batch", "run-1", report(1))
    writer.stop({})
    assert "could not be written" in caplog.text
    assert [record["kind"] for record in written(tmp_path)] == ["start", "batch", "end"]


@pytest.mark.parametrize(("target", "times"), [(3.0, 1), (30.0, 0), ("keep up", 0)])
def test_a_target_that_cannot_be_met_is_said_once(tmp_path, caplog, target, times):
    writer = RunWriter(tmp_path, lambda report: {"plan": "window join", "target": target})
    for at in range(9):
        writer.put("batch", "run-1", report(at, took=8.0, kernel=0.1))
    writer.stop({})
    assert caplog.text.count("shedding cannot make them shorter") == times

"""The programs and job files in examples/ run as they are, on small data."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

import dovetail as dt
from dovetail.command import running
from dovetail.datasets import meetings_and_repairs
from dovetail.jobs import read_job
from dovetail.jobs.progress import files, read_records

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
JOBS = sorted((EXAMPLES / "jobs").glob("*.yaml"))

# What each program is called with after the folder, and the folder that it writes.
PROGRAMS = {
    "approx_clicks": (500, "clicks_and_orders"),
    "asof_trades": (100, "priced_trades"),
    "bestmatch_projects": (12, "suited"),
    "bestmatch_weather": ((8, None), "rain"),
    "window_cameras": ((2, 50), "passages"),
    "window_news": ((40, 0.3), "same_event"),
    "window_packets": (200, "legs"),
    "window_retail": (20, "sold_together"),
}


def overlaps(meetings: int) -> tuple[int, int]:
    """How many pairs overlap, and how many meetings have none, by comparing every pair."""
    planned, repairs = (
        table.to_pylist() for table in meetings_and_repairs(meetings, meetings // 20, rooms=meetings // 50)
    )
    pairs = alone = 0
    for m in planned:
        hits = sum(
            m["start"] is not None and m["room"] == r["room"] and m["start"] < r["end"] and r["start"] < m["end"]
            for r in repairs
        )
        pairs += hits
        alone += not hits
    return pairs, alone


@pytest.mark.spark
def test_theta_bookings_from_the_command_line(tmp_path):
    command = [sys.executable, str(EXAMPLES / "theta_bookings.py"), str(tmp_path), "--meetings", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    written = pq.read_table(tmp_path / "disturbed_meetings")
    pairs, alone = overlaps(200)
    assert pairs > 0
    assert alone > 0
    assert (written.num_rows, written["repair"].null_count) == (pairs + alone, alone)
    assert written["disturbed_from"].null_count == alone
    assert f"{pairs + alone} rows" in done.stdout


def test_every_program_and_every_job_is_tested_and_described():
    programs = {file.stem for file in EXAMPLES.glob("*.py")}
    assert programs == {*PROGRAMS, "theta_bookings"}
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    for name in [*(f"{program}.py" for program in programs), *(job.name for job in JOBS)]:
        assert name in page


@pytest.fixture
def shared(spark, monkeypatch):
    """The session of all tests, for programs that start and stop one of their own."""
    monkeypatch.setattr(dt, "session", lambda *args, **options: spark, raising=False)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


# The job files below run the same joins; these programs run where CI=true.
SLOW = ("bestmatch_weather", "window_news", "window_packets", "window_retail")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PROGRAMS]
)
def test_program(name, shared, tmp_path, capsys):
    arguments, written = PROGRAMS[name]
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path, *(arguments if isinstance(arguments, tuple) else (arguments,)))
    assert pq.read_table(tmp_path / written).num_rows > 0
    assert str(tmp_path) in capsys.readouterr().out or name == "bestmatch_weather"


@pytest.fixture
def job_session(shared, monkeypatch, tmp_path):
    @contextmanager
    def session(app, log, *, conf=None):
        yield shared

    monkeypatch.setattr("dovetail.spark.quiet.quiet_session", session)
    monkeypatch.setenv("DOVETAIL_STATE", str(tmp_path / "state"))
    return shared


def rows_of(folder: Path, job) -> list[str]:
    return sorted(map(str, pq.read_table(job.output.path).to_pylist()))


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_job(file, job_session, tmp_path):
    console = Console(file=open("/dev/null", "w", encoding="utf-8"), width=120)  # noqa: SIM115, PTH123
    found = {}
    declared = read_job(file, variables={"folder": str(tmp_path)}).mode
    for mode in ("stream", "batch") if declared == "stream" else ("batch",):
        job = read_job(file, variables={"folder": str(tmp_path)}, mode=mode)
        running.run_job(console, job, tmp_path / "log")
        found[mode] = rows_of(tmp_path, job)
        records = read_records(files()[0])
        assert (records[0]["job"], records[-1]["status"]) == (job.name, "finished")
        assert sum(record.get("results") or 0 for record in records) == len(found[mode])
    assert found["batch"]
    if declared == "stream" and file.stem == "clicks":
        assert found["stream"]  # a sample by order of arrival
    elif declared == "stream":
        # What may still change has not left the stream yet.
        waits = file.stem in ("trades", "weather")
        assert set(found["stream"]) < set(found["batch"]) if waits else found["stream"] == found["batch"]
        assert found["stream"]
    console.file.close()

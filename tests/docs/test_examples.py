"""The programs and job files in examples/ run as they are, on small data, in the session that all tests share."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from dovetail import reference
from dovetail.command import running
from dovetail.datasets import meetings_and_repairs, trades_and_quotes, weather_sensors
from dovetail.jobs import read_job
from dovetail.reference.bestmatch import nearest
from dovetail.watch.files import files, read_records

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = sorted((EXAMPLES / "jobs").glob("*.yaml"))

# What each program is called with after the folder, and the folder that it writes.
PROGRAMS = {
    "approx_clicks": (["--rows", "500"], "clicks_and_orders"),
    "bestmatch_projects": (["--seekers", "12"], "suited"),
    "window_cameras": (["--minutes", "2", "--objects", "50"], "passages"),
    "window_news": (["--items", "40", "--throttle", "0.3"], "same_event"),
    "window_packets": (["--packets", "200"], "legs"),
    "window_retail": (["--per-hour", "20"], "sold_together"),
}
COMPARED = ("asof_trades", "bestmatch_weather", "theta_bookings")
"""Those that have a test of their own below."""


def test_every_program_and_every_job_is_tested_and_described():
    programs = {file.stem for file in EXAMPLES.glob("*.py")}
    assert programs == {*PROGRAMS, *COMPARED}
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    for name in [*(f"{program}.py" for program in programs), *(job.name for job in JOBS)]:
        assert name in page


@pytest.fixture
def shared(spark, monkeypatch):
    """The session of all tests, for programs that start and stop one of their own."""
    monkeypatch.setattr("dovetail.session", lambda *args, **options: spark, raising=False)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


@pytest.fixture
def program(shared, monkeypatch, tmp_path, capsys):
    """Runs a program as its command line does; what it printed comes back."""

    def run(name: str, *arguments: str) -> str:
        file = str(EXAMPLES / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [file, str(tmp_path), *arguments])
        runpy.run_path(file, run_name="__main__")
        return capsys.readouterr().out

    return run


# The job files below run the same joins; these programs are for make test-slow.
SLOW = ("window_news", "window_packets", "window_retail")


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PROGRAMS]
)
def test_program(name, program, tmp_path):
    arguments, written = PROGRAMS[name]
    assert str(tmp_path) in program(name, *arguments)
    assert pq.read_table(tmp_path / written).num_rows > 0


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


def test_theta_bookings(program, tmp_path):
    said = program("theta_bookings", "--meetings", "200")
    written = pq.read_table(tmp_path / "disturbed_meetings")
    pairs, alone = overlaps(200)
    assert pairs > 0
    assert alone > 0
    assert (written.num_rows, written["repair"].null_count) == (pairs + alone, alone)
    assert written["disturbed_from"].null_count == alone
    assert f"{pairs + alone} rows" in said


def test_asof_trades(program, tmp_path):
    said = program("asof_trades", "--trades", "100")
    trades, quotes = (table.to_pylist() for table in trades_and_quotes(100, 1000))
    found = reference.asof_join(
        {"trade": trades, "quote": quotes}, by=["item"], time="ts", within=timedelta(minutes=10), ties=["ask", "bid"],
        how="left",
    )  # fmt: skip
    wanted = Counter((*list(one["trade"].values())[::2], one["quote"] and one["quote"]["bid"]) for one in found)
    rows = pq.read_table(tmp_path / "priced_trades").to_pylist()
    assert Counter((row["item"], row["price"], row["bid"]) for row in rows) == wanted
    assert f"{len(trades)} trades, {sum(row['bid'] is not None for row in rows)} of them" in said


def test_bestmatch_weather(program, tmp_path):
    said = program("bestmatch_weather", "--sensors", "6")
    temperature, humidity = (table.to_pylist() for table in weather_sensors(6))
    near = [nearest("t", within=timedelta(minutes=10)), nearest("x", within=100.0), nearest("y", within=100.0)]
    found = reference.bestmatch_join({"R": temperature, "S": humidity}, near, "left")
    assert pq.read_table(tmp_path / "rain").num_rows == len(found) > 0
    assert f"{len(found)} pairs" in said
    assert 0 < pq.read_table(tmp_path / "live").num_rows <= len(found)


@pytest.fixture
def job_session(shared, monkeypatch, tmp_path):
    @contextmanager
    def session(app, log, *, conf=None):
        yield shared

    monkeypatch.setattr("dovetail.spark.runtime.quiet.quiet_session", session)
    monkeypatch.setenv("DOVETAIL_STATE", str(tmp_path / "state"))
    return shared


def rows_of(folder: Path, job) -> list[str]:
    return sorted(map(str, pq.read_table(job.output.path).to_pylist()))


@pytest.mark.in_turns
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

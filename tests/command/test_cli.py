"""The command line."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from rich.console import Console
from typer.testing import CliRunner

import dovetail
from dovetail.command import running
from dovetail.command.cli import app
from dovetail.command.demo import Sizes
from dovetail.command.demo_programs import leave
from dovetail.command.signals import Stopped, stop_requests
from dovetail.errors import SetupError
from dovetail.watch.files import ProgressFile, read_records

run = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which the demo makes its own, so that a test sees what is left of them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_version():
    done = run(app, ["--version"])
    assert done.exit_code == 0
    assert dovetail.__version__ in done.output


def test_help_lists_the_commands():
    done = run(app, ["--help"])
    assert done.exit_code == 0
    for command in ("demo", "run", "explain", "top", "bench", "data", "Exit codes"):
        assert command in done.output


def test_help_of_demo():
    done = run(app, ["demo", "--help"])
    assert done.exit_code == 0
    assert "quick" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--rows", "3"],
        ["demo", "--rows", "many"],
        ["dance"],
        ["run"],
        ["run", "job.yaml", "--mode", "fast"],
        ["run", "job.yaml", "--set", "folder"],
        ["data", "unknown", "folder"],
        ["bench", "unknown"],
    ],
)
def test_refused_before_spark_starts(arguments):
    done = run(app, arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_help_loads_no_spark():
    code = (
        "import sys\nfrom dovetail.command.cli import app\n"
        "try:\n    app(['demo', '--help'])\nexcept SystemExit:\n    sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def failing(error: Exception, said: bytes):
    @contextmanager
    def start(app, log, *, conf=None):
        log.write_bytes(said)
        raise error
        yield

    return start


@pytest.mark.parametrize(
    "error", [SetupError("no Java", hint="install it"), OSError("disk full"), KeyboardInterrupt()], ids=repr
)
def test_a_failure_is_a_message(error, monkeypatch, temporary):
    monkeypatch.setattr("dovetail.spark.runtime.quiet.quiet_session", failing(error, b""))
    done = run(app, ["demo", "--quick"])
    assert done.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert "Traceback" not in done.output
    assert (str(error).splitlines() or ["interrupted"])[0] in done.output
    assert not list(temporary.iterdir())


def test_a_failure_keeps_what_spark_said(monkeypatch, temporary):
    from pyspark.errors import PySparkException

    error = PySparkException("it broke\nat line 1\nat line 2\nat org.apache.Trace")
    monkeypatch.setattr("dovetail.spark.runtime.quiet.quiet_session", failing(error, b"a long story"))
    done = run(app, ["demo"])
    assert done.exit_code == 1
    assert "it broke" in done.output
    assert "org.apache.Trace" not in done.output
    (log,) = temporary.iterdir()
    assert str(log) in done.output
    assert log.read_bytes() == b"a long story"


@pytest.mark.parametrize(
    ("rows", "quick", "expected", "cut"),
    [(None, False, 400_000, 60_000), (None, True, 40_000, 30_000), (8_000, True, 8_000, 8_000)],
)
def test_sizes(rows, quick, expected, cut):
    sizes = Sizes.of(rows, quick=quick)
    assert (sizes.rows, sizes.cut) == (expected, cut)


def test_the_cut_has_an_upper_bound():
    assert Sizes.of(4_000_000, quick=False).cut == 60_000


@pytest.fixture
def shared(spark, monkeypatch):
    """The session of all tests in the place of one that a command starts."""

    @contextmanager
    def session(app, log, *, conf=None):
        yield spark

    monkeypatch.setattr("dovetail.spark.runtime.quiet.quiet_session", session)
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


def test_demo(temporary, shared, monkeypatch, capsys):
    report = temporary / "report.html"
    # Spark's own join of the usual cut takes most of the time.
    monkeypatch.setattr("dovetail.command.demo._OWN_QUICK", 2_000)
    done = run(app, ["demo", "--quick", "--rows", "8000", "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    # What only first joins wait for is not in the figures.
    assert re.search(r"Warm-up: [\d.]+ s, which only the first joins", done.stdout)
    # Spark and Dovetail agree on the cut, the large join gives about two matches a row, the stream gives some.
    assert "Dovetail found the same" in done.stdout
    assert (matches := re.search(r"8,000 x 8,000\s+([\d,]+)\s+[\d.]+", done.stdout))
    assert 14_000 < int(matches[1].replace(",", "")) < 18_000
    assert (stream := re.search(r"micro-batches\s+1,500 objects\s+([\d,]+)", done.stdout))
    assert int(stream[1].replace(",", "")) > 0
    assert not list(temporary.glob("dovetail-demo-*"))
    # The report holds its pictures and fetches nothing.
    page = report.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    # The three programs that it leaves run as they are; one that was changed stays.
    monkeypatch.setattr("dovetail.session", lambda: shared, raising=False)
    for name in ("range.py", "asof.py", "stream.py"):
        path = temporary / "dovetail-demo" / name
        assert f"python {path}" in done.stdout.replace("\n", "")
        assert path.name in page
        runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(r"^\d+ passages$", said, re.MULTILINE)
    assert said.count("only showing top 5 rows") == 2
    (temporary / "dovetail-demo" / "range.py").write_text("changed", encoding="utf-8")
    assert leave(temporary / "dovetail-demo")[0].text == "changed"


JOB = """\
mode: stream
generate: {dataset: cameras, into: data, batches: 3, objects: 20}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 1}}
inputs:
  A: &camera
    format: parquet
    path: data/A
    schema: obj long, speed long, ts timestamp
    options: {maxFilesPerTrigger: 1}
    watermark: {column: ts, delay: 5 seconds}
  B: {<<: *camera, path: data/B}
join: {kind: window, on: A.obj = B.obj, time: ts, within: 5 seconds, select: [A.obj]}
output: {format: parquet, path: out, checkpoint: chk, trigger: 1 second, mode: {batch: overwrite}}
"""


def test_a_broken_job_file_is_wrong_usage(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB.replace("trigger:", "triger:"), encoding="utf-8")
    done = run(app, ["run", str(tmp_path / "job.yaml")])
    assert done.exit_code == 2
    assert "job.yaml:13: output has no key 'triger'" in done.output
    assert "did you mean 'trigger'?" in done.output
    assert "Traceback" not in done.output


def interrupt(process: subprocess.Popen) -> None:
    """Ctrl-C of somebody who sees the process alone."""
    process.send_signal(signal.SIGINT)


def end_service(process: subprocess.Popen) -> None:
    """What a service manager does: SIGTERM to every process of the service, the JVM and Python workers included."""
    family: list[int] = []
    while len(family) < 2:  # the command and its JVM; Python workers and their daemon only where the job needs them
        assert process.poll() is None
        time.sleep(0.2)
        family = [process.pid]
        for pid in family:
            with suppress(FileNotFoundError):  # a process that has just ended
                for task in Path(f"/proc/{pid}/task").iterdir():
                    family += map(int, (task / "children").read_text().split())
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@contextmanager
def started(job: Path, *arguments: str):
    """A run in a process of its own, with the session that it starts itself."""
    environment = {**os.environ, "DOVETAIL_STATE": str(job.parent / "state"), "COLUMNS": "200"}
    command = [sys.executable, "-u", "-m", "dovetail", "run", str(job), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def last_record(folder: Path) -> dict:
    (file,) = (folder / "state").iterdir()
    return read_records(file)[-1]


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("end", [interrupt, end_service])
def test_a_stream_runs_until_it_is_ended(tmp_path, end):
    """Quietly, with its micro-batch committed."""
    job = tmp_path / "job.yaml"
    job.write_text(JOB, encoding="utf-8")
    with started(job) as process:
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("batch 1,"):
                end(process)
        errors = process.stderr.read()
        assert process.wait(timeout=900) == 130, errors
    assert errors == ""
    assert seen[-1] == "stopped; the next run goes on from here\n"
    assert (last_record(tmp_path)["kind"], last_record(tmp_path)["status"]) == ("end", "stopped")
    # The next run goes on where this one stopped, and ends: nothing is lost, nothing is there twice.
    environment = {"DOVETAIL_STATE": str(tmp_path / "state")}
    done = run(app, ["run", str(job), "--once"], env=environment)
    assert done.exit_code == 0, done.output
    assert "batch 0," not in done.stdout
    assert "batch 1," not in done.stdout
    found = pq.read_table(tmp_path / "out")["obj"].to_pylist()
    assert sorted(found) == sorted(pq.read_table(tmp_path / "data" / "B")["obj"].to_pylist())
    shown = run(app, ["top", "--once"], env=environment)
    assert "job" in shown.output
    assert "finished" in shown.output


ENDLESS = """\
generate: {dataset: cameras, into: data, batches: 1, objects: 20}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 1}}
inputs: {A: {format: parquet, path: data/A}}
join: {sql: "SELECT A.obj FROM A CROSS JOIN range(1000000000000000) WHERE rand() < -1"}
output: {format: parquet, path: out}
"""


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.spark
def test_a_batch_job_runs_until_it_is_ended(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(ENDLESS, encoding="utf-8")
    with started(job) as process:
        for line in process.stdout:
            seen = line
            if line.startswith("output"):
                while not (tmp_path / "out" / "_temporary").exists():
                    assert process.poll() is None
                    time.sleep(0.2)
                end_service(process)
        errors = process.stderr.read()
        assert process.wait(timeout=900) == 130, errors
    assert (errors, seen) == ("", "stopped before the job was done; the next run starts over\n")
    assert (last_record(tmp_path)["kind"], last_record(tmp_path)["status"]) == ("end", "stopped")
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_sigterm_interrupts_at_any_time(monkeypatch, temporary):
    """Also where no job runs yet: while Spark starts, say."""

    @contextmanager
    def start(app, log, *, conf=None):
        os.kill(os.getpid(), signal.SIGTERM)
        yield

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("dovetail.spark.runtime.quiet.quiet_session", start)
    done = run(app, ["demo", "--quick"])
    assert done.exit_code == 130
    assert "interrupted" in done.output
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("asked", [True, False])
def test_a_jvm_that_ends_with_the_same_signal(asked, tmp_path, monkeypatch):
    """Under spark-submit it is not ours.  A stream that was to stop has stopped; any other has failed."""

    class Built:
        def start(self):
            return None

    def follow(query, report, stopping):
        if asked:
            os.kill(os.getpid(), signal.SIGTERM)
        assert stopping() == asked
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr("dovetail.jobs.build.follow", follow)
    with (
        pytest.raises(Stopped if asked else Py4JNetworkError),
        stop_requests() as stop,
        ProgressFile("cameras", "stream", folder=tmp_path) as progress,
    ):
        running._run_stream(Console(file=StringIO()), Built(), progress, stop)
    assert read_records(progress.path)[-1]["status"] == ("stopped" if asked else "failed")


def test_a_batch_job_writes_how_far_it_is(tmp_path, monkeypatch):
    """Whoever watches it sees tasks, at most one record a second and none where nothing has changed."""
    from dovetail.spark import queries

    counted = [None, (0, 0), (1, 4), (1, 4), (3, 4)]
    done: Future[None] = Future()

    def running_tasks(spark):
        if not counted:
            done.set_result(None)
            return None
        return counted.pop(0)

    monkeypatch.setattr(queries, "running_tasks", running_tasks)
    monkeypatch.setattr(running, "_WRITE_TASKS_EVERY", 0.0)
    built = SimpleNamespace(spark=None)
    with ProgressFile("prices", "batch", folder=tmp_path) as progress:
        running._wait(Console(quiet=True), built, done, Event(), progress)
    found = [record for record in read_records(progress.path) if record["kind"] == "tasks"]
    assert [(record["done"], record["total"]) for record in found] == [(1, 4), (3, 4)]

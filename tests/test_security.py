"""Nothing runs code by accident, nothing is unpickled from data, temporary files are private, ports are local."""

from __future__ import annotations

import ast
import importlib.util
import os
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest

import dovetail as dt
from dovetail.conditions.predicates import parse
from dovetail.errors import JobError, PredicateError, StatementError
from dovetail.families.bestmatch.paper import pages
from dovetail.jobs import read_job
from dovetail.spark.runtime import session as session_module
from dovetail.spark.runtime.session import build_conf
from dovetail.statements.syntax.statement import read_statement

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dovetail"

# --- code ------------------------------------------------------------------------------------------------------------

FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "pickle.Unpickler",
    "cloudpickle.load", "cloudpickle.loads", "marshal.load", "marshal.loads", "shelve.open", "yaml.load",
    "yaml.full_load", "yaml.unsafe_load", "joblib.load", "np.load", "pd.read_pickle", "tempfile.mktemp",
}  # fmt: skip
ALLOWED = {
    # What this very class packed on the driver, and Spark pickled with it.
    ("spark/stream.py", "cloudpickle.loads")
}


def calls(file: Path):
    """The functions that a file calls, and whether it asks for a shell."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield (
                ast.unparse(node.func),
                any(
                    word.arg in ("shell", "allow_pickle") and ast.unparse(word.value) != "False"
                    for word in node.keywords
                ),
            )


def test_no_call_runs_text_or_unpickles():
    found = set()
    for file in SOURCE.rglob("*.py"):
        for name, odd in calls(file):
            if name in FORBIDDEN or odd:
                found.add((str(file.relative_to(SOURCE)), name))
    assert found == ALLOWED


TAGS = [
    "!!python/object/apply:os.system ['touch {mark}']",
    "!!python/object/new:os.system ['touch {mark}']",
    "!!python/object/apply:subprocess.check_output [[touch, '{mark}']]",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/object:dovetail.errors.JobError {{}}",
    "!!binary aGVsbG8=",
    "!!set {{a, b}}",
    "!!omap [a: 1]",
    "!local thing",
]


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("place", ["name: {}", "inputs: {{A: {}}}", "join: {{kind: theta, on: {}}}", "- {}"])
def test_tags_in_job_files_make_nothing(tmp_path, tag, place):
    mark = tmp_path / "mark"
    with pytest.raises(JobError, match="tag"):
        read_job(tmp_path / "job.yaml", text=place.format(tag.format(mark=mark)) + "\n")
    assert not mark.exists()


def test_values_of_job_files_stay_text(tmp_path):
    text = (
        "variables: {x: '__import__(\"os\").getcwd()', y: '$(id)', z: '`id`'}\n"
        "inputs: {A: {format: parquet, path: '${x}'}, B: {format: parquet, path: '${y}${z}'}}\n"
        "join: {kind: theta, on: A.x < B.x}\noutput: {format: noop}\n"
    )
    job = read_job(tmp_path / "job.yaml", text=text)
    assert job.inputs["A"].path == str(tmp_path / '__import__("os").getcwd()')
    assert job.inputs["B"].path == str(tmp_path / "$(id)`id`")


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE x", "INSERT INTO x SELECT 1", "SELECT 1; DROP TABLE x", "CREATE VIEW v AS SELECT 1", "SET a = b",
        "ADD JAR 'x.jar'", "DELETE FROM x", "CACHE TABLE x",
        "MERGE INTO x USING y ON x.a = y.a WHEN MATCHED THEN DELETE",
    ],
)  # fmt: skip
def test_statements_that_are_no_query_are_refused(text):
    with pytest.raises(StatementError):
        read_statement(text)


@pytest.mark.parametrize(
    "text", ["R.x < S.x; DROP TABLE x", "R.x < S.x UNION SELECT 1", "R.x < (SELECT max(x) FROM t)"]
)
def test_conditions_are_conditions(text):
    with pytest.raises(PredicateError):
        parse(text, {"R": ["x"], "S": ["x"]})


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A temporary directory of our own, with a careless umask."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0)
    yield tmp_path
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_pages_are_private_and_removed(temporary, monkeypatch):
    import pyarrow as pa

    from dovetail.families.bestmatch.spec import Axis, BestSpec, Counters

    seen = set()
    read = pages.Pages.read

    def watched(self, *arguments):
        seen.update(mode(folder) for folder in temporary.iterdir())
        assert [file for folder in temporary.iterdir() for file in folder.iterdir()]
        return read(self, *arguments)

    monkeypatch.setattr(pages.Pages, "read", watched)
    kinds = (pa.int64(),)
    spec = BestSpec(how="left", payload=(1, 1), types=(kinds, kinds), axes=(Axis("near_int", within=2),))
    rows = pa.RecordBatch.from_pydict({"0": list(range(20)), "1": list(range(20))})
    found = pages.join_pages(spec, rows, rows, (None, None), Counters(), memory=2)
    assert sorted(zip(*(side.tolist() for side in found), strict=True)) == [(at, at) for at in range(20)]
    assert seen == {0o700}
    assert list(temporary.iterdir()) == []


def _fail() -> None:
    from dovetail.command.cli import _reporting

    with _reporting("dovetail-test-") as log:
        log.write_text("something")
        raise OSError("broken")


def test_messages_of_a_command_are_private(temporary):
    import typer

    from dovetail.command.cli import _reporting

    with _reporting("dovetail-test-") as log:
        assert mode(log) == 0o600
        log.write_text("something")
    assert not log.exists()
    with pytest.raises(typer.Exit):
        _fail()
    (kept,) = temporary.iterdir()
    assert mode(kept) == 0o600


# --- network ---------------------------------------------------------------------------------------------------------


def test_a_local_session_is_told_to_stay_local(monkeypatch):
    conf = build_conf()
    for key in ("spark.driver.host", "spark.driver.bindAddress", "spark.connect.grpc.binding.address"):
        assert conf[key] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "false"
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    session_module._stay_on_this_machine(build_conf(conf={"spark.driver.bindAddress": "0.0.0.0"}))
    assert "SPARK_LOCAL_IP" not in os.environ
    session_module._stay_on_this_machine(conf)
    assert os.environ.pop("SPARK_LOCAL_IP") == "127.0.0.1"


def family(process: int) -> list[int]:
    """The processes below one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below = [process]
    for one in below:
        below += [child for child, parent in parents.items() if parent == one]
    return below[1:]


def listening(processes: list[int]) -> set[str]:
    """Addresses, as /proc writes them, on which processes wait for connections."""
    sockets = set()
    for process in processes:
        try:
            for handle in Path(f"/proc/{process}/fd").iterdir():
                sockets.add(str(handle.readlink()))
        except OSError:
            continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    found.add(fields[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.since("4.1", "sockets of the file system for the state of streams")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc")
def test_a_local_session_listens_on_loopback_only(spark, tmp_path):
    """While a stream with state runs, whose workers talk to the state store through a server of Spark's."""
    for name in "AB":
        spark.range(20).selectExpr("id", "timestamp_seconds(id) AS ts").write.parquet(str(tmp_path / name))
    streams = {
        name: spark.readStream.schema("id long, ts timestamp")
        .parquet(str(tmp_path / name))
        .withWatermark("ts", "1 second")
        for name in "AB"
    }
    joined = dt.window_join(streams, on="A.id = B.id", time="ts", within="1 second")
    found: set[str] = set()
    done = threading.Event()

    def look():
        while not done.is_set():
            found.update(listening(family(os.getpid())))
            time.sleep(0.05)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        query = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
    finally:
        done.set()
        watcher.join()
    assert found
    assert found <= LOOPBACK


# --- dependencies ----------------------------------------------------------------------------------------------------


def test_what_the_audit_says():
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    fine = {"name": "a", "version": "1", "vulns": []}
    flaw = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
    skipped = {"name": "c", "skip_reason": "not found on PyPI"}
    assert audit.verdict({"dependencies": [fine]}) == (["audit: no known vulnerability in 1 packages"], 0)
    lines, code = audit.verdict({"dependencies": [fine, flaw, skipped]})
    assert (lines[0], code) == ("b 2: PYSEC-1, mended in 2.1", 1)
    lines, code = audit.verdict({"dependencies": [fine, skipped]})
    assert code == 2
    assert "NOT DONE for 1 of 2 packages (c)" in lines[0]

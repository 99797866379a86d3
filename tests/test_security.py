"""Nothing runs code by accident, nothing is unpickled from data, temporary files are private, ports are local."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import pickle
import stat
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import dovetail as dt
from dovetail.checkpoints import CheckpointHeader
from dovetail.columns.segments import pack
from dovetail.columns.stored import opened, read_as_state
from dovetail.command.state import show
from dovetail.command.view import run_view
from dovetail.conditions.predicates import parse
from dovetail.errors import CheckpointError, JobError, PredicateError, StatementError
from dovetail.families.bestmatch.paper import pages
from dovetail.jobs import read_job
from dovetail.spark.checkpoint_files import CheckpointFiles
from dovetail.spark.runtime import session as session_module
from dovetail.spark.runtime.session import build_conf
from dovetail.spark.writing import writing_session
from dovetail.statements.syntax.statement import read_statement
from dovetail.watch.files import read_records

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
    ("spark/stream.py", "cloudpickle.loads"),
    # The source of a kernel of this package, with a counter in its loops; what it makes is called as the kernel is.
    ("columns/uncompiled.py", "compile"),
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


# --- checkpoints -----------------------------------------------------------------------------------------------------

WHOLE = {
    "metadata": '{"id":"75aa3ab8-224b-4f1d-9e31-68ed13406213"}',
    "offsets/0": 'v1\n{"batchWatermarkMs":5,"conf":{"spark.sql.shuffle.partitions":"2"}}\n{"logOffset":0}',
    "commits/0": 'v1\n{"nextBatchWatermarkMs":5}',
    "sources/0/0": 'v1\n{"path":"file:///data/a","timestamp":1,"batchId":0}',
}


def laid_down(folder: Path, **changed: str) -> CheckpointFiles:
    """The logs of a checkpoint, some of them changed."""
    for name, text in {**WHOLE, **changed}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return CheckpointFiles(folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata", "[]"),
        ("metadata", "\x80\x04N."),
        ("offsets/0", "v1\nno JSON\n{}"),
        ("offsets/0", "v1\n[1]\n{}"),
        ("offsets/0", 'v1\n{"conf":["a"]}\n{}'),
        ("offsets/0", "v1\n" + "[" * 100_000),
        ("commits/0", ""),
        ("commits/0", "v1"),
        ("commits/0", "v1\n1"),
    ],
)
def test_a_log_that_is_none_of_sparks_is_refused(tmp_path, name, text):
    assert laid_down(tmp_path / "whole").check() == 0
    with pytest.raises(CheckpointError):
        laid_down(tmp_path / "other", **{name: text}).check()


def test_a_watermark_that_is_none_is_refused(tmp_path):
    text = WHOLE["offsets/0"].replace(":5,", ':"__import__",')
    with pytest.raises(CheckpointError, match="watermark"):
        laid_down(tmp_path, **{"offsets/0": text}).watermark(0)


@pytest.mark.parametrize("link", ["sources/0/1", "sources/1", "offsets/9"])
def test_links_in_a_checkpoint_lead_nowhere(tmp_path, link):
    """A copy would hold what they lead to."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("mine")
    files = laid_down(tmp_path / "old")
    (tmp_path / "old" / link).symlink_to(tmp_path / "secret" / ("" if link == "sources/1" else "key"))
    with pytest.raises(CheckpointError, match="is a link"):
        files.check()


class Session:
    """Of a session, what a new one begins with."""

    def __init__(self) -> None:
        self.conf = self
        self.values: dict[str, str] = {}

    def newSession(self) -> Session:  # noqa: N802 - Spark's name
        return Session()

    def set(self, name: str, value: str) -> None:
        self.values[name] = value


def test_settings_of_a_checkpoint_that_may_name_code_are_left(tmp_path):
    lines = WHOLE["offsets/0"].splitlines()
    about = json.loads(lines[1])
    streaming = "spark.sql.streaming."
    about["conf"] |= {
        f"{streaming}checkpointFileManagerClass": "a.stranger's.Class",
        f"{streaming}stateStore.providerClass": "a.stranger's.Provider",
        "spark.sql.session.timeZone": "a stranger's",
        f"{streaming}stateStore.compression.codec": "zstd",
    }
    files = laid_down(tmp_path, **{"offsets/0": "\n".join([lines[0], json.dumps(about), lines[2]])})
    values = writing_session(Session(), files, 0, 3).values
    assert values[f"{streaming}stateStore.compression.codec"] == "zstd"
    assert not [name for name, value in values.items() if "stranger" in value]


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_nothing_in_a_checkpoint_is_unpickled(tmp_path):
    mark = tmp_path / "mark"
    hostile = pickle.dumps(Touch(mark))
    pickle.loads(hostile)
    mark.unlink()  # so it would be there
    with pytest.raises(CheckpointError):
        CheckpointHeader.read(hostile)
    with pytest.raises(CheckpointError), read_as_state("a cell"):
        opened(hostile)
    packed = bytes(pack(pa.RecordBatch.from_pydict({"x": pa.array([hostile])})))
    assert opened(packed).to_pylist() == [{"x": hostile}]
    assert not mark.exists()


def test_lengths_in_a_segment_are_not_taken_on_trust():
    right = bytes(pack(pa.RecordBatch.from_pydict({"x": ["a" * 77, "b" * 11]})))
    ends = np.array([0, 77, 88], dtype=np.int32).tobytes()
    assert right.count(ends) == 1
    wrong = right.replace(ends, np.array([0, 1 << 30, 88], dtype=np.int32).tobytes())
    assert opened(right).num_rows == 2
    with pytest.raises(CheckpointError, match="cell 3"), read_as_state("cell 3"):
        opened(wrong)


# --- text ------------------------------------------------------------------------------------------------------------

CLEAR = "\x1b[2J\x9b2J\u202e"
"""What clears a terminal, and turns the direction of writing."""


def test_what_strangers_say_is_shown_as_text(tmp_path):
    """By the records of a progress file, by names in a checkpoint, and by messages."""
    record = {"kind": "start", "job": f"a[/]{CLEAR}", "mode": "stream", "time": "2026", "pid": 1}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=120)
    console.print(run_view(read_records(tmp_path / "a.jsonl"), running=True))
    held = {"operator": 0, "join": f"[/x]{CLEAR}", "input": f"[/b]{CLEAR}", "cell": 0, "partition": 0, "rows": 1}
    show(console, [held | {"bytes": 1, "segments": 1, "freed": 0, "samples": [f'{{"a": "{CLEAR}"}}']}], cells=True)
    said = console.file.getvalue()
    assert "a[/]" in said
    assert "[/b]" in said
    assert not set(CLEAR[:1] + "\x9b\u202e") & set(said)


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

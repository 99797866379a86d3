"""What reads text and bytes from outside, each as one function of bytes.

A target comes back, or raises one of Dovetail's own errors inside, which is a refusal in words.  Anything else that it
raises is a fault, and so is whatever takes longer than `LIMIT`, or writes outside its folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

import pyarrow as pa
from rich.console import Console

from dovetail.checkpoints import HEADER, CheckpointHeader, check_headers
from dovetail.columns.segments import pack
from dovetail.command.state import show
from dovetail.conditions.durations import duration as read_duration
from dovetail.conditions.nearness import parse_nearness
from dovetail.conditions.predicates import parse
from dovetail.conditions.selection import Row, read_item, split_items
from dovetail.contents import DescribeCells
from dovetail.errors import DovetailError, visible
from dovetail.families.window.rerouting import Rerouting
from dovetail.inventory import HeldInput, StateLayout
from dovetail.jobs.read import read_job
from dovetail.moving import ROUTED, TakeApart
from dovetail.spark.checkpoint_files import CheckpointFiles
from dovetail.statements.syntax.commands import read_command
from dovetail.statements.syntax.parameters import bind
from dovetail.statements.syntax.statement import read_statement
from dovetail.watch.collect import Collector
from dovetail.watch.exposition import exposition
from dovetail.watch.files import no_progress_file, read_records
from dovetail.watch.history import RANGES, overview, run_details
from dovetail.watch.records import Record
from dovetail.watch.store import Store, reading

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 20.0
"""Seconds for one input; the slowest that is not a fault takes a tenth of one."""
COLUMNS = {"A": ("id", "k", "v", "ts"), "B": ("id", "k", "v", "ts"), "C": ("id", "x y", "v")}
NOW = 1_772_366_400.0
NOW_MICROS = 1_772_366_400_000_000


class HangError(Exception):
    """An input that takes too long."""


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise HangError(f"more than {LIMIT:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def job(data: bytes) -> None:
    """Read a job file, of text or of anything else."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.yaml"
        file.write_bytes(data)
        for mode in (None, "stream"):
            with contextlib.suppress(DovetailError):
                read_job(file, mode=mode)


def condition(data: bytes) -> None:
    """Read the condition of a join, and a distance."""
    text = _text(data)
    for read in (parse, parse_nearness):
        with contextlib.suppress(DovetailError):
            read(text, COLUMNS)


def selection(data: bytes) -> None:
    """Read what a call selects."""
    row = Row(COLUMNS, list(COLUMNS))
    with contextlib.suppress(DovetailError):
        for item in split_items(_text(data)):
            read_item(item, row)


def duration(data: bytes) -> None:
    """Read a length of time."""
    with contextlib.suppress(DovetailError):
        read_duration(_text(data), argument="within", zero=True)


def statement(data: bytes) -> None:
    """Read a statement, with and without parameters."""
    text = _text(data)
    for read in (read_command, read_statement, lambda text: bind(text, {"a": 1}), lambda text: bind(text, [1, "x"])):
        with contextlib.suppress(DovetailError):
            read(text)


def progress(data: bytes) -> None:
    """Read a progress file into a history, and make every page of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.jsonl"
        file.write_bytes(data)
        with contextlib.suppress(DovetailError):
            read_records(file)
        assert no_progress_file(file).args
        store = Store(Path(folder) / "history.sqlite3")
        try:
            Collector(store, Path(folder)).poll()
            with reading(Path(folder) / "history.sqlite3") as sql:
                _every_page(sql)
        finally:
            store.close()
        assert {one.name.split("-")[0] for one in Path(folder).iterdir()} <= {"job.jsonl", "history.sqlite3"}


def _every_page(sql: sqlite3.Connection) -> None:
    overview(sql, NOW)
    exposition(sql, NOW)
    runs: list[Record] = overview(sql, NOW)["runs"]
    for run in runs[:3]:
        for span in RANGES.values():
            run_details(sql, int(run["id"]), span, NOW)


_LAYOUT = StateLayout("asof", (HeldInput("A", ("id", "ts"), 1), HeldInput("B", ("id", "ts"), 1, 5)), {"cells": 4})
_HEADER = CheckpointHeader.of(
    {"join": "a window join", "inputs": "A, B", "window": "10 s", "time": "ts TIMESTAMP"}, _LAYOUT
)


def header(data: bytes) -> None:
    """Read the header of a checkpoint, and compare it with that of a join."""
    for read in (CheckpointHeader.read, lambda data: check_headers([_HEADER], [data])):
        with contextlib.suppress(DovetailError):
            read(data)


_SPLIT = b"\n%%\n"
"""Between the parts of an input that is several files or segments."""
_LOGS = ("metadata", "offsets/0", "offsets/1", "commits/0", "commits/1", "sources/0/0")


def logs(data: bytes) -> None:
    """Read the files beside the state of a checkpoint, and lay them down in another folder."""
    with tempfile.TemporaryDirectory() as place:
        folder, into = Path(place) / "old", Path(place) / "new"
        for name, content in zip(_LOGS, data.split(_SPLIT), strict=False):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        for sources in (None, [1, None, 0]):
            with contextlib.suppress(DovetailError):
                files = CheckpointFiles(folder)
                batch = files.check()
                files.settings(batch)
                files.watermark(batch)
                files.sources(batch)
                files.begin(into)
                files.copy_logs(into, batch, 3, sources)
                files.finish(into)
            shutil.rmtree(into, ignore_errors=True)
        assert {one.name for one in Path(place).iterdir()} <= {"old"}


def contents(data: bytes) -> None:
    """Show a cell of a checkpoint, a header and segments by their names, and divide its rows among other cells."""
    header, *parts = data.split(_SPLIT)
    segments = [(HEADER, header)]
    segments += [(_text(name), content) for name, content in zip(parts[::2], parts[1::2], strict=False)]
    batch = pa.RecordBatch.from_pylist(
        [
            {"operator": 0, "partition": 0, "cell": 3, "name": name, "segment": content, "watermark": NOW_MICROS}
            for name, content in segments
        ]
    )
    with contextlib.suppress(DovetailError):
        for found in DescribeCells(samples=2)([batch]):
            console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
            show(console, found.to_pylist(), cells=True)
            # Spark's row is a dictionary of the same.
            printed = console.file.getvalue()  # type: ignore[attr-defined]
            assert visible(printed) == printed
    with contextlib.suppress(DovetailError):
        layout = CheckpointHeader.read(header).layout
        if layout is not None and layout.family in ROUTED:
            for piece in TakeApart(Rerouting(layout))([batch]):
                piece.validate(full=True)


def _cell(family: str, far: int = 0) -> bytes:
    """What a cell of an as-of or window join has stored, all of it right, with a time `far` from now."""
    rows = pa.RecordBatch.from_pydict({
        "0": pa.array([1, 2, 3]), "1": pa.array(["a", "b", None]),
        "2": pa.array([NOW_MICROS, NOW_MICROS + 5 + far, None], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    held = tuple(HeldInput(name, ("id", "k", "ts"), 2, 5_000_000) for name in "AB")
    if family == "asof":
        layout = StateLayout("asof", held)
        parts = [b"L/1", bytes(pack(rows)), b"R/2", bytes(pack(rows))]
    else:
        facts = {
            "hull": [[[0, 0], [-5, 5]], [[-5, 5], [0, 0]]], "delays": [0, 0], "idle": None, "core": [0, 1],
            "extras": [], "cells": 4, "tasks": 2,
            "routing": {"classes": [{"kind": "int", "columns": [0, 0]}], "sliced": False, "grid": None},
            "flagged": [], "preserved": [], "optional": [], "sheds": None, "judged": False,
        }  # fmt: skip
        layout = StateLayout("window", held, facts)
        about = json.dumps({"tops": [NOW_MICROS, None], "segments": []}).encode()
        head = pa.RecordBatch.from_pydict({"none": pa.array([], pa.int64())}).replace_schema_metadata({b"about": about})
        parts = [b"head", bytes(pack(head)), b"0/0a", bytes(pack(rows)), b"1/0b", bytes(pack(rows))]
    join = "an as-of join" if family == "asof" else "a window join"
    return _SPLIT.join([CheckpointHeader.of({"join": join, "inputs": "A, B"}, layout).stored(), *parts])


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (job, condition, selection, duration, statement, progress, header, logs, contents)
}


def check(name: str, data: bytes) -> None:
    """Give a target an input; raises what is a fault."""
    with _in_time():
        TARGETS[name](data)


def seeds(name: str) -> Iterable[bytes]:
    """Inputs that are right, to begin with."""
    if name == "job":
        return [file.read_bytes() for file in sorted((ROOT / "examples" / "jobs").glob("*.yaml"))]
    if name == "progress":
        return [(ROOT / "fuzz" / "progress.jsonl").read_bytes()]
    if name == "header":
        old = _HEADER.stored().replace(b"10 s", b"20 s")
        short = _HEADER.stored().replace(b'"inputs": [', b'"others": [')
        return [_HEADER.stored(), old, short, b'{"format": 1}', b'{"format": 2, "join": {"join": "a window join"}}']
    if name == "logs":
        spark = ROOT / "tests" / "checkpoints" / "format-2" / "window" / "checkpoint"
        return [_SPLIT.join((spark / one).read_bytes() for one in _LOGS)]
    if name == "contents":
        return [_cell("asof"), _cell("window"), _cell("asof", 9 * 10**18 - NOW_MICROS)]
    if name == "duration":
        return [b"10 seconds", b"INTERVAL '1 02:03:04.5' DAY TO SECOND", b"1 hour 30 minutes", b"-3 ms", b"P1DT2H"]
    blocks = [
        block
        for page in sorted((ROOT / "docs").glob("*.md"))
        for block in re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    conditions = [
        "A.k = B.k AND A.ts BETWEEN B.ts - INTERVAL 5 SECONDS AND B.ts",
        "ABS(A.v - B.v) <= 3 OR NOT (A.id < B.id) AND C.`x y` IN (1, 2.5e3, 'a''b')",
        "SQRT(POWER(A.v - B.v, 2) + POWER(A.k - B.k, 2)) < 7 AND (A.id, A.k) = (B.id, B.k)",
        "A.(k - B.v) < B.k",
    ]
    if name == "selection":
        return [
            b"A.id, B.v - A.v AS gap, C.*",
            b"A.k.(v), *, count(*), A.`k` b, struct(A.*)",
            *map(str.encode, conditions),
        ]
    return [text.encode() for text in (conditions if name == "condition" else [*blocks, *conditions])]

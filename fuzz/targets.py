"""What reads text and bytes from outside, each as one function of bytes.

A target comes back, or raises one of Dovetail's own errors inside, which is a refusal in words.  Anything else that it
raises is a fault, and so is whatever takes longer than `LIMIT`, or writes outside its folder.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

from dovetail.checkpoints import CheckpointHeader, check_headers
from dovetail.conditions.durations import duration as read_duration
from dovetail.conditions.nearness import parse_nearness
from dovetail.conditions.predicates import parse
from dovetail.errors import DovetailError
from dovetail.inventory import HeldInput, StateLayout
from dovetail.jobs.read import read_job
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


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (job, condition, duration, statement, progress, header)
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
    ]
    return [text.encode() for text in (conditions if name == "condition" else [*blocks, *conditions])]

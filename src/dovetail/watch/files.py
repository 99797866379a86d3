"""Files of progress records: `dovetail run` and `dt.listen` write them, `top` and `watch` read them."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from dovetail.errors import ArgumentError, is_whole
from dovetail.watch.records import Record, read_json

_KEPT = 200
"""Files of past runs that stay."""
PART = 8_000_000
"""Bytes after which a run goes on in another file: one micro-batch a second makes a gigabyte in a week."""
PARTS = 2
"""Files of a run that stay."""


def state_folder() -> Path:
    """Where the files are: ``$DOVETAIL_STATE``, or ``dovetail`` in the user's state folder."""
    chosen = os.environ.get("DOVETAIL_STATE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "dovetail"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, and so each folder above it that is missing."""
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


CONTINUED = "continued"
"""The status at the end of a file whose run goes on in another."""


class ProgressFile:
    """Writes the records of one run.

    A long run goes on in a second file, and so on; the last two are kept.

    Parameters
    ----------
    job
        The name of the job.
    mode
        ``batch`` or ``stream``.
    folder
        Where the file goes; the state folder by default.
    more
        What else the first record says, such as the plan.
    """

    def __init__(self, job: str, mode: str, *, folder: Path | None = None, **more: Any) -> None:
        self._folder = folder or state_folder()
        make_private(self._folder)
        remove_oldest(self._folder)
        began = datetime.now(UTC)
        safe = re.sub(r"[^\w.-]+", "_", job)[:80]
        # Queries of one program may start in one second.
        number = f"-{str(more['run'])[:8]}" if "run" in more else ""
        self._stem = f"{safe}-{began:%Y%m%dT%H%M%S}-{os.getpid()}{re.sub(r'[^-0-9a-f]+', '', number)}"
        self._parts: list[Path] = []
        self.status = "failed"
        self.error: str | None = None
        self.start: Record = {
            "kind": "start", "job": job, "mode": mode, "pid": os.getpid(), "host": socket.gethostname(),
            "time": began.isoformat(), **more,
        }  # fmt: skip
        self._open()

    def _open(self) -> None:
        part = len(self._parts) + 1
        self.path = self._folder / (f"{self._stem}.jsonl" if part == 1 else f"{self._stem}.{part}.jsonl")
        handle = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._file: TextIO = os.fdopen(handle, "a", encoding="utf-8")
        self._size = 0
        self._parts.append(self.path)
        self.write(self.start)

    def __enter__(self) -> ProgressFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.status = "stopped"
        elif error is not None and self.status == "failed" and self.error is None:
            self.error = first_line(str(error) or type(error).__name__)
        self.close()

    def close(self) -> None:
        """Write the end: the status, and the error of a run that failed."""
        self.write({"kind": "end", **self._ending(), "time": datetime.now(UTC).isoformat()})
        self._file.close()

    def _ending(self) -> Record:
        return {"status": self.status} | ({"error": self.error} if self.error else {})

    def write(self, record: Record) -> None:
        """Add a record; a reader sees it at once."""
        text = json.dumps(record, default=str) + "\n"
        self._file.write(text)
        self._file.flush()
        self._size += len(text)
        if record.get("kind") == "plan":
            # Whoever begins to read in a later file wants it, too.
            self.start = {**self.start, **{key: value for key, value in record.items() if key not in ("kind", "time")}}
        elif record.get("kind") == "batch" and self._size > PART:
            self._go_on()

    def _go_on(self) -> None:
        end = {"kind": "end", "status": CONTINUED, "time": datetime.now(UTC).isoformat()}
        self._file.write(json.dumps(end) + "\n")
        self._file.close()
        self._open()
        for old in self._parts[:-PARTS]:
            old.unlink(missing_ok=True)


def first_line(text: str) -> str:
    r"""The first line of an error that says anything, and not too much of it.

    Examples
    --------
    >>> first_line("\n  no such table\n  hint: name another")
    'no such table'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[0] if len(lines[0]) <= 500 else f"{lines[0][:499]}…"


def remove_oldest(folder: Path) -> None:
    """Remove the oldest files of past runs, none of a process that is there."""
    for old in files(folder)[_KEPT:]:
        if not _is_there(_start_of(old).get("pid")):
            old.unlink(missing_ok=True)


def _start_of(file: Path) -> Record:
    """The first record of a file; empty where there is none."""
    try:
        with file.open(encoding="utf-8") as opened:
            record = read_json(opened.readline(1_000_000))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def files(folder: Path | None = None) -> list[Path]:
    """The files of all runs, the newest first."""
    dated = []
    for file in (folder or state_folder()).glob("*.jsonl"):
        try:
            dated.append((file.stat().st_mtime, file))
        except FileNotFoundError:
            # Another process has removed it since.
            continue
    return [file for _, file in sorted(dated, reverse=True)]


def read_records(file: Path) -> list[Record]:
    """All records of a file; a line that is still being written is left out.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ProgressFile("cameras", "stream", folder=Path(folder)) as run:
    ...         run.status = "finished"
    ...     [record["kind"] for record in read_records(run.path)]
    ['start', 'end']

    Raises
    ------
    ArgumentError
        If the file holds anything but records.
    """
    try:
        return list(_parsed(file.read_text(encoding="utf-8").splitlines(keepends=True)))
    except (ValueError, RecursionError):
        raise no_progress_file(file) from None


def no_progress_file(file: Path) -> ArgumentError:
    """The error for a file of something else."""
    return ArgumentError(
        f"{file} is not a progress file",
        accepted="a file that dovetail run or dt.listen wrote: one JSON record in each line, the first of them a start",
        hint=f"they are in {state_folder()}; the name of a job will do, too",
    )


def _parsed(lines: list[str]) -> Iterator[Record]:
    for line in lines:
        if line.endswith("\n") and line.strip():
            record = read_json(line)
            if not isinstance(record, dict) or "kind" not in record:
                raise ValueError(line)
            yield record


def is_running(records: list[Record]) -> bool:
    """Whether the run that wrote these records goes on: it wrote no end, and its process is there."""
    if not records or records[0].get("kind") != "start" or records[-1].get("kind") == "end":
        return False
    return _is_there(records[0].get("pid"))


def is_gone(start: Record) -> bool:
    """Whether the process of a run has gone; of another machine's nobody here can tell."""
    here = start.get("host") in (None, socket.gethostname())
    return here and not _is_there(start.get("pid"))


def _is_there(process: Any) -> bool:
    if not is_whole(process, most=2**31 - 1):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def follow(file: Path, interval: float) -> Iterator[list[Record]]:
    """All records so far, again and again, until the run is over."""
    while True:
        records = read_records(file)
        yield records
        if not is_running(records):
            return
        time.sleep(interval)

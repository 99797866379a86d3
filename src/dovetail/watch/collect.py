"""Reads progress files as they grow, into the history."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dovetail.errors import ArgumentError, is_whole
from dovetail.watch.advice import advice
from dovetail.watch.figures import Point, number, point_of, seconds_of
from dovetail.watch.files import CONTINUED, files, first_line, is_gone, state_folder
from dovetail.watch.histogram import merge
from dovetail.watch.records import Record, read_json
from dovetail.watch.store import RAW, Store, read_points

LOGGER = logging.getLogger("dovetail.watch")

_CHUNK = 4_000_000
"""Bytes that are read at a time; a line is never as long."""
_FORGET_EVERY = 300.0
_ADVISE_EVERY = 3.0
_LOOKED_AT, _MOST_LOOKED_AT = 900.0, 120
"""Seconds and micro-batches that advice looks back on."""
_LONGEST_TEXT = 20_000
_MOST_COUNTERS = 200

RUNNING, FAILED, GONE = "running", "failed", "gone"
ENDINGS = ("finished", "stopped", FAILED, "unwatched", GONE)

DURATIONS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the classes that micro-batches are counted in by what they took, in seconds."""
COUNTED = ("batches", "rows", "results", "written", "late", "early", "evicted", "took", "kernel")


def check_source(path: Path | None) -> Path:
    """The folder or the file to read: the state folder unless another one is named."""
    found = path or state_folder()
    if path is not None and not found.exists():
        raise ArgumentError(
            f"{path} does not exist",
            accepted="a progress file, or a folder of them",
            hint=f"dovetail run and dt.listen write them to {state_folder()} unless told otherwise",
        )
    return found


class Collector:
    """Fills the history from a folder of progress files, or from one file.

    Parameters
    ----------
    store
        Where it goes.
    source
        The folder, which may come into being later, or the file.
    """

    def __init__(self, store: Store, source: Path) -> None:
        self._store = store
        self._source = source
        self._sizes: dict[Path, int] = {}
        self._forgotten = 0.0
        self._advised = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval: float) -> None:
        """Read every so many seconds, in a thread."""
        self._thread = threading.Thread(target=self._loop, args=(interval,), name="dovetail-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)

    def _loop(self, interval: float) -> None:
        told: set[str] = set()
        while not self._stop.is_set():
            try:
                self.poll()
            except (OSError, sqlite3.Error) as error:
                # A disk that is full now may not be later.  What was read stays read, and nothing is lost.
                if str(error) not in told:
                    told.add(str(error))
                    LOGGER.warning("the history could not be written: %s", error)
            self._stop.wait(interval)

    def poll(self) -> None:
        """Read what is new."""
        now = time.time()
        for file in reversed([self._source] if self._source.is_file() else files(self._source)):
            try:
                size = file.stat().st_size
                if self._sizes.get(file) != size:
                    while self._read(file, now):
                        pass
                    self._sizes[file] = size
            except FileNotFoundError:
                continue
        self._look_for_the_gone(now)
        self._advise(now)
        if now - self._forgotten > _FORGET_EVERY:
            self._forgotten = now
            self._store.forget(now)

    def _read(self, file: Path, now: float) -> bool:
        """Read a piece of a file; whether there is more."""
        with self._store.transaction() as sql:
            known = sql.execute("SELECT run, offset FROM sources WHERE file = ?", (str(file),)).fetchone()
            run, offset = known or (None, 0)
            with file.open("rb") as opened:
                if opened.seek(0, 2) < offset:
                    run, offset = None, 0
                opened.seek(offset)
                data = opened.read(_CHUNK)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == _CHUNK:
                # No record is so long: whatever it is, it is none.
                end = _CHUNK
            if not end:
                return False
            run = self._take(sql, run, data[:end], now)
            sql.execute(
                "INSERT OR REPLACE INTO sources (file, run, offset, seen) VALUES (?, ?, ?, ?)",
                (str(file), run, offset + end, now),
            )
        return len(data) == _CHUNK

    def _take(self, sql: sqlite3.Connection, run: int | None, data: bytes, now: float) -> int | None:
        points: list[Point] = []
        last: Record | None = None
        for record in _records(data):
            kind = record.get("kind")
            if kind == "start":
                run = begin_run(sql, record, now)
            elif run is None:
                # The file does not begin with a start: it is not ours.
                return None
            elif kind == "batch":
                points.append(point_of(record, now=now))
                last = record
            elif kind == "tasks":
                keep_tasks(sql, run, record, now)
            elif kind == "plan":
                sql.execute(
                    "UPDATE runs SET plan = ?, target = ? WHERE id = ?",
                    (_text(record.get("plan")), _target(record.get("target")), run),
                )
            elif kind == "end" and record.get("status") != CONTINUED:
                end_run(sql, run, record, now)
        if run is not None and points:
            add_batches(self._store, sql, run, points, last or {})
        return run

    def _look_for_the_gone(self, now: float) -> None:
        """Runs whose process has ended without a word."""
        with self._store.transaction() as sql:
            for run, pid, host in sql.execute("SELECT id, pid, host FROM runs WHERE status = ?", (RUNNING,)).fetchall():
                if is_gone({"pid": pid, "host": host}):
                    sql.execute("UPDATE runs SET status = ?, ended = ? WHERE id = ?", (GONE, now, run))

    def _advise(self, now: float) -> None:
        """Look at the last micro-batches of runs that have new ones, and say what is wrong."""
        if now - self._advised < _ADVISE_EVERY:
            return
        since, self._advised = self._advised, now
        with self._store.transaction() as sql:
            runs = sql.execute(
                "SELECT id, target, ended FROM runs WHERE MAX(seen, ifnull(ended, 0)) >= ?", (since - 60,)
            )
            for run, target, ended in runs.fetchall():
                recent = read_points(sql, RAW, run, now - _LOOKED_AT)[-_MOST_LOOKED_AT:]
                # What is over needs no advice; why it failed stands beside it.
                found = [] if ended else advice(recent, target=_seconds(target))
                sql.execute(
                    "UPDATE runs SET advice = ? WHERE id = ?", (json.dumps([asdict(one) for one in found]), run)
                )


def _seconds(target: str | None) -> float | None:
    try:
        return None if target is None else float(target)
    except ValueError:
        # It keeps up with what arrives.
        return None


def _records(data: bytes) -> Iterator[Record]:
    for line in data.splitlines():
        try:
            record = read_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _text(value: object, longest: int = _LONGEST_TEXT) -> str | None:
    return None if value is None else str(value)[:longest]


def _target(value: object) -> str | None:
    return None if value is None else str(value)[:40]


def begin_run(sql: sqlite3.Connection, start: Record, now: float) -> int:
    """The number of a run, which may go on in a second file."""
    started = seconds_of(start.get("time")) or now
    pid, host = start.get("pid"), _text(start.get("host"), 200)
    key = _text(start.get("run"), 200) or f"{host}:{pid}:{start.get('time')}:{start.get('job')}"
    sql.execute(
        "INSERT INTO runs (key, job, mode, pid, host, started, seen, status, plan, target) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
        (
            key, _text(start.get("job"), 200) or "?", "batch" if start.get("mode") == "batch" else "stream",
            pid if is_whole(pid, most=2**31 - 1) else None, host, started, started, RUNNING,
            _text(start.get("plan")), _target(start.get("target")),
        ),
    )  # fmt: skip
    [(run,)] = sql.execute("SELECT id FROM runs WHERE key = ?", (key,)).fetchall()
    return int(run)


def keep_tasks(sql: sqlite3.Connection, run: int, record: Record, now: float) -> None:
    """Keep how far a batch job is, in place of what its end will say."""
    done, total = number(record.get("done")), number(record.get("total"))
    seen = seconds_of(record.get("time")) or now
    sql.execute(
        "UPDATE runs SET seen = MAX(seen, ?), last = ? WHERE id = ? AND mode = 'batch'",
        (seen, json.dumps({"tasks": [done, total]}), run),
    )


def end_run(sql: sqlite3.Connection, run: int, end: Record, now: float) -> None:
    """Keep how a run ended."""
    status = end.get("status")
    error = end.get("error")
    sql.execute(
        "UPDATE runs SET status = ?, ended = ?, error = ? WHERE id = ?",
        (
            status if status in ENDINGS else FAILED,
            seconds_of(end.get("time")) or now,
            first_line(str(error)) if error else None,
            run,
        ),
    )


def add_batches(store: Store, sql: sqlite3.Connection, run: int, points: list[Point], last: Record) -> None:
    """Add micro-batches of a run, its totals and its last record, within a transaction."""
    points.sort(key=lambda point: point["time"])
    store.add_points(run, points)
    [(text,)] = sql.execute("SELECT totals FROM runs WHERE id = ?", (run,)).fetchall()
    sql.execute(
        "UPDATE runs SET seen = MAX(seen, ?), totals = ?, last = ? WHERE id = ?",
        (points[-1]["time"], json.dumps(_totals(json.loads(text), points)), json.dumps(_last(last)), run),
    )


def _totals(totals: dict[str, Any], points: list[Point]) -> dict[str, Any]:
    """Sums since a run began, which Prometheus wants."""
    for name in COUNTED:
        known = [point[name] for point in points if point[name] is not None]
        if known:
            totals[name] = totals.get(name, 0) + sum(known)
    classes = totals.setdefault("durations", [0] * (len(DURATIONS) + 1))
    for point in points:
        seconds = point["took"] / 1000
        classes[next((at for at, bound in enumerate(DURATIONS) if seconds <= bound), len(DURATIONS))] += 1
    latency = {int(at): rows for at, rows in totals.get("latency", {}).items()}
    totals["latency"] = merge([latency, *(point["latency"] for point in points)])
    return totals


def _last(record: Record) -> Record:
    """What is kept of the last record: its number and its counters."""
    counters = record.get("counters")
    known: dict[str, Any] = {}
    if isinstance(counters, dict):
        for name, value in list(counters.items())[:_MOST_COUNTERS]:
            if number(value) is not None:
                known[str(name)[:100]] = value
    return {"batch": number(record.get("batch")), "counters": known, "left_out": number(record.get("left_out"))}

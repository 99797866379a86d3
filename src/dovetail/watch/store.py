"""The history: a small SQLite file with every micro-batch of the last hours, and coarser points of the days before.

Only :class:`Store` writes, in one transaction for each file that has grown.  How far a file has been read is kept in
the same transaction, so a console that is killed, or a second one beside it, neither loses nor repeats anything.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from dovetail.watch.figures import FIGURES, Point, together
from dovetail.watch.files import make_private
from dovetail.watch.histogram import packed, unpacked

RAW = 0
LEVELS = (60, 900)
"""Seconds of the points that micro-batches are rolled up to."""
HOUR, DAY = 3600.0, 86400.0
_VERSION = 1

_COLUMNS = (*FIGURES, "latency", "inputs")
_NAMES = ", ".join(_COLUMNS)
_MARKS = ", ".join("?" * (len(_COLUMNS) + 3))
_INSERT = f"INSERT OR REPLACE INTO points (level, run, time, {_NAMES}) VALUES ({_MARKS})"

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS runs (
  id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, job TEXT NOT NULL, mode TEXT NOT NULL, pid INTEGER, host TEXT,
  started REAL NOT NULL, ended REAL, seen REAL NOT NULL, status TEXT NOT NULL, error TEXT, plan TEXT, target TEXT,
  last TEXT, totals TEXT NOT NULL DEFAULT '{{}}', advice TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX IF NOT EXISTS runs_seen ON runs (seen);
CREATE INDEX IF NOT EXISTS runs_job ON runs (job, mode, started);
CREATE TABLE IF NOT EXISTS sources (file TEXT PRIMARY KEY, run INTEGER, offset INTEGER NOT NULL, seen REAL NOT NULL);
CREATE TABLE IF NOT EXISTS points (
  level INTEGER NOT NULL, run INTEGER NOT NULL, time INTEGER NOT NULL, {_NAMES},
  PRIMARY KEY (level, run, time)
) WITHOUT ROWID;
"""


class Store:
    """Writes the history.

    Parameters
    ----------
    path
        The file; it is made, readable by its owner only, where it does not exist.
    hours
        How long single micro-batches are kept.
    days
        How long points of a quarter of an hour, and runs, are kept; those of a minute stay for two days at most.
    """

    def __init__(self, path: Path, *, hours: float = 2.0, days: float = 30.0) -> None:
        make_private(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self.path = path
        self.kept = {RAW: min(hours * HOUR, days * DAY), 60: min(2.0, days) * DAY, 900: days * DAY}
        # The thread that reads the files opens it, another one may close it.
        self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = NORMAL")
        self._sql.execute("PRAGMA cache_size = -8000")
        [(version,)] = self._sql.execute("PRAGMA user_version").fetchall()
        if version not in (0, _VERSION):
            # History is convenience, and the files are still there: begin again.
            for table in ("runs", "sources", "points"):
                self._sql.execute(f"DROP TABLE IF EXISTS {table}")
        self._sql.executescript(_SCHEMA)
        self._sql.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._sql.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; one writer at a time, of all processes."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield self._sql
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")

    def add_points(self, run: int, points: list[Point]) -> None:
        """Add micro-batches of a run, within a transaction, in the order of time."""
        self._sql.executemany(
            _INSERT,
            [_row(RAW, run, round(point["time"] * 1000), point) for point in points],
        )
        for level in LEVELS:
            # Each level is made of the new points of the one before it; what it has of earlier ones comes on top.
            slots = groupby(points, key=partial(_slot, level))
            points = [self._roll_up(level, run, slot, together(list(several))) for slot, several in slots]

    def _roll_up(self, level: int, run: int, slot: int, fresh: Point) -> Point:
        time = slot * level * 1000
        found = self._sql.execute(
            f"SELECT time, {_NAMES} FROM points WHERE level = ? AND run = ? AND time = ?", (level, run, time)
        ).fetchone()
        total = fresh if found is None else together([point_from(found), fresh])
        self._sql.execute(
            f"INSERT OR REPLACE INTO points (level, run, time, {_NAMES}) VALUES ({_MARKS})",
            _row(level, run, time, total),
        )
        return fresh

    def forget(self, now: float) -> None:
        """Remove what is older than it is kept."""
        with self.transaction() as sql:
            for level, seconds in self.kept.items():
                for (run,) in sql.execute("SELECT id FROM runs").fetchall():
                    oldest = round((now - seconds) * 1000)
                    sql.execute("DELETE FROM points WHERE level = ? AND run = ? AND time < ?", (level, run, oldest))
            before = now - self.kept[900]
            sql.execute("DELETE FROM points WHERE run IN (SELECT id FROM runs WHERE seen < ?)", (before,))
            sql.execute("DELETE FROM sources WHERE seen < ?", (before,))
            sql.execute("DELETE FROM runs WHERE seen < ?", (before,))


def _slot(level: int, point: Point) -> int:
    return int(point["time"] // level)


def _row(level: int, run: int, time: int, point: Point) -> tuple[Any, ...]:
    inputs = json.dumps(point["inputs"], separators=(",", ":")) if point["inputs"] else None
    return (level, run, time, *(point[name] for name in FIGURES), packed(point["latency"]), inputs)


def point_from(row: Iterable[Any]) -> Point:
    """A point from its row: the time in milliseconds, then the columns."""
    time, *values = row
    point: Point = dict(zip(_COLUMNS, values, strict=True))
    inputs = point["inputs"]
    return point | {
        "time": time / 1000, "latency": unpacked(point["latency"]), "inputs": json.loads(inputs) if inputs else {},
    }  # fmt: skip


def read_points(sql: sqlite3.Connection, level: int, run: int, since: float, *, most: int = 1_000_000) -> list[Point]:
    """The points of a run since a time, the latest of them where there are too many."""
    rows = sql.execute(
        f"SELECT time, {_NAMES} FROM points WHERE level = ? AND run = ? AND time >= ? ORDER BY time DESC LIMIT ?",
        (level, run, round(since * 1000), most),
    )
    return [point_from(row) for row in rows][::-1]


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write, for one answer."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as sql:
        sql.execute("PRAGMA cache_size = -4000")
        sql.row_factory = None
        yield sql

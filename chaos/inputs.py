"""The input files of a run: many small ones, so that there are many micro-batches to be killed in."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "id long, k long, v long, ts timestamp"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPAN = timedelta(seconds=10)
"""Event time of one file."""
DISORDER = 3
"""Seconds by which a row may come too late; watermarks allow for more."""
DELAY = "5 seconds"
LAST = 1_000_000
"""Rows from this number on only move the watermarks past all others."""
CLOSING = 2
"""Files of such rows: the first moves Spark's watermark, and the second makes sure of a micro-batch that sees it."""

_KINDS = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def write_inputs(folder: Path, *, seed: int, files: int, rows: int) -> None:
    """Folders A, B and C of so many files of so many rows each, and a static table S of ranges."""
    for number, name in enumerate("ABC"):
        random = np.random.default_rng([seed, number])
        place = folder / name
        place.mkdir(parents=True)
        for file in range(files):
            _write(place, file, _rows(random, number, file, rows))
        for extra in range(CLOSING):
            late = START + (files + 1) * SPAN + (extra + 1) * timedelta(hours=1)
            far = {"id": LAST + extra, "k": -1 - number, "v": -1000 * (number + 1), "ts": late}
            _write(place, files + extra, [far])
    ranges = pa.table({"name": list("abcdef"), "low": [0, 5, 20, 20, 70, 99], "high": [5, 20, 60, 40, 90, 100]})
    (folder / "S").mkdir()
    pq.write_table(ranges, folder / "S" / "ranges.parquet")


def _rows(random: np.random.Generator, number: int, file: int, rows: int) -> list[dict[str, object]]:
    """Rows of one file in the order of arrival: times out of order, some keys and values NULL."""
    made: list[dict[str, object]] = []
    for at in range(rows):
        moment = START + file * SPAN + SPAN * (at / rows)
        made.append(
            {
                "id": file * rows + at,
                "k": None if random.random() < 0.03 else int(random.integers(0, 12)),
                "v": None if random.random() < 0.03 else int(random.integers(0, 100)),
                "ts": moment - timedelta(seconds=float(random.integers(0, 1000 * DISORDER)) / 1000),
            }
        )
    return made


def _write(place: Path, number: int, rows: list[dict[str, object]]) -> None:
    """A file that is newer than those before it: a stream reads them in the order of their times."""
    file = place / f"{number:04}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, _KINDS), file)
    moment = 1_700_000_000 + number
    os.utime(file, (moment, moment))

"""The input files of a run: many small ones, so that there are many micro-batches to interrupt.

All files of a folder have the same size.  A driver that dies after the file source has logged a file, but before the
micro-batch has, leaves that file to the next micro-batch, which then has one more; and Spark reads the largest file of
a micro-batch first.  Joins that depend on the order of arrival would see a different order than without the kill.
"""

from __future__ import annotations

import json
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


def write_inputs(folder: Path, *, seed: int, files: int, rows: int) -> None:
    """Folders A, B and C of so many files of so many rows each, and a static table S of ranges."""
    for number, name in enumerate("ABC"):
        random = np.random.default_rng([seed, number])
        place = folder / name
        parts = [_rows(random, number, file, rows) for file in range(files)]
        for extra in range(CLOSING):
            late = START + (files + 1) * SPAN + (extra + 1) * timedelta(hours=1)
            parts.append([{"id": LAST + extra, "k": -1 - number, "v": -1000 * (number + 1), "ts": late.isoformat()}])
        write_padded(place, ["\n".join(map(json.dumps, part)) for part in parts])
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
                "ts": (moment - timedelta(milliseconds=int(random.integers(0, 1000 * DISORDER)))).isoformat(),
            }
        )
    return made


AT_ONCE = "files-at-once"
"""A file in the folder of the inputs: how many files of an input a micro-batch reads.  Without it, one."""


def files_at_once(folder: Path) -> int:
    """How many files of an input a micro-batch reads."""
    said = folder / AT_ONCE
    return int(said.read_text(encoding="ascii")) if said.exists() else 1


def write_padded(place: Path, texts: list[str]) -> None:
    """Files of one size, each newer than those before it: a stream reads them in the order of their times."""
    place.mkdir(parents=True)
    size = max(map(len, texts))
    for number, text in enumerate(texts):
        file = place / f"{number:04}.json"
        file.write_text(f"{text:{size}}\n", encoding="ascii")
        moment = 1_700_000_000 + number
        os.utime(file, (moment, moment))

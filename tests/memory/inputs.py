"""Two inputs of which one key has most rows, as Parquet; and the sums over a join's pairs, without forming them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

KEYS = 1000
_ROWS = 1 << 20


def made(rows: int, heavy: float, seed: int, text: int = 0) -> pa.Table:
    """`rows` rows, of which key 0 has a share `heavy`; values lie a unit apart on average."""
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "id": np.arange(rows),
        "k": np.where(random.random(rows) < heavy, 0, random.integers(0, KEYS, rows)).astype(np.int32),
        # Multiples of a power of two: their differences are exact.
        "x": random.integers(0, 1024 * rows, rows) / 1024,
        "t": random.integers(0, rows, rows),
    }
    if text:
        columns["s"] = pa.array(["x" * text] * rows)
    return pa.table(columns)


def write(folder: Path, rows: int, heavy: float, text: int = 0, files: int = 1) -> None:
    """Both inputs below a folder, each in several row groups."""
    for seed, side in enumerate("ab"):
        (folder / side).mkdir(parents=True, exist_ok=True)
        table, each = made(rows, heavy, seed, text), -(-rows // files)
        for file in range(files):
            name = folder / side / f"rows-{file:02}.parquet"
            pq.write_table(table.slice(file * each, each), name, row_group_size=max(1, rows // 8))


def _columns(folder: Path, side: str, *names: str) -> list[Any]:
    table = pq.read_table(folder / side, columns=list(names))
    return [table[name].to_numpy() for name in names]


def _digest(ids: Index, others: Index) -> list[int]:
    f, g = ids % 65521, others % 65521
    return [ids.size, int(f.sum()), int(g.sum()), int((f * g).sum())]


def _added(parts: Iterator[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*parts, strict=True)]


def of_bands(folder: Path, width: float, *, keyed: bool, window: int | None = None) -> list[int]:
    """The sums over pairs at most so far apart, with equal keys if there are keys, and within a window of time."""
    mine, other = (_columns(folder, side, "id", "k", "x", "t") for side in "ab")
    if not keyed:
        mine[1], other[1] = np.zeros_like(mine[1]), np.zeros_like(other[1])
    order = np.lexsort((other[2], other[1]))
    other = [column[order] for column in other]

    def parts() -> Iterator[list[int]]:
        for key in np.unique(mine[1]):
            begin, end = np.searchsorted(other[1], [key, key + 1])
            ids, _, values, times = (column[mine[1] == key] for column in mine)
            others, _, run, other_times = (column[begin:end] for column in other)
            for at in range(0, ids.size, _ROWS):
                some = slice(at, at + _ROWS)
                first = np.searchsorted(run, values[some] - width, side="left")
                counts = np.searchsorted(run, values[some] + width, side="right") - first
                i = np.repeat(np.arange(counts.size), counts)
                j = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(i.size)
                if window is not None:
                    near = np.abs(times[some][i] - other_times[j]) <= window
                    i, j = i[near], j[near]
                yield _digest(ids[some][i], others[j])

    return _added(parts())


def of_last(folder: Path) -> list[int]:
    """The sums over the pairs of an as-of join: each row with the last of its key, the largest id where several tie."""
    (ids, keys, times), (others, other_keys, other_times) = (_columns(folder, side, "id", "k", "t") for side in "ab")
    order = np.lexsort((others, other_times, other_keys))
    top = int(max(times.max(), other_times.max())) + 1
    moments = other_keys[order].astype(np.int64) * top + other_times[order]
    found = np.searchsorted(moments, keys.astype(np.int64) * top + times, side="right") - 1
    hit = (found >= 0) & (other_keys[order][np.maximum(found, 0)] == keys)
    return _digest(ids[hit], others[order][found[hit]])


def of_nearest(folder: Path) -> list[int]:
    """The sums over the pairs of each row with those of its key whose value is nearest, all of them where they tie."""
    mine, other = (_columns(folder, side, "id", "k", "x") for side in "ab")
    order = np.lexsort((other[2], other[1]))
    other = [column[order] for column in other]

    def parts() -> Iterator[list[int]]:
        for key in np.unique(mine[1]):
            begin, end = np.searchsorted(other[1], [key, key + 1])
            ids, _, values = (column[mine[1] == key] for column in mine)
            others, _, run = (column[begin:end] for column in other)
            if not run.size:
                continue
            at = np.searchsorted(run, values)
            below, above = run[np.maximum(at - 1, 0)], run[np.minimum(at, run.size - 1)]
            nearest = np.minimum(np.abs(values - below), np.abs(values - above))
            for value in (-nearest, nearest):
                first = np.searchsorted(run, values + value, side="left")
                counts = np.searchsorted(run, values + value, side="right") - first
                if value is nearest:
                    counts = np.where(nearest == 0, 0, counts)
                i = np.repeat(np.arange(counts.size), counts)
                j = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(i.size)
                yield _digest(ids[i], others[j])

    return _added(parts())


def main() -> None:
    """Write the inputs of a run by hand: folder, rows, share of the heavy key, bytes of text."""
    folder, rows, heavy, *text = sys.argv[1:]
    write(Path(folder), int(rows), float(heavy), int(text[0]) if text else 0)


if __name__ == "__main__":
    main()

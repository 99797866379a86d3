"""Rows of a cell in pieces, where all of them together are more than a worker may hold.

A cell that fits stays in memory, as it came.  One that does not goes to disk as it comes, both sides of it, and comes
back piece by piece: memory then holds a piece of one side and a piece of the other, whatever their number.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa

from dovetail.columns import memory
from dovetail.columns.segments import concat, pack, unpack


class Spool:
    """Batches on disk, read again in the order in which they came, as often as somebody asks.

    The file has no name, so the operating system removes it with the process, however that ends.

    Examples
    --------
    >>> spool = Spool()
    >>> spool.add(pa.RecordBatch.from_pydict({"x": [1, 2]}))
    >>> spool.add(pa.RecordBatch.from_pydict({"x": [3]}))
    >>> [rows.column(0).to_pylist() for rows in spool], spool.rows
    ([[1, 2], [3]], 3)
    """

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self._file: IO[bytes] | None = None
        self._parts: list[tuple[int, int]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows behind the others."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="dovetail-", dir=_folder())  # noqa: SIM115 - closed with the cell
        packed = pack(rows)
        self._file.seek(self.size)
        self._file.write(packed)
        self._parts.append((self.size, packed.size))
        self.size += packed.size
        self.rows += rows.num_rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the batches one after the other."""
        return map(self.batch, range(len(self._parts)))

    def batch(self, at: int) -> pa.RecordBatch:
        """The batch that came as number `at`."""
        begin, size = self._parts[at]
        assert self._file is not None
        self._file.seek(begin)
        return unpack(self._file.read(size))

    def close(self) -> None:
        """Give the disk back."""
        if self._file is not None:
            self._file.close()
        self._file, self._parts = None, []

    def __del__(self) -> None:
        """Give it back in a task that ends before its time, too."""
        self.close()


def _folder() -> str | None:
    """Where Spark puts what does not fit into memory, one of its folders; the system's own where Spark names none."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    usable = [folder for folder in folders if Path(folder).is_dir()]
    return random.choice(usable) if usable else None


def portions(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Rows in parts that cost no more than `most`, at least one row each.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"x": list(range(10))})
    >>> [part.num_rows for part in portions(rows, memory.cost(rows) // 3)]
    [3, 3, 3, 1]
    """
    taken = memory.cost(rows)
    if taken <= most:
        yield rows
        return
    step = max(1, rows.num_rows * most // taken)
    for at in range(0, rows.num_rows, step):
        yield rows.slice(at, step)


def gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Batches put together, as many as cost no more than `most`; larger ones are cut.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    >>> [part.num_rows for part in gathered([rows, rows, rows], 2 * memory.cost(rows))]
    [6, 3]
    """
    held: list[pa.RecordBatch] = []
    taken = 0
    for batch in batches:
        for part in portions(batch, most):
            if held and taken + memory.cost(part) > most:
                yield concat(held)
                held, taken = [], 0
            held.append(part)
            taken += memory.cost(part)
    if held:
        yield concat(held)


@dataclass
class Pieces:
    """The side that a cell holds, and the side that passes by it: in memory, or both on disk once the former is large.

    Examples
    --------
    >>> pieces = Pieces()
    >>> pieces.hold(pa.RecordBatch.from_pydict({"x": [1, 2]}))
    >>> pieces.split, pieces.whole().num_rows
    (False, 2)
    """

    held: list[pa.RecordBatch] = field(default_factory=list)
    held_rows: int = 0
    most: int | None = None
    """What a piece may cost, once somebody had to ask."""
    on_disk: Spool = field(default_factory=Spool)
    """The held rows of a split cell."""
    passing: Spool = field(default_factory=Spool)
    """The rows that pass by a split cell."""
    split: bool = False
    """Whether the rows lie on disk, and come back in pieces."""
    _taken: int = 0

    @property
    def spilled(self) -> int:
        """The bytes that have been written."""
        return self.on_disk.size + self.passing.size

    def hold(self, rows: pa.RecordBatch) -> None:
        """Take in rows of the side that a cell holds."""
        self.held_rows += rows.num_rows
        if self.split:
            self.on_disk.add(rows)
            return
        self.held.append(rows)
        self._taken += memory.cost(rows)
        if self._taken > memory.FLOOR and self._taken > self.limit():
            self.split = True
            for some in self.held:
                self.on_disk.add(some)
            self.held = []

    def let_pass(self, rows: pa.RecordBatch) -> None:
        """Take in rows of the other side, of a cell that is split: every piece will ask for them."""
        self.passing.add(rows)

    def limit(self) -> int:
        """What a piece may cost; asked once, so that all pieces of a cell are of one size."""
        if self.most is None:
            self.most = memory.share()
        return self.most

    def whole(self) -> pa.RecordBatch:
        """All held rows as one batch, of a cell that is not split."""
        if len(self.held) != 1:
            self.held = [concat(self.held)]
        return self.held[0]

    def held_pieces(self) -> Iterator[pa.RecordBatch]:
        """The held rows of a split cell, piece by piece, in the order in which they came."""
        return gathered(self.on_disk, self.limit())

    def passing_pieces(self) -> Iterator[pa.RecordBatch]:
        """The rows that passed by, piece by piece, in their order; the same pieces each time."""
        return gathered(self.passing, self.limit())

    def close(self) -> None:
        """Give the disk back."""
        self.on_disk.close()
        self.passing.close()

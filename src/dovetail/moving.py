"""Stored state on its way to other cells: stages on segments, for families whose cells follow the number of tasks.

Of all other families a cell stays what it is, and only finds another task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.checkpoints import HEADER
from dovetail.columns.segments import binary_column, pack, unpack
from dovetail.families.window.rerouting import Rerouting

MOVED = ("operator", "cell", "name", "segment")
"""The columns of segments on their way."""
ROUTED = ("window", "shedding")
"""Families with as many cells as the tasks need; the others have a fixed number of them."""


@dataclass(frozen=True)
class TakeApart:
    """The segments of an old cell in; pieces for new cells out."""

    rerouting: Rerouting

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark with the segments of one cell, of all operators of a join."""
        operators: dict[int, dict[str, pa.RecordBatch]] = {}
        found = list(_segments(batches))
        for operator, _, name, content in found:
            if name != HEADER:
                operators.setdefault(operator, {})[name] = unpack(content)
        yield from _batches(self.rerouting.pieces(found[0][1], operators))


@dataclass(frozen=True)
class PutTogether:
    """The pieces of a new cell in; its segments out, with a header of each operator."""

    rerouting: Rerouting
    headers: Mapping[int, bytes]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark with the pieces of one cell, of all operators of a join."""
        found = list(_segments(batches))
        cell = found[0][1]
        pieces = [(operator, name, unpack(content)) for operator, _, name, content in found]
        made: set[int] = set()
        for operator, name, rows in self.rerouting.assembled(pieces):
            if operator not in made:
                made.add(operator)
                yield _batch([(cell, operator, HEADER, pa.py_buffer(self.headers[operator]))])
            yield _batch([(cell, operator, name, pack(rows))])


def _segments(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, str, pa.Buffer]]:
    for batch in batches:
        operators, cells, names = (batch.column(name).to_pylist() for name in MOVED[:3])
        for at, segment in enumerate(batch.column("segment")):
            yield operators[at], cells[at], names[at], segment.as_buffer()  # type: ignore[misc]


def _batches(pieces: Iterable[tuple[int, int, str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    for cell, operator, name, rows in pieces:
        yield _batch([(cell, operator, name, pack(rows))])


def _batch(pieces: list[tuple[int, int, str, pa.Buffer]]) -> pa.RecordBatch:
    cells, operators, names, contents = zip(*pieces, strict=True)
    columns: list[pa.Array[Any]] = [
        pa.array(operators, pa.int32()), pa.array(cells, pa.int32()), pa.array(names, pa.string()),
        binary_column(contents),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, names=list(MOVED))

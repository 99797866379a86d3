"""Stored state on its way to other cells: stages on segments.

Of a join that stays the same, :class:`TakeApart` and :class:`PutTogether` divide the rows among other cells in families
whose cells follow the number of tasks; of all others a cell stays what it is, and only finds another task.  Of a join
that changes, :class:`TakeHeld` gives its rows back, and :class:`AdoptCell` stores them once they have gone the way of
new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from dovetail.changing import GIVEN, Adoption, refused
from dovetail.checkpoints import HEADER
from dovetail.columns.layout import POINT_PAYLOAD, STREAM_COLUMNS, columns_of
from dovetail.columns.segments import binary_column, cast_columns, pack, unpack
from dovetail.columns.stored import opened, read_as_state
from dovetail.families.window.rerouting import Rerouting

_Taken = TypeVar("_Taken")

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
        cell, operators = _of_a_cell(batches)
        with read_as_state(f"cell {cell}"):
            yield from _batches(self.rerouting.pieces(cell, operators))


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


@dataclass(frozen=True)
class TakeHeld:
    """The segments of an old cell in; rows of one input out."""

    take: Callable[[Mapping[int, Mapping[str, pa.RecordBatch]]], Iterator[pa.RecordBatch]]
    """What the family makes of the segments of each operator, by their names."""
    types: tuple[pa.DataType, ...]
    """The types in which Spark takes the columns, without the mark behind them."""
    certain: Mapping[str, str] = field(default_factory=dict)
    """Columns that are now declared to have no NULL, and what they are called."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark with the segments of one cell, of all operators of a join."""
        cell, operators = _of_a_cell(batches)
        names = [*columns_of(POINT_PAYLOAD, len(self.types)), GIVEN]
        for rows in _read(self.take(operators), cell):
            columns = cast_columns(rows.columns, (*self.types, pa.bool_()))
            taken = pa.RecordBatch.from_arrays(columns, names=names)
            for name, called in self.certain.items():
                if taken.column(name).null_count:
                    raise refused(f"the column {called} is never NULL now", "in rows that are held it is")
            yield taken


@dataclass(frozen=True)
class TakeInPlace:
    """The segments of an old cell in; packed rows for the same cell out, of inputs whose rows keep their keys."""

    take: Callable[[Mapping[int, Mapping[str, pa.RecordBatch]]], Iterator[tuple[int, pa.RecordBatch]]]
    """What the family makes of the segments of each operator: the number of an input, and rows."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark with the segments of one cell, of all operators of a join."""
        cell, operators = _of_a_cell(batches)
        for arrival, (side, rows) in enumerate(_read(self.take(operators), cell)):
            places: list[pa.Array[Any]] = [
                pa.array([cell], pa.int32()), pa.array([side], pa.int32()), pa.array([arrival], pa.int64()),
                binary_column([pack(rows)]),
            ]  # fmt: skip
            yield pa.RecordBatch.from_arrays(places, names=list(STREAM_COLUMNS))


@dataclass(frozen=True)
class AdoptCell:
    """What a new cell gets of the rows that were held in; its segments out, with a header of each operator."""

    adoption: Adoption
    inputs: int
    operators: tuple[int, ...]
    """Spark's numbers of the join's operators."""
    headers: tuple[bytes, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark with the packed rows of one cell; a segment that is NULL only says that there is the cell."""
        found: list[tuple[int, int, pa.RecordBatch]] = []
        cell = -1
        for batch in batches:
            cells, sides, arrivals = (batch.column(name).to_pylist() for name in STREAM_COLUMNS[:3])
            for at, segment in enumerate(batch.column(STREAM_COLUMNS[3])):
                cell = int(cells[at])  # type: ignore[arg-type]
                if segment.is_valid:
                    found.append((arrivals[at], sides[at], unpack(segment.as_buffer())))  # type: ignore[arg-type]
        pieces: list[list[pa.RecordBatch]] = [[] for _ in range(self.inputs)]
        for _, side, rows in sorted(found, key=lambda one: one[:2]):
            pieces[side].append(rows)
        made: set[int] = set()
        for number, name, rows in self.adoption.segments(pieces):
            if number not in made:
                made.add(number)
                yield _batch([(cell, self.operators[number], HEADER, pa.py_buffer(self.headers[number]))])
            yield _batch([(cell, self.operators[number], name, pack(rows))])


def _segments(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, str, pa.Buffer]]:
    for batch in batches:
        operators, cells, names = (batch.column(name).to_pylist() for name in MOVED[:3])
        for at, segment in enumerate(batch.column("segment")):
            yield operators[at], cells[at], names[at], segment.as_buffer()  # type: ignore[misc]


def _of_a_cell(batches: Iterable[pa.RecordBatch]) -> tuple[int, dict[int, dict[str, pa.RecordBatch]]]:
    """The number of an old cell, and what each operator keeps in it, by name."""
    operators: dict[int, dict[str, pa.RecordBatch]] = {}
    cell = -1
    for operator, cell, name, content in _segments(batches):
        if name != HEADER:
            with read_as_state(f"cell {cell}"):
                operators.setdefault(operator, {})[name] = opened(content)
    return cell, operators


def _read(taken: Iterator[_Taken], cell: int) -> Iterator[_Taken]:
    """What a family takes from an old cell."""
    with read_as_state(f"cell {cell}"):
        yield from taken


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

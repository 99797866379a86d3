"""The contents of stored state: for each cell and input how many rows, bytes and times, and what may go.

Segments come as Spark's reader of state gives them, in no order that could be relied on, all of one cell in one task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.checkpoints import HEADER, CheckpointHeader
from dovetail.columns.codes import valid_mask
from dovetail.columns.stored import opened, read_as_state
from dovetail.inventory import HeldInput, StateLayout

_DAY = 86_400_000_000
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Where the years 1 and 9999 begin and end, which Python's datetimes cannot leave; Spark's and stored ones can."""
_FAMILIES = {
    "a window join": "window", "a theta join in windows": "theta", "an as-of join": "asof",
    "a best-match join": "bestmatch", "an approximate join": "approx", "an aggregate join": "aggregate",
    "a nearest join": "nearest",
}  # fmt: skip
"""The families by what headers call them, for state that an earlier version wrote, which says no more."""

STORED = ("operator", "partition", "cell", "name", "segment", "watermark")
"""What :class:`DescribeCells` takes: a segment, where it lies, and Spark's next watermark in microseconds."""
_INSTANT = pa.timestamp("us", "UTC")
_KINDS: list[tuple[str, pa.DataType]] = [
    ("operator", pa.int32()),
    ("join", pa.string()),
    ("input", pa.string()),
    ("cell", pa.int32()),
    ("partition", pa.int32()),
    ("rows", pa.int64()),
    ("bytes", pa.int64()),
    ("segments", pa.int32()),
    ("oldest", _INSTANT),
    ("newest", _INSTANT),
    ("oldest_number", pa.int64()),
    ("newest_number", pa.int64()),
    ("freed", pa.int64()),
    ("beside", pa.string()),
    ("samples", pa.list_(pa.string())),
]
CONTENTS = pa.schema(_KINDS)
"""What it gives: a row for each cell and input, and for each kind of thing that a cell keeps beside rows."""


@dataclass
class _Stored:
    """One segment of a cell."""

    name: str
    size: int
    content: pa.Buffer


@dataclass(frozen=True)
class DescribeCells:
    """Segments in; a row for each cell and input out, with so many samples of its rows as JSON."""

    samples: int = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        cells: dict[tuple[int, int, int], list[_Stored]] = {}
        watermark: int | None = None
        for batch in batches:
            places: list[list[Any]] = [column.to_pylist() for column in _plain(batch)]
            operators, partitions, numbers, names, _, marks = places
            for at, segment in enumerate(batch.column("segment")):
                content = segment.as_buffer()
                key = operators[at], partitions[at], numbers[at]
                cells.setdefault(key, []).append(_Stored(names[at], content.size, content))
                watermark = marks[at]
        found = []
        for key, stored in sorted(cells.items()):
            with read_as_state(f"cell {key[2]}"):
                found += self.cell(key, stored, watermark)
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=CONTENTS)

    def cell(self, key: tuple[int, int, int], stored: list[_Stored], watermark: int | None) -> list[dict[str, Any]]:
        """The rows that tell of one cell."""
        headers = [one for one in stored if one.name == HEADER]
        others = [one for one in stored if one.name != HEADER]
        header = CheckpointHeader.read(headers[0].content.to_pybytes()) if headers else CheckpointHeader()
        parts = dict(header.parts)
        where = {"operator": key[0], "partition": key[1], "cell": key[2], "join": parts.get("join")}
        layout = header.layout or _guessed(parts)
        if layout is None:
            size = sum(one.size for one in others)
            return [where | {"bytes": size, "segments": len(others), "beside": "unknown"}]
        family = import_module(f"dovetail.families.{layout.family}.inventory")
        sides = [family.side_of(one.name) for one in others]
        small = {one.name: opened(one.content) for one, side in zip(others, sides, strict=True) if side is None}
        expiry = family.expiry(layout, small, watermark) if header.layout is not None else [None] * len(layout.inputs)
        rows = []
        for side, held in enumerate(layout.inputs):
            own = [one for one, its in zip(others, sides, strict=True) if its == side]
            if own:
                rows.append(where | self._input(held, own, expiry[side]))
        kinds: dict[str, list[_Stored]] = {}
        for one, side in zip(others, sides, strict=True):
            if side is None:
                kinds.setdefault(family.beside(one.name), []).append(one)
        rows += [
            where | {"beside": kind, "bytes": sum(one.size for one in ones), "segments": len(ones)}
            for kind, ones in sorted(kinds.items())
        ]
        return rows

    def _input(self, held: HeldInput, stored: list[_Stored], expiry: int | None) -> dict[str, Any]:
        """What is held of one input: its rows, their bytes and times, and how many of them may go."""
        rows, freed, ends, instants = 0, 0, [], True
        samples: list[str] = []
        for one in stored:
            segment = opened(one.content)
            rows += segment.num_rows
            if len(samples) < self.samples:
                samples += _as_json(held, segment.slice(0, self.samples - len(samples)))
            times = None if held.time is None else _times(segment.column(_place(held.time, segment)))
            if times is not None and times[0].size:
                instants = times[1]
                ends += [int(times[0].min()), int(times[0].max())]
                freed += 0 if expiry is None else int(np.count_nonzero(times[0] < expiry))
        about: dict[str, Any] = {
            "input": held.name, "rows": rows, "bytes": sum(one.size for one in stored), "segments": len(stored),
            "freed": None if expiry is None else freed, "samples": samples if self.samples else None,
        }  # fmt: skip
        if ends:
            names = ("oldest", "newest") if instants else ("oldest_number", "newest_number")
            shown = (min(max(end, _EARLIEST), _LATEST) if instants else end for end in (min(ends), max(ends)))
            about |= dict(zip(names, shown, strict=True))
        return about


def _plain(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    """The columns in their order, without the segments, which nobody wants as a list of bytes."""
    empty = pa.nulls(batch.num_rows)
    return [empty if name == "segment" else batch.column(name) for name in STORED]


def _guessed(parts: dict[str, str]) -> StateLayout | None:
    """What a header without a layout tells: the family and the names of the inputs."""
    family = _FAMILIES.get(parts.get("join", ""))
    if family is None:
        return None
    names = parts.get("inputs", "").split(", ")
    if family == "aggregate" and names[0] == parts.get("rows of"):
        names.reverse()  # the matched rows come first
    return StateLayout(family, tuple(HeldInput(name, ()) for name in names))


def _place(time: int, rows: pa.RecordBatch) -> int:
    return time if time >= 0 else rows.num_columns + time


def _times(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], bool] | None:
    """The times of rows that have one, and whether they are instants; None for what is no time."""
    kind = column.type
    column = column.filter(pa.array(valid_mask(column)))
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.int64()).to_numpy(zero_copy_only=False) * np.int64(_DAY), True
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_numpy(zero_copy_only=False), True
    if pa.types.is_integer(kind):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False), False
    return None


def _as_json(held: HeldInput, rows: pa.RecordBatch) -> list[str]:
    """Rows as JSON, under the names that they have in the input."""
    names = held.columns or tuple(rows.schema.names)
    columns = rows.columns[: len(names)]
    return [
        json.dumps(
            {name: _value(column[at]) for name, column in zip(names, columns, strict=False)},
            default=str, ensure_ascii=False,
        )
        for at in range(rows.num_rows)
    ]  # fmt: skip


def _value(scalar: pa.Scalar[Any]) -> Any:
    """A value of Python; a time that none can be, as the number that is stored."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return getattr(scalar, "value", "out of range")

"""The state of a window join for another number of cells: taken apart cell by cell, and put together again.

Every row is sent where a new row with its keys would go; a copy keeps the slice that it is a copy for.  What a cell
keeps beside rows follows them: which have matched, under which numbers an operator behind this one knows them, and how
far each input has come, which every cell must know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.layout import ROW, SLICE
from dovetail.columns.partition import parts_by_cell
from dovetail.columns.segments import cast_columns, concat
from dovetail.columns.spark_hash import placed
from dovetail.errors import CheckpointError, is_whole
from dovetail.families.window.encode import Index, equality_codes, group_codes, time_codes
from dovetail.families.window.inventory import HEAD, side_of
from dovetail.families.window.router import cells_of
from dovetail.families.window.state import (
    StoredSegment,
    flags_name,
    flags_segment,
    head_segment,
    in_slices,
    new_name,
    slice_length,
)
from dovetail.inventory import StateLayout

State = Mapping[str, pa.RecordBatch]
Piece = tuple[int, int, str, pa.RecordBatch]
"""A cell, an operator, what it is, and its rows."""

_MATCHED, _FROM = "#matched", "#from"
"""Columns of rows on their way: whether they have matched, and the cell that numbered them."""
_ABOUT = b"about"
_MOST = 64
"""Cells of a partition; a join is planned with two."""


@dataclass(frozen=True)
class Rerouting:
    """Where the rows of a window join go."""

    layout: StateLayout
    """That of the new state."""

    def __post_init__(self) -> None:
        """Refuse numbers of cells that nobody chose: a stored layout may say anything."""
        cells, tasks = self.layout.facts.get("cells", 0), self.layout.facts.get("tasks", 0)
        if not (is_whole(tasks, least=1) and is_whole(cells, least=1) and cells <= _MOST * tasks):
            raise CheckpointError(
                f"the state names {cells} cells for {tasks} partitions",
                accepted=f"whole numbers from 1 on, and at most {_MOST} cells for each partition",
            )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the cells."""
        return placed(self.layout.facts["cells"], self.layout.facts["tasks"])

    def cells(self, side: int, rows: pa.RecordBatch) -> Index:
        """The cell of each stored row, counted from 0."""
        routing = self.layout.facts["routing"]
        if routing is None:
            return np.zeros(rows.num_rows, dtype=np.int64)
        classes = [equality_codes(rows.column(equal["columns"][side]), equal["kind"]) for equal in routing["classes"]]
        slices = rows.column(SLICE).to_numpy() if routing["sliced"] else None
        return cells_of(group_codes(classes, rows.num_rows), slices, self.layout.facts["cells"])

    def pieces(self, cell: int, operators: Mapping[int, State]) -> Iterator[Piece]:
        """What an old cell gives to new ones, of all operators of one join."""
        numbers = self.numbers
        homes: dict[int, tuple[Index, Index]] = {}
        for operator, state in operators.items():
            if HEAD in state:
                yield from self._rows(operator, state, cell, homes)
        for operator, state in operators.items():
            # An operator that decides knows rows by their numbers alone; they follow the rows.
            for name in (name for name in state if name.startswith("matched/")):
                known = state[name].column(0).to_numpy()
                rows, cells = homes[int(name.split("/")[1])]
                order = np.argsort(rows)
                at = order[np.searchsorted(rows[order], known)]
                kept = pa.RecordBatch.from_pydict({ROW: known, _FROM: np.full(known.size, cell)})
                for new, part in parts_by_cell(kept, cells[at], len(numbers)):
                    yield numbers[new], operator, name, part

    def _rows(self, operator: int, state: State, cell: int, homes: dict[int, tuple[Index, Index]]) -> Iterator[Piece]:
        numbers = self.numbers
        head = state[HEAD].schema.metadata[_ABOUT]
        about = pa.RecordBatch.from_pydict({"none": pa.array([], pa.int64())}).replace_schema_metadata({_ABOUT: head})
        weights = np.zeros(len(numbers), dtype=np.int64)
        numbered = "next row" in json.loads(head)
        for side in range(len(self.layout.inputs)):
            own = [name for name in state if side_of(name) == side]
            parts = [_with_flags(state, name) for name in own]
            for what, rows in (("rows", _together(parts) if parts else None), ("left", state.get(f"left/{side}"))):
                if rows is None or not rows.num_rows:
                    continue
                cells = self.cells(side, rows)
                weights += np.bincount(cells, minlength=len(numbers)) if what == "rows" else 0
                # Rows are numbered where it counts whether they match.
                if numbered and what == "rows" and ROW in rows.schema.names:
                    homes[side] = rows.column(ROW).to_numpy(), cells
                    rows = rows.append_column(_FROM, pa.array(np.full(rows.num_rows, cell)))
                for new, part in parts_by_cell(rows, cells, len(numbers)):
                    yield numbers[new], operator, f"{what}/{side}", part
        others = [name for name in state if side_of(name) is None and not _is_followed(name)]
        for new, number in enumerate(numbers):
            yield number, operator, HEAD, about
            if weights[new]:
                for name in others:
                    weight = {**(state[name].schema.metadata or {}), b"weight": str(weights[new]).encode()}
                    yield number, operator, name, state[name].replace_schema_metadata(weight)

    def assembled(self, pieces: list[tuple[int, str, pa.RecordBatch]]) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The segments of a new cell, made of what old ones gave: by operator and name."""
        operators = sorted({operator for operator, _, _ in pieces})
        by_name: dict[tuple[int, str], list[pa.RecordBatch]] = {}
        for operator, name, rows in pieces:
            by_name.setdefault((operator, name), []).append(rows)
        numbering = _Numbering.of([rows for _, _, rows in pieces if _FROM in rows.schema.names])
        for operator in operators:
            own = {name: parts for (at, name), parts in by_name.items() if at == operator}
            if HEAD in own:
                yield from ((operator, *one) for one in self._assembled(own, numbering))
            for name, parts in own.items():
                if name.startswith("matched/"):
                    matched = pa.array(numbering.of_rows(concat(parts)))
                    yield operator, name, pa.RecordBatch.from_arrays([matched], names=["row"])

    def _assembled(self, own: dict[str, list[pa.RecordBatch]], numbering: _Numbering) -> Iterator[tuple[str, Any]]:
        heads = [json.loads(part.schema.metadata[_ABOUT]) for part in own[HEAD]]
        tops = [head["tops"] for head in heads]
        highest = [max((top for top in column if top is not None), default=None) for column in zip(*tops, strict=True)]
        length = slice_length(np.array(self.layout.facts["hull"], dtype=np.int64))
        segments: list[StoredSegment] = []
        for name, parts in own.items():
            what, _, number = name.partition("/")
            if what == "left":
                yield name, _together(parts)
            elif what == "rows":
                side = int(number)
                rows, matched = _without_flags(numbering.renumbered(_together(parts)))
                times = time_codes(rows.column(self.layout.inputs[side].time or 0))
                for chosen in in_slices(times, length):
                    part, of_part = rows.take(chosen), times[chosen]
                    stored = StoredSegment(
                        new_name(side), side, int(of_part.min()), int(of_part.max()), part.num_rows, part.nbytes
                    )
                    segments.append(stored)
                    yield stored.name, part
                    if matched is not None and matched[chosen].any():
                        yield flags_name(stored.name), flags_segment(matched[chosen])
        known = {name: _latest([head.get(name) for head in heads]) for name in ("closed", "closing", "lacking", "sure")}
        yield HEAD, head_segment(segments, highest, numbering.count, known)
        for name, parts in own.items():
            if name != HEAD and "/" not in name:
                # What was learned where most of the rows come from.
                yield name, max(parts, key=lambda part: int((part.schema.metadata or {})[b"weight"]))


@dataclass(frozen=True)
class _Numbering:
    """New numbers for rows that cells had numbered, each from 0 on."""

    known: Index
    """The cells and numbers that there are, as one array of two columns, in order."""

    @classmethod
    def of(cls, parts: list[pa.RecordBatch]) -> _Numbering:
        pairs = [np.stack([part.column(name).to_numpy() for name in (_FROM, ROW)], axis=1) for part in parts]
        return cls(np.unique(np.concatenate(pairs), axis=0) if pairs else np.empty((0, 2), dtype=np.int64))

    @property
    def count(self) -> int:
        return int(self.known.shape[0])

    def of_rows(self, rows: pa.RecordBatch) -> Index:
        cells, numbers = (rows.column(name).to_numpy() for name in (_FROM, ROW))
        out = np.empty(rows.num_rows, dtype=np.int64)
        for cell in np.unique(cells):
            begin, end = np.searchsorted(self.known[:, 0], [cell, cell + 1])
            mine = cells == cell
            out[mine] = begin + np.searchsorted(self.known[begin:end, 1], numbers[mine])
        return out

    def renumbered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if _FROM not in rows.schema.names:
            return rows
        numbers = pa.array(self.of_rows(rows))
        rows = rows.drop_columns([_FROM])
        return rows.set_column(rows.schema.get_field_index(ROW), ROW, numbers)


def _latest(times: list[list[int] | None]) -> list[int] | None:
    """For each input the latest of the times that cells know."""
    known = [each for each in times if each is not None]
    return [max(column) for column in zip(*known, strict=True)] if known else None


def _is_followed(name: str) -> bool:
    """Whether what is stored under a name goes where rows go: flags, samples, and the list of segments."""
    return name == HEAD or "/" in name


def _with_flags(state: State, name: str) -> pa.RecordBatch:
    rows, flags = state[name].replace_schema_metadata(None), state.get(flags_name(name))
    return rows if flags is None else rows.append_column(_MATCHED, flags.column(0))


def _together(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows of several segments as one, flagged if some are; a run in another time zone may have stored some of them."""
    if any(_MATCHED in part.schema.names for part in parts):
        parts = [_flagged(part) for part in parts]
    kinds = parts[0].schema.types
    return concat(
        part
        if part.schema.types == kinds
        else pa.RecordBatch.from_arrays(cast_columns(part.columns, kinds), names=parts[0].schema.names)
        for part in parts
    )


def _flagged(rows: pa.RecordBatch) -> pa.RecordBatch:
    if _MATCHED in rows.schema.names:
        return rows
    return rows.append_column(_MATCHED, pa.array(np.zeros(rows.num_rows, dtype=np.bool_)))


def _without_flags(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask | None]:
    if _MATCHED not in rows.schema.names:
        return rows, None
    matched = rows.column(_MATCHED).to_numpy(zero_copy_only=False)
    return rows.drop_columns([_MATCHED]), matched

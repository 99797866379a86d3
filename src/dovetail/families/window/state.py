"""What a cell of a window join remembers: pieces of rows, by input and time, as named segments.

A segment is written once and never changed, so a worker that has seen it need not read it again: names are
unique, and a :class:`Shelf` keeps pieces with their sorted orders from one micro-batch to the next.  The list of
segments is itself a small one (``head``), so that a call reads what it lacks and nothing else.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.segments import concat
from dovetail.families.window.encode import Index
from dovetail.families.window.pieces import Piece
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.family import Changes

HEAD = "head"
SHELF_BYTES = 256 << 20
"""What a worker remembers of segments it has seen."""
SMALL = 1 << 15
"""Rows below which segments of neighbouring slices are kept together."""
MANY = 8
"""Segments of one slice that are merged into one."""
SLICES = 8
"""Slices of the longest window: rows go by the slice, so state holds at most an eighth of a window too much."""


@dataclass(frozen=True)
class Entry:
    """One stored segment: its rows' input, the ends of their times, and its size."""

    name: str
    side: int
    first: int
    last: int
    rows: int
    size: int


class Shelf:
    """Pieces that this process has seen, the least recently used ones gone first."""

    def __init__(self, limit: int = SHELF_BYTES) -> None:
        self._limit = limit
        self._pieces: OrderedDict[str, Piece] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Piece | None:
        """The piece of that name, if it is still here."""
        piece = self._pieces.get(name)
        if piece is not None:
            self._pieces.move_to_end(name)
        return piece

    def put(self, name: str, piece: Piece) -> None:
        """Remember a piece."""
        self._pieces[name] = piece
        self._bytes += piece.rows.nbytes
        while self._bytes > self._limit and len(self._pieces) > 1:
            self.drop(next(iter(self._pieces)))

    def drop(self, name: str) -> None:
        """Forget a piece."""
        piece = self._pieces.pop(name, None)
        if piece is not None:
            self._bytes -= piece.rows.nbytes


SHELF = Shelf()


@dataclass
class Memory:
    """The state of one cell, loaded, and what this call changes in it."""

    spec: WindowJoinSpec
    state: Mapping[str, pa.RecordBatch]
    tops: list[int | None]
    """The largest time seen of each input, in any cell."""
    entries: list[Entry] = field(default_factory=list)
    flags: dict[str, Mask] = field(default_factory=dict)
    """Which rows of a segment have matched, for inputs where that counts."""
    changes: Changes = field(default_factory=Changes)
    _pieces: dict[str, Piece] = field(default_factory=dict)
    _flagged: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, spec: WindowJoinSpec, state: Mapping[str, pa.RecordBatch]) -> Memory:
        """Take up what an earlier call stored."""
        if HEAD not in state:
            return cls(spec, state, [None] * len(spec.aliases))
        head = state[HEAD]
        about = json.loads(head.schema.metadata[b"about"])
        entries = [Entry(**row) for row in head.to_pylist()]
        return cls(spec, state, list(about["tops"]), entries)

    def piece(self, entry: Entry) -> Piece:
        """The rows of a segment."""
        if entry.name not in self._pieces:
            piece = SHELF.get(entry.name)
            if piece is None:
                piece = Piece(self.spec, entry.side, self.state[entry.name])
                SHELF.put(entry.name, piece)
            self._pieces[entry.name] = piece
        return self._pieces[entry.name]

    def matched(self, entry: Entry) -> Mask:
        """Which rows of a segment have matched so far."""
        if entry.name not in self.flags:
            stored = _flags_name(entry.name)
            if stored in self.state:
                self.flags[entry.name] = self.state[stored].column(0).to_numpy(zero_copy_only=False).copy()
            else:
                self.flags[entry.name] = np.zeros(entry.rows, dtype=np.bool_)
        return self.flags[entry.name]

    def mark(self, entry: Entry, rows: Mask) -> None:
        """Remember that rows of a segment have matched."""
        known = self.matched(entry)
        if (rows & ~known).any():
            known |= rows
            self._flagged.add(entry.name)

    def add(self, side: int, rows: pa.RecordBatch, times: Index, matched: Mask | None) -> None:
        """Store new rows, cut into slices of time; slices of few rows stay together."""
        if rows.num_rows == 0:
            return
        order = np.argsort(times, kind="stable")
        slices = times[order] // self.slice_length
        cuts = [0]
        for begin in [*(np.flatnonzero(np.diff(slices)) + 1).tolist(), times.size]:
            if begin - cuts[-1] >= SMALL or begin == times.size:
                cuts.append(begin)
        for begin, end in pairwise(cuts):
            part = order[begin:end]
            if part.size:
                self._store(side, rows.take(part), times[part], None if matched is None else matched[part])

    def _store(self, side: int, rows: pa.RecordBatch, times: Index, matched: Mask | None) -> None:
        name = f"{side}/{uuid.uuid4().hex}"
        rows = rows.replace_schema_metadata(None)
        self.entries.append(Entry(name, side, int(times.min()), int(times.max()), rows.num_rows, rows.nbytes))
        piece = Piece(self.spec, side, rows)
        self._pieces[name] = piece
        SHELF.put(name, piece)
        self.changes.stored[name] = rows
        if matched is not None:
            self.flags[name] = matched
            if matched.any():
                self._flagged.add(name)

    @property
    def slice_length(self) -> int:
        """The length of a slice."""
        hull = self.spec.hull
        return max(1, int(max(abs(int(hull.min())), int(hull.max()))) // SLICES)

    def forget(self, entry: Entry) -> None:
        """Remove a segment."""
        self.entries.remove(entry)
        self._pieces.pop(entry.name, None)
        SHELF.drop(entry.name)
        self._flagged.discard(entry.name)
        had_flags = entry.name in self.flags or entry.side in self.spec.flagged
        self.flags.pop(entry.name, None)
        if self.changes.stored.pop(entry.name, None) is None:
            self.changes.dropped.add(entry.name)
            if had_flags:
                self.changes.dropped.add(_flags_name(entry.name))

    def merge(self, alive: list[int]) -> list[int]:
        """Merge the segments of crowded slices, without rows of times below `alive`; how many rows that removed."""
        crowds: dict[tuple[int, int], list[Entry]] = {}
        for entry in self.entries:
            crowds.setdefault((entry.side, entry.first // self.slice_length), []).append(entry)
        removed = [0] * len(alive)
        for (side, _), crowd in crowds.items():
            if len(crowd) < MANY:
                continue
            pieces = [self.piece(entry) for entry in crowd]
            flags = [self.matched(entry) for entry in crowd] if side in self.spec.flagged else None
            rows, times = concat([piece.rows for piece in pieces]), np.concatenate([p.codes.times for p in pieces])
            kept = np.flatnonzero(times >= alive[side])
            removed[side] += times.size - kept.size
            matched = None if flags is None else np.concatenate(flags)[kept]
            for entry in crowd:
                self.forget(entry)
            if kept.size:
                self._store(side, rows.take(kept), times[kept], matched)
        return removed

    def finish(self) -> Changes:
        """All changes of this call, the list of segments among them."""
        for name in self._flagged:
            self.changes.stored[_flags_name(name)] = pa.RecordBatch.from_arrays(
                [pa.array(self.flags[name])], names=["matched"]
            )
        about = {"tops": self.tops}
        columns = {name: [getattr(entry, name) for entry in self.entries] for name in _ENTRY.names}
        head = pa.RecordBatch.from_pydict(columns, schema=_ENTRY).replace_schema_metadata({"about": json.dumps(about)})
        self.changes.stored[HEAD] = head
        return self.changes


def _flags_name(name: str) -> str:
    return f"{name}/matched"


_FIELDS: list[tuple[str, pa.DataType]] = [
    ("name", pa.string()),
    ("side", pa.int32()),
    ("first", pa.int64()),
    ("last", pa.int64()),
    ("rows", pa.int64()),
    ("size", pa.int64()),
]
_ENTRY = pa.schema(_FIELDS)

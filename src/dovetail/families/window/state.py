"""The state of a cell of a window join: segments of rows, by input and time, each under a name.

A segment is written once and never changed, so a worker that has seen it need not read it again: names are unique, and
a :class:`SegmentCache` keeps segments with their indexes from one micro-batch to the next.  The list of segments is
itself a small one (``head``), so that a call reads what it lacks and nothing else.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from dovetail.columns import memory
from dovetail.columns.codes import Mask
from dovetail.columns.segments import concat
from dovetail.families.window.encode import Index
from dovetail.families.window.graph import WindowMatrix
from dovetail.families.window.indexes import IndexedSegment
from dovetail.families.window.inventory import HEAD
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.family import Changes

CACHE_BYTES = 256 << 20
"""What a worker remembers of segments it has seen."""
_REMEMBERED = 8
"""Where its memory is limited, a worker remembers segments in this part of it."""
UNUSED_SECONDS = 60.0
"""How long a worker remembers a segment that no cell asks for."""
SMALL = 1 << 15
"""Rows below which segments of neighbouring slices are kept together."""
MANY = 8
"""Segments of one slice that are merged into one."""
SLICES = 8
"""Slices of the longest window: rows go by the slice, so state holds at most an eighth of a window too much."""


@dataclass(frozen=True)
class StoredSegment:
    """One stored segment: its rows' input, the ends of their times, and its size in rows and bytes."""

    name: str
    side: int
    first: int
    last: int
    rows: int
    size: int


class SegmentCache(LRUCache[str, IndexedSegment]):
    """Segments that this process has seen, up to so many bytes; the least recently used ones are evicted first.

    Micro-batches of a cell run in whichever worker is free.  The one that evicts a segment from the state cannot tell
    the others, so they let go of what nobody has asked for in a while: if that is still in the state, it is read again.
    """

    def __init__(self, limit: int = CACHE_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        # A segment beyond the limit is kept alone: reading it again in every micro-batch would take longest of all.
        super().__init__(limit, getsizeof=lambda segment: min(segment.rows.nbytes, limit))
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()
        """When each segment was last asked for, the longest ago first."""

    def __getitem__(self, name: str) -> IndexedSegment:
        segment = super().__getitem__(name)
        self._note(name)
        return segment

    def __setitem__(self, name: str, segment: IndexedSegment) -> None:
        # A worker that is limited after this process has been forked remembers less.
        most = memory.limit()
        while most is not None and self and self.currsize + segment.rows.nbytes > most // _REMEMBERED:
            self.popitem()
        super().__setitem__(name, segment)
        self._note(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._used.pop(name, None)

    def _note(self, name: str) -> None:
        self._used[name] = self._clock()
        self._used.move_to_end(name)

    def let_go(self) -> None:
        """Forget the segments that nobody has asked for in a while."""
        before = self._clock() - UNUSED_SECONDS
        while self._used and next(iter(self._used.values())) < before:
            del self[next(iter(self._used))]


CACHE = SegmentCache()


@dataclass
class CellState:
    """The state of one cell, loaded, and what this call changes in it."""

    spec: WindowJoinSpec
    state: Mapping[str, pa.RecordBatch]
    max_times: list[int | None]
    """The largest time seen of each input, in any cell."""
    segments: list[StoredSegment] = field(default_factory=list)
    flags: dict[str, Mask] = field(default_factory=dict)
    """Which rows of a segment have matched, for inputs where that counts."""
    next_row: int = 0
    """The number of the next row, where rows are numbered."""
    adopted: bool = False
    """Whether another definition of the join has held the rows: of none is anything known that this one would know."""
    closed: list[int] | None = None
    """For each input the time before which the last call was through with its rows, where that counts."""
    closing: list[int] | None = None
    """For each input of the core the time before which its rows have closed matches that others complete."""
    lacking: list[int] | None = None
    """For each input the time before which rows may have gone that the join would need, since it was changed."""
    sure: list[int] | None = None
    """For each input the time before which a row cannot be said to match nothing, for what it may match has gone."""
    changes: Changes = field(default_factory=Changes)
    _indexed: dict[str, IndexedSegment] = field(default_factory=dict)
    _flagged: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, spec: WindowJoinSpec, state: Mapping[str, pa.RecordBatch]) -> CellState:
        """Take up what an earlier call stored."""
        CACHE.let_go()
        if HEAD not in state:
            return cls(spec, state, [None] * len(spec.aliases))
        head = state[HEAD]
        about = json.loads(head.schema.metadata[b"about"])
        segments = [StoredSegment(**row) for row in head.to_pylist()]
        return cls(
            spec, state, list(about["tops"]), segments, next_row=about.get("next row", 0), adopted="adopted" in about,
            closed=about.get("closed"), closing=about.get("closing"), lacking=about.get("lacking"),
            sure=about.get("sure"),
        )  # fmt: skip

    def indexed(self, stored: StoredSegment) -> IndexedSegment:
        """The rows of a segment."""
        if stored.name not in self._indexed:
            segment = CACHE.get(stored.name)
            if segment is None:
                segment = IndexedSegment(self.spec, stored.side, self.state[stored.name])
                CACHE[stored.name] = segment
            self._indexed[stored.name] = segment
        return self._indexed[stored.name]

    def matched(self, stored: StoredSegment) -> Mask:
        """Which rows of a segment have matched so far."""
        if stored.name not in self.flags:
            name = flags_name(stored.name)
            if name in self.state:
                self.flags[stored.name] = self.state[name].column(0).to_numpy(zero_copy_only=False).copy()
            else:
                self.flags[stored.name] = np.zeros(stored.rows, dtype=np.bool_)
        return self.flags[stored.name]

    def record_matches(self, stored: StoredSegment, rows: Mask) -> None:
        """Remember that rows of a segment have matched."""
        known = self.matched(stored)
        if (rows & ~known).any():
            known |= rows
            self._flagged.add(stored.name)

    def add(self, side: int, rows: pa.RecordBatch, times: Index, matched: Mask | None) -> None:
        """Store new rows, cut into slices of time; slices of few rows stay together."""
        if rows.num_rows == 0:
            return
        for part in in_slices(times, self.slice_length):
            self._store(side, rows.take(part), times[part], None if matched is None else matched[part])

    def _store(self, side: int, rows: pa.RecordBatch, times: Index, matched: Mask | None) -> None:
        name = new_name(side)
        rows = rows.replace_schema_metadata(None)
        self.segments.append(StoredSegment(name, side, int(times.min()), int(times.max()), rows.num_rows, rows.nbytes))
        segment = IndexedSegment(self.spec, side, rows)
        self._indexed[name] = segment
        CACHE[name] = segment
        self.changes.stored[name] = rows
        if matched is not None:
            self.flags[name] = matched
            if matched.any():
                self._flagged.add(name)

    @property
    def slice_length(self) -> int:
        """The length of a slice."""
        return slice_length(self.spec.hull)

    def evict(self, stored: StoredSegment) -> None:
        """Remove a segment."""
        self.segments.remove(stored)
        self._indexed.pop(stored.name, None)
        CACHE.pop(stored.name, None)
        self._flagged.discard(stored.name)
        had_flags = stored.name in self.flags or stored.side in self.spec.flagged
        self.flags.pop(stored.name, None)
        if self.changes.stored.pop(stored.name, None) is None:
            self.changes.dropped.add(stored.name)
            if had_flags:
                self.changes.dropped.add(flags_name(stored.name))

    def leave_behind(self, before: list[int]) -> None:
        """Forget rows of times before those, row by row."""
        for stored in [stored for stored in self.segments if stored.first < before[stored.side]]:
            segment, matched = self.indexed(stored), self.matched(stored)
            kept = np.flatnonzero(segment.codes.times >= before[stored.side])
            self.evict(stored)
            if kept.size:
                flags = matched[kept] if stored.side in self.spec.flagged else None
                self._store(stored.side, segment.rows.take(kept), segment.codes.times[kept], flags)

    def merge(self, expiry: list[int]) -> list[int]:
        """Merge the segments of crowded slices, without rows of times before `expiry`; how many rows that evicted."""
        by_slice: dict[tuple[int, int], list[StoredSegment]] = {}
        for stored in self.segments:
            by_slice.setdefault((stored.side, stored.first // self.slice_length), []).append(stored)
        evicted = [0] * len(expiry)
        for (side, _), crowd in by_slice.items():
            if len(crowd) < MANY:
                continue
            indexed = [self.indexed(stored) for stored in crowd]
            flags = [self.matched(stored) for stored in crowd] if side in self.spec.flagged else None
            rows = concat([segment.rows for segment in indexed])
            times = np.concatenate([segment.codes.times for segment in indexed])
            kept = np.flatnonzero(times >= expiry[side])
            evicted[side] += times.size - kept.size
            matched = None if flags is None else np.concatenate(flags)[kept]
            for stored in crowd:
                self.evict(stored)
            if kept.size:
                self._store(side, rows.take(kept), times[kept], matched)
        return evicted

    def finish(self) -> Changes:
        """All changes of this call, the list of segments among them."""
        for name in self._flagged:
            self.changes.stored[flags_name(name)] = flags_segment(self.flags[name])
        times = {"closed": self.closed, "closing": self.closing, "lacking": self.lacking, "sure": self.sure}
        self.changes.stored[HEAD] = head_segment(self.segments, self.max_times, self.next_row, times)
        return self.changes


def new_name(side: int) -> str:
    """A name that no segment has had: workers remember segments by their names."""
    return f"{side}/{uuid.uuid4().hex}"


def flags_name(name: str) -> str:
    """Where the flags of a segment are stored."""
    return f"{name}/matched"


def pending_name(side: int) -> str:
    """Where rows of an input are stored that the next call gives as rows without a match."""
    return f"pending/{side}"


def flags_segment(matched: Mask) -> pa.RecordBatch:
    """Which rows of a segment have matched."""
    return pa.RecordBatch.from_arrays([pa.array(matched)], names=["matched"])


def head_segment(
    segments: Sequence[StoredSegment],
    max_times: Sequence[int | None],
    next_row: int,
    times: Mapping[str, Sequence[int] | None],
    *,
    adopted: bool = False,
) -> pa.RecordBatch:
    """The list of segments, how far each input has come, and the number of the next row where rows are numbered.

    `adopted` and the `times` ``closed``, ``closing``, ``lacking`` and ``sure`` are those of :class:`CellState`.
    """
    about: dict[str, object] = {"tops": list(max_times)}
    if next_row:
        about["next row"] = next_row
    if adopted:
        about["adopted"] = True
    about |= {name: list(each) for name, each in times.items() if each is not None}
    columns = {name: [getattr(stored, name) for stored in segments] for name in _HEAD_SCHEMA.names}
    head = pa.RecordBatch.from_pydict(columns, schema=_HEAD_SCHEMA)
    return head.replace_schema_metadata({"about": json.dumps(about)})


def slice_length(hull: WindowMatrix) -> int:
    """The length of a slice of time."""
    return max(1, int(max(abs(int(hull.min())), int(hull.max()))) // SLICES)


def in_slices(times: Index, length: int) -> list[Index]:
    """The numbers of rows in the order of time, cut where a slice begins; slices of few rows stay together.

    Examples
    --------
    >>> [part.tolist() for part in in_slices(np.array([30, 10, 20]), 5)]
    [[1, 2, 0]]
    """
    order = np.argsort(times, kind="stable")
    slices = times[order] // length
    cuts = [0]
    for begin in [*(np.flatnonzero(np.diff(slices)) + 1).tolist(), times.size]:
        if begin - cuts[-1] >= SMALL or begin == times.size:
            cuts.append(begin)
    return [order[begin:end] for begin, end in pairwise(cuts) if end > begin]


_FIELDS: list[tuple[str, pa.DataType]] = [
    ("name", pa.string()),
    ("side", pa.int32()),
    ("first", pa.int64()),
    ("last", pa.int64()),
    ("rows", pa.int64()),
    ("size", pa.int64()),
]
_HEAD_SCHEMA = pa.schema(_FIELDS)

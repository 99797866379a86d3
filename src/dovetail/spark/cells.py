"""A kernel on static inputs, and what happens where the rows of a cell are more than its worker may hold.

All rows of a cell arrive at once, in memory.  Where they are too many and the kernel can take them in the order of
time, they wait on disk and pass through it as a stream would, slice by slice; a kernel that can join pieces of its
inputs gets them in pieces.  Other cells are refused before they use up the memory, static ones and those of streams,
and the message says whose rows they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from dovetail.columns import memory
from dovetail.columns.layout import ARRIVAL, SEGMENT, SIDE
from dovetail.columns.pieces import Spool, gathered
from dovetail.columns.segments import cast_columns, nulls, unpack
from dovetail.columns.slices import Slices, Spans
from dovetail.family import Divides, NamesKeys, Slides, StreamKernel

SPLIT_METRICS = ("split_cells", "spilled_bytes")
"""Counters of joins whose static cells may be split: how many were, and the bytes on disk meanwhile."""

_BATCH_HELPS = f"a shorter window, a further equality in the condition, or {memory.WHAT_HELPS}"
STREAM_HELPS = (
    "a shorter window, a further equality in the condition, shed= of a window join, dt.approx_join, fewer columns "
    "(select=), a smaller micro-batch, or more memory for each worker (spark.executor.pyspark.memory, "
    "spark.executor.memoryOverhead)"
)
"""What helps against a cell of a stream that is too large."""
_LAST = ("held_", "state_", "cells")
"""How counters begin that do not add up over the slices of a cell."""

Segments = Sequence[tuple[int, pa.RecordBatch]]
"""Rows, each time with the input that they belong to."""


def check_room(what: str, kernel: StreamKernel, segments: Segments, stored: int, hint: str = STREAM_HELPS) -> None:
    """Refuse the rows of a cell and its stored bytes, before they use up the memory, and say whose rows they are."""
    size = stored + sum(rows.nbytes for _, rows in segments)
    if memory.is_short(size):
        held = f"{sum(rows.num_rows for _, rows in segments):,} rows, {memory.in_words(size)}"
        if stored:
            held += f" with {memory.in_words(stored)} of earlier ones"
        raise memory.too_large(what, held, frequent_key(kernel, segments), hint)


def frequent_key(kernel: StreamKernel, segments: Segments) -> str | None:
    """The key that most rows of the largest segment have."""
    side, rows = max(segments, key=lambda one: one[1].num_rows, default=(0, None))
    if rows is None or not rows.num_rows or not isinstance(kernel, NamesKeys):
        return None
    return memory.most_frequent(kernel.keys_of(side, rows))


@dataclass(frozen=True)
class StaticCell:
    """A kernel on static inputs, as on a stream whose rows all arrive at once: its rows, then its counters.

    Rows leave as rows, not packed: nothing has to carry or store them.
    """

    make: Callable[[], StreamKernel]
    metrics: tuple[str, ...]
    what: str
    """The cell in words."""
    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    """The columns that leave the stage: those of the results, then the counters."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        kernel = self.make()
        kernel.restore({}, None)
        arrived: list[tuple[int, int, Any]] = []
        waiting: Slices | dict[int, Spool] | None = None
        size, ask = 0, memory.FLOOR
        for batch in batches:
            arrivals, sides = batch.column(ARRIVAL).to_numpy(), batch.column(SIDE).to_numpy()
            arrived.extend(zip(arrivals.tolist(), sides.tolist(), batch.column(SEGMENT), strict=True))
            size += batch.nbytes
            if waiting is None and size > ask:
                # To ask how much memory there is takes milliseconds, so not for every batch.
                waiting, ask = self._place(kernel, arrived, size), size + memory.FLOOR
            if waiting is not None:
                for side, rows in _opened(arrived):
                    if isinstance(waiting, Slices):
                        waiting.add(side, rows)
                    else:
                        waiting[side].add(rows)
                arrived = []
        if isinstance(waiting, Slices):
            yield from self._slid(waiting)
        elif waiting is not None:
            yield from self._divided(kernel, waiting)
        else:
            for side, rows in _opened(sorted(arrived, key=lambda arrival: arrival[:2])):
                kernel.push(side, rows)
            kernel.end()
            for rows in kernel.results():
                yield self._rows(rows)
            yield self._counted(kernel.counters)

    def _place(
        self, kernel: StreamKernel, arrived: list[tuple[int, int, Any]], size: int
    ) -> Slices | dict[int, Spool] | None:
        """Where on disk the rows of a cell wait that is too large; None while it is not."""
        if isinstance(kernel, Slides) and kernel.slides:
            return Slices(partial(_times, kernel)) if size > memory.share() else None
        if isinstance(kernel, Divides) and kernel.divides:
            return defaultdict(Spool) if size > memory.share() else None
        if memory.is_short(size):
            check_room(self.what, kernel, _opened(arrived), 0, _BATCH_HELPS)
        return None

    def _divided(self, kernel: StreamKernel, waiting: dict[int, Spool]) -> Iterator[pa.RecordBatch]:
        """The results of a cell whose rows come in pieces."""
        assert isinstance(kernel, Divides)
        most = memory.share()
        for rows in kernel.join_pieces(lambda side: gathered(waiting[side], most)):
            yield self._rows(rows)
        spools = waiting.values()
        counted = {"rows": sum(spool.rows for spool in spools), "spilled_bytes": sum(spool.size for spool in spools)}
        for spool in spools:
            spool.close()
        yield self._counted({**kernel.counters, **counted, "split_cells": 1})

    def _slid(self, slices: Slices) -> Iterator[pa.RecordBatch]:
        """The results of a cell whose rows come in slices of time, each to a kernel with the state of the last one."""
        state: dict[str, pa.RecordBatch] = {}
        total: dict[str, int] = {}
        for one in slices.ordered(memory.share()):
            segments = list(slices.batches(one))
            kernel = self.make()
            assert isinstance(kernel, Slides)
            check_room(self.what, kernel, segments, sum(rows.nbytes for rows in state.values()), _BATCH_HELPS)
            kernel.restore(state, None)
            for side, rows in segments:
                kernel.push(side, rows)
            if one.end is None:
                kernel.end()
            else:
                kernel.passed(one.end)
            for rows in kernel.results():
                yield self._rows(rows)
            changes = kernel.changes()
            for name in changes.dropped:
                state.pop(name, None)
            state.update(changes.stored)
            for name, count in kernel.counters.items():
                total[name] = count if name.startswith(_LAST) else total.get(name, 0) + count
        yield self._counted({**total, "split_cells": 1, "spilled_bytes": slices.size})
        slices.close()

    def _rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        no_counters = pa.nulls(rows.num_rows, pa.list_(pa.int64()))
        columns = [*cast_columns(rows.columns, self.types), no_counters]
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))

    def _counted(self, counters: dict[str, int]) -> pa.RecordBatch:
        counts = [counters.get(name, 0) for name in self.metrics]
        columns = [*(nulls(1, kind) for kind in self.types), pa.array([counts], pa.list_(pa.int64()))]
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))


def _times(kernel: Slides, side: int, rows: pa.RecordBatch) -> Spans:
    return Spans.of_points(kernel.moments(side, rows))


def _opened(arrived: Iterable[tuple[int, int, Any]]) -> list[tuple[int, pa.RecordBatch]]:
    return [(side, unpack(segment.as_buffer())) for _, side, segment in arrived]

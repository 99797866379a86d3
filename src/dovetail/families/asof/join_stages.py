"""The stages of an as-of join that join: the segments of a cell, or rows beside the whole right side, in; rows out.

Output batches hold the columns of :meth:`~dovetail.families.asof.spec.AsofSpec.outputs`, and then the counters of a
cell, on a row of its own that holds nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns import memory
from dovetail.columns.broadcast import broadcast_blocks
from dovetail.columns.codes import Mask
from dovetail.columns.layout import COPIES, COUNTERS, SEGMENT, TURN
from dovetail.columns.pieces import Pieces
from dovetail.columns.segments import cast_columns, nulls, take_unchecked, unpack
from dovetail.families.asof.compiled import RowNumbers
from dovetail.families.asof.kernel import RightIndex
from dovetail.families.asof.pieces import COPY, Contest
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec
from dovetail.families.asof.where import index_of

METRICS = (
    "rows_left", "rows_right", "copies", "ties", "matched", "results", "cells", "kernel_us",
    "split_cells", "spilled_bytes",
)  # fmt: skip
"""The counters of a cell, in the order in which they leave a task."""

_COUNTERS = pa.list_(pa.int64())


@dataclass(frozen=True)
class PairStage:
    """What all joining has in common."""

    spec: AsofSpec

    def joined(
        self, left: pa.RecordBatch, right: pa.RecordBatch | None, matches: RowNumbers
    ) -> Iterator[pa.RecordBatch]:
        """What left rows give, in several batches where rows are wide."""
        for part in memory.at_once(left.num_rows, left, *([] if right is None else [right])):
            out = self.rows_out(left.slice(part.start, part.stop - part.start), right, matches[part])
            if out is not None:
                yield out

    def rows_out(
        self, left: pa.RecordBatch, right: pa.RecordBatch | None, matches: RowNumbers
    ) -> pa.RecordBatch | None:
        """What left rows give, for the right row of each (-1 for none); None where no row comes out."""
        spec, kind, hit = self.spec, self.spec.kind, matches >= 0
        matched = int(np.count_nonzero(hit))
        chosen = None
        if not kind.pairs:
            chosen = np.flatnonzero(hit != kind.unmatched)
        elif not kind.preserved[LEFT] and matched < left.num_rows:
            chosen = np.flatnonzero(hit)
        if chosen is not None:
            if chosen.size == 0:
                return None
            left, matches, hit = left.take(chosen), matches[chosen], hit[chosen]
        columns = cast_columns(left.columns[: spec.payload[LEFT]], spec.types[LEFT])
        if kind.pairs:
            if right is None or matched == 0:
                columns += [nulls(left.num_rows, kind) for kind in spec.types[RIGHT]]
            else:
                chosen_rows = take_unchecked(right.select(range(spec.payload[RIGHT])), np.maximum(matches, 0))
                columns += cast_columns(chosen_rows.columns, spec.types[RIGHT])
        if kind.optional[RIGHT]:
            columns.append(pa.array(hit))
        if kind.optional[LEFT]:
            columns.append(pa.array(np.ones(hit.size, dtype=np.bool_)))
        return self._batch(columns, nulls(left.num_rows, _COUNTERS))

    def unmatched_right(self, right: pa.RecordBatch) -> pa.RecordBatch:
        """Right rows that no left row chose."""
        spec, size = self.spec, right.num_rows
        columns = [nulls(size, kind) for kind in spec.types[LEFT]]
        columns += cast_columns(right.columns[: spec.payload[RIGHT]], spec.types[RIGHT])
        there, missing = np.ones(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
        columns += [pa.array(there)] * spec.kind.optional[RIGHT] + [pa.array(missing)]
        return self._batch(columns, nulls(size, _COUNTERS))

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """The counters of a cell as a row of their own."""
        return self._batch([nulls(1, kind) for _, kind in self.spec.outputs()], pa.array([values], _COUNTERS))

    def _batch(self, columns: list[pa.Array[Any]], counters: pa.Array[Any]) -> pa.RecordBatch:
        names = [name for name, _ in self.spec.outputs()]
        return pa.RecordBatch.from_arrays([*columns, counters], names=[*names, COUNTERS])


@dataclass
class _Cell:
    """A cell at work: its right rows, which of them nobody has to ask for any more, and what it has counted."""

    stage: PairStage
    right: Pieces = field(default_factory=Pieces)
    segments: list[tuple[int, int]] = field(default_factory=list)
    """Of every segment of right rows how many it has, and how many of them are copies."""
    index: RightIndex | None = None
    settled: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Right rows that some left row chose, and copies, for which the cell that owns them answers."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0) | {"cells": 1})

    def hold(self, right: pa.RecordBatch, copies: int) -> None:
        """Take in right rows, the copies among them last."""
        self.right.hold(right)
        self.segments.append((right.num_rows, copies))
        self.counts["rows_right"] += right.num_rows
        self.counts["copies"] += copies

    def open(self) -> None:
        """Once all right rows are there, if memory has room for them."""
        if self.index is None and self.right.held:
            self.index = index_of(self.stage.spec, self.right.whole())
            self.counts["ties"] += self.index.ties
            if self.stage.spec.kind.preserved[RIGHT]:
                self.settled = np.concatenate([np.arange(rows) >= rows - copies for rows, copies in self.segments])

    def joined(self, left: pa.RecordBatch, copies: int = 0) -> Iterator[pa.RecordBatch]:
        """What left rows give; the copies among them, which come last, only say which right rows they choose."""
        index, counts = self.index, self.counts
        counts["rows_left"] += left.num_rows
        counts["copies"] += copies
        if self.right.split:
            marks = np.arange(left.num_rows) >= left.num_rows - copies
            self.right.let_pass(left.append_column(COPY, pa.array(marks)))
            return
        matches = np.full(left.num_rows, -1, dtype=np.int32) if index is None else index.match(left)
        if self.settled.size:
            self.settled[matches[matches >= 0]] = True
        if copies:
            left, matches = left.slice(0, left.num_rows - copies), matches[: left.num_rows - copies]
        yield from self._out(left, None if index is None else index.rows, matches)

    def _out(self, left: pa.RecordBatch, right: pa.RecordBatch | None, matches: RowNumbers) -> Iterator[pa.RecordBatch]:
        self.counts["matched"] += int(np.count_nonzero(matches >= 0))
        for out in self.stage.joined(left, right, matches):
            self.counts["results"] += out.num_rows
            yield out

    def in_pieces(self) -> Iterator[pa.RecordBatch]:
        """What the rows of a split cell give, once all of them are there."""
        answers = self.stage.spec.kind.preserved[RIGHT]
        chosen = np.zeros(self.right.held_rows if answers else 0, dtype=np.bool_)
        contest = Contest(self.stage.spec, self.right, self.segments)
        for left, best in contest.decided():
            copy, matches = left.column(COPY).to_numpy(zero_copy_only=False), best.chosen
            if answers:
                chosen[best.numbers[matches[matches >= 0]]] = True
            if copy.any():
                own = np.flatnonzero(~copy)
                left, matches = left.take(own), matches[own]
            yield from self._out(left, best.rows, matches)
        first = 0
        for right in contest.right_pieces() if answers else ():
            copy = right.column(COPY).to_numpy(zero_copy_only=False)
            yield from self._alone(right, ~(copy | chosen[first : first + right.num_rows]))
            first += right.num_rows
        contest.close()
        self.counts["ties"] += contest.ties
        self.counts["split_cells"] = 1
        self.counts["spilled_bytes"] = self.right.spilled + contest.spilled

    def unmatched(self) -> Iterator[pa.RecordBatch]:
        """The right rows of this cell that no left row chose, once all left rows have been here."""
        self.open()
        if self.index is not None:
            yield from self._alone(self.index.rows, ~self.settled)

    def _alone(self, right: pa.RecordBatch, alone: Mask) -> Iterator[pa.RecordBatch]:
        if alone.any():
            out = self.stage.unmatched_right(right.take(np.flatnonzero(alone)))
            self.counts["results"] += out.num_rows
            yield out


@dataclass(frozen=True)
class JoinStage(PairStage):
    """The segments of one cell in, right ones first; its joined rows out."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        cell = _Cell(self)
        for turn, copies, segment in _segments(batches):
            if turn == 0:
                cell.hold(segment, copies)
            else:
                yield from _timed(cell, segment, copies)
        if cell.right.split:
            yield from cell.in_pieces()
        elif self.spec.kind.preserved[RIGHT]:
            yield from cell.unmatched()
        yield self.counts(list(cell.counts.values()))


def _timed(cell: _Cell, left: pa.RecordBatch, copies: int = 0) -> Iterator[pa.RecordBatch]:
    """What left rows give, with the time that it took counted."""
    began = time.perf_counter_ns()
    cell.open()
    for out in cell.joined(left, copies):
        cell.counts["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        yield out
        began = time.perf_counter_ns()
    cell.counts["kernel_us"] += (time.perf_counter_ns() - began) // 1000


def _segments(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    for batch in batches:
        for at in range(batch.num_rows):
            turn, copies = batch.column(TURN)[at].as_py(), batch.column(COPIES)[at].as_py()
            yield turn, copies, unpack(batch.column(SEGMENT)[at].as_buffer())


@dataclass(frozen=True)
class BroadcastStage(PairStage):
    """Left rows in, and with them the whole right side packed into one value; joined rows out.  No shuffle."""

    packed: bool = False
    """Whether left rows come as segments, each with that value: those of a stream."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        cell: _Cell | None = None
        for block, value in broadcast_blocks(batches, packed=self.packed):
            if cell is None:
                cell = _Cell(self)
                if value.is_valid:
                    # Spark may see that the right side is empty, and then nobody packs it.
                    cell.right.held.append(unpack(value.as_buffer()))
                    cell.counts["rows_right"] += cell.right.held[0].num_rows
            yield from _timed(cell, block)
        if cell is not None:
            yield self.counts(list(cell.counts.values()))

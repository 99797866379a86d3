"""The stages of an as-of join between two shuffles, as functions on Arrow batches.

    fit                 a little of both sides -> one routing (only where times have to cut)
    route               rows -> segments, one for each cell, right rows near a cut copied
    join                the segments of a cell, right ones first -> joined rows
    broadcast           left rows, and the whole right side -> joined rows, without a shuffle

Spark calls them; they know nothing of Spark.  In `route` the last column may be the routing, which only the first row
of a task carries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.broadcast import broadcast_blocks
from dovetail.columns.codes import Codes, order_codes, valid_mask
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import COPIES, COUNTERS, FITTED, SEGMENT, TURN
from dovetail.columns.partition import group_rows_by_cell, shuffle_batch
from dovetail.columns.sampling import DENSE, SPARSE
from dovetail.columns.segments import (
    binary_column,
    blocks,
    cast_columns,
    concat,
    nulls,
    routing_and_rows,
    take_unchecked,
    unpack,
)
from dovetail.conditions.comparison import Kind
from dovetail.families.asof.compiled import Index, RowNumbers
from dovetail.families.asof.encode import KeyNumbers, hashes_of, key_columns, time_codes, usable
from dovetail.families.asof.kernel import RightIndex, last_of_runs
from dovetail.families.asof.router import Routing, fit, nearest_in_slices, passed_on, without_sample
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec

METRICS = ("rows_left", "rows_right", "copies", "ties", "matched", "results", "cells", "kernel_us")
"""The counters of a cell, in the order in which they leave a task."""


@dataclass(frozen=True)
class FitStage:
    """Sampled rows of both sides in, one routing out.

    A batch has the random number of each row and whether it lies deep in its task, then its keys and its time.
    """

    time: Kind
    partitions: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        held = [batch for batch in batches if batch.num_rows]
        if held:
            rows = concat(held)
            rows = rows.take(np.flatnonzero(np.logical_and.reduce([valid_mask(column) for column in rows.columns])))
            columns = rows.columns
            keyed = len(columns) > 3
            hashes, codes = hashes_of(columns[2:-1], rows.num_rows), order_codes(columns[-1], self.time)
            # Cells are cut by weight, so a sample that thins out in long tasks needs no evening out.
            weights = np.where(columns[1].to_numpy(zero_copy_only=False), float(SPARSE), float(DENSE))
            routing = fit(hashes, codes, weights, keyed=keyed, partitions=self.partitions)
        else:
            routing = without_sample(False, self.partitions)
        yield pa.RecordBatch.from_arrays([binary_column([routing.to_buffer()])], names=[FITTED])


@dataclass(frozen=True)
class RouteStage:
    """Rows in; segments out, each with the number of its cell, right ones marked to come first."""

    spec: AsofSpec
    side: int
    routing: bytes | None = None
    """The routing where it is known before the job; else it comes with the first row."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        packed, rows_in = routing_and_rows(self.routing, batches)
        if packed is None:
            return
        routing = Routing.from_buffer(packed)
        count = routing.numbers.size
        turn = 0 if self.side == RIGHT else 1
        for block in blocks(rows_in):
            rows, cells, copies = self.cells_of_rows(block, routing)
            table, bounds = group_rows_by_cell(block, rows, cells, count)
            copied = np.bincount(cells[cells.size - copies :], minlength=count)
            yield shuffle_batch(routing.numbers, turn, table, bounds, copied)

    def cells_of_rows(self, block: pa.RecordBatch, routing: Routing) -> tuple[Index, Index, int]:
        """Rows and the cells they go to, copies last; and how many copies there are."""
        spec, size = self.spec, block.num_rows
        good = usable(spec, block, self.side)
        keys = key_columns(spec, block, self.side)
        hashes, codes = hashes_of(keys, size), time_codes(spec, block, self.side)
        slices = routing.slice_of(hashes, codes)
        cells = routing.cells[slices]
        rows = np.arange(size)
        if good is not None and spec.kind.preserved[self.side]:
            # A row with a NULL key matches nothing and still comes out: any one cell will do.
            null_key_rows = np.flatnonzero(~good)
            homes = row_hashes(block.take(null_key_rows), block.num_columns) % routing.numbers.size
            cells[null_key_rows] = homes
        elif good is not None:
            rows = np.flatnonzero(good)
            cells = cells[rows]
        if self.side == LEFT or routing.cuts.size == 0:
            return rows, cells, 0
        copies, to = self._copies(block, routing, routing.bucket_of(hashes), codes, slices, rows)
        return np.concatenate([rows, copies]), np.concatenate([cells, to]), copies.size

    def _copies(
        self, block: pa.RecordBatch, routing: Routing, buckets: Index, codes: Codes, slices: Index, good: Index
    ) -> tuple[Index, Index]:
        """Right rows that a slice needs from the slices before it or behind it, and the cells these go to."""
        sizes = np.diff(routing.offsets) + 1
        cut = good[sizes[buckets[good]] > 1]
        if cut.size == 0:
            return cut, cut
        cut_keys = [key.take(cut) for key in key_columns(self.spec, block, RIGHT)]
        keys = KeyNumbers(self.spec.kinds, cut_keys, cut.size)
        bucket = np.zeros(keys.count, dtype=np.int64)  # of each key
        bucket[keys.rows] = buckets[cut]
        key_sizes = sizes[bucket]
        bases = np.concatenate([[0], np.cumsum(key_sizes)[:-1]])
        firsts = routing.offsets[bucket] + bucket
        within = slices[cut] - firsts[keys.rows]
        copies: list[tuple[Index, Index]] = []
        for last, wanted in ((True, "forward"), (False, "backward")):
            if self.spec.direction == wanted:
                continue
            near = nearest_in_slices(keys.rows, within, codes[cut], bases, key_sizes, last)
            winners = self._winners(block, cut, bases[keys.rows[near]] + within[near], near, int(key_sizes.sum()))
            rows, to = passed_on(winners, bases, key_sizes, last)
            key_of = np.repeat(np.arange(keys.count), key_sizes)[to]
            target = firsts[key_of] + to - bases[key_of]
            copies.append((cut[rows], routing.cells[target]))
        return np.concatenate([rows for rows, _ in copies]), np.concatenate([to for _, to in copies])

    def _winners(self, block: pa.RecordBatch, cut: Index, at: Index, near: Index, size: int) -> Index:
        """One row for each slice of each key, the last of those that tie; -1 where there is none."""
        order = np.argsort(at, kind="stable")
        at, near = at[order], near[order]
        runs = np.cumsum(np.diff(at, prepend=at[0]) > 0, dtype=np.int64)
        if int(runs[-1]) + 1 < at.size:
            chosen = last_of_runs(block, self.spec.ties, cut[near], runs)
            at, near = at[chosen], near[chosen]
        winners = np.full(size, -1, dtype=np.int64)
        winners[at] = near
        return winners


@dataclass(frozen=True)
class PairStage:
    """What joining has in common, with a shuffle or without.

    Joined rows leave as the columns of the spec, then the counters, which have a row of their own.
    """

    spec: AsofSpec

    def rows_out(self, left: pa.RecordBatch, index: RightIndex | None, matches: RowNumbers) -> pa.RecordBatch | None:
        """Joined rows, for the right row of each left row (-1 for none); None where no row comes out."""
        spec, hit = self.spec, matches >= 0
        matched = int(np.count_nonzero(hit))
        if not spec.kind.unmatched and matched < left.num_rows:
            if matched == 0:
                return None
            chosen = np.flatnonzero(hit)
            left, matches, hit = left.take(chosen), matches[chosen], hit[chosen]
        columns = cast_columns(left.columns[: spec.payload[LEFT]], spec.types[LEFT])
        if index is None or matched == 0:
            columns += [nulls(left.num_rows, kind) for kind in spec.types[RIGHT]]
        else:
            right = take_unchecked(index.rows.select(range(spec.payload[RIGHT])), np.maximum(matches, 0))
            columns += cast_columns(right.columns, spec.types[RIGHT])
        if spec.kind.outer:
            columns.append(pa.array(hit))
        return self._batch(columns, nulls(left.num_rows, _COUNTERS))

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """The counters of a cell as a row of their own."""
        kinds = [*self.spec.types[LEFT], *self.spec.types[RIGHT], *([pa.bool_()] * self.spec.kind.outer)]
        return self._batch([nulls(1, kind) for kind in kinds], pa.array([values], _COUNTERS))

    def _batch(self, columns: list[pa.Array[Any]], counters: pa.Array[Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*columns, counters], names=[*self.spec.output_names(), COUNTERS])


_COUNTERS = pa.list_(pa.int64())


@dataclass(frozen=True)
class JoinStage(PairStage):
    """The segments of one cell in, right ones first; its joined rows out."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        held: list[pa.RecordBatch] = []
        index: RightIndex | None = None
        counts = dict.fromkeys(METRICS, 0)
        counts["cells"] = 1
        for turn, copies, segment in _segments(batches):
            began = time.perf_counter_ns()
            if turn == 0:
                held.append(segment)
                counts["rows_right"] += segment.num_rows
                counts["copies"] += copies
                continue
            if index is None and held:
                index = RightIndex(self.spec, concat(held))
                counts["ties"] += index.ties
            out = self._joined(segment, index, counts)
            counts["kernel_us"] += (time.perf_counter_ns() - began) // 1000
            if out is not None:
                yield out
        yield self.counts(list(counts.values()))

    def _joined(self, left: pa.RecordBatch, index: RightIndex | None, counts: dict[str, int]) -> pa.RecordBatch | None:
        counts["rows_left"] += left.num_rows
        matches = np.full(left.num_rows, -1, dtype=np.int32) if index is None else index.match(left)
        counts["matched"] += int(np.count_nonzero(matches >= 0))
        out = self.rows_out(left, index, matches)
        counts["results"] += 0 if out is None else out.num_rows
        return out


def _segments(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    for batch in batches:
        for at in range(batch.num_rows):
            turn, copies = batch.column(TURN)[at].as_py(), batch.column(COPIES)[at].as_py()
            yield turn, copies, unpack(batch.column(SEGMENT)[at].as_buffer())


@dataclass(frozen=True)
class BroadcastStage(JoinStage):
    """Left rows in, and with them the whole right side packed into one value; joined rows out.  No shuffle."""

    packed: bool = False
    """Whether left rows come as segments, each with that value: those of a stream."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        index: RightIndex | None = None
        counts = dict.fromkeys(METRICS, 0)
        opened = False
        for block, value in broadcast_blocks(batches, packed=self.packed):
            began = time.perf_counter_ns()
            if not opened and value.is_valid:
                # Spark may see that the right side is empty, and then nobody packs it.
                index = RightIndex(self.spec, unpack(value.as_buffer()))
                counts["rows_right"], counts["ties"] = index.rows.num_rows, index.ties
            opened = True
            out = self._joined(block, index, counts)
            counts["kernel_us"] += (time.perf_counter_ns() - began) // 1000
            if out is not None:
                yield out
        if opened:
            counts["cells"] = 1
            yield self.counts(list(counts.values()))

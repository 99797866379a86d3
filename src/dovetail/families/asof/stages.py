"""The stages of an as-of join before its shuffle, as functions on Arrow batches.

    fit                 a little of both sides -> one routing (only where times have to cut)
    route               rows -> segments, one for each cell, rows near a cut copied

Spark calls them; they know nothing of Spark.  In `route` the last column may be the routing, which only the first row
of a task carries.  :mod:`dovetail.families.asof.join_stages` has what follows the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, valid_mask
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import FITTED
from dovetail.columns.partition import group_rows_by_cell, shuffle_batch
from dovetail.columns.sampling import DENSE, SPARSE
from dovetail.columns.segments import binary_column, blocks, concat, routing_and_rows
from dovetail.conditions.comparison import Kind
from dovetail.families.asof import router
from dovetail.families.asof.compiled import Index
from dovetail.families.asof.encode import KeyNumbers, hashes_of, key_columns, routing_codes, time_codes, usable
from dovetail.families.asof.kernel import last_of_runs
from dovetail.families.asof.router import Routing, fit, nearest_in_slices, passed_on, without_sample
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec


@dataclass(frozen=True)
class FitStage:
    """Sampled rows of both sides in, one routing out.

    A batch has the random number of each row and whether it lies deep in its task, then its keys and its time.
    """

    time: Kind
    partitions: int
    width: int = 8
    """Bytes of a row of the wider side, as far as the schema tells."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        held = [batch for batch in batches if batch.num_rows]
        if held:
            rows = concat(held)
            rows = rows.take(np.flatnonzero(np.logical_and.reduce([valid_mask(column) for column in rows.columns])))
            columns = rows.columns
            keyed = len(columns) > 3
            hashes, codes = hashes_of(columns[2:-1], rows.num_rows), routing_codes(columns[-1], self.time)
            # Cells are cut by weight, so a sample that thins out in long tasks needs no evening out.
            weights = np.where(columns[1].to_numpy(zero_copy_only=False), float(SPARSE), float(DENSE))
            routing = fit(
                hashes, codes, weights, keyed=keyed, partitions=self.partitions,
                cell_rows=min(router.CELL_ROWS, max(1, router.CELL_BYTES // max(self.width, 1))),
            )  # fmt: skip
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
        hashes, codes = hashes_of(keys, size), routing_codes(block.column(spec.times[self.side]), spec.time)
        slices = routing.slice_of(hashes, codes)
        cells = routing.cells[slices]
        rows = np.arange(size)
        usable_rows = rows if good is None else np.flatnonzero(good)
        if good is not None and spec.kind.preserved[self.side]:
            # A row with a NULL key matches nothing and still comes out: any one cell will do.
            null_key_rows = np.flatnonzero(~good)
            homes = row_hashes(block.take(null_key_rows), block.num_columns) % routing.numbers.size
            cells[null_key_rows] = homes
        elif good is not None:
            rows = usable_rows
            cells = cells[rows]
        passed = self._passed()
        if not passed or routing.cuts.size == 0:
            return rows, cells, 0
        buckets = routing.bucket_of(hashes)
        if spec.time == "rank":
            codes = time_codes(spec, block, self.side)  # the last of a slice is the last by the whole time
        copies, to = self._copies(block, routing, buckets, codes, slices, usable_rows, passed)
        return np.concatenate([rows, copies]), np.concatenate([cells, to]), copies.size

    def _passed(self) -> tuple[bool, ...]:
        """Which rows other slices need: the last of a slice those behind it (True), the first those before it (False).

        Left rows need the right rows that may be their match.  Where unmatched right rows come out, a cell also needs
        the left rows that are the first to choose one of its own, and the right rows that these would prefer.
        """
        looks = {"backward": (True,), "forward": (False,), "nearest": (True, False)}[self.spec.direction]
        if not self.spec.kind.preserved[RIGHT]:
            return looks if self.side == RIGHT else ()
        return (True, False) if self.side == RIGHT else tuple(not last for last in looks)

    def _copies(
        self,
        block: pa.RecordBatch,
        routing: Routing,
        buckets: Index,
        codes: Codes,
        slices: Index,
        good: Index,
        passed: tuple[bool, ...],
    ) -> tuple[Index, Index]:
        """Rows that a slice needs from the slices before it or behind it, and the cells these go to."""
        sizes = np.diff(routing.offsets) + 1
        cut = good[sizes[buckets[good]] > 1]
        if cut.size == 0:
            return cut, cut
        cut_keys = [key.take(cut) for key in key_columns(self.spec, block, self.side)]
        keys = KeyNumbers(self.spec.kinds, cut_keys, cut.size)
        bucket = np.zeros(keys.count, dtype=np.int64)  # of each key
        bucket[keys.rows] = buckets[cut]
        key_sizes = sizes[bucket]
        bases = np.concatenate([[0], np.cumsum(key_sizes)[:-1]])
        firsts = routing.offsets[bucket] + bucket
        within = slices[cut] - firsts[keys.rows]
        copies: list[tuple[Index, Index]] = []
        for last in passed:
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
        if int(runs[-1]) + 1 < at.size and self.side == LEFT:
            # Left rows with equal keys and times choose the same right row.
            at, near = at[np.diff(runs, prepend=-1) > 0], near[np.diff(runs, prepend=-1) > 0]
        elif int(runs[-1]) + 1 < at.size:
            chosen = last_of_runs(block, self.spec.ties, cut[near], runs)
            at, near = at[chosen], near[chosen]
        winners = np.full(size, -1, dtype=np.int64)
        winners[at] = near
        return winners

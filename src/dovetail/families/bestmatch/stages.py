"""The stages of a best-match join before and after its cells, as functions on Arrow batches.

    fit       a sample of both sides -> one routing
    route     rows -> segments, one for each cell they go to
    finish    the best pairs of every cell, or candidates with values that Spark computed -> the best of them

Spark calls them; they know nothing of Spark.  Batches that reach `route` have the payload (c0, c1 ...), the key
columns, the hash of the equality keys if there are any, and last the routing, which only the first row of a task
carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, order_codes, valid_mask
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import GROUP, LEFT_ROW, OWNED, RIGHT_ROW, VALUE, columns_of
from dovetail.columns.partition import group_rows_by_cell
from dovetail.columns.sampling import DENSE, SPARSE, even_sample
from dovetail.columns.segments import binary_column, blocks, concat, nulls, packed_column, routing_and_rows
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import encode, given_costs, usable
from dovetail.families.bestmatch.kernel import best_of_pairs
from dovetail.families.bestmatch.outputs import split_pairs
from dovetail.families.bestmatch.router import COPY, Routing, axis_codes, cut_axes, fit
from dovetail.families.bestmatch.spec import BestSpec, Counters

_SIDES = 2 * COPY
"""Sides that rows travel as: left, right, and copies of either."""


@dataclass(frozen=True)
class FitStage:
    """Sampled rows of both sides in, one routing out.

    A row has its random number and whether it is deep in its task; then come the values of the axes that may be cut,
    and the hash of the equality keys if there are any.
    """

    spec: BestSpec
    partitions: int
    fractions: tuple[float, float] = (1 / DENSE, 1 / SPARSE)
    """Shares of the rows that the dense and the sparse sample hold."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        held = [batch for batch in batches if batch.num_rows]
        axes = cut_axes(self.spec)
        codes = {at: np.empty(0, dtype=np.int64) for at in axes}
        hashes, rows = np.empty(0, dtype=np.int64), 0.0
        if held:
            block = concat(held)
            draw, deep = (block.column(at).to_numpy(zero_copy_only=False) for at in range(2))
            chosen, fraction = even_sample(draw, deep, self.fractions)
            rows = np.count_nonzero(chosen) / fraction
            values = block.columns[2 : 2 + len(axes)]
            block = block.take(np.flatnonzero(chosen & usable(values, block.num_rows)))
            hashes = _hashes(self.spec, block, 2 + len(axes))
            codes = {at: axis_codes(self.spec.compiled[at], block.column(2 + n)) for n, at in enumerate(axes)}
        routing = fit(self.spec, rows, hashes, codes, self.partitions)
        yield pa.RecordBatch.from_arrays([binary_column([routing.to_buffer()])], names=["routing"])


def _hashes(spec: BestSpec, block: pa.RecordBatch, at: int) -> Codes:
    return order_codes(block.column(at), "int") if spec.by else np.zeros(block.num_rows, dtype=np.int64)


@dataclass(frozen=True)
class RouteStage:
    """Rows in; segments out, each with the number of its cell, the side it travels as and its position in the order."""

    spec: BestSpec
    side: int
    columns: int
    """Columns of a segment: payload, keys and, in streams, what else the kernel reads."""
    routing: bytes | None = None
    """The routing, if it is known before the job; otherwise it comes with the first row."""
    task: Callable[[], int] | None = None
    """The number of the task, by which segments are ordered."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        packed, rows_in = routing_and_rows(self.routing, batches)
        if packed is None:
            return
        routing = Routing.from_buffer(packed)
        place = (self.task() if self.task is not None else 0) << 33
        first = self.spec.payload[self.side]
        for block in blocks(rows_in):
            keys = block.columns[first : first + self.spec.keys]
            hashes = _hashes(self.spec, block, self.columns)
            ties = row_hashes(block, first) & 0x3FFF_FFFF
            rows, cells, sides = routing.assign(self.spec, self.side, hashes, keys, ties)
            yield from self._segments(block, rows, cells, sides, routing, place)
            if self.spec.tells_times:
                yield from self._times(block, rows, cells, routing, place)
            place += block.num_rows

    def _times(
        self, block: pa.RecordBatch, rows: Index, cells: Index, routing: Routing, place: int
    ) -> Iterator[pa.RecordBatch]:
        """For each cell the times of the rows that are not its own: rows that have nothing but their time."""
        at = self.columns - 1
        times = block.column(at)
        codes, known = order_codes(times, "int"), valid_mask(times)
        chosen, homes = [], []
        for cell in range(routing.cells):
            elsewhere = known.copy()
            elsewhere[rows[cells == cell]] = False
            # One row of each time.
            some = np.flatnonzero(elsewhere)
            chosen.append(some[np.unique(codes[some], return_index=True)[1]])
            homes.append(np.full(chosen[-1].size, cell))
        taken = np.concatenate(chosen)
        columns = [nulls(taken.size, kind) for kind in block.schema.types[:at]]
        bare = pa.RecordBatch.from_arrays([*columns, times.take(taken)], names=block.schema.names[: self.columns])
        sides = np.full(taken.size, self.side + COPY)
        yield from self._segments(bare, np.arange(taken.size), np.concatenate(homes), sides, routing, place)

    def _segments(
        self, block: pa.RecordBatch, rows: Index, cells: Index, sides: Index, routing: Routing, place: int
    ) -> Iterator[pa.RecordBatch]:
        if not rows.size:
            return
        # Within a segment rows stay in the order of their arrival.
        count = _SIDES * routing.cells
        table, bounds = group_rows_by_cell(block.select(range(self.columns)), rows, cells * _SIDES + sides, count)
        filled = np.flatnonzero(np.diff(bounds))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(routing.numbers[filled // _SIDES], pa.int32()),
                pa.array(filled % _SIDES, pa.int32()),
                pa.array(np.full(filled.size, place), pa.int64()),
                packed_column([table.slice(bounds[at], bounds[at + 1] - bounds[at]) for at in filled]),
            ],
            names=["cell", "side", "place", "segment"],
        )


@dataclass(frozen=True)
class FinishStage:
    """Candidate pairs in, one per row; the best of them out.

    A row has the payload and keys of both sides, its group where groups are complete and contiguous (`grouped`), and
    the values that Spark computed (e0, e1 ...).  In an inner join all pairs of a key that a task sees are one group,
    and the best so far are kept until the end; otherwise groups leave one after the other.
    """

    spec: BestSpec
    grouped: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if batch.num_rows == 0:
                continue
            held.append(batch)
            rows = concat(held)
            if not self.grouped:
                held = [self._best(rows)]
                continue
            # The last group may go on in the next batch.
            numbers = order_codes(rows.column(GROUP), "int")
            begins = np.flatnonzero(np.diff(numbers)) + 1
            done = int(begins[-1]) if begins.size else 0
            if done:
                yield from self._finished(rows.slice(0, done))
            held = [rows.slice(done)]
        if held:
            yield from self._finished(concat(held))

    def _finished(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        best = self._best(rows)
        if best.num_rows:
            yield best

    def _best(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        names = columns_of(VALUE, len(self.spec.given))
        has_values = usable([rows.column(name) for name in names], rows.num_rows)
        if not has_values.all():
            # A pair without a value is no candidate.
            rows = rows.filter(pa.array(has_values))
        if rows.num_rows == 0:
            return rows
        left, right = split_pairs(self.spec, rows)
        costs = given_costs(self.spec, [rows.column(name) for name in names]) if names else None
        kept = [
            best_of_pairs(self.spec, left, right, groups, costs, Counters())
            for groups in self._groups(rows, left, right)
        ]
        best = rows.take(np.unique(np.concatenate(kept)))
        # In a full join a cell also has rivals of its pairs, which leave from other cells.
        return best.filter(best.column(OWNED)) if self.spec.both_answer else best

    def _groups(self, rows: pa.RecordBatch, left: pa.RecordBatch, right: pa.RecordBatch) -> list[Index]:
        if self.spec.global_best:
            return [encode(self.spec, left, right)[0].groups]
        groups = order_codes(rows.column(GROUP), "int")
        if not self.spec.both_answer:
            return [groups]
        # Rows are numbered within their cell, and the numbers of cells leave space for them.
        return [groups + order_codes(rows.column(name), "int") for name in (LEFT_ROW, RIGHT_ROW)]

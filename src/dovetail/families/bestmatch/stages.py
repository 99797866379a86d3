"""The stages of a best-match join before and after its cells, as functions on Arrow batches.

    fit                  a little of both sides -> one routing
    route                rows -> segments, one for each cell they go to
    merge                the best pairs of every cell -> the best of all (inner joins)
    finish               candidate pairs, with what Spark computed for them -> the best among them

Spark calls them; they know nothing of Spark.  Batches that reach `route` hold the payload (c0, c1 ...), the key
columns, where there are keys their hash, and last the routing, which only the first row of a task carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, order_codes
from dovetail.columns.hashing import row_hashes
from dovetail.columns.sampling import DENSE, SPARSE, even_sample
from dovetail.columns.segments import binary_column, blocks, concat, packed_column, routing_and_rows
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import encode, given_costs, usable
from dovetail.families.bestmatch.kernel import Work, best_of_pairs
from dovetail.families.bestmatch.router import Routing, axis_codes, cut_axes, fit
from dovetail.families.bestmatch.spec import BestSpec


@dataclass(frozen=True)
class FitStage:
    """Sampled rows of both sides in, one routing out.

    A row has its random number and tells whether it lies deep in its task; then it holds the values of the axes
    that may be cut, and where there are keys their hash.
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
    """Rows in; segments out, each with the number of its cell, the side it travels as and its place in the order."""

    spec: BestSpec
    side: int
    columns: int
    """Columns of a segment: payload, keys and, in streams, what else the kernel reads."""
    routing: bytes | None = None
    """The routing where it is known before the job; else it comes with the first row."""
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
            rows, cells, sides = routing.places(self.spec, self.side, hashes, keys, ties)
            yield from self._segments(block, rows, cells, sides, routing, place)
            place += block.num_rows

    def _segments(
        self, block: pa.RecordBatch, rows: Index, cells: Index, sides: Index, routing: Routing, place: int
    ) -> Iterator[pa.RecordBatch]:
        # Within a segment rows stay in the order of their arrival.
        order = np.lexsort((rows, sides, cells))
        targets = cells[order] * 4 + sides[order]
        table = block.select(range(self.columns)).take(rows[order])
        cuts = np.flatnonzero(np.diff(targets)) + 1
        starts = np.concatenate([[0], cuts]).astype(np.int64)
        ends = np.concatenate([cuts, [targets.size]]).astype(np.int64)
        if not targets.size:
            return
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(routing.numbers[targets[starts] // 4], pa.int32()),
                pa.array(targets[starts] % 4, pa.int32()),
                pa.array(np.full(starts.size, place), pa.int64()),
                packed_column([table.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]),
            ],
            names=["cell", "side", "place", "segment"],
        )


@dataclass(frozen=True)
class FinishStage:
    """Candidate pairs in, a row each; the best of them out.

    A row holds the payload and keys of both sides, its group (`g`) where groups are whole and stand together, and the
    values that Spark computed (e0, e1 ...).  In an inner join all pairs of a key that a task sees are one group,
    and what stays behind is kept until the end; otherwise groups leave one after the other.
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
            numbers = order_codes(rows.column("g"), "int")
            begins = np.flatnonzero(np.diff(numbers)) + 1
            done = int(begins[-1]) if begins.size else 0
            if done:
                yield from self._leaving(rows.slice(0, done))
            held = [rows.slice(done)]
        if held:
            yield from self._leaving(concat(held))

    def _leaving(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        best = self._best(rows)
        if best.num_rows:
            yield best

    def _sides(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        first = self.spec.payload[0] + self.spec.keys
        second = first + self.spec.payload[1] + self.spec.keys
        return rows.select(range(first)), rows.select(range(first, second))

    def _best(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        values = [rows.column(f"e{at}") for at in range(len(self.spec.given))]
        good = usable(values, rows.num_rows)
        if not good.all():
            # No value, no candidate.
            rows = rows.filter(pa.array(good))
            values = [rows.column(f"e{at}") for at in range(len(self.spec.given))]
        if rows.num_rows == 0:
            return rows
        left, right = self._sides(rows)
        costs = given_costs(self.spec, values) if values else None
        kept = [
            best_of_pairs(self.spec, left, right, groups, costs, Work()) for groups in self._groups(rows, left, right)
        ]
        best = rows.take(np.unique(np.concatenate(kept)))
        # In a full join a cell also holds rivals of its pairs, which leave from other cells.
        return best.filter(best.column("o")) if self.spec.how == "full" else best

    def _groups(self, rows: pa.RecordBatch, left: pa.RecordBatch, right: pa.RecordBatch) -> list[Index]:
        if self.spec.how == "inner":
            return [encode(self.spec, left, right)[0].groups]
        if self.spec.how != "full":
            return [order_codes(rows.column("g"), "int")]
        # Rows are numbered within their cell, and the numbers of cells leave room for them.
        cells = order_codes(rows.column("g"), "int")
        return [cells + order_codes(rows.column(name), "int") for name in ("i", "j")]

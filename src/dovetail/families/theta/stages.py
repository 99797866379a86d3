"""The stages of a theta join between two shuffles, as functions on Arrow batches.

    fit                            a little of both sides -> one routing
    route                          rows -> segments, one for each cell they go to
    join                           the segments of a cell -> pairs
    broadcast                      rows, and the whole of a small other side -> pairs, without a shuffle

Spark calls them; they know nothing of Spark.  A stage is a frozen value, so it travels to a worker as it is.
The batches that reach `route` have the payload first, then the key columns, then, where there are equality keys, their
hash, and the routing, which only the first row of a task carries (:mod:`dovetail.columns.layout` names these columns).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Codes, order_codes
from dovetail.columns.encode import Keys, keys_from, routing_boxes, routing_points, usable_rows
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import FITTED, STARTS_HERE, Source
from dovetail.columns.partition import group_by_cell, group_rows_by_cell, shuffle_batch
from dovetail.columns.sampling import sampled_sides
from dovetail.columns.segments import binary_column, blocks, concat, routing_and_rows, unpack
from dovetail.conditions.comparison import Step
from dovetail.families.theta.fitting import fit
from dovetail.families.theta.kernel import Index
from dovetail.families.theta.paper.routing import PairRouting, end_codes, partition_axis
from dovetail.families.theta.router import Routing, Sample
from dovetail.families.theta.spec import BOXES, POINTS, Options


@dataclass(frozen=True)
class Stage:
    """What all stages of a join know: its condition, its options, and which side they serve."""

    step: Step
    options: Options
    payload: tuple[int, int]
    """Payload columns of the points and of the boxes."""
    side: int = POINTS
    sources: tuple[tuple[Source | None, ...], tuple[Source | None, ...]] | None = None
    """For each key of the points and of the boxes, where in the payload it is; None for keys that travel themselves."""

    @property
    def copies_points(self) -> bool:
        """Whether a point may lie in several cells: not where it has to be known whether it matched."""
        return self.options.kind.pairs_only

    def travelling(self, side: int) -> int:
        """How many key columns of a side come behind its payload."""
        return sum(source is None for source in self._sources(side))

    def keys_of(self, batch: pa.RecordBatch, first: int, side: int | None = None) -> Keys:
        """The key columns of a side (this stage's own if not told), whose own columns begin at `first`."""
        return keys_from(batch, self._sources(self.side if side is None else side), first)

    def _sources(self, side: int) -> tuple[Source | None, ...]:
        if self.sources is not None:
            return self.sources[side]
        return (None,) * len(self.step.point_keys if side == POINTS else self.step.box_keys)

    def hashes_of(self, batch: pa.RecordBatch, first: int) -> Index:
        """Hashes of the equality keys, behind the key columns; 0 without any."""
        if not self.step.equalities:
            return np.zeros(batch.num_rows, dtype=np.int64)
        return order_codes(batch.column(first + self.travelling(self.side)), "int")


@dataclass(frozen=True)
class FitStage(Stage):
    """Sampled key rows of both sides in, one routing out.

    A batch has the random number of each row, whether it lies so deep in its task that only the sparse sample reaches
    it, and its side; then the keys (and hash) of the points and those of the boxes, NULL on rows of the other side.
    The paper's algorithms look at every value of one axis, without the hash.
    """

    partitions: int = 1
    widths: tuple[int, int] = (8, 8)
    """Bytes of a row of the points and of the boxes, as far as the schema tells."""
    fractions: tuple[float, float] = (1.0, 1.0)
    """Shares of the rows that the dense and the sparse sample hold."""
    lists_pairs: bool = True
    """Whether cells list their pairs; not where one axis at most tells which points have a match."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        held = [batch for batch in batches if batch.num_rows]
        routing = self._fit(*self._codes(concat(held))) if held else self._fit([0.0, 0.0], [None, None])
        yield pa.RecordBatch.from_arrays([binary_column([routing.to_buffer()])], names=[FITTED])

    def _codes(self, batch: pa.RecordBatch) -> tuple[list[float], Sequence[list[Codes] | None]]:
        keys = len(self.step.point_keys), len(self.step.box_keys)
        sides = sampled_sides(batch, keys, hashed=bool(self.step.equalities), fractions=self.fractions)
        rows = [count for count, _ in sides]
        codes = [self._side_codes(which, part) for which, (_, part) in enumerate(sides)]
        return rows, codes

    def _side_codes(self, side: int, batch: pa.RecordBatch) -> list[Codes]:
        keys = batch.columns
        if self.options.partitioning is not None:
            axis = partition_axis(self.step)
            return [routing_points(axis, keys) if side == POINTS else end_codes(axis, keys)]
        hashes = order_codes(keys[-1], "int") if self.step.equalities else np.zeros(batch.num_rows, dtype=np.int64)
        columns = [hashes]
        for axis in self.step.axes:
            columns.extend([routing_points(axis, keys)] if side == POINTS else routing_boxes(axis, keys))
        return columns

    def _fit(self, rows: list[float], codes: Sequence[list[Codes] | None]) -> Routing | PairRouting:
        partitioning = self.options.partitioning
        if partitioning is not None:
            points, boxes = (np.empty(0, dtype=np.int64) if columns is None else columns[0] for columns in codes)
            return PairRouting.fit(
                self.step, points, boxes, partitioning,
                partitions=self.partitions, may_copy_points=self.copies_points,
            )  # fmt: skip
        return fit(
            self.step, self._sample(POINTS, rows, codes), self._sample(BOXES, rows, codes),
            partitions=self.partitions, may_copy_points=self.copies_points,
            widths=self.widths, lists_pairs=self.lists_pairs,
        )  # fmt: skip

    def _sample(self, side: int, rows: list[float], codes: Sequence[list[Codes] | None]) -> Sample:
        axes = len(self.step.axes)
        columns = codes[side]
        if columns is None or not axes:
            hashes = np.empty(0, dtype=np.int64) if columns is None else columns[0]
            none = np.empty((axes, hashes.size), dtype=np.int64)
            return Sample(hashes, none, none, rows[side])
        if side == POINTS:
            low = high = np.stack(columns[1:])
        else:
            low, high = np.stack(columns[1::2]), np.stack(columns[2::2])
        return Sample(columns[0], low, high, rows[side])


def _copies(rows: Index, cells: Index, of: int, count: int) -> Index:
    """How many of the rows that are sent are copies; one cell reports them for all."""
    copies = np.zeros(count, dtype=np.int64)
    if rows.size:
        sent = np.zeros(of, dtype=np.bool_)
        sent[rows] = True
        copies[cells[0]] = rows.size - np.count_nonzero(sent)
    return copies


def read_routing(buffer: pa.Buffer | bytes) -> Routing | PairRouting:
    """Either kind of routing from its bytes."""
    head = json.loads(unpack(buffer).schema.metadata[b"routing"])
    return PairRouting.from_buffer(buffer) if head["mode"] == "pairs" else Routing.from_buffer(buffer)


@dataclass(frozen=True)
class RouteStage(Stage):
    """Rows in; segments out, each with the number of its cell, points to come first."""

    routing: bytes | None = None
    """The routing where it is known before the job (no sampling); else it comes with the first row."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        packed, rows_in = routing_and_rows(self.routing, batches)
        if packed is None:
            return
        routing = read_routing(packed)
        kept = self.payload[self.side] + self.travelling(self.side)
        turn = 0 if self.side == POINTS else 1
        for block in blocks(rows_in):
            rows, cells = self._cells_of_rows(block, routing)
            table, bounds = group_rows_by_cell(block.select(range(kept)), rows, cells, routing.cells)
            if routing.owner:
                # A row goes to consecutive cells, and its interval starts in the first of them.
                starts = np.ones(rows.size, dtype=np.bool_)
                starts[1:] = rows[1:] != rows[:-1]
                table = table.append_column(STARTS_HERE, pa.array(group_by_cell(starts, cells, routing.cells)[0]))
            yield shuffle_batch(
                routing.numbers, turn, table, bounds, _copies(rows, cells, block.num_rows, routing.cells)
            )

    def _cells_of_rows(self, block: pa.RecordBatch, routing: Routing | PairRouting) -> tuple[Index, Index]:
        """(row, cell) for each cell that each row goes to."""
        first = self.payload[self.side]
        keys = self.keys_of(block, first)
        chosen = usable_rows(keys)
        hashes = self.hashes_of(block, first)
        if chosen is not None:
            keys, hashes = [key.take(chosen) for key in keys], hashes[chosen]
        if self.side == BOXES:
            rows, cells = routing.boxes(self.step, hashes, keys)
            return rows if chosen is None else chosen[rows], cells
        spread = isinstance(routing, Routing) and routing.mode == "spread"
        ties = row_hashes(block, first) if routing.splits_values or spread else np.zeros(block.num_rows, dtype=np.int64)
        ties = ties if chosen is None else ties[chosen]
        rows, cells = routing.points(self.step, hashes, keys, ties)
        rows = rows if chosen is None else chosen[rows]
        if not self.options.kind.unmatched:
            return rows, cells
        # A point with a NULL key, or one that a filter of the paper removed, still comes out: any one cell will do.
        placed = np.zeros(block.num_rows, dtype=np.bool_)
        placed[rows] = True
        unplaced = np.flatnonzero(~placed)
        if not unplaced.size:
            return rows, cells
        homes = row_hashes(block.take(unplaced), first) % routing.cells
        return np.concatenate([rows, unplaced]), np.concatenate([cells, homes])

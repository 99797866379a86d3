"""The stages of a join on a line, in one shuffle.

    fit         a little of both sides -> one routing
    route       rows -> segments, one for each cell they go to
    join        the segments of a cell -> results

Batches are those of :mod:`dovetail.families.nearest.stages`, without the number of the asking row.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import order_codes
from dovetail.columns.encode import Keys, usable
from dovetail.columns.layout import FITTED, KEY, POINT_PAYLOAD, SEGMENT, TURN, columns_of
from dovetail.columns.partition import group_rows_by_cell, shuffle_batch
from dovetail.columns.sampling import sampled_sides
from dovetail.columns.segments import binary_column, concat, routed_blocks, unpack
from dovetail.families.nearest.compiled import Index
from dovetail.families.nearest.join_stages import METRICS, ResultStage
from dovetail.families.nearest.kernel import coordinates
from dovetail.families.nearest.line import LineRouting, LineSample, fit_line, line_codes
from dovetail.families.nearest.router import scattered
from dovetail.families.nearest.spec import ANSWERING, ASKING
from dovetail.families.nearest.stages import SURE, Stage


@dataclass(frozen=True)
class LineFitStage(Stage):
    """Sampled keys and values of both sides in, one routing out."""

    fractions: tuple[float, float] = (1.0, 1.0)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        spec = self.spec
        kept = [batch for batch in batches if batch.num_rows]
        empty = np.empty(0, dtype=np.int64)
        samples = [LineSample(empty, empty, [], 0.0)] * 2
        if kept:
            width = (spec.width, spec.width)
            found = sampled_sides(concat(kept), width, hashed=bool(spec.keys), fractions=self.fractions)
            samples = [self.sample(count, part) for count, part in found]
        routing = fit_line(spec, samples[ASKING], samples[ANSWERING], partitions=self.partitions)
        yield pa.RecordBatch.from_arrays([binary_column([routing.to_buffer()])], names=[FITTED])

    def sample(self, rows: float, part: pa.RecordBatch) -> LineSample:
        """The sample that some rows are, which stand for so many."""
        count, width = len(self.spec.keys), self.spec.width
        values = list(part.columns[count:width])
        chosen = np.flatnonzero(coordinates(self.spec, values)[1])
        hashes = order_codes(part.column(width), "int") if count else np.zeros(part.num_rows, dtype=np.int64)
        keys: Keys = [key.take(chosen) for key in part.columns[:count]]
        share = chosen.size / max(1, part.num_rows)
        return LineSample(hashes[chosen], line_codes(self.spec, values)[chosen], keys, rows * share)


@dataclass(frozen=True)
class LineRouteStage(Stage):
    """Rows of one side in; segments out, each with the number of its cell."""

    side: int = ANSWERING
    routing: bytes | None = None
    """The routing where it is known before the job (no sampling); else it comes with the first row."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        for routing, block in routed_blocks(self.routing, batches, LineRouting.from_buffer):
            yield self._answering(routing, block) if self.side == ANSWERING else self._asking(routing, block)

    def _placed(self, block: pa.RecordBatch) -> tuple[Index, Index, Index, Keys]:
        """The rows that may have neighbours, the hashes of their keys, their values as codes, and their keys."""
        count = len(self.spec.keys)
        columns = self.columns(self.side, block)
        good = coordinates(self.spec, columns[count:])[1]
        good = good & usable(columns[:count]) if count else good
        if good.all():
            own = columns[:count]
            return np.arange(good.size), self.hashes(self.side, block), line_codes(self.spec, columns[count:]), own
        rows = np.flatnonzero(good)
        keys: Keys = [key.take(rows) for key in columns[:count]]
        return rows, self.hashes(self.side, block)[rows], line_codes(self.spec, columns[count:])[rows], keys

    def _answering(self, routing: LineRouting, block: pa.RecordBatch) -> pa.RecordBatch:
        rows, hashes, codes, keys = self._placed(block)
        which, cells = routing.answering(self.spec, hashes, codes, keys)
        kept = block.select(range(self.held(ANSWERING) + self.travelling(ANSWERING)))
        table, bounds = group_rows_by_cell(kept, rows[which], cells, routing.cells)
        return shuffle_batch(routing.numbers, 0, table, bounds)

    def _asking(self, routing: LineRouting, block: pa.RecordBatch) -> pa.RecordBatch:
        payload, travelling = self.held(ASKING), self.travelling(ASKING)
        # Rows without a place, and those that share a region, go anywhere: by turns.
        turn = scattered(np.arange(block.num_rows))
        rows, hashes, codes, keys = self._placed(block)
        if rows.size == block.num_rows:
            cells, sure = routing.asking(self.spec, hashes, codes, keys, turn)
        else:
            cells = (turn.view(np.uint64) % np.uint64(routing.cells)).astype(np.int64)
            sure = np.zeros(block.num_rows, dtype=np.bool_)
            cells[rows], sure[rows] = routing.asking(self.spec, hashes, codes, keys, turn[rows])
        names = [*columns_of(POINT_PAYLOAD, payload), *columns_of(KEY, travelling), SURE]
        kept = pa.RecordBatch.from_arrays([*block.columns[: payload + travelling], pa.array(sure)], names=names)
        table, bounds = group_rows_by_cell(kept, np.arange(block.num_rows), cells, routing.cells)
        return shuffle_batch(routing.numbers, 1, table, bounds)


@dataclass(frozen=True)
class LineJoinStage(ResultStage):
    """The segments of one cell in, its answering rows first; results out."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        held: list[pa.RecordBatch] = []
        answering, index, opened = None, None, False
        counted = [0] * len(METRICS)
        for batch in batches:
            for at in range(batch.num_rows):
                began = time.perf_counter_ns()
                segment = unpack(batch.column(SEGMENT)[at].as_buffer())
                if batch.column(TURN)[at].as_py() == 0:
                    held.append(segment)
                    continue
                if not opened:
                    answering, opened = concat(held) if held else None, True
                    index, held = self.index(answering), []
                found = self.found(index, answering, self.columns(ASKING, segment))
                self.check(segment.column(SURE), found[0])
                out = self.rows_out(segment.columns[: self.held(ASKING)], segment.num_rows, *self.ordered(found))
                spent = (time.perf_counter_ns() - began) // 1000
                for which, more in ((1, segment.num_rows), (2, found[0].size), (3, spent), (5, out.num_rows)):
                    counted[which] += more
                yield out
        rows = held if answering is None else [answering]
        counted[0], counted[4] = sum(part.num_rows for part in rows), 1
        yield self.counts(counted)

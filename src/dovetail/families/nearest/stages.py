"""The stages before the merge, as functions on Arrow batches.

    fit         a little of both sides -> one routing
    route       rows -> segments, one for each cell they go to
    answer      the segments of a cell -> the nearest rows that it has, on their way to the homes of those who asked

:mod:`dovetail.families.nearest.join_stages` has the stages after them.
Batches have the payload of a side, on the answering side also the texts that order what has no order; then the keys and
coordinates that are not in the payload and, where there are keys, their hash; on the asking side also the number of the
row.  The routing comes last, on the first row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.codes import order_codes
from dovetail.columns.encode import Keys, keys_from, usable
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import FITTED, KEY, POINT_PAYLOAD, Source, columns_of
from dovetail.columns.partition import group_rows_by_cell, one_segment, segments_by_turn, shuffle_batch
from dovetail.columns.sampling import sampled_sides
from dovetail.columns.segments import binary_column, concat, routed_blocks, take_unchecked
from dovetail.families.nearest.compiled import Index, Values
from dovetail.families.nearest.fitting import Sample, fit
from dovetail.families.nearest.kernel import Floats, NearIndex, choose
from dovetail.families.nearest.router import Routing, modulo, places_of, scattered
from dovetail.families.nearest.spec import ANSWERING, ASKING, NearestSpec

ID, SURE, HOME, FAR, LIMIT, WHICH = "id", "sure", "home", "far", "limit", "which"
"""The number of an asking row, or its position at home; whether it must find k rows, its home, the distance of a
candidate, how far away one can be, and the number of a candidate among those of a cell."""

VISITORS, RESIDENTS = 1, 2
"""Turns of the asking rows in a cell, behind the answering ones (0): those at home elsewhere, those at home here."""

NOTES = -1
"""The turn of what cells have counted."""
NEAR, OWN, VISITED, ASKED = 0, 1, 2, 3
"""Turns of a home in the merge, behind four times its cell: the rows that are near to some of its rows, which of them
each has found, what its rows have found elsewhere; its rows."""

NOTE = "note"
"""Metadata of a segment without rows: what its cell has counted."""

Sources = tuple[Source | None, ...]
Candidates = tuple[Index, Values, Index, pa.RecordBatch]
"""The nearest rows of asking ones: positions of the asking rows, distances, ranks, and the rows themselves."""


@dataclass(frozen=True)
class Stage:
    """What all stages know."""

    spec: NearestSpec
    partitions: int = 1
    sources: tuple[Sources, Sources] | None = None
    """For each side, where in its payload its keys and coordinates are; None for those that travel themselves."""

    def columns(self, side: int, block: pa.RecordBatch) -> Keys:
        """The keys and coordinates of a side, as they come from Spark."""
        sources: Sources = (None,) * self.spec.width if self.sources is None else self.sources[side]
        return keys_from(block, sources, self.held(side))

    def held(self, side: int) -> int:
        """How many columns of a row come before its keys: its payload, and the texts behind it."""
        return self.spec.held if side == ANSWERING else len(self.spec.payload[ASKING])

    def travelling(self, side: int) -> int:
        """How many keys and coordinates come behind the payload."""
        known = () if self.sources is None else self.sources[side]
        return self.spec.width - sum(source is not None for source in known)

    def hashes(self, side: int, block: pa.RecordBatch) -> Index:
        """The hashes of the equality keys; all alike without any."""
        if not self.spec.keys:
            return np.zeros(block.num_rows, dtype=np.int64)
        return order_codes(block.column(self.held(side) + self.travelling(side)), "int")

    def index(self, rows: pa.RecordBatch | None) -> NearIndex | None:
        """The index of answering rows; None where there are none."""
        if rows is None or not rows.num_rows:
            return None
        return NearIndex(self.spec, self.columns(ANSWERING, rows), [rows.column(at) for at in self.spec.order])

    def candidates(
        self, index: NearIndex | None, rows: pa.RecordBatch | None, columns: Keys, limits: Floats | None = None
    ) -> Candidates | None:
        """The nearest rows of asking ones; None where nobody answers."""
        chosen = self.chosen(index, rows, columns, limits)
        if chosen is None or rows is None:
            return None
        owner, far, rank, which = chosen
        return owner, far, rank, take_unchecked(rows.select(range(self.spec.held)), which)

    def chosen(
        self, index: NearIndex | None, rows: pa.RecordBatch | None, columns: Keys, limits: Floats | None = None
    ) -> tuple[Index, Values, Index, Index] | None:
        """The nearest rows of asking ones by their numbers."""
        if index is None or rows is None:
            return None
        found = index.search(columns, limits)
        ordering: list[pa.Array[Any]] = []
        if self.spec.ties == "first":
            picked = found.row
            ordering = [rows.column(at).take(picked) for at in self.spec.order]
        chosen = choose(self.spec, found.owner, found.far, ordering)
        if chosen.everything:
            return found.owner, found.far, chosen.rank, found.row
        return found.owner[chosen.at], found.far[chosen.at], chosen.rank, found.row[chosen.at]


@dataclass(frozen=True)
class FitStage(Stage):
    """Sampled keys and coordinates of both sides in, one routing out."""

    fractions: tuple[float, float] = (1.0, 1.0)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        spec = self.spec
        kept = [batch for batch in batches if batch.num_rows]
        empty = np.empty(0, dtype=np.int64)
        samples = [Sample(empty, np.empty((0, spec.dimensions)), [], 0.0)] * 2
        if kept:
            width = (spec.width, spec.width)
            found = sampled_sides(concat(kept), width, hashed=bool(spec.keys), fractions=self.fractions)
            samples = [self.sample(rows, part) for rows, part in found]
        routing = fit(spec, samples[ASKING], samples[ANSWERING], partitions=self.partitions)
        yield pa.RecordBatch.from_arrays([binary_column([routing.to_buffer()])], names=[FITTED])

    def sample(self, rows: float, part: pa.RecordBatch) -> Sample:
        """The sample that some rows are, which stand for so many."""
        count, width = len(self.spec.keys), self.spec.width
        places, good = places_of(self.spec, list(part.columns[count:width]))
        chosen = np.flatnonzero(good)
        hashes = order_codes(part.column(width), "int") if count else np.zeros(part.num_rows, dtype=np.int64)
        keys: Keys = [key.take(chosen) for key in part.columns[:count]]
        return Sample(hashes[chosen], places[chosen], keys, rows * chosen.size / max(1, part.num_rows))


@dataclass(frozen=True)
class RouteStage(Stage):
    """Rows of one side in; segments out, each with the number of its cell."""

    side: int = ANSWERING
    routing: bytes | None = None
    """The routing where it is known before the job (no sampling); else it comes with the first row."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        for routing, block in routed_blocks(self.routing, batches, Routing.from_buffer):
            if self.side == ANSWERING:
                yield self._answering(routing, block)
            else:
                yield from self._asking(routing, block)

    def _placed(self, block: pa.RecordBatch) -> tuple[Index, npt.NDArray[np.float64], Keys]:
        """The rows that may have neighbours, their places, and all keys and coordinates."""
        count = len(self.spec.keys)
        columns = self.columns(self.side, block)
        places, good = places_of(self.spec, columns[count:])
        rows = np.flatnonzero(good & usable(columns[:count]) if count else good)
        return rows, places[rows], columns

    def _answering(self, routing: Routing, block: pa.RecordBatch) -> pa.RecordBatch:
        held = self.held(ANSWERING)
        rows, places, _ = self._placed(block)
        spread = row_hashes(block, held)[rows] if routing.spread else np.zeros(rows.size, dtype=np.int64)
        which, cells = routing.answering(self.hashes(ANSWERING, block)[rows], places, spread)
        kept = block.select(range(held + self.travelling(ANSWERING)))
        table, bounds = group_rows_by_cell(kept, rows[which], cells, routing.cells)
        return shuffle_batch(routing.numbers, 0, table, bounds, np.arange(routing.cells))

    def _asking(self, routing: Routing, block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        size, count = block.num_rows, len(self.spec.keys)
        payload, travelling = self.held(ASKING), self.travelling(ASKING)
        numbers = block.column(block.num_columns - 1)
        spread = scattered(numbers.to_numpy())
        rows, places, columns = self._placed(block)
        keys: Keys = [key.take(rows) for key in columns[:count]]
        visits = routing.asking(self.spec, self.hashes(ASKING, block)[rows], places, keys, spread[rows])
        home, sure = modulo(spread, routing.cells), np.zeros(size, dtype=np.bool_)
        far = np.full(size, np.inf)
        home[rows], sure[rows], far[rows] = visits.home, visits.sure, visits.far
        notes = np.arange(routing.cells)
        names = [*columns_of(POINT_PAYLOAD, payload), *columns_of(KEY, travelling), ID, SURE]
        residents = pa.RecordBatch.from_arrays(
            [*block.columns[: payload + travelling], numbers, pa.array(sure)], names=names
        )
        table, bounds = group_rows_by_cell(residents, np.arange(size), home, routing.cells)
        yield shuffle_batch(routing.numbers, RESIDENTS, table, bounds, notes)
        visitor = rows[visits.rows]
        away = np.flatnonzero(visits.cells != home[visitor])
        if away.size:
            visitors = pa.RecordBatch.from_arrays(
                [*columns, numbers, pa.array(home), pa.array(far)],
                names=[*columns_of(KEY, len(columns)), ID, HOME, LIMIT],
            )
            table, bounds = group_rows_by_cell(visitors, visitor[away], visits.cells[away], routing.cells)
            yield shuffle_batch(routing.numbers, VISITORS, table, bounds, notes)


@dataclass(frozen=True)
class AnswerStage(Stage):
    """The segments of one cell in; the asking rows at home here, and candidates for rows anywhere, out."""

    clock: Callable[[int], None] | None = None
    """Called with the microseconds that the cell took."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        began = time.perf_counter_ns()
        cell, (answering, visitors, residents) = segments_by_turn(batches, (0, VISITORS, RESIDENTS))
        index = self.index(answering)
        slots = spark_hash.cell_numbers(np.arange(self.partitions), self.partitions)
        formed = 0
        if residents is not None:
            own = self.chosen(index, answering, self.columns(ASKING, residents))
            if own is not None and answering is not None:
                formed += own[0].size
                for turn, rows in self._found_here(own, answering):
                    yield one_segment(slots[cell % self.partitions], 4 * cell + turn, rows)
            payload = residents.schema.names[: self.held(ASKING)]
            yield one_segment(slots[cell % self.partitions], 4 * cell + ASKED, residents.select([*payload, ID, SURE]))
        if visitors is not None:
            for home, part in self._visits(index, answering, visitors):
                formed += part.num_rows
                yield one_segment(slots[home % self.partitions], 4 * home + VISITED, part)
        counts = [
            0 if answering is None else answering.num_rows,
            sum(0 if rows is None else rows.num_rows for rows in (visitors, residents)),
            formed,
        ]
        empty = pa.RecordBatch.from_pydict({ID: pa.array([], pa.int64())})
        yield one_segment(
            slots[cell % self.partitions], NOTES, empty.replace_schema_metadata({NOTE: json.dumps(counts)})
        )
        if self.clock is not None:
            self.clock((time.perf_counter_ns() - began) // 1000)

    def _found_here(
        self, own: tuple[Index, Values, Index, Index], answering: pa.RecordBatch
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """What rows at home have found: each answering row once, however many it is near to, and their numbers.

        Candidates with all their columns would be the largest part of what the two shuffles carry.
        """
        owner, far, _, which = own
        used = np.zeros(answering.num_rows, dtype=np.bool_)
        used[which] = True
        yield NEAR, answering.select(range(self.spec.held)).filter(pa.array(used))
        numbers = (np.cumsum(used, dtype=np.int32) - 1)[which]
        columns: list[pa.Array[Any]] = [pa.array(owner.astype(np.int32)), pa.array(far), pa.array(numbers)]
        yield OWN, pa.RecordBatch.from_arrays(columns, names=[ID, FAR, WHICH])

    def _visits(
        self, index: NearIndex | None, answering: pa.RecordBatch | None, visitors: pa.RecordBatch
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        # Those of one home together, so that what they find comes out in that order.
        home = visitors.column(HOME).to_numpy()
        order = np.argsort(home, kind="stable")
        visitors = take_unchecked(visitors, order)
        home = home[order]
        limits = visitors.column(LIMIT).to_numpy()
        found = self.candidates(index, answering, list(visitors.columns[: self.spec.width]), limits)
        if found is None or not found[0].size:
            return
        owner = found[0]
        rows = _listed(visitors.column(ID).take(owner), found)
        homes, begins = np.unique(home[owner], return_index=True)
        ends = np.append(begins[1:], owner.size)
        for where, begin, end in zip(homes.tolist(), begins.tolist(), ends.tolist(), strict=True):
            yield where, rows.slice(begin, end - begin)


def _listed(numbers: pa.Array[Any], found: Candidates) -> pa.RecordBatch:
    """Candidates on their way to the merge, with the numbers or positions of those who asked."""
    _, far, _, near = found
    names = [ID, FAR, *columns_of(POINT_PAYLOAD, near.num_columns)]
    return pa.RecordBatch.from_arrays([numbers, pa.array(far), *near.columns], names=names)

"""The stages before the merge, as functions on Arrow batches.

    fit         a little of both sides -> one routing
    route       rows -> segments, one for each cell they go to
    answer      the segments of a cell -> partial states of its rows, and the total of the cell

:mod:`dovetail.families.aggregate.join_stages` has the stages after them.
Batches of the answering side have its keys, its arguments and, where there are equality keys, their hash; those of the
asking side its payload, its keys and the hash.  The routing comes last, on the first row.

What a row matches depends on its keys alone, so its keys are its name: rows with the same keys have the same states.  A
task that Spark runs again may read its rows in another order, and every row still goes where it went before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.cells import spans
from dovetail.columns.codes import Codes, order_codes
from dovetail.columns.encode import Keys, group_numbers, keys_from, routing_boxes, routing_points, usable_rows
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import FITTED, KEY, POINT_PAYLOAD, Source, columns_of
from dovetail.columns.partition import group_by_cell, group_rows_by_cell, one_segment, segments_by_turn, shuffle_batch
from dovetail.columns.sampling import sampled_sides
from dovetail.columns.segments import binary_column, concat, routed_blocks
from dovetail.conditions.comparison import Kind
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.kernel import leaf_state, merged, picked, states
from dovetail.families.aggregate.measures import Piece, State
from dovetail.families.aggregate.overlaps import BEGINS, ENDS, overlap_states, route_boxes, route_points
from dovetail.families.aggregate.router import Routing, Sample, fit, modulo
from dovetail.families.aggregate.spec import STATE, AggregateSpec

ANSWERING, ASKING = 0, 1
"""The two sides, as points and boxes of the step."""

ROLE = "role"
"""What a row is to its cell, where intervals overlap."""
HOME, COVERED, BEYOND, ASKS, OF_CELL = "home", "covered", "beyond", "asks", "cell"
"""The home of an asking row, the cells that it covers, whether it asks at home, and the cell of a state."""

BEFORE, BETWEEN = 0, 1
"""The two totals of a cell of intervals: for rows that begin behind it, and for rows that it lies within."""

VISITORS, RESIDENTS = 1, 2
"""Turns of the asking rows in a cell, behind the answering ones (0): those at home elsewhere, those at home here."""

NOTES, TOTALS = -2, -1
"""Turns in the merge, before the states of visitors and residents of cell c: 2c and 2c + 1."""

NOTE = "note"
"""Metadata of a segment without rows: what its cell has counted."""


@dataclass(frozen=True)
class Stage:
    """What all stages know."""

    spec: AggregateSpec
    partitions: int = 1
    sources: tuple[Source | None, ...] | None = None
    """For each key of the asking side, where in its payload it is; None for keys that travel themselves."""

    def asking_keys(self, block: pa.RecordBatch) -> Keys:
        """The keys of asking rows, as they come from Spark."""
        sources = (None,) * self.key_counts[ASKING] if self.sources is None else self.sources
        return keys_from(block, sources, len(self.spec.payload))

    def numbered(self, left: Keys, right: Keys) -> tuple[Index, Index]:
        """Asking keys of two tables as common numbers: rows with the same number have the same matches."""
        step = self.spec.step
        kinds: list[Kind] = ["int"] * len(step.box_keys)
        kinds[: len(step.equalities)] = step.equalities
        for axis in step.axes:
            for edge in (axis.low, axis.high):
                if edge is not None:
                    kinds[edge.key] = axis.kind
        return group_numbers(tuple(kinds), left, right)

    @property
    def travelling(self) -> int:
        """How many key columns come behind the payload of asking rows."""
        return self.key_counts[ASKING] - sum(source is not None for source in self.sources or ())

    @property
    def key_counts(self) -> tuple[int, int]:
        """How many key columns the answering and the asking side have."""
        return len(self.spec.step.point_keys), len(self.spec.step.box_keys)

    @property
    def hashed(self) -> bool:
        """Whether a hash of equality keys travels behind the keys."""
        return bool(self.spec.step.equalities)


@dataclass(frozen=True)
class FitStage(Stage):
    """Sampled keys of both sides in, one routing out."""

    fractions: tuple[float, float] = (1.0, 1.0)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        held = [batch for batch in batches if batch.num_rows]
        if held:
            found = sampled_sides(concat(held), self.key_counts, hashed=self.hashed, fractions=self.fractions)
            points, boxes = (self._sample(side, rows, part) for side, (rows, part) in enumerate(found))
        else:
            empty = np.empty(0, dtype=np.int64)
            points = boxes = Sample(empty, [empty] * self._axes, [empty] * self._axes, 0.0)
        routing = fit(
            self.spec.step,
            points,
            boxes,
            partitions=self.partitions,
            exhaustive=self.spec.exhaustive,
            overlap=self.spec.overlap,
        )
        yield pa.RecordBatch.from_arrays([binary_column([routing.to_buffer()])], names=[FITTED])

    @property
    def _axes(self) -> int:
        return max(1, len(self.spec.step.axes))

    def _sample(self, side: int, rows: float, part: pa.RecordBatch) -> Sample:
        keys: Keys = list(part.columns[: self.key_counts[side]])
        size = part.num_rows
        hashes = order_codes(part.column(len(keys)), "int") if self.hashed else np.zeros(size, dtype=np.int64)
        low, high = [], []
        for axis in self.spec.step.axes:
            ends: tuple[Codes, Codes]
            ends = (routing_points(axis, keys),) * 2 if side == ANSWERING else routing_boxes(axis, keys)
            low.append(ends[0])
            high.append(ends[1])
        if not low:
            low = high = [np.zeros(size, dtype=np.int64)]
        return Sample(hashes, low, high, rows)


@dataclass(frozen=True)
class RouteStage(Stage):
    """Rows of one side in; segments out, each with the number of its cell."""

    side: int = ANSWERING
    routing: bytes | None = None
    """The routing where it is known before the job (no sampling); else it comes with the first row."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        for routing, block in routed_blocks(self.routing, batches, Routing.from_buffer):
            # The segments of a cell tell it who it is, and whether its total may be asked for.
            notes = 2 * np.arange(routing.cells) + routing.whole(self.spec.step)
            if self.side == ANSWERING:
                yield self._answering(routing, block, notes)
            else:
                yield from self._asking(routing, block, notes)

    def _answering(self, routing: Routing, block: pa.RecordBatch, notes: Index) -> pa.RecordBatch:
        keys = self.key_counts[ANSWERING]
        chosen = usable_rows(list(block.columns[:keys]))
        if chosen is not None:
            # A NULL among the keys matches nothing.
            block = block.take(chosen)
        width = keys + len(self.spec.arguments)
        hashes = order_codes(block.column(width), "int") if self.hashed else np.zeros(block.num_rows, dtype=np.int64)
        ties = row_hashes(block, width) if routing.splits_values else np.zeros(block.num_rows, dtype=np.int64)
        point_keys: Keys = list(block.columns[:keys])
        rows = block.select(range(width))
        if self.spec.overlap is None:
            if routing.mode == "copied":
                numbers, cells = spans(np.zeros_like(hashes), np.full(hashes.size, routing.cells - 1))
            else:
                cells = routing.points(self.spec.step, hashes, point_keys, ties)
                numbers = np.arange(cells.size)
            table, bounds = group_rows_by_cell(rows, numbers, cells, routing.cells)
            return shuffle_batch(routing.numbers, 0, table, bounds, notes)
        numbers, cells, roles = route_points(self.spec, routing, hashes, point_keys, ties)
        table, bounds = group_rows_by_cell(rows, numbers, cells, routing.cells)
        in_order, _ = group_by_cell(roles.astype(np.int64), cells, routing.cells)
        table = table.append_column(ROLE, pa.array(in_order))
        return shuffle_batch(routing.numbers, 0, table, bounds, notes)

    def _asking(self, routing: Routing, block: pa.RecordBatch, notes: Index) -> Iterator[pa.RecordBatch]:
        payload, size = len(self.spec.payload), block.num_rows
        width = payload + self.travelling
        keys = self.asking_keys(block)
        hashes = order_codes(block.column(width), "int") if self.hashed else np.zeros(size, dtype=np.int64)
        key_rows = pa.RecordBatch.from_arrays(keys, names=columns_of(KEY, len(keys)))
        # Rows that ask nowhere may go anywhere, but to the same place if their task runs again.
        home = modulo(row_hashes(block, width), routing.cells)
        spread = row_hashes(key_rows, len(keys))
        chosen = usable_rows(keys)
        rows = np.arange(size) if chosen is None else chosen
        if chosen is not None:
            keys, hashes = [key.take(chosen) for key in keys], hashes[chosen]
        if self.spec.overlap is None:
            visits = routing.boxes(self.spec.step, hashes, keys, spread[rows], exhaustive=self.spec.exhaustive)
        else:
            visits = route_boxes(self.spec, routing, hashes, keys, spread[rows])
        covered, beyond = np.full((2, size), -1, dtype=np.int64)
        covered[rows], beyond[rows] = visits.covered, visits.beyond
        visitor, cell = rows[visits.rows], visits.cells
        home[visitor] = visits.home[visits.rows]
        at_home = cell == home[visitor]
        asks = np.zeros(size, dtype=np.bool_)
        asks[visitor[at_home]] = True
        residents = pa.RecordBatch.from_arrays(
            block.columns[:width], names=[*columns_of(POINT_PAYLOAD, payload), *columns_of(KEY, self.travelling)]
        )
        for name, values in ((COVERED, covered), (BEYOND, beyond), (ASKS, asks)):
            residents = residents.append_column(name, pa.array(values))
        table, bounds = group_rows_by_cell(residents, np.arange(size), home, routing.cells)
        yield shuffle_batch(routing.numbers, RESIDENTS, table, bounds, notes)
        away = np.flatnonzero(~at_home)
        if away.size:
            visitors = key_rows.append_column(HOME, pa.array(home))
            table, bounds = group_rows_by_cell(visitors, visitor[away], cell[away], routing.cells)
            yield shuffle_batch(routing.numbers, VISITORS, table, bounds, notes)


@dataclass(frozen=True)
class AnswerStage(Stage):
    """The segments of one cell in; for the merge its partial states, and its total, if one may be asked for, out."""

    clock: Callable[[int], None] | None = None
    """Called with the microseconds that the cell took."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a cell."""
        began = time.perf_counter_ns()
        note, (answering, visitors, residents) = segments_by_turn(batches, (0, VISITORS, RESIDENTS))
        cell, whole = divmod(note, 2)
        slots = spark_hash.cell_numbers(np.arange(self.partitions), self.partitions)
        if residents is not None:
            state = self._resident_states(answering, residents)
            yield one_segment(slots[cell % self.partitions], 2 * cell + 1, self._homecoming(residents, state))
        if visitors is not None:
            yield from self._visits(answering, visitors, cell, slots)
        if whole and answering is not None and not self.spec.exhaustive:
            total = self._total(answering, cell)
            for number in slots.tolist():
                yield one_segment(number, TOTALS, total)
        counts = [
            0 if answering is None else answering.num_rows,
            sum(0 if rows is None else rows.num_rows for rows in (visitors, residents)),
        ]
        empty = pa.RecordBatch.from_pydict({OF_CELL: pa.array([], pa.int64())})
        yield one_segment(
            slots[cell % self.partitions], NOTES, empty.replace_schema_metadata({NOTE: json.dumps(counts)})
        )
        if self.clock is not None:
            self.clock((time.perf_counter_ns() - began) // 1000)

    def _homecoming(self, residents: pa.RecordBatch, state: State) -> pa.RecordBatch:
        """The rows of this home with their states."""
        return _with_state(residents.drop_columns([ASKS]), state)

    def _resident_states(self, answering: pa.RecordBatch | None, residents: pa.RecordBatch) -> State:
        asks = residents.column(ASKS).to_numpy(zero_copy_only=False)
        keys = self.asking_keys(residents)
        if asks.all() or self.spec.overlap is not None:
            # Intervals that do not ask match nothing.
            return self._states(answering, keys, at_home=True)
        asking = np.flatnonzero(asks)
        places = np.full(asks.size, -1, dtype=np.int64)
        places[asking] = np.arange(asking.size)
        chosen = [key.take(asking) for key in keys]
        return picked(self.spec, self._states(answering, chosen, at_home=True), places)

    def _states(self, answering: pa.RecordBatch | None, keys: Keys, *, at_home: bool) -> State:
        rows = len(keys[0])
        if answering is None:
            return empty_state(self.spec, rows)
        if self.spec.overlap is None:
            return states(self.spec, answering, keys)
        roles, plain = _roles(answering)
        return overlap_states(self.spec, plain, roles, keys, np.full(rows, at_home))

    def _visits(
        self, answering: pa.RecordBatch | None, visitors: pa.RecordBatch, cell: int, slots: npt.NDArray[np.int32]
    ) -> Iterator[pa.RecordBatch]:
        if answering is None:
            return
        count = self.key_counts[ASKING]
        # Rows with the same keys have the same state, which is sent once.
        numbers, _ = self.numbered(
            list(visitors.columns[:count]), [key.slice(0, 0) for key in visitors.columns[:count]]
        )
        once = np.unique(numbers, return_index=True)[1]
        if once.size < visitors.num_rows:
            visitors = visitors.take(once)
        state = self._states(answering, list(visitors.columns[:count]), at_home=False)
        # Where nothing matched, there is nothing to merge; of intervals, as many may have begun as have ended.
        found = np.flatnonzero(state[0].to_numpy() > 0) if self.spec.overlap is None else np.arange(visitors.num_rows)
        home = visitors.column(HOME).to_numpy()
        rows = visitors.select(range(count)).append_column(OF_CELL, pa.array(np.full(home.size, cell)))
        table = _with_state(rows, state)
        homes, numbered = np.unique(home[found], return_inverse=True)
        ordered, bounds = group_rows_by_cell(table, found, numbered.astype(np.int64), homes.size)
        for at, where in enumerate(homes.tolist()):
            part = ordered.slice(bounds[at], bounds[at + 1] - bounds[at])
            yield one_segment(slots[where % self.partitions], 2 * where, part)

    def _total(self, answering: pa.RecordBatch, cell: int) -> pa.RecordBatch:
        """The states of all rows of a cell, one for each of its keys: two keys may share a hash."""
        count, equal = self.key_counts[ANSWERING], len(self.spec.step.equalities)
        roles = np.zeros(0, dtype=np.int64)
        if self.spec.overlap is not None:
            roles, answering = _roles(answering)
        leaves = leaf_state(self.spec, list(answering.columns[count:]), answering.num_rows)
        if equal:
            keys: Keys = list(answering.columns[:equal])
            groups, _ = group_numbers(self.spec.step.equalities, keys, [key.slice(0, 0) for key in keys])
        else:
            groups = np.zeros(answering.num_rows, dtype=np.int64)
        order = np.argsort(groups, kind="stable")
        ends = np.cumsum(np.bincount(groups))
        begins = np.concatenate([[0], ends[:-1]])
        rows = answering.select(range(equal)).take(order[begins])
        if equal:
            named = rows.append_column(OF_CELL, pa.array(np.full(ends.size, cell)))
        else:
            named = pa.RecordBatch.from_pydict({OF_CELL: np.full(ends.size, cell)})
        if self.spec.overlap is None:
            return _with_state(named, merged(self.spec, leaves, [Piece(order, begins, ends)], ends.size))
        begun, ended = (_by_group(np.flatnonzero(roles & role), groups, ends.size) for role in (BEGINS, ENDS))
        ended = Piece(ended.order, ended.begin, ended.end, sign=-1)
        parts = []
        for part, found in ((BEFORE, [begun, ended]), (BETWEEN, [begun])):
            marked = named.append_column(ROLE, pa.array(np.full(ends.size, part)))
            parts.append(_with_state(marked, merged(self.spec, leaves, found, ends.size)))
        return concat(parts)


def _roles(answering: pa.RecordBatch) -> tuple[Index, pa.RecordBatch]:
    """The roles of the rows of a cell, and the rows without them."""
    last = answering.num_columns - 1
    roles: Index = answering.column(last).to_numpy()
    return roles, answering.select(range(last))


def _by_group(rows: Index, groups: Index, count: int) -> Piece:
    """Some rows in the order of their groups: one range for each."""
    order = rows[np.argsort(groups[rows], kind="stable")]
    ends = np.cumsum(np.bincount(groups[rows], minlength=count))
    return Piece(order, np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]]), ends)


def empty_state(spec: AggregateSpec, rows: int) -> State:
    """The states of rows without matches."""
    nothing = [pa.array([], kind) for _, kind in spec.state_fields()]
    return picked(spec, nothing, np.full(rows, -1, dtype=np.int64))


def _with_state(rows: pa.RecordBatch, state: State) -> pa.RecordBatch:
    names = [*rows.schema.names, *columns_of(STATE, len(state))]
    return pa.RecordBatch.from_arrays([*rows.columns, *state], names=names)

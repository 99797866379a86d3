"""One call of an approximate join: all rows that take part, as the compiled loops want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import order_codes
from dovetail.columns.segments import take_unchecked
from dovetail.families.approx.compiled import (
    NOT_STARTED,
    Chains,
    Index,
    Results,
    Rows,
    Strata,
    buckets_of,
    draws,
)
from dovetail.families.approx.encode import axes_of, join_values, row_bytes
from dovetail.families.approx.memory import Memory, divide_memory
from dovetail.families.approx.output import Found
from dovetail.families.approx.paper.compiled import Slots, run_printed
from dovetail.families.approx.paper.slots import bucket_count, empty_slots, part_count, restore, stored
from dovetail.families.approx.priorities import DONE, FULL, Queues, flush, restore_queues, run_queues
from dovetail.families.approx.reservoirs import restore_reservoirs, run_reservoirs
from dovetail.families.approx.spec import ALL_HELD, GREEDY, PRINTED, SLOT_BYTES, ApproxSpec

CHUNK = 1 << 16
UNLIMITED = 1 << 62
_STRATUM_SALT, _QUEUE_SALT = 1, 2


def row_numbers(rows: pa.RecordBatch) -> Index:
    """The numbers of rows within their input, in the last column."""
    return order_codes(rows.column(rows.num_columns - 1), "int")


@dataclass
class CellState:
    """What a cell knows besides its held rows.  A call updates it in place."""

    seed: int
    arrivals: int
    """Rows of all inputs that have arrived."""
    seen: Index
    """By input: rows that asked for a slot in memory."""
    row_cost: Index
    """By input: the cost of the most expensive row so far."""
    oversized: Index
    """By input: rows too large for any slot."""
    peak: Index
    """The most that was ever held: [rows, in the limit's unit]."""
    statistics: Index | None = None
    """By stratum or queue, as :meth:`Call.statistics` gives them."""

    @classmethod
    def empty(cls, spec: ApproxSpec) -> CellState:
        """The state of a cell to which no row has come."""
        seen, row_cost, oversized = (np.zeros(spec.sides, dtype=np.int64) for _ in range(3))
        return cls(spec.seed, 0, seen, row_cost, oversized, np.zeros(2, dtype=np.int64))


@dataclass(frozen=True)
class InputRows:
    """The rows of one input that take part in a call: first those that are held, then the new ones."""

    table: pa.RecordBatch | None
    held: int
    arrivals: Index
    """Where the new rows are in the order of arrival."""
    before: int
    """How many rows of the input arrived before the new ones."""


class Call:
    """One call: joins the new rows of all inputs with the held ones, and decides which of them to hold."""

    def __init__(
        self, spec: ApproxSpec, state: CellState, inputs: Sequence[InputRows], budget: int | None, *, last: bool = False
    ) -> None:
        """`budget` is the memory of this cell where cells have unequal parts, else None; no call follows the `last`."""
        self.spec = spec
        self._state = state
        self.inputs = inputs
        counts = [0 if part.table is None else part.table.num_rows for part in inputs]
        self.begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.order = self._order()
        self.memory = Memory(
            np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), state.seen, np.zeros(spec.sides, dtype=np.int64),
            state.row_cost, np.zeros(spec.sides, dtype=np.int64), state.peak, state.oversized,
        )  # fmt: skip
        self.comparisons, self.results, self.estimated = 0, 0, 0
        self._oversized_before = int(state.oversized.sum())
        if not self.order.size:
            return
        hashes = self._column(lambda table: order_codes(table.column(table.num_columns - 2), "int"))
        self.cell = int(hashes[0] % spec.cells)
        self.budget = UNLIMITED if spec.memory is None else spec.budget(self.cell) if budget is None else budget
        self.memory.limit[0] = UNLIMITED if spec.policy == "exact" else self.budget
        divide_memory(self.memory)
        self._prepare(hashes)
        self.all_held = spec.policy == "exact" or (last and self._needs() <= self.budget)
        self._progress = np.zeros(2, dtype=np.int64)
        self._cursor = np.full(spec.sides, NOT_STARTED, dtype=np.int64)
        detailed = CHUNK if spec.weighted and spec.detail else 0
        seen, kept, arrived = (np.empty((spec.sides, detailed), dtype=np.int64) for _ in range(3))
        stratum, mixed = (np.empty(detailed, dtype=np.int64) for _ in range(2))
        self.out = Results(
            np.empty((spec.sides, CHUNK), dtype=np.int64), seen, kept, arrived, stratum, mixed,
            np.empty(CHUNK, dtype=np.float64), np.empty(CHUNK, dtype=np.int64), np.zeros(2, dtype=np.int64),
        )  # fmt: skip

    def _order(self) -> Index:
        """New rows of all inputs in the order of arrival."""
        rows = [np.arange(begin + part.held, end) for part, begin, end in
                zip(self.inputs, self.begin[:-1], self.begin[1:], strict=True)]  # fmt: skip
        arrivals = np.concatenate([part.arrivals for part in self.inputs])
        # Each input is in order already, and a stable sort merges such runs fast.
        return np.concatenate(rows)[np.argsort(arrivals, kind="stable")]

    def _column(self, read: Callable[[pa.RecordBatch], Index]) -> Index:
        return np.concatenate([read(part.table) for part in self.inputs if part.table is not None])

    def _prepare(self, hashes: Index) -> None:
        self.hashes = hashes
        spec, total = self.spec, int(self.begin[-1])
        side = np.repeat(np.arange(spec.sides), np.diff(self.begin))
        keys = [self._keys(at) for at in range(spec.sides)]
        group = np.zeros(total, dtype=np.int64)
        if spec.kinds:
            present = [[key[c] for c in spec.value[at]] for at, key in enumerate(keys) if key]
            group = join_values(spec.kinds, present)
        edges = [edge for edge in spec.edges if keys[edge.point] and keys[edge.box]]
        edge_keys = [
            (
                [keys[edge.point][spec.keys[edge.point].index(key)] for key in edge.step.point_keys],
                [keys[edge.box][spec.keys[edge.box].index(key)] for key in edge.step.box_keys],
            )
            for edge in edges
        ]
        self.axes = axes_of(edges, edge_keys, self.begin)
        numbers = [
            row_numbers(part.table) if part.table is not None else np.empty(0, dtype=np.int64) for part in self.inputs
        ]
        draw = np.concatenate([draws(self._state.seed, self.cell, at, part) for at, part in enumerate(numbers)])
        strata = self._stratum_count()
        printed, nothing = spec.policy in PRINTED, np.zeros(total, dtype=np.int64)
        # As printed, a row looks through a whole reservoir or queue, or through one of its parts.
        lists = part_count(spec) if printed else 1 if spec.scan else 1 + int(group.max(initial=0))
        part = buckets_of(hashes, lists, _STRATUM_SALT) if printed and lists > 1 else nothing
        self.rows = Rows(
            side=side,
            bucket=part if printed or spec.scan else group,
            group=group,
            stratum=buckets_of(hashes, strata, _STRATUM_SALT) if strata > 1 else nothing,
            draw=draw,
            cost=self._costs(total),
        )
        groups = 1 + int(group.max(initial=0))
        self.chains = Chains(
            np.full((spec.sides, lists), -1, dtype=np.int64), np.full(total, -1, dtype=np.int32),
            np.full(total, -1, dtype=np.int32), np.zeros(total, dtype=np.int64),
            np.zeros((spec.sides, groups), dtype=np.int64), np.array([printed or spec.scan], dtype=np.int64),
        )  # fmt: skip
        self.queues: Queues | None = None
        self.slots: Slots | None = None
        shape = (spec.sides, strata)
        self.strata = Strata(
            np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64),
            np.full(shape, -1, dtype=np.int64), np.full(shape, bool(spec.edges), dtype=np.int64),
            np.array([part.before for part in self.inputs]), np.zeros(1, dtype=np.int64),
        )  # fmt: skip
        held = np.concatenate(
            [np.arange(begin, begin + part.held) for part, begin in zip(self.inputs, self.begin, strict=False)]
        )
        if spec.policy in GREEDY:
            self._prepare_queues(hashes, held, numbers)
        elif printed:
            self._prepare_slots(part, numbers)
        else:
            if self._state.statistics is not None:
                stored = self._state.statistics.reshape(shape)
                self.strata.seen[:] = np.abs(stored)
                self.strata.mixed[stored > 0] = 1
            self.heap = np.empty(total, dtype=np.int64)
            self.sizes = np.zeros(spec.sides, dtype=np.int64)
            restore_reservoirs(
                held, self.rows, self.chains, self.memory, self.strata, self.heap, self.begin[:-1], self.sizes
            )

    def _stratum_count(self) -> int:
        """Strata of the cell, with at least four rows each, so that few rows are the last of theirs."""
        if self.spec.policy != "raj_hash":
            return 1
        if self._state.statistics is not None:
            return self._state.statistics.size // self.spec.sides
        assert self.spec.memory is not None
        row = 1 if self.spec.memory.unit == "rows" else max(4 * SLOT_BYTES, self.spec.row_bytes)
        return max(1, min(self.spec.strata, self.budget // (4 * row * self.spec.sides)))

    def _needs(self) -> int:
        """How much memory it takes to hold all rows, old and new."""
        needs = 0
        for side, part in enumerate(self.inputs):
            cost = self.rows.cost[self.begin[side] : self.begin[side + 1]].max(initial=self._state.row_cost[side])
            needs += (int(self._state.seen[side]) + part.arrivals.size) * int(cost)
        return needs if not self._state.oversized.any() else UNLIMITED

    def _costs(self, total: int) -> Index:
        if self.spec.memory is None or self.spec.memory.unit == "rows":
            return np.ones(total, dtype=np.int64)
        return self._column(lambda table: row_bytes(table.columns)) + SLOT_BYTES

    def _prepare_queues(self, hashes: Index, held: Index, numbers: list[Index]) -> None:
        assert self.spec.memory is not None
        rows = self.budget if self.spec.memory.unit == "rows" else self.budget // SLOT_BYTES
        # Statistics take memory in proportion to the rows, and two values seldom share a bucket.
        size = 1 << int(np.clip(2 * rows, 1024, 65536) - 1).bit_length()
        total = hashes.size
        self.queues = Queues(
            bucket=buckets_of(hashes, size, _QUEUE_SALT),
            head=np.full((2, size), -1, dtype=np.int64),
            after=np.full(total, -1, dtype=np.int64),
            before=np.full(total, -1, dtype=np.int64),
            sizes=np.zeros((2, size), dtype=np.int64),
            heap=np.zeros((2, size), dtype=np.int64),
            position=np.zeros((2, size), dtype=np.int64),
            used=np.zeros(2, dtype=np.int64),
            arrived=np.zeros((2, size), dtype=np.int64),
            results=np.zeros(size, dtype=np.int64),
            by_draw=np.empty(total, dtype=np.int64),
            by_draw_size=np.zeros(1, dtype=np.int64),
        )
        if self._state.statistics is not None:
            self.queues.arrived[:] = self._state.statistics[: 2 * size].reshape(2, size)
            self.queues.results[:] = self._state.statistics[2 * size :]
        # In the order of arrival, which is the order of every queue.
        arrived = np.concatenate(numbers)[held]
        restore_queues(held[np.argsort(arrived, kind="stable")], self.rows, self.chains, self.memory, self.queues)

    def _prepare_slots(self, part: Index, numbers: list[Index]) -> None:
        buckets = bucket_count(self.spec, self.budget)
        self._numbers = numbers
        self.memory.row_cost[:] = 1
        self.slots = empty_slots(self.spec, self.rows, part, buckets_of(self.hashes, buckets, _QUEUE_SALT), buckets)
        if self._state.statistics is not None:
            line = self._state.statistics
            restore(line, self.rows, self.chains, self.memory, self.slots, self.begin, numbers)

    def _keys(self, side: int) -> list[pa.Array[Any]]:
        table = self.inputs[side].table
        if table is None:
            return []
        return table.columns[self.spec.payload[side] :][: len(self.spec.keys[side])]

    def run(self) -> bool:
        """Fill a chunk of results; True once all rows have arrived."""
        self.out.counts[0] = 0
        common = (
            self._progress, self.order, self._state.arrivals,
            self.rows, self.axes, self.chains, self.memory, self.strata,
        )  # fmt: skip
        if self.queues is not None:
            policy = self.spec.policy
            shared = policy == "arrpj" or self.spec.allocation == "variable"
            arguments = (*common, self.queues, shared, policy == "arrpj", self._cursor, self.out)
            while (why := run_queues(*arguments)) == FULL:
                flush(self.rows, self.chains, self.memory, self.queues)
            complete = why == DONE
        elif self.slots is not None:
            samples = self.spec.policy in ("raj_printed", "raj_hash_printed")
            complete = run_printed(*common, self.slots, samples, self._cursor, self.out)
        else:
            complete = run_reservoirs(*common, self.heap, self.begin[:-1], self.sizes, self._cursor, self.out)
        self.comparisons += int(self.out.counts[1])
        self.results += int(self.out.counts[0])
        if self.spec.weighted:
            self.estimated += round(float(self.out.weight[: self.out.counts[0]].sum()))
        self.out.counts[1] = 0
        return complete

    def batch(self, found: Found, total: int, returned: int) -> pa.RecordBatch:
        """Results as rows of all inputs, with how each was sampled; so many of a `total` of the call are returned."""
        columns: list[pa.Array[Any]] = []
        # Rows of a cell are fewer than 2**31, and Arrow is faster with short numbers.
        positions = [(found.rows[side] - self.begin[side]).astype(np.int32) for side in range(self.spec.sides)]
        for side, rows in enumerate(positions):
            table = self.inputs[side].table
            assert table is not None
            columns += take_unchecked(table.select(range(self.spec.payload[side])), rows).columns
        if self.spec.weighted:
            columns.append(pa.array(found.weight))
        if self.spec.detail or not self.spec.weighted:
            columns += [pa.array(np.full(found.count, self.cell, dtype=np.int32)), pa.array(found.arrival)]
        if self.spec.detail and self.spec.weighted:
            columns += self._details(found, positions)
            if self.spec.results is not None:
                columns += [pa.array(np.full(found.count, fact)) for fact in (self._state.arrivals, total, returned)]
        return pa.RecordBatch.from_arrays(columns, names=self.spec.output_names())

    def _details(self, found: Found, positions: list[Index]) -> list[pa.Array[Any]]:
        stratum = np.full(found.count, ALL_HELD) if self.all_held else found.stratum
        columns: list[pa.Array[Any]] = [
            pa.array(stratum.astype(np.int32)),
            pa.array(found.mixed == 1),
            pa.array(self.hashes[found.rows[0]]),
        ]
        for side, rows in enumerate(positions):
            table = self.inputs[side].table
            assert table is not None
            numbers = pa.array(row_numbers(table)[rows])
            columns += [numbers, *[pa.array(part[side]) for part in (found.seen, found.kept, found.arrived)]]
        return columns

    @property
    def oversized(self) -> int:
        """New rows that were too large for any slot."""
        return int(self.memory.oversized.sum()) - self._oversized_before

    @property
    def in_strata(self) -> bool:
        """Whether statistics are kept by stratum."""
        return self.queues is None and self.slots is None

    def held_rows(self, side: int) -> Index:
        """1 for rows of an input that are held now, 0 for the others."""
        return self.chains.held[self.begin[side] : self.begin[side + 1]]

    def statistics(self) -> Index:
        """What the policy knows of strata or queues, to be stored."""
        if self.queues is not None:
            return np.concatenate([self.queues.arrived.ravel(), self.queues.results])
        if self.slots is not None:
            return stored(self.slots, self.begin, self._numbers)
        # Negative where a stratum has one join value: what was stored before that was known has no sign.
        return np.where(self.strata.mixed == 1, self.strata.seen, -self.strata.seen).ravel()

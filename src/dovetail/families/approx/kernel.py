"""One call of an approximate kernel: all rows that take part, as the compiled loops want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import order_codes
from dovetail.columns.segments import take_unchecked
from dovetail.families.approx.compiled import FRESH, Index, Lists, Out, Room, Rows, Tally, buckets_of, draws, share
from dovetail.families.approx.encode import axes_of, join_values, row_bytes
from dovetail.families.approx.priorities import DONE, FULL, Queues, flush, restore_queues, run_queues
from dovetail.families.approx.reservoirs import restore_reservoirs, run_reservoirs
from dovetail.families.approx.spec import SLOT_BYTES

if TYPE_CHECKING:
    from dovetail.families.approx.stream import ApproxKernel

CHUNK = 1 << 16
UNLIMITED = 1 << 62
_STRATUM_SALT, _QUEUE_SALT = 1, 2


def numbers_of(rows: pa.RecordBatch) -> Index:
    """The arrival numbers of rows, in their last column."""
    return order_codes(rows.column(rows.num_columns - 1), "int")


class Call:
    """One call of a kernel: all rows that take part, as the compiled loops want them."""

    def __init__(self, kernel: ApproxKernel) -> None:
        self.kernel = kernel
        spec = self.spec = kernel.spec
        self.tables = kernel.tables()
        counts = [0 if table is None else table.num_rows for table, _, _ in self.tables]
        self.begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.order = self._order()
        self.room = Room(
            np.zeros(2, dtype=np.int64), kernel.seen, np.zeros(spec.sides, dtype=np.int64), kernel.widest,
            np.zeros(spec.sides, dtype=np.int64), kernel.peak, kernel.oversized,
        )  # fmt: skip
        self.oversized_before = int(kernel.oversized.sum())
        if not self.order.size:
            return
        hashes = self._column(lambda table: order_codes(table.column(table.num_columns - 2), "int"))
        self.cell = int(hashes[0] % spec.cells)
        self.budget = kernel.budget_of(self.cell)
        self.room.total[0] = UNLIMITED if spec.policy == "exact" else self.budget
        share(self.room)
        self._first = kernel.arrivals
        self._prepare(hashes)
        self._state = np.zeros(2, dtype=np.int64)
        self._cursor = np.full(spec.sides, FRESH, dtype=np.int64)
        told = CHUNK if spec.weighted and spec.detail else 0
        seen, kept, same = (np.empty((spec.sides, told), dtype=np.int64) for _ in range(3))
        self.out = Out(
            np.empty((spec.sides, CHUNK), dtype=np.int64), seen, kept, same, np.empty(CHUNK, dtype=np.float64),
            np.empty(CHUNK, dtype=np.int64), np.zeros(2, dtype=np.int64),
        )  # fmt: skip

    def _order(self) -> Index:
        """New rows of all inputs in the order of arrival."""
        rows = [np.arange(at + held, end) for (_, held, _), at, end in
                zip(self.tables, self.begin[:-1], self.begin[1:], strict=True)]  # fmt: skip
        places = np.concatenate([places for _, _, places in self.tables])
        # Each input is in order already, which a stable sort of runs makes good use of.
        return np.concatenate(rows)[np.argsort(places, kind="stable")]

    def _column(self, read: Callable[[pa.RecordBatch], Index]) -> Index:
        return np.concatenate([read(table) for table, _, _ in self.tables if table is not None])

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
        both = [
            (
                [keys[edge.point][spec.keys[edge.point].index(key)] for key in edge.step.point_keys],
                [keys[edge.box][spec.keys[edge.box].index(key)] for key in edge.step.box_keys],
            )
            for edge in edges
        ]
        self.axes = axes_of(edges, both, self.begin)
        numbers = [
            numbers_of(table) if table is not None else np.empty(0, dtype=np.int64) for table, _, _ in self.tables
        ]
        draw = np.concatenate([draws(self.kernel.seed, self.cell, at, part) for at, part in enumerate(numbers)])
        strata = self._strata()
        self.rows = Rows(
            side=side,
            bucket=np.zeros(total, dtype=np.int64) if spec.scan else group,
            group=group,
            stratum=buckets_of(hashes, strata, _STRATUM_SALT) if strata > 1 else np.zeros(total, dtype=np.int64),
            draw=draw,
            cost=self._costs(total),
        )
        lists = 1 if spec.scan else 1 + int(group.max(initial=0))
        self.lists = Lists(
            np.full((spec.sides, lists), -1, dtype=np.int64), np.full(total, -1, dtype=np.int32),
            np.full(total, -1, dtype=np.int32), np.zeros(total, dtype=np.int64),
            np.zeros((spec.sides, 1 + int(group.max(initial=0))), dtype=np.int64),
        )  # fmt: skip
        self.queues: Queues | None = None
        self.tally = Tally(
            np.zeros((spec.sides, strata), dtype=np.int64), np.zeros((spec.sides, strata), dtype=np.int64),
            np.full((spec.sides, strata), -1, dtype=np.int64),
        )  # fmt: skip
        held = np.concatenate([np.arange(at, at + n) for (_, n, _), at in zip(self.tables, self.begin, strict=False)])
        if spec.policy in ("prob", "prob_hash", "arrpj"):
            self._prepare_queues(hashes, held, draw, numbers)
        else:
            if self.kernel.statistics is not None:
                self.tally.seen[:] = self.kernel.statistics.reshape(self.tally.seen.shape)
            self.heap = np.empty(total, dtype=np.int64)
            self.sizes = np.zeros(spec.sides, dtype=np.int64)
            restore_reservoirs(
                held, self.rows, self.lists, self.room, self.tally, self.heap, self.begin[:-1], self.sizes
            )

    def _strata(self) -> int:
        """Strata of the cell: with four rows each at least, so that few are the last of theirs."""
        if self.spec.policy != "raj_hash":
            return 1
        assert self.spec.memory is not None
        row = 1 if self.spec.memory.unit == "rows" else 4 * SLOT_BYTES
        return max(1, min(self.spec.strata, self.budget // (4 * row * self.spec.sides)))

    def _costs(self, total: int) -> Index:
        if self.spec.memory is None or self.spec.memory.unit == "rows":
            return np.ones(total, dtype=np.int64)
        return self._column(lambda table: row_bytes(table.columns)) + SLOT_BYTES

    def _prepare_queues(self, hashes: Index, held: Index, draw: Index, numbers: list[Index]) -> None:
        assert self.spec.memory is not None
        rows = self.budget if self.spec.memory.unit == "rows" else self.budget // SLOT_BYTES
        # Statistics take memory in proportion to the rows, and a bucket seldom has to serve two values.
        size = 1 << int(np.clip(2 * rows, 1024, 65536) - 1).bit_length()
        total = hashes.size
        self.queues = Queues(
            bucket=buckets_of(hashes, size, _QUEUE_SALT),
            head=np.full((2, size), -1, dtype=np.int64),
            after=np.full(total, -1, dtype=np.int64),
            before=np.full(total, -1, dtype=np.int64),
            sizes=np.zeros((2, size), dtype=np.int64),
            heap=np.zeros((2, size), dtype=np.int64),
            place=np.zeros((2, size), dtype=np.int64),
            used=np.zeros(2, dtype=np.int64),
            arrived=np.zeros((2, size), dtype=np.int64),
            results=np.zeros(size, dtype=np.int64),
            guess=np.empty(total, dtype=np.int64),
            guesses=np.zeros(1, dtype=np.int64),
        )
        if self.kernel.statistics is not None:
            self.queues.arrived[:] = self.kernel.statistics[: 2 * size].reshape(2, size)
            self.queues.results[:] = self.kernel.statistics[2 * size :]
        # In the order of arrival, which is the order of every queue.
        arrived = np.concatenate(numbers)[held]
        restore_queues(held[np.argsort(arrived, kind="stable")], self.rows, self.lists, self.room, self.queues)

    def _keys(self, side: int) -> list[pa.Array[Any]]:
        table = self.tables[side][0]
        if table is None:
            return []
        return table.columns[self.spec.payload[side] :][: len(self.spec.keys[side])]

    def run(self) -> bool:
        """Fill a chunk of results; True once all rows have arrived."""
        self.out.fill[0] = 0
        common = (self._state, self.order, self._first, self.rows, self.axes, self.lists, self.room, self.tally)
        if self.queues is not None:
            policy = self.spec.policy
            shared = policy == "arrpj" or self.spec.allocation == "variable"
            arguments = (*common, self.queues, shared, policy == "arrpj", self._cursor, self.out)
            while (why := run_queues(*arguments)) == FULL:
                flush(self.rows, self.lists, self.room, self.queues)
            whole = why == DONE
        else:
            whole = run_reservoirs(*common, self.heap, self.begin[:-1], self.sizes, self._cursor, self.out)
        counters = self.kernel.counters
        counters["comparisons"] += int(self.out.fill[1])
        counters["candidates"] += int(self.out.fill[0])
        counters["results"] += int(self.out.fill[0])
        self.out.fill[1] = 0
        return whole

    def rows_out(self) -> pa.RecordBatch:
        """The chunk as rows of all inputs, with how each was sampled."""
        count = int(self.out.fill[0])
        columns: list[pa.Array[Any]] = []
        # Rows of a cell are fewer than 2**31, and Arrow is quicker with short numbers.
        local = [(self.out.found[side, :count] - self.begin[side]).astype(np.int32) for side in range(self.spec.sides)]
        for side, rows in enumerate(local):
            table = self.tables[side][0]
            assert table is not None
            columns += take_unchecked(table.select(range(self.spec.payload[side])), rows).columns
        if self.spec.weighted:
            self.kernel.counters["estimated"] += round(float(self.out.weight[:count].sum()))
            columns.append(pa.array(self.out.weight[:count].copy()))
        if self.spec.detail or not self.spec.weighted:
            columns += [pa.array(np.full(count, self.cell, dtype=np.int32)), pa.array(self.out.at[:count].copy())]
        if self.spec.detail and self.spec.weighted:
            columns += self._details(count, local)
        return pa.RecordBatch.from_arrays(columns, names=self.spec.output_names())

    def _details(self, count: int, local: list[Index]) -> list[pa.Array[Any]]:
        first = self.out.found[0, :count]
        columns: list[pa.Array[Any]] = [
            pa.array(self.rows.stratum[first].astype(np.int32)),
            pa.array(self.hashes[first]),
        ]
        for side, rows in enumerate(local):
            table = self.tables[side][0]
            assert table is not None
            numbers = pa.array(numbers_of(table)[rows])
            facts = [pa.array(part[side, :count].copy()) for part in (self.out.seen, self.out.kept, self.out.same)]
            columns += [numbers, *facts]
        return columns

    def new_rows(self, side: int) -> int:
        """How many new rows of an input took part."""
        return int(self.tables[side][2].size)

    def held_rows(self, side: int) -> Index:
        """1 for rows of an input that are held now, 0 for the others."""
        return self.lists.held[self.begin[side] : self.begin[side + 1]]

    def statistics(self) -> Index:
        """What the policy knows of strata or queues, to be stored."""
        if self.queues is not None:
            return np.concatenate([self.queues.arrived.ravel(), self.queues.results])
        return self.tally.seen.ravel()

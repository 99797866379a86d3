"""A cell of an approximate join: rows arrive, results leave at once, and memory never exceeds its limit.

Any prefix of the results is a valid answer for the rows that have arrived.  Rows are taken in the order of their
places, and within a place in the order of the inputs; every choice depends on that order and on the seed, never on the
cut into calls.

State is made up of these segments: ``head`` (counters), ``strata`` or ``queues`` (statistics by stratum or queue),
``live`` (which stored rows are still held), and the rows themselves.  Rows are stored when they enter memory and not
again; once less than half the rows of a segment are held, what is left of it moves to the newest one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import order_codes
from dovetail.columns.encode import usable
from dovetail.columns.segments import concat
from dovetail.errors import DovetailError
from dovetail.families.approx.compiled import Index
from dovetail.families.approx.encode import row_bytes
from dovetail.families.approx.kernel import UNLIMITED, Call, numbers_of
from dovetail.families.approx.spec import SLOT_BYTES, ApproxSpec
from dovetail.family import Changes

METRICS = (
    "rows", "oversized", "held_rows", "held_bytes", "peak_rows",
    "comparisons", "candidates", "results", "estimated", "kernel_us",
)  # fmt: skip
"""What a call counts, in the order in which it leaves the operator."""

BUDGET = b"dovetail.budget"
"""Metadata of a segment: the share of its cell in the memory, where cells have unequal shares."""

_HEAD, _STRATA, _QUEUES, _LIVE = "head", "strata", "queues", "live"


class ApproxKernel:
    """The held rows of a cell, and the join of every new row with them."""

    def __init__(self, spec: ApproxSpec) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(METRICS, 0)
        sides = spec.sides
        self.seed = spec.seed
        self.arrivals = 0
        self._numbers = np.zeros(sides, dtype=np.int64)
        self.seen = np.zeros(sides, dtype=np.int64)
        self.widest = np.zeros(sides, dtype=np.int64)
        self.oversized = np.zeros(sides, dtype=np.int64)
        self.peak = np.zeros(2, dtype=np.int64)
        self.statistics: Index | None = None
        self._budget: int | None = None
        self._stored: list[dict[str, pa.RecordBatch]] = [{} for _ in range(sides)]
        self._fresh: list[list[pa.RecordBatch]] = [[] for _ in range(sides)]
        self._serial = 0
        self._changes = Changes()

    # ----------------------------------------------------------------------------------------------------------
    # What the driver calls.
    # ----------------------------------------------------------------------------------------------------------

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state of the last call; a sample needs no watermark, since nothing grows."""
        if not state:
            return
        head = _values(state[_HEAD])
        sides = self.spec.sides
        # The seed of the first run goes on, or the draws of the held rows would no longer be theirs.
        self.seed, self.arrivals, self._serial = (int(value) for value in head[:3])
        self.peak = head[3:5].copy()
        self._numbers, self.seen, self.widest, self.oversized = head[5:].reshape(4, sides).copy()
        self.statistics = _values(state[_STRATA if _STRATA in state else _QUEUES])
        live = state[_LIVE]
        owners, numbers = order_codes(live.column("side"), "int"), order_codes(live.column("number"), "int")
        for name in sorted((n for n in state if n.startswith("rows/")), key=_serial_of):
            side = int(name.split("/")[1])
            rows = state[name]
            kept = np.isin(numbers_of(rows), numbers[owners == side], assume_unique=True)
            self._stored[side][name] = rows.take(np.flatnonzero(kept))

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows.  A row with a NULL key matches nothing, so it asks for no place and counts for nothing."""
        self.counters["rows"] += rows.num_rows
        metadata = rows.schema.metadata or {}
        if BUDGET in metadata:
            self._budget = int(metadata[BUDGET])
        rows = rows.replace_schema_metadata(None)
        keys = rows.columns[self.spec.payload[side] :][: len(self.spec.keys[side])]
        if keys:
            good = usable(keys)
            if not good.all():
                rows = rows.take(np.flatnonzero(good))
        if rows.num_rows:
            self._fresh[side].append(rows)

    def end(self) -> None:
        """Nothing waits for the end: results leave as rows arrive."""

    def results(self) -> Iterator[pa.RecordBatch]:
        """Join what was pushed with what is held, and with itself in the order of arrival."""
        began = time.perf_counter_ns()
        call = Call(self)
        if call.order.size:
            while True:
                whole = call.run()
                if call.out.fill[0]:
                    batch = call.rows_out()
                    self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
                    yield batch
                    began = time.perf_counter_ns()
                if whole:
                    break
            self._finish(call)
        self._count_held(call)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        return self._changes

    def wake_at(self) -> int | None:
        """Never: nothing depends on time."""
        return None

    # ----------------------------------------------------------------------------------------------------------

    def budget_of(self, cell: int) -> int:
        """The memory of this cell, in the limit's unit."""
        if self.spec.memory is None:
            return UNLIMITED
        return self.spec.budget(cell) if self._budget is None else self._budget

    def tables(self) -> list[tuple[pa.RecordBatch | None, int, Index]]:
        """Of each input: held rows and then new ones, how many are held, and the places of the new ones."""
        found: list[tuple[pa.RecordBatch | None, int, Index]] = []
        for side in range(self.spec.sides):
            parts = [rows for rows in self._stored[side].values() if rows.num_rows]
            held = sum(part.num_rows for part in parts)
            places = np.empty(0, dtype=np.int64)
            if self._fresh[side]:
                new = concat(self._fresh[side])
                places = order_codes(new.column(new.num_columns - 1), "int")
                count = int(self._numbers[side])
                numbers = pa.array(np.arange(count, count + new.num_rows))
                names = [*new.schema.names[:-1], "number"]
                parts.append(pa.RecordBatch.from_arrays([*new.columns[:-1], numbers], names=names))
            found.append((concat(parts) if parts else None, held, places))
        return found

    def _finish(self, call: Call) -> None:
        """Keep what the compiled loops left behind, and find out what has to be stored."""
        if self.spec.policy == "exact" and self.spec.memory is not None and call.room.peak[1] > call.budget:
            raise DovetailError(
                f"policy='exact' needs more than its memory: a cell holds {call.room.peak[1]:,} "
                f"of {call.budget:,} {self.spec.memory.unit}",
                accepted="a limit that holds every row of every input, or memory=None",
                hint="policy='raj_hash' stays within any limit and says what it left out",
            )
        self.arrivals += call.order.size
        for side in range(self.spec.sides):
            self._numbers[side] += call.new_rows(side)
            self._store_rows(side, call)
        self._fresh = [[] for _ in range(self.spec.sides)]
        counts = [self._numbers, self.seen, self.widest, self.oversized]
        head = np.concatenate([[self.seed, self.arrivals, self._serial], self.peak, *counts])
        self._changes.stored[_HEAD] = _segment(head)
        self.statistics = call.statistics()
        self._changes.stored[_QUEUES if call.queues is not None else _STRATA] = _segment(self.statistics)
        live = [[numbers_of(rows) for rows in parts.values()] for parts in self._stored]
        numbers = [np.concatenate([np.empty(0, dtype=np.int64), *parts]) for parts in live]
        self._changes.stored[_LIVE] = pa.RecordBatch.from_arrays(
            [
                pa.array(np.repeat(np.arange(len(numbers)), [part.size for part in numbers]).astype(np.int8)),
                pa.array(np.concatenate(numbers)),
            ],
            names=["side", "number"],
        )

    def _store_rows(self, side: int, call: Call) -> None:
        table = call.tables[side][0]
        if table is None:
            return
        held = call.held_rows(side)
        moved = [np.flatnonzero(held[call.tables[side][1] :]) + call.tables[side][1]]
        begin = 0
        for name, rows in list(self._stored[side].items()):
            end = begin + rows.num_rows
            left = np.flatnonzero(held[begin:end])
            if left.size < rows.num_rows:
                self._stored[side][name] = rows.take(left)
            # The name carries how many rows the segment had.
            if 2 * left.size < int(name.rsplit("/", 1)[1]):
                moved.append(left + begin)
                del self._stored[side][name]
                self._changes.dropped.add(name)
            begin = end
        # Queues are taken up in the order of arrival, so a segment keeps it too.
        wanted = np.sort(np.concatenate(moved))
        if wanted.size:
            rows = table.take(wanted)
            name = f"rows/{side}/{self._serial}/{rows.num_rows}"
            self._serial += 1
            self._stored[side][name] = rows
            self._changes.stored[name] = rows

    def _count_held(self, call: Call) -> None:
        rows = [part for parts in self._stored for part in parts.values()]
        self.counters["held_rows"] = sum(part.num_rows for part in rows)
        self.counters["held_bytes"] = sum(
            int(row_bytes(part.columns).sum()) + SLOT_BYTES * part.num_rows for part in rows if part.num_rows
        )
        self.counters["peak_rows"] = int(self.peak[0])
        self.counters["oversized"] = int(call.room.oversized.sum() - call.oversized_before)


def _values(segment: pa.RecordBatch) -> Index:
    return order_codes(segment.column(0), "int")


def _segment(values: Index) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])


def _serial_of(name: str) -> int:
    return int(name.split("/")[2])

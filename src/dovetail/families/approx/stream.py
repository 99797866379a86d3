"""A cell of an approximate join: rows arrive, results leave at once, and memory never exceeds its limit.

Any prefix of the results is a valid answer for the rows that have arrived.  Rows are joined in the order of arrival,
and among simultaneous ones in the order of the inputs; every choice depends on that order and on the seed, never on how
rows were divided into calls.

State consists of these segments: ``head`` (counters), ``strata`` or ``queues`` (statistics by stratum or queue),
``live`` (which stored rows are still held), and the rows themselves.  Rows are stored when they enter memory and not
again; once less than half the rows of a segment are held, the rest of it moves to the newest one.
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
from dovetail.families.approx.kernel import CHUNK, Call, CellState, InputRows, row_numbers
from dovetail.families.approx.output import Found, ResultSample
from dovetail.families.approx.spec import SLOT_BYTES, ApproxSpec, equal_part
from dovetail.family import Changes

METRICS = (
    "rows", "oversized", "held_rows", "held_bytes", "peak_rows",
    "comparisons", "candidates", "results", "estimated", "kernel_us",
)  # fmt: skip
"""What a call counts, in the order in which it leaves the operator."""

BUDGET = b"dovetail.budget"
SHARE = b"dovetail.results"
"""Metadata of a segment: its cell's share of the memory, and of the results, where cells have unequal shares."""

_HEAD, _STRATA, _QUEUES, _LIVE = "head", "strata", "queues", "live"


class ApproxKernel:
    """The held rows of a cell, and the join of every new row with them."""

    def __init__(self, spec: ApproxSpec) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(METRICS, 0)
        self._state = CellState.empty(spec)
        self._numbers = np.zeros(spec.sides, dtype=np.int64)
        """Rows of each input that have arrived, by which they are numbered."""
        self._budget: int | None = None
        self._share: int | None = None
        self._ended = False
        self._stored: list[dict[str, pa.RecordBatch]] = [{} for _ in range(spec.sides)]
        self._arrived: list[list[pa.RecordBatch]] = [[] for _ in range(spec.sides)]
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
        # The seed of the first run stays in use, or the draws of the held rows would change.
        seed, arrivals, self._serial = (int(value) for value in head[:3])
        self._numbers, seen, row_cost, oversized = head[5:].reshape(4, self.spec.sides).copy()
        statistics = _values(state[_STRATA if _STRATA in state else _QUEUES])
        self._state = CellState(seed, arrivals, seen, row_cost, oversized, head[3:5].copy(), statistics)
        live = state[_LIVE]
        sides, numbers = order_codes(live.column("side"), "int"), order_codes(live.column("number"), "int")
        for name in sorted((n for n in state if n.startswith("rows/")), key=_serial_of):
            side = int(name.split("/")[1])
            rows = state[name]
            kept = np.isin(row_numbers(rows), numbers[sides == side], assume_unique=True)
            self._stored[side][name] = rows.take(np.flatnonzero(kept))

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows.  A row with a NULL key matches nothing, so it asks for no slot and counts for nothing."""
        self.counters["rows"] += rows.num_rows
        metadata = rows.schema.metadata or {}
        if BUDGET in metadata:
            self._budget = int(metadata[BUDGET])
        if SHARE in metadata:
            self._share = int(metadata[SHARE])
        rows = rows.replace_schema_metadata(None)
        keys = rows.columns[self.spec.payload[side] :][: len(self.spec.keys[side])]
        if keys:
            has_keys = usable(keys)
            if not has_keys.all():
                rows = rows.take(np.flatnonzero(has_keys))
        if rows.num_rows:
            self._arrived[side].append(rows)

    def end(self) -> None:
        """No rows follow: a cell that holds all of them knows that nothing is left out."""
        self._ended = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """Join the pushed rows with the held ones, and with each other in the order of arrival."""
        started = time.perf_counter_ns()
        call = self.call()
        if call.order.size:
            for batch in self._batches(call):
                self.counters["kernel_us"] += (time.perf_counter_ns() - started) // 1000
                yield batch
                started = time.perf_counter_ns()
            self._finish(call)
        self._count(call)
        self.counters["kernel_us"] += (time.perf_counter_ns() - started) // 1000

    def _batches(self, call: Call) -> Iterator[pa.RecordBatch]:
        """The results of a call, or a sample of them where there may not be more."""
        sample = None if self.spec.results is None else self._sample(call.cell)
        complete = False
        while not complete:
            complete = call.run()
            if not call.out.counts[0]:
                continue
            found = Found.of(call.out)
            if sample is None:
                self.counters["results"] += found.count
                yield call.batch(found, 0, 0)
            else:
                sample.add(found)
        if sample is not None:
            returned = min(sample.found, sample.limit)
            self.counters["results"] += returned
            for found in sample.results(CHUNK):
                yield call.batch(found, sample.found, returned)

    def _sample(self, cell: int) -> ResultSample:
        assert self.spec.results is not None
        limit = equal_part(self.spec.results, cell, self.spec.cells) if self._share is None else self._share
        return ResultSample(limit, self._state.seed, cell, self.spec.sides, self._state.arrivals)

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        return self._changes

    def wake_at(self) -> int | None:
        """Never: nothing depends on time."""
        return None

    # ----------------------------------------------------------------------------------------------------------

    def call(self) -> Call:
        """The compiled call that joins what was pushed."""
        inputs = [self._input_rows(side) for side in range(self.spec.sides)]
        return Call(self.spec, self._state, inputs, self._budget, last=self._ended)

    def _input_rows(self, side: int) -> InputRows:
        parts = [rows for rows in self._stored[side].values() if rows.num_rows]
        held = sum(part.num_rows for part in parts)
        arrivals = np.empty(0, dtype=np.int64)
        if self._arrived[side]:
            new = concat(self._arrived[side])
            arrivals = order_codes(new.column(new.num_columns - 1), "int")
            count = int(self._numbers[side])
            numbers = pa.array(np.arange(count, count + new.num_rows))
            names = [*new.schema.names[:-1], "number"]
            parts.append(pa.RecordBatch.from_arrays([*new.columns[:-1], numbers], names=names))
        return InputRows(concat(parts) if parts else None, held, arrivals, int(self._numbers[side]))

    def _finish(self, call: Call) -> None:
        """Keep what the compiled loops left behind, and find out what has to be stored."""
        if self.spec.policy == "exact" and self.spec.memory is not None and call.memory.peak[1] > call.budget:
            raise DovetailError(
                f"policy='exact' needs more than its memory: a cell holds {call.memory.peak[1]:,} "
                f"of {call.budget:,} {self.spec.memory.unit}",
                accepted="a limit that holds every row of every input, or memory=None",
                hint="policy='raj_hash' stays within any limit and says what it left out",
            )
        state = self._state
        state.arrivals += call.order.size
        for side, part in enumerate(call.inputs):
            self._numbers[side] += part.arrivals.size
            self._store_rows(side, part, call.held_rows(side))
        self._arrived = [[] for _ in range(self.spec.sides)]
        counts = [self._numbers, state.seen, state.row_cost, state.oversized]
        head = np.concatenate([[state.seed, state.arrivals, self._serial], state.peak, *counts])
        self._changes.stored[_HEAD] = _segment(head)
        state.statistics = call.statistics()
        self._changes.stored[_STRATA if call.in_strata else _QUEUES] = _segment(state.statistics)
        live = [[row_numbers(rows) for rows in parts.values()] for parts in self._stored]
        numbers = [np.concatenate([np.empty(0, dtype=np.int64), *parts]) for parts in live]
        self._changes.stored[_LIVE] = pa.RecordBatch.from_arrays(
            [
                pa.array(np.repeat(np.arange(len(numbers)), [part.size for part in numbers]).astype(np.int8)),
                pa.array(np.concatenate(numbers)),
            ],
            names=["side", "number"],
        )

    def _store_rows(self, side: int, part: InputRows, is_held: Index) -> None:
        if part.table is None:
            return
        moved = [np.flatnonzero(is_held[part.held :]) + part.held]
        begin = 0
        for name, rows in list(self._stored[side].items()):
            end = begin + rows.num_rows
            remaining = np.flatnonzero(is_held[begin:end])
            if remaining.size < rows.num_rows:
                self._stored[side][name] = rows.take(remaining)
            # The name carries how many rows the segment had.
            if 2 * remaining.size < int(name.rsplit("/", 1)[1]):
                moved.append(remaining + begin)
                del self._stored[side][name]
                self._changes.dropped.add(name)
            begin = end
        # Queues are restored in the order of arrival, so a segment keeps it too.
        wanted = np.sort(np.concatenate(moved))
        if wanted.size:
            rows = part.table.take(wanted)
            name = f"rows/{side}/{self._serial}/{rows.num_rows}"
            self._serial += 1
            self._stored[side][name] = rows
            self._changes.stored[name] = rows

    def _count(self, call: Call) -> None:
        segments = [rows for parts in self._stored for rows in parts.values()]
        self.counters["held_rows"] = sum(rows.num_rows for rows in segments)
        self.counters["held_bytes"] = sum(
            int(row_bytes(rows.columns).sum()) + SLOT_BYTES * rows.num_rows for rows in segments if rows.num_rows
        )
        self.counters["peak_rows"] = int(self._state.peak[0])
        self.counters["oversized"] = call.oversized
        self.counters["comparisons"] = call.comparisons
        self.counters["candidates"] = call.results
        self.counters["estimated"] = call.estimated


def _values(segment: pa.RecordBatch) -> Index:
    return order_codes(segment.column(0), "int")


def _segment(values: Index) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])


def _serial_of(name: str) -> int:
    return int(name.split("/")[2])

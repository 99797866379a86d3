"""Streams of which only Spark can evaluate a condition, where rows without a match count: one kernel after another.

    kernel -> candidates, and the end of every row that counts -> Spark's verdict on each -> decision -> results

Spark evaluates a condition between two operators, too late for the state of the first.  So the first remembers rows and
gives, beside candidates, each row that counts once more when no row that may still come can match it: its end.  The
second remembers which of these rows had a candidate that Spark found good, until their end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.layout import CELL, MAX_TIME_HEADER, RECORD, ROW, VERDICT, columns_of, input_payload
from dovetail.columns.segments import concat, nulls
from dovetail.families.window.encode import Index
from dovetail.families.window.judged import IS_MATCH
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.state import StoredSegment
from dovetail.families.window.stream import MatchBatch, NewRows, WindowJoinKernel
from dovetail.family import Changes

NO_ROW = -1
"""The number of a row that can have no candidate."""
DECISIONS = ("judged", "results", "awaited_rows")
"""The counters of the second kernel: candidates and ends, results, and rows whose end it waits for."""


def undecided_columns(spec: WindowJoinSpec) -> list[tuple[str, pa.DataType]]:
    """What the first kernel gives: the payload of every input, what it is, its cell, and the rows in it that count."""
    columns = [
        (name, kind)
        for side in spec.sides
        for name, kind in zip(columns_of(input_payload(side), spec.payload[side]), spec.types[side], strict=True)
    ]
    columns += [(RECORD, pa.int32()), (CELL, pa.int64())]
    return columns + [(name, pa.int64()) for name in columns_of(ROW, len(spec.flagged))]


@dataclass
class UndecidedKernel(WindowJoinKernel):
    """The first kernel of one cell: candidates, and ends of the rows of inputs where a missing match counts."""

    cell: int = 0
    """The number of the cell, under which the second kernel keeps what it knows."""

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; those that count are numbered in the order of their arrival."""
        if side in self.spec.flagged and MAX_TIME_HEADER not in (rows.schema.metadata or {}):
            first = self._state.next_row
            self._state.next_row += rows.num_rows
            numbers = pa.array(np.arange(first, self._state.next_row), pa.int64())
            rows = rows.append_column(ROW, numbers)
        super().push(side, rows)

    def _emit(self, batch: MatchBatch, new: list[NewRows | None]) -> pa.RecordBatch | None:
        inputs, matches, _ = batch
        payload = {side: inputs[side].take(range(self.spec.payload[side]), rows) for side, rows in matches.items()}
        numbers = {}
        for side in self.spec.flagged:
            last = inputs[side].segments[0].rows.num_columns - 1
            numbers[side] = _numbers(inputs[side].take([last], matches[side]))
        return self._laid_out(payload, IS_MATCH, numbers, next(iter(matches.values())).size)

    def _unmatched(self, new: list[NewRows | None], stored: list[list[StoredSegment]]) -> Iterator[pa.RecordBatch]:
        """Rows that can no longer get a match, whether they have had candidates or not."""
        before, after = self._reported_before(), self._expiry()
        for side in self.spec.flagged:
            ends = []
            if side in self.spec.reported:
                ends += [(rows, False) for rows in self._null_key_rows[side]]
            for segment in stored[side]:
                if segment.last >= before[side] and segment.first < after[side]:
                    indexed = self._state.indexed(segment)
                    times = indexed.codes.times
                    due = (times >= before[side]) & (times < after[side])
                    ends.append((indexed.rows.filter(pa.array(due)), True))
            arrived = new[side]
            if arrived is not None:
                due = arrived.segment.codes.times < after[side]
                ends.append((arrived.segment.rows.filter(pa.array(due)), True))
            for rows, usable in ends:
                if rows.num_rows:
                    numbers = _numbers(rows) if usable else np.full(rows.num_rows, NO_ROW)
                    payload = {side: rows.select(range(self.spec.payload[side]))}
                    yield self._laid_out(payload, side, {side: numbers}, rows.num_rows)

    def _laid_out(
        self, payload: dict[int, pa.RecordBatch], kind: int, numbers: dict[int, Index], count: int
    ) -> pa.RecordBatch:
        spec = self.spec
        columns: list[pa.Array[Any]] = []
        for side in spec.sides:
            columns += payload[side].columns if side in payload else [nulls(count, of) for of in spec.types[side]]
        columns += [pa.array(np.full(count, kind), pa.int32()), pa.array(np.full(count, self.cell), pa.int64())]
        columns += [pa.array(numbers.get(side, np.full(count, NO_ROW)), pa.int64()) for side in spec.flagged]
        return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in undecided_columns(spec)])


@dataclass
class DecisionKernel:
    """The second kernel of one cell; see :class:`dovetail.family.StreamKernel`."""

    spec: WindowJoinSpec
    counters: dict[str, int] = field(default_factory=dict)

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up which rows have matched."""
        self.counters = dict.fromkeys(DECISIONS, 0)
        self._stored = {side: _name(side) in state for side in self.spec.flagged}
        self._matched = {
            side: state[_name(side)].column(0).to_numpy() if self._stored[side] else np.empty(0, np.int64)
            for side in self.spec.flagged
        }
        self._changed: set[int] = set()
        self._arrived: list[pa.RecordBatch] = []

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in candidates and ends, with their verdicts."""
        self._arrived.append(rows.replace_schema_metadata(None))

    def end(self) -> None:
        """Nothing more comes, which is no news: ends are told one by one."""

    def results(self) -> Iterator[pa.RecordBatch]:
        """Candidates that are good, and ends of rows that have had none."""
        if not self._arrived:
            return
        rows = concat(self._arrived)
        self.counters["judged"] += rows.num_rows
        kind = rows.column(RECORD).to_numpy()
        good = rows.column(VERDICT).fill_null(False).to_numpy(zero_copy_only=False)
        pairs = np.flatnonzero((kind == IS_MATCH) & good)
        numbers = {side: rows.column(f"{ROW}{at}").to_numpy() for at, side in enumerate(self.spec.flagged)}
        # All candidates of a micro-batch before its ends: a row may end in the call that brings its last candidate.
        firsts = self._remember(numbers, pairs)
        joins = self.spec.kind
        if joins.pairs:
            yield from self._out(rows, pairs, self.spec.sides)
        elif not joins.unmatched:
            yield from self._out(rows, firsts, (0,))
        for side in self.spec.flagged:
            ends = np.flatnonzero(kind == side)
            if not ends.size:
                continue
            ended = numbers[side][ends]
            if side in self.spec.preserved:
                yield from self._out(rows, ends[~np.isin(ended, self._matched[side])], (side,))
            kept = self._matched[side][~np.isin(self._matched[side], ended)]
            if kept.size < self._matched[side].size:
                self._matched[side] = kept
                self._changed.add(side)

    def changes(self) -> Changes:
        """What to store and what to forget."""
        changes = Changes()
        for side, matched in self._matched.items():
            self.counters["awaited_rows"] += matched.size
            if side in self._changed and matched.size:
                changes.stored[_name(side)] = pa.RecordBatch.from_arrays([pa.array(matched)], names=["row"])
            elif side in self._changed and self._stored[side]:
                changes.dropped.add(_name(side))
        return changes

    def wake_at(self) -> None:
        """Ends come from the first kernel, so nothing has to wake this one."""
        return

    def _remember(self, numbers: dict[int, Index], pairs: Index) -> Index:
        """Remember rows that have matched; the candidates that are the first good ones of a row of the first input."""
        firsts: Index = np.empty(0, np.int64)
        for side in self.spec.flagged:
            found, at = np.unique(numbers[side][pairs], return_index=True)
            fresh = ~np.isin(found, self._matched[side])
            if side == 0:
                firsts = pairs[at[fresh]]
            if fresh.any():
                self._matched[side] = np.concatenate([self._matched[side], found[fresh]])
                self._changed.add(side)
        return firsts

    def _out(self, rows: pa.RecordBatch, chosen: Index, present: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Results: the payload of the inputs that are present, NULL for the others."""
        spec = self.spec
        if not chosen.size:
            return
        self.counters["results"] += chosen.size
        columns: list[pa.Array[Any]] = []
        for side in spec.emitted:
            names = columns_of(input_payload(side), spec.payload[side])
            if side in present:
                columns += rows.select(names).take(chosen).columns
            else:
                columns += [nulls(chosen.size, rows.column(name).type) for name in names]
        if spec.outer:
            columns += [pa.array(np.full(chosen.size, side in present)) for side in spec.emitted]
        yield pa.RecordBatch.from_arrays(columns, names=spec.output_names())


def _numbers(rows: pa.RecordBatch) -> Index:
    """The numbers of rows, which are their last column."""
    found: Index = rows.column(rows.num_columns - 1).to_numpy()
    return found


def _name(side: int) -> str:
    return f"matched/{side}"

"""Theta joins in tumbling windows, as rows arrive.

Rows join within one window: the k-th `rows` rows of each input, or the same stretch of `every` microseconds.  A match
leaves as soon as both its rows are there, so a window that never fills, or a cut into micro-batches, changes nothing in
the result.  A window is forgotten once no row can enter it any more: all inputs have passed it, or the watermark has.
Only then is it known which rows stay unmatched.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask, order_codes
from dovetail.columns.encode import Keys, usable
from dovetail.columns.held import since_of
from dovetail.columns.layout import SINCE
from dovetail.columns.partition import parts_by_cell
from dovetail.columns.segments import concat, nulls
from dovetail.conditions.comparison import Key
from dovetail.families.theta.kernel import Counters, Index
from dovetail.families.theta.key_pairs import find_matched, find_pairs
from dovetail.families.theta.router import windows_of
from dovetail.families.theta.spec import BOXES, POINTS, WindowSpec, WindowStep
from dovetail.family import Changes

METRICS = ("rows", "late", "evicted", "held_rows", "held_bytes", "comparisons", "candidates", "results", "kernel_us")
"""What a call counts, in the order in which it leaves the operator."""

_HEAD = "head"


class WindowKernel:
    """The rows of every open window, and the join among them."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(METRICS, 0)
        sides = len(spec.payload)
        self._held: dict[int, list[list[pa.RecordBatch]]] = defaultdict(lambda: [[] for _ in range(sides)])
        self._fresh: dict[int, list[list[pa.RecordBatch]]] = defaultdict(lambda: [[] for _ in range(sides)])
        self._names: dict[int, list[str]] = defaultdict(list)
        self._seen = [0] * sides
        self._serial = 0
        self._timeless: list[tuple[int, pa.RecordBatch]] = []
        self._watermark: int | None = None
        self._over = False
        self._since: int | None = None
        self._changes = Changes()
        self._work = Counters()

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Restore the state of the last call."""
        self._watermark = watermark
        for name in sorted(state, key=_serial_of):
            rows = state[name]
            if name == _HEAD:
                self._seen = order_codes(rows.column("seen"), "int").tolist()
                continue
            if name == SINCE:
                self._since = since_of(state)
                if watermark is not None and self._since is not None and watermark >= self._since:
                    self._changes.dropped.add(SINCE)
                continue
            window, side, serial = (int(part) for part in name.split("/"))
            self._serial = serial + 1
            self._held[window][side].append(rows)
            self._names[window].append(name)

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Sort new rows into their windows; rows of a closed window are late, and dropped."""
        self.counters["rows"] += rows.num_rows
        if self.spec.every is not None:
            rows = self._in_time(side, rows)
        if rows.num_rows == 0:
            return
        windows = self._windows(side, rows)
        if side not in self.spec.preserved:
            # A row with a NULL key counts towards the window, and has nothing else to do here.
            kept = np.flatnonzero(usable(rows.columns[self.spec.payload[side] :][: len(self.spec.keys[side])]))
            rows, windows = rows.take(kept), windows[kept]
            if kept.size == 0:
                return
        for window, part in parts_by_cell(rows, windows):
            self._fresh[window][side].append(part)

    def _in_time(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that an open window takes.  A row without a time belongs to no window, so it matches nothing."""
        assert self.spec.every is not None
        times = rows.column(rows.num_columns - 1)
        if times.null_count:
            self._timeless.append((side, rows.filter(times.is_null())))
            rows = rows.filter(times.is_valid())
        if self._watermark is None or rows.num_rows == 0:
            return rows
        ends = (self._windows(side, rows) + 1) * self.spec.every
        late = ends <= self._watermark
        self.counters["late"] += int(late.sum())
        return rows.filter(pa.array(~late))

    def _windows(self, side: int, rows: pa.RecordBatch) -> Index:
        """The window of each row."""
        if self.spec.rows is not None:
            numbers = self._seen[side] + np.arange(rows.num_rows)
            self._seen[side] += rows.num_rows
            return numbers // self.spec.rows
        assert self.spec.every is not None
        return windows_of(rows.column(rows.num_columns - 1), self.spec.every)

    def end(self) -> None:
        """Promise that no more rows come: every window closes."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """New matches, and the last word on windows that close."""
        for batch in self._results():
            self.counters["results"] += batch.num_rows
            yield batch

    def _results(self) -> Iterator[pa.RecordBatch]:
        began = time.perf_counter_ns()
        for side, rows in self._timeless:
            if side in self.spec.preserved:
                tables = [rows if at == side else None for at in range(len(self.spec.payload))]
                yield self._rows(tables, {side: np.arange(rows.num_rows)}, rows.num_rows)
        for window in sorted(self._fresh):
            yield from self._join(window)
            self._keep(window)
        for window in sorted(self._held):
            if self._is_complete(window):
                yield from self._close(window)
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        self.counters["comparisons"] += self._work.comparisons
        for sides in self._held.values():
            for batches in sides:
                self.counters["held_rows"] += sum(batch.num_rows for batch in batches)
                self.counters["held_bytes"] += sum(batch.nbytes for batch in batches)

    def changes(self) -> Changes:
        """Segments to store and names to forget; a segment that came and went within the call is neither."""
        if self.spec.rows is not None:
            self._changes.stored[_HEAD] = pa.RecordBatch.from_pydict({"seen": self._seen})
        return self._changes

    def wake_at(self) -> int | None:
        """The end of the first open window of time."""
        if self.spec.every is None or not self._held:
            return None
        return (min(self._held) + 1) * self.spec.every

    # ----------------------------------------------------------------------------------------------------------

    def _keep(self, window: int) -> None:
        for side, batches in enumerate(self._fresh[window]):
            if batches:
                rows = concat(batches)
                name = f"{window}/{side}/{self._serial}"
                self._serial += 1
                self._held[window][side].append(rows)
                self._names[window].append(name)
                self._changes.stored[name] = rows
        del self._fresh[window]

    def _is_complete(self, window: int) -> bool:
        if self._over:
            return True
        if self.spec.rows is not None:
            return all(seen >= (window + 1) * self.spec.rows for seen in self._seen)
        assert self.spec.every is not None
        return self._watermark is not None and (window + 1) * self.spec.every <= self._watermark

    def _is_partial(self, window: int) -> bool:
        """Whether a window had begun before the time from which on all rows are there."""
        return self._since is not None and self.spec.every is not None and window * self.spec.every < self._since

    def adopt(self) -> None:
        """Store what was pushed as it is, where another definition of the join has held it: nothing is joined."""
        for window in sorted(self._fresh):
            self._keep(window)

    def _join(self, window: int) -> Iterator[pa.RecordBatch]:
        """Matches that need at least one new row: each new part with what was there and the new parts before it."""
        if not self.spec.kind.pairs:
            return
        sides = range(len(self.spec.payload))
        old = [self._held[window][side] for side in sides]
        new = self._fresh[window]
        for turn in sides:
            if not new[turn]:
                continue
            tables = []
            for side in sides:
                parts = new[side] if side == turn else old[side] + (new[side] if side < turn else [])
                tables.append(concat(parts) if parts else None)
            if all(table is not None for table in tables):
                yield from self._combinations([table for table in tables if table is not None])

    def _combinations(self, tables: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = self.spec.first
        chosen: dict[int, Index] = {first: np.arange(tables[first].num_rows)}
        for number, step in enumerate(self.spec.steps):
            last = number == len(self.spec.steps) - 1
            gathered: list[dict[int, Index]] = []
            for part in self._extend(tables, chosen, step):
                if last:
                    count = next(iter(part.values())).size
                    self.counters["candidates"] += count
                    yield self._rows(tables, part, count)
                else:
                    gathered.append(part)
            if not last:
                if not gathered:
                    return
                chosen = {side: np.concatenate([part[side] for part in gathered]) for side in gathered[0]}

    def _extend(
        self, tables: list[pa.RecordBatch], chosen: dict[int, Index], step: WindowStep
    ) -> Iterator[dict[int, Index]]:
        left_rows = dict(chosen)
        right_rows = {step.right: np.arange(tables[step.right].num_rows)}
        points, boxes = (right_rows, left_rows) if step.step.swapped else (left_rows, right_rows)
        point_keys = self._keys(tables, points, step.step.point_keys)
        box_keys = self._keys(tables, boxes, step.step.box_keys)
        partitioning = self.spec.options.partitioning
        for i, j in find_pairs(step.step, partitioning, point_keys, box_keys, self._work, routed=False):
            yield {**{s: rows[i] for s, rows in points.items()}, **{s: rows[j] for s, rows in boxes.items()}}

    def _keys(self, tables: list[pa.RecordBatch], rows: dict[int, Index], wanted: tuple[Key, ...]) -> Keys:
        keys = []
        for key in wanted:
            side = self.spec.aliases.index(key.alias)
            column = tables[side].column(self.spec.payload[side] + self.spec.keys[side].index(key))
            keys.append(column.take(rows[side]))
        return keys

    def _rows(self, tables: Sequence[pa.RecordBatch | None], chosen: dict[int, Index], count: int) -> pa.RecordBatch:
        """Output rows: the payload of every input, NULL for inputs that `chosen` lacks."""
        columns: list[pa.Array[Any]] = []
        names = self.spec.output_names()
        for side in self.spec.emitted:
            table = tables[side]
            if side in chosen and table is not None:
                part = table.select(range(self.spec.payload[side])).take(chosen[side])
                columns += part.columns
            else:
                columns += [nulls(count, kind) for kind in self.spec.types[side]]
        if self.spec.kind.outer:
            columns += [pa.array(np.full(count, side in chosen)) for side in self.spec.emitted]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _close(self, window: int) -> Iterator[pa.RecordBatch]:
        tables = [concat(batches) if batches else None for batches in self._held[window]]
        kind = self.spec.kind
        for side in self.spec.preserved if kind.pairs or kind.unmatched else (0,):
            table = tables[side]
            if table is None:
                continue
            has_match = self._matched(tables, side)
            wanted = np.flatnonzero(~has_match if kind.unmatched else has_match)
            # Of a window that has lost rows, nobody knows which of the others match nothing.
            if wanted.size and not (kind.unmatched and self._is_partial(window)):
                yield self._rows(tables, {side: wanted}, wanted.size)
        self.counters["evicted"] += sum(table.num_rows for table in tables if table is not None)
        for name in self._names.pop(window, []):
            if self._changes.stored.pop(name, None) is None:
                self._changes.dropped.add(name)
        del self._held[window]

    def _matched(self, tables: list[pa.RecordBatch | None], side: int) -> Mask:
        table, other = tables[side], tables[1 - side]
        assert table is not None
        if other is None:
            return np.zeros(table.num_rows, dtype=np.bool_)
        step = self.spec.steps[0].step
        both = [table, other] if side == 0 else [other, table]
        rows = [np.arange(both[at].num_rows) for at in (0, 1)]
        points_side = 1 if step.swapped else 0
        point_keys = self._keys(both, {points_side: rows[points_side]}, step.point_keys)
        box_keys = self._keys(both, {1 - points_side: rows[1 - points_side]}, step.box_keys)
        return find_matched(
            step, self.spec.options.partitioning, point_keys, box_keys, self._work,
            routed=False, side=POINTS if points_side == side else BOXES,
        )  # fmt: skip


def _serial_of(name: str) -> int:
    """Segments are restored in the order in which they were made."""
    return -1 if name in (_HEAD, SINCE) else int(name.rsplit("/", 1)[1])

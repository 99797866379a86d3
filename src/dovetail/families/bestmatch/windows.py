"""The window of one stream: the rows that are held, as stored segments and as one batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.columns.segments import concat
from dovetail.families.bestmatch.compiled import Index
from dovetail.family import Changes

_OWN, _NUMBER = "own", "number"


class Window:
    """Rows of one side.  After their own columns they carry whether they belong to this cell, and perhaps a number."""

    def __init__(self, side: int, *, numbered: bool) -> None:
        self._side = side
        self._numbered = numbered
        self._held: list[tuple[str, pa.RecordBatch]] = []
        self._new: list[pa.RecordBatch] = []
        self._all: pa.RecordBatch | None = None
        self._serial = 0
        self._stored: dict[str, pa.RecordBatch] = {}
        self._dropped: set[str] = set()
        self.count = 0
        """Rows that have arrived so far, by which they are numbered."""
        self.held = 0
        """Rows from earlier calls: the first of `rows`."""

    def restore(self, state: Mapping[str, pa.RecordBatch], count: int) -> None:
        """Take up the stored segments."""
        names = [name for name in state if name.startswith(f"{self._side}/")]
        for name in sorted(names, key=lambda name: int(name.split("/")[1])):
            self._serial = int(name.split("/")[1]) + 1
            self._held.append((name, state[name]))
        self.held = sum(rows.num_rows for _, rows in self._held)
        self.count = count

    def add(self, rows: pa.RecordBatch, *, own: bool) -> None:
        """Take in new rows."""
        rows = rows.append_column(_OWN, pa.array(np.full(rows.num_rows, own)))
        if self._numbered:
            rows = rows.append_column(_NUMBER, pa.array(np.arange(self.count, self.count + rows.num_rows)))
        self.count += rows.num_rows
        self._new.append(rows)
        self._all = None

    @property
    def rows(self) -> pa.RecordBatch | None:
        """All rows, those of earlier calls first; None if there are none."""
        if self._all is None:
            parts = [rows for _, rows in self._held] + self._new
            self._all = concat(parts) if parts else None
        return self._all

    def own(self) -> Mask:
        """Which rows belong to this cell; the others are copies of rows of another one."""
        assert self.rows is not None
        return np.asarray(self.rows.column(_OWN).to_numpy(zero_copy_only=False), dtype=np.bool_)

    def numbers(self) -> Index:
        """The numbers of the rows."""
        assert self.rows is not None
        return np.asarray(self.rows.column(_NUMBER).to_numpy(), dtype=np.int64)

    def evict(self, needed: Mask) -> int:
        """Drop rows: segments without a needed row are deleted, those that are mostly not needed are rewritten."""
        before = needed.size
        begin, kept = 0, []
        for name, rows in self._held:
            mask = needed[begin : begin + rows.num_rows]
            begin += rows.num_rows
            if not mask.any():
                self._dropped.add(name)
                continue
            if mask.sum() * 2 < mask.size:
                rows = rows.filter(pa.array(mask))
                self._stored[name] = rows
            kept.append((name, rows))
        mask = needed[begin:]
        if mask.any():
            rows = concat(self._new).filter(pa.array(mask))
            name = f"{self._side}/{self._serial}"
            kept.append((name, rows))
            self._stored[name] = rows
        self._held, self._new, self._all = kept, [], None
        return before - sum(rows.num_rows for _, rows in kept)

    def changes(self, changes: Changes) -> None:
        """Add what this call changed."""
        changes.stored.update(self._stored)
        changes.dropped |= self._dropped

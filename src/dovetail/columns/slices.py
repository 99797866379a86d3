"""Rows on disk in slices of time, for a join that can take them in that order and forget what lies behind.

Rows come in any order.  They wait on disk together with their times; once all are there, a sample of the times says
where to cut, and a second pass puts every row into its slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import memory
from dovetail.columns.partition import parts_by_cell
from dovetail.columns.pieces import Spool

Index = npt.NDArray[np.int64]

_SEEN = 1024
"""Times of a segment that stand for all of them."""
_TIME = "moment"


class TimeSlices:
    """Rows of several inputs, with a time each.

    Examples
    --------
    >>> slices = TimeSlices()
    >>> slices.add(0, pa.RecordBatch.from_pydict({"x": [1, 2, 3]}), np.array([30, 10, 20]))
    >>> slices.add(1, pa.RecordBatch.from_pydict({"x": [4]}), np.array([25]))
    >>> for parts, end in slices.in_order(most=400):
    ...     print([(side, rows.column(0).to_pylist()) for side, rows in parts], end)
    [(0, [2])] 20
    [(0, [1, 3]), (1, [4])] None
    """

    def __init__(self) -> None:
        self._arrived = Spool()
        self._ordered = Spool()
        self._sides: list[int] = []
        self._times: list[Index] = []
        self._costs: list[npt.NDArray[np.float64]] = []

    @property
    def size(self) -> int:
        """The bytes on disk."""
        return self._arrived.size + self._ordered.size

    def add(self, side: int, rows: pa.RecordBatch, times: Index) -> None:
        """Take in rows of an input."""
        if not rows.num_rows:
            return
        some = np.sort(times)[np.linspace(0, times.size - 1, min(times.size, _SEEN)).astype(np.int64)]
        self._sides.append(side)
        self._times.append(some)
        self._costs.append(np.full(some.size, memory.cost(rows) / some.size))
        self._arrived.add(rows.append_column(_TIME, pa.array(times, pa.int64())))

    def in_order(self, most: int) -> Iterator[tuple[list[tuple[int, pa.RecordBatch]], int | None]]:
        """The rows of each slice by input, and the time at which the next one begins: None for the last.

        A slice costs about `most`, unless more rows have one and the same time.
        """
        cuts = self._cuts(most)
        parts: list[list[tuple[int, int]]] = [[] for _ in range(cuts.size + 1)]
        written = 0
        for side, rows in zip(self._sides, self._arrived, strict=True):
            times = rows.column(rows.num_columns - 1).to_numpy()
            own = rows.select(range(rows.num_columns - 1))
            for number, part in parts_by_cell(own, np.searchsorted(cuts, times, side="right"), cuts.size + 1):
                self._ordered.add(part)
                parts[number].append((side, written))
                written += 1
        self._arrived.close()
        for places, end in zip(parts, chain(cuts.tolist(), [None]), strict=True):
            yield [(side, self._ordered.batch(at)) for side, at in sorted(places)], end
        self._ordered.close()

    def _cuts(self, most: int) -> Index:
        """Times that begin a slice, from the second on."""
        if not self._times:
            return np.empty(0, dtype=np.int64)
        times, costs = np.concatenate(self._times), np.concatenate(self._costs)
        order = np.argsort(times, kind="stable")
        total = np.cumsum(costs[order])
        count = int(np.ceil(total[-1] / max(most, 1)))
        at = np.searchsorted(total, total[-1] * np.arange(1, count) / count)
        cuts = np.unique(times[order][np.minimum(at, times.size - 1)])
        return np.asarray(cuts[cuts > times.min()], dtype=np.int64)

    def close(self) -> None:
        """Give the disk back."""
        self._arrived.close()
        self._ordered.close()

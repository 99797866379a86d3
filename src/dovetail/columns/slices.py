"""Rows on disk in slices of one order, such as that of time: what lies far apart is never in memory together.

Rows come in any order and wait on disk.  Once all are there, a sample says where to cut, and a second pass puts every
row into its slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import memory
from dovetail.columns.codes import HIGHEST, LOWEST, Codes
from dovetail.columns.partition import parts_by_cell
from dovetail.columns.pieces import Spool

_SEEN = 1024
"""Rows of a segment that stand for all of them."""


class Spans(NamedTuple):
    """Where rows lie in an order, and the range of it that each of them concerns."""

    at: Codes
    low: Codes
    high: Codes

    @classmethod
    def of_points(cls, codes: Codes) -> Spans:
        """Rows that concern the place where they lie, and no other."""
        return cls(codes, codes, codes)


@dataclass
class Slice:
    """Rows that lie together: where they are on disk, what they concern, and where the next slice begins."""

    end: int | None
    """None for the last slice."""
    low: int = HIGHEST
    high: int = LOWEST
    rows: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)
    """The input and the number of each batch."""

    def concerns(self, other: Slice) -> bool:
        """Whether a row of one may concern a place that a row of the other does."""
        return self.low <= other.high and other.low <= self.high


class Slices:
    """Rows of several inputs, which `spans` puts into an order.

    Examples
    --------
    >>> slices = Slices(lambda side, rows: Spans.of_points(rows.column("t").to_numpy()))
    >>> slices.add(0, pa.RecordBatch.from_pydict({"t": [30, 10, 20]}))
    >>> slices.add(1, pa.RecordBatch.from_pydict({"t": [25]}))
    >>> for one in slices.ordered(most=200):
    ...     print([(side, rows.column(0).to_pylist()) for side, rows in slices.batches(one)], one.end)
    [(0, [10])] 20
    [(0, [30, 20]), (1, [25])] None
    """

    def __init__(self, spans: Callable[[int, pa.RecordBatch], Spans]) -> None:
        self._spans = spans
        self._arrived = Spool()
        self._ordered = Spool()
        self._sides: list[int] = []
        self._sampled: list[tuple[Codes, npt.NDArray[np.float64]]] = []

    @property
    def size(self) -> int:
        """The bytes that have been written."""
        return self._arrived.size + self._ordered.size

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in rows of an input."""
        if not rows.num_rows:
            return
        codes = np.sort(self._spans(side, rows).at)
        some = codes[np.linspace(0, codes.size - 1, min(codes.size, _SEEN)).astype(np.int64)]
        self._sampled.append((some, np.full(some.size, memory.cost(rows) / some.size)))
        self._sides.append(side)
        self._arrived.add(rows)

    def ordered(self, most: int) -> list[Slice]:
        """All slices in their order.  Each costs about `most`, unless more rows than that lie at one place."""
        cuts = self._cuts(most)
        slices = [Slice(end) for end in [*cuts.tolist(), None]]
        written = 0
        for side, rows in zip(self._sides, self._arrived, strict=True):
            spans = self._spans(side, rows)
            numbers = np.searchsorted(cuts, spans.at, side="right")
            for number in np.unique(numbers).tolist():
                mine, one = numbers == number, slices[number]
                one.low, one.high = min(one.low, int(spans.low[mine].min())), max(one.high, int(spans.high[mine].max()))
            for number, part in parts_by_cell(rows, numbers, cuts.size + 1):
                self._ordered.add(part)
                slices[number].rows += part.num_rows
                slices[number].places.append((side, written))
                written += 1
        self._arrived.close()
        return [one for one in slices if one.places or one.end is None]

    def batches(self, one: Slice) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a slice, by input."""
        for side, number in sorted(one.places):
            yield side, self._ordered.batch(number)

    def _cuts(self, most: int) -> Codes:
        """Where slices begin, from the second on."""
        if not self._sampled:
            return np.empty(0, dtype=np.int64)
        codes = np.concatenate([some for some, _ in self._sampled])
        order = np.argsort(codes, kind="stable")
        total = np.cumsum(np.concatenate([costs for _, costs in self._sampled])[order])
        count = int(np.ceil(total[-1] / max(most, 1)))
        at = np.searchsorted(total, total[-1] * np.arange(1, count) / count)
        cuts = np.unique(codes[order][np.minimum(at, codes.size - 1)])
        return np.asarray(cuts[cuts > codes.min()], dtype=np.int64)

    def close(self) -> None:
        """Give the disk back."""
        self._arrived.close()
        self._ordered.close()

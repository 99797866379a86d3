"""The results of a call as numbers, before they become rows; and a uniform sample of them, where there are too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.families.approx.compiled import Grid, Index, Results, draws

_CALL_BITS = 34
"""Results of one call have different numbers as long as there are fewer than 2**34 of them."""


@dataclass(frozen=True)
class Found:
    """Results; the last axis of every array counts them, and arrays that nobody asked for are empty."""

    rows: Grid
    weight: npt.NDArray[np.float64]
    arrival: Index
    stratum: Index
    mixed: Index
    seen: Grid
    kept: Grid
    arrived: Grid

    @classmethod
    def of(cls, out: Results) -> Found:
        """A copy of what a run left behind."""
        count = int(out.counts[0])
        parts: tuple[Any, ...] = (
            out.rows, out.weight, out.arrival, out.stratum, out.mixed, out.seen, out.kept, out.arrived
        )  # fmt: skip
        return cls(*[part[..., :count].copy() for part in parts])

    @property
    def count(self) -> int:
        """How many results there are."""
        return int(self.arrival.size)

    def take(self, which: Index) -> Found:
        """Some of the results."""
        parts = [getattr(self, field.name) for field in fields(self)]
        return Found(*[part[..., which] if part.shape[-1] else part for part in parts])

    def joined(self, other: Found) -> Found:
        """These results and then the others."""
        names = [field.name for field in fields(self)]
        return Found(*[np.concatenate([getattr(self, name), getattr(other, name)], axis=-1) for name in names])


class ResultSample:
    """So many of the results of a call at most, drawn with equal chances: those with the least draws.

    A draw depends on the seed, the cell, the call and the number of the result, and on nothing else.
    """

    def __init__(self, limit: int, seed: int, cell: int, stream: int, call: int) -> None:
        """`stream` tells these draws from those of the inputs; `call` is the number of arrivals before it."""
        self.limit = limit
        self.found = 0
        self._key = (seed, cell, stream)
        self._first = (call << _CALL_BITS) & (2**62 - 1)
        self._draws = np.empty(0, dtype=np.int64)
        self._kept: Found | None = None

    def add(self, found: Found) -> None:
        """Take in further results."""
        numbers = self._first + np.arange(self.found, self.found + found.count)
        drawn = draws(*self._key, numbers)
        self.found += found.count
        if self._kept is not None and self._draws.size == self.limit:
            # Few of the later ones can still enter.
            entering = np.flatnonzero(drawn < self._draws.max())
            found, drawn = found.take(entering), drawn[entering]
        if self._kept is not None:
            found, drawn = self._kept.joined(found), np.concatenate([self._draws, drawn])
        if drawn.size > self.limit:
            least = np.sort(np.argpartition(drawn, self.limit - 1)[: self.limit])
            found, drawn = found.take(least), drawn[least]
        self._kept, self._draws = found, drawn

    def results(self, size: int) -> Iterator[Found]:
        """What was drawn, in the order in which it was found, in parts of `size`; each stands for more than before."""
        if self._kept is None:
            return
        count = self._kept.count
        for begin in range(0, count, size):
            part = self._kept.take(np.arange(begin, min(begin + size, count)))
            part.weight[:] *= self.found / count
            yield part

"""The streams of the experiments, generated from a seed.  Times are in microseconds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.datasets import store_sales
from dovetail.families.window.paper.inputs import Side

SECOND = 1_000_000
HOUR = 3600 * SECOND


@dataclass(frozen=True)
class Streams:
    """Some streams, each in the order of time."""

    sides: tuple[Side, ...]

    def in_turn(self, rows: int) -> np.ndarray:
        """One row of each stream, again and again, as section 3.1 reads them; a stream that has ended is passed by."""
        number = np.concatenate([np.full(len(side.times), at) for at, side in enumerate(self.sides)])
        place = np.concatenate([np.arange(len(side.times)) for side in self.sides])
        return number[np.lexsort((number, place))][:rows].astype(np.int32)

    def by_time(self, rows: int) -> np.ndarray:
        """As rows arrive where time-stamps are times of arrival."""
        number = np.concatenate([np.full(len(side.times), at) for at, side in enumerate(self.sides)])
        times = np.concatenate([side.times for side in self.sides])
        return number[np.argsort(times, kind="stable")][:rows].astype(np.int32)


def exponential(rates: Sequence[float], rows: int, values: int, *, seed: int = 7) -> Streams:
    """Section 4.2's synthetic streams: exponential gaps between rows, few distinct values; `rates` in rows a second."""
    random = np.random.default_rng(seed)
    return Streams(tuple(_side(random, random.exponential(SECOND / rate, rows), values) for rate in rates))


def switching(rate: float, slow: float, every: int, rows: int, values: int, *, seed: int = 7) -> Streams:
    """Four streams of one rate, of which the last changes to a slow one and back after every `every` of its rows."""
    random = np.random.default_rng(seed)
    gaps = [random.exponential(SECOND / rate, rows) for _ in range(4)]
    gaps[3][np.arange(rows) // every % 2 == 0] *= rate / slow
    return Streams(tuple(_side(random, gap, values) for gap in gaps))


def _side(random: np.random.Generator, gaps: np.ndarray, values: int) -> Side:
    return Side(np.cumsum(gaps).astype(np.int64), random.integers(0, values, len(gaps)))


def stores(count: int, days: int) -> Streams:
    """A stand-in for the store data: sales of 5000 items an hour and store, from 7:30 to 20:00."""
    tables = store_sales(6, days)[:count]
    return Streams(tuple(Side(t["ts"].to_numpy().astype(np.int64), t["item"].to_numpy()) for t in tables))


def one_window(n: int, length: float) -> np.ndarray:
    return windows(n, dict.fromkeys(itertools.combinations(range(n), 2), (-length, length)))


def windows(n: int, edges: dict[tuple[int, int], tuple[float, float]], *, close: bool = False) -> np.ndarray:
    """The windows of pairs; closed by shortest paths where pairs are missing, or on demand."""
    far = np.full((n, n), np.inf)
    np.fill_diagonal(far, 0)
    for (i, j), (low, high) in edges.items():
        far[i, j], far[j, i] = high, -low
    if close or np.isinf(far).any():
        for k in range(n):
            far = np.minimum(far, far[:, k, None] + far[None, k, :])
    return np.stack([-far.T, far], axis=2).astype(np.int64)


def path(lengths: Sequence[float]) -> np.ndarray:
    """Both ways along a path, each step within its length of time: two alternatives."""
    n = len(lengths) + 1
    there = windows(n, {(i, i + 1): (0, length) for i, length in enumerate(lengths)})
    return np.stack([there, np.swapaxes(there, 0, 1)])

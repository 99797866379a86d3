"""The streams of the paper's section 5, generated: join values of two streams, in the order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
GRID = (18, 36)


@dataclass(frozen=True)
class Task:
    """Two streams, made from a seed; `rows` is the size of both together, as in the paper's Table 1."""

    title: str
    rows: int
    streams: Callable[[int, int], tuple[Values, Values]]


def skewed(rows: int, seed: int) -> tuple[Values, Values]:
    """Zipf with exponent 1 over the values 1 to 50."""
    random = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, 51)
    both = random.choice(np.arange(1, 51), (2, rows // 2), p=chance / chance.sum())
    return both[0], both[1]


def extreme(rows: int, seed: int) -> tuple[Values, Values]:
    """Figure 10: the first row of each stream has the value of all rows of the other stream but one."""
    one, two = np.full(rows // 2, 2), np.full(rows // 2, 1)
    one[0], two[0] = 1, 2
    return one, two


def softer(rows: int, seed: int) -> tuple[Values, Values]:
    """The variant: the rare value of each stream comes again with a chance of one half."""
    random = np.random.default_rng(seed)
    one, two = extreme(rows, seed)
    again = random.random((2, rows // 2)) < 0.5
    again[:, 0] = False
    one[again[0]], two[again[1]] = 1, 2
    return one, two


def weather(rows: int, seed: int) -> tuple[Values, Values]:
    """Cloud reports of two Septembers on an 18 x 36 grid.

    Stations stand close together in few cells: shares of cells are log-normal.  A report comes from the same cells in
    both years, more or less.  Reports arrive day by day, and the network of the first days is not that of the month:
    every day has its own shares, and the first ones differ most.
    """
    random = np.random.default_rng(seed)
    cells = GRID[0] * GRID[1]
    base = random.lognormal(0, 1.6, cells)
    streams = []
    for _ in range(2):
        year = base * random.lognormal(0, 0.3, cells)
        days = np.array_split(np.empty(rows // 2, dtype=np.int64), 30)
        for day, part in enumerate(days):
            share = year * random.lognormal(0, 1.2 * np.exp(-day / 3) + 0.1, cells)
            part[:] = random.choice(cells, part.size, p=share / share.sum())
        streams.append(np.concatenate(days))
    return streams[0], streams[1]


SKEWED = Task("zipf over 1 to 50", 100_000, skewed)
EXTREME = Task("the extreme scenario", 100_000, extreme)
SOFTER = Task("the softer variant", 100_000, softer)
WEATHER = Task("weather-like, 18 x 36 grid", 2_074_948, weather)

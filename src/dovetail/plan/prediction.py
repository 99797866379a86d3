"""Estimates of what a join will give and cost, from samples of its inputs: arithmetic and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]

SAMPLES = (2_000, 50_000)
"""Rows of an input in a sample, on average: the first that gives enough results counts."""
ENOUGH = 400
"""So many results among sampled rows are enough."""
FEW = 10
"""Below so many results among the sampled rows only an upper bound is told."""
_QUANTILE = 1.96
"""Of the normal distribution, for intervals of 95 %."""

# Microseconds of a core.  On two cores they give 0.7 to 0.9 of the times in benchmarks/shapes.md, after five runs, and
# 1.6 of that of the band join in theta.md, after forty: how far the JVM has compiled Spark decides as much as the join.
READ_ROW, READ_BYTE = 0.50, 0.014
JOIN_ROW = 0.20
GIVE_ROW, GIVE_BYTE = 0.20, 0.006


@dataclass(frozen=True)
class Input:
    """An input: its rows, and the bytes of one."""

    alias: str
    rows: int
    width: float


@dataclass(frozen=True)
class Interval:
    """A number of rows that is not known: what is expected, and between which bounds it lies."""

    expected: float
    low: float
    high: float
    reason: str
    """Where the figures come from, in words."""

    @classmethod
    def known(cls, rows: float, reason: str) -> Interval:
        """A number that follows from the inputs alone."""
        return cls(rows, rows, rows, reason)

    def text(self) -> str:
        """In words.

        Examples
        --------
        >>> Interval(1_130_000, 1_050_000, 1_210_000, "").text()
        '1.13M rows (1.05M to 1.21M)'
        >>> Interval.known(500, "").text()
        '500 rows'
        """
        if self.low == self.high:
            return f"{short(self.expected)} rows"
        if self.low <= 0 or self.expected <= 0:
            return f"at most {short(self.high)} rows"
        return f"{short(self.expected)} rows ({short(self.low)} to {short(self.high)})"


def scaled(found: Sequence[Rows], shares: Sequence[float]) -> Interval:
    """How many results the whole inputs have, from those among samples: for each input the row of each result.

    Results that share a row were drawn together with it, which widens the interval: the variance is that of the
    Horvitz-Thompson estimator, for rows that were drawn independently.

    Examples
    --------
    >>> rows = np.arange(400)
    >>> one = scaled([rows, rows], [0.1, 0.1])
    >>> round(one.expected), round(one.low), round(one.high)
    (40000, 36100, 44119)
    >>> scaled([rows, rows], [1.0, 1.0]).text()
    '400 rows'
    """
    count, scale = found[0].size, float(np.prod(shares))
    sampled = f"{count:,} among the sampled rows"
    if all(share == 1 for share in shares):
        return Interval.known(count, "all rows were joined")
    high = _at_most(count) / scale
    if count < FEW:
        return Interval(count / scale, 0.0, high, sampled)
    spread = 0.0
    for size in range(1, len(found) + 1):
        for together in combinations(range(len(found)), size):
            apart = float(np.prod([1 - shares[at] for at in together]))
            if apart:
                spread -= (-1) ** size * apart * _pairs_that_share([found[at] for at in together])
    spread = _QUANTILE * np.sqrt(max(spread, 0.0))
    return Interval(count / scale, max(0.0, count - spread) / scale, max((count + spread) / scale, high), sampled)


def _pairs_that_share(rows: Sequence[Rows]) -> float:
    """Ordered pairs of results, each with itself included, that have the same rows of some inputs."""
    _, counts = np.unique(np.stack(rows), axis=1, return_counts=True)
    return float(np.square(counts.astype(np.float64)).sum())


def _at_most(count: int) -> float:
    """The largest mean with which so few results come in one of forty cases, by Byar's approximation."""
    more = count + 1
    return float(more * (1 - 1 / (9 * more) + _QUANTILE / (3 * np.sqrt(more))) ** 3)


@dataclass(frozen=True)
class Prediction:
    """What a join will give and cost."""

    inputs: tuple[Input, ...]
    results: Interval | None
    """None where nothing can be said before the join has run."""
    width: float
    """The bytes of a result."""
    cores: int | None
    seconds: float
    """What it took to find out."""

    def work(self) -> dict[str, float]:
        """Seconds of a core for each part of the join."""
        rows = sum(one.rows for one in self.inputs)
        size = sum(one.rows * one.width for one in self.inputs)
        given = self.results.expected if self.results is not None else 0.0
        parts = {
            "read and send": READ_ROW * rows + READ_BYTE * size,
            "join": JOIN_ROW * rows,
            "rows out": given * (GIVE_ROW + GIVE_BYTE * self.width),
        }
        return {name: microseconds / 1e6 for name, microseconds in parts.items()}

    def lines(self) -> list[str]:
        """As lines of a plan."""
        counted = ", ".join(f"{one.alias} {short(one.rows)} rows of {short(one.width)} bytes" for one in self.inputs)
        lines = [f"inputs      {counted}"]
        if self.results is None:
            lines.append("results     cannot be told from a sample")
        else:
            size = self.results.expected * self.width
            lines.append(f"results     {self.results.text()}, {short(size, ' ')}B; {self.results.reason}")
        parts = self.work()
        total = sum(parts.values())
        each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
        spread = f", or {total / self.cores:.1f} s on {self.cores}" if self.cores is not None else ""
        lines.append(f"seconds     {total:.1f} of a core ({each}){spread}, as on the machine of the benchmarks")
        lines.append(f"from        counts and joined samples, in {self.seconds:.1f} s")
        return lines

    def counters(self) -> dict[str, Any]:
        """What :func:`dovetail.metrics` shows beside the counters."""
        counts: dict[str, Any] = {"predicted_core_seconds": round(sum(self.work().values()), 3)}
        if self.results is not None:
            counts |= {
                "predicted_results": round(self.results.expected),
                "predicted_low": round(self.results.low),
                "predicted_high": round(self.results.high),
            }
        return counts


def compared(results: int, predicted: Mapping[str, Any]) -> str:
    """How many rows came, beside how many were predicted.

    Examples
    --------
    >>> compared(1100, {"predicted_results": 1000, "predicted_low": 900, "predicted_high": 1200})
    'results     1,100; predicted 1,000 (900 to 1,200)'
    """
    low, high = predicted["predicted_low"], predicted["predicted_high"]
    around = f" ({low:,} to {high:,})" if low != high else ""
    return f"results     {results:,}; predicted {predicted['predicted_results']:,}{around}"


def short(number: float, space: str = "") -> str:
    """A number in three digits, with `space` before its unit.

    Examples
    --------
    >>> [short(number) for number in (0, 7, 999, 1234, 56_789, 1_130_000, 2.5e9)]
    ['0', '7', '999', '1.23k', '56.8k', '1.13M', '2.5G']
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{float(f'{number / unit:.3g}'):g}{space}{name}"
    return f"{number:.3g}{space}"

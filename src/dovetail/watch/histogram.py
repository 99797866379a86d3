"""Histograms of latencies that can be added up: counts in buckets, each a fifth wider than the one before it.

A record has no latency of any row.  It has the earliest, the mean and the latest event time of a micro-batch, and when
it was committed.  Its rows are taken to be spread evenly on each side of the mean, with as many on either side as
make it the mean.  The quantiles of many micro-batches depend little on that, as long as a micro-batch is short beside
them; a bucket adds an error of at most a tenth.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

Histogram = dict[int, float]
"""Rows by the number of their bucket."""

WIDER = 1.2
_LOG = math.log(WIDER)
LAST = 120
"""The bucket of latencies beyond 36 days; the first has those below a millisecond, and of rows from the future."""
_CELL = struct.Struct("<Bf")


def bucket(milliseconds: float) -> int:
    """The bucket of a latency.

    Examples
    --------
    >>> bucket(-5), bucket(1.0), bucket(1000.0), bucket(1e18)
    (0, 1, 38, 120)
    """
    return 0 if milliseconds < 1 else min(LAST, 1 + int(math.log(milliseconds) / _LOG))


def edge(number: int) -> float:
    """Where a bucket begins, in milliseconds."""
    return 0.0 if number == 0 else WIDER ** (number - 1)


def add_spread(histogram: Histogram, rows: float, low: float, mean: float, high: float) -> None:
    """Add the rows of a micro-batch whose latencies lie between two, in milliseconds, with a given mean.

    Examples
    --------
    >>> histogram = {}
    >>> add_spread(histogram, 100, 1000, 1500, 2000)
    >>> round(sum(histogram.values())), round(quantile(histogram, 0.5), -2)
    (100, 1500.0)
    """
    low, high = min(low, high), max(low, high)
    mean = min(max(mean, low), high)
    if bucket(low) == bucket(high):
        histogram[bucket(low)] = histogram.get(bucket(low), 0.0) + rows
        return
    below = (high - mean) / (high - low)
    for part, begin, end in ((below, low, mean), (1 - below, mean, high)):
        _add_even(histogram, rows * part, begin, end)


def _add_even(histogram: Histogram, rows: float, begin: float, end: float) -> None:
    if rows <= 0:
        return
    first, last = bucket(begin), bucket(end)
    if first == last or end <= begin:
        histogram[first] = histogram.get(first, 0.0) + rows
        return
    for number in range(first, last + 1):
        left = begin if number == first else edge(number)
        right = end if number == last else edge(number + 1)
        histogram[number] = histogram.get(number, 0.0) + rows * (right - left) / (end - begin)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of several."""
    total: Histogram = {}
    for one in histograms:
        for number, rows in one.items():
            total[number] = total.get(number, 0.0) + rows
    return total


def quantile(histogram: Histogram, part: float) -> float | None:
    """The latency in milliseconds that `part` of the rows stay below; None where there are no rows.

    Examples
    --------
    >>> quantile({}, 0.5) is None, quantile({0: 10.0}, 0.5)
    (True, 0.5)
    """
    total = sum(histogram.values())
    if total <= 0:
        return None
    wanted, passed = part * total, 0.0
    for number in sorted(histogram):
        rows = histogram[number]
        if rows > 0 and passed + rows >= wanted:
            left, right = edge(number), edge(number + 1)
            return left + (right - left) * (wanted - passed) / rows
        passed += rows
    return edge(LAST)


def packed(histogram: Histogram) -> bytes | None:
    """A histogram as few bytes."""
    return b"".join(_CELL.pack(number, histogram[number]) for number in sorted(histogram)) or None


def unpacked(data: bytes | None) -> Histogram:
    """The histogram of some bytes.

    Examples
    --------
    >>> unpacked(packed({3: 2.0, 70: 1.5})), unpacked(None)
    ({3: 2.0, 70: 1.5}, {})
    """
    return dict(_CELL.iter_unpack(data)) if data else {}

"""How much of the exact join came out: an estimate from the shredded rows, with an interval.

Harvesting misses what lies in slices it does not look at.  A shredded row looks everywhere, so it tells how many of its
matches harvesting would have missed.  A row is shredded with the chance `sample`, and a match of it is found with the
chance `part`; each match found that harvesting would have missed therefore stands for 1 / (sample * part) of them
(Horvitz and Thompson).  What came out is known exactly, so only the missed part is estimated:

    recall = results / (results + missed)

Matches of one row stand or fall together.  The variance is that of a sum over rows, and the interval is Wilson's for a
count of rare events, with the weight of an event taken from the sample: it does not reach below zero, and it is not empty
where the sample happened to meet nothing that was missed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dovetail.families.shedding.model import Flags, Floats
from dovetail.families.window.encode import Index

CRITICAL = 1.959963984540054
"""The normal quantile of a 95 % interval."""


@dataclass(frozen=True)
class Missed:
    """An estimate of the matches missed.  Sums of cells, directions and micro-batches add up; `event` takes the largest."""

    total: float = 0.0
    variance: float = 0.0
    event: float = 0.0
    """What one row that misses matches may stand for."""

    def __add__(self, other: Missed) -> Missed:
        return Missed(self.total + other.total, self.variance + other.variance, max(self.event, other.event))


def missed_matches(
    drivers: Index, harvested: Flags, weights: Floats, rows: int, sample: float, part: float, *, whole: bool
) -> Missed:
    """What one direction missed in one micro-batch.

    Parameters
    ----------
    drivers
        For every match found by shredding, the row that drove it.
    harvested
        Whether harvesting would have found it, too.
    weights
        What else a match stands for: 1, or more where rows in memory are a sample themselves.
    rows
        Rows that were shredded.
    sample, part
        The chance of a row to be shredded, and of a match of it to be found.
    whole
        Whether harvesting looks everywhere: then it misses nothing.

    Examples
    --------
    One row in ten looked everywhere.  It found three matches, one of which harvesting would have missed:

    >>> found = missed_matches(np.array([4, 4, 7]), np.array([True, False, True]), np.ones(3), 5, 0.1, 1.0, whole=False)
    >>> round(found.total, 9)
    9.0
    """
    if rows == 0:
        return Missed()
    if whole and part >= 1.0 and not (weights > 1.0).any():
        return Missed()
    _, groups = np.unique(drivers, return_inverse=True)
    outside = np.bincount(groups, weights=np.where(harvested, 0.0, weights)) / part
    thinned = np.bincount(groups, weights=weights) / part - np.bincount(groups)
    # Harvested rows miss what lies outside; shredded rows miss what was thinned out.
    total = float(((1 / sample - 1) * outside).sum() + thinned.sum())
    spread = math.sqrt(1 - sample) / sample * outside + math.sqrt(max(0.0, 1 - part)) / part * np.bincount(groups)
    typical = float(outside[outside > 0].mean()) if (outside > 0).any() else 1.0 / part
    return Missed(total, float((spread**2).sum()), (1 / sample - 1) * typical)


def recall_interval(results: float, missed: Missed) -> tuple[float, float, float]:
    """The recall, and the ends of its 95 % interval.

    Examples
    --------
    >>> recall_interval(100.0, Missed())
    (1.0, 1.0, 1.0)
    >>> [round(x, 3) for x in recall_interval(900.0, Missed(100.0, 400.0, 4.0))]
    [0.9, 0.876, 0.918]
    """
    low, high = missed_interval(missed)
    if results <= 0:
        return (1.0, 0.0, 1.0) if high > 0 else (1.0, 1.0, 1.0)
    return tuple(results / (results + x) for x in (missed.total, high, low))  # type: ignore[return-value]


def missed_interval(missed: Missed) -> tuple[float, float]:
    """The ends of the 95 % interval of the matches missed."""
    ratio = missed.variance / missed.total if missed.total > 0 else 0.0
    event = max(ratio, missed.event)
    if event <= 0:
        return missed.total, missed.total
    count = missed.total / event
    middle, half = count + CRITICAL**2 / 2, CRITICAL * math.sqrt(count + CRITICAL**2 / 4)
    return max(0.0, event * (middle - half)), event * (middle + half)

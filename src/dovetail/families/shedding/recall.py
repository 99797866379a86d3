"""How much of the exact join came out: an estimate from the shredded rows, with an interval.

Harvesting misses what lies in slices it does not look at.  A shredded row looks everywhere, so it tells how many of its
matches harvesting would have missed.  A row is shredded with the chance `sample`, and a match of it is found with the
chance `part`; each match found that harvesting would have missed therefore stands for 1 / (sample * part) of them
(Horvitz and Thompson).  What came out is known exactly, so only the missed part is estimated:

    recall = results / (results + missed)

Matches of one row stand or fall together.  The variance is that of a sum over rows, and the interval is Wilson's for
a count of rare events, with the weight of an event taken from the sample: it does not reach below zero, and it is
not empty where the sample happened to meet nothing that was missed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.families.shedding.optimizer.model import Flags, Floats
from dovetail.families.window.encode import Index

CRITICAL = 1.959963984540054
"""The normal quantile of a 95 % interval."""


@dataclass(frozen=True)
class Missed:
    """An estimate of the matches missed.  Sums of cells, directions and micro-batches add up; `event` takes the
    largest.
    """

    total: float = 0.0
    variance: float = 0.0
    event: float = 0.0
    """What one row that misses matches may stand for."""

    def __add__(self, other: Missed) -> Missed:
        return Missed(self.total + other.total, self.variance + other.variance, max(self.event, other.event))


@dataclass(frozen=True)
class Sample:
    """The matches that shredding found."""

    drivers: Index
    """The row that drove each."""
    harvested: Flags
    """Whether harvesting would have found it, too."""
    weights: Floats
    """What else it stands for: 1, or more where a row of it stays in memory for others."""
    sources: Index
    """A number of that row, -1 without one."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Index, Flags, Floats, Index]]) -> Sample:
        """Put parts together."""
        kinds = (np.int64, np.bool_, np.float64, np.int64)
        return cls(*(np.concatenate([np.empty(0, kind), *(p[at] for p in parts)]) for at, kind in enumerate(kinds)))


def missed_matches(found: Sample, rows: int, sample: float, part: float, *, everywhere: bool) -> Missed:
    """What one direction missed in one micro-batch.

    Parameters
    ----------
    found
        What shredding found.
    rows
        Rows that were shredded.
    sample, part
        The chance of a row to be shredded, and of a match of it to be found.
    everywhere
        Whether harvesting looks everywhere: then it misses nothing that is held.

    Examples
    --------
    One row in ten looked everywhere.  It found three matches, one of which harvesting would have missed:

    >>> flags, none = np.array([True, False, True]), np.full(3, -1)
    >>> found = missed_matches(Sample(np.array([4, 4, 7]), flags, np.ones(3), none), 5, 0.1, 1.0, everywhere=False)
    >>> round(found.total, 9)
    9.0
    """
    if everywhere and part >= 1.0 and not (found.weights > 1.0).any():
        return Missed()
    if rows == 0:
        # Nobody looked: nothing is known to be missed, and nothing is known not to be.
        return Missed(event=(1 / sample - 1) / part)
    _, groups = np.unique(found.drivers, return_inverse=True)
    counts = np.bincount(groups)
    outside = np.bincount(groups, weights=np.where(found.harvested, 0.0, found.weights)) / part
    thinned = np.bincount(groups, weights=found.weights) / part - counts
    # Harvested rows miss what lies outside; shredded rows miss what was thinned out.
    total = float(((1 / sample - 1) * outside).sum() + thinned.sum())
    spread = math.sqrt(1 - sample) / sample * outside + math.sqrt(max(0.0, 1 - part)) / part * counts
    met = outside[outside > 0]
    # A few rows say little about how uneven the others are: what they tell is taken for less than it is.
    few = 1 + 3 / max(met.size, 1)
    variance = few * float((spread**2).sum()) + _shared(found, sample * part)
    typical = float((met**2).sum() / met.sum()) if met.size else 1.0 / part
    return Missed(total, variance, (1 / sample - 1) * typical)


def _shared(found: Sample, chance: float) -> float:
    """The variance that matches have in common because a row that stays for others is in them."""
    behind = found.sources >= 0
    if not behind.any():
        return 0.0
    _, groups = np.unique(found.sources[behind], return_inverse=True)
    carried = np.bincount(groups, weights=found.weights[behind]) / chance
    return float((carried**2).sum())


def judged_matches(weights: Floats, chance: Floats, rows: Sequence[Index]) -> tuple[float, Missed]:
    """Results that came out and those that were missed, where both are estimates from the same sample.

    Parameters
    ----------
    weights
        What each result of the sample stands for.
    chance
        The chance of each to come out of the join.
    rows
        For each result the sampled rows that it is made of: those of one row stand or fall together.

    Examples
    --------
    Four results that stand for ten each.  Harvesting looks at three of them:

    >>> found, missed = judged_matches(np.full(4, 10.0), np.array([1.0, 1, 1, 0]), [np.arange(4)])
    >>> found, missed.total
    (30.0, 10.0)
    """
    lost = weights * (1 - chance)
    found, missed = float((weights * chance).sum()), float(lost.sum())
    if missed <= 0:
        return found, Missed()
    # Only their ratio counts: a sample that holds too many results holds too many of both kinds.
    apart = lost - weights * missed / (found + missed)
    variance, largest = 0.0, 0.0
    for numbers in rows:
        _, groups = np.unique(numbers, return_inverse=True)
        variance += float((np.bincount(groups, weights=apart) ** 2).sum())
        largest = max(largest, float((np.bincount(groups, weights=lost) ** 2).sum()) / missed)
    few = 1 + 3 / weights.size
    return found, Missed(missed, few * variance, largest)


def dropped_matches(matches: Mapping[int, Index], keep: Floats) -> Missed:
    """What dropping rows at random missed, where these matches are left and `keep` is the part of each input kept.

    A match is left with the product of these chances.  Matches that share a row stand or fall with it.

    Examples
    --------
    >>> found = dropped_matches({0: np.array([1, 1]), 1: np.array([5, 6])}, np.array([0.5, 1.0]))
    >>> found.total, found.variance
    (2.0, 8.0)
    """
    chance = float(keep.prod())
    count = next(iter(matches.values())).size
    if chance >= 1.0:
        return Missed()
    shared = 0.0
    for side, rows in matches.items():
        _, times = np.unique(rows, return_counts=True)
        shared += float(1 - keep[side]) * float((times.astype(np.float64) ** 2).sum())
    return Missed(count * (1 / chance - 1), shared / chance**2, 1 / chance)


def recall_interval(results: float, missed: Missed) -> tuple[float, float, float]:
    """The recall, and the ends of its 95 % interval.

    Examples
    --------
    >>> recall_interval(100.0, Missed())
    (1.0, 1.0, 1.0)
    >>> [round(x, 3) for x in recall_interval(900.0, Missed(100.0, 400.0, 4.0))]
    [0.9, 0.859, 0.93]
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

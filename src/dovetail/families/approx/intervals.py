"""From estimated totals and covariances to figures: what a cell adds up, and the interval that the sums give.

A variance that was itself estimated from few rows is uncertain, and the interval has to allow for that: it takes the
quantile of Student's t.  Its degrees of freedom come from how much each held row contributes to the variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from dovetail.families.approx.covariances import Floats, Index
from dovetail.families.approx.estimate import Sampled, changes, moments

SUMS = (
    "total", "number", "tt", "tn", "nn",
    "s20", "s11", "s02", "s40", "s31", "s22", "s13", "s04",
    "rows", "certain", "uncertain", "unrepresented",
)  # fmt: skip
"""What a cell finds out for a measure, all of which add up over cells: the total of the values, the number of rows and
their covariances; sums of powers of what held rows contribute to the two; how many results have a value, how many of
them are certain, stand for others, or have rows beside them that nothing stands for."""

ROUNDING = 1e-12
"""Even an exact figure is a sum of floats: no interval is narrower than this fraction of it."""
CANCELLED = 1e-14
"""A variance below this fraction of the squared total is what rounding left of a difference."""
FEWEST_RESULTS = 10
FEWEST_DEGREES = 7.0
"""An interval needs at least so many results that stand for others, and so many degrees of freedom."""

_POWERS = ((2, 0), (1, 1), (0, 2), (4, 0), (3, 1), (2, 2), (1, 3), (0, 4))
"""The powers of the two contributions in ``s20`` and so on."""


@dataclass(frozen=True)
class Figures:
    """Estimates with their standard errors and intervals, by group; NaN where there is none."""

    estimate: Floats
    error: Floats
    low: Floats
    high: Floats


def cell_sums(values: Floats, sampled: Sampled) -> list[dict[str, float]]:
    """The `SUMS` of each measure: two lines of `values` each, its values and then where it has one."""
    totals, covariances = moments(values, sampled)
    deviations, weights = _contributions(values * sampled.weight, sampled)
    found = []
    for v in range(0, len(values), 2):
        n = v + 1
        has_value = values[n] != 0
        sums = [totals[v], totals[n], covariances[v, v], covariances[v, n], covariances[n, n]]
        sums += [(weights * deviations[v] ** i * deviations[n] ** j).sum() for i, j in _POWERS]
        flags = (np.ones(has_value.size, dtype=np.bool_), sampled.certain, sampled.uncertain, sampled.unrepresented)
        sums += [(has_value & flag).sum() for flag in flags]
        found.append({name: float(number) for name, number in zip(SUMS, sums, strict=True)})
    return found


def _contributions(weighted: Floats, sampled: Sampled) -> tuple[Floats, Floats]:
    """By how much each held row moves the totals, and how many such rows there are."""
    parts, weights = [np.empty((len(weighted), 0))], [np.empty(0)]
    for side in range(sampled.number.shape[1]):
        rows = np.flatnonzero(sampled.kept[:, side] < sampled.seen[:, side])
        if rows.size:
            part, weight = _of_side(weighted[:, rows], sampled, rows, side)
            parts.append(part)
            weights.append(weight)
    for call in np.unique(sampled.call[sampled.returned < sampled.found]):
        # The results of a call deviate from the mean of those that it returned, also from those that are not here.
        rows = np.flatnonzero(sampled.call == call)
        found, returned = sampled.found[rows[0]], sampled.returned[rows[0]]
        scaled = weighted[:, rows] * np.sqrt(1 - returned / found)
        mean = scaled.sum(axis=1, keepdims=True) / returned
        parts += [scaled - mean, -mean]
        weights += [np.ones(rows.size), np.array([returned - rows.size], dtype=np.float64)]
    return np.concatenate(parts, axis=1), np.concatenate(weights)


def _of_side(weighted: Floats, sampled: Sampled, rows: Index, side: int) -> tuple[Floats, Floats]:
    """Deviations of held rows from the mean of all that were held with them, added up while they are known to be held.

    A row that is held without a result deviates by the mean.  How many such rows a stratum has is known, who they are
    is not: they count as so many equal ones.
    """
    stratum, number = sampled.stratum[rows], sampled.number[rows, side]
    kept, seen, arrived = sampled.kept[rows, side], sampled.seen[rows, side], sampled.arrived[rows, side]
    scaled = weighted * np.sqrt(1 - kept / seen)
    # The mean of each moment, added up over the moments of each stratum.
    by_time = np.lexsort((sampled.at[rows], stratum))
    starts = np.flatnonzero(changes([stratum, sampled.at[rows]], by_time))
    moment = by_time[starts]
    means = np.add.reduceat(scaled[:, by_time], starts, axis=1) / kept[moment]
    running = np.concatenate([np.zeros((len(weighted), 1)), np.cumsum(means, axis=1)], axis=1)
    of_result = np.empty(rows.size, dtype=np.int64)
    of_result[by_time] = np.cumsum(changes([stratum, sampled.at[rows]], by_time)) - 1
    # Each row from its arrival to its last result.
    by_row = np.lexsort((of_result, number, stratum))
    begins = np.flatnonzero(changes([stratum, number], by_row))
    totals = np.add.reduceat(scaled[:, by_row], begins, axis=1)
    last = of_result[by_row[np.append(begins[1:], by_row.size) - 1]]
    row = by_row[begins]
    strata, of_row = np.unique(stratum[row], return_inverse=True)
    first = _first_moments(strata, of_row, number[row], stratum[moment], arrived[moment])
    held = totals - (running[:, last + 1] - running[:, first])
    # What is left of the means belongs to rows without a result, and to the time after the last result of the others.
    _, of_moment = np.unique(stratum[moment], return_inverse=True)
    rows_of = np.bincount(of_row, minlength=strata.size)
    average = np.bincount(of_moment, kept[moment]) / np.bincount(of_moment)
    absent = np.maximum(average - rows_of, 0.0)
    others = -np.stack([np.bincount(of_row, line, minlength=strata.size) for line in held]) / (rows_of + absent)
    held = held + others[:, of_row]
    # Where the held rows of a stratum look alike though its rows do not, one more of them might change the picture.
    unseen = np.stack([np.bincount(of_row, line, minlength=strata.size) for line in totals]) / (rows_of + absent)
    spread = np.stack([np.bincount(of_row, line**2, minlength=strata.size) for line in held[1::2]])
    mixed = np.bincount(np.searchsorted(strata, stratum), sampled.mixed[rows], minlength=strata.size) > 0
    alike = mixed & (spread + absent * others[1::2] ** 2 < unseen[1::2] ** 2)
    unseen = np.where(np.repeat(alike, 2, axis=0), unseen, 0.0)
    weights = np.concatenate([np.ones(row.size), absent, np.ones(strata.size)])
    return np.concatenate([held, others, unseen], axis=1), weights


def _first_moments(strata: Index, of_row: Index, number: Index, stratum: Index, arrived: Index) -> Index:
    """For each row the first moment of its stratum at which it had arrived."""
    begins = np.searchsorted(stratum, strata)
    span = int(max(number.max(initial=0), arrived.max(initial=0))) + 2
    keys = np.searchsorted(strata, stratum) * span + arrived
    return np.maximum(np.searchsorted(keys, of_row * span + number, side="right"), begins[of_row])


def figures(
    kind: Literal["count", "sum", "avg"], sums: Mapping[str, Floats], confidence: float, *, rows: bool = False
) -> Figures:
    """A count, a sum or an average of each group, from the `SUMS` of all cells; `rows` says that it counts all rows."""
    total, number = sums["total"], sums["number"]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(number != 0, total / number, np.nan) if kind == "avg" else np.zeros(total.shape)
        second = sums["s20"] - 2 * ratio * sums["s11"] + ratio**2 * sums["s02"]
        fourth = (
            sums["s40"] - 4 * ratio * sums["s31"] + 6 * ratio**2 * sums["s22"] - 4 * ratio**3 * sums["s13"]
            + ratio**4 * sums["s04"]
        )  # fmt: skip
        variance = sums["tt"] - 2 * ratio * sums["tn"] + ratio**2 * sums["nn"]
        variance = np.where(np.abs(variance) > CANCELLED * total**2, variance, 0.0)
        second = np.where(second > CANCELLED * total**2, second, 0.0)
        # What cancels out in the variance does not make it any surer.
        contributors = np.where(second > 0, np.minimum(variance, second) ** 2 / fourth, np.inf)
        # If v is the square of a normal number of variance s, E[v^2] is 3 s^2.  So E[(Sum v)^2] = (Sum s)^2 + 2 Sum s^2
        # and E[Sum v^2] = 3 Sum s^2, and the degrees of freedom, (Sum s)^2 / Sum s^2, are this:
        degrees = 3 * contributors - 2
        estimate = ratio if kind == "avg" else total
        error = np.sqrt(variance) / number if kind == "avg" else np.sqrt(variance)
    known = (sums["rows"] > 0) & (sums["certain"] == sums["rows"])
    enough = (sums["uncertain"] >= FEWEST_RESULTS) & (sums["unrepresented"] == 0)
    enough &= (variance >= 0) & (degrees >= FEWEST_DEGREES)
    error = np.where(known, 0.0, np.where(enough, error, np.nan))
    reach = np.where(known, 0.0, student(confidence, degrees) * error) + ROUNDING * np.abs(estimate)
    low = estimate - reach
    if rows:
        # The complete join has at least the rows of the sample.
        low = np.where(low < sums["rows"], sums["rows"], low)
    return Figures(estimate, error, low, estimate + reach)


def student(confidence: float, degrees: Floats) -> Floats:
    """The two-sided quantile of Student's t: the Cornish-Fisher expansion around that of the normal distribution.

    Examples
    --------
    >>> student(0.95, np.array([3.0, 10.0, np.inf])).round(2).tolist()
    [3.18, 2.23, 1.96]
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    inverse = 1 / np.maximum(degrees, 1.0)
    return np.asarray(sum(term * inverse**power for power, term in enumerate(terms)))

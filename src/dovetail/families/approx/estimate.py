"""From a sample to the complete join: estimated totals, and how far they may be off.

A result exists because a new row met held ones.  Each held row was held with a known chance (kept / seen of its
stratum), so the result counts 1 / chance times: the inverse of its inclusion probability (Horvitz and Thompson).  The
total of the weighted values is unbiased.

Its variance comes from results that are included or missed together because they share a held row.  An evicted row
never comes back, so a row that is held at the later moment was held at the earlier one: the covariance of two results
is (1 / p - 1) times their values, with the chance p of the earlier moment.  A stratum holds a fixed number of its rows,
so only deviations from the mean matter.  They have two parts:

* rows of one join value differ in what they contribute (:func:`_within`);
* a stratum holds more or fewer rows of a value than its share (:func:`_between`).

The split matters where a stratum has one value and every row contributes 1, as in the size of a join: there both parts
vanish, as they should, while a difference of two large sums would leave rounding errors.  With more than one held
input, pairs that share several of them have been counted several times and are subtracted again (inclusion and
exclusion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.layout import JOIN_VALUE, MOMENT, STRATUM, WEIGHT
from dovetail.families.approx.spec import FACTS, fact_column

ROUNDING = 1e-12
"""Even an exact figure is a sum of floats: no interval is narrower than this fraction of it."""

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampled:
    """How the results of one cell were sampled; the facts about their rows have the shape (results, inputs)."""

    at: Index
    weight: Floats
    stratum: Index
    value: Index
    number: Index
    seen: Index
    kept: Index
    same: Index

    @classmethod
    def of(cls, table: pa.Table, sides: int) -> Sampled:
        """Read the columns that leave a kernel."""

        def column(name: str) -> Index:
            return np.asarray(table.column(name).to_numpy(), dtype=np.int64)

        weight = np.asarray(table.column(WEIGHT).to_numpy(), dtype=np.float64)
        facts = [np.stack([column(fact_column(fact, side)) for side in range(sides)], axis=1) for fact in FACTS]
        return cls(column(MOMENT), weight, column(STRATUM), column(JOIN_VALUE), *facts)


def moments(values: Floats, sampled: Sampled) -> tuple[Floats, Floats]:
    """Estimated totals of each row of `values` over the complete join, and their covariances.

    Results may be missing from `sampled` if their values are 0.

    Examples
    --------
    Two held rows of six stand for all six; they contribute 10 and 20:

    >>> two = np.zeros(2, dtype=np.int64)
    >>> sampled = Sampled(at=two, weight=np.full(2, 3.0), stratum=two, value=two, number=np.array([[0, 5], [3, 5]]),
    ...                   seen=np.array([[6, 1]] * 2), kept=np.array([[2, 1]] * 2), same=np.array([[2, 1]] * 2))
    >>> totals, covariances = moments(np.array([[10.0, 20.0]]), sampled)
    >>> totals.tolist(), covariances.round(6).tolist()
    ([90.0], [[600.0]])
    """
    weighted = values * sampled.weight
    covariances = np.zeros((len(values), len(values)))
    sides = sampled.number.shape[1]
    uncertain = sampled.kept < sampled.seen
    for size in range(1, sides):
        for shared in combinations(range(sides), size):
            rows = np.flatnonzero(uncertain[:, shared].all(axis=1))
            if rows.size:
                part = _Part(weighted[:, rows], sampled, rows, shared)
                # 1 - (1 - q)(1 - r) = q + r - qr: pairs that share two inputs were counted twice.
                covariances += (-1) ** (size + 1) * part.within()
                if size == 1:
                    covariances += part.between()
    return weighted.sum(axis=1), covariances


class _Part:
    """The results in which the inputs `shared` are held, one entry for each arrival and combination of those rows."""

    def __init__(self, values: Floats, sampled: Sampled, rows: Index, shared: tuple[int, ...]) -> None:
        at = sampled.at[rows]
        numbers = [sampled.number[rows, side] for side in shared]
        if values.shape[1] and len(shared) < sampled.number.shape[1] - 1:
            # Further inputs are held too: add up their contributions to one combination.
            order = np.lexsort((*numbers, at))
            starts = np.flatnonzero(_changes([at, *numbers], order))
            values = np.add.reduceat(values[:, order], starts, axis=1)
            rows = rows[order[starts]]
            at = sampled.at[rows]
            numbers = [sampled.number[rows, side] for side in shared]
        self.values, self.at, self.numbers = values, at, numbers
        self.stratum, self.value = sampled.stratum[rows], sampled.value[rows]
        self.seen, self.kept, self.same = (
            np.stack([facts[rows, side] for side in shared]) for facts in (sampled.seen, sampled.kept, sampled.same)
        )
        # A single held row shows no spread.  Then its full value counts, which errs on the safe side.
        self.only_row = (self.kept == 1).any(axis=0)
        self.left_out = np.prod(1 - self.kept / self.seen, axis=0)

    def within(self) -> Floats:
        """Deviations of the rows of one join value from their mean, at the moment of each arrival."""
        deviations = self.values
        for d in range(len(self.numbers)):
            others = [number for at, number in enumerate(self.numbers) if at != d]
            deviations = deviations - np.where(self.only_row, 0.0, self._means(deviations, others, self.same[d]))
        factor = self.left_out * np.prod(_unbiased(self.same), axis=0)
        order = np.lexsort((self.at, *self.numbers))
        starts = _changes(self.numbers, order)
        return _pairs((deviations * factor)[:, order], deviations[:, order], starts)

    def _means(self, values: Floats, others: list[Index], counts: Index) -> Floats:
        """For each arrival (and each row of the other inputs), the sum over the held rows divided by their number."""
        order = np.lexsort((*others, self.at))
        starts = np.flatnonzero(_changes([self.at, *others], order))
        sums = np.add.reduceat(values[:, order], starts, axis=1)
        spread_out = np.empty_like(values)
        spread_out[:, order] = np.repeat(sums, np.diff(np.append(starts, order.size)), axis=1)
        return spread_out / counts

    def between(self) -> Floats:
        """How many rows of a value a stratum happens to hold, and held rows that have no results."""
        order = np.lexsort((self.at, self.value, self.stratum))
        order = order[~self.only_row[order]]
        if not order.size:
            return np.zeros((len(self.values), len(self.values)))
        first = _changes([self.at, self.value], order)
        starts = np.flatnonzero(first)
        arrivals = order[starts]
        counts = np.diff(np.append(starts, order.size))
        seen, kept, same = self.seen[0, arrivals], self.kept[0, arrivals], self.same[0, arrivals]
        mean = np.add.reduceat(self.values[:, order], starts, axis=1) / same
        of_value = _changes([self.stratum, self.value], arrivals)
        missing = mean * self.left_out[arrivals] * _unbiased(same) * seen
        total = _pairs(missing, mean * (same - counts) / seen, of_value)
        early, late = mean * self.left_out[arrivals] * _unbiased(kept) * seen, mean * same / seen
        total += _pairs(early, late, of_value)
        by_time = np.lexsort((self.at[arrivals], self.stratum[arrivals]))
        early = early / kept * same
        total -= _pairs(early[:, by_time], late[:, by_time], _changes([self.stratum], arrivals[by_time]))
        return total


def _unbiased(rows: Index) -> Floats:
    """N / (n - 1): deviations from the mean of a sample are smaller than those from the mean of all."""
    return np.where(rows > 1, rows / np.maximum(rows - 1, 1), 1.0)


def _changes(keys: Sequence[Index], order: Index) -> npt.NDArray[np.bool_]:
    """Where a new group of equal keys begins, in that order."""
    begins = np.zeros(order.size, dtype=np.bool_)
    if order.size:
        begins[0] = True
    for key in keys:
        ordered = key[order]
        begins[1:] |= ordered[1:] != ordered[:-1]
    return begins


def _pairs(early: Floats, late: Floats, begins: npt.NDArray[np.bool_]) -> Floats:
    """Sums of early(a) late(b) over pairs of one group, a not after b, made symmetric; groups begin at `begins`."""
    running = np.cumsum(early, axis=1)
    before = running - early
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, begins.size))
    before -= np.repeat(before[:, starts], sizes, axis=1)
    crossed = before @ late.T
    same: Floats = early @ late.T
    return np.asarray((same + same.T) / 2 + crossed + crossed.T)

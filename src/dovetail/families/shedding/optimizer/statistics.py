"""What a join learns from the rows it shreds: where matches are, how many, and what a look costs (section 5.2).

All of it comes from a sample that looks everywhere, so it is not biased by what harvesting looks at, and it shows
when rates, lags or correlations change.  Sums fade with event time, half of them within a quarter of the longest
window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from dovetail.families.shedding.optimizer.model import Costs, Flags, Floats, Ints, Model, build_model
from dovetail.families.shedding.optimizer.orders import join_orders
from dovetail.families.shedding.slices import Slices
from dovetail.families.window.encode import Index
from dovetail.families.window.spec import WindowJoinSpec

FINE = 4
"""Buckets of a histogram in a slice."""
DOUBT = 0.05
"""The part of a score that goes by rows alone: a slice without a match so far may still have one."""


@dataclass
class Learned:
    """Fading sums.  Inputs are numbered; i looks, l is looked at, j is a position in the join order, k a slice."""

    pairs: Floats
    """(m, m, n): matches of direction i with their row of l in slice k."""
    streams: Floats
    """(m, buckets): matches of any direction by the time of input i less that of the first input, the paper's L_i."""
    rows: Floats
    """(m, m, n): rows of l in slice k that rows of i had before them."""
    drivers: Floats
    """(m,): how many rows of i these were."""
    pace: Floats
    """(m,): rows that arrived."""
    reach: Floats
    """(m, m - 1): pairs of a partial match and a row in its window, with the present join order."""
    looked: Floats
    """(m, m - 1): rows of these that were examined."""
    found: Floats
    """(m, m - 1): and matched."""
    first_reach: Floats
    """(m, m): pairs of a row of i and a row in the window of l."""
    first_found: Floats
    """(m, m): and those that matched."""
    candidates: Floats
    """(m, m, n): as `pairs`, of all that the kernel finds, where Spark decides which of it are matches."""

    @classmethod
    def nothing(cls, slices: Slices) -> Learned:
        """Before the first row."""
        m, n = slices.counts.shape[0], slices.most
        shapes = [(m, m, n), (m, _buckets(slices)), (m, m, n), (m,), (m,), (m, m - 1), (m, m - 1), (m, m - 1)]
        return cls(*(np.zeros(shape) for shape in [*shapes, (m, m), (m, m), (m, m, n)]))

    def fade(self, part: float) -> None:
        """Keep a part of everything."""
        for sums in fields(self):
            getattr(self, sums.name)[...] *= part

    def forget_positions(self, direction: int) -> None:
        """A new join order: what was known of the positions in the old one does not hold."""
        for sums in (self.reach, self.looked, self.found):
            sums[direction] = 0.0

    # ----------------------------------------------------------------------------------------------------------

    def see_matches(self, slices: Slices, driver: int, times: Mapping[int, Index], weight: Floats) -> None:
        """Matches of shredded rows of one direction, and how many each stands for."""
        m = self.drivers.size
        for side in range(m):
            if side != driver:
                number = slices.number(driver, side, times[driver] - times[side])
                self.pairs[driver, side] += np.bincount(number, weights=weight, minlength=slices.most)
            if side:
                bucket = _bucket(slices, side, times[side] - times[0])
                self.streams[side] += np.bincount(bucket, weights=weight, minlength=self.streams.shape[1])

    def see_candidates(self, slices: Slices, driver: int, times: Mapping[int, Index], weight: Floats) -> None:
        """What shredded rows of one direction found, where Spark decides later which of it are matches."""
        for side in range(self.drivers.size):
            if side != driver:
                number = slices.number(driver, side, times[driver] - times[side])
                self.candidates[driver, side] += np.bincount(number, weights=weight, minlength=slices.most)

    def worth(self) -> Floats:
        """(m,): results for each candidate of a direction; where little is known of one, that of all."""
        # Every result has a row of every other input, so it counts once in each of their histograms.
        results, found = (sums.sum(axis=2).max(axis=1) for sums in (self.pairs, self.candidates))
        overall = (results.sum() + 0.5) / (found.sum() + 1.0)
        return np.asarray((results + overall) / (found + 1.0))

    def scores(self, slices: Slices, histograms: str, rows: Floats | None = None) -> Floats:
        """(m, m, n): the probability of each slice, the paper's p, up to a factor; for rows as they are, or of late."""
        rows = self.rows if rows is None else rows
        return _likely(slices, self.pairs if histograms == "pair" else self._convolved(slices, rows), rows)

    def _convolved(self, slices: Slices, rows: Floats) -> Floats:
        """Equations (1) and (2): scores of all pairs from one histogram for each input, taken to be independent.

        Histograms do not tell directions apart, and in micro-batches a direction may look a little into the future: a
        slice scores by how full it is for the direction.  In the paper all slices of the past are full.
        """
        m = self.drivers.size
        matches = np.zeros_like(self.pairs)
        middles = [_middles(slices, side) for side in range(m)]
        for i in range(m):
            for l in range(m):  # noqa: E741
                if i == l:
                    continue
                mine = (self.streams[i], middles[i]) if i else (np.ones(1), np.zeros(1))
                other = (self.streams[l], middles[l]) if l else (np.ones(1), np.zeros(1))
                mass = mine[0][:, None] * other[0][None, :]
                ages = mine[1][:, None] - other[1][None, :]
                inside = (mass > 0) & (ages >= slices.youngest[i, l]) & (ages <= slices.oldest[i, l])
                number = slices.number(i, l, np.floor(ages[inside]).astype(np.int64))
                matches[i, l] = np.bincount(number, weights=mass[inside], minlength=slices.most)
        fullest = rows.max(axis=2, keepdims=True)
        return np.asarray(matches * rows / np.where(fullest > 0, fullest, 1.0))

    # ----------------------------------------------------------------------------------------------------------

    def selectivity(self) -> Floats:
        """(m, m): the part of the pairs that match; where nothing is known of two inputs, that of all."""
        overall = (self.first_found.sum() + 0.5) / (self.first_reach.sum() + 1.0)
        return np.asarray((self.first_found + overall) / (self.first_reach + 1.0))

    def orders(self, spec: WindowJoinSpec, first: int = 0) -> Ints:
        """Join orders by low selectivity first, or beginning with the one that so many others are below."""
        return join_orders(self.selectivity(), links(spec), first)

    def model(
        self,
        slices: Slices,
        orders: Ints,
        histograms: str,
        costs: Costs,
        *,
        rates: Floats | None = None,
        rows: Floats | None = None,
        known: Ints | None = None,
    ) -> Model | None:
        """The join in numbers, or None before anything is known of any direction.

        Parameters
        ----------
        slices, orders, histograms, costs
            How windows are cut, in which order they are looked up, where scores come from, what costs.
        rates, rows
            Rows that drive each direction and (m, m, n) rows that one of them has before it: those of a moment, or
            as they were of late.
        known
            The join orders in use, where `orders` are others: what is known of positions holds for these only.
        """
        if not (self.drivers > 0).any() or not (self.reach.sum(axis=1) > 0).any():
            return None
        m = self.drivers.size
        seen = np.maximum(self.drivers, 1e-9)
        rows = self.rows / seen[:, None, None] if rows is None else rows
        rates = self.pace if rates is None else rates
        windows = rows.sum(axis=2)
        at_position = np.take_along_axis(windows, orders, axis=1)
        reach = np.maximum(self.reach, 1e-9)
        observed = self.reach > 0
        if known is not None:
            observed &= (orders == known).all(axis=1)[:, None]
        narrowed = np.where(observed, self.looked / reach, 1.0)
        part = np.where(observed, self.found / reach, np.take_along_axis(self.selectivity(), orders, axis=1))
        scores = self.scores(slices, histograms, rows)
        judged = bool(self.candidates.any())
        return build_model(
            np.maximum(rates, 1e-9), orders, rows, scores, part * at_position,
            narrowed=narrowed.reshape(m, m - 1), sizes=slices.counts, costs=costs,
            found=_likely(slices, self.candidates, rows) if judged else None, worth=self.worth() if judged else None,
        )  # fmt: skip


def _likely(slices: Slices, matches: Floats, rows: Floats) -> Floats:
    """(m, m, n): the probability of each slice, from matches in it and, as far as these leave doubt, from its rows."""
    rows = np.where(slices.everything(), np.maximum(rows, 1e-9), 0.0)
    flat = rows / rows.sum(axis=2, keepdims=True).clip(1e-300)
    total = matches.sum(axis=2, keepdims=True)
    known = np.where(total > 0, matches / np.where(total > 0, total, 1.0), flat)
    return np.asarray((1 - DOUBT) * known + DOUBT * flat)


def links(spec: WindowJoinSpec) -> Flags:
    """(m, m): which inputs a condition connects."""
    m = len(spec.aliases)
    linked = np.zeros((m, m), dtype=np.bool_)
    if spec.classes:
        linked[:] = True
    pairs = [equality.sides for equality in spec.equalities]
    pairs += [(comparison.point_side, comparison.box_side) for comparison in spec.comparisons]
    for i, j in pairs:
        linked[i, j] = linked[j, i] = True
    return linked


def _fine(slices: Slices) -> int:
    return max(1, slices.width // FINE)


def _buckets(slices: Slices) -> int:
    spans = [int(slices.oldest[i, 0]) - int(slices.youngest[i, 0]) for i in range(slices.counts.shape[0])]
    return max(spans) // _fine(slices) + 1


def _bucket(slices: Slices, side: int, ages: Index) -> Index:
    return np.asarray((ages - slices.youngest[side, 0]) // _fine(slices), dtype=np.int64)


def _middles(slices: Slices, side: int) -> Floats:
    fine = _fine(slices)
    return np.asarray(int(slices.youngest[side, 0]) + (np.arange(_buckets(slices)) + 0.5) * fine - 0.5)

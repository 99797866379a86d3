"""From a sample to the complete join: estimated totals, and how far they may be off.

A result exists because a new row met held ones.  Each held row was held with a known chance (kept / seen of its
stratum), so the result counts 1 / chance times: the inverse of its inclusion probability (Horvitz and Thompson).  The
total of the weighted values is unbiased, whatever the order of arrival.

Its variance comes from results that are included or missed together because they share a held row, and from those that
exclude each other because a stratum holds a fixed number of rows.  :mod:`~dovetail.families.approx.covariances` says by
how much two results vary together: q of the rows of one input.  With more than one held input it is
1 - (1 - q)(1 - r) = q + r - qr, since inputs are sampled independently (inclusion and exclusion).

Where only some of the results were returned, they are a second sample, of the results, drawn with equal chances from
those of one call: one more input, so to speak, that holds `returned` of `found` rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.layout import MIXED, MOMENT, STRATUM, WEIGHT
from dovetail.families.approx.covariances import Floats, Held, Index, Moments, of_one, of_two
from dovetail.families.approx.spec import ALL_HELD, FACTS, RETURNED, UNREPRESENTED, fact_column


@dataclass(frozen=True)
class Sampled:
    """How the results of one cell were sampled; the facts about their rows have the shape (results, inputs)."""

    at: Index
    weight: Floats
    stratum: Index
    mixed: npt.NDArray[np.bool_]
    number: Index
    seen: Index
    kept: Index
    arrived: Index
    call: Index
    """Which call found the result: the arrivals before it."""
    found: Index
    """How many results that call found."""
    returned: Index
    """How many of these it returned."""

    @classmethod
    def of(cls, table: pa.Table, sides: int) -> Sampled:
        """Read the columns that leave a kernel."""

        def column(name: str) -> Index:
            return np.asarray(table.column(name).to_numpy(), dtype=np.int64)

        weight = np.asarray(table.column(WEIGHT).to_numpy(), dtype=np.float64)
        facts = [np.stack([column(fact_column(fact, side)) for side in range(sides)], axis=1) for fact in FACTS]
        every = RETURNED[0] not in table.schema.names
        output = [np.ones(weight.size, dtype=np.int64) if every else column(name) for name in RETURNED]
        mixed = np.asarray(table.column(MIXED).to_numpy(), dtype=np.bool_)
        return cls(column(MOMENT), weight, column(STRATUM), mixed, *facts, *output)

    @property
    def certain(self) -> npt.NDArray[np.bool_]:
        """Results that nothing was left out beside: neither a row, before or after, nor another result."""
        return np.asarray((self.stratum == ALL_HELD) & (self.found == self.returned))

    @property
    def unrepresented(self) -> npt.NDArray[np.bool_]:
        """Results beside which rows were left out that no held row stands for."""
        return np.asarray(self.stratum == UNREPRESENTED)

    @property
    def uncertain(self) -> npt.NDArray[np.bool_]:
        """Results that stand for others."""
        return np.asarray((self.kept < self.seen).any(axis=1) | (self.returned < self.found))


def moments(values: Floats, sampled: Sampled) -> tuple[Floats, Floats]:
    """Estimated totals of each row of `values` over the complete join, and their covariances.

    Results may be missing from `sampled` if their values are 0.

    Examples
    --------
    Two held rows of six stand for all six; they contribute 10 and 20:

    >>> two, ones = np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64)
    >>> sampled = Sampled(at=two, weight=np.full(2, 3.0), stratum=two, mixed=two > 0, number=np.array([[0, 5], [3, 5]]),
    ...                   seen=np.array([[6, 1]] * 2), kept=np.array([[2, 1]] * 2), arrived=np.array([[6, 5]] * 2),
    ...                   call=two, found=ones, returned=ones)
    >>> totals, covariances = moments(np.array([[10.0, 20.0]]), sampled)
    >>> totals.tolist(), covariances.round(6).tolist()
    ([90.0], [[600.0]])
    """
    weighted = values * sampled.weight
    every = np.arange(sampled.at.size)
    covariances = _held_rows(weighted, sampled, every)
    for call in np.unique(sampled.call[sampled.returned < sampled.found]):
        covariances += _returned(weighted, sampled, np.flatnonzero(sampled.call == call))
    return weighted.sum(axis=1), covariances


def _held_rows(weighted: Floats, sampled: Sampled, rows: Index) -> Floats:
    """What the choice of held rows adds to the covariances."""
    covariances = np.zeros((len(weighted), len(weighted)))
    uncertain = sampled.kept < sampled.seen
    sides = sampled.number.shape[1]
    for size in range(1, sides):
        for shared in combinations(range(sides), size):
            part = rows[uncertain[rows][:, list(shared)].all(axis=1)]
            if part.size:
                covariances += (-1) ** (size + 1) * _of_inputs(weighted[:, part], sampled, part, shared)
    return covariances


def _of_inputs(values: Floats, sampled: Sampled, rows: Index, shared: tuple[int, ...]) -> Floats:
    """The sum over pairs of results of the product of q over the inputs `shared`."""
    stratum, at = sampled.stratum[rows], sampled.at[rows]
    numbers = [sampled.number[rows, side] for side in shared]
    # One entry for each moment and combination of held rows: further inputs add to it.
    order = np.lexsort((*numbers, at, stratum))
    starts = np.flatnonzero(changes([stratum, at, *numbers], order))
    entries = order[starts]
    added = np.ascontiguousarray(np.add.reduceat(values[:, order], starts, axis=1).T)
    strata, of_stratum = np.unique(stratum[entries], return_inverse=True)
    begins = np.flatnonzero(changes([stratum[entries], at[entries]], np.arange(entries.size)))
    moments_ = Moments(np.append(begins, entries.size), of_stratum[begins])
    held = [
        _held(sampled, rows[entries], side, number[entries], of_stratum, strata.size)
        for side, number in zip(shared, numbers, strict=True)
    ]
    if len(shared) == 1:
        return of_one(added, moments_, held[0])
    if len(shared) == 2:
        return of_two(added, moments_, held[0], held[1], *_row_pairs(held[0].row, held[1].row))
    # More than two held inputs: results that share all their rows.  The others vary together far less.
    order = np.lexsort((at[entries], *[part.row for part in held]))
    factor = np.prod([part.x for part in held], axis=0)
    begins_ = changes([part.row for part in held], order)
    return _same_rows((added.T * factor)[:, order], added.T[:, order], begins_)


def _held(sampled: Sampled, rows: Index, side: int, number: Index, stratum: Index, strata: int) -> Held:
    seen, kept = sampled.seen[rows, side], sampled.kept[rows, side]
    left_out = 1 - kept / seen
    y = np.where(kept > 1, left_out / np.maximum(kept - 1, 1), 0.0)
    order = np.lexsort((number, stratum))
    first = changes([stratum, number], order)
    row = np.empty(rows.size, dtype=np.int64)
    row[order] = np.cumsum(first) - 1
    ends = np.searchsorted(stratum[order[first]], np.arange(strata), side="right")
    x = np.where(kept > 1, kept * y, left_out)
    return Held(row, ends, number[order[first]], sampled.arrived[rows, side], x, y)


def _row_pairs(first: Index, second: Index) -> tuple[Index, Index, Index]:
    """For each entry the number of its pair of rows; and the pairs (row, pair, other row) by row of either input."""
    order = np.lexsort((second, first))
    begins = changes([first, second], order)
    pair = np.empty(first.size, dtype=np.int64)
    pair[order] = np.cumsum(begins) - 1
    of_first, of_second = first[order[begins]], second[order[begins]]
    numbers = np.arange(of_first.size)
    by_second = np.argsort(of_second, kind="stable")
    return (
        pair,
        np.stack([of_first, numbers, of_second], axis=1),
        np.stack([of_second[by_second], by_second, of_first[by_second]], axis=1),
    )


def _returned(weighted: Floats, sampled: Sampled, rows: Index) -> Floats:
    """What it adds that a call returned only some of its results; r is q of this sample, q that of the held rows."""
    found, returned = int(sampled.found[rows[0]]), int(sampled.returned[rows[0]])
    values = weighted[:, rows]
    y = (1 - returned / found) / max(returned - 1, 1)
    # Sum(r) - Sum(qr), with r = y (returned [same result] - 1); the chances of the rows of a result multiply.
    alone = np.prod(sampled.kept[rows] / sampled.seen[rows], axis=1)
    totals = values.sum(axis=1)
    covariances = returned * (values * alone) @ values.T - np.outer(totals, totals)
    return np.asarray(y * (covariances + _held_rows(weighted, sampled, rows)))


def changes(keys: Sequence[Index], order: Index) -> npt.NDArray[np.bool_]:
    """Where a new group of equal keys begins, in that order."""
    begins = np.zeros(order.size, dtype=np.bool_)
    if order.size:
        begins[0] = True
    for key in keys:
        ordered = key[order]
        begins[1:] |= ordered[1:] != ordered[:-1]
    return begins


def _same_rows(early: Floats, late: Floats, begins: npt.NDArray[np.bool_]) -> Floats:
    """Sums of early(a) late(b) over pairs of one group, a not after b, made symmetric; groups begin at `begins`."""
    running = np.cumsum(early, axis=1)
    before = running - early
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, begins.size))
    before -= np.repeat(before[:, starts], sizes, axis=1)
    crossed = before @ late.T
    same: Floats = early @ late.T
    return np.asarray((same + same.T) / 2 + crossed + crossed.T)

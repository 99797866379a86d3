"""The cost and the output of a join that looks at some slices of its windows only (sections 4.2 and 4.3 of the paper).

A join of m inputs has m directions.  Direction i is driven by the new rows of input i: they look into the windows of
the other inputs one after the other, in the join order r[i, 0], r[i, 1], ...  Each window is cut into slices by age,
the paper's logical basic windows, and ranked by what they yield.  A setting says how many slices of each window are
looked at, best first: the paper's harvest fraction z[i, j] is that count over the number of slices.

The paper counts comparisons and takes every slice for equally full.  Here a slice has a cost of its own, a look into a
window may cost something by itself, and so may every match: that covers indexes, the windows of micro-batches, and the
paper's nested loop as the special case in which slices are alike and nothing else costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Costs(NamedTuple):
    """What a look into a window and a match found cost, in comparisons."""

    probe: float = 0.0
    emit: float = 0.0


NESTED = Costs()
"""The paper's: comparisons are all there is."""
INDEXED = Costs(probe=50.0, emit=25.0)
"""The compiled loops take 3.3 ns for a comparison, 200 ns for a search in an index at random and 7 ns for a match
found; copying its row numbers and columns on takes some ten times that.
"""
JUDGED = Costs(probe=50.0, emit=300.0)
"""Where Spark judges every match found: a microsecond or more, on the way to Spark and in its condition."""


class Model(NamedTuple):
    """A join in numbers, as the compiled loops take it.

    Arrays are by direction and position in the join order; slices are in their rank's order.
    """

    rates: Floats
    """Rows that drive each direction."""
    orders: Ints
    """(m, m - 1): the input at each position of the join order."""
    sizes: Ints
    """(m, m - 1): slices of the window there."""
    ranking: Ints
    """(m, m - 1, n): the slices, best first."""
    examined: Floats
    """(m, m - 1, n + 1): rows that one look into the first c slices examines."""
    yields: Floats
    """(m, m - 1, n + 1): the share of the matches that the first c slices hold, the paper's P."""
    gains: Floats
    """(m, m - 1, n + 1): and the share of the results; the same, unless Spark decides which matches are results."""
    fanouts: Floats
    """(m, m - 1): matches of one look into the whole window, the paper's sigma times S."""
    worth: Floats
    """(m,): results for each match of a direction; 1 where every match is one."""
    costs: Costs = NESTED

    @property
    def full(self) -> Ints:
        """The setting that looks everywhere."""
        return self.sizes.copy()

    def cost(self, counts: Ints) -> float:
        """The work of a setting, C in the paper."""
        return float(self.evaluated(counts)[0])

    def output(self, counts: Ints) -> float:
        """The results of a setting, O in the paper."""
        return float(self.evaluated(counts)[1])

    def evaluated(self, counts: Ints) -> tuple[float, float]:
        """Work and results of a setting."""
        cost, output = evaluated(counts, self)
        return float(cost), float(output)

    def selected(self, counts: Ints) -> Flags:
        """(m, m, n): whether direction i looks at slice k of input l under a setting."""
        m, positions = self.sizes.shape
        chosen = np.zeros((m, m, self.ranking.shape[2]), dtype=np.bool_)
        for i in range(m):
            for j in range(positions):
                chosen[i, self.orders[i, j], self.ranking[i, j, : counts[i, j]]] = True
        return chosen


def build_model(
    rates: Sequence[float] | Floats,
    orders: Ints,
    rows: Floats,
    scores: Floats,
    fanouts: Floats,
    *,
    narrowed: Floats | None = None,
    sizes: Ints | None = None,
    costs: Costs = NESTED,
    found: Floats | None = None,
    worth: Floats | None = None,
) -> Model:
    """A model from what is known about slices.

    Parameters
    ----------
    rates
        Rows that drive each direction.
    orders
        (m, m - 1), the join orders.
    rows
        (m, m, n): rows of input l in slice k, as a row of input i sees them.
    scores
        (m, m, n): the probability that a match has its rows of i and l this far apart, the paper's p.
    fanouts
        (m, m - 1): matches of one look into the whole window at each position.
    narrowed
        (m, m - 1): the part of a slice's rows that an index leaves to be examined; 1 without an index.
    sizes
        (m, m): slices of each window; all n by default.
    costs
        What else costs.
    found, worth
        (m, m, n): the probability that a match has its rows this far apart, where `scores` is that of a result and
        matches are not all results; (m,): results for each match.

    Examples
    --------
    >>> orders = np.array([[1], [0]])
    >>> rows = np.full((2, 2, 4), 10.0)
    >>> scores = np.tile([0.1, 0.6, 0.2, 0.1], (2, 2, 1))
    >>> model = build_model([5.0, 5.0], orders, rows, scores, np.full((2, 1), 2.0))
    >>> model.ranking[0, 0].tolist(), model.yields[0, 0].round(2).tolist()
    ([1, 2, 0, 3], [0.0, 0.6, 0.8, 0.9, 1.0])
    >>> half = np.array([[2], [2]])
    >>> model.cost(half) / model.cost(model.full), round(model.output(half) / model.output(model.full), 2)
    (0.5, 0.8)
    """
    m, positions = orders.shape
    n = rows.shape[2]
    ranking = np.zeros((m, positions, n), dtype=np.int64)
    examined, yields, gains = (np.zeros((m, positions, n + 1)) for _ in range(3))
    counts = np.full((m, positions), n, dtype=np.int64)
    for i in range(m):
        for j in range(positions):
            l = int(orders[i, j])  # noqa: E741 - the paper's name
            size = n if sizes is None else int(sizes[i, l])
            counts[i, j] = size
            full, score = rows[i, l, :size], scores[i, l, :size]
            # The paper ranks by score.  Slices that differ in rows rank by score for each row: the same where they do
            # not.
            rank = np.argsort(-score / np.maximum(full, 1e-9), kind="stable")
            ranking[i, j, :size] = rank
            share = 1.0 if narrowed is None else float(narrowed[i, j])
            examined[i, j, 1 : size + 1] = np.cumsum(full[rank]) * share
            examined[i, j, size + 1 :] = examined[i, j, size]
            gains[i, j] = _shares(score[rank], n)
            yields[i, j] = gains[i, j] if found is None else _shares(found[i, l, :size][rank], n)
    worth = np.ones(m) if worth is None else worth
    return Model(
        np.asarray(rates, dtype=np.float64), orders, counts, ranking, examined, yields, gains,
        np.asarray(fanouts, dtype=np.float64), np.asarray(worth, dtype=np.float64), costs,
    )  # fmt: skip


def _shares(scores: Floats, n: int) -> Floats:
    """The share of the first c of some slices, for c from 0 to n."""
    total, size = float(scores.sum()), scores.size
    parts = scores / total if total > 0 else np.full(size, 1.0 / max(size, 1))
    shares = np.ones(n + 1)
    shares[0], shares[1:size] = 0.0, np.minimum(1.0, np.cumsum(parts))[: size - 1]
    return shares


@njit
def direction(i: int, counts: Ints, model: Model) -> tuple[float, float]:  # pragma: no cover - compiled
    """Work and results of direction i with so many slices of each window: lambda * C_i and lambda * N_{i,m}."""
    partial, cost = model.rates[i], 0.0  # partial matches that reach a position: lambda_i * N_{i,j}
    output = model.rates[i] * model.worth[i]
    for j in range(counts.size):
        c = counts[j]
        if c == 0:
            return cost, 0.0
        cost += partial * (model.costs.probe + model.examined[i, j, c])
        partial *= model.yields[i, j, c] * model.fanouts[i, j]
        cost += partial * model.costs.emit
        output *= model.gains[i, j, c] * model.fanouts[i, j]
    return cost, output


@njit
def evaluated(counts: Ints, model: Model) -> tuple[float, float]:  # pragma: no cover - compiled
    """Work and results of all directions."""
    cost, output = 0.0, 0.0
    for i in range(counts.shape[0]):
        c, o = direction(i, counts[i], model)
        cost, output = cost + c, output + o
    return cost, output


@njit
def priced(i: int, options: Ints, model: Model) -> Floats:  # pragma: no cover - compiled
    """Work and results of direction i for each of some settings of it."""
    prices = np.empty((options.shape[0], 2))
    for at in range(options.shape[0]):
        prices[at, 0], prices[at, 1] = direction(i, options[at], model)
    return prices

"""Harvest fractions: how many slices of each window to look at within a part of the full work (section 5.1).

Three metrics choose the next slice, and the search goes up from nothing (`greedy`), down from everything (`reverse`) or
whichever way is shorter (`double-sided`).  `exhaustive` is the optimum, for few inputs and slices.

The budget is seldom spent to the last comparison: slices cannot be divided, and a slice chosen early may rule out a
better pair.  So a search ends with a refinement that the paper does not have: force one more slice in, or a direction
out, let the greedy steps make room and spend what is left, and keep what is better, until nothing is.

The paper's Figure 5 has slips that are corrected here: EVAL bounds the cost by "r C(1)" and means z C(1), and line
32 adds d[i, j] where the best setting found, d[u, v], is meant.
"""

from __future__ import annotations

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.errors import choice
from dovetail.families.shedding.optimizer.model import Flags, Floats, Ints, Model, direction, evaluated, priced
from dovetail.families.shedding.spec import METHODS, METRICS, Method, Metric

ROUNDS = 12
"""Rounds of refinement at most; two or three are usual."""


def harvest_counts(
    model: Model, z: float, *, method: Method = "double-sided", metric: Metric = "delta", refined: bool = True
) -> Ints:
    """Slices to look at, by direction and position, such that the work is at most z times the full work.

    Parameters
    ----------
    model
        The join in numbers.
    z
        The throttle fraction.
    method, metric
        The way to search, and what a step is judged by.
    refined
        Whether the greedy methods end with the refinement; without it they are the paper's.

    Examples
    --------
    >>> from dovetail.families.shedding.optimizer.model import build_model
    >>> orders, rows = np.array([[1], [0]]), np.full((2, 2, 4), 10.0)
    >>> scores = np.tile([0.1, 0.6, 0.2, 0.1], (2, 2, 1))
    >>> model = build_model([5.0, 5.0], orders, rows, scores, np.array([[4.0], [1.0]]))
    >>> harvest_counts(model, 0.5).tolist(), harvest_counts(model, 1.0).tolist()
    ([[3], [1]], [[4], [4]])
    """
    if metric not in METRICS:
        raise choice("metric", metric, METRICS)
    if method not in METHODS:
        raise choice("method", method, METHODS)
    if z >= 1.0:
        return model.full
    # Rounding must not forbid what fits exactly.
    budget = z * model.cost(model.full) * (1 + 1e-12)
    if method == "exhaustive":
        return _exhaustive(model, budget)
    m = model.rates.size
    up = method == "greedy" or (method == "double-sided" and z <= 0.5 ** ((m - 1) / 2))
    number = METRICS.index(metric)
    free = np.zeros(model.sizes.shape, dtype=np.bool_)
    if up:
        counts = _up(budget, number, np.zeros_like(model.sizes), free, model)
    else:
        counts = _down(budget, number, model.full, free, model)
    return _refined(budget, counts, model) if refined else counts


@njit
def _score(metric: int, o: float, c: float, old_o: float, old_c: float) -> float:  # pragma: no cover - compiled
    if metric == 0:
        return o
    if metric == 1:
        return o / c if c > 0 else 0.0
    if c > old_c:
        return (o - old_o) / (c - old_c)
    return np.inf if o > old_o else 0.0


@njit
def _up(budget: float, metric: int, begin: Ints, barred: Flags, model: Model) -> Ints:  # pragma: no cover - compiled
    """GREEDYPICK, Figure 5, from a given setting and without what is barred; the numbers are its lines."""
    sizes = model.sizes
    m, positions = sizes.shape
    counts = begin.copy()  # (4)
    costs, outputs = np.zeros(m), np.zeros(m)  # (1), by direction: a step changes one of them
    started = np.zeros(m, dtype=np.bool_)  # (2)
    for i in range(m):
        started[i] = counts[i, 0] > 0
        costs[i], outputs[i] = direction(i, counts[i], model)
    frozen = barred.copy()  # (3)
    while True:  # (5)
        best, u, v = 0.0, -1, -1  # (6), (7)
        old_c, old_o = costs.sum(), outputs.sum()
        for i in range(m):  # (8)
            if started[i]:  # (9)
                for j in range(positions):  # (10)
                    if frozen[i, j] or counts[i, j] >= sizes[i, j]:  # (11)
                        continue
                    counts[i, j] += 1  # (14)
                    c, o = direction(i, counts[i], model)
                    counts[i, j] -= 1  # (16)
                    c, o = old_c - costs[i] + c, old_o - outputs[i] + o
                    if c > budget:  # (19): more of any window never costs less, so it stays out of reach
                        frozen[i, j] = True
                        continue
                    score = _score(metric, o, c, old_o, old_c)
                    if score > best:  # (17)
                        best, u, v = score, i, j
            elif not frozen[i, 0]:  # (21)
                counts[i, :] = 1
                c, o = direction(i, counts[i], model)
                counts[i, :] = 0
                c, o = old_c + c, old_o + o
                score = _score(metric, o, c, old_o, old_c) if c <= budget else -1.0
                if score > best:  # (25)
                    best, u, v = score, i, -1
        if u == -1:  # (27)
            return counts
        if v == -1:  # (29)
            started[u] = True
            counts[u, :] = 1
        else:
            counts[u, v] += 1  # (32)
        costs[u], outputs[u] = direction(u, counts[u], model)


@njit
def _down(budget: float, metric: int, begin: Ints, kept: Flags, model: Model) -> Ints:  # pragma: no cover - compiled
    """Greedy reverse, from a given setting: slices go until the work fits, except those to keep.

    With the last slice of any of its windows a direction goes altogether.

    Section 6.1 says no more about it.  The step taken is the one whose result the metric likes best; for the delta
    metric that is the least output lost for the work saved.
    """
    sizes = model.sizes
    m, positions = sizes.shape
    counts = begin.copy()
    costs, outputs = np.zeros(m), np.zeros(m)
    for i in range(m):
        costs[i], outputs[i] = direction(i, counts[i], model)
    while costs.sum() > budget:
        best, u, v = -np.inf, -1, -1
        old_c, old_o = costs.sum(), outputs.sum()
        for i in range(m):
            for j in range(positions):
                # The last slice takes the direction with it, and what is to be kept as well.
                if counts[i, j] == 0 or kept[i, j] or (counts[i, j] == 1 and kept[i].any()):
                    continue
                counts[i, j] -= 1
                c, o = direction(i, counts[i], model)
                if counts[i, j] == 0:
                    c = 0.0  # without a slice of this window the others need not be looked at
                counts[i, j] += 1
                c, o = old_c - costs[i] + c, old_o - outputs[i] + o
                if metric == 2:
                    saved = old_c - c
                    score = -(old_o - o) / saved if saved > 0 else -np.inf
                else:
                    score = _score(metric, o, c, old_o, old_c)
                if score > best or u == -1:
                    best, u, v = score, i, j
        if u == -1:
            return counts
        counts[u, v] -= 1
        if counts[u, v] == 0:
            counts[u, :] = 0
        costs[u], outputs[u] = direction(u, counts[u], model)
        if counts[u, 0] == 0:
            costs[u], outputs[u] = 0.0, 0.0
    return counts


@njit
def _refined(budget: float, counts: Ints, model: Model) -> Ints:  # pragma: no cover - compiled
    """A setting that no exchange makes better: one more slice for others, or a direction for others."""
    sizes = model.sizes
    m, positions = sizes.shape
    none = np.zeros((m, positions), dtype=np.bool_)
    fixed = none.copy()
    counts = _up(budget, 2, counts, none, model)
    best = evaluated(counts, model)[1]
    for _ in range(ROUNDS):
        better = counts
        for i in range(m):
            for j in range(-1, positions):
                tried = counts.copy()
                fixed[:, :] = False
                if j >= 0:
                    if counts[i, j] == sizes[i, j]:
                        continue
                    if counts[i, 0] == 0:
                        tried[i, :] = 1
                    tried[i, j] = min(sizes[i, j], tried[i, j] + 1)
                    fixed[i, j] = True
                    tried = _down(budget, 2, tried, fixed, model)
                    fixed[i, j] = False
                elif counts[i, 0] > 0:
                    tried[i, :] = 0
                    fixed[i, :] = True
                else:
                    continue
                tried = _up(budget, 2, tried, fixed, model)
                cost, output = evaluated(tried, model)
                if cost <= budget and output > best * (1 + 1e-9):
                    best, better = output, tried
        if better is counts:
            return counts
        counts = better
    return counts


def _exhaustive(model: Model, budget: float) -> Ints:
    """The best setting.  Directions share nothing but the budget, so only the best of each cost needs combining."""
    m, positions = model.sizes.shape
    fronts = []
    for i in range(m):
        grid = np.indices(tuple(model.sizes[i])).reshape(positions, -1).T + 1
        options = np.vstack([np.zeros((1, positions), dtype=np.int64), grid.astype(np.int64)])
        prices = priced(i, options, model)
        fronts.append((options, prices[:, 0], prices[:, 1], np.arange(len(options))[:, None]))
    costs, outputs, chosen = np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.int64)
    for _, c, o, number in fronts:
        costs = (costs[:, None] + c[None, :]).ravel()
        outputs = (outputs[:, None] + o[None, :]).ravel()
        chosen = np.hstack([np.repeat(chosen, c.size, axis=0), np.tile(number, (chosen.shape[0], 1))])
        kept = _front(costs, outputs, budget)
        costs, outputs, chosen = costs[kept], outputs[kept], chosen[kept]
    best = int(np.argmax(outputs))
    return np.array([fronts[i][0][chosen[best, i]] for i in range(m)], dtype=np.int64)


def _front(costs: Floats, outputs: Floats, budget: float) -> Ints:
    """Settings within the budget that no cheaper one beats."""
    order = np.lexsort((-outputs, costs))
    order = order[costs[order] <= budget]
    before = np.concatenate([[-1.0], np.maximum.accumulate(outputs[order])[:-1]]) if order.size else np.zeros(0)
    return order[outputs[order] > before]

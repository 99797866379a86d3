"""Random joins in numbers, as in the paper's section 6.1."""

from __future__ import annotations

import numpy as np

from dovetail.families.shedding.optimizer.model import NESTED, Costs, Model, build_model


def random_model(random: np.random.Generator, m: int, n: int, *, correlated: bool, costs: Costs = NESTED) -> Model:
    """Rates from 100 to 500, random selectivities, orders by low selectivity first, flat or random correlations."""
    rates = random.uniform(100, 500, m)
    selectivity = random.uniform(0, 0.01, (m, m))
    orders = np.array([[side for side in np.argsort(selectivity[i]) if side != i] for i in range(m)])
    rows = np.tile(rates[None, :, None] * 10.0 / n, (m, 1, n))
    scores = np.ones((m, m, n))
    if correlated:
        middle, width = random.uniform(0, n, (m, m, 1)), random.uniform(0.05 * n, 0.5 * n, (m, m, 1))
        scores = np.exp(-0.5 * ((np.arange(n) + 0.5 - middle) / width) ** 2)
    fanouts = np.array([[selectivity[i, side] * rates[side] * 10.0 for side in orders[i]] for i in range(m)])
    return build_model(rates, orders, rows, scores, fanouts, costs=costs)

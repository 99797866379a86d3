"""Cost model and harvest settings: against plain formulas, against enumeration, and the paper's claims on
optimality.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.errors import ArgumentError
from dovetail.families.shedding.optimizer.drop_rates import keep_rates, kept_work
from dovetail.families.shedding.optimizer.fractions import METHODS, METRICS, harvest_counts
from dovetail.families.shedding.optimizer.model import Costs, build_model
from dovetail.families.shedding.optimizer.orders import join_orders

from .models import random_model


def plain(model, counts):
    """Sections 4.2 and 4.3, written out."""
    cost = output = 0.0
    for i in range(len(model.rates)):
        partial = model.rates[i]
        for j in range(model.sizes.shape[1]):
            c = counts[i, j]
            cost += partial * (model.examined[i, j, c] + (model.costs.probe if c else 0))
            partial *= model.yields[i, j, c] * model.fanouts[i, j]
            cost += partial * model.costs.emit
        output += partial
    return cost, output


seeds = st.integers(0, 10_000)


@given(seed=seeds, m=st.integers(2, 4), data=st.data())
def test_model_is_the_formula(seed, m, data):
    random = np.random.default_rng(seed)
    model = random_model(random, m, 4, correlated=data.draw(st.booleans()), costs=Costs(3.0, 2.0))
    counts = random.integers(1, 5, (m, m - 1))
    assert model.evaluated(counts) == pytest.approx(plain(model, counts))
    # One slice more of any window never gives less, and never costs less.
    for i, j in product(range(m), range(m - 1)):
        if counts[i, j] < 4:
            more = counts.copy()
            more[i, j] += 1
            assert model.cost(more) >= model.cost(counts)
            assert model.output(more) >= model.output(counts)


def test_flat_correlations_make_the_yield_the_fraction():
    model = random_model(np.random.default_rng(1), 3, 10, correlated=False)
    assert model.yields[0, 0] == pytest.approx(np.arange(11) / 10)


@given(seed=seeds, z=st.floats(0.01, 1.0), m=st.integers(2, 5), correlated=st.booleans())
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", METHODS[:3])
def test_settings_fit(method, metric, seed, z, m, correlated):
    model = random_model(np.random.default_rng(seed), m, 6, correlated=correlated)
    for refined in (False, True):
        counts = harvest_counts(model, z, method=method, metric=metric, refined=refined)
        assert model.cost(counts) <= z * model.cost(model.full) * (1 + 1e-9)
        assert ((counts >= 0) & (counts <= model.sizes)).all()
        # A direction looks into all windows or into none.
        assert ((counts > 0).all(axis=1) | (counts == 0).all(axis=1)).all()


@pytest.mark.in_turns(group="several seconds")
@given(seed=seeds, z=st.floats(0.02, 0.98), correlated=st.booleans())
def test_exhaustive_is_the_best_of_all(seed, z, correlated):
    model = random_model(np.random.default_rng(seed), 3, 3, correlated=correlated)
    budget = z * model.cost(model.full) * (1 + 1e-12)
    one = [(0, 0), *product(range(1, 4), range(1, 4))]
    every = [np.array(rows) for rows in product(one, one, one)]
    best = max(o for c, o in map(model.evaluated, every) if c <= budget)
    found = harvest_counts(model, z, method="exhaustive")
    assert model.output(found) == pytest.approx(best)
    assert model.cost(found) <= budget


def test_everything_at_full_throttle():
    model = random_model(np.random.default_rng(3), 3, 10, correlated=True)
    for method in METHODS:
        assert (harvest_counts(model, 1.0, method=method) == model.sizes).all()


@pytest.mark.parametrize("correlated", [False, True])
def test_near_the_optimum(correlated):
    """The claim of Figure 7, on fewer cases than experiments/grubjoin: 0.98 everywhere, optimal above 0.4."""
    random = np.random.default_rng(7)
    models = [random_model(random, 3, 10, correlated=correlated) for _ in range(25)]
    for z in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        ratios = [
            model.output(harvest_counts(model, z)) / model.output(harvest_counts(model, z, method="exhaustive"))
            for model in models
        ]
        assert np.mean(ratios) >= (0.98 if z <= 0.4 else 0.99)


def test_only_known_words():
    model = random_model(np.random.default_rng(3), 2, 3, correlated=True)
    with pytest.raises(ArgumentError, match="metric='best'"):
        harvest_counts(model, 0.5, metric="best")
    with pytest.raises(ArgumentError, match="method='all'"):
        harvest_counts(model, 0.5, method="all")


def test_richer_slices_rank_first_for_their_rows():
    rows = np.zeros((2, 2, 3))
    rows[0, 1] = [10.0, 1.0, 0.0]
    rows[1, 0] = 1.0
    scores = np.tile([0.6, 0.4, 0.0], (2, 2, 1))
    model = build_model([1.0, 1.0], np.array([[1], [0]]), rows, scores, np.ones((2, 1)))
    assert model.ranking[0, 0].tolist() == [1, 0, 2]
    assert model.ranking[1, 0].tolist() == [0, 1, 2]


@given(seed=seeds, m=st.integers(2, 5))
def test_orders_follow_links_then_selectivity(seed, m):
    random = np.random.default_rng(seed)
    selectivity = random.random((m, m))
    linked = random.random((m, m)) < 0.5
    linked |= linked.T
    for i, order in enumerate(join_orders(selectivity, linked).tolist()):
        assert sorted([i, *order]) == list(range(m))
        chosen = [i]
        for side in order:
            left = [other for other in order if other not in chosen]
            near = [other for other in left if linked[other, chosen].any()] or left
            assert side == min(near, key=lambda other: selectivity[i, other])
            chosen.append(side)


@given(seed=seeds, z=st.floats(0.05, 1.0), m=st.integers(2, 4))
def test_dropping_loses_least(seed, z, m):
    model = random_model(np.random.default_rng(seed), m, 3, correlated=False)
    keep, orders = keep_rates([model], z)
    assert orders.tolist() == model.orders.tolist()
    budget = z * kept_work(model, np.ones(m)).sum()
    assert kept_work(model, keep).sum() <= budget * (1 + 1e-9)
    # No other mix within the budget keeps much more of the output; steps are of 2 %.
    random = np.random.default_rng(seed + 1)
    for _ in range(50):
        other = np.minimum(1.0, keep * np.exp(random.normal(0, 0.2, m)))
        if kept_work(model, other).sum() <= budget:
            assert other.prod() <= keep.prod() * 1.06


def test_dropping_looks_into_the_thinned_window_first():
    """Three like inputs.  Where all join orders begin with the input that is thinned, work falls as output does."""
    rows, few = np.full((3, 3, 4), 100.0), np.full((3, 2), 0.01)
    ways = [np.array([[1, 2], [2, 0], [0, 1]]), np.array([[2, 1], [0, 2], [1, 0]])]
    models = [build_model(np.ones(3), orders, rows, rows, few) for orders in ways]
    keep, _ = keep_rates(models[:1], 0.25)
    assert keep.prod() == pytest.approx(0.25**1.5, rel=0.1)
    keep, orders = keep_rates(models, 0.25)
    assert keep.prod() == pytest.approx(0.25, rel=0.1)
    thin = int(keep.argmin())
    assert all(orders[i, 0] == thin for i in range(3) if i != thin)


@examples(20)
@given(seed=seeds, z=st.floats(0.05, 0.9), m=st.integers(2, 3))
def test_dropping_stays_with_its_rates(seed, z, m):
    """Rates in use stay where nothing changed, and follow the throttle from there."""
    model = random_model(np.random.default_rng(seed), m, 3, correlated=False)
    full = kept_work(model, np.ones(m)).sum()
    first, _ = keep_rates([model], z)
    assert keep_rates([model], z, first)[0] == pytest.approx(first, rel=0.05)
    for other in (0.7 * z, min(1.0, 1.4 * z)):
        moved, _ = keep_rates([model], other, first)
        assert kept_work(model, moved).sum() <= other * full * (1 + 1e-9)
        assert moved.prod() * 4.01 >= keep_rates([model], other)[0].prod()

"""RandomDrop: which part of each input's rows to keep, so that the work fits and least output is lost.

The static optimisation that the paper takes from Ayad and Naughton (SIGMOD 2004): rows are dropped before they
enter, so an input at the rate k drives k as many looks and fills its window k as much, and the output falls with the
product of all k.  Join orders are part of it, as they are there: a window that has lost most of its rows is the one
to look into first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.families.shedding.optimizer.model import Floats, Ints, Model

STEP = 0.98
"""Each step drops so much of one input: all steps lose the same part of the output."""
FEWEST = 1e-4
"""The part of an input that is kept at least."""
WORTH = 4.0
"""Other rates must promise so much more output than those in use, adjusted: windows take their time to follow, and as
long as they hold rows of older rates, what they tell about an input is off.
"""


def kept_work(model: Model, keep: Floats) -> Floats:
    """The full work of each direction on what is left of the inputs."""
    full = np.take_along_axis(model.examined, model.sizes[..., None], axis=2)[..., 0]
    others = keep[model.orders]
    partial, total = model.rates * keep, np.zeros(keep.size)
    for j in range(model.sizes.shape[1]):
        total += partial * (model.costs.probe + full[:, j] * others[:, j])
        partial = partial * model.fanouts[:, j] * others[:, j]
        total += partial * model.costs.emit
    return total


def keep_rates(models: Sequence[Model], z: float, before: Floats | None = None) -> tuple[Floats, Ints]:
    """The part of each input to keep, such that the work is at most z times the full work, and the join orders.

    Every direction takes the order that is cheapest for it.  For given orders the output is, in logarithms, the sum of
    what is kept, and the work is convex, so taking the step that saves most, again and again, leads to the optimum.

    Parameters
    ----------
    models
        The join in numbers, once for each choice of join orders.
    z
        The throttle fraction.
    before
        The rates in use, from which there should be a reason to depart: several optima are often as good as each
        other, and with every change rows are in the windows that the new rates would not have kept.

    Examples
    --------
    >>> from dovetail.families.shedding.optimizer.model import build_model
    >>> orders, rows = np.array([[1], [0]]), np.zeros((2, 2, 4))
    >>> rows[0, 1], rows[1, 0] = 10.0, 10.0
    >>> model = build_model([5.0, 5.0], orders, rows, rows, np.full((2, 1), 2.0))
    >>> keep, orders = keep_rates([model], 0.25)
    >>> round(float(keep.prod()), 2)  # a match needs both of its rows
    0.25
    """
    budget = z * _least(models, np.ones(models[0].rates.size))
    keep = _fitted(models, np.ones(models[0].rates.size), budget)
    if before is not None:
        near = _fitted(models, before, budget)
        if near.prod() * WORTH >= keep.prod():
            keep = near
    best = np.argmin([kept_work(model, keep) for model in models], axis=0)
    return keep, np.array([models[at].orders[i] for i, at in enumerate(best)])


def _least(models: Sequence[Model], keep: Floats) -> float:
    return float(np.min([kept_work(model, keep) for model in models], axis=0).sum())


def _fitted(models: Sequence[Model], keep: Floats, budget: float) -> Floats:
    """Rates near some others that use a budget: steps up where they cost least, then down where they save most."""
    keep = keep.copy()
    while True:
        options = [_moved(keep, i, 1 / STEP) for i in range(keep.size) if keep[i] < 1.0]
        priced = [(_least(models, option), at) for at, option in enumerate(options)]
        if not priced or min(priced)[0] > budget:
            break
        keep = options[min(priced)[1]]
    while _least(models, keep) > budget and keep.min() > FEWEST:
        options = [_moved(keep, i, STEP) for i in range(keep.size)]
        keep = options[int(np.argmin([_least(models, option) for option in options]))]
    return keep


def _moved(keep: Floats, i: int, by: float) -> Floats:
    other = keep.copy()
    other[i] = min(1.0, other[i] * by)
    return other

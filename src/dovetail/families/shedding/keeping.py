"""RandomDrop: which part of each input's rows to keep, so that the work fits and least output is lost.

The static optimisation that the paper takes from Ayad and Naughton (SIGMOD 2004): rows are dropped before they
enter, so an input at the rate k drives k as many looks and fills its window k as much, and the output falls with the
product of all k.
"""

from __future__ import annotations

import numpy as np

from dovetail.families.shedding.model import Floats, Model

STEP = 0.98
"""Each step drops so much of one input: all steps lose the same part of the output."""


def kept_work(model: Model, keep: Floats) -> float:
    """The full work on what is left of the inputs."""
    full = np.take_along_axis(model.examined, model.sizes[..., None], axis=2)[..., 0]
    others = keep[model.orders]
    total = 0.0
    for i in range(model.rates.size):
        partial = model.rates[i] * keep[i]
        for j in range(model.sizes.shape[1]):
            total += partial * (model.costs.probe + full[i, j] * others[i, j])
            partial *= model.fanouts[i, j] * others[i, j]
            total += partial * model.costs.emit
    return float(total)


def keep_rates(model: Model, z: float) -> Floats:
    """The part of each input to keep, such that the work is at most z times the full work.

    In logarithms the output is the sum of what is kept and the work is convex, so taking the step that saves most,
    again and again, leads to the optimum.

    Examples
    --------
    >>> from dovetail.families.shedding.model import build_model
    >>> orders, rows = np.array([[1], [0]]), np.zeros((2, 2, 4))
    >>> rows[0, 1], rows[1, 0] = 10.0, 10.0
    >>> model = build_model([5.0, 5.0], orders, rows, rows, np.full((2, 1), 2.0))
    >>> round(float(keep_rates(model, 0.25).prod()), 2)  # a match needs both of its rows
    0.25
    """
    keep = np.ones(model.rates.size)
    budget = z * kept_work(model, keep)
    while kept_work(model, keep) > budget and keep.min() > 1e-4:
        trials = []
        for i in range(keep.size):
            fewer = keep.copy()
            fewer[i] *= STEP
            trials.append(kept_work(model, fewer))
        keep[int(np.argmin(trials))] *= STEP
    return keep

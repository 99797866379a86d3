"""Rows of the experiments: values in [0; 1], drawn as in the skyline papers, in the order of the first column."""

from __future__ import annotations

import numpy as np

KINDS = ("uniform", "correlated", "anti-correlated", "normal")


def rows(kind: str, size: int, axes: int, seed: int, decimals: int | None = None) -> np.ndarray:
    """Rows of one input; `decimals` rounds the first column."""
    random = np.random.default_rng([seed, size, axes, KINDS.index(kind)])
    if kind == "uniform":
        made = random.random((size, axes))
    elif kind == "normal":
        made = random.normal(0.5, 0.15, (size, axes))
    else:
        # A point on the diagonal, and values around it; against it, values that add up to the same.
        centre = random.normal(0.5, 0.25 if kind == "correlated" else 0.06, size)[:, None]
        around = (
            random.normal(0, 0.05, (size, axes)) if kind == "correlated" else random.uniform(-0.5, 0.5, (size, axes))
        )
        if kind == "anti-correlated":
            around -= around.mean(axis=1, keepdims=True)
        made = centre + around
    made = np.clip(made, 0, 1)
    if decimals is not None:
        made[:, 0] = np.round(made[:, 0], decimals)
    return np.ascontiguousarray(made[np.argsort(made[:, 0], kind="stable")])

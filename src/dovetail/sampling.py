"""Samples of both sides, from which a routing is fitted.

A dense sample serves tasks of ordinary size.  Very long tasks give a sparse one from some row on, so that the single
task that fits the routing never sees more than it can hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

DENSE, SPARSE = 64, 4096
"""One row of so many is sampled; powers of two, so that the sparse sample is a part of the dense one."""
DEEP = 1 << 21
"""From this row of a task on only the sparse sample is drawn."""

Mask = npt.NDArray[np.bool_]


def even_sample(
    sparse: Mask, deep: Mask, fractions: tuple[float, float] = (1 / DENSE, 1 / SPARSE)
) -> tuple[Mask, float]:
    """Which sampled rows to use, and the share of all rows that they are.

    One sample has one density, or the first rows of a long task would weigh more than the others.

    Parameters
    ----------
    sparse, deep
        For each sampled row, whether the sparse sample has it too, and whether it lies deep in its task.
    fractions
        Shares of the rows that the dense and the sparse sample hold.

    Examples
    --------
    >>> yes, no = np.ones(3, dtype=bool), np.zeros(3, dtype=bool)
    >>> even_sample(np.array([True, False, False]), no)
    (array([ True,  True,  True]), 0.015625)
    >>> even_sample(np.array([True, False, True]), np.array([False, False, True]))
    (array([ True, False,  True]), 0.000244140625)
    """
    if deep.any():
        return sparse, fractions[1]
    return np.ones_like(sparse), fractions[0]

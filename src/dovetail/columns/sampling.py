"""Samples of both sides, from which a routing is fitted.

A dense sample serves tasks of ordinary size.  Very long tasks give a sparse one from some row on, so that the single
task that fits the routing never sees more than it can hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

DENSE, SPARSE = 128, 4096
"""One row of so many is sampled; powers of two, so that the sparse sample is a part of the dense one."""
DEEP = 1 << 21
"""From this row of a task on only the sparse sample is drawn."""

Mask = npt.NDArray[np.bool_]


def even_sample(
    draw: npt.NDArray[np.int64], deep: Mask, fractions: tuple[float, float] = (1 / DENSE, 1 / SPARSE)
) -> tuple[Mask, float]:
    """Which sampled rows to use, and the share of all rows that they are.

    One sample has one density, or the first rows of a long task would weigh more than the others.

    Parameters
    ----------
    draw, deep
        For each sampled row its random number, which tells whether the sparse sample has it too, and whether it lies
        deep in its task.
    fractions
        Shares of the rows that the dense and the sparse sample hold.

    Examples
    --------
    >>> draw = np.array([SPARSE, DENSE, 0])
    >>> even_sample(draw, np.zeros(3, dtype=bool))
    (array([ True,  True,  True]), 0.0078125)
    >>> even_sample(draw, np.array([False, False, True]))
    (array([ True, False,  True]), 0.000244140625)
    """
    if deep.any():
        return (draw & (SPARSE - 1)) == 0, fractions[1]
    return np.ones_like(deep), fractions[0]

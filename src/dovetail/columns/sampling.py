"""Samples of both sides, from which a routing is fitted.

A dense sample serves tasks of ordinary size.  Very long tasks give a sparse one from some row on, so that the single
task that fits the routing never sees more than it can hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.encode import usable

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


def sampled_sides(
    batch: pa.RecordBatch, keys: tuple[int, int], *, hashed: bool, fractions: tuple[float, float]
) -> list[tuple[float, pa.RecordBatch]]:
    """For each side how many rows it may have that can match, and the keys (and hash) of those in the sample.

    A batch has the random number of each row, whether it lies deep in its task, and its side; then the keys, and
    the hash if they are `hashed`, of one side and those of the other, NULL on rows of the other side.
    """
    draw, deep, side = (batch.column(at).to_numpy(zero_copy_only=False) for at in range(3))
    chosen, fraction = even_sample(draw, deep, fractions)
    found, first = [], 3
    for which, count in enumerate(keys):
        width = count + hashed
        part = batch.select(range(first, first + width)).take(np.flatnonzero(chosen & (side == which)))
        first += width
        good = np.flatnonzero(usable(list(part.columns[:count])))
        found.append((good.size / fraction, part.take(good)))
    return found

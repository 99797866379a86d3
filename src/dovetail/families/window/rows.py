"""The rows of a window join as its algorithms see them: times, groups of equal keys, further conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Windows = npt.NDArray[np.int64]
"""Shape (n, n, 2): rows of inputs i and j match only if windows[i, j, 0] <= t_j - t_i <= windows[i, j, 1].

The matrix is closed by shortest paths, and windows[j, i] is windows[i, j] reversed and negated.
"""


@dataclass
class Side:
    """One input, its rows in the order of their arrival."""

    times: npt.NDArray[np.int64]
    """Event times."""
    groups: npt.NDArray[np.int64]
    """Codes of the equality keys: equal codes are equal keys.  Zero everywhere where there are no keys."""


@dataclass
class Condition:
    """A further condition between two inputs: low[box row] <= point[point row] <= high[box row]."""

    point_side: int
    box_side: int
    point: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]

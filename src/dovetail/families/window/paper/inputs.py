"""The rows of a window join as the paper's algorithms see them: times, groups of equal keys, further conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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

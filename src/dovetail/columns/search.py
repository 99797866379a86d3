"""Compiled search in sorted values, for many ranges at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import Codes
from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]

_NEAR = 8
"""Steps ahead that a search tries one by one."""


@njit
def first_not_below(values: Codes, wanted: int, low: int, high: int, hint: int) -> int:  # pragma: no cover
    """Smallest position in [low, high] whose value is >= wanted; walks, then gallops, from `hint`."""
    at = min(max(hint, low), high)
    step = 1
    if at == low or values[at - 1] < wanted:
        # Whoever asks in ascending order finds it a step or two ahead, where a gallop would overshoot.
        near = min(at + _NEAR, high)
        while at < near and values[at] < wanted:
            at += 1
        if at < near or at == high:
            return at
        low = at
        while low + step < high and values[low + step] < wanted:
            low += step + 1
            step *= 2
        high = min(high, low + step)
    else:
        high = at - 1
        while high - step > low and values[high - step] >= wanted:
            high -= step
            step *= 2
        low = max(low, high - step)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def grouped_runs(
    ordered: Codes, bounds: Index, group: Index, low: Codes, high: Codes
) -> tuple[Index, Index]:  # pragma: no cover
    """For each box the run [start, stop) of the values of its group inside [low, high]; no `group` is one for all."""
    start = np.empty(low.size, dtype=np.int64)
    stop = np.empty(low.size, dtype=np.int64)
    near, far = 0, 0
    top = np.iinfo(np.int64).max
    for j in range(low.size):
        own = group[j] if group.size else 0
        begin, end = bounds[own], bounds[own + 1]
        near = first_not_below(ordered, low[j], begin, end, near)
        if high[j] < low[j]:
            far = near
        elif high[j] == top:
            far = end
        else:
            far = first_not_below(ordered, high[j] + 1, near, end, far)
        start[j], stop[j] = near, far
    return start, stop


@njit
def passed(ordered: Codes, wanted: Codes, strict: bool) -> Index:  # pragma: no cover
    """How many of the sorted values are below each wanted one, or (not `strict`) at most as large."""
    out = np.empty(wanted.size, dtype=np.int64)
    at, top = 0, np.iinfo(np.int64).max
    for k in range(wanted.size):
        if strict:
            at = first_not_below(ordered, wanted[k], 0, ordered.size, at)
        elif wanted[k] == top:
            at = ordered.size
        else:
            at = first_not_below(ordered, wanted[k] + 1, 0, ordered.size, at)
        out[k] = at
    return out

"""When rows of a window join are late, and when they can go: plain numbers, for kernels and readers of their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dovetail.families.window.graph import WindowMatrix

NEVER = 1 << 63  # one more than the last time that there is


def watermarks_of(max_times: Sequence[int | None], delays: Sequence[int], idle: int | None) -> list[int]:
    """For each input the earliest time that is not late.

    Examples
    --------
    >>> watermarks_of([100, 50], [10, 0], None), watermarks_of([100, 50], [10, 0], 20)
    ([90, 50], [90, 80])
    """
    lowest = int(np.iinfo(np.int64).min)
    watermarks = [
        lowest if max_time is None else max(lowest, max_time - delay)
        for max_time, delay in zip(max_times, delays, strict=True)
    ]
    seen = [max_time for max_time in max_times if max_time is not None]
    if idle is not None and seen:
        watermarks = [max(watermark, max(seen) - idle) for watermark in watermarks]
    return [int(watermark) for watermark in watermarks]


def expiry_of(hull: WindowMatrix, watermarks: Sequence[int]) -> list[int]:
    """For each input the time before which its rows can match nothing that is still to come.

    Examples
    --------
    >>> expiry_of(np.array([[[0, 0], [-5, 5]], [[-5, 5], [0, 0]]]), [90, 80])
    [75, 85]
    """
    sides = range(len(watermarks))
    return [
        min(max(-NEVER, watermarks[other] - int(hull[side, other, 1])) for other in sides if other != side)
        for side in sides
    ]


def closing_of(hull: WindowMatrix, core: Sequence[int], extras: Sequence[int], watermarks: Sequence[int]) -> list[int]:
    """For each input of the core the time before which its rows close the matches that extra inputs complete."""
    return [
        min(max(-NEVER, watermarks[extra] - int(hull[side, extra, 1])) for extra in extras if side != extra)
        if side in core
        else -NEVER
        for side in range(len(watermarks))
    ]


def completed_expiry_of(
    hull: WindowMatrix, core: Sequence[int], extras: Sequence[int], watermarks: Sequence[int]
) -> list[int]:
    """What :func:`expiry_of` gives, where extra inputs complete the matches of others."""
    expiry = expiry_of(hull, watermarks)
    closing = closing_of(hull, core, extras, watermarks) if extras else []
    for extra in extras:
        # The matches that a row completes lie in its windows: once these are passed no more come, and once
        # the last row that one of its inputs may bring to them would close them, they are closed.
        last = [int(hull[extra, side, 1]) for side in core]
        come = min(watermarks[side] - far for side, far in zip(core, last, strict=True))
        closed = max(closing[side] - far for side, far in zip(core, last, strict=True))
        expiry[extra] = max(-NEVER, min(come, closed))
    return expiry

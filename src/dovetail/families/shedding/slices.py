"""Slices of windows by age: the paper's logical basic windows.

The age of a row of input l, as a row of input i sees it, is t_i - t_l.  Ages are cut at multiples of the slice's
length, so slice borders move with the row that looks, as in the paper.  There, basic windows of stored rows are
needed to find a slice; here rows are sorted by time, and a slice is a range of times.  Windows reach into the
future, too: rows of a micro-batch meet in any order, and one input may be behind another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.errors import ArgumentError
from dovetail.families.shedding.optimizer.model import Flags, Floats, Ints
from dovetail.families.window.encode import Index
from dovetail.families.window.graph import WindowMatrix
from dovetail.families.window.indexes import BY_TIME, IndexedInput

MOST = 400
"""Slices of one window at most."""
USUAL = 10
"""Slices of the longest reach where the user names no length."""
FEW = 64
"""Rows that tell how full the slices are, where all rows look everywhere."""

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Slices:
    """The slices of all windows of a join; arrays are (m, m), by the input that looks and the input looked at.

    Examples
    --------
    >>> hull = np.zeros((2, 2, 2), dtype=np.int64)
    >>> hull[0, 1], hull[1, 0] = (-10, 10), (-10, 10)
    >>> slices = Slices.of(hull, 5)
    >>> int(slices.counts[0, 1]), slices.number(0, 1, np.array([-10, -1, 0, 4, 5, 10])).tolist()
    (5, [0, 1, 2, 2, 3, 4])
    >>> slices.spans(0, 1, np.array([False, False, True, True, False]))
    [(-9, 0)]
    """

    width: int
    youngest: Ints
    """The least age, below zero where the window reaches into the future."""
    oldest: Ints
    first: Ints
    """The number of the slice of the least age, counted from age zero."""
    counts: Ints

    @classmethod
    def of(cls, hull: WindowMatrix, width: int | None = None) -> Slices:
        """Slices of windows; `width` is a tenth of the longest reach by default."""
        youngest, oldest = -hull[..., 1], -hull[..., 0]
        reach = int(max(abs(int(hull.min())), int(hull.max()), 1))
        width = max(1, -(-reach // USUAL)) if width is None else width
        first = youngest // width
        counts = oldest // width - first + 1
        if int(counts.max()) > MOST:
            raise ArgumentError(
                f"slices of {width} in a window of {reach} make {int(counts.max())} of them",
                accepted=f"a basic_window that makes at most {MOST} slices",
            )
        return cls(width, youngest, oldest, first, counts)

    @property
    def most(self) -> int:
        """Slices of the window that has most."""
        return int(self.counts.max())

    def number(self, i: int, l: int, ages: Times) -> Times:  # noqa: E741 - the paper's name
        """The slices of ages."""
        numbers = ages // self.width - self.first[i, l]
        return np.asarray(np.clip(numbers, 0, self.counts[i, l] - 1), dtype=np.int64)

    def ages(self, i: int, l: int) -> Times:  # noqa: E741
        """Where slices begin, and where the last one ends: ages of slice k are in [ages[k], ages[k + 1])."""
        borders = (self.first[i, l] + np.arange(self.counts[i, l] + 1)) * self.width
        borders[0], borders[-1] = self.youngest[i, l], self.oldest[i, l] + 1
        return np.asarray(borders, dtype=np.int64)

    def spans(self, i: int, l: int, selected: Flags) -> list[tuple[int, int]]:  # noqa: E741
        """Ranges of t_l - t_i that the selected slices cover, ends included, neighbours joined."""
        borders = self.ages(i, l)
        flags = np.concatenate([[False], selected[: self.counts[i, l]], [False]]).astype(np.int8)
        begins, ends = np.flatnonzero(np.diff(flags) == 1), np.flatnonzero(np.diff(flags) == -1)
        return [(1 - int(borders[end]), -int(borders[begin])) for begin, end in zip(begins, ends, strict=True)]

    def everything(self) -> Flags:
        """The selection of all slices, (m, m, n)."""
        return np.asarray(np.arange(self.most)[None, None, :] < self.counts[..., None], dtype=np.bool_)


def slice_rows(slices: Slices, i: int, l: int, times: Index, rows: IndexedInput) -> Floats:  # noqa: E741 - as in the paper
    """Rows of an input in each slice, as rows of these times see them, added up."""
    counts, asked = np.zeros(slices.most), times.size
    if times.size > FEW:
        times = times[:: -(-times.size // FEW)]
    # Ages grow as times fall: the border of an age is a time, and a slice lies between two of them.
    borders = times[:, None] - slices.ages(i, l)[None, :]
    size = borders.shape[1] - 1
    for segment in rows.segments:
        if segment.size:
            ordered = segment.index(BY_TIME).times
            positions = np.searchsorted(ordered, borders.ravel(), side="right").reshape(borders.shape)
            counts[:size] += (positions[:, :-1] - positions[:, 1:]).sum(axis=0)
    return counts * (asked / max(times.size, 1))

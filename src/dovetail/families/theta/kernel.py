"""Theta kernels: points on the left, boxes on the right, matches as row indices.

Every theta condition between two inputs takes one shape here.  The left side is a set of points, one coordinate
per *dimension*; the right side is a set of boxes, one inclusive range per dimension; a pair matches where the
point lies in the box.  ``L.x < R.y`` is the range up to ``code(y) - 1``; a band is a range with two ends;
interval overlap is two dimensions with one open end each.  Equality keys arrive as group numbers.

Three compiled kernels share the work, none of which looks at pairs that do not match in their dimensions:

``range``
    one dimension: sort the points, and each box is one run of them, found by binary search.
``sweep``
    two half-open dimensions, the shape of interval overlap: insert the points in the order of the first
    dimension into a hierarchical bitmap laid out in the order of the second, and read each box off it.  An IEJoin
    scans its bit array; the hierarchy jumps from set bit to set bit, so the cost follows the output.
``grid``
    two bounded dimensions: sort the points by (column of the first dimension, second dimension); a box visits the
    few columns it touches.

Further dimensions filter what these find.  Output leaves in chunks, so that a large result never has to fit in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.columns.codes import HIGHEST, LOWEST, Codes, Mask
from dovetail.columns.encode import Boxes, Points
from dovetail.columns.partition import group_by_cell
from dovetail.columns.search import grouped_runs
from dovetail.families.theta import compiled

Index = npt.NDArray[np.int64]

CHUNK = 1 << 18
"""Pairs per chunk of output: large enough to amortise a call, small enough to stay in the cache."""


@dataclass
class Counters:
    """What a kernel did: pairs it compared one by one, and pairs it found."""

    comparisons: int = 0
    results: int = 0


def pairs(left: Points, right: Boxes, counters: Counters, *, chunk: int = CHUNK) -> Iterator[tuple[Index, Index]]:
    """Matching (left row, right row) pairs, in chunks of at most `chunk`.

    Examples
    --------
    >>> left = Points(np.array([[10, 20, 30]]))
    >>> right = Boxes(low=np.array([[15, 0]]), high=np.array([[40, 10]]))
    >>> for i, j in pairs(left, right, Counters()):
    ...     print(sorted(zip(i.tolist(), j.tolist())))
    [(0, 1), (1, 0), (2, 0)]
    """
    if len(left) == 0 or len(right) == 0:
        return
    dimensions = choose_dimensions(right)
    if len(dimensions) == 2 and is_half_open(right, dimensions[0]) and is_half_open(right, dimensions[1]):
        yield from _sweep(left, right, dimensions, counters, chunk)
    elif len(dimensions) == 2:
        yield from _grid(left, right, dimensions, counters, chunk)
    else:
        yield from _range(left, right, dimensions[0] if dimensions else None, counters, chunk)


def matched(left: Points, right: Boxes, counters: Counters) -> Mask:
    """Which left rows have a match: what semi and anti joins need, without listing the pairs.

    Examples
    --------
    >>> matched(Points(np.array([[1, 5]])), Boxes(np.array([[4]]), np.array([[9]])), Counters()).tolist()
    [False, True]
    """
    has_match = np.zeros(len(left), dtype=np.bool_)
    if len(left) == 0 or len(right) == 0:
        return has_match
    dimensions = choose_dimensions(right)
    if len(left.coordinates) <= 1:
        # One dimension: the boxes are runs of the sorted points, so their union is a running sum.
        run = _Runs(left, right, dimensions[0] if dimensions else None)
        has_match[run.order] = compiled.covered(run.start, run.stop, len(left))
        counters.results += int(has_match.sum())
        return has_match
    for i, _ in pairs(left, right, counters):
        has_match[i] = True
    return has_match


def is_half_open(boxes: Boxes, dimension: int) -> bool:
    """Whether every box is unbounded on one and the same end of `dimension`."""
    low, high = boxes.low[dimension], boxes.high[dimension]
    return bool((low == LOWEST).all() or (high == HIGHEST).all())


def choose_dimensions(boxes: Boxes) -> tuple[int, ...]:
    """The dimensions that find the pairs: two half-open ones, two bounded ones, or one.

    A bounded dimension beside a half-open one is searched alone: the band cuts far more than the half-line.
    """
    count = len(boxes.low)
    bounded = [d for d in range(count) if not is_half_open(boxes, d)]
    if len(bounded) >= 2:
        return bounded[0], bounded[1]
    if len(bounded) == 1:
        return (bounded[0],)
    return tuple(range(min(count, 2)))


def ascending(codes: Codes) -> Index:
    """The rows in the order of their codes, equal ones in their own.

    Sorting numbers takes a fraction of the time of sorting references to them.  So the number of a row rides in the low
    bits of its code; what the code loses for it is put right afterwards.

    Examples
    --------
    >>> ascending(np.array([5, -1, 5, 0])).tolist()
    [1, 3, 0, 2]
    """
    if codes.size > 1:
        least, most = int(codes.min()), int(codes.max())
        bits = int(codes.size - 1).bit_length()
        lost = max(0, (most - least).bit_length() + bits - 64)
        numbered = compiled.numbered(codes, least, lost, bits)
        numbered.sort()
        order = compiled.row_numbers(numbered, codes, lost, bits)
        if order.size:
            return order
    return np.argsort(codes, kind="stable")


def _others(count: int, used: tuple[int, ...]) -> Index:
    return np.array([d for d in range(count) if d not in used], dtype=np.int64)


class _Runs:
    """The left points in the order of (group, coordinate), and the run of them that each box covers.

    `boxes` lists the boxes in the order of their lower end, so that searches move forward through memory and the
    pairs come out nearly sorted on both sides; `start` and `stop` follow that order.
    """

    def __init__(self, left: Points, right: Boxes, dimension: int | None) -> None:
        groups = left.groups_with(right)
        if dimension is None:
            self.order, bounds = group_by_cell(np.arange(len(left)), left.numbers, groups)
            self.boxes = np.arange(len(right))
            self.start, self.stop = bounds[right.numbers], bounds[right.numbers + 1]
            return
        key, low, high = left.coordinates[dimension], right.low[dimension], right.high[dimension]
        self.order = ascending(key)
        self.boxes = ascending(high if low[0] == LOWEST else low)
        if groups > 1:
            # A stable counting sort by group keeps the order of the coordinate inside each group.
            self.order, bounds = group_by_cell(self.order, left.numbers.take(self.order), groups)
            self.boxes, _ = group_by_cell(self.boxes, right.numbers.take(self.boxes), groups)
            group = right.numbers.take(self.boxes)
        else:
            bounds, group = np.array([0, len(left)], dtype=np.int64), np.empty(0, dtype=np.int64)
        # Of two ways to say it in NumPy, brackets take twice the time.
        ordered, low, high = key.take(self.order), low.take(self.boxes), high.take(self.boxes)
        if groups == 1 and (low[1:] >= low[:-1]).all() and (high[1:] >= high[:-1]).all():
            self.start = compiled.passed(ordered, low, False)
            self.stop = np.maximum(self.start, compiled.passed(ordered, high, True))
        else:
            self.start, self.stop = grouped_runs(ordered, bounds, group, low, high)


def _range(
    left: Points, right: Boxes, dimension: int | None, counters: Counters, chunk: int
) -> Iterator[tuple[Index, Index]]:
    run = _Runs(left, right, dimension)
    others = _others(len(right.low), () if dimension is None else (dimension,))
    state = np.zeros(2, dtype=np.int64)
    while state[0] < len(right):
        found = compiled.emit_runs(
            state, run.order, run.boxes, run.start, run.stop, chunk,
            others, left.coordinates, right.low, right.high,
        )  # fmt: skip
        yield from _counted(found, counters)


def _sweep(
    left: Points, right: Boxes, dimensions: tuple[int, ...], counters: Counters, chunk: int
) -> Iterator[tuple[Index, Index]]:
    first, second = dimensions
    # Turn the first dimension so that every box reaches from below: a point enters once the box covers it.
    if (right.low[first] == LOWEST).all():
        entry, reach = left.coordinates[first], right.high[first]
    else:
        entry, reach = ~left.coordinates[first], ~right.low[first]
    run = _Runs(left, right, second)
    position = np.empty(len(left), dtype=np.int64)
    position[run.order] = np.arange(len(left))
    enter = ascending(entry)
    ask = ascending(reach.take(run.boxes))
    boxes = run.boxes[ask]
    inserted = compiled.passed(entry.take(enter), reach.take(boxes), True)
    levels = compiled.bitmap_levels(len(left))
    words = np.zeros(levels[-1], dtype=np.uint64)
    others = _others(len(right.low), dimensions)
    state = np.array([0, 0, -1], dtype=np.int64)
    while state[1] < len(right):
        found = compiled.emit_sweep(
            words, levels, state, position[enter], inserted, run.start[ask], run.stop[ask], chunk,
            run.order, boxes, others, left.coordinates, right.low, right.high,
        )  # fmt: skip
        yield from _counted(found, counters)


def _grid(
    left: Points, right: Boxes, dimensions: tuple[int, ...], counters: Counters, chunk: int
) -> Iterator[tuple[Index, Index]]:
    first, second = dimensions
    x, low, high = left.coordinates[first], right.low[first], right.high[first]
    origin, top = int(x.min()), int(x.max())
    # A column as wide as the typical box, so that a box touches two or three; but never so narrow that columns
    # far outnumber the points.
    typical = np.median(high.astype(np.float64) - low.astype(np.float64))
    width = max(1, int(min(max(typical, 0.0), 2.0**62)), (top - origin) // (4 * len(left)) + 1)
    count = (top - origin) // width + 1
    # Boxes are cut to where points are; an empty box, or one beside all points, touches no column.
    touches = (low <= high) & (high >= origin) & (low <= top)
    first_column = compiled.columns(np.clip(low, origin, top), origin, width)
    last_column = np.where(touches, compiled.columns(np.clip(high, origin, top), origin, width), -1)
    key = left.numbers * count + compiled.columns(x, origin, width)
    by_second = ascending(left.coordinates[second])
    rows = by_second[ascending(key.take(by_second))]
    starts = compiled.runs_starts(key[rows])
    base = right.numbers * count
    # The first dimension only chose the columns, so it is checked again with the others.
    others = _others(len(right.low), (second,))
    state = np.array([0, -1, -1], dtype=np.int64)
    while state[0] < len(right):
        found = compiled.emit_grid(
            state, rows, starts, key[rows[starts[:-1]]], left.coordinates[second][rows],
            base + first_column, base + last_column, second, chunk,
            others, left.coordinates, right.low, right.high,
        )  # fmt: skip
        yield from _counted(found, counters)


def _counted(found: compiled.Found, counters: Counters) -> Iterator[tuple[Index, Index]]:
    i, j, compared = found
    counters.comparisons += compared
    counters.results += len(i)
    if len(i):
        yield i, j

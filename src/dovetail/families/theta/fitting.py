"""The cheapest routing for a sample of both sides: where cells are cut, and what each of them costs.

A cell costs its rows and its results.  Cells are cut at quantiles of the rows; where few rows have most of the results,
as in ``R.x + S.x < 10``, at quantiles of the work that the sample shows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns import spark_hash
from dovetail.columns.cells import Bounds, cells_of, loads, located, quantiles
from dovetail.columns.codes import HIGHEST, LOWEST, Codes
from dovetail.conditions.comparison import Step
from dovetail.families.theta.kernel import Index
from dovetail.families.theta.router import Mode, Routing, Sample

CELL_ROWS = 200_000
"""Rows of both sides that a cell should hold: their keys then sort within a core's cache."""

FINE_CELLS, MOST_ROWS = 512, 400_000
"""From so many cells on they hold up to so many rows: every task cuts its rows into as many segments."""

CELL_BYTES = 64 << 20
"""Bytes of both sides that a cell should hold, as far as the schema tells; wide rows make smaller cells."""

OUTPUT_COST = 0.5
"""What a result costs, where a row costs one."""

PAIRS_SEEN = 64
"""Pairs among the sampled rows that tell where results are."""

PAIRS_IN_CELL = 16
"""Pairs in one cell that tell that it has more results than others: fewer may be chance."""

SEEN_BY_POINT = 32
"""Sampled rows around a sampled point that tell how many it matches where its box would hold hardly any."""

UNEVEN = 1.1
"""The largest cell over the average from which on cells are cut by their results, too."""

MOST_FINER = 4
"""How many times as many cells there may be where some have most of the results."""

CELLS_EACH = 8
"""How many there are at least in each task then."""


def fit(
    step: Step,
    points: Sample,
    boxes: Sample,
    *,
    partitions: int,
    may_copy_points: bool,
    widths: tuple[int, int] = (8, 8),
    lists_pairs: bool = True,
) -> Routing:
    """The cheapest routing for what the samples show.

    `may_copy_points` allows the overlap mode, which is wrong where an unmatched point must be reported once;
    `widths` are the bytes of a row of each side.  Without `lists_pairs` a cell costs its rows alone, however many pairs
    they have: it only asks which points have a match.
    """
    rows, size = points.rows + boxes.rows, points.rows * widths[0] + boxes.rows * widths[1]
    cells = max(partitions, int(np.ceil(size / CELL_BYTES)))
    # A box without an end goes to all cells on its open side, so they are few where nothing is gained by more.
    if lists_pairs or all(axis.low is not None and axis.high is not None for axis in step.axes):
        cells = max(cells, min(int(np.ceil(rows / CELL_ROWS)), FINE_CELLS), int(np.ceil(rows / MOST_ROWS)))
    # As many for each task: of 2,500 equal cells some of 1,000 tasks would get three where two and a half are due.
    cells = partitions * int(np.ceil(cells / partitions))
    candidates: list[tuple[Mode, tuple[int, ...]]] = [("axis", (d,)) for d in range(len(step.axes))]
    if not candidates:
        candidates = [("axis", ())]
    if may_copy_points:
        candidates += [("overlap", pair) for pair in overlap_axes(step)]
    return min(
        (
            _fitted(
                mode,
                axes,
                points,
                boxes,
                cells,
                partitions,
                alone=len(step.axes) <= 1,
                output_cost=OUTPUT_COST if lists_pairs else 0.0,
            )
            for mode, axes in candidates
        ),
        key=lambda routing: float(routing.cost.sum()),
    )


def overlap_axes(step: Step) -> list[tuple[int, int]]:
    """Pairs of axes (start, end) that make both sides intervals: starts bounded above, ends bounded below."""
    upper = [d for d, axis in enumerate(step.axes) if axis.low is None]
    lower = [d for d, axis in enumerate(step.axes) if axis.high is None]
    same = [(s, e) for s in upper for e in lower if step.axes[s].kind == step.axes[e].kind != "rank"]
    return [
        (s, e) for s, e in same
        if step.point_keys[step.axes[s].point].ddl == step.point_keys[step.axes[e].point].ddl
    ]  # fmt: skip


def _fitted(
    mode: Mode,
    axes: tuple[int, ...],
    points: Sample,
    boxes: Sample,
    cells: int,
    partitions: int,
    *,
    alone: bool,
    output_cost: float = OUTPUT_COST,
) -> Routing:
    """The routing of one mode; `alone` says that no other axis decides which pairs are results."""
    spans = _Spans(*_interval(mode, axes, points, of_points=True), *_interval(mode, axes, boxes, of_points=False))
    # Sampled points get evenly spread ties, so that a frequent value shows where it can be cut.
    ties = np.random.default_rng(0).integers(LOWEST, HIGHEST, points.hash.size)
    weights = _weights(points)
    bounds = _cut(points, boxes, spans, ties, weights, cells)
    placed = _Placed(mode, bounds, points, boxes, spans, ties)
    rows = placed.rows()
    # A cell costs its rows, and its output where the sample can tell: a cell inside a box matches wholly on
    # this axis.
    pairs = placed.certain_pairs()
    cost = rows + output_cost * pairs
    matches = _matches(points, boxes, spans) if alone and mode == "axis" and output_cost else None
    if matches is not None:
        found = placed.likely_pairs(matches)
        likely = output_cost * np.maximum(pairs, found)
        seen = found.max(initial=0.0) / (weights[0] * boxes.rows / boxes.hash.size)
        if seen >= PAIRS_IN_CELL and likely.max(initial=0.0) > 2 * (rows.sum() + likely.sum()) / cells:
            # Few rows have most of the results: cells of equal rows would leave them to one task.
            work = weights * (1 + output_cost * matches)
            finer = min((work.sum() + boxes.rows) / (points.rows + boxes.rows), MOST_FINER)
            bounds = _cut(points, boxes, spans, ties, work, int(np.ceil(max(cells * finer, CELLS_EACH * partitions))))
            placed = _Placed(mode, bounds, points, boxes, spans, ties)
            rows, output = placed.rows(), output_cost * placed.likely_pairs(matches)
            bounds, parts = _divided(bounds, output > rows, partitions)
            cost = np.repeat((rows + output) / parts, parts)
        else:
            matches = _smooth(matches, points, boxes, spans, cells)
            cost = rows + output_cost * np.maximum(pairs, placed.likely_pairs(matches))
            if cost.max() > UNEVEN * cost.mean():
                bounds = _cut(points, boxes, spans, ties, weights * (1 + output_cost * matches), cells)
                placed = _Placed(mode, bounds, points, boxes, spans, ties)
                cost = placed.rows() + output_cost * np.maximum(placed.certain_pairs(), placed.likely_pairs(matches))
    numbers = spark_hash.cell_numbers(spark_hash.balance(cost, partitions), partitions)
    return Routing(mode, axes, bounds, numbers, cost)


def _divided(bounds: Bounds, chosen: npt.NDArray[np.bool_], parts: int) -> tuple[Bounds, Index]:
    """Chosen cells in as many even parts, and how many parts each cell has become.

    How many results lie between two sampled rows is hardly known.  In parts that go to different tasks it need not be.
    """
    # Not as many for each task where many are chosen: thousands of cells for thousands of tasks would be millions.
    parts = min(parts, MOST_FINER * chosen.size // max(1, int(chosen.sum())))
    floor = bounds.tie == LOWEST
    begin, end = bounds.value[:-1], bounds.value[1:]
    even = floor[:-1] & floor[1:] & (bounds.hash[:-1] == bounds.hash[1:])
    # In floating point: a cell may be as wide as all numbers are.
    even &= chosen[1:-1] & (end.astype(np.float64) - begin.astype(np.float64) > 4.0 * parts)
    counts = np.ones(chosen.size, dtype=np.int64)
    counts[1:-1][even] = parts
    at = np.flatnonzero(even)
    step = (end[at].view(np.uint64) - begin[at].view(np.uint64)) // np.uint64(parts)
    further = [begin[at] + (step * np.uint64(part)).view(np.int64) for part in range(1, parts)]
    hashes = np.concatenate([bounds.hash, *[bounds.hash[at]] * len(further)])
    values = np.concatenate([bounds.value, *further])
    ties = np.concatenate([bounds.tie, np.full(at.size * len(further), LOWEST)])
    order = np.lexsort((ties, values, hashes))
    return Bounds(hashes[order], values[order], ties[order]), counts


class _Spans(NamedTuple):
    """From where to where sampled rows reach on an axis, or on the two of an overlap."""

    point_start: Codes
    point_end: Codes
    box_start: Codes
    box_end: Codes


def _cut(
    points: Sample, boxes: Sample, spans: _Spans, ties: Index, work: npt.NDArray[np.float64], cells: int
) -> Bounds:
    """Cells of equal work: that of the points as given, and one for each row of the boxes."""
    anchor = np.where(spans.box_start == LOWEST, spans.box_end, spans.box_start)
    bounds = quantiles(
        np.concatenate([points.hash, boxes.hash]),
        np.concatenate([spans.point_start, anchor]),
        np.concatenate([ties, np.full(boxes.hash.size, LOWEST)]),
        np.concatenate([work, _weights(boxes)]),
        cells,
    )
    half_open = (spans.box_start == LOWEST) | (spans.box_end == HIGHEST)
    return _at_points(bounds, points.hash, spans.point_start) if half_open.any() else bounds


def _at_points(bounds: Bounds, hashes: Index, values: Codes) -> Bounds:
    """Cells that begin where a sampled point is.

    A box without an end goes to all cells on its open side, and of those without a point it goes to in vain.
    """
    if not hashes.size:
        return bounds
    order = np.lexsort((values, hashes))
    hashes, values = hashes[order], values[order]
    floor = np.full(hashes.size, LOWEST)
    passed = located(hashes, values, floor, bounds.hash, bounds.value, np.full(bounds.hash.size, LOWEST))
    before = np.maximum(passed - 1, 0)
    exact = (passed > 0) & (hashes[before] == bounds.hash) & (values[before] == bounds.value)
    at = np.where(exact, before, passed)
    ties, at = bounds.tie[at < hashes.size], at[at < hashes.size]
    found = np.unique(np.stack([hashes[at], values[at], ties], axis=1), axis=0)
    return Bounds(*(np.ascontiguousarray(column) for column in found.T))


class _Placed:
    """Sampled rows in their cells."""

    def __init__(self, mode: Mode, bounds: Bounds, points: Sample, boxes: Sample, spans: _Spans, ties: Index) -> None:
        self._count = bounds.hash.size + 1
        self._weights = _weights(points), _weights(boxes)
        self._first = cells_of(bounds, points.hash, spans.point_start, ties)
        self._last = self._first if mode == "axis" else cells_of(bounds, points.hash, spans.point_end, HIGHEST)
        self._box_first = cells_of(bounds, boxes.hash, spans.box_start, LOWEST)
        self._box_last = cells_of(bounds, boxes.hash, spans.box_end, HIGHEST)

    def rows(self) -> npt.NDArray[np.float64]:
        """Rows of both sides in each cell, copies included."""
        left = loads(self._first, self._last, self._weights[0], self._count)
        return left + loads(self._box_first, self._box_last, self._weights[1], self._count)

    def certain_pairs(self) -> npt.NDArray[np.float64]:
        """Pairs in each cell with the boxes that it lies inside of."""
        around = loads(self._box_first + 1, self._box_last - 1, self._weights[1], self._count)
        return around * loads(self._first, self._first, self._weights[0], self._count)

    def likely_pairs(self, matches: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Pairs in each cell, by the matches of its sampled points."""
        return np.bincount(self._first, matches * self._weights[0], self._count).astype(np.float64)


def _matches(points: Sample, boxes: Sample, spans: _Spans) -> npt.NDArray[np.float64] | None:
    """How many rows each sampled point matches; None where too few sampled rows match to tell."""
    if not (points.hash.size and boxes.hash.size):
        return None
    matches = _boxes_around(points, boxes, spans)
    return matches * np.float64(boxes.rows / boxes.hash.size) if matches.sum() >= PAIRS_SEEN else None


def _boxes_around(points: Sample, boxes: Sample, spans: _Spans) -> npt.NDArray[np.float64]:
    """How many sampled boxes hold each sampled point."""
    point, low, high = spans.point_start, spans.box_start, spans.box_end
    hashes = np.concatenate([points.hash, boxes.hash])
    if not (hashes == hashes[0]).all():
        hashes, values = np.concatenate([hashes, boxes.hash]), np.concatenate([point, low, high])
        order = np.lexsort((values, hashes))
        steps = (np.diff(hashes[order]) != 0) | (np.diff(values[order]) != 0)
        ranks = np.empty(order.size, dtype=np.int64)
        ranks[order] = np.concatenate([[0], np.cumsum(steps)])
        point, low, high = np.split(ranks, [points.hash.size, points.hash.size + boxes.hash.size])
    sane = low <= high
    begun = np.searchsorted(np.sort(low[sane]), point, side="right")
    ended = np.searchsorted(np.sort(high[sane]), point, side="left")
    return (begun - ended).astype(np.float64)


def _smooth(
    matches: npt.NDArray[np.float64], points: Sample, boxes: Sample, spans: _Spans, cells: int
) -> npt.NDArray[np.float64]:
    """What each sampled point matches, from so many rows around it that chance plays little part.

    A sample thins out rows on both sides, and of a narrow band shows few pairs.  Boxes that are made wider by a factor
    hold as many times the rows where these lie evenly, and still lie within a cell.
    """
    sane = spans.box_start <= spans.box_end
    widths = (spans.box_end.view(np.uint64) - spans.box_start.view(np.uint64)).astype(np.float64)
    if (spans.box_start == LOWEST).any() or (spans.box_end == HIGHEST).any() or not (widths[sane] > 0).all():
        return matches
    seen = matches.sum() * boxes.hash.size / boxes.rows / points.hash.size
    wanted = min(SEEN_BY_POINT, boxes.hash.size / cells / 4)
    if seen >= wanted:
        return matches
    factor = float(2.0 ** np.ceil(np.log2(wanted / seen)))
    further = np.where(sane, (factor - 1) / 2 * widths, 0.0).clip(max=2.0**62).astype(np.int64)
    low = np.where(spans.box_start < LOWEST + further, LOWEST, spans.box_start - further)
    high = np.where(spans.box_end > HIGHEST - further, HIGHEST, spans.box_end + further)
    wide = _boxes_around(points, boxes, spans._replace(box_start=low, box_end=high))
    return wide * np.float64(boxes.rows / boxes.hash.size / factor)


def _interval(mode: Mode, axes: tuple[int, ...], sample: Sample, *, of_points: bool) -> tuple[Codes, Codes]:
    if not axes:
        size = sample.hash.size
        return (np.zeros(size, dtype=np.int64),) * 2 if of_points else (np.full(size, LOWEST), np.full(size, HIGHEST))
    if mode == "axis":
        return sample.low[axes[0]], sample.high[axes[0]]
    start, end = (axes[0], axes[1]) if of_points else (axes[1], axes[0])
    return sample.low[start], np.maximum(sample.low[start], sample.high[end])


def _weights(sample: Sample) -> npt.NDArray[np.float64]:
    size = sample.hash.size
    return np.full(size, sample.rows / size if size else 0.0)

"""Intervals that overlap, counted by rank: matches = those that begin before the end - those that end before the begin.

That holds where intervals do not end before they begin.  Then counts and sums of two-sided conditions need one order
only, in which begins and ends lie together: a row asks in the cell where it begins and in the one where it ends; cells
before its begin add what began and take away what ended there, and cells in between add what began.

Rows of the matched side that end before they begin go to every cell, and each row looks at them at home.  Rows that ask
for less than nothing, because they end before they begin, visit every cell.  Both are compared on both axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.cells import spans
from dovetail.columns.codes import HIGHEST, LOWEST, Codes, Mask
from dovetail.columns.encode import Boxes, Keys, Points, encode, routing_boxes, routing_points, usable_rows
from dovetail.columns.search import grouped_runs, passed
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.kernel import (
    by_group,
    grouped_order,
    leaf_state,
    merged,
    ordered_boxes,
    pieces_of,
    put_back,
)
from dovetail.families.aggregate.measures import Piece, State
from dovetail.families.aggregate.router import Routing, Visits, modulo
from dovetail.families.aggregate.spec import AggregateSpec

Roles = npt.NDArray[np.integer[Any]]

BEGINS, ENDS, AT_HOME, ANYWHERE = 1, 2, 4, 8
"""What a row of the matched side is to a cell: it begins or ends here; or it ends before it begins, and rows look at it
at home, or wherever they ask."""


class Ends(NamedTuple):
    """Where the intervals that ask begin and end, and which of them are none."""

    begin: Codes
    end: Codes
    empty: Mask
    """Those that match nothing."""
    odd: Mask
    """Those that end before they begin."""


def ends_of(spec: AggregateSpec, ranges_of: list[tuple[Codes, Codes]]) -> Ends:
    """The asking intervals, from their range on each axis."""
    assert spec.overlap is not None
    (low, end), (begin, high) = ranges_of[spec.overlap[0]], ranges_of[spec.overlap[1]]
    empty = (low > end) | (begin > high)
    # One code may lie between: such a row matches what contains the gap, and the ranks still tell.
    regular = (begin <= end) | (begin - 1 == end) & (begin > LOWEST)
    return Ends(begin, end, empty, ~empty & ~regular)


def route_points(
    spec: AggregateSpec, routing: Routing, hashes: Index, keys: Keys, ties: Index
) -> tuple[Index, Index, Roles]:
    """(row, cell, role) for each cell that each row of the matched side goes to."""
    assert spec.overlap is not None
    begin, end = (routing_points(spec.step.axes[axis], keys) for axis in spec.overlap)
    odd = begin > end
    rows = np.arange(hashes.size)
    if routing.mode == "spread":
        return rows, modulo(ties, routing.cells), np.where(odd, ANYWHERE, BEGINS | ENDS).astype(np.int8)
    first, last = (routing.place(hashes, codes, ties) for codes in (begin, end))
    together = first == last
    starting = np.flatnonzero(~odd)
    ending = np.flatnonzero(~odd & ~together)
    strange = np.flatnonzero(odd)
    copies, cells = spans(np.zeros_like(strange), np.full_like(strange, routing.cells - 1))
    roles = np.where(together, BEGINS | ENDS, BEGINS)[starting]
    return (
        np.concatenate([starting, ending, strange[copies]]),
        np.concatenate([first[starting], last[ending], cells]),
        np.concatenate([roles, np.full(ending.size, ENDS), np.full(copies.size, AT_HOME)]).astype(np.int8),
    )


def route_boxes(spec: AggregateSpec, routing: Routing, hashes: Index, keys: Keys, spread: Index) -> Visits:
    """Where each asking interval goes; it covers the cells up to the first of its own and those between the two."""
    anywhere = modulo(spread, routing.cells)
    everywhere = np.full(hashes.size, routing.cells - 1)
    none = np.full(hashes.size, -1, dtype=np.int64)
    if routing.mode == "spread":
        rows, cells = spans(np.zeros_like(everywhere), everywhere)
        return Visits(rows, cells, anywhere, none, none)
    found = ends_of(spec, [routing_boxes(axis, keys) for axis in spec.step.axes])
    first = routing.place(hashes, found.begin, LOWEST)
    last = np.maximum(first, routing.place(hashes, found.end, HIGHEST))
    regular = ~found.empty & ~found.odd
    begins = np.where(regular, first, np.where(found.odd, 0, 1))
    rows, cells = spans(begins, np.where(regular, first, np.where(found.odd, everywhere, 0)))
    more = np.flatnonzero(regular & (last > first))
    return Visits(
        np.concatenate([rows, more]),
        np.concatenate([cells, last[more]]),
        np.where(regular, first, anywhere),
        np.where(regular, first, none),
        np.where(regular, last, none),
    )


def overlap_states(
    spec: AggregateSpec, answering: pa.RecordBatch, roles: Roles, box_keys: Keys, at_home: Mask
) -> State:
    """What a cell adds to the state of each row that asks in it; `at_home` are those whose home it is."""
    assert spec.overlap is not None
    count, rows = len(spec.step.point_keys), len(box_keys[0])
    usable = usable_rows(box_keys)
    if usable is not None:
        box_keys, at_home = [key.take(usable) for key in box_keys], at_home[usable]
    points, boxes = encode(spec.step, list(answering.columns[:count]), box_keys)
    leaves = leaf_state(spec, list(answering.columns[count:]), answering.num_rows)
    order = grouped_order(np.argsort(boxes.low[spec.overlap[1]]), boxes.group)
    found = _pieces(spec, points, ordered_boxes(boxes, order), roles, at_home[order])
    state = merged(spec, leaves, found, len(boxes))
    return put_back(spec, state, order if usable is None else usable[order], rows)


def whole_states(spec: AggregateSpec, answering: pa.RecordBatch, box_keys: Keys) -> State:
    """The states where a task has all rows of the matched side."""
    assert spec.overlap is not None
    count = len(spec.step.point_keys)
    usable = usable_rows(list(answering.columns[:count]))
    if usable is not None:
        answering = answering.take(usable)
    keys = list(answering.columns[:count])
    begin, end = (routing_points(spec.step.axes[axis], keys) for axis in spec.overlap)
    roles = np.where(begin > end, ANYWHERE, BEGINS | ENDS)
    return overlap_states(spec, answering, roles, box_keys, np.ones(len(box_keys[0]), dtype=np.bool_))


class RankIndex:
    """The whole matched side by its begins and by its ends, sorted once for all blocks of asking rows.

    For inputs without keys whose intervals do not end before they begin; blocks that hold such intervals, or other
    inputs, go through :func:`whole_states`.
    """

    def __init__(self, spec: AggregateSpec, answering: pa.RecordBatch) -> None:
        assert spec.overlap is not None
        self._spec, self._answering = spec, answering
        count = len(spec.step.point_keys)
        usable = usable_rows(list(answering.columns[:count]))
        rows = answering if usable is None else answering.take(usable)
        keys = list(rows.columns[:count])
        begin, end = (routing_points(spec.step.axes[axis], keys) for axis in spec.overlap)
        self._plain = not spec.step.equalities and not bool((begin > end).any())
        if self._plain:
            # To count rows, it does not matter which they are: sorting takes a sixth of the time of finding the order.
            self._leaves = leaf_state(spec, list(rows.columns[count:]), rows.num_rows)
            self._begun, self._ended = (_in_order(codes, counting=spec.counting) for codes in (begin, end))

    def states(self, box_keys: Keys) -> State:
        """The states of a block of rows."""
        spec, size = self._spec, len(box_keys[0])
        if not self._plain:
            return whole_states(spec, self._answering, box_keys)
        usable = usable_rows(box_keys)
        keys = box_keys if usable is None else [key.take(usable) for key in box_keys]
        found = ends_of(spec, [routing_boxes(axis, keys) for axis in spec.step.axes])
        if found.odd.any():
            return whole_states(spec, self._answering, box_keys)
        asking = np.flatnonzero(~found.empty) if found.empty.any() else np.arange(found.begin.size)
        asking = asking[np.argsort(found.begin[asking])]
        begin, end = found.begin[asking], found.end[asking]
        none = np.zeros(asking.size, dtype=np.int64)
        ended = passed(self._ended.codes, begin, strict=True)
        ranges = [Piece(self._begun.order, none, passed(self._begun.codes, end, strict=False))]
        ranges.append(Piece(self._ended.order, none, ended, sign=-1))
        state = merged(spec, self._leaves, ranges, asking.size)
        return put_back(spec, state, asking if usable is None else usable[asking], size)


class _InOrder(NamedTuple):
    order: Index
    codes: Codes


def _in_order(codes: Codes, *, counting: bool) -> _InOrder:
    if counting:
        return _InOrder(np.empty(0, dtype=np.int64), np.sort(codes))
    order = np.argsort(codes)
    return _InOrder(order, codes[order])


def _pieces(spec: AggregateSpec, points: Points, boxes: Boxes, roles: Roles, at_home: Mask) -> Iterator[Piece]:
    assert spec.overlap is not None
    found = ends_of(spec, [(boxes.low[axis], boxes.high[axis]) for axis in range(2)])
    regular = ~found.empty & ~found.odd
    begun = _chosen(points, np.flatnonzero(roles & BEGINS))
    lowest = np.full(len(boxes), LOWEST)
    yield from _ranked(points, begun, spec.overlap[0], boxes, lowest, found.end, regular)
    ended = _chosen(points, np.flatnonzero(roles & ENDS))
    before = regular & (found.begin > LOWEST)
    above = np.where(before, found.begin, 0) - 1
    for piece in _ranked(points, ended, spec.overlap[1], boxes, lowest, above, before):
        yield Piece(piece.order, piece.begin, piece.end, sign=-1)
    if found.odd.any():
        yield from _compared(points, begun, boxes, found.odd)
    for role, who in ((AT_HOME, at_home), (ANYWHERE, np.ones_like(at_home))):
        some = np.flatnonzero(roles == role)
        if some.size:
            yield from _compared(points, _chosen(points, some), boxes, who & ~found.empty)


class _Chosen(NamedTuple):
    rows: Index
    points: Points


def _chosen(points: Points, rows: Index) -> _Chosen:
    if rows.size == len(points):
        return _Chosen(rows, points)
    group = None if points.group is None else points.group[rows]
    return _Chosen(rows, Points(points.coordinates[:, rows], group))


def _ranked(
    points: Points, some: _Chosen, axis: int, boxes: Boxes, low: Codes, high: Codes, who: Mask
) -> Iterator[Piece]:
    """The chosen points between low and high on one axis, for some of the boxes."""
    groups = points.groups_with(boxes)
    codes = np.ascontiguousarray(some.points.coordinates[axis])
    order, starts = by_group(some.points, codes, groups)
    begin, end = grouped_runs(codes[order], starts, boxes.numbers, low, np.ascontiguousarray(high))
    yield Piece(some.rows[order], begin, np.where(who, end, begin))


def _compared(points: Points, some: _Chosen, boxes: Boxes, who: Mask) -> Iterator[Piece]:
    """The chosen points within some of the boxes, compared on both axes."""
    low, high = boxes.low.copy(), boxes.high.copy()
    low[:, ~who], high[:, ~who] = HIGHEST, LOWEST
    # The boxes may have more groups than the chosen points.
    for piece in pieces_of(some.points, Boxes(low, high, boxes.group)):
        yield Piece(some.rows[piece.order], piece.begin, piece.end)

"""The kernel: states of every asking row over its matches, without forming them.

A state is a list of columns for each measure.  Leaves are the states of single rows; merging them over ranges gives the
states of the matches.  What a cell computes for its rows, what is merged for a row from several cells, and the totals
of cells that a row covers as a whole all go through :func:`merged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST, Codes, order_codes, slots, valid_mask
from dovetail.columns.encode import Boxes, Keys, Points, encode, usable_rows
from dovetail.columns.search import grouped_runs
from dovetail.columns.segments import nulls
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.compiled_ranges import block_ranges, merged_blocks
from dovetail.families.aggregate.measures import Merging, Piece, State, measures_of
from dovetail.families.aggregate.spec import LIMB_BITS, AggregateSpec, Measure

_LIMB = (1 << LIMB_BITS) - 1
_FEW_RUNS = 16
"""Sorted runs that are merged rather than sorted."""


def states(spec: AggregateSpec, points: pa.RecordBatch, box_keys: Keys) -> State:
    """The state of each row of the asking side over its matches among `points` (their keys, then their arguments)."""
    keys = len(spec.step.point_keys)
    rows = len(box_keys[0])
    point_rows, box_rows = usable_rows(list(points.columns[:keys])), usable_rows(box_keys)
    if point_rows is not None:
        points = points.take(point_rows)
    asked = box_keys if box_rows is None else [key.take(box_rows) for key in box_keys]
    leaves = leaf_state(spec, points.columns[keys:], points.num_rows)
    own, boxes = encode(spec.step, list(points.columns[:keys]), asked)
    order = search_order(boxes)
    found = merged(spec, leaves, pieces_of(own, ordered_boxes(boxes, order)), len(boxes))
    return put_back(spec, found, order if box_rows is None else box_rows[order], rows)


def search_order(boxes: Boxes) -> Index:
    """The order in which rows are looked up: neighbours find what they ask for in the cache.

    A million searches at random in a million values take 0.4 s, and 0.03 s in their order.
    """
    if not boxes.low.shape[0]:
        return np.argsort(boxes.numbers)
    # Of ranges that are open below, all begin at one place.
    low = boxes.low[0]
    open_below = low.size > 0 and bool((low == LOWEST).all())
    return grouped_order(np.argsort(boxes.high[0] if open_below else low), boxes.group)


def ordered_boxes(boxes: Boxes, order: Index) -> Boxes:
    """The boxes in another order."""
    return Boxes(boxes.low[:, order], boxes.high[:, order], None if boxes.group is None else boxes.group[order])


def put_back(spec: AggregateSpec, state: State, rows: Index, count: int) -> State:
    """The states of some rows, by their numbers, as those of all `count` rows; the others have no match."""
    places = np.full(count, -1, dtype=np.int64)
    places[rows] = np.arange(rows.size)
    return picked(spec, state, places)


def pieces_of(points: Points, boxes: Boxes) -> Iterator[Piece]:
    """Where the points within each box lie, in up to two dimensions."""
    groups = points.groups_with(boxes)
    axes = points.coordinates.shape[0]
    first = points.coordinates[0] if axes else np.zeros(len(points), dtype=np.int64)
    order, starts = by_group(points, first, groups)
    low, high = _limits(boxes, 0) if axes else (np.full(len(boxes), LOWEST), np.full(len(boxes), HIGHEST))
    begin, end = grouped_runs(first[order], starts, boxes.numbers, low, high)
    if axes < 2:
        yield Piece(order, begin, end)
        return
    codes = points.coordinates[1][order]
    low, high = _limits(boxes, 1)
    end = np.where(low > high, begin, end)  # a copy, as `begin` is: the search moves both
    size = 1
    while (begin < end).any():
        a, b, c, d = block_ranges(codes, size, begin, end, low, high)
        yield Piece(order, a, b)
        yield Piece(order, c, d)
        if (begin < end).any():
            order, codes = merged_blocks(order, codes, size)
        size *= 2


def _limits(boxes: Boxes, axis: int) -> tuple[Codes, Codes]:
    return np.ascontiguousarray(boxes.low[axis]), np.ascontiguousarray(boxes.high[axis])


def by_group(points: Points, codes: Codes, groups: int) -> tuple[Index, Index]:
    """The points in the order of their groups and codes, and where each group begins."""
    order = grouped_order(ascending(codes), points.group)
    starts = np.zeros(groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(points.numbers, minlength=groups), out=starts[1:])
    return order, starts


def ascending(codes: Codes) -> Index:
    """An order in which codes ascend; of equal codes any will do."""
    # A broadcast side comes in as many sorted runs as it had tasks: merging two takes a third of the time of sorting.
    descents = np.count_nonzero(codes[1:] < codes[:-1])
    return np.argsort(codes, kind="stable" if descents < _FEW_RUNS else None)


def grouped_order(order: Index, group: Index | None) -> Index:
    """An order of rows, taken apart by their groups."""
    if group is None:
        return order
    found = group[order]
    # NumPy sorts numbers of 16 bits by their digits, in a tenth of the time.
    few = found.size > 0 and int(found.max()) < 1 << 16
    return order[np.argsort(found.astype(np.uint16) if few else found, kind="stable")]


# --------------------------------------------------------------------------------------------------------------
# Leaves
# --------------------------------------------------------------------------------------------------------------


def leaf_state(spec: AggregateSpec, arguments: list[pa.Array[Any]], rows: int) -> State:
    """The state of each row by itself."""
    state: State = []
    for measure in spec.measures:
        columns = [arguments[at] for at in measure.columns]
        state += _leaf(measure, columns, rows)
    return state


def _leaf(measure: Measure, columns: list[pa.Array[Any]], rows: int) -> State:
    if measure.kind == "rows":
        return [pa.array(np.ones(rows, dtype=np.int64))]
    column = columns[-1]
    if measure.gathered:
        return [column]
    valid = valid_mask(column)
    if measure.kind == "best":
        return [*columns, pa.array(valid)]
    counts = valid.astype(np.int64)
    if measure.kind == "count":
        return [pa.array(counts)]
    if measure.kind == "whole":
        return [*(pa.array(np.where(valid, limb, 0)) for limb in _limbs(column, measure.limbs)), pa.array(counts)]
    values = slots(column, 1, np.float64)
    if column.null_count:
        values = np.where(valid, values, 0.0)
    finite = np.isfinite(values)
    regular = bool(finite.all())
    kept = values if regular else np.where(finite, values, 0.0)
    zeros = np.zeros(rows)
    if measure.kind == "float":
        none = np.zeros(rows, dtype=np.int64)
        upward = none if regular else (~finite & ~(values == -np.inf)).astype(np.int64)
        downward = none if regular else (~finite & ~(values == np.inf)).astype(np.int64)
        return [pa.array(one) for one in (counts, upward, downward, kept, zeros)]
    weight = (valid & finite).astype(np.float64)
    odd = (~finite).astype(np.int64)
    return [pa.array(one) for one in (counts, odd, weight, kept, zeros, zeros, zeros)]


def _limbs(column: pa.Array[Any], limbs: int) -> list[Index]:
    """Whole numbers as limbs of 32 bits, the last one with the sign; a single limb holds numbers of 32 bits whole."""
    if limbs <= 2:
        codes = order_codes(column, "int")
        return [codes] if limbs == 1 else [codes & _LIMB, codes >> LIMB_BITS]
    words = slots(column, 1, np.int64, width=2)
    low, high = words[::2], words[1::2]
    return [low & _LIMB, (low >> LIMB_BITS) & _LIMB, high & _LIMB, high >> LIMB_BITS]


# --------------------------------------------------------------------------------------------------------------
# Merging
# --------------------------------------------------------------------------------------------------------------


def merged(spec: AggregateSpec, leaves: State, found: Iterable[Piece], rows: int) -> State:
    """The states of the `rows` that ask: for each the leaves in its ranges, merged."""
    return answered(measures_of(spec, leaves), found, rows)


def answered(measures: Sequence[Merging], found: Iterable[Piece], rows: int) -> State:
    """The same from leaves that may have been asked before."""
    for measure in measures:
        measure.start(rows)
    for piece in found:
        for measure in measures:
            measure.add(piece)
    return [column for measure in measures for column in measure.state()]


def picked(spec: AggregateSpec, state: State, places: Index) -> State:
    """The states at some places; an empty one where the place is -1."""
    missing = places < 0
    if not missing.any():
        return [column.take(places) for column in state]
    chosen: pa.Array[Any] = pa.array(np.where(missing, 0, places), mask=missing)
    out: State = []
    for column, (_, kind) in zip(state, spec.state_fields(), strict=True):
        taken = column.take(chosen) if len(column) else nulls(places.size, kind)
        # Values of a minimum stay NULL where there is none; everything else counts from zero.
        out.append(taken)
    return _zeroed(spec, out)


def _zeroed(spec: AggregateSpec, state: State) -> State:
    at = 0
    out: State = []
    for measure in spec.measures:
        if measure.kind == "quantile":
            out += state[at : at + len(measure.fractions)]
            at += len(measure.fractions)
            continue
        if measure.kind == "best":
            width = len(measure.columns)
            out += state[at : at + width]
            at += width
            out.append(state[at].fill_null(False))
            at += 1
            continue
        for _ in range(measure.counts + measure.floats):
            out.append(state[at].fill_null(0))
            at += 1
    return out

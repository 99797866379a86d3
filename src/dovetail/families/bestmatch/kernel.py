"""The best-match join of two batches of rows: pairs of row numbers out.

What computes each kind of join:

inner
    the skyline of all pairs (:mod:`~dovetail.families.bestmatch.skyline`), one for each key.
left, right, full
    the best pairs of each row of one or either side (:mod:`~dovetail.families.bestmatch.tree`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.families.bestmatch.compiled import Index, Matrix, best_of_groups, order_keys, pair_costs
from dovetail.families.bestmatch.encode import Rows, encode
from dovetail.families.bestmatch.prefer import Preferences
from dovetail.families.bestmatch.skyline import best_pairs
from dovetail.families.bestmatch.spec import NEAR_FLOAT, NEAR_INT, BestSpec, Counters
from dovetail.families.bestmatch.tree import COMPARE, LIST, PRUNE, Tree, build, search

Pairs = tuple[Index, Index]

BLOCK = 1 << 12
"""Rows whose candidates are listed at a time, where all candidates are needed."""


def best(
    spec: BestSpec,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    counters: Counters,
    *,
    asked: tuple[Index | None, Index | None] = (None, None),
) -> Pairs:
    """Row numbers of the pairs of a join, each pair once.

    `asked` gives the rows of each side whose best pairs are wanted; None asks for all.  An inner join ignores it.
    """
    rows = encode(spec, left, right)
    preferences = Preferences(spec, left, right, rows, counters) if spec.judges else None
    if spec.global_best:
        if preferences is None:
            i, j = _skyline(spec, rows, counters)
        else:
            i, j = _preferred_skyline(spec, rows, preferences, counters)
        return rows[0].positions[i], rows[1].positions[j]
    parts: list[Pairs] = []
    for side in spec.answers:
        i, j = PairSearch(spec, rows[side], rows[1 - side]).best(asked[side], counters)
        pair = (i, j) if side == 0 else (j, i)
        if preferences is not None:
            pair = preferences.best(*pair, i)
        parts.append((rows[0].positions[pair[0]], rows[1].positions[pair[1]]))
    return parts[0] if len(parts) == 1 else distinct_pairs(parts)


def candidates(
    spec: BestSpec, left: pa.RecordBatch, right: pa.RecordBatch, counters: Counters, asked: Index | None = None
) -> Iterator[Pairs]:
    """All pairs within the distances and with equal keys, in blocks, ordered by the rows of the home side."""
    rows = encode(spec, left, right)
    side = spec.home_side
    for i, j in PairSearch(spec, rows[side], rows[1 - side]).candidates(asked, counters):
        pair = (i, j) if side == 0 else (j, i)
        yield rows[0].positions[pair[0]], rows[1].positions[pair[1]]


def distinct_pairs(parts: list[Pairs]) -> Pairs:
    """The pairs of several lists, each once."""
    i, j = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    both = np.unique(np.stack([i, j], axis=1), axis=0)
    return both[:, 0], both[:, 1]


def best_of_pairs(spec: BestSpec, left: pa.RecordBatch, right: pa.RecordBatch, groups: Index, costs: Matrix | None,
                  counters: Counters) -> Index:  # fmt: skip
    """Which of the pairs (row k of `left`, row k of `right`) no other pair of the same group beats.

    No row has a NULL among its keys.  `costs` are those that Spark computed, if any.
    """
    rows = encode(spec, left, right)
    kinds, _ = _kinds(spec, grouped=False)
    numbers = np.arange(left.num_rows)
    compiled = pair_costs(kinds, rows[0].values, rows[1].values, numbers, numbers)
    all_costs = compiled if costs is None else np.column_stack([compiled, costs])
    order = np.argsort(groups, kind="stable")
    if spec.judges:
        kept, _ = Preferences(spec, left, right, rows, counters, costs=all_costs).best(order, order, groups[order])
        return np.sort(kept)
    ends = _ends(groups[order])
    mask = best_of_groups(ends, np.ascontiguousarray(all_costs[order]), order, order, rows[0].sets, rows[1].sets)
    return np.sort(order[mask])


def _ends(ordered: Index) -> Index:
    """Where runs of equal numbers begin, and where the last one ends."""
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    return np.concatenate([[0], cuts, [ordered.size]]).astype(np.int64)


def _kinds(spec: BestSpec, *, grouped: bool) -> tuple[Index, Index]:
    kinds = [axis.number for axis in spec.compiled]
    limits = [axis.limit for axis in spec.compiled]
    if grouped and _by_group(spec):
        kinds, limits = [NEAR_INT, *kinds], [LOWEST, *limits]
    return np.array(kinds, dtype=np.int64), np.array(limits, dtype=np.int64)


def _by_group(spec: BestSpec) -> bool:
    """Whether the group is an axis of the search: with keys, and where nothing else is, since a tree needs an axis."""
    return bool(spec.by) or not spec.compiled


class PairSearch:
    """The best pairs, or all candidates, of rows of one side among those of the other."""

    def __init__(self, spec: BestSpec, rows: Rows, others: Rows) -> None:
        self._spec = spec
        self._rows, self._others = rows, others
        self._kinds, self._limits = _kinds(spec, grouped=True)
        self._queries = self._values(rows)
        self._tree: Tree = build(self._kinds, self._limits, self._values(others))

    def _values(self, rows: Rows) -> Matrix:
        """Axis values, and the key number as a further axis: at distance 0 it costs every candidate the same."""
        values = np.column_stack([rows.groups, rows.values]) if _by_group(self._spec) else rows.values
        return np.ascontiguousarray(values)

    def best(self, asked: Index | None, counters: Counters) -> Pairs:
        """The best pairs of the rows whose positions are `asked`; all candidates if functions compare them later."""
        mode = PRUNE if self._spec.pruned else LIST if self._spec.judges else COMPARE
        return self._search(self._chosen(asked), mode, counters)

    def candidates(self, asked: Index | None, counters: Counters) -> Iterator[Pairs]:
        """All candidates, in blocks of rows."""
        chosen = self._chosen(asked)
        for begin in range(0, chosen.size, BLOCK):
            yield self._search(chosen[begin : begin + BLOCK], LIST, counters)

    def _search(self, chosen: Index, mode: int, counters: Counters) -> Pairs:
        sets = self._rows.sets, self._others.sets
        i, j, compared = search(self._kinds, self._limits, self._queries, chosen, self._tree, mode, *sets)
        counters.comparisons += compared
        counters.candidates += i.size
        return i, j

    def _chosen(self, asked: Index | None) -> Index:
        """The rows to search for, neighbours together: they visit the same parts of the tree while these are cached."""
        rows = self._rows
        chosen = np.arange(rows.positions.size) if asked is None else np.flatnonzero(np.isin(rows.positions, asked))
        coarse = []
        for axis in range(self._kinds.size):
            column = self._queries[chosen, axis]
            if self._kinds[axis] == NEAR_FLOAT and self._limits[axis] != HIGHEST:
                width = self._limits[axis : axis + 1].view(np.float64)[0]
                with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                    coarse.append(np.floor(np.nan_to_num(column.view(np.float64) / width)))
            elif self._kinds[axis] == NEAR_INT and self._limits[axis] != HIGHEST:
                width = int(self._limits[axis]) - LOWEST
                coarse.append((column // max(1, min(width, HIGHEST))).astype(np.float64))
        return chosen[np.lexsort(coarse[::-1])] if coarse else chosen


def _skyline(spec: BestSpec, rows: tuple[Rows, Rows], counters: Counters) -> Pairs:
    """The best pairs of each key."""
    kinds, limits = _kinds(spec, grouped=False)
    orders = [np.argsort(side.groups, kind="stable") for side in rows]
    groups = np.intersect1d(rows[0].groups, rows[1].groups)
    sides = []
    for side, order in zip(rows, orders, strict=True):
        ordered = side.groups[order]
        kept = order[np.isin(ordered, groups)]
        values = np.ascontiguousarray(side.values[kept])
        ends = np.append(np.searchsorted(side.groups[kept], groups), kept.size).astype(np.int64)
        sides.append((kept, values, order_keys(kinds, values), ends, _reordered(side, kept)))
    (i, left, left_keys, left_ends, left_sets), (j, right, right_keys, right_ends, right_sets) = sides
    # The right rows of each group in the order of each axis: NumPy's sorting compiles for seconds inside a kernel.
    group = np.repeat(np.arange(groups.size), np.diff(right_ends))
    order = np.array([np.lexsort((right_keys[:, axis], group)) for axis in range(kinds.size)], dtype=np.int64)
    pairs, compared = best_pairs(
        kinds, limits, left, right, left_keys, right_keys, order.reshape(kinds.size, j.size), left_ends, right_ends,
        left_sets, right_sets,
    )  # fmt: skip
    counters.comparisons += compared
    counters.candidates += pairs.shape[0]
    return i[pairs[:, 0]], j[pairs[:, 1]]


def _reordered(rows: Rows, order: Index) -> tuple[Index, Index]:
    """The sets of the rows in another order."""
    ends, ids = rows.sets
    if not ends.shape[0]:
        return rows.sets
    parts, offsets, begin = [], [], 0
    for at in range(ends.shape[0]):
        sizes = np.diff(ends[at])[order]
        starts = begin + np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(sizes.sum()) - np.repeat(starts[:-1] - begin, sizes)
        parts.append(ids[np.repeat(ends[at][:-1][order], sizes) + within])
        offsets.append(starts)
        begin += int(sizes.sum())
    return np.stack(offsets).astype(np.int64), np.concatenate(parts)


def _preferred_skyline(spec: BestSpec, rows: tuple[Rows, Rows], preferences: Preferences, counters: Counters) -> Pairs:
    """The best pairs where a function takes part: all candidates are compared, a block at a time, and the best stay."""
    i = j = np.empty(0, dtype=np.int64)
    for more_i, more_j in PairSearch(spec, rows[0], rows[1]).candidates(None, counters):
        i, j = np.concatenate([i, more_i]), np.concatenate([j, more_j])
        i, j = preferences.best(i, j, rows[0].groups[i])
    return i, j

"""The best-match join of two batches of rows: pairs of row numbers out.

The forms of the join and what computes them:

inner
    the skyline of all pairs (:mod:`~dovetail.families.bestmatch.skyline`), one for each key.
left, right, full
    the best pairs of each row of one or either side (:mod:`~dovetail.families.bestmatch.tree`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.families.bestmatch.compiled import Index, Matrix, best_of_groups, order_keys, pair_costs
from dovetail.families.bestmatch.encode import Rows, encode
from dovetail.families.bestmatch.prefer import Judges
from dovetail.families.bestmatch.skyline import best_pairs
from dovetail.families.bestmatch.spec import NEAR_FLOAT, NEAR_INT, BestSpec
from dovetail.families.bestmatch.tree import COMPARE, LIST, PRUNE, Tree, build, search

Pairs = tuple[Index, Index]

BLOCK = 1 << 12
"""Rows whose candidates are listed at a time, where all of them have to be."""


@dataclass
class Work:
    """What a join did."""

    comparisons: int = 0
    candidates: int = 0
    judged: int = 0
    page_reads: int = 0
    page_writes: int = 0


def best(
    spec: BestSpec,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    work: Work,
    *,
    asked: tuple[Index | None, Index | None] = (None, None),
) -> Pairs:
    """Row numbers of the pairs of a join, each pair once.

    `asked` says which rows of a side want their best pairs; None asks for all.  It has no meaning for an inner join.
    """
    rows = encode(spec, left, right)
    judges = Judges(spec, left, right, rows, work) if spec.judges else None
    if spec.how == "inner":
        i, j = _skyline(spec, rows, work) if judges is None else _judged_skyline(spec, rows, judges, work)
        return rows[0].places[i], rows[1].places[j]
    parts: list[Pairs] = []
    for side in spec.answers:
        finder = Finder(spec, rows[side], rows[1 - side])
        i, j = finder.find(asked[side], work)
        pair = (i, j) if side == 0 else (j, i)
        if judges is not None:
            pair = judges.best(*pair, i)
        parts.append((rows[0].places[pair[0]], rows[1].places[pair[1]]))
    return parts[0] if len(parts) == 1 else united(parts)


def candidates(
    spec: BestSpec, left: pa.RecordBatch, right: pa.RecordBatch, work: Work, asked: Index | None = None
) -> Iterator[Pairs]:
    """All pairs within the distances and with equal keys, in blocks, ordered by the rows of the side that answers."""
    rows = encode(spec, left, right)
    side = 1 if spec.how == "right" else 0
    finder = Finder(spec, rows[side], rows[1 - side])
    for i, j in finder.listed(asked, work):
        pair = (i, j) if side == 0 else (j, i)
        yield rows[0].places[pair[0]], rows[1].places[pair[1]]


def united(parts: list[Pairs]) -> Pairs:
    """Pairs of several lists, each once."""
    i, j = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    both = np.unique(np.stack([i, j], axis=1), axis=0)
    return both[:, 0], both[:, 1]


def best_of_pairs(spec: BestSpec, left: pa.RecordBatch, right: pa.RecordBatch, groups: Index, costs: Matrix | None,
                  work: Work) -> Index:  # fmt: skip
    """Which of the pairs (row k of `left`, row k of `right`) no other pair of the same group beats.

    No row has a NULL among its keys.  `costs` are those that Spark computed, if there are any.
    """
    rows = encode(spec, left, right)
    kinds, _ = _kinds(spec, grouped=False)
    every = np.arange(left.num_rows)
    own = pair_costs(kinds, rows[0].values, rows[1].values, every, every)
    all_costs = own if costs is None else np.column_stack([own, costs])
    order = np.argsort(groups, kind="stable")
    if spec.judges:
        kept, _ = Judges(spec, left, right, rows, work, costs=all_costs).best(order, order, groups[order])
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
    if grouped and spec.by:
        kinds, limits = [NEAR_INT, *kinds], [LOWEST, *limits]
    return np.array(kinds, dtype=np.int64), np.array(limits, dtype=np.int64)


class Finder:
    """Finds the best pairs, or all candidates, of rows of one side among those of the other."""

    def __init__(self, spec: BestSpec, rows: Rows, others: Rows) -> None:
        self._spec = spec
        self._rows, self._others = rows, others
        self._kinds, self._limits = _kinds(spec, grouped=True)
        self._queries = self._values(rows)
        self._tree: Tree = build(self._kinds, self._limits, self._values(others))

    def _values(self, rows: Rows) -> Matrix:
        """Axis values, and the number of the key as a further axis: at distance 0 it costs every candidate the same."""
        values = np.column_stack([rows.groups, rows.values]) if self._spec.by else rows.values
        return np.ascontiguousarray(values)

    def find(self, asked: Index | None, work: Work) -> Pairs:
        """The best pairs of the rows that `asked` names by their places; all candidates if functions judge them."""
        mode = PRUNE if self._spec.pruned else LIST if self._spec.judges else COMPARE
        return self._search(self._chosen(asked), mode, work)

    def listed(self, asked: Index | None, work: Work) -> Iterator[Pairs]:
        """All candidates, in blocks of rows."""
        chosen = self._chosen(asked)
        for begin in range(0, chosen.size, BLOCK):
            yield self._search(chosen[begin : begin + BLOCK], LIST, work)

    def _search(self, chosen: Index, mode: int, work: Work) -> Pairs:
        sets = self._rows.sets, self._others.sets
        i, j, compared = search(self._kinds, self._limits, self._queries, chosen, self._tree, mode, *sets)
        work.comparisons += compared
        work.candidates += i.size
        return i, j

    def _chosen(self, asked: Index | None) -> Index:
        """The rows to look for, neighbours together: they meet the same parts of the tree while it is in the cache."""
        rows = self._rows
        chosen = np.arange(rows.places.size) if asked is None else np.flatnonzero(np.isin(rows.places, asked))
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


def _skyline(spec: BestSpec, rows: tuple[Rows, Rows], work: Work) -> Pairs:
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
    found, compared = best_pairs(
        kinds, limits, left, right, left_keys, right_keys, left_ends, right_ends, left_sets, right_sets
    )
    work.comparisons += compared
    work.candidates += found.shape[0]
    return i[found[:, 0]], j[found[:, 1]]


def _reordered(rows: Rows, order: Index) -> tuple[Index, Index]:
    """Sets of the rows in another order."""
    ends, ids = rows.sets
    if not ends.shape[0]:
        return rows.sets
    parts, places, begin = [], [], 0
    for at in range(ends.shape[0]):
        sizes = np.diff(ends[at])[order]
        starts = begin + np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(sizes.sum()) - np.repeat(starts[:-1] - begin, sizes)
        parts.append(ids[np.repeat(ends[at][:-1][order], sizes) + within])
        places.append(starts)
        begin += int(sizes.sum())
    return np.stack(places).astype(np.int64), np.concatenate(parts)


def _judged_skyline(spec: BestSpec, rows: tuple[Rows, Rows], judges: Judges, work: Work) -> Pairs:
    """The best pairs where a function has a say: all candidates pass by, a block at a time, and the best stay."""
    i = j = np.empty(0, dtype=np.int64)
    for more_i, more_j in Finder(spec, rows[0], rows[1]).listed(None, work):
        i, j = np.concatenate([i, more_i]), np.concatenate([j, more_j])
        i, j = judges.best(i, j, rows[0].groups[i])
    return i, j

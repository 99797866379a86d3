"""The nearest rows within a cell: an index of the answering rows, and the search of asking rows in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import Codes, order_codes, window_ends
from dovetail.columns.encode import Keys, group_numbers, usable
from dovetail.columns.ties import content_ranks
from dovetail.families.nearest import tree_search as trees
from dovetail.families.nearest.compiled import (
    Index,
    Values,
    buckets_of,
    first_places,
    in_order,
    listed,
    nearest_one,
    reaching,
    runs,
)
from dovetail.families.nearest.spec import NearestSpec
from dovetail.families.nearest.tree import build, build_timed
from dovetail.families.nearest.windowed import TimedLine

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_SIGN = np.uint64(1 << 63)
_FARTHEST = (1 << 64) - 1
_ROOM = 1 << 23
"""For how many neighbours a search has room at a time."""
_LARGEST = float(np.finfo(np.float64).max)


class Found(NamedTuple):
    """Candidates in the order of their asking rows, nearest first: asking row, answering row, distance."""

    owner: Index
    row: Index
    far: Values


class Chosen(NamedTuple):
    """Which candidates stay, by their positions in order, and the rank of each."""

    at: Index
    rank: Index
    everything: bool = False
    """Whether all stay, in the order in which they are."""


def coordinates(spec: NearestSpec, columns: Keys) -> tuple[Values, Mask]:
    """Coordinates as numbers, (rows, dimensions), and which rows have a place; the others get any.

    On a line whole numbers become unsigned ones in the same order, whose differences never overflow.  NULL, NaN and
    infinity are no place, and neither is a latitude beyond a pole, or a longitude beyond a full turn.  Beside a window,
    a row without a time has none, either.
    """
    good = usable(columns)
    if spec.whole:
        codes = order_codes(columns[0], "int").view(np.uint64) ^ _SIGN
        return codes.reshape(-1, 1), good
    values = np.empty((len(columns[0]), spec.coordinates))
    for at, column in enumerate(columns[: spec.coordinates]):
        values[:, at] = column.to_numpy(zero_copy_only=False)
    good &= np.isfinite(values).all(axis=1)
    if spec.metric == "haversine":
        good &= (np.abs(values[:, 0]) <= 90) & (np.abs(values[:, 1]) <= 360)
    return values, good


def on_sphere(values: Floats) -> tuple[Floats, Floats]:
    """Latitudes and longitudes as points of the unit sphere; and in radians, with the cosine of the latitude."""
    places = np.empty((values.shape[0], 3))
    # As the definition computes them, to the last bit: NumPy's own radians may round otherwise.
    places[:, :2] = values * (math.pi / 180)
    places[:, 2] = np.cos(places[:, 0])
    points = np.column_stack(
        [places[:, 2] * np.cos(places[:, 1]), places[:, 2] * np.sin(places[:, 1]), np.sin(places[:, 0])]
    )
    return points, places


class NearIndex:
    """Answering rows by key and place."""

    def __init__(self, spec: NearestSpec, columns: Keys, ordering: Sequence[pa.Array[Any]]) -> None:
        self.spec = spec
        count = len(spec.keys)
        values, good = coordinates(spec, columns[count:])
        if count:
            good &= usable(columns[:count])
        self.rows = np.flatnonzero(good)
        self.ordering = ordering
        self.keys: Keys = [column.take(self.rows) for column in columns[:count]]
        groups = np.zeros(self.rows.size, dtype=np.int64)
        if count:
            groups, _ = group_numbers(spec.keys, self.keys, [key.slice(0, 0) for key in self.keys])
        self.groups = 1 + int(groups.max(initial=-1))
        values = values[self.rows]
        times = order_codes(columns[-1], "int")[self.rows] if spec.window is not None else None
        # In a window, any row may be the only one of its place.
        if spec.ties == "first" and times is None:
            kept = self._without_surplus(groups, values)
            groups, values, self.rows = groups[kept], values[kept], self.rows[kept]
        self._sort(groups, values, times)

    def _without_surplus(self, groups: Index, values: Values) -> Index:
        """The rows without those that share their place with k others which come first in the order of rows."""
        order = np.lexsort([*values.T[::-1], groups])
        same = (groups[order][1:] == groups[order][:-1]) & (values[order][1:] == values[order][:-1]).all(axis=1)
        place = np.arange(order.size)
        begins = np.concatenate([[True], ~same])[: order.size]
        run = np.cumsum(begins) - 1
        sizes = np.bincount(run) if order.size else np.zeros(0, dtype=np.int64)
        if not (sizes > self.spec.k).any():
            return np.arange(order.size)
        crowded = sizes[run] > self.spec.k
        ranks = np.zeros(order.size, dtype=np.int64)
        ranks[crowded] = self.ranks(self.rows[order[crowded]])
        resorted = np.lexsort((ranks, run))
        order, run = order[resorted], run[resorted]
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[place - first < self.spec.k])

    def ranks(self, rows: Index) -> Index:
        """The ranks of rows among these, in the order of their columns."""
        chosen = rows
        return content_ranks([column.take(chosen) for column in self.ordering], rows.size)

    def _sort(self, groups: Index, values: Values, times: Codes | None) -> None:
        line = self.spec.metric == "line"
        self.starts = np.zeros(self.groups + 1, dtype=np.int64)
        np.cumsum(np.bincount(groups, minlength=self.groups), out=self.starts[1:])
        if line and times is not None:
            self.timed = TimedLine(groups, values[:, 0], times, self.starts)
            self.rows = self.rows[self.timed.order]
            return
        if not line:
            order = np.argsort(groups, kind="stable")
        elif self.groups > 1:
            order = np.lexsort((values[:, 0], groups))
        else:
            order = np.argsort(values[:, 0])
        self.rows = self.rows[order]
        if line:
            self.values = np.ascontiguousarray(values[order, 0])
            self.table, self.scale = np.empty(0, dtype=np.int64), 0.0
            if self.groups == 1:
                self.table, self.scale = buckets_of(self.values, max(1, order.size // 2))
            return
        factors, points, places = np.array(self.spec.factors), np.ascontiguousarray(values[order]), None
        if self.spec.metric == "haversine":
            points, places = on_sphere(points)
            factors = np.ones(3)
        if times is None or self.spec.window is None:
            self.tree = build(points, self.starts, factors, places)
        else:
            low, high = self.spec.window
            self.tree = build_timed(points, times[order], high - low, self.starts, factors, places)
        self.rows = self.rows[self.tree.order]

    def search(self, columns: Keys, limits: Floats | None = None) -> Found:
        """The nearest rows of each asking row, all that are as near as its k-th.

        In a tree, none beyond the limit of a row: there are nearer ones elsewhere.
        """
        count = len(self.spec.keys)
        values, good = coordinates(self.spec, columns[count:])
        asking = np.flatnonzero(good & usable(columns[:count]) if count else good)
        group = np.zeros(asking.size, dtype=np.int64)
        if count:
            chosen = asking
            group = group_numbers(self.spec.keys, self.keys, [key.take(chosen) for key in columns[:count]])[1]
        values = values[asking] if asking.size < good.size else values
        since = until = trees.ALWAYS
        if self.spec.window is not None:
            times = order_codes(columns[-1], "int")[asking]
            since, until = window_ends(times, *self.spec.window)
        if self.spec.metric == "line":
            found = self._on_line(group, values[:, 0], since, until)
        else:
            # The compiled search has room for k rows of each asking one.
            step = max(1, _ROOM // min(self.spec.k, max(1, self.rows.size)))
            near = np.full(asking.size, np.inf) if limits is None else limits[asking]
            parts = [
                self._in_tree(
                    group[at : at + step],
                    values[at : at + step],
                    near[at : at + step],
                    since[at : at + step],
                    until[at : at + step],
                )
                for at in range(0, asking.size, step)
            ]
            found = _joined(parts, step)
        owner = asking[found.owner] if asking.size < good.size else found.owner
        return Found(owner, self.rows[found.row], found.far)

    def _on_line(self, group: Index, asked: Values, since: Codes, until: Codes) -> Found:
        within: Any = _limit(self.spec)
        if within is None:
            empty = np.empty(0, dtype=np.int64)
            return Found(empty, empty, asked[:0])
        if self.spec.window is not None:
            return Found(*self.timed.nearest(group, asked, since, until, self.spec.k, within))
        asked = np.ascontiguousarray(asked)
        if self.spec.k == 1 and self.table.size:
            place, far = np.empty(asked.size, dtype=np.int64), np.empty_like(asked)
            if nearest_one(self.values, asked, within, self.table, self.scale, place, far):
                owner = np.flatnonzero(place >= 0)
                return Found(owner, place, far) if owner.size == place.size else Found(owner, place[owner], far[owner])
        begin, end = runs(self.values, self.starts, group, asked, self.spec.k, within, self.table, self.scale)
        return Found(*listed(self.values, begin, end, asked))

    def _in_tree(self, group: Index, values: Values, limits: Floats, since: Codes, until: Codes) -> Found:
        within: Any = _limit(self.spec)
        empty = np.empty(0, dtype=np.int64)
        if within is None:
            return Found(empty, empty, np.empty(0))
        asked, places = np.ascontiguousarray(values), np.empty((0, 3))
        if self.spec.metric == "haversine":
            asked, places = on_sphere(asked)
        k = min(self.spec.k, max(1, self.rows.size))
        visits = np.argsort(trees.neighbourhoods(self.tree, group, asked, until))
        row, far, counts, tied = trees.nearest(
            self.tree, group, asked, places, visits, k, np.minimum(limits, within), since, until
        )
        owner = np.repeat(np.arange(counts.size), counts)
        own = np.arange(k) < counts[:, None]
        found = Found(owner, row[own], far[own])
        again = np.flatnonzero(tied)
        if not again.size:
            return found
        more = trees.within_reach(
            self.tree, group[again], asked[again], places[again] if places.size else places, far[again, k - 1],
            *(ends[again] if ends.size else ends for ends in (since, until)),
        )  # fmt: skip
        plain = ~tied[owner]
        owner, row, far = (
            np.concatenate([one[plain], other])
            for one, other in zip(found, (again[more[0]], more[1], more[2]), strict=True)
        )
        order = np.lexsort((far, owner))
        return Found(owner[order], row[order], far[order])


def _joined(parts: Sequence[Found], step: int) -> Found:
    """What parts of the asking rows have found, each part `step` rows long, in one."""
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Found(empty, empty, np.empty(0))
    owner = np.concatenate([part.owner + at * step for at, part in enumerate(parts)])
    return Found(owner, np.concatenate([part.row for part in parts]), np.concatenate([part.far for part in parts]))


def _limit(spec: NearestSpec) -> np.uint64 | float | None:
    """The largest distance as the compiled code takes it; None where nothing is near enough."""
    if spec.whole:
        within = _FARTHEST if spec.within is None else int(spec.within)
        return None if within < 0 else np.uint64(min(within, _FARTHEST))
    limit = _LARGEST if spec.within is None else float(spec.within)
    return None if limit < 0 else min(limit, _LARGEST)


def choose(spec: NearestSpec, owner: Index, far: Values, ordering: Sequence[pa.Array[Any]]) -> Chosen:
    """Of candidates from anywhere the k nearest of each asking row, in the order of the rows and their ranks.

    `ordering` has the columns of the candidates that decide between equally near ones.
    """
    order = np.arange(owner.size)
    sorted_already = in_order(owner, far)
    if not sorted_already:
        order = np.lexsort((far, owner))
        owner, far = owner[order], far[order]
    kept, rank, tied = reaching(owner, far, spec.k)
    if spec.ties == "all":
        return Chosen(order, rank, sorted_already) if kept.all() else Chosen(order[kept], rank[kept])
    tied &= kept
    if tied.any():
        ranks = np.zeros(owner.size, dtype=np.int64)
        chosen = order[tied]
        ranks[tied] = content_ranks([column.take(chosen) for column in ordering], int(tied.sum()))
        resorted = np.lexsort((ranks, far, owner))
        order, owner = order[resorted], owner[resorted]
    kept, place = first_places(owner, spec.k)
    return Chosen(order[kept], place[kept])

"""Where rows go, so that the nearest rows of each are asked for wherever they may be, and nowhere else.

Rows of one key lie in one cell, unless the key is *heavy*: then cuts through space divide it into regions.  An
answering row goes to its region.  An asking row has to know how far to look.  Some answering rows of its key travel
with the routing, a sample; the k-th nearest of those is at least as far as the k-th nearest of all, so all that matter
lie within that distance.  The row asks in the regions that this ball touches, and nowhere else: a small ball where data
is dense, a large one where it is sparse, and no radius that anybody has to choose.  Where the sample has fewer than k
rows of a key, its rows ask in all of its regions.

A region with many more asking than answering rows is shared by several cells: each has all answering rows of the
region, and a part of the asking rows.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.codes import LOWEST
from dovetail.columns.encode import Keys, group_numbers
from dovetail.columns.hashing import mix_into
from dovetail.columns.numba_cache import njit
from dovetail.columns.segments import pack, unpack
from dovetail.families.nearest import tree_search as trees
from dovetail.families.nearest.compiled import Index
from dovetail.families.nearest.kernel import coordinates, on_sphere
from dovetail.families.nearest.spec import EARTH, NearestSpec
from dovetail.families.nearest.tree import build

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_EDGE = 1e300
"""The largest coordinate in the space of cells."""


class Visits(NamedTuple):
    """The asking rows, once for each cell that they visit; their homes, which must find k rows, and how far away."""

    rows: Index
    cells: Index
    home: Index
    sure: Mask
    far: Floats
    """For each row how far away a neighbour can be."""


@dataclass(frozen=True)
class Routing:
    """Slices of the hash of the key, regions of heavy keys, and the numbers by which Spark finds their tasks."""

    spread: bool
    """Whether nothing is known of the data: answering rows anywhere, asking rows everywhere."""
    light: Index
    """Hashes at which the slices of light keys begin, from the second on."""
    heavy: Index
    """The hashes of heavy keys, ascending."""
    roots: Index
    """For each of them its first node."""
    axis: Index
    """For each node the axis of its cut; -1 for a region."""
    cut: Floats
    left: Index
    """For each node its lower child; for a region its first cell."""
    right: Index
    """For each node its upper child; for a region how many cells share it."""
    numbers: npt.NDArray[np.int32]
    points: pa.RecordBatch
    """Sampled answering rows of heavy keys: their keys, and their places."""

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.numbers.size)

    def answering(self, hashes: Index, places: Floats, spread: Index) -> tuple[Index, Index]:
        """(row, cell) for every cell that an answering row goes to; `spread` are hashes of the rows."""
        rows = np.arange(hashes.size)
        if self.spread:
            return rows, modulo(spread, self.cells)
        node, cells = self._roots(hashes)
        located = np.flatnonzero(node >= 0)
        region = regions_of(self.axis, self.cut, self.left, self.right, node[located], places[located])
        shared = np.ones(hashes.size, dtype=np.int64)
        cells[located], shared[located] = self.left[region], self.right[region]
        rows = np.repeat(rows, shared)
        within = np.arange(rows.size) - np.repeat(np.cumsum(shared) - shared, shared)
        return rows, cells[rows] + within

    def asking(self, spec: NearestSpec, hashes: Index, places: Floats, keys: Keys, spread: Index) -> Visits:
        """Where asking rows go; `spread` are numbers that divide rows evenly."""
        size = hashes.size
        rows, sure, limits = np.arange(size), np.zeros(size, dtype=np.bool_), np.full(size, np.inf)
        if self.spread:
            every = np.tile(np.arange(self.cells), size)
            return Visits(np.repeat(rows, self.cells), every, modulo(spread, self.cells), sure, limits)
        node, home = self._roots(hashes)
        located = np.flatnonzero(node >= 0)
        if not located.size:
            return Visits(rows, home, home, sure, limits)
        far, sure[located] = self._reach(spec, places[located], [key.take(located) for key in keys])
        turn = spread[located].view(np.uint64) >> np.uint64(1)
        mine = regions_of(self.axis, self.cut, self.left, self.right, node[located], places[located])
        home[located] = shared_cell(self.left, self.right, mine, turn)
        owner, cells = touched(
            self.axis, self.cut, self.left, self.right, node[located], places[located], far, turn
        )  # fmt: skip
        plain = np.flatnonzero(node < 0)
        visitors = np.concatenate([plain, located[owner]])
        limits[located] = far if spec.metric != "haversine" else on_earth(far)
        return Visits(visitors, np.concatenate([home[plain], cells]), home, sure, limits)

    def _roots(self, hashes: Index) -> tuple[Index, Index]:
        """For each row the first node of its heavy key, -1 for light ones; and the cell of light ones."""
        at = np.searchsorted(self.heavy, hashes)
        known = at < self.heavy.size
        known[known] = self.heavy[at[known]] == hashes[known]
        node = np.full(hashes.size, -1, dtype=np.int64)
        node[known] = self.roots[at[known]]
        return node, np.searchsorted(self.light, hashes, side="right").astype(np.int64)

    def _reach(self, spec: NearestSpec, places: Floats, keys: Keys) -> tuple[Floats, Mask]:
        """How far each row has to look, with a margin for rounding; and whether it must find k rows there."""
        count = len(spec.keys)
        points = np.column_stack([column.to_numpy() for column in self.points.columns[count:]])
        groups, asked = np.zeros(points.shape[0], dtype=np.int64), np.zeros(places.shape[0], dtype=np.int64)
        if count:
            groups, asked = group_numbers(spec.keys, list(self.points.columns[:count]), keys)
        known = 1 + int(groups.max(initial=-1))
        far, sure = np.full(places.shape[0], np.inf), np.zeros(places.shape[0], dtype=np.bool_)
        if points.shape[0] >= spec.k:
            order = np.argsort(groups, kind="stable")
            starts = np.zeros(known + 1, dtype=np.int64)
            np.cumsum(np.bincount(groups, minlength=known), out=starts[1:])
            tree = build(np.ascontiguousarray(points[order]), starts, np.ones(spec.dimensions))
            step = max(1, (1 << 23) // spec.k)
            for at in range(0, far.size, step):
                some = places[at : at + step], asked[at : at + step]
                visits = np.argsort(trees.neighbourhoods(tree, some[1], some[0], trees.ALWAYS))
                none = np.empty((0, 3))
                anywhere = np.full(visits.size, np.inf)
                _, found, counts, _ = trees.nearest(
                    tree, some[1], some[0], none, visits, spec.k, anywhere, trees.ALWAYS, trees.ALWAYS
                )
                enough = counts == spec.k
                far[at : at + step][enough] = found[enough, spec.k - 1]
                sure[at : at + step] = enough
        # Beyond the edge of space distances are not what they seem, and those that overflow count for nothing.
        far[~within_space(places)] = np.inf
        sure &= np.isfinite(far)
        limit = farthest(spec)
        if limit is not None:
            sure &= far < limit
            far = np.minimum(far, limit)
        # Places are rounded, and so are distances between them: a few bits of the largest number at hand.
        scale = np.abs(places).max(axis=1) + far
        return far * (1 + 1e-12) + 4e-15 * scale + (1e-13 if spec.metric == "haversine" else 0.0), sure

    def to_buffer(self) -> pa.Buffer:
        """The routing as bytes, for its way to the workers."""
        parts = (self.light, self.heavy, self.roots, self.axis, self.cut, self.left, self.right, self.numbers)
        names = ("light", "heavy", "roots", "axis", "cut", "left", "right", "numbers")
        columns: list[pa.Array[Any]] = [
            pa.array([part.tolist()], pa.list_(pa.float64() if part.dtype.kind == "f" else pa.int64()))
            for part in parts
        ]
        columns.append(pa.array([pack(self.points).to_pybytes()], pa.binary()))
        batch = pa.RecordBatch.from_arrays(columns, names=[*names, "points"])
        return pack(batch.replace_schema_metadata({"routing": json.dumps({"spread": self.spread})}))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> Routing:
        """The inverse of :meth:`to_buffer`."""
        batch = unpack(buffer)
        head = json.loads(batch.schema.metadata[b"routing"])
        parts: list[Any] = [column[0].values.to_numpy(zero_copy_only=False) for column in batch.columns[:-1]]
        light, heavy, roots, axis, cut, left, right, numbers = parts
        points = unpack(batch.column("points")[0].as_buffer())
        return cls(
            head["spread"], light, heavy, roots, axis, cut, left, right, numbers.astype(np.int32), points
        )  # fmt: skip


def modulo(numbers: Index, cells: int) -> Index:
    """A cell for each number, whatever its sign."""
    return (numbers.view(np.uint64) % np.uint64(cells)).astype(np.int64)


def places_of(spec: NearestSpec, columns: Keys) -> tuple[Floats, Mask]:
    """Rows in the space in which cells lie, (rows, dimensions), and which have a place.

    On a line whole numbers are rounded to doubles; weighted coordinates are multiplied with their factors.  Whatever is
    beyond the edge of space is moved to it, which brings rows together and takes none apart.
    """
    values, good = coordinates(spec, columns)
    if spec.whole:
        codes = (values.view(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
        return codes.astype(np.float64), good
    if spec.metric == "haversine":
        return on_sphere(np.where(good[:, None], values, 0.0))[0], good
    with np.errstate(over="ignore"):
        weighed = np.where(good[:, None], values, 0.0) * np.array(spec.factors)
    return np.clip(weighed, -_EDGE, _EDGE), good


def within_space(places: Floats) -> Mask:
    """The rows whose places are exact, not those that were moved to the edge of space."""
    beyond: Mask = np.any(np.abs(places) >= _EDGE, axis=1)
    return ~beyond


def on_earth(chords: Floats) -> Floats:
    """The distances on the Earth that chords of the unit sphere span, rounded up."""
    return 2 * EARTH * np.arcsin(np.minimum(chords / 2, 1.0)) * (1 + 1e-9) + 1e-3


def farthest(spec: NearestSpec) -> float | None:
    """The largest distance in the space of cells; None for any."""
    if spec.within is None:
        return None
    if spec.metric == "haversine":
        return 2 * math.sin(min(max(float(spec.within), 0.0) / (2 * EARTH), math.pi / 2))
    return max(float(spec.within), 0.0)


@njit
def regions_of(
    axis: Index, cut: Floats, left: Index, right: Index, roots: Index, places: Floats
) -> Index:  # pragma: no cover - compiled
    """The region of each place, below its root."""
    out = np.empty(roots.size, dtype=np.int64)
    for row in range(roots.size):
        node = roots[row]
        while axis[node] >= 0:
            node = right[node] if places[row, axis[node]] >= cut[node] else left[node]
        out[row] = node
    return out


def shared_cell(left: Index, right: Index, regions: Index, turn: npt.NDArray[np.uint64]) -> Index:
    """The cell of each asking row in a region: one of those that share it."""
    return left[regions] + (turn % right[regions].astype(np.uint64)).astype(np.int64)


@njit
def touched(
    axis: Index, cut: Floats, left: Index, right: Index, roots: Index, places: Floats, far: Floats,
    turn: npt.NDArray[np.uint64],
) -> tuple[Index, Index]:  # pragma: no cover - compiled  # fmt: skip
    """(row, cell) for every region that the ball around a place touches."""
    room, count = max(1024, 2 * roots.size), 0
    owner, cells = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    dims = places.shape[1]
    stack = np.empty(256, dtype=np.int64)
    gaps = np.zeros((256, dims))
    for row in range(roots.size):
        limit = far[row] * far[row] * (1 + 1e-15) + 1e-320
        stack[0] = roots[row]
        gaps[0, :] = 0.0
        waiting = 1
        while waiting:
            waiting -= 1
            node = stack[waiting]
            if axis[node] < 0:
                if count == room:
                    room *= 2
                    owner = np.concatenate((owner, np.empty(count, dtype=np.int64)))
                    cells = np.concatenate((cells, np.empty(count, dtype=np.int64)))
                owner[count] = row
                cells[count] = left[node] + np.int64(turn[row] % np.uint64(right[node]))
                count += 1
                continue
            own = axis[node]
            above = places[row, own] >= cut[node]
            near, other = (right[node], left[node]) if above else (left[node], right[node])
            gap = abs(places[row, own] - cut[node])
            before = gaps[waiting, own]
            # The near child has the gaps of its parent; the other one lies behind the cut as well.
            total = 0.0
            for d in range(dims):
                part = max(gap, before) if d == own else gaps[waiting, d]
                total += part * part
            if total <= limit:
                for d in range(dims):
                    gaps[waiting + 1, d] = gaps[waiting, d]
                stack[waiting + 1] = near
                stack[waiting] = other
                gaps[waiting, own] = max(gap, before)
                waiting += 2
            else:
                stack[waiting] = near
                waiting += 1
    return owner[:count], cells[:count]


def without_sample(spec: NearestSpec, partitions: int) -> Routing:
    """A routing that knows nothing of the data: slices of the hash of the key, or answering rows spread at random."""
    numbers = spark_hash.cell_numbers(np.arange(partitions), partitions)
    light = np.array([LOWEST + (c * (1 << 64)) // partitions for c in range(1, partitions)], dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    return Routing(
        not spec.keys, light if spec.keys else none, none, none, none, np.empty(0), none, none, numbers, no_points(spec)
    )


def no_points(spec: NearestSpec) -> pa.RecordBatch:
    """No sampled rows."""
    columns: list[pa.Array[Any]] = [pa.array([], pa.null())] * len(spec.keys)
    columns += [pa.array([], pa.float64())] * spec.dimensions
    return pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(columns))])


def scattered(numbers: Index) -> Index:
    """Row numbers without the pattern of tasks."""
    total = np.zeros(numbers.size, dtype=np.int64)
    mix_into(total, numbers)
    return total

"""Where rows on a line go: those that ask to one cell each, those that answer wherever somebody may need them.

A heavy key is cut into regions, ranges of values.  How far a value x has to look is known from a sample of the
answering rows: the k-th nearest of those is at least as far as the k-th nearest of all.  That distance B(x) changes by
no more than x itself, so neither x - B(x) nor x + B(x) ever falls as x grows, and all that the rows of a region need
lies between the reach of its lower end to the left and that of its upper end to the right.  An answering row goes to
its own region and to the few others whose reach it lies in, and an asking row meets all that it needs in one cell: no
second shuffle.

Whole numbers are exact throughout.  Distances of doubles are rounded, more so the larger the numbers are, and rows that
differ may be equally near; a margin for that covers every value of a region.  The outer regions have no end, and theirs
covers values a thousand million times as far away as the sample is wide; one that is still farther, and that no sample
has shown, is refused.

Beside a window of time the line is that of the times, whatever the distance is: the rows of a region need those from
its first time + the least up to its last time + the most that the window allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.codes import HIGHEST, LOWEST, Codes, float_codes, float_values, moved, order_codes
from dovetail.columns.encode import Keys, group_numbers
from dovetail.columns.segments import pack, unpack
from dovetail.errors import ArgumentError
from dovetail.families.nearest import fitting
from dovetail.families.nearest.compiled import Index, answering_cells, asking_cells
from dovetail.families.nearest.fitting import HEAVY, MOST_CELLS, cell_count, slices_of
from dovetail.families.nearest.spec import NearestSpec

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


_ROUNDING = 8e-15
"""How far rounding may move a distance, as a share of the numbers that it is computed from; some bits to spare."""
_PARTS = ("light", "heavy", "offsets", "begins", "low", "high", "first", "shared", "sure", "top", "numbers")


def line_codes(spec: NearestSpec, columns: Keys) -> Codes:
    """Values, or times beside a window, as codes that keep their order; those without a place get any."""
    if spec.window is not None:
        return order_codes(columns[-1], "int")
    return order_codes(columns[0], "int" if spec.whole else "float64")


@dataclass(frozen=True)
class LineSample:
    """A sample of one side: hashes of the keys, codes of the values, keys, and how many rows it stands for."""

    hash: Index
    codes: Codes
    keys: Keys
    rows: float


@dataclass(frozen=True)
class LineRouting:
    """Slices of the hash of the key, regions of heavy keys, and the numbers by which Spark finds their tasks."""

    light: Index
    """Hashes at which the slices of light keys begin, from the second on."""
    heavy: Index
    """The hashes of heavy keys, ascending."""
    offsets: Index
    """Where the regions of each heavy key begin, and where the last ones end."""
    begins: Codes
    """The first value of each region."""
    low: Codes
    high: Codes
    """What the rows of each region may need."""
    first: Index
    shared: Index
    """The first cell of each region, and how many cells share its asking rows."""
    sure: Index
    """Whether a row of the region must find k rows: 1 if so."""
    top: Codes
    """The largest magnitude of a value of each region that its reach allows for, as a code."""
    numbers: npt.NDArray[np.int32]
    keys: pa.RecordBatch | None = None
    """The heavy keys themselves: another key of the same hash is a light one."""

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.numbers.size)

    def asking(self, spec: NearestSpec, hashes: Index, codes: Codes, keys: Keys, turn: Index) -> tuple[Index, Mask]:
        """The cell of each asking row, and whether it must find k rows; `turn` divides rows evenly."""
        which, cells = self._known(spec, hashes, keys)
        sure = np.zeros(hashes.size, dtype=np.bool_)
        for at, rows in self._by_key(which):
            own = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
            beyond = asking_cells(
                self.begins[own], self.first[own], self.shared[own], self.sure[own], self.top[own], rows, codes, turn,
                cells, sure,
            )  # fmt: skip
            if beyond >= 0:
                raise _too_far(float_values(codes[beyond : beyond + 1], "float64").item())
        return cells, sure

    def answering(self, spec: NearestSpec, hashes: Index, codes: Codes, keys: Keys) -> tuple[Index, Index]:
        """(row, cell) for every cell that an answering row goes to."""
        which, cells = self._known(spec, hashes, keys)
        plain = np.flatnonzero(which < 0)
        found = [(plain, cells[plain])]
        for at, rows in self._by_key(which):
            own = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
            found.append(answering_cells(self.low[own], self.high[own], self.first[own], self.shared[own], rows, codes))
        rows, cells = (np.concatenate([pair[at] for pair in found]) for at in range(2))
        return rows, cells

    def _known(self, spec: NearestSpec, hashes: Index, keys: Keys) -> tuple[Index, Index]:
        """For each row the number of its heavy key, -1 for light ones; and the cell of light ones."""
        if not spec.keys and self.heavy.size:
            return np.zeros(hashes.size, dtype=np.int64), np.zeros(hashes.size, dtype=np.int64)
        at = np.searchsorted(self.heavy, hashes)
        known = at < self.heavy.size
        known[known] = self.heavy[at[known]] == hashes[known]
        if spec.keys and self.keys is not None and known.any():
            rows = np.flatnonzero(known)
            heavy, own = group_numbers(spec.keys, list(self.keys.columns), [key.take(rows) for key in keys])
            known[rows] = heavy[at[rows]] == own
        return np.where(known, at, -1), np.searchsorted(self.light, hashes, side="right").astype(np.int64)

    def _by_key(self, which: Index) -> list[tuple[int, Index]]:
        """The rows of each heavy key."""
        if self.heavy.size == 1:
            rows = np.flatnonzero(which == 0)
            return [(0, rows)] if rows.size else []
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(self.heavy.size + 1))
        parts = [(at, order[ends[at] : ends[at + 1]]) for at in range(self.heavy.size)]
        return [(at, rows) for at, rows in parts if rows.size]

    def to_buffer(self) -> pa.Buffer:
        """The routing as bytes, for its way to the workers."""
        columns: list[pa.Array[Any]] = [
            pa.array([getattr(self, name).tolist()], pa.list_(pa.int64())) for name in _PARTS
        ]
        columns.append(pa.array([None if self.keys is None else pack(self.keys).to_pybytes()], pa.binary()))
        return pack(pa.RecordBatch.from_arrays(columns, names=[*_PARTS, "keys"]))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> LineRouting:
        """The inverse of :meth:`to_buffer`."""
        batch = unpack(buffer)
        parts = {name: batch.column(name)[0].values.to_numpy() for name in _PARTS}
        keys = batch.column("keys")[0]
        heavy = unpack(keys.as_buffer()) if keys.is_valid else None
        return cls(**{**parts, "numbers": parts["numbers"].astype(np.int32)}, keys=heavy)


def _too_far(value: float) -> ArgumentError:
    return ArgumentError(
        f"a row at {value!r} asks for its nearest ones, from so far away that doubles cannot tell them apart",
        accepted="values less than a thousand million times as far away as the others are from each other",
        hint="leave such rows out, or give the largest distance with within=; sample=False takes them",
    )


def by_hash(partitions: int) -> LineRouting:
    """A routing that knows nothing of the data: slices of the hash of the key."""
    light = np.array([LOWEST + (c * (1 << 64)) // partitions for c in range(1, partitions)], dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    numbers = spark_hash.cell_numbers(np.arange(partitions), partitions)
    return LineRouting(light, none, np.zeros(1, dtype=np.int64), none, none, none, none, none, none, none, numbers)


def for_everybody(partitions: int) -> LineRouting:
    """A routing that knows nothing of the data, and no key: all answering rows to every cell, asking rows to one."""
    none, zero, one = (np.full(size, value, dtype=np.int64) for size, value in ((0, 0), (1, 0), (1, 1)))
    lowest, highest = np.full(1, LOWEST), np.full(1, HIGHEST)
    numbers = spark_hash.cell_numbers(np.arange(partitions), partitions)
    ends = np.array([0, 1], dtype=np.int64)
    return LineRouting(
        none, zero, ends, lowest, lowest, highest, zero, one * partitions, zero, highest, numbers
    )  # fmt: skip


@dataclass
class _Regions:
    """Regions, while they are made."""

    begins: list[int]
    low: list[int]
    high: list[int]
    first: list[int]
    shared: list[int]
    sure: list[int]
    top: list[int]
    costs: list[float]


def fit_line(spec: NearestSpec, asking: LineSample, answering: LineSample, *, partitions: int) -> LineRouting:
    """Slices of light keys and regions of heavy ones, each of about equal work, for what the samples show.

    Without keys there is one heavy key.
    """
    rows = asking.rows + answering.rows
    average = max(1.0, rows / cell_count(rows, partitions))
    weights = asking.rows / max(1, asking.hash.size), answering.rows / max(1, answering.hash.size)
    hashes = np.concatenate([asking.hash, answering.hash])
    names, numbered = np.unique(hashes, return_inverse=True)
    both = np.repeat(weights, [asking.hash.size, answering.hash.size])
    load = np.bincount(numbered, weights=both, minlength=names.size).astype(np.float64)
    made = _Regions([], [], [], [], [], [], [], [])
    light: list[int] = []
    heavy = np.zeros(1, dtype=np.int64)
    if spec.keys:
        heavy = names[load > HEAVY * average]
        light, made.costs = slices_of(names[load <= HEAVY * average], load[load <= HEAVY * average], average)
    offsets = [0]
    for name in heavy.tolist():
        own = np.flatnonzero(answering.hash == name)
        _divide(
            spec, made, np.sort(asking.codes[asking.hash == name]), np.sort(answering.codes[own]), weights, average,
            alike=_alike(spec, [key.take(own) for key in answering.keys]),
        )  # fmt: skip
        offsets.append(len(made.begins))
    numbers = spark_hash.cell_numbers(spark_hash.balance(np.array(made.costs), partitions), partitions)
    parts = (light, offsets, made.begins, made.low, made.high, made.first, made.shared, made.sure, made.top)
    slices, starts, begins, low, high, first, shared, sure, top = (np.array(part, dtype=np.int64) for part in parts)
    keys = _heavy_keys(spec, asking, answering, heavy)
    return LineRouting(slices, heavy, starts, begins, low, high, first, shared, sure, top, numbers, keys)


def _heavy_keys(spec: NearestSpec, asking: LineSample, answering: LineSample, heavy: Index) -> pa.RecordBatch | None:
    """A sampled key for each heavy hash, of the answering side where it has one: its values decide the cuts."""
    if not spec.keys or not heavy.size:
        return None
    hashes = np.concatenate([answering.hash, asking.hash])
    rows = np.array([int(np.flatnonzero(hashes == name)[0]) for name in heavy.tolist()], dtype=np.int64)
    sides = zip(answering.keys, asking.keys, strict=True)
    columns = [pa.concat_arrays([one, other]).take(rows) for one, other in sides]
    return pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(columns))])


def _alike(spec: NearestSpec, keys: Keys) -> bool:
    """Whether rows of one hash have one key: two keys that share a hash are not cut."""
    if not spec.keys or not len(keys[0]):
        return True
    return not group_numbers(spec.keys, keys, [key.slice(0, 0) for key in keys])[0].any()


def _divide(
    spec: NearestSpec, made: _Regions, asking: Codes, answering: Codes, weights: tuple[float, float], average: float,
    *, alike: bool,
) -> None:  # fmt: skip
    """The regions of one heavy key, whose sampled codes are sorted."""
    asks, answers = asking.size * weights[0], answering.size * weights[1]
    wanted = 1
    if spec.window is not None:
        _divide_time(spec.window, made, asking, answering, weights, average, alike=alike)
        return
    if alike and answering.size >= spec.k:
        most = min(answering.size // fitting.least_points(spec), MOST_CELLS)
        wanted = min(round((asks + answers) / average), most)
    cuts: list[int] = []
    if wanted > 1:
        cuts = _quantiles(asking, answering, weights, wanted)
    begins, ends = [LOWEST, *cuts], [*cuts, HIGHEST]
    largest = _largest(spec, asking, answering, len(begins))
    told = float_codes(np.array([largest])).item()
    near = spec.within is not None and spec.within < largest / 4
    for begin, end in zip(begins, ends, strict=True):
        asked = int(np.searchsorted(asking, end) - np.searchsorted(asking, begin)) * weights[0]
        low = LOWEST if begin == LOWEST else _reach(spec, answering, begin, (begin, end), largest, -1)
        high = HIGHEST if end == HIGHEST else _reach(spec, answering, end, (begin, end), largest, 1)
        held = int(np.searchsorted(answering, high, side="right") - np.searchsorted(answering, low)) * weights[1]
        shared = max(1, min(MOST_CELLS, round(asked / max(average, held))))
        made.begins.append(begin)
        made.low.append(low)
        made.high.append(high)
        made.first.append(len(made.costs))
        made.shared.append(shared)
        made.sure.append(int(bool(cuts) and spec.within is None))
        bounded = not cuts or spec.whole or near or (begin != LOWEST and end != HIGHEST)
        made.top.append(HIGHEST if bounded else told)
        made.costs += [asked / shared + held] * shared
    inner = slice(len(made.begins) - len(begins) + 1, len(made.begins) - 1)
    made.high[inner] = np.maximum.accumulate(np.array(made.high[inner], dtype=np.int64)).tolist()
    made.low[inner] = np.minimum.accumulate(np.array(made.low[inner], dtype=np.int64)[::-1])[::-1].tolist()


def _quantiles(asking: Codes, answering: Codes, weights: tuple[float, float], wanted: int) -> list[int]:
    """Codes that cut the rows of both sides into so many parts of equal weight, or fewer."""
    both = np.concatenate([asking, answering])
    order = np.argsort(both, kind="stable")
    total = np.cumsum(np.repeat(weights, [asking.size, answering.size])[order])
    at = np.searchsorted(total, total[-1] * np.arange(1, wanted) / wanted)
    return [int(code) for code in np.unique(both[order[at]])]


def _divide_time(
    window: tuple[int, int], made: _Regions, asking: Codes, answering: Codes, weights: tuple[float, float],
    average: float, *, alike: bool,
) -> None:  # fmt: skip
    """Regions of time, as many as can be without copying answering rows more than once on average."""
    wanted = min(round((asking.size * weights[0] + answering.size * weights[1]) / average), MOST_CELLS) if alike else 1
    while True:
        cuts = _quantiles(asking, answering, weights, wanted) if wanted > 1 else []
        begins, ends = np.array([LOWEST, *cuts]), np.array([*cuts, HIGHEST])
        low, high = moved(begins, window[0]), moved(ends, window[1])
        low[0], high[-1] = LOWEST, HIGHEST
        held = np.searchsorted(answering, high, side="right") - np.searchsorted(answering, low)
        if not cuts or held.sum() <= 2 * answering.size:
            break
        wanted //= 2
    asked = np.searchsorted(asking, ends) - np.searchsorted(asking, begins)
    asked[-1] = asking.size - int(asked[:-1].sum())
    for at in range(begins.size):
        asks, answers = asked[at] * weights[0], held[at] * weights[1]
        # To look for rows costs several times as much as to hold them.
        shared = max(1, min(MOST_CELLS, round(asks / max(average, answers / 4))))
        made.begins.append(int(begins[at]))
        made.low.append(int(low[at]))
        made.high.append(int(high[at]))
        made.first.append(len(made.costs))
        made.shared.append(shared)
        made.sure.append(0)
        made.top.append(HIGHEST)
        made.costs += [asks / shared + answers / 4] * shared


def _largest(spec: NearestSpec, asking: Codes, answering: Codes, regions: int) -> float:
    """The largest magnitude for which the margin of an outer region takes few rows of the next one."""
    if spec.whole or not answering.size:
        return 0.0
    known = np.abs(float_values(np.concatenate([asking, answering]), "float64"))
    with np.errstate(over="ignore"):
        width = float(np.ptp(float_values(answering, "float64"))) / regions
        return float(min(max(2 * known.max(), width / (64 * _ROUNDING)), np.finfo(np.float64).max))


def _reach(spec: NearestSpec, answering: Codes, at: int, region: tuple[int, int], largest: float, side: int) -> int:
    """The code up to which the rows of a region may need others, beyond the end `at` of it."""
    begin, place = max(0, int(np.searchsorted(answering, at)) - spec.k), spec.k - 1
    near = answering[begin : int(np.searchsorted(answering, at)) + spec.k]
    if spec.whole:
        far = sorted(abs(int(code) - at) for code in near.tolist())[place]
        if spec.within is not None:
            far = min(far, max(0, int(spec.within)))
        return min(max(at + side * far, LOWEST), HIGHEST)
    value = float(float_values(np.array([at]), "float64")[0])
    with np.errstate(over="ignore"):
        reach = float(np.sort(np.abs(float_values(near, "float64") - value))[place])
    if spec.within is not None:
        reach = min(reach, max(0.0, float(spec.within)))
    # Every value of the region; of those without an end, the largest that is allowed for.
    ends = [abs(float(one)) for one in float_values(np.array(region), "float64")]
    scale = max(largest if code in (LOWEST, HIGHEST) else one for code, one in zip(region, ends, strict=True))
    with np.errstate(over="ignore"):
        margin = 1e-12 * reach + _ROUNDING * (scale + reach + abs(value))
        end = np.float64(value) + side * (np.float64(reach) + margin)
    if not np.isfinite(end):
        return LOWEST if side < 0 else HIGHEST
    return int(float_codes(np.array([end]))[0])

"""How often intervals hold the truth: joins run as the drivers run them, cell by cell, without a JVM.

What happens to the results is what :func:`dovetail.estimates` does with them: the sums of every cell, added up, and the
figures that they give.  Inputs differ in everything that must not matter, the order of arrival above all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dovetail.conditions.limits import Limit
from dovetail.families.approx.estimate import Sampled
from dovetail.families.approx.intervals import SUMS, Figures, cell_sums, figures
from dovetail.families.approx.router import cells_of, memory_shares, result_shares
from dovetail.families.approx.spec import ApproxSpec
from dovetail.families.approx.stream import BUDGET, SHARE, ApproxKernel

from .harness import equality_spec

ORDERS = ("random", "sorted", "clustered", "one side first", "heavy key")
MEASURES = ("count", "sum", "avg", "part")


@dataclass(frozen=True)
class Input:
    """Rows of one input: join values, a measure, and when they arrive."""

    keys: np.ndarray
    x: np.ndarray
    arrival: np.ndarray

    @property
    def hashes(self) -> np.ndarray:
        mixed = self.keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x5EED)
        mixed ^= mixed >> np.uint64(29)
        return (mixed * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)

    def segment(self, which: np.ndarray) -> pa.RecordBatch:
        columns = [np.asarray(part)[which] for part in (self.x, self.keys, self.hashes, self.arrival)]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["c0", "k0", "h", "a"])


@dataclass(frozen=True)
class Setting:
    """A join, and how its rows arrive."""

    order: str
    policy: str = "raj_hash"
    rows: int = 1200
    values: int = 60
    memory: int | Limit = 400
    cells: int = 1
    calls: int = 1
    results: int | None = None
    sides: int = 2
    skew: float = 1.0
    data: tuple[Input, ...] = field(default=(), compare=False)

    def inputs(self) -> tuple[Input, ...]:
        random = np.random.default_rng(31)
        chance = 1 / np.arange(1, self.values + 1) ** self.skew
        if self.order == "heavy key":
            chance = np.full(self.values, 0.3 / (self.values - 1))
            chance[0] = 0.7
        made = []
        for side in range(self.sides):
            keys = random.choice(self.values, self.rows, p=chance / chance.sum())
            arrival = np.arange(self.rows)
            if self.order == "sorted":
                keys = np.sort(keys)
            elif self.order == "clustered":
                # Runs of one value, in any order: what a table looks like that was written value by value.
                runs = [keys[keys == value] for value in random.permutation(self.values)]
                pieces = [piece for run in runs for piece in np.array_split(run, 3)]
                keys = np.concatenate([pieces[at] for at in random.permutation(len(pieces))])
            elif self.order == "one side first":
                arrival = arrival + side * self.rows
            made.append(Input(keys, np.round(random.normal(20 + keys % 17, 10), 2), arrival))
        return tuple(made)

    def spec(self, seed: int) -> ApproxSpec:
        return equality_spec(
            self.policy, self.memory, sides=self.sides, seed=seed, cells=self.cells, results=self.results
        )


def tables(setting: Setting, data: tuple[Input, ...], seed: int) -> list[pa.Table]:
    """The results of every cell: with one call as in batch, where memory goes by rows, else as in a stream."""
    spec = setting.spec(seed)
    cells = [cells_of(one.hashes, spec.cells) for one in data]
    batch = setting.calls == 1
    counts = sum(np.bincount(part, minlength=spec.cells) for part in cells)
    shares = {BUDGET: memory_shares(spec, counts)} if batch and spec.cells > 1 and spec.memory is not None else {}
    if shares and spec.results is not None:
        shares[SHARE] = result_shares(spec, counts)
    last = max(int(one.arrival.max()) for one in data) + 1
    cuts = np.linspace(0, last, setting.calls + 1).astype(int)
    found = []
    for cell in range(spec.cells):
        state: dict[str, pa.RecordBatch] = {}
        batches: list[pa.RecordBatch] = []
        for begin, end in pairwise(cuts):
            kernel = ApproxKernel(spec)
            kernel.restore(state, None)
            for side, one in enumerate(data):
                which = np.flatnonzero((cells[side] == cell) & (one.arrival >= begin) & (one.arrival < end))
                if which.size:
                    metadata = {name: str(parts[cell]) for name, parts in shares.items()}
                    kernel.push(side, one.segment(which).replace_schema_metadata(metadata))
            if batch:
                kernel.end()
            batches += kernel.results()
            changes = kernel.changes()
            for name in changes.dropped:
                del state[name]
            state.update(changes.stored)
        if batches:
            found.append(pa.Table.from_batches(batches))
    return found


def estimated(found: list[pa.Table], setting: Setting, data: tuple[Input, ...]) -> list[Figures]:
    """The figures of the `MEASURES`, at 95 %."""
    sums: list[dict[str, float]] = [dict.fromkeys(SUMS, 0.0) for _ in range(3)]
    for table in found:
        sampled = Sampled.of(table, setting.sides)
        x = table.column("i0_0").to_numpy()
        ones = np.ones(x.size)
        part = (x > 25).astype(float)
        for measure, of_cell in enumerate(cell_sums(np.stack([ones, ones, x, ones, part, part]), sampled)):
            for name, number in of_cell.items():
                sums[measure][name] += number
    columns = [{name: np.array([number]) for name, number in one.items()} for one in sums]
    kinds = (("count", 0, True), ("sum", 1, False), ("avg", 1, False), ("count", 2, False))
    return [figures(kind, columns[at], 0.95, rows=rows) for kind, at, rows in kinds]


def truths(setting: Setting, data: tuple[Input, ...]) -> list[float]:
    """The `MEASURES` of the complete join, from the frequencies of its values."""
    counts = [np.bincount(one.keys, minlength=setting.values).astype(float) for one in data]
    others = np.prod(counts[1:], axis=0)
    x = np.bincount(data[0].keys, weights=data[0].x, minlength=setting.values)
    part = np.bincount(data[0].keys, weights=data[0].x > 25, minlength=setting.values)
    size = float((counts[0] * others).sum())
    return [size, float((x * others).sum()), float((x * others).sum()) / size, float((part * others).sum())]


@dataclass
class Coverage:
    """How often each of the `MEASURES` had an interval, and how often that held the truth."""

    told: np.ndarray
    held: np.ndarray
    exact: np.ndarray
    """How often the interval had no width."""
    found: np.ndarray
    """Estimates by seed, as multiples of the truth."""
    errors: np.ndarray

    @property
    def share(self) -> np.ndarray:
        return np.divide(self.held, self.told, out=np.full(self.told.size, np.nan), where=self.told > 0)


def coverage(setting: Setting, seeds: range) -> Coverage:
    """Run a setting with many seeds."""
    data = setting.inputs()
    true = truths(setting, data)
    told, held, exact = (np.zeros(len(MEASURES)) for _ in range(3))
    found, errors = [], []
    for seed in seeds:
        estimates = estimated(tables(setting, data, seed), setting, data)
        for at, (one, truth) in enumerate(zip(estimates, true, strict=True)):
            known = not np.isnan(one.high[0])
            told[at] += known
            held[at] += known and one.low[0] <= truth <= one.high[0]
            exact[at] += known and one.error[0] == 0
        found.append([float(one.estimate[0]) / truth for one, truth in zip(estimates, true, strict=True)])
        errors.append([float(one.error[0]) / truth for one, truth in zip(estimates, true, strict=True)])
    return Coverage(told, held, exact, np.array(found), np.array(errors))

"""How even the work of a band join is and how much is sent twice, for up to 10,000 tasks, beside what is possible.

    python benchmarks/balance.py [--data FOLDER] [--tasks 4,64,1000,10000] [--write]

No Spark: the routing is fitted by the code that a join runs, to a sample as large as a join would draw, or 2M rows of
each side where it would draw more.  Then each task's load follows from the distribution itself, so chance in the rows
plays no part; real data is counted row by row.  Load is rows in and half of the pairs out, as the router weighs them,
and its lower bound all of that without copies, divided evenly.  Both measures are those of Li, Gatterbauer and
Riedewald ("Near-Optimal Distributed Band-Joins through Recursive Partitioning"): the largest load over its lower bound,
and the rows sent over the rows there are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _timing import console, show

from dovetail.columns.codes import LOWEST
from dovetail.columns.hashing import row_hashes
from dovetail.columns.sampling import DENSE
from dovetail.columns.spark_hash import spark_partition
from dovetail.conditions.comparison import Axis, Edge, Key, Step
from dovetail.families.theta.fitting import OUTPUT_COST, fit
from dovetail.families.theta.router import Routing, Sample

Floats = npt.NDArray[np.float64]

ROWS_EACH = 1_000_000
"""Rows of both sides for each task."""
MOST_SAMPLED = 2_000_000
GRID = 1_000_000
BANDS = (0.001, 1.0, 10.0)
"""Half-widths of the band, in spacings of neighbouring values where the data is as dense as its median row."""
SCALE = 2.0**62
CLAIM = 1.10


@dataclass(frozen=True)
class Distribution:
    """A distribution on [0, 1) as a table of its cumulative share."""

    name: str
    at: Floats
    share: Floats

    def below(self, values: Floats) -> Floats:
        """The share of rows below each value."""
        return np.interp(values, self.at, self.share, left=0.0, right=1.0)

    def values(self, shares: Floats) -> Floats:
        """The value below which each share of rows lies."""
        return np.interp(shares, self.share, self.at)

    def spacing(self, rows: float) -> float:
        """How far neighbours are apart around the median."""
        low, high = self.values(np.array([0.499, 0.501]))
        return float(high - low) / (0.002 * rows)


def distributions() -> list[Distribution]:
    """Uniform, normal, Pareto and a thousand clusters of unequal weight."""
    even = np.linspace(0, 1, 200_001)
    spread = np.linspace(-6, 6, even.size)
    bell = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in spread])
    tail = 1 - (1 + 1e6 * even**4) ** -1.5  # of 1 + 1e6 x, with more of the table where the rows are
    generator = np.random.default_rng(5)
    centres, weights = generator.uniform(0.01, 0.99, 1000), generator.zipf(1.8, 1000).clip(max=1000).astype(float)
    places = np.unique(np.concatenate([[0.0, 1.0], *(centre + 1e-6 * spread[::400] for centre in centres)]))
    clustered = np.zeros(places.size)
    for centre, weight in zip(centres, weights / weights.sum(), strict=True):
        clustered += weight * np.interp(places, centre + 1e-6 * spread, bell, left=0.0, right=1.0)
    return [
        Distribution("uniform", even, even),
        Distribution("normal", (spread + 6) / 12, bell),
        Distribution("Pareto, 1.5", even**4, tail / tail[-1]),
        Distribution("1,000 clusters", places, clustered / clustered[-1]),
    ]


@dataclass(frozen=True)
class Measured:
    """One case: the largest load over its lower bound, and rows sent over rows."""

    data: str
    axes: int
    band: str
    tasks: int
    cells: int
    load: float
    sent: float
    sampled: int
    seconds: float
    rows: int


def band_step(half: list[int]) -> Step:
    """A band on each axis, in codes."""
    axes = tuple(Axis("int", at, Edge(at, False, -one), Edge(at, False, one)) for at, one in enumerate(half))
    keys = tuple(Key(f"x{at}", "BIGINT") for at in range(len(half)))
    return Step(axes, (), keys, keys)


def sample_of(codes: list[npt.NDArray[np.int64]], half: list[int], rows: float, *, points: bool) -> Sample:
    """A sample of a side as the fitting stage makes it."""
    low = np.stack([code if points else code - one for code, one in zip(codes, half, strict=True)])
    high = low if points else np.stack([code + one for code, one in zip(codes, half, strict=True)])
    return Sample(np.zeros(codes[0].size, dtype=np.int64), low, high, rows)


def simulated(data: Distribution, axes: int, band: float, tasks: int) -> Measured:
    """A join of a distribution with itself, on one axis or on two that do not depend on each other."""
    generator = np.random.default_rng(tasks)
    rows = ROWS_EACH * tasks / 2
    # On two axes neighbours are as far apart as the square root of the rows says.
    half = band * data.spacing(rows if axes == 1 else math.sqrt(rows))
    codes = [max(1, round(half * SCALE))] * axes
    size = int(min(rows / DENSE, MOST_SAMPLED))
    sides = [
        [(data.values(generator.random(size)) * SCALE).astype(np.int64) for _ in range(axes)]
        for _ in ("points", "boxes")
    ]
    began = time.perf_counter()
    routing = fit(
        band_step(codes), sample_of(sides[0], codes, rows, points=True), sample_of(sides[1], codes, rows, points=False),
        partitions=tasks, may_copy_points=True,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    assert routing.mode == "axis"
    cuts = routing.bounds.value / SCALE
    low, high = np.concatenate([[-9.0], cuts]), np.concatenate([cuts, [9.0]])
    incoming = rows * (data.below(high) - data.below(low)) + rows * (data.below(high + half) - data.below(low - half))
    shares = (np.arange(GRID) + 0.5) / GRID
    values = data.values(shares)
    near = data.below(values + half) - data.below(values - half)
    matches = rows * near * (near.mean() if axes == 2 else 1.0)
    found = np.bincount(np.searchsorted(cuts, values, side="right"), matches * rows / GRID, routing.cells)
    homes = spark_partition(routing.numbers, tasks)
    loads = np.bincount(homes, incoming + OUTPUT_COST * found, tasks)
    least = (2 * rows + OUTPUT_COST * found.sum()) / tasks
    sent = float(incoming.sum() / (2 * rows))
    return Measured(
        data.name,
        axes,
        f"{band:g}",
        tasks,
        routing.cells,
        float(loads.max() / least),
        sent,
        size,
        seconds,
        int(2 * rows),
    )


def counted(name: str, sides: list[list[npt.NDArray[np.int64]]], half: list[int], tasks: int, said: str) -> Measured:
    """A join of real rows, each of which is routed."""
    generator = np.random.default_rng(tasks)
    step = band_step(half)
    samples = []
    for at, codes in enumerate(sides):
        chosen = np.flatnonzero(generator.random(codes[0].size) < 1 / DENSE)
        samples.append(sample_of([c[chosen] for c in codes], half, chosen.size * DENSE, points=at == 0))
    began = time.perf_counter()
    routing = fit(step, *samples, partitions=tasks, may_copy_points=True)
    seconds = time.perf_counter() - began
    placed = _placed(step, routing, sides)
    incoming = sum(np.bincount(cells, minlength=routing.cells) for _, cells in placed)
    matches = _matches(sides, half)
    found = np.bincount(placed[0][1], matches[placed[0][0]], routing.cells)
    homes = spark_partition(routing.numbers, tasks)
    loads = np.bincount(homes, incoming + OUTPUT_COST * found, tasks)
    rows = sum(codes[0].size for codes in sides)
    least = (rows + OUTPUT_COST * found.sum()) / tasks
    sampled = sum(sample.hash.size for sample in samples)
    return Measured(
        name, len(half), said, tasks, routing.cells, float(loads.max() / least), float(incoming.sum() / rows), sampled,
        seconds, rows,
    )  # fmt: skip


def _placed(
    step: Step, routing: Routing, sides: list[list[npt.NDArray[np.int64]]]
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    tables = [[pa.array(codes) for codes in side] for side in sides]
    hashes = [np.zeros(side[0].size, dtype=np.int64) for side in sides]
    numbered = pa.RecordBatch.from_arrays(
        [*tables[0], pa.array(np.arange(sides[0][0].size))], names=[f"c{at}" for at in range(len(tables[0]) + 1)]
    )
    ties = row_hashes(numbered, numbered.num_columns) if routing.splits_values else np.full(hashes[0].size, LOWEST)
    return [routing.points(step, hashes[0], tables[0], ties), routing.boxes(step, hashes[1], tables[1])]


def _matches(sides: list[list[npt.NDArray[np.int64]]], half: list[int]) -> Floats:
    """How many rows of the second side each row of the first matches."""
    (points, *more), (boxes, *others) = sides
    order = np.argsort(boxes, kind="stable")
    ordered = boxes[order]
    low, high = np.searchsorted(ordered, points - half[0]), np.searchsorted(ordered, points + half[0], side="right")
    if not more:
        return (high - low).astype(np.float64)
    second = others[0][order]
    return np.array(
        [np.count_nonzero(np.abs(second[a:b] - y) <= half[1]) for a, b, y in zip(low, high, more[0], strict=True)],
        dtype=np.float64,
    )


def real(folder: Path, tasks: int) -> Iterator[Measured]:
    """Joins of real data: ticks in time, exons and open chromatin, storms on the map."""
    quotes, trades = (
        pq.read_table(folder / f"ibm_{one}.parquet", columns=["ts"])["ts"]
        .cast("timestamp[us]")
        .cast("int64")
        .to_numpy()
        for one in ("quotes", "trades")
    )
    for seconds in (0.001, 1.0):
        yield counted("IBM trades and quotes", [[trades], [quotes]], [int(seconds * 1e6)], tasks, f"{seconds:g} s")
    exons, regions = (pq.read_table(folder / f"{one}.parquet") for one in ("exons", "fbrain"))
    places = {name: at for at, name in enumerate(sorted(set(exons["contig"].to_pylist())))}
    starts = []
    for table in (exons, regions):
        chromosome = np.array([places.get(name, len(places)) for name in table["contig"].to_pylist()], dtype=np.int64)
        starts.append([(chromosome << 32) + table["pos_start"].to_numpy().astype(np.int64)])
    for bases in (10, 1000):
        yield counted("exons and fetal brain", starts, [bases], tasks, f"{bases:,} bases")
    storms = pq.read_table(folder / "storms.parquet")
    half = storms.num_rows // 2
    map_ = [np.round(storms[name].to_numpy() * 100).astype(np.int64) for name in ("lon", "lat")]
    sides = [[axis[:half] for axis in map_], [axis[half:] for axis in map_]]
    yield counted("storms on the map", sides, [20, 20], tasks, "0.2 degrees")


def why(one: Measured) -> str:
    """Why a case is beyond the claim."""
    if one.sent > CLAIM and one.axes == 2:
        return "cells are strips of one axis, and a band is wide beside a strip"
    if one.sent > CLAIM:
        return "a band is wide beside a cell"
    if one.cells > 2 * max(one.tasks, one.rows // 400_000, min(512, one.rows // 200_000)):
        return "a sample that shows few pairs overrates the results near them, and cells are cut there"
    if one.sampled / one.cells < 1000:
        return f"{one.sampled:,} sampled rows for {one.cells:,} cells"
    return "few cells for each task"


def _tell(one: Measured) -> None:
    console.print(
        f"{one.data}, {one.axes} axes, band {one.band}, {one.tasks:,} tasks, {one.cells:,} cells: load {one.load:.3f}, "
        f"sent {one.sent:.3f}, {one.sampled:,} sampled, fitted in {one.seconds:.2f} s",
        highlight=False,
    )


def main(
    data: Annotated[Path | None, typer.Option(help="The folder with the real data; without it, none.")] = None,
    tasks: Annotated[str, typer.Option(help="Numbers of tasks, with commas.")] = "4,64,1000,10000",
    write: Annotated[bool, typer.Option(help="Write benchmarks/balance.md.")] = False,
) -> None:
    """Simulate all cases, and print the worst band of each."""
    numbers = [int(one) for one in tasks.split(",")]
    cases: dict[tuple[str, int, int], list[Measured]] = {}
    for axes in (1, 2):
        for distribution in distributions():
            if axes == 2 and "clusters" in distribution.name:
                continue  # clusters on a plane are not clusters on each axis
            for number in numbers:
                if axes == 2 and number > 64:
                    continue  # which is far from even there already
                # Of many tasks only the widest band: it copies most.
                for band in BANDS if number < 1000 else BANDS[-1:]:
                    one = simulated(distribution, axes, band, number)
                    cases.setdefault((one.data, axes, number), []).append(one)
                    _tell(one)
    for number in [one for one in numbers if one <= 64] if data is not None else []:
        for one in real(data, number):
            cases.setdefault((one.data, one.axes, number), []).append(one)
            _tell(one)
    table = []
    for (name, axes, number), every in cases.items():
        worst = max(every, key=lambda one: max(one.load, one.sent))
        load, sent = max(one.load for one in every), max(one.sent for one in every)
        fine = max(load, sent) <= CLAIM
        good = [one.band for one in every if max(one.load, one.sent) <= CLAIM]
        table.append(
            [
                name, str(axes), f"{number:,}", f"{worst.cells:,}", f"{load:.3f}", f"{sent:.3f}",
                "yes" if fine else f"no: {why(worst)}" + (f"; yes for {', '.join(good)}" if good else ""),
            ]
        )  # fmt: skip
    head = ["data", "axes", "tasks", "cells", "largest load", "rows sent", "within 10 %"]
    show(head, table, title="Balance of band joins", file=Path(__file__).with_suffix(".md") if write else None)


if __name__ == "__main__":
    typer.run(main)

"""The k nearest rows: in the plane beside a k-d tree of SciPy, and on a line beside an as-of join, in one run.

    python benchmarks/nearest.py [--scale 1.0] [--only plane,line] [--write]

``plane``     the five nearest of 1M points for each of 1M points, uniform, and in clusters of very different density:
              the join in Spark, its kernel alone on one core, and ``scipy.spatial.cKDTree`` on one core, built and
              asked, which gets its points as arrays in memory and gives row numbers and distances.
``line``      the nearest of 1M doubles for each of 1M, ``k=1``, beside ``asof_join(direction="nearest")``: as it is,
              and with the columns that a nearest join has as well, distance and rank.

Spark is up and warm before anything is timed, reads Parquet and writes to its no-op sink.  Engines take turns, and the
best of several runs counts.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _timing import race, show
from scipy.spatial import cKDTree

CORES = 2
ROWS = 1_000_000
K = 5
HERE = Path(__file__).parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def places(random: np.random.Generator, rows: int, *, clustered: bool) -> Any:
    """Points of the plane: uniform, or in a hundred clusters, the densest a million times as dense as the widest."""
    if not clustered:
        return random.uniform(0, 1000, (rows, 2))
    # Both sides have the same clusters.
    shapes = np.random.default_rng(12)
    centre, width = shapes.uniform(0, 1000, (100, 2)), 10.0 ** shapes.uniform(-2, 1, 100)
    own = random.integers(0, 100, rows)
    return centre[own] + random.normal(size=(rows, 2)) * width[own][:, None]


def make_data(folder: Path, name: str, rows: int, *, clustered: bool) -> dict[str, Any]:
    """Two sides of points, 16 row groups each, and the points themselves."""
    random = np.random.default_rng(11)
    made = {}
    for side in "rs":
        points = made[side] = places(random, rows, clustered=clustered)
        columns = {"id": np.arange(rows), "x": points[:, 0], "y": points[:, 1], "v": random.normal(size=rows)}
        file = folder / f"{name}-{side}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=max(1, rows // 16), use_dictionary=False)
    return made


def written(spark: SparkSession, folder: Path, name: str, call: str, *more: str, **options: Any) -> int:
    """How many rows a join gives, once all are written, with `more` columns."""
    import dovetail as dt

    inputs = {side: spark.read.parquet(str(folder / f"{name}-{side}.parquet")) for side in "rs"}
    joined = getattr(dt, call)(inputs, broadcast=False, **options)
    (joined.selectExpr("*", *more) if more else joined).write.format("noop").mode("overwrite").save()
    return int(dt.metrics(joined)["results"])


def by_kernel(points: dict[str, Any]) -> int:
    """How many neighbours the kernel finds, on one core."""
    from dovetail.families.nearest.kernel import NearIndex
    from dovetail.families.nearest.spec import NearestSpec

    spec = NearestSpec(
        "euclidean", "float64", (1.0, 1.0), (), K, None, "all", False, ((), ()), (), 0, pa.float64()
    )  # fmt: skip
    columns = {side: [pa.array(np.ascontiguousarray(some[:, d])) for d in range(2)] for side, some in points.items()}
    return int(NearIndex(spec, columns["s"], []).search(columns["r"]).owner.size)


def by_scipy(points: dict[str, Any]) -> int:
    """How many neighbours SciPy finds, on one core."""
    _, found = cKDTree(points["s"]).query(points["r"], k=K)
    return int(found.size)


def compare(folder: Path, scale: float, only: set[str]) -> list[list[str]]:
    """The rows of the table."""
    import dovetail as dt

    conf = {"spark.sql.shuffle.partitions": 2 * CORES}
    spark = dt.session("nearest-benchmark", master=f"local[{CORES}]", driver_memory="4g", conf=conf)
    rows = int(ROWS * scale)
    table = []
    for name in ("uniform", "clustered"):
        points = make_data(folder, name, rows, clustered=name == "clustered")
        if only and "plane" not in only:
            continue
        on = "HYPOT(r.x - s.x, r.y - s.y)"
        engines = {
            "dovetail": (lambda name=name, on=on: written(spark, folder, name, "nearest_join", on=on, k=K), 2),
            "kernel": (lambda points=points: by_kernel(points), 1),
            "scipy": (lambda points=points: by_scipy(points), 0),
        }
        seconds, found = race(engines, times=3)
        # Points that are equally near as the fifth come out as well, and there are hardly any.
        assert 0 <= found["dovetail"] - found["scipy"] <= rows / 100, found
        assert found["dovetail"] == found["kernel"], found
        beside = f"kernel alone on one core {seconds['kernel']:.2f} s, SciPy on one core {seconds['scipy']:.2f} s"
        table.append(line(f"{rows:,} x {rows:,} points, {name}, k = {K}", seconds["dovetail"], found, beside))
    if not only or "line" in only:
        asof = {"time": "x", "direction": "nearest"}
        same = ("ABS(r.x - s.x) AS distance", "1 AS rank")
        engines = {
            "dovetail": (lambda: written(spark, folder, "uniform", "nearest_join", on="ABS(r.x - s.x)"), 3),
            "as-of": (lambda: written(spark, folder, "uniform", "asof_join", **asof), 3),
            "as-of, same columns": (lambda: written(spark, folder, "uniform", "asof_join", *same, **asof), 3),
        }
        seconds, found = race(engines, times=15)
        beside = "; ".join(
            f"{name} {seconds[name]:.2f} s: {seconds['dovetail'] / seconds[name]:.2f} x that"
            for name in list(engines)[1:]
        )
        table.append(line(f"{rows:,} x {rows:,} doubles, k = 1", seconds["dovetail"], found, beside))
    spark.stop()
    return table


def line(name: str, seconds: float, found: dict[str, int], beside: str) -> list[str]:
    """One row of the table."""
    return [name, f"{found['dovetail']:,}", f"{seconds:.2f}", beside]


def main(
    scale: Annotated[float, typer.Option(help="Rows as a share of the full size.")] = 1.0,
    only: Annotated[str, typer.Option(help="Cases, separated by commas: plane, line.")] = "",
    write: Annotated[bool, typer.Option(help="Write the table to benchmarks/nearest.md.")] = False,
) -> None:
    """Run the benchmark and print its table."""
    folder = Path(tempfile.mkdtemp(prefix="nearest-"))
    try:
        found = compare(folder, scale, {name for name in only.split(",") if name})
    finally:
        shutil.rmtree(folder)
    file = HERE / "nearest.md" if write else None
    show(["rows", "neighbours", "seconds", "beside"], found, title="The nearest rows", file=file)


if __name__ == "__main__":
    typer.run(main)

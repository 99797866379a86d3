"""What the demo does before it measures: everything that only the first join of a process has to wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dovetail import datasets
from dovetail.datasets.files import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 300


@dataclass(frozen=True)
class Warmed:
    """How long the warm-up took, and how many kernels it compiled."""

    seconds: float
    kernels: int

    def text(self) -> str:
        """The sentence for the screen and the report.

        Examples
        --------
        >>> print(Warmed(21.0, 0).text())
        Warm-up: 21.0 s, which only the first joins of a process wait for. All kernels came from the cache.
        >>> print(Warmed(40.0, 7).text())
        Warm-up: 40.0 s, which only the first joins of a process wait for. 7 kernels were compiled now, and are kept.
        """
        compiled = f"{self.kernels} kernels were compiled now, and are kept."
        kernels = compiled if self.kernels else "All kernels came from the cache."
        return f"Warm-up: {self.seconds:.1f} s, which only the first joins of a process wait for. {kernels}"


def warm_up(console: Console, spark: SparkSession, folder: Path, own: str) -> Warmed:
    """Run what the demo will measure on a few rows, with a progress bar.

    Parameters
    ----------
    console
        Where the bar appears.
    spark
        The session.
    folder
        For the files of a small stream.
    own
        The condition of Spark's own join.
    """
    began = time.perf_counter()
    # A file system may round the time of a file.
    before = time.time() - 1
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    steps = _steps(spark, folder, own)
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("Warming up", total=len(steps))
        for what, step in steps.items():
            progress.update(bar, description=f"Warming up: {what}")
            step()
            progress.advance(bar)
    return Warmed(time.perf_counter() - began, _compiled_since(before))


def _steps(spark: SparkSession, folder: Path, own: str) -> dict[str, Callable[[], object]]:
    from dovetail.api import approx_join, theta_join, window_join

    readings = [spark.createDataFrame(table) for table in datasets.sensor_readings(_ROWS)]
    sides = dict(zip("ab", readings, strict=True))
    clicks, orders = (spark.createDataFrame(table) for table in datasets.clicks_and_orders(_ROWS, _ROWS))
    write("cameras", folder, batches=1, objects=50)

    def into_nothing(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def sparks_own() -> None:
        query = f"SELECT count(*) FROM {{a}} AS a JOIN {{b}} AS b ON {own}"
        spark.sql(query, a=readings[0], b=readings[1]).collect()

    def stream() -> None:
        read = spark.readStream.schema("obj long, speed long, ts timestamp")
        inputs = {name: read.parquet(str(folder / name)).withWatermark("ts", "5 seconds") for name in "ABC"}
        joined = window_join(inputs, on="A.obj = B.obj AND B.obj = C.obj", time="ts", within="15 seconds", partitions=1)
        query = joined.writeStream.format("noop").trigger(availableNow=True)
        query.start().awaitTermination()

    def sample() -> None:
        both = {"click": clicks, "order": orders}
        into_nothing(approx_join(both, on="click.product = order.product", memory=100, seed=7, partitions=2))

    return {
        "Spark's own join": sparks_own,
        "a range join": lambda: into_nothing(theta_join(sides, on=own, broadcast=False)),
        "a broadcast": lambda: into_nothing(theta_join(sides, on="a.value > b.value AND a.value < 1")),
        "a stream": stream,
        "a sample": sample,
    }


def _compiled_since(moment: float) -> int:
    """How many kernels were written into Numba's cache since then, wherever it is."""
    package = Path(__file__).parents[1]
    homes = {package, Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "numba"}
    if "NUMBA_CACHE_DIR" in os.environ:
        homes.add(Path(os.environ["NUMBA_CACHE_DIR"]))
    files = {file for home in homes if home.is_dir() for file in home.rglob("*.nbc")}
    return sum(_written(file) >= moment for file in files)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # another process may tidy up meanwhile
        return 0.0

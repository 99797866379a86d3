"""What a join costs beside its rows, once a process is warm: small inputs, genomic intervals, and building the frame.

    python benchmarks/small.py [--exons exons.parquet --peaks fbrain.parquet] [--times 9] [--write]

Inputs are Parquet files, and every result is produced and dropped.  Engines take turns; medians count.  Without the two
files the intervals are drawn: as many as there are exons in the human genome and open regions in a brain's, by contig.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import dovetail as dt

HERE = Path(__file__).parent
CORES = 2
ROWS = 10_000
EXONS, PEAKS = 438_694, 198_621
WARM_UPS = 12
BUILDS = 60
console = Console()
Action = Callable[[], Any]


def made(place: Path) -> None:
    """Two sides of numbers for a band."""
    draw = np.random.default_rng(7)
    for side in "RS":
        columns = {"id": np.arange(ROWS), "x": draw.uniform(0, ROWS, ROWS), "k": draw.integers(0, 100, ROWS)}
        pq.write_table(pa.table(columns), place / f"{side}.parquet")


def drawn(file: Path, rows: int, seed: int, *, length: int) -> Path:
    """Intervals on 24 contigs, in the order of contig and start, as such files have them."""
    draw = np.random.default_rng(seed)
    contig = np.sort(draw.integers(0, 24, rows))
    start = draw.integers(0, 200_000_000, rows)
    order = np.lexsort((start, contig))
    end = start + draw.geometric(1 / length, rows)
    names = pa.array([f"chr{number + 1}" for number in range(24)])
    columns = {
        "contig": names.take(pa.array(contig[order])), "pos_start": pa.array(start[order], pa.int32()),
        "pos_end": pa.array(end[order], pa.int32()),
    }  # fmt: skip
    pq.write_table(pa.table(columns), file)
    return file


def medians(engines: dict[str, Action], times: int) -> dict[str, float]:
    """Seconds of each, in turn, after the warm-ups."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(WARM_UPS + times):
        for name, action in engines.items():
            gc.collect()
            began = time.perf_counter()
            action()
            if number >= WARM_UPS:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in seconds.items()}


def dropped(frame: Any) -> None:
    """Produce every row."""
    frame.write.format("noop").mode("overwrite").save()


def band(spark: Any, place: Path, times: int) -> list[str]:
    """Ten thousand rows a side."""
    sides = {side: spark.read.parquet(str(place / f"{side}.parquet")) for side in "RS"}
    for side, frame in sides.items():
        frame.createOrReplaceTempView(side)
    found = medians(
        {
            "ours": lambda: dropped(dt.theta_join(sides, on="ABS(R.x - S.x) <= 1")),
            "spark": lambda: dropped(spark.sql("SELECT * FROM R JOIN S ON ABS(R.x - S.x) <= 1")),
        },
        times,
    )
    held = found["ours"] <= found["spark"] + 0.2
    what = f"band, {ROWS:,} x {ROWS:,} rows"
    return [what, f"{found['ours']:.2f}", f"Spark {found['spark']:.2f}", "Spark + 0.2 s", "yes" if held else "no"]


def intervals(spark: Any, exons: Path, peaks: Path, times: int) -> list[str]:
    """Exons and open regions that overlap."""
    frames = {"E": spark.read.parquet(str(exons)), "P": spark.read.parquet(str(peaks))}
    on = "E.contig = P.contig AND E.pos_start <= P.pos_end AND P.pos_start <= E.pos_end"
    connection = duckdb.connect()
    connection.execute(f"SET threads = {CORES}")
    connection.execute("SET prefer_range_joins = true")
    query = f"SELECT * FROM '{exons}' E JOIN '{peaks}' P ON {on}"
    found = medians(
        {
            "ours": lambda: dropped(dt.theta_join(frames, on=on)),
            "duckdb": lambda: connection.sql(query).to_arrow_table(),
        },
        times,
    )
    held = found["ours"] <= 3 * found["duckdb"]
    what = "intervals that overlap, 438,694 exons x 198,621 peaks, contig as text"
    return [what, f"{found['ours']:.2f}", f"DuckDB {found['duckdb']:.2f}", "3 x DuckDB", "yes" if held else "no"]


def building(spark: Any) -> list[list[str]]:
    """The frame of a two-way join of each family, nothing run."""

    def inputs() -> dict[str, Any]:
        columns = "id", "id % 100 AS k", "CAST(hash(id) AS DOUBLE) / 4e6 AS x", "timestamp_seconds(id) AS t"
        return {side: spark.range(1000).selectExpr(*columns) for side in "RS"}

    near = [dt.closest("t", within="9 seconds"), dt.closest("x")]
    calls: dict[str, Callable[[dict[str, Any]], Any]] = {
        "theta join": lambda sides: dt.theta_join(sides, on="ABS(R.x - S.x) <= 1"),
        "theta join, shuffled": lambda sides: dt.theta_join(sides, on="ABS(R.x - S.x) <= 1", broadcast=False),
        "window join": lambda sides: dt.window_join(sides, on="R.k = S.k", time="t", within="5 seconds"),
        "as-of join, shuffled": lambda sides: dt.asof_join(sides, time="t", by="k", broadcast=False),
        "best-match join": lambda sides: dt.bestmatch_join(sides, on=near, by="k"),
        "approximate join": lambda sides: dt.approx_join(sides, on="R.k = S.k", memory=500),
    }
    rows = []
    for name, call in calls.items():
        seconds = []
        for _ in range(BUILDS):
            sides = inputs()
            gc.collect()
            began = time.perf_counter()
            call(sides)
            seconds.append(time.perf_counter() - began)
        took = statistics.median(seconds[-10:])
        rows.append([f"building the frame of a {name}", f"{took:.3f}", "", "0.120 s", "yes" if took <= 0.12 else "no"])
    return rows


def main(
    exons: Annotated[Path | None, typer.Option(help="Parquet: contig, pos_start, pos_end.")] = None,
    peaks: Annotated[Path | None, typer.Option(help="The same of the other side.")] = None,
    times: Annotated[int, typer.Option(help="Runs of each that count.")] = 9,
    write: Annotated[bool, typer.Option(help="Write small.md beside this file.")] = False,
) -> None:
    """Time what is small."""
    spark = dt.session("small", master=f"local[{CORES}]")
    with tempfile.TemporaryDirectory(prefix="dovetail-small-") as folder:
        place = Path(folder)
        made(place)
        first = exons or drawn(place / "exons.parquet", EXONS, 1, length=300)
        second = peaks or drawn(place / "peaks.parquet", PEAKS, 2, length=250)
        rows = [band(spark, place, times), intervals(spark, first, second, times), *building(spark)]
    heads = ["what", "ours, s", "beside it, s", "at most", "holds"]
    shown = Table(*heads)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    if write:
        data = "drawn intervals" if exons is None else f"{exons.name} and {peaks.name if peaks else 'drawn intervals'}"
        engines = (
            f"Local Spark with {CORES} cores; DuckDB {duckdb.__version__} with as many threads and `prefer_range_joins`"
        )
        runs = f"medians of {times} runs after {WARM_UPS}, of the last 10 of {BUILDS} frames built; {data}."
        lines = ["# Small joins, once a process is warm", "", f"{engines};", runs, ""]
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        (HERE / "small.md").write_text("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n")
    sys.exit(0 if all(row[-1] == "yes" for row in rows) else 1)


if __name__ == "__main__":
    typer.run(main)

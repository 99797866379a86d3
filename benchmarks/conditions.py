"""Conditions that no index knows by itself, beside the constant band of the same output, in one run.

    python benchmarks/conditions.py [--scale 1.0] [--only tolerance,or] [--write]

Every condition finds about twice as many pairs as a side has rows.  Spark is up and warm before anything is timed,
reads Parquet and writes to its no-op sink; the two joins of a case take turns, and the best of several runs counts.

The last case is a stream: three inputs of which one is kept and one optional beside the inner join of the same three,
in turns as well; a figure is the median micro-batch once warm.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _streams import run, write_inputs
from _timing import race
from rich.console import Console
from rich.table import Table

CORES = 2
ROWS = 1_000_000
SPAN, SIDE = 1_000_000.0, 1_000.0
HERE = Path(__file__).parent
BAND = "ABS(R.x - S.x) <= {width}"
ROLES = {"A": "keep", "C": "optional"}
console = Console()

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def cases(rows: int) -> dict[str, tuple[str, str, float]]:
    """For each case its name, its condition and how many times as long as the constant band it may take."""
    width, radius = SPAN / rows, SIDE * (2 / (np.pi * rows)) ** 0.5
    total, near = 2 * SPAN * (1 / rows) ** 0.5, f"ABS(R.z - S.z) <= {width}"
    square = "(R.u - S.u) * (R.u - S.u) + (R.v - S.v) * (R.v - S.v)"
    return {
        "tolerance": ("a tolerance by row", "ABS(R.x - S.x) <= S.r", 1.3),
        "relative": ("a relative tolerance", f"ABS(R.x - S.x) <= {2 * width / SPAN} * S.x", 1.3),
        "sum": ("a sum across the sides", f"R.x + S.x < {total}", 1.3),
        "distance": ("a distance in two dimensions", f"{square} <= {radius} * {radius}", 1.3),
        "or": ("one band OR another", f"{BAND.format(width=width)} OR {near}", 2.5),
    }


def make_data(folder: Path, rows: int) -> None:
    """Two sides of uniform doubles, 16 row groups each."""
    random = np.random.default_rng(7)
    for side in "RS":
        columns = {"id": np.arange(rows), "x": random.uniform(0, SPAN, rows), "z": random.uniform(0, SPAN, rows)}
        columns |= {name: random.uniform(0, SIDE, rows) for name in "uv"}
        columns["r"] = random.uniform(0.5, 1.5, rows) * SPAN / rows
        file = folder / f"{side}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=max(1, rows // 16), use_dictionary=False)


def compare(folder: Path, rows: int, only: set[str]) -> list[list[str]]:
    """The rows of the table: each case beside the constant band."""
    import dovetail as dt

    conf = {"spark.sql.shuffle.partitions": 2 * CORES}
    spark = dt.session("conditions-benchmark", master=f"local[{CORES}]", driver_memory="4g", conf=conf)

    def join(on: str) -> int:
        inputs = {side: spark.read.parquet(str(folder / f"{side}.parquet")) for side in "RS"}
        joined = dt.theta_join(inputs, on=on)
        joined.write.format("noop").mode("overwrite").save()
        found = dt.metrics(joined)
        each = [found] if "results" in found else list(found.values())
        return sum(int(one["results"]) for one in each)

    table, band = [], BAND.format(width=SPAN / rows)
    for key, (name, on, most) in cases(rows).items():
        if only and key not in only:
            continue
        console.print(name, style="bold")
        seconds, found = race({"band": (lambda: join(band), 4), key: (lambda on=on: join(on), 5)}, times=7)  # type: ignore[misc]
        ratio = seconds[key] / seconds["band"]
        times = f"{seconds[key]:.2f}, band {seconds['band']:.2f}"
        claim = f"at most {most} x the band"
        holds = "yes" if ratio <= most else "no"
        table.append([name, f"`{on}`", times, f"{found[key]:,}, band {found['band']:,}", claim, f"{ratio:.2f}", holds])
    if not only or "roles" in only:
        table.append(of_roles(spark, folder, rows // 5))
    spark.stop()
    return table


def of_roles(spark: SparkSession, folder: Path, rows: int) -> list[str]:
    """The row of the table for three streams, A kept and C optional."""
    import dovetail as dt

    def joined(inputs: dict[str, DataFrame], how: str | dict[str, str]) -> DataFrame:
        return dt.window_join(inputs, on="A.k = B.k AND B.k = C.k", time="ts", within="10 seconds", how=how)

    name = "three streams, A kept and C optional"
    console.print(name, style="bold")
    write_inputs(folder, "ABC", rows, batches=7)
    inner, roles = [], []
    for turn in range(4):
        for how, runs in (("inner", inner), (ROLES, roles)):
            found = run(spark, folder, "ABC", partial(joined, how=how), "ours", "inner" if how == "inner" else "roles")
            if turn:
                runs.append(found)
    seconds = [median(one.warm for one in runs) for runs in (roles, inner)]
    ratio, most = seconds[0] / seconds[1], 1.5
    times = f"{seconds[0]:.2f}, inner {seconds[1]:.2f} a micro-batch of {rows:,} rows each"
    out = f"{roles[0].rows:,}, inner {inner[0].rows:,}"
    holds = "yes" if ratio <= most else "no"
    return [name, f"`how={ROLES}`", times, out, f"at most {most} x the inner join", f"{ratio:.2f}", holds]


def main(
    scale: Annotated[float, typer.Option(help="Rows, as a share of the full size.")] = 1.0,
    only: Annotated[str, typer.Option(help="Cases to run, separated by commas.")] = "",
    write: Annotated[bool, typer.Option(help="Write conditions.md beside this file.")] = False,
) -> None:
    """Time every condition beside a constant band."""
    rows = int(ROWS * scale)
    folder = Path(tempfile.mkdtemp(prefix="dovetail-conditions-"))
    try:
        make_data(folder, rows)
        table = compare(folder, rows, {name for name in only.split(",") if name})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    heads = ["case", "condition", "seconds", "rows out", "claim", "measured", "holds"]
    shown = Table(*heads)
    for row in table:
        shown.add_row(*row)
    console.print(shown)
    if write:
        lines = ["# Conditions", "", f"`python benchmarks/conditions.py`, {CORES} cores, {rows:,} x {rows:,} rows,", ""]
        lines[2] += " seconds, best of several runs in turn with a constant band of the same output."
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in table)]
        (HERE / "conditions.md").write_text("\n".join(lines) + "\n")
    sys.exit(0 if all(row[-1] == "yes" for row in table) else 1)


if __name__ == "__main__":
    typer.run(main)

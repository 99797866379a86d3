"""A band join from a million to a hundred million rows a side: time, memory, bytes shuffled and spilled, and the slope.

    python benchmarks/growing.py [--rows 1000000,3000000,10000000,30000000,100000000] [--write]

Each size runs once, in a process of its own, with the JVM and the Python processes watched from outside; nothing is
rehearsed, so each action has in it what a first join loads.  Two times are told apart: of the whole process,
which starts Spark, and of the action alone.  Bytes are what Spark reports of its stages.  Then DuckDB counts the
matches, without forming a row, with as many threads.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import typer
from _timing import console, show

import theta

CORES = 2
HEAP = "4g"
ROWS_OF_A_PARTITION = 2_000_000
SIZES = "1000000,3000000,10000000,30000000,100000000"
HERE = Path(__file__).parent
app = typer.Typer(add_completion=False)


@dataclass
class Size:
    """One row of the table; memory and bytes are in GiB."""

    rows: int
    results: int
    action: float
    process: float
    jvm: float
    python: float
    together: float
    shuffled: float
    spilled: float
    counting: float


def measured(folder: Path, rows: int) -> Size:
    """Make the data, join them in a process of their own, and count the matches."""
    theta.make_data(folder, rows)
    command = [sys.executable, str(Path(__file__).resolve()), "join", str(folder), str(rows)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks: dict[str, int] = {}
    threading.Thread(target=theta.watch, args=(process, peaks), daemon=True).start()
    out, _ = process.communicate()
    took = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{rows:,} rows: the process ended with {process.returncode}")
    found = json.loads(out.splitlines()[-1])
    began = time.perf_counter()
    files = [f"'{folder / side}{rows}.parquet' {side.upper()}" for side in "rs"]
    duck = duckdb.connect(config={"threads": CORES, "temp_directory": str(folder)})
    count = duck.sql(f"SELECT count(*) FROM {files[0]} JOIN {files[1]} ON {theta.band_on(rows)}").fetchall()[0][0]
    counting = time.perf_counter() - began
    assert count == found["results"], (count, found)
    jvm, python, together = (peaks[kind] / 2**30 for kind in ("java", "python", "together"))
    shuffled, spilled = (found[name] / 2**30 for name in ("shuffled", "spilled"))
    return Size(rows, count, found["seconds"], took, jvm, python, together, shuffled, spilled, counting)


@app.command()
def join(folder: Path, rows: int) -> None:
    """The join alone; prints what Spark and the join report of it."""
    import dovetail as dt

    partitions = max(2 * CORES, rows // ROWS_OF_A_PARTITION)
    conf = {"spark.sql.shuffle.partitions": partitions, "spark.ui.enabled": "true"}
    spark = dt.session("growing", master=f"local[{CORES}]", driver_memory=HEAP, conf=conf)
    r, s = (spark.read.parquet(str(folder / f"{side}{rows}.parquet")).select("id", "v") for side in "rs")
    began = time.perf_counter()
    joined = dt.theta_join({"R": r, "S": s}, on=theta.band_on(rows))
    joined.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - began
    counters = dt.metrics(joined)
    context = spark.sparkContext
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages") as answer:
        stages: list[dict[str, Any]] = json.load(answer)
    shuffled, on_disk = (sum(stage[name] for stage in stages) for name in ("shuffleWriteBytes", "diskBytesSpilled"))
    spilled = on_disk + int(counters.get("spilled_bytes", 0))
    print(json.dumps({"results": counters["results"], "seconds": seconds, "shuffled": shuffled, "spilled": spilled}))
    spark.stop()


def slope(sizes: list[Size]) -> float:
    """The exponent by which seconds grow with rows: 1 is in proportion."""
    return float(np.polyfit(np.log([one.rows for one in sizes]), np.log([one.action for one in sizes]), 1)[0])


def title_of(sizes: list[Size]) -> str:
    """What was measured, with the slope over all sizes and over the last two."""
    if len(sizes) == 1:
        return "A band join as it grows"
    return f"A band join as it grows: slope {slope(sizes):.2f}, at the end {slope(sizes[-2:]):.2f}"


def draw(sizes: list[Size], file: Path) -> None:
    """Seconds over rows, both on a logarithmic scale, beside a line in proportion."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    rows = [one.rows for one in sizes]
    axes.loglog(rows, [one.action for one in sizes], "o-", label="measured")
    last = sizes[-1]
    axes.loglog(rows, [last.action * one / last.rows for one in rows], ":", color="grey", label="in proportion to rows")
    axes.set(xlabel="rows of each side", ylabel="seconds", title=title_of(sizes))
    axes.legend()
    figure.savefig(file, metadata={"Date": None})


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    rows: Annotated[str, typer.Option(help="Rows of each side, separated by commas.")] = SIZES,
    write: Annotated[bool, typer.Option(help="Write the table to growing.md and the plot to growing.svg.")] = False,
) -> None:
    """Measure, and print time and peak memory."""
    if context.invoked_subcommand is not None:
        return
    sizes = []
    for size in map(int, rows.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="dovetail-growing-"))
        try:
            sizes.append(measured(folder, size))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        console.print(sizes[-1])
    head = ["rows of each side", "results", "action, s", "microseconds a row", "whole process, s", "peak of the JVM"]
    head += ["largest Python process", "all at once", "shuffled", "spilled", "DuckDB counts in, s"]
    table = [
        [
            f"{one.rows:,}", f"{one.results:,}", f"{one.action:.1f}", f"{one.action / one.rows / 2 * 1e6:.2f}",
            f"{one.process:.1f}",
            *(f"{size:.2f} GiB" for size in (one.jvm, one.python, one.together, one.shuffled, one.spilled)),
            f"{one.counting:.1f}",
        ]
        for one in sizes
    ]  # fmt: skip
    show(head, table, title=title_of(sizes), file=HERE / "growing.md" if write else None)
    if write:
        draw(sizes, HERE / "growing.svg")


if __name__ == "__main__":
    app()

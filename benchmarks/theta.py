"""Theta joins against DuckDB, Polars and Spark's own join, all in one run on the same Parquet files.

    python benchmarks/theta.py [--scale 1.0] [--only band,overlap] [--write]

Spark is up and warm before anything is timed; every engine reads Parquet and none keeps its result: Spark writes to its
no-op sink, DuckDB and Polars add up every column of the result, which they do without storing it.  Peers run
with as many threads as Spark has cores.  Times are the best of several runs, because the machine is shared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _timing import race
from rich.console import Console
from rich.table import Table

CORES = 2
os.environ.setdefault("POLARS_MAX_THREADS", str(CORES))
SPAN = 1_000_000.0
ROWS = 4_000_000
HERE = Path(__file__).parent
console = Console()


class Result:
    """Seconds by engine for one case, the rows it found, and the bound it is held against."""

    def __init__(self, case: str, claim: str) -> None:
        self.case, self.claim = case, claim
        self.seconds: dict[str, float] = {}
        self.rows: dict[str, int] = {}
        self.verdict = ""
        self.holds: bool | None = None

    def judge(self, holds: bool, verdict: str) -> None:
        """Say whether the claim holds, and the figure that decides it."""
        self.holds, self.verdict = holds, verdict


def make_data(folder: Path, rows: int) -> None:
    """Two sides of uniform doubles, intervals and keys; 16 row groups, so that several tasks can read a file.

    The values hardly repeat, so Spark writes them plainly, where Arrow would begin every row group with a dictionary.
    The files are as Spark's own: plain.
    """
    generator = np.random.default_rng(7)
    for side in "rs":
        value = generator.uniform(0, SPAN, rows)
        table = pa.table(
            {
                "id": np.arange(rows),
                "v": value,
                "w": value + generator.uniform(0, 2 * SPAN / rows, rows),
                "k": generator.integers(0, max(1, rows // 40), rows),
            }
        )
        pq.write_table(table, folder / f"{side}{rows}.parquet", row_group_size=max(1, rows // 16), use_dictionary=False)


class Engines:
    """One runner per engine; each returns the number of result rows."""

    def __init__(self, folder: Path) -> None:
        import dovetail as dt

        self.dt = dt
        self.folder = folder
        self.spark = dt.session(
            "theta-benchmark",
            master=f"local[{CORES}]",
            driver_memory="4g",
            conf={"spark.sql.shuffle.partitions": 2 * CORES},
        )
        self.duck = duckdb.connect()
        self.duck.execute(f"SET threads = {CORES}")

    def path(self, side: str, rows: int) -> str:
        """The Parquet file of a side."""
        return str(self.folder / f"{side}{rows}.parquet")

    def dovetail(self, rows: int, columns: list[str], on: str, **options: object) -> int:
        """Our join, into the no-op sink."""
        r = self.spark.read.parquet(self.path("r", rows)).select(*columns)
        s = self.spark.read.parquet(self.path("s", rows)).select(*columns)
        joined = self.dt.theta_join({"R": r, "S": s}, on=on, **options)
        joined.write.format("noop").mode("overwrite").save()
        return int(self.dt.metrics(joined)["results"])

    def own(self, rows: int, columns: list[str], on: str) -> int:
        """Spark's own join, into the no-op sink."""
        r = self.spark.read.parquet(self.path("r", rows)).select(*columns).alias("R")
        s = self.spark.read.parquet(self.path("s", rows)).select(*columns).alias("S")
        from pyspark.sql import functions as F

        joined = r.join(s, F.expr(on))
        joined.write.format("noop").mode("overwrite").save()
        return -1

    def duckdb(self, rows: int, columns: list[str], on: str) -> int:
        """DuckDB, adding up every column of the result."""
        sums = ", ".join(f"sum({side}.{column})" for side in "RS" for column in columns)
        sql = f"SELECT count(*), {sums} FROM '{self.path('r', rows)}' R JOIN '{self.path('s', rows)}' S ON {on}"
        return int(self.duck.execute(sql).fetchone()[0])

    def polars_band(self, rows: int, width: float) -> int:
        """Polars, adding up every column of the result."""
        import polars as pl

        r = pl.scan_parquet(self.path("r", rows)).select("id", "v")
        s = pl.scan_parquet(self.path("s", rows)).select(
            pl.col("id").alias("s_id"),
            pl.col("v").alias("s_v"),
            (pl.col("v") - width).alias("low"),
            (pl.col("v") + width).alias("high"),
        )
        joined = r.join_where(s, pl.col("v") >= pl.col("low"), pl.col("v") <= pl.col("high"))
        total = joined.select(pl.len(), pl.col("id", "v", "s_id", "s_v").sum())
        return int(total.collect()["len"][0])


def band_width(rows: int) -> float:
    """The half-width at which each row has about 1.78 matches, whatever the number of rows."""
    return 0.222 * ROWS / rows


def band_on(rows: int) -> str:
    width = band_width(rows)
    return f"R.v BETWEEN S.v - {width:.9f} AND S.v + {width:.9f}"


def band(engines: Engines, rows: int) -> Result:
    result = Result(f"band join, {rows:,} x {rows:,}", "at most 2 x DuckDB, faster than Polars")
    on = band_on(rows)
    result.seconds, result.rows = race(
        {
            # The JVM goes on compiling for as many runs: its planner is large.
            "dovetail": (lambda: engines.dovetail(rows, ["id", "v"], on), 40),
            "duckdb": (lambda: engines.duckdb(rows, ["id", "v"], on), 2),
            "polars": (lambda: engines.polars_band(rows, band_width(rows)), 2),
        },
        times=10,
    )
    ratio, against = _ratio(result, "duckdb"), _ratio(result, "polars")
    result.judge(ratio <= 2 and against < 1, f"{ratio:.2f} x DuckDB, {against:.2f} x Polars")
    return result


def overlap(engines: Engines, rows: int) -> Result:
    result = Result(f"interval overlap, {rows:,} x {rows:,}", "at most 3 x DuckDB")
    on = "R.v < S.w AND S.v < R.w"
    columns = ["id", "v", "w"]
    result.seconds, result.rows = race(
        {
            "dovetail": (lambda: engines.dovetail(rows, columns, on), 4),
            "duckdb": (lambda: engines.duckdb(rows, columns, on), 1),
        },
        times=4,
    )
    ratio = _ratio(result, "duckdb")
    result.judge(ratio <= 3, f"{ratio:.2f} x DuckDB")
    return result


def equality(engines: Engines, rows: int) -> Result:
    result = Result(f"equality + band, {rows:,} x {rows:,}, {rows // 40:,} keys", "at most 2 x DuckDB")
    width = SPAN / 45
    on = f"R.k = S.k AND R.v BETWEEN S.v - {width:.6f} AND S.v + {width:.6f}"
    columns = ["id", "k", "v"]
    result.seconds, result.rows = race(
        {
            "dovetail": (lambda: engines.dovetail(rows, columns, on), 4),
            "duckdb": (lambda: engines.duckdb(rows, columns, on), 1),
        },
        times=4,
    )
    ratio = _ratio(result, "duckdb")
    result.judge(ratio <= 2, f"{ratio:.2f} x DuckDB")
    return result


def against_spark(engines: Engines, rows: int) -> Result:
    result = Result(f"band join, {rows:,} x {rows:,}", "at least 50 x faster than Spark's own join")
    on = band_on(rows)
    ours = lambda: engines.dovetail(rows, ["id", "v"], on, broadcast="S")  # noqa: E731
    result.seconds, result.rows = race({"dovetail": (ours, 8)}, times=8)
    result.seconds |= race({"spark": (lambda: engines.own(rows, ["id", "v"], on), 0)}, times=1)[0]
    ratio = result.seconds["spark"] / result.seconds["dovetail"]
    result.judge(ratio >= 50, f"{ratio:.0f} x faster")
    return result


def scaling(engines: Engines, rows: int) -> Result:
    result = Result(f"band join, {rows // 2:,} and {rows:,} a side, constant output per row", "at most 2.4 x")
    sizes = {"half": rows // 2, "whole": rows}
    result.seconds, result.rows = race(
        {name: (lambda n=n: engines.dovetail(n, ["id", "v"], band_on(n)), 3) for name, n in sizes.items()}, times=5
    )
    ratio = result.seconds["whole"] / result.seconds["half"]
    result.judge(ratio <= 2.4, f"{ratio:.2f} x the time for twice the rows")
    return result


def memory(folder: Path, rows: int) -> Result:
    """A large join in a process of its own, with the memory of all its processes watched."""
    result = Result(f"band join, {rows:,} x {rows:,}", "within 4 GiB per worker")
    command = [sys.executable, str(Path(__file__).resolve()), "one-join", str(folder), str(rows)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peaks: dict[str, int] = {}
    watcher = threading.Thread(target=watch, args=(process, peaks), daemon=True)
    watcher.start()
    out, _ = process.communicate()
    result.seconds["dovetail"] = time.perf_counter() - began
    result.rows["dovetail"] = int(out.split()[-1]) if process.returncode == 0 else -1
    jvm, worker = peaks.get("java", 0) / 2**30, peaks.get("python", 0) / 2**30
    fits = process.returncode == 0 and jvm + CORES * worker <= 4 * CORES and worker <= 4
    result.judge(fits, f"JVM {jvm:.2f} GiB (heap 2g, driver and executor), largest Python worker {worker:.2f} GiB")
    return result


def watch(process: subprocess.Popen[str], peaks: dict[str, int]) -> None:
    """Peak resident memory by kind of process, over the tree below `process`, and of all of them at once.

    Pages that processes share count for each of them.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    while process.poll() is None:
        parents, programs, sizes = {}, {}, {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    pid = int(entry.name)
                    # The program, not the name: a child that the JVM forks bears the name of one of its threads.
                    programs[pid] = (entry / "exe").readlink().name
                    parents[pid], sizes[pid] = int(fields[1]), int(fields[21]) * page
                except OSError:
                    continue  # it ended while we looked
        together = 0
        for pid in programs:
            above = pid
            while above and above != process.pid:
                above = parents.get(above, 0)
            if above == process.pid and pid != process.pid:
                kind = "java" if "java" in programs[pid] else "python"
                peaks[kind] = max(peaks.get(kind, 0), sizes[pid])
                together += sizes[pid]
        peaks["together"] = max(peaks.get("together", 0), together)
        time.sleep(0.2)


def _ratio(result: Result, peer: str) -> float:
    if result.rows["dovetail"] != result.rows[peer]:
        raise SystemExit(f"{result.case}: dovetail found {result.rows['dovetail']}, {peer} {result.rows[peer]} rows")
    return result.seconds["dovetail"] / result.seconds[peer]


def report(results: list[Result]) -> Table:
    table = Table("case", "seconds", "rows out", "claim", "measured", "holds", title="theta joins")
    for one in results:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in one.seconds.items())
        table.add_row(
            one.case, seconds, f"{max(one.rows.values()):,}", one.claim, one.verdict, "yes" if one.holds else "no"
        )
    return table


def markdown(results: list[Result]) -> str:
    lines = ["# Theta joins", "", f"`python benchmarks/theta.py`, {CORES} cores, seconds, best of several runs.", ""]
    lines += ["| case | seconds | rows out | claim | measured | holds |", "|---|---|---|---|---|---|"]
    for one in results:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in one.seconds.items())
        found = f"{max(one.rows.values()):,}"
        lines.append(
            f"| {one.case} | {seconds} | {found} | {one.claim} | {one.verdict} | {'yes' if one.holds else 'no'} |"
        )
    return "\n".join(lines) + "\n"


app = typer.Typer(add_completion=False)


@app.command("one-join")
def one_join(folder: Path, rows: int) -> None:
    """One large band join with a small heap, for the memory case."""
    import dovetail as dt

    spark = dt.session(master=f"local[{CORES}]", driver_memory="2g", conf={"spark.sql.shuffle.partitions": 16})
    r, s = (spark.read.parquet(str(folder / f"{side}{rows}.parquet")).select("id", "v") for side in "rs")
    joined = dt.theta_join({"R": r, "S": s}, on=band_on(rows))
    joined.write.format("noop").mode("overwrite").save()
    print(dt.metrics(joined)["results"])


@app.command()
def main(
    scale: Annotated[float, typer.Option(help="Rows of all cases, as a share of the full size.")] = 1.0,
    only: Annotated[
        str, typer.Option(help="Cases to run, with commas.")
    ] = "band,overlap,equality,spark,scaling,memory",
    write: Annotated[bool, typer.Option(help="Write benchmarks/theta.md.")] = False,
) -> None:
    """Run the cases and print the ratios."""
    folder = Path(tempfile.mkdtemp(prefix="dovetail-theta-"))
    rows, small, large = int(ROWS * scale), int(50_000 * max(scale, 0.2)), int(10_000_000 * scale)
    cases = only.split(",")
    sizes = {rows, rows // 2, small} | ({large} if "memory" in cases else set())
    try:
        for size in sorted(sizes):
            console.print(f"making {size:,} rows a side")
            make_data(folder, size)
        results = []
        if "memory" in cases:
            results.append(memory(folder, large))
        engines = Engines(folder)
        runs: dict[str, Callable[[], Result]] = {
            "band": lambda: band(engines, rows),
            "overlap": lambda: overlap(engines, rows),
            "equality": lambda: equality(engines, rows),
            "spark": lambda: against_spark(engines, small),
            "scaling": lambda: scaling(engines, rows),
        }
        for name, run in runs.items():
            if name in cases:
                console.rule(name)
                results.append(run())
        console.print(report(results))
        if write:
            (HERE / "theta.md").write_text(markdown(results))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # `python benchmarks/theta.py` runs the cases; the subcommand is only for the memory case.
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        sys.argv.insert(1, "main")
    app()

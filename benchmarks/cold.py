"""The first join of a new process: ours beside Spark's own first join and its first Python stage.

    python benchmarks/cold.py [--only theta,asof] [--times 5] [--empty] [--write]

Every figure comes from a process of its own, and the families and Spark take turns.  The clock starts when the session
is up; the inputs have 1,000 rows a side.  --empty measures as well with a new cache for each of our processes.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
CORES = 2
ROWS = 1_000
MASTER = f"local[{CORES}]"
WARM, EMPTY = 1.1, 1.5
"""How many times as long as Spark's our first join may take, with kernels in the cache and without."""
console = Console()


def inputs(spark: Any) -> dict[str, Any]:
    """Two sides of numbers and times."""
    columns = (
        "id",
        "id % 100 AS k",
        "CAST(hash(id, {seed}) AS DOUBLE) / 4e6 AS x",
        "timestamp_seconds({seed} + id) AS t",
    )
    seeds = {"R": 1, "S": 2}
    return {
        side: spark.range(ROWS).selectExpr(*(column.format(seed=seed) for column in columns))
        for side, seed in seeds.items()
    }


def spark_alone() -> dict[str, float]:
    """Spark's own band join, then a first stage in Python, in a session as PySpark makes it."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false").getOrCreate()
    began = time.perf_counter()
    sides = inputs(spark)
    for side, frame in sides.items():
        frame.createOrReplaceTempView(side)
    spark.sql("SELECT * FROM R JOIN S ON abs(R.x - S.x) <= 1").collect()
    joined = time.perf_counter()
    sides["R"].mapInArrow(lambda batches: batches, sides["R"].schema).collect()
    staged = time.perf_counter()
    return {"join": joined - began, "python": staged - joined, "total": staged - began}


def calls() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """The first join of each family."""
    import dovetail as dt

    return {
        "theta": lambda sides: dt.theta_join(sides, on="ABS(R.x - S.x) <= 1"),
        "window": lambda sides: dt.window_join(sides, on="R.k = S.k", time="t", within="5 seconds"),
        "asof": lambda sides: dt.asof_join(sides, time="t", by="k"),
        "bestmatch": lambda sides: dt.bestmatch_join(
            sides, on=[dt.closest("t", within="9 seconds"), dt.closest("x")], by="k"
        ),
        "approx": lambda sides: dt.approx_join(sides, on="R.k = S.k", memory=500),
    }


def ours(family: str) -> dict[str, float]:
    """The first join, and the second one for comparison."""
    import dovetail as dt

    spark = dt.session("cold", master=MASTER)
    began = time.perf_counter()
    frame = calls()[family](inputs(spark))
    built = time.perf_counter()
    frame.collect()
    first = time.perf_counter()
    again = calls()[family](inputs(spark))
    rebuilt = time.perf_counter()
    again.collect()
    done = time.perf_counter()
    return {"build": built - began, "total": first - began, "rebuild": rebuilt - first, "second": done - first}


def process(what: str, *, empty: bool) -> dict[str, float]:
    """The figures of one new process."""
    environment = dict(os.environ)
    environment.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark alone takes the first python3 of the path
    cache = tempfile.mkdtemp(prefix="dovetail-cold-") if empty else None
    if cache:
        environment["NUMBA_CACHE_DIR"] = cache
    command = [sys.executable, __file__, "--child", what]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if cache:
        shutil.rmtree(cache, ignore_errors=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    console.print(f"  {what:<10}", {name: round(value, 2) for name, value in figures.items()}, highlight=False)
    return figures


def main(
    only: Annotated[str, typer.Option(help="Families, separated by commas.")] = "",
    times: Annotated[int, typer.Option(help="Processes of each; the median counts.")] = 5,
    empty: Annotated[bool, typer.Option(help="Also without compiled kernels.")] = False,
    write: Annotated[bool, typer.Option(help="Write cold.md beside this file.")] = False,
    child: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Time first joins."""
    if child:
        print(json.dumps(spark_alone() if child == "spark" else ours(child)))
        return
    families = [name for name in calls() if not only or name in only.split(",")]
    for family in families:
        process(family, empty=False)  # which compiles what is not there yet
    states = [("warm", False, WARM), *([("empty", True, EMPTY)] if empty else [])]
    heads = ["family", "cache", "first join, s", "Spark's first join and Python stage, s", "ratio", "at most", "holds"]
    table = []
    for cache, without, most in states:
        found: dict[str, list[float]] = {what: [] for what in ("spark", *families)}
        for _ in range(times):
            for what, totals in found.items():
                totals.append(process(what, empty=without and what != "spark")["total"])
        theirs, *mine = (statistics.median(totals) for totals in found.values())
        for family, total in zip(families, mine, strict=True):
            held = "yes" if total <= most * theirs else "no"
            row = [family, cache, f"{total:.2f}", f"{theirs:.2f}", f"{total / theirs:.2f}", str(most), held]
            table.append(row)
    shown = Table(*heads)
    for row in table:
        shown.add_row(*row)
    console.print(shown)
    if write:
        what = f"medians of {times} processes each, Spark's own and ours in turn, on {CORES} cores, from the moment the"
        rest = "session is up. Spark's own is a band join of the same rows and its first Python stage."
        lines = ["# The first join of a process", "", "`python benchmarks/cold.py --empty --write`:", what, rest, ""]
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        (HERE / "cold.md").write_text("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table)]) + "\n")
    sys.exit(0 if all(row[-1] == "yes" for row in table) else 1)


if __name__ == "__main__":
    typer.run(main)

"""Window joins of streams against Spark's own stream-stream joins, in one run on the same Parquet files.

    python benchmarks/window.py [--rows 200000] [--batches 7] [--only two,three,band,state] [--write]

One file of each input is one micro-batch of 10 s of event time.  Sinks are no-ops.  A figure is the median of the
micro-batches after the second one, as Spark's own progress reports them.  Spark's join runs on its default state store
and on RocksDB with join state format 4; its better time counts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import duckdb
import typer
from _streams import SPAN, run, write_inputs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import dovetail as dt

CORES = 2
HERE = Path(__file__).parent
console = Console()


def two_way_own(inputs: dict[str, DataFrame]) -> DataFrame:
    a, b = inputs["A"].alias("A"), inputs["B"].alias("B")
    near = "A.ts >= B.ts - INTERVAL 10 SECONDS AND A.ts <= B.ts + INTERVAL 10 SECONDS"
    return a.join(b, F.expr(f"A.k = B.k AND {near}"))


def three_way_own(inputs: dict[str, DataFrame]) -> DataFrame:
    # A second join takes one event time only, so the first one's other time becomes a plain column.
    first = two_way_own(inputs).select(
        F.expr("A.ts + INTERVAL 0 SECONDS").alias("a_ts"), F.col("A.id").alias("a_id"), F.col("A.v").alias("a_v"),
        F.col("B.ts").alias("b_ts"), F.col("B.id").alias("b_id"), F.col("B.v").alias("b_v"), F.col("B.k").alias("b_k"),
    )  # fmt: skip
    times = ("a_ts", "b_ts")
    near = " AND ".join(f"C.ts BETWEEN {t} - INTERVAL 10 SECONDS AND {t} + INTERVAL 10 SECONDS" for t in times)
    return first.join(inputs["C"].alias("C"), F.expr(f"b_k = C.k AND {near}"))


def ours(inputs: dict[str, DataFrame], on: str) -> DataFrame:
    return dt.window_join(inputs, on=on, time="ts", within="10 seconds")


def expected(root: Path, names: str, condition: str) -> int:
    """The number of matches by DuckDB."""
    tables = ", ".join(f"'{root}/{name}/*.parquet' {name}" for name in names)
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    near = " AND ".join(f"abs(epoch_us({a}.ts) - epoch_us({b}.ts)) <= {SPAN}" for a, b in pairs)
    return int(duckdb.sql(f"SELECT count(*) FROM {tables} WHERE {condition} AND {near}").fetchall()[0][0])


@dataclass
class Line:
    """One line of the report."""

    case: str
    claim: str
    figures: str
    holds: bool


def against_spark(spark: SparkSession, root: Path, names: str, own: Any, times: float, batches: int, rows: int) -> Line:
    on = " AND ".join(f"{a}.k = {b}.k" for a, b in pairwise(names))
    write_inputs(root, names, rows, batches)
    # The JVM compiles what it runs often: the second run is the warm one.  RocksDB is too far behind to be run twice.
    run(spark, root, names, partial(ours, on=on), "ours", "dovetail, rehearsal")
    mine = run(spark, root, names, partial(ours, on=on), "ours", "dovetail")
    run(spark, root, names, own, "memory", "spark, rehearsal")
    theirs = {store: run(spark, root, names, own, store, f"spark, {store}") for store in ("memory", "rocksdb")}
    count = expected(root, names, on)
    for found in (mine, *theirs.values()):
        assert found.rows == count, f"{found.rows} rows instead of {count}"
    best = min(found.warm for found in theirs.values())
    ratio = best / mine.warm
    figures = (
        f"dovetail {mine.warm:.2f} s, Spark {theirs['memory'].warm:.2f} s (memory), "
        f"{theirs['rocksdb'].warm:.2f} s (RocksDB, format 4): {ratio:.1f} times faster"
    )
    ways = {2: "two", 3: "three"}[len(names)]
    return Line(
        f"{ways}-way equality, {rows:,} rows each a micro-batch", f"at least {times:g} times", figures, ratio >= times
    )


def two(spark: SparkSession, root: Path, rows: int, batches: int) -> Line:
    """Two streams, one key."""
    return against_spark(spark, root, "AB", two_way_own, 3, batches, rows)


def three(spark: SparkSession, root: Path, rows: int, batches: int) -> Line:
    """Three streams, one key; Spark chains two joins."""
    return against_spark(spark, root, "ABC", three_way_own, 5, batches, rows)


def band(spark: SparkSession, root: Path, rows: int, batches: int) -> Line:
    """Three streams and no key at all; Spark refuses such a join."""
    # A window of 20 s holds 2 x rows of an input: a band of 1 in so many gives each row one partner.
    write_inputs(root, "ABC", rows, batches, values=float(4 * rows))
    on = "ABS(A.v - B.v) <= 1 AND ABS(B.v - C.v) <= 1"
    mine = run(spark, root, "ABC", partial(ours, on=on), "ours", "dovetail")
    count = expected(root, "ABC", "abs(A.v - B.v) <= 1 AND abs(B.v - C.v) <= 1")
    assert mine.rows == count, f"{mine.rows} rows instead of {count}"
    rate = 3 * rows / mine.warm
    figures = (
        f"{mine.warm:.2f} s a micro-batch: {rate:,.0f} rows/s, {count / (rows * batches):.2f} matches for each row of A"
    )
    return Line(f"three-way band without a key, {rows:,} rows each", "at least 50,000 rows/s", figures, rate >= 50_000)


def state(spark: SparkSession, root: Path, rows: int, batches: int) -> Line:
    """One hour of event time in micro-batches of 10 s."""
    few = 1000
    write_inputs(root, "AB", few, 361)
    mine = run(spark, root, "AB", partial(ours, on="A.k = B.k"), "ours", "dovetail")
    # Spark keeps the last hundred reports; a shorter run tells of the beginning.
    begin = Path(tempfile.mkdtemp(dir=root))
    write_inputs(begin, "AB", few, 3)
    early = run(spark, begin, "AB", partial(ours, on="A.k = B.k"), "ours", "dovetail")
    held = [sum(report[f"held_rows_{a}"] for a in "AB") for report in (early.progress[2], mine.progress[-1])]
    size = [sum(report[f"state_bytes_{a}"] for a in "AB") for report in (early.progress[2], mine.progress[-1])]
    figures = f"rows {held[0]:,} after two windows, {held[1]:,} after an hour; bytes {size[0]:,} and {size[1]:,}"
    return Line(
        "state after one hour of event time", "no larger than after two windows", figures, held[1] <= held[0] * 1.02
    )


CASES = {"two": two, "three": three, "band": band, "state": state}


def main(
    rows: Annotated[int, typer.Option(help="Rows of each input in a micro-batch.")] = 200_000,
    batches: Annotated[int, typer.Option(help="Micro-batches.")] = 7,
    only: Annotated[str, typer.Option(help="Some of: two,three,band,state.")] = "",
    write: Annotated[bool, typer.Option(help="Write the table to window.md.")] = False,
) -> None:
    """Measure, and print whether each claim holds."""
    spark = dt.session(
        "window-benchmark", master=f"local[{CORES}]", driver_memory="6g", conf={"spark.sql.shuffle.partitions": CORES}
    )
    chosen = only.split(",") if only else list(CASES)
    lines = []
    root = Path(tempfile.mkdtemp(prefix="dovetail-window-"))
    try:
        warm = root / "warm"
        write_inputs(warm, "AB", 1000, 3)
        run(spark, warm, "AB", partial(ours, on="A.k = B.k"), "ours", "rehearsal")
        for name in chosen:
            console.rule(name)
            lines.append(CASES[name](spark, root / name, rows, batches))
    finally:
        shutil.rmtree(root, ignore_errors=True)
        spark.stop()
    table = Table("case", "claim", "measured", "holds")
    for line in lines:
        table.add_row(line.case, line.claim, line.figures, "yes" if line.holds else "NO")
    console.print(table)
    if write:
        body = "\n".join(f"| {x.case} | {x.claim} | {x.figures} | {'yes' if x.holds else 'no'} |" for x in lines)
        head = (
            "# Window joins of streams\n\n"
            f"`python benchmarks/window.py --write` wrote this table on {time.strftime('%Y-%m-%d')}: {CORES} cores, "
            f"`local[{CORES}]`, Spark {spark.version}, micro-batches of 10 s of event time, windows of 10 s. Seconds\n"
            "are the median micro-batch once warm. DuckDB's count of the matches equals that of every join.\n\n"
            "| case | claim | measured | holds |\n|---|---|---|---|\n"
        )
        (HERE / "window.md").write_text(head + body + "\n")


if __name__ == "__main__":
    typer.run(main)

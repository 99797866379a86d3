"""Aggregates over joins: what more matches cost, and the same answers from DuckDB, in one run.

    python benchmarks/aggregates.py [--scale 1.0] [--only band,shuffled,pairs,overlap] [--write]

``band``      count and avg over a band with 100 and with 10,000 matches a row, 1M x 1M: the second may take 1.2 times
              the first.
``pairs``     count and avg over a band with 1,000 matches a row, beside DuckDB forming the pairs, 1M x 1M to 10M x 10M.
``shuffled``  the same band with ``broadcast=False``, as for inputs of which no column fits into a task.
``overlap``   how many intervals overlap each interval, 4M x 4M, beside DuckDB without forming the pairs: as many as
              begin before it ends, without those that end before it begins, by two as-of joins on running counts.

Spark is up and warm before anything is timed, reads Parquet and writes to its no-op sink.  DuckDB has as many threads
as Spark has cores and reads the same columns of the same files; beside it both give the same answer, one row: how many
rows there are, and the sum of their counts.  Both have opened the tables before the clock starts, so that neither looks
for their columns within a run; rows are read in every run.  Engines take turns, and the best of several runs counts;
beside the pairs, the median does, after twenty runs of 1M x 1M, from which on the JVM gets no faster.
``broadcast="q"`` sends the two columns of q that the call needs to every task: 16 MB of 1M rows, 64 MB of 4M.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _timing import race, show, turns

CORES = 2
ROWS, INTERVALS = 1_000_000, 4_000_000
SPAN = 1_000_000.0
HERE = Path(__file__).parent
AGG = {"n": "count(*)", "mean": "avg(q.v)"}

PAIRS = """
    SELECT count(*), sum(n) FROM (
        SELECT t.id, count(*) AS n, avg(q.v) AS mean FROM t JOIN q ON q.x BETWEEN t.x - {width} AND t.x GROUP BY t.id)
"""
OVERLAPS = """
    WITH begins AS (SELECT x, max(n) AS n FROM (SELECT x, row_number() OVER (ORDER BY x) AS n FROM q) GROUP BY x),
         ends AS (SELECT e, max(n) AS n FROM (SELECT e, row_number() OVER (ORDER BY e) AS n FROM q) GROUP BY e),
         begun AS (SELECT t.id, t.x, coalesce(begins.n, 0) AS n FROM t ASOF LEFT JOIN begins ON t.e >= begins.x)
    SELECT count(*), sum(begun.n - coalesce(ends.n, 0)) FROM begun ASOF LEFT JOIN ends ON begun.x > ends.e
"""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_data(folder: Path, name: str, rows: int) -> None:
    """Two sides of uniform doubles, 16 row groups each; an interval is as long as two others are apart."""
    random = np.random.default_rng(7)
    for side in "tq":
        x = random.uniform(0, SPAN, rows)
        columns = {"id": np.arange(rows), "x": x, "e": x + random.uniform(0, 4 * SPAN / rows, rows)}
        columns["v"] = random.normal(100.0, 15.0, rows)
        file = folder / f"{name}-{side}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=max(1, rows // 16), use_dictionary=False)


class Tables:
    """The tables of both sides, opened by Spark and by DuckDB."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        used = {"t": ["id", "x", "e"], "q": ["x", "e"]} if name == "spans" else {"t": ["id", "x"], "q": ["x", "v"]}
        files = {side: str(folder / f"{name}-{side}.parquet") for side in "tq"}
        self.frames = {side: spark.read.parquet(file).select(*used[side]) for side, file in files.items()}
        self.duckdb = duckdb.connect(config={"threads": CORES})
        for side, file in files.items():
            self.duckdb.sql(f"CREATE VIEW {side} AS SELECT * FROM '{file}'")

    def answered(
        self, on: str, agg: dict[str, str], broadcast: Literal["q", False] = "q", *, summed: bool = False
    ) -> int:
        """The matches that an aggregate join answers from, once all its rows are written, or added up."""
        import dovetail as dt

        joined = dt.aggregate_join(self.frames, on=on, by="t", agg=agg, broadcast=broadcast)
        if summed:
            return int(joined.selectExpr("count(*)", "sum(n)").collect()[0][1])
        joined.write.format("noop").mode("overwrite").save()
        return int(dt.metrics(joined)["matches"])

    def asked(self, query: str) -> int:
        """The matches that DuckDB counts."""
        return int(self.duckdb.sql(query).fetchall()[0][1])


def compare(folder: Path, scale: float, only: set[str]) -> list[list[str]]:
    """The rows of the table."""
    import dovetail as dt

    conf = {"spark.sql.shuffle.partitions": 2 * CORES}
    spark = dt.session("aggregates-benchmark", master=f"local[{CORES}]", driver_memory="4g", conf=conf)
    rows, intervals = int(ROWS * scale), int(INTERVALS * scale)
    table = []

    def band(matches: int, broadcast: Literal["q", False] = "q") -> int:
        on = f"q.x BETWEEN t.x - {matches * SPAN / rows} AND t.x"
        return tables.answered(on, AGG, broadcast)

    if not only or only & {"band", "shuffled"}:
        make_data(folder, "rows", rows)
        tables = Tables(spark, folder, "rows")
    if not only or "band" in only:
        few, many = 100, 10_000
        engines = {"few": (lambda: band(few), 5), "many": (lambda: band(many), 1)}
        seconds, found = race(engines, times=5)
        table.append(line(f"{rows:,} x {rows:,}, {few} matches a row", seconds["few"], found["few"], ""))
        ratio = f"{seconds['many'] / seconds['few']:.2f} x that"
        table.append(line(f"the same, {many:,} matches a row", seconds["many"], found["many"], ratio))
    if not only or "shuffled" in only:
        engines = {
            "few": (lambda: band(100, broadcast=False), 3),
            "many": (lambda: band(10_000, broadcast=False), 1),
        }
        seconds, found = race(engines, times=3)
        table.append(line("shuffled, 100 matches a row", seconds["few"], found["few"], ""))
        ratio = f"{seconds['many'] / seconds['few']:.2f} x that"
        table.append(line("shuffled, 10,000 matches a row", seconds["many"], found["many"], ratio))
    if not only or "pairs" in only:
        # DuckDB forms a thousand million pairs a million rows, so the larger tables are asked less often.
        for size, warm, times in ((rows, 20, 5), (3 * rows, 5, 3), (10 * rows, 3, 1)):
            make_data(folder, f"{size}", size)
            table.append(beside_pairs(Tables(spark, folder, f"{size}"), size, warm, times))
    if not only or "overlap" in only:
        make_data(folder, "spans", intervals)
        spans = Tables(spark, folder, "spans")
        on = "q.x <= t.e AND q.e >= t.x"
        engines = {
            "dovetail": (lambda: spans.answered(on, {"n": "count(*)"}, summed=True), 5),
            "duckdb": (lambda: spans.asked(OVERLAPS), 1),
        }
        seconds, found = race(engines, times=3)
        assert found["dovetail"] == found["duckdb"], found
        ratio = f"DuckDB without pairs {seconds['duckdb']:.2f} s: {seconds['dovetail'] / seconds['duckdb']:.2f} x that"
        name = f"{intervals:,} x {intervals:,} overlapping intervals"
        table.append(line(name, seconds["dovetail"], found["dovetail"], ratio))
    spark.stop()
    return table


def beside_pairs(tables: Tables, size: int, warm: int, times: int) -> list[str]:
    """The row of the table for 1,000 matches a row, beside DuckDB forming the pairs: medians, and the best runs."""
    width = 1000 * SPAN / size
    on, query = f"q.x BETWEEN t.x - {width} AND t.x", PAIRS.format(width=width)
    engines = {
        "dovetail": (lambda: tables.answered(on, AGG, summed=True), warm),
        "duckdb": (lambda: tables.asked(query), 0),
    }
    laps, found = turns(engines, times=times)
    # DuckDB leaves out rows without a match, which have no pairs either.
    assert found["dovetail"] == found["duckdb"], found
    middle, best = ({name: of(every) for name, every in laps.items()} for of in (statistics.median, min))
    ratio = f"DuckDB {middle['duckdb']:.2f} s: {middle['duckdb'] / middle['dovetail']:.1f} times as long"
    ratio += f" (best runs {best['dovetail']:.2f} and {best['duckdb']:.2f}: {best['duckdb'] / best['dovetail']:.1f})"
    return line(f"{size:,} x {size:,}, 1,000 matches a row", middle["dovetail"], found["dovetail"], ratio)


def line(name: str, seconds: float, matches: int, beside: str) -> list[str]:
    """One row of the table."""
    return [name, f"{matches:,}", f"{seconds:.2f}", beside]


def main(
    scale: Annotated[float, typer.Option(help="Rows as a share of the full size.")] = 1.0,
    only: Annotated[str, typer.Option(help="Cases, separated by commas: band, shuffled, pairs, overlap.")] = "",
    write: Annotated[bool, typer.Option(help="Write the table to benchmarks/aggregates.md.")] = False,
) -> None:
    """Run the benchmark and print its table."""
    folder = Path(tempfile.mkdtemp(prefix="aggregates-"))
    try:
        found = compare(folder, scale, {name for name in only.split(",") if name})
    finally:
        shutil.rmtree(folder)
    file = HERE / "aggregates.md" if write else None
    show(["rows", "matches", "seconds", "beside"], found, title="Aggregates over joins", file=file)


if __name__ == "__main__":
    typer.run(main)

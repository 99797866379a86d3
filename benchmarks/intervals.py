"""Genomic intervals, real ones, against DuckDB, Polars and polars-bio in one run.

    python benchmarks/_peers.py install
    python benchmarks/intervals.py --data FOLDER [--times 9] [--write]

The folder has ``exons.parquet`` and ``fbrain.parquet``: human exons, and open chromatin of a fetal brain, with the
columns contig (text), pos_start and pos_end.

``overlap``  exons and regions that share a position, ends included.
``nearest``  for the start of each exon the region of its contig that begins nearest to it, one of several if they tie.

Every engine reads the same files with two threads and forms every row: Spark drops them, DuckDB forms a table of
Arrow, Polars and polars-bio a frame.  Engines take turns after warm-ups; medians and best times are shown.  ClickHouse
hashes the contig and tests the rest on every pair, billions of them, so it takes no part here.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

CORES = 2
os.environ.setdefault("POLARS_MAX_THREADS", str(CORES))

import duckdb  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import typer  # noqa: E402
from _peers import Peers, installed  # noqa: E402
from _timing import Action, show, turns  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

import dovetail as dt  # noqa: E402

HERE = Path(__file__).parent
WARM_UPS = 12
COLUMNS = ["contig", "pos_start", "pos_end"]
ON = "E.contig = P.contig AND E.pos_start <= P.pos_end AND P.pos_start <= E.pos_end"
FILES = {"E": "exons.parquet", "P": "fbrain.parquet"}


def dropped(joined: Any) -> int:
    """Produce every row, and count them."""
    joined.write.format("noop").mode("overwrite").save()
    return int(dt.metrics(joined)["results"])


def line(name: str, engines: dict[str, Action], times: int) -> list[str]:
    """A row of the table."""
    laps, found = turns({engine: (action, WARM_UPS) for engine, action in engines.items()}, times=times)
    assert len(set(found.values())) == 1, found
    shown = [f"{engine} {statistics.median(every):.2f} ({min(every):.2f})" for engine, every in laps.items()]
    return [name, f"{found['dovetail']:,}", ", ".join(shown)]


def overlap(spark: Any, data: Path, peers: Peers | None, times: int) -> list[str]:
    """Intervals that share a position."""
    files = {side: data / name for side, name in FILES.items()}
    frames = {side: spark.read.parquet(str(file)) for side, file in files.items()}
    connection = duckdb.connect(config={"threads": CORES})
    connection.execute("SET prefer_range_joins = true")
    query = f"SELECT * FROM '{files['E']}' E JOIN '{files['P']}' P ON {ON}"
    engines: dict[str, Action] = {
        "dovetail": lambda: dropped(dt.theta_join(frames, on=ON)),
        "duckdb": lambda: connection.sql(query).to_arrow_table().num_rows,
    }
    if peers is not None:
        for algorithm in ("Coitrees", "SuperIntervals"):
            engines[f"polars-bio, {algorithm}"] = lambda algorithm=algorithm: peers.polars_bio(
                "overlap", files["E"], files["P"], COLUMNS, algorithm=algorithm
            )
    return line("overlap", engines, times)


def nearest(spark: Any, data: Path, folder: Path, peers: Peers | None, times: int) -> list[str]:
    """The nearest start on the same contig."""
    files = {}
    for side, name in FILES.items():
        table = pq.read_table(data / name, columns=["contig", "pos_start"])
        files[side] = folder / name
        pq.write_table(table.append_column("pos_end", table["pos_start"]), files[side], row_group_size=50_000)
    frames = {side: spark.read.parquet(str(file)) for side, file in files.items()}

    def ours() -> Any:
        on = "ABS(E.pos_start - P.pos_start)"
        return dt.nearest_join(frames, on=on, by="contig", ties="first", how="left")

    def polars() -> pl.DataFrame:
        left, right = (
            pl.scan_parquet(file).with_columns(pl.col("pos_start").alias(side)).sort("pos_start")
            for side, file in files.items()
        )
        joined = left.join_asof(right, on="pos_start", by="contig", strategy="nearest", check_sortedness=False)
        return joined.collect()

    # polars-bio says how many positions lie between, so that neighbours and the same position are both 0.
    gap = F.expr("sum(greatest(abs(E.pos_start - P.pos_start) - 1, 0))")
    between = {
        "dovetail": ours().select(gap).first()[0],
        "polars": polars()
        .select(((pl.col("E") - pl.col("P")).abs() - 1).cast(pl.Int64).clip(lower_bound=0).sum())
        .item(),
    }
    engines: dict[str, Action] = {"dovetail": lambda: dropped(ours()), "polars": lambda: polars().height}
    if peers is not None:
        between["polars-bio"] = peers.polars_bio_sum("nearest", files["E"], files["P"], COLUMNS, "distance")
        engines["polars-bio"] = lambda: peers.polars_bio("nearest", files["E"], files["P"], COLUMNS)
    assert len(set(between.values())) == 1, between
    return line("nearest", engines, times)


def main(
    data: Annotated[Path | None, typer.Option(help="The folder of exons.parquet and fbrain.parquet.")] = None,
    times: Annotated[int, typer.Option(help="Runs of each engine that count.")] = 9,
    write: Annotated[bool, typer.Option(help="Write the table to benchmarks/intervals.md.")] = False,
) -> None:
    """Run the benchmark and print its table."""
    if data is None:
        print("no intervals to join: --data names the folder that has them")
        return
    conf = {"spark.sql.shuffle.partitions": CORES}
    spark = dt.session("intervals-benchmark", master=f"local[{CORES}]", conf=conf)
    with (
        Peers() if installed() else nullcontext() as peers,
        tempfile.TemporaryDirectory(prefix="dovetail-intervals-") as folder,
    ):
        found = [overlap(spark, data, peers, times), nearest(spark, data, Path(folder), peers, times)]
    spark.stop()
    head = ["join", "results", "median seconds (best)"]
    show(head, found, title="Genomic intervals", file=HERE / "intervals.md" if write else None)


if __name__ == "__main__":
    typer.run(main)

"""What ``dovetail demo`` shows: a join to read, one beside Spark's own, a stream, and a sample of a join.

It warms up first, so that the figures are those of the joins alone, and leaves three programs to change.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dovetail import datasets
from dovetail.command.demo_programs import Program, leave
from dovetail.command.demo_report import Compared, Line, Seen, demo_report
from dovetail.command.demo_warm import warm_up
from dovetail.datasets.files import write
from dovetail.plan.rendering import folded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CONF: dict[str, object] = {"spark.ui.showConsoleProgress": False, "spark.sql.shuffle.partitions": 4}

_FILES = 4
"""Files of each large table: Spark reads a file of one row group in one task."""

_OWN, _OWN_QUICK = 60_000, 30_000
"""Rows of each side that Spark's own join gets at most: enough to matter, and its time grows with their square."""

BAND = "ABS(a.value - b.value) <= 1"
_SAME = "A.obj = B.obj AND B.obj = C.obj"
_HOPS = ("5 seconds", "10 seconds")


@dataclass(frozen=True)
class Sizes:
    """How much data the demo makes; `cut` is the part of each side that Spark's own join gets, too."""

    rows: int
    cut: int
    batches: int
    objects: int

    @classmethod
    def of(cls, rows: int | None, *, quick: bool) -> Sizes:
        """The sizes for the options of the command line.

        Examples
        --------
        >>> Sizes.of(None, quick=True)
        Sizes(rows=40000, cut=30000, batches=3, objects=500)
        """
        wanted = rows if rows is not None else 40_000 if quick else 400_000
        cut = min(wanted, _OWN_QUICK if quick else _OWN)
        return cls(wanted, cut, batches=3 if quick else 4, objects=500 if quick else 2_000)


def run(
    console: Console,
    start: Callable[[], AbstractContextManager[SparkSession]],
    folder: Path,
    sizes: Sizes,
    *,
    report: Path,
) -> None:
    """Show the acts; `start` makes the session, `folder` is for files and is the caller's to remove."""
    began = time.perf_counter()
    starting = start()
    with console.status("Starting Spark ..."):
        spark = starting.__enter__()
    try:
        started = time.perf_counter() - began
        console.print(f"Spark {spark.version} runs ({started:.1f} s to start).  First a warm-up: Python workers start,")
        console.print("the JVM and Numba compile.  The figures after it are those of the joins alone.")
        seen = Seen(spark=spark.version)
        seen.warmed = warm_up(console, spark, folder / "warm", BAND)
        console.print(seen.warmed.text() + "\n")
        seen.lines.append(_read(console, spark))
        _large(console, spark, folder, sizes, seen)
        _stream(console, spark, folder, sizes, seen)
        _sample(console, spark, seen)
    finally:
        starting.__exit__(None, None, None)
    _summary(console, seen)
    programs = leave(report.parent / "dovetail-demo")
    _yours(console, programs)
    demo_report(seen, programs, report)
    console.print(f"The demo took {time.perf_counter() - began:.0f} s.  Its report, to read or to send on:")
    console.print(escape(str(report)), soft_wrap=True)


def _yours(console: Console, programs: list[Program]) -> None:
    """Three joins to change: their code, and where it is."""
    _title(console, "Yours: three joins to change")
    for program in programs:
        console.print(Text(program.text.rstrip(), style="cyan"), soft_wrap=True)
        console.print(f"[bold]python {escape(str(program.path))}[/]\n", soft_wrap=True)
    console.print("A program that is there already stays as you left it; delete it to get it back.\n")


def _title(console: Console, text: str) -> None:
    console.rule(f"[bold]{text}", align="left")


def _code(console: Console, text: str) -> None:
    console.print(Text(text, style="cyan"))


# ------------------------------------------------------------------------------------------------ 1: a join to read


def _read(console: Console, spark: SparkSession) -> Line:
    from dovetail.api import theta_join

    _title(console, "1  Which phones cost more than which laptops?")
    phones, laptops = datasets.phones_and_laptops()
    on = "phone.price > laptop.price"
    _code(console, f'dt.theta_join({{"phone": phones, "laptop": laptops}},\n              on="{on}")')
    began = time.perf_counter()
    with console.status("Joining ..."):
        pairs = theta_join({"phone": spark.createDataFrame(phones), "laptop": spark.createDataFrame(laptops)}, on=on)
        found = pairs.orderBy("phone.price", "laptop.price").collect()
    seconds = time.perf_counter() - began
    table = Table(box=box.SIMPLE)
    for name in ("phone", "laptop"):
        table.add_column(name)
        table.add_column("price", justify="right")
    for row in found[:10]:
        table.add_row(row.phone.name, str(row.phone.price), row.laptop.name, str(row.laptop.price))
    console.print(table)
    shown = f"{len(found)} pairs" + (", the first 10 of them above" if len(found) > 10 else "")
    console.print(f"{shown}.  A laptop without a price matches nothing.\n")
    return Line("phones > laptops", f"{phones.num_rows} x {laptops.num_rows}", len(found), seconds)


# --------------------------------------------------------------------------------------- 2: a join too large for Spark


def _large(console: Console, spark: SparkSession, folder: Path, sizes: Sizes, seen: Seen) -> None:
    from dovetail.api import explain

    _title(console, f"2  Readings of two sensors within a tolerance: {sizes.rows:,} x {sizes.rows:,} rows")
    _code(console, f'dt.theta_join({{"a": a, "b": b}}, on="{BAND}")')
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("making the data", total=4)

        def step(text: str) -> None:
            progress.update(task, advance=1, description=text)

        tables = datasets.sensor_readings(sizes.rows)
        whole = [stored(spark, table, folder / f"whole-{at}") for at, table in enumerate(tables)]
        cut = [stored(spark, table[: sizes.cut], folder / f"cut-{at}") for at, table in enumerate(tables)]
        step(f"Spark's own join of {sizes.cut:,} x {sizes.cut:,} rows")
        spark_found, spark_seconds = sparks_own(spark, cut)
        step(f"Dovetail on the same {sizes.cut:,} x {sizes.cut:,} rows")
        _, counts, cut_seconds = dovetail_join(cut)
        step(f"Dovetail on all {sizes.rows:,} x {sizes.rows:,} rows")
        pairs, found, seconds = dovetail_join(whole)
        step("done")

    product = sizes.rows**2
    small, large = f"{sizes.cut:,} x {sizes.cut:,}", f"{sizes.rows:,} x {sizes.rows:,}"
    with redirect_stdout(io.StringIO()) as text:
        explain(pairs)
    seen.plan = text.getvalue().rstrip()
    plan = folded(seen.plan, console.width - 4)
    console.print(Panel(Text(plan), title="dt.explain(pairs)", title_align="left"))
    table = Table("dt.metrics(pairs)", box=box.SIMPLE, show_header=True)
    table.add_column("", justify="right")
    table.add_row("seconds, files to results", f"{seconds:.2f}")
    table.add_row("results", f"{found['results']:,}")
    table.add_row("pairs in the product", f"{product:,}")
    table.add_row("pairs compared one by one", f"{found['comparisons']:,}")
    table.add_row("comparisons avoided", f"{product - found['comparisons']:,}")
    table.add_row("balance of the tasks (rows in, pairs out; 1 is perfect)", _balance(found))
    console.print(table)
    same = "the same" if counts["results"] == spark_found else f"[bold red]not the same[/] {counts['results']:,}"
    ratio = spark_seconds / cut_seconds
    console.print(
        f"{small} rows: Spark's own join took {spark_seconds:.2f} s and found {spark_found:,} pairs; Dovetail found "
        f"{same} in {cut_seconds:.2f} s, [bold]{ratio:.1f} times[/] as fast."
    )
    if sizes.rows > sizes.cut:
        guess = spark_seconds * (sizes.rows / sizes.cut) ** 2
        console.print(
            f"{large} rows: Dovetail took {seconds:.2f} s.  Spark's own join was not run: it compares every pair, and "
            f"would take about {_spoken(guess)} at that rate."
        )
    console.print()
    seen.compared = Compared(small, spark_seconds, cut_seconds, large, seconds)
    seen.lines += [
        Line("range join, Spark's own", small, spark_found, spark_seconds),
        Line("range join, Dovetail", small, counts["results"], cut_seconds),
    ]
    if sizes.rows > sizes.cut:
        seen.lines.append(Line("range join, Dovetail", large, found["results"], seconds))


def _spoken(seconds: float) -> str:
    """A length of time in the unit that suits it.

    Examples
    --------
    >>> _spoken(40), _spoken(600), _spoken(9000)
    ('40 s', '10 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def stored(spark: SparkSession, table: pa.Table, folder: Path) -> DataFrame:
    """The table, written as Parquet files and read by Spark from there."""
    folder.mkdir()
    size = -(-table.num_rows // _FILES)
    for at in range(_FILES):
        pq.write_table(table.slice(at * size, size), folder / f"{at}.parquet")
    return spark.read.parquet(str(folder))


def sparks_own(spark: SparkSession, inputs: list[DataFrame]) -> tuple[int, float]:
    """The pairs that Spark's own join finds, and its seconds."""
    began = time.perf_counter()
    query = f"SELECT count(*) AS pairs FROM {{a}} AS a JOIN {{b}} AS b ON {BAND}"
    found = spark.sql(query, a=inputs[0], b=inputs[1]).collect()
    return int(found[0].pairs), time.perf_counter() - began


def dovetail_join(inputs: list[DataFrame]) -> tuple[DataFrame, dict[str, Any], float]:
    """The frame of the same join by Dovetail, its counters, and its seconds."""
    from dovetail.api import theta_join
    from dovetail.spark.metrics import metrics

    began = time.perf_counter()
    pairs = theta_join({"a": inputs[0], "b": inputs[1]}, on=BAND)
    # The sink takes every row and every column, and keeps nothing.
    pairs.write.format("noop").mode("overwrite").save()
    return pairs, metrics(pairs), time.perf_counter() - began


def _balance(found: dict[str, Any]) -> str:
    return f"{found['balance_in']:.2f}, {found['balance_out']:.2f}"


# ------------------------------------------------------------------------------------------------------ 3: a stream


def _stream(console: Console, spark: SparkSession, folder: Path, sizes: Sizes, seen: Seen) -> None:
    from dovetail.api import window_join
    from dovetail.families.window.graph import path

    _title(console, "3  A stream: objects that pass three cameras, one after the other")
    _code(
        console,
        'dt.window_join({"A": cam1, "B": cam2, "C": cam3},\n'
        f'               on="{_SAME}", time="ts",\n'
        f'               within=dt.path("A -> B -> C", {json.dumps(_HOPS)}))',
    )
    write("cameras", folder, batches=sizes.batches, objects=sizes.objects)
    # Each task of a stateful operator starts workers of its own; one suffices for this little data.
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    streams = {name: _camera(spark, folder / name) for name in "ABC"}
    passages = window_join(streams, on=_SAME, time="ts", within=path("A -> B -> C", _HOPS))
    began = time.perf_counter()
    query = (
        passages.selectExpr("A.obj", "A.ts AS first", "C.ts - A.ts AS underway")
        .writeStream.format("memory")
        .queryName("passages")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    results, shown = _follow(console, query)
    seen.reports = list(query.recentProgress)
    seconds = time.perf_counter() - began
    # What scrolls by on a screen is written once at the end elsewhere.
    if not console.is_terminal:
        console.print(shown)
    table = Table("object", "first seen", "underway", box=box.SIMPLE)
    for row in spark.table("passages").orderBy("first").limit(5).collect():
        table.add_row(str(row.obj), f"{row.first:%H:%M:%S}", f"{row.underway.total_seconds():.1f} s")
    console.print(table)
    console.print(
        "Each line above is a micro-batch: rows that came, passages that left at once, rows kept for later matches and "
        "rows evicted because nothing that still comes can match them.  query.recentProgress has these counters.\n"
    )
    arrived = f"{sizes.batches * sizes.objects:,}"
    seen.lines.append(
        Line(f"stream of 3 cameras, {sizes.batches} micro-batches", f"{arrived} objects", results, seconds)
    )


def _camera(spark: SparkSession, folder: Path) -> DataFrame:
    stream = spark.readStream.schema("obj long, speed long, ts timestamp").option("maxFilesPerTrigger", 1)
    return stream.parquet(str(folder)).withWatermark("ts", "5 seconds")


def _follow(console: Console, query: StreamingQuery) -> tuple[int, Table]:
    """Show the progress of a query until it ends: its results, and the last state of the table."""
    try:
        waiting = Spinner("dots", "Starting the stream ...")
        with Live(waiting, console=console, transient=not console.is_terminal) as live:
            over = False
            while not over:
                over = bool(query.awaitTermination(1))
                reports = query.recentProgress
                live.update(_progress_table(reports) if reports else waiting)
    finally:
        query.stop()
    reports = query.recentProgress
    return sum(_counters(report)["results"] for report in reports), _progress_table(reports)


def _progress_table(reports: list[Any]) -> Table:
    table = Table(box=box.SIMPLE)
    for name in ("micro-batch", "rows in", "passages out", "rows held", "rows evicted", "seconds"):
        table.add_column(name, justify="right")
    for report in reports:
        counts = _counters(report)
        if not counts["rows"]:
            continue  # Spark moved its own watermark: no row came, and no cell heard of it
        held, evicted = (sum(counts[f"{what}_{name}"] for name in "ABC") for what in ("held_rows", "evicted"))
        shown = (counts["rows"], counts["results"], held, evicted)
        took = f"{report['durationMs']['triggerExecution'] / 1000:.1f}"
        table.add_row(str(report["batchId"]), *[f"{number:,}" for number in shown], took)
    return table


def _counters(report: Any) -> dict[str, int]:
    """The observed counters of a micro-batch; none where no cell had anything to do."""
    observed = [row.asDict() for row in report["observedMetrics"].values()]
    each = (f"{what}_{name}" for what in ("held_rows", "evicted") for name in "ABC")
    empty = dict.fromkeys(("rows", "results", *each), 0)
    return {**empty, **observed[0]} if observed else empty


# ---------------------------------------------------------------------------------------------- 4: a sample of a join

_SAMPLED = 5_000
_MEMORY = 1_000


def _sample(console: Console, spark: SparkSession, seen: Seen) -> None:
    from dovetail.api import approx_join

    _title(console, f"4  A sample of a join: {_SAMPLED:,} clicks, {_SAMPLED:,} orders, by product")
    on = "click.product = order.product"
    _code(console, f'dt.approx_join({{"click": clicks, "order": orders}},\n               on="{on}", memory={_MEMORY})')
    tables = datasets.clicks_and_orders(_SAMPLED, _SAMPLED)
    clicks, orders = (Counter(map(str, table["product"].to_pylist())) for table in tables)
    seen.complete = {name: float(count * orders[name]) for name, count in clicks.items()}
    began = time.perf_counter()
    with console.status("Joining ..."):
        frames = dict(zip(("click", "order"), map(spark.createDataFrame, tables), strict=True))
        some = approx_join(frames, on=on, memory=_MEMORY, seed=7, partitions=2)
        weights = some.selectExpr("click.product", "sampling.weight")
        rows = weights.groupBy("product").agg({"*": "count", "weight": "sum"}).collect()
    seen.sample = {row["product"]: float(row["count(1)"]) for row in rows}
    seconds = time.perf_counter() - began
    guess, whole = sum(row["sum(weight)"] for row in rows), sum(seen.complete.values())
    found = round(sum(seen.sample.values()))
    console.print(
        f"{found:,} results of {whole:,.0f}, from at most {_MEMORY:,} rows in memory.  Their weights put the whole "
        f"at {guess:,.0f}; dt.estimates gives such figures with their intervals.\n"
    )
    seen.lines.append(Line("sample of a join", f"{_SAMPLED:,} x {_SAMPLED:,}", found, seconds))


def _summary(console: Console, seen: Seen) -> None:
    _title(console, "Summary")
    table = Table(box=box.SIMPLE)
    table.add_column("join")
    for name in ("rows", "results", "seconds"):
        table.add_column(name, justify="right")
    for line in seen.lines:
        table.add_row(line.what, line.rows, f"{line.results:,}", f"{line.seconds:.2f}")
    console.print(table)
    console.print("Run time alone: what compiling and starting took is in the warm-up.\n")

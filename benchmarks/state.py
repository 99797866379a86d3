"""Which form should streaming state take, and which stateful operator should hold it?

Every variant computes the same join, ``R.k = S.k AND |R.ts - S.ts| <= 10 s``, over the same two folders of
Parquet files, one file per side and micro-batch, and DuckDB counts the matches independently. Run it with::

    python benchmarks/state.py [--rows 200000] [--batches 7] [--only a,d,e] [--write]
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import _state_packing
import _state_ways
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _state_ways import BATCH_US, PARTITIONS, ROW, STORES, VARIANTS, WITHIN_US, Variant
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from rich.console import Console
from rich.table import Table

# Workers cannot import a module that stands beside a script, so its functions travel whole.
cloudpickle.register_pickle_by_value(_state_packing)
cloudpickle.register_pickle_by_value(_state_ways)

# b takes minutes and k may too, so both run only when named: --only a,b
DEFAULT = "a,d,e,f,i,c,j,g,h,m"


def write_input(root: Path, rows: int, batches: int) -> dict[str, Path]:
    """Files in time order; keys spread so that a row meets about one partner within the window."""
    random = np.random.default_rng(7)
    folders = {}
    for side in "rs":
        folder = root / f"{side}-{rows}"
        folder.mkdir()
        for i in range(batches):
            ts = np.sort(random.integers(i * BATCH_US, (i + 1) * BATCH_US, rows)) + 1_700_000_000_000_000
            table = pa.table(
                {
                    "id": np.arange(rows, dtype=np.int64) + i * rows,
                    "k": random.integers(0, max(1, 2 * rows), rows),
                    "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                    "v": random.random(rows),
                }
            )
            path = folder / f"{i:04d}.parquet"
            pq.write_table(table, path, row_group_size=max(1, rows // 2))
            # The file source orders by modification time, so the files must not share one.
            os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
        folders[side] = folder
    return folders


def expected(folders: dict[str, Path]) -> int:
    query = f"""SELECT count(*) FROM '{folders["r"]}/*.parquet' r JOIN '{folders["s"]}/*.parquet' s
                ON r.k = s.k AND abs(epoch_us(r.ts) - epoch_us(s.ts)) <= {WITHIN_US}"""
    return int(duckdb.sql(query).fetchall()[0][0])


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    }
    builder = SparkSession.builder.master("local[2]").appName("state")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class CpuMeter:
    """CPU seconds of the JVM and every Python worker below it, counted process by process.

    A worker that ends takes its counter with it (its parent does not inherit it, as PySpark's daemon ignores
    SIGCHLD), so a sum over the living would fall; the meter keeps the last reading of the dead.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], int] = {}

    def read(self) -> float:
        """Sample now; call it often, since what a worker does after its last sample is lost."""
        parent, used = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended between the listing and the reading
            pid = int(stat.parent.name)
            parent[pid] = int(fields[1])
            used[pid] = (int(fields[19]), int(fields[11]) + int(fields[12]))
        below, grown = {os.getpid()}, True
        while grown:
            more = {pid for pid, up in parent.items() if up in below} - below
            below |= more
            grown = bool(more)
        for pid in below - {os.getpid()}:
            started, ticks = used[pid]
            self.seen[pid, started] = ticks
        return sum(self.seen.values()) / os.sysconf("SC_CLK_TCK")


@dataclass
class Outcome:
    """What one variant took, micro-batch by micro-batch."""

    variant: Variant
    seconds: list[float]
    cpu: list[float]  # of the JVM and the Python workers; unlike wall time, it hardly feels a busy machine
    matches: int
    state_bytes: int
    load: float  # of the machine, one-minute average: other people's work shows here

    @property
    def median(self) -> float:
        """Wall seconds of a warm micro-batch."""
        return statistics.median(self.seconds[2:] or self.seconds)

    @property
    def cpu_median(self) -> float:
        """CPU seconds of a warm micro-batch."""
        return statistics.median(self.cpu[2:] or self.cpu)


def run(spark: SparkSession, variant: Variant, folders: dict[str, Path], root: Path) -> Outcome:
    settings = {"spark.sql.streaming.stateStore.providerClass": STORES[variant.store], **dict(variant.conf)}
    for key, value in settings.items():
        spark.conf.set(key, value)
    sides = [spark.readStream.schema(ROW).option("maxFilesPerTrigger", 1).parquet(str(folders[side])) for side in "rs"]
    frame = variant.build(sides[0], sides[1])
    observed = frame.observe("out", fn.count(fn.lit(1)).alias("n"))
    checkpoint = Path(tempfile.mkdtemp(prefix=f"checkpoint-{variant.key}-", dir=root))
    query = (
        observed.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    meter = CpuMeter()
    marks = [meter.read()]
    while not query.awaitTermination(0.1):
        now = meter.read()
        # The commit log counts ended micro-batches without disturbing the JVM that is being measured.
        if len(list((checkpoint / "commits").glob("[0-9]*"))) >= len(marks):
            marks.append(now)
    marks.append(meter.read())
    for key in settings:
        spark.conf.unset(key)
    shutil.rmtree(checkpoint)
    seconds, matches, state_bytes = [], 0, 0
    for progress in query.recentProgress:
        metrics = progress.observedMetrics.get("out")
        matches += metrics.n if metrics is not None else 0
        state_bytes = max([state_bytes, *(op.memoryUsedBytes for op in progress.stateOperators)])
        if progress.numInputRows:
            seconds.append(progress.durationMs["triggerExecution"] / 1000)
    cpu = [b - a for a, b in pairwise(marks)][: len(seconds)]
    return Outcome(variant, seconds, cpu, matches, state_bytes, os.getloadavg()[0])


def report(outcomes: list[Outcome], rows: int, batches: int) -> tuple[Table, str]:
    base = next((o for o in outcomes if o.variant.key == "a"), None)
    columns = [
        "",
        "way",
        "store",
        "first s",
        "warm s",
        "range",
        "to a",
        "CPU s",
        "CPU to a",
        "held MB",
        "load",
    ]
    table = Table(*columns, title=f"seconds per micro-batch, 2 x {rows:,} rows, {batches} micro-batches")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for o in sorted(outcomes, key=lambda o: o.variant.key):
        warm = o.seconds[2:] or o.seconds
        cells = [
            o.variant.key,
            o.variant.what,
            o.variant.store,
            f"{o.seconds[0]:.1f}",
            f"{o.median:.2f}",
            f"{min(warm):.2f}-{max(warm):.2f}",
            f"{o.median / base.median:.2f}" if base else "-",
            f"{o.cpu_median:.2f}",
            f"{o.cpu_median / base.cpu_median:.2f}" if base else "-",
            f"{o.state_bytes / 1e6:.0f}",
            f"{o.load:.1f}",
        ]
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    return table, "\n".join(lines)


def main(rows: int = 200_000, batches: int = 7, only: str = "", write: bool = False) -> None:
    """Time every variant; with --write, replace the table in benchmarks/state.md."""
    console = Console()
    by_key = {v.key: v for v in VARIANTS}
    chosen = [by_key[key] for key in (only or DEFAULT).split(",")]
    root = Path(tempfile.mkdtemp(prefix="state-benchmark-"))
    started = time.monotonic()
    spark = session()
    try:
        folders = write_input(root, rows, batches)
        tiny = write_input(root, 1, batches)
        truth = expected(folders)
        console.print(f"{truth:,} matches expected; warming the JVM")
        warm = write_input(root, rows // 4, 2)
        # A cold JVM and cold workers would be charged to whichever variant comes first, so each rehearses.
        for variant in chosen:
            run(spark, variant, warm, root)
        outcomes: list[Outcome] = []
        wrong: list[str] = []
        for variant in chosen:
            outcome = run(spark, variant, tiny if variant.tiny else folders, root)
            if variant.joins and outcome.matches != truth:
                wrong.append(f"{variant.key}: {outcome.matches:,} matches, expected {truth:,}")
                console.print(wrong[-1])
            outcomes.append(outcome)
            pairs = zip(outcome.seconds, outcome.cpu, strict=False)
            print(
                f"[{time.monotonic() - started:5.0f} s] {variant.key} {variant.what}, {variant.store}:",
                " ".join(f"{s:.1f}/{c:.1f}" for s, c in pairs),
                flush=True,
            )
        table, text = report(outcomes, rows, batches)
        console.print(table)
        if write:
            page = Path(__file__).with_suffix(".md")
            begin, end = "<!-- table -->", "<!-- /table -->"
            old = page.read_text() if page.exists() else f"# Streaming state\n\n{begin}\n{end}\n"
            before, _, rest = old.partition(begin)
            page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")
        if wrong:
            raise SystemExit("; ".join(wrong))
    finally:
        spark.stop()
        shutil.rmtree(root)


if __name__ == "__main__":
    typer.run(main)

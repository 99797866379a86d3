"""Ten million rows on one machine: peak memory and time of a band join and of a join of three streams.

    python benchmarks/large.py [--rows 10000000] [--only band,stream] [--write]

Each case runs in a process of its own, with the JVM and the Python workers watched from outside, and a heap of 2 GB.
Times include the start of Spark, since nothing is rehearsed.  DuckDB counts the results, in another process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import duckdb
import typer
from rich.console import Console
from rich.table import Table

import dovetail as dt
import theta
import window

CORES = 2
HEAP = "2g"
LIMIT = 4.0
"""GiB that the JVM, and each Python worker, may take."""
STREAMS = "ABC"
BATCHES = 16
ON = "A.k = B.k AND B.k = C.k"
HERE = Path(__file__).parent
console = Console()
app = typer.Typer(add_completion=False)


@dataclass
class Line:
    """One line of the report; sizes are in GiB."""

    case: str
    seconds: float
    results: int
    expected: int
    jvm: float
    worker: float
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the result is right and the memory within its limit."""
        return self.results == self.expected and self.jvm <= LIMIT and self.worker <= LIMIT


def watched(case: str, folder: Path, rows: int) -> tuple[float, dict[str, float], list[str]]:
    """Seconds, peaks in GiB and the printed words of a case in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), case, str(folder), str(rows)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks: dict[str, int] = {}
    threading.Thread(target=theta.watch, args=(process, peaks), daemon=True).start()
    out, _ = process.communicate()
    took = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{case}: the process ended with {process.returncode}")
    return took, {kind: size / 2**30 for kind, size in peaks.items()}, out.split()


def band(folder: Path, rows: int) -> Line:
    """A band join of two files, each of so many rows."""
    theta.make_data(folder, rows)
    seconds, peaks, words = watched("band-join", folder, rows)
    files = [f"'{folder / side}{rows}.parquet' {side.upper()}" for side in "rs"]
    found = duckdb.sql(f"SELECT count(*) FROM {files[0]} JOIN {files[1]} ON {theta.band_on(rows)}").fetchall()[0][0]
    case = f"band join, {rows:,} x {rows:,} rows"
    return Line(case, seconds, int(words[-1]), int(found), peaks["java"], peaks["python"])


def stream(folder: Path, rows: int) -> Line:
    """A window join of three streams with so many rows in all."""
    each = rows // len(STREAMS) // BATCHES
    window.write_inputs(folder, STREAMS, each, BATCHES)
    seconds, peaks, words = watched("stream-join", folder, rows)
    results, batch, held, size = words[-4:]
    total = each * BATCHES * len(STREAMS)
    return Line(
        f"three streams, equality and a window of 10 s, {total:,} rows in {BATCHES} micro-batches",
        seconds, int(results), window.expected(folder, STREAMS, ON), peaks["java"], peaks["python"],
        f"{float(batch):.2f} s a micro-batch once warm; state of {int(held):,} rows, {int(size) / 2**20:.0f} MiB",
    )  # fmt: skip


@app.command("band-join")
def band_join(folder: Path, rows: int) -> None:
    """The band join alone; prints the number of results."""
    spark = dt.session(master=f"local[{CORES}]", driver_memory=HEAP, conf={"spark.sql.shuffle.partitions": 16})
    r, s = (spark.read.parquet(str(folder / f"{side}{rows}.parquet")).select("id", "v") for side in "rs")
    joined = dt.theta_join({"R": r, "S": s}, on=theta.band_on(rows))
    joined.write.format("noop").mode("overwrite").save()
    print(dt.metrics(joined)["results"])


@app.command("stream-join")
def stream_join(folder: Path, rows: int) -> None:
    """The stream alone; prints results, seconds of a micro-batch, rows and bytes held."""
    spark = dt.session(master=f"local[{CORES}]", driver_memory=HEAP, conf={"spark.sql.shuffle.partitions": CORES})
    done = window.run(spark, folder, STREAMS, lambda inputs: window.ours(inputs, ON), "ours", f"{rows:,} rows")
    held, size = (max(sum(one[f"{what}_{a}"] for a in STREAMS) for one in done.progress)
                  for what in ("held_rows", "state_bytes"))  # fmt: skip
    print(done.rows, done.warm, held, size)


CASES = {"band": band, "stream": stream}


@app.command()
def main(
    rows: Annotated[int, typer.Option(help="Rows of each side of the band join, and of all streams together.")] = (
        10_000_000
    ),
    only: Annotated[str, typer.Option(help="Some of: band,stream.")] = "",
    write: Annotated[bool, typer.Option(help="Write the table to large.md.")] = False,
) -> None:
    """Measure, and print time and peak memory."""
    lines = []
    for name in only.split(",") if only else CASES:
        folder = Path(tempfile.mkdtemp(prefix="dovetail-large-"))
        try:
            console.rule(name)
            lines.append(CASES[name](folder, rows))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    table = Table("case", "seconds", "results", "JVM", "largest Python worker", "right and within 4 GiB")
    for one in lines:
        table.add_row(one.case, f"{one.seconds:.1f}", f"{one.results:,}", f"{one.jvm:.2f} GiB",
                      f"{one.worker:.2f} GiB", "yes" if one.holds else "NO")  # fmt: skip
        if one.note:
            console.print(f"  {one.note}", highlight=False)
    console.print(table)
    if write:
        body = "\n".join(
            f"| {one.case} | {one.seconds:.1f} s | {one.results:,} | {one.jvm:.2f} GiB | {one.worker:.2f} GiB "
            f"| {'yes' if one.holds else 'no'} |"
            for one in lines
        )
        notes = "".join(f"\n{one.case}: {one.note}.\n" for one in lines if one.note)
        head = (
            "# Ten million rows\n\n"
            f"`python benchmarks/large.py --write` wrote this table on {time.strftime('%Y-%m-%d')}: {CORES} cores, "
            f"`local[{CORES}]`, a heap of {HEAP}. Seconds include the start of Spark. DuckDB counts the results; a "
            "case holds\nif the counts agree and neither the JVM nor a Python worker takes more than 4 GiB.\n\n"
            "| case | time | results | peak of the JVM | largest Python worker | holds |\n|---|---|---|---|---|---|\n"
        )
        (HERE / "large.md").write_text(f"{head}{body}\n{notes}")


if __name__ == "__main__":
    # `python benchmarks/large.py` runs the cases; the other commands are theirs.
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        sys.argv.insert(1, "main")
    app()

"""Best-match joins against the same query in Spark SQL, all in one run on the same Parquet files.

    python benchmarks/bestmatch.py [--only left,million,inner] [--write]

Spark has no best-match join.  What a user can write is a self-anti-join: all candidate pairs, and of those the ones for
which no candidate of the same row is at least as good on every criterion and better on one.  It is measured on
growing inputs up to the largest that finishes within the limit, beside Dovetail on the very same inputs.  Spark is up
and warm before anything is timed, and nobody keeps the result: Spark writes to its no-op sink.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

CORES = 2
HERE = Path(__file__).parent
LIMIT = 900.0
"""Seconds that Spark's own query may take."""
console = Console()


def make_data(folder: Path, rows: int) -> None:
    """Two sides of three uniform coordinates; 8 row groups, so that several tasks can read a file."""
    random = np.random.default_rng(rows)
    for side in "rs":
        columns = {name: random.random(rows) for name in ("t", "x", "y")}
        table = pa.table({"id": np.arange(rows), **columns})
        pq.write_table(table, folder / f"{side}{rows}.parquet", row_group_size=max(1, rows // 8))


def width(rows: int) -> float:
    """The maximum distance at which a row has about 20 candidates in three dimensions, whatever the number of rows."""
    return (20 / rows) ** (1 / 3) / 2


SELF_ANTI_JOIN = """
WITH pairs AS (
  SELECT R.id AS rid, S.id AS sid, abs(R.t - S.t) AS dt, abs(R.x - S.x) AS dx, abs(R.y - S.y) AS dy
  FROM r R JOIN s S
    ON abs(R.t - S.t) <= {e} AND abs(R.x - S.x) <= {e} AND abs(R.y - S.y) <= {e}
)
SELECT p.rid, p.sid FROM pairs p LEFT ANTI JOIN pairs q
  ON p.rid = q.rid AND q.dt <= p.dt AND q.dx <= p.dx AND q.dy <= p.dy AND (q.dt < p.dt OR q.dx < p.dx OR q.dy < p.dy)
"""


class Bench:
    """A warm session, and the two ways to ask."""

    def __init__(self, folder: Path) -> None:
        import dovetail as dt

        self.dt = dt
        self.folder = folder
        self.spark = dt.session(
            "bestmatch-benchmark", master=f"local[{CORES}]", driver_memory="3g",
            conf={"spark.sql.shuffle.partitions": 2 * CORES},
        )  # fmt: skip
        self.lines: list[tuple[str, str, str, str]] = []

    def frames(self, rows: int):
        """Both sides of a size, made when first asked for."""
        if not (self.folder / f"r{rows}.parquet").exists():
            make_data(self.folder, rows)
        return [self.spark.read.parquet(str(self.folder / f"{side}{rows}.parquet")) for side in "rs"]

    def dovetail(self, rows: int, how: str, names: tuple[str, ...], within: float | None) -> int:
        """Our join, into the no-op sink."""
        r, s = self.frames(rows)
        on = [self.dt.closest(name, within=within) for name in names]
        joined = self.dt.bestmatch_join({"R": r, "S": s}, on=on, how=how)
        joined.write.format("noop").mode("overwrite").save()
        return int(self.dt.metrics(joined)["results"])

    def own(self, rows: int) -> int:
        """The same in Spark SQL."""
        r, s = self.frames(rows)
        r.createOrReplaceTempView("r")
        s.createOrReplaceTempView("s")
        query = self.spark.sql(SELF_ANTI_JOIN.format(e=repr(width(rows))))
        return int(query.count())

    def judge(self, case: str, claim: str, holds: bool, figures: str) -> None:
        """Say whether a claim holds, and the figures that decide it."""
        self.lines.append((case, claim, figures, "holds" if holds else "**does not hold**"))
        console.print(f"[{'green' if holds else 'red'}]{case}: {figures}[/]", highlight=False)


def timed(run: Callable[[], int], *, warm: int, times: int, label: str) -> tuple[float, int]:
    """The best time of several runs, and how many rows came out."""
    found, seconds = 0, []
    for number in range(warm + times):
        gc.collect()
        began = time.perf_counter()
        found = run()
        took = time.perf_counter() - began
        console.print(f"  {label:<34} {'warm-up' if number < warm else 'run'} {took:8.2f} s", highlight=False)
        if number >= warm:
            seconds.append(took)
    return min(seconds), found


def left(bench: Bench, largest: int) -> None:
    """The left join with three criteria, beside Spark's own query on as many rows as it can join within the limit."""
    names = ("t", "x", "y")
    bench.dovetail(2_000, "left", names, width(2_000))
    bench.own(2_000)
    rows, slow = min(25_000, largest), 0.0
    while True:
        slow, found = timed(lambda n=rows: bench.own(n), warm=0, times=1, label=f"Spark SQL, {rows:,}")
        fast, ours = timed(
            lambda n=rows: bench.dovetail(n, "left", names, width(n)), warm=1, times=3, label=f"dovetail, {rows:,}"
        )
        assert ours == found, (ours, found)
        figures = f"{fast:.2f} s against {slow:.1f} s: {slow / fast:.0f} times; {ours:,} pairs"
        # Spark compares all pairs, so twice the rows take four times as long.
        if rows * 2 > largest or 4 * slow > LIMIT:
            break
        bench.lines.append((f"left, three criteria with within, {rows:,} x {rows:,}", "", figures, ""))
        rows *= 2
    bench.judge(
        f"left, three criteria with within, {rows:,} x {rows:,}, the largest that Spark finishes in {LIMIT:.0f} s",
        "at least 100 times faster than a self-anti-join in Spark SQL",
        slow >= 100 * fast,
        figures,
    )


def million(bench: Bench) -> None:
    """A million rows a side."""
    took, found = timed(
        lambda: bench.dovetail(1_000_000, "left", ("t", "x", "y"), width(1_000_000)),
        warm=1, times=2, label="dovetail, 1,000,000",
    )  # fmt: skip
    bench.judge(
        "left, three criteria with within, 1,000,000 x 1,000,000", "under 60 s", took < 60,
        f"{took:.1f} s; {found:,} pairs",
    )  # fmt: skip


def inner(bench: Bench) -> None:
    """The best of all pairs, without a maximum distance; the peak memory of the Python workers beside it."""
    watch = Watch()
    with watch:
        took, found = timed(
            lambda: bench.dovetail(100_000, "inner", ("t", "x"), None), warm=1, times=3, label="dovetail, inner"
        )
    gib = watch.peak / 2**30
    bench.judge(
        "inner, two criteria without within, 100,000 x 100,000", "within 2 GiB and 60 s", took < 60 and gib < 2,
        f"{took:.2f} s; {gib:.2f} GiB in the Python workers; {found:,} pairs",
    )  # fmt: skip


class Watch:
    """The largest memory that the Python workers below this process take together."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.3):
            self.peak = max(self.peak, sum(_resident(process) for process in _workers()))


def _workers() -> list[int]:
    """Python processes below this one."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    below, found = {os.getpid()}, []
    for _ in range(6):
        below |= {int(pid) for pid, parent, _ in rows if int(parent) in below}
    for pid, _, name in rows:
        if int(pid) in below and int(pid) != os.getpid() and "python" in name:
            found.append(int(pid))
    return found


def _resident(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="left,million,inner", help="cases, separated by commas")
    parser.add_argument("--largest", type=int, default=400_000, help="the largest input for Spark's own query")
    parser.add_argument("--write", action="store_true", help="write benchmarks/bestmatch.md")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dovetail-bestmatch-"))
    bench = Bench(folder)
    try:
        for name in arguments.only.split(","):
            {"left": lambda: left(bench, arguments.largest), "million": lambda: million(bench),
             "inner": lambda: inner(bench)}[name]()  # fmt: skip
    finally:
        bench.spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report(bench, arguments)


def report(bench: Bench, arguments: argparse.Namespace) -> None:
    shown = Table(title="Best-match joins")
    for column in ("case", "claim", "measured", "verdict"):
        shown.add_column(column, overflow="fold")
    for line in bench.lines:
        shown.add_row(*line)
    console.print(shown)
    if arguments.write:
        import pyspark

        rows = ["| case | claim | measured | verdict |", "|---|---|---|---|"]
        rows += ["| " + " | ".join(line) + " |" for line in bench.lines]
        text = "\n".join(
            [
                "# Best-match joins: measured",
                "",
                f"`python benchmarks/bestmatch.py --write`, {CORES} cores, Spark {pyspark.__version__}, Python "
                f"{sys.version.split()[0]}. A row has about 20 candidates in the left joins.",
                "",
                *rows,
            ]
        )
        (HERE / "bestmatch.md").write_text(text + "\n")


if __name__ == "__main__":
    main()

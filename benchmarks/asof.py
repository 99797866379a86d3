"""As-of joins against DuckDB, Polars and Spark's own, all in one run on the same Parquet files.

    python benchmarks/asof.py [--scale 1.0] [--only keyed,keyless,skewed,spark,nearest] [--write]

Spark is up and warm before anything is timed; every engine reads Parquet and none keeps its result: Spark writes to its
no-op sink, DuckDB and Polars add up every column of the result.  Peers run with as many threads as Spark has cores.
Times are the best of several runs, because the machine is shared.  Spark's own as-of join runs with its sort-merge
operator switched on, and on as much data as the claim is about: it takes minutes, so it runs once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

CORES = 2
os.environ.setdefault("POLARS_MAX_THREADS", str(CORES))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import typer  # noqa: E402
from _timing import Action, race  # noqa: E402
from rich.console import Console  # noqa: E402

ROWS = 4_000_000
KEYS = 1000
SMALL = 20_000
HERE = Path(__file__).parent
DAY = 86_400_000_000
START = 1_772_409_600_000_000
console = Console()


class Case:
    """Seconds by engine for one case, the rows it found, and the bound it is held against."""

    def __init__(self, name: str, claim: str) -> None:
        self.name, self.claim = name, claim
        self.seconds: dict[str, float] = {}
        self.rows: dict[str, int] = {}
        self.verdict, self.holds = "", False

    def run(self, engines: dict[str, tuple[Action, int]], *, times: int) -> None:
        """Time engines in turns, each with so many runs before that do not count."""
        seconds, rows = race(engines, times=times)
        self.seconds |= seconds
        self.rows |= rows

    def judge(self, bounds: dict[str, float]) -> None:
        """Hold our time against that of each peer: at most `bound` times as long."""
        words, self.holds = [], True
        for peer, bound in bounds.items():
            if self.rows[peer] not in (-1, self.rows["dovetail"]):
                raise SystemExit(f"{self.name}: {self.rows}")
            ratio = self.seconds["dovetail"] / self.seconds[peer]
            self.holds = self.holds and ratio <= bound
            words.append(f"{ratio:.2f} x {peer}" if ratio >= 0.1 else f"{1 / ratio:.0f} x faster than {peer}")
        self.verdict = ", ".join(words)

    def cells(self) -> list[str]:
        """The case as a row of the table."""
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items())
        found = f"{self.rows['dovetail']:,}"
        return [self.name, seconds, found, self.claim, self.verdict, "yes" if self.holds else "no"]


def make_data(folder: Path, rows: int) -> None:
    """Two sides of keys, times of one day and values, 16 row groups each; in `h` half of the rows have one key."""
    generator = np.random.default_rng(7)
    for side, value in (("l", "v"), ("r", "w")):
        for kind in ("e", "h"):
            key = generator.integers(0, KEYS, rows)
            if kind == "h":
                key[generator.random(rows) < 0.5] = 7
            table = pa.table(
                {
                    "k": key,
                    "t": pa.array(START + generator.integers(0, DAY, rows), pa.timestamp("us", "UTC")),
                    value: generator.uniform(0, 1, rows),
                }
            )
            pq.write_table(table, folder / f"{side}{kind}{rows}.parquet", row_group_size=max(1, rows // 16))


class Engines:
    """One runner per engine; each returns the number of result rows, -1 where it does not say."""

    def __init__(self, folder: Path, rows: int) -> None:
        import dovetail as dt

        self.dt, self.folder, self.rows = dt, folder, rows
        self.spark = dt.session(
            "asof-benchmark",
            master=f"local[{CORES}]",
            driver_memory="4g",
            conf={"spark.sql.shuffle.partitions": 2 * CORES},
        )
        self.duck = duckdb.connect()
        self.duck.execute(f"SET threads = {CORES}")
        self.duck.execute("SET TimeZone = 'UTC'")

    def path(self, side: str, kind: str, rows: int | None = None) -> str:
        """The Parquet file of a side."""
        return str(self.folder / f"{side}{kind}{rows or self.rows}.parquet")

    def frames(self, kind: str, keyed: bool, rows: int | None = None) -> dict[str, object]:
        """Both inputs in Spark."""
        keys = ["k"] if keyed else []
        left = self.spark.read.parquet(self.path("l", kind, rows)).select(*keys, "t", "v")
        right = self.spark.read.parquet(self.path("r", kind, rows)).select(*keys, "t", "w")
        return {"L": left, "R": right}

    def dovetail(self, kind: str, *, keyed: bool, rows: int | None = None, **options: object) -> int:
        """Our join, into the no-op sink."""
        frames = self.frames(kind, keyed, rows)
        joined = self.dt.asof_join(frames, by="k" if keyed else None, time="t", **options)
        joined.write.format("noop").mode("overwrite").save()
        return int(self.dt.metrics(joined)["results"])

    def duckdb(self, kind: str, *, keyed: bool) -> int:
        """DuckDB, adding up every column of the result."""
        columns = ["l.v", "r.w", *(["l.k", "r.k"] if keyed else [])]
        sums = ", ".join([*[f"sum({column})" for column in columns], "max(l.t)", "max(r.t)"])
        on = "l.k = r.k AND l.t >= r.t" if keyed else "l.t >= r.t"
        sql = f"SELECT count(*), {sums} FROM '{self.path('l', kind)}' l ASOF JOIN '{self.path('r', kind)}' r ON {on}"
        return int(self.duck.execute(sql).fetchone()[0])

    def polars(self, kind: str, *, keyed: bool) -> int:
        """Polars, which sorts both sides first, as it has to; adding up every column of the result."""
        import polars as pl

        keys = ["k"] if keyed else []
        left = pl.scan_parquet(self.path("l", kind)).select(*keys, "t", "v").sort("t")
        right = pl.scan_parquet(self.path("r", kind)).select(*keys, "t", pl.col("t").alias("rt"), "w").sort("t")
        options = {"by": "k"} if keyed else {}
        joined = left.join_asof(right, on="t", check_sortedness=False, **options).filter(pl.col("w").is_not_null())
        total = joined.select(pl.len(), pl.col("v", "w", *keys).sum(), pl.col("t", "rt").max())
        return int(total.collect()["len"][0])

    def own(self, kind: str) -> int:
        """Spark's own as-of join with its sort-merge operator, into the no-op sink."""
        for name in ("spark.sql.join.asofJoin.enabled", "spark.sql.join.sortMergeAsOfJoin.enabled"):
            self.spark.conf.set(name, "true")
        for alias, frame in self.frames(kind, True).items():
            frame.createOrReplaceTempView(alias)  # type: ignore[attr-defined]
        joined = self.spark.sql("SELECT * FROM L ASOF JOIN R MATCH_CONDITION (L.t >= R.t) ON L.k = R.k")
        joined.write.format("noop").mode("overwrite").save()
        return -1

    def nearest(self, rows: int) -> int:
        """Spark's nearest-by join, into the no-op sink."""
        from pyspark.sql import functions as F

        left, right = self.frames("e", False, rows).values()
        far = F.abs(F.unix_micros(left["t"]) - F.unix_micros(right["t"]))  # type: ignore[index]
        joined = left.nearestByJoin(right, far, 1, "exact", "distance")  # type: ignore[attr-defined]
        joined.write.format("noop").mode("overwrite").save()
        return -1


def keyed(engines: Engines) -> Case:
    """Many keys, routed by their hash."""
    case = Case(f"backward, {engines.rows:,} x {engines.rows:,}, {KEYS:,} keys", "at most 2 x DuckDB")
    case.run(
        {
            "dovetail": (lambda: engines.dovetail("e", keyed=True), 8),
            "duckdb": (lambda: engines.duckdb("e", keyed=True), 1),
            "polars": (lambda: engines.polars("e", keyed=True), 1),
        },
        times=7,
    )
    case.judge({"duckdb": 2, "polars": float("inf")})
    return case


def keyless(engines: Engines) -> Case:
    """No keys: ranges of time from a sample."""
    case = Case(f"backward, {engines.rows:,} x {engines.rows:,}, no keys", "at most 4 x DuckDB")
    case.run(
        {
            "dovetail": (lambda: engines.dovetail("e", keyed=False), 6),
            "duckdb": (lambda: engines.duckdb("e", keyed=False), 1),
            "polars": (lambda: engines.polars("e", keyed=False), 1),
        },
        times=7,
    )
    case.judge({"duckdb": 4, "polars": float("inf")})
    return case


def skewed(engines: Engines) -> Case:
    """Half of the rows have one key: with a sample it is cut by time."""
    case = Case(f"backward, {engines.rows:,} x {engines.rows:,}, half of the rows with one key", "at most 3 x DuckDB")
    case.run(
        {
            "dovetail": (lambda: engines.dovetail("h", keyed=True, sample=True), 4),
            "unsampled": (lambda: engines.dovetail("h", keyed=True), 2),
            "duckdb": (lambda: engines.duckdb("h", keyed=True), 1),
        },
        times=4,
    )
    case.judge({"duckdb": 3, "unsampled": float("inf")})
    return case


def against_spark(engines: Engines) -> Case:
    """Spark's own as-of join on the keyed case."""
    case = Case(
        f"backward, {engines.rows:,} x {engines.rows:,}, {KEYS:,} keys", "at least 20 x faster than Spark's own"
    )
    case.run({"dovetail": (lambda: engines.dovetail("e", keyed=True), 5)}, times=4)
    case.run({"spark": (lambda: engines.own("e"), 0)}, times=1)
    case.judge({"spark": 1 / 20})
    return case


def against_nearest(engines: Engines, rows: int) -> Case:
    """Spark's nearest-by join, which compares all pairs."""
    case = Case(f"nearest, {rows:,} x {rows:,}, no keys", "at least 100 x faster than nearestByJoin")
    for options in ({"broadcast": "R"}, {}):
        engines.dovetail("e", keyed=False, rows=rows, direction="nearest", **options)
    action = lambda: engines.dovetail("e", keyed=False, rows=rows, direction="nearest", broadcast="R")  # noqa: E731
    case.run({"dovetail": (action, 6)}, times=6)
    case.run({"spark": (lambda: engines.nearest(rows), 0)}, times=1)
    case.judge({"spark": 1 / 100})
    return case


def markdown(cases: list[Case], *, whole: bool) -> str:
    """The table; a run on less data says so, because the claims are about the full size."""
    lines = ["# As-of joins", "", f"`python benchmarks/asof.py`, {CORES} cores, seconds, best of several runs.", ""]
    if not whole:
        lines += [
            "A trial run on less data: fixed costs decide, and the claims, which are for the full size, do not apply.",
            "",
        ]
    lines += ["| case | seconds | rows out | claim | measured | holds |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(case.cells())} |" for case in cases]
    return "\n".join(lines) + "\n"


def main(
    scale: Annotated[float, typer.Option(help="Rows of the large cases, as a share of the full size.")] = 1.0,
    small: Annotated[int, typer.Option(help="Rows a side against nearestByJoin.")] = SMALL,
    only: Annotated[str, typer.Option(help="Cases to run, with commas.")] = "keyed,keyless,skewed,spark,nearest",
    write: Annotated[bool, typer.Option(help="Write benchmarks/asof.md.")] = False,
) -> None:
    """Run the cases and print the ratios."""
    folder = Path(tempfile.mkdtemp(prefix="dovetail-asof-"))
    rows = int(ROWS * scale)
    try:
        for size in (rows, small):
            console.print(f"making {size:,} rows a side")
            make_data(folder, size)
        engines = Engines(folder, rows)
        runs: dict[str, Callable[[], Case]] = {
            "keyed": lambda: keyed(engines),
            "keyless": lambda: keyless(engines),
            "skewed": lambda: skewed(engines),
            "spark": lambda: against_spark(engines),
            "nearest": lambda: against_nearest(engines, small),
        }
        cases = []
        for name in only.split(","):
            console.rule(name)
            cases.append(runs[name]())
            console.print("  " + cases[-1].verdict)
        text = markdown(cases, whole=rows == ROWS and small == SMALL)
        console.print(text, highlight=False, soft_wrap=True)
        if write:
            (HERE / "asof.md").write_text(text)
        engines.spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)

"""Wide rows: a band join of which five of two hundred columns are used, with and without the others on the way.

    python benchmarks/wide.py [--rows 1000000] [--columns 100] [--folder FOLDER] [--write]

Five ways to the same rows, in turn in one run: `select=`, `dt.sql`, inputs that have only the columns in question, all
columns through the join and `select` afterwards (on a tenth of the rows, beside `select=`), and DuckDB.  Spark reads
Parquet and writes to its no-op sink; DuckDB adds up what it selects.  Spark is warm: five runs of the first way come
before any that counts.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _timing import console, show, turns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
SPAN = 1_000_000.0
WARM, WARM_NEXT, TIMES = 5, 2, 4
"""Runs that do not count of the first way, and of the others, which run the same code; then those that count."""
SLOW_WARM, SLOW_TIMES = 1, 3
CLAIM = 1.2
SELECTED = ("t.id", "t.c7", "t.s1", "q.id AS other", "q.v - t.v AS gap")


def make_data(folder: Path, rows: int, columns: int) -> None:
    """Two sides: an id, a value, and columns as wide tables have them: codes, amounts and short texts that repeat."""
    words = pa.array([f"category {number:03}" for number in range(500)])
    for side in "tq":
        file = folder / f"{side}-{rows}-{columns}.parquet"
        if file.exists():
            continue
        generator = np.random.default_rng(ord(side))
        table = {"id": pa.array(np.arange(rows)), "v": pa.array(generator.uniform(0, SPAN, rows))}
        for number in range(columns - len(table)):
            codes = generator.integers(0, 500, rows, dtype=np.int32)
            if number % 5 == 1:
                table[f"s{number}"] = words.take(pa.array(codes))
            elif number % 5 < 3:
                table[f"c{number}"] = pa.array(codes.astype(np.int64))
            else:
                table[f"c{number}"] = pa.array(codes / 4)
        pq.write_table(pa.table(table), file, row_group_size=max(1, rows // 16))


class Ways:
    """The ways to the same rows; each returns how many there are."""

    def __init__(self, folder: Path, rows: int, columns: int, spark: SparkSession | None = None) -> None:
        import dovetail as dt

        self.dt = dt
        self.paths = {side: str(folder / f"{side}-{rows}-{columns}.parquet") for side in "tq"}
        width = 0.222 * 4_000_000 / rows  # about 1.78 matches a row, whatever the number of rows
        self.on = f"t.v BETWEEN q.v - {width:.9f} AND q.v + {width:.9f}"
        self.spark = spark or dt.session(
            "wide-benchmark",
            master=f"local[{CORES}]",
            driver_memory="6g",
            # A side with few columns is small enough for Spark to broadcast it: every way is to shuffle.
            conf={"spark.sql.shuffle.partitions": 2 * CORES, "spark.sql.autoBroadcastJoinThreshold": -1},
        )
        self.duck = duckdb.connect()
        self.duck.execute(f"SET threads = {CORES}")

    def _frames(self, **columns: list[str]) -> dict[str, object]:
        frames = {side: self.spark.read.parquet(path) for side, path in self.paths.items()}
        return {side: frame.select(*columns[side]) if side in columns else frame for side, frame in frames.items()}

    def _counted(self, frame: object) -> int:
        frame.write.format("noop").mode("overwrite").save()
        return int(self.dt.metrics(frame)["results"])

    def selected(self) -> int:
        """`select=` of the call."""
        return self._counted(self.dt.theta_join(self._frames(), on=self.on, select=list(SELECTED)))

    def sql(self) -> int:
        """The same as a statement."""
        text = f"SELECT {', '.join(SELECTED)} FROM t JOIN q ON {self.on}"
        return self._counted(self.dt.sql(text, **self._frames()))

    def narrow(self) -> int:
        """Inputs that have only the columns in question, and `select` of the result."""
        frames = self._frames(t=["id", "v", "c7", "s1"], q=["id", "v"])
        joined = self.dt.theta_join(frames, on=self.on)
        joined.selectExpr(*SELECTED).write.format("noop").mode("overwrite").save()
        return int(self.dt.metrics(joined)["results"])

    def whole(self) -> int:
        """All columns through the join, and `select` of the result."""
        joined = self.dt.theta_join(self._frames(), on=self.on)
        joined.selectExpr(*SELECTED).write.format("noop").mode("overwrite").save()
        return int(self.dt.metrics(joined)["results"])

    def duckdb(self) -> int:
        """DuckDB, which prunes by itself."""
        query = f"SELECT {', '.join(SELECTED)} FROM '{self.paths['t']}' t JOIN '{self.paths['q']}' q ON {self.on}"
        sums = "count(*), sum(id), sum(c7), sum(length(s1)), sum(other), sum(gap)"
        return int(self.duck.execute(f"SELECT {sums} FROM ({query})").fetchone()[0])


def main(
    rows: Annotated[int, typer.Option(help="Rows of each side.")] = 1_000_000,
    columns: Annotated[int, typer.Option(help="Columns of each side.")] = 100,
    folder: Annotated[
        Path | None, typer.Option(help="Where the files are kept; a temporary folder by default.")
    ] = None,
    write: Annotated[bool, typer.Option(help="Write benchmarks/wide.md.")] = False,
    only_data: Annotated[bool, typer.Option(help="Make the files, and stop.")] = False,
) -> None:
    """Run all ways and print their ratios."""
    place = folder or Path(tempfile.mkdtemp(prefix="dovetail-wide-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        make_data(place, rows, columns)
        if only_data:
            return
        ways = Ways(place, rows, columns)
        seconds, found = turns(
            {
                "select=": (ways.selected, WARM),
                "dt.sql": (ways.sql, WARM_NEXT),
                "only these columns": (ways.narrow, WARM_NEXT),
                "DuckDB": (ways.duckdb, WARM_NEXT),
            },
            times=TIMES,
        )
        # All columns take so long that a tenth of the rows has to do, beside `select=` on the same.
        make_data(place, rows // 10, columns)
        tenth = Ways(place, rows // 10, columns, ways.spark)
        slow, also = turns(
            {"select=, a tenth": (tenth.selected, SLOW_WARM), "all columns, a tenth": (tenth.whole, SLOW_WARM)},
            times=SLOW_TIMES,
        )
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
    if len(set(found.values())) > 1 or len(set(also.values())) > 1:
        raise SystemExit(f"the ways found different numbers of rows: {found}, {also}")
    table = _rows(seconds, seconds["only these columns"]) + _rows(slow, slow["select=, a tenth"])
    head = ["way", "median s", "best s", "median ratio", "best ratio", "runs"]
    title = f"Wide rows: band join of {rows:,} x {rows:,} rows, 5 of {2 * columns} columns selected"
    show(head, table, title=title, file=Path(__file__).with_suffix(".md") if write else None)
    worst = max(median(seconds[way]) / median(seconds["only these columns"]) for way in ("select=", "dt.sql"))
    holds = "holds" if worst <= CLAIM else "does not hold"
    console.print(
        f"at most {CLAIM} x inputs that have only these columns: {worst:.2f}, {holds}; {found['DuckDB']:,} rows"
    )


def _rows(seconds: dict[str, list[float]], against: list[float]) -> list[list[str]]:
    """The ways with their seconds, and ratios against one of them."""
    return [
        [
            way,
            f"{median(every):.2f}",
            f"{min(every):.2f}",
            f"{median(every) / median(against):.2f}",
            f"{min(every) / min(against):.2f}",
            str(len(every)),
        ]
        for way, every in seconds.items()
    ]


if __name__ == "__main__":
    typer.run(main)

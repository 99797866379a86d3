"""Joins of the shapes that people have, against DuckDB, Polars and ClickHouse in one run: text, tails, keys, results.

    python benchmarks/shapes.py [--rows 2000000] [--only text,tails,keys,many] [--times 5] [--write]

``text``   a band on normally distributed doubles, with a text of 15 characters and a double beside it on both sides.
``tails``  points in intervals whose lengths have a heavy tail (Pareto with exponent 1.5).
``keys``   as-of by 50,000 keys of text whose frequencies follow Zipf's law, with timestamps.
``many``   an equality with 20 values and an inequality: 10 million results of a hundredth of the rows.

Every engine reads the same Parquet files, produces every row and reads it: Spark writes to its no-op sink, the others
add up every column (of text: its lengths).  Peers run with as many threads as Spark has cores.  Five runs of each
engine come first that do not count, then engines take turns; medians and best times are both shown, and the ratio is
that of medians.  ``handover`` joins nothing: Spark reads both files, hands their rows to Python, and takes as many rows
from it as the join gives, which no join in Python workers can do without.  ClickHouse takes part where it has the join,
if `python benchmarks/_peers.py install` has run: a band or an interval without an equality is a product to it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

CORES = 2
os.environ.setdefault("POLARS_MAX_THREADS", str(CORES))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import typer  # noqa: E402
from _peers import Peers, installed  # noqa: E402
from _timing import Action, show, turns  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HERE = Path(__file__).parent
WARM_UPS = 5
DAY = 86_400_000_000
START = 1_772_409_600_000_000
KEYS = 50_000
AT_ONCE = 1 << 16
Columns = dict[str, Any]
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Shape:
    """A join of two files: how they are made, how each engine is asked, and the bound on our time beside DuckDB's."""

    make: Callable[[np.random.Generator, int], tuple[Columns, Columns]]
    join: Callable[[dict[str, DataFrame]], DataFrame]
    duckdb: str
    bound: float
    polars: Callable[[pl.LazyFrame, pl.LazyFrame], pl.LazyFrame] | None = None
    share: float = 1.0
    clickhouse: bool = False
    """Whether it has the join; the words are DuckDB's."""


def texts(draw: np.random.Generator, rows: int) -> pa.Array:
    """Texts of 15 characters that hardly repeat."""
    numbers = pa.array(draw.integers(0, 10**13, rows))
    return pc.binary_join_element_wise("n-", pc.utf8_lpad(pc.cast(numbers, pa.string()), 13, "0"), "")


def text(draw: np.random.Generator, rows: int) -> tuple[Columns, Columns]:
    """Both sides of ``text``."""
    left, right = (
        {"id": np.arange(rows), "v": draw.normal(0, 1, rows), "name": texts(draw, rows), "w": draw.random(rows)}
        for _ in "LR"
    )
    return left, right


def tails(draw: np.random.Generator, rows: int) -> tuple[Columns, Columns]:
    """Both sides of ``tails``: an interval holds one point in the mean."""
    begin = draw.uniform(0, 1e6, rows)
    length = draw.pareto(1.5, rows) * (1e6 / rows / 2)
    return (
        {"id": np.arange(rows), "v": draw.uniform(0, 1e6, rows)},
        {"id": np.arange(rows), "a": begin, "b": begin + length},
    )


def keys(draw: np.random.Generator, rows: int) -> tuple[Columns, Columns]:
    """Both sides of ``keys``."""
    names = pa.array([f"key-{number:06}" for number in range(KEYS)])
    weights = 1 / np.arange(1, KEYS + 1)
    made = []
    for value in "vw":
        key = names.take(pa.array(draw.choice(KEYS, rows, p=weights / weights.sum())))
        times = pa.array(START + draw.integers(0, DAY, rows), pa.timestamp("us", "UTC"))
        made.append({"k": key, "t": times, value: draw.random(rows)})
    return made[0], made[1]


def many(draw: np.random.Generator, rows: int) -> tuple[Columns, Columns]:
    """Both sides of ``many``."""
    left, right = ({"id": np.arange(rows), "k": draw.integers(0, 20, rows), "v": draw.random(rows)} for _ in "LR")
    return left, right


def theta(on: str) -> Callable[[dict[str, DataFrame]], DataFrame]:
    """A theta join of both sides."""

    def join(frames: dict[str, DataFrame]) -> DataFrame:
        import dovetail as dt

        return dt.theta_join(frames, on=on)

    return join


def asof(frames: dict[str, DataFrame]) -> DataFrame:
    """An as-of join of both sides."""
    import dovetail as dt

    return dt.asof_join(frames, by="k", time="t", how="left")


BAND = "ABS(L.v - R.v) <= 0.0000005"
SHAPES: Mapping[str, Shape] = {
    "text": Shape(text, theta(BAND), "L JOIN R ON R.v BETWEEN L.v - 0.0000005 AND L.v + 0.0000005", 1.3),
    "tails": Shape(tails, theta("L.v BETWEEN R.a AND R.b"), "L JOIN R ON L.v BETWEEN R.a AND R.b", 1.2),
    "keys": Shape(
        keys, asof, "L ASOF LEFT JOIN R ON L.k = R.k AND L.t >= R.t", 1.2,
        lambda left, right: left.sort("t").join_asof(right.sort("t"), on="t", by="k", check_sortedness=False),
        clickhouse=True,
    ),
    "many": Shape(
        many, theta("L.k = R.k AND L.v < R.v"), "L JOIN R ON L.k = R.k AND L.v < R.v", 2.0, share=0.01,
        clickhouse=True,
    ),
}  # fmt: skip


def dropped(batches: Batches) -> Batches:
    """Take all rows, and give none."""
    for _ in batches:
        yield from ()


def given(batches: Batches, *, results: int, pairs: pa.RecordBatch) -> Batches:
    """So many results for each row of the input, the same pairs again and again."""
    for batch in batches:
        for at in range(0, results * batch.num_rows, AT_ONCE):
            yield pairs.slice(0, min(AT_ONCE, results * batch.num_rows - at))


class Tables:
    """Both sides of a shape, opened by every engine."""

    def __init__(self, spark: Any, shape: Shape, folder: Path, rows: int) -> None:
        self.shape = shape
        self.files = {side: folder / f"{side}.parquet" for side in "LR"}
        made = shape.make(np.random.default_rng(7), rows)
        for file, columns in zip(self.files.values(), made, strict=True):
            pq.write_table(pa.table(columns), file, row_group_size=max(1, rows // 16), use_dictionary=["k"])
        self.spark = spark
        self.frames = {side: spark.read.parquet(str(file)) for side, file in self.files.items()}
        self.connection = duckdb.connect(config={"threads": CORES})
        self.connection.sql("SET TimeZone = 'UTC'")
        for side, file in self.files.items():
            self.connection.sql(f"CREATE VIEW {side} AS SELECT * FROM '{file}'")
        self.sums = ", ".join(
            _summed(f"{side}.{name}", value) for side, columns in zip("LR", made, strict=True)
            for name, value in columns.items()
        )  # fmt: skip

    def dovetail(self) -> int:
        """Our join, into the no-op sink."""
        import dovetail as dt

        joined = self.shape.join(self.frames)
        joined.write.format("noop").mode("overwrite").save()
        return int(dt.metrics(joined)["results"])

    def duckdb(self) -> int:
        """DuckDB, adding up every column."""
        query = f"SELECT count(*), {self.sums} FROM {self.shape.duckdb}"
        return int(self.connection.execute(query).fetchall()[0][0])

    def handover(self, results: int) -> int:
        """Rows in and out of Python as the join has them, in one action."""
        first = [next(pq.ParquetFile(file).iter_batches(AT_ONCE)) for file in self.files.values()]
        size = min(one.num_rows for one in first)
        pairs = pa.RecordBatch.from_arrays([one.slice(0, size).to_struct_array() for one in first], list(self.files))
        pairs = pa.concat_batches([pairs] * -(-AT_ONCE // size))
        schema = ", ".join(f"{side} {frame.schema.simpleString()}" for side, frame in self.frames.items())
        share = -(-results // (2 * CORES))
        out = self.spark.range(0, 2 * CORES, 1, 2 * CORES).mapInArrow(
            partial(given, results=share, pairs=pairs), schema
        )
        for frame in self.frames.values():
            out = frame.mapInArrow(dropped, schema).union(out)
        out.write.format("noop").mode("overwrite").save()
        return results

    def clickhouse(self, peers: Peers) -> int:
        """ClickHouse, adding up every column."""
        sides = ", ".join(f"{side} AS (SELECT * FROM file('{file}', Parquet))" for side, file in self.files.items())
        sums = self.sums.replace("strlen(", "length(")
        return peers.clickhouse(f"WITH {sides} SELECT count(), {sums} FROM {self.shape.duckdb}")

    def polars(self) -> int:
        """Polars, adding up every column."""
        assert self.shape.polars is not None
        left, right = (pl.scan_parquet(file) for file in self.files.values())
        joined = self.shape.polars(left, right)
        sums = [
            pl.col(name).str.len_bytes().sum() if kind == pl.String else pl.col(name).max()
            for name, kind in joined.collect_schema().items()
        ]
        return int(joined.select(pl.len().alias("rows"), *sums).collect()["rows"][0])


def _summed(name: str, value: Any) -> str:
    if not isinstance(value, pa.Array):
        return f"sum({name})"
    return f"sum(strlen({name}))" if pa.types.is_string(value.type) else f"max({name})"


def compare(folder: Path, rows: int, only: set[str], times: int, peers: Peers | None) -> list[list[str]]:
    """The rows of the table."""
    import dovetail as dt

    conf = {"spark.sql.shuffle.partitions": 2 * CORES}
    spark = dt.session("shapes-benchmark", master=f"local[{CORES}]", driver_memory="4g", conf=conf)
    table = []
    for name, shape in SHAPES.items():
        if only and name not in only:
            continue
        size = int(rows * shape.share)
        tables = Tables(spark, shape, folder, size)
        engines: dict[str, tuple[Action, int]] = {
            "dovetail": (tables.dovetail, WARM_UPS), "duckdb": (tables.duckdb, WARM_UPS),
        }  # fmt: skip
        engines["handover"] = (partial(tables.handover, tables.duckdb()), WARM_UPS)
        if shape.polars is not None:
            engines["polars"] = (tables.polars, WARM_UPS)
        if shape.clickhouse and peers is not None:
            engines["clickhouse"] = (partial(tables.clickhouse, peers), WARM_UPS)
        laps, found = turns(engines, times=times)
        assert len(set(found.values())) == 1, found
        middle = {engine: statistics.median(every) for engine, every in laps.items()}
        ratio = middle["dovetail"] / middle["duckdb"]
        shown = (f"{engine} {middle[engine]:.2f} ({min(every):.2f})" for engine, every in laps.items())
        table.append(
            [name, f"{size:,} x {size:,}", f"{found['dovetail']:,}", ", ".join(shown), f"{ratio:.2f}", f"{shape.bound}"]
        )
    spark.stop()
    return table


def beside(found: list[list[str]]) -> list[list[str]]:
    """These rows among those of the page, each of which is a race of its own."""
    new = {row[0]: row for row in found}
    lines = (HERE / "shapes.md").read_text(encoding="utf-8").splitlines()
    old = {row[0]: row for row in ([cell.strip() for cell in line.strip("| ").split("|")] for line in lines)}
    return [(old | new)[name] for name in SHAPES if name in old | new]


def main(
    rows: Annotated[int, typer.Option(help="Rows of each side.")] = 2_000_000,
    only: Annotated[str, typer.Option(help=f"Shapes, separated by commas: {', '.join(SHAPES)}.")] = "",
    times: Annotated[int, typer.Option(help="Runs of each engine that count.")] = 5,
    write: Annotated[bool, typer.Option(help="Write the table to benchmarks/shapes.md.")] = False,
) -> None:
    """Run the benchmark and print its table."""
    folder = Path(tempfile.mkdtemp(prefix="shapes-"))
    try:
        with Peers() if installed() else nullcontext() as peers:
            found = compare(folder, rows, {name for name in only.split(",") if name}, times, peers)
    finally:
        shutil.rmtree(folder)
    head = ["shape", "rows", "results", "median seconds (best)", "ours / DuckDB", "at most"]
    if only:
        found = beside(found)
    show(head, found, title="The shapes that people have", file=HERE / "shapes.md" if write else None)


if __name__ == "__main__":
    typer.run(main)

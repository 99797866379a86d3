"""What rows cost on their way out of Python: ten million results in one form after the other.

    python benchmarks/handover.py [--rows 20000] [--times 5] [--text] [--write]

The pairs are those of an equality with 20 values and an inequality, found by one binary search for each row, so that
nearly all of the time goes into handing them to Spark.  Every form ends in Spark's no-op sink with the same two
structs; DuckDB forms the same pairs and adds up every column, as in ``shapes.py``.

``batches of N``     rows as they are, two structs, N rows at a time.
``flat``             the same without structs, 65,536 rows at a time; Spark makes the structs.
``views``            texts as views of their bytes (with ``--text``).
``one row each``     a left row with the array of its matches, which Spark explodes.
``positions``        both sides of a block once, and the positions of its pairs, by which Spark forms them.
``ranges``           both sides of a block once, and for each left row the first and last position of its matches.

Arrow's dictionary and run-end encoded columns are left out: Spark 4.3 refuses both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import typer
from _timing import Action, show, turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HERE = Path(__file__).parent
CORES = 2
KEYS = 20
AT_ONCE = 1 << 16
Batches = Iterator[pa.RecordBatch]


def side(key: int, rows: int, text: bool, salt: int) -> pa.RecordBatch:
    """The rows of one key, sorted by their value."""
    draw = np.random.default_rng((key, salt))
    columns: dict[str, Any] = {"id": np.arange(rows), "k": np.full(rows, key), "v": np.sort(draw.random(rows))}
    if text:
        columns["name"] = [f"n-{number:013}" for number in draw.integers(0, 10**13, rows)]
    return pa.RecordBatch.from_pydict(columns)


def cells(batches: Batches, rows: int, text: bool) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, np.ndarray]]:
    """For each key: both sides, and where the matches of each left row begin; they go on to the end."""
    for batch in batches:
        for key in batch.column(0).to_pylist():
            left, right = side(key, rows, text, 0), side(key, rows, text, 1)
            first = np.searchsorted(right.column("v").to_numpy(), left.column("v").to_numpy(), side="right")
            yield left, right, first


def positions(first: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs, as positions on both sides."""
    counts = size - first
    left = np.repeat(np.arange(first.size, dtype=np.int32), counts)
    begins = np.cumsum(counts) - counts
    right = np.arange(left.size) - np.repeat(begins - first, counts)
    return left, right.astype(np.int32)


def in_one(column: pa.Array) -> pa.Array:
    """A column as the list of one row."""
    return pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)


def rows_out(batches: Batches, *, rows: int, text: bool, at_once: int, form: str = "struct") -> Batches:
    """Every pair as a row."""
    for left, right, first in cells(batches, rows, text):
        if form == "views":
            left, right = (part.set_column(3, "name", part.column(3).cast(pa.string_view())) for part in (left, right))
        i, j = positions(first, right.num_rows)
        for at in range(0, i.size, at_once):
            pair = left.take(pa.array(i[at : at + at_once])), right.take(pa.array(j[at : at + at_once]))
            if form == "flat":
                columns = [*pair[0].columns, *pair[1].columns]
                names = [f"c{number}" for number in range(len(columns))]
                yield pa.RecordBatch.from_arrays(columns, names)
            else:
                yield pa.RecordBatch.from_arrays([part.to_struct_array() for part in pair], ["L", "R"])


def one_each(batches: Batches, *, rows: int, text: bool) -> Batches:
    """Every left row with the array of its matches."""
    for left, right, first in cells(batches, rows, text):
        i, j = positions(first, right.num_rows)
        ends = np.concatenate([[0], np.cumsum(right.num_rows - first)]).astype(np.int32)
        step = max(1, AT_ONCE * left.num_rows // max(i.size, 1))
        for at in range(0, left.num_rows, step):
            bounds = ends[at : at + step + 1]
            matches = right.take(pa.array(j[bounds[0] : bounds[-1]])).to_struct_array()
            lists = pa.ListArray.from_arrays(pa.array(bounds - bounds[0]), matches)
            yield pa.RecordBatch.from_arrays([left.slice(at, step).to_struct_array(), lists], ["L", "Rs"])


def blocks(batches: Batches, *, rows: int, text: bool) -> Batches:
    """Both sides once, and positions."""
    for left, right, first in cells(batches, rows, text):
        i, j = positions(first, right.num_rows)
        both = [in_one(part.to_struct_array()) for part in (left, right)]
        for at in range(0, i.size, AT_ONCE):
            pairs = [in_one(pa.array(part[at : at + AT_ONCE])) for part in (i, j)]
            yield pa.RecordBatch.from_arrays([*both, *pairs], ["Ls", "Rs", "i", "j"])


def ranges(batches: Batches, *, rows: int, text: bool) -> Batches:
    """Both sides once, and the range of each left row."""
    for left, right, first in cells(batches, rows, text):
        matched = np.flatnonzero(first < right.num_rows).astype(np.int32)
        last = np.full(matched.size, right.num_rows - 1, np.int32)
        spans = [in_one(pa.array(part)) for part in (matched, first[matched].astype(np.int32), last)]
        both = [in_one(part.to_struct_array()) for part in (left, right)]
        yield pa.RecordBatch.from_arrays([*both, *spans], ["Ls", "Rs", "i", "low", "high"])


def forms(source: DataFrame, rows: int, text: bool) -> dict[str, Callable[[], DataFrame]]:
    """Each form as a frame of the same two structs."""
    fields = [("id", "bigint"), ("k", "bigint"), ("v", "double"), *([("name", "string")] if text else [])]
    struct = f"struct<{','.join(f'{name}:{kind}' for name, kind in fields)}>"
    pair = f"L {struct}, R {struct}"
    flat = ", ".join(f"c{number} {kind}" for number, (_, kind) in enumerate(2 * fields))
    both = f"Ls array<{struct}>, Rs array<{struct}>"

    def nested(first: int) -> str:
        parts = (f"'{name}', c{first + at}" for at, (name, _) in enumerate(fields))
        return f"named_struct({', '.join(parts)})"

    def mapped(stage: Callable[..., Batches], schema: str, **more: Any) -> DataFrame:
        return source.mapInArrow(partial(stage, rows=rows, text=text, **more), schema)

    made: dict[str, Callable[[], DataFrame]] = {
        f"batches of {size:,}": partial(mapped, rows_out, pair, at_once=size) for size in (4096, AT_ONCE, 1 << 19)
    }
    made["flat"] = lambda: mapped(rows_out, flat, at_once=AT_ONCE, form="flat").selectExpr(
        f"{nested(0)} AS L", f"{nested(len(fields))} AS R"
    )
    if text:
        made["views"] = partial(mapped, rows_out, pair, at_once=AT_ONCE, form="views")
    made["one row each"] = lambda: mapped(one_each, f"L {struct}, Rs array<{struct}>").selectExpr(
        "L", "explode(Rs) AS R"
    )
    made["positions"] = lambda: (
        mapped(blocks, f"{both}, i array<int>, j array<int>")
        .selectExpr("Ls", "Rs", "i", "posexplode(j) AS (at, q)")
        .selectExpr("Ls[i[at]] AS L", "Rs[q] AS R")
    )
    made["ranges"] = lambda: (
        mapped(ranges, f"{both}, i array<int>, low array<int>, high array<int>")
        .selectExpr("Ls", "Rs", "i", "low", "posexplode(high) AS (at, last)")
        .selectExpr("Ls[i[at]] AS L", "Rs", "explode(sequence(low[at], last)) AS q")
        .selectExpr("L", "Rs[q] AS R")
    )
    return made


def noop(form: Callable[[], DataFrame]) -> int:
    """Form all rows, and read them."""
    form().write.format("noop").mode("overwrite").save()
    return 0


def main(
    rows: Annotated[int, typer.Option(help="Rows of each side.")] = 20_000,
    times: Annotated[int, typer.Option(help="Runs of each form that count.")] = 5,
    text: Annotated[bool, typer.Option(help="With a text of 15 characters on both sides.")] = False,
    write: Annotated[bool, typer.Option(help="Write the table to benchmarks/handover.md.")] = False,
) -> None:
    """Run the benchmark and print its table."""
    import dovetail as dt

    spark = dt.session("handover-benchmark", master=f"local[{CORES}]", driver_memory="4g")
    source = spark.range(0, KEYS, 1, 2 * CORES)
    every = forms(source, rows // KEYS, text)
    sums = {name: tuple(form().selectExpr("count(*)", "sum(L.id * R.id)").collect()[0]) for name, form in every.items()}
    assert len(set(sums.values())) == 1, sums
    engines: dict[str, tuple[Action, int]] = {name: (partial(noop, form), 3) for name, form in every.items()}
    connection = duckdb.connect(config={"threads": CORES})
    for number, name in enumerate("LR"):
        made = pa.Table.from_batches([side(key, rows // KEYS, text, number) for key in range(KEYS)])
        connection.register("made", made)
        connection.sql(f"CREATE TABLE {name} AS SELECT * FROM made")
    added = [f"sum({one}.{name})" for one in "LR" for name in ("id", "k", "v")]
    added += [f"sum(strlen({one}.name))" for one in "LR" if text]
    statement = f"SELECT {', '.join(added)} FROM L JOIN R ON L.k = R.k AND L.v < R.v"
    engines["DuckDB"] = (lambda: len(connection.execute(statement).fetchall()), 3)
    laps, _ = turns(engines, times=times)
    spark.stop()
    middle = {name: statistics.median(seconds) for name, seconds in laps.items()}
    table = [
        [name, f"{middle[name]:.2f}", f"{min(laps[name]):.2f}", f"{middle[name] / middle['DuckDB']:.1f}"]
        for name in laps
    ]
    title = f"Handing {sums['ranges'][0]:,} results to Spark{', with text' if text else ''}"
    file = HERE / ("handover-text.md" if text else "handover.md") if write else None
    show(["form", "median seconds", "best", "to DuckDB"], table, title=title, file=file)


if __name__ == "__main__":
    typer.run(main)

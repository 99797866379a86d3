"""Joins that are defined otherwise from some row on, and what DuckDB answers over all rows of both runs.

DuckDB knows which rows had arrived before the change, and nothing of how a join stores them: a match counts by the
definition in force when its last row arrived.
"""

from __future__ import annotations

import os
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.spark.test_resume import FILES, MARK, ROWS, SCHEMA, Inputs, drawn, marks, tasks_in, write

import dovetail as dt

Join = Callable[[Inputs, int], DataFrame]
ALWAYS = 1 << 62


@dataclass(frozen=True)
class Change:
    """Two definitions, and the answer of both, whose last column is the time from which on a row must be there."""

    old: Join
    new: Join
    columns: tuple[str, ...]
    oracle: str
    before: str = "AB"
    after: str = "AB"
    gaps: bool = False
    """Whether the new definition asks for rows that have gone."""
    new_columns: tuple[str, ...] = ()


def near(seconds: float, one: str = "A", other: str = "B") -> str:
    return f"abs(epoch_us({one}.ts) - epoch_us({other}.ts)) <= {int(seconds * 1e6)}"


def window(on: str, seconds: int, **more: object) -> Join:
    return lambda inputs, tasks: dt.window_join(
        inputs, on=on, time="ts", within=f"{seconds} seconds", partitions=tasks, **more
    )


LATE = "(A.late OR B.late)"
LEAST = "least(epoch_us(A.ts), epoch_us(B.ts))"


def judged(old: str, new: str) -> str:
    """Pairs, each by the definition in force when its last row arrived."""
    return (
        f"SELECT A.id AS a, B.id AS b, CASE WHEN {LATE} THEN {LEAST} ELSE {ALWAYS} END AS must FROM A, B "
        f"WHERE CASE WHEN {LATE} THEN {new} ELSE {old} END"
    )


def alone(pairs: str, side: str, out: str, *, gaps: bool = False) -> str:
    """Rows of a side that are in no pair; those that had arrived before the change are never in doubt.

    Where there are gaps the old join may have given one before a row came that it would match now.
    """
    matched = f"SELECT {side.lower()} FROM ({pairs})"
    others = f"id NOT IN ({matched}{f' WHERE must = {ALWAYS}' if gaps else ''})"
    return (
        f"SELECT {out}, CASE WHEN id IN ({matched}) THEN {-ALWAYS - 1} WHEN late THEN epoch_us(ts) ELSE {ALWAYS} END "
        f"FROM {side} WHERE {others} AND (NOT late OR id NOT IN ({matched}))"
    )


def left(old: str, new: str, *, gaps: bool = False) -> str:
    pairs = judged(old, new)
    return f"{pairs} UNION ALL {alone(pairs, 'A', 'id, NULL', gaps=gaps)}"


def full(old: str, new: str, *, gaps: bool = False) -> str:
    pairs = judged(old, new)
    sides = alone(pairs, "A", "id, NULL", gaps=gaps), alone(pairs, "B", "NULL, id", gaps=gaps)
    return f"{pairs} UNION ALL {sides[0]} UNION ALL {sides[1]}"


def semi(old: str, new: str) -> str:
    pairs = judged(old, new)
    return f"SELECT a, min(must) FROM ({pairs}) GROUP BY a"


SAME, BAND = "A.k = B.k", "abs(A.v - B.v) <= 1.5"
PAIR = ("A.id AS a", "B.id AS b")
ODD = "(A.id * 7 + B.id * 3) % 4 <> 1"
AND = "{} AND {}".format


def three(old: str, new: str) -> str:
    """Results of three inputs of which the old definition has two or three; NULL where it has no C."""
    return (
        f"SELECT A.id, B.id, C.id, least({LEAST}, epoch_us(C.ts)) FROM A, B, C WHERE {new} UNION ALL "
        f"SELECT A.id, B.id, NULL, {ALWAYS} FROM A, B WHERE NOT {LATE} AND {old}"
    )


HASHED = {
    seconds: AND(SAME, near(seconds)) for seconds in (2, 3, 4, 6)
}  # fmt: skip
CHANGES = {
    "shorter": Change(window(SAME, 6), window(SAME, 3), PAIR, judged(HASHED[6], HASHED[3])),
    "longer": Change(window(SAME, 3), window(SAME, 6), PAIR, judged(HASHED[3], HASHED[6]), gaps=True),
    "shorter, left": Change(
        window(SAME, 6, how="left"), window(SAME, 3, how="left"), PAIR, left(HASHED[6], HASHED[3])
    ),
    "longer, full": Change(
        window(SAME, 3, how="full"), window(SAME, 6, how="full"), PAIR, full(HASHED[3], HASHED[6], gaps=True), gaps=True
    ),
    "longer, anti": Change(
        window(SAME, 3, how="anti"), window(SAME, 4, how="anti"), ("A.id AS a",),
        alone(judged(HASHED[3], HASHED[4]), "A", "id", gaps=True), gaps=True,
    ),
    "shorter, semi": Change(
        window(SAME, 6, how="semi"), window(SAME, 3, how="semi"), ("A.id AS a",), semi(HASHED[6], HASHED[3])
    ),
    "one side only": Change(
        window(SAME, 4), lambda inputs, tasks: dt.window_join(
            inputs, on=SAME, time="ts", within={("A", "B"): dt.after("3 seconds")}, partitions=tasks
        ), PAIR, judged(HASHED[4], AND(SAME, "epoch_us(B.ts) - epoch_us(A.ts) BETWEEN 0 AND 3000000")),
    ),
    "keys to a band": Change(
        window(SAME, 4), window("ABS(A.v - B.v) <= 1.5", 4), PAIR, judged(HASHED[4], AND(BAND, near(4)))
    ),
    "a band to keys, left": Change(
        window("ABS(A.v - B.v) <= 1.5", 4, how="left"), window(SAME, 4, how="left"), PAIR,
        left(AND(BAND, near(4)), HASHED[4]),
    ),
    "another filter, left": Change(
        window(SAME, 4, how="left"), window(f"{SAME} AND A.v < 6", 4, how="left"), PAIR,
        left(HASHED[4], AND(HASHED[4], "A.v < 6")),
    ),
    "judged by Spark": Change(
        window(SAME, 4, how="left"), window(AND(SAME, ODD), 4, how="left"), PAIR,
        left(HASHED[4], AND(HASHED[4], ODD)),
    ),
    "no more judged by Spark": Change(
        window(AND(SAME, ODD), 4, how="left"), window(SAME, 3, how="left"), PAIR,
        left(AND(HASHED[4], ODD), HASHED[3]),
    ),
    "inner to left": Change(
        window(SAME, 4), window(SAME, 4, how="left"), PAIR,
        f"{judged(HASHED[4], HASHED[4])} UNION ALL SELECT id, NULL, epoch_us(ts) FROM A WHERE late AND "
        f"id NOT IN (SELECT a FROM ({judged(HASHED[4], HASHED[4])}))",
    ),
    "later rows, left": Change(
        window(SAME, 4, how="left", lateness="2 seconds"), window(SAME, 4, how="left", lateness="5 seconds"), PAIR,
        left(HASHED[4], HASHED[4], gaps=True), gaps=True,
    ),
    "fewer late rows, full": Change(
        window(SAME, 4, how="full", lateness="6 seconds"), window(SAME, 4, how="full", lateness="2 seconds"), PAIR,
        full(HASHED[4], HASHED[4]),
    ),
    "shedding begins": Change(
        window(SAME, 4), window(SAME, 4, shed=dt.Harvest(throttle=1.0)), PAIR, judged(HASHED[4], HASHED[4])
    ),
    "shedding ends": Change(
        window(SAME, 4, shed=dt.Harvest(throttle=1.0)), window(SAME, 4, how="semi"), PAIR,
        f"SELECT A.id AS a, B.id AS b, {ALWAYS} FROM A, B WHERE NOT {LATE} AND {HASHED[4]} UNION ALL "
        f"SELECT DISTINCT A.id, -1, {ALWAYS} FROM A, B WHERE {LATE} AND {HASHED[4]}",
        new_columns=("A.id AS a", "-1L AS b"),
    ),
    "an input more": Change(
        window(SAME, 4), window(f"{SAME} AND B.k = C.k", 4), (*PAIR, "CAST(NULL AS BIGINT) AS c"),
        three(HASHED[4], " AND ".join([HASHED[4], "B.k = C.k", near(4, "A", "C"), near(4, "B", "C")])), after="ABC",
        gaps=True, new_columns=(*PAIR, "C.id AS c"),
    ),
    "an input less": Change(
        window(f"{SAME} AND B.k = C.k", 4), window("A.k = C.k", 4), ("A.id AS a", "B.id AS b", "C.id AS c"),
        f"SELECT A.id, B.id, C.id, {ALWAYS} FROM A, B, C WHERE NOT (A.late OR B.late OR C.late) AND {HASHED[4]} AND "
        f"B.k = C.k AND {near(4, 'A', 'C')} AND {near(4, 'B', 'C')} UNION ALL SELECT A.id, NULL, C.id, "
        "least(epoch_us(A.ts), epoch_us(C.ts)) FROM A, C WHERE (A.late OR C.late) AND A.k = C.k AND "
        f"{near(4, 'A', 'C')}",
        before="ABC", after="AC", new_columns=("A.id AS a", "CAST(NULL AS BIGINT) AS b", "C.id AS c"),
    ),
    "columns": Change(
        lambda inputs, tasks: dt.window_join(
            {"A": inputs["A"].drop("v").withColumn("n", F.col("n").cast("int")), "B": inputs["B"].drop("n")},
            on=SAME, time="ts", within="4 seconds", partitions=tasks,
        ),
        lambda inputs, tasks: dt.window_join(
            {"A": inputs["A"].withColumn("told", F.col("id").cast("string")), "B": inputs["B"].select("ts", "k", "id")},
            on=SAME, time="ts", within="4 seconds", partitions=tasks,
        ),
        (*PAIR, "CAST(A.n AS BIGINT) AS n", "CAST(NULL AS DOUBLE) AS v", "CAST(NULL AS STRING) AS told"),
        f"SELECT A.id, B.id, A.n, CASE WHEN A.late THEN A.v END, CASE WHEN A.late THEN CAST(A.id AS VARCHAR) END, "
        f"{LEAST} FROM A, B WHERE {HASHED[4]}",
        new_columns=(*PAIR, "A.n AS n", "A.v AS v", "A.told AS told"),
    ),
}  # fmt: skip


def tumbling(on: str, seconds: int, how: str = "inner") -> Join:
    return lambda inputs, tasks: dt.theta_join(inputs, on=on, how=how, window=f"{seconds} seconds", time="ts")


def within(seconds: int) -> str:
    return f"epoch_us(A.ts) // {seconds}000000 = epoch_us(B.ts) // {seconds}000000"


def asof(seconds: int | None, direction: str = "backward", how: str = "left") -> Join:
    bound = {} if seconds is None else {"within": f"{seconds} seconds"}
    return lambda inputs, tasks: dt.asof_join(inputs, by="k", time="ts", how=how, direction=direction, **bound)


def best(distance: str, seconds: int) -> str:
    """The one B of each A that is nearest in a direction, by a distance that is not negative where it counts."""
    return (
        f"SELECT A.id AS a, arg_min(B.id, {distance}) FILTER (WHERE {distance} BETWEEN 0 AND {seconds}000000) AS b, "
        "epoch_us(A.ts) AS must FROM A LEFT JOIN B ON A.k = B.k GROUP BY A.id, A.ts"
    )


BACK, AWAY = "epoch_us(A.ts) - epoch_us(B.ts)", "abs(epoch_us(A.ts) - epoch_us(B.ts))"


def summed(seconds: int, agg: dict[str, str]) -> Join:
    return lambda inputs, tasks: dt.aggregate_join(
        inputs, on=SAME, by="A", time="ts", within=f"{seconds} seconds", agg=agg
    )


def sums(seconds: int) -> str:
    return (
        f"SELECT A.id AS a, max(B.id), count(B.id), epoch_us(A.ts) FROM A LEFT JOIN B ON A.k = B.k AND {near(seconds)} "
        "GROUP BY A.id, A.ts"
    )


def nearest(seconds: int, k: int) -> Join:
    return lambda inputs, tasks: dt.nearest_join(
        inputs, on="A.k = B.k AND ABS(A.v - B.v)", k=k, how="left", time="ts", window=f"{seconds} seconds"
    )


def ranked(seconds: int, k: int) -> str:
    return (
        "SELECT a, b, must FROM (SELECT A.id AS a, B.id AS b, epoch_us(A.ts) AS must, row_number() OVER "
        f"(PARTITION BY A.id ORDER BY abs(A.v - B.v)) AS r FROM A LEFT JOIN B ON A.k = B.k AND {near(seconds)}) "
        f"WHERE r <= {k}"
    )


MAX, COUNT = {"b": "max(B.id)"}, {"n": "count(*)"}
ANSWERS = {
    "as-of, nearer": (asof(5), asof(2), best(BACK, 2), False),
    "as-of, farther": (asof(2), asof(5), best(BACK, 5), True),
    "as-of, to the nearest": (asof(4), asof(4, "nearest"), best(AWAY, 4), False),
    "as-of, from the nearest": (asof(4, "nearest"), asof(4), best(BACK, 4), True),
    "aggregate, shorter": (summed(5, MAX | COUNT), summed(2, MAX | COUNT), sums(2), False),
    "aggregate, longer": (summed(2, MAX | COUNT), summed(4, MAX | COUNT), sums(4), True),
    "aggregate, fewer": (summed(3, MAX | COUNT | {"s": "sum(B.v)"}), summed(3, MAX | COUNT), sums(3), False),
    "nearest, fewer": (nearest(4, 3), nearest(3, 1), ranked(3, 1), False),
    "nearest, longer": (nearest(2, 2), nearest(4, 2), ranked(4, 2), True),
}
LESS, MORE = "A.v < B.v", "A.v >= B.v"
WINDOWS = {
    "theta, other condition": (
        tumbling(LESS, 8), tumbling(MORE, 8), judged(AND(LESS, within(8)), AND(MORE, within(8))), False,
    ),
    "theta, longer": (
        tumbling(LESS, 6), tumbling(LESS, 10), judged(AND(LESS, within(6)), AND(LESS, within(10))), True,
    ),
    "theta, halved": (
        tumbling(LESS, 10), tumbling(LESS, 5), judged(AND(LESS, within(10)), AND(LESS, within(5))), False,
    ),
}  # fmt: skip


def streams(spark, folder: Path, names: str) -> dict[str, DataFrame]:
    def stream(name: str) -> DataFrame:
        raw = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return raw.withWatermark("ts", "2 seconds")

    return {name: stream(name) for name in names}


def run(frame: DataFrame, columns: tuple[str, ...], checkpoint: Path, out: Path) -> None:
    writer = frame.selectExpr(*columns).writeStream.format("parquet").option("path", str(out))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination(900)
    finally:
        query.stop()


class Timeline:
    """Files of rows, of which some arrive before the change."""

    def __init__(self, folder: Path, names: str, cut: int, draw: random.Random) -> None:
        self.folder, self.names, self.cut = folder, names, cut
        self._files = {alias: [drawn(draw, alias, number) for number in range(FILES)] for alias in names}

    def arrive(self, first: int, last: int) -> None:
        for side, alias in enumerate(self.names):
            for number in range(first, last):
                rows = self._files[alias][number] if number < FILES else marks(number, side)
                write(self.folder, alias, number, rows)

    def answer(self, oracle: str) -> list[tuple[object, ...]]:
        with duckdb.connect() as sql:
            for name in self.names:
                late = f"n >= {self.cut * ROWS} AS late"
                sql.execute(f"CREATE VIEW {name} AS SELECT *, {late} FROM '{self.folder}/{name}/*.parquet'")
            return sql.execute(oracle).fetchall()


def real(rows: list[tuple[object, ...]]) -> Counter:
    """Rows without those that only move watermarks."""
    return Counter(row for row in rows if not any(isinstance(v, int) and v >= MARK for v in row[:2]))


def checked(found: Counter, answer: list[tuple[object, ...]], complete_from: object, *, gaps: bool) -> None:
    assert (complete_from is not None) == gaps
    first = complete_from.timestamp() * 1e6 if isinstance(complete_from, datetime) else -ALWAYS
    allowed = real([row[:-1] for row in answer])
    required = real([row[:-1] for row in answer if row[-1] >= first])
    assert found - allowed == Counter(), "what is no result, or twice"
    assert required - found == Counter(), "what is missing"
    assert required, "nothing is tested"
    for side in (0, 1):
        lone = {row[side] for row in found if len(row) == 2 and row[1 - side] is None}
        assert not lone & {row[side] for row in found if len(row) == 2 and None not in row}, "with a match and without"
    if not gaps:
        assert found == allowed


def seeded(name: str) -> random.Random:
    seed = int(os.environ.get("NET_SEED", zlib.crc32(name.encode())))
    print(f"NET_SEED={seed}")
    return random.Random(seed)


def begun(spark, folder: Path, join: Join, names: str = "AB") -> Path:
    """The checkpoint of a query that has read two files of each input."""
    time = Timeline(folder, names, 2, random.Random(1))
    time.arrive(0, 2)
    tasks_in(spark, 2)
    frame = join(streams(spark, folder, names), 2)
    query = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "old"))
    query.trigger(availableNow=True).start().awaitTermination(900)
    return folder / "old"

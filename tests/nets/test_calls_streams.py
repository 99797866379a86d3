"""Every criterion and every option of an as-of join on streams: a query gives what its rows give at once.

One query runs many joins over the same files, so that a few micro-batches serve them all.  The oracle is that of the
static nets: what Spark says each pair is worth, or a nested loop.  ``NET_SEED=n`` replays one query.
"""

from __future__ import annotations

import datetime
import os
import random
import re
from collections import Counter
from dataclasses import replace
from functools import reduce
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.nets.test_calls import seeds, settings
from tests.nets.test_criteria import CRITERIA, SCHEMA, START, WIDE, expected

import dovetail as dt
from dovetail import reference

COLUMNS = {
    "id": pa.int32(), "k": pa.int32(), "i": pa.int32(), "b": pa.int64(), "f": pa.float32(), "d": pa.float64(),
    "t": pa.timestamp("us", "UTC"), "w": pa.decimal128(30, 4),
}  # fmt: skip
LATE = 1000
"""Rows from this number on only move the watermark."""
BY_SPARK = ("least product", "most greatest", "least float sum", "least wide sum")
"""Criteria that only Spark can evaluate, which streams refuse."""
NEAR = "closest t"
HOWS = ("inner", "left", "right", "full")
ALL = [
    (name, how, by) for name in CRITERIA if name not in BY_SPARK for how in HOWS for by in (False, True)
]  # fmt: skip
random.Random(3).shuffle(ALL)
AT_ONCE = 5


def rows(draw: random.Random, count: int, first: int = 0) -> list[dict]:
    """Rows within an hour, NULLs and ties among them."""
    minute = datetime.timedelta(minutes=1)
    return [
        {
            "id": first + at,
            "k": draw.choice([0, 1, 1, None]),
            "i": draw.choice([-3, 0, 1, 2, 2, None]),
            "b": draw.choice([2**62, -(2**62), 5]),
            "f": draw.choice([0.5, 1.5, -0.0, None]),
            "d": draw.choice([0.25, 1.0, float("inf"), None]),
            "t": draw.choice([None, *(START.replace(tzinfo=datetime.UTC) + m * minute for m in (0, 0, 5, 9, 30, 55))]),
            "w": draw.choice([None, *WIDE]),
        }
        for at in range(count)
    ]


def put(folder: Path, made: list[dict]) -> None:
    """One more file, newer than those before it."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    file = folder / f"{number:03}.parquet"
    pq.write_table(
        pa.table({name: pa.array([row[name] for row in made], kind) for name, kind in COLUMNS.items()}), file
    )
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def arrive(folder: Path, draw: random.Random) -> dict[str, list[dict]]:
    """Two files of rows for each input, then two that move the watermark past them; the rows that count come back."""
    made = {}
    for hours, name in enumerate("RS"):
        first = rows(draw, draw.choice([3, 6, 9]))
        made[name] = first + rows(draw, draw.choice([0, 4, 8]), first=len(first))
        put(folder / name, first)
        put(folder / name, made[name][len(first) :])
        for days in (1, 2):
            # An hour apart in the two inputs, so that they match nothing.
            last = START.replace(tzinfo=datetime.UTC) + datetime.timedelta(days=days, hours=hours)
            put(folder / name, [{**dict.fromkeys(COLUMNS), "id": LATE + days, "t": last}])
    return made


def inputs(spark, folder: Path, number: int) -> dict[str, DataFrame]:
    """The files as streams, under aliases of their own: Spark wants a name for the counters of every join in a query.

    Nothing is late.
    """
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return {f"{name}{number}": source.parquet(str(folder / name)).withWatermark("t", "2 hours") for name in "RS"}


def under(criterion, number: int):
    """A criterion with the aliases of the join of that number."""
    if not hasattr(criterion, "sql"):
        return criterion
    return replace(criterion, sql=re.sub(r"\b([RS])\.", rf"\g<1>{number}.", criterion.sql))


def run(frames: list[DataFrame], place: Path) -> dict[int, Counter]:
    """What each join has given in the end: pairs of numbers, what was retracted taken back."""
    parts = []
    for at, joined in enumerate(frames):
        change = F.col("_change") if "_change" in joined.columns else F.lit("insert")
        other = F.col(f"S{at}.id") if f"S{at}" in joined.columns else F.lit(None).cast("int")
        numbers = F.lit(at).alias("join"), F.col(f"R{at}.id").alias("r"), other.alias("s")
        parts.append(joined.select(*numbers, change.alias("change")))
    union = reduce(lambda a, b: a.unionAll(b), parts)
    query = (
        union.writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(600)
    finally:
        query.stop()
    found: dict[int, Counter] = {at: Counter() for at in range(len(frames))}
    for at, r, s, change in union.sparkSession.read.parquet(str(place / "out")).collect():
        if (r is None or r < LATE) and (s is None or s < LATE):
            found[at][r, s] += -1 if change == "retract" else 1
    return {at: +pairs for at, pairs in found.items()}


def check_criteria(spark, folder: Path, seed: int) -> None:
    """One query of best-match joins: the time within ten minutes, and one more criterion."""
    cases = [ALL[at % len(ALL)] for at in range(seed * AT_ONCE, (seed + 1) * AT_ONCE)]
    draw = random.Random(f"criteria {seed}")
    with settings(spark, {"spark.sql.shuffle.partitions": "1"}):
        made = arrive(folder, draw)
        frames = []
        for at, (name, how, by) in enumerate(cases):
            on = [under(CRITERIA[one][0](), at) for one in dict.fromkeys([NEAR, name])]
            frames.append(dt.bestmatch_join(inputs(spark, folder, at), on=on, how=how, by="k" if by else None))
        found = run(frames, folder / "query")
        static = [spark.read.schema(SCHEMA).parquet(str(folder / name)).where(f"id < {LATE}").cache() for name in "RS"]
        for at, (name, how, by) in enumerate(cases):
            meant = expected(*static, list(dict.fromkeys([NEAR, name])), how, by)
            note = f"NET_SEED={seed}: on={NEAR} and {name}, how={how}, by={by}\n{made}"
            assert found[at] == Counter(meant), note
        for frame in static:
            frame.unpersist()


ALL_HOWS = ("inner", "left", "right", "full", "semi", "anti")
ON = {
    None: None,
    "R.i <= S.i": lambda r, s: None not in (r["i"], s["i"]) and r["i"] <= s["i"],
    "R.k <=> S.k AND S.i <> 1": lambda r, s: r["k"] == s["k"] and s["i"] not in (None, 1),
}
"""Further conditions, and what they mean."""
ASOF = list(
    product(("backward", "forward", "nearest"), ALL_HOWS, (False, True), (True, False), (False, True), ON)
)  # fmt: skip
"""direction, how, by=, allow_exact_matches, within=, on="""
random.Random(4).shuffle(ASOF)
# Others might wait for ever or keep everything, and without a tolerance the rows that move the watermark choose some.
ASOF = [
    case
    for case in ASOF
    if case[4] or (case[0] == "backward" and case[1] not in ("right", "full") and case[5] != "R.i <= S.i")
]
ASOF = ASOF[:90]


def check_asof(spark, folder: Path, seed: int) -> None:
    """One query of as-of joins."""
    cases = [ASOF[at % len(ASOF)] for at in range(seed * AT_ONCE, (seed + 1) * AT_ONCE)]
    draw = random.Random(f"asof {seed}")
    with settings(spark, {"spark.sql.shuffle.partitions": "1"}):
        made = arrive(folder, draw)
        frames = []
        for at, (direction, how, by, exact, bounded, on) in enumerate(cases):
            options = {"by": "k" if by else None, "within": "10 minutes" if bounded else None, "ties": "id"}
            options["on"] = on and re.sub(r"\b([RS])\.", rf"\g<1>{at}.", on)
            options |= {"direction": direction, "how": how, "allow_exact_matches": exact}
            frames.append(dt.asof_join(inputs(spark, folder, at), time="t", **options))
        found = run(frames, folder / "query")
    for at, (direction, how, by, exact, bounded, on) in enumerate(cases):
        meant = reference.asof_join(
            made, time="t", by=("k",) if by else (), direction=direction, how=how, allow_exact_matches=exact,
            within=datetime.timedelta(minutes=10) if bounded else None, ties=("id",), where=ON[on],
        )  # fmt: skip
        pairs = Counter(tuple(row and row["id"] for row in (pair["R"], pair.get("S"))) for pair in meant)
        assert found[at] == pairs, f"NET_SEED={seed}: {cases[at]}\n{made}"


@pytest.mark.in_turns(group="options of streams")
@pytest.mark.parametrize("seed", seeds(0, 1))
def test_criteria(spark, tmp_path, seed):
    check_criteria(spark, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, -(-len(ALL) // AT_ONCE) - 1))
def test_more_criteria(spark, tmp_path, seed):
    check_criteria(spark, tmp_path, seed)


@pytest.mark.in_turns(group="options of streams")
@pytest.mark.parametrize("seed", seeds(0, 1))
def test_asof_options(spark, tmp_path, seed):
    check_asof(spark, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, -(-len(ASOF) // AT_ONCE) - 1))
def test_more_asof_options(spark, tmp_path, seed):
    check_asof(spark, tmp_path, seed)

"""Conditions of every form outside batch theta joins: windows, streams, a stream beside a table, samples.

The net of calls draws them for theta joins in batch (``tests/nets/conditions.py``).  Here a few stand for all, because
what differs is who evaluates them and when.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.nets.sessions import settings

import dovetail as dt
from dovetail.spark.metrics import handle_of

from .streams import ids, put, run, source, written

SCHEMA = "id long, k long, x double, y double, r double, t timestamp"
FILES = pa.schema(
    [
        ("id", pa.int64()), ("k", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("r", pa.float64()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONDITIONS = [
    "ABS(A.x - B.x) <= B.r",
    "A.x + B.x < 12",
    "A.k <=> B.k AND A.x < B.x",
    "HYPOT(A.x - B.x, A.y - B.y) <= A.r",
    "A.x NOT BETWEEN B.y AND B.x",
    "(A.k, A.r) = (B.k, B.r)",
    "(A.k + B.k) % 3 = 0",
]

pytestmark = pytest.mark.usefixtures("few_partitions")


def rows(seed: int, size: int) -> list[dict]:
    """Rows in the order of their times, with NULL and NaN among them."""
    return [
        {
            "id": at,
            "k": None if at % 5 == seed else (at + seed) % 4,
            "x": float("nan") if at % 11 == seed else (at * 7 + seed * 3) % 20 / 2,
            "y": None if at % 9 == seed else float((at * 5 + seed) % 7),
            "r": float((at + seed) % 3),
            "t": NOON + timedelta(seconds=3 * at + seed),
        }
        for at in range(size)
    ]


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Two tables, each in two files."""
    folder = tmp_path_factory.mktemp("conditions")
    for seed, alias in enumerate("AB"):
        some = rows(seed, 30 - 4 * seed)
        put(folder / alias, some[:13], FILES)
        put(folder / alias, some[13:], FILES)
    return folder


def static(spark, folder, alias):
    return spark.read.schema(SCHEMA).parquet(str(folder / alias))


def by_spark(spark, folder, on: str, how: str = "inner") -> Counter:
    a, b = (static(spark, folder, alias).select(F.struct("*").alias(alias)) for alias in "AB")
    return ids(a.join(b, F.expr(on), how))


@pytest.mark.in_turns(group="several seconds")
def test_window_joins_in_batch(spark, tables):
    inputs = {alias: static(spark, tables, alias) for alias in "AB"}
    near = "ABS(A.t - B.t) <= INTERVAL 20 SECONDS"
    for on in CONDITIONS:
        found = dt.window_join(inputs, on=on, time="t", within="20 seconds")
        assert ids(found) == by_spark(spark, tables, f"({on}) AND {near}"), on


@pytest.mark.in_turns(group="streams across a restart")
def test_a_window_join_of_streams(spark, tables, tmp_path):
    on = "ABS(A.x - B.x) <= B.r AND (A.k <=> B.k OR A.x + B.x < 12)"
    inputs = {alias: source(spark, tables / alias, SCHEMA).withWatermark("t", "5 seconds") for alias in "AB"}
    run(dt.window_join(inputs, on=on, time="t", within="20 seconds"), tmp_path)
    assert written(spark, tmp_path) == by_spark(spark, tables, f"{on} AND ABS(A.t - B.t) <= INTERVAL 20 SECONDS")


@pytest.mark.in_turns(group="several seconds")
def test_theta_joins_in_windows(spark, tables):
    inputs = {alias: static(spark, tables, alias) for alias in "AB"}
    same = "unix_seconds(A.t) DIV 30 = unix_seconds(B.t) DIV 30"
    for on in CONDITIONS:
        found = dt.theta_join(inputs, on=on, window="30 seconds", time="t")
        assert ids(found) == by_spark(spark, tables, f"({on}) AND {same}"), on


@pytest.mark.in_turns(group="several seconds")
def test_a_stream_beside_a_table(spark, tables, tmp_path):
    """Also what takes several searches: each is without state, and so is their union."""
    on = "A.k = B.k OR ABS(A.x - B.x) <= B.r"
    inputs = {"A": source(spark, tables / "A", SCHEMA), "B": static(spark, tables, "B")}
    run(dt.theta_join(inputs, on=on, how="left"), tmp_path)
    assert written(spark, tmp_path) == by_spark(spark, tables, on, "left")


def test_an_approximate_join_with_room_for_all(spark, tables):
    inputs = {alias: static(spark, tables, alias) for alias in "AB"}
    on = "A.k <=> B.k AND ABS(A.x - B.x) <= B.r"
    found = dt.approx_join(inputs, on=on, memory=1000)
    assert ids(found, "AB") == by_spark(spark, tables, on)


def test_what_a_python_function_decides(spark, tables):
    close = F.udf(lambda a, b: a is not None and b is not None and abs(a - b) < 1, "boolean")
    spark.udf.register("close_enough", close)
    inputs = {alias: static(spark, tables, alias) for alias in "AB"}
    near = Counter(by_spark(spark, tables, "ABS(A.y - B.y) < 1"))
    assert ids(dt.theta_join(inputs, on="close_enough(A.y, B.y)")) == near
    # Spark itself refuses a Python function in the condition of an outer join.
    unmatched = {pair[0] for pair in by_spark(spark, tables, "ABS(A.y - B.y) < 1", "left") if pair[1] is None}
    found = ids(dt.theta_join(inputs, on="close_enough(A.y, B.y)", how="left"))
    assert found == near + Counter((row, None) for row in unmatched)


ONE_OF = [
    "A.k IN (B.k, B.id)",
    "A.id IN (1, B.k)",
    "A.x IN (B.x, B.y, NULL) AND A.k > 0",
    "(A.k, A.r) IN ((B.k, B.r), (B.id, B.x))",
    "NOT (A.k NOT IN (B.k, CAST(B.id AS SMALLINT)))",
    "(A.k IN (B.k, 2) OR A.x < B.y) AND A.id <> B.id",
    "A.k NOT IN (B.k, B.id)",
    "A.k IN (B.x, B.id)",
    "CAST(A.k AS STRING) IN (B.k, B.id)",
    "A.k IN (CAST(B.k AS STRING), B.id)",
]
"""The last four are left to Spark: NOT IN, and values of several types."""


SPARKS = {"semi": "left_semi", "anti": "left_anti"}


@pytest.mark.in_turns(group="several seconds")
@pytest.mark.parametrize("ansi", [0, 1])
def test_one_of_several(spark, tables, ansi):
    """All joins in one job, and all of Spark's own in another."""
    inputs = {alias: static(spark, tables, alias) for alias in "AB"}
    a, b = (inputs[alias].select(F.struct("*").alias(alias)) for alias in "AB")
    # Plans that adapt are made again after each of some fifty stages.
    conf = {"spark.sql.ansi.enabled": "true" if ansi else "false", "spark.sql.adaptive.enabled": "false"}
    with settings(spark, conf):
        found, wanted = [], []
        for at, on in enumerate(ONE_OF):
            how = ("inner", "left", "full", "semi", "anti", "right")[(at + 3 * ansi) % 6]
            joined = dt.theta_join(inputs, on=on, how=how, sample=False)
            assert ("either of" in handle_of(joined, "explain").plan.text()) == (at < len(ONE_OF) - 4), on
            found.append(numbered(joined, on))
            wanted.append(numbered(a.join(b, F.expr(on), SPARKS.get(how, how)), on))
        found, wanted = (Counter(map(tuple, reduce(DataFrame.union, some).collect())) for some in (found, wanted))
        assert found == wanted


def numbered(joined, on):
    """The condition, and the number of each row, -1 for a missing one."""
    parts = [F.coalesce(F.col(f"{alias}.id"), F.lit(-1)) if alias in joined.columns else F.lit(-2) for alias in "AB"]
    return joined.select(F.lit(on), *parts)


@pytest.mark.parametrize(
    ("on", "first", "where"),
    [
        ("A.k * B.k > 2", "theta join, batch, how='inner': EVERY PAIR IS COMPARED (A with B)", "(A.k * B.k > 2)"),
        ("ABS(A.x - B.x) <= B.r", "theta join, batch, how='inner'", "(ABS(A.x - B.x) <= B.r)"),
        ("A.k <=> B.k", "theta join, batch, how='inner'", "A.k <=> B.k"),
        ("A.k = B.k OR A.x < B.x", "theta join on either of 2 conditions, how='inner'", "A.k = B.k"),
    ],
)
def test_explain_in_the_words_of_the_user(spark, tables, on, first, where):
    inputs = {alias: static(spark, tables, alias) for alias in "AB"}
    lines = handle_of(dt.theta_join(inputs, on=on), "explain").plan.text().splitlines()
    assert lines[0] == first
    assert where in [line.strip().removeprefix("where").strip() for line in lines]
    assert not [line for line in lines if "CASE WHEN" in line]

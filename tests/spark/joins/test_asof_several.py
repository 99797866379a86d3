"""As-of joins that look up in several inputs, and of streams whose pairs Spark has to judge, against nested loops."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.errors import DovetailError
from dovetail.reference.asof import asof_join, asof_lookups

from .streams import put, run, source, written

SCHEMA = "id long, k string, t timestamp, v double"
FILES = pa.schema([("id", pa.int64()), ("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.float64())])
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("few_partitions")


def rows(seed: int, size: int) -> list[dict]:
    """Rows in the order of their times, with NULLs and ties among them."""
    return [
        {
            "id": at,
            "k": None if at % 7 == seed else "abc"[(at * 5 + seed) % 3],
            "t": None if at % 11 == seed else NOON + timedelta(seconds=(at * 3 + seed * 7) // 2),
            "v": None if at % 6 == seed else float((at * 7 + seed) % 10),
        }
        for at in range(size)
    ]


DATA = {"a": rows(1, 24), "b": rows(2, 18), "c": rows(3, 15)}


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    for alias, some in DATA.items():
        put(folder / alias, some[:10], FILES)
        put(folder / alias, some[10:], FILES)
    put(folder / "a", [{"id": 99, "k": "a", "t": NOON + timedelta(days=1), "v": 0.0}], FILES)
    put(folder / "b", [{"id": 99, "k": "a", "t": NOON + timedelta(days=1), "v": 0.0}], FILES)
    return folder


def static(spark, folder, alias):
    return spark.read.schema(SCHEMA).parquet(str(folder / alias)).filter("id < 99")


def ids_of(found: dict) -> tuple:
    return tuple(None if row is None else row["id"] for row in found.values())


@pytest.mark.in_turns(group="several seconds")
def test_several_tables(spark, tables):
    """Every how, own keys and tolerances, conditions of each input: all in one job."""
    inputs = {alias: static(spark, tables, alias) for alias in "abc"}
    each = {
        "b": {"by": ["k"], "within": timedelta(seconds=5), "where": lambda a, b: _positive(a)},
        "c": {"within": timedelta(seconds=9), "where": lambda a, c: _positive(a) and _less(a["v"], c["v"])},
    }
    called = {"by": {"b": "k"}, "within": {"b": "5 seconds", "c": "9 seconds"}, "on": "a.v > 0 AND a.v < c.v"}
    found, want = [], Counter()
    for how, direction in (("inner", "nearest"), ("left", "backward"), ("semi", "forward"), ("anti", "nearest")):
        small = "c" if direction == "nearest" else None
        joined = dt.asof_join(inputs, time="t", how=how, direction=direction, broadcast=small, **called)
        for one in asof_lookups(DATA, how, each=each, time="t", direction=direction):
            want[how, *(*ids_of(one), -2, -2)[:3]] += 1
        parts = [F.col(f"{x}.id") if x in joined.columns else F.lit(-2) for x in "abc"]
        found.append(joined.select(F.lit(how), *parts))
    assert Counter(map(tuple, reduce(DataFrame.union, found).collect())) == want
    text = dt.asof_join(inputs, time="t", **called)
    assert text.columns == ["a", "b", "c"]
    assert text.schema["a"].dataType == inputs["a"].select(F.struct("*").alias("a")).schema["a"].dataType


def _positive(row) -> bool | None:
    return None if row["v"] is None else row["v"] > 0


def _less(a, b) -> bool | None:
    return None if a is None or b is None else a < b


@pytest.mark.in_turns(group="streams across a restart")
def test_two_streams_and_a_table(spark, tables, tmp_path):
    """The pairs of the streams are judged by Spark; the table is looked up in behind them."""
    a, b = (source(spark, tables / alias, SCHEMA).withWatermark("t", "5 seconds") for alias in "ab")
    inputs = {"a": a, "c": static(spark, tables, "c"), "b": b}
    joined = dt.asof_join(
        inputs, time="t", by="k", how="left", direction="nearest", within={"b": "4 seconds"}, on="(a.v + b.v) % 2 = 0"
    )
    run(joined, tmp_path)
    even = {"where": lambda a, b: None if None in (a["v"], b["v"]) else (a["v"] + b["v"]) % 2 == 0}
    each = {"b": {**even, "within": timedelta(seconds=4)}}
    in_order = {alias: DATA[alias] for alias in "acb"}
    want = Counter(map(ids_of, asof_lookups(in_order, "left", each=each, time="t", by=["k"], direction="nearest")))
    found = written(spark, tmp_path, "acb")
    assert Counter({row: n for row, n in found.items() if row[0] != 99}) == want


@pytest.mark.parametrize(("how", "direction"), [("anti", "forward")])
def test_pairs_of_streams_that_spark_judges(spark, tables, tmp_path, how, direction):
    a, b = (source(spark, tables / alias, SCHEMA).withWatermark("t", "5 seconds") for alias in "ab")
    joined = dt.asof_join(
        {"a": a, "b": b}, time="t", how=how, direction=direction, within="4 seconds", on="(a.v + b.v) % 2 = 0"
    )
    run(joined, tmp_path)
    want = asof_join(
        {"a": DATA["a"], "b": DATA["b"]}, time="t", how=how, direction=direction, within=timedelta(seconds=4),
        where=lambda a, b: None if None in (a["v"], b["v"]) else (a["v"] + b["v"]) % 2 == 0,
    )  # fmt: skip
    found = written(spark, tmp_path, "a" if how == "anti" else "ab")
    assert Counter({row: n for row, n in found.items() if row[0] != 99}) == Counter(map(ids_of, want))


def test_refused(spark, tables):
    inputs = {alias: static(spark, tables, alias) for alias in "abc"}
    stream = source(spark, tables / "a", SCHEMA).withWatermark("t", "1 second")
    for change, words in [
        ({"how": "full"}, "nobody's match stands beside no row"),
        ({"on": "b.v = c.v"}, "ties 'b' to 'c'"),
        ({"broadcast": "a"}, "broadcast='a'"),
        ({"within": {"x": "1 second"}}, "within="),
        ({"inputs": {"a": stream, "b": stream, "c": stream}}, "b, c are streams"),
        ({"inputs": {"a": inputs["a"], "b": stream, "c": inputs["c"]}}, "is a stream and 'a' is not"),
        ({"inputs": {"a": stream, "b": inputs["b"]}, "how": "right"}, "might still find one, for ever"),
        ({"inputs": {"a": inputs["a"], "b": inputs["b"]}, "how": "full", "broadcast": "b"}, "no task sees"),
        ({"inputs": {"a": inputs["a"], "b": inputs["b"]}, "within": {"b": "1 second"}}, "of two inputs"),
        (
            {"inputs": {"a": stream, "b": stream}, "how": "full", "within": "1 second", "on": "a.v + b.v > concat(1)"},
            "come one by one",
        ),
    ]:
        told = {"inputs": inputs, "time": "t", **change}
        with pytest.raises(DovetailError, match=words):
            dt.asof_join(told.pop("inputs"), **told)

"""Aggregate joins in Spark: against Spark's own join and DuckDB, what they say, and what they refuse."""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from tests.nets.sessions import settings

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")

AGG = {
    "n": "count(*)", "total": "sum(q.v)", "mean": "avg(q.v)", "least": "min(q.v)", "most": "max(q.v)",
    "whole": "sum(q.id)", "spread": "stddev(q.v)", "at": "min_by(q.id, q.x)",
}  # fmt: skip
DUCK = {**AGG, "n": "count(q.id)", "at": "arg_min(q.id, (q.x, q.id))"}
DUCK = {name: text.replace("min_by", "arg_min") for name, text in DUCK.items()}


def inputs(spark, size: int, *, keys: int = 3, skewed: bool = False, seed: int = 1):
    """Two tables of doubles; skewed, nine of ten rows have one key and one value."""
    random = np.random.default_rng(seed)
    made = {}
    for alias in ("t", "q"):
        x, k = random.uniform(0, 100, size).round(2), random.integers(0, keys, size)
        if skewed:
            heavy = random.random(size) < 0.9
            x[heavy], k[heavy] = 50.0, 1
        columns = {"id": np.arange(size), "k": k, "x": x, "e": x + random.uniform(0, 5, size).round(2)}
        made[alias] = pa.table({**columns, "v": random.normal(1e6, 1, size)})
    return made, {alias: spark.createDataFrame(table) for alias, table in made.items()}


CONDITIONS = {
    "band": "q.x BETWEEN t.x - 3 AND t.x",
    "key and band": "q.k = t.k AND q.x BETWEEN t.x - 3 AND t.x",
    "half line": "q.x <= t.x",
    "key and half line": "q.k = t.k AND q.x > t.x",
    "key": "q.k = t.k",
    "overlap": "q.x <= t.e AND q.e >= t.x",
    "two ranges": "q.k = t.k AND q.x BETWEEN t.x - 9 AND t.x AND q.e BETWEEN t.x AND t.e",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("skewed", [False, True], ids=["even", "skewed"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_larger_data_gives_what_duckdb_gives(spark, name, skewed):
    tables, frames = inputs(spark, 1500, skewed=skewed)
    on = CONDITIONS[name]
    joined = dt.aggregate_join(frames, on=on, by="t", agg=AGG, broadcast=False, partitions=5)
    agrees_with_duckdb(joined, tables, on)


@pytest.mark.in_turns(group="several seconds")
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("name", ["band", "key and band", "overlap"])
def test_a_broadcast_in_parts_gives_what_duckdb_gives(spark, name, adaptive, monkeypatch):
    """As that of a larger side: it comes in several parts, and rows in blocks."""
    monkeypatch.setattr("dovetail.spark.joins.aggregate._SMALL", 0)
    tables, frames = inputs(spark, 1500)
    frames = {alias: frame.repartition(3) for alias, frame in frames.items()}
    with settings(spark, {"spark.sql.adaptive.enabled": adaptive}):
        joined = dt.aggregate_join(frames, on=CONDITIONS[name], by="t", agg=AGG, broadcast="q")
        agrees_with_duckdb(joined, tables, CONDITIONS[name])


def agrees_with_duckdb(joined, tables, on: str) -> None:
    found = joined.select("t.id", *AGG).orderBy("id").toArrow()
    connection = duckdb.connect()
    for alias, table in tables.items():
        connection.register(alias, table)
    texts = ", ".join(f"{text} AS {column}" for column, text in DUCK.items())
    query = f"SELECT t.id, {texts} FROM t LEFT JOIN q ON {on} GROUP BY t.id ORDER BY t.id"
    wanted = connection.sql(query).to_arrow_table()
    for column in ("id", "n", "least", "most", "at"):
        assert found.column(column).to_pylist() == wanted.column(column).to_pylist(), column
    whole = [None if value is None else int(value) for value in wanted.column("whole").to_pylist()]
    assert found.column("whole").to_pylist() == whole
    for column in ("total", "mean", "spread"):
        ours, theirs = (table.column(column).to_numpy(zero_copy_only=False) for table in (found, wanted))
        np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=1e-9, atol=1e-6, err_msg=column)


@pytest.mark.in_turns(group="several seconds")
def test_the_answer_does_not_depend_on_the_partitions(spark):
    _, frames = inputs(spark, 3000, skewed=True)
    answers = []
    for partitions, spread in ((1, 1), (7, 3), (16, 8)):
        some = {alias: frame.repartition(spread) for alias, frame in frames.items()}
        joined = dt.aggregate_join(
            some, on=CONDITIONS["key and half line"], by="t", agg=AGG, broadcast=False, partitions=partitions
        )
        answers.append(joined.select("t.id", *AGG).orderBy("id").collect())
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("empty", ["t", "q"])
@pytest.mark.parametrize("broadcast", [None, False])
def test_empty_sides(spark, how, empty, broadcast):
    _, frames = inputs(spark, 20)
    frames[empty] = frames[empty].limit(0)
    joined = dt.aggregate_join(frames, on="q.x <= t.x", by="t", agg=AGG, how=how, broadcast=broadcast)
    rows = joined.select("n", "total", "at").collect()
    assert [tuple(row) for row in rows] == ([(0, None, None)] * 20 if empty == "q" and how == "left" else [])


@pytest.mark.in_turns
@pytest.mark.parametrize("broadcast", [None, False])
def test_overflow_follows_ansi(spark, broadcast):
    t = spark.sql("SELECT 1 AS k")
    wide = "CAST('9e37' AS DECIMAL(38,0))"
    q = spark.sql(f"SELECT 1 AS k, 9223372036854775807L AS v, {wide} AS w UNION ALL SELECT 1, 1L, {wide}")
    frames = {"t": t, "q": q}
    for agg in ({"s": "sum(q.v)"}, {"s": "sum(q.w)"}, {"s": "avg(q.w)"}):
        with settings(spark, {"spark.sql.ansi.enabled": "false"}):
            pairs = t.alias("t").join(q.alias("q"), F.expr("q.k = t.k")).agg(F.expr(agg["s"]))
            ours = dt.aggregate_join(frames, on="q.k = t.k", by="t", agg=agg, broadcast=broadcast)
            assert ours.first().s == pairs.first()[0]
        with settings(spark, {"spark.sql.ansi.enabled": "true"}):
            ours = dt.aggregate_join(frames, on="q.k = t.k", by="t", agg=agg, broadcast=broadcast)
            with pytest.raises(Exception, match=re.escape(f"{agg['s']} overflows")):
                ours.collect()


@pytest.mark.in_turns(group="several seconds")
def test_columns_of_every_type_come_out_as_they_were(spark):
    t = spark.sql(
        "SELECT 1 AS k, array(struct(1 AS a)) AS a, INTERVAL 3 MONTHS AS m, map('x', NULL) AS n, "
        "CAST(1.5 AS DECIMAL(30,2)) AS w"
    )
    q = spark.sql(
        "SELECT 1 AS k, DATE'2024-01-01' AS d, TIMESTAMP'2024-01-01 10:00:00' AS ts, X'01' AS b, INTERVAL 3 DAYS AS i"
    )
    agg = {"D": "max(q.d)", "odd name": "min(q.ts)", "b": "max(q.b)", "i": "min(q.i)", "by": "min_by(q.ts, q.d)"}
    joined = dt.aggregate_join({"t": t, "q": q}, on="q.k = t.k", by="t", agg=agg, broadcast=False)
    assert joined.columns == ["t", *agg]
    assert joined.select("t.*").drop("m").collect() == t.drop("m").collect()
    assert joined.selectExpr("t.m = INTERVAL 3 MONTHS").first()[0]
    kinds = [field.dataType.simpleString() for field in joined.schema.fields[1:]]
    assert kinds == ["date", "timestamp", "binary", "interval day", "timestamp"]
    assert joined.select(*(F.col(f"`{name}`") for name in agg)).collect() == q.selectExpr(
        "d AS D", "ts AS `odd name`", "b", "i", "ts AS by"
    ).collect()  # fmt: skip


@pytest.mark.in_turns(group="several seconds")
def test_a_stream_asks_a_table(spark, tmp_path):
    _, frames = inputs(spark, 60)
    (tmp_path / "t").mkdir()
    frames["t"].coalesce(1).write.mode("overwrite").parquet(str(tmp_path / "t"))
    stream = spark.readStream.schema(frames["t"].schema).parquet(str(tmp_path / "t"))
    on = CONDITIONS["key and band"]
    joined = dt.aggregate_join({"t": stream, "q": frames["q"]}, on=on, by="t", agg=AGG)
    writer = joined.select("t.id", *AGG).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    try:
        assert query.awaitTermination(900)
    finally:
        query.stop()
    batch = dt.aggregate_join(frames, on=on, by="t", agg=AGG).select("t.id", *AGG).orderBy("id").collect()
    assert spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect() == batch
    assert dt.metrics(query)["results"] == 60
    assert pq.read_table(tmp_path / "out").num_rows == 60


@pytest.mark.in_turns(group="several seconds")
def test_what_counts_for_a_broadcast_is_what_travels(spark, capsys):
    q = spark.range(20_000).selectExpr("double(id) AS x", "id", *(f"concat('{at}', id) AS s{at}" for at in range(8)))
    t = spark.range(50).selectExpr("id", "double(id * 7) AS x")
    call = {"on": "q.x BETWEEN t.x - 3 AND t.x", "by": "t", "agg": {"n": "count(*)", "m": "max(q.id)"}}
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "500000"}):
        joined = dt.aggregate_join({"t": t, "q": q}, **call)
        dt.explain(joined)
        assert "no shuffle: the whole of q goes to every task: Spark estimates" in capsys.readouterr().out
        wide = dt.aggregate_join(
            {"t": t, "q": q}, **{**call, "agg": {**call["agg"], "s": "max(concat(q.s0, q.s1, q.s2))"}}
        )
        text = dt.theta_join({"t": t, "q": q}, on=call["on"])
        dt.explain(text)
        assert "the whole of q" not in capsys.readouterr().out
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        shuffled = dt.aggregate_join({"t": t, "q": q}, **call)
        dt.explain(shuffled)
        assert "no shuffle" not in capsys.readouterr().out
    assert joined.orderBy("t.id").collect() == shuffled.orderBy("t.id").collect()
    assert wide.drop("s").orderBy("t.id").collect() == shuffled.orderBy("t.id").collect()


def test_explain_and_metrics(spark, capsys):
    _, frames = inputs(spark, 200)
    joined = dt.aggregate_join(
        frames, on="q.k = t.k AND q.x <= t.x AND t.v > 0 AND q.v > 0", by="t", agg={"n": "count(*)", "m": "avg(q.v)"},
        broadcast=False, partitions=3,
    )  # fmt: skip
    dt.explain(joined)
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "aggregate join, batch, how='left': for each row of t, without forming pairs"
    assert "q keeps rows where (q.v > 0)" in text or "q keeps rows where q.v > 0" in text
    assert "count(*) AS n, avg(q.v) AS m" in text
    assert "prefix sums, exact prefix sums or trees of partial sums; cost follows rows, not matches" in text
    matches = joined.agg(F.sum("n")).first()[0]
    counted = dt.metrics(joined)
    assert (counted["matches"], counted["results"], counted["rows_points"]) == (matches, 200, 200)
    assert 200 <= counted["rows_boxes"] <= 400


def test_a_count_of_several_values_leaves_out_rows_with_a_null(spark, capsys):
    t = spark.sql("SELECT * FROM VALUES (1), (2), (3) AS t (k)")
    q = spark.sql(
        "SELECT * FROM VALUES (1, 1, 'a'), (1, NULL, 'b'), (1, 2, NULL), (1, 2, 'c'), (2, NULL, NULL) AS q (k, x, s)"
    )
    joined = dt.aggregate_join(
        t=t, q=q, on="q.k = t.k", by="t", agg={"n": "count(q.x, upper(q.s))", "one": "count(q.x)"}
    )
    dt.explain(joined)
    assert "without forming pairs" in capsys.readouterr().out
    assert sorted(joined.select("t.k", "n", "one").collect()) == [(1, 2, 3), (2, 0, 0), (3, 0, 0)]


def test_the_first_and_the_last_by_a_value(spark):
    _, frames = inputs(spark, 100)
    agg = {"first": "first(q.id ORDER BY q.x)", "last": "last_value(q.id ORDER BY q.x + q.e)"}
    same = {"first": "min_by(q.id, q.x)", "last": "max_by(q.id, q.x + q.e)"}
    one, other = (
        dt.aggregate_join(frames, on=CONDITIONS["key and band"], by="t", agg=some).orderBy("t.id").collect()
        for some in (agg, same)
    )
    assert one == other


REFUSED = {
    "nothing compared": ({"on": "q.x < 3"}, dt.PredicateError, "compares the two inputs nowhere"),
    "unknown alias": ({"by": "z"}, dt.UnknownNameError, "by='z'"),
    "a column": ({"by": "id"}, dt.UnknownNameError, "what must be equal goes into on="),
    "no aggregate": ({"agg": {}}, dt.ArgumentError, "agg={}"),
    "two in one": ({"agg": {"r": "max(q.x) - min(q.x)"}}, dt.ArgumentError, "is not one aggregate"),
    "filter": ({"agg": {"r": "sum(q.x) FILTER (WHERE q.k = 1)"}}, dt.ArgumentError, "CASE WHEN c THEN q.x END"),
    "first": ({"agg": {"r": "first(q.x)"}}, dt.ArgumentError, re.escape("first(q.price ORDER BY q.ts)")),
    "last": ({"agg": {"r": "last(q.x ORDER BY q.e DESC)"}}, dt.ArgumentError, "by one value"),
    "any": ({"agg": {"r": "any_value(q.x)"}}, dt.ArgumentError, "does not say which row"),
    "misspelled": ({"agg": {"r": "medain(q.x)"}}, dt.ArgumentError, "did you mean 'median'"),
    "no aggregate at all": ({"agg": {"r": "upper(q.x)"}}, dt.ArgumentError, "upper is not taken"),
    "too many": ({"agg": {"r": "median(q.x, q.e, q.v)"}}, dt.ArgumentError, "Spark cannot evaluate over the matches"),
    "random pairs": ({"agg": {"r": "median(q.x * rand())"}}, dt.PredicateError, "non-deterministic"),
    "unknown column": ({"agg": {"r": "sum(q.zz)"}}, dt.UnknownNameError, re.escape("agg['r'] names the column q.zz")),
    "sum of an array": ({"agg": {"r": "sum(array(q.x))"}}, dt.ArgumentError, "Spark cannot evaluate"),
    "alias as name": ({"agg": {"T": "count(*)"}}, dt.ArgumentError, "which is a column of the result"),
    "how": ({"how": "full"}, dt.ArgumentError, "how='full'"),
    "of pandas": ({"agg": {"r": "nunique(q.x)"}}, dt.ArgumentError, re.escape("hint: count(DISTINCT q.x)")),
    "a Column": ({"agg": {"r": 3}}, dt.ArgumentError, "hint: give the aggregate as SQL text"),
    "window": ({"window": "5 seconds"}, dt.ArgumentError, "accepted: within=, beside time="),
    "two ends": ({"time": "x", "within": (0, 5)}, dt.ArgumentError, re.escape("within={('t', 'q'): (0, 5)}")),
    "lateness": ({"lateness": "5 seconds"}, dt.ArgumentError, "withWatermark"),
    "broadcast": ({"broadcast": "t"}, dt.ArgumentError, "is the input that asks"),
    "arguments": ({"agg": {"r": "min_by(q.x)"}}, dt.ArgumentError, "1 argument"),
    "random": ({"agg": {"r": "sum(q.x * rand())"}}, dt.PredicateError, "non-deterministic"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(spark, case):
    changed, error, words = REFUSED[case]
    _, frames = inputs(spark, 5)
    call = {"on": "q.x <= t.x", "by": "t", "agg": {"n": "count(*)"}, **changed}
    with pytest.raises(error, match=words):
        dt.aggregate_join(frames, **call)


def test_a_stream_cannot_be_asked(spark, tmp_path):
    _, frames = inputs(spark, 5)
    (tmp_path / "q").mkdir()
    stream = spark.readStream.schema(frames["q"].schema).parquet(str(tmp_path / "q"))
    with pytest.raises(dt.ArgumentError, match="is a stream, and its rows answer"):
        dt.aggregate_join({"t": frames["t"], "q": stream}, on="q.x <= t.x", by="t", agg=AGG)


def moments(spark, size: int, seed: int):
    """Rows with a key, a time in seconds and a value, in the order of their times but for 3 seconds."""
    random = np.random.default_rng(seed)
    at = np.sort(random.uniform(0, 300, size) + random.uniform(0, 3, size)) - random.uniform(0, 3, size)
    rows = [
        (number, int(k), float(t), float(v))
        for number, (k, t, v) in enumerate(
            zip(random.integers(0, 3, size), at.clip(0.001), random.normal(0, 1, size).round(3), strict=True)
        )
    ]
    rows.append((size, 9, 10_000.0, 0.0))  # closes all windows
    frame = spark.createDataFrame(rows, "id INT, k INT, s DOUBLE, v DOUBLE")
    return frame.selectExpr("id", "k", "timestamp_micros(CAST(s * 1e6 AS BIGINT)) AS ts", "v")


@pytest.mark.in_turns(group="streams across a restart")
@pytest.mark.parametrize("on", ["q.k = t.k", None, "q.k = t.k AND q.v < t.v"], ids=["key", "no key", "range"])
def test_two_streams_give_what_batch_gives_across_a_restart(spark, tmp_path, on):
    frames = {alias: moments(spark, 60, seed) for seed, alias in enumerate("tq")}
    within = {("t", "q"): ("-10 seconds", "2 seconds")}
    call = {"on": on, "by": "t", "agg": {"n": "count(*)", "mean": "avg(q.v)", "last": "last(q.id ORDER BY q.ts)"}}
    streams = {}
    for alias, frame in frames.items():
        (tmp_path / alias).mkdir()
        schema = frame.schema
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / alias))
        streams[alias] = source.withWatermark("ts", "5 seconds")

    def arrive(first: int, last: int) -> None:
        for alias, frame in frames.items():
            for number in range(first, last, 20):
                part = frame.where(f"id >= {number} AND id < {number + 20}").toArrow()
                pq.write_table(part, tmp_path / alias / f"{number:03}.parquet")

    def run() -> dict:
        joined = dt.aggregate_join(streams, time="ts", within=within, **call)
        writer = joined.selectExpr("t.id", "t.v", "n", "mean", "last").writeStream.format("parquet")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        query = query.start(str(tmp_path / "out"))
        try:
            assert query.awaitTermination(900)
            return dt.metrics(query)
        finally:
            query.stop()

    arrive(0, 40)
    run()
    early = spark.read.parquet(str(tmp_path / "out")).count()
    arrive(40, 80)
    counted = run()
    assert counted["late"] == 0
    assert 0 < early < 60
    batch = dt.aggregate_join(frames, time="ts", within=within, **call).where("t.k < 9")
    wanted = batch.selectExpr("t.id", "t.v", "n", "mean", "last").orderBy("id").collect()
    assert sum(row.n for row in wanted) > 10
    assert spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect() == wanted
    assert counted["held_rows"] <= 2 + 2 * 3


def test_two_streams_say_what_they_do(spark, tmp_path, capsys):
    frames = {alias: moments(spark, 5, 1) for alias in "tq"}
    streams = {}
    for alias, frame in frames.items():
        (tmp_path / alias).mkdir()
        streams[alias] = spark.readStream.schema(frame.schema).parquet(str(tmp_path / alias))
    marked = {alias: stream.withWatermark("ts", "5 seconds") for alias, stream in streams.items()}
    call = {"on": "q.k = t.k", "by": "t", "agg": {"n": "count(*)"}, "time": "ts", "within": "10 seconds"}
    dt.explain(dt.aggregate_join(marked, **call))
    text = capsys.readouterr().out
    assert "aggregate join, streams t and q, how='left': for each row of t, without forming pairs" in text
    assert "comes out once the watermark has passed the end of its window" in text
    with pytest.raises(dt.UnboundedJoinError, match="without within="):
        dt.aggregate_join(marked, **{**call, "time": None, "within": None})
    with pytest.raises(dt.UnboundedJoinError, match="has no watermark"):
        dt.aggregate_join(streams, **call)
    with pytest.raises(dt.ArgumentError, match="within= without time="):
        dt.aggregate_join(marked, **{**call, "time": None})
    with pytest.raises(dt.ArgumentError, match="has to form the pairs"):
        dt.aggregate_join(marked, **{**call, "agg": {"m": "mode(q.v)"}})
    with pytest.raises(dt.ArgumentError, match="has to form the pairs"):
        dt.aggregate_join(marked, **{**call, "on": "q.id < t.id AND q.v < t.v"})
    with pytest.raises(dt.ArgumentError, match="of two streams"):
        dt.aggregate_join(marked, **call, broadcast="q")


@pytest.mark.in_turns(group="several seconds")
def test_a_window_is_a_condition(spark):
    frames = {alias: moments(spark, 80, seed) for seed, alias in enumerate("tq")}
    agg = {"n": "count(*)", "total": "sum(q.id)"}
    numbers = {alias: frame.selectExpr("*", "unix_micros(ts) AS m") for alias, frame in frames.items()}
    asked = "q.k = t.k AND q.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts"
    ways = [
        dt.aggregate_join(numbers, on=asked, by="t", agg=agg),
        dt.aggregate_join(
            numbers, on="q.k = t.k", time="ts", within={("q", "t"): dt.after("10 seconds")}, by="t", agg=agg
        ),
        dt.aggregate_join(
            numbers, on="q.k = t.k", time="m", within={("t", "q"): (-10_000_000, 0)}, by="t", agg=agg, broadcast=False
        ),
    ]
    answers = [way.orderBy("t.id").collect() for way in ways]
    assert answers[0] == answers[1] == answers[2]
    both = dt.aggregate_join(frames, time="ts", within="10 seconds", by="t", agg=agg).agg(F.sum("n")).first()[0]
    pairs = (
        frames["t"]
        .alias("t")
        .join(frames["q"].alias("q"), F.expr("abs(timestampdiff(MICROSECOND, t.ts, q.ts)) <= 1e7"))
    )
    assert both == pairs.count()


def test_what_others_call_the_arguments(spark):
    _, frames = inputs(spark, 5)
    with pytest.raises(dt.ArgumentError, match="aggregate_join needs by="):
        dt.aggregate_join(frames, on="q.x <= t.x", agg=AGG)
    with pytest.raises(dt.ArgumentError, match="aggregate_join has no argument aggs="):
        dt.aggregate_join(frames, on="q.x <= t.x", by="t", aggs=AGG)


@pytest.mark.in_turns
@pytest.mark.parametrize("broadcast", [None, False])
def test_counters_may_travel_among_the_rows(spark, broadcast, monkeypatch):
    """As they do on Spark Connect, which has no accumulators."""
    _, frames = inputs(spark, 50)
    call = {"on": CONDITIONS["key and band"], "by": "t", "agg": AGG, "broadcast": broadcast}
    usual = dt.aggregate_join(frames, **call).orderBy("t.id").collect()
    monkeypatch.setattr("dovetail.spark.metrics.is_remote", lambda: True)
    joined = dt.aggregate_join(frames, **call)
    assert joined.orderBy("t.id").collect() == usual
    assert dt.metrics(joined)["results"] == 50

"""Nearest joins in Spark: against DuckDB, streams, what they say, and what they refuse."""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")

DISTANCES = {
    "line": ("ABS(r.x - s.x)", "abs(r.x - s.x)"),
    "whole": ("ABS(r.n - s.n)", "abs(r.n - s.n)"),
    "plane": ("HYPOT(r.x - s.x, r.y - s.y)", "sqrt((r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y))"),
    "space": (
        "DISTANCE(r.x - s.x, 2 * (r.y - s.y), r.z - s.z)",
        "sqrt((r.x - s.x) * (r.x - s.x) + (2 * (r.y - s.y)) * (2 * (r.y - s.y)) + (r.z - s.z) * (r.z - s.z))",
    ),
}


def inputs(spark, size: int, *, keys: int = 3, skewed: bool = False, seed: int = 1):
    """Two tables of places; skewed, nine of ten rows have one key, and lie close together."""
    random = np.random.default_rng(seed)
    made = {}
    for alias in ("r", "s"):
        places, k = random.uniform(0, 100, (3, size)).round(1), random.integers(0, keys, size)
        if skewed:
            heavy = random.random(size) < 0.9
            places[:, heavy] = random.normal(50, 0.01, (3, int(heavy.sum()))).round(3)
            k[heavy] = 1
        columns = {"id": np.arange(size), "k": k, "n": random.integers(0, size, size)}
        made[alias] = pa.table({**columns, **dict(zip("xyz", places, strict=True))})
    return made, {alias: spark.createDataFrame(table) for alias, table in made.items()}


@pytest.mark.in_turns
@pytest.mark.parametrize("skewed", [False, True], ids=["even", "skewed"])
@pytest.mark.parametrize("keyed", [False, True], ids=["all", "keyed"])
@pytest.mark.parametrize("name", DISTANCES)
def test_larger_data_gives_what_duckdb_gives(spark, name, keyed, skewed):
    tables, frames = inputs(spark, 1500, skewed=skewed)
    on, computed = DISTANCES[name]
    joined = dt.nearest_join(frames, on=on, by="k" if keyed else None, k=3, broadcast=False, partitions=5)
    found = joined.selectExpr("r.id AS r", "s.id AS s", "distance", "rank").orderBy("r", "s").toArrow()
    connection = duckdb.connect()
    for alias, table in tables.items():
        connection.register(alias, table)
    equal = "r.k = s.k" if keyed else "TRUE"
    wanted = connection.sql(
        f"SELECT r.id AS r, s.id AS s, {computed} AS distance, "
        f"rank() OVER (PARTITION BY r.id ORDER BY {computed}) AS place FROM r JOIN s ON {equal} "
        "QUALIFY place <= 3 ORDER BY 1, 2"
    ).to_arrow_table()
    for ours, theirs in zip(found.columns, wanted.columns, strict=True):
        assert ours.to_pylist() == theirs.to_pylist()
    assert found.num_rows >= 4000


@pytest.mark.in_turns(group="several seconds")
def test_the_answer_does_not_depend_on_the_partitions(spark):
    _, frames = inputs(spark, 3000, skewed=True)
    answers = []
    for partitions, spread in ((1, 1), (7, 3), (16, 8)):
        some = {alias: frame.repartition(spread) for alias, frame in frames.items()}
        joined = dt.nearest_join(
            some, on=DISTANCES["plane"][0], k=4, ties="first", broadcast=False, partitions=partitions
        )
        answers.append(joined.orderBy("r.id", "rank").collect())
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 12_000


def test_neighbours_are_found_however_far_away(spark):
    """Two clusters a million kilometres apart, and nothing between them."""
    size = 4000
    s = spark.range(size).selectExpr("id", "1e9 + rand(1) AS x", "rand(2) AS y").localCheckpoint()
    r = spark.range(size).selectExpr("id", "rand(3) AS x", "-1e9 + rand(4) AS y").localCheckpoint()
    joined = dt.nearest_join({"r": r, "s": s}, on="HYPOT(r.x - s.x, r.y - s.y)", k=2, broadcast=False, ties="first")
    assert joined.count() == 2 * size
    assert dt.metrics(joined)["rows_points"] == size


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("empty", ["r", "s"])
@pytest.mark.parametrize("broadcast", [None, False])
def test_empty_sides(spark, how, empty, broadcast):
    _, frames = inputs(spark, 20)
    frames[empty] = frames[empty].limit(0)
    joined = dt.nearest_join(frames, on="ABS(r.x - s.x)", how=how, broadcast=broadcast)
    rows = joined.selectExpr("s IS NULL", "distance", "rank").collect()
    assert [tuple(row) for row in rows] == ([(True, None, None)] * 20 if empty == "s" and how == "left" else [])


def test_on_the_earth(spark):
    cities = spark.createDataFrame(
        [("Oslo", 59.91, 10.75), ("Suva", -18.14, 178.44), ("Apia", -13.83, -171.77), ("nowhere", 95.0, 0.0)],
        "name string, lat double, lon double",
    )
    calls = [
        dt.nearest_join(
            {"a": cities, "b": cities}, on="HAVERSINE(a.lat, a.lon, b.lat, b.lon) AND b.name <> 'Oslo'", k=2,
            how="left", broadcast=small,
        )
        for small in ("b", False)
    ]  # fmt: skip
    for joined in calls:
        rows = joined.selectExpr("a.name", "b.name", "round(distance / 1000)").collect()
        assert sorted(map(tuple, rows), key=str) == sorted([
            ("Oslo", "Apia", 14887.0), ("Oslo", "Suva", 15267.0), ("Suva", "Suva", 0.0), ("Suva", "Apia", 1151.0),
            ("Apia", "Apia", 0.0), ("Apia", "Suva", 1151.0), ("nowhere", None, None),
        ], key=str)  # fmt: skip


def test_columns_of_every_type_come_out_as_they_were(spark):
    s = spark.sql(
        "SELECT 1 AS x, array(struct(1 AS a)) AS a, INTERVAL 3 MONTHS AS m, map('x', NULL) AS n, "
        "CAST(1.5 AS DECIMAL(30,2)) AS w"
    )
    r = spark.sql("SELECT 4 AS x, map('y', 2) AS n, INTERVAL 2 YEARS AS m")
    for broadcast in ("s", False):
        joined = dt.nearest_join({"r": r, "s": s}, on="ABS(r.x - s.x)", ties="first", broadcast=broadcast)
        assert joined.columns == ["r", "s", "distance", "rank"]
        assert joined.select("s.*").drop("m").collect() == s.drop("m").collect()
        assert joined.selectExpr("s.m = INTERVAL 3 MONTHS AND r.m = INTERVAL 2 YEARS").first()[0]
        assert joined.selectExpr("distance", "rank").first() == (3, 1)


DISTANCE_TYPES = {
    "1": "bigint", "1L": "bigint", "CAST(1 AS FLOAT)": "double", "1.5": "decimal(3,1)", "1D": "double",
    "DATE'2024-01-01'": "interval day", "TIMESTAMP'2024-01-01'": "interval day to second",
    "TIMESTAMP_NTZ'2024-01-01'": "interval day to second", "INTERVAL 3 DAYS": "interval day to second",
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("value", DISTANCE_TYPES)
def test_types_of_distances(spark, value):
    frame = spark.sql(f"SELECT {value} AS x")
    for broadcast in ("s", False):
        joined = dt.nearest_join({"r": frame, "s": frame}, on="ABS(r.x - s.x)", broadcast=broadcast)
        assert dict(joined.dtypes)["distance"] == DISTANCE_TYPES[value]
        assert joined.selectExpr("distance = abs(r.x - s.x)").first()[0]


def test_a_distance_too_large_for_its_type_is_told(spark):
    r, s = spark.sql("SELECT 9223372036854775807L AS x"), spark.sql("SELECT -9223372036854775808L AS x")
    joined = dt.nearest_join({"r": r, "s": s}, on="ABS(r.x - s.x)")
    with pytest.raises(Exception, match="18,446,744,073,709,551,615 does not fit the type of the column distance"):
        joined.collect()
    as_double = dt.nearest_join({"r": r, "s": s}, on="ABS(CAST(r.x AS DOUBLE) - s.x)")
    assert as_double.first().distance == 2.0**64
    assert dt.nearest_join({"r": r, "s": s}, on="ABS(r.x - s.x)", within=100, how="left").first().s is None


@pytest.mark.in_turns(group="several seconds")
def test_largest_distances(spark):
    r = spark.sql("SELECT TIMESTAMP'2024-01-01 12:00:00' AS t, 10 AS n, 10D AS x")
    s = r.selectExpr("t + INTERVAL 5 SECONDS AS t", "n + 5 AS n", "x + 5 AS x")

    def found(on, **more):
        return dt.nearest_join({"r": r, "s": s}, on=on, **more).count()

    for column, near, far in (("t", "INTERVAL 5 SECONDS", "INTERVAL 4 SECONDS"), ("n", "5", "4.9"), ("x", "5", "4.9")):
        on = f"ABS(r.{column} - s.{column})"
        assert (found(f"{on} <= {near}"), found(f"{on} <= {far}"), found(f"{on} < {near}")) == (1, 0, 0)
    assert (found("ABS(r.t - s.t)", within="5 seconds"), found("ABS(r.t - s.t)", within="4 seconds")) == (1, 0)
    assert (found("ABS(r.n - s.n)", within=5), found("ABS(r.x - s.x)", within=4.5)) == (1, 0)


def test_a_column_is_a_distance_as_well(spark):
    _, frames = inputs(spark, 30)
    column = F.hypot(F.col("r.x") - F.col("s.x"), F.col("r.y") - F.col("s.y"))
    ours, text = (dt.nearest_join(frames, on=on, k=2) for on in (column, DISTANCES["plane"][0]))
    assert ours.orderBy("r.id", "s.id").collect() == text.orderBy("r.id", "s.id").collect()


def test_conditions_beside_the_distance(spark):
    tables, frames = inputs(spark, 200)
    on = "r.k = s.k AND s.z > 50 AND r.z > 30 AND ABS(r.x - s.x) <= 20"
    for how in ("inner", "left"):
        joined = dt.nearest_join(frames, on=on, k=2, how=how, broadcast=False)
        r, s = (table.to_pandas() for table in tables.values())
        pairs = r.merge(s[s.z > 50], on="k", suffixes=("", "_s"))
        pairs = pairs[(pairs.z > 30) & ((pairs.x - pairs.x_s).abs() <= 20)]
        pairs["far"] = (pairs.x - pairs.x_s).abs()
        kept = pairs[pairs.groupby("id").far.rank(method="min") <= 2]
        wanted = sorted(zip(kept.id.tolist(), kept.id_s.tolist(), strict=True))
        rows = joined.selectExpr("r.id", "s.id").collect()
        assert sorted((a, b) for a, b in rows if b is not None) == wanted
        unmatched = {a for a, b in rows if b is None}
        assert unmatched == (set(r.id) - set(kept.id) if how == "left" else set())


def test_a_stream_asks_a_table(spark, tmp_path):
    _, frames = inputs(spark, 60)
    frames["r"].coalesce(1).write.mode("overwrite").parquet(str(tmp_path / "r"))
    stream = spark.readStream.schema(frames["r"].schema).parquet(str(tmp_path / "r"))
    joined = dt.nearest_join({"r": stream, "s": frames["s"]}, on=DISTANCES["plane"][0], by="k", k=2)
    shown = ("r.id AS r", "s.id AS s", "distance", "rank")
    writer = joined.selectExpr(*shown).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    try:
        assert query.awaitTermination(900)
    finally:
        query.stop()
    batch = dt.nearest_join(frames, on=DISTANCES["plane"][0], by="k", k=2).selectExpr(*shown)
    assert spark.read.parquet(str(tmp_path / "out")).orderBy("r", "s").collect() == batch.orderBy("r", "s").collect()
    assert dt.metrics(query)["results"] == pq.read_table(tmp_path / "out").num_rows


def test_a_stream_cannot_be_asked(spark, tmp_path):
    _, frames = inputs(spark, 5)
    (tmp_path / "s").mkdir()
    stream = spark.readStream.schema(frames["s"].schema).parquet(str(tmp_path / "s"))
    for r, words in ((frames["r"], "a nearer row may always come"), (stream, "that is nearer might always come")):
        with pytest.raises(dt.UnboundedJoinError, match=words):
            dt.nearest_join({"r": r, "s": stream}, on="ABS(r.x - s.x)")


def test_explain_and_metrics(spark, capsys):
    _, frames = inputs(spark, 200)
    joined = dt.nearest_join(
        frames, on="r.k = s.k AND s.z > 1 AND HYPOT(r.x - s.x, r.y - s.y) < 90", k=2, broadcast=False, partitions=3,
        ties="first",
    )  # fmt: skip
    dt.explain(joined)
    text = capsys.readouterr().out
    assert text.splitlines() == [
        "nearest join, batch, how='inner'",
        "  for each  row of r, the 2 nearest rows of s by HYPOT(r.x - s.x, r.y - s.y), less than 90 away",
        "  first     s keeps rows where s.z > 1",
        "  where     r.k = s.k",
        "  ties      of equally near rows those that come first by the columns of s, from left to right",
        "  kernel    s in a k-d tree, searched from the nearest box outward",
        "  routing   cells cut from a 1/128 sample of both sides, read within the same action; r to the cells that may "
        "hold its 2 nearest, as near as in the sample of s; 3 shuffle partitions of packed segments; the nearest of "
        "all cells in a second",
    ]
    counted = joined.count()
    found = dt.metrics(joined)
    assert (found["results"], found["rows_points"]) == (counted, frames["s"].where("z > 1").count())
    assert found["rows_boxes"] >= 200
    assert found["candidates"] >= counted


REFUSED = {
    "a time for a distance": (
        {"on": "HYPOT(r.x - s.x, r.y - s.y)", "within": "5 s"},
        dt.UnsupportedTypeError,
        "is window=",
    ),
    "two ends": (
        {"on": "ABS(r.x - s.x)", "time": "n", "window": (-3, 0)},
        dt.ArgumentError,
        "{('r', 's'): (-3, 0)}",
    ),
    "lateness": ({"on": "ABS(r.x - s.x)", "lateness": "5 s"}, dt.ArgumentError, "withWatermark"),
    "no distance": ({"on": "r.k = s.k"}, dt.PredicateError, "holds no distance"),
    "two distances": ({"on": "ABS(r.x - s.x) AND ABS(r.y - s.y)"}, dt.PredicateError, "holds 2 distances"),
    "a band beside it": ({"on": "ABS(r.x - s.x) AND r.y < s.y"}, dt.PredicateError, "beside the distance"),
    "at least": ({"on": "ABS(r.x - s.x) >= 3"}, dt.PredicateError, "is compared with 3"),
    "one input": ({"on": "DISTANCE(r.x - r.y)"}, dt.PredicateError, "holds r.x - r.y"),
    "four": ({"on": "DISTANCE(r.x - s.x, r.y - s.y, r.z - s.z, r.n - s.n)"}, dt.PredicateError, "has 4 dimensions"),
    "weight": ({"on": "DISTANCE(2 * (r.x - s.x))"}, dt.PredicateError, "weighs the only difference"),
    "earth": ({"on": "HAVERSINE(r.x, s.x, r.y, s.y)"}, dt.PredicateError, "is no distance on the Earth"),
    "text": ({"on": "ABS(r.t - s.t)"}, dt.UnsupportedTypeError, "measures r.t, of type string"),
    "time in the plane": ({"on": "HYPOT(r.x - s.x, r.d - s.d)"}, dt.UnsupportedTypeError, "unix_micros"),
    "wide": ({"on": "ABS(r.w - s.w)"}, dt.UnsupportedTypeError, "at most 18 digits"),
    "k": ({"k": 0}, dt.ArgumentError, "k=0"),
    "k as text": ({"k": "3"}, dt.ArgumentError, "k='3'"),
    "ties": ({"ties": "last"}, dt.ArgumentError, "ties='last'"),
    "how": ({"how": "full"}, dt.ArgumentError, "how='full'"),
    "within": ({"within": -1}, dt.ArgumentError, "within=-1"),
    "nan": ({"within": float("nan")}, dt.ArgumentError, "within=nan"),
    "length of a number": ({"within": "5 seconds"}, dt.UnsupportedTypeError, "no number"),
    "number between dates": ({"on": "ABS(r.d - s.d)", "within": 3}, dt.UnsupportedTypeError, "a length of time"),
    "both": ({"on": "ABS(r.x - s.x) <= 3", "within": 3}, dt.ArgumentError, "bounds the distance as well"),
    "by": ({"by": "zz"}, dt.UnknownNameError, "names the column r.zz"),
    "unknown": ({"on": "ABS(r.zz - s.x)"}, dt.UnknownNameError, "zz"),
    "broadcast": ({"broadcast": "r"}, dt.ArgumentError, "is the input that asks"),
    "unknown broadcast": ({"broadcast": "z"}, dt.UnknownNameError, "broadcast='z'"),
    "random": ({"on": "ABS(r.x - s.x * rand())"}, dt.PredicateError, "non-deterministic"),
    "sample": ({"sample": 3}, dt.ArgumentError, "sample=3"),
}


@pytest.fixture(scope="module")
def few(spark):
    columns = ("1D AS x", "2D AS y", "3D AS z", "4 AS n", "5 AS k", "'a' AS t", "DATE'2024-01-01' AS d")
    frame = spark.range(1).selectExpr(*columns, "CAST(1 AS DECIMAL(30,2)) AS w")
    return {"r": frame, "s": frame}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(few, case):
    changed, error, words = REFUSED[case]
    with pytest.raises(error, match=re.escape(words)):
        dt.nearest_join(few, **{"on": "ABS(r.x - s.x)", **changed})


def test_names_and_numbers_of_inputs(few):
    with pytest.raises(dt.ArgumentError, match="nearest_join with 3 inputs"):
        dt.nearest_join({**few, "q": few["r"]}, on="ABS(r.x - s.x)")
    with pytest.raises(dt.ArgumentError, match="as a column of the result is"):
        dt.nearest_join({"Rank": few["r"], "s": few["s"]}, on="ABS(Rank.x - s.x)")
    with pytest.raises(dt.ArgumentError, match="nearest_join needs on="):
        dt.nearest_join(few, k=3)
    with pytest.raises(dt.ArgumentError, match="nearest_join has no argument n_neighbors="):
        dt.nearest_join(few, on="ABS(r.x - s.x)", n_neighbors=3)


@pytest.mark.in_turns
@pytest.mark.parametrize("broadcast", [None, False])
def test_counters_may_travel_among_the_rows(spark, broadcast, monkeypatch):
    """As they do on Spark Connect, which has no accumulators."""
    _, frames = inputs(spark, 50)
    call = {"on": DISTANCES["plane"][0], "k": 2, "broadcast": broadcast, "ties": "first"}
    usual = dt.nearest_join(frames, **call).orderBy("r.id", "rank").collect()
    monkeypatch.setattr("dovetail.spark.metrics.is_remote", lambda: True)
    joined = dt.nearest_join(frames, **call)
    assert joined.orderBy("r.id", "rank").collect() == usual
    assert dt.metrics(joined)["results"] == 100


@pytest.mark.in_turns
@pytest.mark.parametrize("side", ["", "LEFT"])
def test_statements_give_what_spark_gives(spark, side):
    _, frames = inputs(spark, 40)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"{name}_of_sql")
    far = "sqrt((r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y))"
    found = dt.sql(
        f"SELECT r.id, s.id AS other, s.*, distance, rank * 2 AS twice FROM r {side} NEAREST 2 JOIN s "
        "ON r.k = s.k AND SQRT(POW(r.x - s.x, 2) + POW(r.y - s.y, 2)) <= 15 TIES ALL WHERE r.n < 30 "
        "ORDER BY r.id, other",
        **frames,
    )
    wanted = spark.sql(
        f"SELECT r.id, p.s.id AS other, p.s.*, p.distance, p.n * 2 AS twice FROM r_of_sql r {side or 'INNER'} JOIN ("
        f"SELECT r.id AS rid, struct(s.*) AS s, {far} AS distance, rank() OVER (PARTITION BY r.id ORDER BY {far}) AS n "
        f"FROM r_of_sql r JOIN s_of_sql s ON r.k = s.k AND {far} <= 15) p ON p.rid = r.id AND p.n <= 2 "
        "WHERE r.n < 30 ORDER BY r.id, other"
    )
    assert found.columns == wanted.columns
    assert found.collect() == wanted.collect()
    assert found.count() > 10
    everything = dt.sql("SELECT * FROM r NEAREST JOIN s ON ABS(r.x - s.x)", **frames)
    assert everything.columns == [*frames["r"].columns, *frames["s"].columns, "distance", "rank"]


def test_a_statement_with_relations_on_the_left(spark):
    _, frames = inputs(spark, 30)
    found = dt.sql(
        "SELECT a.id, b.id AS b, s.id AS s FROM r AS a JOIN r AS b ON a.id = b.id "
        "NEAREST JOIN s ON ABS(b.x - s.x) AND s.k = a.k TIES FIRST ORDER BY a.id",
        **frames,
    )
    wanted = dt.nearest_join(frames, on="ABS(r.x - s.x)", by="k", ties="first").orderBy("r.id")
    assert found.collect() == wanted.selectExpr("r.id", "r.id AS b", "s.id AS s").collect()

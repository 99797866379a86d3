"""Tables of Delta Lake and Iceberg as sources and sinks, in batch and in streams; time travel; MERGE of changes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import dovetail as dt

pytestmark = pytest.mark.tables

NOON = datetime(2026, 3, 1, 12)
COLUMNS = "id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMP"
PATIENCE = 900


def rows(seed: int, first: int, count: int) -> list[tuple[int, int | None, int, datetime]]:
    """Rows a second apart and slightly out of order, some without a key."""
    random = np.random.default_rng([seed, first])
    return [
        (
            first + at,
            None if random.random() < 0.05 else int(random.integers(0, 4)),
            int(random.integers(0, 50)),
            NOON + timedelta(milliseconds=1000 * (first + at) - int(random.integers(0, 2000))),
        )
        for at in range(count)
    ]


def make(spark, lake, several: dict[str, list]) -> dict[str, str]:
    """Tables with these rows; their names by role."""
    names = {role: lake.name(role.lower()) for role in several}
    for role, name in names.items():
        spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING {lake.format}")
        append(spark, name, several[role])
    return names


def append(spark, name: str, several: list) -> None:
    spark.createDataFrame(several, COLUMNS).writeTo(name).append()


def nested_loop(left: list, right: list) -> Counter:
    """The pairs of one key at most three seconds apart."""
    return Counter(
        (a[0], b[0])
        for a, b in product(left, right)
        if a[1] is not None and a[1] == b[1] and abs(a[3] - b[3]) <= timedelta(seconds=3)
    )


def joined(inputs):
    pairs = dt.window_join(inputs, on="A.k = B.k", time="ts", within="3 seconds", partitions=2)
    return pairs.selectExpr("A.id AS a", "B.id AS b")


def held(spark, name: str, where: str = "TRUE") -> Counter:
    return Counter((row.a, row.b) for row in spark.table(name).where(where).select("a", "b").collect())


def test_batch_reads_tables_and_writes_one(spark, lake):
    data = {"A": rows(1, 0, 60), "B": rows(2, 0, 60)}
    names, out = make(spark, lake, data), lake.name("out")
    # Names of tables are inputs as they are.
    joined(names).writeTo(out).using(lake.format).create()
    wanted = nested_loop(data["A"], data["B"])
    assert len(wanted) > 20
    assert held(spark, out) == wanted


def first_version(spark, lake, name: str) -> int:
    if lake.format == "delta":
        # The table was made in version 0, and first filled in version 1.
        return 1
    return spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at LIMIT 1").first()[0]


def test_a_join_of_what_a_table_was(spark, lake):
    data = {"A": rows(3, 0, 40), "B": rows(4, 0, 40)}
    names = make(spark, lake, data)
    before = first_version(spark, lake, names["A"])
    later = rows(3, 40, 40)
    append(spark, names["A"], later)
    then = spark.sql(f"SELECT * FROM {names['A']} VERSION AS OF {before}")
    for left, wanted in ((then, data["A"]), (names["A"], data["A"] + later)):
        found = joined({"A": left, "B": names["B"]}).collect()
        assert Counter(map(tuple, found)) == nested_loop(wanted, data["B"])
    # What the two versions differ by, by a join of them.
    grown = dt.theta_join({"now": spark.table(names["A"]), "old": then}, on="now.id = old.id", how="anti")
    assert {row.id for row in grown.select("now.id").collect()} == {row[0] for row in later}


def streams(spark, names: dict[str, str]):
    return {role: spark.readStream.table(name).withWatermark("ts", "5 seconds") for role, name in names.items()}


def to_table(frame, out: str, place: Path, form: str) -> None:
    """Run over all that is there now."""
    writer = frame.writeStream.option("checkpointLocation", str(place)).trigger(availableNow=True)
    query = writer.toTable(out, format=form)
    assert query.awaitTermination(PATIENCE)
    assert query.exception() is None


def test_a_stream_of_tables_into_a_table_goes_on_where_it_was(spark, lake, tmp_path):
    data = {"A": rows(5, 0, 40), "B": rows(6, 0, 40)}
    names, out = make(spark, lake, data), lake.name("out")
    spark.sql(f"CREATE TABLE {out} (a BIGINT, b BIGINT) USING {lake.format}")
    to_table(joined(streams(spark, names)), out, tmp_path, lake.format)
    assert held(spark, out) == nested_loop(data["A"], data["B"])
    for role, seed in (("A", 5), ("B", 6)):
        later = rows(seed, 40, 30)
        append(spark, names[role], later)
        data[role] = data[role] + later
    to_table(joined(streams(spark, names)), out, tmp_path, lake.format)
    assert held(spark, out) == nested_loop(data["A"], data["B"])


def test_a_stream_beside_a_table_reads_it_as_it_is(spark, lake, tmp_path):
    data = {"A": rows(7, 0, 20), "B": rows(8, 0, 20)}
    names, out = make(spark, lake, data), lake.name("out")
    spark.sql(f"CREATE TABLE {out} (a BIGINT, b BIGINT) USING {lake.format}")

    def near():
        inputs = {"A": spark.readStream.table(names["A"]), "B": spark.table(names["B"])}
        return dt.theta_join(inputs, on="ABS(A.v - B.v) <= 1").selectExpr("A.id AS a", "B.id AS b")

    def wanted(left, right):
        return Counter((a[0], b[0]) for a, b in product(left, right) if abs(a[2] - b[2]) <= 1)

    to_table(near(), out, tmp_path, lake.format)
    first = wanted(data["A"], data["B"])
    assert held(spark, out) == first
    later = {"A": rows(7, 20, 20), "B": rows(8, 20, 20)}
    for role in "AB":
        append(spark, names[role], later[role])
    to_table(near(), out, tmp_path, lake.format)
    assert held(spark, out) == first + wanted(later["A"], data["B"] + later["B"])


MERGE = """
    MERGE INTO {table} AS t USING changes AS c ON t.a = c.a AND t.b = c.b
    WHEN MATCHED AND c.change = 'retract' THEN DELETE
    WHEN NOT MATCHED AND c.change = 'insert' THEN INSERT (a, b) VALUES (c.a, c.b)
"""


def best(left: list, right: list) -> Counter:
    """The best pairs of each key by distance in time and in value, as nested loops."""
    pairs = [
        (a[0], b[0], a[1], abs(a[3] - b[3]), abs(a[2] - b[2]))
        for a, b in product(left, right)
        if a[1] is not None and a[1] == b[1] and abs(a[3] - b[3]) <= timedelta(seconds=30) and abs(a[2] - b[2]) <= 20
    ]

    def beaten(p) -> bool:
        return any(q[2] == p[2] and q[3] <= p[3] and q[4] <= p[4] and (q[3] < p[3] or q[4] < p[4]) for q in pairs)

    return Counter((p[0], p[1]) for p in pairs if not beaten(p))


def test_retractions_of_a_best_match_stream_are_merged_into_a_table(spark, lake, tmp_path):
    data = {"A": rows(9, 0, 20), "B": rows(10, 0, 20)}
    names, out = make(spark, lake, data), lake.name("best")
    spark.sql(f"CREATE TABLE {out} (a BIGINT, b BIGINT) USING {lake.format}")
    retracted = Counter()

    def apply(changes, batch: int) -> None:
        # A pair that came and went in one micro-batch is gone: 'retract' is the larger word.
        net = changes.groupBy("a", "b").agg({"change": "max"}).withColumnRenamed("max(change)", "change").persist()
        net.createOrReplaceTempView("changes")
        retracted[batch] += net.where("change = 'retract'").count()
        # Twice, as after a crash between the MERGE and Spark's own commit.
        for _ in range(2):
            net.sparkSession.sql(MERGE.format(table=out))
        net.unpersist()

    def run() -> None:
        criteria = [dt.closest("ts", within="30 seconds"), dt.closest("v", within=20)]
        pairs = dt.bestmatch_join(streams(spark, names), on=criteria, by="k")
        changes = pairs.selectExpr("A.id AS a", "B.id AS b", "_change AS change")
        writer = changes.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)
        assert query.exception() is None

    for first in (0, 20, 40, 60):
        if first:
            for role, seed in (("A", 9), ("B", 10)):
                later = rows(seed, first, 20)
                append(spark, names[role], later)
                data[role] = data[role] + later
        run()
        assert held(spark, out) == best(data["A"], data["B"])
    assert retracted.total() > 0

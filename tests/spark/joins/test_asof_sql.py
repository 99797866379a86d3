"""``ASOF JOIN`` in SQL beside DuckDB's, over drawn tables without ties, which DuckDB may break as it likes."""

from __future__ import annotations

import random
from collections import Counter

import pandas as pd
import pytest

import dovetail as dt

duckdb = pytest.importorskip("duckdb")

HOWS = ("", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")


@pytest.fixture(scope="module")
def tables(spark):
    """Trades and quotes with keys that are NULL or unknown to the other side, and times that no two quotes share."""
    draw = random.Random(11)
    times = draw.sample(range(90), 40)
    quotes = [(draw.choice(["a", "b", "c", None]), t, draw.randrange(10), f"q{n}") for n, t in enumerate(times)]
    trades = [(draw.choice(["a", "b", "d", None]), draw.randrange(90), draw.randrange(10), n) for n in range(30)]
    frames = {
        "t": spark.createDataFrame(trades, "k string, ts int, p int, n int"),
        "q": spark.createDataFrame(quotes, "k string, ts int, b int, id string"),
    }
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    connection = duckdb.connect()
    for name, frame in frames.items():
        connection.register(f"{name}_", pd.DataFrame(frame.toPandas()).astype(object))
        types = ", ".join(f"{c}::{'VARCHAR' if c in ('k', 'id') else 'INT'} AS {c}" for c in frame.columns)
        connection.sql(f"CREATE TABLE {name} AS SELECT {types} FROM {name}_")
    yield connection
    connection.close()
    for name in frames:
        spark.catalog.dropTempView(name)


def rows(found: list) -> Counter:
    return Counter(tuple(row) for row in found)


CONDITIONS = {
    "ON t.k = q.k AND t.ts >= q.ts": None,
    "ON t.ts > q.ts": None,
    "ON t.k = q.k AND t.ts <= q.ts": None,
    "USING (k, ts)": None,
    "USING (ts)": None,
    "ON t.k IS NOT DISTINCT FROM q.k AND t.ts >= q.ts": None,
    "ON t.k = q.k AND t.ts >= q.ts AND q.b > 4": None,
    "ON t.k = q.k AND t.ts >= q.ts AND t.p > 4": None,
    "ON t.k = q.k AND t.ts >= q.ts AND t.p <> q.b": None,
    "ON t.k = q.k AND t.ts >= q.ts AND (t.p + q.b) % 3 <> 0": None,
    # DuckDB takes one inequality, so that its form of a second one is a difference.
    "ON t.k = q.k AND t.ts >= q.ts AND t.p > q.b": "ON t.k = q.k AND t.ts >= q.ts AND t.p - q.b > 0",
    "MATCH_CONDITION (t.ts >= q.ts) ON t.p > q.b": "ON t.ts >= q.ts AND t.p - q.b > 0",
    "MATCH_CONDITION (t.ts < q.ts) USING (k)": "ON t.k = q.k AND t.ts < q.ts",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_join_is_that_of_duckdb(spark, tables, condition):
    place = list(CONDITIONS).index(condition)
    for how in HOWS if place < 4 else HOWS[place % 2 :: 2]:
        columns = "t.k, t.ts, p, n" if how in ("SEMI", "ANTI") else "t.k, t.ts, p, n, q.k, q.ts, b, id"
        theirs = answer(tables, how, columns, CONDITIONS[condition] or condition)
        ours = dt.sql(f"SELECT {columns} FROM t ASOF {how} JOIN q {condition}")
        assert rows(ours.collect()) == rows(theirs), how
        assert how == "ANTI" or theirs


def answer(tables, how: str, columns: str, condition: str) -> list:
    """DuckDB's rows; where it has no such join, those of its left one, and the rows of q that it does not have."""
    try:
        return tables.sql(f"SELECT {columns} FROM t ASOF {how} JOIN q {condition}").fetchall()
    except duckdb.NotImplementedException:
        pairs = tables.sql(f"SELECT {columns} FROM t ASOF LEFT JOIN q {condition}").fetchall()
        if how in ("SEMI", "ANTI"):
            ids = tables.sql(f"SELECT n, id FROM t ASOF LEFT JOIN q {condition}").fetchall()
            found = {n for n, other in ids if (other is not None) == (how == "SEMI")}
            return [row for row in tables.sql("SELECT * FROM t").fetchall() if row[3] in found]
        chosen = {row[-1] for row in pairs}
        alone = [(None,) * 4 + row for row in tables.sql("SELECT * FROM q").fetchall() if row[-1] not in chosen]
        return alone + [row for row in pairs if how == "FULL" or row[-1] is not None]


@pytest.mark.parametrize("how", HOWS)
def test_the_star_means_what_it_means_in_duckdb(spark, tables, how):
    """USING merges its columns, the times among them: those of the right side in a right join, either in a full one."""
    text = f"SELECT * FROM t ASOF {how} JOIN q USING (k, ts)"
    ours, theirs = dt.sql(text), tables.sql(text)
    # Spark puts the columns of USING first, DuckDB leaves them in their places.
    assert sorted(ours.columns) == sorted(theirs.columns)
    assert rows(ours.select(*theirs.columns).collect()) == rows(theirs.fetchall())


def test_what_follows_an_asof_join(spark, tables):
    """Further joins and conditions see the rows that have no match."""
    for how in ("RIGHT", "FULL"):
        text = f"""SELECT n, id, u.x FROM t ASOF {how} JOIN q ON t.k = q.k AND t.ts >= q.ts
                   LEFT JOIN (VALUES (1, 'q3'), (2, 'q5')) AS u(x, name) ON u.name = id WHERE n IS NULL OR p > 2"""
        assert rows(dt.sql(text).collect()) == rows(tables.sql(text).fetchall())
        merged = f"SELECT ts, count(*) FROM t ASOF {how} JOIN q USING (k, ts) WHERE ts > 20 GROUP BY ts"
        assert rows(dt.sql(merged).collect()) == rows(tables.sql(merged).fetchall())

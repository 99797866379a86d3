"""What theta joins in Spark carry and compare: every type, every name, every time zone, as Spark itself does."""

from __future__ import annotations

from collections import Counter
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.columns.spark_hash import spark_partition

from .numbered import several

PAYLOAD = """
    SELECT CAST(id AS INT) AS n0, CAST(id AS TINYINT) AS n1, CAST(id AS SMALLINT) AS n2, CAST(id AS FLOAT) / 3 AS n3,
      CAST(id AS DECIMAL(38, 10)) / 7 AS n4, CAST(id AS DECIMAL(5, 2)) AS n5, id % 2 = 0 AS n6,
      DATE'2026-01-01' + CAST(id AS INT) AS n7, TIMESTAMP'2026-01-01 10:00:00.123456' + MAKE_DT_INTERVAL(id) AS n8,
      TIMESTAMP_NTZ'2026-01-01 10:00:00.5' AS n9, CONCAT('é', id) AS s0, CAST(CONCAT('x', id) AS BINARY) AS s1,
      ARRAY(id, NULL) AS c0, MAP('k', id) AS c1, NAMED_STRUCT('p', id, 'q', ARRAY('z')) AS c2,
      PARSE_JSON('[1, "a"]') AS v, MAKE_DT_INTERVAL(id) AS i0,
      ARRAY(NAMED_STRUCT('a', MAP(1, DATE'2026-01-01'))) AS c3, id
    FROM RANGE({low}, {high})
    UNION ALL SELECT {nulls}, CAST(NULL AS BIGINT)
"""


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("how", "rest"), [("inner", ""), ("left", " AND R.n0 + S.n0 >= 0"), ("right", ""), ("full", "")]
)
def test_every_type_comes_through(spark, how, rest):
    nulls = ", ".join(["NULL"] * 18)
    r = spark.sql(PAYLOAD.format(low=0, high=4, nulls=nulls))
    s = spark.sql(PAYLOAD.format(low=2, high=6, nulls=nulls))
    joined = dt.theta_join({"R": r, "S": s}, on=f"R.id = S.id{rest}", how=how, partitions=2)
    own = r.alias("R").join(s.alias("S"), F.expr("R.id = S.id"), how)
    own = own.select(*(F.struct(*(F.col(f"{a}.{c}") for c in r.columns)).alias(a) for a in "RS"))
    assert joined.schema["R"].dataType.simpleString() == r.schema.simpleString()

    def blank(part):
        return all(value is None for value in part)

    def told(rows):
        # Spark's own join leaves NULLs where ours leaves a NULL struct; a row of NULLs stays a row of NULLs.
        return Counter(repr([None if part is None or blank(part) else part for part in row]) for row in rows)

    ours = joined.collect()
    none = [part for row in ours for part in row if part is None]
    want = own.collect()
    empty = [part for row in want for part in row if blank(part)]
    kept_nulls = {"inner": 0, "left": 1, "right": 1, "full": 2}[how]
    assert len(none) == len(empty) - kept_nulls
    assert sum(blank(part) for row in ours for part in row if part is not None) == kept_nulls
    assert told(ours) == told(want)


def test_other_time_zone(spark):
    """Timestamps pass through as they are, whatever zone the session has."""
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    other.conf.set("spark.sql.shuffle.partitions", "3")
    r = other.sql(
        "SELECT id, TIMESTAMP'2026-01-01 10:00:00' + MAKE_DT_INTERVAL(0, id) AS t, "
        "TIMESTAMP_NTZ'2026-01-01 10:00:00' AS z FROM RANGE(5)"
    )
    joined = dt.theta_join({"R": r, "S": r}, on="R.t - S.t > INTERVAL 2 HOURS", how="left", sample=False)
    shown = ["CAST(R.t AS STRING)", "CAST(S.t AS STRING)", "CAST(S.z AS STRING)"]
    own = r.alias("R").join(r.alias("S"), F.expr("R.t - S.t > INTERVAL 2 HOURS"), "left")
    assert Counter(joined.selectExpr(*shown).collect()) == Counter(own.selectExpr(*shown).collect())


@pytest.mark.in_turns(group="several seconds")
def test_names_of_every_kind(spark):
    names = ["c0", "d0", "k0", "m", "b", "n", "r", "h", "g", "s", "keep", "cell", "side", "segment", "number",
             "a b", "a.b", "a`b", "größe", "select", "#counters", "#found"]  # fmt: skip
    made = spark.createDataFrame([tuple(range(i, i + len(names))) for i in range(4)], names)
    # Aliases may be called as our own columns are, in either case.
    for one, other in (("M", "b"), ("c0", "R"), ("keep", "N")):
        on = f"{one}.m < {other}.`a.b` - 17 AND {one}.`a``b` <> {other}.`größe` AND {one}.`select` >= 0"
        for how in {"M": ("full", "semi"), "c0": ("inner",)}.get(one, ("left",)):
            joined = dt.theta_join({one: made, other: made.filter("c0 > 0")}, on=on, how=how, partitions=2)
            shown = made.schema.simpleString()
            assert joined.schema[one].dataType.simpleString() == shown
            want = made.alias(one).join(
                made.filter("c0 > 0").alias(other), F.expr(on), {"semi": "left_semi"}.get(how, how)
            )
            want = want.select(f"{one}.c0", *([f"{other}.c0"] if how != "semi" else []))
            found = joined.select(f"{one}.c0", *([f"{other}.c0"] if how != "semi" else []))
            assert Counter(found.collect()) == Counter(want.collect()), (one, other, how)


MIXED = """
    SELECT id, CAST(id AS TINYINT) AS small, CAST(id * 1000000007 AS BIGINT) AS large, CAST(id AS FLOAT) / 3 AS f,
      CAST(id AS DOUBLE) / 3 AS d, CAST(id AS DECIMAL(9, 2)) / 3 AS p, CAST(id AS DECIMAL(38, 18)) / 3 AS q,
      DATE'2026-01-01' + CAST(id AS INT) AS day, TIMESTAMP'2026-01-02 00:00:00' + MAKE_DT_INTERVAL(0, id) AS t,
      TIMESTAMP_NTZ'2026-01-02 00:00:00' + MAKE_DT_INTERVAL(0, 2 * id) AS z, MAKE_DT_INTERVAL(id) AS i,
      CAST(id AS STRING) AS s, CAST(CAST(id AS STRING) AS BINARY) AS y, id % 2 = 0 AS o
    FROM RANGE(-3, 9)
"""


@pytest.mark.in_turns(group="several seconds")
def test_types_are_compared_as_spark_compares_them(spark):
    made = spark.sql(MIXED).coalesce(1)
    conditions = [
        "R.small < S.large", "R.f <= S.d", "R.f < S.small", "R.p >= S.d", "R.q > S.small", "R.p = S.q", "R.p < S.large",
        "R.day < S.t", "R.z <= S.day", "R.z > S.t", "R.i < S.i", "R.s < S.s", "R.y >= S.y", "R.o < S.o", "R.f = S.d",
        "R.day - S.day <= INTERVAL 30 HOURS", "ABS(R.t - S.z) < INTERVAL 3 HOURS", "R.i - S.i > INTERVAL 2 DAYS",
        "ABS(R.p - S.small) <= 1.34", "ABS(R.f - S.f) <= 0.3333333", "R.f - S.small >= 0.3333333", "S.d - R.f > 1",
        "R.small - S.large BETWEEN -2000000014 AND 2.5", "R.id + 1 < S.id * 2", "R.o = S.o AND -R.id < S.id",
        "R.id = S.id",
    ]  # fmt: skip
    joins = {on: dt.theta_join({"R": made, "S": made}, on=on, broadcast="S") for on in conditions}
    found: dict[str, Counter] = {}
    for at in range(0, len(conditions), 9):
        found |= several({on: joins[on] for on in conditions[at : at + 9]})
    own = {on: made.alias("R").join(made.alias("S"), F.expr(on)) for on in conditions}
    union = None
    for on, joined in own.items():
        part = joined.select(F.lit(on), "R.id", "S.id")
        union = part if union is None else union.unionAll(part)
    want = {on: Counter() for on in conditions}
    for on, r, s in union.collect():
        want[on][r, s] += 1
    assert [on for on in conditions if found[on] != want[on]] == []
    assert all(want[on] for on in conditions)


def test_dates_before_the_epoch_and_far_away(spark):
    made = spark.createDataFrame([(date(1, 1, 1),), (date(1969, 12, 31),), (date(9999, 12, 31),), (None,)], "d date")
    joined = dt.theta_join({"R": made, "S": made}, on="R.d - S.d > INTERVAL 1 DAY", broadcast="S")
    found = sorted((row.R.d.year, row.S.d.year) for row in joined.collect())
    assert found == [(1969, 1), (9999, 1), (9999, 1969)]


def test_cell_numbers_go_where_spark_sends_them(spark):
    keys = np.random.default_rng(1).integers(-(2**31), 2**31, 500).astype(np.int32)
    made = spark.createDataFrame(pa.table({"x": keys}))
    for partitions in (1, 3, 8, 200):
        want = [row[0] for row in made.select(F.expr(f"pmod(hash(x), {partitions})")).collect()]
        assert spark_partition(keys, partitions).tolist() == want


@pytest.mark.in_turns
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("condition", ["a.i <= b.f", "a.l = b.f", "a.i > b.f", "a.l < b.f"])
def test_integers_and_floats_compare_as_spark_compares_them(spark, ansi, condition):
    """Under ANSI as doubles, without it as floats: 16777217 = CAST(16777216 AS FLOAT) there."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        numbers = [16777215, 16777216, 16777217, 16777219, 5]
        a = spark.createDataFrame([(n, n) for n in numbers], "i int, l bigint")
        b = spark.createDataFrame([(float(n),) for n in (16777215, 16777216, 16777218, 5)], "f float")
        found = dt.theta_join({"a": a, "b": b}, on=condition).select("a.i", "b.f")
        by_spark = a.alias("a").join(b.alias("b"), F.expr(condition)).select("a.i", "b.f")
        assert sorted(found.collect()) == sorted(by_spark.collect())
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)

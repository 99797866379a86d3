"""Every type that a column of Spark can have, in columns that a join only carries: through every family and back.

A type may have no Python value and no equality, so rows are compared as texts that Spark itself makes of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

import pytest
from pyspark.errors import PySparkException
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F
from tests.baddata.test_frames import by_join, joins, united
from tests.spark.joins.streams import put, run, source

import dovetail as dt

POINT = "X'0101000000000000000000F03F0000000000000040'"
YEARS = "INTERVAL '-3' YEAR"
MOST = "CAST(2147483647 AS INTERVAL MONTH)"
CALENDAR = "make_interval(-1, 2, 3, -4, 5, 6, 7.008009)"
SWITCHES = ("spark.sql.preserveCharVarcharTypeInfo", "spark.sql.timeType.enabled", "spark.sql.geospatial.enabled")
PLAIN = ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled")
MODE = "spark.sql.codegen.factoryMode"

# A value, another one, and how a text shows all of it.
TYPES = {
    "months": ("INTERVAL '5' MONTH", MOST, "CAST({} AS STRING)"),
    "years": (YEARS, "INTERVAL '178956970' YEAR", "CAST({} AS STRING)"),
    "years and months": ("INTERVAL '1-2' YEAR TO MONTH", "make_ym_interval(-178956970, -8)", "CAST({} AS STRING)"),
    "days": ("INTERVAL '1' DAY", "INTERVAL '-7' DAY", "CAST({} AS STRING)"),
    "calendar": (CALENDAR, "make_interval(0, 0, 0, 0, 0, 0, -0.000001)", "CAST({} AS STRING)"),
    "none": ("NULL", "NULL", "CAST({} AS STRING)"),
    "no elements": ("array()", "array(NULL, NULL)", "CAST({} AS STRING)"),
    "no entries": ("map()", "map()", "CAST({} AS STRING)"),
    "no values": ("map('a', NULL)", "map('b', NULL, 'c', NULL)", "CAST({} AS STRING)"),
    "variant": ("parse_json('{\"a\": [1]}')", "parse_json('null')", "to_json({})"),
    "folded": ("'Ab' COLLATE UTF8_LCASE", "'ß' COLLATE UTF8_LCASE", "CAST({} AS STRING)"),
    "char": ("CAST('ab' AS CHAR(5))", "CAST('' AS CHAR(5))", "concat('<', CAST({} AS STRING), '>')"),
    "varchar": ("CAST('ab' AS VARCHAR(5))", "CAST('abcde' AS VARCHAR(5))", "CAST({} AS STRING)"),
    "time": ("TIME'12:34:56.123456'", "TIME'00:00:00'", "CAST({} AS STRING)"),
    "geometry": (f"st_geomfromwkb({POINT})", f"st_geomfromwkb({POINT})", "hex(st_asbinary({}))"),
    "geography": (f"st_geogfromwkb({POINT})", f"st_geogfromwkb({POINT})", "hex(st_asbinary({}))"),
    "intervals": (f"array({YEARS}, NULL)", "CAST(array() AS ARRAY<INTERVAL YEAR>)", "CAST({} AS STRING)"),
    "keys": (f"map({MOST}, {CALENDAR})", f"map(INTERVAL '0' MONTH, {CALENDAR})", "CAST({} AS STRING)"),
    "values": (f"map('a', array({MOST}))", "map('b', NULL)", "CAST({} AS STRING)"),
    "deep": (
        f"array(named_struct('a b', {MOST}, 'q''s', map(1, named_struct('c', {CALENDAR}, 'd', NULL)), 'e', array()))",
        "array(NULL)", "CAST({} AS STRING)",
    ),
    "twins": (
        "named_struct('a', 1, 'A', 'x', 'a', 2.5)", "named_struct('a', 3, 'A', '', 'a', 0.5)", "CAST({} AS STRING)",
    ),
    "twins of months": (f"named_struct('a', {MOST}, 'a', 1)", "NULL", "CAST({} AS STRING)"),
    "points": (
        f"array(named_struct('p', st_geomfromwkb({POINT})))", "array()",
        "CAST(transform({}, x -> hex(st_asbinary(x.p))) AS STRING)",
    ),
    "no fields": ("struct()", "NULL", "CAST({} AS STRING)"),
}  # fmt: skip


@cache
def known(spark):
    """The types that this version of Spark has: some came with 4.1, others later."""
    with switched_on(spark):
        has = {name: all(_runs(spark, value) for value in TYPES[name][:2]) for name in TYPES}
    left_out = {name for name, there in has.items() if not there}
    assert left_out <= {"time", "geometry", "geography", "points"}
    assert not left_out or spark.version < "4.3", left_out
    return {name: TYPES[name] for name in TYPES if name not in left_out}


def _runs(spark, value):
    try:
        return spark.sql(f"SELECT {value}").schema is not None
    except PySparkException:
        return False


@contextmanager
def switched_on(spark):
    # Compiling expressions of this length takes Spark longer than evaluating them.
    wanted = {**dict.fromkeys(SWITCHES, "true"), **dict.fromkeys(PLAIN, "false"), MODE: "NO_CODEGEN"}
    # A switch that this version does not know has no value.
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def columns(types):
    """One column for each type: a value, NULL or the other value, by the number of the row."""
    return [
        F.expr(f"CASE id % 3 WHEN 0 THEN {one} WHEN 2 THEN {other} END").alias(name)
        for name, (one, other, _) in types.items()
    ]


def shown(alias, types):
    """All of a row as one text."""
    dot = f"{alias}." if alias else ""
    parts = [f"coalesce({text.format(f'{dot}`{name}`')}, 'NULL')" for name, (_, _, text) in types.items()]
    parts.append(f"coalesce(CAST({dot}vector AS STRING), 'NULL')")
    return F.expr(f"concat_ws('|', CAST({dot}id AS STRING), {', '.join(parts)})")


def with_types(frame, types):
    """The columns of all types beside those of a frame; a vector has a type that no part of SQL knows."""
    vector = array_to_vector(F.array(F.col("id").cast("double"), F.lit(1.5)))
    return frame.select("*", *columns(types), F.when(F.col("id") % 3 != 1, vector).alias("vector"))


def types_of(kind):
    return {field.name: field.dataType.simpleString() for field in kind.fields}


@pytest.mark.in_turns(group="values of every kind")
@pytest.mark.parametrize("judged", [False, True])
def test_through_every_batch_join(spark, judged):
    with switched_on(spark):
        types = known(spark)
        rows = with_types(spark.range(5).withColumn("v", F.col("id")), types)
        want = sorted(row[0] for row in rows.select(shown("", types)).collect())
        asked = ("theta full", "theta in windows", "window", "asof", "best in pages", "approx")
        frames = {name: frame for name, frame in joins(rows, rows).items() if name in asked and not judged}
        for how in ("inner", "full") if judged else ():
            on = "R.id = S.id AND (R.id + S.id < 0 OR R.char <=> S.char)"
            frames[f"theta {how} judged"] = dt.theta_join({"R": rows, "S": rows}, on=on, how=how)
            frames[f"window {how} judged"] = dt.window_join({"R": rows, "S": rows}, on=on, time="v", within=0, how=how)
            frames[f"asof {how} judged"] = dt.asof_join({"R": rows, "S": rows}, on=on, time="v", within=0, how=how)
        best = [dt.least("abs(R.v - S.v) + coalesce(abs(CAST(R.months AS INT)), 0) * 0")]
        if judged:
            frames["best judged"] = dt.bestmatch_join({"R": rows, "S": rows}, by="id", on=best)
        for name, frame in frames.items():
            for side in ("R", "S"):
                assert types_of(frame.schema[side].dataType) == types_of(rows.schema), name
        # A shuffle keeps Spark from planning the texts once more for each join.
        all_rows = united(frames, ["R", "S"]).repartition(1)
        found = by_join(all_rows.select("join", shown("R", types).alias("R"), shown("S", types).alias("S")).collect())
        assert set(found) == set(frames)
        for name, pairs in found.items():
            for side in ("R", "S"):
                assert sorted(pair[side] for pair in pairs) == want, (name, side)


@pytest.mark.in_turns(group="values of every kind")
def test_through_streams(spark, tmp_path):
    from datetime import datetime, timedelta

    noon = datetime(2026, 3, 1, 12)
    put(tmp_path / "in", [{"id": at, "v": at, "t": noon + timedelta(minutes=at)} for at in range(5)])
    put(tmp_path / "in", [{"id": 99, "v": 99, "t": noon + timedelta(days=1)}])
    with switched_on(spark):
        read = source(spark, tmp_path / "in", "id long, v long, t timestamp").withWatermark("t", "1 second")
        types = known(spark)
        r, s = (with_types(read, types) for _ in "RS")
        static = with_types(spark.read.parquet(str(tmp_path / "in")), types)
        want = sorted(row[0] for row in static.filter("id < 99").select(shown("", types)).collect())
        on = "R.id = S.id AND (R.id + S.id < 0 OR R.char <=> S.char)"
        frames = {
            "window": dt.window_join({"R": r, "S": s}, on=on, time="t", within="0 seconds", how="full"),
            "asof": dt.asof_join({"R": r, "S": s}, time="t", by="id", within="0 seconds", how="left"),
            "best": dt.bestmatch_join({"R": r, "S": s}, by="id", on=[dt.closest("t", within="0 seconds")]),
            "theta": dt.theta_join({"R": r, "S": static}, on=on),
        }
        for name, frame in frames.items():
            assert types_of(frame.schema["R"].dataType) == types_of(r.schema), name
            run(frame.select(shown("R", types).alias("R"), shown("S", types).alias("S")), tmp_path / name)
            found = spark.read.parquet(str(tmp_path / name / "out")).filter("R NOT LIKE '99%'").distinct().collect()
            for side in ("R", "S"):
                assert sorted(row[side] for row in found) == want, (name, side)

"""Frames that are hard on a join: odd names, odd types, extreme values, nothing at all, far too much of one.

Every test unites the results of all families, so that one job answers for all of them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import reduce

import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.errors import DovetailError

# Names of our own columns, of structs and of aliases, and names that need quoting.
NAMES = [
    "g", "m", "l", "r", "c0", "d0", "k0", "h", "t", "p0", "i0_0", "i1_0", "a", "b", "n", "number", "turn", "copies",
    "segment", "cell", "side", "at", "keep", "slice", "top", "rows", "value", "weight", "seen", "kept", "sampling",
    "_time", "_change", "#draw", "#found", "S", "a.b", "a.b.c", "ba`ck", "sp ace", "ünï", "\U0001f642", "SELECT",
    "x]y", 'q"uote', "new\nline", "'", "{}", "%s", "*", "1",
]  # fmt: skip
TYPES = {
    "nested": "named_struct('a', id, 'b', named_struct('c', array(id, NULL)))",
    "structs": "array(named_struct('x', id), NULL)",
    "mapped": "map('a', array(id), 'b', NULL)",
    "maps": "map(1, map('k', named_struct('z', 1.5)))",
    "variant": "parse_json('{\"a\": [1, null]}')",
    "variants": "array(parse_json('[1]'), NULL)",
    "length": "INTERVAL '1 02:03:04.5' DAY TO SECOND",
    "wide": "CAST('12345678901234567890.123456789012345678' AS DECIMAL(38, 18))",
    "raw": "X'00FF'",
    "nothing": "NULL",
    "first day": "DATE'0001-01-01'",
    "last moment": "TIMESTAMP'9999-12-31 23:59:59.999999'",
    "zoneless": "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
    "folded": "'abc' COLLATE UNICODE_CI",
    "nan": "CAST('NaN' AS DOUBLE)",
    "no elements": "CAST(array() AS ARRAY<INT>)",
    "no entries": "CAST(map() AS MAP<STRING, INT>)",
    "tiny": "CAST(-128 AS TINYINT)",
}


def joins(r, s, only=None):
    """Joins that pair each row of `r` with the row of `s` that has the same id and v; all, or `only` those named."""
    two = {"R": r, "S": s}
    exactly = "ABS(R.v - S.v) <= 0"
    made = {
        "theta": lambda: dt.theta_join(two, on="R.id = S.id AND R.v <= S.v"),
        "theta left": lambda: dt.theta_join(two, on=exactly, how="left"),
        "theta full": lambda: dt.theta_join(two, on=f"{exactly} AND (R.id + S.id >= 0 OR R.id < 0)", how="full"),
        "theta broadcast": lambda: dt.theta_join(two, on=exactly, broadcast="S"),
        "theta in windows": lambda: dt.theta_join(two, on="R.v = S.v", window=1000),
        "window": lambda: dt.window_join(two, on="R.id = S.id", time="v", within=0),
        "window full": lambda: dt.window_join(two, on="R.id = S.id", time="v", within=0, how="full"),
        "asof": lambda: dt.asof_join(two, time="v", by="id", how="left", within=0),
        "best": lambda: dt.bestmatch_join(two, on=[dt.closest("v", within=0)], how="left", unmatched="keep"),
        "best in pages": lambda: dt.bestmatch_join(
            two, on=[dt.closest("v", within=0)], how="full", memory=2, unmatched="keep"
        ),
        "approx": lambda: dt.approx_join(two, on="R.id = S.id AND R.v = S.v", memory=None, policy="exact"),
    }
    return {name: make() for name, make in made.items() if only is None or name in only}


LEFT = {"theta left", "theta full", "window full", "asof", "best", "best in pages"}
RIGHT = {"theta full", "window full", "best in pages"}


def united(frames, columns):
    """Rows of several joins as one frame, each with the name of its join."""
    parts = [frame.select(F.lit(name).alias("join"), *columns) for name, frame in frames.items()]
    return reduce(lambda one, other: one.unionByName(other), parts)


def by_join(rows):
    return {
        name: list(found) for name, found in itertools.groupby(sorted(rows, key=lambda row: row[0]), lambda row: row[0])
    }


# Every family both ways; what is there once goes both ways.
WAYS = (
    {"theta", "theta full", "theta in windows", "window full", "best", "asof", "approx"},
    {"theta left", "theta broadcast", "window", "best in pages", "asof", "approx"},
)


@pytest.mark.in_turns(group="values of every kind")
def test_names_and_types_are_carried(spark):
    """One side has the odd names and the other the odd types, and the other way round."""
    base = spark.range(4).withColumn("v", F.col("id"))
    named = base.select("*", *[(F.col("id") * 1000 + at).alias(name) for at, name in enumerate(NAMES)])
    typed = base.select("*", *[F.expr(sql).alias(name) for name, sql in TYPES.items()])
    rows_of_named, rows_of_typed = (repr(sorted(frame.collect())) for frame in (named, typed))
    for (r, r_rows), (s, s_rows), chosen in (
        ((named, rows_of_named), (typed, rows_of_typed), WAYS[0]),
        ((typed, rows_of_typed), (named, rows_of_named), WAYS[1]),
    ):
        found = by_join(united(joins(r, s, chosen), ["R", "S"]).collect())
        assert set(found) == chosen
        for name, rows in found.items():
            assert rows[0].R.__fields__ == r.columns, name
            assert rows[0].S.__fields__ == s.columns, name
            assert repr(sorted(row.R for row in rows)) == r_rows, name
            assert repr(sorted(row.S for row in rows)) == s_rows, name


@pytest.mark.in_turns(group="values of every kind")
def test_nothing_nulls_and_frames_of_others(spark):
    rows = spark.range(3).withColumn("v", F.col("id"))
    none = rows.limit(0)
    nulls = rows.select(F.lit(None).cast("bigint").alias("id"), F.lit(None).cast("bigint").alias("v"))
    void = rows.select("id", F.lit(None).alias("v"))
    other = spark.newSession().range(3).withColumn("v", F.col("id"))
    # Inputs, and how many rows match, and stay alone on either side.
    pairs = {
        "none": (none, rows, 0, 0, 3),
        "nulls": (rows, nulls, 0, 3, 3),
    }
    frames, want = {}, Counter()
    for case, (r, s, matched, left, right) in pairs.items():
        # These ask most of their families.
        for name, frame in joins(r, s, {"theta full", "window full", "asof", "best in pages", "approx"}).items():
            frames[f"{case}: {name}"] = frame
            want[f"{case}: {name}"] = matched + left * (name in LEFT) + right * (name in RIGHT)
    frames["other session"] = dt.theta_join({"R": rows, "S": other}, on="R.id = S.id AND R.v <= S.v")
    want["other session"] = 3
    counted = united(frames, [F.col("R").isNotNull().alias("r"), F.col("S").isNotNull().alias("s")]).collect()
    assert Counter(row[0] for row in counted) == +want
    assert all((row.r and row.s) == row[0].startswith("other") for row in counted)
    # Without a type there is nothing to compare, or nothing that matches.
    assert dt.theta_join({"R": void, "S": rows}, on="R.v = S.v").columns == ["R", "S"]
    assert dt.theta_join({"R": void, "S": void}, on="R.v = S.v").columns == ["R", "S"]
    for call in (
        lambda: dt.window_join({"R": void, "S": rows}, time="v", within=0),
        lambda: dt.asof_join({"R": void, "S": void}, time="v"),
        lambda: dt.bestmatch_join({"R": void, "S": void}, on=[dt.closest("v")]),
    ):
        with pytest.raises(DovetailError, match=r"void|no column"):
            call()


def test_frames_without_columns(spark):
    rows = spark.range(3).withColumn("v", F.col("id"))
    bare = rows.select()
    for r, s in ((bare, bare), (rows, bare), (bare, rows)):
        two = {"R": r, "S": s}
        for call in (
            lambda two=two: dt.theta_join(two, on="R.id = S.id"),
            lambda two=two: dt.window_join(two, time="v", within=0),
            lambda two=two: dt.asof_join(two, time="v"),
            lambda two=two: dt.bestmatch_join(two, on=[dt.closest("v")]),
            lambda two=two: dt.approx_join(two, on="R.id = S.id", memory=5),
        ):
            with pytest.raises(DovetailError):
                call()


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def new_york(spark):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


MOMENTS = [
    # Clocks go from 02:00 to 03:00 on 2026-03-08, and from 02:00 back to 01:00 on 2026-11-01.
    "2026-03-08 01:30:00", "2026-03-08 01:59:59.999999", "2026-03-08 03:00:00", "2026-03-08 03:29:59",
    "2026-11-01 00:59:59", "2026-11-01 01:30:00-04:00", "2026-11-01 01:30:00-05:00", "2026-11-01 02:00:00",
    "0001-01-01 00:00:00", "0001-01-01 00:29:59.999999", "9999-12-31 23:30:00", "9999-12-31 23:59:59.999999",
    "1969-12-31 18:59:59.999999",
]  # fmt: skip
TEXTS = [
    "2026-03-08 02:30:00",
    "2026-11-01 01:30:00",
    "2026-03-08 03:00:00",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
]


@pytest.mark.in_turns(group="values of every kind")
def test_times_at_their_ends_and_where_clocks_change(new_york):
    """Spark's own evaluation of the condition on all pairs is the truth."""
    spark = new_york
    texts = spark.createDataFrame([(at, text) for at, text in enumerate(MOMENTS)], "id long, s string")
    r = texts.selectExpr("id", "to_timestamp(s) AS t", "CAST(to_timestamp(s) AS DATE) AS d")
    zoneless = spark.createDataFrame([(at, text) for at, text in enumerate(TEXTS)], "id long, s string")
    z = zoneless.selectExpr("id", "CAST(s AS TIMESTAMP_NTZ) AS n")
    half = "INTERVAL 30 MINUTES"
    conditions = {
        "band": (r, r, f"ABS(R.t - S.t) <= {half}"),
        "after": (r, r, f"R.t > S.t AND R.t <= S.t + {half}"),
        "shifted": (r, r, "R.t + INTERVAL 1 DAY <= S.t AND R.t + INTERVAL 25 HOURS >= S.t"),
        "days": (r, r, "R.d - S.d <= INTERVAL 1 DAY AND R.d < S.d"),
        "dates": (r, r, "R.d = S.t"),
        "zoneless": (r, z, "R.t = S.n"),
        "zoneless after": (r, z, f"ABS(R.t - S.n) <= {half}"),
        "zoneless pairs": (z, z, "R.n - S.n BETWEEN INTERVAL 0 HOURS AND INTERVAL 1 HOUR"),
    }  # fmt: skip
    frames, truth = {}, {}
    for name, (one, other, on) in conditions.items():
        frames[name] = dt.theta_join({"R": one, "S": other}, on=on)
        truth[name] = one.alias("R").join(other.alias("S"), F.expr(on))
    frames["window"] = dt.window_join({"R": r, "S": r}, time="t", within="30 minutes")
    # A window is a length of elapsed time; a difference of timestamps is, to Spark, one of local times.
    lasting = F.expr(f"R.t <= S.t + {half} AND S.t <= R.t + {half}")
    truth["window"] = r.alias("R").join(r.alias("S"), lasting)
    frames["window of days"] = dt.window_join({"R": r, "S": r}, time="d", within="1 day", how="left")
    near = F.expr("S.d BETWEEN date_sub(R.d, 1) AND date_add(R.d, 1)")
    truth["window of days"] = r.alias("R").join(r.alias("S"), near)
    frames["asof"] = dt.asof_join({"R": r, "S": r}, time="t", within="30 minutes", allow_exact_matches=False)
    frames["best"] = dt.bestmatch_join({"R": r, "S": r}, on=[dt.closest("t", within="30 minutes")], how="left")
    columns = [F.expr("R.id AS r"), F.expr("S.id AS s")]
    found, expected = (Counter(map(tuple, united(some, columns).collect())) for some in (frames, truth))
    pairs = [(one, other) for name, one, other in expected if name == "window"]
    micros = {row[0]: row[1] for row in r.selectExpr("id", "unix_micros(t)").collect()}
    for at in micros:
        before = [s for one, s in pairs if one == at and micros[s] < micros[at]]
        if before:
            expected["asof", at, max(before, key=micros.get)] += 1
        expected["best", at, at] += 1
    assert found == expected
    assert {name for name, *_ in found} >= {"band", "after", "days", "zoneless", "zoneless pairs", "asof"}


ENDS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, None]


@pytest.mark.in_turns(group="values of every kind")
def test_numbers_at_their_ends(spark):
    r = spark.createDataFrame([(at, value) for at, value in enumerate(ENDS)], "id long, v long")
    wide = r.selectExpr("id", "CAST(v AS DECIMAL(38, 0)) AS v")
    frames = {
        "band": dt.theta_join({"R": r, "S": r}, on="ABS(R.v - S.v) <= 1"),
        "wide band": dt.theta_join({"R": r, "S": r}, on="R.v - S.v >= 9223372036854775807"),
        "less": dt.theta_join({"R": r, "S": r}, on="R.v < S.v"),
        "decimal": dt.theta_join({"R": wide, "S": wide}, on="R.v < S.v"),
        "window": dt.window_join({"R": r, "S": r}, time="v", within=1, how="left"),
        "asof": dt.asof_join({"R": r, "S": r}, time="v", within=1, direction="nearest", allow_exact_matches=False),
        "best": dt.bestmatch_join({"R": r, "S": r}, on=[dt.closest("v")], how="left"),
        "approx": dt.approx_join({"R": r, "S": r}, on="R.v = S.v", memory=None, policy="exact"),
    }  # fmt: skip
    rows = united(frames, [F.expr("R.v AS r"), F.expr("S.v AS s")]).collect()
    found = {name: Counter(row[1:] for row in some) for name, some in by_join(rows).items()}
    values = [value for value in ENDS if value is not None]
    pairs = list(itertools.product(values, values))
    near = Counter(pair for pair in pairs if abs(pair[0] - pair[1]) <= 1)
    less = Counter(pair for pair in pairs if pair[0] < pair[1])
    assert found["band"] == near
    assert found["wide band"] == Counter(pair for pair in pairs if pair[0] - pair[1] >= 2**63 - 1)
    assert found["less"] == less
    assert Counter({(int(a), int(b)): n for (a, b), n in found["decimal"].items()}) == less
    assert found["window"] == near + Counter([(None, None)])
    # Of two equally near, the earlier one.
    assert found["asof"] == Counter(
        (a, min(b for b in values if abs(a - b) == 1)) for a in values if any(abs(a - b) == 1 for b in values)
    )
    assert found["best"] == found["approx"] == Counter((value, value) for value in values)


# --- sizes -----------------------------------------------------------------------------------------------------------

LARGE = 10_000_000
MANY = 250_000


@pytest.mark.in_turns(group="values of every kind")
def test_large_texts(spark):
    """Texts of 10 MB, as payload and as keys."""
    r = spark.range(2).selectExpr("id", "id AS v", f"repeat(chr(97 + CAST(id AS INT)), {LARGE}) AS s")
    two = {"R": r, "S": r}
    frames = {
        "payload": dt.theta_join(two, on="ABS(R.v - S.v) <= 0", how="left"),
        "theta": dt.theta_join(two, on="R.s = S.s"),
        "less": dt.theta_join(two, on="R.s <= S.s AND R.v >= S.v"),
        "window": dt.window_join(two, on="R.s = S.s", time="v", within=5),
        "asof": dt.asof_join(two, by="s", time="v"),
        "best": dt.bestmatch_join(two, by="s", on=[dt.closest("v", within=5)], how="left"),
        "approx": dt.approx_join(two, on="R.s = S.s", memory=100),
    }
    columns = [F.expr("R.v AS r"), F.expr("S.v AS s"), F.expr("length(R.s) + length(S.s) AS size")]
    found = Counter(map(tuple, united(frames, columns).collect()))
    assert found == Counter((name, at, at, 2 * LARGE) for name in frames for at in (0, 1))


@pytest.mark.in_turns(group="values of every kind")
def test_many_duplicates(spark):
    """One key, one time, one value, many times; results stay small or grow with the rows only."""
    many = spark.range(MANY).selectExpr("1L AS k", "5L AS v", "id AS u")
    one = spark.range(1).selectExpr("1L AS k", "5L AS v", "7L AS u")
    frames = {
        "theta": dt.theta_join({"R": many, "S": one}, on="R.k = S.k AND R.v <= S.v"),
        "theta turned": dt.theta_join({"R": one, "S": many}, on="R.k = S.k AND R.v <= S.v"),
        "semi": dt.theta_join({"R": many, "S": many}, on="R.k = S.k AND R.v <= S.v", how="semi"),
        "less": dt.theta_join({"R": many, "S": many}, on="R.v < S.v"),
        "window": dt.window_join({"R": many, "S": one}, on="R.k = S.k", time="v", within=1),
        "asof": dt.asof_join({"R": many, "S": many}, by="k", time="v"),
        "best": dt.bestmatch_join({"R": one, "S": many}, by="k", on=[dt.closest("v"), dt.closest("u")]),
    }
    found = dict(map(tuple, united(frames, []).groupBy("join").count().collect()))
    assert found == {
        "theta": MANY, "theta turned": MANY, "semi": MANY, "window": MANY, "asof": MANY, "best": 1,
    }  # fmt: skip
    # Every row meets what is held of the other side, so the limit decides how much comes out.
    sample = dt.approx_join({"R": many, "S": many}, on="R.k = S.k", memory=4, seed=1, detail=False)
    assert 0 < sample.count() <= 4 * MANY
    assert dt.metrics(sample)["peak_rows"] <= 4

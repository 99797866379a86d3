"""Theta joins in Spark, against the definition, against DuckDB and against Spark's own join."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail as dt
from dovetail import reference
from dovetail.conditions.join_kind import HOWS
from dovetail.errors import ArgumentError
from dovetail.families.theta.spec import ALGORITHMS
from dovetail.reference import at_most, both, difference, equal, less

from .numbered import numbers, several

RIVALS = [name for name in ALGORITHMS if name != "auto"]
PUBLISHED = {"prefap": dt.Prefap, "ftj": dt.FTJ, "cfs": dt.CFS, "obt": dt.OBT, "rbm": dt.RBM}
SCHEMA = "id int, k string, x double, y double, a int, b int, t timestamp, w decimal(30,3)"
FLOATS = [0.0, -0.0, 1.0, 1.5, -1.0, 2.5, math.nan, math.inf, -math.inf, 1e308, None]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(seed: int, size: int) -> list[dict]:
    """Rows with every corner: NULL, NaN, both zeros, infinities, ties, and one value in a third of them."""
    pick = random.Random(seed)
    made = []
    for at in range(size):
        low = pick.choice([None, *range(-5, 6)])
        made.append(
            {
                "id": at,
                "k": "heavy" if at % 3 == 0 else pick.choice(["a", "b", "", "é", None]),
                "x": 1.0 if at % 3 == 0 else pick.choice(FLOATS),
                "y": pick.choice(FLOATS),
                "a": low,
                "b": None if low is None else low + pick.choice([-1, 0, 1, 3]),
                "t": None if at % 7 == 0 else NOON + timedelta(seconds=pick.randrange(-6, 6)),
                "w": None if at % 5 == 0 else Decimal(pick.randrange(-9, 9)) * 10**20 + Decimal("0.125"),
            }
        )
    return made


LEFT, RIGHT = rows(1, 45), rows(2, 40)
ORDER = [field.split()[0] for field in SCHEMA.replace("30,3", "30").split(", ")]


def frame(spark, made: list[dict], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in made], schema)


@pytest.fixture(scope="module")
def left(spark):
    return frame(spark, LEFT).repartition(2).cache()


@pytest.fixture(scope="module")
def right(spark):
    return frame(spark, RIGHT).coalesce(1).cache()


def between(low, value, high):
    return both(at_most(low, value), at_most(value, high))


CONDITIONS = {
    "R.x <= S.y": lambda r, s: at_most(r["x"], s["y"]),
    "S.x - R.x < 1.5": lambda r, s: less(difference(s["x"], r["x"]), 1.5),
    "ABS(R.x - S.x) <= 1": lambda r, s: between(-1.0, difference(r["x"], s["x"]), 1.0),
    "R.a <= S.b AND S.a < R.b": lambda r, s: both(at_most(r["a"], s["b"]), less(s["a"], r["b"])),
    "S.y BETWEEN R.x AND R.y": lambda r, s: between(r["x"], s["y"], r["y"]),
    "R.k = S.k": lambda r, s: equal(r["k"], s["k"]),
    "R.k = S.k AND R.t - S.t BETWEEN INTERVAL -2 SECONDS AND INTERVAL 3 SECONDS": lambda r, s: both(
        equal(r["k"], s["k"]), between(timedelta(seconds=-2), difference(r["t"], s["t"]), timedelta(seconds=3))
    ),
    "R.x = S.x AND R.w >= S.w": lambda r, s: both(equal(r["x"], s["x"]), at_most(s["w"], r["w"])),
}


def expected(condition, how: str, left=LEFT, right=RIGHT) -> Counter:
    joined = reference.theta_join({"R": left, "S": right}, condition, how)
    return Counter(tuple((row.get(a) or {}).get("id") for a in "RS") for row in joined)


def pairs(joined: DataFrame) -> Counter:
    return Counter((row[0], row[1]) for row in numbers(joined).collect())


# Every pair of how and algorithm, and every shape of condition, goes through the same stages without a JVM in
# tests/theta/test_stages.py.  A join in Spark costs seconds, so here each how, algorithm and condition has its turn a
# few times, not each with each.


@pytest.mark.in_turns
@pytest.mark.parametrize("how", HOWS)
def test_auto_equals_the_definition(left, right, how):
    at = HOWS.index(how)
    chosen = [list(CONDITIONS)[(3 * at + more) % len(CONDITIONS)] for more in range(3)]
    found = several({on: dt.theta_join({"R": left, "S": right}, on=on, how=how, partitions=2) for on in chosen})
    for on in chosen:
        assert found[on] == expected(CONDITIONS[on], how), on


@pytest.mark.parametrize(("algorithm", "how"), list(zip(RIVALS, HOWS[1:], strict=True)))
def test_rivals_equal_the_definition(left, right, algorithm, how):
    joins, want = {}, {}
    for way, on in (("inner", "R.a <= S.b AND S.a < R.b"), (how, "ABS(R.x - S.x) <= 1")):
        chosen = PUBLISHED[algorithm](p=3)
        joins[way] = dt.theta_join({"R": left, "S": right}, on=on, how=way, algorithm=chosen, partitions=3)
        want[way] = expected(CONDITIONS[on], way)
    assert several(joins) == want


def test_without_a_sample(left, right):
    joins, want = {}, {}
    for how, on in (("inner", "R.x <= S.y"), ("left", "R.x <= S.y"), ("full", "R.k = S.k")):
        joins[how] = dt.theta_join({"R": left, "S": right}, on=on, how=how, sample=False, partitions=3)
        want[how] = expected(CONDITIONS[on], how)
    assert several(joins) == want


def test_broadcast(left, right):
    sides = [("inner", "R"), ("inner", "S"), ("left", "S"), ("right", "R"), ("semi", "S"), ("anti", "S")]
    joins, want = {}, {}
    for (how, small), on in zip(sides, CONDITIONS, strict=False):
        joins[how + small] = dt.theta_join({"R": left, "S": right}, on=on, how=how, broadcast=small)
        want[how + small] = expected(CONDITIONS[on], how)
    assert several(joins) == want


@pytest.mark.in_turns(group="several seconds")
def test_empty_sides(spark, left, right):
    none, late = spark.createDataFrame([], SCHEMA), right.filter("id < 0")
    calls = [
        ("left", left, none, {}), ("full", none, right, {}), ("anti", left, late, {"sample": False}),
        ("inner", none, none, {}), ("left", left, none, {"broadcast": "S"}), ("anti", left, late, {"broadcast": "S"}),
        ("inner", left, none, {"algorithm": "prefap"}), ("left", left, none, {"algorithm": "rbm"}),
    ]  # fmt: skip
    joins, want = {}, {}
    for at, (how, one, other, choices) in enumerate(calls):
        joins[str(at)] = dt.theta_join(
            {"R": one, "S": other}, on="R.x <= S.y", how=how, partitions=2 if not choices else None, **choices
        )
        sizes = LEFT if one is left else [], RIGHT if other is right else []
        want[str(at)] = expected(CONDITIONS["R.x <= S.y"], how, *sizes)
    assert several(joins) == want


REST = "R.x <= S.y AND (R.k = S.k OR R.a + S.a > 3) AND R.a > -4 AND S.b < 5 AND 1 = 1"


@pytest.mark.in_turns
@pytest.mark.parametrize("how", HOWS)
def test_further_conditions(left, right, how):
    """Conditions on one side alone, on both, and on none: none of them drops a row that `how` keeps."""
    spark_how = {"semi": "left_semi", "anti": "left_anti"}.get(how, how)
    # An expression that fails on what no pair holds must not fail.
    careful = f"{REST} AND IF(R.id IS NULL OR S.id IS NULL, raise_error('no pair'), R.id + S.id >= 0)"
    joins = {"auto": dt.theta_join({"R": left, "S": right}, on=careful, how=how, partitions=2)}
    if how in ("inner", "left", "anti"):
        joins["beside"] = dt.theta_join({"R": left, "S": right}, on=careful, how=how, broadcast="S")
    if how == "right":
        joins["prefap"] = dt.theta_join({"R": left, "S": right}, on=REST, how=how, algorithm="prefap")
    own = left.alias("R").join(right.alias("S"), F.expr(REST), spark_how)
    own = own.select("R.id", "S.id") if how not in ("semi", "anti") else own.select("id", F.lit(None))
    want = Counter((row[0], row[1]) for row in own.collect())
    found = several(joins)
    assert all(found[name] == want for name in joins), [name for name in joins if found[name] != want]


def test_duckdb_agrees():
    """The oracle itself, on the conditions and data of this file: DuckDB orders NaN and both zeros as Spark does."""
    fields = [
        pa.int32(),
        pa.string(),
        pa.float64(),
        pa.float64(),
        pa.int32(),
        pa.int32(),
        pa.timestamp("us", "UTC"),
        pa.decimal128(30, 3),
    ]
    tables = [
        pa.table({name: pa.array([row[name] for row in made], kind) for name, kind in zip(ORDER, fields, strict=True)})
        for made in (LEFT, RIGHT)
    ]
    connection = duckdb.connect()
    connection.register("l", tables[0])
    connection.register("r", tables[1])
    words = {"semi": "SEMI", "anti": "ANTI"}
    for on, condition in CONDITIONS.items():
        text = re.sub(r"INTERVAL (-?\d) SECONDS", r"INTERVAL '\1 seconds'", on)
        for how in HOWS:
            shown = "R.id, NULL" if how in words else "R.id, S.id"
            query = f"SELECT {shown} FROM l R {words.get(how, how.upper())} JOIN r S ON {text}"
            assert Counter(connection.sql(query).fetchall()) == expected(condition, how), (on, how)


@pytest.mark.in_turns(group="larger data")
def test_larger_skewed_data_equals_duckdb(spark):
    """Enough rows for the sample to see something, half of them with one value."""
    generator = np.random.default_rng(5)
    tables = []
    for _ in range(2):
        start = generator.integers(0, 200_000, 20_000)
        start[:10_000] = np.where(generator.random(10_000) < 0.02, 77_777, start[:10_000])
        tables.append(
            pa.table(
                {"id": np.arange(20_000), "a": start, "b": start + generator.integers(0, 60, 20_000), "k": start % 5}
            )
        )
    r, s = (spark.createDataFrame(table).repartition(3) for table in tables)
    connection = duckdb.connect()
    connection.register("R", tables[0])
    connection.register("S", tables[1])
    for on in ("ABS(R.a - S.a) <= 3", "R.a <= S.b AND R.b >= S.a", "R.k = S.k AND R.a - S.a BETWEEN -20 AND 0"):
        joined = dt.theta_join({"R": r, "S": s}, on=on, partitions=4)
        summary = "count(*), sum(R.id * 31 + S.id), sum((R.id * S.id) % 1009)"
        found = joined.selectExpr(*summary.replace("), ", ")|").split("|")).collect()[0]
        want = connection.sql(f"SELECT {summary} FROM R JOIN S ON {on}").fetchall()[0]
        assert tuple(int(v) for v in found) == tuple(int(v) for v in want), on
        counters = dt.metrics(joined)
        assert counters["results"] == counters["candidates"] == want[0]
        assert 1.0 <= counters["balance_in"] < 2.0, on


# --- chains ----------------------------------------------------------------------------------------------------


def test_chains(spark):
    made = {name: [(i, (i * 7 + seed) % 11, i % 3) for i in range(9)] for seed, name in enumerate("ABCD")}
    frames = {name: spark.createDataFrame(values, "id int, v int, k int").coalesce(1) for name, values in made.items()}
    inputs = {name: [dict(zip(("id", "v", "k"), row, strict=True)) for row in values] for name, values in made.items()}
    # C reaches A only through B, and D only through C, so that B comes second whatever the order of the mapping.
    links = "A.v < B.v AND ABS(B.v - C.v) <= 1 AND C.k = D.k AND C.v >= D.v AND A.k + D.k > 1"

    def condition(a, b, c, d=None):
        short = both(a["v"] < b["v"], abs(b["v"] - c["v"]) <= 1)
        if d is None:
            return both(short, a["k"] + c["k"] != 2)
        return both(short, c["k"] == d["k"], c["v"] >= d["v"], a["k"] + d["k"] > 1)

    shuffled = {name: frames[name] for name in "ADCB"}
    four = dt.theta_join(shuffled, on=links, partitions=2)
    assert four.columns == list("ADCB")
    want = reference.theta_join({name: inputs[name] for name in "ABCD"}, condition)
    found = Counter(tuple(row) for row in four.select("A.id", "B.id", "C.id", "D.id").collect())
    assert found == Counter(tuple(row[name]["id"] for name in "ABCD") for row in want)
    assert sum(found.values()) > 20
    steps = dt.metrics(four)
    assert list(steps) == ["dovetail(A,B)", "dovetail(A,B,C)", "dovetail(A,B,C,D)"]
    assert steps["dovetail(A,B)"]["results"] == sum(a["v"] < b["v"] for a in inputs["A"] for b in inputs["B"])
    assert steps["dovetail(A,B,C,D)"]["results"] == len(want)
    three = dt.theta_join(
        {name: frames[name] for name in "ACB"},
        on="A.v < B.v AND ABS(B.v - C.v) <= 1 AND A.k + C.k <> 2",
        sample=False,
    )
    want = reference.theta_join({name: inputs[name] for name in "ABC"}, condition)
    found = Counter(tuple(row) for row in three.select("A.id", "B.id", "C.id").collect())
    assert found == Counter(tuple(row[name]["id"] for name in "ABC") for row in want)


def test_self_join_and_two_joins_in_one_query(left):
    same = dt.theta_join({"R": left, "S": left}, on="R.a < S.a", partitions=2)
    other = dt.theta_join({"R": left, "S": left}, on="R.x < S.x", sample=False)
    want = [expected(lambda r, s, c=c: less(r[c], s[c]), "inner", LEFT, LEFT) for c in "ax"]
    assert pairs(same.unionAll(other)) == want[0] + want[1]
    again = dt.theta_join({"P": same.select("R.*"), "Q": other.select("S.*")}, on="P.id = Q.id", how="semi")
    ids = {s for _, s in want[1]}
    assert Counter(row.P.id for row in again.collect()) == Counter(r for (r, _) in want[0].elements() if r in ids)


# --- what a call does and does not do --------------------------------------------------------------------------


def test_building_starts_no_job(spark, left, right):
    sc = spark.sparkContext
    sc.setJobGroup("building", "no job may run here")
    try:
        bad = left.withColumn("boom", F.raise_error(F.lit("evaluated")).cast("int"))
        for how in HOWS:
            joined = dt.theta_join({"R": bad, "S": right}, on=f"{REST} AND R.boom < S.a", how=how)
        dt.theta_join({"R": bad, "S": right}, on="R.boom < S.a", algorithm="prefap")
        chain = dt.theta_join({"R": bad, "S": right, "T": left}, on="R.boom < S.a AND S.a < T.a")
        str(chain.schema), joined.columns
        assert sc.statusTracker().getJobIdsForGroup("building") == []
    finally:
        sc.setLocalProperty("spark.jobGroup.id", None)
        sc.setLocalProperty("spark.job.description", None)
    with pytest.raises(Exception, match="evaluated"):
        dt.theta_join({"R": bad, "S": right}, on="R.boom < S.a").collect()


def test_settings_stay_as_they_are(spark, left, right):
    before = dict(spark.conf.getAll)
    joined = dt.theta_join({"R": left, "S": right}, on="R.x <= S.y", sample=False)
    joined.count()
    dt.metrics(joined)
    assert dict(spark.conf.getAll) == before


def test_one_routing_serves_both_sides(left, right):
    """Both sides must see the same cells, so the scalar subquery must run once: a second run might differ."""
    joined = dt.theta_join({"R": left, "S": right}, on="R.x <= S.y")
    joined.collect()
    text = joined._jdf.queryExecution().executedPlan().toString()
    # The boxes' side shows the subquery of the points' side once more, as one that has run already.
    assert "ReusedSubquery Subquery subquery#" in text, text


def test_metrics(left, right):
    joined = dt.theta_join({"R": left, "S": right}, on="R.a < S.a", algorithm=dt.OBT(p=3))
    with pytest.raises(ArgumentError, match=r"no action on this join has finished within 0\.5 s"):
        dt.metrics(joined, timeout=0.5)
    results = joined.count()
    counters = dt.metrics(joined)
    usable = [sum(row["a"] is not None for row in side) for side in (LEFT, RIGHT)]
    assert counters["results"] == counters["candidates"] == results
    # One-bucket theta compares every pair.
    assert counters["comparisons"] == usable[0] * usable[1]
    assert counters["cells"] == 9
    assert counters["tasks"] == 4
    assert counters["rows_points"] == 3 * usable[0]
    assert counters["balance_in"] >= 1
    assert counters["kernel_ms"] >= 0
    judged = dt.theta_join({"R": left, "S": right}, on="R.a < S.a AND (R.id + S.id) % 3 > 0", how="left")
    found = judged.collect()
    counters = dt.metrics(judged)
    assert counters["results"] == len(found)
    assert counters["candidates"] == results
    assert counters["rows_points"] == len(LEFT)


# --- explain ---------------------------------------------------------------------------------------------------


def explained(capsys, *args, **choices) -> str:
    dt.explain(dt.theta_join(*args, **choices))
    return capsys.readouterr().out


def test_explain(capsys, left, right):
    both_inputs = {"R": left, "S": right}
    text = explained(capsys, both_inputs, on="R.a <= S.b AND S.a <= R.b AND R.id % 2 = S.id % 3 AND R.k <> 'b'")
    assert text.splitlines()[0] == "theta join, batch, how='inner'"
    assert "  inputs      R, S" in text
    assert "R keeps rows where R.k <> 'b'" in text
    assert "    where     R.id % 2 = S.id % 3 AND R.a <= S.b AND S.a <= R.b" in text
    assert "R gives points, S gives R.a up to S.b and R.b from S.a" in text
    assert "sweep:" in text
    assert "as intervals if that copies less; 4 shuffle partitions of packed segments" in text
    text = explained(capsys, both_inputs, on="R.k = S.k AND (R.a < S.b OR R.x > 0)", how="full")
    assert "groups: rows of one key meet" in text
    assert "Spark evaluates R.a < S.b OR R.x > 0 on what the kernel finds" in text
    assert "two: the left join, and the right rows without a match" in text
    text = explained(capsys, both_inputs, on="R.a < S.b", algorithm="cfs")
    assert "cfs: Cartesian products of surviving partition pairs" in text
    assert "found from all values of both sides" in text
    text = explained(capsys, both_inputs, on="R.a < S.b", broadcast="S")
    assert "no shuffle: the whole of S goes to every task" in text
    text = explained(capsys, both_inputs, on="R.a < S.b", sample=False, partitions=7)
    assert "points spread over the cells, boxes to every cell; 7 shuffle partitions" in text
    on = "A.a < B.a AND ABS(B.x - C.x) < 2 AND ABS(B.y - C.y) < 2"
    text = explained(capsys, {"A": left, "C": right, "B": left}, on=on)
    assert text.index("step 1") < text.index("A with B") < text.index("step 2") < text.index("A x B with C")
    assert "grid: columns of one axis, sorted by the other" in text
    text = explained(capsys, both_inputs, on="S.a BETWEEN R.a AND R.b")
    assert "S gives points, R gives a range of S.a" in text

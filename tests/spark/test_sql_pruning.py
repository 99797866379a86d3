"""``dt.sql`` carries only columns that the statement uses, and never one too few.

The oracle is Spark's own answer to the same statement; tables are wide, and statements name columns in every way that
they can: bare, qualified, in any case, in backquotes, in subqueries, behind stars, in USING, by position.
"""

from __future__ import annotations

import pytest

import dovetail as dt
from dovetail.plan.sql import StatementPlan
from dovetail.spark.metrics import handle_of

WIDTH = 12


@pytest.fixture(scope="module")
def wide(spark):
    more = [f"id * {number} % 7 AS c{number}" for number in range(WIDTH)]
    made = {
        "a": spark.range(30).selectExpr("id", "double(id) AS x", "struct(id AS p, id % 3 AS q) AS st", *more),
        "b": spark.range(40).selectExpr("id AS ref", "double(id) + 0.5 AS y", "id % 4 AS k", *more),
        "c": spark.range(9).selectExpr("id AS ref", "id AS z", *more),
    }
    for name, frame in made.items():
        frame.createOrReplaceTempView(f"wide_{name}")
    return {name: spark.table(f"wide_{name}") for name in made}


def kept(frame) -> dict[str, int]:
    """How many columns of each relation travel."""
    plan = handle_of(frame, "test").plan
    assert isinstance(plan, StatementPlan)
    return {alias: len(one.names) for select in plan.selects for alias, one in select.travelling.items()}


NEAR = "a JOIN b ON ABS(a.x - b.y) <= 1"
STATEMENTS = {
    f"SELECT a.id, b.ref FROM {NEAR}": {"a": 2, "b": 2},
    f"SELECT A.ID AS i, `b`.`C3`, c1 FROM {NEAR.replace('a J', '(SELECT id, x FROM a) a J')}": {"a": 2, "b": 3},
    f"SELECT a.*, b.ref FROM {NEAR}": {"a": 15, "b": 2},
    f"SELECT * FROM {NEAR}": {"a": 15, "b": 15},
    f"SELECT struct(a.*) AS whole, k FROM {NEAR}": {"a": 15, "b": 2},
    f"SELECT count(*) AS n FROM {NEAR}": {"a": 1, "b": 1},
    f"SELECT a.st.q, sum(b.c2) AS total FROM {NEAR} GROUP BY ALL HAVING max(b.c4) > 1": {"a": 2, "b": 3},
    f"SELECT a.id, row_number() OVER (PARTITION BY a.c5 ORDER BY a.id, b.ref) AS r FROM {NEAR}": {"a": 3, "b": 2},
    f"SELECT a.id FROM {NEAR} WHERE EXISTS (SELECT * FROM c WHERE c.z = b.c6)": {"a": 2, "b": 2},
    f"SELECT a.id, b.ref, c.c7 FROM {NEAR} JOIN c ON b.ref = c.ref": {"a": 2, "b": 2, "c": 2},
    f"SELECT a.id, ref, c.c7 FROM {NEAR} JOIN c USING (ref)": {"a": 2, "b": 2, "c": 2},
    "SELECT a.c8, q.n FROM a JOIN (SELECT ref, y, c9 AS n FROM b) q ON a.x BETWEEN q.y - 1 AND q.y": {"a": 2, "q": 2},
    f"WITH j AS (SELECT a.id, b.c2 FROM {NEAR}) SELECT * FROM j": {"a": 2, "b": 2},
    f"SELECT id FROM (SELECT a.id, b.k FROM {NEAR} ORDER BY b.c11, a.id) WHERE k = 1": {"a": 2, "b": 3},
    f"SELECT a.id, l.v FROM {NEAR}, LATERAL (SELECT b.c10 + 1 AS v) l": {},
    f"SELECT transform(array(b.k), v -> v + a.id) AS t FROM {NEAR}": {"a": 2, "b": 2},
    f"SELECT a.id FROM {NEAR} LEFT SEMI JOIN c ON b.c1 < c.z AND c.c0 = 0": {"a": 2, "b": 2, "c": 2},
    "SELECT a.id, b.c0 FROM a FULL JOIN b ON a.x < b.y AND a.c1 = 3": {"a": 3, "b": 2},
    "SELECT a.id, b.c0, d.c5 FROM a JOIN b ON a.x < b.y JOIN b d ON b.y < d.y AND d.k = 1 AND a.c6 = 2 AND b.k = 2": {
        "a": 3, "b": 3, "d": 3,
    },
}  # fmt: skip


@pytest.mark.in_turns(n=4)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_pruned_statement_gives_what_spark_gives(spark, wide, statement):
    ours = dt.sql(statement, **{name: frame for name, frame in wide.items() if named(statement, name)})
    theirs = spark.sql(with_views(statement))
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))
    found = kept(ours)
    # Spark keeps what it does well, and prunes it itself.
    assert found == {alias: count for alias, count in STATEMENTS[statement].items() if alias in found}
    assert bool(found) == bool(STATEMENTS[statement])


def named(statement: str, name: str) -> bool:
    """Whether the statement reads the table of that name."""
    return f" {name} " in statement.replace("(", " ").replace(")", " ").replace(",", " ") + " "


def with_views(statement: str) -> str:
    """The statement over the views that the frames are."""
    heads = ", ".join(f"{name} AS (SELECT * FROM wide_{name})" for name in "abc" if named(statement, name))
    if statement.startswith("WITH "):
        return f"WITH {heads}, {statement.removeprefix('WITH ')}"
    return f"WITH {heads} {statement}"


def test_an_error_knows_all_columns(wide):
    with pytest.raises(dt.StatementError) as raised:
        dt.sql(f"SELECT a.id, b.c111 FROM {NEAR}", a=wide["a"], b=wide["b"])
    assert "`b`.`c11`" in str(raised.value)


def test_names_that_are_patterns_prune_nothing(spark, wide):
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    try:
        frame = dt.sql(f"SELECT a.`c1.*` FROM {NEAR}", a=wide["a"], b=wide["b"])
        assert frame.columns == ["c1", "c10", "c11"]
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")


def test_an_asof_join_keeps_the_columns_that_decide_between_rows_of_one_time(wide):
    frame = dt.sql("SELECT a.id, b.c2 FROM a ASOF JOIN b ON a.x >= b.y", a=wide["a"], b=wide["b"])
    assert kept(frame) == {"a": 2, "b": 6}  # ref, y, k, c0, c1, c2


def test_a_stream_finds_its_time_column_without_its_name(spark):
    """What the decision looks at is the whole relation, also where the statement names little of it."""
    source = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS v", "value * 2 AS w")
    frames = {name: source.withWatermark("ts", "1 second") for name in "AB"}
    joined = dt.sql("SELECT A.v FROM A, B WINDOW = 10 SECONDS WHERE A.v = B.v", **frames)
    assert joined.columns == ["v"]
    assert kept(joined) == {"A": 2, "B": 2}

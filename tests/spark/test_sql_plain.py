"""Plain SQL means what it means in Spark, whoever joins: columns and their order, USING, WITH, parameters, commands."""

from __future__ import annotations

import datetime as py
from collections import Counter
from decimal import Decimal

import pytest

import dovetail as dt
from dovetail.errors import ArgumentError, DovetailError, StatementError

pytestmark = pytest.mark.usefixtures("few_partitions")


@pytest.fixture(scope="module", autouse=True)
def views(spark):
    made = {
        "a": "SELECT * FROM VALUES (10, 1, 'p'), (20, 2, 'q'), (30, 3, 'p') AS t (x, id, n)",
        "b": "SELECT * FROM VALUES (7, 1), (15, 2), (25, NULL) AS t (y, b_id)",
        "c": "SELECT * FROM VALUES (1, 5), (2, 6), (2, 7), (9, 8) AS t (id, z)",
        "d": "SELECT * FROM VALUES ('p', 0), ('q', 1) AS t (n, v)",
    }
    for name, text in made.items():
        spark.sql(text).createOrReplaceTempView(name)


def rows(frame) -> Counter:
    return Counter(tuple(row) for row in frame.collect())


def taken(frame) -> int:
    """How many joins of a statement Dovetail runs."""
    return sum(len(select.joins) for select in frame._dovetail.plan.selects)


def same_as_spark(spark, text: str, joins: int) -> None:
    expected, given = spark.sql(text), dt.sql(text)
    assert given.columns == expected.columns
    assert [field.dataType for field in given.schema] == [field.dataType for field in expected.schema]
    assert rows(given) == rows(expected)
    assert taken(given) == joins


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM a JOIN b ON a.x > b.y JOIN c ON a.id = c.id",
        "SELECT * FROM a, b, c WHERE a.x > b.y AND a.id = c.id",
        "SELECT * FROM a JOIN b ON a.x > b.y JOIN c ON a.id = c.id UNION ALL SELECT x, id, n, y, b_id, id, x FROM a, b",
        "SELECT * EXCEPT (n) FROM b, a, c WHERE a.x > b.y AND a.id = c.id",
        "SELECT c.*, struct(*) AS everything FROM a, b, c WHERE a.x > b.y AND a.id = c.id",
    ],
)
def test_stars_have_the_order_of_from(spark, text):
    same_as_spark(spark, text, 1)


def test_what_is_compared_has_sparks_type_in_a_struct_of_all_columns(spark):
    """An inner join drops NULL, and yet Spark declares what it compares nullable."""
    spark.sql("SELECT * FROM VALUES (1, 1.5D), (2, NULL) AS t (k, d)").createOrReplaceTempView("nullable")
    same_as_spark(spark, "SELECT struct(*) AS everything FROM nullable AS p, nullable AS q WHERE p.d <= q.d", 1)


@pytest.mark.parametrize("sensitive", ["true", "false"])
def test_natural_joins_before_a_join_of_ours_merge_the_names_that_spark_merges(spark, sensitive):
    spark.sql("SELECT * FROM VALUES (1, 2, 3) AS t (I, k, z)").createOrReplaceTempView("upper_i")
    spark.sql("SELECT * FROM VALUES (1, 4, 2) AS t (i, y, k)").createOrReplaceTempView("lower_i")
    before = spark.conf.get("spark.sql.caseSensitive")
    spark.conf.set("spark.sql.caseSensitive", sensitive)
    try:
        for star in ("*", "p.*, q.*, r.*"):
            text = f"SELECT {star} FROM upper_i AS p NATURAL LEFT JOIN lower_i AS q LEFT JOIN a AS r ON p.z < r.x"
            same_as_spark(spark, text, 1)
    finally:
        spark.conf.set("spark.sql.caseSensitive", before)


@pytest.mark.in_turns
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN", "FULL JOIN"])
def test_using_before_a_join_of_ours(spark, join, how):
    one_sided = "SEMI" in join or "ANTI" in join
    source = f"FROM a {join} c USING (id) {how} b ON a.x > b.y"
    same_as_spark(spark, f"SELECT * {source}", 1)
    same_as_spark(spark, f"SELECT id, a.id AS own, y {source} WHERE id IS NULL OR id < 9", 1)
    if not one_sided:
        same_as_spark(spark, f"SELECT c.*, a.*, c.id + 1 AS further {source}", 1)
        same_as_spark(spark, f"SELECT id, count(c.id) AS n {source} GROUP BY id", 1)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("SELECT * FROM a NATURAL JOIN d JOIN b ON a.x > b.y", 1),
        ("SELECT * FROM b JOIN a ON a.x > b.y JOIN c USING (id)", 1),
        ("SELECT * FROM d JOIN a USING (n) JOIN c USING (id) JOIN b ON a.x > b.y", 1),
        ("SELECT * FROM a FULL JOIN c USING (id) LEFT JOIN b ON a.x > b.y JOIN d ON b.y < d.v + 20", 2),
        ("SELECT id, c.id AS other FROM a JOIN c USING (id) JOIN b ON a.x > b.y JOIN d ON c.z > d.v", 2),
        ("SELECT count(*) AS n FROM a JOIN c USING (id) JOIN b ON a.x > b.y WHERE c.id > (SELECT min(v) FROM d)", 1),
        ("SELECT id FROM a JOIN c USING (id) JOIN b ON a.x > b.y WHERE EXISTS (SELECT 1 FROM d WHERE c.id > v)", 1),
    ],
)  # fmt: skip
def test_merged_columns_in_longer_chains(spark, text, joins):
    same_as_spark(spark, text, joins)


def test_a_common_table_expression_that_draws_random_values_is_drawn_once():
    text = "WITH s AS (SELECT id, uuid() AS u FROM range(60)) SELECT count(*) AS n FROM s a JOIN s b ON a.u <= b.u"
    assert dt.sql(text).first().n == 1830
    # A clause of ours cannot be left to Spark: both references are one frame, whose seeds are fixed.
    nearest = """WITH s AS (SELECT id, rand() AS u FROM range(60))
                 SELECT count(*) AS n, sum(abs(a.u - b.u)) AS off FROM s a ASOF JOIN s b ON a.u >= b.u"""
    assert dt.sql(nearest).first() == (60, 0.0)


def test_a_common_table_expression_has_the_same_values_in_all_parts():
    text = """WITH s AS (SELECT id, rand() AS u FROM range(40))
              SELECT count(*) AS n FROM (SELECT a.id, a.u FROM s a ASOF JOIN s b ON a.u >= b.u) p
              JOIN s ON s.id = p.id AND s.u = p.u"""
    assert dt.sql(text).first().n == 40


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM (SELECT date'2026-01-01' AS d) p JOIN (SELECT '2026-02-01' AS s) q ON p.d <= q.s",
        "SELECT count(*) AS n FROM (SELECT 1 AS i) p JOIN (SELECT '2' AS s) q ON p.i < q.s",
        "WITH p AS (SELECT 'A' COLLATE UTF8_LCASE AS s) SELECT count(*) AS n FROM p JOIN p q ON p.s <= q.s",
        "SELECT count(*) AS n FROM (SELECT array(1) AS v) p JOIN (SELECT array(2) AS v) q ON p.v < q.v",
        "SELECT `the a`.x FROM a AS `the a` JOIN b AS `the b` ON `the a`.x > `the b`.y",
        "SELECT count(*) AS n FROM (SELECT 1 AS i, 2 AS i) p JOIN b ON b.y > 1 JOIN a ON a.x > b.y",
        "SELECT a.x FROM a JOIN b ON a.x > b.y WHERE 15 IN (x, y, id, b_id)",
        "SELECT p.x FROM (SELECT x, id FROM a) p JOIN (SELECT y FROM b) q ON p.x > q.y WHERE 15 IN (*)",
    ],
)
def test_what_spark_runs_is_not_refused(spark, text):
    assert rows(dt.sql(text)) == rows(spark.sql(text))


def test_hidden_columns_of_files(spark, tmp_path):
    spark.table("a").write.parquet(str(tmp_path / "a"))
    text = f"SELECT r.x, r._metadata.file_name FROM parquet.`{tmp_path}/a` r JOIN b ON r.x > b.y"
    assert rows(dt.sql(text)) == rows(spark.sql(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nothing FROM a JOIN b ON a.x > b.y",
        "SELECT nothing FROM a ASOF JOIN b ON a.x >= b.y",
        "SELECT * FROM a ASOF JOIN b ON a.x >= b.y WHERE `__dovetail_0_7` = 1",
        "SELECT x y z FROM a, b WHERE a.x > b.y",
    ],
)
def test_no_message_names_a_column_of_ours(text):
    with pytest.raises(StatementError) as caught:
        dt.sql(text)
    assert "__" not in str(caught.value).replace("`__dovetail_0_7` = 1", "").replace("__dovetail_0_7`", "")


def test_explain_says_why_a_join_is_left_to_spark(capsys):
    dt.explain(dt.sql("SELECT 1 AS n FROM (SELECT 1 AS i, 2 AS m, 3 AS m) p JOIN (SELECT 2 AS s) q ON p.i < q.s"))
    assert "p, q: Spark, because of this: Dovetail cannot run it" in capsys.readouterr().out


def test_parameters(spark):
    text = "SELECT a.x, :tag AS tag FROM a JOIN b ON a.x - b.y BETWEEN :low AND :high WHERE a.n = :name"
    args = {"low": -5, "high": 15, "name": "p", "tag": "it's \\ here"}
    given = dt.sql(text, args=args)
    assert rows(given) == rows(spark.sql(text, args=args))
    assert taken(given) == 1
    text = "SELECT count(*) AS n FROM a JOIN b ON a.x > b.y + ? AND b.y > ?"
    assert rows(dt.sql(text, args=[1, -3])) == rows(spark.sql(text, args=[1, -3]))
    assert rows(dt.sql("SELECT * FROM A JOIN b ON A.x > b.y - :n", {"n": 2}, A=spark.table("a"))) == rows(
        spark.sql("SELECT * FROM a JOIN b ON a.x > b.y - 2")
    )


@pytest.mark.parametrize(
    "value",
    [
        None, True, 5, -5, 2**40, -(2**63), 1.5, -0.0, float("nan"), float("-inf"), 1e300, Decimal("12.340"),
        Decimal("-7"), "plain", "quote ' and \\ and \n", "ä", "", b"\x00a", py.date(2026, 2, 28),
        py.datetime(2026, 3, 29, 2, 30), py.datetime(2026, 3, 29, 2, 30, tzinfo=py.UTC),
        py.timedelta(days=-2, microseconds=7),
    ],
)  # fmt: skip
def test_values_of_parameters_have_the_types_of_spark(spark, value):
    text = "SELECT :v AS v"
    given, expected = dt.sql(text, args={"v": value}), spark.sql(text, args={"v": value})
    assert given.schema["v"].dataType == expected.schema["v"].dataType
    assert repr(given.first().v) == repr(expected.first().v)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("SELECT :v", {"w": 1}),
        ("SELECT ?, ?", [1]),
        ("SELECT ?", [1, 2]),
        ("SELECT :v", {"v": object()}),
        ("SELECT :v", "text"),
    ],
)
def test_parameters_that_do_not_fit(text, args):
    with pytest.raises((ArgumentError, StatementError)):
        dt.sql(text, args=args)


def test_commands_around_a_query(spark, tmp_path):
    expected = rows(spark.sql("SELECT a.x, b.y FROM a, b WHERE a.x > b.y"))
    spark.sql(f"CREATE TABLE pairs (x INT, y INT) USING parquet LOCATION '{tmp_path}/pairs'")
    try:
        dt.sql("INSERT INTO pairs SELECT a.x, b.y FROM a JOIN b ON a.x > b.y")
        dt.sql(
            "INSERT INTO pairs (y, x) WITH w AS (SELECT * FROM p) SELECT w.y, a.x FROM a JOIN w ON a.x > w.y",
            p=spark.table("b"),
        )
        assert rows(spark.table("pairs")) == expected + expected
        made = dt.sql(
            f"""CREATE TABLE copied USING parquet LOCATION '{tmp_path}/c'
                AS (SELECT a.x, b.y FROM a ASOF JOIN b ON a.x >= b.y)"""
        )
        assert taken(made) == 1
        assert rows(spark.table("copied")) == Counter([(10, 7), (20, 15), (30, 25)])
    finally:
        spark.sql("DROP TABLE IF EXISTS pairs")
        spark.sql("DROP TABLE IF EXISTS copied")


def test_views_around_a_query(spark):
    dt.sql("CREATE OR REPLACE TEMPORARY VIEW pairs_view (p, q) AS SELECT a.x, b.y FROM a JOIN b ON a.x > b.y")
    assert spark.table("pairs_view").columns == ["p", "q"]
    assert rows(spark.table("pairs_view")) == rows(spark.sql("SELECT a.x, b.y FROM a, b WHERE a.x > b.y"))
    with pytest.raises(DovetailError):
        dt.sql("CREATE TEMP VIEW pairs_view AS SELECT a.x FROM a JOIN b ON a.x > b.y")
    with pytest.raises(StatementError, match="Spark would store the text"):
        dt.sql("CREATE VIEW kept AS SELECT a.x FROM a ASOF JOIN b ON a.x >= b.y")


def test_views_that_only_spark_can_create(spark):
    text = "SELECT p.x, q.y FROM (SELECT 5 AS x) p JOIN (SELECT 3 AS y) q ON p.x > q.y"
    try:
        for head in (
            "CREATE VIEW kept",
            "CREATE TEMP VIEW noted COMMENT 'why'",
            "CREATE VIEW IF NOT EXISTS kept (x COMMENT 'c', y)",
        ):
            dt.explain(dt.sql(f"{head} AS {text}"))
        assert rows(spark.table("kept")) == rows(spark.table("noted")) == Counter([(5, 3)])
    finally:
        spark.sql("DROP VIEW IF EXISTS kept")


@pytest.mark.since("4.3", "an ASOF JOIN of its own to compare with")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t ASOF JOIN q MATCH_CONDITION (t.at >= q.at) ON t.k = q.k",
        "SELECT * FROM t ASOF JOIN q MATCH_CONDITION (t.at > q.at)",
        "SELECT t.v, q.w FROM t ASOF JOIN q MATCH_CONDITION (t.at <= q.at) USING (k)",
        "SELECT * FROM t ASOF JOIN q MATCH_CONDITION (q.at <= t.at) USING (k)",
        "SELECT * FROM t LEFT ASOF JOIN q MATCH_CONDITION (t.at >= q.at) ON t.k = q.k",
        "SELECT * FROM t INNER ASOF JOIN q MATCH_CONDITION (t.at >= q.at) ON t.k = q.k",
        "SELECT t.v, q.w, q.k, k FROM t LEFT OUTER ASOF JOIN q MATCH_CONDITION (t.at >= q.at) USING (k)",
        "SELECT * FROM t ASOF JOIN q MATCH_CONDITION (t.at >= q.at) USING (k) JOIN b ON q.at < b.y",
    ],
)
def test_as_of_joins_as_spark_spells_them(spark, text):
    spark.sql(
        "SELECT * FROM VALUES (1, 10, 'a'), (2, 5, 'b'), (1, 3, 'c'), (NULL, 4, 'd') AS t (k, at, v)"
    ).createOrReplaceTempView("t")
    spark.sql(
        "SELECT * FROM VALUES (1, 9, 'x'), (1, 10, 'y'), (2, 6, 'z'), (3, 1, 'u') AS t (k, at, w)"
    ).createOrReplaceTempView("q")
    given = dt.sql(text)
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    try:
        expected = spark.sql(text)
    finally:
        spark.conf.unset("spark.sql.join.asofJoin.enabled")
    assert given.columns == expected.columns
    assert rows(given) == rows(expected)
    assert taken(given) == 1 + ("JOIN b" in text)


def test_left_comes_before_or_behind_asof(spark):
    both = [dt.sql(f"SELECT * FROM a {how} JOIN b ON a.x >= b.y + 20") for how in ("LEFT ASOF", "ASOF LEFT")]
    assert rows(both[0]) == rows(both[1])
    assert both[0].count() == 3

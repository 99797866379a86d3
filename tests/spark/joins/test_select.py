"""``select=`` of the functions: forms that it takes, what travels, and what is refused, before any job."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.errors import ArgumentError, UnknownNameError
from dovetail.plan.selection import SelectedPlan
from dovetail.spark.metrics import handle_of

ON = "t.price BETWEEN q.bid - 1 AND q.bid + 1"


@pytest.fixture(scope="module")
def frames(spark):
    more = [f"id + {number} AS c{number}" for number in range(40)]
    return {
        "t": spark.range(20).selectExpr("id", "double(id) AS price", *more),
        "q": spark.range(20).selectExpr("id AS ref", "double(id) + 0.25 AS bid", *more),
    }


def travelling(frame) -> dict[str, tuple[str, ...]]:
    plan = handle_of(frame, "test").plan
    assert isinstance(plan, SelectedPlan)
    return {alias: one.names for alias, one in plan.travelling.items()}


FORMS = {
    "a text": "t.id, q.ref AS other",
    "a list": ["t.id", "q.ref AS other"],
    "bare names": ["id", "ref AS other"],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(frames, form):
    found = dt.theta_join(frames, on=ON, select=FORMS[form])
    meant = dt.theta_join(frames, on=ON).selectExpr("t.id", "q.ref AS other")
    assert found.columns == meant.columns
    assert sorted(found.collect()) == sorted(meant.collect())
    assert travelling(found) == {"t": ("id", "price"), "q": ("ref", "bid")}


@pytest.mark.in_turns(group="several seconds")
def test_columns_of_the_joined_row_and_of_the_inputs(frames):
    """``F.col("t.id")`` names the joined row, ``t["id"]`` a frame that went into it."""
    t, q = frames["t"], frames["q"]
    meant = sorted(dt.theta_join(frames, on=ON).selectExpr("t.id", "q.ref AS other").collect())
    for select in (
        [F.col("t.id"), F.col("q.ref").alias("other")],
        [t["id"], q["ref"].alias("other")],
        ["t.id", q["ref"].alias("other")],
    ):
        found = dt.theta_join(frames, on=t["price"].between(q["bid"] - 1, q["bid"] + 1), select=select)
        assert found.columns == ["id", "other"]
        assert sorted(found.collect()) == meant
        assert travelling(found) == {"t": ("id", "price"), "q": ("ref", "bid")}


def test_a_whole_input_keeps_all_its_columns(frames):
    found = dt.theta_join(frames, on=ON, select=[F.col("t"), F.col("t.id"), "q.ref"])
    assert len(found.schema["t"].dataType.fields) == 42
    assert travelling(found)["q"] == ("ref", "bid")


def test_columns_that_a_join_adds_can_be_selected(frames):
    near = dt.nearest_join(frames, on="ABS(t.price - q.bid)", select="t.id, q.ref, distance, rank")
    assert near.columns == ["id", "ref", "distance", "rank"]
    sums = dt.aggregate_join(
        frames, on=ON, by="t", agg={"n": "count(*)", "s": "sum(q.c3)"}, select=["t.id", "n * 2 AS m"]
    )
    assert sums.columns == ["id", "m"]
    assert sorted(sums.collect())[:2] == [(0, 2), (1, 4)]
    assert travelling(sums)["q"] == ("bid", "c3")
    sample = dt.approx_join(frames, on="t.id = q.ref", memory=100, select="t.id, sampling")
    assert dt.estimates(sample).columns == ["rows"]


@pytest.mark.parametrize(
    ("select", "error", "said"),
    [
        ("t.idd", UnknownNameError, "did you mean 'id'?"),
        ("t.c1, q.c1", ArgumentError, "two columns named 'c1'"),
        ("c1", ArgumentError, "ambiguous"),
        ([], ArgumentError, "select=[]"),
        (["t.id", 3], ArgumentError, "select holds 3"),
        ("t.id + date'2020-01-01' * 'a'", ArgumentError, "which Spark cannot evaluate over the joined row"),
    ],
)
def test_what_cannot_be_selected_is_refused(frames, select, error, said):
    with pytest.raises(error) as raised:
        dt.theta_join(frames, on=ON, select=select)
    assert said in str(raised.value)


def test_a_column_that_nobody_has_is_refused(frames):
    with pytest.raises(ArgumentError, match="cannot resolve"):
        dt.theta_join(frames, on=ON, select=F.col("t.nothing"))


def test_rows_that_do_not_come_out_are_refused(frames):
    with pytest.raises(ArgumentError, match="do not come out with how='semi'"):
        dt.theta_join(frames, on=ON, how="semi", select="q.ref")


def test_an_error_in_another_argument_knows_all_columns(frames):
    with pytest.raises(UnknownNameError) as raised:
        dt.theta_join(frames, on="t.c399 < q.bid", select="t.id")
    assert "did you mean 'c39'?" in str(raised.value)


def test_types_that_cannot_travel_do_not_matter_where_they_stay(frames, spark):
    doubled = spark.sql("SELECT 1 AS id, 2 AS x, 3 AS x")
    found = dt.theta_join({"d": doubled, "q": frames["q"]}, on="d.id < q.bid", select="d.id, q.ref")
    assert found.count() == 19


def test_explain_tells_what_travels_and_warns_of_wide_inputs(frames, capsys):
    dt.explain(dt.theta_join(frames, on=ON, select="t.id, q.ref"))
    assert "  select      t.id, q.ref\n  columns     t: 2 of 42; q: 2 of 42 travel\n" in capsys.readouterr().out
    dt.explain(dt.theta_join(frames, on=ON))
    assert "  wide        rows carry all their columns, t 42, q 42: name those" in capsys.readouterr().out


def test_explain_of_a_join_that_ran_tells_its_balance(frames, capsys):
    joined = dt.theta_join(frames, on=ON, broadcast=False, partitions=2)
    joined.count()
    dt.explain(joined, analyzed=True)
    said = capsys.readouterr().out
    found = dt.metrics(joined)
    assert found["rows_in"] == 40
    assert found["load_largest"] >= found["load_least"] == (40 + found["candidates"] / 2) / 2
    assert f"sent        {40 + found['copies']} rows for 40" in said

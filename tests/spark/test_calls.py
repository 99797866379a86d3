"""Calls as users of Spark and pandas write them: they work, or the message names the argument that it is here."""

from __future__ import annotations

import sys
import types

import pandas as pd
import pyarrow as pa
import pytest

import dovetail as dt


@pytest.fixture(scope="module")
def r(spark):
    return spark.createDataFrame([(1, 1), (2, 5), (3, 9)], "k int, t int").coalesce(1)


@pytest.fixture(scope="module")
def s(spark):
    return spark.createDataFrame([(1, 2), (2, 4), (4, 9)], "k int, t int").coalesce(1)


@pytest.fixture(scope="module")
def view(s):
    s.createOrReplaceTempView("calls_s")
    yield "calls_s"
    s.sparkSession.catalog.dropTempView("calls_s")


CALLS = {
    "theta_join": {"on": "R.k < S.k"},
    "window_join": {"on": "R.k = S.k", "time": "t", "within": 2},
    "asof_join": {"time": "t"},
    "bestmatch_join": {"on": [dt.closest("t")]},
    "approx_join": {"on": "R.k = S.k", "memory": 10, "seed": 1},
}


def rows(frame):
    return sorted(map(str, frame.select("R", "S").collect()))


@pytest.mark.parametrize("name", CALLS)
def test_inputs_as_a_mapping_as_keywords_and_by_name(name, r, s, view):
    join, options = getattr(dt, name), CALLS[name]
    expected = rows(join({"R": r, "S": s}, **options))
    assert expected
    assert rows(join(R=r, S=view, **options)) == expected
    assert rows(join({"R": r, "S": view}, **options)) == expected
    assert join(S=s, R=r, **options).columns[:2] == ["S", "R"], "the order of the keywords is that of the inputs"


def test_names_alone(s, view):
    both = dt.theta_join(R=view, S="calls_s", on="R.k < S.k")
    assert rows(both) == rows(dt.theta_join({"R": s, "S": s}, on="R.k < S.k"))
    assert both.columns == ["R", "S"]


HOWS = [
    ("theta_join", ["outer", "LEFT_OUTER", "rightouter", "left_semi", "LeftAnti"]),
    ("window_join", ["fullouter", "leftouter", "right_outer", "leftsemi", "left_anti"]),
    ("asof_join", ["left_outer"]),
    ("bestmatch_join", ["full_outer", "leftouter", "RIGHT_OUTER"]),
]
OURS = {"outer": "full", "full": "full", "left": "left", "right": "right", "semi": "semi", "anti": "anti"}


def ours(how):
    folded = how.lower().replace("_", "")
    for ending in ("semi", "anti"):
        if folded.endswith(ending):
            return ending
    return OURS[folded.removesuffix("outer") or "outer"]


@pytest.mark.parametrize(("name", "how"), [(name, how) for name, hows in HOWS for how in hows])
def test_how_in_sparks_spellings(name, how, r, s, capsys):
    join, options = getattr(dt, name), CALLS[name]
    dt.explain(join(R=r, S=s, how=how, **options))
    spelled = capsys.readouterr().out
    dt.explain(join(R=r, S=s, how=ours(how), **options))
    assert spelled == capsys.readouterr().out, "the plan knows our words only"
    assert f"how={ours(how)!r}" in spelled


def test_sparks_spelling_gives_sparks_rows(r, s):
    joined = dt.theta_join(R=r, S=s, on="R.k < S.k", how="left_outer")
    theirs = r.alias("R").join(s.alias("S"), on=r["k"] < s["k"], how="left_outer")
    assert joined.count() == theirs.count()


@pytest.mark.parametrize(
    ("name", "how"), [("asof_join", "cross"), ("bestmatch_join", "leftsemi"), ("window_join", "cross")]
)
def test_what_a_family_does_not_take_stays_refused(name, how, r, s):
    with pytest.raises(dt.ArgumentError, match=f"how='{how}' is not a choice"):
        getattr(dt, name)(R=r, S=s, how=how, **CALLS[name])


ELSEWHERE = [
    ("asof_join", {"left_on": "t", "right_on": "t"}, "time="),
    ("asof_join", {"time": "t", "tolerance": 5}, "within="),
    ("asof_join", {"time": "t", "left_by": "k"}, "by="),
    ("asof_join", {"time": "t", "right_by": "k"}, "by="),
    ("asof_join", {"time": "t", "strategy": "backward"}, "direction="),
    ("asof_join", {"time": "t", "allowExactMatches": True}, "allow_exact_matches="),
    ("asof_join", {"time": "t", "suffixes": ("_x", "_y")}, "nothing"),
    ("theta_join", {"condition": "R.k < S.k"}, "on="),
    ("theta_join", {"predicate": "R.k < S.k"}, "on="),
    ("theta_join", {"left_on": "k", "right_on": "k"}, "on="),
    ("theta_join", {"on": "R.k < S.k", "joinType": "left"}, "how="),
    ("theta_join", {"on": "R.k < S.k", "join_type": "left"}, "how="),
    ("window_join", {"predicate": "R.k = S.k", "time": "t", "within": 2}, "on="),
    ("window_join", {"on": "R.k = S.k", "time": "t", "tolerance": 2}, "within="),
    ("approx_join", {"on": "R.k = S.k", "memory": 10, "how": "left"}, "inner"),
    ("bestmatch_join", {"criteria": [dt.closest("t")]}, "on="),
    ("bestmatch_join", {"on": [dt.closest("t")], "within": 5}, "within="),
]


@pytest.mark.parametrize(("name", "options", "accepted"), ELSEWHERE)
@pytest.mark.parametrize("mapping", [True, False])
def test_names_of_other_libraries(name, options, accepted, mapping, r, s):
    inputs = {"R": r, "S": s}
    with pytest.raises(dt.ArgumentError, match=f"{name} has no argument") as refused:
        getattr(dt, name)(inputs, **options) if mapping else getattr(dt, name)(**inputs, **options)
    assert refused.value.accepted.startswith(accepted)
    assert refused.value.hint


NEEDED = [
    ("asof_join", {"on": "t"}, "time="),
    ("theta_join", {}, "on="),
    ("window_join", {"on": "R.k = S.k", "within": 2}, "time="),
    ("window_join", {"on": "R.k = S.k", "time": "t"}, "within="),
    ("approx_join", {"on": "R.k = S.k"}, "memory="),
    ("bestmatch_join", {"by": "k"}, "on="),
]


@pytest.mark.parametrize(("name", "options", "accepted"), NEEDED)
def test_an_argument_that_is_missing(name, options, accepted, r, s):
    with pytest.raises(dt.ArgumentError, match=f"{name} needs {accepted}") as refused:
        getattr(dt, name)(R=r, S=s, **options)
    assert refused.value.accepted.startswith(accepted)
    assert refused.value.hint


@pytest.mark.parametrize("name", CALLS)
def test_two_frames_without_names(name, r, s):
    with pytest.raises(dt.ArgumentError, match="arguments without a name") as refused:
        getattr(dt, name)(r, s, **CALLS[name])
    assert f"dt.{name}(a=a, b=b, ...)" in refused.value.accepted


def test_a_frame_for_an_option(r, s):
    with pytest.raises(dt.ArgumentError, match="how= is a DataFrame, but how is an option") as refused:
        dt.theta_join(R=r, how=s, on="R.k < how.k")
    assert "dt.theta_join({'how': ..., ...}" in refused.value.accepted
    assert dt.theta_join({"R": r, "how": s}, on="R.k < how.k").count() == 4


@pytest.mark.parametrize("mapping", [True, False])
def test_a_misspelt_option(mapping, r, s):
    inputs = {"R": r, "S": s}
    with pytest.raises(dt.ArgumentError, match="theta_join has no argument partition=") as refused:
        dt.theta_join(inputs, on="R.k < S.k", partition=4) if mapping else dt.theta_join(
            **inputs, on="R.k < S.k", partition=4
        )
    assert refused.value.hint == "did you mean 'partitions'?"


def test_a_text_under_an_unknown_name_is_a_table(r, s):
    with pytest.raises(dt.UnknownNameError, match="the input 'algoritm' is 'obt'") as refused:
        dt.theta_join(R=r, S=s, on="R.k < S.k", algoritm="obt")
    assert refused.value.hint == "algoritm= is no option, and so it was read as an input"
    with pytest.raises(dt.ArgumentError, match="theta_join has no argument algoritm="):
        dt.theta_join({"R": r, "S": s}, on="R.k < S.k", algoritm="obt")


def test_no_such_table(r):
    with pytest.raises(dt.UnknownNameError, match="Spark has no such table or view") as refused:
        dt.theta_join({"R": r, "S": "nosuch.calls"}, on="R.k < S.k")
    assert "nosuch" in refused.value.hint


def test_both_forms_at_once(r, s):
    with pytest.raises(dt.ArgumentError, match="S= is another one"):
        dt.theta_join({"R": r}, S=s, on="R.k < S.k")


def test_no_inputs():
    with pytest.raises(dt.ArgumentError, match="the call has no inputs"):
        dt.theta_join(on="R.k < S.k")


def test_frames_of_other_packages(r):
    table = pd.DataFrame({"k": [1], "t": [1]})
    polars = types.new_class("DataFrame", exec_body=lambda space: space.update(__module__="polars.dataframe.frame"))
    on_spark = types.new_class("DataFrame", exec_body=lambda space: space.update(__module__="pyspark.pandas.frame"))
    relation = types.new_class("DuckDBPyRelation", exec_body=lambda space: space.update(__module__="_duckdb"))
    for given, hint in [
        (table, "spark.createDataFrame(frame)"),
        (pa.table({"k": [1]}), "spark.createDataFrame(table)"),
        (polars(), "frame.to_arrow()"),
        (on_spark(), "frame.to_spark()"),
        (relation(), "relation.to_arrow_table()"),
    ]:
        for call in (lambda one: {"inputs": {"R": r, "S": one}}, lambda one: {"R": r, "S": one}):
            with pytest.raises(dt.ArgumentError, match="the input 'S' is a") as refused:
                dt.theta_join(**call(given), on="R.k < S.k")
            assert hint in refused.value.hint
    assert "pyspark.pandas" not in sys.modules

"""Bad input of every kind: the text of the complaint, and that it comes before any job."""

from __future__ import annotations

import re

import pandas as pd
import pyarrow as pa
import pytest

import dovetail as dt
from dovetail.errors import (
    ArgumentError,
    DovetailError,
    PredicateError,
    UnboundedJoinError,
    UnknownNameError,
    UnsupportedTypeError,
    at_position,
    choice,
    closest,
    listing,
)

# --- wording, without a JVM ------------------------------------------------------------------------------------


def test_parts_of_a_message():
    error = ArgumentError("x=1", accepted="2", hint="think")
    assert str(error) == "x=1\n  accepted: 2\n  hint: think"
    assert isinstance(error, ValueError)
    assert isinstance(UnknownNameError("a"), LookupError)
    assert str(UnknownNameError("a")) == "a"
    assert isinstance(UnsupportedTypeError("a"), TypeError)
    assert isinstance(UnboundedJoinError("a"), DovetailError)


def test_listing_and_closest():
    assert listing(["b", "a"]) == "a, b"
    assert listing([]) == "(none)"
    assert listing([f"c{i:02}" for i in range(25)]).endswith("c19, and 5 more")
    assert closest("Prise", ["price", "name"]) == "did you mean 'price'?"
    assert closest("zzz", ["price"]) is None
    assert "did you mean 'left'?" in str(choice("how", "lfet", ["left", "right"]))
    assert choice("how", 3, ["left"]).hint is None
    assert at_position("a\nbc", 2, 2) == "    bc\n     ^"


# --- calls -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frames(spark):
    """Inputs R and S; whatever evaluates a row of them fails."""
    columns = """id, CAST(id AS INT) AS price, CAST(id AS STRING) AS name, DATE'2026-01-01' AS day,
        MAP('a', id) AS tags,
        TIMESTAMP'2026-01-01 00:00:00' AS ts, id > 0 AS flag, CAST(id AS STRING) COLLATE UNICODE_CI AS folded,
        ARRAY(id) AS list, CAST(id AS DECIMAL(30, 2)) AS wide, X'00' AS raw, assert_true(id < 0) AS boom"""
    made = spark.range(3).selectExpr(*re.split(r",\s*(?![^(]*\))", columns))
    return {"R": made, "S": made}


@pytest.fixture(autouse=True)
def _no_job(request):
    """No job may have run by the end of a test of this file."""
    if "spark" not in request.fixturenames:
        yield
        return
    sc = request.getfixturevalue("spark").sparkContext
    sc.setJobGroup(request.node.nodeid, "no job may run here")
    try:
        yield
        assert sc.statusTracker().getJobIdsForGroup(request.node.nodeid) == []
    finally:
        sc.setLocalProperty("spark.jobGroup.id", None)
        sc.setLocalProperty("spark.job.description", None)


def message(kind: type[DovetailError], inputs, **choices) -> str:
    with pytest.raises(kind) as caught:
        dt.theta_join(inputs, **choices)
    assert type(caught.value) is kind
    return str(caught.value)


BAD_CONDITIONS = [
    ("T.id < S.id", UnknownNameError, ["on names the input 'T', which is not among the inputs", "accepted: one of the aliases R, S"]),  # noqa: E501
    ("R.prise < S.id", UnknownNameError, ["on names the column R.prise, which 'R' does not have", "one of its columns boom, day,", "did you mean 'price'?"]),  # noqa: E501
    ("cost < S.id", UnknownNameError, ["on names the column 'cost', which no input has", "R.id"]),
    ("price < S.id", PredicateError, ["on names 'price', which is ambiguous", "R.price or S.price", "name it in full"]),
    ("R < S.id", PredicateError, ["on uses the input 'R' as if it were a column"]),
    ("R.id < AND S.id", PredicateError, ["on, line 1: this is not a condition", "    R.id < AND S.id\n           ^"]),
    ("R.id < < S.id", PredicateError, ["Spark cannot evaluate the condition", "hint: [PARSE_SYNTAX_ERROR]"]),
    ("R.id < 'a", PredicateError, ["begins here and does not end", "^"]),
    ("", PredicateError, []),
    ("WHERE R.id < S.id", PredicateError, ["^"]),
    ("R.id < (SELECT 1)", PredicateError, ["not a condition on rows"]),
    ("sum(R.id) < S.id", PredicateError, ["makes this no condition on rows", "    sum(R.id) < S.id\n    ^"]),
    (5, PredicateError, ["on=5 is not a condition"]),
    ("R.id + 1 AND R.id < S.id", PredicateError, ["is a value of type bigint, not a condition"]),
    ("R.id < S.id AND nosuch(R.id, S.id)", PredicateError, ["Spark cannot evaluate the condition nosuch(", "hint: [UNRESOLVED_ROUTINE]"]),  # noqa: E501
    ("nosuch(R.id) < S.id", PredicateError, ["Spark cannot evaluate nosuch(", "over the input 'R'"]),
    ("R.tags = S.tags", PredicateError, ["Spark cannot evaluate the condition `R`.`tags` = `S`.`tags`", "DATATYPE_MISMATCH"]),  # noqa: E501
    ("R.day < S.price", PredicateError, ["Spark cannot evaluate the condition `R`.`day` < `S`.`price`", "DATATYPE_MISMATCH"]),  # noqa: E501
    ("R.flag < S.price", PredicateError, ["Spark cannot evaluate the condition", "DATATYPE_MISMATCH"]),
    ("ABS(R.ts - S.ts) <= 5", UnsupportedTypeError, ["is a length of time, but its bound is the number 5", "INTERVAL 10 MINUTES"]),  # noqa: E501
    ("ABS(R.id - S.id) <= INTERVAL 5 MINUTES", UnsupportedTypeError, ["a number, but its bound is a length of time"]),
    ("R.flag - S.flag <= 5", PredicateError, ["Spark cannot evaluate the condition", "DATATYPE_MISMATCH"]),
]  # fmt: skip


@pytest.mark.parametrize(("on", "kind", "texts"), BAD_CONDITIONS, ids=[str(on) for on, _, _ in BAD_CONDITIONS])
def test_bad_conditions(frames, on, kind, texts):
    shown = message(kind, frames, on=on)
    assert [text for text in texts if text not in shown] == [], shown


BAD_ARGUMENTS = [
    ({"how": "sideways"}, ArgumentError, ["how='sideways' is not a choice", "'inner', 'left', 'right', 'full'"]),
    ({"how": "lef"}, ArgumentError, ["did you mean 'left'?"]),
    ({"how": None}, ArgumentError, ["how=None is not a choice"]),
    ({"how": []}, ArgumentError, ["how=[] is not a choice"]),
    ({"algorithm": "prefab"}, ArgumentError, ["algorithm='prefab' is not a choice", "did you mean 'prefap'?"]),
    ({"partitions": 0}, ArgumentError, ["partitions=0 is not a number of partitions", "at least 1"]),
    ({"partitions": True}, ArgumentError, ["partitions=True"]),
    ({"partitions": 2.0}, ArgumentError, ["partitions=2.0"]),
    ({"partitions": "4"}, ArgumentError, ["partitions='4'"]),
    ({"broadcast": "s"}, UnknownNameError, ["broadcast='s' names the input 's'", "aliases R, S", "did you mean 'S'?"]),
    ({"broadcast": 1}, DovetailError, ["broadcast=1"]),
    ({"broadcast": "S", "how": "full"}, ArgumentError, ["how='full' keeps or counts rows of 'S'", "'R' only"]),
    ({"broadcast": "R", "how": "semi"}, ArgumentError, ["how='semi' keeps or counts rows of 'R'"]),
    ({"broadcast": "S", "algorithm": "ftj"}, ArgumentError, ["algorithm='ftj' beside broadcast= 'S'"]),
    ({"sample": "no"}, ArgumentError, ["sample='no'", "True or False"]),
    ({"sample": None}, ArgumentError, ["sample=None"]),
    ({"broadcast": "S", "algorithm": dt.OBT(p=3)}, ArgumentError, ["algorithm=OBT(p=3) beside broadcast= 'S'"]),
    ({"algorithm": dt.Prefap}, ArgumentError, ["algorithm=<class", "is not a choice", "'prefap'"]),
    ({"window": 0}, ArgumentError, ["window=0 is not a window"]),
    ({"window": "10 minutes"}, ArgumentError, ["window='10 minutes' is a length of time, and time= is missing"]),
    ({"window": "2 months", "time": "ts"}, ArgumentError, ["has no fixed length"]),
    ({"time": "ts"}, ArgumentError, ["time='ts' is given, but there is no window"]),
    ({"window": 5, "broadcast": "S"}, ArgumentError, ["broadcast= together with window="]),
    ({"on": "R.name = S.name", "algorithm": "prefap"}, PredicateError, ["algorithm='prefap' partitions by an inequality or a band"]),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("choices", "kind", "texts"), BAD_ARGUMENTS, ids=[str(c) for c, _, _ in BAD_ARGUMENTS])
def test_bad_arguments(frames, choices, kind, texts):
    with pytest.raises(kind) as caught:
        dt.theta_join(frames, **({"on": "R.id < S.id"} | choices))
    shown = str(caught.value)
    assert [text for text in texts if text not in shown] == [], shown


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (lambda: dt.Prefap(prefilter="yes"), ["prefilter='yes'", "True or False"]),
        (lambda: dt.Prefap(amalgamate=1), ["amalgamate=1", "True or False"]),
        (lambda: dt.OBT(p=0), ["p=0 is not a number of partitions", "at least 1"]),
        (lambda: dt.CFS(p=True), ["p=True"]),
        (lambda: dt.RBM(p=2.0), ["p=2.0"]),
        (lambda: dt.FTJ(w=0), ["w=0 is not a number of rows", "at least 1"]),
        (lambda: dt.Prefap(w="1000"), ["w='1000'"]),
    ],
)
def test_bad_partitionings(make, texts):
    with pytest.raises(ArgumentError) as caught:
        make()
    shown = str(caught.value)
    assert [text for text in texts if text not in shown] == [], shown


def test_inputs_that_are_no_frames(frames, spark):
    r = frames["R"]
    on = "R.id < S.id"
    assert "inputs is a list" in message(ArgumentError, [r, r], on=on)
    assert "inputs holds 1 input(s); a join needs at least 2" in message(ArgumentError, {"R": r}, on=on)
    assert "inputs holds 0 input(s)" in message(ArgumentError, {}, on=on)
    for other in (pd.DataFrame({"id": [1]}), pa.table({"id": [1]})):
        shown = message(ArgumentError, {"R": r, "S": other}, on=on)
        assert f"the input 'S' is a {type(other).__name__}" in shown
        assert "turn it into a Spark DataFrame first" in shown
    assert "the input 'S' is a NoneType" in message(ArgumentError, {"R": r, "S": None}, on=on)
    for alias in ("", "1a", "a b", "a.b", 3, None):
        assert f"the alias {alias!r} cannot be written" in message(ArgumentError, {"R": r, alias: r}, on=on)
    assert "the aliases 'R' and 'r' differ only in case" in message(ArgumentError, {"R": r, "r": r}, on=on)


def test_two_columns_of_one_name(frames, spark):
    r, on = frames["R"], "R.id < S.id"
    twice = r.select("id", r.price.alias("ID"))
    assert "the input 'S' has two columns named 'ID'" in message(ArgumentError, {"R": r, "S": twice}, on=on)


def test_more_than_two_inputs(frames):
    three = {**frames, "T": frames["R"]}
    on = "R.id < S.id AND S.id < T.id"
    assert "how='left' with 3 inputs" in message(ArgumentError, three, on=on, how="left")
    assert "broadcast= 'S' with 3 inputs" in message(ArgumentError, three, on=on, broadcast="S")


def test_streams(frames, spark):
    stream = spark.readStream.format("rate").load().withColumnRenamed("value", "id")
    static = frames["R"]
    on = "R.id < S.id"
    shown = message(UnboundedJoinError, {"R": stream, "S": stream}, on=on)
    assert "the inputs R, S are streams, and no window bounds what to remember of them" in shown
    assert "window=1000" in shown
    shown = message(ArgumentError, {"R": stream, "S": static}, on=on, window=100)
    assert "window= beside the static input(s) S" in shown
    for how in ("right", "full"):
        shown = message(ArgumentError, {"R": stream, "S": static}, on=on, how=how)
        assert f"how={how!r} keeps or counts rows of 'S', the static input" in shown
    for how in ("left", "full", "semi", "anti"):
        shown = message(ArgumentError, {"R": static, "S": stream}, on=on, how=how)
        assert f"how={how!r} keeps or counts rows of 'R'" in shown
    assert dt.theta_join({"R": stream, "S": static, "T": static}, on="R.id < S.id AND R.id < T.id").isStreaming
    assert "algorithm='rbm' beside the static input 'S'" in message(
        ArgumentError, {"R": stream, "S": static}, on=on, algorithm="rbm"
    )
    joined = dt.theta_join({"R": stream, "S": static}, on=on, how="left")
    assert joined.isStreaming
    with pytest.raises(ArgumentError, match="metrics of a streaming join") as caught:
        dt.metrics(joined)
    assert "dt.metrics(query)" in str(caught.value)


@pytest.mark.parametrize("function", [dt.explain, lambda frame: dt.metrics(frame)], ids=["explain", "metrics"])
def test_frames_of_others(frames, function):
    derived = dt.theta_join(frames, on="R.id < S.id").limit(3)
    for frame in (frames["R"], derived, None, "R"):
        with pytest.raises(ArgumentError, match="that no Dovetail join returned") as caught:
            function(frame)
        assert f" got a {type(frame).__name__} that" in str(caught.value)
        assert "the very DataFrame that a join returned" in str(caught.value)

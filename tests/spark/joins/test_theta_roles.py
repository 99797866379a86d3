"""Theta joins of several inputs that are kept, optional, present or absent, and of a stream beside several tables."""

from __future__ import annotations

from collections import Counter
from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail as dt
from dovetail import reference
from dovetail.errors import ArgumentError, UnsupportedTypeError
from dovetail.reference import at_most, equal, less

from .streams import ids, put, run, written
from .test_window import FILE, frame, made, source
from .test_window import SCHEMA as ROWS

pytestmark = pytest.mark.usefixtures("few_partitions")

PARTS = [
    (("A", "B"), lambda a, b: equal(a["k"], b["k"])),
    (("A", "B"), lambda a, b: less(a["v"], b["v"])),
    (("B", "C"), lambda b, c: at_most(b["v"], c["v"])),
    (("B", "C"), lambda b, c: c["id"] < b["id"] + 3),
    (("A",), lambda a: less(2, a["v"])),
]
ON = "A.k = B.k AND A.v < B.v AND B.v <= C.v AND C.id < B.id + 3 AND A.v > 2"


HOWS = [
    {"C": "optional"},
    {"A": "keep", "C": "optional"},
    {"A": "keep"},
    {"C": "absent"},
    {"C": "present"},
    {"A": "absent"},
    {"A": "keep", "B": "keep"},
    {"A": "keep", "B": "keep", "C": "keep"},
    {"B": "keep", "C": "absent"},
    {"A": "keep", "B": "keep", "C": "present"},
]


@pytest.mark.in_turns(group="several seconds")
def test_batch(spark):
    """Rows that are equal in all, numbers apart, are among them, and all joins are in one job."""
    inputs = {alias: [*made(alias, 18), *made(alias, 4)] for alias in "ABC"}
    frames = {alias: frame(spark, rows) for alias, rows in inputs.items()}
    found, answer = [], Counter()
    for at, how in enumerate(HOWS):
        joined = dt.theta_join(frames, on=ON, how=how, sample=False)
        parts = [
            F.when(F.col(one).isNotNull(), F.col(f"{one}.id")) if one in joined.columns else F.lit(-2) for one in "ABC"
        ]
        found.append(joined.select(F.lit(at), *parts))
        matches = reference.theta_join(inputs, PARTS, how)
        for match in matches:
            answer[at, *(-2 if a not in match else match[a] and match[a]["id"] for a in "ABC")] += 1
        assert len(matches) > 5, how
    assert Counter(map(tuple, reduce(DataFrame.union, found).collect())) == answer


def test_a_kept_column_without_equality(spark):
    frames = {alias: frame(spark, made(alias, 3)).selectExpr("*", "map('x', v) AS m") for alias in "ABC"}
    with pytest.raises(UnsupportedTypeError, match="has no equality"):
        dt.theta_join(frames, on="A.v < B.v AND B.v <= C.v AND A.m['x'] > 1", how={"A": "keep", "B": "keep"})


def test_an_input_that_nothing_connects(spark):
    inputs = {alias: made(alias, 9) for alias in "ABC"}
    frames = {alias: frame(spark, rows) for alias, rows in inputs.items()}
    joined = dt.theta_join(frames, on="A.v < B.v AND C.v > 1", how={"C": "optional"})
    views = {alias: one.createOrReplaceTempView(f"nothing_{alias}") for alias, one in frames.items()}
    by_spark = spark.sql(
        "SELECT struct(A.*) A, struct(B.*) B, if(C.id IS NULL, NULL, struct(C.*)) C FROM nothing_A A "
        "JOIN nothing_B B ON A.v < B.v LEFT JOIN nothing_C C ON C.v > 1"
    )
    assert len(views) == 3
    assert ids(joined) == ids(by_spark)
    assert joined.count() > 5


@pytest.mark.in_turns(group="several seconds")
def test_explain_and_metrics(spark, capsys):
    frames = {alias: frame(spark, made(alias, 18)) for alias in "ABC"}
    joined = dt.theta_join(frames, on=ON, how={"C": "optional"})
    joined.collect()
    dt.explain(joined)
    text = capsys.readouterr().out
    assert "how={'C': 'optional'}, one input after the other" in text
    assert "#" not in text
    counts = dt.metrics(joined)
    assert set(counts) == {"dovetail(A,B)", "dovetail(A,B,C)"}
    assert counts["dovetail(A,B,C)"]["results"] == joined.count()


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"how": {"B": "optional", "C": "optional"}}, ArgumentError, "B.v <= C.v is between 'B' and 'C'"),
        ({"how": {"C": "optional"}, "window": 100}, ArgumentError, "together with window="),
        ({"how": {"C": "optional"}, "broadcast": "C"}, ArgumentError, "broadcast= together with how="),
    ],
)
def test_refused(spark, change, kind, text):
    frames = {alias: frame(spark, made(alias, 3)) for alias in "ABC"}
    with pytest.raises(kind) as caught:
        dt.theta_join(frames, **{"on": "A.v < B.v AND B.v <= C.v", **change})
    assert text in str(caught.value)


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", {"A": "keep", "T": "optional", "U": "optional"}], ids=str)
def test_a_stream_beside_two_tables(spark, tmp_path, how):
    """One by its values alone, and one by a key; a condition on the stream drops rows, or keeps them from matching."""
    rows = made("A")
    for at in range(0, 40, 20):
        put(tmp_path / "A", rows[at : at + 20], FILE)
    tables = {
        "T": spark.createDataFrame([(1, 2.0, 4.0), (2, 3.0, 7.0), (3, None, 9.0)], "id long, low double, high double"),
        "U": spark.createDataFrame([(1, "a"), (2, "b"), (3, "b")], "id long, k string"),
    }
    on = {"T": "A.v BETWEEN T.low AND T.high", "U": "A.k = U.k AND A.id + U.id > 3"}
    call = f"{on['T']} AND {on['U']} AND A.v < 6"
    stream = source(spark, tmp_path / "A", ROWS)
    joined = dt.theta_join({"T": tables["T"], "A": stream, "U": tables["U"]}, on=call, how=how)
    assert joined.isStreaming
    run(joined, tmp_path / "query")
    meant = frame(spark, rows).select(F.struct("*").alias("A"))
    kind = "inner" if how == "inner" else "left"
    for alias, table in tables.items():
        meant = meant.join(table.select(F.struct("*").alias(alias)), F.expr(f"{on[alias]} AND A.v < 6"), kind)
    answer = ids(meant.select("T", "A", "U"))
    assert written(spark, tmp_path / "query") == answer
    assert sum(answer.values()) > 5

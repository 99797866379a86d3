"""Tables among streams: the window join of the streams, joined with tables as they are in each micro-batch."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.errors import ArgumentError

from .streams import ids, put, run, written
from .test_window import FILE, NOON, SECOND, frame, made, stream

pytestmark = pytest.mark.usefixtures("few_partitions")

KEYS = "id long, k string, low double"
ON = "A.k = B.k AND A.k = T.k AND U.low <= A.v AND A.v + B.v > U.low AND V.k = B.k AND V.low > A.v AND U.id < 5"
TIMES = {"A": "ts", "B": "ts"}


def tables(spark):
    return {
        "T": spark.createDataFrame([(1, "a", 0.0), (2, "a", 1.0), (3, "b", 2.0), (4, None, 3.0)], KEYS),
        "U": spark.createDataFrame([(1, "x", 4.0), (2, "x", 6.5), (3, "x", None), (9, "x", 0.0)], KEYS),
        "V": spark.createDataFrame([(1, "a", 3.0), (2, "b", 1.0)], KEYS),
    }


def filled(tmp_path):
    inputs = {alias: made(alias) for alias in "AB"}
    for alias, rows in inputs.items():
        for at in range(0, 40, 20):
            put(tmp_path / alias, rows[at : at + 20], FILE)
        put(tmp_path / alias, [{"id": 99, "k": f"last {alias}", "v": 0.0, "ts": NOON + 1000 * SECOND}], FILE)
    return inputs


STATEMENT = """
    SELECT struct(T.*) AS T, struct(A.*) AS A, struct(B.*) AS B, CASE WHEN U.id IS NOT NULL THEN struct(U.*) END AS U
    FROM T JOIN A ON A.k = T.k JOIN B ON A.k = B.k
    LEFT JOIN U ON U.low <= A.v AND A.v + B.v > U.low AND U.id < 5
    LEFT ANTI JOIN V ON V.k = B.k AND V.low > A.v
    WINDOW = 2 SECONDS
"""


@pytest.mark.in_turns
@pytest.mark.parametrize("spelled", ["call", "statement"])
def test_tables_by_key_and_by_value(spark, tmp_path, capsys, spelled):
    """A required and an absent table have a key, an optional one only inequalities."""
    inputs, static = filled(tmp_path), tables(spark)
    streams = {alias: stream(spark, tmp_path / alias) for alias in "AB"}
    how = {"U": "optional", "V": "absent"}
    inputs_of_all = {"T": static["T"], **streams, "U": static["U"], "V": static["V"]}
    if spelled == "call":
        joined = dt.window_join(inputs_of_all, on=ON, time=TIMES, within="2 seconds", how=how)
    else:
        joined = dt.sql(STATEMENT, **inputs_of_all)
    assert joined.columns == ["T", "A", "B", "U"]
    run(joined, tmp_path / "query")
    structs = {a: f.select(F.struct("*").alias(a)) for a, f in static.items()}
    pairs = dt.window_join(
        {a: frame(spark, rows) for a, rows in inputs.items()}, on="A.k = B.k", time="ts", within="2 seconds"
    )
    meant = (
        pairs.join(structs["T"], F.expr("A.k = T.k"))
        .join(structs["U"], F.expr("U.low <= A.v AND A.v + B.v > U.low AND U.id < 5"), "left")
        .join(structs["V"], F.expr("V.k = B.k AND V.low > A.v"), "left_anti")
        .select("T", "A", "B", "U")
    )
    answer = ids(meant)
    assert written(spark, tmp_path / "query") == answer
    assert sum(answer.values()) > 20
    assert any(row[3] is None for row in answer)
    assert any(row[3] is not None for row in answer)
    dt.explain(joined)
    text = capsys.readouterr().out
    assert "inner join with the table T where (A.k = T.k), by Spark, by its keys" in text
    assert "left join with the table U" in text
    assert "by an index of its values in every task" in text


@pytest.mark.in_turns(group="several seconds")
def test_a_kept_row_alone_has_no_row_of_a_table(spark, tmp_path):
    inputs, static = filled(tmp_path), tables(spark)
    streams = {alias: stream(spark, tmp_path / alias) for alias in "AB"}
    call = {"time": TIMES, "within": "1 second"}
    joined = dt.window_join(
        {**streams, "U": static["U"]}, on="A.k = B.k AND A.v >= U.low", **call, how={"A": "keep", "U": "optional"}
    )
    run(joined, tmp_path / "query")
    pairs = dt.window_join({a: frame(spark, rows) for a, rows in inputs.items()}, on="A.k = B.k", how="left", **call)
    table = static["U"].select(F.struct("*").alias("U"))
    answer = ids(pairs.join(table, F.expr("A.v >= U.low AND B IS NOT NULL"), "left"))
    found = written(spark, tmp_path / "query")
    assert {row: count for row, count in found.items() if 99 not in row} == answer
    assert any(row[1] is None for row in answer)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"time": "ts"}, "leave a table out of time="),
        ({"how": "left"}, "a mapping that says what each input is"),
        ({"how": {"T": "keep"}}, "'keep' of a table beside streams"),
        ({"how": {"A": "keep"}}, "the table 'T' decides what comes out"),
        ({"how": {"B": "optional"}, "on": "A.k = B.k AND B.k = T.k"}, "ties the table 'T' to 'B'"),
        ({"on": "A.k = B.k AND T.low > 1"}, "no condition connects the table 'T'"),
        ({"within": {("A", "B"): "1 second", ("A", "T"): "1 second"}}, "a window for the table 'T'"),
    ],
)
def test_refused(spark, tmp_path, change, text):
    for alias in "AB":
        put(tmp_path / alias, made(alias, 1), FILE)
    streams = {alias: stream(spark, tmp_path / alias) for alias in "AB"}
    table = tables(spark)["T"].withColumn("ts", F.lit(NOON))
    call = {"on": "A.k = B.k AND A.k = T.k", "time": TIMES, "within": "2 seconds", **change}
    with pytest.raises(ArgumentError) as caught:
        dt.window_join({**streams, "T": table}, **call)
    assert text in str(caught.value)


def test_one_stream_is_for_theta_join(spark, tmp_path):
    put(tmp_path / "A", made("A", 1), FILE)
    table = tables(spark)["T"]
    with pytest.raises(ArgumentError, match="theta_join joins one stream with tables"):
        dt.window_join({"A": stream(spark, tmp_path / "A"), "T": table}, on="A.k = T.k", time={"A": "ts"}, within="1 s")

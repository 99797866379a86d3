"""The published algorithms through the public call: inputs that change, the paper's counts, functions that vary."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.errors import PredicateError
from dovetail.families.theta.spec import ALGORITHMS

ROWS = 80


def changing(spark, folder: Path, name: str):
    """Numbers that differ in every evaluation; each evaluation writes down what it gave, by the stage that ran it."""

    def value(number):  # without hints, from which PySpark would infer another kind of function
        context = TaskContext.get()
        drawn = random.Random(os.urandom(8)).gauss(0, 100)
        stage, task = (context.stageId(), context.partitionId()) if context is not None else (-1, -1)
        with (folder / f"{name}-{stage}-{task}").open("a") as file:
            file.write(f"{number} {drawn!r}\n")
        return drawn

    drawn = F.udf(value, "double").asNondeterministic()
    return spark.range(ROWS, numPartitions=2).select("id", drawn("id").alias("x"))


def joined_values(folder: Path, name: str) -> dict[int, float]:
    """The values of the last evaluation, which are those that were joined: the ones before it were looked at."""
    stages: dict[int, dict[int, float]] = {}
    for file in folder.glob(f"{name}-*"):
        found = stages.setdefault(int(file.name.split("-")[1]), {})
        for line in file.read_text().splitlines():
            number, drawn = line.split()
            found[int(number)] = float(drawn)
    assert len(stages) == 2
    last = stages[max(stages)]
    assert len(last) == ROWS
    return last


@pytest.mark.in_turns
@pytest.mark.parametrize(("algorithm", "how"), [*((name, "inner") for name in ALGORITHMS), ("prefap", "left")])
def test_an_input_that_changes_between_two_evaluations(spark, tmp_path, algorithm, how):
    """The rows are those of a join of what the second evaluation gave, whatever the layout was fitted to."""
    frames = {name: changing(spark, tmp_path, name) for name in "RS"}
    joined = dt.theta_join(frames, on="R.x > S.x", how=how, algorithm=algorithm, partitions=2)
    rows = joined.select("R.id", "R.x", "S.id", "S.x").collect()
    r, s = (joined_values(tmp_path, name) for name in "RS")
    meant = [(i, a, j, b) for i, a in r.items() for j, b in s.items() if a > b]
    if how == "left":
        meant += [(i, a, None, None) for i, a in r.items() if a <= min(s.values())]
    assert sorted(map(tuple, rows), key=repr) == sorted(meant, key=repr)


def highs(spark, symbol: str):
    """A column of the paper's stock prices."""
    root = Path(__file__).resolve().parents[3]
    path = Path(os.environ.get("DOVETAIL_DATA", root.parent / "shared" / "data")) / "stocks.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent: set DOVETAIL_DATA to the folder that holds it")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["symbol"] == symbol]
    days = [row for row in rows if "2017-01-03" <= row["date"] <= "2019-12-31"]
    return spark.createDataFrame([(float(row["high"]),) for row in days], "high double")


@pytest.mark.parametrize(
    ("algorithm", "products"),
    [
        (dt.Prefap(p=5, w=1000), 104_138),
        (dt.Prefap(p=5, w=1000, prefilter=False), 105_132),
        (dt.Prefap(p=5, w=1000, amalgamate=False), 121_647),
        (dt.FTJ(p=5, w=1000), 134_449),
        (dt.Prefap(p=5), 101_534),
    ],
    ids=str,
)
def test_the_papers_table_3(spark, algorithm, products):
    """The products that the paper counts are the comparisons that the join reports; w is the paper's window."""
    frames = {"JNJ": highs(spark, "JNJ"), "MSFT": highs(spark, "MSFT")}
    joined = dt.theta_join(frames, on="JNJ.high <= MSFT.high", algorithm=algorithm)
    assert joined.count() == 92_240
    assert dt.metrics(joined)["comparisons"] == products


@pytest.fixture
def functions(spark):
    """Two functions of Spark SQL: one whose values vary, one whose values do not."""
    spark.udf.register("varying", F.udf(lambda x: x, "int").asNondeterministic())
    spark.udf.register("steady", F.udf(lambda x: x, "int"))
    yield
    spark.sql("DROP TEMPORARY FUNCTION varying")
    spark.sql("DROP TEMPORARY FUNCTION steady")


@pytest.mark.usefixtures("functions")
def test_a_function_that_is_not_deterministic_is_refused(spark):
    numbers = spark.createDataFrame([(1, 1), (2, 2)], "x int, t int")
    frames = {"R": numbers, "S": numbers}
    conditions = ["varying(R.x) < S.x", "R.x = S.x AND varying(R.t) = 1", "R.x < S.x AND varying(R.x + S.x) > 0"]
    conditions += ["R.x < S.x AND (R.x = 1 OR `varying`(S.t) = 2)", "abs(varying(R.x) - S.x) <= 1"]
    for on in conditions:
        for call in (
            lambda on: dt.theta_join(frames, on=on),
            lambda on: dt.window_join(frames, on=on, time="t", within=5),
            lambda on: dt.theta_join({**frames, "T": numbers}, on=f"{on} AND S.x = T.x"),
        ):
            with pytest.raises(PredicateError, match="not deterministic"):
                call(on)
            assert call(on.replace("varying", "steady")) is not None
    for criterion in (dt.least("varying(R.x) + S.x"), dt.most("varying(R.x * S.x)")):
        with pytest.raises(PredicateError, match="not deterministic"):
            dt.bestmatch_join(frames, on=[criterion])
    with pytest.raises(PredicateError, match="not deterministic"):
        dt.approx_join(frames, on="varying(R.x) = S.x", memory=10)
    steady = dt.theta_join(frames, on="steady(R.x) <= S.x AND steady(R.x + S.x) > 2")
    assert sorted((row.R.x, row.S.x) for row in steady.collect()) == [(1, 2), (2, 2)]


def test_conditions_without_such_a_function_need_no_further_analysis(spark, monkeypatch):
    numbers = spark.createDataFrame([(1, "a")], "x int, s string")

    def asked(*_):
        raise AssertionError("asked Spark")

    monkeypatch.setattr(type(numbers), "join", asked)
    dt.theta_join({"R": numbers, "S": numbers}, on="abs(R.x - S.x) <= 1 AND lower(R.s) IN (S.s, 'f(x)') AND (R.x > 0)")
    dt.bestmatch_join({"R": numbers, "S": numbers}, on=[dt.least("greatest(R.x, S.x)")])

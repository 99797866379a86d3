"""Spark is the oracle: every statement that Spark runs gives Spark's rows, names, order and types under ``dt.sql``.

A failure prints its seed; ``NET_SEED=n`` replays that statement alone, ``NET_COUNT=n`` draws so many in the slow
run (``make nets``).
"""

from __future__ import annotations

import os
import random

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from tests.nets.sessions import ZONES, seeds, settings
from tests.nets.statements import Writer
from tests.nets.tables import make_table, rows_of

import dovetail as dt


def check(spark, seed: int) -> str:
    """Compare one statement; what came of it."""
    draw = random.Random(seed)
    conf = {
        "spark.sql.ansi.enabled": draw.choice(["true", "false"]),
        "spark.sql.session.timeZone": draw.choice(ZONES),
        "spark.sql.caseSensitive": draw.choice(["false", "false", "true"]),
    }
    with settings(spark, conf):
        tables = [make_table(spark, f"net_{at}", draw) for at in range(2)]
        text = Writer(draw, tables).statement()
        try:
            expected = spark.sql(text)
            schema = [(field.name, field.dataType) for field in expected.schema.fields]
        except PySparkException:
            with pytest.raises((dt.DovetailError, PySparkException)):
                dt.sql(text).schema  # noqa: B018 - analysed here
            return "refused by both"
        try:
            rows = rows_of(expected)
        except (PySparkException, Py4JJavaError):  # the latter where several stages of a query fail at once
            return "fails when it runs"
        note = f"seed {seed}, {conf}:\n{text}"
        try:
            given = dt.sql(text)
            found = rows_of(given)
        except (dt.DovetailError, PySparkException) as error:
            raise AssertionError(f"{note}\nSpark runs it; dt.sql says {error}") from error
        assert [(field.name, field.dataType) for field in given.schema.fields] == schema, note
        assert found == rows, note
        return "equal" if given._dovetail.plan.inputs else "left to Spark"


def run(spark, first: int, usual: int) -> None:
    outcomes = [check(spark, seed) for seed in seeds(first, usual)]
    # A net through which everything falls would be no net: Dovetail has to run joins in many of the statements.
    assert len(outcomes) < 20 or outcomes.count("equal") >= len(outcomes) // 8, outcomes


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_statements(spark, first):
    run(spark, first, 20)


@pytest.mark.slow
def test_many_more(spark):
    run(spark, 160, int(os.environ.get("NET_COUNT", "40")))

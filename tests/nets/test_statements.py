"""Spark is the oracle: every statement that Spark runs gives Spark's rows, names, order and types under ``dt.sql``.

Statements are drawn ten at a time, over tables that the ten share, and one job computes the rows of all of them.  A
failure prints its seed; ``NET_SEED=n`` replays those ten alone, ``NET_COUNT=n`` draws so many tens in the slow run
(``make nets``).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import reduce

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.nets.sessions import drawn_settings, seeds, settings
from tests.nets.statements import Writer
from tests.nets.tables import make_table

import dovetail as dt

TEN = 10
FAILS = (PySparkException, Py4JJavaError)
"""What a query fails with; the latter where several of its stages fail at once."""


def texts_of(frames: list[DataFrame]) -> list[Counter[str]]:
    """The rows of each frame, as texts, from one job."""
    parts = []
    for at, frame in enumerate(frames):
        named = frame.toDF(*[f"c{number}" for number in range(len(frame.columns))])
        text = F.to_json(F.struct(*named.columns), {"ignoreNullFields": "false"})
        parts.append(named.select(F.lit(at).alias("at"), text.alias("row")))
    found: list[Counter[str]] = [Counter() for _ in frames]
    for at, row in reduce(DataFrame.unionAll, parts).collect():
        found[at][row] += 1
    return found


def check(spark, seed: int) -> list[str]:
    """Compare ten statements; what came of each."""
    draw = random.Random(seed)
    conf = drawn_settings("statements", seed)
    outcomes, asked = [], []
    with settings(spark, conf):
        tables = [make_table(spark, f"net_{at}", draw) for at in range(4)]
        for _ in range(TEN):
            text = Writer(draw, draw.sample(tables, 2)).statement()
            note = f"NET_SEED={seed}, {conf}:\n{text}"
            try:
                expected = spark.sql(text)
                schema = [(field.name, field.dataType) for field in expected.schema.fields]
            except PySparkException:
                with pytest.raises((dt.DovetailError, PySparkException)):
                    dt.sql(text).schema  # noqa: B018 - analysed here
                outcomes.append("refused by both")
                continue
            asked.append((note, text, expected, schema))
        rows, asked, fail = _answers(asked)
        outcomes += ["fails when it runs"] * fail
        frames = []
        for note, text, _, schema in asked:
            try:
                frames.append(dt.sql(text))
            except (dt.DovetailError, PySparkException) as error:
                raise AssertionError(f"{note}\nSpark runs it; dt.sql says {error}") from error
            assert [(field.name, field.dataType) for field in frames[-1].schema.fields] == schema, note
            outcomes.append("equal" if frames[-1]._dovetail.plan.inputs else "left to Spark")
        for (note, *_), given, want in zip(asked, _found(asked, frames), rows, strict=True):
            assert given == want, f"{note}\nmissing {want - given}\nextra {given - want}"
    return outcomes


def _answers(asked):
    """Spark's rows, the statements that have some, and how many fail when they run."""
    try:
        return (texts_of([expected for _, _, expected, _ in asked]), asked, 0) if asked else ([], [], 0)
    except FAILS:
        rows, good = [], []
        for one in asked:
            try:
                rows += texts_of([one[2]])
                good.append(one)
            except FAILS:
                continue
        return rows, good, len(asked) - len(good)


def _found(asked, frames):
    if not frames:
        return []
    try:
        return texts_of(frames)
    except FAILS:
        # Which one it is, only each by itself can tell.
        found = []
        for (note, *_), frame in zip(asked, frames, strict=True):
            try:
                found += texts_of([frame])
            except FAILS as error:
                raise AssertionError(f"{note}\nSpark runs it; dt.sql says {error}") from error
        return found


def run(spark, first: int, usual: int) -> None:
    outcomes = [outcome for seed in seeds(first, usual) for outcome in check(spark, seed)]
    # A net through which everything falls would be no net: Dovetail has to run joins in many of the statements.
    assert len(outcomes) < 10 or outcomes.count("equal") >= len(outcomes) // 8, outcomes


@pytest.mark.in_turns
@pytest.mark.parametrize("first", range(12))
def test_statements(spark, first):
    run(spark, first, 1)


@pytest.mark.slow
def test_many_more(spark):
    run(spark, 100, int(os.environ.get("NET_COUNT", "4")))

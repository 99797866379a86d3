"""Spark is the oracle: a call gives the rows, names, order and types that Spark has for the same question.

Calls are drawn a dozen at a time, over tables that a dozen shares, and one job computes all their rows.  A failure
names its seed: ``NET_SEED=n`` replays that dozen alone, ``NET_COUNT=n`` draws so many dozens in the slow
run (``make nets``).
"""

from __future__ import annotations

import os
import random

import pytest
from tests.nets.calls import differences, net_table, theta_call
from tests.nets.calls_by_time import POLICIES, USUAL, asof_call, window_call
from tests.nets.conditions import AnyConditionWriter
from tests.nets.sessions import drawn_settings, seeds, settings

DOZEN = 12


def check(spark, family: str, seed: int) -> None:
    """A dozen calls of one family."""
    draw = random.Random(f"{family} {seed}")
    conf = drawn_settings(family, seed)
    case_sensitive = conf["spark.sql.caseSensitive"] == "true"
    with settings(spark, conf):
        tables = [net_table(spark, draw, draw.choice([0, 1, 5, 9, 14])) for _ in range(3)]
        tables.append(net_table(spark, draw, 14))
        calls = []
        for number in range(DOZEN):
            if family == "conditions":
                calls.append(theta_call(draw, tables, any_case=not case_sensitive, write=AnyConditionWriter))
            elif family == "theta":
                calls.append(theta_call(draw, tables, any_case=not case_sensitive))
            elif family == "window":
                calls.append(window_call(draw, tables, any_case=not case_sensitive))
            else:
                calls.append(asof_call(draw, tables, POLICIES[(DOZEN * seed + number) % len(POLICIES)]))
        wrong = list(differences(calls))
    assert not wrong, "\n".join([f"NET_SEED={seed}, {family}, {conf}", *wrong])


@pytest.mark.in_turns(n=12, group="drawn calls")
@pytest.mark.parametrize("seed", seeds(0, 5))
def test_theta_joins(spark, seed):
    check(spark, "theta", seed)


@pytest.mark.in_turns(n=12, group="drawn calls")
@pytest.mark.parametrize("seed", seeds(0, 8))
def test_any_condition(spark, seed):
    check(spark, "conditions", seed)


@pytest.mark.in_turns(n=12, group="drawn calls")
@pytest.mark.parametrize("seed", seeds(0, 5))
def test_window_joins(spark, seed):
    check(spark, "window", seed)


@pytest.mark.in_turns(n=12, group="drawn calls")
@pytest.mark.parametrize("seed", seeds(0, USUAL // DOZEN))
def test_asof_joins(spark, seed):
    """Every two choices of two options together at least once."""
    check(spark, "asof", seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["theta", "conditions", "window", "asof"])
def test_many_more(spark, family):
    for seed in seeds(100, int(os.environ.get("NET_COUNT", "2"))):
        check(spark, family, seed)

"""Joins whose inputs play different parts, against chains of Spark's own joins; seeds as in ``test_calls.py``."""

from __future__ import annotations

import os
import random

import pytest
from tests.nets.calls import differences, net_table
from tests.nets.calls_by_role import theta_role_call, window_role_call
from tests.nets.sessions import drawn_settings, seeds, settings

AT_ONCE = 4


def check(spark, family: str, seed: int) -> None:
    """Some calls of one family."""
    draw = random.Random(f"{family} roles {seed}")
    conf = drawn_settings(f"{family} roles", seed)
    any_case = conf["spark.sql.caseSensitive"] == "false"
    with settings(spark, conf):
        tables = [net_table(spark, draw, draw.choice([1, 5, 9, 14])) for _ in range(2)]
        tables.append(net_table(spark, draw, 14))
        call = window_role_call if family == "window" else theta_role_call
        wrong = list(differences([call(draw, tables, any_case=any_case) for _ in range(AT_ONCE)]))
    assert not wrong, "\n".join([f"NET_SEED={seed}, {family}, {conf}", *wrong])


@pytest.mark.in_turns(n=12, group="drawn calls")
@pytest.mark.parametrize("seed", seeds(0, 4))
def test_window_joins(spark, seed):
    check(spark, "window", seed)


@pytest.mark.in_turns(n=12, group="drawn calls")
@pytest.mark.parametrize("seed", seeds(0, 4))
def test_theta_joins(spark, seed):
    check(spark, "theta", seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["window", "theta"])
def test_many_more(spark, family):
    for seed in seeds(100, int(os.environ.get("NET_COUNT", "4"))):
        check(spark, family, seed)

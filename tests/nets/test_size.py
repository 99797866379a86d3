"""How much the nets draw until all turns are through: enough joins, in sessions of every meaning."""

from __future__ import annotations

from tests.nets import test_calls, test_roles, test_statements
from tests.nets.sessions import MEANINGS, drawn_settings

NAMES = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive")
DOZENS = {
    "theta": test_calls.test_theta_joins,
    "conditions": test_calls.test_any_condition,
    "window": test_calls.test_window_joins,
    "asof": test_calls.test_asof_joins,
}
IN_TURNS = (
    (test_roles.test_window_joins, test_roles.AT_ONCE),
    (test_roles.test_theta_joins, test_roles.AT_ONCE),
    (test_statements.test_statements, test_statements.TEN),
)
"""Tests of which a part runs at each commit, and how many joins a case has."""


def cases_of(test) -> list[int]:
    """The cases that a test is given."""
    return [case for mark in test.pytestmark if mark.name == "parametrize" for case in mark.args[1]]


def test_hundreds_of_calls_in_every_kind_of_session(monkeypatch):
    monkeypatch.delenv("NET_SEED", raising=False)
    calls, seen = 0, set()
    for family, test in DOZENS.items():
        for seed in cases_of(test):
            calls += test_calls.DOZEN
            drawn = drawn_settings(family, seed)
            seen.add(tuple(drawn[name] for name in NAMES))
    for test, joins in IN_TURNS:
        calls += len(cases_of(test)) * joins
    # Each is a join of ours beside Spark's answer: none of them may be left to Spark.
    assert calls >= 300
    assert seen == set(MEANINGS)
    assert {drawn_settings("theta", seed)["spark.sql.adaptive.enabled"] for seed in range(4)} == {"true", "false"}

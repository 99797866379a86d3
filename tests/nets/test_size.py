"""How much the nets draw in the usual run: enough joins, in sessions of every meaning."""

from __future__ import annotations

from tests.nets import test_calls, test_roles
from tests.nets.sessions import MEANINGS, drawn_settings

NAMES = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive")
BY_FAMILY = {
    "theta": test_calls.test_theta_joins,
    "conditions": test_calls.test_any_condition,
    "window": test_calls.test_window_joins,
    "asof": test_calls.test_asof_joins,
    "window roles": test_roles.test_window_joins,
    "theta roles": test_roles.test_theta_joins,
}


def seeds_of(test) -> list[int]:
    """The seeds that a test is given."""
    return [seed for mark in test.pytestmark if mark.name == "parametrize" for seed in mark.args[1]]


def test_hundreds_of_calls_in_every_kind_of_session(monkeypatch):
    monkeypatch.delenv("NET_SEED", raising=False)
    calls, seen = 0, set()
    for family, test in BY_FAMILY.items():
        for seed in seeds_of(test):
            calls += test_roles.AT_ONCE if "roles" in family else test_calls.DOZEN
            drawn = drawn_settings(family, seed)
            seen.add(tuple(drawn[name] for name in NAMES))
    # Each is a join of ours beside Spark's answer: none of them may be left to Spark.
    assert calls >= 300
    assert seen == set(MEANINGS)
    assert {drawn_settings("theta", seed)["spark.sql.adaptive.enabled"] for seed in range(4)} == {"true", "false"}

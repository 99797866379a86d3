"""Tests that take turns: one part of them at a commit, and each of them in as many commits as there are parts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import _left_to_other_commits


def item(name: str, case: int, **options: object) -> SimpleNamespace:
    """What of a test the hook looks at."""
    mark = pytest.mark.in_turns(**options).mark
    number = f"{name}[{case}]"
    return SimpleNamespace(
        nodeid=number, name=number, path=Path("test_it.py"), originalname=name, get_closest_marker=lambda _: mark
    )


@pytest.mark.parametrize(("cases", "options", "turns"), [(30, {}, 24), (2, {}, 2), (1, {}, 1), (10, {"n": 4}, 4)])
def test_every_case_runs_once_in_as_many_commits_as_there_are_turns(cases, options, turns):
    items = [item("test_one", case, **options) for case in range(cases)]
    running = []
    for number in range(100, 100 + turns):
        left = {one.nodeid for one in _left_to_other_commits(items, number)}
        now = [one.nodeid for one in items if one.nodeid not in left]
        assert cases // turns <= len(now) <= -(-cases // turns)
        running += now
    assert sorted(running) == sorted(one.nodeid for one in items)


def test_tests_of_a_group_take_turns_with_each_other():
    items = [item(f"test_{number}", 0, group="streams") for number in range(3)]
    assert len(list(_left_to_other_commits(items, 7))) == 2

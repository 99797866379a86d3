"""Warnings: each is given where it is due, and a query in order gets none."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.watch import made

from dovetail.watch import advice as module
from dovetail.watch.advice import advice, docs_address, target_note
from dovetail.watch.figures import point_of
from dovetail.watch.records import record_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGAN = 1_700_000_000.0


def points(count=40, every=5.0, **shape):
    """Micro-batches; a figure is a value, or a function of the micro-batch's number."""
    found = []
    for at in range(count):
        began = BEGAN + at * every
        given = {name: value(at) if callable(value) else value for name, value in shape.items()}
        for name in ("newest", "watermark"):
            if name in given:
                given[name] += began
        found.append(point_of(record_of(made.report(at, began, **given)), now=0))
    return found


def rules(points, **more):
    return [one.rule for one in advice(points, **more)]


def test_a_query_in_order_gets_none():
    assert rules(points()) == []


def test_too_few_micro_batches_say_nothing():
    assert rules(points(5, late_A=1000)) == []


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ({"newest": lambda at: -3.0 * at}, "behind"),
        ({"every": 0.0, "took": lambda at: 1.0 + at / 5}, "behind"),
        ({"every": 4.0, "took": 4.0, "kernel": 3.5}, "overload"),
        ({"watermark": lambda at: -5.0 * at - 60}, "watermark"),
        ({"late_A": 50}, "late"),
        ({"early_B": 50}, "early"),
        ({"most_rows": 800}, "skew"),
        ({"throttle": 0.4, "recall": 0.8}, "sheds"),
    ],
)
def test_each_rule(shape, rule):
    assert rules(points(**shape)) == [rule]


def test_rows_that_the_sources_hold_unread():
    found = points()
    for at, point in enumerate(found):
        point["behind"] = 1000 + 500 * at
    [one] = advice(found)
    assert one.rule == "behind"
    assert "unread rows" in one.text


def test_state_that_only_grows():
    found = points()
    for at, point in enumerate(found):
        point |= {"held_rows": 1000 * (at + 1), "evicted": 0}
    assert [one.rule for one in advice(found)] == ["state"]
    for point in found:
        point["evicted"] = 10
    assert advice(found) == []


def test_a_pause_between_micro_batches_is_no_overload():
    assert rules(points(every=8.0, took=4.0, kernel=3.5)) == []


def test_a_target_that_cannot_be_met():
    found = points(took=8.0, every=8.0, kernel=0.1, throttle=0.01, recall=0.3)
    assert rules(found, target=3.0)[0] == "target"
    assert "target" not in rules(found, target=30.0)
    assert "target" not in rules(points(took=8.0, every=8.0, kernel=6.0), target=3.0)
    records = [record_of(made.report(at, BEGAN + at, took=8.0, kernel=0.1)) for at in range(5)]
    assert "8 s at a target of 3 s" in target_note(3.0, records)
    assert target_note("keep up", records) is None
    assert target_note(None, records) is None


def test_a_target_that_shedding_nearly_everything_does_not_meet():
    """The kernel's time is that of all cells together, and may be much of a long micro-batch on a busy machine."""
    shape = {"took": 6.0, "every": 6.0, "kernel": 3.0, "recall": 0.001}
    first = advice(points(throttle=0.004, **shape), target=1.5)[0]
    assert (first.rule, first.text) == (
        "target",
        "micro-batches take 6 s at a target of 1.5 s, although only 0.4 % of the joining is done: "
        "shedding cannot make them shorter",
    )
    assert "target" not in rules(points(throttle=0.3, **shape), target=1.5)
    assert "target" not in rules(points(throttle=0.004, **shape), target=5.5)


@pytest.mark.parametrize(("recall", "level"), [(0.8, "note"), (0.2, "warning")])
def test_an_overload_is_a_warning_where_most_results_are_lost(recall, level):
    [one] = advice(points(throttle=0.4, recall=recall))
    assert (one.rule, one.level) == ("sheds", level)
    assert f"{recall:.0%}".replace("%", " %") in one.text


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        (["Source, https://x/y", "Documentation, https://x/y/blob/v1/docs/index.md"], "https://x/y/blob/v1/docs/"),
        # Before the first release; and without anything.
        (["Documentation, https://x/OWNER/y/blob/v1/docs/index.md"], None),
        (["Documentation, javascript:alert(1)"], None),
        (None, None),
    ],
)
def test_where_the_pages_are(urls, found, monkeypatch):
    monkeypatch.setattr(module, "metadata", lambda name: SimpleNamespace(get_all=lambda key: urls))
    assert docs_address.__wrapped__() == found


def test_every_page_and_heading_exists():
    named = set(re.findall(r'"([\w-]+\.md(?:#[\w-]+)?)"', Path(module.__file__).read_text(encoding="utf-8")))
    script = Path(module.__file__).parent / "static" / "console.js"
    named |= set(re.findall(r'"([\w-]+\.md#[\w-]+)"', script.read_text(encoding="utf-8")))
    assert "operations.md#when-something-breaks" in named
    named |= {f"streaming.md#{heading}" for heading in ("late-rows", "early-rows")}
    assert len(named) > 4
    for one in named:
        page, _, heading = one.partition("#")
        text = (DOCS / page).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w\- ]", "", line.lstrip("# ").strip()).lower().replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        }
        assert not heading or heading in headings, one

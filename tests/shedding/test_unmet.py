"""A target that shedding cannot meet is said once, where the time goes elsewhere."""

from __future__ import annotations

import pytest

from dovetail.families.shedding.unmet import UnmetTargets
from dovetail.reports import unmet_target


def said(batches, target=3.0):
    unmet = UnmetTargets()
    return [
        text for call, (took, joined) in enumerate(batches) if (text := unmet.observe("AB", target, call, took, joined))
    ]


def test_it_is_said_once_and_names_both_times():
    [text] = said([(4.0, 0.1), (50.0, 0.1), (9.0, 0.1), (9.0, 0.1), (9.0, 0.1), (9.0, 0.1)])
    assert "take 9 s at a target of 3 s" in text
    assert "0.1 s of it is joining" in text


@pytest.mark.parametrize(
    "batches",
    [
        [(2.0, 0.1)] * 9,  # the target is met
        [(9.0, 7.0)] * 9,  # joining takes the time: the throttle is still to fall
        [(9.0, 0.1), (9.0, 0.1), (2.0, 0.1)] * 3,  # one slow disk
        [(9.0, 0.1)] * 3,  # too early: the last may have cells to come
    ],
)
def test_it_is_not_said(batches):
    assert said(batches) == []


def test_keeping_up_has_no_target():
    assert said([(9.0, 0.1)] * 9, target="keep up") == []


def test_cells_of_one_micro_batch_join_together():
    unmet = UnmetTargets()
    # Four cells of 2 s each: the joining is 8 s of 9.
    assert not any(unmet.observe("AB", 3.0, call, 9.0, 2.0) for call in range(9) for _ in range(4))


def test_two_joins_are_told_apart():
    unmet = UnmetTargets()
    texts = [unmet.observe(names, 3.0, call, 9.0, 0.1) for call in range(6) for names in ("AB", "CD")]
    assert len([text for text in texts if text]) == 2


def test_what_nobody_measured_is_not_blamed():
    assert unmet_target(3.0, [(9.0, None)] * 5) is None
    assert unmet_target(None, [(9.0, 0.1)] * 5) is None

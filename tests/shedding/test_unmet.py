"""A target that shedding cannot meet is said once, where the time goes elsewhere."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dovetail.columns.layout import PACKED_AT_HEADER
from dovetail.families.shedding import unmet as module
from dovetail.families.shedding.paper.clock import SECOND
from dovetail.families.shedding.paper.workload import DriftingStreams, epsilon_join
from dovetail.families.shedding.spec import Harvest
from dovetail.families.shedding.stream import HarvestKernel
from dovetail.families.shedding.unmet import UnmetTargets
from dovetail.reports import unmet_target

SPEC = epsilon_join(2, window=2 * SECOND, epsilon=0.25)


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


@pytest.mark.parametrize(("before", "times"), [(8.0, 1), (0.5, 0)], ids=["slow", "in time"])
def test_a_stream_says_so_once_in_the_log(before, times, monkeypatch, caplog):
    """Its micro-batches began so many seconds before their rows came to the join, and joining takes next to nothing."""
    monkeypatch.setattr(module, "_OBSERVED", UnmetTargets())
    inputs = DriftingStreams((2.0, 2.0), (0.0, 1.0), 20.0).made(7.0, 1)
    state = {}
    for call in range(7):
        kernel = HarvestKernel(SPEC, shed=Harvest(target=3.0))
        kernel.restore(state, None)
        for side, rows in enumerate(inputs):
            begin, end = np.searchsorted(rows.column("t").to_numpy(), [call * SECOND, (call + 1) * SECOND])
            header = {PACKED_AT_HEADER: str(round((time.time() - before) * 1e6))}
            kernel.push(side, rows.slice(int(begin), int(end - begin)))
            kernel.push(side, rows.slice(0, 0).replace_schema_metadata(header))
        list(kernel.results())
        changes = kernel.changes()
        state = {name: rows for name, rows in state.items() if name not in changes.dropped} | changes.stored
    said = [record.getMessage() for record in caplog.records if record.name == "dovetail.shedding"]
    assert len(said) == times
    assert all("at a target of 3 s" in text for text in said)

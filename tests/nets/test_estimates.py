"""Intervals hold the truth as often as they say, for every order of arrival, or say that they cannot.

Simulated without Spark over many seeds, through the kernels and the arithmetic that the public call uses; and in a
small version through the public call itself.  The truth comes from the frequencies of the join values.  All seeds are
fixed, so a result is the same on every run.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from tests.approx.coverage import MEASURES, ORDERS, Setting, coverage, estimated, tables, truths
from tests.spark.joins.streams import put, run, source

import dovetail as dt

LEVEL = (0.93, 0.97)
"""How often an interval of 95 % may hold the truth, on an average of the measures."""
LEAST = 0.915
"""How often that of any measure must: 500 runs at 0.93 stay above, but for one time in ten."""


def check(setting: Setting, seeds: int, level: tuple[float, float] = LEVEL, least: float = LEAST) -> None:
    """Every measure at its level, or NULL; an interval without any width must be right, always."""
    found = coverage(setting, range(seeds))
    shares = []
    for at, measure in enumerate(MEASURES):
        note = f"{measure}: {found.held[at]:.0f} of {found.told[at]:.0f} intervals in {seeds} runs"
        if found.exact[at]:
            assert found.exact[at] == found.told[at] == found.held[at], note
            continue
        # A count may depend on a handful of rows, and then has no interval; a sum depends on many.
        assert measure == "count" or found.told[at] > 0.85 * seeds, note
        if found.told[at] > 0.5 * seeds:
            assert found.share[at] >= least, note
            shares.append(found.share[at])
        else:
            assert found.held[at] >= 0.85 * found.told[at], note
    print(setting.order, setting.policy, setting.cells, setting.calls, [round(float(share), 3) for share in shares])
    assert level[0] <= np.mean(shares) <= level[1], (setting, shares)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ["raj", "raj_hash"])
@pytest.mark.parametrize(("cells", "calls"), [(1, 1), (4, 1), (1, 5), (4, 5)])
def test_intervals_hold_the_truth_as_often_as_they_say(order, policy, cells, calls):
    check(Setting(order, policy, rows=600, memory=240, values=50, cells=cells, calls=calls), 500)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ["raj", "raj_hash", "exact"])
@pytest.mark.parametrize("calls", [1, 5])
def test_so_do_intervals_of_a_sample_of_the_results(order, policy, calls):
    memory = None if policy == "exact" else 240
    check(Setting(order, policy, rows=600, memory=memory, values=50, calls=calls, results=600), 500)


@pytest.mark.in_turns
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ["raj", "raj_hash"])
def test_a_few_seeds_of_every_order(order, policy):
    # 0.95 of 25 are 24; fewer than 20 of them have a chance of one in six thousand.
    check(Setting(order, policy, rows=500, memory=200, values=40, cells=2), 25, (0.85, 1.0), 20 / 25)


ASKED = {"count": "count(*)", "sum": "sum(R.x)", "avg": "avg(R.x)", "part": "count(CASE WHEN R.x > 25 THEN 1 END)"}


def static(spark, setting: Setting):
    """The inputs as frames of one partition each, whose rows arrive in turn, in the order of the setting."""
    data = zip("RS", setting.inputs(), strict=True)
    return {alias: spark.createDataFrame(pa.table({"k": one.keys, "x": one.x})).coalesce(1) for alias, one in data}


def streamed(spark, setting: Setting, place):
    """The inputs as streams of as many files as the setting has calls."""
    data = setting.inputs()
    cuts = np.linspace(0, max(int(one.arrival.max()) for one in data) + 1, setting.calls + 1).astype(int)
    frames = {}
    for alias, one in zip("RS", data, strict=True):
        for begin, end in pairwise(cuts):
            which = np.flatnonzero((one.arrival >= begin) & (one.arrival < end))
            put(place / alias, pa.table({"k": one.keys[which], "x": one.x[which]}))
        frames[alias] = source(spark, place / alias, "k long, x double")
    return frames


@pytest.mark.in_turns
@pytest.mark.parametrize(("order", "calls"), [("sorted", 1), ("clustered", 1), ("one side first", 2)])
def test_the_public_call_gives_the_simulated_figures(spark, tmp_path, order, calls):
    # With one cell and one stratum the sample depends on nothing but the seed and the order of arrival.
    setting = Setting(order, "raj", rows=600, memory=240, values=30, calls=calls)
    frames = static(spark, setting) if calls == 1 else streamed(spark, setting, tmp_path)
    some = dt.approx_join(frames, on="R.k = S.k", memory=240, policy="raj", partitions=1, seed=5)
    if calls > 1:
        run(some, tmp_path)
        some = spark.read.parquet(str(tmp_path / "out"))
    found = dt.estimates(some, ASKED).first()
    data = setting.inputs()
    for name, one in zip(MEASURES, estimated(tables(setting, data, 5), setting, data), strict=True):
        for field in ("estimate", "error", "low", "high"):
            assert found[name][field] == pytest.approx(getattr(one, field)[0]), (name, field)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sorted", "clustered"])
def test_intervals_of_the_public_call_hold_the_truth(spark, order):
    setting = Setting(order, rows=1200, memory=400)
    frames = static(spark, setting)
    true = truths(setting, setting.inputs())
    seeds, held = 60, np.zeros(len(MEASURES))
    for seed in range(seeds):
        found = dt.estimates(dt.approx_join(frames, on="R.k = S.k", memory=400, partitions=2, seed=seed), ASKED).first()
        held += [found[name].low <= truth <= found[name].high for name, truth in zip(MEASURES, true, strict=True)]
    # 57 of 60 are expected; fewer than 50 have a chance of one in a thousand.
    assert (held >= 50).all(), held

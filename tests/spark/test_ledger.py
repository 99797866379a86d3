"""Counters of batch joins on their way to the driver."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

import dovetail as dt
from dovetail.columns.layout import COUNTERS
from dovetail.spark import ledger
from dovetail.spark.ledger import Ledger

COUNTS = [1, 2, 3]


def entry(of: Ledger, action: str, cell: tuple[int, int], counts: list[int]) -> ledger.Entry:
    return of.name, action, cell, counts


@pytest.fixture
def driver(monkeypatch):
    """The post of a process that has an accumulator, which is how a driver knows itself."""
    monkeypatch.setattr(ledger, "_accumulators", {"an application": None})
    return ledger._Delivery()


class TestLedger:
    def test_a_task_that_ran_again_counts_once(self):
        found = Ledger()
        found.take("1", (0, 0), [5])
        found.take("1", (1, 0), [7])
        found.take("1", (0, 0), [6])
        assert sorted(found.cells()) == [[6], [7]]

    def test_the_latest_action_counts(self):
        found = Ledger()
        found.take("1", (0, 0), [5])
        found.take("1", (1, 0), [5])
        found.take("2", (0, 0), [9])
        assert found.cells() == [[9]]


class TestPost:
    def test_a_driver_hands_entries_out_and_keeps_none(self, driver):
        one, other = Ledger(), Ledger()
        kept = driver.addInPlace([], [entry(one, "1", (0, 0), [1]), entry(other, "1", (0, 0), [2])])
        assert (kept, one.cells(), other.cells()) == ([], [[1]], [[2]])

    def test_a_driver_drops_entries_of_frames_that_nobody_holds(self, driver):
        gone = Ledger()
        late = entry(gone, "1", (0, 0), [1])
        del gone
        gc.collect()
        assert driver.addInPlace([], [late]) == []
        assert late[0] not in ledger._open

    def test_a_worker_collects(self, monkeypatch):
        monkeypatch.setattr(ledger, "_accumulators", {})
        post, one = ledger._Delivery(), Ledger()
        first, second = entry(one, "1", (0, 0), [1]), entry(one, "1", (0, 1), [2])
        assert post.addInPlace(post.addInPlace(post.zero([]), [first]), [second]) == [first, second]
        assert one.cells() == []


def test_rows_leave_without_their_counters(spark):
    def stage(batches):
        for batch in batches:
            nothing = pa.nulls(batch.num_rows, pa.list_(pa.int64()))
            yield pa.RecordBatch.from_arrays([batch.column(0), nothing], names=["id", COUNTERS])
        counts = pa.array([COUNTS], pa.list_(pa.int64()))
        yield pa.RecordBatch.from_arrays([pa.nulls(1, pa.int64()), counts], names=["id", COUNTERS])

    found = Ledger()
    tapped = ledger.tapped(stage, found, spark.sparkContext)
    rows = spark.range(0, 10, 1, 2).mapInArrow(lambda batches: tapped(batches), "id long")
    assert sorted(row.id for row in rows.collect()) == list(range(10))
    assert found.cells() == [COUNTS, COUNTS]


def test_metrics_are_those_of_the_latest_action(spark):
    pairs = dt.theta_join({"R": spark.range(100), "S": spark.range(50)}, on="R.id < S.id")
    assert [pairs.count(), dt.metrics(pairs)["results"]] == [1225, 1225]
    assert [pairs.count(), dt.metrics(pairs)["results"]] == [1225, 1225]


def test_an_action_without_any_rows_has_metrics(spark):
    pairs = dt.theta_join({"R": spark.range(0), "S": spark.range(0)}, on="R.id < S.id")
    assert pairs.count() == 0
    assert dt.metrics(pairs)["results"] == 0

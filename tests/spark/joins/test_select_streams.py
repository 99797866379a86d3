"""``select=`` on streams: what comes out is selected of the join without it, and state holds no more than that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.checkpoints import joins
from tests.checkpoints.joins import JOINS, LAST, run, streams, tables, write_file

import dovetail as dt
from dovetail.errors import CheckpointError
from dovetail.spark.metrics import handle_of

SELECTED = ["A.id AS a", "B.id AS b"]


class Selecting:
    """Stands for the package where the joins are called, and has each of them select."""

    def __init__(self, items: list[str]) -> None:
        self.items = items

    def __getattr__(self, name: str) -> Any:
        made = getattr(dt, name)
        if not name.endswith("_join"):
            return made
        return lambda inputs, **options: made(inputs, **options, select=self.items)


@pytest.fixture(autouse=True)
def _one_partition(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def net(rows: list[Any]) -> Counter:
    """What is there in the end, without rows that only move the watermarks."""
    found: Counter = Counter()
    for a, b, *change in rows:
        if all(number is None or number < LAST for number in (a, b)):
            found[a, b] += -1 if change == ["retract"] else 1
    return +found


@pytest.mark.in_turns(n=4)
@pytest.mark.parametrize("name", JOINS)
def test_a_stream_gives_what_is_selected(spark, tmp_path, monkeypatch, name):
    for alias in "AB":
        for number in range(4):
            write_file(tmp_path, alias, number)
    whole = JOINS[name](tables(spark, tmp_path))
    items = ["A.id AS a", "b"] if name == "aggregate" else SELECTED
    meant = net(whole.selectExpr(*items).collect())
    changes = ["_change"] if name == "best" else []
    monkeypatch.setattr(joins, "dt", Selecting([*items, *changes]))
    selected = JOINS[name](streams(spark, tmp_path))
    assert selected.columns == ["a", "b", *changes]
    written = run(selected, tmp_path / name, tmp_path / "out")
    assert meant
    assert net(written.collect()) == meant


def test_state_holds_only_the_columns_that_travel(spark, tmp_path):
    """The checkpoint knows them: a selection that needs another column is another join."""
    for alias in "AB":
        write_file(tmp_path, alias, 0)

    def join(*items: str) -> Any:
        return dt.window_join(
            streams(spark, tmp_path), on="A.k = B.k", time="ts", within="4 seconds", select=["A.id AS a", *items]
        )

    first = join("B.id AS b")
    (header,) = [recorder.header for recorder in handle_of(first, "test").recorders]
    assert dict(header.parts)["columns of A"] == "id bigint, k bigint, ts timestamp"
    run(first, tmp_path / "query", tmp_path / "out")
    checkpoint = tmp_path / "query" / "checkpoint"
    dt.check_checkpoint(join("B.id + A.k AS other"), checkpoint)  # computed behind the join: nothing else travels
    with pytest.raises(CheckpointError, match="columns of B"):
        dt.check_checkpoint(join("B.v AS b"), checkpoint)

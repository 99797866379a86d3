"""Checkpoints that earlier versions left behind: still read, or refused in words."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from tests.checkpoints.joins import JOINS, LAST, PLACE, pairs, run, streams, tables, write_file

import dovetail as dt
from dovetail.checkpoints import FORMAT
from dovetail.errors import CheckpointError
from dovetail.spark.runtime.failures import brief

KEPT = Path(__file__).resolve().parents[1] / "checkpoints"


@pytest.fixture(scope="module", autouse=True)
def _one_partition(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def restored(place: Path, name: str) -> list[list[object]]:
    """A kept checkpoint in a folder of its own, as if it had been written there; what was out before it was kept."""
    kept = KEPT / f"format-{FORMAT}" / name
    shutil.copytree(kept / "checkpoint", place / name / "checkpoint")
    for file in (place / name).rglob("*"):
        if file.is_file() and PLACE.encode() in (content := file.read_bytes()):
            file.write_bytes(content.replace(PLACE.encode(), str(place).encode()))
    return json.loads((kept / "first.json").read_text(encoding="utf-8"))


# Spark refuses the state of another operator than the one that asks for it.
by_rows = pytest.mark.since("4.1", "transformWithState on rows, whose state is in the kept checkpoints")


def net(rows: list[list[object]]) -> Counter:
    """What is there in the end; rows that only move the watermarks left out."""
    found: Counter = Counter()
    for a, b, change in rows:
        if all(number is None or number < LAST for number in (a, b)):
            found[a, b] += 1 if change == "insert" else -1
    return +found


def test_the_kept_checkpoints_are_small_and_those_of_the_present_format():
    size = sum(file.stat().st_size for file in KEPT.rglob("*") if file.is_file())
    assert size < 200_000
    assert {folder.name for folder in (KEPT / f"format-{FORMAT}").iterdir()} == set(JOINS)


@pytest.mark.in_turns
@by_rows
@pytest.mark.parametrize("name", JOINS)
def test_a_kept_checkpoint_is_read_and_gone_on_from(spark, tmp_path, name):
    """What was out before and what comes now are together the answer over all rows."""
    first = restored(tmp_path, name)
    for alias in "AB":
        for number in range(4):
            write_file(tmp_path, alias, number)
    written = run(JOINS[name](streams(spark, tmp_path)), tmp_path / name, tmp_path / "out")
    second = pairs(written)
    # State that was not read would lack the pairs of a row from before and a row from now.
    assert any(a is not None and b is not None and (a < 8) != (b < 8) for a, b, _ in second) or name == "theta-time"
    whole = net(pairs(JOINS[name](tables(spark, tmp_path))))
    assert net([*first, *second]) == whole
    if name != "best":
        assert max(Counter(map(tuple, [*first, *second])).values()) == 1


@by_rows
def test_another_join_on_a_checkpoint_is_refused_with_the_difference(spark, tmp_path):
    restored(tmp_path, "theta-rows")
    for alias in "AB":
        write_file(tmp_path, alias, 1)
    other = dt.theta_join(streams(spark, tmp_path), on="A.v <= B.v", window=7)
    with pytest.raises(StreamingQueryException) as caught:
        run(other, tmp_path / "theta-rows", tmp_path / "out")
    first, accepted, hint, *_ = str(caught.value).splitlines()
    assert "CheckpointError: the checkpoint belongs to another join: the window was '5 rows' and is '7 rows'" in first
    assert (accepted, hint) == (
        "  accepted: the join that wrote the checkpoint",
        "  hint: take the change back, or start this join from a new checkpoint",
    )
    assert 'File "' not in str(caught.value)
    assert brief(caught.value).startswith("the checkpoint belongs to another join: the window was '5 rows'")


@by_rows
@pytest.mark.parametrize("name", JOINS)
def test_a_kept_checkpoint_is_recognised_before_a_query_starts(spark, tmp_path, name):
    restored(tmp_path, name)
    write_file(tmp_path, "A", 0)
    write_file(tmp_path, "B", 0)
    inputs = streams(spark, tmp_path)
    dt.check_checkpoint(JOINS[name](inputs), tmp_path / name / "checkpoint")
    make, difference = CHANGED[name]
    with pytest.raises(CheckpointError) as caught:
        dt.check_checkpoint(make(inputs), str(tmp_path / name / "checkpoint"))
    assert caught.value.given == f"the checkpoint belongs to another join: {difference}"


CHANGED = {
    "window": (
        lambda inputs: dt.window_join(
            inputs, on="A.k = B.k", time="ts", within={("A", "B"): dt.after("1 minute")}, how="left", partitions=1
        ),
        "the window was 'A and B at most 4 seconds apart' and is 'B at most 1 minute after A'",
    ),
    "theta-rows": (
        lambda inputs: dt.theta_join(inputs, on="A.v < B.v", window=5),
        "the condition was 'A.v <= B.v' and is 'A.v < B.v'",
    ),
    "theta-time": (
        lambda inputs: dt.theta_join(inputs, on="A.v < B.v", how="left", window="2 minutes", time="ts"),
        "the window was '10 seconds' and is '2 minutes'",
    ),
    "asof": (
        lambda inputs: dt.asof_join(inputs, by="k", time="ts", direction="nearest", how="left", within="250 ms"),
        "the tolerance was '5 seconds' and is '250 milliseconds'",
    ),
    "best": (
        lambda inputs: dt.theta_join(inputs, on="A.v <= B.v", window=5),
        "it was a best-match join and is a theta join in windows",
    ),
    "approx": (
        lambda inputs: dt.approx_join(inputs, on="A.k = B.k", memory=600, seed=1, partitions=1),
        "the memory was '500 rows' and is '600 rows'",
    ),
    "aggregate": (
        lambda inputs: dt.aggregate_join(
            inputs, on="A.k = B.k", by="A", time="ts", within="4 seconds", agg={"b": "max(B.id)"}
        ),
        "the aggregates was 'max(B.id) AS b, sum(B.v) AS n' and is 'max(B.id) AS b'",
    ),
    "nearest": (
        lambda inputs: dt.nearest_join(
            inputs, on="A.k = B.k AND ABS(A.v - B.v)", k=3, how="left", time="ts", window="4 seconds"
        ),
        "the k was '2' and is '3'",
    ),
}


@pytest.mark.in_turns(group="streams across a restart")
def test_the_checkpoint_of_a_statement_with_two_joins(spark, tmp_path):
    """Each join has state of its own, and one of them changes."""
    for alias in "AB":
        write_file(tmp_path, alias, 0)
    text = (
        "SELECT a FROM (SELECT A.id AS a, A.v FROM A, B WINDOW = 4 SECONDS WHERE A.k = B.k) UNION ALL "
        "SELECT x.id FROM A AS x, B AS y WINDOW = {} WHERE x.v = y.v"
    )
    run(dt.sql(text.format("1 HOUR"), **streams(spark, tmp_path)), tmp_path, tmp_path / "out")
    dt.check_checkpoint(dt.sql(text.format("1 HOUR"), **streams(spark, tmp_path)), tmp_path / "checkpoint")
    with pytest.raises(
        CheckpointError, match="was 'x and y at most 1 hour apart' and is 'x and y at most 2 hours apart'"
    ):
        dt.check_checkpoint(dt.sql(text.format("2 HOURS"), **streams(spark, tmp_path)), tmp_path / "checkpoint")


def test_what_has_no_state_fits_and_what_is_no_join_of_streams_is_refused(spark, tmp_path):
    for alias in "AB":
        write_file(tmp_path, alias, 0)
    inputs, static = streams(spark, tmp_path), tables(spark, tmp_path)
    restored(tmp_path, "theta-rows")
    beside = dt.theta_join({"A": inputs["A"], "B": static["B"]}, on="A.v < B.v")
    dt.check_checkpoint(beside, tmp_path / "theta-rows" / "checkpoint")
    joined = dt.theta_join(inputs, on="A.v < B.v", window=5)
    dt.check_checkpoint(joined, tmp_path / "nowhere")
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    dt.check_checkpoint(joined, tmp_path / "empty")
    # A query that was killed before it committed anything.
    shutil.rmtree(tmp_path / "theta-rows" / "checkpoint" / "commits")
    dt.check_checkpoint(joined, tmp_path / "theta-rows" / "checkpoint")
    with pytest.raises(dt.ArgumentError, match="static inputs"):
        dt.check_checkpoint(dt.theta_join(static, on="A.v < B.v"), tmp_path)
    with pytest.raises(dt.ArgumentError, match="no Dovetail join returned"):
        dt.check_checkpoint(joined.select("A"), tmp_path)
    with pytest.raises(dt.ArgumentError, match="path="):
        dt.check_checkpoint(joined, 5)

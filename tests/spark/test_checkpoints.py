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


def test_another_join_on_a_checkpoint_is_refused_with_the_difference(spark, tmp_path):
    restored(tmp_path, "theta-rows")
    for alias in "AB":
        write_file(tmp_path, alias, 1)
    other = dt.theta_join(streams(spark, tmp_path), on="A.v <= B.v", window=7)
    with pytest.raises(StreamingQueryException) as caught:
        run(other, tmp_path / "theta-rows", tmp_path / "out")
    text = str(caught.value)
    assert "the checkpoint belongs to another join: the window was '5 rows' and is '7 rows'" in text
    assert "hint: take the change back, or start this join from a new checkpoint" in text

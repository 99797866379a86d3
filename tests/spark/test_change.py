"""A query whose join is defined otherwise from some row on: nothing lost, nothing twice, nothing wrong."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.spark.changes import (
    ANSWERS,
    CHANGES,
    HASHED,
    LATE,
    PAIR,
    SAME,
    WINDOWS,
    Change,
    Timeline,
    begun,
    checked,
    judged,
    near,
    real,
    run,
    seeded,
    streams,
    window,
)
from tests.spark.test_resume import FILES, tasks_in

import dovetail as dt
from dovetail.checkpoints import CheckpointHeader
from dovetail.errors import CheckpointError

pytestmark = [
    pytest.mark.since("4.1", "transformWithState on rows, whose state can be laid down"),
    pytest.mark.usefixtures("partitions_as_before"),
]


SAME_IDENTITY = ("later rows, left", "fewer late rows, full", "shedding begins")
"""Changes that a query may make on its own checkpoint."""


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [*CHANGES, *WINDOWS])
def test_a_change_loses_and_doubles_nothing(spark, tmp_path, name):
    change = CHANGES.get(name) or Change(*WINDOWS[name][:2], PAIR, WINDOWS[name][2], gaps=WINDOWS[name][3])
    draw = seeded(name)
    time = Timeline(tmp_path, "".join(sorted({*change.before, *change.after})), draw.randint(2, FILES - 1), draw)
    out, old, new = tmp_path / "out", tmp_path / "old", tmp_path / "new"
    tasks_in(spark, draw.randint(1, 3))
    time.arrive(0, time.cut)
    run(change.old(streams(spark, tmp_path, change.before), 2), change.columns, old, out)
    kept = {file: file.read_bytes() for file in old.rglob("*") if file.is_file()}
    tasks = draw.randint(1, 3)
    frame = change.new(streams(spark, tmp_path, change.after), tasks)
    if name not in SAME_IDENTITY:
        with pytest.raises(CheckpointError, match=r"dt\.resume\(frame, old, new\)"):
            dt.check_checkpoint(frame, old)
    said = dt.resume(frame, old)
    assert not new.exists()
    assert dt.resume(frame, old, new, partitions=tasks) == said
    assert said.changes
    assert {file: file.read_bytes() for file in old.rglob("*") if file.is_file()} == kept
    dt.check_checkpoint(frame, new)
    # A restart in between: what was taken over is then the state of the new join, and nothing else.
    for first, last in ((time.cut, time.cut + 1), (time.cut + 1, FILES + 2)):
        time.arrive(first, last)
        run(change.new(streams(spark, tmp_path, change.after), tasks), change.new_columns or change.columns, new, out)
    found = real([tuple(row) for row in spark.read.parquet(str(out)).collect()])
    checked(found, time.answer(change.oracle), said.complete_from, gaps=change.gaps)


@pytest.mark.in_turns(n=9)
@pytest.mark.parametrize("name", ANSWERS)
def test_rows_that_wait_are_answered_by_the_new_definition(spark, tmp_path, name):
    before, after, oracle, gaps = ANSWERS[name]
    columns = ("A.id AS a", "b", "n") if name.startswith("aggregate") else PAIR
    draw = seeded(name)
    time = Timeline(tmp_path, "AB", draw.randint(2, FILES - 1), draw)
    out, old, new = tmp_path / "out", tmp_path / "old", tmp_path / "new"
    tasks_in(spark, 2)
    time.arrive(0, time.cut)
    run(before(streams(spark, tmp_path, "AB"), 2), columns, old, out)
    answered = {row.a for row in spark.read.parquet(str(out)).collect()}
    frame = after(streams(spark, tmp_path, "AB"), 2)
    said = dt.resume(frame, old, new, partitions=3)
    for first, last in ((time.cut, time.cut + 1), (time.cut + 1, FILES + 2)):
        time.arrive(first, last)
        run(after(streams(spark, tmp_path, "AB"), 2), columns, new, out)
    rows = [tuple(row) for row in spark.read.parquet(str(out)).collect()]
    # Who was answered before, was answered by the old definition, once.
    assert {row[0] for row in rows} >= answered
    found = real([row for row in rows if row[0] not in answered])
    answer = [row for row in time.answer(oracle) if row[0] not in answered]
    checked(found, answer, said.complete_from, gaps=gaps)


@pytest.mark.in_turns(n=4)
@pytest.mark.parametrize("role", ["absent", "present"])
def test_matches_that_wait_for_an_input_are_judged_by_the_new_definition(spark, tmp_path, role):
    on = f"{SAME} AND B.k = C.k"
    draw = seeded(role)
    time = Timeline(tmp_path, "ABC", draw.randint(2, FILES - 1), draw)
    out, old, new = tmp_path / "out", tmp_path / "old", tmp_path / "new"
    tasks_in(spark, 2)
    time.arrive(0, time.cut)
    run(window(on, 4, how={"C": role})(streams(spark, tmp_path, "ABC"), 2), PAIR, old, out)
    given = real([tuple(row) for row in spark.read.parquet(str(out)).collect()])
    said = dt.resume(window(on, 3, how={"C": role})(streams(spark, tmp_path, "ABC"), 2), old, new, partitions=2)
    for first, last in ((time.cut, time.cut + 1), (time.cut + 1, FILES + 2)):
        time.arrive(first, last)
        run(window(on, 3, how={"C": role})(streams(spark, tmp_path, "ABC"), 2), PAIR, new, out)
    found = real([tuple(row) for row in spark.read.parquet(str(out)).collect()])
    # Rows of matches that were closed may be taken for gone, which is careful; nothing may be missing all the same.
    assert said.complete_from is None or role == "present"
    assert found & given == given
    matched = f"EXISTS (SELECT 1 FROM C WHERE C.k = B.k AND {near(3, 'A', 'C')} AND {near(3, 'B', 'C')})"
    wanted = matched if role == "present" else f"NOT {matched}"
    answer = time.answer(f"SELECT A.id, B.id, {LATE} FROM A, B WHERE {HASHED[3]} AND {wanted}")
    rest = found - given
    assert rest - real([row[:2] for row in answer]) == Counter(), "what is no result, or twice"
    assert real([row[:2] for row in answer if row[2]]) - rest == Counter(), "what is missing"
    assert rest


@pytest.mark.in_turns(n=4, group="resuming")
def test_a_changed_checkpoint_runs_once_before_it_is_changed_again(spark, tmp_path):
    old = begun(spark, tmp_path, window(SAME, 4, how="left"))
    shorter = window(SAME, 3, how="left")(streams(spark, tmp_path, "AB"), 2)
    dt.resume(shorter, old, tmp_path / "new", partitions=2)
    for again in (shorter, window(SAME, 2, how="left")(streams(spark, tmp_path, "AB"), 2)):
        with pytest.raises(CheckpointError, match="was made for another definition of the join and has not run since"):
            dt.resume(again, tmp_path / "new", tmp_path / "newer", partitions=3)
    assert not (tmp_path / "newer").exists()


@pytest.mark.in_turns(n=4, group="resuming")
def test_a_statement_whose_join_carried_all_columns_in_an_earlier_version(spark, tmp_path, monkeypatch):
    """Which noted neither what lies in the state nor the types of columns but in words."""
    select = "SELECT A.id AS a, B.id AS b{} FROM A, B WINDOW = 4 SECONDS WHERE A.k = B.k"
    every = ", ".join(f"{alias}.{name} AS {alias}_{name}" for alias in "AB" for name in ("k", "v", "ts", "n"))
    time = Timeline(tmp_path, "AB", 3, random.Random(3))
    out, old, new = tmp_path / "out", tmp_path / "old", tmp_path / "new"
    tasks_in(spark, 2)
    time.arrive(0, 3)
    with monkeypatch.context() as before:
        of = CheckpointHeader.of
        before.setattr("dovetail.spark.stream.CheckpointHeader.of", lambda parts, layout=None: of(parts))
        wide = dt.sql(select.format(f", {every}"), **streams(spark, tmp_path, "AB"))
    run(wide, ("a", "b"), old, out)
    frame = dt.sql(select.format(""), **streams(spark, tmp_path, "AB"))
    with pytest.raises(CheckpointError, match="the columns of A was"):
        dt.check_checkpoint(frame, old)
    assert dt.resume(frame, old, new, partitions=2).complete_from is None
    time.arrive(3, FILES + 2)
    run(frame, ("a", "b"), new, out)
    found = real([tuple(row) for row in spark.read.parquet(str(out)).collect()])
    checked(found, time.answer(judged(HASHED[4], HASHED[4])), None, gaps=False)

"""Window joins of several inputs that are kept, optional, present or absent, in Spark: batch, streams, explain."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

import dovetail as dt
from dovetail import reference
from dovetail.errors import ArgumentError
from dovetail.reference import equal

from .streams import ids, put, run, written
from .test_window import FILE, NOON, SECOND, frame, made, stream

pytestmark = pytest.mark.usefixtures("few_partitions")


def meant(inputs, windows, how) -> Counter:
    """By the definition: equal keys, and windows in seconds."""
    numbered = {
        alias: [{**row, "ts": None if row["ts"] is None else (row["ts"] - NOON) // SECOND} for row in rows]
        for alias, rows in inputs.items()
    }
    same = [(pair, lambda a, b: equal(a["k"], b["k"])) for pair in combinations(inputs, 2)]
    found = reference.window_join(numbered, same, windows, how, time="ts")
    return Counter(tuple(None if row is None else row["id"] for row in match.values()) for match in found)


@pytest.mark.parametrize(
    "how",
    [
        {"A": "keep", "C": "optional"},
        {"A": "keep", "B": "keep", "C": "keep"},
        {"A": "absent", "C": "optional"},
        {"A": "optional", "C": "present"},
    ],
)
def test_batch(spark, how):
    inputs = {alias: made(alias) for alias in "ABC"}
    joined = dt.window_join(
        {alias: frame(spark, rows) for alias, rows in inputs.items()}, on="A.k = B.k AND B.k = C.k", time="ts",
        within={("A", "B"): ("-1 second", "2 seconds"), ("B", "C"): dt.after("2 seconds")}, how=how,
    )  # fmt: skip
    answer = meant(inputs, {("A", "B"): (-1, 2), ("B", "C"): (0, 2)}, how)
    assert joined.columns == [alias for alias in "ABC" if how.get(alias) not in ("present", "absent")]
    assert ids(joined) == answer
    assert sum(answer.values()) > 20
    assert dt.metrics(joined)["results"] == sum(answer.values())


@pytest.mark.in_turns(group="streams across a restart")
def test_a_stream_across_a_restart(spark, tmp_path):
    """Stopped and started again after each file; what is missing comes out once, when the windows have closed."""
    inputs = {alias: made(alias) for alias in "ABC"}
    how = {"A": "keep", "C": "optional"}
    call = {"on": "A.k = B.k AND B.k = C.k", "time": "ts", "within": "2 seconds", "how": how}
    place = tmp_path / "query"
    reports = []
    for at in range(0, 40, 20):
        for alias, rows in inputs.items():
            put(tmp_path / alias, rows[at : at + 20], FILE)
        reports += run(dt.window_join({a: stream(spark, tmp_path / a) for a in "ABC"}, **call), place)
    for alias in "ABC":
        put(tmp_path / alias, [{"id": 99, "k": f"last {alias}", "v": 0.0, "ts": NOON + 1000 * SECOND}], FILE)
    reports += run(dt.window_join({a: stream(spark, tmp_path / a) for a in "ABC"}, **call), place)
    pairs = {("A", "B"): (-2, 2), ("A", "C"): (-2, 2), ("B", "C"): (-2, 2)}
    answer = meant(inputs, pairs, how)
    assert written(spark, place) == answer
    assert len({sum(value is None for value in row) for row in answer}) == 3
    reports = [report for report in reports if report["rows"]]
    assert reports[-1]["held_rows_C"] == 1
    # Another role on this checkpoint is another join.
    changed = dt.window_join({a: stream(spark, tmp_path / a) for a in "ABC"}, **{**call, "how": {"C": "optional"}})
    for alias in "ABC":
        put(tmp_path / alias, [{"id": 100, "k": "a", "v": 0.0, "ts": NOON + 1001 * SECOND}], FILE)
    with pytest.raises(Exception, match="how"):
        run(changed, place)


@pytest.mark.in_turns(group="several seconds")
def test_explain_and_what_is_refused(spark, capsys):
    frames = {alias: frame(spark, made(alias, 3)) for alias in "ABC"}
    call = {"on": "A.k = B.k AND B.k = C.k", "time": "ts", "within": "2 seconds"}
    dt.explain(dt.window_join(frames, **call, how={"A": "keep", "C": "optional"}))
    text = capsys.readouterr().out
    for part in (
        "window join, batch, how={'A': 'keep', 'C': 'optional'}",
        "matches of A, B",
        "with the rows of C that complete them, or NULL",
        "and rows of A that are in none of these, alone",
    ):
        assert part in text
    chain = "SELECT A.id AS a, C.id AS c FROM A JOIN B ON A.k = B.k LEFT JOIN C ON B.k = C.k WINDOW = 2 SECONDS TIME ts"
    by_call = dt.window_join(frames, **call, how={"C": "optional"}).select("A", "C")
    assert dt.sql(chain, **frames).count() == by_call.count()
    with pytest.raises(ArgumentError, match="a mapping that says what each input is"):
        dt.window_join(frames, **call, how="left")

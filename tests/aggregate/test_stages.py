"""The stages one after the other, as Spark runs them, against the nested loop."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.aggregate.harness import broadcast, fitted, play, routed, sides
from tests.aggregate.shapes import (
    EXPECTED,
    WHOLE,
    answering,
    asking,
    condition,
    overlap_spec,
    overlaps,
    same,
    spec_of,
)
from tests.examples import examples

from dovetail.errors import ArgumentError
from dovetail.families.aggregate.router import Routing
from dovetail.families.aggregate.stages import AnswerStage
from dovetail.reference.aggregate import aggregate_join

AXES = ["", "x", "X", "xy", "XY"]


def agree(found, rows, others, *, keyed, axes, keep=True):
    wanted = aggregate_join(
        [dict(row, number=at) for at, row in enumerate(rows)], others, condition(keyed=keyed, axes=axes), EXPECTED,
        "left" if keep else "inner",
    )  # fmt: skip
    assert sorted(found) == [row["number"] for row, _ in wanted]
    for row, answers in wanted:
        for name, value in answers.items():
            assert same(found[row["number"]][name], value, name), (name, row, value, found[row["number"]][name])


@examples(300)
@given(
    st.booleans(), st.sampled_from(AXES), asking, answering, st.integers(1, 5), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_any_division_gives_the_answers_of_the_nested_loop(keyed, axes, rows, others, partitions, sample, few, keep):
    spec = spec_of(keyed=keyed, axes=axes, keep=keep)
    found, counted = play(spec, rows, others, partitions=partitions, sample=sample, few=few)
    agree(found, rows, others, keyed=keyed, axes=axes, keep=keep)
    assert counted["results"] == len(found)
    assert counted["matches"] == sum(answer["n"] for answer in found.values())


@examples(200)
@given(
    st.booleans(), st.sampled_from([*AXES, "overlap"]), asking, answering, st.integers(1, 5), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
def test_tasks_that_run_again_may_read_their_rows_in_another_order(keyed, axes, rows, others, partitions, sample, seed):
    overlap = axes == "overlap"
    spec = overlap_spec(keyed=keyed) if overlap else spec_of(keyed=keyed, axes=axes)
    rows = rows + rows[:3]
    once, _ = play(spec, rows, others, partitions=partitions, sample=sample)
    again, _ = play(spec, rows, others, partitions=partitions, sample=sample, again=seed)
    assert sorted(once) == sorted(again) == list(range(len(rows)))
    for at, answers in once.items():
        for name, value in answers.items():
            assert same(again[at][name], value, "") or name in ("spread", "variance"), (name, at)


@examples(60)
@given(st.booleans(), st.sampled_from(AXES), asking.filter(bool), answering, st.booleans())
def test_a_broadcast_gives_the_same(keyed, axes, rows, others, packed):
    spec = spec_of(keyed=keyed, axes=axes)
    agree(broadcast(spec, rows, others, packed=packed)[0], rows, others, keyed=keyed, axes=axes)


@examples(400)
@given(
    st.booleans(), st.tuples(st.booleans(), st.booleans()), asking, answering, st.integers(1, 5), st.booleans(),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_overlaps_counted_by_rank(keyed, strict, rows, others, partitions, sample, few, well_formed):
    if well_formed:
        others = [{**row, "x": min(row["x"], row["y"]), "y": max(row["x"], row["y"])} for row in others if known(row)]
    spec = overlap_spec(keyed=keyed, strict=strict)
    assert spec.overlap == (0, 1)
    wanted = aggregate_join(rows, others, overlaps(keyed=keyed, strict=strict), {n: EXPECTED[n] for n in WHOLE})
    ways = [play(spec, rows, others, partitions=partitions, sample=sample, few=few)[0]]
    if rows:
        ways += [broadcast(spec, rows, others, packed=packed)[0] for packed in (False, True)]
    for found in ways:
        for at, (row, answers) in enumerate(wanted):
            for name, value in answers.items():
                assert same(found[at][name], value, name), (name, row, value, found[at][name])


@examples(100)
@given(st.tuples(st.booleans(), st.booleans()), asking.filter(bool), answering, st.booleans())
def test_overlaps_that_are_only_counted(strict, rows, others, well_formed):
    if well_formed:
        others = [{**row, "x": min(row["x"], row["y"]), "y": max(row["x"], row["y"])} for row in others if known(row)]
    spec = overlap_spec(keyed=False, strict=strict)
    spec = replace(spec, measures=spec.measures[:1], outputs=spec.outputs[:1])
    assert spec.counting
    wanted = aggregate_join(rows, others, overlaps(keyed=False, strict=strict), {"n": ("count", ())})
    found = broadcast(spec, rows, others)[0]
    assert [found[at]["n"] for at in range(len(rows))] == [answers["n"] for _, answers in wanted]


@pytest.mark.parametrize("overlap", [False, True])
def test_rows_without_keys_do_not_get_the_states_of_others(overlap):
    """NULL is stored as some value, which is a key of other rows."""
    spec = overlap_spec(keyed=False) if overlap else spec_of(keyed=False, axes="xy")
    nothing = {"k": None, "x0": None, "x1": None, "y0": None, "y1": None}
    rows = [*[nothing] * 7, {"k": None, "x0": 0, "x1": 0, "y0": 0, "y1": 2}]
    others = [{"k": None, "x": 0, "y": y, "f": None, "i": None, "d": None, "s": None, "n": None} for y in (0, 1, 2)]
    found, _ = play(spec, rows, others, partitions=3, sample=False)
    assert [found[at]["n"] for at in range(8)] == [0] * 7 + [3]


def known(row):
    return row["x"] is not None and row["y"] is not None


def test_overlaps_visit_two_cells_at_most():
    generator = np.random.default_rng(2)
    begin = generator.integers(0, 1000, 800)
    others = [
        {"k": 0, "x": int(x), "y": int(x) + 5, "f": 0.0, "i": 1, "d": None, "s": "", "n": 1} for x in begin.tolist()
    ]
    rows = [{"k": 0, "x0": int(x), "x1": int(x) + 900} for x in begin.tolist()]
    found, counted = play(overlap_spec(keyed=False), rows, others, partitions=16, sample=True)
    assert counted["rows_boxes"] <= 2 * len(rows)
    assert counted["rows_points"] <= 2 * len(others)
    assert counted["matches"] == sum(answer["n"] for answer in found.values()) > 100_000


def many(size, *, keys=1, skew=False):
    generator = np.random.default_rng(3)
    x = generator.integers(0, 50, size)
    k = np.zeros(size, dtype=int) if skew else generator.integers(0, keys, size)
    others = [
        {"k": int(k[at]), "x": int(x[at]), "y": 0, "f": 0.1 * at, "i": at, "d": None, "s": str(at % 7), "n": at % 5}
        for at in range(size)
    ]
    rows = [
        {"k": int(k[at]), "x0": int(x[at]) - at % 40, "x1": int(x[at]), "y0": 0, "y1": 0} for at in range(size // 2)
    ]
    return rows, others


@pytest.mark.in_turns
@pytest.mark.parametrize("axes", ["x", "X"])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("skew", [False, True])
def test_answers_do_not_depend_on_the_number_of_cells(axes, keyed, skew):
    rows, others = many(300, keys=4, skew=skew)
    spec = spec_of(keyed=keyed, axes=axes)
    answers = [play(spec, rows, others, partitions=partitions, sample=True)[0] for partitions in (1, 3, 16)]
    exact = [
        {at: {k: v for k, v in row.items() if k not in ("spread", "variance")} for at, row in a.items()}
        for a in answers
    ]
    assert exact[0] == exact[1] == exact[2]
    agree(answers[2], rows, others, keyed=keyed, axes=axes)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_row_that_matches_everything_visits_one_cell(keyed):
    rows, others = many(400, skew=True)
    rows = [dict(row, x0=-1, x1=100) for row in rows]
    spec = spec_of(keyed=keyed, axes="x")
    _, counted = play(spec, rows, others, partitions=16, sample=True)
    # No row has to ask at both ends: all cells are covered.
    assert counted["rows_boxes"] <= len(rows) * 2
    assert counted["matches"] == len(rows) * len(others)
    open_below = spec_of(keyed=keyed, axes="X")
    _, counted = play(open_below, rows, others, partitions=16, sample=True)
    assert counted["rows_boxes"] == len(rows)


def test_rows_that_are_open_below_are_spread_over_the_cells():
    rows, others = many(400)
    spec = spec_of(keyed=False, axes="X")
    answering, asking_rows = sides(spec, rows, others, few=False)
    routing = fitted(spec, answering, asking_rows, 8)
    keys = list(asking_rows.columns[1:3])
    zero = np.zeros(len(rows), dtype=np.int64)
    visits = routing.boxes(spec.step, zero, keys, zero, exhaustive=False)
    assert np.bincount(visits.home, minlength=routing.cells).max() < len(rows) / 2


def test_an_overflow_is_an_error_where_ansi_is_on():
    others = [{"k": 0, "x": 0, "y": 0, "f": None, "i": 2**62, "d": None, "s": None, "n": None}] * 2
    rows = [{"k": 0, "x0": 0, "x1": 0, "y0": 0, "y1": 0}]
    found, _ = play(spec_of(keyed=True, axes="x"), rows, others, partitions=2, sample=True)
    assert found[0]["whole"] == -(2**63)
    with pytest.raises(ArgumentError, match="overflows"):
        play(spec_of(keyed=True, axes="x", ansi=True), rows, others, partitions=2, sample=True)


@pytest.mark.parametrize("axes", ["x", "overlap"])
def test_a_cell_that_is_answered_again_gives_the_same_bytes(axes):
    """The clock goes on, and nothing of it is told: Spark ends a job in which what a stage gives differs."""
    spec = spec_of(keyed=True, axes=axes) if axes == "x" else overlap_spec(keyed=True)
    rows, others = many(300, keys=2)
    cells = routed(spec, rows, others, partitions=4, sample=True, tasks=5)
    took: list[int] = []
    for segments in cells.values():
        once, again = ([out.to_pylist() for out in AnswerStage(spec, 4, clock=took.append)(segments)] for _ in range(2))
        assert once == again
    assert len(took) == 2 * len(cells) > 4


def test_stages_and_routings_travel():
    spec = spec_of(keyed=True, axes="x")
    assert pickle.loads(pickle.dumps(AnswerStage(spec, 3))) == AnswerStage(spec, 3)
    rows, others = many(50, keys=3)
    routing = fitted(spec, *sides(spec, rows, others, few=False), 4)
    again = Routing.from_buffer(pa.py_buffer(routing.to_buffer().to_pybytes()))
    assert again.cells == routing.cells
    assert all((a == b).all() for a, b in zip(again.bounds, routing.bounds, strict=True))

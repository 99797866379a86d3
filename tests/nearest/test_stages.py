"""Nearest joins through all their stages: no partitioning changes the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.nearest.harness import broadcast, expected, line_routing, play, routed, routing_of, sides
from tests.nearest.shapes import Case, cases, comparable

from dovetail.errors import ArgumentError
from dovetail.families.nearest import fitting
from dovetail.families.nearest.router import Routing
from dovetail.families.nearest.spec import NearestSpec
from dovetail.families.nearest.stages import AnswerStage


def fits(case: Case) -> bool:
    """Whether no distance exceeds the type of the column."""
    return not case.spec.whole or all(far is None or far < 2**63 for _, _, far, _ in expected(case))


def played(case: Case, **how: Any) -> Any:
    """The join in regions that are smaller than a ball of k rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "least_points", lambda spec: 2)
        return play(case, **how)


@examples(300)
@given(
    case=cases(most=40), partitions=st.integers(1, 9), share=st.integers(1, 4), few=st.booleans(),
    sample=st.sampled_from([True, True, False]),
)  # fmt: skip
def test_any_partitioning_gives_the_answer_of_the_nested_loop(
    case: Case, partitions: int, share: int, few: bool, sample: bool
) -> None:
    if not fits(case):
        with pytest.raises(ArgumentError, match="does not fit"):
            played(case, partitions=partitions, sample=sample, share=share, few=few)
        return
    found, counted = played(case, partitions=partitions, sample=sample, share=share, few=few)
    assert comparable(found) == comparable(expected(case))
    assert counted["results"] == len(found)


@examples(100)
@given(case=cases())
def test_broadcast_gives_the_answer_of_the_nested_loop(case: Case) -> None:
    if fits(case):
        assert comparable(broadcast(case)[0]) == comparable(expected(case))


def plane(size: int, k: int, seed: int, *, skew: bool = False, dims: int = 2) -> Case:
    rng = np.random.default_rng(seed)
    spec = NearestSpec(
        "euclidean" if dims > 1 else "line", "float64", (1.0,) * dims, (), k, None, "all", True, ((pa.int64(),),
        (pa.string(), pa.int32())), (0, 1), 0, pa.float64(),
    )  # fmt: skip

    def rows(count: int, numbered: bool) -> list[Any]:
        places = rng.random((count, dims)) ** (6 if skew else 1)
        named = [dict(zip("xyz", map(float, place), strict=False)) for place in places]
        return [{"k": "a", "v": n, **place, **({"n": n} if numbered else {})} for n, place in enumerate(named)]

    return Case(spec, rows(size, True), rows(size, False))


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("skew", [False, True])
def test_rows_ask_in_few_cells(skew: bool, dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are many, and the ball around a row touches few of them."""
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(700, 2, 3, skew=skew, dims=dims)
    found, counted = play(case, partitions=16, share=4)
    assert comparable(found) == comparable(expected(case))
    assert counted["cells"] >= 8
    assert counted["rows_boxes"] < 700 * 4
    assert counted["rows_points"] == 700


def test_a_cell_that_is_answered_again_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on, and nothing of it is told: Spark ends a job in which what a stage gives differs."""
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(400, 2, 3)
    cells = routed(case, partitions=8, share=4, tasks=5)
    assert len(cells) > 4
    for segments in cells.values():
        once, again = ([out.to_pylist() for out in AnswerStage(case.spec, 8)(segments)] for _ in range(2))
        assert once == again


def test_a_crowd_that_asks_at_one_place_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All asking rows at one place: several cells share them, each with the answering rows of the region."""
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(600, 1, 5)
    crowd = replace(case, rows=[{**row, "x": 0.5, "y": 0.5} for row in case.rows])
    asking, answering = sides(crowd)
    routing = routing_of(crowd, asking, answering, 8, 1)
    assert routing.right[routing.axis < 0].max() >= 2
    found, _ = play(crowd, partitions=8)
    assert comparable(found) == comparable(expected(crowd))


def test_an_input_that_changes_between_two_readings_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(300, 2, 1)
    asking, answering = sides(case)
    other = replace(case, others=[{**row, "x": row["x"] + 5} for row in case.others])
    packed = routing_of(case, asking, answering, 8, 1)
    monkeypatch.setattr("tests.nearest.harness.routing_of", lambda *args: packed)
    with pytest.raises(RuntimeError, match="other rows when it was read again"):
        play(other, partitions=8)


def test_routing_survives_its_way_to_the_workers() -> None:
    case = plane(300, 2, 1)
    routing = routing_of(case, *sides(case), 4, 1)
    again = Routing.from_buffer(routing.to_buffer())
    assert again.cut.tolist() == routing.cut.tolist()
    assert again.numbers.tolist() == routing.numbers.tolist()
    assert again.points.equals(routing.points)


def on_line(rows: list[float], others: list[float], k: int, **more: Any) -> Case:
    case = plane(1, k, 0, dims=1)
    return Case(
        replace(case.spec, **more),
        [{"k": "a", "v": n, "x": x, "n": n} for n, x in enumerate(rows)],
        [{"k": "a", "v": n, "x": x} for n, x in enumerate(others)],
    )


@pytest.mark.parametrize("ties", ["all", "first"])
def test_rounding_ties_of_a_row_far_away(ties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 1e17 all of these are equally near in doubles, and all of them have to be in its cell."""
    monkeypatch.setattr(fitting, "LEAST", 8)
    others = [float(n) for n in range(60)]
    case = on_line([*map(float, range(60)), 1e17, -1e17], others, 2, ties=ties)
    found, counted = play(case, partitions=6)
    assert comparable(found) == comparable(expected(case))
    assert counted["cells"] >= 3
    # The outer cells have all of them; the others only what they need.
    assert counted["rows_points"] < 4 * 60


@pytest.mark.parametrize("far", [3e11, -3e11, 1e300])
def test_a_row_far_away_that_no_sample_has_shown(far: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered as the nested loop answers it, or refused where doubles cannot tell."""
    monkeypatch.setattr(fitting, "LEAST", 8)
    others = [float(n) for n in range(60)]
    case = on_line([*map(float, range(60)), far], others, 2)
    seen = replace(case, rows=case.rows[:60])
    routing = line_routing(seen, *sides(seen), 6, 1)
    monkeypatch.setattr("tests.nearest.harness.line_routing", lambda *args: routing)
    if abs(far) < 1e12:
        assert comparable(play(case, partitions=6)[0]) == comparable(expected(case))
        return
    with pytest.raises(ArgumentError, match="asks for its nearest ones, from so far away"):
        play(case, partitions=6)
    monkeypatch.undo()
    near = replace(case, spec=replace(case.spec, within=5.0))
    routing = line_routing(replace(near, rows=case.rows[:60]), *sides(seen), 6, 1)
    monkeypatch.setattr("tests.nearest.harness.line_routing", lambda *args: routing)
    assert comparable(play(near, partitions=6)[0]) == comparable(expected(near))


@pytest.mark.parametrize("kind", ["float64", "int"])
@pytest.mark.parametrize("keyed", [False, True])
def test_few_answering_rows_are_copied_on_a_line(keyed: bool, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(900, 2, 3, dims=1, skew=True)
    if kind == "int":
        for row in (*case.rows, *case.others):
            row["x"] = int(row["x"] * 1e6)
        case = replace(case, spec=replace(case.spec, kind="int", distance=pa.int64()))
    if keyed:
        # One heavy key, which is cut, and light ones.
        for row in (*case.rows[::9], *case.others[::9]):
            row["k"] = f"b{row['v'] % 7}"
        case = replace(case, spec=replace(case.spec, keys=("rank",)))
    found, counted = play(case, partitions=8, share=4)
    assert comparable(found) == comparable(expected(case))
    assert counted["cells"] >= 7
    assert counted["rows_boxes"] == 900
    assert 900 < counted["rows_points"] < 1400


def test_a_line_that_changes_between_two_readings_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(300, 2, 1, dims=1)
    asking, answering = sides(case)
    routing = line_routing(case, asking, answering, 8, 1)
    monkeypatch.setattr("tests.nearest.harness.line_routing", lambda *args: routing)
    with pytest.raises(RuntimeError, match="other rows when it was read again"):
        play(replace(case, others=[{**row, "x": row["x"] + 5} for row in case.others]), partitions=8)


@pytest.mark.parametrize("dims", [1, 2])
def test_a_key_that_shares_a_hash_with_a_heavy_one(dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample has shown one of the two keys: its reach says nothing of the other one's rows."""
    monkeypatch.setattr(fitting, "LEAST", 8)
    case = plane(600, 2, 4, dims=dims)
    case = replace(case, spec=replace(case.spec, keys=("rank",)))
    asking, answering = sides(case, few=True)
    one, several = line_routing(case, asking, answering, 8, 1), routing_of(case, asking, answering, 8, 1)
    assert one.begins.size >= 4
    monkeypatch.setattr("tests.nearest.harness.line_routing", lambda *args: one)
    monkeypatch.setattr("tests.nearest.harness.routing_of", lambda *args: several)
    for at, (row, other) in enumerate(zip(case.rows[:9], case.others[:9], strict=True)):
        row.update(k="b", x=0.9 + at / 1000)
        other.update(k="b", x=0.1 + at / 1000)
    found, _ = play(case, partitions=8, few=True)
    assert comparable(found) == comparable(expected(case))


@pytest.mark.parametrize("window", [(-20, 0), (30, 60), (-2000, 2000)])
def test_cells_of_time_copy_few_rows(window: tuple[int, int]) -> None:
    """A short window cuts time into many cells; a long one into few, whose asking rows several tasks share."""
    case = plane(1200, 2, 3)
    for rows in (case.rows, case.others):
        for at, row in enumerate(rows):
            row["t"] = at
    case = replace(case, spec=replace(case.spec, window=window))
    found, counted = play(case, partitions=6)
    assert comparable(found) == comparable(expected(case))
    assert counted["cells"] >= 2
    assert counted["rows_boxes"] == 1200
    short = window[1] - window[0] < 100
    assert counted["rows_points"] <= (2 if short else counted["cells"]) * 1200
    assert not short or counted["cells"] >= 5


def test_without_a_sample_or_a_key_answering_rows_go_everywhere() -> None:
    case = plane(60, 2, 4)
    for rows in (case.rows, case.others):
        for at, row in enumerate(rows):
            row["t"] = at
    case = replace(case, spec=replace(case.spec, window=(-9, 9)))
    found, counted = play(case, partitions=3, sample=False)
    assert comparable(found) == comparable(expected(case))
    assert (counted["rows_points"], counted["rows_boxes"]) == (180, 60)

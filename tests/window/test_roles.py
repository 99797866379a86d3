"""Inputs that are kept, optional, present or absent: router and kernel against the definition, and when rows leave."""

from __future__ import annotations

import random

import pytest
from tests.nets.sessions import seeds

from dovetail import Harvest, path
from dovetail.conditions.predicates import parse
from dovetail.conditions.roles import Roles, implied
from dovetail.errors import ArgumentError, UnknownNameError
from dovetail.families.window import kernel, state

from .drawn import Drawn, draw_join, draw_schedule
from .harness import make_plan, make_spec, run_batch, run_stream
from .shapes import table


def spec_of(drawn: Drawn, *, streaming: bool, **options):
    case = drawn.case
    return make_spec(make_plan(case.on, case.tables, case.within, streaming=streaming, how=drawn.how, **options))


def check(seed: int) -> int:
    """One drawn join in batch and as a stream; how many rows it gives."""
    draw = random.Random(seed)
    drawn = draw_join(draw)
    case = drawn.case
    note = f"NET_SEED={seed}: on={case.on}, within={case.within}, how={drawn.how}"
    options = {"partitions": draw.randint(1, 3)}
    delays = [draw.choice([0, 0, 2, 9, 30]) for _ in case.aliases]
    try:
        batch = spec_of(drawn, streaming=False, **options)
    except ArgumentError as error:
        if "no rows can satisfy all windows" in str(error):
            return 0
        raise
    answer = drawn.expected()
    with pytest.MonkeyPatch.context() as patch:
        if draw.random() < 0.5:  # chunks, blocks, slices and merges of a few rows, so that every border is crossed
            patch.setattr(kernel, "CHUNK", 2)
            patch.setattr(kernel, "BLOCK", 3)
            patch.setattr(state, "SMALL", 1)
            patch.setattr(state, "MANY", 2)
        assert run_batch(batch, case.tables, parts=draw.randint(1, 3)).found == answer, note
        stream = spec_of(drawn, streaming=True, delays=delays, **options)
        joined = run_stream(stream, case.tables, draw_schedule(draw, case.tables, delays), flush=10_000)
    assert joined.found == answer, note
    assert sum(joined.total(f"late_{alias}") for alias in case.aliases) == 0, note
    # Every window has closed: nothing is left.
    assert sum(joined.counters[-1][f"held_rows_{alias}"] for alias in case.aliases) == 0, note
    return sum(answer.values())


@pytest.mark.in_turns(group="several seconds")
def test_drawn_joins():
    assert sum(check(seed) for seed in seeds(0, 120)) > 300


@pytest.mark.slow
def test_more_drawn_joins():
    assert sum(check(seed) for seed in seeds(120, 10_000)) > 25_000


# --- when rows leave, and that they leave once ----------------------------------------------------------------------


def rows(times, key=1, w=0):
    return table([{"t": t, "k": key, "s": "", "v": 0.0, "w": w} for t in times])


ABC = "A.k = B.k AND B.k = C.k"


def calls(tables, how, schedule, *, on=ABC, within=5, flush=None, **options):
    spec = make_spec(make_plan(on, tables, within, streaming=True, how=how, **options))
    return [dict(found) for found in run_stream(spec, tables, schedule, flush=flush).by_call]


def test_a_match_whose_rows_close_it_together_comes_out_once():
    tables = {"A": rows([10, 10]), "B": rows([10, 11]), "C": rows([40])}
    found = calls(tables, {"C": "optional"}, [[(0, [0, 1]), (1, [0, 1])], [(2, [0])]])
    assert found == [{}, {(a, b, None): 1 for a in (0, 1) for b in (0, 1)}]


def test_a_complete_match_leaves_at_once_and_one_without_an_optional_row_when_none_can_come():
    """C has come to 15: another row of it at 15 might still complete A's and B's at 10.  At 16 none can."""
    tables = {"A": rows([10, 30]), "B": rows([10, 30]), "C": rows([15, 16, 33], w=1)}
    first = [[(0, [0, 1]), (1, [0, 1])], [(2, [0])], [(2, [1])], [(2, [2])]]
    never = f"{ABC} AND A.w > C.w"
    assert calls(tables, {"C": "optional"}, first, on=never)[:3] == [{}, {}, {(0, 0, None): 1}]
    assert calls(tables, {"C": "optional"}, first, flush=99) == [{}, {(0, 0, 0): 1}, {}, {(1, 1, 2): 1}, {}]
    assert calls(tables, {"C": "absent"}, first, on=never)[:3] == [{}, {}, {(0, 0): 1}]
    # Which of several rows are present tells only once they are all there.
    assert calls(tables, {"C": "present"}, first, flush=99) == [{}, {}, {(0, 0): 1}, {}, {(1, 1): 1}]


def test_the_first_row_of_a_match_closes_it():
    """A row of C lies within 5 of both rows of the match: none can once the earlier of the two is out of reach."""
    tables = {"A": rows([10]), "B": rows([14]), "C": rows([16])}
    assert calls(tables, {"C": "absent"}, [[(0, [0]), (1, [0])], [(2, [0])]]) == [{}, {(0, 0): 1}]


def test_two_optional_inputs_do_not_wait_for_each_other_but_for_their_match():
    tables = {"A": rows([10, 60]), "B": rows([11, 60]), "C": rows([50, 61])}
    found = calls(
        tables, {"B": "optional", "C": "optional"}, [[(0, [0]), (1, [0])], [(2, [0])], [(1, [1])], [(0, [1])]]
    )
    # C is past the match, B is not: a second row of B would make a second result, with NULL for C as well.
    assert found == [{}, {}, {(0, 0, None): 1}, {}]


def test_a_match_that_comes_when_the_optional_input_is_far_ahead():
    tables = {"A": rows([10]), "B": rows([12]), "C": rows([11, 90])}
    found = calls(tables, {"C": "optional"}, [[(0, [0]), (2, [0, 1])], [(1, [0])]], delays=[0, 0, 50])
    assert found == [{}, {(0, 0, 0): 1}]
    gone = {**tables, "C": rows([3, 90])}
    assert calls(gone, {"C": "optional"}, [[(0, [0]), (2, [0, 1])], [(1, [0])]]) == [{}, {(0, 0, None): 1}]


def test_a_kept_row_waits_for_all_inputs_and_leaves_once():
    tables = {"A": rows([10, 30]), "B": rows([12, 50]), "C": rows([40, 60])}
    schedule = [[(0, [0, 1]), (1, [0])], [(2, [0])], [(1, [1])], [(2, [1])]]
    assert calls(tables, {"A": "keep"}, schedule) == [{}, {}, {(0, None, None): 1, (1, None, None): 1}, {}]
    assert calls(tables, {"A": "keep", "C": "optional"}, schedule) == [
        {}, {(0, 0, None): 1}, {(1, None, None): 1}, {}
    ]  # fmt: skip


@pytest.mark.parametrize("how", [{"A": "keep", "C": "optional"}, {"B": "absent"}, {"B": "present", "C": "optional"}])
def test_state_does_not_grow(how):
    times = list(range(0, 1500, 3))
    tables = {"A": rows(times), "B": rows(times, key=2), "C": rows(times)}
    spec = make_spec(make_plan(ABC, tables, 20, streaming=True, how=how))
    schedule = [[(side, range(at, at + 10)) for side in range(3)] for at in range(0, 500, 10)]
    joined = run_stream(spec, tables, schedule)
    for alias in "ABC":
        held = [counts[f"held_rows_{alias}"] for counts in joined.counters]
        assert max(held[5:]) <= held[4] + 10
        assert joined.total(f"evicted_{alias}") + held[-1] == 500
    assert sum(len(kept) for kept in joined.state.values()) < 80


# --- what is refused, and what equalities imply -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "change", "kind", "text"),
    [
        ({"Z": "keep"}, {}, UnknownNameError, "how="),
        ({"A": "left"}, {}, ArgumentError, "how['A']='left' is not a choice"),
        (dict.fromkeys("ABC", "optional"), {}, ArgumentError, "leaves no input that must have a row"),
        ({"B": "optional", "C": "absent"}, {"on": "A.k = B.k AND A.k = C.k AND B.w < C.w"}, ArgumentError, "B.w < C.w"),
        ({"B": "optional", "C": "absent"}, {"on": "A.k = B.k AND A.k = C.k AND B.w = C.w"}, ArgumentError, "B.w = C.w"),
        ({"B": "optional", "C": "optional"}, {"within": path("A -> B -> C", 5)}, ArgumentError, "a window between 'B'"),
        (
            {"B": "optional", "C": "optional"},
            {"within": path("B -> A -> C", 5, both_ways=True)},
            ArgumentError,
            "in both directions with the optional inputs B, C",
        ),
        ({"C": "optional"}, {"algorithm": "nested"}, ArgumentError, "algorithm='nested' with how={'C': 'optional'}"),
        ({"C": "optional"}, {"shed": Harvest()}, ArgumentError, "shed= with how={'C': 'optional'}"),
        ({"C": "optional"}, {"on": f"{ABC} AND A.w + B.w > C.w"}, ArgumentError, "which only Spark can evaluate"),
    ],
)
def test_refused(how, change, kind, text):
    tables = {alias: rows([1]) for alias in "ABC"}
    with pytest.raises(kind) as caught:
        make_plan(**{"on": ABC, "tables": tables, "within": 5, "streaming": True, "how": how, **change})
    assert text in str(caught.value)


def test_a_plain_how_of_three_inputs_names_the_mapping():
    with pytest.raises(ArgumentError, match=r"how={'A': 'keep'} keeps the rows of 'A'"):
        make_plan(ABC, {alias: rows([1]) for alias in "ABC"}, 5, streaming=False, how="left")


@pytest.mark.parametrize(
    ("on", "how", "told"),
    [
        ("A.k = B.k AND B.k = C.k", {"B": "absent"}, ["A.k = B.k", "B.k = C.k", "A.k = C.k"]),
        ("A.k = B.k AND B.k = C.k", {"C": "absent"}, ["A.k = B.k", "B.k = C.k"]),
        ("A.k = B.k AND B.k = C.k", {"B": "absent", "C": "optional"}, ["A.k = B.k", "A.k = C.k"]),
        ("A.k = B.k AND A.j = B.k", {"B": "optional"}, ["A.k = B.k", "A.j = B.k"]),
    ],
)
def test_implied_equalities(on, how, told):
    aliases = sorted({alias for alias in "ABC" if f"{alias}." in on})
    predicate = implied(parse(on, {alias: ["j", "k"] for alias in aliases}), aliases, Roles.of(how, aliases))
    assert [equality.sql.replace("`", "") for equality in predicate.equalities] == told

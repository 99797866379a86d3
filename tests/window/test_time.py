"""When rows leave: watermarks, late rows, idle inputs, state that ends, and changes that a checkpoint cannot take."""

from __future__ import annotations

import pytest

from dovetail.families.window import state

from .harness import make_plan, make_spec, run_stream
from .shapes import table


def rows(times, key=1):
    return table([{"t": t, "k": key, "s": "", "v": 0.0, "w": 0} for t in times])


def spec_of(tables, within=5, on="A.k = B.k", **options):
    return make_spec(make_plan(on, tables, within, streaming=True, **options))


def test_a_match_leaves_with_its_last_row():
    tables = {"A": rows([10]), "B": rows([12]), "C": rows([14])}
    spec = spec_of(tables, on="A.k = B.k AND B.k = C.k")
    joined = run_stream(spec, tables, [[(0, [0])], [(2, [0])], [(1, [0])]])
    assert [sum(found.values()) for found in joined.by_call] == [0, 0, 1]


def test_a_row_stays_until_no_row_can_reach_it():
    """Windows include their ends, and another row may have the time of the last one."""
    tables = {"A": rows([10]), "B": rows([15, 15, 16])}
    joined = run_stream(spec_of(tables), tables, [[(0, [0])], [(1, [0])], [(1, [1])], [(1, [2])]])
    assert [sum(found.values()) for found in joined.by_call] == [0, 1, 1, 0]
    assert [counts["held_rows_A"] for counts in joined.counters] == [1, 1, 1, 0]


def test_merged_rows_stay_until_no_row_can_reach_them(monkeypatch):
    monkeypatch.setattr(state, "MANY", 2)
    tables = {"A": rows([10, 10]), "B": rows([12, 12])}
    joined = run_stream(spec_of(tables, within=2), tables, [[(0, [0])], [(1, [0])], [(0, [1])], [(1, [1])]])
    assert [sum(found.values()) for found in joined.by_call] == [0, 1, 1, 2]


def test_an_unmatched_row_leaves_when_its_window_closes_and_once():
    tables = {"A": rows([10, 30]), "B": rows([14, 15, 16, 40])}
    spec = spec_of(tables, on="A.k = B.k AND A.w < B.w", how="left")
    joined = run_stream(spec, tables, [[(0, [0, 1])], [(1, [0, 1])], [(1, [2])], [(1, [3])]])
    # B has come to 15: another row of B at 15 might still match A's at 10.  At 16 none can.
    assert [dict(found) for found in joined.by_call] == [{}, {}, {(0, None): 1}, {(1, None): 1}]


def test_late_rows_are_dropped_and_counted():
    tables = {"A": rows([100, 89, 90]), "B": rows([100, 91])}
    spec = spec_of(tables, within=20, delays=[10, 0])
    joined = run_stream(spec, tables, [[(0, [0]), (1, [0])], [(0, [1, 2]), (1, [1])]])
    assert joined.total("late_A") == 1
    assert joined.total("late_B") == 1
    assert joined.found == {(0, 0): 1, (2, 0): 1}


def test_rows_stay_while_any_input_may_still_need_them():
    """The case of the paper's third figure: far from one input is not enough, the other one counts too."""
    tables = {"A": rows([0, 100]), "B": rows([3, 100]), "C": rows([4, 100])}
    spec = spec_of(tables, on="A.k = B.k AND B.k = C.k")
    joined = run_stream(spec, tables, [[(0, [0]), (2, [0])], [(0, [1])], [(1, [0])], [(1, [1]), (2, [1])]])
    assert joined.found[0, 0, 0] == 1
    assert [counts["held_rows_A"] for counts in joined.counters] == [1, 2, 2, 1]


@pytest.mark.parametrize(("idle", "held"), [(None, 50), (20, 27)])
def test_an_idle_input_holds_nothing_back_for_ever(idle, held):
    times = list(range(0, 50))
    tables = {"A": rows(times), "B": rows([0])}
    spec = spec_of(tables, how="left", idle=idle)
    schedule = [[(0, [0]), (1, [0])], *[[(0, [at])] for at in range(1, 50)]]
    joined = run_stream(spec, tables, schedule)
    assert joined.counters[-1]["held_rows_A"] <= held
    # A's rows up to 5 match B's.  B is taken to have come to 49 - 20, so those before 24 come out alone.
    alone = sum(count for (_, b), count in joined.found.items() if b is None)
    assert alone == (0 if idle is None else 24 - 6)


def test_an_input_that_never_sends_is_given_up_too():
    tables = {"A": rows(range(0, 100, 10)), "B": rows([])}
    spec = spec_of(tables, how="anti", idle=30)
    joined = run_stream(spec, tables, [[(0, [at])] for at in range(10)])
    assert sum(joined.found.values()) == 6  # 90 - 30 - 5 = 55: those before


def test_state_does_not_grow():
    times = list(range(0, 3000, 3))
    tables = {"A": rows(times), "B": rows(times)}
    spec = spec_of(tables, within=60)
    schedule = [[(0, range(at, at + 10)), (1, range(at, at + 10))] for at in range(0, 1000, 10)]
    joined = run_stream(spec, tables, schedule)
    held = [counts["held_rows_A"] for counts in joined.counters]
    assert max(held[5:]) <= held[4] + 10
    assert joined.total("evicted_A") + held[-1] == 1000
    stored = sum(len(state) for state in joined.state.values())
    assert stored < 80

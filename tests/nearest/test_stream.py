"""Two streams within a window of time: any cut, any disorder and any restart give what the nested loop says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.nearest.harness import expected, sides
from tests.nearest.shapes import Case, cases, comparable
from tests.nearest.test_stages import fits, plane

from dovetail.columns.held import MOST_SEGMENTS
from dovetail.columns.segments import pack, unpack
from dovetail.families.nearest.join_stages import ResultStage
from dovetail.families.nearest.spec import ANSWERING, ASKING
from dovetail.families.nearest.stream import NearestKernel

END = 10**6
"""The watermark of the last call, behind which nothing comes."""
Calls = list[tuple[int | None, list[tuple[int, pa.RecordBatch]]]]


def stream(case: Case, calls: Calls) -> tuple[Any, dict[str, int], int, dict[str, bytes]]:
    """The answers with the watermark of their call, counters, the largest state and the last one.

    Every call restores what the last one stored.
    """
    state: dict[str, bytes] = {}
    found, counted, held = [], dict.fromkeys(("late", "results", "matches", "evicted"), 0), 0
    for watermark, pushed in calls:
        kernel = NearestKernel(ResultStage(case.spec))
        kernel.restore({name: unpack(rows) for name, rows in state.items()}, watermark)
        for side, rows in pushed:
            kernel.push(side, rows)
        if watermark == END:
            kernel.end()
        for out in kernel.results():
            for row in out.to_pylist():
                other = (row["d0"], row["d1"]) if row["b"] else None
                found.append(((row["c0"], other, row["distance"], row["rank"]), watermark))
        changes = kernel.changes()
        for name in changes.dropped:
            state.pop(name, None)
        state |= {name: pack(rows).to_pybytes() for name, rows in changes.stored.items()}
        held = max(held, sum(unpack(rows).num_rows for rows in state.values()))
        for name in counted:
            counted[name] += kernel.counters[name]
    return found, counted, held, state


@examples(300)
@given(cases(timed=True, odd_times=False, most=16), st.integers(0, 15), st.randoms(use_true_random=False))
def test_any_cut_and_any_disorder_give_the_answers_of_batch(case: Case, lateness: int, draw: Any) -> None:
    if not fits(case):
        return
    batches = sides(case)
    arrivals = [
        (side, at, row["t"])
        for side, rows in ((ASKING, case.rows), (ANSWERING, case.others))
        for at, row in enumerate(rows)
    ]
    # Each row comes at most so late: a row with an earlier time may come after one that is later by the lateness.
    arrivals.sort(key=lambda one: (one[2] or 0) + draw.uniform(0, lateness))
    calls: Calls = []
    tops: list[int | None] = [None, None]
    watermark: int | None = None
    while arrivals:
        size = draw.randint(0, 5)
        batch, arrivals = arrivals[:size], arrivals[size:]
        calls.append((watermark, [(side, batches[side].slice(at, 1)) for side, at, _ in batch]))
        for side, _, at in batch:
            if at is not None:
                tops[side] = at if tops[side] is None else max(at, tops[side])
        if None not in tops:
            watermark = max(watermark or 0, min(tops) - lateness) or None
    calls.append((END, []))
    found, counted, _, state = stream(case, calls)
    assert comparable([answer for answer, _ in found]) == comparable(expected(case))
    for (number, other, _, _), when in found:
        if other is not None:
            # Final means: the watermark has passed the window.
            assert when > case.rows[number]["t"] + case.spec.window[1]
    assert counted["late"] == 0
    assert counted["results"] == len(found)
    assert not state


def timed(size: int, window: tuple[int, int], seed: int, **more: Any) -> Case:
    case = plane(size, 2, seed)
    for rows in (case.rows, case.others):
        for at, row in enumerate(rows):
            row["t"] = at
    return replace(case, spec=replace(case.spec, window=window, **more))


def test_the_state_does_not_grow() -> None:
    case = timed(2000, (-20, 0), 1)
    asking, answering = sides(case)
    calls = [
        (max(1, at - 5), [(ANSWERING, answering.slice(at, 10)), (ASKING, asking.slice(at, 10))])
        for at in range(0, 2000, 10)
    ]
    found, counted, held, state = stream(case, calls)
    assert len(found) > 3900
    assert counted["evicted"] > 1900
    # 20 back, 15 of lateness and 10 that come on either side: and segments of which less than half is dead.
    assert held < 150
    assert len(state) <= 2 * MOST_SEGMENTS


def test_late_rows_are_dropped_and_counted() -> None:
    case = timed(10, (-9, 9), 2)
    asking, answering = sides(case)
    calls: Calls = [(4, [(ASKING, asking), (ANSWERING, answering)]), (END, [])]
    found, counted, _, _ = stream(case, calls)
    assert counted["late"] == 8
    kept = replace(case, rows=case.rows[4:], others=case.others[4:])
    assert comparable([answer for answer, _ in found]) == comparable(expected(kept))


def test_rows_that_match_nothing_do_not_wait() -> None:
    case = timed(3, (0, 5), 3)
    case.rows[0]["t"] = None
    case.rows[1]["x"] = None
    asking, answering = sides(case)
    found, _, held, _ = stream(case, [(None, [(ASKING, asking), (ANSWERING, answering)])])
    assert sorted(answer[0] for answer, _ in found) == [0, 1]
    assert held == 4

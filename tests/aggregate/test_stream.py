"""Two streams within a window of time: any cut, any disorder and any restart give what the nested loop says."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.aggregate.shapes import EXPECTED, box_keys, points_batch, same, spec_of
from tests.examples import examples

from dovetail.columns.held import MOST_SEGMENTS, CellOfHash
from dovetail.columns.segments import pack, unpack
from dovetail.families.aggregate.join_stages import ResultStage
from dovetail.families.aggregate.stages import ANSWERING, ASKING
from dovetail.families.aggregate.stream import AggregateKernel
from dovetail.reference.aggregate import aggregate_join
from dovetail.reference.values import both, equal

times = st.none() | st.integers(0, 60)
answering = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.none() | st.integers(0, 1), "x": times, "f": st.none() | st.sampled_from([1.5, -2.0, math.inf]),
            "i": st.none() | st.integers(-5, 5), "s": st.none() | st.sampled_from(["a", "b"]),
        }
    ),
    max_size=14,
)  # fmt: skip
asking = st.lists(st.fixed_dictionaries({"k": st.none() | st.integers(0, 1), "t": times}), max_size=14)
windows = st.tuples(st.integers(-20, 20), st.integers(-20, 20)).map(sorted)


def segments(spec, side: int, rows) -> pa.RecordBatch:
    """What reaches a cell: keys and arguments, or payload and keys; a hash, if there is one; the time."""
    if side == ANSWERING:
        batch, name = points_batch(spec, rows), "x"
    else:
        columns = [pa.array([row["number"] for row in rows], pa.int64()), *box_keys(spec, rows)]
        batch, name = (
            pa.RecordBatch.from_arrays(columns, names=["c0", *(f"k{at}" for at in range(len(columns) - 1))]),
            "t",
        )
    if spec.step.equalities:
        batch = batch.append_column("h", pa.array([7] * len(rows), pa.int64()))
    return batch.append_column("tm", pa.array([row[name] for row in rows], pa.int64()))


def stream(spec, calls, low: int, high: int):
    """The answers by row, when each came, and the largest state; every call restores what the last one stored."""
    state: dict[str, bytes] = {}
    found, counted, held = {}, dict.fromkeys(("late", "results", "matches"), 0), 0
    for watermark, pushed in calls:
        kernel = AggregateKernel(ResultStage(spec), low, high)
        kernel.restore({name: unpack(rows) for name, rows in state.items()}, watermark)
        for side, rows in pushed:
            kernel.push(side, segments(spec, side, rows))
        if watermark is not None and watermark == END:
            kernel.end()
        for out in kernel.results():
            for row in out.to_pylist():
                assert row["c0"] not in found, "a row came out twice"
                answers = {output.name: row[f"v{at}"] for at, output in enumerate(spec.outputs)}
                found[row["c0"]] = (answers, watermark)
        changes = kernel.changes()
        for name in changes.dropped:
            state.pop(name, None)
        state |= {name: pack(rows).to_pybytes() for name, rows in changes.stored.items()}
        held = max(held, sum(unpack(rows).num_rows for rows in state.values()))
        for name in counted:
            counted[name] += kernel.counters[name]
    return found, counted, held, state


END = 10**6


@examples(400)
@given(st.booleans(), st.booleans(), asking, answering, windows, st.integers(0, 15), st.randoms(use_true_random=False))
def test_any_cut_and_any_disorder_give_the_answers_of_batch(keyed, keep, rows, others, window, lateness, draw):
    low, high = window
    spec = spec_of(keyed=keyed, axes="x", keep=keep)
    rows = [
        {
            **row,
            "number": at,
            **{f"x{end}": None if row["t"] is None else row["t"] + by for end, by in enumerate(window)},
        }
        for at, row in enumerate(rows)
    ]
    others = [{**row, "y": 0, "d": None, "n": None} for row in others]
    arrivals = [(ASKING, row, row["t"]) for row in rows] + [(ANSWERING, row, row["x"]) for row in others]
    # Each row comes at most so late: a row with an earlier time may come after one that is later by the lateness.
    arrivals.sort(key=lambda one: (one[2] or 0) + draw.uniform(0, lateness))
    calls, tops, watermark = [], [None, None], None
    while arrivals:
        size = draw.randint(0, 5)
        batch, arrivals = arrivals[:size], arrivals[size:]
        calls.append((watermark, [(side, [row]) for side, row, _ in batch]))
        for side, _, at in batch:
            if at is not None:
                tops[side] = at if tops[side] is None else max(at, tops[side])
        if None not in tops:
            watermark = max(watermark or 0, min(tops) - lateness)
        watermark = watermark or None
    calls.append((END, []))
    found, counted, _, state = stream(spec, calls, low, high)

    def condition(a, b):
        inside = None if a["t"] is None or b["x"] is None else low <= b["x"] - a["t"] <= high
        return both(*([equal(a["k"], b["k"])] if keyed else []), inside)

    names = ("n", "known", "total", "mean", "whole", "least_text", "by_most", "most")
    how = "left" if keep else "inner"
    wanted = aggregate_join(rows, others, condition, {name: EXPECTED[name] for name in names}, how)
    assert sorted(found) == sorted(row["number"] for row, _ in wanted)
    for row, answers in wanted:
        for name, value in answers.items():
            assert same(found[row["number"]][0][name], value, name), (name, row, value)
        if row["t"] is not None:
            # Final means: the watermark has passed the window.
            assert found[row["number"]][1] > row["t"] + high
    assert counted["late"] == 0
    assert counted["results"] == len(found)
    assert not state


def test_the_state_does_not_grow():
    spec = spec_of(keyed=False, axes="x")
    calls = []
    for at in range(0, 3000, 10):
        some = [
            {"k": 0, "x": at + step, "f": 1.0, "i": 1, "s": "a", "y": 0, "d": None, "n": None} for step in range(10)
        ]
        rows = [{"k": 0, "t": at + 5, "number": at, "x0": at - 15, "x1": at + 5}]
        calls.append((max(1, at - 5), [(ANSWERING, some), (ASKING, rows)]))
    found, _, held, state = stream(spec, calls, -20, 0)
    assert len(found) > 290
    assert all(answers["n"] == 21 for number, (answers, _) in found.items() if number > 30)
    # 20 back, 5 of lateness, 10 that come: and segments of which less than half is dead.
    assert held < 120
    assert len(state) <= 2 * MOST_SEGMENTS


def test_late_rows_are_dropped_and_counted():
    spec = spec_of(keyed=True, axes="x")
    late = {"k": 0, "x": 3, "f": 1.0, "i": 1, "s": "a", "y": 0, "d": None, "n": None}
    rows = [{"k": 0, "t": at, "number": at, "x0": at, "x1": at} for at in (3, 20)]
    calls = [(10, [(ANSWERING, [late, {**late, "x": 20}]), (ASKING, rows)]), (END, [])]
    found, counted, _, _ = stream(spec, calls, 0, 0)
    assert counted["late"] == 2
    assert {at: answers["n"] for at, (answers, _) in found.items()} == {20: 1}


def test_rows_of_one_key_share_a_cell():
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3], "h": pa.array([-5, 77, -5], pa.int64())})
    cells = CellOfHash(1, 4)(batch).tolist()
    assert cells[0] == cells[2]
    assert all(0 <= cell < 4 for cell in cells)

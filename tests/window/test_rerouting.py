"""Window joins whose number of cells changes between two micro-batches, against the definition."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.checkpoints import HEADER
from dovetail.columns.segments import binary_column, unpack
from dovetail.conditions.join_kind import HOWS
from dovetail.families.window.inventory import layout, side_of
from dovetail.families.window.rerouting import Rerouting
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.inventory import StateLayout
from dovetail.moving import MOVED, PutTogether, TakeApart

from .harness import run_stream
from .shapes import cases, dense, schedules
from .test_stream import delays, spec_of

State = dict[int, dict[str, bytes]]


def layout_of(spec: WindowJoinSpec, tasks: int) -> StateLayout:
    """What a join says of its state, as it comes out of a checkpoint."""
    names = [[f"c{at}" for at in range(count)] for count in spec.payload]
    read = StateLayout.read(layout(spec, names, tasks=tasks).stored())
    assert read is not None
    return read


def batch(cell: int, segments: Mapping[str, bytes]) -> pa.RecordBatch:
    columns = [
        pa.array([0] * len(segments), pa.int32()), pa.array([cell] * len(segments), pa.int32()),
        pa.array(list(segments)), binary_column([pa.py_buffer(content) for content in segments.values()]),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, names=list(MOVED))


def rerouted(state: State, routing: Rerouting) -> State:
    """The state in its new cells, by way of the stages that Spark runs."""
    pieces: dict[int, list[pa.RecordBatch]] = {}
    for cell, segments in state.items():
        for piece in TakeApart(routing)([batch(cell, segments | {HEADER: b"old"})]):
            pieces.setdefault(piece.column("cell")[0].as_py(), []).append(piece)
    new: State = {}
    for cell, parts in pieces.items():
        for made in PutTogether(routing, {0: b"new"})(parts):
            new.setdefault(cell, {})[made.column("name")[0].as_py()] = made.column("segment")[0].as_py()
        assert new[cell].pop(HEADER) == b"new"
    return new


def held(state: State) -> list[int]:
    """Rows of each input that are stored, copies included."""
    counts: dict[int, int] = {}
    for segments in state.values():
        for name, content in segments.items():
            side = side_of(name)
            if side is not None:
                counts[side] = counts.get(side, 0) + unpack(content).num_rows
    return [counts.get(side, 0) for side in range(max(counts, default=-1) + 1)]


def across(case, data, spec_for, schedule, **expected):
    """Run to a drawn micro-batch, change the number of cells, and go on."""
    tasks = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)), label="tasks")
    cut = data.draw(st.integers(0, len(schedule)), label="cut")
    before, after = spec_for(tasks[0]), spec_for(tasks[1])
    first = run_stream(before, case.tables, schedule[:cut])
    state = rerouted(first.state, Rerouting(layout_of(after, tasks[1])))
    assert held(state) == held(first.state)
    if first.state:
        assert set(state) == set(after.numbers), "every cell must know how far the inputs have come"
    second = run_stream(after, case.tables, schedule[cut:], flush=10_000, state=state)
    assert first.found + second.found == case.expected(**expected)
    assert sum(second.counters[-1][f"held_rows_{alias}"] for alias in case.aliases) == 0


@given(case=cases(most=4), data=st.data())
def test_inner_joins_of_several_inputs(case, data):
    waits = [data.draw(delays) for _ in case.aliases]

    def spec_for(tasks: int) -> WindowJoinSpec:
        return spec_of(case, streaming=True, partitions=tasks, delays=waits)

    across(case, data, spec_for, data.draw(schedules(case.tables, waits)))


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(most=2), data=st.data())
def test_rows_that_have_matched_are_known_to_have(how, case, data):
    waits = [data.draw(delays) for _ in case.aliases]

    def spec_for(tasks: int) -> WindowJoinSpec:
        return spec_of(case, streaming=True, partitions=tasks, delays=waits, how=how)

    across(case, data, spec_for, data.draw(schedules(case.tables, waits)), how=how)


@pytest.mark.in_turns
@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
def test_dense_streams(how, data):
    case, waits, schedule = dense(3, 2, 40)

    def spec_for(tasks: int) -> WindowJoinSpec:
        return spec_of(case, streaming=True, partitions=tasks, delays=waits, how=how)

    across(case, data, spec_for, schedule, how=how)

"""Whole window joins through router and kernel, against the definition."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.conditions.join_kind import HOWS
from dovetail.errors import ArgumentError
from dovetail.families.window import kernel, router, state

from .harness import make_plan, make_spec, run_batch, run_stream
from .shapes import Case, cases, dense, schedules

delays = st.integers(0, 15)


def spec_of(case: Case, *, streaming: bool, sources: bool = True, **options):
    try:
        plan = make_plan(case.on, case.tables, case.within, streaming=streaming, **options)
    except ArgumentError as error:
        assume("no rows can satisfy all windows" not in str(error))
        raise
    return make_spec(plan, sources=sources)


@given(case=cases(most=5), partitions=st.integers(1, 3), sources=st.booleans(), parts=st.integers(1, 3))
def test_batch(case, partitions, sources, parts):
    spec = spec_of(case, streaming=False, partitions=partitions, sources=sources)
    assert run_batch(spec, case.tables, parts=parts).found == case.expected()


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(most=2), partitions=st.integers(1, 3))
def test_batch_hows(how, case, partitions):
    spec = spec_of(case, streaming=False, partitions=partitions, how=how)
    assert run_batch(spec, case.tables).found == case.expected(how)


@given(case=cases(most=5), data=st.data(), partitions=st.integers(1, 3))
def test_stream(case, data, partitions):
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, partitions=partitions, delays=waits)
    joined = run_stream(spec, case.tables, data.draw(schedules(case.tables, waits)), flush=10_000)
    assert joined.found == case.expected()
    assert sum(joined.total(f"late_{alias}") for alias in case.aliases) == 0
    # Every window has closed: nothing is left.
    assert sum(joined.counters[-1][f"held_rows_{alias}"] for alias in case.aliases) == 0


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(most=2), data=st.data(), partitions=st.integers(1, 3))
def test_stream_hows(how, case, data, partitions):
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, partitions=partitions, delays=waits, how=how)
    schedule = data.draw(schedules(case.tables, waits))
    joined = run_stream(spec, case.tables, schedule, flush=10_000)
    assert joined.found == case.expected(how)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", HOWS)
def test_dense_streams(how, seed):
    case, waits, schedule = dense(seed, 2, 40)
    spec = spec_of(case, streaming=True, delays=waits, how=how)
    joined = run_stream(spec, case.tables, schedule, flush=10_000)
    assert joined.found == case.expected(how)
    assert sum(joined.total(f"late_{alias}") for alias in case.aliases) == 0


@pytest.mark.parametrize("seed", range(2))
def test_three_dense_streams(seed):
    case, waits, schedule = dense(seed, 3, 24)
    joined = run_stream(spec_of(case, streaming=True, delays=waits), case.tables, schedule, flush=10_000)
    assert joined.found == case.expected()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", HOWS)
def test_dense_batches(how, seed, monkeypatch):
    """Slices of the length of a window: every row has matches on both sides of a cut."""
    monkeypatch.setattr(router, "COARSE", 1)
    case, _, _ = dense(seed, 2, 40)
    spec = spec_of(case, streaming=False, partitions=3, how=how)
    assert spec.grid is None if how == "full" else spec.grid.length == 2
    assert run_batch(spec, case.tables, parts=2).found == case.expected(how)


PUBLISHED = [
    (algorithm, approach)
    for algorithm in ("pipeline", "nested", "hash", "merge")
    for approach in ("global", "local", "path")
    if (algorithm, approach) != ("merge", "path")
]


@pytest.mark.in_turns
@pytest.mark.parametrize(("algorithm", "approach"), PUBLISHED)
@given(case=cases(most=4), data=st.data())
def test_published_algorithms(algorithm, approach, case, data):
    assume(algorithm != "hash" or case.has_class)
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, delays=waits, algorithm=algorithm, approach=approach)
    joined = run_stream(spec, case.tables, data.draw(schedules(case.tables, waits)), flush=10_000)
    assert joined.found == case.expected()
    batch = spec_of(case, streaming=False, algorithm=algorithm, approach=approach)
    assert run_batch(batch, case.tables).found == case.expected()


@given(case=cases(most=3), data=st.data())
def test_small_limits_change_nothing(case, data):
    """Chunks, blocks, slices and merges of a few rows, so that every border is crossed."""
    waits = [data.draw(delays) for _ in case.aliases]
    spec = spec_of(case, streaming=True, delays=waits)
    schedule = data.draw(schedules(case.tables, waits))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "CHUNK", 2)
        patch.setattr(kernel, "BLOCK", 3)
        patch.setattr(state, "SMALL", 1)
        patch.setattr(state, "MANY", 2)
        limit, pace = data.draw(st.sampled_from([1, 300, 1 << 20])), data.draw(st.sampled_from([0, 20, 100]))
        patch.setattr(state, "CACHE", state.SegmentCache(limit, clock=count(step=pace).__next__))
        joined = run_stream(spec, case.tables, schedule, flush=10_000)
    assert joined.found == case.expected()


def test_a_worker_lets_go_of_segments_that_another_one_may_have_evicted():
    now = 0.0
    cache = state.SegmentCache(clock=lambda: now)
    segment = SimpleNamespace(rows=pa.RecordBatch.from_pydict({"x": [1, 2]}))
    for moment, name in ((0.0, "evicted elsewhere"), (10.0, "asked for"), (50.0, "new")):
        now = moment
        cache[name] = segment
    assert cache["asked for"] is segment
    for moment, left in ((59.0, 3), (61.0, 2), (105.0, 2), (111.0, 0)):
        now = moment
        cache.let_go()
        assert len(cache) == left
    assert cache.currsize == 0

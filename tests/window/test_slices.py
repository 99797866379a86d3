"""Static cells that are more than a worker may hold: slices of time of any length give the same rows."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.short import short_of_memory

from dovetail.columns import memory
from dovetail.columns.layout import ARRIVAL, COUNTERS, SEGMENT, SIDE, STREAM_CELL
from dovetail.columns.segments import pack
from dovetail.columns.slices import Slices, Spans
from dovetail.conditions.join_kind import HOWS
from dovetail.errors import ArgumentError, MemoryLimitError
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.stream import metric_names
from dovetail.spark.cells import SPLIT_METRICS, StaticCell

from .drawn import draw_join
from .harness import flat, kernel_of, make_plan, make_spec
from .shapes import SCHEMA, cases
from .test_stream import spec_of

mosts = st.sampled_from([1, 200, 600, 2000, 10_000])


def run(spec, tables, *, parts=2):
    """The join of static tables by the stage that Spark runs; the rows that it gives, and its counters."""
    arrived: dict[int, list[tuple[int, bytes]]] = {}
    for side, alias in enumerate(spec.aliases):
        rows = flat(spec, side, tables[alias])
        for at in range(parts):
            for number, piece in WindowRouter(spec, side).parts(rows.take(np.arange(at, rows.num_rows, parts))):
                arrived.setdefault(number, []).append((side, pack(piece).to_pybytes()))
    names = [*spec.output_names(), COUNTERS]
    types = [kind for side in spec.emitted for kind in spec.types[side]]
    types += [pa.bool_()] * (len(names) - 1 - len(types))
    metrics = (*metric_names(spec.aliases), *SPLIT_METRICS)
    stage = StaticCell(partial(kernel_of, spec), metrics, "a cell of a test", tuple(types), tuple(names))
    found: Counter = Counter()
    counted: Counter = Counter()
    numbers = [f"i{side}_{spec.payload[side] - 1}" for side in spec.emitted]
    for cell, segments in arrived.items():
        batches = [
            pa.RecordBatch.from_pydict({STREAM_CELL: [cell], SIDE: [side], ARRIVAL: [at], SEGMENT: [segment]})
            for at, (side, segment) in enumerate(segments)
        ]
        for batch in stage(iter(batches)):
            if batch.column(COUNTERS).null_count == 0:
                counted.update(dict(zip(metrics, batch.column(COUNTERS)[0].as_py(), strict=True)))
            else:
                found.update(zip(*(batch.column(name).to_pylist() for name in numbers), strict=True))
    return found, counted


@given(case=cases(most=5), partitions=st.integers(1, 3), most=mosts)
@examples(120)
def test_slices_of_any_length(case, partitions, most):
    spec = spec_of(case, streaming=False, partitions=partitions)
    with short_of_memory(most):
        found, counted = run(spec, case.tables)
    assert found == case.expected()
    assert counted["results"] == case.expected().total()
    assert sum(counted[f"late_{alias}"] for alias in case.aliases) == 0


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(most=2), partitions=st.integers(1, 3), most=mosts)
@examples(60)
def test_slices_with_rows_that_do_not_match(how, case, partitions, most):
    spec = spec_of(case, streaming=False, partitions=partitions, how=how)
    with short_of_memory(most):
        found, _ = run(spec, case.tables)
    assert found == case.expected(how)


def one_key(rows: int, seed: int = 1) -> dict[str, pa.Table]:
    numbers = np.random.default_rng(seed)
    return {
        alias: pa.table(
            {
                "t": numbers.integers(0, 10 * rows, rows),
                "k": np.where(numbers.random(rows) < 0.9, 7, numbers.integers(0, 50, rows)),
                "s": ["x" * 20] * rows,
                "v": [0.5] * rows,
                "w": pa.array([1] * rows, pa.int32()),
                "n": np.arange(rows),
            },
            schema=SCHEMA,
        )
        for alias in "AB"
    }


def test_a_heavy_key_slides_and_holds_its_window_and_a_slice():
    tables = one_key(500)
    # One slice of the grid spans all times, so that one cell has nine tenths of the rows.
    spec = make_spec(make_plan("A.k = B.k", tables, 200, streaming=False))
    with short_of_memory(20_000):
        found, counted = run(spec, tables)
    a, b = (tables[alias].to_pylist() for alias in "AB")
    assert found == Counter((x["n"], y["n"]) for x in a for y in b if x["k"] == y["k"] and abs(x["t"] - y["t"]) <= 200)
    assert counted["split_cells"] >= 1
    assert counted["spilled_bytes"] > 2 * 450 * 40


def test_a_window_that_does_not_fit_is_refused_with_its_key(monkeypatch):
    tables = one_key(500)
    spec = make_spec(make_plan("A.k = B.k", tables, 100_000, streaming=False))
    monkeypatch.setattr(memory, "room", lambda alone=False: 20_000)
    with short_of_memory(20_000), pytest.raises(MemoryLimitError) as caught:
        run(spec, tables)
    said = str(caught.value)
    assert said.startswith("a cell of a test does not fit into the memory of its worker: ")
    assert "of them have the key 7" in said
    assert "accepted: rows that fit into what the worker may still take, 19.5 KiB" in said
    assert "hint: a shorter window" in said


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(-5, 30), max_size=6)), max_size=6),
    st.sampled_from([1, 100, 1000, 100_000]),
)
def test_every_row_lies_in_the_slice_of_its_time(segments, most):
    slices = Slices(lambda side, rows: Spans.of_points(rows.column("t").to_numpy()))
    for side, times in segments:
        slices.add(side, pa.RecordBatch.from_pydict({"t": pa.array(times, pa.int64())}))
    begin, found = None, Counter()
    for one in slices.ordered(most):
        for side, rows in slices.batches(one):
            times = rows.column("t").to_pylist()
            assert all((begin is None or begin <= t) and (one.end is None or t < one.end) for t in times)
            assert one.low <= min(times)
            assert max(times) <= one.high
            found.update((side, t) for t in times)
        begin = one.end
    assert begin is None
    assert found == Counter((side, t) for side, times in segments for t in times)


def test_drawn_joins_of_optional_and_absent_inputs():
    found = 0
    for seed in range(60):
        draw = random.Random(seed)
        drawn = draw_join(draw)
        case = drawn.case
        try:
            plan = make_plan(
                case.on, case.tables, case.within, streaming=False, how=drawn.how, partitions=draw.randint(1, 3)
            )
        except ArgumentError as error:
            if "no rows can satisfy all windows" in str(error):
                continue
            raise
        with short_of_memory(draw.choice([1, 300, 1000, 5000])):
            rows, _ = run(make_spec(plan), case.tables)
        assert rows == drawn.expected(), f"seed {seed}: on={case.on}, within={case.within}, how={drawn.how}"
        found += rows.total()
    assert found > 100

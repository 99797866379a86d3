"""Routings: every matching pair meets where it is owned, points stay single, and cells stay even."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.columns.cells import Bounds
from dovetail.columns.encode import routing_boxes, routing_points
from dovetail.columns.hashing import row_hashes
from dovetail.columns.layout import CELL_NUMBER, SEGMENT
from dovetail.columns.segments import unpack
from dovetail.columns.spark_hash import spark_partition
from dovetail.conditions.comparison import Step
from dovetail.families.theta import fitting
from dovetail.families.theta.fitting import fit, overlap_axes
from dovetail.families.theta.paper.routing import PairRouting, end_codes, layout_of, partition_axis
from dovetail.families.theta.router import Routing, Sample, without_sample
from dovetail.families.theta.spec import FTJ, POINTS, Prefap
from dovetail.families.theta.stages import RouteStage, read_routing

from .harness import Knobs, _flat, fitted, join, numbered, plan, published

CONDITIONS = {
    "less": "R.a < S.x",
    "at least": "R.a >= S.x",
    "band": "ABS(R.a - S.x) <= 3",
    "overlap": "R.a <= S.y AND R.b >= S.x",
    "strict overlap": "R.a < S.y AND R.b > S.x",
    "between": "R.a BETWEEN S.x AND S.y",
    "key": "R.k = S.k",
    "key and band": "R.k = S.k AND R.a - S.x BETWEEN -2 AND 2",
    "key and overlap": "R.k = S.k AND R.a <= S.y AND R.b >= S.x",
}

small = st.integers(-6, 6)


def _table(values: list[tuple[int, int, int]], names: tuple[str, str, str]) -> pa.Table:
    columns = zip(*values, strict=True) if values else ([], [], [])
    return pa.table({n: pa.array(list(c), pa.int64()) for n, c in zip(names, columns, strict=True)})


rows = st.lists(st.tuples(small, small, st.integers(0, 2)), max_size=25)
tables = st.tuples(rows.map(lambda v: _table(v, ("a", "b", "k"))), rows.map(lambda v: _table(v, ("x", "y", "k"))))


def _sample(step: Step, side: int, flat: pa.RecordBatch) -> Sample:
    keys = [flat.column(at) for at in range(len(step.point_keys if side == POINTS else step.box_keys))]
    hashes = flat.column(len(keys)).to_numpy() if step.equalities else np.zeros(flat.num_rows, dtype=np.int64)
    none = np.empty((0, flat.num_rows), dtype=np.int64)
    if side == POINTS:
        codes = [routing_points(axis, keys) for axis in step.axes]
        low = high = np.stack(codes) if codes else none
    else:
        ranges = [routing_boxes(axis, keys) for axis in step.axes]
        low = np.stack([r[0] for r in ranges]) if ranges else none
        high = np.stack([r[1] for r in ranges]) if ranges else none
    return Sample(hashes, low, high, float(flat.num_rows))


def _places(routing, step: Step, side: int, flat: pa.RecordBatch, ties: np.ndarray) -> dict[int, set[int]]:
    sample = _sample(step, side, flat)
    keys = [flat.column(at) for at in range(len(step.point_keys if side == POINTS else step.box_keys))]
    points = side == POINTS
    found = routing.points(step, sample.hash, keys, ties) if points else routing.boxes(step, sample.hash, keys)
    places: dict[int, set[int]] = {}
    for row, cell in zip(*(part.tolist() for part in found), strict=True):
        assert 0 <= cell < routing.cells
        assert cell not in places.setdefault(row, set())
        places[row].add(cell)
    return places


def _all_routings(step: Step, points: Sample, boxes: Sample, partitions: int) -> list[Routing]:
    modes = [("axis", (d,)) for d in range(len(step.axes))] or [("axis", ())]
    modes += [("overlap", pair) for pair in overlap_axes(step)]
    return [
        fitting._fitted(mode, axes, points, boxes, 6, partitions, alone=len(step.axes) <= 1) for mode, axes in modes
    ]


@pytest.mark.parametrize("name", CONDITIONS)
@given(tables=tables, partitions=st.integers(1, 4), seed=st.integers(0, 9))
def test_matching_pairs_have_one_owner(name, tables, partitions, seed):
    left, right = tables
    step = plan(CONDITIONS[name], left, right).step
    sides = [right, left] if step.swapped else [left, right]
    flats = [_flat(step, side, sides[side], Knobs(), payload=False) for side in (0, 1)]
    samples = [_sample(step, side, flats[side]) for side in (0, 1)]
    ties = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, flats[0].num_rows)
    want = join(CONDITIONS[name], left, right).pairs
    want = [(s, r) if step.swapped else (r, s) for r, s in want]
    routings = [*_all_routings(step, *samples, partitions), without_sample(step, partitions)]
    for routing in routings:
        at = [_places(routing, step, side, flats[side], ties) for side in (0, 1)]
        if not routing.owner:
            # The one cell of a point owns all its pairs.
            assert all(len(cells) == 1 for cells in at[0].values())
            assert len(at[0]) == flats[0].num_rows
        for i, j in want:
            meet = at[0].get(i, set()) & at[1].get(j, set())
            if not routing.owner:
                assert len(meet) == 1
            else:
                assert max(min(at[0][i]), min(at[1][j])) in meet


@given(tables=tables, partitions=st.integers(1, 4))
def test_overlap_finds_each_pair_once(tables, partitions):
    left, right = tables
    on = CONDITIONS["overlap"]
    fitted = fitting._fitted

    def only_overlap(mode, axes, *rest, **options):
        found = fitted(mode, axes, *rest, **options)
        cost = found.cost if mode == "overlap" else np.full_like(found.cost, 1e9)
        return Routing(found.mode, found.axes, found.bounds, found.numbers, cost)

    with patch.object(fitting, "_fitted", only_overlap):
        knobs = Knobs(partitions=partitions, cell_rows=3, tasks=2, block_rows=4)
        found = Counter(join(on, left, right, knobs=knobs).pairs)
    assert found == Counter(join(on, left, right).pairs)
    assert set(found.values()) <= {1}


@given(tables=tables, partitions=st.integers(1, 6))
def test_buffers_come_back(tables, partitions):
    left, right = tables
    step = plan(CONDITIONS["key and overlap"], left, right).step
    samples = [_sample(step, s, _flat(step, s, t, Knobs(), payload=False)) for s, t in enumerate(tables)]
    bare = plan("R.a < S.x", left, right).step
    routings = [
        *_all_routings(step, *samples, partitions),
        without_sample(step, partitions),
        without_sample(bare, partitions),
    ]
    for routing in routings:
        back = read_routing(routing.to_buffer().to_pybytes())
        assert isinstance(back, Routing)
        assert (back.mode, back.axes, back.cells) == (routing.mode, routing.axes, routing.cells)
        for one, other in zip(back.bounds, routing.bounds, strict=True):
            assert one.tolist() == other.tolist()
        assert back.numbers.tolist() == routing.numbers.tolist()
        assert back.cost.tolist() == routing.cost.tolist()


@pytest.mark.parametrize("algorithm", ["prefap", "ftj", "cfs", "obt", "rbm"])
@pytest.mark.parametrize("may_copy", [True, False])
@given(tables=tables, partitions=st.integers(1, 5))
def test_pair_routings(algorithm, may_copy, tables, partitions):
    left, right = tables
    step = plan("R.a < S.x", left, right, how="left").step
    flats = [_flat(step, side, table, Knobs(), payload=False) for side, table in enumerate(tables)]
    axis = partition_axis(step)
    values = routing_points(axis, [flats[0].column(0)]), end_codes(axis, [flats[1].column(0)])
    routing = PairRouting.fit(step, *values, published(algorithm, partitions), partitions=3, may_copy_points=may_copy)
    back = read_routing(routing.to_buffer())
    assert isinstance(back, PairRouting)
    ties = np.zeros(flats[0].num_rows, dtype=np.int64)
    at = [_places(back, step, side, flats[side], ties) for side in (0, 1)]
    assert at == [_places(routing, step, side, flats[side], ties) for side in (0, 1)]
    if not may_copy:
        assert all(len(cells) == 1 for cells in at[0].values())
    for i, j in join("R.a < S.x", left, right).pairs:
        assert len(at[0][i] & at[1][j]) == 1


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("on", ["R.a < S.x", "R.a <= S.x", "R.a > S.x", "R.a >= S.x"])
@pytest.mark.parametrize("algorithm", ["prefap", "ftj", "cfs", "obt", "rbm"])
@given(tables=tables, partitions=st.integers(1, 5))
def test_a_place_for_every_value_costs_no_products(algorithm, on, how, tables, partitions):
    """The pairs that cells compare are those of the printed layout, whichever rows are routed besides."""
    left, right = tables
    found = join(on, left, right, how=how, algorithm=algorithm, knobs=Knobs(partitions=partitions))
    step = plan(on, left, right, how=how, algorithm=algorithm, partitions=partitions)
    axis = partition_axis(step.step)
    flats = [_flat(step.step, side, table, Knobs(), payload=False) for side, table in enumerate(tables)]
    codes = routing_points(axis, [flats[0].column(0)]), end_codes(axis, [flats[1].column(0)])
    printed = layout_of(axis, *codes, published(algorithm, partitions))
    assert found.total("comparisons") == printed.products


@pytest.mark.parametrize("made", [Prefap, FTJ])
def test_the_window_size_reaches_the_layout(made):
    """A small window asks for small partitions, so there are more cells; the pairs stay the same."""
    values = np.random.default_rng(5).integers(0, 1000, 200)
    left, right = pa.table({"a": values}), pa.table({"x": values[::-1]})
    step = plan("R.a < S.x", left, right).step
    axis = partition_axis(step)
    codes = routing_points(axis, [left["a"].combine_chunks()]), end_codes(axis, [right["x"].combine_chunks()])
    cells = {}
    for w in (None, 200, 20):
        routing = PairRouting.fit(step, *codes, made(p=4, w=w), partitions=3, may_copy_points=True)
        cells[w] = routing.cells
        found = join("R.a < S.x", left, right, algorithm=made(p=4, w=w))
        assert Counter(found.pairs) == Counter(join("R.a < S.x", left, right).pairs)
    assert cells[None] == cells[200] < cells[20]


def _skewed(rows: int, share: float) -> pa.Table:
    values = np.random.default_rng(3).integers(0, 1_000_000, rows)
    values[: int(rows * share)] = 500_000
    return pa.table({"a": values, "b": values + 10, "k": np.zeros(rows, dtype=np.int64)})


@pytest.mark.parametrize("on", ["R.a < S.x", "ABS(R.a - S.x) <= 5", "R.k = S.k AND R.a <= S.x"])
def test_heavy_value_is_cut(on):
    """Half of the points have one value: no cell gets much more than its share of them."""
    left = _skewed(20_000, 0.5)
    right = _skewed(20_000, 0.0).rename_columns(["x", "y", "k"])
    step = plan(on, left, right, how="left").step
    flats = [_flat(step, side, table, Knobs(), payload=True) for side, table in enumerate((numbered(left), right))]
    samples = [_sample(step, s, f.select(range(f.num_columns)[3 + (s == 0) :])) for s, f in enumerate(flats)]
    routing = fit(step, *samples, partitions=8, may_copy_points=False)
    assert routing.splits_values
    ties = row_hashes(flats[0], 4)
    keys = [flats[0].column(4 + at) for at in range(len(step.point_keys))]
    _, cells = routing.points(step, samples[0].hash, keys, ties)
    load = np.bincount(cells, minlength=routing.cells)
    assert load.sum() == 20_000
    # Cells are cut by rows of both sides, so a cell of points alone may hold twice the average.
    assert load.max() <= 2.5 * load.mean()


@pytest.mark.parametrize("on", ["R.a < S.y", "R.k = S.k AND R.a < S.y", "R.k = S.k"])
def test_few_rows_with_most_of_the_results_are_cut(on):
    """One row in twenty has results, or every other row one key: cells of equal rows would leave them to one task."""
    random = np.random.default_rng(3)
    values, keys = random.integers(0, 1_000_000, 20_000), np.where(random.random(20_000) < 0.5, 1, np.arange(20_000))
    left, right = pa.table({"a": values, "k": keys}), pa.table({"y": 50_000 - values[::-1], "k": keys[::-1]})
    step = plan(on, left, right).step
    flats = [_flat(step, side, table, Knobs(), payload=False) for side, table in enumerate((left, right))]
    samples = [_sample(step, side, flat) for side, flat in enumerate(flats)]
    routing = fit(step, *samples, partitions=4, may_copy_points=False)
    ties = random.integers(-(1 << 63), (1 << 63) - 1, 20_000)
    placed = []
    for side, flat in enumerate(flats):
        columns = [flat.column(at) for at in range(len(step.box_keys if side else step.point_keys))]
        hashes = samples[side].hash
        placed.append(routing.boxes(step, hashes, columns) if side else routing.points(step, hashes, columns, ties))
    (points, point_cells), (boxes, box_cells) = placed
    tasks, found = spark_partition(routing.numbers, 4), np.zeros(4)
    for cell in range(routing.cells):
        here, there = points[point_cells == cell], boxes[box_cells == cell]
        fits = np.ones((here.size, there.size), dtype=np.bool_)
        if "R.a" in on:
            fits &= values[here][:, None] < right["y"].to_numpy()[there]
        if "R.k" in on:
            fits &= keys[here][:, None] == right["k"].to_numpy()[there]
        found[tasks[cell]] += fits.sum()
    assert found.sum() > 100_000
    assert found.max() <= 1.5 * found.mean()


def test_a_join_that_lists_no_pairs_does_not_copy_rows_for_their_sake():
    """A million equal rows on both sides: all pairs are results, and every row of one side goes to every cell."""
    left, right = (pa.table({name: np.ones(10_000, dtype=np.int64)}) for name in "ax")
    step = plan("R.a <= S.x", left, right).step
    samples = [_sample(step, s, _flat(step, s, t, Knobs(), payload=False)) for s, t in enumerate((left, right))]
    samples = [replace(sample, rows=1e6) for sample in samples]
    listed = fit(step, *samples, partitions=4, may_copy_points=False)
    only_marked = fit(step, *samples, partitions=4, may_copy_points=False, lists_pairs=False)
    assert only_marked.cells <= 4 < listed.cells
    assert only_marked.cost.sum() <= 5e6


def test_cells_are_cut_by_results_that_a_sample_hardly_shows():
    """Half of the rows lie fifty times as close as the others: a sample of one in 128 shows 400 pairs, or 25 a cell."""
    random, half, size, partitions = np.random.default_rng(3), 2000, 12_500, 16
    near, all_values = 10**9, 10**11
    values = [np.concatenate([random.integers(0, top, size // 2) for top in (near, all_values)]) for _ in "ab"]
    step = plan("ABS(R.a - S.x) <= 5", *(_skewed(9, 0.0).rename_columns(list(n)) for n in ("abk", "xyk"))).step
    none, rows = np.zeros(size, dtype=np.int64), size * 128.0
    points = Sample(none, values[0][None], values[0][None], rows)
    boxes = Sample(none, values[1][None] - half, values[1][None] + half, rows)
    routing = fit(step, points, boxes, partitions=partitions, may_copy_points=False)
    assert routing.cells == partitions
    # What each cell has of all rows, of which those that are close match their neighbours.
    edges = np.concatenate([[0], routing.bounds.value, [all_values]])
    close, far = np.diff(edges.clip(max=near)) / near * rows / 2, np.diff(edges) / all_values * rows / 2
    each = 2 * half * rows / 2 / near
    work = 2 * (close + far) + fitting.OUTPUT_COST * (close + far) * each * np.where(edges[1:] <= near, 1, 0.01)
    assert work.max() <= 1.15 * work.mean()


def test_thousands_of_tasks_do_not_make_millions_of_cells():
    even = np.arange(1, 1000) << 40
    bounds = Bounds(np.zeros_like(even), even, np.full(even.size, np.iinfo(np.int64).min))
    for chosen in (5, 600, 1000):
        divided, counts = fitting._divided(bounds, np.arange(1000) < chosen, 2000)
        assert 1000 < divided.hash.size + 1 == counts.sum() <= 1000 + fitting.MOST_FINER * 1000


def test_light_values_are_not_cut():
    left, right = _skewed(5000, 0.0), _skewed(5000, 0.0).rename_columns(["x", "y", "k"])
    step = plan("R.a < S.x", left, right).step
    samples = [_sample(step, s, _flat(step, s, t, Knobs(), payload=False)) for s, t in enumerate((left, right))]
    assert not fit(step, *samples, partitions=8, may_copy_points=False).splits_values


def test_overlap_mode_wins_where_intervals_are_short():
    random = np.random.default_rng(0)
    start = random.integers(0, 10**9, 20_000)
    left = pa.table({"a": start, "b": start + 100})
    right = left.rename_columns(["x", "y"])
    step = plan("R.a <= S.y AND R.b >= S.x", left, right).step
    samples = [_sample(step, s, _flat(step, s, t, Knobs(), payload=False)) for s, t in enumerate((left, right))]
    assert fit(step, *samples, partitions=8, may_copy_points=True).mode == "overlap"
    assert fit(step, *samples, partitions=8, may_copy_points=False).mode == "axis"


@given(tables=tables, partitions=st.integers(1, 8))
def test_numbers_are_distinct_and_in_range(tables, partitions):
    left, right = tables
    step = plan("R.a < S.x", left, right).step
    samples = [_sample(step, s, _flat(step, s, t, Knobs(), payload=False)) for s, t in enumerate((left, right))]
    for routing in _all_routings(step, *samples, partitions):
        assert len(set(routing.numbers.tolist())) == routing.cells
        assert set(spark_partition(routing.numbers, partitions).tolist()) <= set(range(partitions))


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("on", ["R.a < S.x", "R.k = S.k AND R.a < S.x"])
@given(data=st.data(), values=rows.filter(bool))
def test_places_do_not_depend_on_the_order_of_rows(on, sampled, data, values):
    """Spark may run a task again, with its rows in another order: each must go where it went before."""
    left, right = _table(values, ("a", "b", "k")), _table(values, ("x", "y", "k"))
    # Every third row can match nothing, and is still reported once.
    left = left.set_column(
        0, "a", pa.array([None if i % 3 == 0 else v for i, v in enumerate(left["a"].to_pylist())], pa.int64())
    )
    step = plan(on, left, right, how="left")
    common = {"step": step.step, "options": step.kernel_options, "payload": (4, 3)}
    if sampled:
        with patch.object(fitting, "CELL_ROWS", 2):
            raw = fitted(step, common, [left, right], Knobs()).to_buffer().to_pybytes()
    else:
        raw = without_sample(step.step, 3).to_buffer().to_pybytes()
    flat = _flat(step.step, POINTS, numbered(left), Knobs(), payload=True)
    stage = RouteStage(**common, routing=raw)

    def homes(batch: pa.RecordBatch) -> dict[int, int]:
        found = {}
        for out in stage(iter([batch])):
            for cell, segment in zip(out.column(CELL_NUMBER).to_pylist(), out.column(SEGMENT), strict=True):
                found.update(dict.fromkeys(unpack(segment.as_buffer()).column(3).to_pylist(), cell))
        return found

    order = data.draw(st.permutations(range(flat.num_rows)))
    assume(order != sorted(order))
    first = homes(flat)
    assert sorted(first) == list(range(flat.num_rows))
    assert homes(flat.take(pa.array(order))) == first


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
@given(tables, st.integers(1, 9), st.integers(1, 40), st.booleans())
def test_every_row_sent_is_a_row_or_a_counted_copy(condition, made, partitions, block_rows, few):
    """Copies are what is sent beyond the rows that have a place; rows whose box is empty have none."""
    left, right = made
    knobs = Knobs(partitions=partitions, block_rows=block_rows, cell_rows=3 if few else 1 << 20)
    found = join(condition, left, right, knobs=knobs)
    sent = found.total("rows_points") + found.total("rows_boxes")
    placed = sent - found.total("copies")
    assert placed <= left.num_rows + right.num_rows
    assert 0 <= found.total("copies") <= sent
    matched = {("R", r) for r, _ in found.pairs} | {("S", s) for _, s in found.pairs}
    assert placed >= len(matched)
    if condition in (CONDITIONS["band"], CONDITIONS["key"], CONDITIONS["less"]):
        assert placed == left.num_rows + right.num_rows  # no NULL, and no range is empty
    load = max((counts["task_load"] for counts in found.counters), default=0)
    assert load == 2 * max((counts["task_rows"] for counts in found.counters), default=0) or found.pairs

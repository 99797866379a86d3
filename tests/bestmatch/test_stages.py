"""Routing, cells and finish of a best-match join, as Spark would run them: no cut into cells changes the answer."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.codes import order_codes
from dovetail.columns.segments import concat, unpack
from dovetail.families.bestmatch import router
from dovetail.families.bestmatch.outputs import output_names
from dovetail.families.bestmatch.paper.schedule import accesses, crabstep, gallop
from dovetail.families.bestmatch.router import COPY, Routing, cut_axes, static_routing
from dovetail.families.bestmatch.spec import Axis
from dovetail.families.bestmatch.stages import FinishStage, FitStage, RouteStage
from dovetail.families.bestmatch.stream import BestKernel

from .shapes import BY_NAME, NAMES, Join, joins, tables


def _hash(values: tuple[Any, ...]) -> int:
    return hash(values) & 0x7FFF_FFFF_FFFF_FFFF


def flat(join: Join, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """What Spark hands to the routing: payload, keys, and the hash of the equality keys."""
    batch = join.batch(rows)
    if join.by:
        hashes = [_hash(tuple(row[name] for name in join.by)) for row in rows]
        batch = batch.append_column("h", pa.array(hashes, pa.int64()))
    return batch


def routed(
    join: Join, routing: Routing, sides: list[list[dict[str, Any]]]
) -> dict[int, list[tuple[int, pa.RecordBatch]]]:
    cells: dict[int, list[tuple[int, pa.RecordBatch]]] = defaultdict(list)
    spec = join.spec()
    for side, rows in enumerate(sides):
        stage = RouteStage(spec, side, len(NAMES) + spec.keys, routing.to_buffer().to_pybytes())
        for begin in range(0, len(rows), 5):
            for batch in stage(iter([flat(join, rows[begin : begin + 5])])):
                for at in range(batch.num_rows):
                    segment = unpack(batch.column("segment")[at].as_buffer())
                    cells[batch.column("cell")[at].as_py()].append((batch.column("side")[at].as_py(), segment))
    return cells


def fitted(join: Join, partitions: int, sides: list[list[dict[str, Any]]]) -> Routing:
    spec = join.spec()
    chosen = [len(NAMES) + len(join.by) + at for at in cut_axes(spec)]
    batches = []
    for rows in sides:
        batch = flat(join, rows)
        keys = batch.select([*chosen, *([batch.num_columns - 1] if join.by else [])])
        marks = [pa.array(np.full(batch.num_rows, mark)) for mark in (0, False)]
        batches.append(pa.RecordBatch.from_arrays([*marks, *keys.columns], names=["draw", "deep", *keys.schema.names]))
    with patch.object(router, "CELL_ROWS", 3):
        (found,) = FitStage(spec, partitions, (1.0, 1.0))(iter(batches))
    return Routing.from_buffer(found.column(0)[0].as_buffer())


@st.composite
def routings(draw: Any, join: Join, sides: Any) -> Routing:
    partitions = draw(st.integers(1, 5))
    if draw(st.booleans()):
        return fitted(join, partitions, sides)
    return static_routing(join.spec(), partitions, numbered=draw(st.booleans()))


def joined(join: Join, routing: Routing, sides: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All cells, and what Spark does after them."""
    spec = join.spec()
    batches = []
    for segments in routed(join, routing, sides).values():
        kernel = BestKernel(spec)
        kernel.restore({}, None)
        for side, rows in segments:
            kernel.push(side, rows)
        kernel.end()
        batches += list(kernel.results())
    if spec.wide:
        batches = list(FinishStage(spec, grouped=False)(iter(batches)))
    return [row for batch in batches for row in batch.to_pylist()]


def pairs(rows: list[dict[str, Any]]) -> Counter:
    return Counter((row["i0_0"], row["i1_0"]) for row in rows)


@given(joins(), tables(14), tables(14), st.data())
def test_no_routing_changes_the_answer(join, left, right, data):
    routing = data.draw(routings(join, [left, right]))
    assert pairs(joined(join, routing, [left, right])) == join.expected(left, right)


@pytest.mark.parametrize("cells", [2, 5])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_dense_batches(how, cells):
    """Many rows within the maximum distance of a cut, some of them at exactly that distance from their best."""
    draw = random.Random(f"{how} {cells}")
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), how)
    sides = [
        [{**dict.fromkeys(NAMES), "id": at, "t": draw.randrange(60), "h": draw.randrange(9)} for at in range(50)]
        for _ in (0, 1)
    ]
    truth = join.expected(*sides)
    for routing in (fitted(join, cells, sides), static_routing(join.spec(), cells)):
        assert pairs(joined(join, routing, sides)) == truth
    assert any(abs(sides[0][i]["t"] - sides[1][j]["t"]) == 4 for i, j in truth) or how == "inner"


@given(joins(bounded=True, hows=["left", "right", "full"]), tables(14), tables(14), st.data())
def test_a_row_is_at_home_in_one_cell(join, left, right, data):
    routing = data.draw(routings(join, [left, right]))
    homes = [Counter(), Counter()]
    for segments in routed(join, routing, [left, right]).values():
        here = [Counter(), Counter()]
        for side, rows in segments:
            numbers = rows.column(0).to_pylist()
            here[side % COPY].update(numbers)
            if side < COPY:
                homes[side].update(numbers)
        assert all(count == 1 for side in here for count in side.values())
    answering = 1 if join.how == "right" else 0
    assert all(count == 1 for count in homes[answering].values())
    if join.keep:
        assert set(homes[answering]) == set(range(len([left, right][answering])))


def test_copies_are_few():
    """Uniform rows in eight cells: a cell needs no more of its neighbours than lies within reach."""
    random = np.random.default_rng(1)
    sides = [
        [{"id": at, **dict.fromkeys(NAMES[1:]), "y": float(y)} for at, y in enumerate(random.random(4000) * 1000)]
        for _ in "RS"
    ]
    join = Join((replace(BY_NAME["y.3"], axis=Axis("near_float", within=1.0)),), "left")
    with patch.object(router, "CELL_ROWS", 10):
        routing = fitted(join, 8, sides)
    assert (routing.mode, routing.cells, routing.axis) == ("cuts", 8, 0)
    sizes = {
        cell: sum(rows.num_rows for _, rows in segments) for cell, segments in routed(join, routing, sides).items()
    }
    assert len(sizes) == 8
    assert sum(sizes.values()) < 8000 * 1.02
    assert max(sizes.values()) < 1.5 * min(sizes.values())


def test_the_axis_with_most_room_is_cut():
    random = np.random.default_rng(1)
    rows = [
        {"id": at, **dict.fromkeys(NAMES[1:]), "y": float(a), "z": float(b) * 50}
        for at, (a, b) in enumerate(random.random((500, 2)))
    ]
    join = Join((BY_NAME["y.3"], BY_NAME["z1"]), "left")
    assert fitted(join, 4, [rows, rows]).axis == 1


@given(
    tables(), tables(), st.sampled_from(["inner", "left", "right", "full"]), st.sampled_from([(), ("k",)]), st.data()
)
def test_a_criterion_that_spark_evaluates(left, right, how, by, data):
    """Candidates leave their cells, get a value, and the best of them stay; no value, no candidate."""
    meant = Join((BY_NAME["z1"], BY_NAME["least h"]), how, by)
    axes = (Axis("near_float", within=1.0), Axis("given", kind="int"))
    join = Join((BY_NAME["z1"],), how, by)
    spec = replace(join.spec(), axes=axes, candidates=True)
    with patch.object(Join, "spec", lambda self: spec):
        routing = data.draw(routings(join, [left, right]))
        cells = routed(join, routing, [left, right])
    batches = []
    for segments in cells.values():
        kernel = BestKernel(spec)
        kernel.restore({}, None)
        for side, rows in segments:
            kernel.push(side, rows)
        kernel.end()
        for batch in kernel.results():
            assert batch.schema.names == output_names(spec)
            i, j = batch.column("i0_0").to_pylist(), batch.column("i1_0").to_pylist()
            values = [
                None if left[a]["h"] is None or right[b]["h"] is None else left[a]["h"] + right[b]["h"]
                for a, b in zip(i, j, strict=True)
            ]
            batches.append(batch.append_column("e0", pa.array(values, pa.int64())))
    # Spark cuts rows into batches as it likes, across cells.
    size = data.draw(st.integers(1, 60))
    whole = concat(batches) if batches else None
    pieces = [whole.slice(at, size) for at in range(0, whole.num_rows, size)] if whole is not None else []
    found = list(FinishStage(spec, grouped=how != "inner")(iter(pieces)))
    if how == "inner":
        found = list(FinishStage(spec, grouped=False)(iter(found)))
    assert pairs([row for batch in found for row in batch.to_pylist()]) == meant.expected(left, right)


def test_the_papers_example_of_thrashing():
    """Figures 7 and 8: seven pages a side, each of which meets five, and four buffers."""
    band = [(max(0, page - 2), min(7, page + 3)) for page in range(7)]
    assert accesses(gallop(band, 4)) == 30
    assert accesses(crabstep(band, 4)) == 21
    # Up to the second column both do the same; then the loaded pages stay, and columns 3 to 5 step past them.
    loads = [(kind[-1], 1 + max(column, page)) for kind, column, page in crabstep(band, 4) if kind != "join"]
    assert loads[:8] == [("R", 1), ("S", 1), ("S", 2), ("S", 3), ("R", 2), ("R", 3), ("R", 4), ("R", 5)]
    assert loads[8:10] == [("R", 2), ("S", 4)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=9), st.integers(2, 6))
def test_every_schedule_joins_every_pair_once(steps, buffers):
    """Runs of pages that move on, as grid order makes them; a page is joined only while it is loaded."""
    spans, begin, end = [], 0, 0
    for forward, size in steps:
        begin, end = begin + forward, max(end, begin + forward + size)
        spans.append((begin, end))
    wanted = Counter((column, page) for column, (a, b) in enumerate(spans) for page in range(a, b))
    for schedule in (gallop, crabstep):
        joins_done: Counter = Counter()
        column, held = -1, []
        for kind, i, j in schedule(spans, buffers):
            if kind == "load R":
                column = i
            elif kind == "load S":
                held = [page for page in held if page != j][-(buffers - 2) :] if buffers > 2 else []
                held.append(j)
            else:
                assert i == column
                assert j in held
                joins_done[i, j] += 1
        assert joins_done == wanted
    assert accesses(crabstep(spans, buffers)) <= max(accesses(gallop(spans, buffers)), 1) + len(spans)


@pytest.mark.parametrize("grid", [False, True])
def test_pages_are_in_grid_order_and_hold_every_row(grid, tmp_path):
    from dovetail.families.bestmatch.paper.pages import Pages, grid_cells, materialise, spans

    random = np.random.default_rng(3)
    sides = [
        [
            {"id": at, **dict.fromkeys(NAMES[1:]), "y": float(a) * 3, "z": float(b) * 9}
            for at, (a, b) in enumerate(random.random((200, 2)))
        ]
        for _ in "RS"
    ]
    join = Join((BY_NAME["y.3"], BY_NAME["z1"]), "left")
    batches = [join.batch(side) for side in sides]
    positions, cells = grid_cells(join.spec(), *batches)
    pages = Pages(tmp_path)
    windows = [
        materialise(pages, batches[at], positions[at], cells[at], page_rows=8, memory=64, grid=grid) for at in (0, 1)
    ]
    for window, side in zip(windows, sides, strict=True):
        assert window.firsts == sorted(window.firsts)
        assert all(last <= first for last, first in zip(window.lasts, window.firsts[1:], strict=False)) or grid
        rows = [pages.read(page) for page in window.pages]
        assert sorted(n for batch in rows for n in batch.column("row_number").to_pylist()) == list(range(len(side)))
        assert all(batch.num_rows <= 8 for batch in rows)
        if not grid:
            assert all(batch.num_rows == 8 for batch in rows)
    reach = spans(*windows)
    assert sum(b - a for a, b in reach) < len(windows[0].pages) * len(windows[1].pages) * 0.6


def test_a_cell_of_a_full_join_knows_rivals_from_two_distances_away():
    """The pair (1, 0) is nobody's best: row 1 has a nearer partner, and row 0 of S has row 0 of R, in another cell."""

    def at(number: int, z: float) -> dict[str, Any]:
        return {"id": number, **dict.fromkeys(NAMES[1:]), "z": z}

    left, right = [at(0, -0.2), at(1, 1.15)], [at(0, 0.2), at(1, 1.2)]
    join = Join((BY_NAME["z1"],), "full")
    cut = order_codes(pa.array([1.0]), "float64")
    routing = Routing("cuts", 2, np.arange(2, dtype=np.int32), 0, np.zeros(1, dtype=np.int64), cut)
    assert len(routed(join, routing, [left, right])) == 2
    assert pairs(joined(join, routing, [left, right])) == Counter({(0, 0): 1, (1, 1): 1})
    assert join.expected(left, right) == Counter({(0, 0): 1, (1, 1): 1})

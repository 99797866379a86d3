"""Cells that are more than a worker may hold: pieces of any size give the same pairs."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.short import short_of_memory

from dovetail.columns import memory
from dovetail.columns.layout import ARRIVAL, COUNTERS, SEGMENT, SIDE, STREAM_CELL
from dovetail.columns.segments import pack
from dovetail.errors import MemoryLimitError
from dovetail.families.bestmatch.outputs import METRICS, output_names
from dovetail.families.bestmatch.router import static_routing
from dovetail.families.bestmatch.stages import FinishStage
from dovetail.families.bestmatch.stream import BestKernel
from dovetail.spark.cells import SPLIT_METRICS, StaticCell

from .shapes import BY_NAME, NAMES, Join, joins, tables
from .test_stages import pairs, routed, routings


def joined(join, routing, sides):
    """What the stage gives that Spark runs, and how many cells were split."""
    spec = join.spec()
    batches, split = [], 0
    for cell, segments in routed(join, routing, sides).items():
        arrived = [
            pa.RecordBatch.from_pydict(
                {STREAM_CELL: [cell], SIDE: [side], ARRIVAL: [at], SEGMENT: [pack(rows).to_pybytes()]}
            )
            for at, (side, rows) in enumerate(segments)
        ]
        kernel = BestKernel(spec)
        kernel.restore({}, None)
        for side, rows in segments:
            kernel.push(side, rows)
        kernel.end()
        types = next((tuple(batch.schema.types) for batch in kernel.results()), None)
        if types is None:
            continue
        names = (*output_names(spec), COUNTERS)
        stage = StaticCell(partial(BestKernel, spec), METRICS + SPLIT_METRICS, "a cell of a test", types, names)
        for batch in stage(iter(arrived)):
            if batch.column(COUNTERS).null_count == 0:
                split += batch.column(COUNTERS)[0].as_py()[-2]
            else:
                batches.append(batch.drop_columns([COUNTERS]))
    if spec.wide:
        batches = list(FinishStage(spec, grouped=False)(iter(batches)))
    return [row for batch in batches for row in batch.to_pylist()], split


@given(joins(), tables(14), tables(14), st.data(), st.sampled_from([1, 300, 1000, 5000]))
@examples(200)
def test_pieces_of_any_size(join, left, right, data, most):
    routing = data.draw(routings(join, [left, right]))
    with short_of_memory(most), pytest.MonkeyPatch.context() as patched:
        patched.setattr(memory, "room", lambda alone=False: 1 << 40)  # what cannot be divided fits
        found, split = joined(join, routing, [left, right])
    assert pairs(found) == join.expected(left, right)
    if not join.spec().divisible:
        assert split == 0


@pytest.mark.parametrize("how", ["left", "right"])
def test_a_heavy_key_is_split(how):
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), how)
    sides = [
        [{**dict.fromkeys(NAMES), "id": at, "t": (at * step) % 40, "h": (at * 7) % 9} for at in range(60)]
        for step in (11, 13)
    ]
    with short_of_memory(2000):
        found, split = joined(join, static_routing(join.spec(), 1), sides)
    assert split == 1
    assert pairs(found) == join.expected(*sides)


def test_what_cannot_be_divided_is_refused_with_its_key(monkeypatch):
    join = Join((BY_NAME["t4"], BY_NAME["least h"]), "full")
    assert not join.spec().divisible
    sides = [[{**dict.fromkeys(NAMES), "id": at, "t": at % 4, "h": 1} for at in range(60)] for _ in (0, 1)]
    monkeypatch.setattr(memory, "room", lambda alone=False: 100)
    with short_of_memory(100), pytest.raises(MemoryLimitError, match="a cell of a test does not fit") as caught:
        joined(join, static_routing(join.spec(), 1), sides)
    assert "hint: " in str(caught.value)

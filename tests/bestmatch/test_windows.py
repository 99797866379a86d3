"""Best matches over the last while, and windows that go to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.segments import unpack
from dovetail.conditions.limits import Limit
from dovetail.families.bestmatch.router import static_routing
from dovetail.families.bestmatch.stages import RouteStage
from dovetail.families.bestmatch.stream_recent import RecentKernel
from dovetail.reference import bestmatch as definition

from .shapes import BY_NAME, Join, joins, tables
from .streams import Run, row, streams


@given(
    joins(judged=False), tables(10), tables(10), st.integers(1, 4), st.sampled_from([None, 1, 3, 7]),
    st.integers(1, 3), st.data(),
)  # fmt: skip
def test_the_answer_over_the_last_while(join, left, right, parts, every, cells, data):
    """At every instant the join over the rows of the last 4, whatever the cut and the number of cells."""
    spec = replace(join.spec(), max_age=4, every=every)
    routing = static_routing(spec, cells).to_buffer().to_pybytes()
    runs = {cell: Run(spec, RecentKernel) for cell in range(cells)}

    def segments(side: int, rows: list[dict]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """What reaches the cells: (cell, side, rows)."""
        batch = join.batch(rows).append_column("when", pa.array([r["t"] for r in rows], pa.timestamp("us", "UTC")))
        columns = batch.num_columns
        if join.by:
            hashes = [hash(tuple(r[name] for name in join.by)) & 0x7FFF_FFFF_FFFF_FFFF for r in rows]
            batch = batch.append_column("hash", pa.array(hashes, pa.int64()))
        for found in RouteStage(spec, side, columns, routing)(iter([batch])):
            for part in found.to_pylist():
                yield part["cell"], part["side"], unpack(part["segment"])

    ordered = [sorted(side, key=lambda r: -1 if r["t"] is None else r["t"]) for side in (left, right)]
    marks = sorted(data.draw(st.lists(st.integers(1, 14), min_size=parts, max_size=parts)))
    begin = -1
    watermark = None
    for mark in [*marks, 100]:
        arrived: dict[int, list[tuple[int, pa.RecordBatch]]] = {cell: [] for cell in runs}
        for side in (0, 1):
            some = [r for r in ordered[side] if begin <= (-1 if r["t"] is None else r["t"]) < mark]
            if some:
                for cell, travels_as, rows in segments(side, data.draw(st.permutations(some))):
                    arrived[cell].append((travels_as, rows))
        for cell, run in runs.items():
            # Spark calls a cell that has new rows, or whose timer the watermark has reached.
            due = run.wake is not None and watermark is not None and run.wake <= watermark
            if arrived[cell] or due:
                run.step(arrived[cell], watermark)
        begin, watermark = mark, mark
    for run in runs.values():
        run.step([], end=True)
    truth = definition.recent_bestmatch_join(
        {"R": left, "S": right}, [shape.definition for shape in join.shapes], join.how, join.by,
        time="t", max_age=4, every=every, keep_unmatched=join.keep,
    )  # fmt: skip
    meant = Counter((*(None if row is None else row["id"] for row in pair.values()), at) for at, pair in truth)
    found = Counter((r["i0_0"], r["i1_0"], r["_time"].microsecond) for run in runs.values() for r in run.rows)
    assert found == meant
    assert sum(run.counters["late"] for run in runs.values()) == 0


def test_the_answer_at_the_time_of_a_row_that_matches_nothing():
    """A row without a value arrives, too, and so does one of another key; ages count from then."""
    for by in ((), ("k",)):
        rows = [{**row(0, 1), "x": 5, "k": "a"}, {**row(1, 3), "x": None, "k": "a"}, {**row(2, 4), "x": 1, "k": "b"}]
        truth = definition.recent_bestmatch_join(
            {"R": rows, "S": rows[:1]}, [BY_NAME["x"].definition], "left", by, time="t", max_age=4
        )
        assert [at for at, pair in truth if pair["R"]["id"] == 0] == [1, 3, 4]


def test_every_multiple_at_which_some_row_is_young_enough():
    join = Join((BY_NAME["x"],), "left")
    rows = [{**row(0, 2), "x": 5}, {**row(1, 11), "x": 5}]
    run = Run(replace(join.spec(), max_age=4, every=2), RecentKernel)
    batch = join.batch(rows).append_column("when", pa.array([2, 11], pa.timestamp("us", "UTC")))
    run.step([(0, batch), (1, batch)])
    run.step([], 5)
    assert [r["_time"].microsecond for r in run.rows] == [2, 4]
    assert run.wake == 7
    run.step([], 7)
    run.step([], 14)
    assert [r["_time"].microsecond for r in run.rows] == [2, 4, 6, 12]
    run.step([], end=True)
    assert [r["_time"].microsecond for r in run.rows] == [2, 4, 6, 12, 14]


@pytest.mark.parametrize("materialise", ["standard", "grid"])
@given(
    made=streams(hows=["left", "right", "full"], judged=False),
    memory=st.builds(Limit, st.integers(1, 12)) | st.builds(Limit, st.integers(1, 2_000), st.just("bytes")),
)
def test_windows_on_disk(materialise, made, memory):
    join, left, right = made
    spec = replace(join.spec(), memory=memory, materialise=materialise)
    run = Run(spec)
    run.step([(0, join.batch(left)), (1, join.batch(right))], end=True)
    assert run.pairs() == join.expected(left, right)


@pytest.mark.parametrize(
    ("memory", "on_disk"),
    [(Limit(100), False), (Limit(99), True), (Limit(1, "bytes"), True), (Limit(10**6, "bytes"), False)],
)
def test_windows_beyond_the_limit_go_to_disk(memory, on_disk):
    """A limit in bytes counts as many rows as fit into it, at the width of the rows of the windows."""
    join = Join((BY_NAME["t4"],), "left")
    rows = join.batch([row(at, at) for at in range(50)])
    run = Run(replace(join.spec(), memory=memory))
    run.step([(0, rows), (1, rows)], end=True)
    assert (run.counters["page_reads"] > 0) == on_disk
    assert run.pairs() == Counter({(at, at): 1 for at in range(50)})


def test_a_limit_in_bytes_is_that_of_the_rows():
    join = Join((BY_NAME["t4"],), "left")
    rows = join.batch([row(at, at) for at in range(50)])
    size = 2 * rows.append_column("own", pa.array([True] * 50)).nbytes
    for memory, on_disk in ((size, False), (size - 100, True)):
        run = Run(replace(join.spec(), memory=Limit(memory, "bytes")))
        run.step([(0, rows), (1, rows)], end=True)
        assert (run.counters["page_reads"] > 0) == on_disk

"""Cells that are more than a worker may hold: pieces of any size give the same rows."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.short import short_of_memory

from dovetail.columns import memory
from dovetail.columns.layout import CELL, COUNTERS, HAS_MATCH, ROW, VERDICT
from dovetail.conditions.join_kind import HOWS
from dovetail.families.theta import join_stages
from dovetail.families.theta.join_stages import FinishStage, JoinStage

from .harness import Knobs, join
from .shapes import cases
from .test_stages import knobs

mosts = st.sampled_from([1, 100, 300, 1000, 5000])


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(), knobs=knobs, most=mosts)
@examples(60)
def test_pieces_of_any_size(case, how, knobs, most):
    with short_of_memory(most):
        result = join(case.on, case.left, case.right, how=how, knobs=knobs)
    assert Counter(result.pairs) == Counter(case.expected(how))


@given(case=cases(), how=st.sampled_from(HOWS), algorithm=st.sampled_from(["prefap", "cfs"]), most=mosts)
@examples(40)
def test_pieces_of_the_papers_partitions(case, how, algorithm, most):
    if all(conjunct.kind == "=" for conjunct in case.conjuncts):
        return
    with short_of_memory(most):
        result = join(case.on, case.left, case.right, how=how, algorithm=algorithm)
    assert Counter(result.pairs) == Counter(case.expected(how))


def one_key(rows: int) -> tuple[pa.Table, pa.Table]:
    """Two tables in which nine of ten rows have one key."""
    random = np.random.default_rng(5)
    tables = []
    for _ in range(2):
        keys = np.where(random.random(rows) < 0.9, 7, random.integers(0, 50, rows))
        tables.append(pa.table({"k": keys, "x": random.integers(0, 10 * rows, rows), "text": ["x" * 50] * rows}))
    return tables[0], tables[1]


def of_definition(left: pa.Table, right: pa.Table, width: int) -> Counter:
    found = Counter()
    boxes = list(enumerate(zip(right["k"].to_pylist(), right["x"].to_pylist(), strict=True)))
    for i, (k, x) in enumerate(zip(left["k"].to_pylist(), left["x"].to_pylist(), strict=True)):
        found.update((i, j) for j, (other, y) in boxes if k == other and abs(x - y) <= width)
    return found


def test_a_heavy_key_without_a_sample_is_split_and_says_so():
    left, right = one_key(600)
    with short_of_memory(20_000):
        result = join(
            "R.k = S.k AND ABS(R.x - S.x) <= 40", left, right, knobs=Knobs(sampled=False, tasks=3, block_rows=100)
        )
    assert Counter(result.pairs) == of_definition(left, right, 40)
    # The cell of the heavy key alone: the others fit.
    assert result.total("split_cells") == 1
    assert result.total("spilled_bytes") > 600 * 50
    assert result.total("rows_points") == result.total("rows_boxes") == 600


def test_no_more_than_a_piece_of_either_side_is_searched_at_once():
    left, right = one_key(600)
    seen = []
    found = JoinStage.find

    def watched(self, points, boxes, counters, has_match):
        seen.append((memory.cost(points), memory.cost(boxes)))
        return found(self, points, boxes, counters, has_match)

    with short_of_memory(20_000), patch.object(JoinStage, "find", watched):
        join("R.k = S.k AND R.x < S.x", left, right, knobs=Knobs(sampled=False, tasks=1))
    assert len(seen) > 4
    assert max(cost for both in seen for cost in both) <= 20_000


def test_a_cell_that_fits_asks_nobody_and_writes_nothing():
    left, right = one_key(200)
    with patch.object(memory, "room", side_effect=AssertionError("asked")):
        result = join("R.k = S.k AND R.x < S.x", left, right)
    assert result.total("split_cells") == result.total("spilled_bytes") == 0


def test_wide_results_leave_in_several_batches():
    left, right = one_key(60)
    batches = []
    joined = JoinStage.joined

    def counted(self, *given):
        for out in joined(self, *given):
            batches.append(out.num_rows)
            yield out

    with short_of_memory(20_000), patch.object(JoinStage, "joined", counted):
        result = join("R.x <= S.x", left, right)
    assert sum(batches) == len(result.pairs)
    # A result has about 150 bytes.
    assert max(batches) < 200


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
@given(data=st.data(), most=st.sampled_from([1, 400, 2000]))
@examples(30)
def test_what_spark_judges_comes_in_pieces_too(how, data, most):
    """A point is known by its number in the cell, whatever piece it is in."""
    rows = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8), label="points")
    others = data.draw(st.lists(st.integers(0, 4), max_size=8), label="boxes")
    approved = data.draw(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))), label="approved")
    left, right = (pa.table({"x": pa.array(values, pa.int64())}) for values in (rows, others))
    kept = []

    original = join_stages.JoinStage.run

    def run(self, batches, load):
        judging = JoinStage(**{**vars(self), "candidates": True})
        finish = FinishStage(judging.kind, *judging.payload)
        found = []
        counted = None
        for batch in original(judging, batches, load):
            if batch.column(COUNTERS).null_count == 0:
                counted = batch
                continue
            pairs = zip(batch.column("c1").to_pylist(), batch.column("d1").to_pylist(), strict=True)
            verdict = pa.array([pair in approved for pair in pairs], pa.bool_())
            found.append(batch.append_column(VERDICT, verdict))
        assert all({CELL, ROW, HAS_MATCH} <= set(batch.schema.names) for batch in found)
        for batch in finish(iter(found)):
            kept.extend(batch.to_pylist())
        counters = counted.column(COUNTERS)
        yield self.counts(counters[0].as_py())

    with short_of_memory(most), patch.object(join_stages.JoinStage, "run", run):
        join("R.x <= S.x", left, right, how=how, knobs=Knobs(partitions=1, sampled=False, tasks=2))
    hits = {(i, j) for i, x in enumerate(rows) for j, y in enumerate(others) if x <= y and (i, j) in approved}
    matched = {i for i, _ in hits}
    if how == "left":
        expected = Counter([*hits, *((i, None) for i in range(len(rows)) if i not in matched)])
        assert Counter((row["c1"], row["d1"]) for row in kept) == expected
    else:
        wanted = [i for i in range(len(rows)) if (i in matched) == (how == "semi")]
        assert sorted(row["c1"] for row in kept) == wanted

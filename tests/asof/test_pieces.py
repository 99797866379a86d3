"""Right rows that are more than a worker may hold: pieces of any size give the same matches."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.short import short_of_memory

from dovetail.columns import memory
from dovetail.families.asof import join_stages, pieces

from .harness import Case, cases
from .test_stages import Knobs, counters, knobs, pairs, run, skewed

mosts = st.sampled_from([1, 200, 500, 1000, 5000])


@given(cases(), knobs, mosts)
@examples(200)
def test_pieces_of_any_size(case, knobs, most):
    with short_of_memory(most):
        found = run(case, knobs)
    assert pairs(case, found) == case.expected()
    assert counters(found)["results"] == case.expected().total()


@pytest.mark.parametrize("how", ["left", "full"])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_a_heavy_key_without_a_sample_is_split_and_says_so(direction, how):
    left, right = skewed(500, 3)
    case = Case(left, right, ("long",), "bigint", direction=direction, how=how)
    seen = []
    index_of = pieces.index_of

    def watched(spec, rows):
        seen.append(memory.cost(rows))
        return index_of(spec, rows)

    with (
        short_of_memory(12_000),
        patch.object(pieces, "index_of", watched),
        patch.object(join_stages, "index_of", watched),
    ):
        found = run(case, Knobs(sampled=False, batch_rows=100))
    assert pairs(case, found) == case.expected()
    counts = counters(found)
    assert counts["split_cells"] == 1
    assert counts["spilled_bytes"] > 0
    # The best so far and the best of a piece are searched together.
    assert max(seen) <= 2 * 12_000


def test_a_cell_that_fits_asks_nobody_and_writes_nothing():
    left, right = skewed(200, 4)
    with patch.object(memory, "room", side_effect=AssertionError("asked")):
        found = run(Case(left, right, ("long",), "bigint"), Knobs(sampled=False))
    assert counters(found)["split_cells"] == counters(found)["spilled_bytes"] == 0

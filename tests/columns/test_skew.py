"""Half of all rows have one key, or lie in a hundredth of the values: no cell gets more than it should hold."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from tests.bestmatch.shapes import BY_NAME, Join
from tests.theta.harness import Knobs, join
from tests.window.harness import flat, make_plan, make_spec

from dovetail.columns.codes import order_codes
from dovetail.families.approx.router import budgets, cells_of
from dovetail.families.asof import router as asof
from dovetail.families.asof.encode import hashes_of
from dovetail.families.bestmatch import router as bestmatch
from dovetail.families.window.router import WindowRouter

ROWS = 12_000
CELL = 1_000
"""What a cell should hold in these tests."""


def half(spread: np.ndarray, heavy: np.ndarray | int) -> np.ndarray:
    """Values of which every second one is a heavy one."""
    return np.where(np.arange(ROWS) % 2 == 0, heavy, spread)


def keys(seed: int) -> np.ndarray:
    return half(np.random.default_rng(seed).integers(0, 2_000, ROWS), 7)


def wide(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(ROWS) * 100


def narrow(seed: int) -> np.ndarray:
    """A hundredth of the range of :func:`wide` holds half of the values."""
    return half(wide(seed), np.random.default_rng(seed + 10).integers(500_000, 500_000 + ROWS, ROWS))


@pytest.mark.parametrize(
    ("on", "values", "key"),
    [
        ("ABS(R.a - S.a) <= 2", narrow, np.zeros_like),
        ("R.k = S.k AND ABS(R.a - S.a) <= 20", wide, lambda values: keys(3)),
        ("R.k = S.k AND ABS(R.a - S.a) <= 2", narrow, lambda values: keys(3)),
    ],
)
def test_theta(on, values, key):
    tables = [pa.table({"a": values(seed), "k": key(values(seed))}) for seed in (1, 2)]
    found = join(on, *tables, knobs=Knobs(partitions=4, cell_rows=CELL, batch_rows=1 << 20))
    held = [counts["rows_points"] for counts in found.counters]
    both = [counts["rows_points"] + counts["rows_boxes"] for counts in found.counters]
    assert sum(held) == ROWS
    # A cell holds its points; its boxes pass by.
    assert max(held) <= CELL
    assert max(both) <= 1.5 * CELL


def loads(cells: np.ndarray) -> np.ndarray:
    return np.unique(cells, return_counts=True)[1]


@pytest.mark.parametrize("keyed", [True, False])
def test_asof(keyed):
    key = keys(1) if keyed else np.zeros(ROWS, dtype=np.int64)
    times = wide(2) if keyed else narrow(2)
    hashes = hashes_of([pa.array(key)] if keyed else [], ROWS)
    routing = asof.fit(hashes, times, np.ones(ROWS), keyed=keyed, partitions=4, cell_rows=CELL)
    cells = routing.cells[routing.slice_of(hashes, times)]
    assert loads(cells).max() <= 1.6 * CELL
    blind = asof.without_sample(keyed, 4)
    # Without a sample nobody knows of the heavy key; the metrics tell afterwards.
    assert loads(blind.cells[blind.slice_of(hashes, times)]).max() >= ROWS / 2


@pytest.mark.parametrize("how", ["left", "right", "full"])
@pytest.mark.parametrize(("by", "partitions"), [((), 3), (("h",), 3), (("h",), 30)])
def test_bestmatch(by, how, partitions):
    made = Join((BY_NAME["x1"],), how, by)
    spec = made.spec()
    values = pa.array(wide(1) if by else narrow(1))
    key = pa.array(keys(2))
    hashes = hashes_of([key], ROWS) if by else np.zeros(ROWS, dtype=np.int64)
    with patch.object(bestmatch, "CELL_ROWS", CELL // 5), patch.object(bestmatch, "MOST_ROWS", CELL):
        routing = bestmatch.fit(spec, 2.0 * ROWS, hashes, {0: order_codes(values, "int")}, partitions)
    held = np.zeros(routing.cells, dtype=np.int64)
    ties = np.arange(ROWS)
    for side in (0, 1):
        _, cells, _ = routing.assign(spec, side, hashes, [key, values] if by else [values], ties)
        held += np.bincount(cells, minlength=routing.cells)
    assert held.max() <= 1.5 * CELL


@pytest.mark.parametrize(
    ("on", "streaming", "key", "times", "values"),
    [
        ("A.k = B.k", False, keys, wide, wide),
        ("A.k = B.k", False, lambda seed: np.arange(ROWS) % 2_000, narrow, wide),
        (None, False, keys, wide, wide),
        ("ABS(A.v - B.v) <= 1", True, keys, wide, narrow),
        ("A.k = B.k", True, lambda seed: np.arange(ROWS) % 2_000, narrow, narrow),
    ],
)
def test_window(on, streaming, key, times, values):
    tables = {
        alias: pa.table({"t": times(seed), "k": key(seed), "v": values(seed).astype(float)})
        for seed, alias in enumerate("AB")
    }
    spec = make_spec(make_plan(on, tables, 5, streaming=streaming, partitions=3))
    held = dict.fromkeys(spec.numbers, 0)
    for side, alias in enumerate("AB"):
        for number, part in WindowRouter(spec, side).parts(flat(spec, side, tables[alias])):
            held[number] += part.num_rows
    assert max(held.values()) <= 1.7 * sum(held.values()) / spec.cells


def test_approx():
    cells = cells_of(hashes_of([pa.array(keys(1))], ROWS), 16)
    rows = np.bincount(cells, minlength=16)
    assert rows.max() > ROWS / 2
    others = np.delete(rows, rows.argmax())
    assert 0 < others.max() <= 1.5 * others.mean()
    parts = budgets(CELL, rows, 2)
    assert parts.sum() <= CELL
    # The heavy cell gets the share of its rows, so every row has the same chance.
    assert np.abs(parts / CELL - rows / ROWS).max() <= 0.01

"""The paper's algorithms of the experiments: the definition's pairs, and the accesses that the text describes."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "bestmatch"
EPS = 0.1


@pytest.fixture(scope="module")
def modules():
    """The modules of the experiment, which find each other by their bare names."""
    names = ("data", "matwin")
    sys.path.insert(0, str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)
    yield [importlib.import_module(name) for name in names]
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)


def expected(R: np.ndarray, S: np.ndarray) -> set[tuple[int, int]]:
    """For each row of R its pairs that no other pair of it beats."""
    found = set()
    for r in range(len(R)):
        cost = np.abs(S - R[r])
        near = np.flatnonzero((cost <= EPS).all(axis=1))
        for s in near:
            beats = (cost[near] <= cost[s]).all(axis=1) & (cost[near] < cost[s]).any(axis=1)
            if not beats.any():
                found.add((r, int(s)))
    return found


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", ["uniform", "correlated", "anti-correlated", "normal"])
def test_all_variants_find_the_pairs_of_the_definition(modules, kind):
    data, matwin = modules
    R, S = data.rows(kind, 230, 2, 1), data.rows(kind, 170, 2, 2)
    wanted = expected(R, S)
    made = [matwin.nested_loops(R, S, EPS, improved=improved) for improved in (False, True)]
    for grid, ego, improved in ((False, False, False), (False, True, False), (False, True, True), (True, True, False)):
        made.append(matwin.matwin(R, S, EPS, grid=grid, ego=ego, improved=improved, page_rows=7, buffers=6))
    for run in made:
        assert run.pairs == wanted
    # As printed, every pair meets every rival.
    assert made[0].comparisons == 230 * 170 * 170 > 10 * made[1].comparisons
    assert made[0].accesses == made[1].accesses


def moved(matwin, **how):
    """Twenty rows, then two more, through one window with pages of four rows; the accesses of each move."""
    values = np.column_stack([np.linspace(0, 0.05, 22), np.tile([0.01, 0.25], 11)])
    disk = matwin.Disk(2)
    window = matwin.Window(values, EPS, disk, page_rows=4, **how)
    counted = []
    for begin, end in ((0, 20), (20, 22), (22, 22)):
        before = disk.accesses
        window.move(0.0, np.arange(begin, end))
        counted.append(disk.accesses - before)
    assert sorted(np.concatenate([disk.read(page) for page, *_ in window.pages]).tolist()) == list(range(22))
    disk.close()
    return counted


def test_the_standard_materialisation_writes_and_reads_its_runs(modules):
    """Section 3.3.3: all pages of the old window and of the runs are read and written."""
    _, matwin = modules
    pages = math.ceil(20 / 4)
    # Runs of three pages: five pages written, read again, five written; then one run of one page, five old, six new.
    assert moved(matwin, grid=False, ego=True, runs=3) == [3 * pages, 1 + 1 + pages + 6, 0]
    # Improved: new rows stay in memory until they are merged.
    assert moved(matwin, grid=False, ego=True, runs=0) == [pages, pages + 6, 0]


def test_the_grid_reads_and_writes_the_last_page_of_a_cell_once(modules):
    _, matwin = modules
    # Two cells of ten rows: three pages each.  Then one row more for each: its last page is read and written.
    assert moved(matwin, grid=True, ego=True, runs=3) == [2 * 3, 2 * 2, 0]

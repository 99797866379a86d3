"""The paper's Example 1 on generated documents, without a JVM: an oracle plays Spark, kernels are those that run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.shedding.judged import run_judged
from tests.shedding.test_judged import in_batches
from tests.window.harness import make_plan

import dovetail as dt

pytestmark = pytest.mark.unhurried

FOLDER = Path(__file__).parents[2] / "experiments" / "grubjoin"
NAMES = ("news", "plots", "reproduce")


@pytest.fixture(scope="module")
def news():
    """The module of the experiment, which finds the others by their bare names."""
    folders = [str(FOLDER), str(FOLDER.parent)]
    sys.path[:0] = folders
    for name in NAMES:
        sys.modules.pop(name, None)
    yield importlib.import_module("news")
    for folder in folders:
        sys.path.remove(folder)
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def made(news):
    return news.News.made(seed=1)


@pytest.mark.in_turns(group="several seconds")
def test_documents_are_those_of_the_text(news, made):
    """Unit vectors in the order of time; the pairs are those of the definition; most stories come at the lag."""
    again = news.News.made(seed=1)
    assert all(again.items[name].equals(table) for name, table in made.items.items())
    assert news.News.made(seed=2).truth != made.truth
    a, b = (table.to_pydict() for table in made.items.values())
    for items in (a, b):
        assert items["t"] == sorted(items["t"])
        assert np.linalg.norm(items["terms"], axis=1) == pytest.approx(1.0)
        assert items["n"] == list(range(news.ITEMS))
    expected = {
        (i, j)
        for i, x in enumerate(a["terms"])
        for j in np.flatnonzero(np.asarray(b["terms"]) @ x > news.ALIKE).tolist()
        if abs(a["t"][i] - b["t"][j]) <= news.WINDOW
    }
    assert made.truth == expected
    assert len(expected) > 0.8 * news.ITEMS / 2
    later = np.array([b["t"][j] - a["t"][i] for i, j in expected])
    assert abs(np.median(later) - news.LAG) < 60
    assert (np.abs(later - news.LAG) < 900).mean() > 0.8


def test_files_hold_every_item_once(news, made, tmp_path):
    made.put(tmp_path)
    for name, table in made.items.items():
        files = sorted((tmp_path / name).iterdir(), key=lambda file: file.stat().st_mtime)
        assert len(files) == news.CALLS
        numbers = np.concatenate([pq.read_table(file).column("n").to_numpy() for file in files])
        assert numbers.tolist() == table.column("n").to_pylist()


@pytest.mark.in_turns(group="several seconds")
def test_a_fifth_of_the_work_finds_most_pairs(news, made):
    spec = make_plan(None, dict(made.items), news.WINDOW, streaming=True, partitions=2).spec

    def similar(parts) -> np.ndarray:
        left, right = (part.column(1).flatten().to_numpy().reshape(part.num_rows, -1) for part in parts)
        return (left * right).sum(axis=1) > news.ALIKE

    batches = in_batches(spec, made.items, news.CALLS)
    whole = run_judged(spec, batches, similar, dt.Harvest(target=600.0))
    assert set(whole.found) == made.truth
    some = run_judged(spec, batches, similar, dt.Harvest(throttle=news.THROTTLE, seed=1))
    blind = run_judged(spec, batches, similar, dt.Harvest(throttle=news.THROTTLE, seed=1), by_results=False)
    for run in (some, blind):
        assert set(run.found) <= made.truth
        assert set(run.found.values()) == {1}
    # Results lie twenty minutes apart in a window of an hour either way; candidates lie everywhere.
    assert len(some.found) > 0.6 * len(made.truth)
    assert len(some.found) > 1.5 * len(blind.found)
    work, full = (sum(counts[name] for counts in some.counters[2:]) for name in ("work", "work_full"))
    assert work < 1.4 * news.THROTTLE * full

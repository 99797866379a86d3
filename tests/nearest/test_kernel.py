"""The kernel of nearest joins against the nested loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.nearest.shapes import Case, cases, comparable, seen

from dovetail.families.nearest.kernel import NearIndex, choose
from dovetail.families.nearest.spec import NearestSpec


def answers(case: Case) -> list[tuple[int, Any, Any, int | None]]:
    """What the kernel finds."""
    payload = case.payload(case.others)
    index = NearIndex(case.spec, case.keys(case.others), payload)
    found = index.search(case.keys(case.rows))
    chosen = choose(case.spec, found.owner, found.far, [column.take(pa.array(found.row)) for column in payload])
    owner, row, far = found.owner[chosen.at], found.row[chosen.at], found.far[chosen.at]
    out: list[tuple[int, Any, Any, int | None]] = [
        (int(a), seen(case.others[b]), c, int(d))
        for a, b, c, d in zip(owner, row, far.tolist(), chosen.rank, strict=True)
    ]
    if case.spec.keep:
        out += [(n, None, None, None) for n in range(len(case.rows)) if n not in set(owner.tolist())]
    return out


@examples(400)
@given(case=cases())
def test_kernel_finds_what_the_nested_loop_finds(case: Case) -> None:
    expected = [(n, seen(other), far, rank) for n, other, far, rank in case.expected()]
    assert comparable(answers(case)) == comparable(expected)


@examples(150)
@given(case=cases(metrics=("earth",)))
def test_on_the_earth_the_distances_are_those_of_the_formula(case: Case) -> None:
    """Whether two equal distances differ in the last bit depends on the sine that computes them: ties may differ."""
    every = replace(case, spec=replace(case.spec, ties="all", k=1000))
    found = answers(case)
    wanted: dict[int, list[float]] = {}
    for n, _, far, _ in every.expected():
        if far is not None:
            wanted.setdefault(n, []).append(far)
    for n, fars in wanted.items():
        mine = sorted(far for m, _, far, _ in found if m == n and far is not None)
        assert len(mine) >= min(case.spec.k, len(fars))
        assert np.allclose(mine[: case.spec.k], sorted(fars)[: len(mine)][: case.spec.k], rtol=1e-9, atol=1e-2)


def spec_of(dims: int, k: int, **more: Any) -> NearestSpec:
    return replace(
        NearestSpec("euclidean" if dims > 1 else "line", "float64", (1.0,) * dims, (), k, None, "all", True,
                    ((), ()), (), 0, pa.float64()),
        **more,
    )  # fmt: skip


def brute(points: np.ndarray[Any, Any], asked: np.ndarray[Any, Any], k: int) -> list[set[int]]:
    out = []
    for point in asked:
        square = np.zeros(len(points))
        for d in range(points.shape[1]):
            part = point[d] - points[:, d]
            square = part * part if d == 0 else square + part * part
        far = np.sqrt(square)
        out.append(set(np.flatnonzero(far <= np.sort(far)[k - 1]).tolist()))
    return out


@examples(20)
@given(seed=st.integers(0, 1000))
def test_clustered_and_sparse_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims, k = int(rng.integers(1, 4)), int(rng.integers(1, 9))
    centres = rng.normal(size=(5, dims)) * 10.0 ** rng.integers(0, 7, size=(5, 1))
    points = np.concatenate([centre + rng.normal(size=(300, dims)) * 10.0 ** rng.integers(-6, 2) for centre in centres])
    points = np.concatenate([points, np.repeat(points[:3], 40, axis=0), rng.normal(size=(4, dims)) * 1e9])
    asked = np.concatenate([points[rng.integers(0, len(points), 60)], rng.normal(size=(40, dims)) * 1e8])
    index = NearIndex(spec_of(dims, k), [pa.array(points[:, d]) for d in range(dims)], [])
    found = index.search([pa.array(asked[:, d]) for d in range(dims)])
    mine: list[set[int]] = [set() for _ in asked]
    for owner, row in zip(found.owner.tolist(), found.row.tolist(), strict=True):
        mine[owner].add(row)
    assert mine == brute(points, asked, k)


def test_a_crowd_on_one_place_gives_the_first_of_it() -> None:
    """Without the surplus left out, each asking row would meet all of the crowd."""
    size = 20_000
    spec = spec_of(2, 2, ties="first", order=(0,))
    numbers = pa.array(np.random.default_rng(0).permutation(size))
    zeros = pa.array(np.zeros(size))
    index = NearIndex(spec, [zeros, zeros], [numbers])
    assert index.rows.size == 2
    assert sorted(numbers.take(pa.array(index.rows)).to_pylist()) == [0, 1]
    found = index.search([pa.array([3.0]), pa.array([4.0])])
    assert found.far.tolist() == [5.0, 5.0]


def test_more_neighbours_than_a_search_has_room_for(monkeypatch: Any) -> None:
    from dovetail.families.nearest import kernel

    monkeypatch.setattr(kernel, "_ROOM", 30)
    points = np.random.default_rng(1).normal(size=(50, 2))
    columns = [pa.array(points[:, d]) for d in range(2)]
    found = NearIndex(spec_of(2, 10), columns, []).search(columns)
    assert np.bincount(found.owner).tolist() == [10] * 50
    assert all(found.far[found.owner == n][0] == 0 for n in range(50))

"""Joins that shed, without a JVM: specs over the paper's streams, and the clock that drives them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pyarrow as pa
from tests.window.harness import make_plan, make_spec

from dovetail.families.shedding.clock import VirtualPace, Wandering, arrival_times
from dovetail.families.shedding.kernel import DropKernel, HarvestKernel, SheddingKernel
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import RandomDrop, Shed
from dovetail.families.window.spec import WindowJoinSpec

SECOND = 1_000_000
ALIGNED, LAGGING = (0.0, 0.0, 0.0), (0.0, 5.0, 15.0)


def wandering_spec(
    m: int, *, window: int = 20 * SECOND, epsilon: float = 1.0, algorithm: str = "nested"
) -> WindowJoinSpec:
    """The paper's epsilon-join: all values within epsilon of each other, all rows within the window."""
    aliases = "ABCDE"[:m]
    empty = Wandering((0.0,), (0.0,)).made(0.0, 0)[0]
    tables = {alias: pa.Table.from_batches([empty]) for alias in aliases}
    on = " AND ".join(f"ABS({a}.v - {b}.v) <= {epsilon}" for a, b in combinations(aliases, 2))
    plan = make_plan(on, tables, window, streaming=True, algorithm=algorithm, partitions=1)
    # One cell without slices of value: the clock has one processor.
    return make_spec(plan_without_grid(plan), tables)


def plan_without_grid(plan):
    from dataclasses import replace

    return replace(plan, grid=None, cells=1)


def maker(spec: WindowJoinSpec, shed: Shed, *, width: int = 2 * SECOND) -> Callable[[VirtualPace], SheddingKernel]:
    kind = DropKernel if isinstance(shed, RandomDrop) else HarvestKernel
    slices = Slices.of(spec.hull, width)
    return lambda pace: kind(spec, shed=shed, slices=slices, pace=pace)


__all__ = ["ALIGNED", "LAGGING", "SECOND", "Wandering", "arrival_times", "maker", "wandering_spec"]

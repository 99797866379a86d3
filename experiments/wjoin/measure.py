"""Run an operator over streams and take the service time of every 1,000 rows, as section 4.3 does.

The service time is the processor time of the one thread that does the work, divided by the rows.  The input of a run is
always the same, so of several runs the least time of each 1,000 rows counts: neighbours on the machine only ever add.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from data import Streams

from dovetail.families.window.paper.algorithms import Operator

SLICE = 1000
PURGE = 10_000
"""How many rows go by between two purges of the adapted rivals."""

ORDERS = ("in turn", "by time")
"""How rows reach the join: one of each stream in turn, as section 3.1 says, or as they arrive."""


@dataclass(frozen=True)
class Variant:
    """An algorithm with its switches."""

    label: str
    algorithm: str
    approach: str = "global"
    purge: int = 1


FLAT = ", flat"
"""The nested loop of section 3.1, without the pipeline's buffers of intermediate results (3.1.1)."""

NLW = Variant("NLW-join", "pipeline")
NLW_FLAT = Variant(f"NLW-join{FLAT}", "nested")
HW = Variant("HW-join", "hash")
MW = Variant("MW-join", "merge")
RIPPLE = Variant("ripple join", "pipeline", purge=PURGE)
RIPPLE_FLAT = Variant(f"ripple join{FLAT}", "nested", purge=PURGE)
XJOIN = Variant("XJoin", "hash", purge=PURGE)
GCA = Variant("GCA", "merge", "global")
LCA = Variant("LCA", "merge", "local")
GCA_NLW = Variant("GCA with NLW-join", "pipeline", "global")
LCA_NLW = Variant("LCA with NLW-join", "pipeline", "local")
PATH = Variant("NLW-join along the path", "pipeline", "path")
PATH_FLAT = Variant(f"NLW-join along the path{FLAT}", "nested", "path")


@dataclass(frozen=True)
class Series:
    """One variant on some streams: per 1,000 rows the service time, the comparisons and the rows in the buffers."""

    label: str
    order: str
    service: np.ndarray
    compared: np.ndarray
    buffered: np.ndarray
    results: int
    idle: float

    @property
    def mean(self) -> float:
        """Microseconds per row, over all rows."""
        return float(self.service.mean())

    @property
    def comparisons(self) -> float:
        """Comparisons per row."""
        return float(self.compared.mean())


def series(
    variant: Variant,
    streams: Streams,
    windows: np.ndarray,
    rows: int,
    order: str,
    *,
    runs: int,
    tick: Callable[[], None],
) -> Series:
    """Measure a variant.  The merge join chooses its rows itself, always the earliest, and has one order only."""
    sequence = streams.in_turn(rows) if order == "in turn" else streams.by_time(rows)
    sides, held = list(streams.sides), np.zeros(len(streams.sides), dtype=np.int64)
    best: np.ndarray | None = None
    for _ in range(runs):
        service, compared, buffered = [], [], []
        live = Operator(
            variant.algorithm, variant.approach, sides, [], windows, sequence, held,
            live=True, purge=variant.purge, keep=False,
        )  # fmt: skip
        call = _call_time(live)
        last, done = 0, 0
        while done < rows:
            begin = time.thread_time()
            taken = live.advance(min(SLICE, rows - done))
            elapsed = time.thread_time() - begin
            if not taken:
                break
            done += taken
            counters = live.counters
            service.append(1e6 * max(elapsed - call, 0.0) / taken)
            compared.append((counters["comparisons"] - last) / taken)
            buffered.append(live.buffered)
            last = counters["comparisons"]
        best = np.array(service) if best is None else np.minimum(best, service)
        tick()
    assert best is not None
    return Series(
        variant.label,
        "by time" if variant.algorithm == "merge" else order,
        best,
        np.array(compared),
        np.array(buffered),
        counters["results"],
        counters["idle"] / done,
    )


def both_ways(
    variant: Variant,
    streams: Streams,
    windows: np.ndarray,
    rows: int,
    order: str,
    *,
    runs: int,
    tick: Callable[[], None],
) -> Series:
    """Section 5.2.1's modified nested loop on a path: one query for each way, their times added."""
    parts = [series(variant, streams, way, rows, order, runs=runs, tick=tick) for way in windows]
    return Series(
        variant.label,
        order,
        sum(part.service for part in parts),
        sum(part.compared for part in parts),
        sum(part.buffered for part in parts),
        sum(part.results for part in parts),
        0.0,
    )


def compare(
    variants: Sequence[Variant],
    streams: Streams,
    windows: np.ndarray,
    rows: int,
    order: str,
    *,
    runs: int,
    tick: Callable[[], None],
) -> dict[str, Series]:
    return {v.label: series(v, streams, windows, rows, order, runs=runs, tick=tick) for v in variants}


def _call_time(live: Operator) -> float:
    """What a call costs that takes no rows: the way from Python into the compiled loop is no part of the join."""
    times = []
    for _ in range(20):
        begin = time.thread_time()
        live.advance(0)
        times.append(time.thread_time() - begin)
    return float(np.median(times))

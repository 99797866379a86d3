"""A join of which only Spark can evaluate a condition, without a JVM: scout, judge, harvest, judge, as in Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.layout import columns_of, input_payload
from dovetail.columns.segments import pack, unpack
from dovetail.families.shedding.scout import ScoutKernel, ScoutRouter, told_columns
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest
from dovetail.families.shedding.stream import HarvestKernel
from dovetail.families.shedding.stream_judged import JudgedHarvestKernel
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.spec import WindowJoinSpec

Judge = Callable[[Sequence[pa.RecordBatch]], np.ndarray]
"""From the payload of every input to whether a pair is a result."""


@dataclass
class Run:
    """What came out in each micro-batch, and what the cells counted."""

    results: list[Counter] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    scouted: list[Counter] = field(default_factory=list)
    selected: list[np.ndarray] = field(default_factory=list)
    """The slices looked at by the cell that was called last."""

    @property
    def found(self) -> Counter:
        return sum(self.results, Counter())


def payloads(spec: WindowJoinSpec, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [rows.select(columns_of(input_payload(side), spec.payload[side])) for side in spec.sides]


def run_judged(
    spec: WindowJoinSpec,
    batches: Sequence[Sequence[pa.RecordBatch]],
    judge: Judge,
    shed: Harvest,
    width: int | None = None,
    *,
    by_results: bool = True,
    told: Callable[[int], bool] = lambda call: True,
) -> Run:
    """Run micro-batches, each a block of every input; state passes through its stored form after every call.

    Without `by_results` the harvest learns from what the kernel finds, before anybody judges it.  Where `told` is false
    the results of the scout get lost on the way.
    """
    slices, run = Slices.of(spec.hull, width), Run()
    kernel_of = JudgedHarvestKernel if by_results else HarvestKernel
    states: dict[tuple[str, int], dict[str, bytes]] = {}

    def called(kind: str, make: Callable[[], Any], arrived: dict[int, list[tuple[int, bytes]]]) -> tuple[list, Counter]:
        out, counts = [], Counter()
        for number, segments in arrived.items():
            state = states.setdefault((kind, number), {})
            kernel = make()
            if hasattr(kernel, "cell"):
                kernel.cell = number
            kernel.restore({name: unpack(segment) for name, segment in state.items()}, None)
            for side, segment in segments:
                kernel.push(side, unpack(segment))
            out += list(kernel.results())
            changes = kernel.changes()
            for name in changes.dropped:
                state.pop(name, None)
            state |= {name: pack(rows).to_pybytes() for name, rows in changes.stored.items()}
            counts.update(kernel.counters)
            if kind == "harvest":
                run.selected.append(kernel.control.selected.copy())
        return out, counts

    def packed(router: Callable[[int], WindowRouter], blocks: Sequence[pa.RecordBatch]) -> dict:
        arrived: dict[int, list[tuple[int, bytes]]] = {}
        for side, block in enumerate(blocks):
            top = router(side).top(block)
            for number, piece in [*router(side).parts(block), *(router(side).ticks(top) if top is not None else [])]:
                arrived.setdefault(number, []).append((side, pack(piece).to_pybytes()))
        return arrived

    for call, blocks in enumerate(batches):
        arrived = packed(lambda side: WindowRouter(spec, side), blocks)
        if by_results:
            sample = packed(lambda side: ScoutRouter(spec, side, sample=shed.sample_fraction, seed=shed.seed), blocks)
            pairs, counts = called("scout", lambda: ScoutKernel(spec, shed=shed), sample)
            run.scouted.append(counts)
            for rows in pairs:
                good = rows.filter(pa.array(judge(payloads(spec, rows))))
                good = good.select([name for name, _ in told_columns(spec)])
                cells = good.column("n").to_numpy()
                for cell in np.unique(cells) if told(call) else ():
                    part = good.filter(pa.array(cells == cell))
                    arrived.setdefault(int(cell), []).append((len(spec.aliases), pack(part).to_pybytes()))
        found, counts = called("harvest", lambda: kernel_of(spec, shed=shed, slices=slices), arrived)
        results: Counter = Counter()
        for rows in found:
            parts = payloads(spec, rows.filter(pa.array(judge(payloads(spec, rows)))))
            results.update(zip(*(part.column(part.num_columns - 1).to_pylist() for part in parts), strict=True))
        run.results.append(results)
        run.counters.append(counts)
    return run

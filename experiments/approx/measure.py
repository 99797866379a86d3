"""One join, measured: how many results of every join value come out, and when.

The complete joins have hundreds of millions of results, so results are counted, not listed: a new row has as many as
the other stream holds rows of its value.  What is held is decided by the very functions that the library runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from data import Values

from dovetail.conditions.comparison import Key
from dovetail.conditions.limits import Limit
from dovetail.families.approx.kernel import Call
from dovetail.families.approx.priorities import FULL, flush, update_queues
from dovetail.families.approx.reservoirs import update_reservoir
from dovetail.families.approx.spec import ApproxSpec
from dovetail.families.approx.stream import ApproxKernel
from dovetail.reference.approx import divergence, mean_square_error

POLICIES = {"ARRPJ": "arrpj", "Prob": "prob", "ProbHash": "prob_hash", "RAJ": "raj", "RAJHash": "raj_hash"}
QUANTITY, QUALITY = ("ARRPJ", "Prob", "ProbHash"), ("RAJ", "RAJHash")
SCANS = ("Prob", "RAJ")
EPOCHS = 20

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """Results by epoch and join value; `complete` is the whole join by value."""

    counts: Counts
    complete: Counts

    @property
    def share(self) -> float:
        """Per cent of the complete result."""
        return 100.0 * float(self.counts.sum() / self.complete.sum())

    @property
    def js(self) -> float:
        """Divergence of all results."""
        return self.js_at(-1)

    @property
    def mse(self) -> float:
        """Mean square error of all results."""
        return mean_square_error(_mapping(self.complete), _mapping(self.counts.sum(axis=0)))

    def shares(self) -> list[float]:
        """Per cent of the complete result, at the end of every epoch."""
        return (100.0 * np.cumsum(self.counts.sum(axis=1)) / self.complete.sum()).tolist()

    def js_at(self, epoch: int) -> float:
        """Divergence of all results up to the end of an epoch."""
        upto = np.cumsum(self.counts, axis=0)[epoch]
        return divergence(_mapping(self.complete), _mapping(upto)) if upto.any() else float("nan")

    def divergences(self) -> list[float]:
        """The divergence at the end of every epoch."""
        return [self.js_at(epoch) for epoch in range(len(self.counts))]


def _mapping(counts: Counts) -> dict[int, float]:
    return {value: float(count) for value, count in enumerate(counts) if count}


def spec_of(label: str, memory: int, seed: int, *, scan: bool = False) -> ApproxSpec:
    """The spec of a policy in one cell, as in the paper."""
    keys = tuple((Key(f"`{alias}`.`b`", "BIGINT", alias),) for alias in ("R1", "R2"))
    return ApproxSpec(
        aliases=("R1", "R2"), payload=(0, 0), keys=keys, value=((0,), (0,)), kinds=("int",), edges=(),
        policy=POLICIES[label], memory=Limit(memory), seed=seed, strata=1024, scan=scan,
    )  # fmt: skip


def segment(values: Values) -> pa.RecordBatch:
    hashes = (values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    columns = [values, hashes, np.arange(values.size)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["k0", "h", "a"])


def _call(streams: tuple[Values, Values], spec: ApproxSpec) -> Call:
    kernel = ApproxKernel(spec)
    for side, values in enumerate(streams):
        kernel.push(side, segment(values))
    return kernel.call()


def outcome(streams: tuple[Values, Values], label: str, memory: int, seed: int = 0) -> Outcome:
    """Run a policy over two streams that arrive in turn."""
    call = _call(streams, spec_of(label, memory, seed))
    groups = 1 + int(call.rows.group.max())
    counts = np.zeros((EPOCHS, groups), dtype=np.int64)
    if call.queues is not None:
        rates = label == "ARRPJ"
        _count_queues(call.order, call.rows, call.chains, call.memory, call.queues, rates, rates, counts)
    else:
        _count_reservoirs(
            call.order, call.rows, call.chains, call.memory, call.strata, call.heap, call.begin[:-1], call.sizes, counts
        )
    assert call.memory.peak[0] <= memory
    sides = [np.bincount(call.rows.group[call.rows.side == side], minlength=groups) for side in range(2)]
    return Outcome(counts, sides[0] * sides[1])


@numba.njit
def _count_reservoirs(order, rows, chains, memory, strata, heap, begin, sizes, counts):
    for k in range(order.size):
        row = order[k]
        g = rows.group[row]
        counts[k * counts.shape[0] // order.size, g] += chains.counts[1 - rows.side[row], g]
        update_reservoir(row, rows, chains, memory, strata, heap, begin, sizes)


@numba.njit
def _count_queues(order, rows, chains, memory, queues, shared, rates, counts):
    for k in range(order.size):
        row = order[k]
        g = rows.group[row]
        found = chains.counts[1 - rows.side[row], g]
        counts[k * counts.shape[0] // order.size, g] += found
        queues.results[queues.bucket[row]] += found
        if update_queues(row, False, rows, chains, memory, queues, shared, rates) == FULL:
            flush(rows, chains, memory, queues)
            update_queues(row, True, rows, chains, memory, queues, shared, rates)


def throughput(streams: tuple[Values, Values], label: str, memory: int, runs: int = 3) -> float:
    """Rows a second of processor time, with every result written out; Prob and RAJ scan, as in the paper."""
    best = float("inf")
    for _ in range(runs):
        call = _call(streams, spec_of(label, memory, 0, scan=label in SCANS))
        began = time.process_time()
        while not call.run():
            pass
        best = min(best, time.process_time() - began)
    return sum(values.size for values in streams) / best

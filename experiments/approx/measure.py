"""One join, measured: how many results of every join value come out, and when.

The complete joins have hundreds of millions of results, so results are counted, not listed: a new row has as many as
the other stream holds rows of its value.  What is held is decided by the very functions that the library runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from data import Values

from dovetail.conditions.comparison import Key
from dovetail.conditions.limits import Limit
from dovetail.families.approx.kernel import Call
from dovetail.families.approx.paper.compiled import LEARNS, update_priority, update_sample
from dovetail.families.approx.priorities import FULL, flush, update_queues
from dovetail.families.approx.reservoirs import update_reservoir
from dovetail.families.approx.spec import ApproxSpec
from dovetail.families.approx.stream import ApproxKernel
from dovetail.reference.approx import mean_square_error

PARTS = 64
"""Queues of ProbHash and sub-reservoirs of RAJHash, of each stream; the paper does not say how many it has."""

KNOWN = ", chances known"
OURS = ", ours"


@dataclass(frozen=True)
class Setup:
    """A policy with its options; `known`: the chances of all values are known before the first row."""

    policy: str
    options: dict[str, object] = field(default_factory=dict)
    known: bool = False
    scan: bool = False


_HASH = {"strata": PARTS}
SETUPS = {
    "ARRPJ": Setup("arrpj"),
    "Prob": Setup("prob_printed"),
    "ProbHash": Setup("prob_hash_printed", _HASH),
    "RAJ": Setup("raj_printed"),
    "RAJHash": Setup("raj_hash_printed", _HASH),
    f"Prob{KNOWN}": Setup("prob_printed", known=True),
    f"ProbHash{KNOWN}": Setup("prob_hash_printed", _HASH, known=True),
    f"Prob{OURS}": Setup("prob", scan=True),
    f"ProbHash{OURS}": Setup("prob_hash"),
    f"RAJ{OURS}": Setup("raj", scan=True),
    f"RAJHash{OURS}": Setup("raj_hash", {"strata": 1024}),
}
"""Every algorithm by its name: the paper's as printed, two of them with chances that are known before, and ours."""

QUANTITY, QUALITY = ("ARRPJ", "Prob", "ProbHash"), ("RAJ", "RAJHash")
EPOCHS = 100

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """Results by epoch and join value, and those of the whole join; `looked` counts the rows looked through."""

    counts: Counts
    whole: Counts
    looked: int

    @property
    def complete(self) -> Counts:
        """The whole join by value."""
        return self.whole.sum(axis=0)

    @property
    def share(self) -> float:
        """Per cent of the complete result."""
        return 100.0 * float(self.counts.sum() / self.whole.sum())

    @property
    def js(self) -> float:
        """Divergence of all results."""
        return float(_divergences(self.complete[None], self.counts.sum(axis=0)[None])[0])

    @property
    def mse(self) -> float:
        """Mean square error of all results."""
        return mean_square_error(_mapping(self.complete), _mapping(self.counts.sum(axis=0)))

    def shares(self) -> list[float]:
        """Per cent of the complete result, at the end of every epoch."""
        return (100.0 * np.cumsum(self.counts.sum(axis=1)) / self.whole.sum()).tolist()

    def divergences(self, *, so_far: bool = False) -> list[float]:
        """The divergence at the end of every epoch, from the complete join of all rows or of those so far."""
        found = np.cumsum(self.counts, axis=0)
        truth = np.cumsum(self.whole, axis=0) if so_far else np.broadcast_to(self.complete, found.shape)
        return _divergences(truth, found).tolist()


def _mapping(counts: Counts) -> dict[int, float]:
    return {value: float(count) for value, count in enumerate(counts) if count}


def _divergences(complete: Counts, found: Counts) -> npt.NDArray[np.float64]:
    """Equation 3, line by line; 0 where there was nothing to find, NaN where nothing was found."""
    p, q = (part / np.maximum(part.sum(axis=1, keepdims=True), 1) for part in (complete, found))
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(part > 0, part * np.log(part / middle), 0.0).sum(axis=1) / 2 for part in (p, q)]
    nothing = np.where(complete.any(axis=1), np.nan, 0.0)
    return np.where(found.any(axis=1), np.maximum(parts[0] + parts[1], 0.0), nothing)


def spec_of(setup: Setup, memory: int, seed: int) -> ApproxSpec:
    """The spec of a policy in one cell, as in the paper."""
    keys = tuple((Key(f"`{alias}`.`b`", "BIGINT", alias),) for alias in ("R1", "R2"))
    return ApproxSpec(
        aliases=("R1", "R2"), payload=(0, 0), keys=keys, value=((0,), (0,)), kinds=("int",), edges=(),
        policy=setup.policy, memory=Limit(memory), seed=seed, scan=setup.scan, detail=False, **setup.options,
    )  # fmt: skip


def segment(values: Values) -> pa.RecordBatch:
    hashes = (values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    columns = [values, hashes, np.arange(values.size)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["k0", "h", "a"])


def _call(streams: tuple[Values, Values], setup: Setup, memory: int, seed: int) -> Call:
    kernel = ApproxKernel(spec_of(setup, memory, seed))
    for side, values in enumerate(streams):
        kernel.push(side, segment(values))
    call = kernel.call()
    if setup.known:
        slots = call.slots
        np.add.at(slots.arrived, (call.rows.side, slots.bucket), 1)
        slots.totals[:] = slots.arrived.sum(axis=1)
        slots.settings[LEARNS] = 0
    return call


def outcome(streams: tuple[Values, Values], setup: Setup, memory: int, seed: int = 0) -> Outcome:
    """Run a policy over two streams that arrive in turn."""
    call = _call(streams, setup, memory, seed)
    groups = 1 + int(call.rows.group.max())
    counts, looked = np.zeros((EPOCHS, groups), dtype=np.int64), np.zeros(1, dtype=np.int64)
    common = (call.order, call.rows, call.chains, call.memory)
    if call.slots is not None:
        _count_printed(*common, call.slots, setup.policy in ("raj_printed", "raj_hash_printed"), counts, looked)
    elif call.queues is not None:
        _count_queues(*common, call.queues, setup.policy == "arrpj", setup.scan, counts, looked)
    else:
        _count_reservoirs(
            *common, call.strata, call.heap, call.begin[:-1], call.sizes, setup.scan, counts, looked
        )  # fmt: skip
    assert call.memory.peak[0] <= memory
    whole = np.zeros_like(counts)
    _count_whole(call.order, call.rows.side, call.rows.group, whole)
    return Outcome(counts, whole, int(looked[0]))


@numba.njit
def _count_whole(order, side, group, whole):
    seen = np.zeros((2, whole.shape[1]), dtype=np.int64)
    for k in range(order.size):
        s, g = side[order[k]], group[order[k]]
        whole[k * whole.shape[0] // order.size, g] += seen[1 - s, g]
        seen[s, g] += 1


@numba.njit
def _count_reservoirs(order, rows, chains, memory, strata, heap, begin, sizes, scan, counts, looked):
    for k in range(order.size):
        row = order[k]
        s, g = rows.side[row], rows.group[row]
        found = chains.counts[1 - s, g]
        counts[k * counts.shape[0] // order.size, g] += found
        looked[0] += memory.held[1 - s] if scan else found
        update_reservoir(row, rows, chains, memory, strata, heap, begin, sizes)


@numba.njit
def _count_queues(order, rows, chains, memory, queues, rates, scan, counts, looked):
    for k in range(order.size):
        row = order[k]
        s, g = rows.side[row], rows.group[row]
        found = chains.counts[1 - s, g]
        counts[k * counts.shape[0] // order.size, g] += found
        looked[0] += memory.held[1 - s] if scan else found
        queues.results[queues.bucket[row]] += found
        if update_queues(row, False, rows, chains, memory, queues, rates, rates) == FULL:
            flush(rows, chains, memory, queues)
            update_queues(row, True, rows, chains, memory, queues, rates, rates)


@numba.njit
def _count_printed(order, rows, chains, memory, slots, samples, counts, looked):
    for k in range(order.size):
        row = order[k]
        s, g = rows.side[row], rows.group[row]
        counts[k * counts.shape[0] // order.size, g] += chains.counts[1 - s, g]
        looked[0] += slots.sizes[1 - s, slots.part[row]]
        if samples:
            update_sample(row, rows, chains, memory, slots)
        else:
            update_priority(row, k, rows, chains, memory, slots)


@dataclass(frozen=True)
class Speed:
    """A whole join with every result written: seconds of processor time, results, comparisons."""

    seconds: float
    results: int
    comparisons: int

    @property
    def throughput(self) -> float:
        """Results a second: the paper's section 3.1 measures quantity over time."""
        return self.results / self.seconds


def speeds(streams: tuple[Values, Values], setups: dict[str, Setup], memory: int, runs: int = 3) -> dict[str, Speed]:
    """The best of some runs of each, in turn, so that a busy moment of the machine meets all alike."""
    best: dict[str, Speed] = {}
    for _ in range(runs):
        for label, setup in setups.items():
            call = _call(streams, setup, memory, 0)
            began = time.process_time()
            while not call.run():
                pass
            seconds = time.process_time() - began
            if label not in best or seconds < best[label].seconds:
                best[label] = Speed(seconds, call.results, call.comparisons)
    return best

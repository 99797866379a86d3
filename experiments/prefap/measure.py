"""Perform a join by an algorithm and measure what the paper's Table 2 lists.

Elapsed time is the processor time of the one thread that does the work.  The kernels wait for nothing, so on
an idle core it equals the time on the wall, and on a busy machine the neighbours do not show in it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from data import Task

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.columns.encode import Boxes, Points
from dovetail.families.theta.kernel import Counters
from dovetail.families.theta.kernel import pairs as sorted_pairs
from dovetail.families.theta.paper import prefap
from dovetail.families.theta.paper.layouts import balance, cross, layout, matches_per_pair
from dovetail.families.theta.paper.prefap import Layout, Values

P, W = 10, 1000
"""The number of partitions and the window size that the paper's section 4.1 states."""

NEVER = 10**12
"""A window so large that no partition is oversized: repartitioning is off."""

CHUNK = 1 << 20
"""Products per call of the kernel: few enough that the memory for their matches is used again and again."""

BRIEF_MS = 50.0
"""Joins shorter than this are timed three times, and the best counts: noise only ever adds."""

ALGORITHMS = ("prefap", "ftj", "cfs", "obt", "rbm")
NAMES = {"prefap": "Prefap", "ftj": "FTJ", "cfs": "CFS", "obt": "OBT", "rbm": "RBM"}


@dataclass(frozen=True)
class Variant:
    """An algorithm with its switches."""

    label: str
    algorithm: str
    prefilter: bool = True
    amalgamate: bool = True
    round_up: bool = True
    """Spans of repartitioning are whole numbers, as A3.5 prints them; ours stay as they are."""

    def layout(self, r: Values, s: Values, op: str, p: int, w: int | None) -> Layout:
        """The layout of these streams."""
        return layout(
            self.algorithm, r, s, op=op, partitions=p, window=w,
            prefilter=self.prefilter, amalgamate=self.amalgamate, round_up=self.round_up,
        )  # fmt: skip


RIVALS = tuple(Variant(NAMES[name], name) for name in ALGORITHMS)
"""The algorithms as printed."""
OURS = (Variant("Prefap, ours", "prefap", round_up=False), Variant("FTJ, ours", "ftj", round_up=False))
"""What `algorithm="prefap"` and `"ftj"` of theta joins do: spans as they are, also below 1."""
ABLATION = (
    Variant("Full version", "prefap"),
    Variant("without prefiltering", "prefap", prefilter=False),
    Variant("without amalgamation", "prefap", amalgamate=False),
    Variant("without both", "prefap", prefilter=False, amalgamate=False),
)


@dataclass(frozen=True)
class Sample:
    """One join, measured."""

    products: int
    results: int
    elapsed_ms: float
    ratio_in: float = 1.0
    ratio_out: float = 1.0
    dealt_in: float = 1.0
    dealt_out: float = 1.0


@dataclass(frozen=True)
class Summary:
    """The runs of one variant: means of counts and ratios, the median of times, which outliers move less.

    A sample is a `Sample`, or a `Spread` where the join went through the cluster.
    """

    label: str
    samples: tuple[Any, ...]

    def column(self, field: str) -> np.ndarray:
        """One metric, run by run."""
        return np.array([getattr(sample, field) for sample in self.samples], np.float64)

    def __getattr__(self, field: str) -> float:
        # Only the metrics of a sample come here; the dataclass has the rest.
        if field.startswith("_") or field not in self.samples[0].__dataclass_fields__:
            raise AttributeError(field)
        column = self.column(field)
        return float(np.median(column) if field.endswith("_ms") else column.mean())


def perform(r: Values, s: Values, found: Layout, op: str) -> int:
    """Do every product and write every match, a bounded number at a time; how many matches there were."""
    work = np.cumsum(found.r_sizes[found.pairs[:, 0]] * found.s_sizes[found.pairs[:, 1]])
    cuts = np.searchsorted(work, np.arange(CHUNK, found.products, CHUNK))
    total = 0
    for pairs in np.split(found.pairs, np.unique(cuts)):
        i, _ = cross(r.codes, s.codes, dataclasses.replace(found, pairs=pairs), op)
        total += len(i)
    return total


def two_way(variant: Variant, streams: tuple[Values, ...], op: str, p: int, w: int | None) -> Sample:
    r, s = streams
    elapsed = np.inf
    for _ in range(3):
        begin = time.thread_time()
        found = variant.layout(r, s, op, p, w)
        results = perform(r, s, found, op)
        elapsed = min(elapsed, 1000 * (time.thread_time() - begin))
        if elapsed > BRIEF_MS:
            break
    counts = matches_per_pair(r.codes, s.codes, found, op)
    ratio_in, ratio_out = balance(found, 4, matches=counts)
    dealt_in, dealt_out = balance(found, 4, matches=counts, dispatch="round_robin")
    assert ratio_out is not None
    assert dealt_out is not None
    return Sample(found.products, results, elapsed, ratio_in, ratio_out, dealt_in, dealt_out)


def three_way(variant: Variant, streams: tuple[Values, ...], ops: tuple[str, ...], p: int, w: int | None) -> Sample:
    """Join the first two, then the pairs with the third; both joins count, as in the paper's Table 4."""
    r, s, t = streams
    begin = time.thread_time()
    first = variant.layout(r, s, ops[0], p, w)
    _, j = cross(r.codes, s.codes, first, ops[0])
    pairs = take(s, j)
    second = variant.layout(pairs, t, ops[1], p, w)
    results = len(j) + perform(pairs, t, second, ops[1])
    elapsed = time.thread_time() - begin
    return Sample(first.products + second.products, results, 1000 * elapsed)


def collect(
    task: Task,
    variants: Iterable[Variant],
    *,
    runs: int,
    tick: Callable[[], None],
    p: int = P,
    w: int | None = W,
) -> list[Summary]:
    """Measure every variant on the same streams, run after run, each run in another order of variants."""
    variants = list(variants)
    samples: dict[str, list[Sample]] = {variant.label: [] for variant in variants}
    streams = task.streams(0)
    for variant in variants:
        few = tuple(take(values, np.arange(min(len(values), 100))) for values in streams)
        _measure(variant, task, few, p, w)  # loads the compiled kernels
    for run in range(runs):
        streams = streams if task.fixed else task.streams(run)
        # Neighbours on a shared machine come and go: a rotating order spreads them over the variants.
        for at in range(len(variants)):
            variant = variants[(at + run) % len(variants)]
            samples[variant.label].append(_measure(variant, task, streams, p, w))
        tick()
    return [Summary(label, tuple(found)) for label, found in samples.items()]


def _measure(variant: Variant, task: Task, streams: tuple[Values, ...], p: int, w: int | None) -> Sample:
    if len(streams) == 2:
        return two_way(variant, streams, task.ops[0], p, w)
    return three_way(variant, streams, task.ops, p, w)


def take(values: Values, rows: np.ndarray) -> Values:
    return Values(values.codes[rows], values.positions[rows])


def automatic(task: Task, *, runs: int) -> Summary:
    """Dovetail's own kernel on one core: sort, then each row's matches are one run.  No product is performed.

    `products` counts the pairs it compares one by one, beyond the results it lists.
    """
    samples = []
    for run in range(runs):
        streams = task.streams(run)
        elapsed = np.inf
        for _ in range(3):
            begin = time.thread_time()
            left, results, compared = streams[0].codes, 0, 0
            for at, (op, right) in enumerate(zip(task.ops, streams[1:], strict=True)):
                counters, kept = Counters(), []
                for _, j in sorted_pairs(Points(left[None, :]), _boxes(right.codes, op), counters):
                    if at + 1 < len(task.ops):  # the next join needs these pairs
                        kept.append(j)
                results, compared = results + counters.results, compared + counters.comparisons
                left = right.codes[np.concatenate([*kept, np.empty(0, np.int64)])]
            elapsed = min(elapsed, 1000 * (time.thread_time() - begin))
            if elapsed > BRIEF_MS:
                break
        samples.append(Sample(compared, results, elapsed))
    return Summary("auto", tuple(samples))


def _boxes(codes: np.ndarray, op: str) -> Boxes:
    """The range of codes that each row of the right side accepts.  No stream here has the ends of int64."""
    edge = codes + {"<": -1, "<=": 0, ">": 1, ">=": 0}[op]
    other = np.full_like(edge, LOWEST if op[0] == "<" else HIGHEST)
    low, high = (other, edge) if op[0] == "<" else (edge, other)
    return Boxes(low[None, :], high[None, :])


# --- other readings of the text: counts only ---------------------------------------------------------------


def count_two_way(variant: Variant, streams: tuple[Values, ...], op: str, p: int, w: int | None) -> int:
    return variant.layout(*streams, op, p, w).products


def count_three_way(variant: Variant, streams: tuple[Values, ...], ops: tuple[str, ...], p: int, w: int | None) -> int:
    r, s, t = streams
    first = variant.layout(r, s, ops[0], p, w)
    _, j = cross(r.codes, s.codes, first, ops[0])
    return first.products + variant.layout(take(s, j), t, ops[1], p, w).products


def count_per_partition(variant: Variant, streams: tuple[Values, ...], ops: tuple[str, ...], p: int, w: int) -> int:
    """The reading nearest to Table 4: one second join for each partition of S.

    T is repartitioned, the intermediate result is not, the average size is w / p and the repartitioning span
    is a whole number, as A3.5 prints it.
    """
    r, s, t = streams
    first, s_part = _printed(variant, r, s, ops[0], p, w, both=True)
    _, j = cross(r.codes, s.codes, first, ops[0])
    products = first.products
    for part in range(len(first.s_bounds)):
        rows = j[s_part[j] == part]
        products += _printed(variant, take(s, rows), t, ops[1], p, w, both=False)[0].products
    return products


def _printed(
    variant: Variant, r: Values, s: Values, op: str, p: int, w: int, *, both: bool
) -> tuple[Layout, np.ndarray]:
    if variant.prefilter and variant.algorithm == "prefap":
        keep_r, keep_s = prefap.stream_filter(r.codes, s.codes, op)
    else:
        keep_r, keep_s = np.ones(len(r), np.bool_), np.ones(len(s), np.bool_)
    PB_R, PB_S = prefap.boundaries(r.positions[keep_r], p), prefap.boundaries(s.positions[keep_s], p)
    if variant.amalgamate and variant.algorithm == "prefap":
        PB_R = PB_S = np.concatenate([PB_R, PB_S])
    r_part, s_part = prefap.partition(r.positions, keep_r, PB_R), prefap.partition(s.positions, keep_s, PB_S)
    if both:
        r_part = _split(r, r_part, p, w)
    s_part = _split(s, s_part, p, w)
    r_low, r_high = prefap.extremes(r.codes, r_part)
    s_low, s_high = prefap.extremes(s.codes, s_part)
    pairs = prefap.surviving(r_low, r_high, s_low, s_high, op)
    return prefap.assemble(r, s, r_part, s_part, pairs), s_part


def _split(values: Values, part: np.ndarray, p: int, w: int) -> np.ndarray:
    # repartition divides by the number of partitions that have rows; w / p asks for p instead.
    filled = len(prefap.sizes(part))
    return prefap.repartition(values.positions, part, w * filled / p, round_up=True)

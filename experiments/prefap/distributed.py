"""The paper's "distributed environment": p tasks of Spark in four Python workers perform the products.

The layout is made on the driver, as the paper's partitioning unit makes it.  Each surviving pair of partitions is dealt
to the task with the fewest products so far and travels there whole; Spark's scheduler gives a worker that is free the
next task.  What worker did what is measured, not simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import workers
from data import Task
from measure import P, Summary, Variant, take

import cluster
import dovetail as dt
from dovetail.families.theta.paper.layouts import queue
from dovetail.families.theta.paper.prefap import Layout, Values


@dataclass(frozen=True)
class Spread:
    """One join through the cluster.  Times are milliseconds; all but the last are processor time."""

    products: int
    results: int
    work_ms: float
    """Of the layout, and of all workers while they compare."""
    largest_ms: float
    """Of the task that compared longest: with a core for every task, nothing ends before it."""
    elapsed_ms: float
    """On the wall: layout, Spark, comparisons, and the results back on the driver."""
    ratio_in: float
    ratio_out: float


@dataclass(frozen=True)
class Joined:
    """The matches of a join, and what it cost."""

    i: np.ndarray
    j: np.ndarray
    spread: Spread


def join(variant: Variant, r: Values, s: Values, op: str, p: int, w: int | None) -> Joined:
    """One two-way join."""
    spark = cluster.session(P)
    begin, used = time.perf_counter(), time.thread_time()
    found = variant.layout(r, s, op, p, w)
    used = time.thread_time() - used
    sent = _pairs(r, s, found, P)
    rows = spark.createDataFrame(sent.table).mapInArrow(workers.products(op), workers.SCHEMA).toArrow()
    elapsed = time.perf_counter() - begin
    pair, task, worker = (rows.column(name).to_numpy() for name in ("pair", "task", "worker"))
    seconds = rows.column("seconds").to_numpy()
    i, j, count = _matches(rows, sent)
    load = (found.r_sizes[found.pairs[:, 0]] + found.s_sizes[found.pairs[:, 1]])[pair]
    return Joined(
        i,
        j,
        Spread(
            found.products,
            len(i),
            1000 * (used + float(seconds.sum())),
            1000 * float(np.bincount(task, seconds).max(initial=0.0)),
            1000 * elapsed,
            _ratio(worker, load),
            _ratio(worker, count),
        ),
    )


def two_way(variant: Variant, streams: tuple[Values, ...], ops: tuple[str, ...], p: int, w: int | None) -> Spread:
    return join(variant, *streams, ops[0], p, w).spread


def three_way(variant: Variant, streams: tuple[Values, ...], ops: tuple[str, ...], p: int, w: int | None) -> Spread:
    """Join the first two, then their pairs with the third: two rounds of tasks, one after the other."""
    r, s, t = streams
    first = join(variant, r, s, ops[0], p, w)
    second = join(variant, take(s, first.j), t, ops[1], p, w).spread
    a, b = first.spread, second
    return replace(
        b,
        products=a.products + b.products,
        results=a.results + b.results,
        work_ms=a.work_ms + b.work_ms,
        largest_ms=a.largest_ms + b.largest_ms,
        elapsed_ms=a.elapsed_ms + b.elapsed_ms,
    )


def collect(
    task: Task, variants: Iterable[Variant], *, runs: int, tick: Callable[[], None], p: int, w: int | None
) -> list[Summary]:
    """Measure every variant on the same streams, run after run, each run in another order of variants."""
    variants = list(variants)
    perform = two_way if len(task.ops) == 1 else three_way
    samples: dict[str, list[Spread]] = {variant.label: [] for variant in variants}
    few = tuple(take(values, np.arange(min(len(values), 40))) for values in task.streams(0))
    perform(variants[0], few, task.ops, p, w)  # workers start, and import
    for run in range(runs):
        streams = task.streams(run)
        for at in range(len(variants)):
            variant = variants[(at + run) % len(variants)]
            samples[variant.label].append(perform(variant, streams, task.ops, p, w))
        tick()
    return [Summary(label, tuple(found)) for label, found in samples.items()]


def automatic(task: Task, *, runs: int, tick: Callable[[], None]) -> Summary:
    """Dovetail's own join of the same streams on the same cluster: elapsed time until it has counted its results."""
    spark = cluster.session(P)
    samples = []
    names = "rst"[: len(task.labels)]
    on = [f"{a}.x {op} {b}.x" for a, op, b in zip(names, task.ops, names[1:], strict=False)]
    for run in range(runs + 1):
        frames = {
            name: spark.createDataFrame(pa.table({"x": values.codes}))
            for name, values in zip(names, task.streams(max(run - 1, 0)), strict=True)
        }
        begin = time.perf_counter()
        results = dt.theta_join(frames, on=on, partitions=P).count()
        elapsed = 1000 * (time.perf_counter() - begin)
        if run:  # the first one loads the kernels
            samples.append(Spread(0, results, np.nan, np.nan, elapsed, np.nan, np.nan))
        tick()
    return Summary("auto", tuple(samples))


# --- the way to the workers and back -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    """A row for each task, and the rows of each pair of partitions, one pair after the other."""

    table: pa.Table
    r_rows: np.ndarray
    r_first: np.ndarray
    s_rows: np.ndarray
    s_first: np.ndarray


def _pairs(r: Values, s: Values, found: Layout, tasks: int) -> _Sent:
    work = found.r_sizes[found.pairs[:, 0]] * found.s_sizes[found.pairs[:, 1]]
    task = queue(work, tasks)
    r_rows, r_first = _blocks(found.r_part, found.r_sizes, found.pairs[:, 0])
    s_rows, s_first = _blocks(found.s_part, found.s_sizes, found.pairs[:, 1])
    numbers = [np.flatnonzero(task == at) for at in range(tasks)]
    table = pa.table(
        {
            "pair": pa.array(numbers, pa.list_(pa.int32())),
            "r": _nested(r.codes[r_rows], r_first, numbers),
            "s": _nested(s.codes[s_rows], s_first, numbers),
        }
    )
    return _Sent(table, r_rows, r_first, s_rows, s_first)


def _nested(codes: np.ndarray, first: np.ndarray, numbers: list[np.ndarray]) -> pa.Array:
    """For each task the codes of each of its pairs."""
    return pa.array(
        [[codes[first[pair] : first[pair + 1]] for pair in mine] for mine in numbers], pa.list_(pa.list_(pa.int64()))
    )


def _blocks(part: np.ndarray, size: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the wanted partitions, side by side, and where each begins."""
    rows = np.argsort(part, kind="stable")[np.count_nonzero(part < 0) :]
    begin = np.cumsum(size) - size
    first = np.concatenate([[0], np.cumsum(size[wanted])]).astype(np.int64)
    within = np.arange(first[-1]) - np.repeat(first[:-1], size[wanted])
    return rows[np.repeat(begin[wanted], size[wanted]) + within], first


def _matches(rows: pa.Table, sent: _Sent) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matches as rows of the streams, and how many each returned pair has."""
    r_rows, s_rows, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
    for pair, found in zip(rows.column("pair").to_pylist(), rows.column("found").to_pylist(), strict=True):
        width = sent.s_first[pair + 1] - sent.s_first[pair]
        i, j = np.divmod(np.frombuffer(found, np.int64), width)
        r_rows.append(sent.r_rows[sent.r_first[pair] + i])
        s_rows.append(sent.s_rows[sent.s_first[pair] + j])
        counts.append(len(i))
    return np.concatenate(r_rows), np.concatenate(s_rows), np.array(counts, np.int64)


def _ratio(worker: np.ndarray, load: np.ndarray) -> float:
    """The largest load of a worker over the average load of all four (the paper's Table 2)."""
    _, number = np.unique(worker, return_inverse=True)
    total = float(load.sum())
    return float(np.bincount(number, load).max()) * cluster.WORKERS / total if total > 0 else 1.0

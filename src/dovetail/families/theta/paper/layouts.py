"""Partition layouts by name, the Cartesian products they leave, and how evenly those spread.

:func:`layout` lays two columns out by any of the algorithms, :func:`cross` performs the surviving Cartesian
products, :func:`balance` measures the load of the processes that would share them.
"""

from __future__ import annotations

import heapq
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit
from dovetail.errors import ArgumentError, choice
from dovetail.families.theta.paper.prefap import REMOVED, Codes, Layout, Operator, Parts, Values, prefap_layout
from dovetail.families.theta.paper.rivals import cfs_layout, ftj_layout, obt_layout, rbm_layout

__all__ = [
    "REMOVED",
    "Algorithm",
    "Layout",
    "Operator",
    "Values",
    "balance",
    "cross",
    "layout",
    "matches_per_pair",
    "queue",
]

Algorithm = Literal["prefap", "ftj", "cfs", "obt", "rbm"]
Dispatch = Literal["queue", "round_robin"]


def layout(
    algorithm: Algorithm,
    r: Values,
    s: Values,
    *,
    op: Operator,
    partitions: int = 10,
    window: int | None = None,
    prefilter: bool = True,
    amalgamate: bool = True,
    round_up: bool = False,
) -> Layout:
    """Lay two join columns out in partitions, and list the pairs of partitions that can match.

    Any two rows that satisfy ``r op s`` lie in exactly one of the pairs.

    Parameters
    ----------
    algorithm
        "prefap", "ftj" (FastThetaJoin), "cfs" (cross filter strategy), "obt" (1-Bucket-Theta) or "rbm"
        (range-based method).
    r, s
        The join columns.
    op
        "<", "<=", ">" or ">=".
    partitions
        How many partitions each stream is first cut into.
    window
        The window size behind the average partition size of Prefap and FTJ; the stream's size by default.
    prefilter, amalgamate
        Switch one of Prefap's two additions off.  The other algorithms have neither.
    round_up
        Round the spans of Prefap's and FTJ's repartitioning up to whole numbers, as A3.5 prints them.

    Examples
    --------
    >>> r, s = Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9])
    >>> [layout(name, r, s, op=">", partitions=2).products for name in ("prefap", "ftj", "cfs", "obt", "rbm")]
    [5, 8, 8, 16, 16]
    """
    if op not in get_args(Operator):
        raise choice("op", op, get_args(Operator))
    if partitions < 1:
        raise ArgumentError(f"partitions={partitions}", accepted="a whole number from 1")
    if window is not None and window < 1:
        raise ArgumentError(f"window={window}", accepted="a whole number from 1, or None")
    if algorithm == "prefap":
        return prefap_layout(
            r, s, op=op, partitions=partitions, window=window,
            prefilter=prefilter, amalgamate=amalgamate, round_up=round_up,
        )  # fmt: skip
    if algorithm == "ftj":
        return ftj_layout(r, s, op=op, partitions=partitions, window=window, round_up=round_up)
    if algorithm == "cfs":
        return cfs_layout(r, s, op=op, partitions=partitions)
    if algorithm == "obt":
        return obt_layout(r, s, op=op, partitions=partitions)
    if algorithm == "rbm":
        return rbm_layout(r, s, op=op, partitions=partitions)
    raise choice("algorithm", algorithm, get_args(Algorithm))


def cross(
    r_codes: Codes, s_codes: Codes, laid_out: Layout, op: Operator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Perform the Cartesian products of the surviving pairs and keep what satisfies `op` (A3.25 to A3.27).

    Returns
    -------
    The row numbers in R and in S of each match, pair of partitions by pair of partitions.

    Examples
    --------
    >>> r, s = Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9])
    >>> i, j = cross(r.codes, s.codes, layout("prefap", r, s, op=">"), ">")
    >>> list(zip(i.tolist(), j.tolist()))
    [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    """
    prepared = _prepare(r_codes, s_codes, laid_out, op)
    counts = _count(*prepared, laid_out.pairs, op in ("<", ">"))
    return _fill(*prepared, laid_out.pairs, op in ("<", ">"), counts)  # type: ignore[no-any-return]


def matches_per_pair(r_codes: Codes, s_codes: Codes, laid_out: Layout, op: Operator) -> npt.NDArray[np.int64]:
    """The number of matches in each surviving pair, by the same products as `cross`.

    Examples
    --------
    >>> r, s = Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9])
    >>> matches_per_pair(r.codes, s.codes, layout("rbm", r, s, op=">", partitions=2), ">").tolist()
    [0, 0, 4, 1]
    """
    prepared = _prepare(r_codes, s_codes, laid_out, op)
    return _count(*prepared, laid_out.pairs, op in ("<", ">"))  # type: ignore[no-any-return]


def balance(
    laid_out: Layout,
    processes: int = 4,
    *,
    matches: npt.NDArray[np.int64] | None = None,
    dispatch: Dispatch = "queue",
) -> tuple[float, float | None]:
    """The load balancing ratios of the paper's Table 2: the largest load over the average load.

    The paper states neither what an input load is nor how pairs reach processes.  Here the input of a pair
    is the rows it receives, ``|R_i| + |S_j|``, and a pair goes to the process that has the fewest products
    to do so far ("queue": what a pool of workers does) or to the processes in turn ("round_robin"), in the
    order of ``laid_out.pairs``.

    Parameters
    ----------
    laid_out
        The layout.
    processes
        How many processes share the pairs.
    matches
        The matches of each pair (see `matches_per_pair`), without which there is no output ratio.
    dispatch
        "queue" or "round_robin".

    Returns
    -------
    The ratio of the input and that of the output (None without `matches`).  1.0 is perfect, also where there
    is no load at all.

    Examples
    --------
    >>> r, s = Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9])
    >>> laid_out = layout("prefap", r, s, op=">", partitions=2)
    >>> balance(laid_out, 2, matches=matches_per_pair(r.codes, s.codes, laid_out, ">"))
    (1.25, 1.2)
    """
    if dispatch not in get_args(Dispatch):
        raise choice("dispatch", dispatch, get_args(Dispatch))
    if processes < 1:
        raise ArgumentError(f"processes={processes}", accepted="a whole number from 1")
    r_size, s_size = laid_out.r_sizes[laid_out.pairs[:, 0]], laid_out.s_sizes[laid_out.pairs[:, 1]]
    queued = dispatch == "queue"
    process = queue(r_size * s_size, processes) if queued else np.arange(len(laid_out.pairs)) % processes
    ratio_in = _ratio(np.bincount(process, r_size + s_size, processes).astype(np.float64))
    if matches is None:
        return ratio_in, None
    return ratio_in, _ratio(np.bincount(process, matches, processes).astype(np.float64))


def queue(work: npt.NDArray[np.int64], processes: int) -> npt.NDArray[np.int64]:
    """The process of each piece of work when each goes to the process with the least work so far.

    Examples
    --------
    >>> queue(np.array([5, 2, 2, 2, 1]), 2).tolist()
    [0, 1, 1, 1, 0]
    """
    load = [(0, process) for process in range(processes)]
    chosen = np.empty(len(work), np.int64)
    for at, amount in enumerate(work.tolist()):
        done, process = load[0]
        chosen[at] = process
        heapq.heapreplace(load, (done + amount, process))
    return chosen


def _ratio(load: npt.NDArray[np.float64]) -> float:
    total = float(load.sum())
    return float(load.max()) * len(load) / total if total > 0 else 1.0


def _prepare(
    r_codes: Codes, s_codes: Codes, laid_out: Layout, op: Operator
) -> tuple[Codes, npt.NDArray[np.int64], npt.NDArray[np.int64], Codes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Both sides with their partitions side by side, such that `op` becomes < or <=."""
    if op not in get_args(Operator):
        raise choice("op", op, get_args(Operator))
    # ~x is -x - 1: it turns the order round and, unlike -x, has no value that overflows.
    turn = np.int64(-1 if op in (">", ">=") else 0)
    r_rows, r_first = _grouped(laid_out.r_part, len(laid_out.r_bounds))
    s_rows, s_first = _grouped(laid_out.s_part, len(laid_out.s_bounds))
    return r_codes[r_rows] ^ turn, r_rows, r_first, s_codes[s_rows] ^ turn, s_rows, s_first


@njit
def _grouped(part: Parts, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The kept rows by partition, in their own order within it, and where each partition begins."""
    first = np.zeros(count + 1, np.int64)
    for row in range(len(part)):
        if part[row] >= 0:
            first[part[row] + 1] += 1
    for i in range(count):
        first[i + 1] += first[i]
    rows = np.empty(first[count], np.int64)
    free = first.copy()
    for row in range(len(part)):
        i = part[row]
        if i >= 0:
            rows[free[i]] = row
            free[i] += 1
    return rows, first


@njit
def _count(r_codes, r_rows, r_first, s_codes, s_rows, s_first, pairs, strict):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The matches of each pair.  The inner loop has no branch, so the compiler vectorises it."""
    counts = np.zeros(len(pairs), np.int64)
    for k in range(len(pairs)):
        i, j = pairs[k]
        inner = s_codes[s_first[j] : s_first[j + 1]]
        total = 0
        for x in range(r_first[i], r_first[i + 1]):
            r = r_codes[x]
            if strict:
                for y in range(len(inner)):
                    total += r < inner[y]
            else:
                for y in range(len(inner)):
                    total += r <= inner[y]
        counts[k] = total
    return counts


@njit
def _fill(r_codes, r_rows, r_first, s_codes, s_rows, s_first, pairs, strict, counts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The matches themselves.  Each comparison writes, and only a match moves on: no branch to mispredict."""
    total = counts.sum()
    # One place more, for the writes after the last match.
    r_out, s_out = np.empty(total + 1, np.int64), np.empty(total + 1, np.int64)
    at = 0
    for k in range(len(pairs)):
        if counts[k] == 0:
            continue
        i, j = pairs[k]
        begin, end = s_first[j], s_first[j + 1]
        for x in range(r_first[i], r_first[i + 1]):
            r, row = r_codes[x], r_rows[x]
            for y in range(begin, end):
                r_out[at] = row
                s_out[at] = s_rows[y]
                at += r < s_codes[y] if strict else r <= s_codes[y]
    return r_out[:total], s_out[:total]

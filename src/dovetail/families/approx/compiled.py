"""What all policies share, compiled: random numbers, chains of held rows, heaps, and the probe.

Rows of all inputs that take part in a call share one numbering: the rows held so far and the new ones.  Nothing moves
when a row enters or leaves memory; it is linked into the chain of its join value, or unlinked.

Functions that allocate nothing are compiled without reference counts (``_nrt=False``): Numba would count references at
every access to an array inside a tuple, which takes two to three times as long as the work itself.  What the loop over
arrivals calls is inlined into it (``forceinline=True``): a call would pass every field of every tuple, some hundred
words, and that alone took as long again as the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.hashing import GOLDEN, mixed
from dovetail.columns.numba_cache import njit
from dovetail.families.approx.spec import UNREPRESENTED

Index = npt.NDArray[np.int64]
Grid = npt.NDArray[np.int64]
Links = npt.NDArray[np.int32]
"""Row numbers within a call, in half the space: a probe follows them from row to row, and they should fit a cache."""

NOT_STARTED = -2
"""The depth of a probe that has not started."""


class Rows(NamedTuple):
    """Facts about rows, by row: input, chain, join value, stratum, random draw, cost in memory."""

    side: Index
    bucket: Index
    group: Index
    stratum: Index
    draw: Index
    cost: Index


class Axes(NamedTuple):
    """Comparisons: on axis d a row of `point[d]` has a coordinate, a row of `box[d]` an inclusive range."""

    point: Index
    box: Index
    coordinate: Grid
    low: Grid
    high: Grid


class Chains(NamedTuple):
    """Held rows by input and join value, doubly linked; -1 ends a chain."""

    head: Grid
    after: Links
    before: Links
    held: Index
    counts: Grid
    """Held rows by input and join value."""
    mixed: Index
    """One entry: 1 if a chain has rows of several join values."""


class Strata(NamedTuple):
    """Rows of each input and stratum: how many arrived, how many are held, and the two held ones with the least draws.

    ``mixed`` is 1 where rows of a stratum differ in what they match, because they have more than one join value or are
    compared in other ways, too.  ``arrived`` counts the rows of each input.  ``lost`` has one entry: 1 once the held
    rows no longer represent all that arrived, because a row was too large to be held or a stratum lost its last one.
    """

    seen: Grid
    kept: Grid
    least: Grid
    second: Grid
    mixed: Grid
    arrived: Index
    lost: Index


class Results(NamedTuple):
    """A chunk of results, with a line for each input: its row, and how that came to be held (empty if not asked for).

    ``weight`` says how many results of the complete join each stands for, ``arrival`` which arrival produced it,
    ``stratum`` its stratum, or `UNREPRESENTED`, and ``mixed`` whether one of its held rows is from a mixed one;
    ``counts`` is [results, comparisons].
    """

    rows: Grid
    seen: Grid
    kept: Grid
    arrived: Grid
    stratum: Index
    mixed: Index
    weight: npt.NDArray[np.float64]
    arrival: Index
    counts: Index


# --------------------------------------------------------------------------------------------------------------
# Random numbers.  A draw is a function of (seed, cell, input, arrival number) and of nothing else, so neither the
# division into micro-batches nor a restart can change a choice.
# --------------------------------------------------------------------------------------------------------------


@njit
def draws(seed: int, cell: int, side: int, numbers: Index) -> Index:  # pragma: no cover - compiled
    """A random number in [0, 2**63) for each arrival number."""
    key = mixed(np.uint64(seed) + GOLDEN)
    key = mixed(key ^ (np.uint64(cell) * GOLDEN + np.uint64(1)))
    key = mixed(key ^ (np.uint64(side) * GOLDEN + np.uint64(2)))
    out = np.empty(numbers.size, dtype=np.int64)
    for i in range(numbers.size):
        out[i] = np.int64(mixed(key + np.uint64(numbers[i] + 1) * GOLDEN) >> np.uint64(1))
    return out


@njit
def buckets_of(hashes: Index, count: int, salt: int) -> Index:  # pragma: no cover - compiled
    """A bucket in [0, count) for each hash; another salt gives another division of the same hashes."""
    out = np.empty(hashes.size, dtype=np.int64)
    for i in range(hashes.size):
        salted = mixed(np.uint64(hashes[i]) + np.uint64(salt) * GOLDEN)
        out[i] = np.int64(salted % np.uint64(count))
    return out


# --------------------------------------------------------------------------------------------------------------
# Chains.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def link(row: int, rows: Rows, chains: Chains) -> None:  # pragma: no cover - compiled
    """Put a row at the head of its chain."""
    s, b = rows.side[row], rows.bucket[row]
    first = chains.head[s, b]
    chains.after[row] = first
    chains.before[row] = -1
    if first >= 0:
        chains.before[first] = row
    chains.head[s, b] = row
    chains.held[row] = 1
    chains.counts[s, rows.group[row]] += 1


@njit(_nrt=False, forceinline=True)
def unlink(row: int, rows: Rows, chains: Chains) -> None:  # pragma: no cover - compiled
    """Take a row out of its chain."""
    before, after = chains.before[row], chains.after[row]
    if before >= 0:
        chains.after[before] = after
    else:
        chains.head[rows.side[row], rows.bucket[row]] = after
    if after >= 0:
        chains.before[after] = before
    chains.held[row] = 0
    chains.counts[rows.side[row], rows.group[row]] -= 1


# --------------------------------------------------------------------------------------------------------------
# Heaps of rows with the largest draw at the top; several of them share an array, each starting at its `begin`.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def sift_up(heap: Index, begin: int, at: int, draw: Index) -> None:  # pragma: no cover - compiled
    """Move the row at position `at` of a heap up to where it belongs; the largest draw is at the top."""
    row = heap[begin + at]
    while at > 0:
        above = (at - 1) // 2
        if draw[heap[begin + above]] >= draw[row]:
            break
        heap[begin + at] = heap[begin + above]
        at = above
    heap[begin + at] = row


@njit(_nrt=False, forceinline=True)
def pop(heap: Index, begin: int, size: int, draw: Index) -> int:  # pragma: no cover - compiled
    """Remove and return the row with the largest draw; the heap has one row fewer."""
    top: int = heap[begin]
    size -= 1
    row = heap[begin + size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and draw[heap[begin + below + 1]] > draw[heap[begin + below]]:
            below += 1
        if draw[heap[begin + below]] <= draw[row]:
            break
        heap[begin + at] = heap[begin + below]
        at = below
    heap[begin + at] = row
    return top


# --------------------------------------------------------------------------------------------------------------
# The probe.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def _all_hold(a: int, b: int, rows: Rows, axes: Axes) -> bool:  # pragma: no cover - compiled
    """Whether two rows of different inputs satisfy every comparison between them."""
    s, t = rows.side[a], rows.side[b]
    for d in range(axes.point.size):
        if axes.point[d] == s and axes.box[d] == t:
            x = axes.coordinate[d, a]
            if x < axes.low[d, b] or x > axes.high[d, b]:
                return False
        elif axes.point[d] == t and axes.box[d] == s:
            x = axes.coordinate[d, b]
            if x < axes.low[d, a] or x > axes.high[d, a]:
                return False
    return True


@njit(_nrt=False, forceinline=True)
def _record_sampling(at: int, s: int, h: int, strata: Strata, out: Results) -> None:  # pragma: no cover - compiled
    """Record how each row of a result came to be held; `s` is the input of the new one."""
    out.mixed[at] = 0
    for t in range(strata.arrived.size):
        out.seen[t, at] = 1 if t == s else strata.seen[t, h]
        out.kept[t, at] = 1 if t == s else strata.kept[t, h]
        out.arrived[t, at] = strata.arrived[t]
        if t != s and strata.mixed[t, h] == 1:
            out.mixed[at] = 1
    out.stratum[at] = h if strata.lost[0] == 0 else UNREPRESENTED


@njit(_nrt=False, forceinline=True)
def _pair_up(
    row: int, s: int, other: int, weight: float, number: int, chains: Chains, out: Results
) -> int:  # pragma: no cover - compiled
    """Pairs of a new row with a chain from `other` on; the row to continue with if the chunk is full, else -1.

    The most common join: two inputs, and every row of the chain matches.
    """
    pairs, after = out.rows, chains.after
    at = first = out.counts[0]
    while other >= 0 and at < out.arrival.size:
        pairs[s, at] = row
        pairs[1 - s, at] = other
        out.weight[at] = weight
        out.arrival[at] = number
        other = after[other]
        at += 1
    out.counts[0] = at
    out.counts[1] += at - first
    return other


@njit(_nrt=False, forceinline=True)
def probe(
    row: int, number: int, rows: Rows, axes: Axes, chains: Chains, strata: Strata, cursor: Index, out: Results
) -> bool:  # pragma: no cover - compiled
    """Results that a new row makes with what is held.  False if the chunk is full: call again to continue.

    `cursor` is the depth and, for each further input, the held row under consideration: nested loops that can be
    suspended and resumed.
    """
    sides = chains.head.shape[0]
    s, bucket, h = rows.side[row], rows.bucket[row], rows.stratum[row]
    last = sides - 2
    no_axes, scan = axes.point.size == 0, chains.mixed[0] == 1
    # Inputs are sampled independently, so the chances of a combination multiply.
    weight = 1.0
    for d in range(sides - 1):
        t = (s + 1 + d) % sides
        if strata.kept[t, h] > 0:
            weight *= strata.seen[t, h] / strata.kept[t, h]
    if cursor[0] == NOT_STARTED:
        cursor[0] = 0
        cursor[1] = chains.head[(s + 1) % sides, bucket]
    depth = cursor[0]
    if sides == 2 and no_axes and not scan and out.seen.size == 0:
        cursor[1] = _pair_up(row, s, cursor[1], weight, number, chains, out)
        cursor[0] = NOT_STARTED if cursor[1] < 0 else 0
        return bool(cursor[1] < 0)
    while depth >= 0:
        other = cursor[1 + depth]
        if other < 0:
            depth -= 1
            if depth >= 0:
                cursor[1 + depth] = chains.after[cursor[1 + depth]]
            continue
        # A chain holds one join value, unless rows are looked for as the paper does.
        matches = not scan or rows.group[other] == rows.group[row]
        if matches and not no_axes:
            matches = _all_hold(row, other, rows, axes)
            d = 0
            while matches and d < depth:
                matches = _all_hold(cursor[1 + d], other, rows, axes)
                d += 1
        if matches and depth < last:
            depth += 1
            cursor[1 + depth] = chains.head[(s + 1 + depth) % sides, bucket]
            continue
        if matches:
            at = out.counts[0]
            if at == out.arrival.size:
                cursor[0] = depth
                return False
            # The new row always takes part; the others do because they were kept.
            out.rows[s, at] = row
            for d in range(sides - 1):
                out.rows[(s + 1 + d) % sides, at] = cursor[1 + d]
            out.weight[at] = weight
            out.arrival[at] = number
            if out.seen.size:
                _record_sampling(at, s, h, strata, out)
            out.counts[0] = at + 1
        out.counts[1] += 1
        cursor[1 + depth] = chains.after[other]
    cursor[0] = NOT_STARTED
    return True

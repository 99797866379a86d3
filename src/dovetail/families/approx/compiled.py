"""What all policies share, compiled: random numbers, lists of held rows, the probe, and the division of memory.

Rows of all inputs that take part in a call have one number space: the rows held so far and the new ones.  Nothing moves
when a row enters or leaves memory; it is linked into the list of its join value, or unlinked.

Functions that allocate nothing are compiled without reference counts (``_nrt=False``): Numba would count references at
every access to an array inside a tuple, which takes two to three times as long as the work itself.  What the loop over
arrivals calls is put into it (``forceinline=True``): a call would hand over every field of every tuple, some hundred
words, and that alone took as long again as the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
Grid = npt.NDArray[np.int64]
Links = npt.NDArray[np.int32]
"""Row numbers within a call, in half the space: a probe follows them from row to row, and they should fit a cache."""

FRESH = -2
"""The depth of a probe that has not begun."""


class Rows(NamedTuple):
    """Facts about rows, by row: input, list, join value, stratum, random draw, cost in memory."""

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


class Lists(NamedTuple):
    """Held rows by input and join value, doubly linked; -1 ends a list."""

    head: Grid
    after: Links
    before: Links
    held: Index
    counts: Grid
    """Held rows by input and join value."""


class Room(NamedTuple):
    """Memory and what is known of each input.

    ``total`` is [limit, all inputs saturated]; most others have one entry per input: rows that asked for a place, rows
    that have one, the dearest row so far, the places it may fill, rows too large for any place.  ``peak`` is the most
    that was ever held: [rows, in the limit's unit].
    """

    total: Index
    seen: Index
    held: Index
    widest: Index
    places: Index
    peak: Index
    oversized: Index


class Tally(NamedTuple):
    """Rows of each input and stratum: how many arrived, how many are held, and the held one with the least draw."""

    seen: Grid
    kept: Grid
    least: Grid


class Out(NamedTuple):
    """A chunk of results, a line for each input: its row, and how that came to be held, unless nobody asks for it.

    ``weight`` says for how many results each stands; ``fill`` is [results, comparisons].
    """

    found: Grid
    seen: Grid
    kept: Grid
    same: Grid
    weight: npt.NDArray[np.float64]
    at: Index
    fill: Index


# --------------------------------------------------------------------------------------------------------------
# Random numbers.  A draw is a function of (seed, cell, input, arrival number) and of nothing else, so neither a cut
# into micro-batches nor a restart can change a choice.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def _mixed(value: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit
def draws(seed: int, cell: int, side: int, numbers: Index) -> Index:  # pragma: no cover - compiled
    """A random number in [0, 2**63) for each arrival number."""
    step = np.uint64(0x9E3779B97F4A7C15)
    key = _mixed(np.uint64(seed) + step)
    key = _mixed(key ^ (np.uint64(cell) * step + np.uint64(1)))
    key = _mixed(key ^ (np.uint64(side) * step + np.uint64(2)))
    out = np.empty(numbers.size, dtype=np.int64)
    for i in range(numbers.size):
        out[i] = np.int64(_mixed(key + np.uint64(numbers[i] + 1) * step) >> np.uint64(1))
    return out


@njit
def buckets_of(hashes: Index, count: int, salt: int) -> Index:  # pragma: no cover - compiled
    """A bucket in [0, count) for each hash; another salt gives another division of the same hashes."""
    out = np.empty(hashes.size, dtype=np.int64)
    for i in range(hashes.size):
        mixed = _mixed(np.uint64(hashes[i]) + np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15))
        out[i] = np.int64(mixed % np.uint64(count))
    return out


# --------------------------------------------------------------------------------------------------------------
# Lists.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def link(row: int, rows: Rows, lists: Lists) -> None:  # pragma: no cover - compiled
    """Put a row at the head of its list."""
    s, b = rows.side[row], rows.bucket[row]
    first = lists.head[s, b]
    lists.after[row] = first
    lists.before[row] = -1
    if first >= 0:
        lists.before[first] = row
    lists.head[s, b] = row
    lists.held[row] = 1
    lists.counts[s, rows.group[row]] += 1


@njit(_nrt=False, forceinline=True)
def unlink(row: int, rows: Rows, lists: Lists) -> None:  # pragma: no cover - compiled
    """Take a row out of its list."""
    before, after = lists.before[row], lists.after[row]
    if before >= 0:
        lists.after[before] = after
    else:
        lists.head[rows.side[row], rows.bucket[row]] = after
    if after >= 0:
        lists.before[after] = before
    lists.held[row] = 0
    lists.counts[rows.side[row], rows.group[row]] -= 1


# --------------------------------------------------------------------------------------------------------------
# Heaps of rows, the largest draw at the top; several of them share an array, each from its `begin`.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def sift_up(heap: Index, begin: int, at: int, draw: Index) -> None:  # pragma: no cover - compiled
    """Put the row at place `at` of a heap of rows right; the largest draw is at the top."""
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
    """The row with the largest draw; the heap has one row less."""
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
def _agree(a: int, b: int, rows: Rows, axes: Axes) -> bool:  # pragma: no cover - compiled
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
def _explain(
    at: int, s: int, h: int, group: int, lists: Lists, tally: Tally, out: Out
) -> None:  # pragma: no cover - compiled
    """Note how each row of a result came to be held; `s` is the input of the new one."""
    for t in range(lists.head.shape[0]):
        out.seen[t, at] = 1 if t == s else tally.seen[t, h]
        out.kept[t, at] = 1 if t == s else tally.kept[t, h]
        out.same[t, at] = 1 if t == s else lists.counts[t, group]


@njit(_nrt=False, forceinline=True)
def _pair_up(
    row: int, s: int, other: int, weight: float, number: int, lists: Lists, out: Out
) -> int:  # pragma: no cover - compiled
    """Pairs of a new row with a list from `other` on; where the chunk ends, the row to go on with, else -1.

    What most joins are: two inputs, and the list is the condition.
    """
    found, after = out.found, lists.after
    at = first = out.fill[0]
    while other >= 0 and at < out.at.size:
        found[s, at] = row
        found[1 - s, at] = other
        out.weight[at] = weight
        out.at[at] = number
        other = after[other]
        at += 1
    out.fill[0] = at
    out.fill[1] += at - first
    return other


@njit(_nrt=False, forceinline=True)
def probe(
    row: int, number: int, rows: Rows, axes: Axes, lists: Lists, tally: Tally, cursor: Index, out: Out
) -> bool:  # pragma: no cover - compiled
    """Results that a new row makes with what is held.  False if the chunk is full: call again to go on.

    `cursor` is the depth and, for each further input, the held row under consideration: nested loops that can be left
    and taken up.
    """
    sides = lists.head.shape[0]
    s, bucket, h = rows.side[row], rows.bucket[row], rows.stratum[row]
    last = sides - 2
    plain, scan = axes.point.size == 0, lists.head.shape[1] == 1
    # Inputs are sampled independently, so the chances of a combination multiply.
    weight = 1.0
    for d in range(sides - 1):
        t = (s + 1 + d) % sides
        if tally.kept[t, h] > 0:
            weight *= tally.seen[t, h] / tally.kept[t, h]
    if cursor[0] == FRESH:
        cursor[0] = 0
        cursor[1] = lists.head[(s + 1) % sides, bucket]
    depth = cursor[0]
    if sides == 2 and plain and not scan and out.seen.size == 0:
        cursor[1] = _pair_up(row, s, cursor[1], weight, number, lists, out)
        cursor[0] = FRESH if cursor[1] < 0 else 0
        return bool(cursor[1] < 0)
    while depth >= 0:
        other = cursor[1 + depth]
        if other < 0:
            depth -= 1
            if depth >= 0:
                cursor[1 + depth] = lists.after[cursor[1 + depth]]
            continue
        # A list holds one join value, unless there is a single list for all of them.
        good = not scan or rows.group[other] == rows.group[row]
        if good and not plain:
            good = _agree(row, other, rows, axes)
            d = 0
            while good and d < depth:
                good = _agree(cursor[1 + d], other, rows, axes)
                d += 1
        if good and depth < last:
            depth += 1
            cursor[1 + depth] = lists.head[(s + 1 + depth) % sides, bucket]
            continue
        if good:
            at = out.fill[0]
            if at == out.at.size:
                cursor[0] = depth
                return False
            # The new row takes part for certain; the others are there because they were kept.
            out.found[s, at] = row
            for d in range(sides - 1):
                out.found[(s + 1 + d) % sides, at] = cursor[1 + d]
            out.weight[at] = weight
            out.at[at] = number
            if out.seen.size:
                _explain(at, s, h, rows.group[row], lists, tally, out)
            out.fill[0] = at + 1
        out.fill[1] += 1
        cursor[1 + depth] = lists.after[other]
    cursor[0] = FRESH
    return True


# --------------------------------------------------------------------------------------------------------------
# The division of memory between the inputs.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False)
def share(room: Room) -> None:  # pragma: no cover - compiled
    """Divide memory anew: an input that needs less than an equal part leaves the rest to the others.

    The paper gives every input a fixed part.  That wastes what a small input does not need.  Here the level of an equal
    part falls as inputs grow, and never rises, so an input only ever has to give up places: a random sample stays one
    when it loses its rows with the largest draws, but it could not win back what it once let go.
    """
    sides = room.seen.size
    part = room.total[0] // sides
    for _ in range(sides):
        done = 0
        rest = room.total[0]
        for s in range(sides):
            need = room.seen[s] * room.widest[s]
            if need <= part:
                rest -= need
                done += 1
        if done == sides:
            part = room.total[0]
            break
        wider = rest // (sides - done)
        if wider <= part:
            break
        part = wider
    saturated = 1
    for s in range(sides):
        if room.widest[s] == 0 or room.seen[s] * room.widest[s] <= part:
            saturated = 0
        if room.widest[s] > 0:
            room.places[s] = part // room.widest[s]
    room.total[1] = saturated


@njit(_nrt=False, forceinline=True)
def arrive(row: int, rows: Rows, room: Room) -> bool:  # pragma: no cover - compiled
    """Count a row that asks for a place.  False if it is larger than an equal part of the memory."""
    s = rows.side[row]
    cost = rows.cost[row]
    if cost > room.total[0] // room.seen.size:
        room.oversized[s] += 1
        return False
    room.seen[s] += 1
    if cost > room.widest[s]:
        room.widest[s] = cost
        share(room)
    elif room.total[1] == 0:
        share(room)
    return True


@njit(_nrt=False, forceinline=True)
def measure(room: Room) -> None:  # pragma: no cover - compiled
    """Note how much is held, if it is more than ever."""
    count, cost = 0, 0
    for s in range(room.held.size):
        count += room.held[s]
        cost += room.held[s] * room.widest[s]
    room.peak[0] = max(room.peak[0], count)
    room.peak[1] = max(room.peak[1], cost)

"""Prob, ProbHash and ARRPJ, compiled: memory for the rows that promise the most results.

Held rows are in queues, one for each input and bucket of join values, and statistics are kept by bucket.  There are far
more buckets than values that matter, so a bucket stands for a value.

In the paper, Prob takes the chance that a row's value arrives on the other input as its priority, and fixes it when the
row arrives.  Nothing is known at the beginning, so early rows would keep a priority of zero for ever.  Here the
priority belongs to the queue and is read when a slot is needed, from all arrivals so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.approx.compiled import (
    Axes,
    Chains,
    Grid,
    Index,
    Results,
    Rows,
    Strata,
    link,
    pop,
    probe,
    sift_up,
    unlink,
)
from dovetail.families.approx.memory import Memory, count_arrival, record_peak

SHIFT = 17
BUCKETS = (1 << SHIFT) - 1
"""The low bits of an entry of a heap: the bucket."""

DONE, MORE, FULL = 0, 1, 2
"""Why a run returned: all rows have arrived, the chunk is full, or memory is full and has to be flushed."""

FLUSH = 20
"""ARRPJ discards one part in so many when memory is full."""


class Queues(NamedTuple):
    """Queues of held rows by input and bucket, and a heap of those queues for each input.

    An entry of a heap is the priority of a queue when it was last read, with its bucket in the low bits: the order must
    not depend on how the heap was built, which a restart changes.  Priorities never fall, so an entry is a lower bound,
    and only the one at the top has to be brought up to date.  ``position`` says where in its heap a queue is.
    ``by_draw`` is a heap of rows by draw, its size in ``by_draw_size``.
    """

    bucket: Index
    head: Grid
    after: Index
    before: Index
    sizes: Grid
    heap: Grid
    position: Grid
    used: Index
    arrived: Grid
    results: Index
    by_draw: Index
    by_draw_size: Index


@njit(_nrt=False, forceinline=True)
def _down(s: int, at: int, queues: Queues) -> None:  # pragma: no cover - compiled
    entry = queues.heap[s, at]
    size = queues.used[s]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and queues.heap[s, below + 1] < queues.heap[s, below]:
            below += 1
        least = queues.heap[s, below]
        if least >= entry:
            break
        queues.heap[s, at] = least
        queues.position[s, least & BUCKETS] = at
        at = below
    queues.heap[s, at] = entry
    queues.position[s, entry & BUCKETS] = at


@njit(_nrt=False, forceinline=True)
def _up(s: int, at: int, queues: Queues) -> None:  # pragma: no cover - compiled
    entry = queues.heap[s, at]
    while at > 0:
        above = queues.heap[s, (at - 1) // 2]
        if above <= entry:
            break
        queues.heap[s, at] = above
        queues.position[s, above & BUCKETS] = at
        at = (at - 1) // 2
    queues.heap[s, at] = entry
    queues.position[s, entry & BUCKETS] = at


@njit(_nrt=False, forceinline=True)
def _enqueue(
    row: int, rows: Rows, chains: Chains, memory: Memory, queues: Queues
) -> None:  # pragma: no cover - compiled
    s, b = rows.side[row], queues.bucket[row]
    link(row, rows, chains)
    memory.held[s] += 1
    first = queues.head[s, b]
    queues.after[row] = first
    queues.before[row] = -1
    if first >= 0:
        queues.before[first] = row
    queues.head[s, b] = row
    queues.sizes[s, b] += 1
    if queues.sizes[s, b] == 1:
        at = queues.used[s]
        queues.heap[s, at] = (queues.arrived[1 - s, b] << SHIFT) | b
        queues.used[s] = at + 1
        _up(s, at, queues)


@njit(_nrt=False, forceinline=True)
def _dequeue(
    row: int, rows: Rows, chains: Chains, memory: Memory, queues: Queues
) -> None:  # pragma: no cover - compiled
    s, b = rows.side[row], queues.bucket[row]
    unlink(row, rows, chains)
    memory.held[s] -= 1
    before, after = queues.before[row], queues.after[row]
    if before >= 0:
        queues.after[before] = after
    else:
        queues.head[s, b] = after
    if after >= 0:
        queues.before[after] = before
    queues.sizes[s, b] -= 1
    if queues.sizes[s, b] == 0:
        at, end = queues.position[s, b], queues.used[s] - 1
        queues.used[s] = end
        if at != end:
            queues.heap[s, at] = queues.heap[s, end]
            _up(s, at, queues)
            _down(s, queues.position[s, queues.heap[s, end] & BUCKETS], queues)


@njit(_nrt=False, forceinline=True)
def _lowest(s: int, queues: Queues) -> int:  # pragma: no cover - compiled
    """The queue of an input with the least priority, or -1."""
    while queues.used[s] > 0:
        entry = queues.heap[s, 0]
        b: int = entry & BUCKETS
        now = (queues.arrived[1 - s, b] << SHIFT) | b
        if entry == now:
            return b
        queues.heap[s, 0] = now
        _down(s, 0, queues)
    return -1


@njit(_nrt=False, forceinline=True)
def _promises_less(s: int, count: int, t: int, other: int, memory: Memory) -> bool:  # pragma: no cover - compiled
    """Whether `count` partners of a row of `s` are a smaller share than `other` partners of a row of `t`."""
    return bool(np.float64(count) * max(memory.seen[1 - t], 1) < np.float64(other) * max(memory.seen[1 - s], 1))


@njit(_nrt=False, forceinline=True)
def _exchange_by_draw(
    row: int, rows: Rows, chains: Chains, memory: Memory, queues: Queues
) -> None:  # pragma: no cover - compiled
    """A step of reservoir sampling: the row takes the place of the one with the largest draw, if its own is less."""
    s = rows.side[row]
    if memory.held[s] == 0:
        return
    if queues.by_draw_size[0] != memory.held[s]:
        queues.by_draw_size[0] = 0
        for b in range(queues.head.shape[1]):
            held = queues.head[s, b]
            while held >= 0:
                queues.by_draw[queues.by_draw_size[0]] = held
                sift_up(queues.by_draw, 0, queues.by_draw_size[0], rows.draw)
                queues.by_draw_size[0] += 1
                held = queues.after[held]
    if rows.draw[row] >= rows.draw[queues.by_draw[0]]:
        return
    _dequeue(pop(queues.by_draw, 0, queues.by_draw_size[0], rows.draw), rows, chains, memory, queues)
    _enqueue(row, rows, chains, memory, queues)
    queues.by_draw[queues.by_draw_size[0] - 1] = row
    sift_up(queues.by_draw, 0, queues.by_draw_size[0] - 1, rows.draw)


@njit(_nrt=False, forceinline=True)
def _find_slot(
    row: int, rows: Rows, chains: Chains, memory: Memory, queues: Queues, variable: bool
) -> None:  # pragma: no cover - compiled
    """Find a slot for a row, if it deserves one more than the row with the least priority."""
    s, b = rows.side[row], queues.bucket[row]
    cost = memory.row_cost[s]
    free = memory.limit[0] - memory.held[0] * memory.row_cost[0] - memory.held[1] * memory.row_cost[1]
    if (free >= cost) if variable else (memory.held[s] < memory.slots[s]):
        _enqueue(row, rows, chains, memory, queues)
        return
    if memory.seen[1 - s] == 0:
        # No row of the other input has arrived, so all priorities are unknown, not zero.  Until then, a uniform sample
        # is the best choice.
        _exchange_by_draw(row, rows, chains, memory, queues)
        return
    mine = queues.arrived[1 - s, b]
    if not variable and queues.used[s] > 0 and mine <= queues.heap[s, 0] >> SHIFT:
        return  # entries are lower bounds, so no row in memory promises less
    side, lowest = s, _lowest(s, queues)
    if variable:
        rival = _lowest(1 - s, queues)
        if lowest < 0 or (
            rival >= 0 and _promises_less(1 - s, queues.arrived[s, rival], s, queues.arrived[1 - s, lowest], memory)
        ):
            side, lowest = 1 - s, rival
    # The paper always takes the new row and discards the least promising one in memory.  A new row that promises less
    # than all of those would reduce the results, so it competes.  On a tie the row in memory stays.
    if lowest < 0 or not _promises_less(side, queues.arrived[1 - side, lowest], s, mine, memory):
        return
    _dequeue(queues.head[side, lowest], rows, chains, memory, queues)
    free = memory.limit[0] - memory.held[0] * memory.row_cost[0] - memory.held[1] * memory.row_cost[1]
    if not variable or free >= cost:
        _enqueue(row, rows, chains, memory, queues)


@njit(_nrt=False, forceinline=True)
def _shrink(
    rows: Rows, chains: Chains, memory: Memory, queues: Queues, shared: bool
) -> None:  # pragma: no cover - compiled
    """Enforce the limit after the division of memory has changed, or after a row more expensive than all before."""
    for s in range(2):
        while (not shared) and memory.held[s] > memory.slots[s]:
            _dequeue(queues.head[s, _lowest(s, queues)], rows, chains, memory, queues)
    while shared and memory.held[0] * memory.row_cost[0] + memory.held[1] * memory.row_cost[1] > memory.limit[0]:
        s = 0 if memory.held[0] * memory.row_cost[0] >= memory.held[1] * memory.row_cost[1] else 1
        _dequeue(queues.head[s, _lowest(s, queues)], rows, chains, memory, queues)


@njit
def flush(rows: Rows, chains: Chains, memory: Memory, queues: Queues) -> None:  # pragma: no cover - compiled
    """ARRPJ: discard a part of the memory, from the queues with the fewest results for each row that they hold."""
    size = queues.head.shape[1]
    rate = np.full(2 * size, np.inf)
    for s in range(2):
        for b in range(size):
            if queues.sizes[s, b] > 0:
                rate[s * size + b] = queues.results[b] / queues.sizes[s, b]
    wanted = max(1, (memory.held[0] + memory.held[1]) // FLUSH)
    for at in np.argsort(rate, kind="mergesort"):
        s, b = at // size, at % size
        while wanted > 0 and queues.sizes[s, b] > 0:
            _dequeue(queues.head[s, b], rows, chains, memory, queues)
            wanted -= 1
        if wanted == 0:
            return


@njit(_nrt=False)
def restore_queues(held: Index, rows: Rows, chains: Chains, memory: Memory, queues: Queues) -> None:  # pragma: no cover
    """Restore held rows in the order in which they were enqueued."""
    for row in held:
        _enqueue(row, rows, chains, memory, queues)


@njit(_nrt=False, forceinline=True)
def update_queues(
    row: int, again: bool, rows: Rows, chains: Chains, memory: Memory, queues: Queues, shared: bool, rates: bool
) -> int:  # pragma: no cover - compiled
    """Hold or drop a row that has been joined with what is held.

    FULL asks for a flush, and to be called `again` after it.
    """
    s = rows.side[row]
    if not again:
        queues.arrived[s, queues.bucket[row]] += 1
        if not count_arrival(row, rows, memory):
            return DONE
        _shrink(rows, chains, memory, queues, shared)
    if rates:
        used = memory.held[0] * memory.row_cost[0] + memory.held[1] * memory.row_cost[1] + memory.row_cost[s]
        if used > memory.limit[0] and not again:
            return FULL
        # Costs differ: one flush may not free enough for an expensive row, which then gets no slot.
        if used <= memory.limit[0]:
            _enqueue(row, rows, chains, memory, queues)
    else:
        _find_slot(row, rows, chains, memory, queues, shared)
    record_peak(memory)
    return DONE


@njit(_nrt=False)
def run_queues(
    state: Index,
    order: Index,
    first: int,
    rows: Rows,
    axes: Axes,
    chains: Chains,
    memory: Memory,
    strata: Strata,
    queues: Queues,
    shared: bool,
    rates: bool,
    cursor: Index,
    out: Results,
) -> int:  # pragma: no cover - compiled
    """Join arrivals until the chunk is full (MORE), ARRPJ has to flush (FULL), or all have arrived (DONE).

    ``state`` is [next arrival, 1 while a row waits for a flush]; `shared` says that both inputs compete for one memory,
    `rates` chooses ARRPJ.
    """
    while state[0] < order.size:
        row = order[state[0]]
        if state[1] == 0:
            b = queues.bucket[row]
            before = out.counts[0]
            complete = probe(row, first + state[0], rows, axes, chains, strata, cursor, out)
            queues.results[b] += out.counts[0] - before
            if not complete:
                return MORE
        why = update_queues(row, state[1] == 1, rows, chains, memory, queues, shared, rates)
        if why == FULL:
            state[1] = 1
            return FULL
        state[0] += 1
        state[1] = 0
    return DONE

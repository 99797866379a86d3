"""Prob, ProbHash and ARRPJ, compiled: memory for the rows that promise the most results.

Held rows lie in queues, one for each input and bucket of join values, and statistics are kept by bucket.  Buckets are
far more than the values that matter, so a bucket stands for a value.

Prob gives a row the chance that its value arrives on the other input as its priority, and fixes it when the row
arrives. Nothing is known then at the beginning, so early rows would keep a priority of zero for ever.  Here the
priority belongs to the queue and is read when a place is needed, from all arrivals so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.approx.compiled import (
    Axes,
    Grid,
    Index,
    Lists,
    Out,
    Room,
    Rows,
    Tally,
    arrive,
    link,
    measure,
    pop,
    probe,
    sift_up,
    unlink,
)

SHIFT = 17
BUCKETS = (1 << SHIFT) - 1
"""The low bits of an entry of a heap: the bucket."""

DONE, MORE, FULL = 0, 1, 2
"""Why a run came back: all rows have arrived, the chunk is full, memory is full and has to be flushed."""

FLUSH = 20
"""ARRPJ discards one part in so many when memory is full."""


class Queues(NamedTuple):
    """Queues of held rows by input and bucket, and a heap of those queues for each input.

    An entry of a heap is the priority of a queue when it was last looked at, with its bucket in the low bits: the
    order must not depend on how the heap came about, which a restart changes.  Priorities never fall, so an entry is a
    lower bound, and it is enough to put the one at the top right.  ``guess`` is a heap of rows by draw, its size in
    ``guesses``.
    """

    bucket: Index
    head: Grid
    after: Index
    before: Index
    sizes: Grid
    heap: Grid
    place: Grid
    used: Index
    arrived: Grid
    results: Index
    guess: Index
    guesses: Index


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
        queues.place[s, least & BUCKETS] = at
        at = below
    queues.heap[s, at] = entry
    queues.place[s, entry & BUCKETS] = at


@njit(_nrt=False, forceinline=True)
def _up(s: int, at: int, queues: Queues) -> None:  # pragma: no cover - compiled
    entry = queues.heap[s, at]
    while at > 0:
        above = queues.heap[s, (at - 1) // 2]
        if above <= entry:
            break
        queues.heap[s, at] = above
        queues.place[s, above & BUCKETS] = at
        at = (at - 1) // 2
    queues.heap[s, at] = entry
    queues.place[s, entry & BUCKETS] = at


@njit(_nrt=False, forceinline=True)
def _enqueue(row: int, rows: Rows, lists: Lists, room: Room, queues: Queues) -> None:  # pragma: no cover - compiled
    s, b = rows.side[row], queues.bucket[row]
    link(row, rows, lists)
    room.held[s] += 1
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
def _dequeue(row: int, rows: Rows, lists: Lists, room: Room, queues: Queues) -> None:  # pragma: no cover - compiled
    s, b = rows.side[row], queues.bucket[row]
    unlink(row, rows, lists)
    room.held[s] -= 1
    before, after = queues.before[row], queues.after[row]
    if before >= 0:
        queues.after[before] = after
    else:
        queues.head[s, b] = after
    if after >= 0:
        queues.before[after] = before
    queues.sizes[s, b] -= 1
    if queues.sizes[s, b] == 0:
        at, end = queues.place[s, b], queues.used[s] - 1
        queues.used[s] = end
        if at != end:
            queues.heap[s, at] = queues.heap[s, end]
            _up(s, at, queues)
            _down(s, queues.place[s, queues.heap[s, end] & BUCKETS], queues)


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
def _poorer(s: int, count: int, t: int, other: int, room: Room) -> bool:  # pragma: no cover - compiled
    """Whether `count` partners of a row of `s` are a smaller share than `other` partners of a row of `t`."""
    return bool(np.float64(count) * max(room.seen[1 - t], 1) < np.float64(other) * max(room.seen[1 - s], 1))


@njit(_nrt=False, forceinline=True)
def _exchange_by_draw(
    row: int, rows: Rows, lists: Lists, room: Room, queues: Queues
) -> None:  # pragma: no cover - compiled
    """A step of reservoir sampling: the row takes the place of the one with the largest draw, if its own is less."""
    s = rows.side[row]
    if room.held[s] == 0:
        return
    if queues.guesses[0] != room.held[s]:
        queues.guesses[0] = 0
        for b in range(queues.head.shape[1]):
            held = queues.head[s, b]
            while held >= 0:
                queues.guess[queues.guesses[0]] = held
                sift_up(queues.guess, 0, queues.guesses[0], rows.draw)
                queues.guesses[0] += 1
                held = queues.after[held]
    if rows.draw[row] >= rows.draw[queues.guess[0]]:
        return
    _dequeue(pop(queues.guess, 0, queues.guesses[0], rows.draw), rows, lists, room, queues)
    _enqueue(row, rows, lists, room, queues)
    queues.guess[queues.guesses[0] - 1] = row
    sift_up(queues.guess, 0, queues.guesses[0] - 1, rows.draw)


@njit(_nrt=False, forceinline=True)
def _place(
    row: int, rows: Rows, lists: Lists, room: Room, queues: Queues, variable: bool
) -> None:  # pragma: no cover - compiled
    """Find a place for a row, if it deserves one more than the row with the least priority."""
    s, b = rows.side[row], queues.bucket[row]
    cost = room.widest[s]
    free = room.total[0] - room.held[0] * room.widest[0] - room.held[1] * room.widest[1]
    if (free >= cost) if variable else (room.held[s] < room.places[s]):
        _enqueue(row, rows, lists, room, queues)
        return
    if room.seen[1 - s] == 0:
        # The other input has not begun, so all priorities are unknown, not zero.  Until it does, a uniform sample is
        # the best guess.
        _exchange_by_draw(row, rows, lists, room, queues)
        return
    mine = queues.arrived[1 - s, b]
    if not variable and queues.used[s] > 0 and mine <= queues.heap[s, 0] >> SHIFT:
        return  # entries are lower bounds, so nothing in memory promises less
    side, lowest = s, _lowest(s, queues)
    if variable:
        rival = _lowest(1 - s, queues)
        if lowest < 0 or (
            rival >= 0 and _poorer(1 - s, queues.arrived[s, rival], s, queues.arrived[1 - s, lowest], room)
        ):
            side, lowest = 1 - s, rival
    # The paper discards the least of the rows in memory and always takes the new one.  A new row that promises less
    # than all of them would lower the promise of the whole, so it competes.  On a tie the one that is there stays.
    if lowest < 0 or not _poorer(side, queues.arrived[1 - side, lowest], s, mine, room):
        return
    _dequeue(queues.head[side, lowest], rows, lists, room, queues)
    free = room.total[0] - room.held[0] * room.widest[0] - room.held[1] * room.widest[1]
    if not variable or free >= cost:
        _enqueue(row, rows, lists, room, queues)


@njit(_nrt=False, forceinline=True)
def _shrink(rows: Rows, lists: Lists, room: Room, queues: Queues, shared: bool) -> None:  # pragma: no cover - compiled
    """Keep the limit after the division of memory has changed, or after a row wider than all before."""
    for s in range(2):
        while (not shared) and room.held[s] > room.places[s]:
            _dequeue(queues.head[s, _lowest(s, queues)], rows, lists, room, queues)
    while shared and room.held[0] * room.widest[0] + room.held[1] * room.widest[1] > room.total[0]:
        s = 0 if room.held[0] * room.widest[0] >= room.held[1] * room.widest[1] else 1
        _dequeue(queues.head[s, _lowest(s, queues)], rows, lists, room, queues)


@njit
def flush(rows: Rows, lists: Lists, room: Room, queues: Queues) -> None:  # pragma: no cover - compiled
    """ARRPJ: discard a part of the memory, from the queues with the fewest results for each row that they hold."""
    size = queues.head.shape[1]
    rate = np.full(2 * size, np.inf)
    for s in range(2):
        for b in range(size):
            if queues.sizes[s, b] > 0:
                rate[s * size + b] = queues.results[b] / queues.sizes[s, b]
    wanted = max(1, (room.held[0] + room.held[1]) // FLUSH)
    for at in np.argsort(rate, kind="mergesort"):
        s, b = at // size, at % size
        while wanted > 0 and queues.sizes[s, b] > 0:
            _dequeue(queues.head[s, b], rows, lists, room, queues)
            wanted -= 1
        if wanted == 0:
            return


@njit(_nrt=False)
def restore_queues(held: Index, rows: Rows, lists: Lists, room: Room, queues: Queues) -> None:  # pragma: no cover
    """Take up held rows in the order in which they were enqueued."""
    for row in held:
        _enqueue(row, rows, lists, room, queues)


@njit(_nrt=False, forceinline=True)
def offer_to_queue(
    row: int, again: bool, rows: Rows, lists: Lists, room: Room, queues: Queues, shared: bool, rates: bool
) -> int:  # pragma: no cover - compiled
    """Hold a row that has met what is held, or let it go.  FULL asks for a flush, and to be called `again` after it."""
    s = rows.side[row]
    if not again:
        queues.arrived[s, queues.bucket[row]] += 1
        if not arrive(row, rows, room):
            return DONE
        _shrink(rows, lists, room, queues, shared)
    if rates:
        used = room.held[0] * room.widest[0] + room.held[1] * room.widest[1] + room.widest[s]
        if used > room.total[0] and not again:
            return FULL
        # Rows of unequal width: one flush may not free enough for a wide row, which then goes without a place.
        if used <= room.total[0]:
            _enqueue(row, rows, lists, room, queues)
    else:
        _place(row, rows, lists, room, queues, shared)
    measure(room)
    return DONE


@njit(_nrt=False)
def run_queues(
    state: Index,
    order: Index,
    first: int,
    rows: Rows,
    axes: Axes,
    lists: Lists,
    room: Room,
    tally: Tally,
    queues: Queues,
    shared: bool,
    rates: bool,
    cursor: Index,
    out: Out,
) -> int:  # pragma: no cover - compiled
    """Join arrivals until the chunk is full (MORE), ARRPJ has to flush (FULL), or all have arrived (DONE).

    ``state`` is [next arrival, 1 while a row waits for a flush]; `shared` memory is one for both inputs, `rates`
    chooses ARRPJ.
    """
    while state[0] < order.size:
        row = order[state[0]]
        if state[1] == 0:
            b = queues.bucket[row]
            before = out.fill[0]
            whole = probe(row, first + state[0], rows, axes, lists, tally, cursor, out)
            queues.results[b] += out.fill[0] - before
            if not whole:
                return MORE
        why = offer_to_queue(row, state[1] == 1, rows, lists, room, queues, shared, rates)
        if why == FULL:
            state[1] = 1
            return FULL
        state[0] += 1
        state[1] = 0
    return DONE

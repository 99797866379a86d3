"""RAJ, RAJHash, Prob and ProbHash as printed, compiled: which row leaves when memory is full.

The names in comments are the paper's: R a reservoir, n the rows that came to it, rho the random number, S the size of a
sub-reservoir; DP_X(k) discards k rows whenever memory is full.

What is mended, and nothing else is:

* Algorithms 1 and 2 print ``n < |R|`` and ``rho < |R|``.  That is a reservoir of one row less, and contradicts the text
  of 4.6 and the example of 4.6.1, where a reservoir of five holds five.  Both are ``<=`` here.
* Line 8 of Algorithm 2, ``i = rho mod S``, divides by zero where the sub-reservoir is empty.  The row then replaces the
  rho-th row of the whole reservoir, as line 11 of Algorithm 1 does.

A priority is the share of rows of the other stream that had the row's value when it arrived, and stays as it is (4.1:
whenever a tuple arrives, it is assigned one).  A new row is always held, however little it promises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit
from dovetail.families.approx.compiled import Axes, Chains, Grid, Index, Results, Rows, Strata, link, probe, unlink
from dovetail.families.approx.memory import Memory, record_peak

Floats = npt.NDArray[np.float64]


class Slots(NamedTuple):
    """Held rows by input and part: a sub-reservoir, or a priority queue, which is a heap with its first row at the top.

    By row: ``part``, ``bucket`` (of join values, by which arrivals are counted), ``priority``, ``order`` (what decides
    between equal priorities, least first) and ``arrival``.  Rows of part p of input s are in ``members`` from
    ``begin[s, p]`` on.  ``arrived`` and ``totals`` count arrivals by input and bucket, and by input.  ``settings``:
    k of DP_X(k), 1 if both inputs share the memory, 1 if arrivals are counted as rows come (0: they were known before),
    1 if the oldest of equal priorities leaves first (0: any).
    """

    part: Index
    members: Index
    begin: Grid
    sizes: Grid
    bucket: Index
    arrived: Grid
    totals: Index
    priority: Floats
    order: Index
    arrival: Index
    settings: Index


DISCARD, SHARED, LEARNS, BY_AGE = 0, 1, 2, 3
"""The settings."""


@njit(_nrt=False, forceinline=True)
def _insert(row: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots) -> int:  # pragma: no cover - compiled
    """Append a row to its part; its position there."""
    s, p = rows.side[row], slots.part[row]
    at: int = slots.sizes[s, p]
    slots.members[slots.begin[s, p] + at] = row
    slots.sizes[s, p] = at + 1
    memory.held[s] += 1
    link(row, rows, chains)
    return at


# --------------------------------------------------------------------------------------------------------------
# Algorithms 1 and 2.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False)
def _remove_nth(n: int, s: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots) -> None:  # pragma: no cover
    """Remove the n-th row of a reservoir, counted from 0 through its parts; the last of its part takes its place."""
    p = 0
    while n >= slots.sizes[s, p]:
        n -= slots.sizes[s, p]
        p += 1
    begin, last = slots.begin[s, p], slots.sizes[s, p] - 1
    unlink(slots.members[begin + n], rows, chains)
    slots.members[begin + n] = slots.members[begin + last]
    slots.sizes[s, p] = last
    memory.held[s] -= 1


@njit(_nrt=False, forceinline=True)
def update_sample(
    row: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots
) -> None:  # pragma: no cover - compiled
    """Algorithm 2 for a row that has been joined with what is held; Algorithm 1 is the case of one part."""
    s, h = rows.side[row], slots.part[row]
    memory.seen[s] += 1  # line 2
    n, size = memory.seen[s], memory.limit[0] // 2
    if n <= size:  # line 3
        _insert(row, rows, chains, memory, slots)  # line 4
        record_peak(memory)
        return
    rho = 1 + rows.draw[row] % n  # line 5
    if rho > size:  # line 6
        return  # line 10
    S = slots.sizes[s, h]  # line 7
    if S == 0:
        _remove_nth(rho - 1, s, rows, chains, memory, slots)
        _insert(row, rows, chains, memory, slots)
        return
    i = rho % S if slots.sizes.shape[1] > 1 else rho - 1  # line 8, or line 11 of Algorithm 1
    at = slots.begin[s, h] + i
    unlink(slots.members[at], rows, chains)  # line 9
    slots.members[at] = row
    link(row, rows, chains)


# --------------------------------------------------------------------------------------------------------------
# DP_X(k): priority queues.
# --------------------------------------------------------------------------------------------------------------


@njit(_nrt=False, forceinline=True)
def _before(a: int, b: int, slots: Slots) -> bool:  # pragma: no cover - compiled
    """Whether row `a` leaves before row `b`."""
    if slots.priority[a] != slots.priority[b]:
        return bool(slots.priority[a] < slots.priority[b])
    return bool(slots.order[a] < slots.order[b])


@njit(_nrt=False, forceinline=True)
def _enqueue(row: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots) -> None:  # pragma: no cover
    at = _insert(row, rows, chains, memory, slots)
    begin = slots.begin[rows.side[row], slots.part[row]]
    while at > 0:
        above = (at - 1) // 2
        if not _before(row, slots.members[begin + above], slots):
            break
        slots.members[begin + at] = slots.members[begin + above]
        at = above
    slots.members[begin + at] = row


@njit(_nrt=False, forceinline=True)
def _dequeue(s: int, p: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots) -> None:  # pragma: no cover
    """Discard the first row of a queue."""
    begin, size = slots.begin[s, p], slots.sizes[s, p] - 1
    unlink(slots.members[begin], rows, chains)
    memory.held[s] -= 1
    slots.sizes[s, p] = size
    row = slots.members[begin + size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _before(slots.members[begin + below + 1], slots.members[begin + below], slots):
            below += 1
        if not _before(slots.members[begin + below], row, slots):
            break
        slots.members[begin + at] = slots.members[begin + below]
        at = below
    slots.members[begin + at] = row


@njit(_nrt=False, forceinline=True)
def _discard(s: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots) -> bool:  # pragma: no cover - compiled
    """Discard the row that leaves first: of input `s`, or of both if they share the memory.  False if none is held.

    As in 4.4, the first rows of all queues are looked at.
    """
    queue, least = -1, -1
    for t in range(2):
        if t != s and slots.settings[SHARED] == 0:
            continue
        for p in range(slots.sizes.shape[1]):
            if slots.sizes[t, p] > 0:
                row = slots.members[slots.begin[t, p]]
                if least < 0 or _before(row, least, slots):
                    queue, least = p, row
    if least < 0:
        return False
    _dequeue(rows.side[least], queue, rows, chains, memory, slots)
    return True


@njit(_nrt=False, forceinline=True)
def update_priority(
    row: int, number: int, rows: Rows, chains: Chains, memory: Memory, slots: Slots
) -> None:  # pragma: no cover - compiled
    """Prob and ProbHash for a row that has been joined with what is held; it is the arrival `number`."""
    s, b = rows.side[row], slots.bucket[row]
    memory.seen[s] += 1
    if slots.settings[LEARNS] == 1:
        slots.arrived[s, b] += 1
        slots.totals[s] += 1
    slots.priority[row] = slots.arrived[1 - s, b] / max(slots.totals[1 - s], 1)
    slots.arrival[row] = number
    slots.order[row] = number if slots.settings[BY_AGE] == 1 else rows.draw[row]
    shared = slots.settings[SHARED] == 1
    limit = memory.limit[0] if shared else memory.limit[0] // 2
    if limit == 0:
        return
    if (memory.held[0] + memory.held[1] if shared else memory.held[s]) >= limit:
        wanted = slots.settings[DISCARD]
        while wanted > 0 and _discard(s, rows, chains, memory, slots):
            wanted -= 1
    _enqueue(row, rows, chains, memory, slots)
    record_peak(memory)


@njit(_nrt=False)
def restore_slots(held: Index, rows: Rows, chains: Chains, memory: Memory, slots: Slots) -> None:  # pragma: no cover
    """Put held rows back, in the order in which their parts had them: a heap is one as it is."""
    for row in held:
        _insert(row, rows, chains, memory, slots)


@njit(_nrt=False)
def run_printed(
    state: Index,
    order: Index,
    first: int,
    rows: Rows,
    axes: Axes,
    chains: Chains,
    memory: Memory,
    strata: Strata,
    slots: Slots,
    samples: bool,
    cursor: Index,
    out: Results,
) -> bool:  # pragma: no cover - compiled
    """Join arrivals until the chunk is full (False) or all have arrived (True); RAJ and RAJHash if `samples`."""
    while state[0] < order.size:
        row = order[state[0]]
        number = first + state[0]
        if not probe(row, number, rows, axes, chains, strata, cursor, out):
            return False
        state[0] += 1
        if samples:
            update_sample(row, rows, chains, memory, slots)
        else:
            update_priority(row, number, rows, chains, memory, slots)
    return True

"""RAJ and RAJHash, compiled: reservoirs in strata.

Both keep, of every input, the rows with the smallest draws.  That is reservoir sampling (Algorithm 1) with the random
number fixed when a row arrives: the held rows are a uniform sample of the rows seen, whatever the order of arrival, and
they remain one when the reservoir has to shrink.  RAJHash (Algorithm 2) also divides the rows into strata by the hash
of their join value and never takes the last rows of a stratum.  RAJ is the case of one stratum.

How this differs from Algorithm 2, and why:

* The sample at any moment is: of every stratum the two rows with the least draws, and of all other rows those with the
  least draws, as many as there are slots.  (Two, since a single row would not show how rows differ.)  This does not
  depend on the order of arrival, so the rows of a stratum are exchangeable: given that `kept` of the `seen` rows of a
  stratum are held, each of them is held with the chance kept / seen.  That is what the paper says of its
  sub-reservoirs; as printed, with the chance |R| / n for all strata, it holds only where the shares of the strata never
  change.
* Strata share the slots in proportion to their rows, since one threshold of draws applies to all.  The paper's
  sub-reservoirs keep the sizes that they have when memory fills up.
* A stratum that first appears when memory is full (as printed, a division by zero) gets a slot, as a stratum
  without rows always does, and the row with the largest draw elsewhere is evicted.
"""

from __future__ import annotations

from dovetail.columns.numba_cache import njit
from dovetail.families.approx.compiled import (
    Axes,
    Chains,
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

NONE, ANY = -1, -2
"""In place of the row that leaves: no row does, or the one with the largest draw of all."""


@njit(_nrt=False, forceinline=True)
def _hold(
    row: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Hold a row.  The two rows of a stratum with the least draws are not in the heap, so that nothing evicts them."""
    s, h = rows.side[row], rows.stratum[row]
    link(row, rows, chains)
    memory.held[s] += 1
    strata.kept[s, h] += 1
    least = strata.least[s, h]
    if least < 0:
        strata.least[s, h] = row
        return
    if rows.draw[row] < rows.draw[least]:
        strata.least[s, h] = row
        row = least
    second = strata.second[s, h]
    if second < 0:
        strata.second[s, h] = row
        return
    if rows.draw[row] < rows.draw[second]:
        strata.second[s, h] = row
        row = second
    heap[begin[s] + sizes[s]] = row
    sift_up(heap, begin[s], sizes[s], rows.draw)
    sizes[s] += 1


@njit(_nrt=False, forceinline=True)
def _release(
    row: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata
) -> None:  # pragma: no cover - compiled
    """Evict a row that is not in the heap, or no longer."""
    s, h = rows.side[row], rows.stratum[row]
    if strata.second[s, h] == row:
        strata.second[s, h] = -1
    elif strata.least[s, h] == row:
        strata.least[s, h] = strata.second[s, h]
        strata.second[s, h] = -1
    unlink(row, rows, chains)
    memory.held[s] -= 1
    strata.kept[s, h] -= 1


@njit(_nrt=False)
def _largest(candidates: Index, draw: Index) -> int:  # pragma: no cover - compiled
    """The row with the largest draw among one row of each stratum, or -1."""
    row = -1
    for candidate in candidates:
        if candidate >= 0 and (row < 0 or draw[candidate] > draw[row]):
            row = candidate
    return row


@njit(_nrt=False, forceinline=True)
def _evict(
    s: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Evict the row with the largest draw among those that are not the last two of their stratum."""
    if sizes[s] > 0:
        row = pop(heap, begin[s], sizes[s], rows.draw)
        sizes[s] -= 1
    else:
        # Fewer slots than two for each stratum: that happens only where rows are far wider than expected.  The limit
        # takes precedence over the last rows of a stratum.
        row = _largest(strata.second[s], rows.draw)
        if row < 0:
            row = _largest(strata.least[s], rows.draw)
            strata.lost[0] = 1
    _release(row, rows, chains, memory, strata)


@njit(_nrt=False)
def restore_reservoirs(
    held: Index, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Restore held rows, in any order."""
    for row in held:
        _hold(row, rows, chains, memory, strata, heap, begin, sizes)
    for s in range(memory.held.size):
        if memory.oversized[s] > 0:
            strata.lost[0] = 1
        # Slots never become more, so a stratum has lost its last row exactly if there are fewer of them than strata.
        filled = 0
        for h in range(strata.seen.shape[1]):
            filled += strata.seen[s, h] > 0
        if memory.row_cost[s] > 0 and memory.slots[s] < filled:
            strata.lost[0] = 1


@njit(_nrt=False, forceinline=True)
def _leaver(
    row: int, rows: Rows, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> int:  # pragma: no cover - compiled
    """Which row of its own stratum a new row replaces when memory is full: `ANY` other one leaves, or `NONE` does.

    The held rows of a stratum are always those with its least draws, so a row that another one of the stratum was
    dropped for must not enter.
    """
    s, h = rows.side[row], rows.stratum[row]
    least, second = strata.least[s, h], strata.second[s, h]
    draw = rows.draw[row]
    if least < 0:
        return ANY
    last: int = second if second >= 0 else least
    if sizes[s] == 0:
        return last if draw < rows.draw[last] else NONE
    top = rows.draw[heap[begin[s]]]
    if second < 0:
        complete = strata.seen[s, h] - 1 == strata.kept[s, h]
        return ANY if complete or draw < rows.draw[least] or draw < top else NONE
    if draw < rows.draw[second]:
        # It takes the place of the second, which may now have the largest draw of all.
        return second if rows.draw[second] > top else ANY
    return ANY if draw < top else NONE


@njit(_nrt=False, forceinline=True)
def update_reservoir(
    row: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Hold or drop a row that has been joined with what is held: Algorithm 2."""
    s, h = rows.side[row], rows.stratum[row]
    strata.arrived[s] += 1
    # A row that is too large to be held has arrived all the same.
    strata.seen[s, h] += 1
    least = strata.least[s, h]
    if least >= 0 and rows.group[row] != rows.group[least]:
        strata.mixed[s, h] = 1
    if not count_arrival(row, rows, memory):
        strata.lost[0] = 1
        return
    for t in range(memory.held.size):
        while memory.held[t] > memory.slots[t]:
            _evict(t, rows, chains, memory, strata, heap, begin, sizes)
    # Lines 3 to 4 (and 5 to 6 of Algorithm 1): printed with n < |R|, which would leave the last slot empty.
    if memory.held[s] >= memory.slots[s]:
        # Lines 5 to 10.  As printed, rho < |R| of 1..n accepts with the chance (|R| - 1) / n, one short, and rho mod S
        # prefers some rows of a sub-reservoir.  A draw among the |R| least of n has the chance |R| / n.
        leaver = _leaver(row, rows, strata, heap, begin, sizes)
        if leaver == NONE or memory.slots[s] == 0:
            return
        # The old row leaves first, so that the limit holds at every moment.
        if leaver == ANY:
            _evict(s, rows, chains, memory, strata, heap, begin, sizes)
        else:
            _release(leaver, rows, chains, memory, strata)
    _hold(row, rows, chains, memory, strata, heap, begin, sizes)
    record_peak(memory)


@njit(_nrt=False)
def run_reservoirs(
    state: Index,
    order: Index,
    first: int,
    rows: Rows,
    axes: Axes,
    chains: Chains,
    memory: Memory,
    strata: Strata,
    heap: Index,
    begin: Index,
    sizes: Index,
    cursor: Index,
    out: Results,
) -> bool:  # pragma: no cover - compiled
    """Join and sample arrivals until the chunk is full (False) or all have arrived (True).

    ``state`` is [next arrival]; `first` is the number of arrivals before this call.
    """
    while state[0] < order.size:
        row = order[state[0]]
        if not probe(row, first + state[0], rows, axes, chains, strata, cursor, out):
            return False
        state[0] += 1
        update_reservoir(row, rows, chains, memory, strata, heap, begin, sizes)
    return True

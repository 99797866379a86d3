"""RAJ and RAJHash, compiled: reservoirs in strata.

Both keep, of every input, the rows with the smallest draws.  That is reservoir sampling (Algorithm 1) with the random
number fixed when a row arrives: the held rows are a uniform sample of the rows seen, whatever the order of arrival, and
they remain one when the reservoir has to shrink.  RAJHash (Algorithm 2) also divides the rows into strata by the hash
of their join value and never takes the last row of a stratum.  RAJ is the case of one stratum.

How this differs from Algorithm 2, and why:

* The sample at any moment is: of every stratum the row with the least draw, and of all other rows those with the
  least draws, as many as there are slots.  This does not depend on the order of arrival, so the rows of a stratum are
  exchangeable: given that `kept` of the `seen` rows of a stratum are held, each of them is held with the chance kept /
  seen.  That is what the paper says of its sub-reservoirs; as printed, with the chance |R| / n for all strata, it holds
  only where the shares of the strata never change.
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
    Memory,
    Results,
    Rows,
    Strata,
    count_arrival,
    link,
    pop,
    probe,
    record_peak,
    sift_up,
    unlink,
)


@njit(_nrt=False, forceinline=True)
def _hold(
    row: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Hold a row.  The row with the least draw of its stratum is kept out of the heap, so that nothing evicts it."""
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
    heap[begin[s] + sizes[s]] = row
    sift_up(heap, begin[s], sizes[s], rows.draw)
    sizes[s] += 1


@njit(_nrt=False, forceinline=True)
def _evict(
    s: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Evict the row with the largest draw among those that are not the last of their stratum."""
    row = -1
    if sizes[s] > 0:
        row = pop(heap, begin[s], sizes[s], rows.draw)
        sizes[s] -= 1
    else:
        # Fewer slots than strata: that happens only where rows become far more expensive than they were at first.  The
        # limit takes precedence over the last row of a stratum.
        for h in range(strata.least.shape[1]):
            least = strata.least[s, h]
            if least >= 0 and (row < 0 or rows.draw[least] > rows.draw[row]):
                row = least
        strata.least[s, rows.stratum[row]] = -1
    unlink(row, rows, chains)
    memory.held[s] -= 1
    strata.kept[s, rows.stratum[row]] -= 1


@njit(_nrt=False)
def restore_reservoirs(
    held: Index, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Restore held rows, in any order."""
    for row in held:
        _hold(row, rows, chains, memory, strata, heap, begin, sizes)


@njit(_nrt=False, forceinline=True)
def _exchange(
    row: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Replace a held row by a new one; the old row leaves first, so that the limit holds."""
    s, h = rows.side[row], rows.stratum[row]
    if memory.slots[s] == 0:
        return
    least = strata.least[s, h]
    if sizes[s] == 0 and least >= 0:
        # All held rows are the last of their strata, and this one has a smaller draw than the last of its own.
        strata.least[s, h] = -1
        unlink(least, rows, chains)
        memory.held[s] -= 1
        strata.kept[s, h] -= 1
    elif least >= 0 and rows.draw[row] < rows.draw[least] and rows.draw[least] > rows.draw[heap[begin[s]]]:
        # The row that it replaces as the last of the stratum has the largest draw of all.
        strata.least[s, h] = -1
        unlink(least, rows, chains)
        memory.held[s] -= 1
        strata.kept[s, h] -= 1
    else:
        _evict(s, rows, chains, memory, strata, heap, begin, sizes)
    _hold(row, rows, chains, memory, strata, heap, begin, sizes)


@njit(_nrt=False, forceinline=True)
def update_reservoir(
    row: int, rows: Rows, chains: Chains, memory: Memory, strata: Strata, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Hold or drop a row that has been joined with what is held: Algorithm 2."""
    if not count_arrival(row, rows, memory):
        return
    s, h = rows.side[row], rows.stratum[row]
    strata.seen[s, h] += 1
    for t in range(memory.held.size):
        while memory.held[t] > memory.slots[t]:
            _evict(t, rows, chains, memory, strata, heap, begin, sizes)
    # Lines 3 to 4 (and 5 to 6 of Algorithm 1): printed with n < |R|, which would leave the last slot empty.
    if memory.held[s] < memory.slots[s]:
        _hold(row, rows, chains, memory, strata, heap, begin, sizes)
    else:
        # Lines 5 to 10.  As printed, rho < |R| of 1..n accepts with the chance (|R| - 1) / n, one short, and rho mod S
        # prefers some rows of a sub-reservoir.  A draw among the |R| least of n has the chance |R| / n.
        least = strata.least[s, h]
        too_large = sizes[s] == 0 or rows.draw[row] > rows.draw[heap[begin[s]]]
        if least >= 0 and rows.draw[row] > rows.draw[least] and too_large:
            return
        _exchange(row, rows, chains, memory, strata, heap, begin, sizes)
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

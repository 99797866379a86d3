"""RAJ and RAJHash, compiled: reservoirs in strata.

Both keep, of every input, the rows with the smallest draws.  That is reservoir sampling (Algorithm 1) with the random
number fixed when a row arrives: the held rows are a uniform sample of the rows seen, whatever the order of arrival, and
they stay one when the reservoir has to shrink.  RAJHash (Algorithm 2) also divides the rows into strata by the hash of
their join value and never takes the last row of a stratum.  RAJ is the case of one stratum.

What becomes of Algorithm 2, and why:

* The sample at any moment is: of every stratum the row with the least draw, and of all other rows those with the
  least draws, as many as there are places.  This does not depend on the order of arrival, so the rows of a stratum are
  exchangeable: given that `kept` of the `seen` rows of a stratum are held, each of them is held with the chance kept /
  seen.  That is what the paper says of its sub-reservoirs; printed as it is, with the chance |R| / n for all strata,
  it holds only where shares never drift.
* Strata share the places in proportion to their rows, since one threshold of draws rules them all.  The paper's
  sub-reservoirs keep the sizes that they have when memory fills up.
* A stratum that first appears when memory is full (as printed, a division by zero) gets a place, as a stratum
  without rows always does, and the row with the largest draw elsewhere leaves.
"""

from __future__ import annotations

from dovetail.columns.numba_cache import njit
from dovetail.families.approx.compiled import (
    Axes,
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


@njit(_nrt=False, forceinline=True)
def _admit(
    row: int, rows: Rows, lists: Lists, room: Room, tally: Tally, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Hold a row.  The row with the least draw of its stratum stays outside the heap, where nothing evicts it."""
    s, h = rows.side[row], rows.stratum[row]
    link(row, rows, lists)
    room.held[s] += 1
    tally.kept[s, h] += 1
    least = tally.least[s, h]
    if least < 0:
        tally.least[s, h] = row
        return
    if rows.draw[row] < rows.draw[least]:
        tally.least[s, h] = row
        row = least
    heap[begin[s] + sizes[s]] = row
    sift_up(heap, begin[s], sizes[s], rows.draw)
    sizes[s] += 1


@njit(_nrt=False, forceinline=True)
def _evict(
    s: int, rows: Rows, lists: Lists, room: Room, tally: Tally, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Let go of the row with the largest draw among those that are not the last of their stratum."""
    row = -1
    if sizes[s] > 0:
        row = pop(heap, begin[s], sizes[s], rows.draw)
        sizes[s] -= 1
    else:
        # Fewer places than strata: that happens only where rows grow far wider than they were at first.  The limit
        # comes before the last row of a stratum.
        for h in range(tally.least.shape[1]):
            least = tally.least[s, h]
            if least >= 0 and (row < 0 or rows.draw[least] > rows.draw[row]):
                row = least
        tally.least[s, rows.stratum[row]] = -1
    unlink(row, rows, lists)
    room.held[s] -= 1
    tally.kept[s, rows.stratum[row]] -= 1


@njit(_nrt=False)
def restore_reservoirs(
    held: Index, rows: Rows, lists: Lists, room: Room, tally: Tally, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Take up held rows, in any order."""
    for row in held:
        _admit(row, rows, lists, room, tally, heap, begin, sizes)


@njit(_nrt=False, forceinline=True)
def _make_way(
    row: int, rows: Rows, lists: Lists, room: Room, tally: Tally, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Exchange: the row that leaves goes first."""
    s, h = rows.side[row], rows.stratum[row]
    if room.places[s] == 0:
        return
    least = tally.least[s, h]
    if sizes[s] == 0 and least >= 0:
        # All held rows are the last of their strata, and this one has a smaller draw than the last of its own.
        tally.least[s, h] = -1
        unlink(least, rows, lists)
        room.held[s] -= 1
        tally.kept[s, h] -= 1
    elif least >= 0 and rows.draw[row] < rows.draw[least] and rows.draw[least] > rows.draw[heap[begin[s]]]:
        # The row that it replaces as the last of the stratum has the largest draw of all.
        tally.least[s, h] = -1
        unlink(least, rows, lists)
        room.held[s] -= 1
        tally.kept[s, h] -= 1
    else:
        _evict(s, rows, lists, room, tally, heap, begin, sizes)
    _admit(row, rows, lists, room, tally, heap, begin, sizes)


@njit(_nrt=False, forceinline=True)
def offer_to_reservoir(
    row: int, rows: Rows, lists: Lists, room: Room, tally: Tally, heap: Index, begin: Index, sizes: Index
) -> None:  # pragma: no cover - compiled
    """Hold a row that has met what is held, or let it go: Algorithm 2."""
    if not arrive(row, rows, room):
        return
    s, h = rows.side[row], rows.stratum[row]
    tally.seen[s, h] += 1
    for t in range(room.held.size):
        while room.held[t] > room.places[t]:
            _evict(t, rows, lists, room, tally, heap, begin, sizes)
    # Lines 3 to 4 (and 5 to 6 of Algorithm 1): printed with n < |R|, which would leave the last place empty.
    if room.held[s] < room.places[s]:
        _admit(row, rows, lists, room, tally, heap, begin, sizes)
    else:
        # Lines 5 to 10.  As printed, rho < |R| of 1..n accepts with the chance (|R| - 1) / n, one short, and rho mod S
        # prefers some rows of a sub-reservoir.  A draw among the |R| least of n has the chance |R| / n.
        least = tally.least[s, h]
        late = sizes[s] == 0 or rows.draw[row] > rows.draw[heap[begin[s]]]
        if least >= 0 and rows.draw[row] > rows.draw[least] and late:
            return
        # Room first, then the row: memory holds the limit at every moment.
        _make_way(row, rows, lists, room, tally, heap, begin, sizes)
    measure(room)


@njit(_nrt=False)
def run_reservoirs(
    state: Index,
    order: Index,
    first: int,
    rows: Rows,
    axes: Axes,
    lists: Lists,
    room: Room,
    tally: Tally,
    heap: Index,
    begin: Index,
    sizes: Index,
    cursor: Index,
    out: Out,
) -> bool:  # pragma: no cover - compiled
    """Join and sample arrivals until the chunk is full (False) or all have arrived (True).

    ``state`` is [next arrival]; `first` is the number of arrivals before this call.
    """
    while state[0] < order.size:
        row = order[state[0]]
        if not probe(row, first + state[0], rows, axes, lists, tally, cursor, out):
            return False
        state[0] += 1
        offer_to_reservoir(row, rows, lists, room, tally, heap, begin, sizes)
    return True

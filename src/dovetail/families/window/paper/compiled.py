"""The compiled loops of the W-join paper's algorithms, of which :mod:`dovetail.families.window.paper.algorithms`
says what they are for.

:func:`probe` takes one arriving row after another and joins it with the buffers of the other inputs: by a scan (nested
loop, NLW-join) or along a hash chain (HW-join).  The sweep of the merge join has a module of its own and shares the
rest.  Both keep their position in arrays of the caller, so that a caller may run them in slices and time each.

The loops are long because calls are expensive: Numba counts the references to every array that a call is given up and
down again, which takes longer than all else that happens to a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.hashing import GOLDEN
from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
Matches = tuple[Index, int]
"""Matches, a row of row numbers each, and how many of these rows are filled."""

LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max

WINDOW, PREDICATE, REFINED, REFUSED, EVICTED, RESULTS, IDLE = range(7)
"""Indices into the array of counters: window tests, predicate tests, refinements, those that failed, rows dropped,
matches, rows that needed no join because an input had nothing to offer (Mode 1)."""
COUNTERS = 7


class Rows(NamedTuple):
    """All inputs, one after the other, and the conditions between them.

    ``clauses[begin[j]:begin[j + 1]]`` are those of input j: whether it has the point, the other input, and where in
    `values` the points, the low ends and the high ends begin.
    """

    times: Index
    groups: Index
    offset: Index
    begin: Index
    clauses: Index
    values: Index


class Limits(NamedTuple):
    """The filter: a row of j is looked for within [low[i, j], high[i, j]] of a row of i; what the refinement asks for.

    `exact` has the shape (alternatives, n, n, 2); a match satisfies one of them.  A row of j is of no use any more to
    rows later than its time plus reach[j].
    """

    low: Index
    high: Index
    reach: Index
    exact: Index
    refine: bool


class Table(NamedTuple):
    """Hash tables of all inputs: chains in order of arrival.  All of it is -1 at first: no row, and no row after it."""

    head: Index
    tail: Index
    link: Index
    shift: int


PURGED = 64
"""How many rows go by until a hash join removes the old ones; each costs it a look at its bucket, whenever it does."""


@njit
def plus(time: int, distance: int) -> int:  # pragma: no cover
    """The sum, held at the ends of the 64-bit range.

    The test comes before the addition: the compiler may take for granted that signed numbers do not turn round.
    """
    if distance > 0 and time > HIGHEST - distance:
        return HIGHEST
    if distance < 0 and time < LOWEST - distance:
        return LOWEST
    return time + distance


@njit
def agrees(first: int, last: int, r: int, chosen: Index, clauses: Index, values: Index) -> bool:  # pragma: no cover
    """Whether row r satisfies its input's conditions with the rows chosen so far; -1 stands for none."""
    for c in range(first, last):
        other = chosen[clauses[c, 1]]
        if other >= 0:
            point, box = (r, other) if clauses[c, 0] else (other, r)
            x = values[clauses[c, 2] + point]
            if x < values[clauses[c, 3] + box] or x > values[clauses[c, 4] + box]:
                return False
    return True


@njit
def refined(chosen: Index, times: Index, offset: Index, exact: Index) -> bool:  # pragma: no cover
    """Section 5.1's refinement step: every pair within its own window, in one of the alternatives."""
    n = chosen.size
    for a in range(exact.shape[0]):
        good = True
        for i in range(n):
            t = times[offset[i] + chosen[i]]
            for j in range(i + 1, n):
                u = times[offset[j] + chosen[j]]
                # No window is so long that a difference beyond 64 bits lies in it.
                beyond = (t < 0 and u > HIGHEST + t) or (t > 0 and u < LOWEST + t)
                if beyond or u - t < exact[a, i, j, 0] or u - t > exact[a, i, j, 1]:
                    good = False
        if good:
            return True
    return False


@njit
def grown(out: Index) -> Index:  # pragma: no cover
    """The matches found so far, with room for as many again."""
    larger = np.empty((2 * out.shape[0], out.shape[1]), dtype=np.int64)
    larger[: out.shape[0]] = out
    return larger


@njit
def _bounds(seen: Index, reach: Index, bounds: Index) -> None:  # pragma: no cover
    """For each input, the time below which its rows are old: further than their window behind all other inputs."""
    least, at, second = HIGHEST, -1, HIGHEST
    for i in range(seen.size):
        if at < 0 or seen[i] < least:
            second, least, at = least, seen[i], i
        elif seen[i] < second:
            second = seen[i]
    for j in range(seen.size):
        nearest = second if j == at else least
        # Nothing known of some other input: nothing of this one is old.
        bounds[j] = LOWEST if nearest == LOWEST else plus(nearest, -reach[j])


@njit
def _bucket(group: int, shift: int) -> np.int64:  # pragma: no cover
    return np.int64((np.uint64(group) * GOLDEN) >> np.uint64(shift))


@njit
def _clean(
    j: int, bucket: int | np.int64, bound: int, times: Index, base: int, head: Index, tail: Index, link: Index
) -> int:  # pragma: no cover
    """Drop the old rows at the front of a bucket; how many they were."""
    r = head[j, bucket]
    dropped = 0
    while r >= 0 and times[base + r] < bound:
        r = link[base + r]
        dropped += 1
    head[j, bucket] = r
    if r < 0:
        tail[j, bucket] = -1
    return dropped


@njit
def insert_held(held: Index, rows: Rows, table: Table) -> None:  # pragma: no cover
    """Put the rows that the buffers hold from before into the hash tables."""
    groups, offset = rows.groups, rows.offset
    head, tail, link = table.head, table.tail, table.link
    for j in range(held.size):
        for r in range(held[j]):
            bucket = _bucket(groups[offset[j] + r], table.shift)
            if tail[j, bucket] < 0:
                head[j, bucket] = r
            else:
                link[offset[j] + tail[j, bucket]] = r
            tail[j, bucket] = r


@njit
def probe(
    rows: Rows,
    limits: Limits,
    routes: Index,
    table: Table,
    hashed: bool,
    sequence: Index,
    begin: int,
    end: int,
    arrived: Index,
    front: Index,
    seen: Index,
    before: Index,
    after: Index,
    every: int,
    out: Index,
    filled: int,
    keep: bool,
    counters: Index,
) -> Matches:  # pragma: no cover
    """NLW-join and HW-join: take the rows of sequence[begin:end] in turn and join each with all buffers (Figure 5).

    `seen` is the paper's vector of time-stamps V.  It takes its values from `before` when a row arrives, and from
    `after` when that row is done: the latest time seen, as printed, or the earliest time still to come.  `every` is 1
    to remove old rows with each row that arrives, more for the adapted rivals, and 0 to leave to the probes what they
    do not meet.
    """
    times, groups, offset, first_clause, clauses, values = rows
    low, high, reach, exact, refine = limits
    head, tail, link, shift = table
    n = arrived.size
    buckets = head.shape[1]
    chosen = np.full(n, -1)
    cursor = np.empty(n, dtype=np.int64)
    lows = np.empty(n, dtype=np.int64)
    highs = np.empty(n, dtype=np.int64)
    bounds = np.empty(n, dtype=np.int64)
    in_window, tested, candidates, refused, evicted, results = 0, 0, 0, 0, 0, 0
    for position in range(begin, end):
        i = sequence[position]
        x = arrived[i]
        at = offset[i] + x
        group = groups[at]
        bucket = np.int64(0)
        seen[i] = before[at]
        arrived[i] = x + 1
        if hashed:
            bucket = _bucket(group, shift)
            if tail[i, bucket] < 0:
                head[i, bucket] = x
            else:
                link[offset[i] + tail[i, bucket]] = x
            tail[i, bucket] = x
        # The rows of a hash join are looked at by bucket, so that a few old ones in between cost next to nothing.
        purges = position % every == 0 if every > 1 else not hashed or position % PURGED == 0
        if purges or position == begin:
            _bounds(seen, reach, bounds)
        if purges:
            for j in range(n):
                base, bound = offset[j], bounds[j]
                if not hashed:
                    # Rows of an input come in the order of time in the paper, so the old ones are in front.  Without
                    # that order a young row in front keeps old ones alive, which costs time and changes no result.
                    while front[j] < arrived[j] and times[base + front[j]] < bound:
                        front[j] += 1
                        evicted += 1
                elif every > 1:
                    for b in range(buckets):
                        if head[j, b] >= 0:
                            evicted += _clean(j, b, bound, times, base, head, tail, link)
                elif every == 1:
                    # Section 3.1.2's routine for the buckets that are rarely probed.  Rows are in the order of time,
                    # and so is each chain: the oldest row is the first of its bucket, unless a probe has removed it.
                    while front[j] < arrived[j] and times[base + front[j]] < bound:
                        oldest = _bucket(groups[base + front[j]], shift)
                        if head[j, oldest] == front[j]:
                            head[j, oldest] = link[base + front[j]]
                            if head[j, oldest] < 0:
                                tail[j, oldest] = -1
                            evicted += 1
                        front[j] += 1
        for k in range(n):
            chosen[k] = -1
        chosen[i] = x
        depth = 1
        fresh = True
        while depth > 0:
            j = routes[i, depth]
            base = offset[j]
            if fresh:
                # GetPeriod of section 3.1.1: where the rows of j must lie to be near every row chosen so far.
                near, far = LOWEST, HIGHEST
                for d in range(depth):
                    k = routes[i, d]
                    t = times[offset[k] + chosen[k]]
                    down, up = low[k, j], high[k, j]
                    if (down > 0 and t > HIGHEST - down) or (up < 0 and t < LOWEST - up):
                        near, far = HIGHEST, LOWEST  # beyond every time there is
                        break
                    if down > LOWEST:
                        near = max(near, plus(t, down))
                    if up < HIGHEST:
                        far = min(far, plus(t, up))
                lows[depth], highs[depth] = near, far
                r = front[j]
                if hashed:
                    r = head[j, bucket]
                    if every <= 1 and r >= 0 and times[base + r] < bounds[j]:
                        evicted += _clean(j, bucket, bounds[j], times, base, head, tail, link)
                        r = head[j, bucket]
            elif hashed:
                r = link[base + cursor[depth]]
            else:
                r = cursor[depth] + 1
            near, far = lows[depth], highs[depth]
            c, d = first_clause[j], first_clause[j + 1]
            found = False
            if hashed:
                while r >= 0:
                    tested += 1
                    if groups[base + r] == group:
                        in_window += 1
                        t = times[base + r]
                        if near <= t and t <= far and (c == d or agrees(c, d, r, chosen, clauses, values)):
                            found = True
                            break
                    r = link[base + r]
            else:
                stop = arrived[j]
                start = r
                while r < stop:
                    t = times[base + r]
                    if near <= t and t <= far:
                        tested += 1
                        if groups[base + r] == group and (c == d or agrees(c, d, r, chosen, clauses, values)):
                            found = True
                            break
                    r += 1
                in_window += r - start + found
            fresh = False
            if not found:
                chosen[j] = -1
                depth -= 1
                continue
            cursor[depth] = r
            chosen[j] = r
            if depth < n - 1:
                depth += 1
                fresh = True
                continue
            if refine:
                candidates += 1
                if not refined(chosen, times, offset, exact):
                    refused += 1
                    continue
            if filled == out.shape[0]:
                if keep:
                    out = grown(out)
                else:
                    filled = 0  # nobody looks at the matches: the same memory again
            for k in range(n):
                out[filled, k] = chosen[k]
            filled += 1
            results += 1
        seen[i] = after[at]
    counters[WINDOW] += in_window
    counters[PREDICATE] += tested
    counters[REFINED] += candidates
    counters[REFUSED] += refused
    counters[EVICTED] += evicted
    counters[RESULTS] += results
    return out, filled

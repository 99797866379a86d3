"""The nested-loop W-join as a left-deep pipeline of binary joins: section 3.1.1, Figures 4 and 5.

Level L joins the m-tuples of inputs 0 to L - 1, which come from below, with the rows of input L.  Each level has two
buffers: the m-tuples with the times of all their rows, of which the period of Figure 5's GetPeriod is kept, and the
rows of its input.  A row or an m-tuple that arrives on one side looks through the other buffer, tests the period of
each entry and the predicate of those within it, and drops those that are out.

Removal is mended as in :mod:`dovetail.families.window.paper.algorithms`: only what lies behind goes.  An m-tuple of
level L goes once its period ends before the last row of input L; a row of input L goes once it lies further than its
window behind the last rows of all inputs below (the vector V_left).  As printed, both happen where a buffer is looked
through, and nowhere else.

GetNext pulls: a level asks the one below for the next m-tuple.  Here a row is pushed, and everything that it makes
climbs to the top before the next row comes.  Which entries meet is the same; only how results of different rows are
mixed in the output is not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.window.paper.compiled import (
    COUNTERS,
    EVICTED,
    HIGHEST,
    LOWEST,
    PREDICATE,
    REFINED,
    REFUSED,
    RESULTS,
    WINDOW,
    Index,
    Limits,
    Matches,
    Rows,
    agrees,
    grown,
    plus,
    refined,
)

FIRST = 256
"""Entries for which the buffers of a level have room at first."""

GONE = -1
"""In place of the first row number of an m-tuple that was removed; its period is such that no row lies in it."""


class Levels(NamedTuple):
    """The m-tuples of all levels; level 0 is not in use.

    ``rows[L, k]`` are the row numbers of the k-th of level L, and a row of input L joins it if its time is between
    ``near[L, k]`` and ``far[L, k]``.
    """

    rows: Index
    near: Index
    far: Index


class Pipeline:
    """The buffers of all levels, and the rows that pass through them.

    Entries of level L are those from ``start[L]`` to ``end[L]``; ``gone[L]`` of these have been removed and await that
    the others close up.
    """

    def __init__(self, n: int) -> None:
        empty = np.empty((2, n, FIRST), dtype=np.int64)
        self.levels = Levels(np.empty((n, FIRST, n), dtype=np.int64), empty[0], empty[1])
        self.start, self.end, self.gone = (np.zeros(n, dtype=np.int64) for _ in range(3))

    def take(
        self,
        rows: Rows,
        limits: Limits,
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
    ) -> Matches:
        """Take the rows of sequence[begin:end]; the arguments are those of :func:`compiled.probe`."""
        out, filled, self.levels = _take(
            rows, limits, sequence, begin, end, arrived, front, seen, before, after, every, True,
            self.levels, self.start, self.end, self.gone, out, filled, keep, counters,
        )  # fmt: skip
        return out, filled

    def hold(self, rows: Rows, limits: Limits, held: Index, arrived: Index, front: Index) -> None:
        """Take the rows of earlier calls, whose matches are known: nothing comes out, and nothing is removed."""
        n = held.size
        sequence = np.repeat(np.arange(n), held)
        none, out = np.full(int(rows.offset[-1]), LOWEST), np.empty((1, n), dtype=np.int64)
        _, _, self.levels = _take(
            rows, limits, sequence, 0, sequence.size, arrived, front, np.full(n, LOWEST), none, none, 1, False,
            self.levels, self.start, self.end, self.gone, out, 0, False, np.zeros(COUNTERS, dtype=np.int64),
        )  # fmt: skip

    def buffered(self, arrived: Index, front: Index) -> int:
        """Rows and m-tuples in the buffers; the rows of input 0 are the m-tuples of level 1."""
        return int((self.end - self.start - self.gone).sum() + (arrived - front)[1:].sum())


@njit
def _admit(
    level: int, chosen: Index, times: Index, offset: Index, limits: Limits, levels: Levels, end: Index
) -> Levels:  # pragma: no cover
    """Put an m-tuple of the inputs below into the buffer of a level, with its period (GetPeriod)."""
    k = end[level]
    if k == levels.near.shape[1]:
        n = levels.near.shape[0]
        wider = Levels(
            np.empty((n, 2 * k, n), dtype=np.int64), np.empty((n, 2 * k), dtype=np.int64),
            np.empty((n, 2 * k), dtype=np.int64),
        )  # fmt: skip
        wider.rows[:, :k], wider.near[:, :k], wider.far[:, :k] = levels.rows, levels.near, levels.far
        levels = wider
    near, far = LOWEST, HIGHEST
    for i in range(level):
        levels.rows[level, k, i] = chosen[i]
        t = times[offset[i] + chosen[i]]
        down, up = limits.low[i, level], limits.high[i, level]
        if (down > 0 and t > HIGHEST - down) or (up < 0 and t < LOWEST - up):
            near, far = HIGHEST, LOWEST  # beyond every time there is
        elif near <= far:
            near = max(near, plus(t, down)) if down > LOWEST else near
            far = min(far, plus(t, up)) if up < HIGHEST else far
    levels.near[level, k], levels.far[level, k] = near, far
    end[level] = k + 1
    return levels


@njit
def _tidy(level: int, levels: Levels, start: Index, end: Index, gone: Index) -> None:  # pragma: no cover
    """Pass by the entries of a level that were removed at its front, and let the others close up from time to time."""
    while start[level] < end[level] and levels.rows[level, start[level], 0] == GONE:
        start[level] += 1
        gone[level] -= 1
    # Closing up costs as much as looking at all: it waits until a quarter is gone, or the front half is free.
    if 4 * gone[level] <= end[level] - start[level] and 2 * start[level] <= levels.near.shape[1]:
        return
    kept = 0
    for k in range(start[level], end[level]):
        if levels.rows[level, k, 0] != GONE:
            for i in range(level):
                levels.rows[level, kept, i] = levels.rows[level, k, i]
            levels.near[level, kept], levels.far[level, kept] = levels.near[level, k], levels.far[level, k]
            kept += 1
    start[level], end[level], gone[level] = 0, kept, 0


@njit
def _remove(level: int, latest: int, levels: Levels, start: Index, end: Index, gone: Index) -> int:  # pragma: no cover
    """Remove the m-tuples of a level whose period ends before `latest`; how many they were."""
    removed = 0
    far, tuples = levels.far[level], levels.rows[level]
    for k in range(start[level], end[level]):
        if far[k] < latest and tuples[k, 0] != GONE:
            levels.near[level, k], far[k], tuples[k, 0] = HIGHEST, LOWEST, GONE
            removed += 1
    gone[level] += removed
    _tidy(level, levels, start, end, gone)
    return removed


@njit
def _bound(level: int, seen: Index, reach: Index) -> int:  # pragma: no cover
    """The time below which rows of input `level` are out: further than their window behind all of V_left."""
    least = HIGHEST
    for k in range(level):
        least = min(least, seen[k])
    return LOWEST if least == LOWEST else plus(least, -reach[level])


@njit
def _take(
    rows: Rows,
    limits: Limits,
    sequence: Index,
    begin: int,
    end: int,
    arrived: Index,
    front: Index,
    seen: Index,
    before: Index,
    after: Index,
    every: int,
    emits: bool,
    levels: Levels,
    start: Index,
    last: Index,
    gone: Index,
    out: Index,
    filled: int,
    keep: bool,
    counters: Index,
) -> tuple[Index, int, Levels]:  # pragma: no cover
    times, groups, offset, first_clause, clauses, values = rows
    n = arrived.size
    chosen = np.full(n, -1)
    fresh = np.zeros(n, dtype=np.int64)
    in_window, tested, candidates, refused, evicted, results = 0, 0, 0, 0, 0, 0
    for position in range(begin, end):
        i = sequence[position]
        x = arrived[i]
        at = offset[i] + x
        seen[i] = before[at]
        arrived[i] = x + 1
        if every > 1 and position % every == 0:
            for level in range(1, n):
                evicted += _remove(level, seen[level], levels, start, last, gone)
                bound = _bound(level, seen, limits.reach)
                while front[level] < arrived[level] and times[offset[level] + front[level]] < bound:
                    front[level] += 1
                    evicted += 1
        for level in range(1, n):
            fresh[level] = last[level]
        if i == 0:
            chosen[0] = x
            levels = _admit(1, chosen, times, offset, limits, levels, last)
        for level in range(max(i, 1), n):
            # The row meets all m-tuples of its level; at the levels above, those that it has made meet the rows.
            right = level == i
            base = offset[level]
            c, d = first_clause[level], first_clause[level + 1]
            if not right and every <= 1 and fresh[level] < last[level]:
                bound = _bound(level, seen, limits.reach)
                while front[level] < arrived[level] and times[base + front[level]] < bound:
                    front[level] += 1
                    evicted += 1
                    in_window += 1
            first, k, r, stop = 0, fresh[level], front[level], arrived[level]
            if right:
                k, r, stop = start[level], x, x + 1
            first = r
            x_time, x_group, removed = times[at], groups[at], 0
            out_before = seen[i] if every <= 1 else LOWEST
            near, far, tuples = levels.near[level], levels.far[level], levels.rows[level]
            if right:
                in_window -= gone[level]
            while k < last[level]:
                if right:
                    # m-tuples by the thousand: this loop is where the time goes.
                    begun = k
                    while k < last[level]:
                        if x_time <= far[k]:
                            if near[k] <= x_time:
                                tested += 1
                                if groups[offset[0] + tuples[k, 0]] == x_group:
                                    break
                        elif far[k] < out_before and tuples[k, 0] != GONE:
                            near[k], far[k], tuples[k, 0] = HIGHEST, LOWEST, GONE
                            removed += 1
                        k += 1
                    in_window += k - begun + (k < last[level])
                    if k == last[level]:
                        break
                    r = x
                else:
                    group = groups[offset[0] + tuples[k, 0]]
                    begun = r
                    while r < stop:
                        t = times[base + r]
                        if near[k] <= t and t <= far[k]:
                            tested += 1
                            if groups[base + r] == group:
                                break
                        r += 1
                    in_window += r - begun + (r < stop)
                    if r == stop:
                        k, r = k + 1, first
                        continue
                for a in range(n):
                    chosen[a] = tuples[k, a] if a < level else -1
                if agrees(c, d, r, chosen, clauses, values):
                    chosen[level] = r
                    if level < n - 1:
                        levels = _admit(level + 1, chosen, times, offset, limits, levels, last)
                        near, far, tuples = levels.near[level], levels.far[level], levels.rows[level]
                    elif emits:
                        good = True
                        if limits.refine:
                            candidates += 1
                            good = refined(chosen, times, offset, limits.exact)
                            refused += not good
                        if good:
                            if filled == out.shape[0]:
                                if keep:
                                    out = grown(out)
                                else:
                                    filled = 0  # nobody looks at the matches: the same memory again
                            for a in range(n):
                                out[filled, a] = chosen[a]
                            filled += 1
                            results += 1
                if right:
                    k += 1
                else:
                    r += 1
            if removed > 0:
                evicted += removed
                gone[level] += removed
                _tidy(level, levels, start, last, gone)
        seen[i] = after[at]
    counters[WINDOW] += in_window
    counters[PREDICATE] += tested
    counters[REFINED] += candidates
    counters[REFUSED] += refused
    counters[EVICTED] += evicted
    counters[RESULTS] += results
    return out, filled, levels

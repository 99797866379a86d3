"""The compiled sweep of the merge W-join (MW-join), section 3.2 of the paper, and of its local conservative form.

The paper's two modes are here in spirit, corrected in five points.  ``tests/window/test_printed_merge.py`` keeps the
printed version, and the smallest inputs on which it differs.

1. *A starting tuple joins everything.*  Where Mode 1 finds new starting N_tuples, the paper checks these N_tuples
   alone.  A new row among them never meets the other rows that the buffers kept from before, and their matches are
   missed.  Here every row joins all buffers when it comes, whether it starts a period or falls into one.
2. *No input is waited for.*  As printed, Mode 2 ends when the next row of *every* input lies right of the period, so a
   silent input holds back rows of the others that already match.  Here the earliest row of all inputs is next, and the
   period moves on with it.
3. *Late rows.*  The paper drops rows for good in the belief that each input comes in the order of time.  Here a call
   sorts what it was given, held rows and new ones, and sweeps all of it; what to forget between calls is the caller's
   decision.
4. *Matches known already.*  Because of that, rows whose matches were found by an earlier call are swept again.  Such a
   row joins only where some other input has a new row, and the loop begins with that input.
5. *Directed windows.*  A period ends where the first buffered row loses its last partner: its time plus the largest
   window that points ahead from its input.  With one window for all that is the paper's v, with one for each input its
   section 5.1.
"""

from __future__ import annotations

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.window.paper.compiled import (
    EVICTED,
    HIGHEST,
    IDLE,
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

HELD, NEW, BOTH = 1, 2, 3
"""Which of the two queues of an input take part."""


@njit
def merge(
    rows: Rows,
    limits: Limits,
    held: Index,
    sequence: Index,
    begin: int,
    end: int,
    front: Index,
    back: Index,
    period: Index,
    out: Index,
    filled: int,
    keep: bool,
    counters: Index,
) -> Matches:  # pragma: no cover
    """MW-join: take the rows of sequence[begin:end], which come in the order of time.

    Each input has two queues, 2j for the rows held from before and 2j + 1 for the new ones; `sequence` names the queue
    whose next row it is.  `period` holds the end of the period v.
    """
    times, groups, offset, first_clause, clauses, values = rows
    _, _, reach, exact, refine = limits
    n = held.size
    chosen = np.full(n, -1)
    cursor = np.empty(n, dtype=np.int64)
    parts = np.empty(n, dtype=np.int64)
    route = np.empty(n, dtype=np.int64)
    in_window, tested, candidates, refused, evicted, results, idle = 0, 0, 0, 0, 0, 0, 0
    for position in range(begin, end):
        queue = sequence[position]
        i = queue >> 1
        x = back[queue]
        t = times[offset[i] + x]
        group = groups[offset[i] + x]
        in_window += 1
        if t > period[0]:
            # Mode 1: drop what no row from t on can reach; the rows that stay say where the next period ends.
            stop = HIGHEST
            for q in range(2 * n):
                j = q >> 1
                while front[q] < back[q]:
                    in_window += 1
                    last = plus(times[offset[j] + front[q]], reach[j])
                    if last >= t:
                        stop = min(stop, last)
                        break
                    front[q] += 1
                    evicted += 1
            period[0] = stop
        ready = True
        for j in range(n):
            if j != i and front[2 * j] == back[2 * j] and front[2 * j + 1] == back[2 * j + 1]:
                ready = False
        # A new row joins everything in one go.  A held one joins only where there are new rows: one go for each input
        # that may be the first in the order of the loop to bring one, so that each match is found once.
        goes = 0 if not ready else 1 if queue & 1 else n - 1
        idle += not ready
        for go in range(1, goes + 1):
            k = (i + go) % n
            if queue & 1 == 0 and front[2 * k + 1] == back[2 * k + 1]:
                continue
            route[0] = i
            at = 1
            if queue & 1 == 0:
                route[1] = k
                parts[k] = NEW
                at = 2
            for d in range(1, n):
                j = (i + d) % n
                if queue & 1:
                    parts[j] = BOTH
                elif j != k:
                    parts[j] = HELD if d < go else BOTH
                if queue & 1 or j != k:
                    route[at] = j
                    at += 1
            for j in range(n):
                chosen[j] = -1
            chosen[i] = x
            depth = 1
            cursor[1] = 0
            # Mode 2: the nested loop over all that is in the buffers, with no look at times.
            while depth > 0:
                j = route[depth]
                base = offset[j]
                c, d = first_clause[j], first_clause[j + 1]
                r = cursor[depth]
                found = False
                for q in range(2 * j, 2 * j + 2):
                    if parts[j] & (HELD << (q & 1)) == 0 or (q & 1 == 0 and r >= held[j]):
                        continue
                    r = max(r, front[q])
                    start = r
                    while r < back[q]:
                        if groups[base + r] == group and (c == d or agrees(c, d, r, chosen, clauses, values)):
                            found = True
                            break
                        r += 1
                    tested += r - start + found
                    if found:
                        break
                if not found:
                    chosen[j] = -1
                    depth -= 1
                    continue
                cursor[depth] = r + 1
                chosen[j] = r
                if depth < n - 1:
                    depth += 1
                    cursor[depth] = 0
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
        back[queue] = x + 1
        period[0] = min(period[0], plus(t, reach[i]))
    counters[WINDOW] += in_window
    counters[PREDICATE] += tested
    counters[REFINED] += candidates
    counters[REFUSED] += refused
    counters[EVICTED] += evicted
    counters[RESULTS] += results
    counters[IDLE] += idle
    return out, filled

"""How weighted results vary together, compiled: sums over all pairs of results that share a sample.

Let row i of an input be held at moment s, and row j of the same input and stratum at moment t, not before s.  With N
rows of the stratum seen and n held at moment s, and f = n / N, two results with these rows vary together by q times the
product of their weighted values, where q is

* 1 - f if i and j are one row;
* -(1 - f) / (n - 1) if they are two, and j had arrived by s: if one more row is held, one of the others is not;
* 0 if j arrived later: who is held at moment s says nothing about a row that is still to come.

So q = x [i = j] - y [j had arrived], with y = (1 - f) / (n - 1) and x = n y.  A single held row does not show the
second part; then y = 0 and x = 1 - f, which errs on the safe side.

Going back in time, the results of later moments are added up by row, and the rows that had not arrived yet are taken
out of the sum.  Rows are numbered in the order of arrival, so a pointer over them is enough: it takes one pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Held(NamedTuple):
    """The rows of one input in some entries.

    ``row`` is the row of each entry: rows are numbered by stratum and arrival, those of stratum h end before
    ``ends[h]``, and ``number`` says when each arrived.  By entry, ``arrived`` counts the rows of the input until then,
    `x` and `y` are those of q.
    """

    row: Index
    ends: Index
    number: Index
    arrived: Index
    x: Floats
    y: Floats


class Moments(NamedTuple):
    """Where the entries of each moment begin, in the order of strata and time, and its stratum."""

    begin: Index
    stratum: Index


@njit
def _times(total: Floats, factor: float, u: Floats, v: Floats) -> None:  # pragma: no cover - compiled
    """Add factor (u v' + v u') / 2 to the lower half of a matrix."""
    for a in range(u.size):
        for b in range(a + 1):
            total[a, b] += factor * (u[a] * v[b] + u[b] * v[a]) / 2


@njit
def of_one(values: Floats, moments: Moments, held: Held) -> Floats:  # pragma: no cover - compiled
    """The sum of q over all pairs of entries; each entry has a line of `values`."""
    m = values.shape[1]
    total = np.zeros((m, m))
    later = np.zeros((held.number.size, m))
    below, sums, met, mean, deviation = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
    oldest, stratum = -1, -1
    for moment in range(moments.stratum.size - 1, -1, -1):
        begin, end = moments.begin[moment], moments.begin[moment + 1]
        if moments.stratum[moment] != stratum:
            stratum = moments.stratum[moment]
            oldest = held.ends[stratum] - 1
            below[:] = 0.0
        while held.number[oldest] >= held.arrived[begin]:
            below -= later[oldest]
            oldest -= 1
        x, y = held.x[begin], held.y[begin]
        sums[:] = 0.0
        met[:] = 0.0
        for k in range(begin, end):
            sums += values[k]
            met += later[held.row[k]]
        # x Sum(u u') - y Sum(u) Sum(u') as a sum over deviations: equal values then leave no rounding errors behind.
        kept = x / y if y > 0 else np.inf
        mean[:] = sums / kept
        for k in range(begin, end):
            deviation[:] = values[k] - mean
            _times(total, x, deviation, deviation)
            _times(total, 2 * x, deviation, later[held.row[k]])
        if y > 0:
            _times(total, x * (kept - (end - begin)), mean, mean)
            _times(total, -2 * x, mean, below - met)
        for k in range(begin, end):
            later[held.row[k]] += values[k]
            below += values[k]
    return _symmetric(total)


@njit
def of_two(
    values: Floats, moments: Moments, first: Held, second: Held, pair: Index, by_first: Index, by_second: Index
) -> Floats:  # pragma: no cover - compiled
    """The sum of q(first) q(second) over all pairs of entries.

    ``pair`` is the pair of rows of each entry.  `by_first` and `by_second` have a line for each pair, sorted by the row
    of that input: the row, the pair, and the row of the other input.
    """
    m = values.shape[1]
    total = np.zeros((m, m))
    later = np.zeros((by_first.shape[0], m))
    rows_first, rows_second = first.number.size, second.number.size
    # Later results by row of one input, of those whose other row had arrived; and the results of one moment by row.
    of_first, of_second = np.zeros((rows_first, m)), np.zeros((rows_second, m))
    mine_first, mine_second = np.zeros((rows_first, m)), np.zeros((rows_second, m))
    here_first, here_second = np.ones(rows_first, dtype=np.bool_), np.ones(rows_second, dtype=np.bool_)
    at_first, at_second = by_first.shape[0], by_second.shape[0]
    below, sums, rest = np.zeros(m), np.zeros(m), np.zeros(m)
    stratum = -1
    for moment in range(moments.stratum.size - 1, -1, -1):
        begin, end = moments.begin[moment], moments.begin[moment + 1]
        if moments.stratum[moment] != stratum:
            stratum = moments.stratum[moment]
            below[:] = 0.0
            while at_first > 0 and by_first[at_first - 1, 0] >= first.ends[stratum]:
                at_first -= 1
            while at_second > 0 and by_second[at_second - 1, 0] >= second.ends[stratum]:
                at_second -= 1
        while at_first > 0 and first.number[by_first[at_first - 1, 0]] >= first.arrived[begin]:
            at_first -= 1
            row, p, other = by_first[at_first, 0], by_first[at_first, 1], by_first[at_first, 2]
            here_first[row] = False
            of_second[other] -= later[p]
            if here_second[other]:
                below -= later[p]
        while at_second > 0 and second.number[by_second[at_second - 1, 0]] >= second.arrived[begin]:
            at_second -= 1
            row, p, other = by_second[at_second, 0], by_second[at_second, 1], by_second[at_second, 2]
            here_second[row] = False
            of_first[other] -= later[p]
            if here_first[other]:
                below -= later[p]
        xx, xy = first.x[begin] * second.x[begin], first.x[begin] * second.y[begin]
        yx, yy = first.y[begin] * second.x[begin], first.y[begin] * second.y[begin]
        sums[:] = 0.0
        for k in range(begin, end):
            a, b = first.row[k], second.row[k]
            sums += values[k]
            mine_first[a] += values[k]
            mine_second[b] += values[k]
            rest[:] = xx * later[pair[k]] - xy * of_first[a] - yx * of_second[b] + yy * below
            _times(total, 2.0, values[k], rest)
            _times(total, xx, values[k], values[k])
        _times(total, yy, sums, sums)
        for k in range(begin, end):
            a, b = first.row[k], second.row[k]
            # Each row once: its sum is taken out when it has been used.
            _times(total, -xy, mine_first[a], mine_first[a])
            _times(total, -yx, mine_second[b], mine_second[b])
            mine_first[a] = 0.0
            mine_second[b] = 0.0
            later[pair[k]] += values[k]
            of_first[a] += values[k]
            of_second[b] += values[k]
        below += sums
    return _symmetric(total)


@njit
def _symmetric(total: Floats) -> Floats:  # pragma: no cover - compiled
    for a in range(total.shape[0]):
        for b in range(a):
            total[b, a] = total[a, b]
    return total

"""The algorithms of "Joining Multiple Data Streams with Window Constraints" (W-join), exact for every order of arrival.

Three algorithms: the nested loop (NLW-join, in two readings), the hash join (HW-join) and the merge join (MW-join).
Three ways to turn windows that differ from pair to pair into a filter: the global conservative approach takes the
largest window for all, the local one takes the largest window of each input, and the path join looks at neighbours on
the path alone.  A refinement step checks every pair of a candidate where the filter is wider than the windows.

What the paper leaves open or gets wrong, and what holds here (:mod:`dovetail.families.window.paper.merge` has the
merge join's own list):

* *Removal.*  As printed, a buffered row goes when it is further than w from the last row of all other inputs, in either
  direction.  A row *ahead* of slower inputs would go, too, although their later rows match it.  Here only rows that lie
  behind go.
* *Late rows.*  The last row of an input says nothing of its later rows where times are out of order.  :func:`find`
  knows the rows that are still to come in its call, and removes by the earliest of these.
* *No intermediate results.*  The paper's nested loop is a pipeline that keeps the matches of the first inputs in
  buffers of their own: ``pipeline`` is that one (:mod:`dovetail.families.window.paper.pipeline`).  In ``nested`` a row
  meets the buffers of the inputs, and nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.errors import ArgumentError, choice
from dovetail.families.window.graph import WindowMatrix
from dovetail.families.window.paper.compiled import (
    COUNTERS,
    EVICTED,
    HIGHEST,
    IDLE,
    LOWEST,
    PREDICATE,
    REFINED,
    REFUSED,
    RESULTS,
    WINDOW,
    Limits,
    Rows,
    Table,
    insert_held,
    probe,
)
from dovetail.families.window.paper.inputs import Condition, Side
from dovetail.families.window.paper.merge import merge
from dovetail.families.window.paper.pipeline import Pipeline

ALGORITHMS = ("pipeline", "nested", "hash", "merge")
APPROACHES = ("global", "local", "path")

Index = npt.NDArray[np.int64]


def find(
    algorithm: str,
    approach: str,
    sides: Sequence[Side],
    conditions: Sequence[Condition],
    windows: WindowMatrix,
    order: npt.NDArray[np.int32],
    held: Index,
) -> tuple[list[Index], dict[str, int]]:
    """The matches that need at least one new row, each once, and what they cost.

    Parameters
    ----------
    algorithm
        ``pipeline``, ``nested``, ``hash`` or ``merge``.  ``hash`` gains nothing where all groups are equal.
    approach
        ``global`` or ``local``; ``path`` (not for ``merge``), made for windows along the path 0, 1, 2 ... and their
        closure, and right for all.
    sides
        The inputs, rows in the order of arrival.
    conditions
        Further conditions between two inputs.
    windows
        Of shape (n, n, 2), closed by shortest paths; or (k, n, n, 2), where a match satisfies one of the k, as on a
        path both ways.
    order
        The input of each new row, in the order of arrival.
    held
        How many rows of each input come from earlier calls.  They are the first of their side.

    Returns
    -------
    tuple
        For each input the row numbers of the matches, and the counters.  ``comparisons`` is the sum of ``window_tests``
        (rows looked at for their time), ``predicate_tests`` (rows looked at for keys and conditions) and ``refined``
        (candidates whose windows were all checked, of which ``refused`` failed); ``evicted`` counts rows that left the
        buffers during the call, ``idle`` the rows that a merge join passed by because another input had none to offer.

    Examples
    --------
    >>> a = Side(np.array([0, 7]), np.array([1, 1]))
    >>> b = Side(np.array([5, 6]), np.array([1, 2]))
    >>> windows = np.array([[[0, 0], [-5, 5]], [[-5, 5], [0, 0]]])
    >>> order = np.array([0, 1, 0, 1], dtype=np.int32)
    >>> found, counters = find("hash", "global", [a, b], [], windows, order, np.zeros(2, dtype=np.int64))
    >>> [rows.tolist() for rows in found], counters["results"]
    ([[0, 1], [0, 0]], 2)
    """
    operator = Operator(algorithm, approach, sides, conditions, windows, order, held)
    operator.advance()
    return operator.matches(), operator.counters


class Operator:
    """A window join that takes its rows a few at a time, for whoever wants to look at it meanwhile.

    Parameters
    ----------
    algorithm, approach, sides, conditions, windows, order, held
        As in :func:`find`.
    live
        Whether rows leave the buffers by the latest times seen so far, as in the paper, which asks for inputs in the
        order of time.  Otherwise by the earliest times still to come.
    purge
        For a live operator, how many rows go by between two removals of old rows from the buffers.  1 is the paper's
        own; the ripple join and the XJoin that it compares with are ``nested`` and ``hash`` with a purge every 10,000
        rows.
    keep
        Whether to keep the matches.  Without, they are written to the same memory again and again.

    Examples
    --------
    >>> side = Side(np.arange(100), np.zeros(100, dtype=np.int64))
    >>> windows = np.array([[[0, 0], [-1, 1]], [[-1, 1], [0, 0]]])
    >>> order = np.tile(np.array([0, 1], dtype=np.int32), 100)
    >>> live = Operator("merge", "global", [side, side], [], windows, order, np.zeros(2, dtype=np.int64), keep=False)
    >>> live.advance(150), live.advance(150), live.counters["results"]
    (150, 50, 298)
    """

    def __init__(
        self,
        algorithm: str,
        approach: str,
        sides: Sequence[Side],
        conditions: Sequence[Condition],
        windows: WindowMatrix,
        order: npt.NDArray[np.int32],
        held: Index,
        *,
        live: bool = False,
        purge: int = 1,
        keep: bool = True,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise choice("algorithm", algorithm, ALGORITHMS)
        if approach not in APPROACHES:
            raise choice("approach", approach, APPROACHES)
        self._algorithm = algorithm
        self._held = np.ascontiguousarray(held, dtype=np.int64)
        # A call ends soon enough for its tables to be left as they are.
        self._purge, self._keep = purge if live else 0, keep
        self._limits = limits(algorithm, approach, windows)
        n = len(sides)
        if algorithm == "merge":
            self._by_time = [_by_time(side.times, int(count)) for side, count in zip(sides, self._held, strict=True)]
            self._rows = _flatten(sides, conditions, self._by_time)
            self._sequence = _queues(sides, self._by_time, self._held)
            self._front = np.stack([np.zeros(n, dtype=np.int64), self._held], axis=1).reshape(-1)
            self._arrived = self._front.copy()
            self._period = np.array([LOWEST])
        else:
            self._rows = _flatten(sides, conditions, None)
            self._sequence = np.ascontiguousarray(order, dtype=np.int64)
            self._front = np.zeros(n, dtype=np.int64)
            self._arrived = self._held.copy()
            self._routes = _routes(approach, n)
            self._table = _table(self._rows, n, algorithm == "hash", live)
            self._seen, self._before, self._after = _horizon(sides, self._held, live)
            if algorithm == "hash":
                insert_held(self._held, self._rows, self._table)
            elif algorithm == "pipeline":
                self._arrived[:] = 0
                self._pipeline = Pipeline(n)
                self._pipeline.hold(self._rows, self._limits, self._held, self._arrived, self._front)
        self._position = 0
        self._out = np.empty((256, n), dtype=np.int64)
        self._filled = 0
        self._counted = np.zeros(COUNTERS, dtype=np.int64)

    def advance(self, rows: int | None = None) -> int:
        """Take the next `rows` rows, or all that are left; how many there were."""
        left = self._sequence.size - self._position
        begin, taken = self._position, left if rows is None else min(rows, left)
        self._position += taken
        if self._algorithm == "merge":
            self._out, self._filled = merge(
                self._rows, self._limits, self._held, self._sequence, begin, begin + taken,
                self._front, self._arrived, self._period,
                self._out, self._filled, self._keep, self._counted,
            )  # fmt: skip
        elif self._algorithm == "pipeline":
            self._out, self._filled = self._pipeline.take(
                self._rows, self._limits, self._sequence, begin, begin + taken, self._arrived, self._front,
                self._seen, self._before, self._after, self._purge,
                self._out, self._filled, self._keep, self._counted,
            )  # fmt: skip
        else:
            self._out, self._filled = probe(
                self._rows, self._limits, self._routes, self._table, self._algorithm == "hash",
                self._sequence, begin, begin + taken, self._arrived, self._front,
                self._seen, self._before, self._after, self._purge,
                self._out, self._filled, self._keep, self._counted,
            )  # fmt: skip
        return taken

    def matches(self) -> list[Index]:
        """For each input the row numbers of the matches found so far."""
        columns = np.ascontiguousarray(self._out[: self._filled].T)
        if self._algorithm == "merge":
            return [order[column] for order, column in zip(self._by_time, columns, strict=True)]
        return list(columns)

    @property
    def counters(self) -> dict[str, int]:
        """What the rows taken so far have cost."""
        counted = self._counted.tolist()
        named = {
            "window_tests": counted[WINDOW],
            "predicate_tests": counted[PREDICATE],
            "refined": counted[REFINED],
            "refused": counted[REFUSED],
            "evicted": counted[EVICTED],
            "results": counted[RESULTS],
            "idle": counted[IDLE],
        }
        return {"comparisons": named["window_tests"] + named["predicate_tests"] + named["refined"], **named}

    @property
    def buffered(self) -> int:
        """How many rows the buffers hold now, or rows and m-tuples."""
        if self._algorithm == "pipeline":
            return self._pipeline.buffered(self._arrived, self._front)
        # What a hash join has removed is not only what lies before its front: probes clean their buckets, too.
        arrived = int(self._arrived.sum()) - (int(self._held.sum()) if self._algorithm == "merge" else 0)
        return arrived - int(self._counted[EVICTED])


def limits(algorithm: str, approach: str, windows: WindowMatrix) -> Limits:
    """The filter that an approach makes of the windows, and whether a refinement has to follow it.

    Examples
    --------
    >>> near, far = [-8, 8], [-10, 10]
    >>> windows = np.array([[[0, 0], near, near], [near, [0, 0], far], [near, far, [0, 0]]])
    >>> limits("merge", "global", windows).reach.tolist(), limits("merge", "local", windows).reach.tolist()
    ([10, 10, 10], [8, 10, 10])
    """
    exact = np.ascontiguousarray(windows if windows.ndim == 4 else windows[None], dtype=np.int64)
    hull_low, hull_high = exact[..., 0].min(axis=0), exact[..., 1].max(axis=0)
    n = hull_low.shape[0]
    others = ~np.eye(n, dtype=np.bool_)
    if approach == "path":
        if algorithm == "merge":
            raise ArgumentError("approach='path' with algorithm='merge'", accepted="another algorithm")
        neighbours = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1
        low, high = np.where(neighbours, hull_low, LOWEST), np.where(neighbours, hull_high, HIGHEST)
        reach = np.where(others, hull_high, LOWEST).max(axis=1)
        return Limits(low, high, reach, exact, exact.shape[0] > 1 or not _is_path(exact[0]))
    if approach == "global":
        ends = int(hull_high[others].max()), -int(hull_low[others].min())
        widest = min(max(ends), HIGHEST)
        low, high = np.full((n, n), -widest), np.full((n, n), widest)
        reach = np.full(n, widest)
    else:
        reach = np.where(others, hull_high, LOWEST).max(axis=1)
        back = np.where(others, hull_low, HIGHEST).min(axis=1)
        low, high = np.repeat(back[:, None], n, axis=1), np.repeat(reach[:, None], n, axis=1)
    if algorithm == "merge":
        # Rows of j and k in a candidate are at most reach[j] apart one way and reach[k] the other.  A reach below zero
        # keeps rows out of the buffers, and says nothing of the row that has come last.
        ahead = np.maximum(reach, 0)
        low, high = np.repeat(-ahead[None, :], n, axis=0), np.repeat(ahead[:, None], n, axis=1)
    wider = (low < exact.max(axis=0)[..., 0]) | (high > exact.min(axis=0)[..., 1])
    return Limits(low, high, reach, exact, bool((wider & others).any()))


def _is_path(exact: Index) -> bool:
    """Whether all windows follow from those of neighbours."""
    n = exact.shape[0]
    steps = np.array([exact[i, i + 1] for i in range(n - 1)])
    summed = np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(steps, axis=0)])
    return all(np.array_equal(exact[i, j], summed[j] - summed[i]) for i in range(n) for j in range(i + 1, n))


def _by_time(times: Index, held: int) -> Index:
    """The rows of a side, those held and the new ones each in the order of time."""
    first, second = times[:held], times[held:]
    return np.concatenate([np.argsort(first, kind="stable"), held + np.argsort(second, kind="stable")])


def _queues(sides: Sequence[Side], by_time: Sequence[Index], held: Index) -> Index:
    """Both queues of every input, held and new, merged by time; the number of the queue for each row."""
    parts = []
    for side, (order, count) in enumerate(zip(by_time, held, strict=True)):
        part = np.full(order.size, 2 * side + 1)
        part[:count] = 2 * side
        parts.append(part)
    times = np.concatenate([side.times[order] for side, order in zip(sides, by_time, strict=True)])
    # Times that are nearly sorted already, as these runs are, take a merge sort little time.
    return np.concatenate(parts)[np.argsort(times, kind="stable")]


def _routes(approach: str, n: int) -> Index:
    """In which order an arriving row meets the inputs: section 3.1's circle, or outwards along the path (5.2.1)."""
    if approach == "path":
        return np.array([[i, *range(i - 1, -1, -1), *range(i + 1, n)] for i in range(n)], dtype=np.int64)
    return (np.arange(n)[:, None] + np.arange(n)[None, :]) % n


def _horizon(sides: Sequence[Side], held: Index, live: bool) -> tuple[Index, Index, Index]:
    """The vector V at the start, and its values when a row arrives and when it is done."""
    seen = np.full(len(sides), LOWEST)
    before, after = [], []
    for i, (side, count) in enumerate(zip(sides, held, strict=True)):
        if live:
            latest = np.maximum.accumulate(side.times)
            seen[i] = latest[count - 1] if count else LOWEST
            before.append(latest)
            after.append(latest)
        else:
            to_come = np.append(np.minimum.accumulate(side.times[::-1])[::-1], HIGHEST)
            seen[i] = to_come[count]
            before.append(to_come[:-1])
            after.append(to_come[1:])
    return seen, np.concatenate(before), np.concatenate(after)


def _table(rows: Rows, n: int, hashed: bool, live: bool) -> Table:
    """Empty hash tables.

    A table for a call has about as many buckets as an input has rows.  A live one holds a window of rows, of whose
    number nothing is known; few buckets keep the rounds of a rival that purges all of them short.
    """
    bits = min(max(int(np.diff(rows.offset).max(initial=1)).bit_length(), 4), 12 if live else 18) if hashed else 1
    shape = (n, 1 << bits)
    links = rows.times.size if hashed else 0
    return Table(np.full(shape, -1), np.full(shape, -1), np.full(links, -1), 64 - bits)


def _flatten(sides: Sequence[Side], conditions: Sequence[Condition], by_time: Sequence[Index] | None) -> Rows:
    """The inputs one after the other, each in the given order of its rows."""

    def ordered(values: Index, side: int) -> Index:
        return values if by_time is None else values[by_time[side]]

    n = len(sides)
    clauses: list[list[tuple[int, int, int, int, int]]] = [[] for _ in range(n)]
    values: list[Index] = []
    filled = 0
    for condition in conditions:
        p, b = condition.point_side, condition.box_side
        values += [ordered(condition.point, p), ordered(condition.low, b), ordered(condition.high, b)]
        offsets = filled, filled + condition.point.size, filled + condition.point.size + condition.low.size
        clauses[p].append((1, b, *offsets))
        clauses[b].append((0, p, *offsets))
        filled = offsets[2] + condition.high.size
    return Rows(
        times=_joined([ordered(side.times, i) for i, side in enumerate(sides)]),
        groups=_joined([ordered(side.groups, i) for i, side in enumerate(sides)]),
        offset=_offsets([side.times.size for side in sides]),
        begin=_offsets([len(of_side) for of_side in clauses]),
        clauses=np.array([clause for of_side in clauses for clause in of_side], dtype=np.int64).reshape(-1, 5),
        values=_joined(values),
    )


def _joined(parts: Sequence[Index]) -> Index:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _offsets(sizes: Sequence[int]) -> Index:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.array(sizes, dtype=np.int64))])

"""The merge W-join as the paper prints it, and what it misses: why ours departs from the text."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from tests.window.test_paper import (
    as_counter,
    lists_of,
    numbers,
    same,
)

from dovetail.families.window.paper.algorithms import ALGORITHMS, Operator, find
from dovetail.families.window.paper.inputs import Side


def printed_merge(inputs: list[list[int]], w: int) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """The merge join as section 3.2 describes it: times of the matches, and the times that still wait to be read.

    Every input has a buffer and a queue of what has arrived and is not yet read.  Mode 1 looks for N_tuples within w,
    going round the inputs, from the first row in each buffer on.  It checks the N_tuples it finds if one of them is
    new.  Mode 2 reads rows within the period in turn, and joins each with all rows in the buffers.  It ends when all
    inputs have their next row right of the period; then the earliest row of the N_tuples is dropped, and Mode 1 starts
    again.  The join predicate is always true here.
    """
    n = len(inputs)
    queues = [list(times) for times in inputs]
    buffers: list[list[int]] = [[] for _ in range(n)]
    results: list[tuple[int, ...]] = []
    while True:
        # Mode 1
        new = [False] * n
        inside: list[int] = []
        at = 0
        low, high = -(10**9), 10**9
        while len(inside) < n:
            if not buffers[at]:
                if not queues[at]:
                    return results, queues
                buffers[at].append(queues[at].pop(0))
                new[at] = True
            t = buffers[at][0]
            if t < low:
                buffers[at].pop(0)
                new[at] = False
            elif t > high:
                inside, low, high = [at], t - w, t + w
                at = (at + 1) % n
            else:
                inside.append(at)
                low, high = max(low, t - w), min(high, t + w)
                at = (at + 1) % n
        start = tuple(buffer[0] for buffer in buffers)
        if any(new):
            results.append(start)
        # Mode 2
        while True:
            read = False
            for i in range(n):
                if queues[i] and low <= queues[i][0] <= high:
                    t = queues[i].pop(0)
                    results += itertools.product(*([t] if j == i else buffers[j] for j in range(n)))
                    buffers[i].append(t)
                    read = True
            if not read:
                break
        if not all(queues):
            return results, queues  # some input may yet bring a row within the period
        buffers[start.index(min(start))].pop(0)


def of_times(inputs: list[list[int]], w: int, algorithm: str = "merge") -> list[tuple[int, ...]]:
    """The same by an algorithm of ours."""
    sides = [Side(numbers(times), np.zeros(len(times), dtype=np.int64)) for times in inputs]
    order = np.repeat(np.arange(len(inputs), dtype=np.int32), [len(times) for times in inputs])
    held = np.zeros(len(inputs), dtype=np.int64)
    columns, _ = find(algorithm, "global", sides, [], same(w, len(inputs)), order, held)
    return sorted(zip(*(side.times[rows].tolist() for side, rows in zip(sides, columns, strict=True)), strict=True))


def all_within(inputs: list[list[int]], w: int) -> list[tuple[int, ...]]:
    return sorted(times for times in itertools.product(*inputs) if max(times) - min(times) <= w)


def test_printed_merge_agrees_where_each_start_meets_empty_buffers():
    """The printed version is a fair one: on this input it is right."""
    inputs = [[1, 2, 30], [0, 3, 31]]
    assert sorted(printed_merge([*inputs], 5)[0]) == all_within(inputs, 5) == of_times(inputs, 5)


def test_printed_merge_misses_what_a_starting_row_shares_with_kept_rows():
    r"""Four rows are enough, w = 5.

        A      1        4
        B  0                 6

    Mode 1 starts with (1, 0), Mode 2 adds (4, 0), and 6 lies right of the period.  Row 0 is dropped, 6 takes its place,
    and Mode 1 finds and checks (1, 6).  Row 4 is in the buffer of A, row 6 in that of B, neither is new any more:
    (4, 6), only 2 apart, never appears.
    """
    inputs = [[1, 4, 50], [0, 6, 50]]  # the rows at 50 end the last period
    wanted = all_within(inputs, 5)
    assert set(wanted) - set(printed_merge(inputs, 5)[0]) == {(4, 6)}
    assert of_times(inputs, 5) == wanted


def test_printed_merge_waits_for_a_silent_input():
    r"""Three inputs, w = 5; C falls silent after its first row.

        A  10             14  15
        B  10             14  16
        C  10  11

    The period ends at 15.  Row 16 of B is near (15, 11), but waits to be read: C might still bring a row up to 15.
    """
    inputs = [[10, 14, 15], [10, 14, 16], [10, 11]]
    found, waiting = printed_merge(inputs, 5)
    assert waiting[1] == [16]
    assert (15, 16, 11) not in found
    assert (15, 16, 11) in all_within(inputs, 5)
    assert of_times(inputs, 5) == all_within(inputs, 5)


def test_printed_merge_loses_late_rows():
    """Two inputs, w = 5: row 3 of B comes after row 20, which made Mode 1 drop row 2 of A."""
    inputs = [[2, 20, 50], [20, 3, 50]]
    assert (2, 3) not in printed_merge(inputs, 5)[0]
    assert of_times(inputs, 5) == all_within(inputs, 5)


@given(st.integers(2, 3).flatmap(lambda n: lists_of(st.lists(st.integers(0, 20), max_size=5), n)), st.integers(0, 6))
@example([[1, 4], [0, 6]], 5)
def test_printed_merge_repeats_nothing_and_makes_nothing_up(inputs, w):
    """Its other claim holds: on inputs in the order of time, what it gives is right, and given once."""
    ordered = [sorted(times) for times in inputs]
    found = Counter(printed_merge([[*times, 100] for times in ordered], w)[0])
    assert not found - Counter(all_within([[*times, 100] for times in ordered], w))


def test_printed_removal_drops_rows_that_are_ahead():
    """IsOut of Figure 5 by distance alone, w = 5: B brings 100, then A brings 0 and 100.

    When row 0 arrives, row 100 of B is further than 5 from the last row of A, and would go.  The next row of A matches
    it.
    """
    inputs = [[0, 100], [100]]

    def printed_nested(arrivals: list[tuple[int, int]], w: int) -> list[tuple[int, ...]]:
        buffers: list[list[int]] = [[], []]
        results = []
        for i, t in arrivals:
            buffers[i].append(t)
            buffers[1 - i] = [u for u in buffers[1 - i] if abs(u - t) <= w]  # V of this input is its last row
            results += [(t, u) if i == 0 else (u, t) for u in buffers[1 - i]]
        return results

    assert printed_nested([(1, 100), (0, 0), (0, 100)], 5) == []
    for algorithm in ALGORITHMS:
        sides = [Side(numbers(times), numbers([0] * len(times))) for times in inputs]
        live = Operator(
            algorithm, "global", sides, [], same(5), np.array([1, 0, 0], dtype=np.int32), numbers([0, 0]), live=True
        )
        live.advance()
        assert as_counter(live.matches()) == {(1, 0): 1}

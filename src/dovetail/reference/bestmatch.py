"""The best-match join as nested loops.

The paper builds one order from the orders of the criteria: a pair dominates another if it is *at least as good* on
every one and the two differ.  What "differ" compares decides what that means.  Its formula compares the join
attributes of the tuples, so two pairs of different rows that are equally good on every criterion dominate each
other and both vanish; its SQL asks that all attributes differ, which keeps pairs that another one beats.  Here a pair
dominates another if it is at least as good on every criterion and **better on one**: a strict partial order, under
which equally good pairs all stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from dovetail.conditions.join_kind import How, JoinKind
from dovetail.reference.assemble import Inputs, Joined, Row, assembled, unmatched
from dovetail.reference.values import at_most, equal, less

Pair = tuple[Row, Row]
Positions = tuple[int, int]
"""A pair by the positions of its rows in their inputs."""
Verdict = Literal["better", "worse", "equal", "incomparable"]
Compare = Callable[[Pair, Pair], Verdict]
Allowed = Callable[[Row, Row], bool]
Criterion = tuple[Allowed, Compare]


def nearest(column: str, other: str | None = None, within: Any = None) -> Criterion:
    """The smaller ``|r.column - s.other|`` is better; a pair further apart than `within` is no candidate.

    Examples
    --------
    >>> allowed, compare = nearest("x", within=3)
    >>> allowed({"x": 1}, {"x": 4}), allowed({"x": 1}, {"x": 5}), allowed({"x": None}, {"x": 5})
    (True, False, False)
    >>> compare(({"x": 1}, {"x": 2}), ({"x": 9}, {"x": 9}))
    'worse'
    """
    return smallest(lambda r, s: _distance(r[column], s[other or column]), within)


def smallest(value: Callable[[Row, Row], Any], within: Any = None) -> Criterion:
    """The smaller value is better, in Spark's order: NaN is the largest; a pair without a value is no candidate."""

    def allowed(r: Row, s: Row) -> bool:
        cost = value(r, s)
        return cost is not None and (within is None or at_most(cost, within) is True)

    def compare(p: Pair, q: Pair) -> Verdict:
        a, b = value(*p), value(*q)
        if equal(a, b):
            return "equal"
        return "better" if less(a, b) else "worse"

    return allowed, compare


def largest(value: Callable[[Row, Row], Any]) -> Criterion:
    """The larger value is better, in Spark's order: NaN is the largest."""
    allowed, compare = smallest(value)
    return allowed, lambda p, q: compare(q, p)


def newest(column: str, other: str | None = None) -> Criterion:
    """The pair whose younger row is younger is better."""

    def age(r: Row, s: Row) -> Any:
        a, b = r[column], s[other or column]
        if a is None or b is None:
            return None
        return b if less(a, b) else a

    return largest(age)


def larger_overlap(column: str, other: str | None = None) -> Criterion:
    """The pair whose common elements include those of the other is better; NULL inside a set is no element."""

    def common(r: Row, s: Row) -> set[Any]:
        return {v for v in r[column] if v is not None} & {v for v in s[other or column] if v is not None}

    def compare(p: Pair, q: Pair) -> Verdict:
        a, b = common(*p), common(*q)
        if a == b:
            return "equal"
        return "better" if a > b else "worse" if a < b else "incomparable"

    return (lambda r, s: r[column] is not None and s[other or column] is not None), compare


def preferred(compare: Compare) -> Criterion:
    """Any order that a user defines."""
    return (lambda r, s: True), compare


def _distance(a: Any, b: Any) -> Any:
    return None if a is None or b is None else abs(a - b)


def dominates(p: Pair, q: Pair, criteria: Sequence[Criterion]) -> bool:
    """Whether `p` is at least as good as `q` on every criterion and better on one.

    Examples
    --------
    >>> on = [nearest("x"), nearest("y")]
    >>> p, q = ({"x": 0, "y": 0}, {"x": 1, "y": 5}), ({"x": 4, "y": 4}, {"x": 5, "y": 9})
    >>> dominates(p, q, on), dominates(q, p, on)  # by the paper's formula, both would be True
    (False, False)
    """
    verdicts = [compare(p, q) for _, compare in criteria]
    return all(v in ("better", "equal") for v in verdicts) and "better" in verdicts


def bestmatch_join(
    inputs: Inputs,
    criteria: Sequence[Criterion],
    how: How = "inner",
    by: Sequence[str] = (),
    *,
    keep_unmatched: bool = False,
) -> list[Joined]:
    """The pairs that no other pair beats: of all (inner), or among those of the same row (left, right, full).

    Parameters
    ----------
    inputs : mapping of str to sequence of rows
        Rows of two inputs, by alias.
    criteria : sequence of Criterion
        What makes a pair better; see the functions of this module.
    how : str
        As in :func:`dovetail.bestmatch_join`.
    by : sequence of str
        Columns in which the rows of a pair are equal; pairs with different keys do not compete.
    keep_unmatched : bool
        Whether a row without any candidate comes out paired with None (left, right, full).

    Returns
    -------
    list of dict
        One row, or None, for each alias.

    Examples
    --------
    >>> r, s = [{"x": 1}, {"x": 8}], [{"x": 2}, {"x": 0}, {"x": 5}]
    >>> [(p["R"]["x"], p["S"]["x"]) for p in bestmatch_join({"R": r, "S": s}, [nearest("x")], "left")]
    [(1, 2), (1, 0), (8, 5)]
    """
    left, right = inputs
    kind = JoinKind.of(how)
    candidates = [
        (i, j)
        for i, r in enumerate(inputs[left])
        for j, s in enumerate(inputs[right])
        if all(equal(r[key], s[key]) for key in by) and all(allowed(r, s) for allowed, _ in criteria)
    ]

    def pair(positions: Positions) -> Pair:
        return inputs[left][positions[0]], inputs[right][positions[1]]

    def same_key(p: Positions, q: Positions) -> bool:
        return all(equal(pair(p)[0][key], pair(q)[0][key]) is True for key in by)

    def beaten(positions: Positions, competes: Callable[[Positions], bool]) -> bool:
        return any(dominates(pair(other), pair(positions), criteria) for other in candidates if competes(other))

    def best_of_row(positions: Positions, side: int) -> bool:
        return not beaten(positions, lambda other: other[side] == positions[side])

    def is_best(positions: Positions) -> bool:
        if not kind.outer:
            return not beaten(positions, lambda other: same_key(other, positions))
        return any(best_of_row(positions, side) for side in (0, 1) if kind.preserved[side])

    result = assembled(inputs, [positions for positions in candidates if is_best(positions)], "inner")
    return result + unmatched(inputs, candidates, how) if keep_unmatched else result


def recent_bestmatch_join(
    inputs: Inputs,
    criteria: Sequence[Criterion],
    how: How = "inner",
    by: Sequence[str] = (),
    *,
    time: str,
    max_age: Any,
    every: Any = None,
    start: Any = None,
    keep_unmatched: bool = False,
) -> list[tuple[Any, Joined]]:
    """The answers over the rows of the last `max_age`, each with its instant.

    The join is computed at every time at which a row of either input arrives, whatever its keys and values are; or,
    with `every`, at all multiples of it (counted from `start`, zero by default) at which some row is young enough.

    Parameters
    ----------
    inputs, criteria, how, by, keep_unmatched
        As in :func:`bestmatch_join`.
    time : str
        The column with the time of a row; a row without a time takes no part.
    max_age : int or datetime.timedelta
        The age up to which a row takes part.
    every : int or datetime.timedelta, optional
        The distance between two instants.
    start : int or datetime.datetime, optional
        From where multiples are counted.

    Returns
    -------
    list of tuple
        The instant, and one row, or None, for each alias.

    Examples
    --------
    >>> r, s = [{"t": 0, "x": 1}, {"t": 3, "x": None}], [{"t": 1, "x": 1}]
    >>> both = {"R": r, "S": s}
    >>> [instant for instant, _ in recent_bestmatch_join(both, [nearest("x")], time="t", max_age=5)]
    [1, 3]
    >>> [instant for instant, _ in recent_bestmatch_join(both, [nearest("x")], time="t", max_age=5, every=2)]
    [2, 4]
    """
    timed = {alias: [row for row in rows if row[time] is not None] for alias, rows in inputs.items()}
    arrivals = sorted({row[time] for rows in timed.values() for row in rows})
    if every is None:
        instants = arrivals
    else:
        origin = 0 if start is None else start
        instants = []
        for arrival in arrivals:
            # The first multiple at or after the arrival.
            instant = origin - (origin - arrival) // every * every
            while instant <= arrival + max_age:
                instants.append(instant)
                instant += every
        instants = sorted(set(instants))
    answers = []
    for instant in instants:
        recent = {
            alias: [row for row in rows if instant - max_age <= row[time] <= instant] for alias, rows in timed.items()
        }
        joined = bestmatch_join(recent, criteria, how, by, keep_unmatched=keep_unmatched)
        answers += [(instant, row) for row in joined]
    return answers

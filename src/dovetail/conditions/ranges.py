"""Implied ranges as inequalities between an expression of one input and one of the other.

The terms of a :class:`Separable` condition are sorted by input, and each side becomes a key.  Floats round, so the sum
that the user wrote and the sums that are compared here differ by some units in the last place of their largest term.
Every key of several terms is therefore moved outward by a part of the sum of their magnitudes that is well above that.
A value that no arithmetic can be trusted with (NaN, an infinity, a number close to the largest) makes a range without
an end: Spark has the last word on each pair.

Why it is enough to widen one side.  Let ``a + s <= 0`` hold as computed, `s` being the sum of the other side and `m`
the sum of its magnitudes.  Then ``a + s <= e (|a| + m)`` for a small `e`.  Either ``a <= -s``; or ``a > -s``, and then
``a <= (-s + e m) / (1 - e)`` if `a` is positive, and ``|a| < m`` otherwise.  In every case ``a <= -s + 3 e m``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.forms import Addend, Inequality, Separable, Term
from dovetail.conditions.implied import TINY

_NUMBERS, _TIMES = ("number", "float"), ("time", "local", "date")
_DIGITS = 38
"""A decimal of more digits loses some."""
_DAYLIGHT_SAVING = "INTERVAL '25' HOUR"
"""By more than this no clock was ever moved."""


@dataclass(frozen=True)
class TermKind:
    """What a term is in sums: a number, a 32-bit float, a time (`local` without a zone), a date, a length of time."""

    kind: Literal["number", "float", "time", "local", "date", "interval"]
    digits: tuple[int, int] | None = None
    """Digits before and behind the point of an exact number."""


@dataclass(frozen=True)
class _Side:
    """The terms of one input; each is negative if a larger one makes the condition easier to meet."""

    alias: str
    addends: tuple[Addend, ...]
    small: tuple[Term, ...]
    """Terms of the sum that must be small, and those of the other."""
    large: tuple[Term, ...]


def separated(
    condition: Separable, kinds: Mapping[Term, TermKind | None], *, zoned: bool
) -> tuple[Inequality, KeyType] | None:
    """The inequality between the two inputs that a condition implies; None where its types allow none.

    Parameters
    ----------
    condition
        Two sums over two inputs.
    kinds
        What each term is; None for anything else.
    zoned
        Whether the clocks of the session's zone may change.

    Examples
    --------
    >>> a, b, r = Term("A", "A.x"), Term("B", "B.x"), Term("B", "B.r")
    >>> condition = Separable((Addend(a), Addend(b, negative=True)), (Addend(r),))
    >>> found, kind = separated(condition, dict.fromkeys((a, b, r), TermKind("number")), zoned=False)
    >>> found.left.sql, kind.ddl
    ('A.x', 'DOUBLE')
    """
    known = [kinds[addend.term] for addend in (*condition.small, *condition.large)]
    words = {kind.kind for kind in known if kind is not None}
    if None in known:
        return None
    first, second = (_side(condition, alias) for alias in sorted(condition.aliases))
    # The side of one term stays as it is, so that both ends of a range are ends for one and the same value.
    if len(first.addends) > 1 and len(second.addends) == 1:
        first, second = second, first
    if words <= set(_NUMBERS):
        rounded = _rounds(condition, [kind.digits for kind in known if kind is not None and kind.digits is not None])
        return _numbers(first, second, coarse="float" in words, rounded=rounded)
    if words <= {"interval", *_TIMES}:
        return _instants(first, second, condition, kinds, zoned=zoned)
    return None


def _side(condition: Separable, alias: str) -> _Side:
    small = [addend for addend in condition.small if addend.term.alias == alias]
    large = [addend for addend in condition.large if addend.term.alias == alias]
    addends = (*small, *(addend.negated() for addend in large))
    return _Side(alias, addends, tuple(a.term for a in small), tuple(a.term for a in large))


def _rounds(condition: Separable, digits: Sequence[tuple[int, int]]) -> bool:
    """Whether sums and squares of exact numbers may lose digits: Spark rounds a decimal that would have too many."""
    if not any(behind for _, behind in digits):
        return False
    total = max(before for before, _ in digits) + max(behind for _, behind in digits) + len(digits)
    squares = any(addend.term.sql == TINY for addend in condition.large)
    return total * (2 if squares else 1) > _DIGITS


# --- numbers ---------------------------------------------------------------------------------------------------


def _numbers(first: _Side, second: _Side, *, coarse: bool, rounded: bool) -> tuple[Inequality, KeyType]:
    """Keys of type DOUBLE; sums of 32-bit floats round more, and decimals of many digits keep six behind the point."""
    most, part = ("1E37D", "4E-6D") if coarse else ("1E307D", "3E-14D")
    least = "0.01D" if rounded else "0D"
    (only,) = first.addends if len(first.addends) == 1 else (None,)
    # In a term that must be small NaN fails; in one that must be large it beats everything, and needs a wider range.
    exact = only is not None and (only.negative or only.term in first.small)
    negative = only is not None and exact and only.negative

    def widened(side: _Side, other: _Side, *, turned: bool, upward: bool) -> Term:
        terms = [(a.negative ^ turned, f"CAST(({a.term.sql}) AS DOUBLE)") for a in side.addends]
        total = " ".join(f"{'-' if minus else '+'} {sql}" for minus, sql in terms)
        size = " + ".join(f"ABS({sql})" for _, sql in terms)
        sql = (
            f"CASE WHEN ({size}) < {most} THEN {total} {'+' if upward else '-'} ({part} * ({size}) + {least}) "
            f"WHEN ({size}) IS NULL THEN NULL "
        )
        if side.small and not other.large:
            # The sum that must be small is NaN, and nothing can make the other one larger than that.
            failed = " + ".join(f"CAST(({term.sql}) AS DOUBLE)" for term in side.small)
            bounded = " + ".join(["0D", *(f"ABS(CAST(({term.sql}) AS DOUBLE))" for term in side.large)])
            sql += f"WHEN ISNAN({failed}) AND {bounded} < {most} THEN NULL "
        return Term(side.alias, f"{sql}ELSE DOUBLE('{'NaN' if upward else '-Infinity'}') END")

    if only is None or not exact:
        left = widened(first, second, turned=False, upward=False)
        return Inequality(left, widened(second, first, turned=True, upward=True), strict=False), _DOUBLE
    if negative:
        left = widened(second, first, turned=False, upward=False)
        return Inequality(left, only.term, strict=False), _DOUBLE
    return Inequality(only.term, widened(second, first, turned=True, upward=True), strict=False), _DOUBLE


_DOUBLE = KeyType("DOUBLE", "float64")


# --- times -----------------------------------------------------------------------------------------------------


def _instants(
    first: _Side, second: _Side, condition: Separable, kinds: Mapping[Term, TermKind | None], *, zoned: bool
) -> tuple[Inequality, KeyType] | None:
    """Keys without a zone, in which Spark subtracts times; lengths of time alone are compared as such."""
    times = [[a for a in side.addends if _word(kinds[a.term]) in _TIMES] for side in (first, second)]
    if [len(some) for some in times] == [0, 0]:
        left, right = _length(first, turned=False, upward=False), _length(second, turned=True, upward=True)
        return Inequality(left, right, strict=False), KeyType("INTERVAL DAY TO SECOND", "int", micros=1)
    if [len(some) for some in times] != [1, 1] or times[0][0].negative == times[1][0].negative:
        return None
    low, high = (second, first) if times[0][0].negative else (first, second)
    # Times that are not subtracted from each other are compared as instants, whatever the clocks show.
    subtracted = len({a.term in {b.term for b in condition.small} for some in times for a in some}) == 1
    spread = _DAYLIGHT_SAVING if zoned and not subtracted else None
    midnight = any(_word(kinds[a.term]) == "time" for some in times for a in some)
    left = _time(low, kinds, upward=False, spread=spread, midnight=midnight)
    right = _time(high, kinds, upward=True, spread=spread, midnight=midnight)
    return Inequality(left, right, strict=False), KeyType("TIMESTAMP_NTZ", "int", micros=1)


def _word(kind: TermKind | None) -> str:
    return "" if kind is None else kind.kind


def _time(
    side: _Side, kinds: Mapping[Term, TermKind | None], *, upward: bool, spread: str | None, midnight: bool
) -> Term:
    """The time of a side, moved by its lengths of time."""
    (time,) = (a.term for a in side.addends if _word(kinds[a.term]) in _TIMES)
    # Beside a timestamp with a zone a date is midnight there, which clocks may skip.
    start = f"CAST(({time.sql}) AS TIMESTAMP)" if midnight and _word(kinds[time]) == "date" else time.sql
    lengths = [(a.negative ^ upward, a.term.sql) for a in side.addends if a.term != time]
    if not lengths:
        return Term(side.alias, start)
    if spread is not None:
        lengths.append((not upward, spread))
    return Term(side.alias, _added(f"CAST(({start}) AS TIMESTAMP_NTZ)", lengths, _LATEST if upward else _EARLIEST))


def _length(side: _Side, *, turned: bool, upward: bool) -> Term:
    """The sum of the lengths of time of a side."""
    lengths = [(a.negative ^ turned, a.term.sql) for a in side.addends]
    if len(lengths) == 1 and not lengths[0][0]:
        return Term(side.alias, lengths[0][1])
    return Term(side.alias, _added("INTERVAL '0' SECOND", lengths, _LONGEST if upward else f"-{_LONGEST}"))


_EARLIEST, _LATEST = "TIMESTAMP_NTZ'-290308-12-22 00:00:00'", "TIMESTAMP_NTZ'+294247-01-10 00:00:00'"
_LONGEST = "INTERVAL '106751991' DAY"


def _added(start: str, lengths: Sequence[tuple[bool, str]], limit: str) -> str:
    """A time or a length and what is added to it; the limit where that leaves what the type can hold."""
    total = start
    for negative, sql in lengths:
        total = f"try_{'subtract' if negative else 'add'}({total}, {sql})"
    missing = " OR ".join(f"({sql}) IS NULL" for sql in (start, *(sql for _, sql in lengths)))
    return f"COALESCE({total}, CASE WHEN {missing} THEN NULL ELSE {limit} END)"

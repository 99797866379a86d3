"""What makes one pair better than another: the criteria of a best-match join.

A criterion is an immutable value that knows no data and no Spark; :func:`dovetail.bestmatch_join` takes a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from dovetail.conditions.distances import is_distance
from dovetail.errors import ArgumentError

__all__ = [
    "Closest",
    "Criterion",
    "Extreme",
    "Overlap",
    "Prefer",
    "Youngest",
    "closest",
    "least",
    "most",
    "overlap",
    "prefer",
    "youngest",
]

Within: TypeAlias = int | float | Decimal | str | timedelta
PairOfRows: TypeAlias = Mapping[str, Mapping[str, Any]]
Judge: TypeAlias = Callable[[PairOfRows, PairOfRows], str | None]

VERDICTS = ("better", "worse", "equal", "incomparable")


@dataclass(frozen=True)
class Closest:
    """See :func:`closest`."""

    left: str
    right: str
    within: Within | None = None

    def __str__(self) -> str:
        sides = self.left if self.left == self.right else f"{self.left} ~ {self.right}"
        return f"closest {sides}" + (f" within {self.within}" if self.within is not None else "")


@dataclass(frozen=True)
class Extreme:
    """See :func:`least` and :func:`most`."""

    sql: str
    largest: bool

    def __str__(self) -> str:
        return f"{'most' if self.largest else 'least'} {self.sql}"


@dataclass(frozen=True)
class Overlap:
    """See :func:`overlap`."""

    left: str
    right: str

    def __str__(self) -> str:
        return f"overlap of {self.left}" + ("" if self.left == self.right else f" and {self.right}")


@dataclass(frozen=True)
class Youngest:
    """See :func:`youngest`."""

    left: str
    right: str

    def __str__(self) -> str:
        return f"youngest {self.left}" + ("" if self.left == self.right else f" or {self.right}")


@dataclass(frozen=True)
class Prefer:
    """See :func:`prefer`."""

    judge: Judge

    def __str__(self) -> str:
        return f"prefer {getattr(self.judge, '__name__', 'function')}"


Criterion: TypeAlias = Closest | Extreme | Overlap | Youngest | Prefer


def closest(column: str, other: str | None = None, *, within: Within | None = None) -> Closest:
    """Prefer the pair with the smaller distance between two columns: the paper's minAttrDist.

    Parameters
    ----------
    column : str
        A column of the left input, and of the right one unless `other` is given.
    other : str, optional
        The column of the right input.
    within : int, float, decimal.Decimal, str or datetime.timedelta, optional
        The largest distance at which two rows may match: a number, or a length of time such as ``"10 minutes"``.

    Returns
    -------
    Closest
        A criterion for :func:`bestmatch_join`.

    Raises
    ------
    ArgumentError
        If a name is not text or `within` is not a distance.

    See Also
    --------
    bestmatch_join : The join that takes criteria.

    Examples
    --------
    >>> print(closest("t", "ts", within="10 minutes"))
    closest t ~ ts within 10 minutes
    """
    if within is not None and (
        isinstance(within, bool) or not isinstance(within, int | float | Decimal | str | timedelta)
    ):
        raise ArgumentError(
            f"within={within!r} is not a distance", accepted="a number, or a length of time such as '10 minutes'"
        )
    if isinstance(within, int | float | Decimal) and not is_distance(within):
        raise ArgumentError(f"within={within!r} is not a distance", accepted="a number of at least 0")
    return Closest(*_columns("closest", column, other), within)


def least(expression: str) -> Extreme:
    """Prefer the pair with the smaller value of an expression.

    Parameters
    ----------
    expression : str
        Spark SQL over the columns of both inputs.  A sum of one term of each input is computed without Spark.

    Returns
    -------
    Extreme
        A criterion for :func:`bestmatch_join`.

    Raises
    ------
    ArgumentError
        If the expression is not text, or is empty.

    See Also
    --------
    most : The larger value is better.

    Examples
    --------
    >>> print(least("R.cost + S.cost"))
    least R.cost + S.cost
    """
    return Extreme(_text("least", expression), largest=False)


def most(expression: str) -> Extreme:
    """Prefer the pair with the larger value of an expression.

    Parameters
    ----------
    expression : str
        Spark SQL over the columns of both inputs.  A sum of one term of each input is computed without Spark.

    Returns
    -------
    Extreme
        A criterion for :func:`bestmatch_join`.

    Raises
    ------
    ArgumentError
        If the expression is not text, or is empty.

    See Also
    --------
    least : The smaller value is better.

    Examples
    --------
    >>> print(most("least(R.grade, S.grade)"))
    most least(R.grade, S.grade)
    """
    return Extreme(_text("most", expression), largest=True)


def overlap(column: str, other: str | None = None) -> Overlap:
    """Prefer the pair whose arrays have the larger set of common elements.

    A set is larger if it contains the other one; two sets of which neither contains the other are incomparable.

    Parameters
    ----------
    column : str
        A column of type array of the left input, and of the right one unless `other` is given.
    other : str, optional
        The column of the right input.

    Returns
    -------
    Overlap
        A criterion for :func:`bestmatch_join`.

    Raises
    ------
    ArgumentError
        If a name is not text.

    See Also
    --------
    bestmatch_join : The join that takes criteria.

    Examples
    --------
    >>> print(overlap("skills", "needs"))
    overlap of skills and needs
    """
    return Overlap(*_columns("overlap", column, other))


def youngest(column: str, other: str | None = None) -> Youngest:
    """Prefer the younger pair; a pair is as old as the younger of its rows.

    Parameters
    ----------
    column : str
        A column of the left input, and of the right one unless `other` is given: dates, timestamps or whole numbers.
    other : str, optional
        The column of the right input.

    Returns
    -------
    Youngest
        A criterion for :func:`bestmatch_join`.

    Raises
    ------
    ArgumentError
        If a name is not text.

    See Also
    --------
    bestmatch_join : The join that takes criteria.

    Examples
    --------
    >>> print(youngest("t"))
    youngest t
    """
    return Youngest(*_columns("youngest", column, other))


def prefer(judge: Judge) -> Prefer:
    """Prefer the pair that a Python function of your own calls better.

    Parameters
    ----------
    judge : callable
        Called as ``judge(p, q)``, where ``p["R"]["cost"]`` is the column ``cost`` of the pair's row of the input ``R``.
        It returns ``"better"`` if p is better than q, ``"worse"``, ``"equal"``, or ``"incomparable"`` (or None).  Its
        answers must form an order: if p is better than q and q better than r, then p is better than r; and if p is
        better than q, then q is worse than p.

    Returns
    -------
    Prefer
        A criterion for :func:`bestmatch_join`.

    Raises
    ------
    ArgumentError
        If `judge` cannot be called.

    See Also
    --------
    bestmatch_join : The join that takes criteria.

    Examples
    --------
    >>> def by_colour(p, q):
    ...     same = [pair["R"]["colour"] == pair["S"]["colour"] for pair in (p, q)]
    ...     return "equal" if same[0] == same[1] else "better" if same[0] else "worse"
    >>> print(prefer(by_colour))
    prefer by_colour
    """
    if not callable(judge):
        raise ArgumentError(f"prefer({judge!r})", accepted="a function of two pairs")
    return Prefer(judge)


def _columns(name: str, column: object, other: object) -> tuple[str, str]:
    for given in (column, other):
        if not isinstance(given, str | None) or (given is not None and not given.strip()):
            raise ArgumentError(f"{name}({given!r}) does not name a column", accepted=f"a name, such as {name}('t')")
    if not isinstance(column, str):
        raise ArgumentError(f"{name}({column!r}) does not name a column", accepted=f"a name, such as {name}('t')")
    return column, other if isinstance(other, str) else column


def _text(name: str, expression: object) -> str:
    if not isinstance(expression, str) or not expression.strip():
        raise ArgumentError(
            f"{name}({expression!r}) is not an expression",
            accepted=f"Spark SQL over both inputs, such as {name}('R.cost + S.cost')",
        )
    return expression

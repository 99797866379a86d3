"""Aggregates over a join as a nested loop: the matches of each row, one by one, and then the function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cmp_to_key
from typing import Any, TypeAlias

from dovetail.reference.values import equal, less

Row: TypeAlias = Mapping[str, Any]
Argument: TypeAlias = Callable[[Row], Any]
Aggregate: TypeAlias = tuple[str, tuple[Argument, ...]]


def aggregate_join(
    rows: Sequence[Row],
    others: Sequence[Row],
    condition: Callable[[Row, Row], bool | None],
    aggregates: Mapping[str, Aggregate],
    how: str = "left",
) -> list[tuple[Row, dict[str, Any]]]:
    """For each row the aggregates over the other rows for which the condition is true.

    Parameters
    ----------
    rows, others : sequence of dict
        The rows that ask, and those that are aggregated.
    condition : callable
        Takes a row of each.
    aggregates : mapping of str to (str, tuple of callable)
        By name: the function, and its arguments as functions of a matched row; none for ``count(*)``.
    how : str, default "left"
        ``left`` keeps rows without a match, ``inner`` leaves them out.

    Returns
    -------
    list of (dict, dict)
        Each row, and its aggregates by name.

    Examples
    --------
    >>> from dovetail.reference import less
    >>> found = aggregate_join([{"x": 5}, {"x": 0}], [{"x": 1, "v": 2.0}, {"x": 3, "v": None}],
    ...     lambda a, b: less(b["x"], a["x"]), {"n": ("count", ()), "total": ("sum", (lambda row: row["v"],))})
    >>> [answer for _, answer in found]
    [{'n': 2, 'total': 2.0}, {'n': 0, 'total': None}]
    """
    out = []
    for row in rows:
        matched = [other for other in others if condition(row, other) is True]
        if matched or how == "left":
            out.append((row, {name: _value(function, args, matched) for name, (function, args) in aggregates.items()}))
    return out


def _value(function: str, arguments: tuple[Argument, ...], matched: list[Row]) -> Any:
    if not arguments:
        return len(matched)
    values = [arguments[0](row) for row in matched]
    known = [value for value in values if value is not None]
    if function == "count":
        return len(known)
    if function == "count_if":
        return sum(value is True for value in known)
    if function in ("min_by", "max_by"):
        return _extreme(function == "max_by", [(arguments[1](row), arguments[0](row)) for row in matched])
    if not known:
        return None
    if function in ("min", "max", "bool_and", "bool_or"):
        return _extreme(function in ("max", "bool_or"), [(value, value) for value in known])
    if function in ("sum", "avg"):
        return _total(function, known)
    return _spread(function, [float(value) for value in known])


def _extreme(largest: bool, pairs: list[tuple[Any, Any]]) -> Any:
    """The value beside the smallest or largest; of ties the smallest value, NULL last."""

    def order(a: tuple[Any, Any], b: tuple[Any, Any]) -> int:
        if not equal(a[0], b[0]):
            return 1 if bool(less(a[0], b[0])) == largest else -1
        if a[1] is None or b[1] is None:
            return (a[1] is None) - (b[1] is None)
        return 0 if equal(a[1], b[1]) else (-1 if less(a[1], b[1]) else 1)

    known = [pair for pair in pairs if pair[0] is not None]
    return min(known, key=cmp_to_key(order))[1] if known else None


def _total(function: str, known: list[Any]) -> Any:
    """Sums without any rounding on the way: NaN, infinities, then the exact sum."""
    if isinstance(known[0], float):
        odd = [value for value in known if not math.isfinite(value)]
        exact = Fraction(0) if odd else sum((Fraction(value) for value in known), Fraction(0))
        if odd:
            return sum(odd)
        return _rounded(exact / len(known)) if function == "avg" else _rounded(exact)
    with localcontext(prec=100):  # Python's own precision has 28 digits
        total = sum(known)
    if function == "sum":
        return total
    return Fraction(total) / len(known) if isinstance(total, Decimal) else float(Fraction(total, len(known)))


def _spread(function: str, known: list[float]) -> float | None:
    if function.endswith("_samp") and len(known) < 2:
        return None
    if not all(map(math.isfinite, known)):
        return math.nan
    exact = [Fraction(value) for value in known]
    mean = sum(exact, Fraction(0)) / len(exact)
    squares = sum(((value - mean) ** 2 for value in exact), Fraction(0))
    variance = _rounded(squares / (len(exact) - 1 if function.endswith("_samp") else len(exact)))
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _rounded(exact: Fraction) -> float:
    """The nearest double; infinite where none is near."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf

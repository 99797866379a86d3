"""Distances: how they are measured, and as ``within=`` states them."""

from __future__ import annotations

import math
import sys
from decimal import Context, Decimal
from typing import Literal

Metric = Literal["line", "euclidean", "haversine"]
"""How the distance between two places is measured."""

FARTHEST = 10**39
"""No two decimals of 38 digits are further apart, and no two whole numbers of 64 bits."""
_EXACT = Context(prec=100)


def is_distance(value: object) -> bool:
    """Whether `value` is a finite number of at least zero, however large.

    Examples
    --------
    >>> is_distance(10**400), is_distance(0.5), is_distance(-1), is_distance(float("nan")), is_distance(True)
    (True, True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    if isinstance(value, int):
        return value >= 0
    finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    return finite and value >= 0


def whole_distance(within: float | Decimal, unit: int) -> int:
    """A distance in whole parts of `unit`, rounded down: between whole numbers the fraction makes no difference.

    The shortest text of a float is what was meant: 0.3 is three tenths, not a little less.

    Examples
    --------
    >>> whole_distance(0.3, 10), whole_distance(Decimal("2.5"), 100), whole_distance(1.9, 1)
    (3, 250, 1)
    >>> whole_distance(10**36 + 1, 100) - 10**38
    100
    """
    return int(_EXACT.multiply(Decimal(str(min(within, FARTHEST))), Decimal(unit)))


def float_distance(within: float | Decimal) -> float:
    """A distance as a float, at most the largest finite one.

    Examples
    --------
    >>> float_distance(10**400) == sys.float_info.max
    True
    """
    return float(min(within, sys.float_info.max))

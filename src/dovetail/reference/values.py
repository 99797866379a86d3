"""Spark's order of values, as Python sees it."""

from __future__ import annotations

import math
from typing import Any


def less(a: Any, b: Any) -> bool | None:
    """``a < b`` in Spark's order: NULL is unknown, NaN is the largest value and equals itself.

    Examples
    --------
    >>> less(1, float("nan")), less(float("nan"), 1), less(None, 1), less(-0.0, 0.0)
    (True, False, None, False)
    """
    if a is None or b is None:
        return None
    if _is_nan(a):
        return False
    return True if _is_nan(b) else bool(a < b)


def equal(a: Any, b: Any) -> bool | None:
    """``a = b`` in Spark's order."""
    if a is None or b is None:
        return None
    if _is_nan(a) or _is_nan(b):
        return _is_nan(a) and _is_nan(b)
    return bool(a == b)


def at_most(a: Any, b: Any) -> bool | None:
    """``a <= b`` in Spark's order."""
    before, same = less(a, b), equal(a, b)
    return None if before is None else bool(before or same)


def difference(a: Any, b: Any) -> Any:
    """``a - b``, NULL where either is."""
    return None if a is None or b is None else a - b


def both(*conditions: bool | None) -> bool | None:
    """SQL's AND: false wins over unknown, unknown over true.

    Examples
    --------
    >>> both(True, None), both(False, None), both(True, True)
    (None, False, True)
    """
    if any(condition is False for condition in conditions):
        return False
    return None if any(condition is None for condition in conditions) else True


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)

"""Spark's order of values, as Python sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    # Only NaN differs from itself.
    return bool(a == a and (b != b or a < b))


def equal(a: Any, b: Any) -> bool | None:
    """``a = b`` in Spark's order."""
    if a is None or b is None:
        return None
    return bool(a == b or (a != a and b != b))


def at_most(a: Any, b: Any) -> bool | None:
    """``a <= b`` in Spark's order."""
    after = less(b, a)
    return None if after is None else not after


def agree(row: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[tuple[str, str]]) -> bool:
    """Whether two rows are equal in columns of the one and of the other; NULL equals nothing.

    Examples
    --------
    >>> agree({"k": 1, "x": None}, {"key": 1, "x": None}, [("k", "key")])
    True
    >>> agree({"k": 1, "x": None}, {"key": 1, "x": None}, [("k", "key"), ("x", "x")])
    False
    """
    # A loop, as tests ask it millions of times: all() of a generator takes nearly twice as long.
    for a, b in names:  # noqa: SIM110
        if not equal(row[a], other[b]):
            return False
    return True


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

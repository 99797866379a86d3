"""The k nearest rows as a nested loop: every distance, sorted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, TypeAlias

from dovetail.reference.values import agree, equal, less

Row: TypeAlias = Mapping[str, Any]
Measure: TypeAlias = Callable[[Row, Row], Any]

EARTH = 6_371_008.8
"""The mean radius of the Earth in metres."""


def nearest_join(
    rows: Sequence[Row],
    others: Sequence[Row],
    distance: Measure,
    *,
    k: int = 1,
    keys: Sequence[str] = (),
    within: Any = None,
    ties: str = "all",
    how: str = "inner",
    time: str | None = None,
    window: tuple[Any, Any] | None = None,
) -> list[tuple[Row, Row | None, Any, int | None]]:
    """For each row the k nearest of the others that agree with it in `keys`, nearest first, with distance and rank.

    Parameters
    ----------
    rows, others : sequence of dict
        The rows that ask, and those that they are near to.
    distance : callable
        Takes a row of each.  Pairs whose distance is NULL, NaN or infinite are none.
    k : int, default 1
        How many.
    keys : sequence of str, default ()
        Columns that must be equal; NULL equals nothing.
    within : optional
        The largest distance allowed.
    ties : str, default "all"
        ``all`` takes every row that is as near as the k-th, and counts ranks 1, 1, 3; ``first`` takes exactly k, of
        equally near rows those that come first in the order of their columns, and counts 1, 2, 3.
    how : str, default "inner"
        ``left`` keeps rows without any.
    time : str, optional
        The column of the time of both, for `window`.
    window : tuple, optional
        How much later than a row the others may be, least and most; without a time a row has none.

    Examples
    --------
    >>> found = nearest_join([{"x": 5}], [{"x": 1}, {"x": 6}, {"x": 4}, {"x": None}], line("x"), k=1)
    >>> [(other, far, rank) for _, other, far, rank in found]
    [({'x': 6}, 1, 1), ({'x': 4}, 1, 1)]
    """
    out: list[tuple[Row, Row | None, Any, int | None]] = []
    equalities = [(key, key) for key in keys]
    for row in rows:
        found = []
        for other in others:
            if not agree(row, other, equalities):
                continue
            if window is not None and time is not None and not _inside(row[time], other[time], window):
                continue
            far = distance(row, other)
            if _counts(far, within):
                found.append((far, other))
        found.sort(key=cmp_to_key(_order) if ties == "first" else lambda pair: pair[0])
        kept = found[:k] if ties == "first" else [pair for at, pair in enumerate(found) if _reaches(found, at, k)]
        for at, (far, other) in enumerate(kept):
            rank = at + 1 if ties == "first" else 1 + sum(nearer < far for nearer, _ in kept)
            out.append((row, other, far, rank))
        if not kept and how == "left":
            out.append((row, None, None, None))
    return out


def _counts(far: Any, within: Any) -> bool:
    if far is None or (isinstance(far, float) and not math.isfinite(far)):
        return False
    return bool(within is None or far <= within)


def _inside(own: Any, other: Any, window: tuple[Any, Any]) -> bool:
    return own is not None and other is not None and bool(window[0] <= other - own <= window[1])


def _reaches(found: list[tuple[Any, Row]], at: int, k: int) -> bool:
    return at < k or bool(found[at][0] == found[k - 1][0])


def _order(a: tuple[Any, Row], b: tuple[Any, Row]) -> int:
    """Nearer first, then by the columns from left to right; NULL first, NaN last."""
    if a[0] != b[0]:
        return -1 if a[0] < b[0] else 1
    for one, other in zip(a[1].values(), b[1].values(), strict=True):
        if one is None or other is None:
            if (one is None) != (other is None):
                return -1 if one is None else 1
        elif not equal(one, other):
            return -1 if less(one, other) else 1
    return 0


def line(column: str) -> Measure:
    """The distance on a line: exact for whole numbers and times, that of doubles for doubles."""

    def measure(row: Row, other: Row) -> Any:
        a, b = row[column], other[column]
        return None if a is None or b is None else abs(a - b)

    return measure


def euclidean(columns: Sequence[str], factors: Sequence[float] | None = None) -> Measure:
    """The distance in the plane or in space, in doubles: differences, factors, squares, their sum from the left.

    Examples
    --------
    >>> euclidean(["x", "y"])({"x": 0.0, "y": 0.0}, {"x": 3.0, "y": 4.0})
    5.0
    """

    def measure(row: Row, other: Row) -> float | None:
        total = None
        for column, factor in zip(columns, factors or [1.0] * len(columns), strict=True):
            a, b = row[column], other[column]
            if a is None or b is None:
                return None
            part = factor * (float(a) - float(b))
            total = part * part if total is None else total + part * part
        return None if total is None else math.sqrt(total)

    return measure


def haversine(latitude: str, longitude: str) -> Measure:
    """The distance on the Earth in metres, by the haversine formula; no place beyond a pole, or round it twice.

    Examples
    --------
    >>> round(haversine("lat", "lon")({"lat": 0.0, "lon": 0.0}, {"lat": 0.0, "lon": 180.0}))
    20015114
    """

    def measure(row: Row, other: Row) -> float | None:
        places = [(place[latitude], place[longitude]) for place in (row, other)]
        for lat, lon in places:
            if lat is None or lon is None or not abs(lat) <= 90 or not abs(lon) <= 360:
                return None
        (lat, lon), (to_lat, to_lon) = [(math.radians(a), math.radians(b)) for a, b in places]
        half = math.sin((to_lat - lat) / 2), math.sin((to_lon - lon) / 2)
        squared = half[0] * half[0] + math.cos(lat) * math.cos(to_lat) * (half[1] * half[1])
        return 2 * EARTH * math.asin(math.sqrt(min(1.0, squared)))

    return measure

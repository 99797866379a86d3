"""Windows between inputs as a user writes them, and the closed matrix that the kernels read.

A window bounds the difference of two inputs' times.  The windows of a join make a graph over its inputs.  Pairs without
a window of their own are bounded by the shortest path between them: two rows that are both near a third are
not far from each other.  The closure is exact: it holds for a combination of rows exactly where the given windows do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.conditions.components import components
from dovetail.conditions.durations import duration
from dovetail.conditions.roles import Roles
from dovetail.errors import ArgumentError, listing, unknown_alias

WindowMatrix: TypeAlias = npt.NDArray[np.int64]
"""Shape (n, n, 2): rows of inputs i and j match only if matrix[i, j, 0] <= t_j - t_i <= matrix[i, j, 1].

The matrix is closed by shortest paths, and matrix[j, i] is matrix[i, j] reversed and negated.
"""
Length: TypeAlias = str | timedelta | int
Bounds = dict[tuple[int, int], tuple[int, int]]

FAR = 1 << 60
"""No window reaches further, 36,000 years in microseconds: the sums along a path of four still fit in 64 bits."""

_ACCEPTED = (
    "a length such as '5 seconds'; a mapping such as {('A', 'B'): '5 seconds', ('B', 'C'): dt.after('10 seconds')}; "
    "or dt.path('A -> B -> C', '5 seconds')"
)


@dataclass(frozen=True)
class After:
    """A window in one direction; :func:`after` makes it."""

    length: Length


@dataclass(frozen=True)
class Path:
    """Windows along a path; :func:`path` makes it."""

    stops: tuple[str, ...]
    lengths: tuple[Length, ...]
    both_ways: bool = False


PairWindow: TypeAlias = Length | After | tuple[Length, Length]
Within: TypeAlias = Length | Mapping[tuple[str, str], PairWindow] | Path


def after(length: Length) -> After:
    """A window in one direction: the second input's row comes no earlier, and at most `length` later.

    Parameters
    ----------
    length : str, timedelta or int
        The length of the window, such as ``"5 seconds"``; a number for numeric times.

    Returns
    -------
    After
        A value for a pair in ``within=`` of :func:`dovetail.window_join`.

    Raises
    ------
    ArgumentError
        If `length` is not a length.

    See Also
    --------
    path : Windows along a path of inputs.

    Examples
    --------
    >>> {("A", "B"): after("5 seconds")}
    {('A', 'B'): After(length='5 seconds')}
    """
    if isinstance(length, bool) or not isinstance(length, str | timedelta | int):
        raise ArgumentError(f"after({length!r}) is not a window", accepted="a length such as after('5 seconds')")
    return After(length)


def path(route: str, within: Length | Sequence[Length], *, both_ways: bool = False) -> Path:
    """Windows along a path: each stop comes after the one before it, within a length of its own or a common one.

    Parameters
    ----------
    route : str
        The aliases in order, such as ``"A -> B -> C"``.
    within : str, timedelta, int or sequence of these
        One length for every hop, or a sequence with one for each.
    both_ways : bool, default False
        Whether the way back counts, too: the path in either direction.  A result that fits both comes out once.

    Returns
    -------
    Path
        A value for ``within=`` of :func:`dovetail.window_join`.

    Raises
    ------
    ArgumentError
        If the path is too short, passes an input twice, or has another number of hops than of lengths.

    See Also
    --------
    after : A window in one direction.

    Examples
    --------
    >>> path("A -> B -> C", ["5 seconds", "10 seconds"])
    Path(stops=('A', 'B', 'C'), lengths=('5 seconds', '10 seconds'), both_ways=False)
    """
    stops = tuple(stop.strip() for stop in route.split("->")) if isinstance(route, str) else ()
    if len(stops) < 2 or not all(stops):
        raise ArgumentError(f"the path {route!r}", accepted="two or more aliases, such as 'A -> B -> C'")
    if len(set(stops)) < len(stops):
        again = next(stop for stop in stops if stops.count(stop) > 1)
        raise ArgumentError(
            f"the path {route!r} passes {again!r} twice", accepted="a path that meets every input once",
            hint=f"give the same frame under a second alias, such as {again}2",
        )  # fmt: skip
    hops = len(stops) - 1
    lengths = tuple(within) if isinstance(within, Sequence) and not isinstance(within, str) else (within,) * hops
    if len(lengths) != hops:
        raise ArgumentError(
            f"the path {route!r} has {hops} hop(s) and {len(lengths)} window(s)", accepted="one window, or one a hop"
        )
    if not isinstance(both_ways, bool):
        raise ArgumentError(f"both_ways={both_ways!r}", accepted="True or False")
    return Path(stops, lengths, both_ways)


@dataclass(frozen=True)
class WindowGraph:
    """The windows of a join: what was given, in units of time, and each alternative's closed matrix."""

    aliases: tuple[str, ...]
    given: tuple[tuple[tuple[tuple[int, int], tuple[int, int]], ...], ...]
    """For each alternative the bounds of t_j - t_i by (i, j)."""
    closed: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]

    @property
    def alternatives(self) -> WindowMatrix:
        """Shape (alternatives, n, n, 2)."""
        return np.array(self.closed, dtype=np.int64)

    @property
    def hull(self) -> WindowMatrix:
        """Shape (n, n, 2): what every match of any alternative satisfies."""
        matrices = self.alternatives
        return np.stack([matrices[..., 0].min(axis=0), matrices[..., 1].max(axis=0)], axis=-1)


def window_graph(
    within: Within, aliases: Sequence[str], *, numeric: bool = False, roles: Roles | None = None,
    argument: str = "within",
) -> WindowGraph:  # fmt: skip
    """Read ``within=`` and close it.

    Parameters
    ----------
    within
        What the user wrote.
    aliases
        The inputs, in order.
    numeric
        Whether times are whole numbers instead of timestamps.
    roles
        What each input is to the join, where some may be missing.  One length for all then bounds every pair of which
        one is in the core; a window between two others has no meaning where one of them is missing.
    argument
        What the argument is called.

    Examples
    --------
    >>> graph = window_graph({("A", "B"): 5, ("B", "C"): after(2)}, ["A", "B", "C"], numeric=True)
    >>> graph.hull[0, 2].tolist()
    [-5, 7]
    """
    if isinstance(within, Path):
        alternatives = _path_bounds(within, aliases, numeric, argument)
    elif isinstance(within, Mapping):
        alternatives = [_pair_bounds(within, aliases, numeric, argument)]
    else:
        reach = _length(within, numeric, argument)
        if reach < 0:
            raise ArgumentError(f"{argument}={within!r} is less than zero", accepted=_ACCEPTED)
        size = range(len(aliases))
        core = size if roles is None else roles.core
        alternatives = [{(i, j): (-reach, reach) for i in size for j in size if i < j and (i in core or j in core)}]
    if roles is not None:
        _check_extras(alternatives, aliases, roles)
    _check_connected(alternatives[0], aliases)
    closed = tuple(_closed(bounds, aliases) for bounds in alternatives)
    return WindowGraph(tuple(aliases), tuple(tuple(sorted(bounds.items())) for bounds in alternatives), closed)


def _check_extras(alternatives: Sequence[Bounds], aliases: Sequence[str], roles: Roles) -> None:
    """Refuse windows whose meaning would hang on an input that may be missing."""
    for i, j in alternatives[0]:
        if i in roles.extras and j in roles.extras:
            one, other = aliases[i], aliases[j]
            raise ArgumentError(
                f"a window between {one!r} and {other!r}, each of which may be missing",
                accepted="windows in which one of two inputs is required or kept",
                hint=f"give {one!r} and {other!r} windows to a required or kept input",
            )
    if len(alternatives) > 1 and len(roles.optional) > 1:
        named = listing(aliases[side] for side in roles.optional)
        raise ArgumentError(
            f"a path in both directions with the optional inputs {named}", accepted="one optional input on such a path",
            hint="give windows by pair, or make two joins, one for each direction",
        )  # fmt: skip


def _path_bounds(given: Path, aliases: Sequence[str], numeric: bool, argument: str) -> list[Bounds]:
    for stop in given.stops:
        if stop not in aliases:
            raise unknown_alias(stop, aliases, where=f"the path in {argument}=")
    stops = [aliases.index(stop) for stop in given.stops]
    reach = [_length(length, numeric, argument) for length in given.lengths]
    if min(reach) < 0:
        raise ArgumentError("a hop of the path has a negative window", accepted=_ACCEPTED)
    hops = list(zip(pairwise(stops), reach, strict=True))
    forth = {hop: (0, far) for hop, far in hops}
    return [forth, {hop: (-far, 0) for hop, far in hops}] if given.both_ways else [forth]


def _pair_bounds(
    given: Mapping[tuple[str, str], PairWindow], aliases: Sequence[str], numeric: bool, argument: str
) -> Bounds:
    bounds: Bounds = {}
    for pair, window in given.items():
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] == pair[1]:
            raise ArgumentError(
                f"{argument}= has a window for {pair!r}", accepted="a pair of two aliases, such as ('A', 'B')"
            )
        for alias in pair:
            if alias not in aliases:
                raise unknown_alias(str(alias), aliases, where=f"{argument}=")
        low, high = _window(window, numeric, f"{argument}[{pair!r}]")
        i, j = (aliases.index(alias) for alias in pair)
        if i > j:
            i, j, low, high = j, i, -high, -low
        before = bounds.get((i, j), (-FAR, FAR))
        # A pair that is named in both orders has to satisfy both.
        bounds[i, j] = (max(low, before[0]), min(high, before[1]))
    return bounds


def _window(window: PairWindow, numeric: bool, what: str) -> tuple[int, int]:
    if isinstance(window, After):
        low, high = 0, _length(window.length, numeric, what)
    elif isinstance(window, tuple):
        if len(window) != 2:
            raise ArgumentError(f"{what}={window!r}", accepted="the lowest and the highest difference, as a pair")
        low, high = (_length(end, numeric, what) for end in window)
    else:
        high = _length(window, numeric, what)
        low = -high
    if low > high:
        raise ArgumentError(f"{what}={window!r} leaves no time between its ends", accepted=_ACCEPTED)
    return low, high


_ZERO = re.compile(r"\s*[+-]?0+(\.0*)?\s*[^\W\d_]+\s*", re.ASCII)


def _length(value: object, numeric: bool, argument: str) -> int:
    """A length of either sign, in microseconds or in units of a numeric time."""
    if numeric:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(
                f"{argument}={value!r}, and the time columns hold whole numbers", accepted="a whole number",
                hint="a length such as '5 seconds' needs time columns of type timestamp",
            )  # fmt: skip
        return _checked(value, f"{argument}={value!r}")
    if isinstance(value, timedelta):
        return _checked(value // timedelta(microseconds=1), f"{argument}={value!r}")
    if isinstance(value, str):
        if _ZERO.fullmatch(value):
            return 0
        text = value.strip()
        size = duration(text[1:] if text.startswith("-") else text, argument=argument)
        return _checked(-size if text.startswith("-") else size, f"{argument}={value!r}")
    hint = f"say the unit: {argument}='{value} seconds'" if isinstance(value, int | float) else None
    raise ArgumentError(f"{argument}={value!r} is not a window", accepted=_ACCEPTED, hint=hint)


def _checked(length: int, given: str) -> int:
    if abs(length) > FAR:
        raise ArgumentError(f"{given} is longer than a window can be", accepted=f"at most {FAR} units or microseconds")
    return length


def _check_connected(bounds: Bounds, aliases: Sequence[str]) -> None:
    parts = components([*((side,) for side in range(len(aliases))), *bounds])
    if len(parts) > 1:
        named = "; ".join("{" + listing(aliases[side] for side in sorted(part)) + "}" for part in parts)
        raise ArgumentError(
            f"the windows leave the inputs in {len(parts)} parts that no window connects: {named}",
            accepted="windows that connect all inputs, directly or through others",
            hint="add a window between two of the parts",
        )


def _closed(bounds: Bounds, aliases: Sequence[str]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All pairs' bounds by shortest paths (Floyd and Warshall), in whole numbers of any size."""
    size = len(aliases)
    most = [[0 if i == j else size * FAR for j in range(size)] for i in range(size)]
    for (i, j), (low, high) in bounds.items():
        most[i][j], most[j][i] = min(most[i][j], high), min(most[j][i], -low)
    for via in range(size):
        for i in range(size):
            for j in range(size):
                most[i][j] = min(most[i][j], most[i][via] + most[via][j])
    for i in range(size):
        if most[i][i] < 0:
            raise ArgumentError(
                f"no rows can satisfy all windows: those around {aliases[i]!r} contradict each other",
                accepted="windows that leave some order of times possible",
            )
    if max(max(row) for row in most) > 4 * FAR:
        raise ArgumentError(
            "the windows along a path add up to more than a window can be", accepted=f"at most {4 * FAR} in all"
        )
    return tuple(tuple((-most[j][i], most[i][j]) for j in range(size)) for i in range(size))

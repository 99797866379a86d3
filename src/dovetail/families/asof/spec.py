"""What an as-of join is: the call, checked, and its form for the kernels.

The two sides are called left and right: every left row looks for one right row.  A segment of a side has its payload
columns first, then the key columns that are not among them, then, for payload columns without an order of their own,
a text that orders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

import pyarrow as pa

from dovetail.columns.layout import HAS_MATCH, HAS_ROW, PAYLOADS, columns_of
from dovetail.conditions.comparison import KeyType, Kind, Step
from dovetail.conditions.distances import float_distance, is_distance, whole_distance
from dovetail.conditions.durations import duration
from dovetail.conditions.join_kind import HOWS, How, JoinKind
from dovetail.errors import (
    ArgumentError,
    UnsupportedTypeError,
    check_partitions,
    choice,
    listing,
    unknown_alias,
)

Direction = Literal["backward", "forward", "nearest"]
Within = str | timedelta | int | float | Decimal

DIRECTIONS: tuple[Direction, ...] = ("backward", "forward", "nearest")

LEFT, RIGHT = 0, 1

_NANOS = 1000
"""Codes of a TIME in a microsecond: Spark hands it over in nanoseconds."""

HAS_LEFT = f"{HAS_ROW}{LEFT}"
"""Whether the row has a left row; a right row that no left row chose has none."""


@dataclass(frozen=True)
class Options:
    """How an as-of join is to be run.

    Examples
    --------
    >>> Options(direction="backwards")
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: direction='backwards' is not a choice
      accepted: 'backward', 'forward', 'nearest'
      hint: did you mean 'backward'?
    """

    direction: Direction = "backward"
    how: How = "inner"
    allow_exact_matches: bool = True
    partitions: int | None = None
    sample: bool | None = None
    broadcast: str | Literal[False] | None = None

    @property
    def shuffles(self) -> bool:
        """Whether the user asks for a shuffle, by what has no meaning without one."""
        return self.broadcast is False or self.partitions is not None or self.sample is not None

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise choice("direction", self.direction, DIRECTIONS)
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        if not isinstance(self.allow_exact_matches, bool):
            raise ArgumentError(f"allow_exact_matches={self.allow_exact_matches!r}", accepted="True or False")
        if self.sample is not None and not isinstance(self.sample, bool):
            raise ArgumentError(f"sample={self.sample!r}", accepted="True, False, or None to let the plan decide")
        check_partitions(self.partitions)


@dataclass(frozen=True)
class Where:
    """Conditions between a left and a right row, besides their keys and times.

    Attributes
    ----------
    step
        Ranges of right rows in which the keys of left rows must lie, as in a theta join: left rows are its points.
    columns
        The positions of the keys of that step in a segment of each side.
    unequal
        Positions of a left and a right column that must differ, and the kind of their codes.
    """

    step: Step
    columns: tuple[tuple[int, ...], tuple[int, ...]]
    unequal: tuple[tuple[int, int, Kind], ...] = ()

    def compared(self, side: int) -> tuple[int, ...]:
        """The columns of a side that must not be NULL."""
        return (*self.columns[side], *(pair[1] if side == RIGHT else pair[0] for pair in self.unequal))


@dataclass(frozen=True)
class AsofSpec:
    """An as-of join, in the form the kernels know.

    Attributes
    ----------
    payload, types
        The number of payload columns of each side, and their Arrow types.
    keys, times
        The positions of the key columns and of the time column in a segment of each side.
    kinds, time
        The kinds of code of the keys and of the time.
    ties
        Positions of right columns, in the order in which they decide between rows with equal keys and times.
    within
        The largest distance, in codes for whole numbers and times, as a float for floats.
    where
        Further conditions: the match is the best of the rows that satisfy them.
    gates
        The position of a column of each side that says which rows may match at all; None where all may.
    judged
        Whether Spark has still to say which pairs satisfy the conditions that only it can evaluate.
    """

    payload: tuple[int, int]
    types: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    times: tuple[int, int]
    kinds: tuple[Kind, ...]
    time: Kind
    ties: tuple[int, ...]
    direction: Direction = "backward"
    how: How = "inner"
    exact: bool = True
    within: int | float | None = None
    where: Where | None = None
    gates: tuple[int | None, int | None] = (None, None)
    judged: bool = False

    @property
    def kind(self) -> JoinKind:
        """What `how` means for the two sides."""
        return JoinKind.of(self.how)

    @property
    def picky(self) -> bool:
        """Whether the match of a row need not be the one nearest in time."""
        return self.where is not None or self.judged

    @property
    def cuttable(self) -> bool:
        """Whether times may cut the rows of a key.

        A cell gives back the right rows of its own slice that nobody chose, and hears of choices in other slices from
        the nearest left row alone (:mod:`dovetail.families.asof.router`).  That row cannot speak for the others where a
        right row at the very time of a left row is passed over for one on its other side.  And with further conditions
        a match may lie anywhere.
        """
        return not self.picky and not (self.kind.preserved[RIGHT] and self.direction == "nearest" and not self.exact)

    def outputs(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The columns of joined rows: the payloads and, where a side may be missing, whether it is there."""
        found: list[tuple[str, pa.DataType]] = []
        for side, emitted in enumerate(self.kind.emitted):
            if emitted:
                found += zip(columns_of(PAYLOADS[side], self.payload[side]), self.types[side], strict=True)
        flags = (HAS_LEFT, HAS_MATCH)
        found += [(flags[side], pa.bool_()) for side in (RIGHT, LEFT) if self.kind.optional[side]]
        return tuple(found)

    def __post_init__(self) -> None:
        if self.within is not None and (self.time in ("int", "rank")) is isinstance(self.within, float):
            raise ArgumentError(
                f"within={self.within!r} for times of kind {self.time}", accepted="a value of that kind"
            )


def names_of(
    value: object, aliases: Sequence[str], *, argument: str, least: int = 1
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that an argument names in each of two inputs: a name, several, or a mapping from alias to either.

    Examples
    --------
    >>> names_of("k", ("R", "S"), argument="by")
    (('k',), ('k',))
    >>> names_of({"R": ["a", "b"], "S": ["c", "d"]}, ("R", "S"), argument="by")
    (('a', 'b'), ('c', 'd'))
    """
    if isinstance(value, Mapping):
        for alias in value:
            if alias not in aliases:
                raise unknown_alias(str(alias), aliases, where=f"{argument}=")
        missing = [alias for alias in aliases if alias not in value]
        if missing:
            raise ArgumentError(f"{argument}= has no entry for {listing(missing)}", accepted="an entry for each input")
        names = (_names(value[aliases[0]], argument), _names(value[aliases[1]], argument))
    else:
        names = (_names(value, argument), _names(value, argument))
    if len(names[0]) != len(names[1]) or len(names[0]) < least:
        raise ArgumentError(
            f"{argument}={value!r} names {len(names[0])} column(s) of {aliases[0]!r} "
            f"and {len(names[1])} of {aliases[1]!r}",
            accepted="as many columns of one input as of the other" + (f", {least} or more" if least else ""),
        )
    return names


def _names(value: object, argument: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(
            f"{argument}={value!r} does not name columns",
            accepted="a column name, several in a list, or a mapping from each alias to either",
        )
    return tuple(names)


def distance(within: Within | None, kind: KeyType) -> int | float | None:
    """The largest distance in codes, or as a float where times are floats.

    Examples
    --------
    >>> distance("2 seconds", KeyType("TIMESTAMP", "int", micros=1))
    2000000
    >>> distance("36 hours", KeyType("DATE", "int", micros=86_400_000_000))
    1
    >>> distance(Decimal("2.5"), KeyType("DECIMAL(9,2)", "int", unit=100)), distance(2, KeyType("DOUBLE", "float64"))
    (250, 2.0)
    """
    if within is None:
        return None
    given = f"within={within!r}"
    if kind.micros is not None:
        if isinstance(within, int | float | Decimal):
            raise UnsupportedTypeError(
                f"{given} is a number, but the time columns are of type {kind.ddl}",
                accepted="a length of time, such as '10 seconds' or a timedelta",
            )
        length = duration(within, argument="within", zero=True)
        return length * _NANOS if kind.ddl.startswith("TIME(") else length // kind.micros
    if isinstance(within, bool) or not isinstance(within, int | float | Decimal):
        raise UnsupportedTypeError(
            f"{given} is not a number, but the time columns are of type {kind.ddl}", accepted="a number, 0 or more"
        )
    if not is_distance(within):
        raise ArgumentError(given, accepted="a finite number, 0 or more", hint="leave within= out for any distance")
    if kind.kind in ("int", "rank"):
        return whole_distance(within, kind.unit)
    return float_distance(within)

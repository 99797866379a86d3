"""Lengths of time and tumbling windows, as a user writes them.

A length of time is kept in whole microseconds, the resolution of Spark's timestamps, so that no comparison
ever rounds.  Months and years have no fixed length and are refused wherever a length is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from dovetail.errors import ArgumentError, is_whole

MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
"""The units of fixed length, by their singular English name."""

_SHORT = {
    "w": "week",
    "d": "day",
    "h": "hour",
    "hr": "hour",
    "min": "minute",
    "s": "second",
    "sec": "second",
    "ms": "millisecond",
    "us": "microsecond",
    "µs": "microsecond",
    "μs": "microsecond",
}

_NO_FIXED_LENGTH = ("month", "quarter", "year")

_AMOUNT = re.compile(r"([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*([^\W\d_]+)\s*", re.ASCII | re.IGNORECASE)
_MICRO_SIGN = str.maketrans({"µ": "u", "μ": "u"})

# Spark counts time in a signed 64-bit number of microseconds.
_LONGEST = 2**63 - 1

_ACCEPTED = "a timedelta, or text such as '10 minutes', '1 hour 30 minutes', '5 s', '250 ms'"


def amounts(text: str) -> list[tuple[Decimal, str]] | None:
    """Split ``"1 hour 30 minutes"`` into numbers and lower-case unit words, or None where it does not split.

    The words are not checked: a caller decides which of them it knows.

    Examples
    --------
    >>> amounts("1 hour -30 MINUTES")
    [(Decimal('1'), 'hour'), (Decimal('-30'), 'minutes')]
    >>> amounts("an hour") is None
    True
    """
    parts: list[tuple[Decimal, str]] = []
    rest = text.strip().translate(_MICRO_SIGN)
    while rest:
        match = _AMOUNT.match(rest)
        if match is None:
            return None
        sign, number, unit = match.groups()
        parts.append((Decimal(sign + number), unit.lower()))
        rest = rest[match.end() :]
    return parts or None


def singular(word: str) -> str:
    """The singular of a unit word: ``minutes`` and ``minute`` give ``minute``."""
    return word[:-1] if word.endswith("s") and word[:-1] in MICROSECONDS else word


def is_unit(word: str) -> bool:
    """Whether a word names a unit of time, those without a fixed length included.

    Examples
    --------
    >>> is_unit("MINUTES"), is_unit("min"), is_unit("months"), is_unit("apples")
    (True, True, True, False)
    """
    unit = singular(word.lower())
    return unit in MICROSECONDS or unit in _SHORT or unit.removesuffix("s") in _NO_FIXED_LENGTH


def duration(value: str | timedelta, *, argument: str, zero: bool = False) -> int:
    """Read a length of time as a positive number of whole microseconds.

    Parameters
    ----------
    value
        A ``timedelta``, or numbers with units from weeks down to microseconds, long or short, in any order;
        a leading ``INTERVAL`` as in SQL is allowed.
    argument
        The name of the argument that the value came in, for the error message.
    zero
        Whether a length of zero is allowed, as for a distance between two times.

    Raises
    ------
    ArgumentError
        If the value is no length of time, has no fixed length, is not positive or is finer than one
        microsecond.

    Examples
    --------
    >>> duration("1 hour 30 minutes", argument="within")
    5400000000
    >>> duration("INTERVAL 250 ms", argument="within")
    250000
    >>> duration("2 months", argument="within")
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: within='2 months' has no fixed length
      accepted: a timedelta, or text such as '10 minutes', '1 hour 30 minutes', '5 s', '250 ms'
      hint: a month or a year is longer or shorter by the calendar: write the length in days
    """
    given = f"{argument}={value!r}"
    if isinstance(value, timedelta):
        return _checked(value // timedelta(microseconds=1), given, zero=zero)
    if not _is_text(value):
        hint = f"say the unit: {argument}='{value} seconds'" if _is_number(value) else None
        raise ArgumentError(f"{given} is not a length of time", accepted=_ACCEPTED, hint=hint)

    text = re.sub(r"^\s*interval\b", "", value, flags=re.IGNORECASE).replace("'", " ")
    parts = amounts(text)
    if parts is None:
        hint = f"say the unit: {argument}='{text.strip()} seconds'" if text.strip().isdecimal() else None
        raise ArgumentError(f"{given} is not a length of time", accepted=_ACCEPTED, hint=hint)
    total = Decimal(0)
    for amount, word in parts:
        unit = _SHORT.get(word, singular(word))
        if unit.removesuffix("s") in _NO_FIXED_LENGTH:
            raise ArgumentError(
                f"{given} has no fixed length",
                accepted=_ACCEPTED,
                hint="a month or a year is longer or shorter by the calendar: write the length in days",
            )
        if unit not in MICROSECONDS:
            raise ArgumentError(
                f"{given} has the unknown unit {word!r}",
                accepted=_ACCEPTED,
                hint="units: weeks, days, hours, minutes, seconds, milliseconds (ms), microseconds (us)",
            )
        total += amount * MICROSECONDS[unit]
    if total != int(total):
        raise ArgumentError(f"{given} is finer than a microsecond", accepted=_ACCEPTED)
    return _checked(int(total), given, zero=zero)


def in_words(microseconds: int) -> str:
    """A length of time in the largest unit that it is a whole number of.

    Examples
    --------
    >>> in_words(5_000_000), in_words(-3_600_000_000), in_words(90_000_000), in_words(0)
    ('5 seconds', '-1 hour', '90 seconds', '0 seconds')
    """
    unit = next((name for name, size in MICROSECONDS.items() if microseconds and microseconds % size == 0), "second")
    count = microseconds // MICROSECONDS[unit]
    return f"{count} {unit}{'' if abs(count) == 1 else 's'}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checked(microseconds: int, given: str, *, zero: bool) -> int:
    if microseconds < (0 if zero else 1):
        raise ArgumentError(f"{given} is not longer than zero", accepted=_ACCEPTED)
    if microseconds > _LONGEST:
        raise ArgumentError(f"{given} is longer than Spark can count", accepted="at most 106751991 days")
    return microseconds


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Tumbling windows of a fixed number of rows.

    Examples
    --------
    >>> CountWindow(rows=1000)
    CountWindow(rows=1000)
    """

    rows: int

    def __post_init__(self) -> None:
        if not is_whole(self.rows):
            raise ArgumentError(f"a window of rows={self.rows!r}", accepted="a whole number of rows, 1 or more")


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Tumbling windows of a fixed length in time, aligned to the epoch (1970-01-01 00:00:00 UTC).

    Attributes
    ----------
    time
        The column that holds a row's time.
    every
        The length of a window, in microseconds.

    Examples
    --------
    >>> TimeWindow(time="ts", every=60_000_000)
    TimeWindow(time='ts', every=60000000)
    """

    time: str
    every: int

    def __post_init__(self) -> None:
        _check_column(self.time)
        if not isinstance(self.every, int) or isinstance(self.every, bool) or not 1 <= self.every <= _LONGEST:
            raise ArgumentError(f"a window of every={self.every!r}", accepted="whole microseconds, 1 or more")


def _check_column(time: object) -> None:
    if not isinstance(time, str) or not time.strip():
        raise ArgumentError(f"time={time!r} is not a column name", accepted="the name of a time column, such as 'ts'")


def tumbling(window: int | str | timedelta | None, time: str | None = None) -> CountWindow | TimeWindow | None:
    """Turn the arguments ``window=`` and ``time=`` into a window, or None where there is none.

    Parameters
    ----------
    window
        A number of rows, a length of time (see `duration`), or None for no window.
    time
        The time column: needed for a length of time, refused with anything else.

    Examples
    --------
    >>> tumbling(500)
    CountWindow(rows=500)
    >>> tumbling("1 minute", time="ts")
    TimeWindow(time='ts', every=60000000)
    >>> tumbling("1 minute")
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: window='1 minute' is a length of time, and time= is missing
      accepted: the name of a time column, such as time='ts'
      hint: a number, such as window=1000, counts rows and needs no time column
    """
    if time is not None:
        _check_column(time)
    if isinstance(window, (str, timedelta)):
        every = duration(window, argument="window")
        if time is None:
            raise ArgumentError(
                f"window={window!r} is a length of time, and time= is missing",
                accepted="the name of a time column, such as time='ts'",
                hint="a number, such as window=1000, counts rows and needs no time column",
            )
        return TimeWindow(time=time, every=every)
    if window is not None and not is_whole(window):
        raise ArgumentError(
            f"window={window!r} is not a window",
            accepted="a number of rows (1 or more), a length of time such as '10 minutes', or None",
        )
    if time is not None:
        what = "there is no window" if window is None else "the window counts rows"
        raise ArgumentError(
            f"time={time!r} is given, but {what}",
            accepted="time= together with a window that is a length of time",
            hint="write the window as a length of time, such as window='10 minutes', or leave time= out",
        )
    return None if window is None else CountWindow(rows=window)

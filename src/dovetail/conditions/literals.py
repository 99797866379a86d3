"""Literals in a join condition: numbers and intervals, from SQL text to Python values and back."""

from __future__ import annotations

import math
import re
import struct
from datetime import timedelta
from decimal import Decimal
from typing import TypeAlias

from dovetail.conditions.durations import MICROSECONDS, amounts, singular

_NUMBER = re.compile(r"(?P<digits>\d+(?P<point>\.\d*)?|(?P<lead>\.\d+))(?P<exp>E[+-]?\d+)?(?P<type>BD|[LSYFD])?", re.I)
_INTEGER_BITS = {"": 64, "L": 64, "S": 16, "Y": 8}
_MAX_DECIMAL_DIGITS = 38

Value: TypeAlias = int | Decimal | float | timedelta
"""A literal in the type that it has in SQL."""


def number(sql: str, *, negative: bool) -> int | Decimal | float | None:
    """A number with the type that Spark gives it; None where Spark has no such number.

    Examples
    --------
    >>> number("1", negative=True), number("1.50", negative=False), number("1e3", negative=False)
    (-1, Decimal('1.50'), 1000.0)
    >>> number("200Y", negative=False) is None
    True
    """
    match = _NUMBER.fullmatch(sql)
    if match is None:
        return None
    suffix = (match["type"] or "").upper()
    text = ("-" if negative else "") + sql[: len(sql) - len(suffix)]
    if suffix in ("D", "F") or (match["exp"] and not suffix):
        return _float(float(text), single=suffix == "F")
    if suffix == "BD" or ((match["point"] or match["lead"]) and not suffix):
        exact = Decimal(text)
        # Counted, not written out: 1e999999999BD would fill the memory.
        written = max(0, exact.adjusted() + 1 - min(0, int(exact.as_tuple().exponent))) if exact else 0
        return exact if written <= _MAX_DECIMAL_DIGITS else None
    if match["point"] or match["lead"] or match["exp"]:
        return None
    if len(text) > _MAX_DECIMAL_DIGITS + 1:
        return None  # more digits than any type of Spark has, and perhaps than Python reads
    whole, limit = int(text), 2 ** (_INTEGER_BITS[suffix] - 1)
    if -limit <= whole < limit:
        return whole
    # Only a literal without a suffix grows beyond its type.
    return Decimal(whole) if not suffix and len(str(abs(whole))) <= _MAX_DECIMAL_DIGITS else None


def _float(value: float, *, single: bool) -> float | None:
    if single and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def interval(body: str) -> timedelta | None:
    """The length of what follows the word INTERVAL; None where it is not fixed or Spark does not read it.

    Examples
    --------
    >>> interval("1 HOUR 30 MINUTES")
    datetime.timedelta(seconds=5400)
    >>> interval("1 MONTH") is None
    True
    """
    whole = re.fullmatch(r"(['\"])(?P<text>[^'\"]*)\1", body)
    if whole:
        text = re.sub(r"^\s*interval\b", "", whole["text"], flags=re.IGNORECASE)
    else:
        text = re.sub(r"(['\"])\s*([+-]?[\d.]+)\s*\1", r" \2 ", body)
    parts = None if re.search(r"[\d.][a-z]", text, re.IGNORECASE) else amounts(text)
    total = Decimal(0)
    for amount, word in parts or ():
        unit = singular(word)
        if unit not in MICROSECONDS or (amount != int(amount) and unit != "second"):
            return None
        total += amount * MICROSECONDS[unit]
    # Spark would cut off what is finer than a microsecond: leave it to Spark, as we do with a length beyond 64 bits.
    if not parts or total != int(total) or abs(total) >= 2**63:
        return None
    return timedelta(microseconds=int(total))


def negated(value: Value) -> Value:
    """The value with its sign turned, exactly; zero stays as it is."""
    # Decimal's minus rounds to the context's precision, and 0.0 must not become -0.0.
    if not value:
        return value
    return value.copy_negate() if isinstance(value, Decimal) else -value


def literal_sql(value: Value) -> str:
    """The value as a literal of Spark SQL that has the same type.

    Examples
    --------
    >>> literal_sql(Decimal("5")), literal_sql(0.5), literal_sql(timedelta(minutes=-1))
    ('5BD', '0.5D', "INTERVAL '-60' SECOND")
    """
    if isinstance(value, timedelta):
        total = value // timedelta(microseconds=1)
        seconds, micros = divmod(abs(total), 1_000_000)
        fraction = f".{micros:06d}" if micros else ""
        return f"INTERVAL '{'-' if total < 0 else ''}{seconds}{fraction}' SECOND"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if "." in text else f"{text}BD"
    return f"{value!r}D" if isinstance(value, float) else str(value)

"""Arguments that no function of the package asks for, and some that are almost right."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import dovetail as dt


class Odd:
    """A type that nobody knows."""

    def __repr__(self) -> str:
        return "Odd()"


NOTHING = [None, [], {}, (), set(), b"", "", " ", [None], (None,), {"R": None}, {None: None}]
NUMBERS = [
    0, -1, 5, True, False, 1.5, -0.0, math.nan, math.inf, -math.inf, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    10**30, -(10**30), 10**400, complex(1, 1), decimal.Decimal("NaN"), decimal.Decimal("sNaN"),
    decimal.Decimal("1e999"),
    decimal.Decimal("-0.5"),
]  # fmt: skip
TIMES = [
    datetime.timedelta(0), datetime.timedelta(-1), datetime.timedelta.max, datetime.timedelta.min,
    datetime.datetime(1, 1, 1), datetime.date.max, datetime.time(),
]  # fmt: skip
LENGTHS = [
    "5 seconds", "-5 seconds", "0 seconds", "5", "5 parsecs", "1 month", "1e400 seconds", "9" * 400 + " seconds",
    "99999999999 weeks", "0.0000001 seconds", "+ seconds", "5 seconds 5", "NaN seconds", "\u0665 seconds",
]  # fmt: skip
TEXTS = [
    "nosuch", "ID", "id", "R", "R.id", "R.*", "*", "id + ", "1", "NULL", "TRUE", "`", "'", '"', "\x00", "\ud800", "é",
    "\U0001f642", "x" * 10_000, "id;", "id -- x", "(" * 300 + "R.id" + ")" * 300 + " < S.id", "R.id < S.id /*",
    "$x", "{}", "id AS id", "R -> S", "R -> R", "->", "R -> T", "count(*)", "sum(R.id)", "R.id < S.id", "local[-1]",
]  # fmt: skip
THINGS: list[Any] = [
    b"id", [1], ["id"], ["id", "id"], ["id", None], ("id",), {"id"}, {"R": "id"}, {"R": "id", "S": "id"}, {"X": "id"},
    {1: 2}, {("R", "S"): None}, {("R", "S"): (1,)}, {("R", "S"): (5, 1)}, {("R",): 1}, {("R", "R"): 1}, {"RS": 1},
    {("R", "X"): 1}, range(3), Odd(), Odd, len, lambda p, q: None, iter(["id"]), dt.closest("id"), dt.Harvest(),
    dt.path("R -> S", None), [[]], {"kind": 1}, [{"kind": "batch"}], [{}],
]  # fmt: skip

BAD: list[Any] = [*NOTHING, *NUMBERS, *TIMES, *LENGTHS, *TEXTS, *THINGS]


def settled(function: Any, *arguments: Any, **options: Any) -> None:
    """Call a function: it may work, or complain in our words; anything else is a bug."""
    complaint: dt.DovetailError | None = None
    try:
        function(*arguments, **options)
    except dt.DovetailError as error:
        complaint = error
    assert complaint is None or str(complaint).strip(), "a complaint without a word"

"""Tables for the nets: every type, values that cause trouble, columns in any order and any case.

Everything that must not matter to a join is drawn here from a seed: which columns a table has, their order, the case of
their names, how many rows there are and which of them are NULL.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

_UTC = dt.UTC
_MONDAY = dt.datetime(2024, 3, 10, 6, 30, tzinfo=_UTC)  # clocks change in New York on this day

DOMAINS: dict[str, tuple[T.DataType, list[Any]]] = {
    "k": (T.IntegerType(), [0, 1, 2, 2, 3]),
    "i": (T.IntegerType(), [-(2**31), -5, 0, 1, 2, 2, 7, 16777217, 2**31 - 1]),
    "l": (T.LongType(), [-(2**63), -5, 0, 1, 2, 7, 16777217, 2**53 + 1, 2**63 - 1]),
    "sh": (T.ShortType(), [-32768, -1, 0, 1, 2, 7, 32767]),
    "f": (T.FloatType(), [math.nan, -math.inf, -0.0, 0.0, 0.1, 2.0, 7.0, 16777216.0, math.inf]),
    "d": (T.DoubleType(), [math.nan, -math.inf, -0.0, 0.0, 0.1, 2.0, 7.0, 9007199254740993.0, math.inf]),
    "c": (T.DecimalType(10, 2), [decimal.Decimal(x) for x in ("-5.00", "0.00", "0.10", "2.00", "7.00", "7.01")]),
    "w": (
        T.DecimalType(30, 4),
        [decimal.Decimal(x) for x in ("-5", "0", "0.1", "2", "7", "12345678901234567890.1234")],
    ),
    "s": (T.StringType(), ["", "0", "1", "2", "2.0", "7", "a", "A", "ä", "b ", "2024-03-10"]),
    "da": (T.DateType(), [dt.date(2024, 3, 9), dt.date(2024, 3, 10), dt.date(2024, 3, 10), dt.date(2024, 3, 11)]),
    "ts": (T.TimestampType(), [_MONDAY + dt.timedelta(minutes=m) for m in (-390, -30, 0, 0, 30, 60, 1050)]),
    "tn": (
        T.TimestampNTZType(),
        [(_MONDAY + dt.timedelta(minutes=m)).replace(tzinfo=None) for m in (-390, -30, 0, 0, 30, 60, 1050)],
    ),
    "bo": (T.BooleanType(), [True, False, True]),
    "bi": (T.BinaryType(), [b"", b"a", b"a\x00", b"b"]),
    "iv": (T.DayTimeIntervalType(0, 3), [dt.timedelta(minutes=m) for m in (-30, 0, 0, 30, 60)]),
    "ar": (T.ArrayType(T.IntegerType()), [[], [1], [1, 2], [2], [None]]),
    "st": (
        T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.StringType())]),
        [(1, "x"), (1, None), (2, "x")],
    ),
}
ORDERED = ("k", "i", "l", "sh", "f", "d", "c", "w", "s", "da", "ts", "tn", "bo", "iv", "bi")
NUMBERS = ("k", "i", "l", "sh", "f", "d", "c", "w")
TIMES = ("da", "ts", "tn")


@dataclass(frozen=True)
class Table:
    """A table of the net: its name, its frame and its columns as they are spelled."""

    name: str
    frame: DataFrame
    columns: tuple[tuple[str, str], ...]
    """(domain, spelled name)"""

    def of(self, draw: random.Random, domains: tuple[str, ...]) -> str | None:
        """The spelling of a random column of one of the domains; None where the table has none."""
        fitting = [name for domain, name in self.columns if domain in domains]
        return draw.choice(fitting) if fitting else None


def make_table(spark: SparkSession, name: str, draw: random.Random, *, domains: tuple[str, ...] = ()) -> Table:
    """A random table with the columns k and those of `domains`, and some others; registered as a view."""
    wanted = {"k", *domains, *draw.sample(sorted(DOMAINS), draw.randint(1, 5))}
    order = sorted(wanted)
    draw.shuffle(order)
    spelled = [domain.upper() if draw.random() < 0.2 and domain != "k" else domain for domain in order]
    schema = T.StructType([T.StructField(n, DOMAINS[d][0]) for d, n in zip(order, spelled, strict=True)])
    rows = [[_value(draw, domain) for domain in order] for _ in range(draw.choice([0, 1, 4, 8, 12]))]
    frame = spark.createDataFrame(rows, schema)
    frame.createOrReplaceTempView(name)
    return Table(name, frame, tuple(zip(order, spelled, strict=True)))


def _value(draw: random.Random, domain: str) -> Any:
    values = DOMAINS[domain][1]
    return None if draw.random() < 0.15 else draw.choice(values)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame in an order of their own, NaN and -0.0 made comparable."""
    return sorted((_plain(tuple(row)) for row in frame.collect()), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(part)) for key, part in value.items()))
    if isinstance(value, bytearray):
        return bytes(value)
    return value

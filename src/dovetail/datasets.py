"""Small made-up tables for the demo, the examples and the docs: the same rows for the same seed, on every machine.

The tables are Arrow tables, so they need no Spark; ``spark.createDataFrame(table)`` takes them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.errors import ArgumentError

__all__ = ["meetings_and_repairs", "phones_and_laptops", "price_streams", "sensor_readings"]

_MONDAY = np.datetime64("2026-03-02T00:00:00", "us")
_MINUTE = 60_000_000
_TIMES = pa.timestamp("us", tz="UTC")

START = datetime(2026, 3, 2, tzinfo=UTC)
"""The first moment of every table with times: a Monday."""


def phones_and_laptops(phones: int = 6, laptops: int = 6, *, seed: int = 7) -> tuple[pa.Table, pa.Table]:
    """Two price lists, with columns ``name`` and ``price``; the last laptop has no price.

    Examples
    --------
    >>> phones, laptops = phones_and_laptops()
    >>> phones.column_names, laptops["price"].null_count
    (['name', 'price'], 1)
    """
    _check("phones", phones)
    _check("laptops", laptops)
    random = np.random.default_rng(seed)
    phone = random.integers(20, 120, phones) * 10 - 1
    laptop = random.integers(50, 200, laptops) * 10 - 1
    unknown = np.arange(laptops) == laptops - 1
    return _prices("P", phone, np.zeros(phones, dtype=np.bool_)), _prices("L", laptop, unknown)


def _prices(letter: str, prices: npt.NDArray[np.int64], unknown: npt.NDArray[np.bool_]) -> pa.Table:
    names = [f"{letter}{number}" for number in range(1, prices.size + 1)]
    return pa.table({"name": names, "price": _column(prices, pa.int32(), unknown)})


def meetings_and_repairs(
    meetings: int = 200, repairs: int = 40, *, rooms: int = 10, seed: int = 7
) -> tuple[pa.Table, pa.Table]:
    """A week of meetings, and the repairs that close rooms meanwhile.

    Both tables have the columns ``id``, ``room``, ``start`` and ``end``.  Every interval starts before it ends.  One
    meeting in twenty is not yet planned: its times are NULL.

    Examples
    --------
    >>> meetings, repairs = meetings_and_repairs()
    >>> meetings.num_rows, repairs.num_rows, meetings["start"].null_count
    (200, 40, 10)
    """
    for name, value in (("meetings", meetings), ("repairs", repairs), ("rooms", rooms)):
        _check(name, value)
    random = np.random.default_rng(seed)
    planned = _intervals(random, meetings, rooms, longest=8, unplanned=np.arange(meetings) % 20 == 19)
    closed = _intervals(random, repairs, rooms, longest=32, unplanned=np.zeros(repairs, dtype=np.bool_))
    return planned, closed


def _intervals(
    random: np.random.Generator, rows: int, rooms: int, *, longest: int, unplanned: npt.NDArray[np.bool_]
) -> pa.Table:
    """Intervals in whole quarters of an hour within five working days of ten hours."""
    quarter = 15 * _MINUTE
    day = random.integers(0, 5, rows)
    first = random.integers(0, 40, rows)
    lasts = random.integers(1, longest + 1, rows)
    start = _MONDAY.astype(np.int64) + day * 96 * quarter + (32 + first) * quarter
    return pa.table(
        {
            "id": pa.array(np.arange(rows), pa.int32()),
            "room": [f"room {number}" for number in random.integers(1, rooms + 1, rows)],
            "start": _column(start, _TIMES, unplanned),
            "end": _column(start + lasts * quarter, _TIMES, unplanned),
        }
    )


def sensor_readings(rows: int = 1000, *, seed: int = 7) -> tuple[pa.Table, pa.Table]:
    """The readings of two sensors, with columns ``id`` and ``value``, to be matched within a tolerance.

    Values spread evenly over ``rows`` units: a tolerance of 1 matches each reading with about two of the other sensor,
    whatever the number of rows.

    Examples
    --------
    >>> a, b = sensor_readings(1000)
    >>> near = np.abs(a["value"].to_numpy()[:, None] - b["value"].to_numpy()) <= 1
    >>> round(float(near.sum()) / 1000)
    2
    """
    _check("rows", rows)
    random = np.random.default_rng(seed)
    made = []
    for _ in range(2):
        value = np.round(random.uniform(0, rows, rows), 3)
        made.append(pa.table({"id": np.arange(rows), "value": value}))
    return made[0], made[1]


def price_streams(
    batches: int = 6, rows: int = 1000, *, items: int = 50, seconds: int = 30, seed: int = 7
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Offers to buy and offers to sell as they arrive: one pair of tables (bids, asks) for every `seconds` of time.

    The columns are ``item``, ``price`` and ``ts``.  A few bids reach the price of an ask for the same item.

    Examples
    --------
    >>> [(bids.num_rows, asks.num_rows) for bids, asks in price_streams(2, rows=10)]
    [(10, 10), (10, 10)]
    """
    for name, value in (("batches", batches), ("rows", rows), ("items", items), ("seconds", seconds)):
        _check(name, value)
    random = np.random.default_rng(seed)
    worth = random.uniform(20, 200, items)
    for batch in range(batches):
        yield _offers(random, worth, 0.97, rows, batch, seconds), _offers(random, worth, 1.03, rows, batch, seconds)


def _offers(
    random: np.random.Generator, worth: npt.NDArray[np.float64], factor: float, rows: int, batch: int, seconds: int
) -> pa.Table:
    item = random.integers(0, worth.size, rows)
    price = np.round(worth[item] * random.normal(factor, 0.02, rows), 2)
    length = seconds * 1_000_000
    moment = _MONDAY.astype(np.int64) + batch * length + np.sort(random.integers(0, length, rows))
    names = np.array([f"item {number}" for number in range(1, worth.size + 1)])
    return pa.table({"item": names[item], "price": price, "ts": pa.array(moment, _TIMES)})


def _column(values: npt.NDArray[np.int64], kind: pa.DataType, unknown: npt.NDArray[np.bool_]) -> pa.Array[Any]:
    return pa.array(values, pa.int64(), mask=unknown).cast(kind)


def _check(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{name}={value!r}", accepted="a whole number of at least 1")

"""Generated tables: prices, bookings, sensors, sales, trades, clicks and cameras."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.errors import ArgumentError

__all__ = [
    "camera_sightings",
    "clicks_and_orders",
    "meetings_and_repairs",
    "phones_and_laptops",
    "price_streams",
    "sensor_readings",
    "store_sales",
    "trades_and_quotes",
    "weather_sensors",
]

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


def store_sales(
    stores: int = 3, days: int = 1, *, per_hour: int = 5000, items: int = 10_000, seed: int = 7
) -> list[pa.Table]:
    """What some stores sold: for each a table with the columns ``item``, ``quantity``, ``price`` and ``ts``, by time.

    The stores are open from 7:30 to 20:00 and sell `per_hour` items an hour on average, most of them around noon and
    after work.  Some items sell up to ten times as often as others, the same ones in every store.

    Examples
    --------
    >>> first, second = store_sales(2, per_hour=100)
    >>> first.num_rows, str(first["ts"][0].as_py().time()) >= "07:30:00"
    (1250, True)
    """
    for name, value in (("stores", stores), ("days", days), ("per_hour", per_hour), ("items", items)):
        _check(name, value)
    random = np.random.default_rng(seed)
    price = np.round(random.lognormal(2, 0.8, items), 2)
    wanted = 1 / np.sqrt(np.arange(items) + items / 100)
    share = np.cumsum(random.permutation(wanted / wanted.sum()))
    return [_sales(random, days, round(12.5 * per_hour), share, price) for _ in range(stores)]


def _sales(
    random: np.random.Generator, days: int, rows: int, share: npt.NDArray[np.float64], price: npt.NDArray[np.float64]
) -> pa.Table:
    """The sales of one store, `rows` on each day."""
    # How busy each quarter of an hour is: a base and two waves, cut off where the doors close.
    clock = np.linspace(7.5, 20, 51)
    middle = (clock[1:] + clock[:-1]) / 2
    busy = 0.5 + np.exp(-(((middle - 12.5) / 1.5) ** 2)) + 1.3 * np.exp(-(((middle - 17.5) / 1.2) ** 2))
    reached = np.concatenate([[0.0], np.cumsum(busy / busy.sum())])
    hour = np.sort(np.interp(random.random((days, rows)), reached, clock), axis=1)
    moment = _MONDAY.astype(np.int64) + np.arange(days)[:, None] * 24 * 60 * _MINUTE + (hour * 60 * _MINUTE).astype(int)
    item = np.minimum(np.searchsorted(share, random.random(days * rows)), share.size - 1)
    return pa.table(
        {
            "item": pa.array(item, pa.int64()),
            "quantity": pa.array(random.geometric(0.7, item.size), pa.int32()),
            "price": price[item],
            "ts": pa.array(moment.reshape(-1), _TIMES),
        }
    )


def trades_and_quotes(
    trades: int = 200, quotes: int = 2000, *, items: int = 5, seed: int = 7
) -> tuple[pa.Table, pa.Table]:
    """A trading day of quotes, and the trades that follow them.

    Trades have the columns ``item``, ``ts``, ``price`` and ``size``; quotes have ``item``, ``ts``, ``bid`` and ``ask``.
    Quotes come in bursts, and now and then two for one item at the same moment; a trade happens close to the price
    that was quoted last.

    Examples
    --------
    >>> trades, quotes = trades_and_quotes()
    >>> trades.num_rows, quotes.num_rows, trades.column_names
    (200, 2000, ['item', 'ts', 'price', 'size'])
    """
    for name, value in (("trades", trades), ("quotes", quotes), ("items", items)):
        _check(name, value)
    random = np.random.default_rng(seed)
    opening = _MONDAY.astype(np.int64) + 9 * 60 * _MINUTE
    day = 8 * 60 * _MINUTE
    # Milliseconds, so that some quotes of an item share one.
    when = np.sort(np.minimum(random.exponential(0.3, quotes), 1) * day // 1000 * 1000).astype(np.int64)
    of = random.integers(0, items, quotes)
    middle = (20 + 10 * np.arange(items))[of] * np.exp(np.cumsum(random.normal(0, 0.0004, quotes)))
    spread = np.round(random.gamma(2, 0.01, quotes), 2)
    names = np.array([f"item {number}" for number in range(1, items + 1)])
    bid, ask = np.round(middle - spread, 2), np.round(middle + spread, 2)
    after = np.sort(random.integers(0, quotes, trades))
    moment = when[after] + random.integers(0, 5_000_000, trades)
    quoted = pa.table({"item": names[of], "ts": pa.array(opening + when, _TIMES), "bid": bid, "ask": ask})
    traded = pa.table(
        {
            "item": names[of[after]],
            "ts": pa.array(opening + moment, _TIMES),
            "price": np.where(random.random(trades) < 0.5, bid[after], ask[after]),
            "size": pa.array(random.geometric(0.01, trades), pa.int32()),
        }
    )
    return traded, quoted


def weather_sensors(
    sensors: int = 40, hours: int = 4, *, metres: int = 600, seed: int = 7
) -> tuple[pa.Table, pa.Table]:
    """Readings of temperature and of humidity by sensors at different places, each at a rate of its own.

    Both tables have the columns ``sensor``, ``t``, ``x``, ``y`` (metres) and ``v``, in the order of time.  Some
    sensors of either kind have none of the other nearby.

    Examples
    --------
    >>> temperature, humidity = weather_sensors()
    >>> temperature.column_names, temperature["sensor"].to_pylist()[:1] != humidity["sensor"].to_pylist()[:1]
    (['sensor', 't', 'x', 'y', 'v'], True)
    """
    for name, value in (("sensors", sensors), ("hours", hours), ("metres", metres)):
        _check(name, value)
    random = np.random.default_rng(seed)
    return (
        _readings(random, "T", sensors, hours, metres, 12.0, 6.0),
        _readings(random, "H", sensors, hours, metres, 70.0, -15.0),
    )


def _readings(
    random: np.random.Generator, letter: str, sensors: int, hours: int, metres: int, mean: float, swing: float
) -> pa.Table:
    """Readings of one kind: the air is the same for all, and every sensor adds its own noise."""
    position = np.round(random.uniform(0, metres, (sensors, 2)), 1)
    every = random.integers(2, 15, sensors) * _MINUTE
    which, when = [], []
    for number in range(sensors):
        moments = np.arange(random.integers(0, every[number]), hours * 60 * _MINUTE, every[number])
        which.append(np.full(moments.size, number))
        when.append(moments)
    sensor, moment = np.concatenate(which), np.concatenate(when)
    order = np.lexsort((sensor, moment))
    sensor, moment = sensor[order], moment[order]
    value = mean + swing * np.sin(moment / (6 * 60 * _MINUTE)) + random.normal(0, 0.3, moment.size)
    names = np.array([f"{letter}{number}" for number in range(1, sensors + 1)])
    return pa.table(
        {
            "sensor": names[sensor],
            "t": pa.array(_MONDAY.astype(np.int64) + moment, _TIMES),
            "x": position[sensor, 0],
            "y": position[sensor, 1],
            "v": np.round(value, 1),
        }
    )


def clicks_and_orders(
    clicks: int = 5000, orders: int = 5000, *, products: int = 200, seed: int = 7
) -> tuple[pa.Table, pa.Table]:
    """Clicks on products and orders of them, both skewed: the n-th product draws one n-th of the first one's share.

    Clicks have the columns ``id``, ``product``, ``country`` and ``seconds``, orders ``id``, ``product``, ``price`` and
    ``pieces``.  A join on ``product`` is far larger than its inputs.

    Examples
    --------
    >>> clicks, orders = clicks_and_orders(100, 50)
    >>> clicks.num_rows, orders.column_names
    (100, ['id', 'product', 'price', 'pieces'])
    """
    for name, value in (("clicks", clicks), ("orders", orders), ("products", products)):
        _check(name, value)
    random = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, products + 1)
    share /= share.sum()
    names = np.array([f"product {number}" for number in range(1, products + 1)])
    worth = np.round(random.lognormal(3, 0.6, products), 2)
    clicked, ordered = random.choice(products, clicks, p=share), random.choice(products, orders, p=share)
    countries = np.array(["DE", "FR", "IT", "PL"])
    return (
        pa.table(
            {
                "id": np.arange(clicks),
                "product": names[clicked],
                "country": countries[random.choice(4, clicks, p=[0.4, 0.3, 0.2, 0.1])],
                "seconds": np.round(random.exponential(20, clicks), 1),
            }
        ),
        pa.table(
            {
                "id": np.arange(orders),
                "product": names[ordered],
                "price": worth[ordered],
                "pieces": random.integers(1, 5, orders),
            }
        ),
    )


def camera_sightings(
    batches: int = 4, objects: int = 500, *, seed: int = 7
) -> Iterator[tuple[pa.Table, pa.Table, pa.Table]]:
    """Batches of what three cameras along a road see, each with columns ``obj``, ``speed`` and ``ts``.

    A batch is a minute.  Objects pass the first camera at any time, most of them the second within 5 seconds and the
    third within 10 seconds of that; one in five leaves the road on the way.  The cameras read speeds with an error.
    Rows are up to two seconds out of order.

    Examples
    --------
    >>> first, second, third = next(camera_sightings(batches=1))
    >>> first.num_rows > second.num_rows > third.num_rows
    True
    """
    _check("batches", batches)
    _check("objects", objects)
    random = np.random.default_rng(seed)
    waiting: list[tuple[npt.NDArray[np.int64], ...]] = []
    start = np.int64(_MONDAY.astype(np.int64))
    for batch in range(batches):
        obj = np.arange(objects, dtype=np.int64) + batch * objects
        speed = random.integers(40, 90, objects)
        first = start + batch * _MINUTE + random.integers(0, _MINUTE, objects)
        second = first + random.integers(1_000_000, 5_000_000, objects)
        third = second + random.integers(2_000_000, 10_000_000, objects)
        on_road = random.random((2, objects)) < 0.8
        waiting.append((np.zeros(objects, dtype=np.int64), obj, speed, first))
        stays = on_road[0]
        waiting.append((np.ones(int(stays.sum()), dtype=np.int64), obj[stays], speed[stays], second[stays]))
        stays = on_road[0] & on_road[1]
        waiting.append((np.full(int(stays.sum()), 2), obj[stays], speed[stays], third[stays]))
        camera, obj, speed, ts = (np.concatenate(column) for column in zip(*waiting, strict=True))
        due = ts + random.integers(0, 2_000_000, ts.size) < start + (batch + 1) * _MINUTE
        if batch == batches - 1:
            due[:] = True
        waiting = [(camera[~due], obj[~due], speed[~due], ts[~due])]
        order = np.argsort(ts[due] + random.integers(0, 2_000_000, int(due.sum())))
        camera, obj, speed, ts = (column[due][order] for column in (camera, obj, speed, ts))
        read = speed + random.integers(-1, 2, speed.size)
        tables = []
        for number in range(3):
            here = camera == number
            columns = {"obj": obj[here], "speed": read[here], "ts": pa.array(ts[here]).cast(_TIMES)}
            tables.append(pa.table(columns))
        yield tables[0], tables[1], tables[2]

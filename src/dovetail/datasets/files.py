"""Generated tables as folders of Parquet files, for job files and examples that read their data from disk."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dovetail import datasets
from dovetail.errors import choice

_FILES = 4
_FIRST_TIME = 1_000_000_000
"""The time of the first file; Spark reads files in the order of their times."""


@dataclass(frozen=True)
class Dataset:
    """How to make a set of tables, and what their folders are called."""

    make: Callable[..., Any]
    folders: tuple[str, ...]
    time: str | None = None
    """The column by which static tables are cut into files that arrive one after the other."""

    def batches(self, **sizes: int) -> Iterator[tuple[pa.Table, ...]]:
        """The tables of each file."""
        made = self.make(**sizes)
        if isinstance(made, Iterator):
            yield from made
            return
        yield from zip(*_cut(list(made), self.time), strict=True)


DATASETS: dict[str, Dataset] = {
    "bookings": Dataset(datasets.meetings_and_repairs, ("meetings", "repairs")),
    "cameras": Dataset(datasets.camera_sightings, ("A", "B", "C")),
    "clicks": Dataset(datasets.clicks_and_orders, ("clicks", "orders")),
    "market": Dataset(datasets.seekers_and_projects, ("seekers", "projects")),
    "news": Dataset(datasets.news_items, ("A", "B", "C")),
    "offers": Dataset(datasets.price_streams, ("bids", "asks")),
    "packets": Dataset(datasets.network_packets, ("A", "B", "C")),
    "prices": Dataset(datasets.phones_and_laptops, ("phones", "laptops")),
    "sales": Dataset(datasets.store_sales, ("A", "B", "C"), "ts"),
    "sensors": Dataset(datasets.sensor_readings, ("a", "b")),
    "trades": Dataset(datasets.trades_and_quotes, ("trades", "quotes"), "ts"),
    "weather": Dataset(datasets.weather_sensors, ("temperature", "humidity"), "t"),
}


def sizes_of(name: str) -> tuple[str, ...]:
    """The sizes that a data set takes.

    Examples
    --------
    >>> sizes_of("cameras")
    ('batches', 'objects', 'seed')
    """
    if name not in DATASETS:
        raise choice("dataset", name, DATASETS)
    return tuple(inspect.signature(DATASETS[name].make).parameters)


def write(name: str, folder: Path, **sizes: int) -> list[Path]:
    """Write a data set: a folder for each table, in which files arrive one after the other.

    Parameters
    ----------
    name : str
        One of :data:`DATASETS`.
    folder : Path
        Where the folders of the tables go.
    **sizes : int
        Arguments of the data set's function in :mod:`dovetail.datasets`.

    Returns
    -------
    list of Path
        The folders of the tables.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as temporary:
    ...     folders = write("cameras", Path(temporary), batches=2, objects=10)
    ...     [(one.name, len(list(one.iterdir()))) for one in folders]
    [('A', 2), ('B', 2), ('C', 2)]
    """
    sizes_of(name)
    dataset = DATASETS[name]
    folders = [folder / one for one in dataset.folders]
    for one in folders:
        one.mkdir(parents=True, exist_ok=True)
    for at, tables in enumerate(dataset.batches(**sizes)):
        for target, table in zip(folders, tables, strict=True):
            file = target / f"{at:04}.parquet"
            pq.write_table(table, file)
            # Files written at once may have the same time, and would then be read in any order.
            os.utime(file, (_FIRST_TIME + at,) * 2)
    return folders


def _cut(tables: list[pa.Table], time: str | None) -> Iterable[list[pa.Table]]:
    """Each table in files: by time, at moments common to all, or by number."""
    if time is None:
        for table in tables:
            size = max(1, -(-table.num_rows // _FILES))
            yield [table.slice(at * size, size) for at in range(_FILES)]
        return
    moments = [table[time].cast(pa.int64()).to_numpy() for table in tables]
    first, last = min(int(one.min()) for one in moments), max(int(one.max()) for one in moments)
    ends = np.linspace(first, last, _FILES + 1)[1:-1]
    for table, moment in zip(tables, moments, strict=True):
        order = np.argsort(moment, kind="stable")
        bounds = [0, *np.searchsorted(moment[order], ends), moment.size]
        ordered = table.take(order)
        yield [ordered.slice(int(low), int(high - low)) for low, high in pairwise(bounds)]

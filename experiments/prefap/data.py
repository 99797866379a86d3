"""The streams of the paper's section 4, or the nearest that can be had.

Stocks come from ``stocks.csv``.  The Clouds wind speeds (June and October 2000, every 5 s) are not available;
hourly wind speeds at the three New York airports in June and October 2013 stand in for them, 1000 rows drawn
again for every run.  They take some 25 distinct values, which the paper's data may not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from reproduce import MissingDataError

from dovetail.families.theta.paper.prefap import Values

SIZE = 1000
BEGIN, END = "2017-01-03", "2019-12-31"


@dataclass(frozen=True)
class Task:
    """One join of the paper: its streams, generated from a seed, and the comparisons between neighbours."""

    title: str
    labels: tuple[str, ...]
    ops: tuple[str, ...]
    streams: Callable[[int], tuple[Values, ...]]
    fixed: bool = False
    log_scale: bool = False

    @property
    def theta(self) -> str:
        """The condition in the paper's letters."""
        names = "RST"[: len(self.labels)]
        return names[0] + "".join(f" {op} {name}" for op, name in zip(self.ops, names[1:], strict=True))


def folder() -> Path:
    root = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("DOVETAIL_DATA", root.parent / "shared" / "data"))


def _file(name: str) -> Path:
    path = folder() / name
    if not path.is_file():
        raise MissingDataError(f"{path} is absent; DOVETAIL_DATA names the folder to look in")
    return path


@cache
def _stocks() -> pd.DataFrame:
    return pd.read_csv(_file("stocks.csv")).set_index(["symbol", "date"])["high"].unstack("symbol").sort_index()


@cache
def _wind(month: int) -> np.ndarray:
    table = pd.read_parquet(_file("nyc_weather_2013.parquet"), columns=["ts", "wind_speed"])
    return table.loc[table["ts"].dt.month == month, "wind_speed"].dropna().to_numpy()


def highs(symbol: str, begin: str = BEGIN, end: str = END) -> np.ndarray:
    return _stocks().loc[begin:end, symbol].dropna().to_numpy()


def stocks(title: str, symbols: tuple[str, ...], ops: tuple[str, ...], every: int = 1) -> Task:
    """Stock prices of the paper's period, on the 754 rows that give the paper's counts, or on some of them."""
    return Task(
        title, symbols, ops, lambda _: tuple(Values.of(highs(symbol)[::every]) for symbol in symbols), fixed=True
    )


def stock_periods(symbols: tuple[str, ...], ops: tuple[str, ...], rows: int, count: int) -> Task:
    """The same companies, one period of `rows` trading days per seed, evenly spread over what there is."""

    def streams(seed: int) -> tuple[Values, ...]:
        table = _stocks()[list(symbols)].dropna()
        begin = (len(table) - rows) * (seed % count) // max(count - 1, 1)
        return tuple(Values.of(table[symbol].to_numpy()[begin : begin + rows]) for symbol in symbols)

    return Task("stocks in many periods", symbols, ops, streams)


def stock_windows(symbols: tuple[str, str], op: str, w: int) -> Task:
    """The first w rows from 2010 on.  Daily prices have 2,517 rows; longer windows repeat them in a cycle."""
    return Task(
        "2-way stock streams",
        symbols,
        (op,),
        lambda _: tuple(Values.of(np.resize(highs(symbol, "2010-01-01", "2020-01-02"), w)) for symbol in symbols),
        fixed=True,
    )


def clouds(op: str) -> Task:
    def streams(seed: int) -> tuple[Values, ...]:
        rng = np.random.default_rng(seed)
        return tuple(Values.of(rng.choice(_wind(month), SIZE, replace=False)) for month in (6, 10))

    return Task("2-way wind speeds (stand-in for Clouds)", ("June", "October"), (op,), streams)


def uniform(ranges: tuple[tuple[float, float], ...], ops: tuple[str, ...], size: int = SIZE) -> Task:
    def streams(seed: int) -> tuple[Values, ...]:
        rng = np.random.default_rng(seed)
        return tuple(Values.of(rng.uniform(low, high, size)) for low, high in ranges)

    labels = tuple(f"[{low:g}, {high:g}]" for low, high in ranges)
    return Task(f"{len(ranges)}-way uniform streams", labels, ops, streams)


def zipf(shapes: tuple[float, float], op: str) -> Task:
    def streams(seed: int) -> tuple[Values, ...]:
        rng = np.random.default_rng(seed)
        return tuple(Values.of(rng.zipf(shape, SIZE)) for shape in shapes)

    labels = tuple(f"shape {shape}" for shape in shapes)
    return Task("2-way Zipf streams", labels, (op,), streams, log_scale=True)


def normal(means: tuple[float, float], op: str) -> Task:
    def streams(seed: int) -> tuple[Values, ...]:
        rng = np.random.default_rng(seed)
        return tuple(Values.of(rng.normal(mean, 1.0, SIZE)) for mean in means)

    return Task("2-way normal streams", tuple(f"mean {mean}" for mean in means), (op,), streams)

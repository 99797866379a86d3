"""The joins of the run, one or two for every streaming family, all over the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

import dovetail as dt
from chaos.inputs import DELAY, SCHEMA, files_at_once
from dovetail.conditions.criteria import Criterion


class Source(Protocol):
    """Where the inputs come from."""

    def stream(self, name: str) -> DataFrame:
        """Stream A, B or C, with the columns of `SCHEMA` and a watermark."""

    def ranges(self) -> DataFrame:
        """Give the static table S."""


Build = Callable[[Source], DataFrame]


@dataclass(frozen=True)
class Family:
    """A join, and how its result is written: only what tells its rows apart."""

    name: str
    build: Build
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """Folders of JSON files, each file a micro-batch unless the folder says otherwise."""

    spark: SparkSession
    folder: Path

    def stream(self, name: str) -> DataFrame:
        """Read a folder as a stream."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_at_once(self.folder))
        return reader.json(str(self.folder / name)).withWatermark("ts", DELAY)

    def ranges(self) -> DataFrame:
        """Read the static table."""
        return self.spark.read.parquet(str(self.folder / "S"))


def _streams(source: Source, names: str) -> dict[str, DataFrame]:
    return {name: source.stream(name) for name in names}


def _theta_count(source: Source) -> DataFrame:
    return dt.theta_join(_streams(source, "AB"), on="A.v <= B.v AND B.v <= A.v + 3", window=25)


def _theta_time(source: Source) -> DataFrame:
    inputs = _streams(source, "AB")
    return dt.theta_join(inputs, on="ABS(A.v - B.v) <= 1", how="left", window="10 seconds", time="ts")


def _beside(source: Source) -> DataFrame:
    inputs = {"A": source.stream("A"), "S": source.ranges()}
    return dt.theta_join(inputs, on="A.v >= S.low AND A.v < S.high", how="left")


def _window(source: Source) -> DataFrame:
    inputs = _streams(source, "ABC")
    return dt.window_join(inputs, on="A.k = B.k AND B.k = C.k", time="ts", within="4 seconds", partitions=2)


def _window_full(source: Source) -> DataFrame:
    inputs = _streams(source, "AB")
    within = {("A", "B"): ("-1 second", "2 seconds")}
    return dt.window_join(inputs, on="A.k = B.k", time="ts", within=within, how="full", partitions=2)


def _asof(source: Source) -> DataFrame:
    inputs = _streams(source, "AB")
    return dt.asof_join(inputs, by="k", time="ts", direction="nearest", how="left", within="5 seconds")


def _criteria() -> list[Criterion]:
    return [dt.closest("ts", within="3 seconds"), dt.closest("v", within=5)]


def _best_left(source: Source) -> DataFrame:
    return dt.bestmatch_join(_streams(source, "AB"), on=_criteria(), how="left")


def _best_inner(source: Source) -> DataFrame:
    return dt.bestmatch_join(_streams(source, "AB"), on=_criteria(), by="k")


def _shedding(source: Source) -> DataFrame:
    shed = dt.Harvest(throttle=0.3, basic_window="500 milliseconds", seed=5)
    on = "ABS(A.v - B.v) <= 8 AND ABS(B.v - C.v) <= 8"
    inputs = _streams(source, "ABC")
    return dt.window_join(inputs, on=on, time="ts", within="4 seconds", partitions=1, shed=shed)


def _approx(source: Source) -> DataFrame:
    return dt.approx_join(_streams(source, "AB"), on="A.k = B.k", memory=200, seed=8, partitions=2)


def _aggregate(source: Source) -> DataFrame:
    within = {("A", "B"): ("-3 seconds", "1 second")}
    agg = {"n": "count(*)", "total": "sum(B.v)", "top": "max(B.v)"}
    return dt.aggregate_join(_streams(source, "AB"), on="A.k = B.k", by="A", agg=agg, time="ts", within=within)


def _nearest(source: Source) -> DataFrame:
    inputs = _streams(source, "AB")
    return dt.nearest_join(inputs, on="ABS(A.v - B.v)", by="k", k=2, how="left", time="ts", window="4 seconds")


_PAIR = ("A.id AS a", "B.id AS b", "A.v AS av", "B.v AS bv")
_THREE = (*_PAIR, "C.id AS c", "C.v AS cv")

FAMILIES = {
    family.name: family
    for family in (
        Family("theta, rows", _theta_count, _PAIR),
        Family("theta, time, left", _theta_time, _PAIR),
        Family("beside static, left", _beside, ("A.id AS a", "S.name AS s", "A.v AS av")),
        Family("window, 3 inputs", _window, _THREE),
        Family("window, full", _window_full, _PAIR),
        Family("as-of, nearest, left", _asof, _PAIR),
        Family("best match, left", _best_left, _PAIR),
        Family("best match, inner", _best_inner, (*_PAIR, "_change AS change")),
        Family("shedding", _shedding, _THREE),
        Family("approx", _approx, _PAIR),
        Family("aggregate", _aggregate, ("A.id AS a", "A.v AS av", "n", "total", "top")),
        Family("nearest, left", _nearest, (*_PAIR, "distance", "rank")),
    )
}
GROUPS: tuple[tuple[str, ...], ...] = (
    ("theta, rows", "theta, time, left", "beside static, left", "aggregate"),
    ("window, 3 inputs", "as-of, nearest, left", "shedding", "window, full"),
    ("best match, left", "best match, inner", "approx", "nearest, left"),
)
"""Families that run at once, in one driver: a kill then hits all of them."""
REPEATED = ("shedding", "approx")
"""Families whose answer is a choice; a run without kills says which."""

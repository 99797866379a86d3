"""The joins of the run, one or two for every streaming family, all over the same input files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import dovetail as dt
from chaos.inputs import DELAY, SCHEMA
from dovetail.conditions.criteria import Criterion

Build = Callable[[SparkSession, Path], DataFrame]


@dataclass(frozen=True)
class Family:
    """A join, and how its result is written: only what tells its rows apart."""

    name: str
    build: Build
    columns: tuple[str, ...]


def stream(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    """An input, one file a micro-batch."""
    raw = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / name))
    return raw.withWatermark("ts", DELAY)


def _streams(spark: SparkSession, folder: Path, names: str) -> dict[str, DataFrame]:
    return {name: stream(spark, folder, name) for name in names}


def _theta_count(spark: SparkSession, folder: Path) -> DataFrame:
    return dt.theta_join(_streams(spark, folder, "AB"), on="A.v <= B.v AND B.v <= A.v + 3", window=25)


def _theta_time(spark: SparkSession, folder: Path) -> DataFrame:
    inputs = _streams(spark, folder, "AB")
    return dt.theta_join(inputs, on="ABS(A.v - B.v) <= 1", how="left", window="10 seconds", time="ts")


def _beside(spark: SparkSession, folder: Path) -> DataFrame:
    inputs = {"A": stream(spark, folder, "A"), "S": spark.read.parquet(str(folder / "S"))}
    return dt.theta_join(inputs, on="A.v >= S.low AND A.v < S.high", how="left")


def _window(spark: SparkSession, folder: Path) -> DataFrame:
    inputs = _streams(spark, folder, "ABC")
    return dt.window_join(inputs, on="A.k = B.k AND B.k = C.k", time="ts", within="4 seconds", partitions=2)


def _window_full(spark: SparkSession, folder: Path) -> DataFrame:
    inputs = _streams(spark, folder, "AB")
    within = {("A", "B"): ("-1 second", "2 seconds")}
    return dt.window_join(inputs, on="A.k = B.k", time="ts", within=within, how="full", partitions=2)


def _asof(spark: SparkSession, folder: Path) -> DataFrame:
    inputs = _streams(spark, folder, "AB")
    return dt.asof_join(inputs, by="k", time="ts", direction="nearest", how="left", within="5 seconds")


def _criteria() -> list[Criterion]:
    return [dt.closest("ts", within="3 seconds"), dt.closest("v", within=5)]


def _best_left(spark: SparkSession, folder: Path) -> DataFrame:
    return dt.bestmatch_join(_streams(spark, folder, "AB"), on=_criteria(), how="left")


def _best_inner(spark: SparkSession, folder: Path) -> DataFrame:
    return dt.bestmatch_join(_streams(spark, folder, "AB"), on=_criteria(), by="k")


def _shedding(spark: SparkSession, folder: Path) -> DataFrame:
    shed = dt.Harvest(throttle=0.3, basic_window="500 milliseconds", seed=5)
    on = "ABS(A.v - B.v) <= 8 AND ABS(B.v - C.v) <= 8"
    inputs = _streams(spark, folder, "ABC")
    return dt.window_join(inputs, on=on, time="ts", within="4 seconds", partitions=1, shed=shed)


def _approx(spark: SparkSession, folder: Path) -> DataFrame:
    return dt.approx_join(_streams(spark, folder, "AB"), on="A.k = B.k", memory=200, seed=8, partitions=2)


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
    )
}
GROUPS: tuple[tuple[str, ...], ...] = (
    ("theta, rows", "theta, time, left", "beside static, left"),
    ("window, 3 inputs", "as-of, nearest, left", "shedding", "window, full"),
    ("best match, left", "best match, inner", "approx"),
)
"""Families that run at once, in one driver: a kill then hits all of them."""
REPEATED = ("shedding", "approx")
"""Families whose answer is a choice; a run without kills says which."""

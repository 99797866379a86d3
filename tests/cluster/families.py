"""Every join, batch and streaming, as a function of a session and a folder of data.

A case gives its rows as sorted texts, so that what one session found compares with what another found.  The cases run
in the tests' own session, in a program submitted to a cluster, and over Spark Connect.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dovetail as dt

SCHEMA = "id long, k string, x double, n long, t timestamp"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FILES = 2
ROWS = 60
"""Rows of a file."""


def settings() -> dict[str, str]:
    """What a session needs for these cases."""
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }


def make_data(folder: Path) -> None:
    """The inputs A, B and C: rows in the order of their times, in a few files that a stream reads one by one."""
    random = np.random.default_rng(8)
    for name in "ABC":
        (folder / name).mkdir(parents=True)
        for number in range(FILES):
            n = np.arange(number * ROWS, (number + 1) * ROWS)
            seconds = n + random.integers(0, 3, ROWS)
            made = pa.table(
                {
                    "id": n,
                    "k": ["abcd"[at] for at in random.integers(0, 4, ROWS)],
                    "x": np.round(random.normal(10, 4, ROWS), 2),
                    "n": seconds,
                    "t": pa.array([NOON + timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us", "UTC")),
                }
            )
            file = folder / name / f"{number}.parquet"
            pq.write_table(made, file)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def tables(spark, folder: Path, names: str) -> dict:
    """The inputs as static frames."""
    # One task an input: a sample goes by the order of arrival.
    return {name: spark.read.schema(SCHEMA).parquet(str(folder / name)).coalesce(1) for name in names}


def streams(spark, folder: Path, names: str) -> dict:
    """The inputs as streams with watermarks."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return {name: reader.parquet(str(folder / name)).withWatermark("t", "2 seconds") for name in names}


def texts(frame) -> list[str]:
    """All rows, as sorted texts."""
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*)) AS row").collect())


_numbers = iter(range(1_000_000))


def run(frame) -> list[str]:
    """What a streaming frame gives of all there is."""
    name = f"result_{next(_numbers)}"
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(900)
        assert any(progress["observedMetrics"] for progress in query.recentProgress)
    finally:
        query.stop()
    return texts(frame.sparkSession.table(name))


CASES: dict[str, Callable[..., list[str]]] = {}


def _case(join: Callable[[dict], object], *, names: str, name: str) -> None:
    """A join as two cases: of tables, and of streams."""

    def batch(spark, folder: Path) -> list[str]:
        joined = join(tables(spark, folder, names))
        found = texts(joined)
        assert dt.metrics(joined)["results"] == len(found)
        return found

    def stream(spark, folder: Path) -> list[str]:
        return run(join(streams(spark, folder, names)))

    CASES[f"{name}, batch"] = batch
    CASES[f"{name}, stream"] = stream


def _theta(frames: dict):
    on = "A.k = B.k AND ABS(A.x - B.x) <= 0.5"
    if frames["A"].isStreaming:
        return dt.theta_join(frames, on=on, how="left", window="20 seconds", time="t")
    return dt.theta_join(frames, on=f"{on} AND A.id % 7 <> B.id % 5", how="left")


def _window(frames: dict):
    return dt.window_join(
        frames,
        on="A.k = B.k AND B.k = C.k AND ABS(A.x - C.x) <= 2",
        time="t",
        within=dt.path("A -> B -> C", ["4 seconds", "6 seconds"]),
    )


def _asof(frames: dict):
    return dt.asof_join(frames, by="k", time="t", direction="backward", how="left", within="9 seconds")


def _bestmatch(frames: dict):
    closest = dt.closest("t", within="5 seconds")
    on = [closest, dt.closest("x", within=3)] if frames["A"].isStreaming else [closest, dt.prefer(larger())]
    return dt.bestmatch_join(frames, on=on, how="left", by="k")


def larger() -> Callable[..., str]:
    """An order of our own.  Made within a function, it travels by value; workers do not have this module."""

    def judge(p, q):
        xs = [pair["A"]["x"] + pair["B"]["x"] for pair in (p, q)]
        return "equal" if xs[0] == xs[1] else "better" if xs[0] > xs[1] else "worse"

    return judge


def _approx(frames: dict):
    return dt.approx_join(frames, on="A.k = B.k", memory=80, policy="raj_hash", seed=3)


_case(_theta, names="AB", name="theta")
_case(_window, names="ABC", name="window")
_case(_asof, names="AB", name="asof")
_case(_bestmatch, names="AB", name="bestmatch")
_case(_approx, names="AB", name="approx")


def _shed(spark, folder: Path) -> list[str]:
    shed = dt.Harvest(throttle=0.3, basic_window="1 second")
    inputs = streams(spark, folder, "ABC")
    on = "ABS(A.x - B.x) <= 1 AND ABS(B.x - C.x) <= 1"
    joined = dt.window_join(inputs, on=on, time="t", within="8 seconds", partitions=1, algorithm="nested", shed=shed)
    return run(joined.selectExpr("A.id AS a", "B.id AS b", "C.id AS c"))


def _beside(spark, folder: Path) -> list[str]:
    inputs = {**streams(spark, folder, "A"), **tables(spark, folder, "B")}
    return run(dt.theta_join(inputs, on="A.x BETWEEN B.x - 0.1 AND B.x + 0.1"))


CASES["shedding, stream"] = _shed
CASES["theta, a stream beside a table"] = _beside

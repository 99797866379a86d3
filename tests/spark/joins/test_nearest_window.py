"""The nearest rows within a window of time, in Spark: batch and two streams against Spark's own join and rank."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow.parquet as pq
import pytest

import dovetail as dt

pytestmark = pytest.mark.usefixtures("few_partitions")

DISTANCES = {
    "line": ("ABS(r.x - s.x)", "abs(r.x - s.x)"),
    "whole": ("ABS(r.n - s.n)", "abs(r.n - s.n)"),
    "plane": ("HYPOT(r.x - s.x, r.y - s.y)", "sqrt((r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y))"),
    "space": (
        "DISTANCE(r.x - s.x, r.y - s.y, 2 * (r.n - s.n))",
        "sqrt((r.x - s.x) * (r.x - s.x) + (r.y - s.y) * (r.y - s.y) + "
        "(2D * (r.n - s.n)) * (2D * (r.n - s.n)))",
    ),
}  # fmt: skip
WINDOW = {("r", "s"): ("-10 seconds", "2 seconds")}
INSIDE = "s.ts BETWEEN r.ts - INTERVAL 10 SECONDS AND r.ts + INTERVAL 2 SECONDS"
SHOWN = ("r.id AS r", "s.id AS s", "distance", "rank")


def places(spark, size: int, seed: int, *, last: bool = False):
    """Rows with a place and a time, in the order of their times but for 3 seconds; some without either."""
    random = np.random.default_rng(seed)
    at = np.sort(random.uniform(0, 300, size)) + random.uniform(0, 3, size)
    rows = [
        (number, int(k), float(t), float(x), float(y), int(n))
        for number, (k, t, x, y, n) in enumerate(
            zip(
                random.integers(0, 3, size), at, random.uniform(0, 9, size).round(1),
                random.uniform(0, 9, size).round(1), random.integers(-20, 20, size), strict=True,
            )
        )
    ]  # fmt: skip
    if last:
        rows.append((size, 9, 10_000.0, 0.0, 0.0, 0))  # closes all windows
    frame = spark.createDataFrame(rows, "id INT, k INT, sec DOUBLE, x DOUBLE, y DOUBLE, n INT")
    odd = {"x": "IF(id % 17 = 3, NULL, IF(id % 19 = 4, double('nan'), x))", "k": "IF(id % 23 = 5, NULL, k)"}
    return frame.selectExpr(
        "id", f"{odd['k']} AS k", "IF(id % 29 = 7, NULL, timestamp_micros(CAST(sec * 1e6 AS BIGINT))) AS ts",
        f"{odd['x']} AS x", "y", "n",
    )  # fmt: skip


def by_spark(spark, frames, name: str, *, keyed: bool, k: int = 2, where: str = "TRUE"):
    """Every pair of the window ranked by its distance, and the rows that have none."""
    for alias, frame in frames.items():
        frame.createOrReplaceTempView(f"near_{alias}")
    far = DISTANCES[name][1]
    equal = "r.k = s.k" if keyed else "TRUE"
    return spark.sql(
        f"WITH pairs AS (SELECT r.id AS r, s.id AS s, {far} AS distance, "
        f"rank() OVER (PARTITION BY r.id ORDER BY {far}) AS rank "
        f"FROM near_r r JOIN near_s s ON {equal} AND {INSIDE} AND {far} < double('inf')) "
        "SELECT r.id AS r, p.s, p.distance, p.rank FROM near_r r LEFT JOIN "
        f"(SELECT * FROM pairs WHERE rank <= {k}) p ON p.r = r.id WHERE {where} ORDER BY 1, 2"
    ).collect()


def same(found, wanted) -> None:
    assert [(row.r, row.s, row.rank) for row in found] == [(row.r, row.s, row.rank) for row in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.distance == theirs.distance


@pytest.mark.in_turns
@pytest.mark.parametrize("keyed", [False, True], ids=["all", "keyed"])
@pytest.mark.parametrize("name", DISTANCES)
def test_batch_gives_what_spark_gives(spark, name, keyed):
    frames = {alias: places(spark, 400, seed) for seed, alias in enumerate("rs")}
    wanted = by_spark(spark, frames, name, keyed=keyed)
    assert sum(row.s is not None for row in wanted) > 300
    assert any(row.s is None for row in wanted)
    whole, spread = {"broadcast": "s"}, {"broadcast": False, "sample": False}
    for more in ({"partitions": 5}, whole if keyed == (name in ("line", "plane")) else spread):
        joined = dt.nearest_join(
            frames, on=DISTANCES[name][0], by="k" if keyed else None, k=2, how="left", time="ts", window=WINDOW, **more
        )
        same(joined.selectExpr(*SHOWN).orderBy("r", "s").collect(), wanted)


def test_windows_of_other_times(spark):
    """Whole numbers, dates and timestamps without a zone; one length is for both directions."""
    frames = {alias: places(spark, 80, seed).where("ts IS NOT NULL") for seed, alias in enumerate("rs")}
    numbers = {alias: frame.withColumn("ts", frame.ts.cast("long")) for alias, frame in frames.items()}
    other = {
        name: {alias: frame.selectExpr("* EXCEPT (ts)", f"{sql} AS ts") for alias, frame in numbers.items()}
        for name, sql in {
            "seconds": "timestamp_seconds(ts)",
            "plain": "CAST(timestamp_seconds(ts) AS TIMESTAMP_NTZ)",
            "dates": "date_add(DATE'2026-03-20', CAST(ts AS INT))",
        }.items()
    }
    answers = []
    for inputs, window in (
        (numbers, {("s", "r"): (-7, 7)}), (other["seconds"], "7 seconds"), (other["plain"], timedelta(seconds=7)),
        (other["dates"], "7 days"),
    ):  # fmt: skip
        joined = dt.nearest_join(inputs, on="ABS(r.n - s.n)", k=3, time={"r": "ts", "s": "TS"}, window=window)
        answers.append(joined.selectExpr(*SHOWN).orderBy("r", "s").collect())
    assert len(answers[0]) > 100
    assert all(answer == answers[0] for answer in answers)


class Files:
    """Two streams of files, one a micro-batch, and what a join of them writes."""

    def __init__(self, spark, folder, frames) -> None:
        self.spark, self.folder, self.frames = spark, folder, frames
        self.streams = {}
        for alias, frame in frames.items():
            (folder / alias).mkdir(parents=True)
            source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1)
            self.streams[alias] = source.parquet(str(folder / alias)).withWatermark("ts", "5 seconds")

    def arrive(self, number: int, where: str) -> None:
        for alias, frame in self.frames.items():
            pq.write_table(frame.where(where).toArrow(), self.folder / alias / f"{number:03}.parquet")

    def run(self, **call) -> dict:
        joined = dt.nearest_join(self.streams, time="ts", window=WINDOW, **call)
        writer = joined.selectExpr(*SHOWN).writeStream.format("parquet")
        query = writer.option("checkpointLocation", str(self.folder / "c")).trigger(availableNow=True)
        query = query.start(str(self.folder / "out"))
        try:
            assert query.awaitTermination(900)
            return dt.metrics(query)
        finally:
            query.stop()

    def written(self):
        return self.spark.read.parquet(str(self.folder / "out")).orderBy("r", "s").collect()


@pytest.mark.in_turns(group="streams across a restart")
@pytest.mark.parametrize(
    ("name", "keyed", "how"), [("line", True, "left"), ("plane", False, "left"), ("space", True, "inner")]
)
def test_two_streams_give_what_spark_gives_across_a_restart(spark, tmp_path, name, keyed, how):
    frames = {alias: places(spark, 60, seed, last=True).localCheckpoint() for seed, alias in enumerate("rs")}
    files = Files(spark, tmp_path, frames)
    call = {"on": DISTANCES[name][0], "by": "k" if keyed else None, "k": 2, "how": how}
    files.arrive(0, "id < 20")
    files.arrive(1, "id >= 20 AND id < 40")
    files.run(**call)
    early = len(files.written())
    files.arrive(2, "id >= 40 AND id < 60")
    files.arrive(3, "id >= 60")
    files.arrive(4, "id > 1000")
    counted = files.run(**call)
    assert counted["late"] == 0
    where = "r.id < 60" if how == "left" else "r.id < 60 AND p.s >= 0"
    wanted = by_spark(spark, frames, name, keyed=keyed, where=where)
    assert 0 < early < len(wanted)
    same(files.written(), wanted)
    assert counted["held_rows"] <= 2


@pytest.mark.in_turns(group="several seconds")
def test_late_rows_are_dropped(spark, tmp_path):
    frames = {alias: places(spark, 60, seed, last=True).localCheckpoint() for seed, alias in enumerate("rs")}
    files = Files(spark, tmp_path, frames)
    call = {"on": DISTANCES["plane"][0], "by": "k", "k": 2, "how": "left"}
    files.arrive(0, "id < 30 AND id % 5 <> 0")
    files.arrive(1, "id >= 30 AND id < 60")
    files.arrive(2, "id < 20 AND id % 5 = 0 AND ts IS NOT NULL")
    files.arrive(3, "id >= 60")
    files.arrive(4, "id > 1000")
    counted = files.run(**call)
    late = "(id < 20 AND id % 5 = 0)"
    assert counted["late"] == sum(frame.where(f"{late} AND ts IS NOT NULL").count() for frame in frames.values())
    rest = {alias: frame.where(f"NOT {late} AND (id >= 30 OR id % 5 <> 0)") for alias, frame in frames.items()}
    same(files.written(), by_spark(spark, rest, "plane", keyed=True, where="r.id < 60"))


def test_a_stream_asks_a_table_about_a_window(spark, tmp_path):
    frames = {alias: places(spark, 60, seed) for seed, alias in enumerate("rs")}
    files = Files(spark, tmp_path, frames)
    files.arrive(0, "id < 30")
    files.arrive(1, "id >= 30")
    files.streams["s"] = frames["s"]
    files.run(on=DISTANCES["plane"][0], k=2, how="left")
    same(files.written(), by_spark(spark, frames, "plane", keyed=False))


def test_statements(spark, tmp_path):
    frames = {alias: places(spark, 60, seed) for seed, alias in enumerate("rs")}
    text = (
        "SELECT r.id AS r, s.id AS s, distance, rank FROM r LEFT NEAREST 2 JOIN s ON HYPOT(r.x - s.x, r.y - s.y) "
        "WINDOW (r, s) BETWEEN -10 SECONDS AND 2 SECONDS"
    )
    same(dt.sql(f"{text} ORDER BY 1, 2", **frames).collect(), by_spark(spark, frames, "plane", keyed=False))
    streams = dt.sql(text, **Files(spark, tmp_path, frames).streams)
    assert streams.isStreaming
    window = "WINDOW (r, s) BETWEEN -10 SECONDS AND 2 SECONDS"
    counts = f"SELECT r.id, hits FROM r AGGREGATE JOIN s COMPUTE count(*) AS hits {window}"
    found = dt.sql(f"{counts} ORDER BY 1", **frames).collect()
    wanted = spark.sql(
        f"SELECT r.id, count(s.id) AS hits FROM near_r r LEFT JOIN near_s s ON {INSIDE} GROUP BY r.id ORDER BY 1"
    )
    assert found == wanted.collect()
    assert dt.sql(counts, **Files(spark, tmp_path / "again", frames).streams).isStreaming


def test_what_they_say_and_refuse(spark, tmp_path, capsys):
    frames = {alias: places(spark, 5, 1) for alias in "rs"}
    files = Files(spark, tmp_path, frames)
    call = {"on": "ABS(r.x - s.x)", "by": "k", "time": "ts", "window": "10 seconds"}
    dt.explain(dt.nearest_join(files.streams, **call))
    text = capsys.readouterr().out
    assert "nearest join, streams r and s, how='inner'" in text
    assert "window    s.ts >= r.ts - INTERVAL 10000000 MICROSECONDS AND s.ts <= r.ts + INTERVAL 10000000" in text
    assert "ranks of its values in a wavelet matrix" in text
    assert "comes out once the watermark has passed the end of its window" in text
    dt.explain(dt.nearest_join(frames, **call, broadcast=False))
    assert "cells cut at quantiles of the times" in capsys.readouterr().out
    streams = {a: spark.readStream.schema(frames[a].schema).parquet(str(tmp_path / a)) for a in "rs"}
    for given, error, words in (
        ((files.streams, {"time": None, "window": None}), dt.UnboundedJoinError, "without window="),
        ((streams, {}), dt.UnboundedJoinError, "has no watermark"),
        ((files.streams, {"time": None}), dt.ArgumentError, "window= without time="),
        ((files.streams, {"window": None}), dt.ArgumentError, "time= without window="),
        ((files.streams, {"broadcast": "s"}), dt.ArgumentError, "of two streams"),
        ((frames, {"window": -3}), dt.ArgumentError, "window=-3 is not a window"),
        ((frames, {"window": {("r", "q"): "3 seconds"}}), dt.UnknownNameError, "window="),
        ((frames, {"time": "when"}), dt.UnknownNameError, "when"),
        ((frames, {"time": "x"}), dt.UnsupportedTypeError, "double"),
        (({"r": frames["r"], "s": files.streams["s"]}, {}), dt.UnboundedJoinError, "a nearer row may always come"),
    ):
        with pytest.raises(error, match=words):
            dt.nearest_join(given[0], **{**call, **given[1]})

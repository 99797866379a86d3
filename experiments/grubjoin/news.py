"""The paper's Example 1 on Spark: similar news items of two sources, by the inner product of their term vectors.

The news of the paper are not public.  Here documents are generated: stories of some topics, each of which one source
reports about twenty minutes after the other, among items that only one of them has.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from reproduce import Claim, Report

import dovetail as dt
import plots

TERMS, ITEMS, SPAN, WINDOW, LAG = 64, 1200, 4 * 3600, 3600, 1200
CALLS, THROTTLE, ALIKE = 8, 0.2, 0.8
ON = f"aggregate(zip_with(cnn.terms, bbc.terms, (x, y) -> x * y), 0D, (sum, x) -> sum + x) > {ALIKE}"


@dataclass(frozen=True)
class News:
    """Items of both sources, and the pairs that are similar and at most an hour apart."""

    items: Mapping[str, pa.Table]
    truth: frozenset[tuple[int, int]]

    @classmethod
    def made(cls, seed: int = 1) -> News:
        """Half of the items are stories that both sources have."""
        random = np.random.default_rng(seed)
        stories = random.exponential(1.0, (ITEMS // 2, TERMS)) * (random.random((ITEMS // 2, TERMS)) < 0.2)
        when = random.uniform(0, SPAN, ITEMS // 2)
        parts = {}
        for name, lag in (("cnn", 0.0), ("bbc", float(LAG))):
            own = random.exponential(1.0, (ITEMS // 2, TERMS)) * (random.random((ITEMS // 2, TERMS)) < 0.2)
            told = stories + 0.1 * random.exponential(1.0, stories.shape)
            terms = np.concatenate([told, own]) + 1e-3
            terms /= np.linalg.norm(terms, axis=1, keepdims=True)
            times = np.concatenate(
                [when + lag + 180 * random.standard_normal(when.size), random.uniform(0, SPAN, when.size)]
            )
            order = np.argsort(times)
            parts[name] = times[order].clip(0).astype(np.int64), terms[order]
        (a, x), (b, y) = parts.values()
        good = (np.abs(np.subtract.outer(a, b)) <= WINDOW) & (x @ y.T > ALIKE)
        tables = {
            name: pa.table({"t": times, "terms": pa.array(list(terms)), "n": np.arange(times.size)})
            for name, (times, terms) in parts.items()
        }
        return cls(tables, frozenset(zip(*(rows.tolist() for rows in np.nonzero(good)), strict=True)))

    def put(self, folder: Path) -> None:
        """One file for each source and micro-batch."""
        edges = np.linspace(0, SPAN + 2 * LAG, CALLS + 1)
        for name, table in self.items.items():
            (folder / name).mkdir()
            at = table.column("t").to_numpy()
            for call in range(CALLS):
                file = folder / name / f"{call:02}.parquet"
                pq.write_table(table.filter(pa.array((at >= edges[call]) & (at < edges[call + 1]))), file)
                # Files are read in the order of their times.
                os.utime(file, (1_700_000_000 + call, 1_700_000_000 + call))


def found(spark: Any, folder: Path, shed: Any) -> set[tuple[int, int]]:
    """Pairs that come out of the stream join."""
    schema = "t long, terms array<double>, n long"
    streams = {
        name: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name in ("cnn", "bbc")
    }
    joined = dt.window_join(streams, on=ON, time="t", within=WINDOW, lateness=0, partitions=2, shed=shed)
    with tempfile.TemporaryDirectory() as place:
        query = (
            joined.selectExpr("cnn.n AS a", "bbc.n AS b").writeStream.format("parquet")
            .option("path", f"{place}/out").option("checkpointLocation", f"{place}/checkpoint")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return set(map(tuple, spark.read.parquet(f"{place}/out").collect()))


def example1(context: Any) -> Report:
    """Results at a fifth of the work: exact, harvested, dropped."""
    news, spark = News.made(), dt.session()
    sheds = {"exact": None, "Harvest": dt.Harvest(throttle=THROTTLE, seed=1),
             "RandomDrop": dt.RandomDrop(throttle=THROTTLE, seed=1)}  # fmt: skip
    shares, subset = {}, True
    with tempfile.TemporaryDirectory() as place:
        news.put(Path(place))
        for name, shed in sheds.items():
            pairs = found(spark, Path(place), shed)
            subset &= pairs <= news.truth
            shares[name] = len(pairs) / len(news.truth)
            context.tick()
    text = ", ".join(f"{share:.3f} ({name})" for name, share in shares.items()) + f" of {len(news.truth)} pairs"
    plots.lines(context.out / "news.png", [("", (0, 1, 2), {"share of the results": list(shares.values())})],
                "exact, Harvest, RandomDrop", "share", "Example 1: similar news")  # fmt: skip
    lines = ["| shed | throttle | share of the pairs |", "| --- | --- | --- |"]
    lines += [
        f"| {name} | {1.0 if shed is None else THROTTLE:g} | {shares[name]:.3f} |" for name, shed in sheds.items()
    ]
    listed = f"{len(news.truth)} pairs of {2 * ITEMS} items within an hour\n\n" + "\n".join(lines)
    return Report("news", "Example 1: similar news items, an inner product of term vectors, on Spark", (listed,), [
        Claim("Example 1", "A windowed inner product join finds similar news of two sources", text,
              shares["exact"] == 1.0 and subset, "all of them without shedding, and nothing else with it"),
        Claim("Example 1", "Harvesting is ahead of dropping where an item matches one that is near in time", text,
              shares["Harvest"] > 1.5 * shares["RandomDrop"], f"half as much again at a throttle of {THROTTLE:g}"),
    ])  # fmt: skip

"""From event to committed output: three streams at a constant rate from Kafka, beside Spark's own chained joins.

A producer of its own process sends records at the times of a plan, whatever the queries do; a record has the event time
at which the plan wanted it sent.  Both engines join the same three topics by their keys within ten seconds, with
the same trigger, into Parquet files.  The latency of a result is the time at which Spark committed its micro-batch less
the latest of its three event times.

A rate is sustained if the query keeps up and the producer was not late itself: in the second half of the run three
micro-batches in four take less than three triggers, the one that runs at the end included.  A query that falls behind
finds more to read each time.  Rates are doubled until one is not sustained, and the gap is halved twice; the latencies
are those at half of the sustained rate.  Needs Maven once, as ``make kafka`` does.  Run it with::

    python benchmarks/latency.py [--seconds 60] [--first 2000] [--write]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _streams import STORES
from _timing import console, show
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

import dovetail as dt

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from scripts.fetch_jars import fetch, for_spark  # noqa: E402
from tests.kafka.broker import Broker  # noqa: E402
from tests.kafka.topics import create  # noqa: E402

NAMES = "ABC"
WINDOW = 10
TRIGGER = 1.0
DELAY = "1 second"
TICK = 0.02
"""Seconds between two bursts of the producer."""
LATE = 0.5
"""Seconds by which the producer may be late; beyond, a run says nothing."""


# ----------------------------------------------------------------------------------------------------------------------
# The joins
# ----------------------------------------------------------------------------------------------------------------------


def ours(inputs: dict[str, DataFrame]) -> DataFrame:
    joined = dt.window_join(inputs, on="A.k = B.k AND B.k = C.k", time="ts", within=f"{WINDOW} seconds", partitions=2)
    return joined.select(F.greatest("A.ts", "B.ts", "C.ts").alias("event"))


def sparks(inputs: dict[str, DataFrame]) -> DataFrame:
    """Spark's chained joins, as in benchmarks/window.py."""
    near = f"BETWEEN {{0}} - INTERVAL {WINDOW} SECONDS AND {{0}} + INTERVAL {WINDOW} SECONDS"
    a, b, c = (inputs[name].alias(name) for name in NAMES)
    first = a.join(b, F.expr(f"A.k = B.k AND B.ts {near.format('A.ts')}")).select(
        F.expr("A.ts + INTERVAL 0 SECONDS").alias("a_ts"), F.col("B.ts").alias("b_ts"), F.col("B.k").alias("b_k")
    )
    both = f"C.ts {near.format('b_ts')} AND C.ts {near.format('a_ts')}"
    return first.join(c, F.expr(f"b_k = C.k AND {both}")).select(F.greatest("a_ts", "b_ts", "C.ts").alias("event"))


@dataclass(frozen=True)
class Engine:
    """A join, and the state store that suits it."""

    name: str
    build: Callable[[dict[str, DataFrame]], DataFrame]
    store: str


ENGINES = (
    Engine("Dovetail", ours, "ours"),
    Engine("Spark, in-memory store", sparks, "memory"),
    Engine("Spark, RocksDB", sparks, "rocksdb"),
)


# ----------------------------------------------------------------------------------------------------------------------
# The producer, a process of its own
# ----------------------------------------------------------------------------------------------------------------------


def produce(servers: str, prefix: str, rate: int, seconds: float) -> None:
    """Send `rate` records a second to each topic by a plan; print by how much it was late at worst."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 5_000_000})
    random = np.random.default_rng(5)
    keys = max(1, 2 * WINDOW * rate)
    began, sent, late = time.time(), 0, 0.0
    while sent < rate * seconds:
        due = int((time.time() - began) * rate)
        late = max(late, (due - sent) / rate - TICK)
        stamps = np.round((began + np.arange(sent, due) / rate) * 1000).astype(np.int64).tolist()
        for name in NAMES if stamps else "":
            drawn = random.integers(0, keys, len(stamps)).tolist()
            records = [
                {"value": b'{"k":%d,"t":%d}' % (key, stamp), "partition": at & 1}
                for at, (key, stamp) in enumerate(zip(drawn, stamps, strict=True), sent)
            ]
            # In one call, since the producer shares two cores with what is measured.
            if producer.produce_batch(prefix + name, records) != len(records):
                raise BufferError("the broker does not take what is sent")
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(TICK)
    producer.flush()
    print(json.dumps({"late": late}))


# ----------------------------------------------------------------------------------------------------------------------
# One run
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a run showed."""

    latencies: np.ndarray
    sustained: bool
    why: str
    batch: float
    """The median micro-batch in seconds."""

    def quantile(self, part: float) -> float:
        """The latency that this part of the results stays below."""
        return float(np.quantile(self.latencies, part)) if len(self.latencies) else float("nan")


def committed(place: Path, since: float) -> np.ndarray:
    """Seconds from the event to the commit of its micro-batch, of the results committed after `since`."""
    found = []
    for log in (place / "out" / "_spark_metadata").glob("[0-9]*"):
        number = log.name.split(".")[0]
        commit = place / "checkpoint" / "commits" / number
        if log.name.endswith(".compact") or not commit.is_file() or commit.stat().st_mtime < since:
            continue
        for entry in map(json.loads, log.read_text().splitlines()[1:]):
            events = pq.read_table(unquote(urlparse(entry["path"]).path))["event"].cast(pa.timestamp("us"))
            found.append(commit.stat().st_mtime - events.cast("int64").to_numpy() / 1e6)
    return np.concatenate(found) if found else np.empty(0)


def started(progress: StreamingQueryProgress) -> float:
    """When a micro-batch began."""
    return datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()


def run(spark: SparkSession, broker: Broker, engine: Engine, rate: int, seconds: float, number: int) -> Found:
    """Join for so many seconds; the first third is warm-up."""
    prefix = f"run{number}-"
    create(broker.servers, {prefix + name: 2 for name in NAMES})
    inputs = {}
    for name in NAMES:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
        raw = reader.option("subscribe", prefix + name).option("startingOffsets", "earliest").load()
        parsed = raw.select(F.from_json(F.col("value").cast("string"), "k long, t long").alias("r"))
        inputs[name] = parsed.selectExpr("r.k", "timestamp_millis(r.t) AS ts").withWatermark("ts", DELAY)
    with tempfile.TemporaryDirectory(prefix="dovetail-latency-") as folder:
        place = Path(folder)
        for key, value in STORES[engine.store].items():
            spark.conf.set(key, value)
        # A compacted log of the sink would have lost which micro-batch a file belongs to.
        spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 1_000_000)
        writer = engine.build(inputs).writeStream.format("parquet").option("path", str(place / "out"))
        writer = writer.option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(processingTime=f"{TRIGGER} seconds").start()
        words = ["--produce", broker.servers, prefix, str(rate), str(seconds)]
        began = time.time()
        producer = subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)
        said, _ = producer.communicate()
        ended = time.time()
        query.stop()
        failed = query.exception()
        for key in STORES[engine.store]:
            spark.conf.unset(key)
        if failed is not None:
            raise failed
        progress = [one for one in query.recentProgress if one.numInputRows]
        latencies = committed(place, began + seconds / 3)
    late = json.loads(said)["late"]
    batches = [(started(one) - began, one.durationMs["triggerExecution"] / 1000) for one in progress]
    after = max((sum(one) for one in batches), default=0.0)
    median = statistics.median([took for at, took in batches if at > seconds / 3] or [float("inf")])
    recent = [took for at, took in batches if at > seconds / 2] + [max(0.0, ended - began - after)]
    slow = [d for d in recent if d > 3 * TRIGGER]
    why = (
        f"the producer was {late:.1f} s late" if late > LATE
        else f"micro-batches of {max(slow):.1f} s" if 4 * len(slow) > len(recent)
        else "no result" if not len(latencies)
        else ""
    )  # fmt: skip
    found = Found(latencies, not why, why, median)
    shown = "  ".join(f"p{round(100 * p)} {found.quantile(p):.2f} s" for p in (0.5, 0.95, 0.99))
    console.print(
        f"  {engine.name:<24} {rate:>8,}/s  {shown}  {len(latencies):>9,} results  batch {median:.2f} s  {why}",
        highlight=False,
    )
    return found


def sustainable(measure: Callable[[int], Found], first: int) -> int:
    """The largest rate of the search that was sustained; 0 if the first was not."""
    low, high = 0, first
    while measure(high).sustained:
        low, high = high, 2 * high
    if low:
        for _ in range(2):
            middle = (low + high) // 2
            if measure(middle).sustained:
                low = middle
            else:
                high = middle
    return low


def main(
    seconds: Annotated[float, typer.Option(help="Length of a run; its first third is warm-up.")] = 60.0,
    first: Annotated[int, typer.Option(help="The first rate, in records a second of each topic.")] = 2000,
    engines: Annotated[str, typer.Option(help="Which, by number.")] = "0,1,2",
    write: Annotated[bool, typer.Option(help="Write benchmarks/latency.md.")] = False,
) -> None:
    """Latencies at half of the sustained rate, and the rate itself."""
    conf = {
        "spark.jars": ",".join(map(str, fetch(for_spark("kafka-connector")))),
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.streaming.numRecentProgressUpdates": 10_000,
    }
    chosen = [ENGINES[int(number)] for number in engines.split(",")]
    number = 0
    rates, lines = {}, []
    with Broker() as broker:
        spark = dt.session("latency", master="local[2]", driver_memory="4g", conf=conf)

        def measure(engine: Engine, rate: int) -> Found:
            nonlocal number
            number += 1
            return run(spark, broker, engine, rate, seconds, number)

        for engine in chosen:
            measure(engine, first)  # starts workers and compiles; does not count
            rates[engine.name] = sustainable(lambda rate, engine=engine: measure(engine, rate), first)
        common = min((rate for rate in rates.values() if rate), default=first) // 2
        for engine in chosen:
            for rate in sorted({common, rates[engine.name] // 2} - {0}):
                found = measure(engine, rate)
                quantiles = [f"{found.quantile(part):.2f}" for part in (0.5, 0.95, 0.99)]
                lines.append([engine.name, f"{rates[engine.name]:,}", f"{rate:,}", *quantiles, f"{found.batch:.2f}"])
        spark.stop()
    head = ["engine", "sustained rows/s", "measured at rows/s", "p50 s", "p95 s", "p99 s", "micro-batch s"]
    title = "From event to committed output, three streams from Kafka, rows a second of each"
    show(head, lines, title=title, file=ROOT / "benchmarks" / "latency.md" if write else None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--produce"]:
        _, _, servers, prefix, rate, seconds = sys.argv
        produce(servers, prefix, int(rate), float(seconds))
    else:
        typer.run(main)

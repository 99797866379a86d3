"""Reading from Kafka and writing to it: offsets, limits, a broker that goes, partitions that fall silent."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from chaos.verify import sink_rows
from tests.kafka.topics import PATIENCE, TALLY, Record, create, found, send

import dovetail as dt
from dovetail.watch.records import record_of

pytestmark = pytest.mark.kafka

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DOWN = 20.0
"""Seconds without a broker."""
_numbers = count()


def record(number: int, second: float, partition: int = 0, key: int = 0) -> Record:
    """A row as JSON."""
    moment = START + timedelta(seconds=second)
    value = {"id": number, "k": key, "ts": moment.isoformat()}
    return Record(json.dumps(value).encode(), partition, round(moment.timestamp() * 1000))


def rows_of(records: list[Record]) -> list[dict[str, object]]:
    """What the records say, for a nested loop."""
    rows = [json.loads(one.value) for one in records]
    return [{**row, "ts": datetime.fromisoformat(row["ts"])} for row in rows]


def pairs_of(left: list[Record], right: list[Record], within: float) -> Counter[tuple[object, ...]]:
    """The window join of two inputs as a nested loop."""
    bound = timedelta(seconds=within)
    return Counter(
        (a["id"], b["id"])
        for a in rows_of(left)
        for b in rows_of(right)
        if a["k"] == b["k"] and abs(a["ts"] - b["ts"]) <= bound
    )


@pytest.fixture
def topics(broker) -> dict[str, str]:
    """New topics of two partitions, by their role."""
    number = next(_numbers)
    named = {role: f"reading{number}-{role}" for role in ("A", "B", "out")}
    create(broker.servers, dict.fromkeys(named.values(), 2))
    return named


def stream(spark, servers: str, topic: str, **options: object):
    """A topic of JSON rows."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    given = {"startingOffsets": "earliest", "kafka.default.api.timeout.ms": round(PATIENCE * 1000), **options}
    return decoded(reader.options(**given).load()).withWatermark("ts", "5 seconds")


def decoded(raw):
    """The rows of records."""
    return raw.selectExpr("from_json(string(value), 'id long, k long, ts timestamp') AS row").select("row.*")


def window(spark, servers: str, topics: dict[str, str], how: str = "inner", **options: object):
    """The join of most tests."""
    idle = options.pop("idle_timeout", None)
    inputs = {role: stream(spark, servers, topics[role], **options) for role in "AB"}
    joined = dt.window_join(
        inputs, on="A.k = B.k", time="ts", within="2 seconds", how=how, partitions=2, idle_timeout=idle
    )
    return joined.selectExpr("A.id AS a", "B.id AS b")


def to_files(joined, place: Path):
    """A writer to files below a folder, with its checkpoint."""
    writer = joined.writeStream.format("parquet").option("path", str(place / "out"))
    return writer.option("checkpointLocation", str(place / "checkpoint"))


def ended(writer) -> list[dict[str, object]]:
    """Run over all that is there now; the reports of all micro-batches."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    assert query.exception() is None
    return [json.loads(progress.json) for progress in query.recentProgress]


def finish(writer) -> list[int]:
    """Run over all that is there now; how many rows each micro-batch had."""
    return [report["numInputRows"] for report in ended(writer)]


def wait(done: Callable[[], bool], query) -> None:
    """Wait for a condition; a query that fails fails the test."""
    waited = 0.0
    while not done():
        if query.exception() is not None:
            raise query.exception()
        assert waited < PATIENCE
        time.sleep(0.2)
        waited += 0.2


def even(seconds: range, first: int = 0) -> list[Record]:
    """A row a second, on both partitions in turn."""
    return [record(first + second, second, second % 2, key=second % 3) for second in seconds]


def test_from_the_start_in_bounded_micro_batches_and_on_from_there(spark, broker, topics, tmp_path):
    rows = {role: even(range(40)) for role in "AB"}
    send(broker.servers, {topics[role]: rows[role] for role in "AB"})
    writer = to_files(window(spark, broker.servers, topics, maxOffsetsPerTrigger=10), tmp_path)
    reports = ended(writer)
    sizes = [report["numInputRows"] for report in reports]
    assert sum(sizes) == 80
    # What the page and the metrics call unread: of all partitions of both topics.
    assert [record_of(report)["behind"] for report in reports] == [
        80 - sum(sizes[: at + 1]) for at in range(len(sizes))
    ]
    assert max(sizes) <= 20
    assert len([size for size in sizes if size]) >= 4
    assert sink_rows(tmp_path / "out") == pairs_of(rows["A"], rows["B"], 2)
    # What came since is read, what was there is not read again.
    later = {role: even(range(40, 60)) for role in "AB"}
    send(broker.servers, {topics[role]: later[role] for role in "AB"})
    assert sum(finish(to_files(window(spark, broker.servers, topics), tmp_path))) == 40
    assert sink_rows(tmp_path / "out") == pairs_of(rows["A"] + later["A"], rows["B"] + later["B"], 2)


def test_from_the_end_only_what_comes_later_counts(spark, broker, topics, tmp_path):
    send(broker.servers, {topics[role]: even(range(20)) for role in "AB"})
    joined = window(spark, broker.servers, topics, startingOffsets="latest")
    query = to_files(joined, tmp_path).trigger(processingTime="1 second").start()
    try:
        # The place where it starts is written before the first rows come.
        wait(lambda: (tmp_path / "checkpoint" / "sources" / "1" / "0").exists(), query)
        rows = {role: even(range(20, 40)) for role in "AB"}
        send(broker.servers, {topics[role]: rows[role] for role in "AB"})
        wanted = pairs_of(rows["A"], rows["B"], 2)
        wait(lambda: (tmp_path / "out" / "_spark_metadata").exists() and sink_rows(tmp_path / "out") == wanted, query)
    finally:
        query.stop()


def test_a_batch_reads_topics_and_writes_one(spark, broker, topics):
    rows = {role: even(range(30)) for role in "AB"}
    send(broker.servers, {topics[role]: rows[role] for role in "AB"})
    inputs = {}
    for role in "AB":
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.servers)
        raw = reader.option("subscribe", topics[role]).load()
        inputs[role] = raw.selectExpr("from_json(string(value), 'id long, k long, ts timestamp') AS row").select(
            "row.*"
        )
    joined = dt.window_join(inputs, on="A.k = B.k", time="ts", within="2 seconds").selectExpr("A.id AS a", "B.id AS b")
    records = joined.selectExpr("to_json(struct(a, b)) AS key", "to_json(struct(*)) AS value")
    writer = records.write.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    writer.option("topic", topics["out"]).save()
    read = [json.loads(value) for _, value in found(broker.servers, topics["out"])]
    assert Counter((row["a"], row["b"]) for row in read) == pairs_of(rows["A"], rows["B"], 2)


@pytest.fixture
def own_broker(broker) -> Iterator[object]:
    """A broker that a test may stop."""
    from tests.kafka.broker import Broker

    with Broker() as started:
        yield started


@pytest.mark.parametrize("how", ["stopped", "killed", "paused"])
def test_a_broker_that_is_away_for_a_while(spark, own_broker, tmp_path, how):
    topics = {role: f"away-{role}" for role in "AB"}
    create(own_broker.servers, dict.fromkeys(topics.values(), 2))
    rows = {role: even(range(20)) for role in "AB"}
    send(own_broker.servers, {topics[role]: rows[role] for role in "AB"})
    query = to_files(window(spark, own_broker.servers, topics), tmp_path).trigger(processingTime="1 second").start()
    out = tmp_path / "out"
    try:
        wanted = pairs_of(rows["A"], rows["B"], 2)
        wait(lambda: (out / "_spark_metadata").exists() and sink_rows(out) == wanted, query)
        {"stopped": own_broker.stop, "killed": own_broker.kill, "paused": own_broker.pause}[how]()
        TALLY["broker"] += how == "killed"
        time.sleep(DOWN)
        if how == "paused":
            own_broker.resume()
        else:
            own_broker.start()
        later = {role: even(range(20, 40)) for role in "AB"}
        send(own_broker.servers, {topics[role]: later[role] for role in "AB"})
        wanted = pairs_of(rows["A"] + later["A"], rows["B"] + later["B"], 2)
        wait(lambda: sink_rows(out) == wanted, query)
        assert query.isActive
    finally:
        query.stop()


def left_rows(records: dict[str, list[Record]]) -> Counter[tuple[object, ...]]:
    """The left window join of two inputs as a nested loop."""
    matched = pairs_of(records["A"], records["B"], 2)
    alone = {row["id"] for row in rows_of(records["A"])} - {a for a, _ in matched}
    return matched + Counter((one, None) for one in alone)


def test_a_partition_that_falls_silent_holds_nothing_back(spark, broker, topics, tmp_path):
    """One partition of B ends early; the input goes on with the other one, so its watermark does."""
    rows = {"A": even(range(40)), "B": [*even(range(10)), *(record(s, s, 0, key=s % 3) for s in range(10, 40, 2))]}
    send(broker.servers, {topics[role]: rows[role] for role in "AB"})
    last = {role: [record(1000 + second, second, 0, key=9) for second in (100, 200)] for role in "AB"}
    finish(to_files(window(spark, broker.servers, topics, how="left"), tmp_path))
    for at in range(2):
        send(broker.servers, {topics[role]: [last[role][at]] for role in "AB"})
        finish(to_files(window(spark, broker.servers, topics, how="left"), tmp_path))
    kept = Counter({row: times for row, times in sink_rows(tmp_path / "out").items() if row[0] < 1000})
    assert kept == left_rows(rows)


@pytest.mark.parametrize("idle", [None, "30 seconds"], ids=["without", "with"])
def test_an_input_that_falls_silent_holds_nothing_back_with_a_timeout(spark, broker, topics, tmp_path, idle):
    """All of B ends early.  What waits for it comes out with `idle_timeout`, and without it never does."""
    rows = {"A": even(range(40)), "B": even(range(10))}
    send(broker.servers, {topics[role]: rows[role] for role in "AB"})
    finish(to_files(window(spark, broker.servers, topics, how="left", idle_timeout=idle), tmp_path))
    for second in (200, 400):
        send(broker.servers, {topics["A"]: [record(1000 + second, second, 1, key=9)]})
        finish(to_files(window(spark, broker.servers, topics, how="left", idle_timeout=idle), tmp_path))
    kept = Counter({row: times for row, times in sink_rows(tmp_path / "out").items() if row[0] < 1000})
    wanted = left_rows(rows)
    if idle is None:
        assert pairs_of(rows["A"], rows["B"], 2) <= kept < wanted
    else:
        assert kept == wanted

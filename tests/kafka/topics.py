"""What goes into Kafka and what is found there, by a client that knows nothing of Spark."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos.inputs import CLOSING
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE = 900.0
"""Seconds to wait for a broker: a limit for hangs."""
PARTITIONS = {"A": 3, "B": 2, "C": 2, "A-one": 1, "B-one": 1}
"""Topics of a run: three with several partitions, and two whose only one keeps the order of arrival."""
SHIFT = 1 << 40
"""Added to the numbers of binary values, which have no sign."""

TALLY: Counter[str] = Counter()
"""What a run of the tests did: records sent and found, processes killed."""


@dataclass(frozen=True)
class Record:
    """One record: its value, its partition, and its time in milliseconds."""

    value: bytes
    partition: int
    timestamp: int


def rows_of(inputs: Path, name: str, *, closing: bool) -> list[dict[str, Any]]:
    """The rows of an input in the order of arrival; or the rows behind them that only move watermarks."""
    files = sorted((inputs / name).glob("*.json"))
    files = files[-CLOSING:] if closing else files[:-CLOSING]
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]


def encode(topic: str, row: dict[str, Any]) -> Record:
    """A row as its topic has it: A as JSON, B as 33 bytes, C as JSON whose time is that of the record."""
    moment = datetime.fromisoformat(row["ts"])
    name = topic.partition("-")[0]
    milliseconds = round(moment.timestamp() * 1000)
    if name == "B":
        k, v = (0 if row[column] is None else row[column] + SHIFT for column in ("k", "v"))
        value = struct.pack(">BQQQQ", 1, row["id"], k, v, milliseconds)
    elif name == "C":
        value = json.dumps({column: row[column] for column in ("id", "k", "v")}).encode()
    else:
        value = json.dumps(row).encode()
    return Record(value, row["id"] % PARTITIONS[topic], milliseconds)


DECODED = {
    # The bytes of a number, in the order of the network, as hexadecimal digits.
    "B": tuple(
        f"CAST(conv(hex(substring(value, {2 + 8 * at}, 8)), 16, 10) AS BIGINT) AS {column}"
        for at, column in enumerate(("id", "k", "v", "ms"))
    ),
}


def create(servers: str, partitions: dict[str, int]) -> None:
    """Make topics."""
    client = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for made in client.create_topics(wanted, request_timeout=PATIENCE).values():
        made.result(PATIENCE)


def send(servers: str, records: dict[str, Iterable[Record]]) -> int:
    """Send records and wait until the broker has all of them."""
    settings = {"bootstrap.servers": servers, "message.timeout.ms": round(PATIENCE * 1000), "log_level": 0}
    producer, failed, count = Producer(settings), [], 0

    def told(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for topic, several in records.items():
        for one in several:
            producer.produce(topic, one.value, partition=one.partition, timestamp=one.timestamp, on_delivery=told)
            count += 1
    left = producer.flush(PATIENCE)
    if left or failed:
        raise RuntimeError(f"{left} records were not sent, {len(failed)} failed: {failed[:1]}")
    TALLY["records sent"] += count
    return count


def found(servers: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Key and value of every record that lies in a topic now."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        ends = {}
        for number in partitions:
            first, last = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)
            ends[number] = last - first
        wanted = sum(ends.values())
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        read: list[tuple[bytes | None, bytes]] = []
        while len(read) < wanted:
            message = consumer.poll(PATIENCE)
            if message is None or message.error():
                raise RuntimeError(f"{topic}: {len(read)} of {wanted} records, then {message and message.error()}")
            read.append((message.key(), message.value()))
    finally:
        consumer.close()
    TALLY["records found"] += len(read)
    return read

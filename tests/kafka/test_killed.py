"""Every streaming family from Kafka to files and to Kafka, while drivers, executors and workers are killed.

The answer comes from the rows that were sent, in DuckDB or by the nested loop; a client of its own reads the topics.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from chaos.families import FAMILIES
from chaos.inputs import write_inputs
from chaos.killing import Blow, Hunt, batches
from chaos.verify import judge, verify
from chaos.victim import place_of
from tests.kafka.program import topic_of
from tests.kafka.topics import PARTITIONS, TALLY, create, encode, found, rows_of, send

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GROUPS = tuple(tuple(FAMILIES)[at : at + 3] for at in range(0, len(FAMILIES), 3))
"""Families that run at once, in one driver, with two queries each."""
RIGHT = "nothing lost, nothing twice"
BLOWS = (
    Blow("worker", 1, 0.5, 0.3),
    Blow("driver", 2, 0.7, 0.0),
    Blow("executor", 2, 0.4, 0.6),
    Blow("worker", 1, 0.2, 0.9),
)
"""A driver and workers, amid the first micro-batches."""


@pytest.mark.parametrize("group", GROUPS, ids=" and ".join)
def test_every_result_is_in_files_once_and_in_a_topic_under_one_key(broker, connector, tmp_path, group):
    inputs = tmp_path / "inputs"
    write_inputs(inputs, seed=11, files=8, rows=40)
    hunt = under_fire(group, broker, connector, inputs, tmp_path / "run")
    assert hunt.kills["driver"]
    assert hunt.kills["worker"]
    verdicts = {}
    for family in group:
        own = place_of(hunt.place, family)
        assert batches(own) >= 5
        verdicts[family, "files"] = str(verify(family, inputs, own / "out"))
        verdicts[family, "topic"] = str(judge(family, inputs, by_key(family, broker.servers)))
    assert set(verdicts.values()) == {RIGHT}, verdicts


def under_fire(group: tuple[str, ...], broker, connector, inputs: Path, place: Path) -> Hunt:
    """Run a group under fire; and then once more in peace, on the rows that close all windows."""
    prefix = f"group{GROUPS.index(group)}-"
    names = {prefix + topic: count for topic, count in PARTITIONS.items()}
    create(broker.servers, {**names, **{topic_of(family): 2 for family in group}})
    hunt = Hunt(place, inputs, group, program="tests.kafka.program")
    try:
        for closing, limit, blows in ((False, 60, BLOWS), (True, 1, ())):
            rows = {topic: rows_of(inputs, topic[0], closing=closing) for topic in PARTITIONS}
            records = {prefix + topic: [encode(topic, row) for row in several] for topic, several in rows.items()}
            send(broker.servers, records)
            given = {"servers": broker.servers, "prefix": prefix, "jars": connector, "limit": limit}
            (inputs / "kafka.json").write_text(json.dumps(given), encoding="utf-8")
            hunt.run(list(blows))
    finally:
        hunt.clean()
        TALLY.update({str(kind): count for kind, count in hunt.kills.items()})
    return hunt


def by_key(family: str, servers: str) -> Counter[tuple[object, ...]]:
    """The results in a topic, each key once, as a reader has them that knows a key again."""
    values: dict[bytes | None, set[bytes]] = {}
    records = found(servers, topic_of(family))
    for key, value in records:
        values.setdefault(key, set()).add(value)
    # A result that was written again is the same result: it does not matter which of them a reader keeps.
    assert all(len(several) == 1 for several in values.values())
    TALLY["repeated"] += len(records) - len(values)
    names = [column.split(" AS ")[-1] for column in FAMILIES[family].columns]
    return Counter(tuple(json.loads(one).get(name) for name in names) for (one,) in values.values())

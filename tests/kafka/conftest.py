"""A broker, inputs in its topics, and a session with the connector; without a way to Maven, one line that says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from scripts.fetch_jars import UnreachableError, fetch, for_spark
from tests.kafka.topics import TALLY

KILLS = ("driver", "executor", "worker", "broker")
_unreachable: list[str] = []


def _fetched(name: str) -> list[Path]:
    """Archives; a test that needs them is skipped with the reason where they cannot be had."""
    try:
        return fetch(name)
    except UnreachableError as error:
        _unreachable[:] = [str(error)]
        pytest.skip(f"no Kafka here: {error}")


@pytest.fixture(scope="session")
def connector() -> list[str]:
    """The archives of Spark's connector to Kafka."""
    return [str(file) for file in _fetched(for_spark("kafka-connector"))]


@pytest.fixture(scope="session")
def broker() -> Iterator[object]:
    """A broker for all tests but those that stop theirs."""
    _fetched("kafka-broker")
    from tests.kafka.broker import Broker

    with Broker() as started:
        yield started


@pytest.fixture(scope="session")
def spark(connector, tmp_path_factory) -> Iterator[object]:
    """A session that knows Kafka; its archives must be there when the JVM starts."""
    from pyspark.sql import SparkSession

    from dovetail.spark.runtime.session import session

    if SparkSession.getActiveSession() is not None:
        pytest.skip("a session without the connector runs in this process; make kafka has one of its own")
    started = session(
        "dovetail-kafka",
        master="local[2]",
        driver_memory="2g",
        conf={
            "spark.jars": ",".join(connector),
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.showConsoleProgress": False,
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield started
    with contextlib.suppress(Exception):
        started.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the run did."""
    if _unreachable:
        terminalreporter.write_line(f"kafka: NOT RUN: {_unreachable[0]}")
    if TALLY:
        named = {kind: f"{'an' if kind == 'executor' else 'a'} {kind}" for kind in KILLS}
        kills = ", ".join(f"{TALLY[kind]} of {named[kind]}" for kind in KILLS if TALLY[kind])
        count = sum(TALLY[kind] for kind in KILLS)
        counted = f"{count} kill{'' if count == 1 else 's'}"
        terminalreporter.write_line(
            f"kafka: PySpark {version('pyspark')}, {for_spark('kafka-connector')}; {counted} ({kills or 'none'}); "
            f"{TALLY['records sent']} records sent, {TALLY['records found']} found by another client, "
            f"{TALLY['repeated']} of them a result that was written again"
        )

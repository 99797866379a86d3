"""Settings that must not matter, or change what Spark means, and seeds that a failure names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """The session with other settings for a while."""
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def seeds(first: int, count: int) -> list[int]:
    """The seeds to draw from: so many, or the one that NET_SEED names."""
    if "NET_SEED" in os.environ:
        return [int(os.environ["NET_SEED"])]
    return list(range(first, first + count))

"""Settings that must not matter, or change what Spark means, and seeds that a failure names."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from unittest.mock import patch

from pyspark.sql import SparkSession

from dovetail.plan.broadcast import Estimate

ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")


MEANINGS = tuple(product(("true", "false"), ZONES, ("false", "true")))
"""ANSI mode, time zone and whether names are case-sensitive: every combination."""


def drawn_settings(family: str, seed: int) -> dict[str, str]:
    """The settings of a seed: twelve seeds in a row have every combination, and families begin with different ones."""
    # Five and twelve have no divisor in common, so twelve seeds have all.
    ansi, zone, case = MEANINGS[(zlib.crc32(family.encode()) + 5 * seed) % len(MEANINGS)]
    # A dozen joins in one job are planned again after each stage, and compiled once for one run of each: not always.
    usual = "true" if seed % 4 == 3 else "false"
    return {
        "spark.sql.adaptive.enabled": usual,
        "spark.sql.codegen.wholeStage": usual,
        "spark.sql.codegen.factoryMode": "FALLBACK" if usual == "true" else "NO_CODEGEN",
        "spark.sql.ansi.enabled": ansi,
        "spark.sql.session.timeZone": zone,
        "spark.sql.caseSensitive": case,
        "spark.sql.shuffle.partitions": "2" if seed % 2 else "1",
    }


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


@contextmanager
def small_inputs(*, at_once: bool) -> Iterator[None]:
    """Let calls take their inputs for small: one task joins what can be read at once, or else one side is broadcast."""
    with ExitStack() as stack:
        for family in ("theta", "asof"):
            found = f"dovetail.spark.joins.{family}.small_inputs"
            stack.enter_context(patch(found, lambda frames: dict.fromkeys(frames, Estimate(1, at_once))))
        yield


def seeds(first: int, count: int) -> list[int]:
    """The seeds to draw from: so many, or the one that NET_SEED names."""
    if "NET_SEED" in os.environ:
        return [int(os.environ["NET_SEED"])]
    return list(range(first, first + count))

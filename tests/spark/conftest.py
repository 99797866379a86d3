"""Fixtures of the tests that run joins in Spark."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def few_partitions(spark):
    """Two shuffle partitions: each task of a stateful operator starts workers of its own."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def partitions_as_before(spark):
    """For a test that changes the shuffle partitions: they are put back."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def generated_code(spark):
    """Spark's own code for expressions, which other tests do without: it pays where there are millions of rows."""
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    yield
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")

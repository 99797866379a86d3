"""What a message of this library quotes of an error that Spark raised."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

import dovetail as dt
from dovetail.spark.runtime.failures import SPARK_ERRORS, brief


def test_an_exception_of_a_worker_is_named(spark):
    def failing(batches):
        for _ in batches:
            yield 1 / 0

    with pytest.raises(SPARK_ERRORS) as caught:
        spark.range(3).mapInArrow(failing, "x long").collect()
    assert brief(caught.value) == "a Python worker failed: ZeroDivisionError: division by zero"


def test_a_refusal_of_a_worker_comes_without_a_trace(spark):
    """Wherever the query runs: in a notebook nobody shortens the message."""
    large = spark.sql("SELECT CAST(9223372036854775807 AS BIGINT) AS v, 1 AS k")
    joined = dt.bestmatch_join({"R": large, "S": large}, on=[dt.least("R.v + S.v")], how="left", by="k")
    with pytest.raises(PySparkException) as caught:
        joined.collect()
    refusal = "a sum in least() or most() leaves 64 bits"
    # PySpark puts a line of its own in front.
    assert refusal in "".join(str(caught.value).strip().splitlines()[:2])
    assert 'File "' not in str(caught.value)
    assert brief(caught.value).startswith(refusal)

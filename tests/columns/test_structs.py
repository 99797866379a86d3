"""Structs that leave Python have the very types that Spark was told; it refuses others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from dovetail.columns.structs import Nested, nest
from dovetail.spark.frames import nested_fields, never_null

FLAT = [
    T.StructField("a", T.LongType(), False),
    T.StructField("b", T.StringType()),
    T.StructField("p", T.BooleanType()),
]
INNER = Nested("inner", (("a", "a"), ("b", "b")))
SHAPE = [Nested("R", (("x", "a"), ("inner", INNER))), Nested("S", (("x", "a"), ("y", "b")), present="p")]


@pytest.mark.parametrize("whole", [True, False])
def test_types_are_those_that_spark_was_told(whole):
    rows = pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", None], "p": [True, False]})
    told = to_arrow_schema(T.StructType(nested_fields(FLAT, SHAPE, whole=whole)), timezone="UTC")
    made = nest(rows, SHAPE, never_null(FLAT) if whole else None)
    assert made.schema.types == told.types
    assert made.to_pylist() == [
        {"R": {"x": 1, "inner": {"a": 1, "b": "x"}}, "S": {"x": 1, "y": "x"}},
        {"R": {"x": 2, "inner": {"a": 2, "b": None}}, "S": None},
    ]

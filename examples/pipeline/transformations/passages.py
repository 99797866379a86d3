"""Tables of the pipeline: who passed all three cameras, and who drove faster at the second one.

A join looks at the columns of its inputs.  Spark allows that while it reads this file, but not inside the functions
that define tables, so the joins are made here and the functions return them.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import dovetail as dt

# Spark reads this file from the folder of the pipeline's specification.
DATA = Path("data").resolve()
SCHEMA = "obj long, speed long, ts timestamp"

session = SparkSession.active()
tables = {name: session.read.schema(SCHEMA).parquet(str(DATA / name)) for name in "AB"}
streams = {
    name: session.readStream.schema(SCHEMA).parquet(str(DATA / name)).withWatermark("ts", "5 seconds") for name in "ABC"
}

faster = dt.theta_join(tables, on="A.obj = B.obj AND B.speed - A.speed BETWEEN 1 AND 2")
passed = dt.window_join(
    streams,
    on="A.obj = B.obj AND B.obj = C.obj",
    time="ts",
    within=dt.path("A -> B -> C", ["5 seconds", "10 seconds"]),
)


@dp.materialized_view
def fast_pairs() -> DataFrame:
    """Objects that were faster at B than at A, by at most 2."""
    return faster.selectExpr("A.obj", "A.speed AS before", "B.speed AS after")


@dp.table
def passages() -> DataFrame:
    """Objects that passed all three cameras in time, as they do."""
    return passed.selectExpr("A.obj", "A.ts AS first", "C.ts AS last")

"""A session with the table formats that have a release for the PySpark in use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from scripts.fetch_jars import UnreachableError, fetch, for_spark

FORMATS = ("delta", "iceberg")
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
SCHEMAS = {"delta": "spark_catalog.default", "iceberg": "ice.default"}
_numbers = count()
_lacking: dict[str, str] = {}


@dataclass(frozen=True)
class Lake:
    """A table format: its name, and where its tables are."""

    format: str
    schema: str

    def name(self, table: str) -> str:
        """A name that no other test has."""
        return f"{self.schema}.{table}{next(_numbers)}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[object]:
    """A session that knows the formats; their archives must be there when the JVM starts."""
    from pyspark.sql import SparkSession

    from dovetail.spark.runtime.session import session

    if SparkSession.getActiveSession() is not None:
        pytest.skip("a session without the table formats runs in this process; make tables has one of its own")
    jars: list[str] = []
    for name in FORMATS:
        try:
            jars += map(str, fetch(for_spark(name, exactly=True)))
        except UnreachableError as error:
            _lacking[name] = str(error)
    there = [name for name in FORMATS if name not in _lacking]
    if not there:
        pytest.skip(f"no table format here: {'; '.join(_lacking.values())}")
    conf: dict[str, object] = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": ",".join(EXTENSIONS[name] for name in there),
        "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if "delta" in there:
        conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if "iceberg" in there:
        conf["spark.sql.catalog.ice"] = "org.apache.iceberg.spark.SparkCatalog"
        conf["spark.sql.catalog.ice.type"] = "hadoop"
        # foreachBatch has a session of its own: the other one would see a table as it was before a MERGE.
        conf["spark.sql.catalog.ice.cache-enabled"] = False
        conf["spark.sql.catalog.ice.warehouse"] = tmp_path_factory.mktemp("ice").as_uri()
    started = session("dovetail-tables", master="local[2]", driver_memory="2g", conf=conf)
    yield started
    with contextlib.suppress(Exception):
        started.stop()


@pytest.fixture(params=FORMATS)
def lake(request, spark) -> Lake:
    """Each format that there is; the others are skipped, with the reason."""
    if request.param in _lacking:
        pytest.skip(f"no {request.param} here: {_lacking[request.param]}")
    return Lake(request.param, SCHEMAS[request.param])

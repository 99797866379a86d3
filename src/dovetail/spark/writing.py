"""State that Spark writes as that of a query which never ran: a query of one micro-batch begins with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.spark.checkpoint_files import PARTITIONS, CheckpointFiles
from dovetail.spark.runtime.versions import load_state
from dovetail.spark.stream import MAP_STATE


def writing_session(spark: SparkSession, old: CheckpointFiles, batch: int, partitions: int) -> SparkSession:
    """A session of its own, with the settings that write state as the old query has it."""
    session = spark.newSession()
    for name, value in old.settings(batch).items():
        if name in _TAKEN or (name == _PROVIDER and value == _ROCKSDB):
            session.conf.set(name, value)
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    session.conf.set(PARTITIONS, str(partitions))
    return session


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_TAKEN = frozenset(
    {
        "spark.sql.streaming.stateStore.compression.codec",
        "spark.sql.streaming.stateStore.encodingFormat",
        "spark.sql.streaming.stateStore.rocksdb.formatVersion",
        "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion",
        "spark.sql.streaming.stateStore.rowChecksum.enabled",
        "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled",
        "spark.sql.streaming.statefulOperator.useStrictDistribution",
    }
)
"""What of a checkpoint's settings decides how state is written.  Others are left: some of Spark's name code."""

_SETTINGS: Mapping[str, str] = {
    # Whole snapshots, whose files bear no mark of the micro-batch that wrote them but their name.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    "spark.sql.adaptive.enabled": "false",
    # Segments are large, and what travels together must not exceed 2 GB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
}
"""Settings of the session that writes state; it is a session of its own."""


def write_state(session: SparkSession, initial: DataFrame, place: Path, *, timers: bool) -> None:
    """Run a query of one micro-batch without rows, whose operator begins with this state."""
    ticks = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    nothing = ticks.withWatermark("timestamp", "0 seconds").where("value < 0")
    nothing = nothing.selectExpr("CAST(value AS INT) AS cell", "timestamp")
    written = load_state(nothing, "cell", initial, _loader(), "EventTime" if timers else "None")
    query = written.writeStream.format("noop").option("checkpointLocation", str(place)).trigger(once=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _loader() -> StatefulProcessor:
    """A processor that stores what it begins with; it needs no package, since Spark opens it on the driver, too."""
    name, keys, values = MAP_STATE

    class StoreInitialState(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle, self._segments = handle, handle.getMapState(name, keys, values)

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802
            if initialState["timer"] is not None:
                self._handle.registerTimer(initialState["timer"])
            else:
                self._segments.updateValue((initialState["name"],), (bytes(initialState["segment"]),))

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
            yield from ()

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802
            yield from ()

        def close(self) -> None:
            pass

    return StoreInitialState()

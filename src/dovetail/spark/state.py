"""`state`: what the joins of a streaming query hold, read from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.checkpoints import SEGMENTS_STATE
from dovetail.contents import CONTENTS, STORED, DescribeCells
from dovetail.errors import ArgumentError, CheckpointError, is_whole
from dovetail.spark.queries import stateful_operators
from dovetail.spark.routing import arrow_function

_COLUMNS = "operator int, partition int, cell int, name string, segment binary, watermark bigint"
_DDL = {
    "int32": "int", "int64": "bigint", "string": "string", "timestamp[us, tz=UTC]": "timestamp",
    "list<item: string>": "array<string>",
}  # fmt: skip
_SCHEMA = ", ".join(f"{field.name} {_DDL[str(field.type)]}" for field in CONTENTS)


def state(spark: SparkSession, checkpoint: str | Path, *, samples: int = 0) -> DataFrame:
    """Return what the joins of a streaming query hold, cell by cell, as a DataFrame.

    It reads the checkpoint as the last committed micro-batch left it, and writes nothing: the query may run meanwhile.

    Parameters
    ----------
    spark : SparkSession
        The session that reads; it need not be that of the query.
    checkpoint : str or Path
        The ``checkpointLocation`` of the query.
    samples : int, default 0
        How many rows of each input and cell to show, as JSON in the column ``samples``.

    Returns
    -------
    DataFrame
        A row for each cell and input, and one for each kind of thing that a cell keeps beside rows (``beside`` says
        what, and ``input`` is NULL).  The notes explain the columns.

    Raises
    ------
    CheckpointError
        If no micro-batch of a join with state has been committed there.
    ArgumentError
        If an argument is not what is accepted.

    See Also
    --------
    check_checkpoint : Whether a checkpoint belongs to a join.
    metrics : What a running query counts, without its checkpoint.

    Notes
    -----
    ``operator`` is Spark's number of the stateful operator: a query may have several.  ``join`` says which kind of
    join it is.  ``cell`` is the group under which Spark stores the rows, ``partition`` the state partition in which it
    lies; ``segments`` how many pieces there are, ``rows`` and ``bytes`` what is in them as stored.  ``oldest`` and
    ``newest`` are the ends of the event times; where time is a whole number, ``oldest_number`` and ``newest_number``.
    ``freed`` is how many rows the next micro-batch need not keep, by the watermark that it will have: they leave with
    their segment, perhaps a little later.  It is NULL where time frees nothing.  A state that only an earlier version
    of Dovetail has written shows no times until the query has run again.

    The frame is lazy, and each action on it reads the state once.  Building it runs one small job, which lists the
    operators.

    Examples
    --------
    >>> import tempfile
    >>> schema = "id long, ts timestamp"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spark.sql("SELECT id, timestamp_seconds(id) AS ts FROM range(100)").write.parquet(f"{folder}/rows")
    ...     rows = spark.readStream.schema(schema).parquet(f"{folder}/rows").withWatermark("ts", "5 seconds")
    ...     pairs = dt.window_join(
    ...         {"A": rows, "B": rows}, on="A.id = B.id", time="ts", within="10 seconds", partitions=1
    ...     )
    ...     write = pairs.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    ...     write.trigger(availableNow=True).start().awaitTermination()
    ...     held = dt.state(spark, f"{folder}/checkpoint")
    ...     held.groupBy("input").agg({"rows": "sum"}).where("input IS NOT NULL").orderBy("input").show()
    +-----+---------+
    |input|sum(rows)|
    +-----+---------+
    |    A|       16|
    |    B|       16|
    +-----+---------+
    <BLANKLINE>
    """
    if not isinstance(checkpoint, str | Path) or not str(checkpoint):
        raise ArgumentError(f"checkpoint={checkpoint!r}", accepted="the folder of a checkpoint, as text or Path")
    if not is_whole(samples, least=0):
        raise ArgumentError(f"samples={samples!r}", accepted="a whole number of at least 0")
    path = str(checkpoint)
    operators = stateful_operators(spark, path)
    if not operators:
        raise CheckpointError(
            f"no join has left state in {path}",
            accepted="the checkpoint of a query with a join of streams that has committed a micro-batch",
            hint="a stream beside static inputs keeps no state",
        )
    batch = operators[0].maxBatchId
    stored = read_segments(spark, path, operators[0].operatorId, batch)
    for operator in operators[1:]:
        stored = stored.union(read_segments(spark, path, operator.operatorId, batch))
    watermark = next_watermark(spark, path, batch)
    described = stored.crossJoin(F.broadcast(watermark)).select(*STORED)
    return described.mapInArrow(arrow_function(DescribeCells(samples)), _SCHEMA)


def read_segments(spark: SparkSession, path: str, operator: int, batch: int) -> DataFrame:
    """The segments of one operator as a micro-batch left them."""
    segments: DataFrame = read_state(spark, operator, batch, stateVarName=SEGMENTS_STATE).load(path)
    return segments.selectExpr(
        f"{operator} AS operator", "partition_id AS partition", "key.cell AS cell", "user_map_key.name AS name",
        "user_map_value.segment AS segment",
    )  # fmt: skip


def read_state(spark: SparkSession, operator: int, batch: int, **options: object) -> Any:
    """Spark's reader of the state that one operator had after a micro-batch."""
    reader = spark.read.format("statestore").option("operatorId", operator).option("batchId", batch)
    return reader.options(**options)  # type: ignore[arg-type]


def next_watermark(spark: SparkSession, path: str, batch: int) -> DataFrame:
    """One row with the watermark that the micro-batch after `batch` will have, in microseconds; NULL for none."""
    lines = spark.read.text(f"{path.rstrip('/')}/commits/{batch}")
    said = F.get_json_object("value", "$.nextBatchWatermarkMs").cast(T.LongType())
    # Spark's first watermark is 0, which stands for none.
    return lines.agg(F.max(F.when(said > 0, said * 1000)).alias("watermark"))

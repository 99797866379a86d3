"""An approximate plan as a Spark frame, batch and streaming alike; estimates and quality of its results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.codes import order_codes
from dovetail.columns.segments import binary_column, blocks, pack
from dovetail.columns.spark_hash import placed
from dovetail.columns.structs import Nested
from dovetail.families.approx.router import budgets, cells_of, cut
from dovetail.families.approx.spec import FACTS, ApproxSpec
from dovetail.families.approx.stream import BUDGET, METRICS, ApproxKernel
from dovetail.plan.approx import RESERVED, ApproxPlan
from dovetail.spark.frames import Side, conjunction, filtered_sides, identity
from dovetail.spark.keys import hash_column, key_columns, payload_source
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function, carrying
from dovetail.spark.stream import PACKED_ROWS, run_kernel

_COUNTS, _PARTITION = "g", "p"


@dataclass(frozen=True)
class PackArrivals:
    """Rows in; segments out by cell, every row with its place in the order of arrival.

    Row n of partition p of one input arrives together with row n of partition p of the others.  The number of the
    partition comes with the rows: the number of the task counts on from one input to the next.  Where memory follows
    the rows of the cells, their numbers come with the first row of a task, and every segment carries the part of its
    cell.
    """

    side: int
    spec: ApproxSpec
    counted: bool
    numbers: tuple[int, ...]
    """For each cell the number by which Spark finds its task."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        parts, place = None, None
        for block in blocks(batches):
            if place is None:
                place = block.column(_PARTITION)[0].as_py() << 33
                parts = self._budgets(block.column(_COUNTS)[0].as_py()) if self.counted else None
            block = block.drop_columns([_PARTITION, _COUNTS] if self.counted else [_PARTITION])
            hashes = order_codes(block.column(block.num_columns - 1), "int")
            block = block.append_column("a", pa.array(np.arange(place, place + block.num_rows)))
            found = list(cut(block, cells_of(hashes, self.spec.cells), self.spec.cells))
            if parts is not None:
                found = [(c, rows.replace_schema_metadata({BUDGET: str(parts[c])})) for c, rows in found]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([self.numbers[cell] for cell, _ in found], pa.int32()),
                    pa.array([self.side] * len(found), pa.int32()),
                    pa.array([place] * len(found), pa.int64()),
                    binary_column([pack(rows) for _, rows in found]),
                ],
                names=PACKED_ROWS.names,
            )
            place += block.num_rows

    def _budgets(self, counts: list[dict[str, int]]) -> list[int]:
        rows = np.zeros(self.spec.cells, dtype=np.int64)
        for one in counts:
            rows[one["cell"]] = one["n"]
        assert self.spec.memory is not None
        least = self.spec.sides if self.spec.memory.unit == "rows" else 0
        return [int(part) for part in budgets(self.spec.memory.amount, rows, least)]


def approx_frame(frames: Mapping[str, DataFrame], plan: ApproxPlan) -> DataFrame:
    """The lazy frame of a plan: one struct column per alias, and how each result was sampled."""
    sides = filtered_sides(frames, plan.filters)
    spec = plan.spec(
        tuple(len(sides[alias].payload) for alias in plan.inputs),
        tuple(sides[alias].arrow_types() for alias in plan.inputs),
    )
    flat = [_flat(sides[alias], plan, at) for at, alias in enumerate(plan.inputs)]
    if plan.balanced:
        counts = _cell_counts(flat, plan.cells)
        flat = [carrying(one, ["*"], counts) for one in flat]
    flat = [one.select("*", F.spark_partition_id().alias(_PARTITION)) for one in flat]
    streaming = bool(plan.streams)
    # A stream knows its cells by the numbers under which their state is stored.
    numbers = tuple(range(plan.cells)) if streaming else placed(plan.cells, plan.partitions)
    packed = [
        one.mapInArrow(arrow_function(PackArrivals(at, spec, plan.balanced, numbers)), PACKED_ROWS)
        for at, one in enumerate(flat)
    ]
    handle = Handle(plan)
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", plan.cells, streaming=streaming, names=METRICS)
    handle.recorders.append(recorder)
    shape = [part for at, alias in enumerate(spec.aliases) for part in sides[alias].shape(f"i{at}_")]
    shape.append(_sampling(spec))
    kernel, fields, join = partial(ApproxKernel, spec), _fields(sides, spec), identity(frames, plan.identity())
    rows = run_kernel(packed, kernel, recorder, fields, join, partitions=plan.partitions, shape=shape)
    if plan.rests:
        rows = recorder.finished(rows.filter(conjunction(plan.rests)))
    return attach(rows, handle)


def _flat(side: Side, plan: ApproxPlan, at: int) -> DataFrame:
    """Payload, keys and the hash of the join value; rows with a NULL key match nothing and stay behind."""
    keys = plan.keys[at]
    hashed = hash_column(plan.value[at]) if plan.value[at] else F.lit(0).cast("long").alias("h")
    flat = side.frame.select(*side.payload_columns(), *key_columns(keys), hashed)
    for number in range(len(keys)):
        flat = flat.filter(F.col(f"k{number}").isNotNull())
    return flat


def _cell_counts(flat: list[DataFrame], cells: int) -> Column:
    """How many rows each cell will get, as a scalar subquery."""
    hashes = flat[0].select("h")
    for other in flat[1:]:
        hashes = hashes.unionByName(other.select("h"))
    by_cell = hashes.groupBy(F.pmod("h", F.lit(cells)).cast("int").alias("cell")).agg(F.count(F.lit(1)).alias("n"))
    return by_cell.agg(F.collect_list(F.struct("cell", "n"))).scalar()


def _fields(sides: Mapping[str, Side], spec: ApproxSpec) -> list[T.StructField]:
    fields = []
    for at, alias in enumerate(spec.aliases):
        sources = [payload_source(sides[alias], key) for key in spec.keys[at]]
        # Rows with a NULL key have stayed behind.
        keys = {source.column for source in sources if source is not None}
        for number, (_, field) in enumerate(sides[alias].payload):
            nullable = field.nullable and number not in keys
            fields.append(T.StructField(f"i{at}_{number}", field.dataType, nullable))
    kinds: dict[str, T.DataType] = {"cell": T.IntegerType(), "stratum": T.IntegerType(), "weight": T.DoubleType()}
    return fields + [T.StructField(n, kinds.get(n, T.LongType()), False) for n in spec.output_names()[len(fields) :]]


def _sampling(spec: ApproxSpec) -> Nested:
    """How a result was sampled."""
    names = [name for name in ("weight", "cell", "at") if name in spec.output_names()]
    fields: list[tuple[str, str | Nested]] = [(name, name) for name in names]
    if spec.weighted and spec.detail:
        rows = [
            (alias, Nested(alias, tuple((what, f"{what}{at}") for what in FACTS)))
            for at, alias in enumerate(spec.aliases)
        ]
        fields += [("stratum", "stratum"), ("value", "value"), ("rows", Nested("rows", tuple(rows)))]
    return Nested(RESERVED, tuple(fields))

"""An approximate plan as a Spark frame, batch and streaming alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.codes import order_codes
from dovetail.columns.layout import (
    JOIN_VALUE,
    KEY,
    KEY_HASH,
    MIXED,
    MOMENT,
    PARTITION,
    ROUTING,
    ROW_ARRIVAL,
    SAMPLE_CELL,
    STRATUM,
    WEIGHT,
    columns_of,
    input_payload,
)
from dovetail.columns.segments import binary_column, blocks, pack
from dovetail.columns.spark_hash import placed
from dovetail.columns.structs import Nested
from dovetail.families.approx import inventory
from dovetail.families.approx.router import cells_of, memory_shares, result_shares, rows_by_cell
from dovetail.families.approx.spec import FACTS, RETURNED, ApproxSpec, fact_column
from dovetail.families.approx.stream import BUDGET, METRICS, SHARE, ApproxKernel
from dovetail.plan.approx import RESERVED, ApproxPlan
from dovetail.spark.frames import Side, conjunction, filtered_sides, identity
from dovetail.spark.keys import hash_column, key_columns, payload_source
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.routing import arrow_function, carried_by_first_rows
from dovetail.spark.stream import PACKED_ROWS, run_kernel


@dataclass(frozen=True)
class PackArrivals:
    """Rows in; segments out by cell, every row with its position in the order of arrival.

    Row n of partition p of one input arrives together with row n of partition p of the others.  The partition number
    comes with the rows, since task numbers count on from one input to the next.  Where cells get memory in proportion
    to their rows, the row counts come with the first row of a task, and every segment carries its cell's share.
    """

    side: int
    spec: ApproxSpec
    counted: bool
    numbers: tuple[int, ...]
    """For each cell the number that Spark hashes to its task."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        shares, arrival = None, None
        for block in blocks(batches):
            if arrival is None:
                arrival = block.column(PARTITION)[0].as_py() << 33
                shares = self._shares(json.loads(block.column(ROUTING)[0].as_py())) if self.counted else None
            block = block.drop_columns([PARTITION, ROUTING] if self.counted else [PARTITION])
            hashes = order_codes(block.column(block.num_columns - 1), "int")
            block = block.append_column(ROW_ARRIVAL, pa.array(np.arange(arrival, arrival + block.num_rows)))
            segments = list(rows_by_cell(block, cells_of(hashes, self.spec.cells), self.spec.cells))
            if shares is not None:
                segments = [(c, rows.replace_schema_metadata(shares[c])) for c, rows in segments]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([self.numbers[cell] for cell, _ in segments], pa.int32()),
                    pa.array([self.side] * len(segments), pa.int32()),
                    pa.array([arrival] * len(segments), pa.int64()),
                    binary_column([pack(rows) for _, rows in segments]),
                ],
                names=PACKED_ROWS.names,
            )
            arrival += block.num_rows

    def _shares(self, counts: list[dict[str, int]]) -> list[dict[bytes, bytes]]:
        """For each cell its share of the memory and of the results."""
        rows = np.zeros(self.spec.cells, dtype=np.int64)
        for entry in counts:
            rows[entry["cell"]] = entry["n"]
        shares = {BUDGET: memory_shares(self.spec, rows)}
        if self.spec.results is not None:
            shares[SHARE] = result_shares(self.spec, rows)
        return [{name: b"%d" % parts[cell] for name, parts in shares.items()} for cell in range(self.spec.cells)]


def approx_frame(frames: Mapping[str, DataFrame], plan: ApproxPlan) -> DataFrame:
    """The lazy frame of a plan: one struct column per alias, and how each result was sampled."""
    sides = filtered_sides(frames, plan.filters)
    spec = plan.spec
    flat = [_flat(sides[alias], plan, at) for at, alias in enumerate(plan.inputs)]
    added = [F.expr(f"spark_partition_id() AS {PARTITION}")]
    if plan.balanced:
        added.insert(0, carried_by_first_rows(_cell_counts(flat, spec.cells)))
    flat = [frame.select("*", *added) for frame in flat]
    streaming = bool(plan.streams)
    # The cells of a stream keep the numbers under which their state is stored.
    numbers = tuple(range(spec.cells)) if streaming else placed(spec.cells, plan.partitions)
    packed = [
        frame.mapInArrow(arrow_function(PackArrivals(side, spec, plan.balanced, numbers)), PACKED_ROWS)
        for side, frame in enumerate(flat)
    ]
    handle = Handle(plan)
    recorder = Recorder(f"dovetail({','.join(plan.inputs)})", spec.cells, streaming=streaming, names=METRICS)
    handle.recorders.append(recorder)
    shape = [part for at, alias in enumerate(spec.aliases) for part in sides[alias].shape(input_payload(at))]
    shape.append(_sampling(spec))
    kernel, fields, join = partial(ApproxKernel, spec), _fields(sides, spec), identity(frames, plan.identity())
    layout = inventory.layout(plan.inputs, [frames[alias].columns for alias in plan.inputs])
    rows = run_kernel(packed, kernel, recorder, fields, join, partitions=plan.partitions, shape=shape, layout=layout)
    if plan.rests:
        rows = recorder.finished(rows.filter(conjunction(plan.rests)))
    return attach(rows, handle)


def _flat(side: Side, plan: ApproxPlan, at: int) -> DataFrame:
    """Payload, keys and the hash of the join value; rows with a NULL key match nothing and are dropped."""
    keys = plan.spec.keys[at]
    hashed = hash_column(plan.value[at]) if plan.value[at] else f"0L AS {KEY_HASH}"
    flat = side.frame.selectExpr(*side.payload_columns(), *key_columns(keys), hashed)
    present = " AND ".join(f"{key} IS NOT NULL" for key in columns_of(KEY, len(keys)))
    return flat.filter(present) if present else flat


def _cell_counts(flat: list[DataFrame], cells: int) -> Column:
    """How many rows each cell will get, as a scalar subquery that gives JSON."""
    hashes = flat[0].select(KEY_HASH)
    for other in flat[1:]:
        hashes = hashes.union(other.select(KEY_HASH))
    by_cell = hashes.groupBy(F.expr(f"CAST(pmod({KEY_HASH}, {cells}L) AS INT) AS cell")).agg(F.expr("count(1) AS n"))
    return by_cell.selectExpr("to_json(collect_list(struct(cell, n)))").scalar()


def _fields(sides: Mapping[str, Side], spec: ApproxSpec) -> list[T.StructField]:
    fields = []
    for at, alias in enumerate(spec.aliases):
        sources = [payload_source(sides[alias], key) for key in spec.keys[at]]
        # Rows with a NULL key have been dropped.
        keys = {source.column for source in sources if source is not None}
        for number, (_, field) in enumerate(sides[alias].payload):
            nullable = field.nullable and number not in keys
            fields.append(T.StructField(f"{input_payload(at)}{number}", field.dataType, nullable))
    kinds: dict[str, T.DataType] = {SAMPLE_CELL: T.IntegerType(), STRATUM: T.IntegerType()}
    kinds |= {WEIGHT: T.DoubleType(), MIXED: T.BooleanType()}
    names = spec.output_names()[len(fields) :]
    return fields + [T.StructField(name, kinds.get(name, T.LongType()), False) for name in names]


def _sampling(spec: ApproxSpec) -> Nested:
    """How a result was sampled."""
    names = [name for name in (WEIGHT, SAMPLE_CELL, MOMENT) if name in spec.output_names()]
    fields: list[tuple[str, str | Nested]] = [(name, name) for name in names]
    if spec.weighted and spec.detail:
        rows = [
            (alias, Nested(alias, tuple((fact, fact_column(fact, side)) for fact in FACTS)))
            for side, alias in enumerate(spec.aliases)
        ]
        fields += [(name, name) for name in (STRATUM, MIXED, JOIN_VALUE)] + [("rows", Nested("rows", tuple(rows)))]
        fields += [(name, name) for name in RETURNED if spec.results is not None]
    return Nested(RESERVED, tuple(fields))

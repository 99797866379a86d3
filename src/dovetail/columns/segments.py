"""Segments: rows packed into Arrow IPC, the form in which they travel through Spark.

A shuffle, a state store or a stateful operator then moves a few large binary values instead of many rows.  A
segment carries its own schema, so a reader needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns import memory

Routing = TypeVar("Routing")

BLOCK_ROWS = 1 << 20
BLOCK_BYTES = 128 << 20
"""How much a packer gathers before it cuts segments: larger ones are fewer, and take more memory."""


def pack(rows: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """Rows as one Arrow IPC stream.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    >>> unpack(pack(batch)).column("x").to_pylist()
    [1, 2, 3]
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue()


def binary_column(buffers: Sequence[pa.Buffer]) -> pa.Array[Any]:
    """Segments as a binary column, with one copy of their bytes.

    Examples
    --------
    >>> binary_column([pa.py_buffer(b"ab"), pa.py_buffer(b"c")]).to_pylist()
    [b'ab', b'c']
    """
    offsets = np.zeros(len(buffers) + 1, dtype=np.int32)
    np.cumsum([buffer.size for buffer in buffers], out=offsets[1:])
    data = pa.py_buffer(b"".join(buffers))
    return pa.Array.from_buffers(pa.binary(), len(buffers), [None, pa.py_buffer(offsets.tobytes()), data])


def unpack(buffer: pa.Buffer | bytes | memoryview) -> pa.RecordBatch:
    """The rows of a segment; fixed-width columns are views into the buffer."""
    with pa.ipc.open_stream(buffer) as reader:  # type: ignore[arg-type]
        return one_batch(pa.Table.from_batches(list(reader), reader.schema))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as a single batch, empty tables included."""
    combined = table.combine_chunks()
    if combined.num_rows == 0:
        return pa.RecordBatch.from_arrays(
            [pa.array([], type=field.type) for field in combined.schema], schema=combined.schema
        )
    return pa.RecordBatch.from_arrays([_one_chunk(column) for column in combined.columns], schema=combined.schema)


def _one_chunk(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """A column as one array.  Arrow raises where strings exceed 2 GiB; the first chunk alone would lose rows."""
    chunks: list[pa.Array[Any]] = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def concat(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one."""
    return one_batch(pa.Table.from_batches(batches))


def take_unchecked(rows: pa.RecordBatch, numbers: npt.NDArray[Any]) -> pa.RecordBatch:
    """Rows by their numbers, which must be in range: Arrow would go through all of them once more to check.

    Examples
    --------
    >>> take_unchecked(pa.RecordBatch.from_pydict({"x": [5, 6, 7]}), np.array([2, 0])).column("x").to_pylist()
    [7, 5]
    """
    taken: pa.RecordBatch = pc.take(rows, pa.array(numbers), boundscheck=False)
    return taken


def cast_columns(columns: Sequence[pa.Array[Any]], types: Sequence[pa.DataType]) -> list[pa.Array[Any]]:
    """Columns in the types that Spark expects.

    Spark labels timestamps with the zone of the session, wants them back in UTC, and accepts one schema per task.  Rows
    that a kernel made itself (NULL for a missing input) and rows from a run under another zone must fit in.  Columns
    that have the type already are left alone: Arrow refuses to cast lists of structs whose fields are never NULL.

    Examples
    --------
    >>> [column.type for column in cast_columns([pa.array([1]), pa.array([2])], [pa.int64(), pa.float64()])]
    [DataType(int64), DataType(double)]
    """
    return [column if column.type == kind else column.cast(kind) for column, kind in zip(columns, types, strict=True)]


def in_utc(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps marked as UTC: Spark marks them with the session's zone, and state outlives a session."""
    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz not in (None, "UTC")
        else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def packed_column(parts: Sequence[pa.RecordBatch]) -> pa.Array[Any]:
    """Batches of one schema as a binary column of segments, written into one buffer: all rows are copied once.

    Examples
    --------
    >>> parts = [pa.RecordBatch.from_pydict({"x": [1, 2]}), pa.RecordBatch.from_pydict({"x": [3]})]
    >>> [unpack(segment.as_buffer()).num_rows for segment in packed_column(parts)]
    [2, 1]
    """
    if not parts:
        return pa.array([], pa.binary())
    schema = parts[0].schema
    head = schema.serialize().size + 64
    buffer = pa.allocate_buffer(sum(pa.ipc.get_record_batch_size(part) + head for part in parts))
    sink = pa.FixedSizeBufferWriter(buffer)
    offsets = np.zeros(len(parts) + 1, dtype=np.int32)
    for at, part in enumerate(parts, start=1):
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(part)
        offsets[at] = sink.tell()
    return pa.Array.from_buffers(pa.binary(), len(parts), [None, pa.py_buffer(offsets.tobytes()), buffer])


def carried_value(
    batches: Iterable[pa.RecordBatch],
) -> tuple[pa.BinaryScalar | None, Iterator[pa.RecordBatch]]:
    """The value that the first row of a task carries in its last column, and the rows without that column.

    None if there are no rows.

    Examples
    --------
    >>> value, rows = carried_value([pa.RecordBatch.from_pydict({"x": [1, 2], "g": [b"routing", None]})])
    >>> value, [batch.schema.names for batch in rows]
    (<pyarrow.BinaryScalar: b'routing'>, [['x']])
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None, iter(())
    others = range(first.num_columns - 1)
    return first.column(len(others))[0], (batch.select(others) for batch in chain([first], filled))


def routing_and_rows(
    known: bytes | None, batches: Iterable[pa.RecordBatch]
) -> tuple[pa.Buffer | None, Iterable[pa.RecordBatch]]:
    """The routing and the rows of a task: a routing `known` before the job, or else the one that the rows carry."""
    if known is not None:
        return pa.py_buffer(known), batches
    value, rows = carried_value(batches)
    return None if value is None else value.as_buffer(), rows


def blocks(
    batches: Iterable[pa.RecordBatch], *, rows: int = BLOCK_ROWS, size: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Small batches gathered into large ones, none of them empty; smaller ones where memory is short.

    Examples
    --------
    >>> small = [pa.RecordBatch.from_pydict({"x": [i]}) for i in range(5)]
    >>> [block.num_rows for block in blocks(small, rows=2)]
    [2, 2, 1]
    """
    held: list[pa.RecordBatch] = []
    held_rows, held_bytes, taken = 0, 0, 0
    most: int | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
        taken += memory.cost(batch)
        if most is None and taken > memory.FLOOR:
            most = memory.share()
        if held_rows >= rows or held_bytes >= size or (most is not None and taken > most):
            yield concat(held)
            held, held_rows, held_bytes, taken = [], 0, 0, 0
    if held:
        yield concat(held)


def routed_blocks(
    known: bytes | None, batches: Iterable[pa.RecordBatch], read: Callable[[pa.Buffer], Routing]
) -> Iterator[tuple[Routing, pa.RecordBatch]]:
    """The rows of a task in large blocks, each with the routing; nothing where there are no rows.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"x": [1, 2]})
    >>> [(routing, block.num_rows) for routing, block in routed_blocks(b"ab", [rows], lambda packed: packed.size)]
    [(2, 2)]
    """
    packed, rows = routing_and_rows(known, batches)
    if packed is None:
        return
    routing = read(packed)
    for block in blocks(rows):
        yield routing, block


def nulls(size: int, kind: pa.DataType) -> pa.Array[Any]:
    """A column of NULLs of any type."""
    return pa.nulls(size, kind)  # type: ignore[call-overload,no-any-return]

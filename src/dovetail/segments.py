"""Segments: rows packed into Arrow IPC, the form in which they travel through Spark.

A shuffle, a state store or a stateful operator then moves a few large binary values instead of many rows.  A
segment carries its own schema, so whoever opens it needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

BLOCK_ROWS = 1 << 20
BLOCK_BYTES = 128 << 20
"""How much a packer gathers before it cuts segments: fewer, larger segments against the memory they take."""


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
    """A column as one array.  Texts beyond 2 GiB cannot be: then Arrow raises, where a first chunk would lose rows."""
    chunks: list[pa.Array[Any]] = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def concat(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one."""
    return one_batch(pa.Table.from_batches(batches))


def blocks(
    batches: Iterable[pa.RecordBatch], *, rows: int = BLOCK_ROWS, size: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Small batches gathered into large ones, none of them empty.

    Examples
    --------
    >>> small = [pa.RecordBatch.from_pydict({"x": [i]}) for i in range(5)]
    >>> [block.num_rows for block in blocks(small, rows=2)]
    [2, 2, 1]
    """
    held: list[pa.RecordBatch] = []
    held_rows, held_bytes = 0, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
        if held_rows >= rows or held_bytes >= size:
            yield concat(held)
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield concat(held)

"""Rows packed into cells, for the ways to keep state that `_state_ways` compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa


def to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_ipc(blob: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_next_batch()


def spark_murmur3_int(value: int) -> int:
    """Spark's shuffle hash of one int (seed 42): cell ids chosen by it fill the partitions evenly."""
    mask = 0xFFFFFFFF

    def rotl(x: int, r: int) -> int:
        return ((x << r) | (x >> (32 - r))) & mask

    k1 = rotl((value * 0xCC9E2D51) & mask, 15) * 0x1B873593 & mask
    h1 = (rotl(42 ^ k1, 13) * 5 + 0xE6546B64) & mask
    h1 ^= 4
    h1 = (h1 ^ (h1 >> 16)) * 0x85EBCA6B & mask
    h1 = (h1 ^ (h1 >> 13)) * 0xC2B2AE35 & mask
    h1 ^= h1 >> 16
    return h1 - (1 << 32) if h1 >> 31 else h1


def even_cells(partitions: int, per_partition: int) -> list[int]:
    """The smallest ids that put exactly ``per_partition`` cells on every shuffle partition."""
    room = dict.fromkeys(range(partitions), per_partition)
    ids = []
    candidate = 0
    while any(room.values()):
        target = spark_murmur3_int(candidate) % partitions
        if room[target]:
            room[target] -= 1
            ids.append(candidate)
        candidate += 1
    return ids


def packer(side: int, cells: list[int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows -> one segment per cell, sorted by k, so that the kernel's searches walk memory forwards."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else None
        if table is None or table.num_rows == 0:
            return
        k = table["k"].to_numpy()
        cell = (k.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) % np.uint64(len(cells))
        order = np.lexsort((k, cell))
        whole = table.take(pa.array(order)).combine_chunks().to_batches()[0]
        bounds = np.searchsorted(cell[order], np.arange(len(cells) + 1, dtype=np.uint64))
        ts = np.asarray(whole["ts"].cast(pa.int64()))
        out: dict[str, list[Any]] = {"cell": [], "side": [], "lo": [], "hi": [], "seg": []}
        for i, (a, b) in enumerate(pairwise(bounds.tolist())):
            if a < b:
                out["cell"].append(cells[i])
                out["side"].append(side)
                out["lo"].append(int(ts[a:b].min()))
                out["hi"].append(int(ts[a:b].max()))
                out["seg"].append(to_ipc(whole.slice(a, b - a)))
        types_ = (pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.binary())
        yield pa.RecordBatch.from_arrays(
            [pa.array(v, t) for v, t in zip(out.values(), types_, strict=True)], names=list(out)
        )

    return pack


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for blob in batch.column(0):
            yield from_ipc(blob.as_buffer())

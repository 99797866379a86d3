"""Hashes of rows: which cell a row goes to must not depend on the order in which rows arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import order_codes, valid_mask
from dovetail.columns.numba_cache import njit

Index = npt.NDArray[np.int64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: multiplying by it spreads consecutive numbers over the whole range."""


@njit(inline="always")
def mixed(value: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """Every bit of a number into every bit of the result (the finaliser of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def row_hashes(block: pa.RecordBatch, payload: int) -> Index:
    """A hash of each row's own content.

    It decides which cell a row of a frequent value goes to, so it must not depend on the order in which rows arrive: a
    task that Spark runs again may see them in a different one.
    """
    total = np.zeros(block.num_rows, dtype=np.int64)
    for column in block.columns[:payload]:
        mix_into(total, _content(column))
    return total


def _content(column: pa.Array[Any]) -> Index:
    kind = column.type
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    ):
        wide = column.cast(pa.large_binary())
        _, ends, data = wide.buffers()
        offsets = np.frombuffer(memoryview(ends or b""), dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
        codes = text_hashes(offsets, np.frombuffer(memoryview(data or b""), dtype=np.uint8))
    elif pa.types.is_floating(kind) and kind.bit_width in (32, 64):
        codes = order_codes(column, "float32" if kind.bit_width == 32 else "float64")
    elif pa.types.is_primitive(kind) or pa.types.is_decimal128(kind):
        codes = order_codes(column, "int")
    else:
        return np.zeros(len(column), dtype=np.int64)
    # The buffer may hold anything under a NULL, so those bytes must not reach a hash.
    return codes if column.null_count == 0 else np.where(valid_mask(column), codes, 0)


@njit
def text_hashes(offsets: Index, payload: npt.NDArray[np.uint8]) -> Index:  # pragma: no cover
    """A hash of each text, byte by byte (FNV-1a)."""
    out = np.empty(offsets.size - 1, dtype=np.int64)
    for k in range(out.size):
        total = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[k], offsets[k + 1]):
            total = (total ^ np.uint64(payload[at])) * np.uint64(0x100000001B3)
        out[k] = np.int64(total)
    return out


@njit
def mix_into(total: Index, codes: Index) -> None:  # pragma: no cover
    """Mix one more number into each row's hash."""
    for k in range(total.size):
        total[k] = np.int64(mixed(np.uint64(total[k] ^ codes[k])))

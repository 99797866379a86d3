"""What leaves the kernels: the names of the columns, and pairs of row numbers as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dovetail.columns.layout import (
    CHANGE,
    GROUP,
    HAS_ROW,
    INSTANT,
    KEY,
    LEFT_ROW,
    OWNED,
    RIGHT_ROW,
    columns_of,
    input_payload,
)
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.spec import BestSpec

METRICS = (
    "rows", "late", "evicted", "held_rows", "held_bytes", "comparisons", "candidates", "judged", "page_reads",
    "page_writes", "results", "kernel_us",
)  # fmt: skip
"""What a call counts, in the order in which it leaves the operator."""

OUTPUT_ROWS = 1 << 17
"""Rows of a result segment: a few large values travel well, a single huge one does not."""


def output_names(spec: BestSpec) -> list[str]:
    """Columns that leave a kernel: i0_0 ... of the left input, i1_0 ... of the right one, and what `spec` adds."""
    if spec.candidates:
        return [*wide_names(spec), GROUP, *([LEFT_ROW, RIGHT_ROW, OWNED] if spec.both_answer else [])]
    if spec.wide:
        return wide_names(spec)
    names = [name for side in (0, 1) for name in columns_of(input_payload(side), spec.payload[side])]
    if spec.keep:
        names += columns_of(HAS_ROW, 2)
    if spec.order is not None and spec.global_best:
        names.append(CHANGE)
    if spec.max_age is not None:
        names.append(INSTANT)
    return names


def wide_names(spec: BestSpec) -> list[str]:
    """Columns of pairs that leave with their keys: payload and keys of the left input, then of the right one."""
    names = []
    for side in (0, 1):
        names += columns_of(input_payload(side), spec.payload[side]) + columns_of(key_prefix(side), spec.keys)
    return names


def key_prefix(side: int) -> str:
    """The prefix of the key columns of an input in pairs that leave with their keys."""
    return f"{KEY}{side}_"


def payload_columns(spec: BestSpec, side: int, rows: pa.RecordBatch | None, numbers: Any) -> list[pa.Array[Any]]:
    """The payload of the rows with these numbers; NULLs where a number is NULL or there are no rows at all."""
    if rows is None:
        return [pa.nulls(len(numbers), kind) for kind in spec.types[side]]  # type: ignore[call-overload]
    columns: list[pa.Array[Any]] = rows.select(range(spec.payload[side])).take(numbers).columns
    return columns


def wide_columns(spec: BestSpec, side: int, rows: pa.RecordBatch, numbers: Index) -> list[pa.Array[Any]]:
    """Payload and keys of the rows with these numbers."""
    columns: list[pa.Array[Any]] = rows.select(range(spec.payload[side] + spec.keys)).take(numbers).columns
    return columns


def change_rows(spec: BestSpec, pairs: pa.RecordBatch, chosen: Index, word: str) -> pa.RecordBatch:
    """Pairs that were inserted or retracted, without their keys."""
    first = spec.payload[0] + spec.keys
    wanted = [*range(spec.payload[0]), *range(first, first + spec.payload[1])]
    columns = [*pairs.select(wanted).take(chosen).columns, pa.array([word] * chosen.size, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=output_names(spec))


def split_pairs(spec: BestSpec, pairs: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The two sides of pairs that left with their keys."""
    first = spec.payload[0] + spec.keys
    second = first + spec.payload[1] + spec.keys
    return pairs.select(range(first)), pairs.select(range(first, second))


def has_row_columns(numbers: Sequence[Index]) -> list[pa.Array[Any]]:
    """For each side, whether a pair has a row of it: -1 stands for none."""
    return [pa.array(part >= 0) for part in numbers]

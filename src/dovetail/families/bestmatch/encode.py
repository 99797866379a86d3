"""Key columns as numbers: what the compiled kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import Codes, Mask, float_codes, joint_codes, order_codes, valid_mask
from dovetail.conditions.comparison import Kind
from dovetail.errors import DovetailError
from dovetail.families.bestmatch.compiled import Index, Matrix, Sets
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.tree import NO_SETS

Column: TypeAlias = "pa.Array[Any]"


@dataclass(frozen=True)
class Rows:
    """The rows of one side that can match at all, as numbers."""

    positions: Index
    """Their row numbers in the batch."""
    groups: Codes
    """Rows with the same number have equal keys."""
    values: Matrix
    sets: Sets


def encode(spec: BestSpec, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[Rows, Rows]:
    """Both sides as numbers, without rows that have a NULL among their keys."""
    sides = [left, right]
    keys = [[side.column(spec.payload[at] + k) for k in range(spec.keys)] for at, side in enumerate(sides)]
    positions = [np.flatnonzero(usable(columns, side.num_rows)) for columns, side in zip(keys, sides, strict=True)]
    keys = [
        [column if rows.size == len(column) else column.take(rows) for column in columns]
        for columns, rows in zip(keys, positions, strict=True)
    ]
    groups = _groups(spec.by, keys[0], keys[1], (positions[0].size, positions[1].size))
    first = len(spec.by)
    values = [axis_values(spec, columns[first:], rows.size) for columns, rows in zip(keys, positions, strict=True)]
    for at, axis in enumerate(spec.compiled):
        if axis.rule == "sum_int":
            _check_sums(values[0][:, at], values[1][:, at], groups)
    sets = _sets(spec, keys)
    return tuple(Rows(positions[s], groups[s], values[s], sets[s]) for s in (0, 1))  # type: ignore[return-value]


def usable(columns: list[Column], rows: int) -> Mask:
    """Rows without a NULL among these columns."""
    complete = np.ones(rows, dtype=np.bool_)
    for column in columns:
        if column.null_count:
            complete &= valid_mask(column)
    return complete


def axis_values(spec: BestSpec, columns: list[Column], rows: int) -> Matrix:
    """The values of the axes, one row for each row; floats as their bits."""
    values = np.empty((rows, len(spec.compiled)), dtype=np.int64)
    for at, axis in enumerate(spec.compiled):
        if axis.is_float:
            values[:, at] = np.asarray(columns[at].to_numpy(zero_copy_only=False), dtype=np.float64).view(np.int64)
        else:
            values[:, at] = exact_codes(columns[at], axis.kind)
    return values


def exact_codes(column: Column, kind: Kind) -> Codes:
    """Codes of whole numbers; what lies beyond 64 bits has its rank in the column."""
    if kind == "rank" and pa.types.is_decimal(column.type):
        return joint_codes(column, column.slice(0, 0))[0]
    return order_codes(column, "int")


def codes_of(kind: Kind, left: Column, right: Column) -> tuple[Codes, Codes]:
    """Codes of two columns under which equal values are equal."""
    if kind == "rank":
        return joint_codes(left, right)
    return order_codes(left, kind), order_codes(right, kind)


def _groups(
    by: tuple[Kind, ...], left: list[Column], right: list[Column], rows: tuple[int, int]
) -> tuple[Codes, Codes]:
    """One number for each combination of keys, the same on both sides; a join may have no key columns at all."""
    if not by:
        return np.zeros(rows[0], dtype=np.int64), np.zeros(rows[1], dtype=np.int64)
    both = np.zeros(sum(rows), dtype=np.int64)
    for at, kind in enumerate(by):
        codes = np.concatenate(codes_of(kind, left[at], right[at]))
        _, dense = np.unique(codes, return_inverse=True)
        # The product of two columns of dense numbers fits into 64 bits.
        _, both = np.unique(both * (dense.max(initial=0) + 1) + dense, return_inverse=True)
    return both[: rows[0]], both[rows[0] :]


def _check_sums(left: Codes, right: Codes, groups: tuple[Codes, Codes]) -> None:
    """Refuse sums beyond 64 bits of rows that may be a pair: those with equal keys."""
    if left.size == 0 or right.size == 0:
        return
    ends = int(left.min()) + int(right.min()), int(left.max()) + int(right.max())
    if _beyond(ends):
        both = np.intersect1d(*groups)
        least, most = (
            [_extremes(extreme, values, numbers, both) for values, numbers in zip((left, right), groups, strict=True)]
            for extreme in (np.minimum, np.maximum)
        )
        sums = [(int(a) + int(b), int(c) + int(d)) for a, b, c, d in zip(*least, *most, strict=True)]
        ends = min((low for low, _ in sums), default=0), max((high for _, high in sums), default=0)
    if _beyond(ends):
        raise DovetailError(
            f"a sum in least() or most() leaves 64 bits: it would lie between {ends[0]} and {ends[1]}",
            accepted="sums between -9223372036854775808 and 9223372036854775807",
            hint="cast one of the terms, such as CAST(R.cost AS DOUBLE) + S.cost",
        )


def _beyond(ends: tuple[int, int]) -> bool:
    return ends[0] < -(2**63) or ends[1] >= 2**63


def _extremes(extreme: np.ufunc, values: Codes, groups: Codes, wanted: Codes) -> Codes:
    """The least or the largest value of each group that is wanted; both lists of groups are in ascending order."""
    order = np.argsort(groups, kind="stable")
    order = order[np.isin(groups[order], wanted)]
    if not order.size:
        return np.empty(0, dtype=np.int64)
    result: Codes = extreme.reduceat(values[order], np.searchsorted(groups[order], wanted))
    return result


def _sets(spec: BestSpec, keys: list[list[Column]]) -> list[Sets]:
    """Lists as sorted numbers of their elements, equal elements having equal numbers on both sides."""
    if not spec.sets:
        return [NO_SETS, NO_SETS]
    first = len(spec.by) + len(spec.compiled)
    ends: list[list[Index]] = [[], []]
    ids: list[list[Codes]] = [[], []]
    for at, kind in enumerate(spec.sets):
        lists = [_plain_list(keys[side][first + at]) for side in (0, 1)]
        elements = [pc.list_flatten(column) for column in lists]
        codes = codes_of(kind, elements[0], elements[1])
        for side in (0, 1):
            row = np.asarray(pc.list_parent_indices(lists[side]).to_numpy(zero_copy_only=False), dtype=np.int64)
            kept = valid_mask(elements[side])
            both = np.unique(np.stack([row[kept], codes[side][kept]], axis=1), axis=0)
            begin = sum(part.size for part in ids[side])
            ends[side].append(begin + np.searchsorted(both[:, 0], np.arange(len(lists[side]) + 1)))
            ids[side].append(both[:, 1])
    return [(np.stack(ends[side]), np.concatenate(ids[side])) for side in (0, 1)]


def _plain_list(column: Column) -> Column:
    return (
        column
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        else column.cast(pa.list_(column.type.value_type))
    )


def given_costs(spec: BestSpec, columns: list[Column]) -> Matrix:
    """Values that Spark computed for each pair, as costs."""
    rows = len(columns[0]) if columns else 0
    costs = np.empty((rows, len(spec.given)), dtype=np.int64)
    for at, axis in enumerate(spec.given):
        if axis.kind == "float64":
            codes = float_codes(np.asarray(columns[at].to_numpy(zero_copy_only=False), dtype=np.float64))
        else:
            codes = exact_codes(columns[at], axis.kind)
        costs[:, at] = ~codes if axis.largest else codes
    return costs

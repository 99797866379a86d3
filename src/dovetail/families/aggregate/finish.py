"""From states to the columns of the result, each in the exact type that Spark gives the aggregate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.errors import ArgumentError
from dovetail.families.aggregate.compiled import Index
from dovetail.families.aggregate.measures import State
from dovetail.families.aggregate.spec import LIMB_BITS, AggregateSpec, Measure, Output
from dovetail.families.aggregate.wide import averaged, decimal_column, fits, to_words

_LIMB = (1 << LIMB_BITS) - 1
_SIGN = 1 << (LIMB_BITS - 1)


def matches(state: State) -> Index:
    """How many matches each row has: the first measure of every join counts them."""
    counts: Index = state[0].to_numpy()
    return counts


def results(spec: AggregateSpec, state: State) -> list[pa.Array[Any]]:
    """The columns of the result, in order."""
    places, at = [], 0
    for measure in spec.measures:
        width = len(measure.columns) + 1 if measure.kind == "best" else measure.counts + measure.floats
        width += len(measure.fractions)
        places.append(state[at : at + width])
        at += width
    return [
        _result(spec, output, spec.measures[output.measures[0]], places[output.measures[0]]) for output in spec.outputs
    ]


def _result(spec: AggregateSpec, output: Output, measure: Measure, state: State) -> pa.Array[Any]:
    if measure.kind == "quantile":
        return _quantile(output, state)
    if measure.kind == "best":
        values = state[0]
        return values if values.type == output.type else values.cast(output.type)
    numbers = [column.to_numpy(zero_copy_only=False) for column in state]
    counts: Index = numbers[measure.counts - 1] if measure.kind == "whole" else numbers[0]
    if output.function in ("count", "count_if", "count_distinct"):
        return pa.array(counts)
    if measure.kind == "whole":
        return _whole(spec, output, [numbers[at] for at in range(measure.limbs)], counts)
    if measure.kind == "float":
        return _float(output, counts, numbers[1], numbers[2], numbers[3] + numbers[4])
    return _deviation(output, counts, numbers[1], numbers[2], numbers[5] + numbers[6])


def _quantile(output: Output, state: State) -> pa.Array[Any]:
    """One value, or a list of them; NULL where there is none."""
    if not pa.types.is_list(output.type):
        return state[0] if state[0].type == output.type else state[0].cast(output.type)
    size, many = len(state[0]), len(state)
    missing = state[0].is_null().to_numpy(zero_copy_only=False)
    kept = np.flatnonzero(~missing)
    offsets = np.zeros(size + 1, dtype=np.int32)
    np.cumsum(np.where(missing, 0, many), out=offsets[1:])
    # One fraction after the other, and then in the order of the rows.
    values = pa.concat_arrays([column.take(kept) for column in state])
    values = values.take(np.arange(many * kept.size).reshape(many, -1).T.ravel())
    own: Any = pa.ListArray
    lists: pa.Array[Any] = own.from_arrays(
        pa.array(offsets), values.cast(output.type.value_type), type=output.type, mask=pa.array(missing)
    )
    return lists


def _float(
    output: Output, counts: Index, upward: Index, downward: Index, finite: np.ndarray[Any, np.dtype[np.float64]]
) -> pa.Array[Any]:
    total: np.ndarray[Any, np.dtype[Any]] = finite
    if upward.any() or downward.any():
        total = np.where(upward > 0, np.where(downward > 0, np.nan, np.inf), np.where(downward > 0, -np.inf, finite))
    if output.function == "avg":
        total = total / np.maximum(counts, 1)
    averages: pa.Array[Any] = pa.array(total, mask=counts == 0)
    return averages


def _deviation(
    output: Output,
    counts: Index,
    odd: Index,
    weight: np.ndarray[Any, np.dtype[np.float64]],
    squares: np.ndarray[Any, np.dtype[np.float64]],
) -> pa.Array[Any]:
    sample = output.function.endswith("_samp")
    none = counts <= 1 if sample else counts == 0
    variance = np.maximum(squares, 0.0) / np.maximum(weight - 1 if sample else weight, 1.0)
    variance = np.where(odd > 0, np.nan, variance)
    return pa.array(np.sqrt(variance) if output.function.startswith("stddev") else variance, mask=none)


def _whole(spec: AggregateSpec, output: Output, limbs: list[Index], counts: Index) -> pa.Array[Any]:
    empty = counts == 0
    if pa.types.is_decimal(output.type):
        words = to_words(limbs)
        precision = output.type.precision
        if output.function == "avg":
            # Spark's own sum has ten digits more than the values, and no more than 38.
            whole = fits(words, 38)
            words = averaged(words, np.maximum(counts, 1), _scale_gain(spec, output))
            lost = ~whole | ~fits(words, precision)
        else:
            lost = ~fits(words, precision)
        _check(spec, output, lost & ~empty)
        return decimal_column(words, output.type, empty | lost)
    if len(limbs) == 1:
        total, over = limbs[0], np.zeros(counts.size, dtype=np.bool_)
        as_float = total.astype(np.float64)
    else:
        upper = limbs[1] + (limbs[0] >> LIMB_BITS)
        lower = limbs[0] & _LIMB
        over = (upper < -_SIGN) | (upper >= _SIGN)
        with np.errstate(over="ignore"):
            total = (upper << LIMB_BITS) | lower
        as_float = upper.astype(np.float64) * 2.0**LIMB_BITS + lower.astype(np.float64)
    if output.function == "avg":
        return pa.array(as_float / np.maximum(counts, 1), mask=empty)
    if spec.ansi:
        _check(spec, output, over & ~empty)
    return pa.array(total, mask=empty)


def _scale_gain(spec: AggregateSpec, output: Output) -> int:
    column = spec.measures[output.measures[0]].columns[0]
    result, argument = output.type, spec.arguments[column]
    assert isinstance(result, pa.Decimal128Type)
    assert isinstance(argument, pa.Decimal128Type)
    return int(result.scale - argument.scale)


def _check(spec: AggregateSpec, output: Output, lost: Mask) -> None:
    if spec.ansi and lost.any():
        raise ArgumentError(
            f"{output.text or output.function} overflows: the result of a row does not fit into {output.type}",
            accepted="sums that fit into their type, in a session that follows ANSI SQL",
            hint="cast the argument to a wider type, or set spark.sql.ansi.enabled to false to let it wrap or be NULL",
        )

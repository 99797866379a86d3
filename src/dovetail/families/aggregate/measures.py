"""What is asked about ranges of rows, each aggregate by itself: leaves in, states of the ranges out.

A measure builds what it needs of its leaves in an order of them (prefix sums, or a tree) once for as long as the order
stays the same: rows that ask in many blocks ask the same tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.codes import codes_within, slots, valid_mask
from dovetail.columns.segments import nulls
from dovetail.conditions.comparison import Kind
from dovetail.families.aggregate.compiled import (
    Floats,
    Index,
    least_ranges,
    least_tree,
    merge_moments_into,
    merge_pairs_into,
    moment_ranges,
    moment_tree,
    pair_ranges,
    pair_tree,
)
from dovetail.families.aggregate.compiled_fixed import fixed_prefix, fixed_ranges, fixed_unit
from dovetail.families.aggregate.gathered import Distinct, Quantile
from dovetail.families.aggregate.spec import AggregateSpec, Measure

Numbers: TypeAlias = npt.NDArray[Any]
State: TypeAlias = list["pa.Array[Any]"]
"""The columns of :meth:`AggregateSpec.state_fields`."""


@dataclass(frozen=True)
class Piece:
    """Ranges of positions in one order of the rows that answer: one range for each row that asks."""

    order: Index
    begin: Index
    end: Index
    sign: int = 1
    """-1 takes what the ranges hold away, where everything that is asked for are sums of whole numbers."""


class Merging(ABC):
    """One aggregate over the ranges of pieces."""

    @abstractmethod
    def start(self, rows: int) -> None:
        """Begin with as many rows that ask."""

    @abstractmethod
    def add(self, piece: Piece) -> None:
        """Merge the leaves in the ranges of a piece into the states of the rows."""

    @abstractmethod
    def state(self) -> State:
        """The columns of the states."""


class _Prepared(Merging):
    """One that builds something of its leaves in an order, and again only if the order is another one."""

    _order: Index | None = None
    _built: Any = None

    @abstractmethod
    def _build(self, order: Index) -> Any:
        """What is asked about ranges of an order."""

    def _of(self, order: Index) -> Any:
        if self._order is not order:
            self._built, self._order = self._build(order), order
        return self._built


def measures_of(spec: AggregateSpec, leaves: State) -> list[Merging]:
    """All that is asked for, each with its leaves."""
    found: list[Merging] = []
    at = 0
    for measure in spec.measures:
        if measure.gathered:
            found.append(_Gathered(measure, _kinds(spec, measure)[0], leaves[at]))
            at += 1
            continue
        if measure.kind == "best":
            width = len(measure.columns) + 1
            found.append(_Best(measure, _kinds(spec, measure), leaves[at : at + width]))
            at += width
            continue
        numbers = [_numbers(column) for column in leaves[at : at + measure.counts + measure.floats]]
        at += len(numbers)
        found.append(_Adding(numbers[: measure.counts]))
        if measure.kind == "float":
            found.append(_Pairing(numbers[measure.counts :]))
        elif measure.kind == "moments":
            found.append(_Moments(numbers[measure.counts :]))
    return found


def _numbers(column: pa.Array[Any]) -> Numbers:
    numbers: Numbers = column.to_numpy(zero_copy_only=False)
    return numbers


def _kinds(spec: AggregateSpec, measure: Measure) -> list[Kind]:
    kinds = [spec.kinds[column] for column in measure.columns]
    return [kind for kind in kinds if kind is not None]


class _Adding(_Prepared):
    """Whole numbers, by differences of prefix sums: those are exact, and an overflow on the way cancels out."""

    def __init__(self, leaves: list[Numbers]) -> None:
        self._leaves = leaves
        # Counts without NULL are the lengths of ranges, and most sums of doubles meet nothing infinite.
        self._constants = [_constant(values) for values in leaves]

    def start(self, rows: int) -> None:
        self._totals = [np.zeros(rows, dtype=np.int64) for _ in self._leaves]

    def add(self, piece: Piece) -> None:
        for constant, sums, total in zip(self._constants, self._of(piece.order), self._totals, strict=True):
            if constant is None:
                total += piece.sign * (sums[piece.end] - sums[piece.begin])
            elif constant:
                total += piece.sign * constant * (piece.end - piece.begin)

    def _build(self, order: Index) -> list[Index | None]:
        return [
            _prefix_sums(values[order]) if constant is None else None
            for values, constant in zip(self._leaves, self._constants, strict=True)
        ]

    def state(self) -> State:
        return [pa.array(total) for total in self._totals]


def _constant(values: Numbers) -> int | None:
    """The number that all values are, if they are."""
    if not values.size:
        return 0
    return int(values[0]) if bool((values == values[0]).all()) else None


def _prefix_sums(values: Numbers) -> Index:
    sums = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


class _Pairing(_Prepared):
    """Sums of doubles with their errors: by prefix sums in fixed point where no bit is lost, and else by a tree."""

    def __init__(self, leaves: list[Numbers]) -> None:
        self._leaves = leaves
        self._unit = None if leaves[1].any() else fixed_unit(leaves[0])

    def start(self, rows: int) -> None:
        self._high, self._low = np.zeros(rows), np.zeros(rows)

    def add(self, piece: Piece) -> None:
        high, low = self._of(piece.order)
        if self._unit is None:
            sums = pair_ranges(high, low, piece.begin, piece.end)
        else:
            sums = fixed_ranges(high, low, self._unit, piece.begin, piece.end)
        merge_pairs_into(self._high, self._low, *sums)

    def _build(self, order: Index) -> tuple[Numbers, Numbers]:
        high, low = self._leaves
        return pair_tree(high[order], low[order]) if self._unit is None else fixed_prefix(high[order], self._unit)

    def state(self) -> State:
        return [pa.array(self._high), pa.array(self._low)]


class _Moments(_Prepared):
    """Counts, means and squared deviations."""

    def __init__(self, leaves: list[Numbers]) -> None:
        self._leaves = np.stack(leaves, axis=1)

    def start(self, rows: int) -> None:
        self._total = np.zeros((rows, self._leaves.shape[1]))

    def add(self, piece: Piece) -> None:
        merge_moments_into(self._total, moment_ranges(self._of(piece.order), piece.begin, piece.end))

    def _build(self, order: Index) -> Floats:
        return moment_tree(self._leaves[order])

    def state(self) -> State:
        return [pa.array(np.ascontiguousarray(column)) for column in self._total.T]


class _Best(_Prepared):
    """The best row; of rows that are equally good the one with the smallest kept value, NULL last."""

    def __init__(self, measure: Measure, kinds: list[Kind], leaves: State) -> None:
        self._values = leaves[:-1]
        present = _numbers(leaves[-1]).astype(np.bool_)
        deciding = codes_within(self._values[-1], kinds[-1])
        kept = self._values[0]
        self._ranked = np.lexsort(
            (
                _signs(kept, kinds[0]), codes_within(kept, kinds[0]), ~valid_mask(kept),
                ~deciding if measure.largest else deciding, ~present,
            )
        )  # fmt: skip
        self._size = present.size
        self._ranks = np.empty(self._size, dtype=np.int64)
        self._ranks[self._ranked] = np.arange(self._size)
        self._ranks[~present] = self._size

    def start(self, rows: int) -> None:
        self._best = np.full(rows, self._size, dtype=np.int64)

    def add(self, piece: Piece) -> None:
        found = least_ranges(self._of(piece.order), piece.begin, piece.end, self._size)
        self._best = np.minimum(self._best, found)

    def _build(self, order: Index) -> Index:
        return least_tree(self._ranks[order])

    def state(self) -> State:
        """Values, and whether there are any."""
        hit = self._best < self._size
        if self._size == 0:
            return [*(nulls(hit.size, value.type) for value in self._values), pa.array(hit)]
        winners: pa.Array[Any] = pa.array(np.append(self._ranked, 0)[self._best], mask=~hit)
        return [*(value.take(winners) for value in self._values), pa.array(hit)]


def _signs(column: pa.Array[Any], kind: Kind) -> Numbers:
    """Tells -0.0 from 0.0, so that one of two equal values is chosen wherever rows lie; 0 where nothing is to tell."""
    if kind not in ("float32", "float64"):
        return np.zeros(len(column), dtype=np.int8)
    signs: Numbers = np.signbit(slots(column, 1, np.float32 if kind == "float32" else np.float64)).astype(np.int8)
    return signs


class _Gathered(Merging):
    """What needs all matches of a row at once."""

    def __init__(self, measure: Measure, kind: Kind, column: pa.Array[Any]) -> None:
        self._measure, self._column = measure, column
        self._codes = codes_within(column, kind)

    def start(self, rows: int) -> None:
        self._own: Distinct | Quantile = Distinct(self._column, self._codes, rows)
        if self._measure.kind == "quantile":
            self._own = Quantile(self._column, self._codes, rows, self._measure.fractions, self._measure.error)
        self._seen = False

    def add(self, piece: Piece) -> None:
        if self._seen:
            raise AssertionError("what cannot be merged comes from a single range")
        self._seen = True
        self._own.add(piece.order, piece.begin, piece.end)

    def state(self) -> State:
        """The answers themselves."""
        return self._own.state()

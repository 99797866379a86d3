"""What an aggregate join computes, in the form that its kernel knows.

Every aggregate is made of *measures*: states of a few columns that can be merged in any grouping.  Two aggregates that
need the same measure share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dovetail.columns.layout import columns_of
from dovetail.conditions.comparison import Kind, Step

MeasureKind = Literal["rows", "count", "whole", "float", "moments", "best", "distinct", "quantile"]
"""``rows`` counts matches, ``count`` those with a value; ``whole`` sums integers and decimals exactly, ``float`` sums
doubles, ``moments`` has mean and squared deviations, ``best`` the smallest or the largest.  States of ``distinct``
values and of a ``quantile`` cannot be merged: the matches of a row have to be in one place."""

Function = Literal[
    "count", "sum", "avg", "min", "max", "min_by", "max_by", "stddev_samp", "stddev_pop", "var_samp", "var_pop",
    "count_if", "bool_or", "bool_and", "count_distinct", "percentile",
]  # fmt: skip

STATE = "s"
"""Prefix of the columns of a state."""

LIMB_BITS = 32
"""Whole numbers are summed in limbs of so many bits, each in an int64 of its own: 2**31 rows cannot overflow one."""


@dataclass(frozen=True)
class Measure:
    """One state: what it keeps of which argument columns.

    `columns` are positions among the argument columns of the matched input.  Of ``best``, the last column decides and
    the first is kept, which for a plain minimum is the same one; `largest` turns the order round.
    """

    kind: MeasureKind
    columns: tuple[int, ...] = ()
    limbs: int = 1
    largest: bool = False
    fractions: tuple[float, ...] = ()
    """Of a ``quantile``: where in the order of the values."""
    error: float | None = None
    """Of a ``quantile``: None interpolates between values; else a value that occurs, the first or last one if near."""

    @property
    def gathered(self) -> bool:
        """Whether its states cannot be merged."""
        return self.kind in ("distinct", "quantile")

    @property
    def floats(self) -> int:
        """How many columns of doubles the state has."""
        return {"float": 2, "moments": 5}.get(self.kind, 0)

    @property
    def counts(self) -> int:
        """How many columns of whole numbers the state has, all of which are added up."""
        # A sum of doubles counts values, those that are +inf or NaN, and those that are -inf or NaN; moments count
        # values, and those that are not finite.
        return {"whole": self.limbs + 1, "float": 3, "moments": 2, "best": 0, "quantile": 0}.get(self.kind, 1)


@dataclass(frozen=True)
class Output:
    """A column of the result: a function of measures, by their positions, in its exact type."""

    name: str
    function: Function
    measures: tuple[int, ...]
    type: pa.DataType
    text: str = ""
    """The aggregate as the user wrote it, for messages."""


@dataclass(frozen=True)
class AggregateSpec:
    """An aggregate join: rows of one input (the boxes of `step`) ask, rows of the other (its points) answer."""

    step: Step
    measures: tuple[Measure, ...]
    outputs: tuple[Output, ...]
    arguments: tuple[pa.DataType, ...]
    """Arrow types of the argument columns."""
    kinds: tuple[Kind | None, ...]
    """How each argument column is ordered; None for one that nobody orders."""
    payload: tuple[pa.DataType, ...]
    """Arrow types of the columns of the asking input."""
    keep: bool = True
    """Whether rows without a match come out."""
    ansi: bool = True
    """Whether an overflow is an error, or as in Spark without ANSI."""

    def state_fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns of all states, in order: names and types."""
        types: list[pa.DataType] = []
        for measure in self.measures:
            types += [pa.int64()] * measure.counts + [pa.float64()] * measure.floats
            if measure.kind == "best":
                types += [self.arguments[column] for column in measure.columns] + [pa.bool_()]
            elif measure.kind == "quantile":
                kind = pa.float64() if measure.error is None else self.arguments[measure.columns[0]]
                types += [kind] * len(measure.fractions)
        return list(zip(columns_of(STATE, len(types)), types, strict=True))

    @property
    def overlap(self) -> tuple[int, int] | None:
        """The axes of begins and of ends, where both sides are intervals and all that is asked can be subtracted.

        Then matches = those that begin before the end, without those that end before the beginning.
        """
        step = self.step
        if len(step.axes) != 2 or any(measure.kind not in ("rows", "count", "whole") for measure in self.measures):
            return None
        upper = [at for at, axis in enumerate(step.axes) if axis.low is None and axis.high is not None]
        lower = [at for at, axis in enumerate(step.axes) if axis.high is None and axis.low is not None]
        if len(upper) != 1 or len(lower) != 1:
            return None
        begins, ends = step.axes[upper[0]], step.axes[lower[0]]
        same = step.point_keys[begins.point].ddl == step.point_keys[ends.point].ddl
        return (upper[0], lower[0]) if same and begins.kind == ends.kind != "rank" else None

    @property
    def counting(self) -> bool:
        """Whether all that is asked is how many rows match, whichever they are."""
        return all(measure.kind == "rows" for measure in self.measures)

    @property
    def gathered(self) -> bool:
        """Whether all matches of a row have to be in one cell: something is asked for whose states cannot be merged."""
        return any(measure.gathered for measure in self.measures)

    @property
    def exhaustive(self) -> bool:
        """Whether a row has to look at every cell that its range touches: no cell can be covered as a whole."""
        if self.overlap is not None:
            return False
        return self.gathered or len(self.step.axes) > 1 or any(axis.kind == "rank" for axis in self.step.axes)

"""What a best-match join is, in the one form the kernels know.

Every criterion that orders all pairs becomes an :class:`Axis`: a key column on each side and a rule that computes a
*cost* from two values, a 64-bit code of which the smaller is the better.  The rules are symmetric, so that a right join
is a left join with the sides exchanged.  Sets (`overlap`) and a user's own functions (`prefer`) order only some pairs
and are kept apart.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.conditions.comparison import Kind
from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.limits import Limit
from dovetail.errors import ArgumentError, check_partitions, choice

How = Literal["inner", "left", "right", "full"]
Unmatched = Literal["drop", "keep"]
Materialisation = Literal["standard", "grid"]
Rule = Literal["near_int", "near_float", "sum_int", "sum_float", "latest", "given"]
Disorder = Literal["watermark", "ahead", "marks", "value", "grid"]

HOWS: tuple[How, ...] = ("inner", "left", "right", "full")
UNMATCHED: tuple[Unmatched, ...] = ("drop", "keep")
MATERIALISATIONS: tuple[Materialisation, ...] = ("standard", "grid")

NEAR_INT, NEAR_FLOAT, LEAST_INT, MOST_INT, LEAST_FLOAT, MOST_FLOAT, LATEST = range(7)
_NUMBERS: dict[tuple[Rule, bool], int] = {
    ("near_int", False): NEAR_INT,
    ("near_float", False): NEAR_FLOAT,
    ("sum_int", False): LEAST_INT,
    ("sum_int", True): MOST_INT,
    ("sum_float", False): LEAST_FLOAT,
    ("sum_float", True): MOST_FLOAT,
    ("latest", True): LATEST,
}


@dataclass(frozen=True)
class Axis:
    """A criterion under which any two pairs compare.

    ``near_int``, ``near_float``
        the distance between the two values; `within` is the largest that counts, in codes or as a float.
    ``sum_int``, ``sum_float``
        the sum of the two values, the smaller or (`largest`) the larger the better.  With `kind` ``rank`` one of them
        is always 0, and the other, beyond 64 bits, counts by its rank.
    ``latest``
        the larger of the two values, the larger the better.
    ``given``
        a value that Spark computes for each candidate pair; `kind` is that of its code, which has to hold only among
        the pairs that are compared.
    """

    rule: Rule
    largest: bool = False
    within: int | float | None = None
    kind: Kind = "float64"

    @property
    def number(self) -> int:
        """The rule as the compiled kernels know it."""
        return _NUMBERS[self.rule, self.largest]

    @property
    def limit(self) -> int:
        """The largest cost at which a pair is a candidate."""
        if self.within is None:
            return HIGHEST
        if self.rule == "near_float":
            return int(struct.unpack("<q", struct.pack("<d", self.within + 0.0))[0])
        return min(int(self.within) + LOWEST, HIGHEST)

    @property
    def is_float(self) -> bool:
        """Whether its key columns are doubles."""
        return self.rule in ("near_float", "sum_float")


@dataclass(frozen=True)
class Options:
    """How a best-match join is to be run."""

    how: How = "inner"
    unmatched: Unmatched = "drop"
    partitions: int | None = None
    memory: Limit | None = None
    """How much of a window may be in memory while it is joined; the rest goes to local disk, in pages."""
    materialise: Materialisation = "standard"

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        if self.unmatched not in UNMATCHED:
            raise choice("unmatched", self.unmatched, UNMATCHED)
        if self.materialise not in MATERIALISATIONS:
            raise choice("materialise", self.materialise, MATERIALISATIONS)
        if self.unmatched == "keep" and not JoinKind.of(self.how).outer:
            raise ArgumentError(
                "unmatched='keep' with how='inner'", accepted="unmatched='keep' with how='left', 'right' or 'full'"
            )
        check_partitions(self.partitions)


@dataclass
class Counters:
    """What a join did."""

    comparisons: int = 0
    candidates: int = 0
    judged: int = 0
    page_reads: int = 0
    page_writes: int = 0


@dataclass(frozen=True)
class BestSpec:
    """A best-match join of two inputs.

    A segment of either input has its payload columns first, then its key columns: those of `by`, one for each axis
    that is not given, one list column for each of `sets`, and in streams with punctuation, the punctuation.
    """

    how: How
    payload: tuple[int, int]
    types: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]]
    """Arrow types of each input's payload."""
    by: tuple[Kind, ...] = ()
    axes: tuple[Axis, ...] = ()
    sets: tuple[Kind, ...] = ()
    """The kinds of the elements."""
    judges: tuple[Callable[..., Any], ...] = ()
    aliases: tuple[str, str] = ("R", "S")
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Names of the payload columns, for `judges`."""
    keep: bool = False
    """Whether unmatched rows come out."""
    order: int | None = None
    """The axis on which streams are ordered."""
    disorder: Disorder | None = None
    ahead: int = 1
    lateness: int | float = 0
    """How far behind the largest value so far a row may lie, where `disorder` is by value."""
    max_age: int | None = None
    """Only rows of the last so many microseconds take part; the time is a key column behind the others."""
    every: int | None = None
    memory: Limit | None = None
    materialise: Materialisation = "standard"
    candidates: bool = False
    """Whether every candidate pair leaves the kernel, because Spark evaluates some of the criteria."""

    @property
    def compiled(self) -> tuple[Axis, ...]:
        """The axes whose costs a kernel computes."""
        return tuple(axis for axis in self.axes if axis.rule != "given")

    @property
    def given(self) -> tuple[Axis, ...]:
        """The axes whose costs Spark computes."""
        return tuple(axis for axis in self.axes if axis.rule == "given")

    @property
    def keys(self) -> int:
        """Key columns of either input: keys, axes, sets."""
        return len(self.by) + len(self.compiled) + len(self.sets)

    @property
    def wide(self) -> bool:
        """Whether pairs leave with their keys, because a later stage compares them once more."""
        return self.candidates or (self.global_best and not self.by and self.order is None and self.max_age is None)

    @property
    def answers(self) -> tuple[int, ...]:
        """The inputs whose rows have best pairs of their own: those that the join preserves."""
        return tuple(side for side, preserved in enumerate(JoinKind.of(self.how).preserved) if preserved)

    @property
    def global_best(self) -> bool:
        """Whether all pairs of a key compete, as in an inner join; otherwise those of each row do."""
        return not self.answers

    @property
    def both_answer(self) -> bool:
        """Whether the rows of both inputs have best pairs of their own, as in a full join."""
        return len(self.answers) == 2

    @property
    def home_side(self) -> int:
        """The input whose rows go to one cell each; the right one in a right join, else the left one."""
        return self.answers[0] if self.answers else 0

    @property
    def tells_times(self) -> bool:
        """Whether every cell hears the times of all rows: the join is computed at each of them."""
        return self.max_age is not None and self.every is None

    @property
    def pruned(self) -> bool:
        """Whether costs alone decide which pairs are beaten."""
        return not (self.sets or self.judges or self.candidates)

    @property
    def divisible(self) -> bool:
        """Whether the best pairs can be found piece by piece: where costs alone decide, and rows of one side answer.

        In a full join both sides answer; functions and sets compare all candidates of a row; and where pairs leave with
        their keys, another stage compares them.
        """
        alone = self.order is None and self.max_age is None and self.memory is None
        return alone and self.pruned and not self.both_answer and not self.wide

    def without_stream(self) -> BestSpec:
        """The same join of rows that are all there."""
        return replace(self, order=None, disorder=None, max_age=None, every=None)

    def of_side(self, side: int) -> BestSpec:
        """The left or right join that finds the best pairs of the rows of one input."""
        return replace(self, how="left" if side == 0 else "right")

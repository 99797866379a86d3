"""What a window join is: its inputs, windows and conditions in the form the kernels know, checked on construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.spark_hash import placed
from dovetail.conditions.comparison import Axis, Comparison, Edge, Key, KeyType, Kind, build_step
from dovetail.conditions.forms import Equality
from dovetail.errors import ArgumentError, check_partitions, choice
from dovetail.families.window.graph import Graph
from dovetail.families.window.rows import Windows

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Algorithm = Literal["auto", "nested", "hash", "merge"]
Approach = Literal["global", "local", "path"]

HOWS: tuple[How, ...] = ("inner", "left", "right", "full", "semi", "anti")
ALGORITHMS: tuple[Algorithm, ...] = ("auto", "nested", "hash", "merge")
APPROACHES: tuple[Approach, ...] = ("global", "local", "path")

DAY = 86_400_000_000


@dataclass(frozen=True)
class Options:
    """How a window join is to be run."""

    how: How = "inner"
    algorithm: Algorithm = "auto"
    approach: Approach = "local"
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        if self.algorithm not in ALGORITHMS:
            raise choice("algorithm", self.algorithm, ALGORITHMS)
        if self.approach not in APPROACHES:
            raise choice("approach", self.approach, APPROACHES)
        if self.approach == "path" and self.algorithm == "merge":
            raise ArgumentError(
                "approach='path' with algorithm='merge'",
                accepted="approach='global' or 'local' with the merge join, or algorithm='nested' or 'hash'",
            )
        check_partitions(self.partitions)


@dataclass(frozen=True)
class EqualityClass:
    """Keys that are all equal in a match, one of every input: `members` has the number of the key in each input."""

    members: tuple[int, ...]
    kind: Kind


@dataclass(frozen=True)
class PairEquality:
    """Two keys that are equal in a match."""

    sides: tuple[int, int]
    keys: tuple[int, int]
    kind: Kind


@dataclass(frozen=True)
class PairComparison:
    """An axis between two inputs: a point of one lies in a range of the other.  Keys are numbered as in the inputs."""

    point_side: int
    box_side: int
    axis: Axis


@dataclass(frozen=True)
class Grid:
    """Slices of one dimension, so that rows of different slices need not meet.

    A row of the `pivot` input lies in one slice, a row of another input in every slice that may hold a pivot row it
    matches; so each match is found in one slice, the pivot's.  `keys` has each input's key, or None for its time;
    `reach` the lowest and the highest difference between a pivot's value and an input's.
    """

    pivot: int
    length: float
    reach: tuple[tuple[float, float], ...]
    keys: tuple[int, ...] | None = None
    kind: Kind = "int"


@dataclass(frozen=True)
class WindowJoinSpec:
    """A window join, complete."""

    aliases: tuple[str, ...]
    options: Options
    graph: Graph
    times: tuple[int, ...]
    """The payload column with the time, by input."""
    payload: tuple[int, ...]
    types: tuple[tuple[pa.DataType, ...], ...]
    """Arrow types of the payload."""
    keys: tuple[tuple[Key, ...], ...]
    sources: tuple[tuple[int | None, ...], ...]
    """For each key the payload column that holds it, or None where it travels behind the payload."""
    classes: tuple[EqualityClass, ...] = ()
    equalities: tuple[PairEquality, ...] = ()
    comparisons: tuple[PairComparison, ...] = ()
    delays: tuple[int, ...] = ()
    """How late a row of each input may be."""
    idle: int | None = None
    cells: int = 1
    grid: Grid | None = None
    numbers: tuple[int, ...] = field(default=(), compare=False)
    """The numbers of the cells, chosen so that Spark deals them out evenly."""

    def __post_init__(self) -> None:
        if self.options.algorithm == "hash" and not self.classes:
            raise ArgumentError(
                "algorithm='hash' without an equality that connects all inputs",
                accepted="a condition such as A.k = B.k AND B.k = C.k, or another algorithm",
            )
        if not self.numbers:
            object.__setattr__(self, "numbers", placed(self.cells, self.cells))

    @property
    def sides(self) -> range:
        """The numbers of the inputs."""
        return range(len(self.aliases))

    @property
    def hull(self) -> Windows:
        """Shape (n, n, 2): what every match satisfies."""
        return self.graph.hull

    @property
    def preserved(self) -> tuple[int, ...]:
        """Inputs whose rows come out even without a match."""
        return {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}.get(self.options.how, ())

    @property
    def flagged(self) -> tuple[int, ...]:
        """Inputs of whose rows the state remembers whether they matched."""
        return (0,) if self.options.how == "semi" else self.preserved

    @property
    def emitted(self) -> range:
        """Inputs whose rows appear in the result."""
        return range(1) if self.options.how in ("semi", "anti") else self.sides

    def output_names(self) -> list[str]:
        """Flat output columns: those of every emitted input, then which inputs are present in an outer join."""
        names = [f"i{side}_{at}" for side in self.emitted for at in range(self.payload[side])]
        if self.options.how in ("left", "right", "full"):
            names += [f"p{side}" for side in self.emitted]
        return names


@dataclass(frozen=True)
class Conditions:
    """The conjuncts of a join between its inputs, keys numbered per input."""

    keys: tuple[tuple[Key, ...], ...]
    classes: tuple[EqualityClass, ...]
    equalities: tuple[PairEquality, ...]
    comparisons: tuple[PairComparison, ...]


def build_conditions(
    aliases: Sequence[str],
    equalities: Sequence[tuple[Equality, KeyType]],
    comparisons: Sequence[tuple[Comparison, KeyType]],
) -> Conditions:
    """Conjuncts with the types that Spark compares them in, sorted out by input."""
    keys: list[list[Key]] = [[] for _ in aliases]

    def number(key: Key) -> tuple[int, int]:
        side = aliases.index(key.alias)
        if key not in keys[side]:
            keys[side].append(key)
        return side, keys[side].index(key)

    edges = [
        (number(Key(e.left.sql, kind.ddl, e.left.alias)), number(Key(e.right.sql, kind.ddl, e.right.alias)), kind.kind)
        for e, kind in equalities
    ]
    pairs = []
    for i, j in combinations(range(len(aliases)), 2):
        between = [(c, t) for c, t in comparisons if {c.left.alias, c.right.alias} == {aliases[i], aliases[j]}]
        if not between:
            continue
        step = build_step([], between, left=frozenset([aliases[i]]), how="inner")
        point_side, box_side = (j, i) if step.swapped else (i, j)
        point_numbers = [number(key)[1] for key in step.point_keys]
        box_numbers = [number(key)[1] for key in step.box_keys]
        for axis in step.axes:
            low, high = (_renumbered(end, box_numbers) for end in (axis.low, axis.high))
            pairs.append(PairComparison(point_side, box_side, Axis(axis.kind, point_numbers[axis.point], low, high)))
    classes = tuple(_classes(len(aliases), edges))
    covered = {(side, key) for found in classes for side, key in enumerate(found.members)}
    # A class vouches for the keys it names.  An equality with another key of the same input is checked by itself.
    apart = tuple(
        PairEquality((a[0], b[0]), (a[1], b[1]), kind) for a, b, kind in edges if not (a in covered and b in covered)
    )
    return Conditions(tuple(tuple(side) for side in keys), classes, apart, tuple(pairs))


def _renumbered(end: Edge | None, numbers: list[int]) -> Edge | None:
    return None if end is None else replace(end, key=numbers[end.key])


Node = tuple[int, int]


def _classes(sides: int, edges: Sequence[tuple[Node, Node, Kind]]) -> Iterator[EqualityClass]:
    """Sets of equal keys that reach every input."""
    groups: list[tuple[set[Node], Kind]] = []
    for one, other, kind in edges:
        joined, rest = {one, other}, []
        for nodes, found in groups:
            if nodes & joined:
                joined |= nodes
            else:
                rest.append((nodes, found))
        groups = [*rest, (joined, kind)]
    for nodes, kind in groups:
        members = [min((key for side, key in nodes if side == at), default=-1) for at in range(sides)]
        if min(members) >= 0:
            yield EqualityClass(tuple(members), kind)


def time_codes(column: pa.Array) -> npt.NDArray[np.int64]:  # type: ignore[type-arg]
    """Times as whole numbers: microseconds for timestamps and dates, the number itself for integers.

    Examples
    --------
    >>> from datetime import date
    >>> time_codes(pa.array([date(1970, 1, 2)])).tolist()
    [86400000000]
    """
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) * np.int64(DAY)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    else:
        column = column.cast(pa.int64())
    values: npt.NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values

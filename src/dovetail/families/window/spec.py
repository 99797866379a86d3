"""What a window join is: its inputs, windows and conditions in the form the kernels know, checked on construction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal

import pyarrow as pa

from dovetail.columns.layout import HAS_ROW, columns_of, input_payload
from dovetail.columns.spark_hash import placed
from dovetail.conditions.comparison import Axis, Comparison, Edge, Key, KeyType, Kind, build_step
from dovetail.conditions.components import components
from dovetail.conditions.forms import Equality
from dovetail.conditions.join_kind import HOWS, How, JoinKind
from dovetail.conditions.roles import Roles
from dovetail.errors import ArgumentError, check_partitions, choice
from dovetail.families.window.graph import WindowGraph, WindowMatrix

Algorithm = Literal["auto", "pipeline", "nested", "hash", "merge"]
Approach = Literal["global", "local", "path"]

ALGORITHMS: tuple[Algorithm, ...] = ("auto", "pipeline", "nested", "hash", "merge")
APPROACHES: tuple[Approach, ...] = ("global", "local", "path")


@dataclass(frozen=True)
class Options:
    """How a window join is to be run."""

    how: How | Roles = "inner"
    algorithm: Algorithm = "auto"
    approach: Approach = "local"
    partitions: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.how, Roles) and self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        if self.algorithm not in ALGORITHMS:
            raise choice("algorithm", self.algorithm, ALGORITHMS)
        if self.approach not in APPROACHES:
            raise choice("approach", self.approach, APPROACHES)
        if self.approach == "path" and self.algorithm == "merge":
            raise ArgumentError(
                "approach='path' with algorithm='merge'",
                accepted="approach='global' or 'local' with the merge join, or another algorithm",
            )
        check_partitions(self.partitions)

    @property
    def roles(self) -> Roles | None:
        """What each input is to the join, where `how` says it input by input."""
        return self.how if isinstance(self.how, Roles) else None

    @property
    def kind(self) -> JoinKind:
        """Which rows a join of two inputs gives; where roles say it, only its pairs count."""
        return JoinKind.of("inner" if isinstance(self.how, Roles) else self.how)

    @property
    def inner(self) -> bool:
        """Whether the matches of all inputs are all that comes out."""
        return self.roles is None and self.kind.pairs_only

    def preserved(self) -> tuple[int, ...]:
        """Inputs whose rows come out even without a match."""
        if self.roles is not None:
            return self.roles.kept
        return tuple(side for side, kept in enumerate(self.kind.preserved) if kept)


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

    @property
    def is_band(self) -> bool:
        """Whether it bounds a difference on both ends, which makes values worth an index."""
        ends = (self.axis.low, self.axis.high)
        return self.axis.kind != "rank" and all(end is not None and end.shift is not None for end in ends)

    @property
    def bucket_width(self) -> float:
        """The width of a band: of buckets as wide as that, a range touches two or three."""
        low, high = self.axis.low, self.axis.high
        assert low is not None
        assert high is not None
        width = float(high.shift or 0) - float(low.shift or 0)
        return width if width > 0 and math.isfinite(width) else 1.0


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
    graph: WindowGraph
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
    """The numbers of the cells, chosen so that Spark distributes them evenly."""

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
    def hull(self) -> WindowMatrix:
        """Shape (n, n, 2): what every match satisfies."""
        return self.graph.hull

    @property
    def kind(self) -> JoinKind:
        """Which rows the join gives."""
        return self.options.kind

    @property
    def roles(self) -> Roles | None:
        """What each input is to the join, where that is said input by input."""
        return self.options.roles

    @property
    def core(self) -> tuple[int, ...]:
        """Inputs whose rows make the matches that others complete: all of them, unless roles say otherwise."""
        return tuple(self.sides) if self.roles is None else self.roles.core

    @property
    def extras(self) -> tuple[int, ...]:
        """Inputs that are judged by themselves against each match of the core."""
        return () if self.roles is None else self.roles.extras

    @property
    def preserved(self) -> tuple[int, ...]:
        """Inputs whose rows come out even without a match."""
        return self.options.preserved()

    @property
    def reported(self) -> tuple[int, ...]:
        """Inputs of which rows come out that can match nothing, for want of a key or a time."""
        roles = self.roles
        if roles is not None and len(roles.core) == 1 and "present" not in roles.roles:
            return roles.core
        return self.preserved

    @property
    def flagged(self) -> tuple[int, ...]:
        """Inputs of whose rows the state remembers whether they matched."""
        return self.preserved if self.kind.pairs else (0,)

    @property
    def emitted(self) -> tuple[int, ...]:
        """Inputs whose rows appear in the result."""
        if self.roles is not None:
            return self.roles.emitted
        return tuple(self.sides) if self.kind.pairs else (0,)

    @property
    def outer(self) -> bool:
        """Whether an input may be NULL in the result."""
        return self.kind.outer if self.roles is None else self.roles.outer

    @cached_property
    def needed_keys(self) -> tuple[tuple[int, ...], ...]:
        """For each input the keys without which its rows match nothing.

        A row of the core that lacks a key which ties it to an extra input only is still a match, one that no row of
        that input completes.
        """
        found = []
        for side, keys in enumerate(self.keys):
            only = {key for extra in self.extras for key in self.keys_with(side, extra)}
            for other in self.core:
                only -= self.keys_with(side, other)
            only -= {equal.members[side] for equal in self.classes}
            found.append(tuple(key for key in range(len(keys)) if side in self.extras or key not in only))
        return tuple(found)

    def keys_with(self, side: int, other: int) -> set[int]:
        """The keys of an input that conditions of two inputs compare with those of another."""
        found = set()
        for equality in self.equalities:
            if set(equality.sides) == {side, other}:
                found.add(equality.keys[equality.sides.index(side)])
        for comparison in self.comparisons:
            if {comparison.point_side, comparison.box_side} == {side, other}:
                axis = comparison.axis
                ends = {end.key for end in (axis.low, axis.high) if end is not None}
                found |= {axis.point} if side == comparison.point_side else ends
        return found

    def output_names(self) -> list[str]:
        """Flat output columns: those of every emitted input, then which inputs are present in an outer join."""
        names = [name for side in self.emitted for name in columns_of(input_payload(side), self.payload[side])]
        if self.outer:
            names += columns_of(HAS_ROW, len(self.emitted))
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
    covered = {(side, key) for equal in classes for side, key in enumerate(equal.members)}
    # A class vouches for the keys it names.  An equality with another key of the same input is checked by itself.
    apart = tuple(
        PairEquality((a[0], b[0]), (a[1], b[1]), kind) for a, b, kind in edges if not (a in covered and b in covered)
    )
    return Conditions(tuple(tuple(side) for side in keys), classes, apart, tuple(pairs))


def _renumbered(end: Edge | None, numbers: list[int]) -> Edge | None:
    return None if end is None else replace(end, key=numbers[end.key])


_Node = tuple[int, int]
"""A key: its input and its number there."""


def _classes(sides: int, edges: Sequence[tuple[_Node, _Node, Kind]]) -> Iterator[EqualityClass]:
    """Sets of equal keys that reach every input."""

    def last_edge(part: set[_Node]) -> int:
        return max(at for at, (key, _, _) in enumerate(edges) if key in part)

    # Classes are hashed together in this order, on which the cells of stored state depend.
    for part in sorted(components((one, other) for one, other, _ in edges), key=last_edge):
        members = [min((key for side, key in part if side == wanted), default=-1) for wanted in range(sides)]
        if min(members) >= 0:
            yield EqualityClass(tuple(members), edges[last_edge(part)][2])

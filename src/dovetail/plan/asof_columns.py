"""The columns of an as-of join: those that a call names, those that its conditions compute, and where each travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dovetail.columns.ties import tie_kind
from dovetail.conditions.comparison import Comparison, Key, KeyType, build_step
from dovetail.conditions.forms import Term
from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.names import quoted
from dovetail.families.asof.spec import LEFT, RIGHT, AsofSpec, Options, Where
from dovetail.plan.broadcast import Estimate

Names = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Columns:
    """The columns that a call names, for the left and for the right input."""

    time: tuple[str, str]
    by: Names = ((), ())
    nested: Names = ((), ())
    """Further ones that must be equal, structs and arrays, which are compared as other columns computed from them."""
    ties: tuple[str, ...] = ()
    """Columns of the right input that decide between rows with equal keys and times, before all others."""


@dataclass(frozen=True)
class SideFacts:
    """What the planner knows of one input: its columns, their Arrow types, and which are compared as they are."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    ready: frozenset[tuple[str, str]]
    """(column, type): compared in that type, the column need not be cast."""


@dataclass(frozen=True)
class ComputedKey:
    """Two expressions, over the left and over the right input, that must be equal, and the type of the comparison."""

    left: str
    right: str
    kind: KeyType

    def of(self, side: int) -> str:
        """The expression over one input."""
        return self.right if side == RIGHT else self.left


@dataclass(frozen=True)
class Conditions:
    """Further conditions, each with the type in which Spark compares its two sides."""

    text: str
    keys: tuple[ComputedKey, ...] = ()
    comparisons: tuple[tuple[Comparison, KeyType], ...] = ()
    unequal: tuple[tuple[Term, Term, KeyType], ...] = ()
    """``left <> right``."""
    filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Conditions over one input alone, as Spark SQL."""
    rests: tuple[str, ...] = ()
    """What only Spark can evaluate."""

    @property
    def between(self) -> bool:
        """Whether some condition, besides equalities, is about a row of each input."""
        return bool(self.comparisons or self.unequal or self.rests)


@dataclass(frozen=True)
class Facts:
    """What the planner knows of the inputs: which are streams, the compared types, the session's partitions."""

    streams: frozenset[str]
    keys: tuple[KeyType, ...]
    time: KeyType
    shuffle_partitions: int
    sides: tuple[SideFacts, SideFacts]
    computed_keys: tuple[ComputedKey, ...] = ()
    """Keys that are no columns of the inputs."""
    conditions: Conditions | None = None
    sizes: Mapping[str, Estimate] = field(default_factory=dict)
    """The inputs that Spark itself would broadcast, by its estimate."""


@dataclass(frozen=True)
class DerivedColumn:
    """A column behind the payload: one in the type in which it is compared, or its JSON text, which has an order.

    With `sql` it is computed: Spark SQL over the columns of the input, each behind its alias.
    """

    name: str
    ddl: str | None
    """The type to cast to; None for the JSON text."""
    sql: str | None = None


class Segments:
    """What segments of the two sides hold: their payload, and behind it what is derived from it."""

    def __init__(self, inputs: tuple[str, str], columns: Columns, facts: Facts, options: Options) -> None:
        self._inputs, self._columns, self._facts, self._options = inputs, columns, facts, options
        self._sides = tuple(_Segment(alias, side) for alias, side in zip(inputs, facts.sides, strict=True))
        given = facts.conditions.filters if facts.conditions is not None else ((), ())
        # Rows that fail a condition on their own input have no match; where unmatched rows come out, they stay.  Spark
        # would move a filter in front of a watermark, which then hears nothing of the rows that fail, and stands still.
        stays = tuple(kept or len(facts.streams) == len(inputs) for kept in JoinKind.of(options.how).preserved)
        self.filters = (() if stays[LEFT] else given[LEFT], () if stays[RIGHT] else given[RIGHT])
        self._gates = tuple(given[side] if stays[side] else () for side in (LEFT, RIGHT))

    @property
    def derived(self) -> tuple[tuple[DerivedColumn, ...], tuple[DerivedColumn, ...]]:
        """The columns behind the payload of each side, once the spec is made."""
        return tuple(self._sides[LEFT].derived), tuple(self._sides[RIGHT].derived)

    def compared_names(self, spec: AsofSpec) -> Names:
        """For each side the columns that hold the keys, and the time."""
        left, right = (
            tuple(segment.name_at(at) for at in (*spec.keys[side], spec.times[side]))
            for side, segment in enumerate(self._sides)
        )
        return left, right

    def spec(self, within: int | float | None) -> AsofSpec:
        """The join as its kernels know it."""
        columns, facts, options = self._columns, self._facts, self._options
        left, right = self._sides
        conditions = facts.conditions
        keys = [
            tuple(segment.compared(name, kind) for name, kind in zip(columns.by[side], facts.keys, strict=True))
            for side, segment in enumerate(self._sides)
        ]
        times = left.compared(columns.time[LEFT], facts.time), right.compared(columns.time[RIGHT], facts.time)
        kinds = [kind.kind for kind in facts.keys]
        for key in facts.computed_keys:
            for side, segment in enumerate(self._sides):
                keys[side] = (*keys[side], segment.computed(key.of(side), key.kind.ddl))
            kinds.append(key.kind.kind)
        return AsofSpec(
            payload=(len(left.facts.types), len(right.facts.types)),
            types=(left.facts.types, right.facts.types),
            keys=(keys[LEFT], keys[RIGHT]),
            times=times,
            kinds=tuple(kinds),
            time=facts.time.kind,
            ties=right.ordered(columns.ties),
            direction=options.direction,
            how=options.how,
            exact=options.allow_exact_matches,
            within=within,
            where=None if conditions is None else self._where(conditions),
            gates=(self._gate(LEFT), self._gate(RIGHT)),
            judged=bool(conditions is not None and conditions.rests),
        )

    def _where(self, conditions: Conditions) -> Where | None:
        if not conditions.comparisons and not conditions.unequal:
            return None
        left, right = self._sides
        step = build_step([], list(conditions.comparisons), left=frozenset((left.alias,)), how="left")

        def positions(segment: _Segment, keys: tuple[Key, ...]) -> tuple[int, ...]:
            return tuple(segment.computed(key.sql, key.ddl) for key in keys)

        unequal = []
        for one, other, kind in conditions.unequal:
            a, b = (one, other) if one.alias == left.alias else (other, one)
            unequal.append((left.computed(a.sql, kind.ddl), right.computed(b.sql, kind.ddl), kind.kind))
        return Where(step, (positions(left, step.point_keys), positions(right, step.box_keys)), tuple(unequal))

    def _gate(self, side: int) -> int | None:
        conditions = self._gates[side]
        if not conditions:
            return None
        text = " AND ".join(f"({sql})" for sql in conditions)
        return self._sides[side].computed(f"coalesce({text}, FALSE)", "BOOLEAN")


class _Segment:
    """The columns of one side."""

    def __init__(self, alias: str, facts: SideFacts) -> None:
        self.alias = alias
        self.facts = facts
        self.derived: list[DerivedColumn] = []

    def compared(self, name: str, kind: KeyType) -> int:
        """Where a key is among the columns; one that is compared in another type becomes a column of its own."""
        if (name, kind.ddl) in self.facts.ready:
            return self.facts.names.index(name)
        return self._add(DerivedColumn(name, kind.ddl))

    def computed(self, sql: str, ddl: str) -> int:
        """Where an expression is among the columns."""
        for at, name in enumerate(self.facts.names):
            if sql == f"{quoted(self.alias)}.{quoted(name)}" and (name, ddl) in self.facts.ready:
                return at
        for at, column in enumerate(self.derived):
            if (column.sql, column.ddl) == (sql, ddl):
                return len(self.facts.names) + at
        name = f"#{len(self.derived)}"
        while name in self.facts.names:
            name += "#"
        return self._add(DerivedColumn(name, ddl, sql))

    def name_at(self, position: int) -> str:
        """The column of the input, or the one computed beside them, that is at a position."""
        names = self.facts.names
        return names[position] if position < len(names) else self.derived[position - len(names)].name

    def ordered(self, first: tuple[str, ...]) -> tuple[int, ...]:
        """Where the columns are that decide ties; what has no order of its own is ordered by its text as JSON."""
        names = self.facts.names
        positions = []
        for name in [*first, *[name for name in names if name not in first]]:
            at = names.index(name)
            positions.append(at if tie_kind(self.facts.types[at]) else self._add(DerivedColumn(name, None)))
        return tuple(positions)

    def _add(self, column: DerivedColumn) -> int:
        self.derived.append(column)
        return len(self.facts.names) + len(self.derived) - 1

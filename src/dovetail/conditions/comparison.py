"""What two sides compare, in the one form that every kernel knows.

A :class:`Step` joins two sides.  The *point* side gives one coordinate per axis, the *box* side one range per
axis (:mod:`dovetail.columns.encode`).  Which input plays which part is decided here: a side whose
unmatched rows count must be the points, because the router never copies points; otherwise the part that needs
fewer axes wins, since ``B.x BETWEEN A.low AND A.high`` is one range for B's points and two half-lines for A's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from dovetail.conditions.forms import Band, Bound, Equality, Inequality, Term
from dovetail.conditions.join_kind import How, JoinKind

Kind = Literal["int", "float32", "float64", "rank"]
"""How a type becomes 64-bit codes that keep its order."""


@dataclass(frozen=True)
class KeyType:
    """The type in which two sides are compared: Spark's name for it, its kind of code, and its unit.

    `unit` is how many codes make one: 10**scale for decimals, 1 for integers, and for times the microseconds of
    one code (`micros`), which is 1 for timestamps and a day for dates.
    """

    ddl: str
    kind: Kind
    unit: int = 1
    micros: int | None = None


@dataclass(frozen=True)
class Edge:
    """One end of a range: the box side's key column, moved by `shift` (a band) or not (an inequality)."""

    key: int
    strict: bool
    shift: int | float | None = None


@dataclass(frozen=True)
class Axis:
    """One dimension: the point side's key column and the ends of the box side's range."""

    kind: Kind
    point: int
    low: Edge | None = None
    high: Edge | None = None


@dataclass(frozen=True)
class Key:
    """A key column to compute: an expression over one alias, cast to the type of the comparison."""

    sql: str
    ddl: str
    alias: str = ""


@dataclass(frozen=True)
class Step:
    """Two sides, in the form the kernels know.

    The first `equalities` key columns of both sides are the equality keys; `swapped` tells that the points are
    the right input.
    """

    axes: tuple[Axis, ...]
    equalities: tuple[Kind, ...]
    point_keys: tuple[Key, ...]
    box_keys: tuple[Key, ...]
    swapped: bool = False

    @property
    def is_product(self) -> bool:
        """Whether nothing narrows the search, and every pair is formed."""
        return not self.equalities and all(axis.low is None and axis.high is None for axis in self.axes)


Comparison = Inequality | Band


def build_step(
    equalities: list[tuple[Equality, KeyType]],
    comparisons: list[tuple[Comparison, KeyType]],
    *,
    left: frozenset[str],
    how: How,
) -> Step:
    """The step for conjuncts between the aliases `left` and one further alias.

    Each conjunct comes with the type that Spark compares it in.  Conjuncts whose left side belongs to the other
    input are turned round first.
    """
    as_given = _Builder(left, equalities, comparisons).step()
    kind = JoinKind.of(how)
    if kind.preserved[0] or not kind.pairs:
        return as_given
    turned = _Builder(None, equalities, comparisons, not_points=left).step()
    if kind.preserved[1] or len(turned.axes) < len(as_given.axes):
        return turned
    return as_given


def every_pair(left: str, right: str, how: How) -> Step:
    """The step of two inputs that no comparison connects: every box holds every point.

    Examples
    --------
    >>> every_pair("A", "B", "inner").is_product
    True
    """
    keys = (Key("0L", "BIGINT", left),), (Key("0L", "BIGINT", right),)
    swapped = JoinKind.of(how).preserved == (False, True)
    points, boxes = keys[::-1] if swapped else keys
    return Step((Axis("int", 0),), (), points, boxes, swapped)


class _Builder:
    """Collects the key columns of both sides and the axes over them."""

    def __init__(
        self,
        points: frozenset[str] | None,
        equalities: list[tuple[Equality, KeyType]],
        comparisons: list[tuple[Comparison, KeyType]],
        not_points: frozenset[str] = frozenset(),
    ) -> None:
        self._points = points
        self._not_points = not_points
        self._swapped = points is None
        self._point_keys: list[Key] = []
        self._box_keys: list[Key] = []
        self._axes: list[Axis] = []
        self._equality_kinds: list[Kind] = []
        for equality, kind in equalities:
            point, box = equality.left, equality.right
            if not self._is_point(point.alias):
                point, box = box, point
            # Equality keys keep their places at the front, so they are not shared with the axes.
            self._point_keys.append(Key(point.sql, kind.ddl, point.alias))
            self._box_keys.append(Key(box.sql, kind.ddl, box.alias))
            self._equality_kinds.append(kind.kind)
        for comparison, kind in comparisons:
            self._add(comparison, kind)

    def _is_point(self, alias: str) -> bool:
        return alias in self._points if self._points is not None else alias not in self._not_points

    def step(self) -> Step:
        return Step(
            axes=tuple(self._axes),
            equalities=tuple(self._equality_kinds),
            point_keys=tuple(self._point_keys),
            box_keys=tuple(self._box_keys),
            swapped=self._swapped,
        )

    def _add(self, comparison: Comparison, kind: KeyType) -> None:
        low: Edge | None
        high: Edge | None
        if isinstance(comparison, Inequality):
            if self._is_point(comparison.left.alias):
                point, box = comparison.left, comparison.right
                low, high = None, Edge(self._box(box, kind), comparison.strict)
            else:
                point, box = comparison.right, comparison.left
                low, high = Edge(self._box(box, kind), comparison.strict), None
        else:
            point, box = comparison.left, comparison.right
            ends = (comparison.low, comparison.high)
            if not self._is_point(point.alias):
                point, box = box, point
                if None in ends and kind.kind in ("float32", "float64"):
                    # NaN is above every bound in x - y and in y - x alike, so a band with one end must not change
                    # that end.  x - y is also (-y) - (-x), to the last bit.
                    point, box = _minus(point, kind), _minus(box, kind)
                else:
                    ends = (_negated(comparison.high), _negated(comparison.low))
            low = self._shifted(box, kind, ends[0], upward=True)
            high = self._shifted(box, kind, ends[1], upward=False)
        self._merge(Axis(kind.kind, self._key(self._point_keys, point, kind), low, high))

    def _merge(self, axis: Axis) -> None:
        """Join an axis to one over the same point key whose missing end it brings."""
        for at, other in enumerate(self._axes):
            same = other.point == axis.point and other.kind == axis.kind
            if same and (other.low is None or axis.low is None) and (other.high is None or axis.high is None):
                self._axes[at] = Axis(axis.kind, axis.point, other.low or axis.low, other.high or axis.high)
                return
        self._axes.append(axis)

    def _box(self, term: Term, kind: KeyType) -> int:
        return self._key(self._box_keys, term, kind)

    def _key(self, keys: list[Key], term: Term, kind: KeyType) -> int:
        key = Key(term.sql, kind.ddl, term.alias)
        first = len(self._equality_kinds)
        if key in keys[first:]:
            return keys.index(key, first)
        keys.append(key)
        return len(keys) - 1

    def _shifted(self, box: Term, kind: KeyType, bound: Bound | None, *, upward: bool) -> Edge | None:
        if bound is None:
            return None
        key = self._box(box, kind)
        if kind.kind in ("float32", "float64"):
            return Edge(key, bound.strict, float(bound.value))  # type: ignore[arg-type]
        return Edge(key, False, whole_bound(bound, kind, upward=upward))


def _negated(bound: Bound | None) -> Bound | None:
    return None if bound is None else Bound(-bound.value, bound.strict)


def _minus(term: Term, kind: KeyType) -> Term:
    return Term(term.alias, f"- CAST(({term.sql}) AS {kind.ddl})")


def whole_bound(bound: Bound, kind: KeyType, *, upward: bool) -> int:
    """A bound on a difference as a whole number of codes, inclusive.

    `upward` rounds a lower bound up; an upper bound is rounded down.

    Examples
    --------
    >>> whole_bound(Bound(Decimal("1.5"), False), KeyType("BIGINT", "int"), upward=True)
    2
    >>> whole_bound(Bound(2, True), KeyType("BIGINT", "int"), upward=False)
    1
    """
    if isinstance(bound.value, timedelta):
        assert kind.micros is not None
        delta = bound.value
        exact = Decimal(delta.days * 86_400_000_000 + delta.seconds * 1_000_000 + delta.microseconds)
        exact /= kind.micros
    else:
        exact = Decimal(bound.value) * kind.unit
    floor = int(exact.to_integral_value("ROUND_FLOOR"))
    whole = exact == floor
    if upward:
        return floor + (1 if bound.strict or not whole else 0)
    return floor - (1 if bound.strict and whole else 0)

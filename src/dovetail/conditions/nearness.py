"""The ``on=`` of a nearest join: one distance, and conditions beside it.

A distance is ``ABS(r.x - s.x)`` on a line, ``HYPOT``, ``SQRT`` of a sum of squares or ``DISTANCE`` of two or three
differences in the plane or in space, and ``HAVERSINE`` of two latitudes and longitudes on the Earth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import TokenType

from dovetail.conditions.clauses import MIRRORED, Clauses, Span
from dovetail.conditions.distances import Metric
from dovetail.conditions.forms import Predicate, Term
from dovetail.conditions.literals import Value
from dovetail.conditions.names import bare
from dovetail.conditions.predicates import parse
from dovetail.conditions.tokens import read
from dovetail.errors import PredicateError

ACCEPTED = (
    "one distance, ABS(r.x - s.x), HYPOT(r.x - s.x, r.y - s.y), DISTANCE of up to three differences, or "
    "HAVERSINE(r.lat, r.lon, s.lat, s.lon), and equalities beside it"
)
_MOST_DIMENSIONS = 3


@dataclass(frozen=True)
class Distance:
    """A distance between two inputs: for each coordinate a term of the first and one of the second input."""

    metric: Metric
    terms: tuple[tuple[Term, Term], ...]
    factors: tuple[float, ...]
    """What the difference in each coordinate is multiplied with."""
    text: str


@dataclass(frozen=True)
class Nearness:
    """A distance, the largest one allowed, if the condition states one, and what rows must satisfy beside it."""

    distance: Distance
    predicate: Predicate
    """Equalities and conditions on one input."""
    within: Value | None = None
    strict: bool = False
    """Whether `within` itself is too far."""


def parse_nearness(text: str, columns: Mapping[str, Sequence[str]]) -> Nearness:
    """Take the condition of a nearest join apart; `columns` has the two inputs, first the one whose rows ask.

    Raises
    ------
    PredicateError
        If it holds no distance or two, or a condition that no index can serve.
    UnknownNameError
        If it names an alias or a column that does not exist.

    Examples
    --------
    >>> columns = {"r": ["k", "x", "y"], "s": ["k", "x", "y"]}
    >>> found = parse_nearness("r.k = s.k AND DISTANCE(2 * (s.x - r.x), r.y - s.y) <= 5", columns)
    >>> found.distance.metric, found.distance.factors, found.within, found.predicate.sql
    ('euclidean', (2.0, 1.0), 5, '`r`.`k` = `s`.`k`')
    >>> [(str(a), str(b)) for a, b in found.distance.terms]
    [('r.x', 's.x'), ('r.y', 's.y')]
    """
    if not isinstance(text, str):
        raise PredicateError(f"on={text!r} is not SQL text", accepted=ACCEPTED)
    clauses = Clauses(read(text, columns))
    reader = _Reader(clauses, tuple(columns))
    found: list[tuple[Distance, Value | None, bool]] = []
    others = []
    for span in clauses.conjuncts():
        one = reader.bounded(span)
        if one is None:
            others.append(clauses.sql(span))
        else:
            found.append(one)
    if len(found) != 1:
        given = "holds no distance" if not found else f"holds {len(found)} distances"
        raise PredicateError(f"on={text!r} {given}", accepted=ACCEPTED)
    predicate = parse(" AND ".join(f"({sql})" for sql in others), columns) if others else Predicate("TRUE")
    _check_others(text, predicate)
    distance, within, strict = found[0]
    return Nearness(distance, predicate, within, strict)


def _check_others(text: str, predicate: Predicate) -> None:
    other = [one.sql for some in (predicate.inequalities, predicate.bands, predicate.rests) for one in some]
    if other:
        raise PredicateError(
            f"on={text!r} holds {bare(other[0])} beside the distance",
            accepted=ACCEPTED + ", and conditions on one input",
            hint="pairs within a band or an inequality are dt.theta_join's; the nearest of some rows are those of a "
            "filtered input",
        )


class _Reader:
    """Spans of a condition as distances."""

    def __init__(self, clauses: Clauses, aliases: tuple[str, ...]) -> None:
        self._clauses = clauses
        self._aliases = aliases

    def bounded(self, span: Span) -> tuple[Distance, Value | None, bool] | None:
        """A distance, alone or compared with the largest one allowed."""
        alone = self._distance(span)
        if alone is not None:
            return alone, None, False
        found = self._clauses.comparisons(span)
        if len(found) != 1 or found[0][1] not in MIRRORED or found[0][1] is TokenType.EQ:
            return None
        at, kind = found[0]
        left, right = Span(span.start, at), Span(at + 1, span.stop)
        if self._distance(left) is None:
            left, right, kind = right, left, MIRRORED[kind]
        distance = self._distance(left)
        within = self._clauses.value(right) if distance is not None else None
        if distance is None:
            return None
        if within is None or kind not in (TokenType.LT, TokenType.LTE):
            raise PredicateError(
                f"{distance.text} is compared with {self._clauses.sql(right)}",
                accepted="a largest distance, such as ... <= 500, or <= INTERVAL 5 MINUTES between times",
            )
        return distance, within, kind is TokenType.LT

    def _distance(self, span: Span) -> Distance | None:
        clauses = self._clauses
        span = clauses.bare(span)
        if clauses.call(span, "haversine") is not None:
            return self._haversine(span)
        for names, counts in ((("abs",), (1,)), (("hypot",), (2,)), (("distance",), (1, 2, 3))):
            arguments = clauses.call(span, *names)
            if arguments is not None and (names[0] == "distance" or len(arguments) in counts):
                return self._of_differences(span, arguments, told=names[0] == "distance")
        root = clauses.call(span, "sqrt")
        if root is None or len(root) != 1:
            return None
        squares = clauses.summands(root[0])
        squared = [clauses.squared(one) for one in squares] if squares else []
        return self._of_differences(span, [one for one in squared if one is not None]) if all(squared) else None

    def _of_differences(self, span: Span, parts: Sequence[Span], *, told: bool = False) -> Distance | None:
        """The distance over some differences; None where they are none, unless the text calls them so."""
        text = bare(self._clauses.sql(span))
        terms, factors = [], []
        for part in parts:
            found = self._difference(part)
            if found is None:
                if not told:
                    return None
                raise PredicateError(
                    f"{text} holds {bare(self._clauses.sql(part))}",
                    accepted="differences of the two inputs, such as r.x - s.x, or 2 * (r.x - s.x) to weigh one",
                )
            terms.append(found[0])
            factors.append(found[1])
        if len(parts) > _MOST_DIMENSIONS:
            raise PredicateError(f"{text} has {len(parts)} dimensions", accepted="one, two or three")
        if len(parts) == 1:
            if factors[0] != 1.0:
                raise PredicateError(
                    f"{text} weighs the only difference", accepted="the difference alone: a factor changes no order"
                )
            return Distance("line", tuple(terms), (1.0,), text)
        return Distance("euclidean", tuple(terms), tuple(factors), text)

    def _difference(self, span: Span) -> tuple[tuple[Term, Term], float] | None:
        clauses = self._clauses
        factor = 1.0
        product = clauses.product(span)
        if product is not None:
            values = [clauses.value(one) for one in product]
            if (values[0] is None) == (values[1] is None):
                return None
            value, span = (values[0], product[1]) if values[0] is not None else (values[1], product[0])
            if not isinstance(value, int | float) and not hasattr(value, "as_tuple"):
                return None
            factor = abs(float(value))  # type: ignore[arg-type]
            if not math.isfinite(factor) or factor == 0:
                return None
        sides = clauses.difference(span)
        if sides is None:
            return None
        ordered = self._sides([sides[0]], [sides[1]])
        return None if ordered is None else (ordered[0], factor)

    def _sides(self, one: Sequence[Span], other: Sequence[Span]) -> list[tuple[Term, Term]] | None:
        """Terms in the order of the inputs; None where they are not about one input each."""
        clauses = self._clauses
        aliases = [frozenset[str]().union(*(clauses.aliases(span) for span in side)) for side in (one, other)]
        if [len(names) for names in aliases] != [1, 1] or aliases[0] == aliases[1]:
            return None
        if aliases[0] != {self._aliases[0]}:
            one, other = other, one
        terms = [[Term(self._aliases[at], clauses.sql(clauses.bare(span))) for span in side]
                 for at, side in enumerate((one, other))]  # fmt: skip
        return list(zip(*terms, strict=True))

    def _haversine(self, span: Span) -> Distance:
        arguments = self._clauses.call(span, "haversine") or []
        text = bare(self._clauses.sql(span))
        terms = self._sides(arguments[:2], arguments[2:]) if len(arguments) == 4 else None
        if terms is None or any(len(self._clauses.aliases(one)) != 1 for one in arguments):
            raise PredicateError(
                f"{text} is no distance on the Earth",
                accepted="HAVERSINE(r.lat, r.lon, s.lat, s.lon): the place of one input, then that of the other",
            )
        return Distance("haversine", tuple(terms), (1.0, 1.0), text)


def with_keys(nearness: Nearness, more: Predicate) -> Nearness:
    """The same with further equalities."""
    own = nearness.predicate
    return replace(nearness, predicate=Predicate.of([*own.parts, *more.parts]))

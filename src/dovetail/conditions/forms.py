"""A join condition taken apart: equalities, inequalities, bands, filters and the rest, as frozen values.

Workers load these with a spec, so nothing here needs the SQL parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dovetail.conditions.literals import Value, literal_sql
from dovetail.conditions.names import readable


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over one input: Spark SQL in which every column is spelled ```alias`.`column```."""

    alias: str
    sql: str

    def __str__(self) -> str:
        return readable(self.sql)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a band, in the type that its literal has in SQL; `strict` leaves the end itself out."""

    value: Value
    strict: bool


@dataclass(frozen=True, slots=True)
class Equality:
    """``left = right``, or ``left <=> right``, for which two NULLs are equal."""

    left: Term
    right: Term
    null_safe: bool = False

    @property
    def sql(self) -> str:
        """The conjunct as Spark SQL."""
        return f"{self.left.sql} {'<=>' if self.null_safe else '='} {self.right.sql}"


@dataclass(frozen=True, slots=True)
class Inequality:
    """``left < right`` if strict, else ``left <= right``."""

    left: Term
    right: Term
    strict: bool

    @property
    def sql(self) -> str:
        """The conjunct as Spark SQL."""
        return f"{self.left.sql} {'<' if self.strict else '<='} {self.right.sql}"


@dataclass(frozen=True, slots=True)
class Band:
    """``low <= left - right <= high``, where the difference is the one that SQL computes.

    NaN is larger than every number in Spark, so a band without `high` holds for it and any other does not.
    """

    left: Term
    right: Term
    low: Bound | None
    high: Bound | None

    @property
    def sql(self) -> str:
        """The conjunct as Spark SQL."""
        difference = f"{_operand(self.left.sql)} - {_operand(self.right.sql)}"
        ends = []
        if self.low is not None:
            ends.append(f"{difference} {'>' if self.low.strict else '>='} {literal_sql(self.low.value)}")
        if self.high is not None:
            ends.append(f"{difference} {'<' if self.high.strict else '<='} {literal_sql(self.high.value)}")
        return " AND ".join(ends)


@dataclass(frozen=True, slots=True)
class Addend:
    """A term of a sum, added or subtracted."""

    term: Term
    negative: bool = False

    def negated(self) -> Addend:
        """The same term with the other sign."""
        return Addend(self.term, not self.negative)


@dataclass(frozen=True, slots=True)
class Separable:
    """``small <= large``, two sums over two inputs together: a range once the terms are sorted by input.

    It narrows the search for pairs and decides nothing: sums of floats depend on their order, so Spark evaluates the
    conjunct it comes from on the pairs that are found.
    """

    small: tuple[Addend, ...]
    large: tuple[Addend, ...]
    strict: bool = False

    @property
    def aliases(self) -> frozenset[str]:
        """The two inputs."""
        return frozenset(addend.term.alias for addend in (*self.small, *self.large))


@dataclass(frozen=True, slots=True)
class Filter:
    """A conjunct over one input: it depends only on that input's rows."""

    alias: str
    sql: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Any other conjunct, over two or more inputs or over none.

    The text may hold an OR outside parentheses: put it in parentheses to combine it with more.
    """

    sql: str
    aliases: frozenset[str]
    implied: tuple[Separable | Band, ...] = ()
    """Ranges that hold wherever the conjunct does."""
    either: tuple[str, ...] = ()
    """The conditions of which one must hold, where the conjunct is a disjunction."""
    alike: tuple[str, ...] = ()
    """Expressions that have to be of one type for that: those of an IN, which Spark compares in one type."""


Part: TypeAlias = Equality | Inequality | Band | Filter | Rest


@dataclass(frozen=True, slots=True)
class Predicate:
    """A join condition, taken apart; a pair of rows matches where every part holds."""

    text: str
    equalities: tuple[Equality, ...] = ()
    inequalities: tuple[Inequality, ...] = ()
    bands: tuple[Band, ...] = ()
    filters: tuple[Filter, ...] = ()
    rests: tuple[Rest, ...] = ()

    @property
    def sql(self) -> str:
        """All parts as one Spark SQL condition."""
        others = [*(part.sql for part in self.filters), *(part.sql for part in self.rests)]
        return " AND ".join([*(part.sql for part in self.links), *(f"({sql})" for sql in others)]) or "TRUE"

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Predicate:
        """The predicate of some parts."""
        made = cls(
            text="",
            equalities=tuple(part for part in parts if isinstance(part, Equality)),
            inequalities=tuple(part for part in parts if isinstance(part, Inequality)),
            bands=tuple(part for part in parts if isinstance(part, Band)),
            filters=tuple(part for part in parts if isinstance(part, Filter)),
            rests=tuple(part for part in parts if isinstance(part, Rest)),
        )
        return replace(made, text=made.sql)

    @property
    def links(self) -> list[Equality | Inequality | Band]:
        """The parts that compare one input with another."""
        return [*self.equalities, *self.inequalities, *self.bands]

    @property
    def parts(self) -> list[Part]:
        """All parts."""
        return [*self.links, *self.filters, *self.rests]

    def between(self, a: str, b: str) -> Predicate:
        """The parts over exactly the inputs `a` and `b`.

        Examples
        --------
        >>> from dovetail.conditions.predicates import parse
        >>> p = parse("A.x < B.x AND B.k = C.k", {"A": ["x"], "B": ["x", "k"], "C": ["k"]})
        >>> print(p.between("C", "B"))
        equality    B.k = C.k
        """
        return Predicate.of([part for part in self.parts if aliases_of(part) == {a, b}])

    def edges(self) -> set[frozenset[str]]:
        """The pairs of inputs that an equality, an inequality, a band or an implied range connects."""
        return {aliases_of(part) for part in self.links} | {rest.aliases for rest in self.rests if rest.implied}

    def __str__(self) -> str:
        rows = [("equality", part.sql) for part in self.equalities]
        rows += [("inequality", part.sql) for part in self.inequalities]
        rows += [("band", part.sql) for part in self.bands]
        rows += [(f"filter {part.alias}", part.sql) for part in self.filters]
        rows += [("rest", part.sql) for part in self.rests]
        width = max((len(kind) for kind, _ in rows), default=0)
        return "\n".join(f"{kind:<{max(width, 10)}}  {readable(sql)}" for kind, sql in rows) or "(no condition)"


def aliases_of(part: Part) -> frozenset[str]:
    """The inputs that a part is about."""
    if isinstance(part, Filter):
        return frozenset((part.alias,))
    return part.aliases if isinstance(part, Rest) else frozenset((part.left.alias, part.right.alias))


def _operand(sql: str) -> str:
    return sql if re.fullmatch(r"`[^`]+`\.`[^`]+`", sql) else f"({sql})"

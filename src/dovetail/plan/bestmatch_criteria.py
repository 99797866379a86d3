"""What criteria become, given the types of the columns that they name: axes, sets, or values that Spark computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal, TypeAlias

from dovetail.conditions.comparison import Key, KeyType, Kind
from dovetail.conditions.criteria import Closest, Criterion, Extreme, Overlap, Prefer, Within, Youngest
from dovetail.conditions.distances import float_distance, whole_distance
from dovetail.conditions.durations import duration
from dovetail.conditions.sums import Sum
from dovetail.errors import ArgumentError, UnsupportedTypeError
from dovetail.families.bestmatch.spec import Axis, Rule

_ZERO = "CAST(0 AS BIGINT)"


@dataclass(frozen=True)
class ColumnPair:
    """A column of each input, and the type in which the two are compared."""

    aliases: tuple[str, str]
    names: tuple[str, str]
    sql: tuple[str, str]
    types: tuple[str, str]
    """As Spark calls them."""
    common: KeyType | None
    """The type in which the values are compared, or the elements of arrays; None if the columns are no arrays."""
    watermarked: bool = False
    """Whether both columns carry a watermark."""

    def keys(self, ddl: str) -> tuple[Key, Key]:
        """The columns as keys of that type."""
        left, right = (Key(sql, ddl, alias) for alias, sql in zip(self.aliases, self.sql, strict=True))
        return left, right


@dataclass(frozen=True)
class ValueType:
    """The type of an expression: Spark's name for it, and what sort of values it has."""

    name: str
    sort: Literal["whole", "double", "float", "decimal", "time", "other comparable", "other"]
    precision: int = 0
    """Digits of a decimal."""

    @property
    def numeric(self) -> bool:
        """Whether values can be added."""
        return self.sort in ("whole", "double", "float", "decimal")


@dataclass(frozen=True)
class Expression:
    """An expression over both inputs: its type, and those of its terms where it is a sum of one of each input."""

    aliases: tuple[str, str]
    sql: str
    type: ValueType
    terms: Sum | None = None
    term_types: tuple[ValueType | None, ValueType | None] = (None, None)
    common: KeyType | None = None
    """The type in which two terms are compared, if both are whole numbers or decimals."""


CriterionFacts: TypeAlias = ColumnPair | Expression | None
"""What Spark says about the columns of a criterion; a user's own function names none."""


@dataclass(frozen=True)
class Typed:
    """A criterion, and what it becomes.

    `keys` are the columns of both inputs from which a kernel computes it; `value` is an expression that only Spark can
    evaluate, on candidate pairs.
    """

    criterion: Criterion
    axis: Axis | None = None
    keys: tuple[Key, Key] | None = None
    elements: Kind | None = None
    value: str | None = None
    watermarked: bool = False
    """Whether both columns carry a watermark."""
    types: tuple[str, str] | None = None
    """The types of the two columns of a distance, as Spark calls them."""


def typed(criterion: Criterion, facts: CriterionFacts) -> Typed:
    """Decide how a criterion is evaluated, or refuse it because of its types."""
    if isinstance(facts, Expression):
        assert isinstance(criterion, Extreme)
        return _extreme(criterion, facts)
    if facts is None:
        assert isinstance(criterion, Prefer)
        return Typed(criterion)
    if isinstance(criterion, Overlap):
        return _overlap(criterion, facts)
    assert facts.common is not None
    if isinstance(criterion, Youngest):
        return _youngest(criterion, facts, facts.common)
    assert isinstance(criterion, Closest)
    return _closest(criterion, facts, facts.common)


def _youngest(criterion: Youngest, pair: ColumnPair, common: KeyType) -> Typed:
    if common.kind != "int" or common.ddl == "BOOLEAN":
        raise UnsupportedTypeError(
            f"{criterion} has the type {common.ddl}", accepted="dates, timestamps or whole numbers"
        )
    return Typed(criterion, Axis("latest", largest=True), pair.keys(common.ddl))


def _closest(criterion: Closest, pair: ColumnPair, common: KeyType) -> Typed:
    if common.kind == "rank" or common.ddl == "BOOLEAN":
        raise UnsupportedTypeError(
            f"{criterion} has the type {common.ddl}, which has no distances",
            accepted="numbers (decimals of up to 18 digits), dates or timestamps",
            hint="cast the column in its input, such as CAST(x AS DOUBLE)",
        )
    floats = common.kind != "int"
    axis = Axis("near_float" if floats else "near_int", within=_within(criterion, common))
    keys = pair.keys("DOUBLE" if floats else common.ddl)
    return Typed(criterion, axis, keys, watermarked=pair.watermarked, types=pair.types)


def _within(criterion: Closest, kind: KeyType) -> int | float | None:
    """A maximum distance in the unit of the codes, or as a float."""
    return None if criterion.within is None else distance(criterion, criterion.within, kind, "within")


def distance(criterion: Closest, given: Within, kind: KeyType, argument: str) -> int | float:
    """A distance in the unit of the codes of a criterion, or as a float."""
    if kind.micros is not None:
        if isinstance(given, int | float | Decimal):
            raise ArgumentError(
                f"{criterion}: the column holds times, and {argument}={given!r} is a number",
                accepted=f"a length of time, such as {argument}='10 minutes'",
            )
        return duration(given, argument=argument, zero=True) // kind.micros
    if not isinstance(given, int | float | Decimal):
        raise ArgumentError(
            f"{criterion}: the column holds numbers, and {argument}={given!r} is a length of time",
            accepted=f"a number, such as {argument}=100",
        )
    if kind.kind != "int":
        return float_distance(given)
    return whole_distance(given, kind.unit)


def _overlap(criterion: Overlap, pair: ColumnPair) -> Typed:
    for alias, name, kind in zip(pair.aliases, pair.names, pair.types, strict=True):
        if not kind.startswith("array<"):
            raise UnsupportedTypeError(
                f"{criterion}: {alias}.{name} has the type {kind}", accepted="a column of type array"
            )
    assert pair.common is not None
    return Typed(criterion, keys=pair.keys(f"ARRAY<{pair.common.ddl}>"), elements=pair.common.kind)


def _extreme(criterion: Extreme, expression: Expression) -> Typed:
    """A sum of two one-sided terms where it is one; else a value that Spark evaluates on candidate pairs."""
    if expression.terms is not None:
        summed = _sum(criterion, expression, expression.terms)
        if summed is not None:
            return summed
    ddl, kind = _compared_as(expression.type, criterion)
    axis = Axis("given", largest=criterion.largest, kind=kind)
    return Typed(criterion, axis, value=f"CAST(({expression.sql}) AS {ddl})")


def _sum(criterion: Extreme, expression: Expression, terms: Sum) -> Typed | None:
    rule: Rule
    ranked = False
    present = [kind for kind in expression.term_types if kind is not None]
    if all(kind.sort == "whole" for kind in present):
        rule, ddls = "sum_int", ["BIGINT"] * 2
    elif len(present) == 1:
        ddl, code = _compared_as(present[0], criterion)
        rule = "sum_float" if code == "float64" else "sum_int"
        empty = "DOUBLE" if code == "float64" else "BIGINT"
        ddls = [ddl if kind is not None else empty for kind in expression.term_types]
        ranked = code == "rank"
    elif any(kind.sort == "double" for kind in present) and all(kind.numeric for kind in present):
        rule, ddls = "sum_float", ["DOUBLE"] * 2
    elif expression.common is not None and expression.common.kind == "int":
        rule, ddls = "sum_int", [expression.common.ddl] * 2
    else:
        return None
    left, right = (
        Key(_ZERO if term is None else term, ddl, alias)
        for alias, term, ddl in zip(expression.aliases, (terms.left, terms.right), ddls, strict=True)
    )
    axis = Axis(rule, largest=criterion.largest)
    return Typed(criterion, replace(axis, kind="rank") if ranked else axis, (left, right))


def _compared_as(kind: ValueType, criterion: Extreme) -> tuple[str, Kind]:
    """The type in which values are compared, and the kind of their codes."""
    if kind.sort in ("double", "float"):
        return "DOUBLE", "float64"
    if kind.sort == "decimal" and kind.precision > 18:
        # Beyond 64 bits: by their order among the values that are compared.
        return kind.name.upper(), "rank"
    if kind.sort == "other":
        raise UnsupportedTypeError(
            f"{criterion} has the type {kind.name}", accepted="numbers, dates, timestamps, booleans or intervals"
        )
    return kind.name.upper(), "int"

"""Conditions that an OR connects: which of them to search one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.conditions.components import components
from dovetail.conditions.forms import Predicate, Rest
from dovetail.conditions.predicates import parse


def either_of(predicate: Predicate, columns: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The conditions of the OR to search one after the other; none where the inputs are connected without it.

    Examples
    --------
    >>> columns = {"A": ["x", "k"], "B": ["lo", "hi", "k"]}
    >>> either_of(parse("A.x NOT BETWEEN B.lo AND B.hi", columns), columns)
    ('`A`.`x` < `B`.`lo`', '`A`.`x` > `B`.`hi`')
    >>> either_of(parse("A.k = B.k AND A.x NOT BETWEEN B.lo AND B.hi", columns), columns)
    ()
    >>> either_of(parse("A.x < B.lo OR A.k LIKE B.k", columns), columns)
    ()
    >>> either_of(parse("A.x IN (0, B.lo)", columns), columns)
    ('(`A`.`x`) = (0)', '(`A`.`x`) = (`B`.`lo`)')
    """
    if _connected(predicate, columns):
        return ()
    for rest in predicate.rests:
        if not rest.either:
            continue
        found = [_searchable(search, columns) for search in searches(predicate, rest.either)]
        # Every pair of the rows that a condition on one input leaves is a match: to form them all costs no more than
        # that, beside a search that finds its pairs.
        products = [_on_one_input(condition, columns) for condition in rest.either]
        if any(found) and all(one or product for one, product in zip(found, products, strict=True)):
            return rest.either
    return ()


def _on_one_input(text: str, columns: Mapping[str, Sequence[str]]) -> bool:
    predicate = parse(text, columns)
    return len(predicate.filters) == len(predicate.parts) and bool(predicate.filters)


def searches(predicate: Predicate, either: tuple[str, ...]) -> list[str]:
    """The whole condition of each search, without the pairs that those before it find."""
    others = [f"({part.sql})" for part in predicate.parts if not (isinstance(part, Rest) and part.either == either)]
    return [
        " AND ".join([f"({condition})", *others, *(f"(({before}) IS NOT TRUE)" for before in either[:number])])
        for number, condition in enumerate(either)
    ]


def _searchable(text: str, columns: Mapping[str, Sequence[str]]) -> bool:
    predicate = parse(text, columns)
    return _connected(predicate, columns) or bool(either_of(predicate, columns))


def _connected(predicate: Predicate, columns: Mapping[str, Sequence[str]]) -> bool:
    return len(components([*([alias] for alias in columns), *predicate.edges()])) == 1

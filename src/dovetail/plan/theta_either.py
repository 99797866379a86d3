"""Theta joins on an OR: a search for each of its conditions, whose pairs come out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.conditions.components import components
from dovetail.conditions.forms import Part, Predicate
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare
from dovetail.conditions.predicates import parse
from dovetail.plan.theta_plan import ThetaPlan


@dataclass(frozen=True)
class EitherPlan:
    """What a join on an OR will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    how: How
    conditions: tuple[str, ...]
    searches: tuple[ThetaPlan | EitherPlan, ...]
    """One for each condition of the OR."""

    @property
    def streams(self) -> frozenset[str]:
        """The inputs that are streams."""
        return self.searches[0].streams

    def text(self) -> str:
        """The plan as lines of text: each search after the other."""
        lines = [f"theta join on either of {len(self.conditions)} conditions, how={self.how!r}"]
        lines.append(f"  inputs      {', '.join(self.inputs)}")
        for number, (condition, search) in enumerate(zip(self.conditions, self.searches, strict=True), start=1):
            found = "" if number == 1 else ", without the pairs of those before"
            lines.append(f"  search {number}    {bare(condition)}{found}")
            lines += [f"    {line}" for line in search.text().splitlines()]
        if self.how in ("left", "right", "full"):
            lines.append("  then        rows that no search has a match for")
        return "\n".join(lines)


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
    """
    if _connected(predicate, columns):
        return ()
    for rest in predicate.rests:
        if rest.either and all(_searchable(search, columns) for search in searches(predicate, rest.either)):
            return rest.either
    return ()


def searches(predicate: Predicate, either: tuple[str, ...]) -> list[str]:
    """The whole condition of each search, without the pairs that those before it find."""
    links: list[Part] = [*predicate.equalities, *predicate.inequalities, *predicate.bands]
    others = [part.sql for part in links]
    others += [f"({part.sql})" for part in predicate.filters]
    others += [f"({part.sql})" for part in predicate.rests if part.either != either]
    return [
        " AND ".join([f"({condition})", *others, *(f"(({before}) IS NOT TRUE)" for before in either[:number])])
        for number, condition in enumerate(either)
    ]


def _searchable(text: str, columns: Mapping[str, Sequence[str]]) -> bool:
    predicate = parse(text, columns)
    return _connected(predicate, columns) or bool(either_of(predicate, columns))


def _connected(predicate: Predicate, columns: Mapping[str, Sequence[str]]) -> bool:
    return len(components([*([alias] for alias in columns), *predicate.edges()])) == 1

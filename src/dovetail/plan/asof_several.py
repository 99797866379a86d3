"""As-of joins with several inputs to look up in: one after the other, each as an as-of join of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.conditions.forms import Predicate, aliases_of
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, UnboundedJoinError, listing, unknown_alias
from dovetail.families.asof.spec import Within, names_of
from dovetail.plan.asof import AsofPlan
from dovetail.plan.asof_columns import Columns
from dovetail.plan.broadcast import Broadcast, check_broadcast

_HOWS: dict[How, How] = {"inner": "inner", "left": "left", "semi": "semi", "anti": "left"}
"""How each input is joined: a row that one of them has no match for is told by its NULL."""


@dataclass(frozen=True)
class Lookup:
    """One input to look up in: the columns that are compared, and what else a row must satisfy."""

    alias: str
    how: How
    columns: Columns
    within: Within | None
    on: str | None


@dataclass(frozen=True)
class SeveralPlan:
    """The plan of an as-of join with several inputs to look up in: those of its joins, in order."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    how: How
    plans: tuple[AsofPlan, ...]

    def text(self) -> str:
        """The plan as lines of text."""
        first, *others = self.inputs
        lines = [f"as-of join of {first} with each of {', '.join(others)}, how={self.how!r}"]
        for plan in self.plans:
            lines += [f"  {line}" for line in plan.text().splitlines()]
        return "\n".join(lines)


def lookups(
    inputs: Sequence[str],
    streams: Sequence[str],
    how: How,
    *,
    time: object,
    by: object,
    ties: object,
    within: object,
    on: Predicate | None,
    broadcast: Broadcast,
) -> tuple[Lookup, ...]:
    """The joins that a call with three and more inputs is made of, a stream's first; or why it is none."""
    first, *others = inputs
    if how not in _HOWS:
        raise ArgumentError(
            f"how={how!r} of {len(inputs)} inputs: a row of {others[0]!r} that is nobody's match stands beside no row "
            "of the others",
            accepted=f"{listing(_HOWS)}, or two inputs",
        )
    check_broadcast(broadcast)
    if broadcast and broadcast not in others:
        raise unknown_alias(str(broadcast), others, where=f"broadcast={broadcast!r}")
    late = [alias for alias in others if alias in streams]
    if len(late) > 1:
        raise UnboundedJoinError(
            f"the inputs {listing(late)} are streams", accepted=f"one stream beside {first!r}, and static inputs",
            hint="what an as-of join gives has no watermark of its own; write it to a table, and join that",
        )  # fmt: skip
    for name, value in (("time", time), ("by", by), ("ties", ties), ("within", within)):
        for alias in value if isinstance(value, Mapping) else ():
            if alias not in inputs:
                raise unknown_alias(str(alias), inputs, where=f"{name}=")
    conditions = {} if on is None else _conditions(first, others, on)
    found = []
    for alias in [*late, *(alias for alias in others if alias not in late)]:
        pair = (first, alias)
        times = names_of(_of(time, pair), pair, argument="time")
        if len(times[0]) != 1:
            raise ArgumentError(f"time={time!r} names {len(times[0])} columns", accepted="one column of each input")
        keys = _keys(by, pair)
        columns = Columns(
            time=(times[0][0], times[1][0]),
            by=((), ()) if keys is None else names_of(keys, pair, argument="by"),
            ties=_ties(ties, alias),
        )
        bound: Any = within.get(alias) if isinstance(within, Mapping) else within
        found.append(Lookup(alias, _HOWS[how], columns, bound, conditions.get(alias)))
    return tuple(found)


def _of(value: object, pair: tuple[str, str]) -> object:
    """What an argument says of two of the inputs."""
    return {alias: value[alias] for alias in pair if alias in value} if isinstance(value, Mapping) else value


def _keys(by: object, pair: tuple[str, str]) -> object:
    """The columns that must be equal; without an entry for the first input they are called alike."""
    if not isinstance(by, Mapping):
        return by
    first, alias = pair
    if alias not in by:
        return None
    return {first: by.get(first, by[alias]), alias: by[alias]}


def _ties(ties: object, alias: str) -> tuple[str, ...]:
    told = ties.get(alias) if isinstance(ties, Mapping) else ties
    return () if told is None else names_of(told, (alias, alias), argument="ties")[1]


def _conditions(first: str, others: Sequence[str], on: Predicate) -> dict[str, str]:
    """For each input to look up in the conditions that its rows must satisfy."""
    texts: dict[str, list[str]] = {alias: [] for alias in others}
    for part in on.parts:
        named = [alias for alias in others if alias in aliases_of(part)]
        if len(named) > 1:
            raise ArgumentError(
                f"the condition {bare(part.sql)} ties {named[0]!r} to {named[1]!r}",
                accepted=f"conditions of {first!r} with one other input each",
                hint="each input is looked up in by itself; filter the result by what ties two of them",
            )
        for alias in named or others:
            texts[alias].append(f"({part.sql})")
    return {alias: " AND ".join(some) for alias, some in texts.items() if some}

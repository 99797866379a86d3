"""Aggregate joins that have to form the pairs: why, and how they say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.conditions.comparison import build_step
from dovetail.conditions.forms import Predicate
from dovetail.conditions.names import bare, quoted
from dovetail.conditions.tokens import read
from dovetail.errors import ArgumentError, PredicateError
from dovetail.plan.aggregate_calls import Call
from dovetail.plan.theta import Facts

MOST_RANGES = 2
"""Ranges of the matched input that kernels answer from without forming pairs."""


@dataclass(frozen=True)
class PairsPlan:
    """An aggregate join by its pairs: a theta join of the distinct keys, and Spark's own grouping."""

    inputs: tuple[str, ...]
    by: str
    how: str
    calls: tuple[Call, ...]
    reasons: tuple[str, ...]
    pairs: str
    """The plan of the theta join, in words."""
    streams: frozenset[str] = frozenset()

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        lines = [f"aggregate join, batch, how={self.how!r}: for each row of {self.by}, by forming the pairs"]
        lines.extend(f"  because     {bare(reason)}" for reason in self.reasons)
        lines.append(f"  compute     {', '.join(f'{call.text} AS {call.name}' for call in self.calls)}")
        lines.append(f"  pairs       of the distinct keys of {self.by}, grouped by Spark, and joined with its rows")
        lines.extend(f"    {line}" for line in self.pairs.splitlines())
        return "\n".join(lines)


def reasons_for_pairs(by: str, other: str, predicate: Predicate, facts: Facts, calls: Sequence[Call]) -> list[str]:
    """Why a join has to form the pairs; nothing where it need not."""
    reasons = [call.why for call in calls if call.function is None]
    reasons += [f"only Spark can evaluate {rest.sql}" for rest in facts.rests]
    step = build_step(list(facts.equalities), list(facts.comparisons), left=frozenset((other,)), how="left")
    if len(step.axes) > 1:
        reasons += [
            f"{call.text} is asked of the matches in {len(step.axes)} ranges" for call in calls if call.gathered
        ]
    if len(step.axes) > MOST_RANGES:
        reasons.append(f"the condition bounds the matches in {other} by {len(step.axes)} ranges")
    if reasons and facts.streams == {by}:
        raise ArgumentError(
            f"the stream {by!r} in a join that has to form the pairs, because {bare(reasons[0])}",
            accepted="aggregates and conditions that need no pairs, or static inputs",
            hint="dt.theta_join gives the pairs of a stream and a table, for foreachBatch to aggregate",
        )
    return reasons


def check_compared(predicate: Predicate, facts: Facts) -> None:
    """Refuse a condition that compares the inputs nowhere."""
    both = any(len(rest.aliases) > 1 for rest in facts.rests)
    if not facts.equalities and not facts.comparisons and not both:
        raise PredicateError(
            f"on={predicate.text!r} compares the two inputs nowhere",
            accepted="a condition such as q.k = t.k AND q.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts",
            hint="an aggregate over all rows is frame.agg(...), joined with crossJoin",
        )


def used_columns(on: str, calls: Sequence[Call], columns: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """For each input the columns that the answers depend on: their names, and how Spark SQL spells them."""
    uses = {item.sql for item in read(on, columns) if item.alias}.union(
        *({sql for _, sql in call.uses} for call in calls)
    )
    spelled = {alias: {name: f"{quoted(alias)}.{quoted(name)}" for name in names} for alias, names in columns.items()}
    return {alias: {name: sql for name, sql in known.items() if sql in uses} for alias, known in spelled.items()}

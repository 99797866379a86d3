"""``ASOF JOIN`` as a call: equalities, one inequality of the times, perhaps a tolerance, and further conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.conditions.forms import Band, Inequality, Part, Term, aliases_of
from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.literals import Value
from dovetail.conditions.names import bare, quoted
from dovetail.errors import in_statement
from dovetail.statements.calls import Conditions, Facts, JoinCall, plain_column
from dovetail.statements.steps import Keys, Step, columns_of, commuting, reach_of, sides_of
from dovetail.statements.syntax.grammar import Slice

_ASOF = "ON with equalities and one inequality of the times, such as t.item = q.item AND t.ts >= q.ts"


def asof_call(step: Step, text: str, facts: Facts) -> JoinCall:
    """The call of an ``ASOF JOIN``."""
    join, kind = step.join, JoinKind.of(step.join.how)
    if not join.on and not join.using:
        raise in_statement(text, join.slice.start, "ASOF JOIN without ON", accepted=_ASOF)
    conditions = Conditions(text, columns_of(step, facts))
    keys = Keys(step.inputs, facts)
    using = [_both(step, text, name, facts) for name in join.using]
    merged = [bare(left.sql.rpartition(".")[2]) for left, _ in using] if join.how == "full" else []
    if join.on:
        compared = _compared(step, text, facts, conditions, keys)
    else:
        # The last column of USING is that of the times, as in DuckDB.
        *using, times = using
        compared = _Compared(times, {"direction": "backward"})
    by = [*using, *compared.equal]
    first, second = (one.alias for one in keys.inputs)
    options: dict[str, Any] = dict(compared.options)
    left, right = compared.times
    options["time"] = {first: keys.name(left.alias, left.sql), second: keys.name(right.alias, right.sql)}
    if by:
        columns = [(keys.name(a.alias, a.sql), keys.name(b.alias, b.sql)) for a, b in by]
        options["by"] = {first: [one for one, _ in columns], second: [other for _, other in columns]}
    if compared.further:
        options["on"] = " AND ".join(f"({conditions.within(sql, keys.inputs)})" for sql in compared.further)
    named = [name.casefold() for name in step.block.hints.get("BROADCAST", ())]
    if second.casefold() in named and not kind.preserved[1]:
        options["broadcast"] = second
    # Where unmatched rows of the right side come out, a condition on the left one drops them, too.
    moved = frozenset[Slice]() if kind.preserved[1] else commuting(step, conditions, keys, 0)
    options["how"] = join.how
    return JoinCall(
        "asof", tuple(keys.inputs), options, step.slice, "it is an ASOF JOIN", moved, coalesced=tuple(merged)
    )


@dataclass(frozen=True)
class _Compared:
    """What the conditions of a join compare, left terms first."""

    times: tuple[Term, Term]
    options: Mapping[str, Any]
    """The direction, and what else the comparison of the times says."""
    equal: Sequence[tuple[Term, Term]] = ()
    further: Sequence[str] = ()
    """Conditions besides: the match is the best of the rows that satisfy them."""


def _both(step: Step, text: str, name: str, facts: Facts) -> tuple[Term, Term]:
    """The columns of the two sides that USING means."""
    columns = []
    for relations in (step.left, (step.join.relation,)):
        found = [
            Term(relation.alias, f"{quoted(relation.alias)}.{quoted(column)}")
            for relation in relations
            for column in facts.columns[relation.alias]
            if column.casefold() == name.casefold()
        ]
        if len(found) != 1:
            raise in_statement(
                text, step.join.slice.start, f"USING ({name}), which {len(found)} columns of one side are called",
                accepted="a column that each side has once",
            )  # fmt: skip
        columns.append(found[0])
    return columns[0], columns[1]


def _compared(step: Step, text: str, facts: Facts, conditions: Conditions, keys: Keys) -> _Compared:
    """The conditions of ON taken apart: keys, times, a tolerance, and the others.

    A condition on one side restricts its rows before the join, unless these come out without a match all the same.
    """
    predicate = conditions.parsed(step.join.on)
    links: list[Part] = [*predicate.links]
    crossing = {part: len({keys.side(alias) for alias in aliases_of(part)}) == 2 for part in links}
    # Keys by which NULL equals NULL are further conditions of the call.
    plain = [part for part in predicate.equalities if crossing[part] and not part.null_safe]
    equal = [sides_of(step, text, part.left, part.right) for part in plain]
    inequalities = [part for part in predicate.inequalities if crossing[part]]
    bands = [part for part in predicate.bands if crossing[part]]
    if step.join.matched:
        first = conditions.parsed(step.join.on[:1])
        ordering = [part for part in first.inequalities if crossing.get(part)]
    else:
        ordering = _of_times(inequalities, facts)
    used: set[Part] = {*plain}
    if ordering:
        times, options = _ordered(step, text, ordering[0], used)
        for band in bands:
            far = _tolerance(band, times, options)
            if sides_of(step, text, band.left, band.right) == times and far is not None and "within" not in options:
                options["within"] = far
                used.add(band)
    else:
        near = [band for band in bands if reach_of(band) is not None]
        if len(near) != 1:
            raise in_statement(
                text, step.join.slice.start, "ASOF JOIN without an inequality of the times", accepted=_ASOF,
                hint="ABS(t.ts - q.ts) <= INTERVAL 5 SECONDS without an inequality takes the nearest row",
            )  # fmt: skip
        times = sides_of(step, text, near[0].left, near[0].right)
        options = {"direction": "nearest", "within": reach_of(near[0])}
        used.add(near[0])
    further = []
    preserved = JoinKind.of(step.join.how).preserved
    for part in predicate.parts:
        if part in used:
            continue
        sides = {keys.side(alias) for alias in aliases_of(part)}
        if len(sides) == 1 and not preserved[min(sides)]:
            keys.filtered(min(sides), part.sql)
        else:
            further.append(part.sql)
    return _Compared(times, options, equal, further)


def _of_times(inequalities: Sequence[Inequality], facts: Facts) -> list[Inequality]:
    """The inequality of the times: of several the only one between timestamps, else the first."""

    def is_time(term: Term) -> bool:
        return plain_column(term.sql, term.alias, facts.timestamps.get(term.alias, ())) is not None

    stamped = [part for part in inequalities if is_time(part.left) and is_time(part.right)]
    return list(stamped if len(stamped) == 1 else inequalities[:1])


def _ordered(
    step: Step, text: str, inequality: Inequality, used: set[Part]
) -> tuple[tuple[Term, Term], dict[str, Any]]:
    """The times that an inequality compares, left one first, and the direction that it asks for."""
    used.add(inequality)
    left, right = sides_of(step, text, inequality.left, inequality.right)
    direction = "backward" if inequality.left is right else "forward"
    return (left, right), {"direction": direction, "allow_exact_matches": not inequality.strict}


def _tolerance(band: Band, times: tuple[Term, Term], options: Mapping[str, Any]) -> Value | None:
    """The largest distance that a band is; None where it says something else."""
    return reach_of(band) or _one_sided(band, band.left == times[0], options["direction"] == "backward")


def _one_sided(band: Band, left_first: bool, backward: bool) -> Value | None:
    """The tolerance in ``later - earlier <= e``, however it is written."""
    end, other = (band.high, band.low) if left_first == backward else (band.low, band.high)
    if end is None or end.strict or other is not None:
        return None
    return end.value if left_first == backward else -end.value

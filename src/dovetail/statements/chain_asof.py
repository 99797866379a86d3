"""``ASOF JOIN`` as a call: equalities, one inequality of the times, perhaps a tolerance."""

from __future__ import annotations

from typing import Any

from dovetail.conditions.forms import Band, Filter, Predicate, Rest
from dovetail.conditions.literals import Value
from dovetail.conditions.names import bare, quoted
from dovetail.errors import in_statement
from dovetail.statements.calls import Conditions, Facts, JoinCall, aliases_of
from dovetail.statements.steps import Keys, Step, columns_of, commuting, reach_of, sides_of

_ASOF = "ON with equalities and one inequality of the times, such as t.item = q.item AND t.ts >= q.ts"


def asof_call(step: Step, text: str, facts: Facts) -> JoinCall:
    """The call of an ``ASOF JOIN``."""
    if step.join.how not in ("inner", "left"):
        raise in_statement(
            text, step.join.slice.start, f"ASOF {step.join.how.upper()} JOIN", accepted="ASOF [LEFT] JOIN"
        )
    if not step.join.on or (step.join.using and not step.join.matched):
        raise in_statement(text, step.join.slice.start, "ASOF JOIN without ON", accepted=_ASOF)
    conditions = Conditions(text, columns_of(step, facts))
    keys = Keys(step.inputs, facts)
    predicate = conditions.parsed(step.join.on)
    _filters(step, text, predicate, keys)
    by = [_both(step, text, name, keys, facts) for name in step.join.using]
    for part in predicate.equalities:
        left, right = sides_of(step, text, part.left, part.right)
        by.append((keys.name(left.alias, left.sql), keys.name(right.alias, right.sql)))
    options = _direction(step, text, predicate)
    left, right = options.pop("terms")
    first, second = (one.alias for one in keys.inputs)
    options["time"] = {first: keys.name(left.alias, left.sql), second: keys.name(right.alias, right.sql)}
    if by:
        options["by"] = {first: [one for one, _ in by], second: [other for _, other in by]}
    named = [name.casefold() for name in step.block.hints.get("BROADCAST", ())]
    if second.casefold() in named:
        options["broadcast"] = second
    moved = commuting(step, conditions, keys, 0)
    return JoinCall(
        "asof", tuple(keys.inputs), {**options, "how": step.join.how}, step.slice, "it is an ASOF JOIN", moved
    )


def _both(step: Step, text: str, name: str, keys: Keys, facts: Facts) -> tuple[str, str]:
    """The columns of the two sides that USING means."""
    columns = []
    for relations in (step.left, (step.join.relation,)):
        found = [
            (relation.alias, column)
            for relation in relations
            for column in facts.columns[relation.alias]
            if column.casefold() == name.casefold()
        ]
        if len(found) != 1:
            raise in_statement(
                text, step.join.slice.start, f"USING ({name}), which {len(found)} columns of one side are called",
                accepted="a column that each side has once",
            )  # fmt: skip
        columns.append(keys.name(found[0][0], f"{quoted(found[0][0])}.{quoted(found[0][1])}"))
    return columns[0], columns[1]


def _filters(step: Step, text: str, predicate: Predicate, keys: Keys) -> None:
    """Conditions on one side restrict its rows; a left join keeps its left rows all the same."""
    further: list[Filter | Rest] = [*predicate.filters, *predicate.rests]
    for part in further:
        aliases = aliases_of(part)
        sides = {keys.side(alias) for alias in aliases}
        if len(sides) != 1 or (sides == {0} and step.join.how == "left"):
            raise in_statement(
                text, step.join.slice.start, f"ASOF JOIN with the condition {bare(part.sql)}",
                accepted=_ASOF, hint="put further conditions into WHERE",
            )  # fmt: skip
        keys.filtered(next(iter(sides)), part.sql)


def _direction(step: Step, text: str, predicate: Predicate) -> dict[str, Any]:
    """What the inequality and the band of ON say: the direction, the tolerance and the two times."""
    at = step.join.slice.start
    if len(predicate.inequalities) > 1 or len(predicate.bands) > 1:
        raise in_statement(text, at, "ASOF JOIN with more than one inequality", accepted=_ASOF)
    bands = [(sides_of(step, text, band.left, band.right), band) for band in predicate.bands]
    if not predicate.inequalities:
        if bands and reach_of(bands[0][1]) is not None:
            return {"direction": "nearest", "within": reach_of(bands[0][1]), "terms": bands[0][0]}
        raise in_statement(
            text, at, "ASOF JOIN without an inequality of the times", accepted=_ASOF,
            hint="ABS(t.ts - q.ts) <= INTERVAL 5 SECONDS without an inequality takes the nearest row",
        )  # fmt: skip
    inequality = predicate.inequalities[0]
    left, right = sides_of(step, text, inequality.left, inequality.right)
    backward = inequality.left is right
    options: dict[str, Any] = {
        "direction": "backward" if backward else "forward",
        "allow_exact_matches": not inequality.strict,
        "terms": (left, right),
    }
    for terms, band in bands:
        far = reach_of(band) or _one_sided(band, band.left == left, backward)
        if terms != (left, right) or far is None:
            raise in_statement(
                text, at, "ASOF JOIN with a tolerance that cannot be read",
                accepted="the same two times, such as t.ts - q.ts <= INTERVAL 10 SECONDS",
            )  # fmt: skip
        options["within"] = far
    return options


def _one_sided(band: Band, left_first: bool, backward: bool) -> Value | None:
    """The tolerance in ``later - earlier <= e``, however it is written."""
    end, other = (band.high, band.low) if left_first == backward else (band.low, band.high)
    if end is None or end.strict or other is not None:
        return None
    return end.value if left_first == backward else -end.value

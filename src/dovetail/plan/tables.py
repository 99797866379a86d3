"""Tables beside streams: static inputs that are joined, as they are in each micro-batch, with what the streams give.

The condition is divided.  What is about streams alone finds their matches; the rest joins one table after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.conditions.clauses import Clauses, Span
from dovetail.conditions.forms import Band, Equality, Filter, Inequality, Part, Predicate, Rest
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare, quoted
from dovetail.conditions.roles import Role, Roles, implied
from dovetail.conditions.tokens import read
from dovetail.errors import ArgumentError, listing
from dovetail.families.window.graph import Path, Within

_HOWS: dict[str, How] = {"required": "inner", "optional": "left", "present": "semi", "absent": "anti"}


@dataclass(frozen=True)
class TableJoin:
    """One table, how it is joined with what is there, and on what condition."""

    alias: str
    how: How
    condition: str
    by_key: bool
    """Whether an equality connects it: then Spark joins it, by hash or by sorting."""
    present: tuple[str, ...] = ()
    """Inputs that must have a row: a kept row that is in no match comes out alone, whatever the table has for it."""

    def text(self) -> str:
        """The join in words."""
        by = "Spark, by its keys" if self.by_key else "an index of its values in every task"
        return f"{self.how} join with the table {self.alias} where {bare(self.condition)}, by {by}"

    def nested(self, left: str, columns: dict[str, Sequence[str]]) -> str:
        """The condition where all inputs but the table are columns of one input `left`."""
        items = [
            item._replace(sql=f"{quoted(left)}.{item.sql}") if item.alias not in (None, self.alias) else item
            for item in read(self.condition, columns)
        ]
        texts = [Clauses(items).sql(Span(0, len(items)))]
        return " AND ".join([*texts, *(f"{quoted(left)}.{quoted(one)} IS NOT NULL" for one in self.present)])


def divided(
    predicate: Predicate, inputs: Sequence[str], tables: Sequence[str], roles: Roles
) -> tuple[Predicate, tuple[TableJoin, ...]]:
    """The condition on the streams, and the tables in the order in which they are joined, required ones first."""
    role = dict(zip(inputs, roles.roles, strict=True))
    _check(role, tables)
    streams = [alias for alias in inputs if alias not in tables]
    core = [alias for alias in streams if role[alias] in ("required", "keep")]
    order = sorted(tables, key=lambda alias: role[alias] != "required")
    required = [alias for alias in order if role[alias] == "required"]
    of: dict[str, list[Part]] = {alias: [] for alias in order}
    stays: list[Part] = []
    for part in _parts(predicate):
        about = _aliases(part)
        named = [alias for alias in order if alias in about]
        if not named:
            stays.append(part)
            continue
        missing = [alias for alias in about if alias not in (*core, *required, named[-1])]
        if missing:
            raise ArgumentError(
                f"the condition {bare(part.sql)} ties the table {named[-1]!r} to {missing[0]!r}, which may be missing",
                accepted="conditions of a table with required and kept inputs",
            )
        of[named[-1]].append(part)
    kept = any(role[alias] == "keep" for alias in core)
    joins = []
    for alias in order:
        if not any(len(_aliases(part)) > 1 for part in of[alias]):
            raise ArgumentError(
                f"no condition connects the table {alias!r}", accepted=f"a condition with a column of {alias!r}"
            )
        condition = " AND ".join(f"({part.sql})" for part in of[alias])
        by_key = any(isinstance(part, Equality) for part in of[alias])
        joins.append(TableJoin(alias, _HOWS[role[alias]], condition, by_key, tuple(core) if kept else ()))
    return _with(predicate, [*stays, *_through(predicate, inputs, tables, core, stays)]), tuple(joins)


def _check(role: Mapping[str, Role], tables: Sequence[str]) -> None:
    for alias in tables:
        if role[alias] == "keep":
            raise ArgumentError(
                f"how[{alias!r}]='keep' of a table beside streams",
                accepted="'required', 'optional', 'present' or 'absent' for a table",
                hint="a stream never ends, so no row of a table is known to be in no match",
            )
    kept = [alias for alias, given in role.items() if given == "keep"]
    deciding = [alias for alias in tables if role[alias] != "optional"]
    if kept and deciding:
        raise ArgumentError(
            f"the stream {kept[0]!r} is kept, and the table {deciding[0]!r} decides what comes out",
            accepted="optional tables beside a kept stream", hint="join the table afterwards",
        )  # fmt: skip


def _through(
    predicate: Predicate, inputs: Sequence[str], tables: Sequence[str], core: Sequence[str], known: Sequence[Part]
) -> list[Equality]:
    """Equalities between streams that a table connects: they find fewer matches before the table is looked up."""
    told = [e for e in predicate.equalities if {e.left.alias, e.right.alias} <= {*core, *tables}]
    told = [e for e in told if not {e.left.alias, e.right.alias} <= set(tables)]
    as_extras = Roles(tuple("optional" if alias in tables else "required" for alias in inputs))
    closed = implied(Predicate("", equalities=tuple(told)), inputs, as_extras).equalities
    return [e for e in closed if {e.left.alias, e.right.alias} <= set(core) and e not in known]


def _parts(predicate: Predicate) -> list[Part]:
    return [*predicate.equalities, *predicate.inequalities, *predicate.bands, *predicate.filters, *predicate.rests]


def _aliases(part: Part) -> frozenset[str]:
    if isinstance(part, Filter):
        return frozenset((part.alias,))
    return part.aliases if isinstance(part, Rest) else frozenset((part.left.alias, part.right.alias))


def _with(predicate: Predicate, parts: Sequence[Part]) -> Predicate:
    """A predicate of some parts."""
    chosen = Predicate(
        "",
        tuple(part for part in parts if isinstance(part, Equality)),
        tuple(part for part in parts if isinstance(part, Inequality)),
        tuple(part for part in parts if isinstance(part, Band)),
        tuple(part for part in parts if isinstance(part, Filter)),
        tuple(part for part in parts if isinstance(part, Rest)),
    )
    return Predicate(chosen.sql, chosen.equalities, chosen.inequalities, chosen.bands, chosen.filters, chosen.rests)


def tables_among(static: Sequence[str], streams: Sequence[str], timed: Sequence[str] | None) -> tuple[str, ...]:
    """The static inputs beside streams, or why they cannot be tables: those with a time of their own."""
    if not static or not streams:
        return ()
    with_time = [alias for alias in static if timed is None or alias in timed]
    if with_time:
        raise ArgumentError(
            f"the static input(s) {listing(with_time)} beside the stream(s) {listing(streams)}",
            accepted="inputs that are all streams or all static, or tables without a time",
            hint="leave a table out of time={...}: it is then joined as it is in each micro-batch, without a window; "
            "theta_join has bands on the times of a stream and a table",
        )
    if len(streams) == 1:
        raise ArgumentError(
            f"the stream {streams[0]!r} beside tables alone", accepted="two or more streams beside tables",
            hint="theta_join joins one stream with tables, without a window",
        )  # fmt: skip
    return tuple(static)


def check_windows(within: Within, tables: Sequence[str]) -> None:
    """Refuse a window for a table, which has no time."""
    pairs = [pair for pair in within if isinstance(pair, tuple)] if isinstance(within, Mapping) else []
    named = within.stops if isinstance(within, Path) else [alias for pair in pairs for alias in pair]
    for alias in tables:
        if alias in named:
            raise ArgumentError(
                f"within= has a window for the table {alias!r}", accepted="windows between streams",
                hint="a condition on the times, such as T.at <= A.ts, ties a table to a stream",
            )  # fmt: skip


def table_roles(how: How | Mapping[str, Role], inputs: Sequence[str], tables: Sequence[str]) -> Roles:
    """What each input is to a join with tables; a word other than ``inner`` does not say it."""
    if isinstance(how, Mapping):
        return Roles.of(how, inputs)
    if how != "inner":
        raise ArgumentError(
            f"how={how!r} with the table(s) {listing(tables)} beside streams",
            accepted="how='inner', or a mapping that says what each input is to the join",
            hint=f"how={{{tables[0]!r}: 'optional'}} gives NULL where the table has no row",
        )
    required: Role = "required"
    return Roles((required,) * len(inputs))

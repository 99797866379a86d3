"""One input after the other: tables beside streams, and theta joins whose inputs play different parts.

The condition is divided.  What is about the first inputs alone finds their matches; the rest joins one further input
after the other with what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dovetail.conditions.clauses import Clauses, Span
from dovetail.conditions.forms import Band, Equality, Inequality, Part, Predicate, Rest, aliases_of
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare, quoted
from dovetail.conditions.roles import Role, Roles, implied
from dovetail.conditions.tokens import read
from dovetail.errors import ArgumentError, UnboundedJoinError, listing
from dovetail.families.window.graph import Path, Within

_HOWS: dict[str, How] = {"required": "inner", "optional": "left", "present": "semi", "absent": "anti"}


@dataclass(frozen=True)
class FurtherJoin:
    """One more input, how it is joined with what is there, and on what condition."""

    alias: str
    how: How
    condition: str
    by_key: bool
    """Whether Spark joins it, by hash or by sorting: an equality connects a table, or nothing that an index serves."""
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
) -> tuple[Predicate, tuple[FurtherJoin, ...]]:
    """The condition on the streams, and the tables in the order in which they are joined, required ones first."""
    role = dict(zip(inputs, roles.roles, strict=True))
    _check(role, tables)
    streams = [alias for alias in inputs if alias not in tables]
    core = [alias for alias in streams if role[alias] in ("required", "keep")]
    order = sorted(tables, key=lambda alias: role[alias] != "required")
    required = [alias for alias in order if role[alias] == "required"]
    of: dict[str, list[Part]] = {alias: [] for alias in order}
    stays: list[Part] = []
    for part in predicate.parts:
        about = aliases_of(part)
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
        if not any(len(aliases_of(part)) > 1 for part in of[alias]):
            raise ArgumentError(
                f"no condition connects the table {alias!r}", accepted=f"a condition with a column of {alias!r}"
            )
        condition = " AND ".join(f"({part.sql})" for part in of[alias])
        by_key = any(isinstance(part, Equality) for part in of[alias]) or not _indexed(of[alias])
        joins.append(FurtherJoin(alias, _HOWS[role[alias]], condition, by_key, tuple(core) if kept else ()))
    return Predicate.of([*stays, *_through(predicate, inputs, tables, core, stays)]), tuple(joins)


def beside_stream(
    predicate: Predicate, inputs: Sequence[str], stream: str, roles: Roles
) -> tuple[Predicate, tuple[FurtherJoin, ...]]:
    """The condition on one stream alone, and the tables in the order in which they are joined with it."""
    tables = [alias for alias in inputs if alias != stream]
    on, joins = divided(predicate, inputs, tables, roles)
    if roles.roles[list(inputs).index(stream)] != "keep":
        return on, joins
    # A row that a condition on the stream alone leaves out is kept, beside no table.
    own = "".join(f" AND ({part.sql})" for part in on.parts)
    return Predicate("TRUE"), tuple(replace(join, condition=join.condition + own, present=()) for join in joins)


def _indexed(parts: Sequence[Part]) -> bool:
    return any(
        isinstance(part, Equality | Inequality | Band) or (isinstance(part, Rest) and part.implied) for part in parts
    )


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


# --- theta joins ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThetaRoles:
    """A theta join whose inputs play different parts: which are joined first, on what, and the others in order."""

    first: tuple[str, ...]
    on: Predicate
    joins: tuple[FurtherJoin, ...]
    alone: tuple[str, ...] = ()
    """Kept inputs whose rows are looked for in what comes out, and come out alone where they are not in it."""
    conditions: tuple[str, ...] = ()
    """All parts of the condition: whether a row is in a result depends on the columns of it that they name."""


def theta_roles(predicate: Predicate, inputs: Sequence[str], roles: Roles) -> ThetaRoles:
    """The joins of two sides that a theta join with roles is made of, or why it is not.

    The required inputs are joined first.  A kept one is then the right side of a right join, or both are sides of a
    full join.  Where more are kept, or others decide what comes out, all of them are joined, and the rows of each kept
    input that are in no result come from an anti join with the results.  No row has to be told from an equal one: what
    the condition names of two rows decides for both alike.
    """
    predicate = implied(predicate, inputs, roles)
    core = [inputs[side] for side in roles.core]
    kept = [inputs[side] for side in roles.kept]
    alone: list[str] = []
    if (kept and roles.filtering) or len(kept) > 2 or (len(kept) == 2 and core != kept):
        alone, kept = kept, []
    first = kept[:1] if core == kept else [alias for alias in core if alias not in kept]
    parts = [(part, aliases_of(part)) for part in predicate.parts]
    steps: list[tuple[str, How, list[Part]]] = []
    for alias in kept:
        if alias not in first:
            about = [part for part, names in parts if names <= set(core) and not names <= set(first)]
            steps.append((alias, "full" if len(kept) == 2 else "right", about))
    own = [part for part, names in parts if kept and core == kept == first and names <= set(first)]
    if len(kept) == 2:
        steps = [(kept[1], "full", [part for part, names in parts if names <= set(core)])]
    for side in roles.extras:
        alias = inputs[side]
        about = [part for part, names in parts if alias in names and names <= {*core, alias}]
        steps.append((alias, _HOWS[roles.roles[side]], [*about, *own]))
    placed = [part for _, _, about in steps for part in about]
    at_first = [part for part, names in parts if names <= set(first) and part not in placed]
    left = next((part for part, _ in parts if part not in placed and part not in at_first), None)
    if left is not None:
        raise ArgumentError(
            f"the condition {bare(left.sql)} is about two inputs, each of which may be missing",
            accepted="conditions about at most one input that may be missing",
        )
    joins = []
    for alias, how, about in steps:
        present = tuple(core) if kept and len(core) > 1 and alias not in core else ()
        condition = " AND ".join(f"({part.sql})" for part in about) or "TRUE"
        joins.append(FurtherJoin(alias, how, condition, False, present))
    texts = tuple(part.sql for part, _ in parts)
    return ThetaRoles(tuple(first), Predicate.of(at_first), tuple(joins), tuple(alone), texts)


@dataclass(frozen=True)
class RolesPlan:
    """The plan of a theta join with roles, or of one stream beside tables: those of its joins, in order."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    how: str
    plans: tuple[str, ...]
    """The plans in words."""

    def text(self) -> str:
        """The plan as lines of text."""
        kind = "stream with static inputs" if self.streams else "batch"
        return "\n".join([f"theta join, {kind}, how={self.how}, one input after the other", *self.plans])


def check_further(how: object, *, windowed: bool, broadcast: str | bool | None) -> None:
    """Refuse what joins of one input after the other do not take."""
    if windowed:
        raise ArgumentError(
            f"how={how!r} together with window=", accepted="a word for how=, such as 'inner', with a window",
            hint="window_join has windows around each row, and roles for its inputs",
        )  # fmt: skip
    if broadcast:
        raise ArgumentError(f"broadcast= together with how={how!r}", accepted="broadcast= for two inputs")


def one_stream(streams: Sequence[str]) -> str:
    """The one stream among tables, or why there cannot be more."""
    if len(streams) > 1:
        raise UnboundedJoinError(
            f"the inputs {listing(streams)} are streams, and no window bounds what to remember of them",
            accepted="one stream beside static inputs, or window_join",
        )
    return streams[0]

"""The decisions about a nearest join: what distance means, where rows go, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa

from dovetail.columns.sampling import DENSE
from dovetail.columns.ties import tie_kind
from dovetail.conditions.comparison import Key, KeyType, whole_bound
from dovetail.conditions.distances import float_distance, is_distance
from dovetail.conditions.durations import duration
from dovetail.conditions.forms import Bound, Term
from dovetail.conditions.names import bare
from dovetail.conditions.nearness import Nearness
from dovetail.errors import (
    ArgumentError,
    PredicateError,
    UnboundedJoinError,
    UnsupportedTypeError,
    check_partitions,
    choice,
    is_whole,
    unknown_alias,
)
from dovetail.families.nearest.join_stages import DISTANCE, RANK
from dovetail.families.nearest.spec import TIES, NearestSpec, Ties
from dovetail.plan.broadcast import Broadcast, Small, check_broadcast, smallest
from dovetail.plan.theta import Facts

HOWS = ("inner", "left")
MOST = 1_000_000
"""The largest k."""

_WAYS = {
    "line": "sorted by it, one run of it for each row",
    "euclidean": "in a k-d tree, searched from the nearest box outward",
    "haversine": "in a k-d tree on the sphere, searched from the nearest box outward",
}

Within = int | float | Decimal | str | timedelta


@dataclass(frozen=True)
class Options:
    """How a nearest join is to be run."""

    k: int = 1
    ties: Ties = "all"
    how: str = "inner"
    partitions: int | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.k, most=MOST):
            raise ArgumentError(f"k={self.k!r}", accepted=f"a whole number of at least 1 and at most {MOST:,}")
        if self.ties not in TIES:
            raise choice("ties", self.ties, TIES)
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        check_partitions(self.partitions)


@dataclass(frozen=True)
class Measured:
    """What Spark knows of a distance: the type in which coordinates are compared, and that of the distance."""

    kind: KeyType
    distance: pa.DataType
    unit: int = 1
    """Codes of a coordinate in units of the distance."""
    terms: tuple[tuple[Term, Term], ...] | None = None
    """Terms whose difference is that of the given ones, where those are compared as something else."""


@dataclass(frozen=True)
class NearestPlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    nearness: Nearness
    spec: NearestSpec
    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    """For each input its equality keys and its coordinates."""
    texts: tuple[str, ...]
    """Columns of the second input that only their text as JSON puts into an order."""
    options: Options
    shuffle_partitions: int
    filters: tuple[tuple[str, str], ...] = ()
    """(alias, condition) that drops rows of an input before the join."""
    hidden: str | None = None
    """The condition on the asking rows alone that must not drop them."""
    given_within: Within | None = None
    sampled: bool = True
    broadcast: Small | None = None

    @property
    def one_shuffle(self) -> bool:
        """Whether rows that ask find all they need in one cell: on a line whose values a sample has shown."""
        return self.spec.metric == "line" and (self.sampled or bool(self.spec.keys))

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        asking, answering = self.inputs
        mode = f"stream {asking} beside a static input" if self.streams else "batch"
        lines = [f"nearest join, {mode}, how={self.options.how!r}"]
        rows = [("for each", f"row of {asking}, the {self._wanted()}")]
        rows += [("first", f"{alias} keeps rows where {bare(sql)}") for alias, sql in self.filters]
        if self.nearness.predicate.equalities:
            rows.append(("where", " AND ".join(bare(one.sql) for one in self.nearness.predicate.equalities)))
        rows.append(("ties", self._ties_text()))
        rows.append(("kernel", f"{answering} {_WAYS[self.spec.metric]}"))
        rows.append(("routing", self._routing_text()))
        return "\n".join([*lines, *[f"  {head:<10}{text}" for head, text in rows]])

    def _wanted(self) -> str:
        answering = self.inputs[1]
        k = self.options.k
        count = f"nearest row of {answering}" if k == 1 else f"{k} nearest rows of {answering}"
        bound = "" if self.given_within is None else f", at most {self.given_within} away"
        if self.nearness.strict and self.nearness.within is not None:
            bound = bound.replace("at most", "less than")
        return f"{count} by {self.nearness.distance.text}{bound}"

    def _ties_text(self) -> str:
        answering = self.inputs[1]
        if self.options.ties == "all":
            return "all rows that are as near as the last one"
        return f"of equally near rows those that come first by the columns of {answering}, from left to right"

    def _routing_text(self) -> str:
        asking, answering = self.inputs
        if self.broadcast:
            return f"no shuffle: the whole of {self.broadcast.alias} goes to every task{self.broadcast.why}"
        where = f"{self.shuffle_partitions} shuffle partitions of packed segments"
        if not self.one_shuffle:
            where += "; the nearest of all cells in a second"
        if not self.sampled:
            keyed = bool(self.spec.keys)
            way = "slices of the key hash" if keyed else f"{answering} spread over the cells, {asking} to every cell"
            return f"{way}; {where}"
        if self.one_shuffle:
            return (
                f"cells cut at quantiles of a 1/{DENSE} sample of both sides, read within the same action; {asking} to "
                f"one cell, {answering} to those where it may be among the {self.options.k} nearest; {where}"
            )
        return (
            f"cells cut from a 1/{DENSE} sample of both sides, read within the same action; {asking} to the cells that "
            f"may hold its {self.options.k} nearest, as near as in the sample of {answering}; {where}"
        )


def check_inputs(inputs: tuple[str, ...]) -> tuple[str, str]:
    """The two inputs; refuses more of them, and names that the result needs."""
    if len(inputs) != 2:
        raise ArgumentError(
            f"nearest_join with {len(inputs)} inputs", accepted="two inputs: the one that asks, and the one it asks",
            hint="join further inputs first, or afterwards",
        )  # fmt: skip
    for alias in inputs:
        if alias.casefold() in (DISTANCE, RANK):
            raise ArgumentError(
                f"an input is called {alias!r}, as a column of the result is", accepted="other names for the inputs"
            )
    return inputs[0], inputs[1]


def plan_nearest(
    inputs: tuple[str, ...],
    nearness: Nearness,
    facts: Facts,
    measured: Measured,
    options: Options,
    *,
    columns: Mapping[str, tuple[str, ...]],
    within: Within | None,
    broadcast: Broadcast,
    sample: bool,
) -> NearestPlan:
    """Decide how a nearest join runs, or say why it cannot.

    Parameters
    ----------
    inputs
        The aliases, first the one whose rows ask.
    nearness, facts, measured, options
        What to look for, what is known of the inputs and of the distance, and what the user asked for.
    columns
        The columns of each input.
    within
        The largest distance, where an argument gave it.
    broadcast
        The alias of the second input, if it is small enough to go to every task whole.
    sample
        Whether a sample of both sides may decide where rows go.
    """
    asking, answering = check_inputs(inputs)
    if facts.rests:
        raise PredicateError(
            f"on holds {bare(facts.rests[0].sql)}, whose types have no keys",
            accepted="equalities of numbers, times, texts, structs and arrays",
        )
    if within is not None and nearness.within is not None:
        raise ArgumentError(
            f"within={within!r}, and on= bounds the distance as well", accepted="one largest distance, in either"
        )
    distance = nearness.distance
    spec_within = _bound(within, nearness, measured)
    keep = options.how == "left"
    types = facts.payload_types[answering]
    texts: tuple[str, ...] = ()
    if options.ties == "first":
        texts = tuple(name for name, kind in zip(columns[answering], types, strict=True) if tie_kind(kind) is None)
    spec = NearestSpec(
        metric=distance.metric,
        kind=measured.kind.kind,
        factors=distance.factors,
        keys=tuple(kind.kind for _, kind in facts.equalities),
        k=options.k,
        within=spec_within,
        ties=options.ties,
        keep=keep,
        payload=(facts.payload_types[asking], types),
        order=_order(types) if options.ties == "first" else (),
        texts=len(texts),
        distance=measured.distance,
        unit=measured.unit,
    )
    predicate = nearness.predicate
    return NearestPlan(
        inputs=inputs,
        streams=facts.streams,
        nearness=nearness,
        spec=spec,
        keys=_keys(inputs, facts, measured.terms or distance.terms, measured.kind),
        texts=texts,
        options=options,
        shuffle_partitions=options.partitions or facts.shuffle_partitions,
        filters=tuple((f.alias, f.sql) for f in predicate.filters if f.alias == answering or not keep),
        hidden=" AND ".join(f"({f.sql})" for f in predicate.filters if f.alias == asking and keep) or None,
        given_within=nearness.within if within is None else within,
        sampled=sample,
        broadcast=_small(asking, answering, facts, options, broadcast),
    )


def _order(types: tuple[pa.DataType, ...]) -> tuple[int, ...]:
    """Where the columns are that order answering rows; texts of those without an order lie behind all."""
    behind, found = len(types), []
    for at, kind in enumerate(types):
        if tie_kind(kind) is None:
            found.append(behind)
            behind += 1
        else:
            found.append(at)
    return tuple(found)


def _keys(
    inputs: tuple[str, ...], facts: Facts, terms: tuple[tuple[Term, Term], ...], kind: KeyType
) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    def key(term: Term, ddl: str) -> Key:
        return Key(term.sql, ddl, term.alias)

    found: list[list[Key]] = [[], []]
    for equality, compared in facts.equalities:
        sides = (equality.left, equality.right)
        own, other = sides if sides[0].alias == inputs[0] else sides[::-1]
        found[0].append(key(own, compared.ddl))
        found[1].append(key(other, compared.ddl))
    for own, other in terms:
        found[0].append(key(own, kind.ddl))
        found[1].append(key(other, kind.ddl))
    return tuple(found[0]), tuple(found[1])


def _bound(within: Within | None, nearness: Nearness, measured: Measured) -> int | float | None:
    """The largest distance in codes, or as a double."""
    given: object = within if within is not None else nearness.within
    if given is None:
        return None
    shown = f"within={given!r}" if within is not None else f"the distance is compared with {given!r}"
    strict = within is None and nearness.strict
    kind = measured.kind
    whole = kind.kind == "int" and nearness.distance.metric == "line"
    if whole and kind.micros is not None:
        if isinstance(given, int | float | Decimal) and not isinstance(given, bool):
            raise UnsupportedTypeError(
                f"{shown}, a number, but the distance is one between values of type {kind.ddl}",
                accepted="a length of time, such as '10 seconds', or INTERVAL 10 SECONDS in on=",
            )
        micros = (
            given // timedelta(microseconds=1)
            if isinstance(given, timedelta)
            else duration(given, argument="within", zero=True)  # type: ignore[arg-type]
        )
        if micros < 0:
            raise ArgumentError(shown, accepted="a length of time, 0 or more")
        return whole_bound(Bound(timedelta(microseconds=micros), strict), kind, upward=False)
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal):
        raise UnsupportedTypeError(
            f"{shown}, no number, but the distance is one between values of type {kind.ddl}",
            accepted="a number, 0 or more",
        )
    if not is_distance(given):
        raise ArgumentError(shown, accepted="a finite number, 0 or more", hint="leave it out for any distance")
    if whole:
        exact = Decimal(str(given)) if isinstance(given, float) else given
        return whole_bound(Bound(exact, strict), kind, upward=False)
    limit = float_distance(given)
    return math.nextafter(limit, -math.inf) if strict else limit


def _small(asking: str, answering: str, facts: Facts, options: Options, broadcast: Broadcast) -> Small | None:
    check_broadcast(broadcast)
    if broadcast and broadcast not in (asking, answering):
        raise unknown_alias(str(broadcast), (asking, answering), where=f"broadcast={broadcast!r}")
    if broadcast == asking:
        raise ArgumentError(
            f"broadcast={asking!r} is the input that asks, whose rows every task would report again",
            accepted=f"broadcast={answering!r}, or False",
        )
    if answering in facts.streams:
        raise UnboundedJoinError(
            f"the input {answering!r} is a stream: a nearer row may always come, so no answer would ever be final",
            accepted=f"a static {answering!r}, beside a static or streaming {asking!r}",
            hint="write the stream to a table, and join that; rows of two streams that are near in time as well are "
            "those of dt.window_join",
        )
    if asking in facts.streams or broadcast == answering:
        return Small(answering)
    return smallest(facts.sizes, [answering]) if broadcast is None and options.partitions is None else None

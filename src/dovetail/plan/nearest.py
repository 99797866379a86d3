"""The decisions about a nearest join: what distance means, where rows go, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa

from dovetail.columns.ties import tie_kind
from dovetail.conditions.comparison import Key, KeyType, whole_bound
from dovetail.conditions.distances import float_distance, is_distance
from dovetail.conditions.durations import duration
from dovetail.conditions.forms import Bound, Term
from dovetail.conditions.names import bare, quoted
from dovetail.conditions.nearness import Nearness
from dovetail.errors import (
    ArgumentError,
    PredicateError,
    UnboundedJoinError,
    UnsupportedTypeError,
    unknown_alias,
)
from dovetail.families.nearest.join_stages import DISTANCE, RANK
from dovetail.families.nearest.spec import NearestSpec
from dovetail.plan.asked_window import AskedWindow, needs_window
from dovetail.plan.broadcast import Broadcast, Small, check_broadcast, smallest
from dovetail.plan.nearest_plan import Measured, NearestPlan, Options, Within
from dovetail.plan.theta import Facts


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
    window: AskedWindow | None = None,
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
    window
        From which time to which a row looks.
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
        window=None if window is None else (window.low, window.high),
    )
    predicate = nearness.predicate
    return NearestPlan(
        inputs=inputs,
        streams=facts.streams,
        nearness=nearness,
        spec=spec,
        keys=_keys(inputs, facts, measured.terms or distance.terms, measured.kind, window),
        texts=texts,
        options=options,
        shuffle_partitions=options.partitions or facts.shuffle_partitions,
        filters=tuple((f.alias, f.sql) for f in predicate.filters if f.alias == answering or not keep),
        hidden=" AND ".join(f"({f.sql})" for f in predicate.filters if f.alias == asking and keep) or None,
        given_within=nearness.within if within is None else within,
        sampled=sample,
        broadcast=_small(asking, answering, facts, options, broadcast, window),
        window=window,
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
    inputs: tuple[str, ...],
    facts: Facts,
    terms: tuple[tuple[Term, Term], ...],
    kind: KeyType,
    window: AskedWindow | None,
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
    if window is not None:
        for keys, (alias, name) in zip(found, window.columns, strict=True):
            keys.append(Key(f"{quoted(alias)}.{quoted(name)}", window.ddl, alias))
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
            hint="how far apart in time rows may be is window=, beside time=" if isinstance(given, str) else None,
        )
    if not is_distance(given):
        raise ArgumentError(shown, accepted="a finite number, 0 or more", hint="leave it out for any distance")
    if whole:
        exact = Decimal(str(given)) if isinstance(given, float) else given
        return whole_bound(Bound(exact, strict), kind, upward=False)
    limit = float_distance(given)
    return math.nextafter(limit, -math.inf) if strict else limit


def _small(
    asking: str, answering: str, facts: Facts, options: Options, broadcast: Broadcast, window: AskedWindow | None
) -> Small | None:
    check_broadcast(broadcast)
    if broadcast and broadcast not in (asking, answering):
        raise unknown_alias(str(broadcast), (asking, answering), where=f"broadcast={broadcast!r}")
    if broadcast == asking:
        raise ArgumentError(
            f"broadcast={asking!r} is the input that asks, whose rows every task would report again",
            accepted=f"broadcast={answering!r}, or False",
        )
    if len(facts.streams) == 2:
        if window is None:
            raise needs_window(asking, answering, "window", "is nearer")
        if broadcast:
            raise ArgumentError(f"broadcast={broadcast!r} of two streams", accepted="no broadcast=")
        return None
    if answering in facts.streams:
        raise UnboundedJoinError(
            f"the input {answering!r} is a stream: a nearer row may always come, so no answer would ever be final",
            accepted=f"a static {answering!r}, beside a static or streaming {asking!r}; or two streams, time= and "
            "window=",
            hint="write the stream to a table, and join that",
        )
    if asking in facts.streams or broadcast == answering:
        return Small(answering)
    if broadcast is not None or options.partitions is not None:
        return None
    return smallest(facts.sizes, [answering], both=[asking, answering])

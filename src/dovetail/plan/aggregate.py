"""The decisions about an aggregate join: which side asks, what is computed how, and where rows go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.columns.held import STREAM_CELLS
from dovetail.columns.sampling import DENSE
from dovetail.conditions.comparison import build_step
from dovetail.conditions.forms import Predicate
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, UnknownNameError, check_partitions, choice, unknown_alias
from dovetail.families.aggregate.spec import AggregateSpec, MeasureKind
from dovetail.plan.aggregate_calls import Made, TypedCall, kinds_of
from dovetail.plan.asked_window import AskedWindow
from dovetail.plan.broadcast import Broadcast, Small, check_broadcast, smallest
from dovetail.plan.theta import Facts

HOWS = ("left", "inner")

_WAYS: dict[MeasureKind, str] = {
    "rows": "prefix sums",
    "count": "prefix sums",
    "whole": "prefix sums",
    "float": "exact prefix sums or trees of partial sums",
    "moments": "trees of moments",
    "best": "trees of minima",
    "distinct": "earlier occurrences in a wavelet matrix",
    "quantile": "ranks in a wavelet matrix",
}
"""How the kernel computes a measure, in words."""


@dataclass(frozen=True)
class Options:
    """How an aggregate join is to be run."""

    how: str = "left"
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        check_partitions(self.partitions)


@dataclass(frozen=True)
class AggregatePlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    by: str
    streams: frozenset[str]
    predicate: Predicate
    calls: tuple[TypedCall, ...]
    spec: AggregateSpec
    columns: tuple[str, ...]
    """The argument columns, as Spark SQL over the matched input."""
    options: Options
    shuffle_partitions: int
    filters: tuple[tuple[str, str], ...] = ()
    """(alias, condition) that drops rows of an input before the join."""
    hidden: str | None = None
    """The condition on the asking rows alone that must not drop them."""
    sampled: bool = True
    broadcast: Small | None = None
    window: AskedWindow | None = None
    """The window of time, where both inputs are streams."""

    @property
    def other(self) -> str:
        """The input whose rows are aggregated."""
        return next(alias for alias in self.inputs if alias != self.by)

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        mode = f"stream {self.by} beside a static input" if self.streams else "batch"
        if self.window is not None:
            mode = f"streams {' and '.join(self.inputs)}"
        lines = [f"aggregate join, {mode}, how={self.options.how!r}: for each row of {self.by}, without forming pairs"]
        lines.append(f"  inputs      {', '.join(self.inputs)}")
        lines.extend(f"  first       {alias} keeps rows where {bare(sql)}" for alias, sql in self.filters)
        lines.append(f"  compute     {', '.join(f'{one.call.text} AS {one.call.name}' for one in self.calls)}")
        lines.append(f"  join        {self.by} with {self.other}")
        rows = [("where", bare(self.predicate.sql)), ("kernel", self._kernel_text()), ("routing", self._routing_text())]
        lines.extend(f"    {head:<10}{text}" for head, text in rows)
        return "\n".join(lines)

    def _kernel_text(self) -> str:
        axes = len(self.spec.step.axes)
        where = {
            0: "groups: the rows of one key",
            1: f"range: {self.other} sorted, one range of it for each row",
            2: f"two ranges: {self.other} sorted by one in blocks of 1, 2, 4 ... rows, each sorted by the other",
        }[axes]
        if self.spec.overlap is not None:
            where = f"ranks: those of {self.other} that begin before the end, without those that end before the begin"
        ways = ", ".join(dict.fromkeys(_WAYS[measure.kind] for measure in self.spec.measures))
        return f"{where}; {ways}; cost follows rows, not matches"

    def _routing_text(self) -> str:
        if self.window is not None:
            cells = f"{STREAM_CELLS} cells by the keys" if self.spec.step.equalities else "one cell: there is no key"
            return f"{cells}; a row of {self.by} comes out once the watermark has passed the end of its window"
        if self.broadcast:
            return f"no shuffle: {self.broadcast.where}"
        where = f"{self.shuffle_partitions} shuffle partitions of packed segments"
        if self.spec.gathered:
            way = f"{self.other} to every cell, {self.by} to one"
            way = "slices of the key hash" if self.spec.step.equalities else way
            return f"{way}, where all its matches are; {where}; results in a second shuffle"
        if not self.sampled:
            way = (
                "slices of the key hash"
                if self.spec.step.equalities
                else f"{self.other} spread over the cells, {self.by} to every cell"
            )
        else:
            way = f"cells cut at quantiles of a 1/{DENSE} sample of both sides, read within the same action"
            if self.spec.overlap is not None:
                way += f"; {self.by} to the cells of its begin and its end, totals of the others"
            elif self.spec.exhaustive:
                way += f"; {self.by} to every cell that its range touches"
            else:
                way += f"; {self.by} to the ends of its range, totals of the cells in between"
        return f"{way}; {where}; partial states merged in a second shuffle"

    def identity(self) -> dict[str, str]:
        """What two streams may not change between two runs on one checkpoint."""
        assert self.window is not None
        return {
            "join": "an aggregate join",
            "inputs": ", ".join(self.inputs),
            "rows of": self.by,
            "time": ", ".join(self.window.times),
            "window": f"{self.window.low} to {self.window.high}",
            "condition": self.predicate.text,
            "aggregates": ", ".join(f"{one.call.text} AS {one.call.name}" for one in self.calls),
            "how": self.options.how,
        }


def check_by(inputs: Sequence[str], by: object) -> str:
    """The alias of the input that asks, in any case; refuses others, and more than two inputs."""
    if len(inputs) != 2:
        raise ArgumentError(
            f"aggregate_join with {len(inputs)} inputs", accepted="two inputs: the one that asks, and the one it asks",
            hint="join further inputs first, or afterwards",
        )  # fmt: skip
    found = [alias for alias in inputs if isinstance(by, str) and alias.casefold() == by.casefold()]
    if not found:
        error = unknown_alias(str(by), inputs, where=f"by={by!r}")
        hint = error.hint or "by= is the input whose rows come out; what must be equal goes into on="
        raise UnknownNameError(error.given, accepted=error.accepted, hint=hint)
    return found[0]


def plan_aggregate(
    inputs: tuple[str, ...],
    by: str,
    predicate: Predicate,
    facts: Facts,
    calls: Sequence[TypedCall],
    options: Options,
    *,
    broadcast: Broadcast,
    sample: bool,
    ansi: bool,
    window: AskedWindow | None = None,
) -> AggregatePlan:
    """Decide how an aggregate join runs, or say why it cannot.

    Parameters
    ----------
    inputs, by
        The aliases, in the user's order, and the one whose rows ask.
    predicate, facts, calls, options
        What to join, what is known of the inputs, what to compute, and what the user asked for.
    broadcast
        The alias of the matched input, if it is small enough to go to every task whole.
    sample
        Whether a sample of both sides may decide where rows go.
    ansi
        Whether the session follows ANSI SQL, where an overflow is an error.
    window
        The window of time between two streams.
    """
    other = next(alias for alias in inputs if alias != by)
    step = build_step(list(facts.equalities), list(facts.comparisons), left=frozenset((other,)), how="left")
    made = Made()
    for call in calls:
        made.add(call)
    keep = options.how == "left"
    spec = AggregateSpec(
        step=step,
        measures=tuple(made.measures),
        outputs=tuple(made.outputs),
        arguments=tuple(kind for kind, _ in made.columns.values()),
        kinds=kinds_of(made),
        payload=facts.payload_types[by],
        keep=keep,
        ansi=ansi,
    )
    hidden = " AND ".join(f"({f.sql})" for f in predicate.filters if f.alias == by and keep) or None
    return AggregatePlan(
        inputs=inputs,
        by=by,
        streams=facts.streams,
        predicate=predicate,
        calls=tuple(calls),
        spec=spec,
        columns=tuple(made.columns),
        options=options,
        shuffle_partitions=options.partitions or facts.shuffle_partitions,
        filters=tuple((f.alias, f.sql) for f in predicate.filters if f.alias == other or not keep),
        hidden=hidden,
        sampled=sample and not spec.gathered,
        broadcast=None if window is not None else _small(other, by, facts, options, broadcast),
        window=window,
    )


def check_small(other: str, by: str, facts: Facts, broadcast: Broadcast) -> None:
    """Refuse to broadcast what cannot be, and to ask a stream with a table."""
    check_broadcast(broadcast)
    if broadcast and broadcast not in (other, by):
        raise unknown_alias(str(broadcast), (by, other), where=f"broadcast={broadcast!r}")
    if broadcast == by:
        raise ArgumentError(
            f"broadcast={by!r} is the input that asks, whose rows every task would report again",
            accepted=f"broadcast={other!r}, or False",
        )
    if broadcast and len(facts.streams) == 2:
        raise ArgumentError(f"broadcast={broadcast!r} of two streams", accepted="no broadcast=")
    if other in facts.streams and by not in facts.streams:
        raise ArgumentError(
            f"the input {other!r} is a stream, and its rows answer those of {by!r}",
            accepted=f"a static {other!r}, beside a static or streaming {by!r}; or two streams and within=",
            hint="what a row matches in a stream is known only later: write the stream to a table, and join that",
        )


def _small(other: str, by: str, facts: Facts, options: Options, broadcast: Broadcast) -> Small | None:
    if by in facts.streams or broadcast == other:
        return Small(other)
    if broadcast is not None or options.partitions is not None:
        return None
    return smallest(facts.sizes, [other], both=[by, other])

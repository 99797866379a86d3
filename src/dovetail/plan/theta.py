"""The decisions about a theta join.

:func:`plan_theta` is the one place that decides.  It knows the condition with its types and a few facts about the
inputs, and no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dovetail.conditions.comparison import Comparison, Key, KeyType, Step, build_step, every_pair
from dovetail.conditions.durations import CountWindow, TimeWindow
from dovetail.conditions.forms import Equality, Inequality, Predicate, Rest
from dovetail.conditions.join_kind import How, JoinKind
from dovetail.conditions.literals import literal_sql
from dovetail.errors import ArgumentError, PredicateError, UnboundedJoinError, listing, unknown_alias
from dovetail.families.theta.spec import Options, WindowSpec, WindowStep
from dovetail.plan.broadcast import Broadcast, Estimate, Small, check_broadcast, smallest
from dovetail.plan.theta_plan import Mode, ThetaPlan, ThetaStep


@dataclass(frozen=True)
class Facts:
    """What the planner knows of the inputs: which are streams, the compared types, the session's shuffle partitions.

    `equalities` and `comparisons` find the pairs; `rests` are left to Spark, which evaluates them on what is found.
    """

    streams: frozenset[str]
    equalities: tuple[tuple[Equality, KeyType], ...]
    comparisons: tuple[tuple[Comparison, KeyType], ...]
    shuffle_partitions: int
    rests: tuple[Rest, ...] = ()
    payload_types: Mapping[str, tuple[pa.DataType, ...]] = field(default_factory=dict)
    """The Arrow types of the columns of each input."""
    sizes: Mapping[str, Estimate] = field(default_factory=dict)
    """The inputs that Spark itself would broadcast, by its estimate."""


def plan_theta(
    inputs: tuple[str, ...],
    predicate: Predicate,
    facts: Facts,
    options: Options,
    *,
    window: CountWindow | TimeWindow | None,
    broadcast: Broadcast,
    sample: bool,
) -> ThetaPlan:
    """Decide how a theta join runs, or say why it cannot.

    Parameters
    ----------
    inputs
        The aliases, in the user's order.
    predicate, facts, options, window
        What to join, what is known of the inputs, and what the user asked for.
    broadcast
        The alias of an input that is small enough to go to every task whole.
    sample
        Whether a sample of both sides may decide where rows go.
    """
    if len(inputs) > 2 and not options.kind.pairs_only:
        raise ArgumentError(
            f"how={options.how!r} with {len(inputs)} inputs", accepted="how='inner' for more than two inputs",
            hint="join two of them first, and join the result with the third",
        )  # fmt: skip
    order = _join_order(inputs, predicate, facts)
    mode, small = _mode(inputs, facts, options, window, broadcast)
    steps = []
    for at in range(1, len(order)):
        left, right = tuple(order[:at]), order[at]
        chosen = None if small is None else Small(small)
        if mode == "batch" and broadcast is None:
            chosen = _small(left, right, facts, options)
        steps.append(_step(left, right, order, predicate, facts, options, small=chosen, sample=sample))
    kept = _preserved(order, options.kind)
    if isinstance(window, CountWindow):
        # A row that was dropped would not count, and every window after it would begin elsewhere.
        kept = frozenset(inputs)
    filters = tuple((f.alias, f.sql) for f in predicate.filters if f.alias not in kept)
    spec = None if window is None else _window_spec(inputs, tuple(steps), facts, options, window)
    return ThetaPlan(mode, inputs, facts.streams, predicate, filters, tuple(steps), window, spec)


def _window_spec(
    inputs: tuple[str, ...],
    steps: tuple[ThetaStep, ...],
    facts: Facts,
    options: Options,
    window: CountWindow | TimeWindow,
) -> WindowSpec:
    """The kernel's description of a join in windows, or why there can be none."""
    rest = next((sql for step in steps for sql in step.rests), None)
    if rest is not None and not options.kind.pairs_only:
        raise ArgumentError(
            f"how={options.how!r} in windows with the condition {rest.replace('`', '')}, which only Spark can evaluate",
            accepted="how='inner' with any condition, or another how with comparisons of two inputs only",
            hint="move a condition on one input into a filter of that input",
        )
    keys: dict[str, list[Key]] = {alias: [] for alias in inputs}
    for step in steps:
        for key in (*step.step.point_keys, *step.step.box_keys):
            if key not in keys[key.alias]:
                keys[key.alias].append(key)
    types = tuple(facts.payload_types[alias] for alias in inputs)
    return WindowSpec(
        payload=tuple(len(kinds) for kinds in types),
        keys=tuple(tuple(keys[alias]) for alias in inputs),
        aliases=inputs,
        first=inputs.index(steps[0].left[0]),
        steps=tuple(WindowStep(step.step, inputs.index(step.right)) for step in steps),
        options=options,
        rows=window.rows if isinstance(window, CountWindow) else None,
        every=window.every if isinstance(window, TimeWindow) else None,
        types=types,
    )


def _preserved(order: list[str], kind: JoinKind) -> frozenset[str]:
    """Inputs whose rows come out even without a match, so that no condition may drop them."""
    return frozenset(alias for alias, keeps in zip(order, kind.preserved, strict=False) if keeps)


def _join_order(inputs: tuple[str, ...], predicate: Predicate, facts: Facts) -> list[str]:
    """The first input, then always the first one that a comparison connects to those before it, if there is one.

    A comparison that the user wrote says more than a range that is only implied.
    """
    told = [{part.left.alias, part.right.alias} for part in predicate.links]
    known = [{part.left.alias, part.right.alias} for part, _ in (*facts.equalities, *facts.comparisons)]
    order = [inputs[0]]
    while len(order) < len(inputs):
        missing = [alias for alias in inputs if alias not in order]
        choices = [
            [alias for alias in missing if any(alias in edge and edge & set(order) for edge in edges)]
            for edges in (told, known)
        ]
        order.append((choices[0] or choices[1] or missing)[0])
    return order


def _mode(
    inputs: tuple[str, ...],
    facts: Facts,
    options: Options,
    window: CountWindow | TimeWindow | None,
    broadcast: Broadcast,
) -> tuple[Mode, str | None]:
    """How the join runs, and the input that goes to every task whole, if one does."""
    check_broadcast(broadcast)
    broadcast = broadcast or None
    if broadcast is not None and broadcast not in inputs:
        raise unknown_alias(str(broadcast), inputs, where=f"broadcast={broadcast!r}")
    static = [a for a in inputs if a not in facts.streams]
    if window is not None:
        if static and facts.streams:
            raise ArgumentError(
                f"window= beside the static input(s) {listing(static)}",
                accepted="a window over inputs that are all streams or all static",
                hint="a stream joins a static input without a window: leave window= out",
            )
        if broadcast is not None:
            raise ArgumentError("broadcast= together with window=", accepted="one of the two")
        return "window", None
    if not facts.streams:
        if broadcast is not None:
            _check_small_side(broadcast, inputs, options, "broadcast=")
        return "batch", broadcast
    if len(facts.streams) > 1:
        raise UnboundedJoinError(
            f"the inputs {listing(facts.streams)} are streams, and no window bounds what to remember of them",
            accepted="window=1000 (rows of each input) or window='10 minutes' with time='ts'; "
            "or one stream beside a static input",
            hint="a window also bounds the state that Spark has to keep",
        )
    if len(inputs) > 2:
        raise ArgumentError(
            f"a stream beside {len(static)} static inputs", accepted="one stream and one static input",
            hint="join the static inputs with each other first",
        )  # fmt: skip
    _check_small_side(static[0], inputs, options, "the static input")
    return "stream-static", static[0]


def _small(left: tuple[str, ...], right: str, facts: Facts, options: Options) -> Small | None:
    """The side of a step that is worth no shuffle, and whose rows no task has to report."""
    if options.partitioning is not None or options.partitions is not None:
        return None
    # A join of more inputs is an inner one.  What the steps before it yield has no estimate.
    kept = options.kind.preserved if len(left) == 1 else (True, False)
    sides = [] if kept[0] or not options.kind.pairs else [left[0]]
    sides += [] if kept[1] else [right]
    return smallest(facts.sizes, sides, both=[*left, right] if len(left) == 1 else [])


def _check_small_side(small: str, inputs: tuple[str, ...], options: Options, what: str) -> None:
    """Refuse what cannot be decided one task at a time: which rows of the small side nobody matched."""
    if len(inputs) > 2:
        raise ArgumentError(f"{what} {small!r} with {len(inputs)} inputs", accepted="two inputs")
    side = inputs.index(small)
    # A semi join says of each left row whether it has a match.
    if options.kind.preserved[side] or (side == 0 and not options.kind.pairs):
        other = inputs[1 - side]
        raise ArgumentError(
            f"how={options.how!r} keeps or counts rows of {small!r}, {what}, which every task would report again",
            accepted=f"a join that keeps rows of {other!r} only",
        )
    if options.partitioning is not None:
        raise ArgumentError(
            f"algorithm={options.algorithm!r} beside {what} {small!r}",
            accepted="algorithm='auto' without partitioning",
        )


def _step(
    left: tuple[str, ...],
    right: str,
    order: list[str],
    predicate: Predicate,
    facts: Facts,
    options: Options,
    *,
    small: Small | None,
    sample: bool,
) -> ThetaStep:
    both = {*left, right}
    equalities = [(e, t) for e, t in facts.equalities if _reaches(e.left.alias, e.right.alias, left, right)]
    comparisons = [(c, t) for c, t in facts.comparisons if _reaches(c.left.alias, c.right.alias, left, right)]
    if options.partitioning is not None and not comparisons:
        raise PredicateError(
            f"algorithm={options.algorithm!r} partitions by an inequality or a band, and none connects "
            f"{right!r} with {listing(left)}",
            accepted="algorithm='auto' for equalities alone",
        )
    orient: How = options.how
    if small is not None:
        # The small side is looked up, so the other one provides the points.
        orient = "right" if small.alias in left else "left"
    if equalities or comparisons:
        step = build_step(equalities, comparisons, left=frozenset(left), how=orient)
        mirror = build_step(equalities, comparisons, left=frozenset(left), how="right")
    else:
        step, mirror = every_pair(left[0], right, orient), every_pair(left[0], right, "right")
    rests = tuple(
        r.sql for r in facts.rests
        if (right in r.aliases and r.aliases <= both) or (not r.aliases and right == order[1])
    )  # fmt: skip
    kept = _preserved(order, options.kind)
    points, other = (right, left[0]) if step.swapped else (left[0], right)
    return ThetaStep(
        left=left,
        right=right,
        step=step,
        mirror=mirror,
        options=options,
        rests=rests,
        point_filter=_filter_of(predicate, points) if points in kept else None,
        mirror_filter=_filter_of(predicate, other) if other in kept else None,
        shuffle_partitions=options.partitions or facts.shuffle_partitions,
        # Prefap and its rivals partition by what the data holds; they cannot do without looking.
        sampled=sample or options.partitioning is not None,
        broadcast=small and small.for_results(bounded=_bounds_results(step)),
        condition=_condition(predicate, left, right, rests),
    )


def _bounds_results(step: Step) -> bool:
    """Whether a row typically has few matches: in a band, or as an interval that overlaps others."""
    return len(step.axes) > 1 or any(axis.low is not None and axis.high is not None for axis in step.axes)


def _condition(predicate: Predicate, left: tuple[str, ...], right: str, rests: tuple[str, ...]) -> str:
    """What a step joins on, in the user's words."""
    parts = [
        part.sql if isinstance(part, Equality) else _short(part)
        for part in predicate.links
        if _reaches(part.left.alias, part.right.alias, left, right)
    ]
    # Conditions of types that no kernel compares are among those that Spark evaluates.
    links = {part.sql for part in predicate.links}
    return " AND ".join([*parts, *(f"({sql})" for sql in rests if sql not in links)]) or "TRUE"


def _reaches(a: str, b: str, left: tuple[str, ...], right: str) -> bool:
    return (a == right and b in left) or (b == right and a in left)


def _short(comparison: Comparison) -> str:
    """A comparison as SQL, a band around zero as people write it."""
    if isinstance(comparison, Inequality) or comparison.low is None or comparison.high is None:
        return comparison.sql
    low, high = comparison.low, comparison.high
    if low.strict != high.strict or low.value != -high.value:
        return comparison.sql
    sign = "<" if high.strict else "<="
    return f"ABS({comparison.left.sql} - {comparison.right.sql}) {sign} {literal_sql(high.value)}"


def _filter_of(predicate: Predicate, alias: str) -> str | None:
    return " AND ".join(f"({f.sql})" for f in predicate.filters if f.alias == alias) or None

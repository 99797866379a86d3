"""The plan of a theta join.

:func:`plan_theta` is the one place that decides.  It knows the condition with its types and a few facts about the
inputs, and no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dovetail.conditions.comparison import Comparison, KeyType, Step, build_step
from dovetail.conditions.durations import CountWindow, TimeWindow
from dovetail.conditions.forms import Equality, Inequality, Predicate
from dovetail.conditions.join_kind import How
from dovetail.conditions.literals import literal_sql
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, PredicateError, UnboundedJoinError, listing, unknown_alias
from dovetail.families.theta.spec import Options

Mode = Literal["batch", "window", "beside"]


@dataclass(frozen=True)
class Facts:
    """What the planner knows of the inputs: which are streams, their types, the session's shuffle partitions."""

    streams: frozenset[str]
    equalities: tuple[tuple[Equality, KeyType], ...]
    comparisons: tuple[tuple[Comparison, KeyType], ...]
    shuffle_partitions: int


@dataclass(frozen=True)
class ThetaStep:
    """One two-sided join: its condition in kernel form and every choice about how to run it.

    `mirror` is the same condition with the other input as the points, which a full join needs.  `point_filter` and
    `mirror_filter` are conditions on the points alone, and in a full join on the boxes alone, that must not drop
    them, because unmatched rows count.
    """

    left: tuple[str, ...]
    right: str
    step: Step
    mirror: Step
    options: Options
    rests: tuple[str, ...] = ()
    point_filter: str | None = None
    mirror_filter: str | None = None
    shuffle_partitions: int = 1
    sampled: bool = True
    broadcast: bool = False
    condition: str = ""

    @property
    def kernel_options(self) -> Options:
        """The options as the points see them: a right join is a left join of the right input."""
        return replace(self.options, how="left") if self.options.how == "right" else self.options

    def with_how(self, how: How) -> ThetaStep:
        """The same step with another `how`."""
        return replace(self, options=replace(self.options, how=how))

    def mirrored(self, how: How) -> ThetaStep:
        """The same condition seen from the right input, which becomes the left one."""
        turned = replace(self.mirror, swapped=False)
        options = replace(self.options, how=how)
        return replace(
            self,
            step=turned,
            point_filter=self.mirror_filter,
            mirror_filter=self.point_filter,
            options=options,
        )


@dataclass(frozen=True)
class ThetaPlan:
    """What a call will do; :meth:`text` puts it into words."""

    mode: Mode
    inputs: tuple[str, ...]
    streams: frozenset[str]
    predicate: Predicate
    filters: tuple[tuple[str, str], ...]
    """(alias, condition) that drops rows of an input before the join."""
    steps: tuple[ThetaStep, ...]
    window: CountWindow | TimeWindow | None = None

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        from dovetail.plan.theta_text import plan_text

        return plan_text(self)

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        window = self.window
        assert window is not None
        rows = f"{window.rows} rows" if isinstance(window, CountWindow) else f"{window.every} microseconds"
        return {
            "join": "a theta join in windows",
            "inputs": ", ".join(self.inputs),
            "condition": bare(self.predicate.sql),
            "how": self.steps[0].options.how,
            "time": "" if isinstance(window, CountWindow) else window.time,
            "window": rows,
        }


def plan_theta(
    inputs: tuple[str, ...],
    predicate: Predicate,
    facts: Facts,
    options: Options,
    *,
    window: CountWindow | TimeWindow | None,
    broadcast: str | None,
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
    if len(inputs) > 2 and options.how != "inner":
        raise ArgumentError(
            f"how={options.how!r} with {len(inputs)} inputs", accepted="how='inner' for more than two inputs",
            hint="join two of them first, and join the result with the third",
        )  # fmt: skip
    order = _join_order(inputs, predicate)
    mode, beside = _mode(inputs, facts, options, window, broadcast)
    steps = []
    for at in range(1, len(order)):
        left, right = tuple(order[:at]), order[at]
        steps.append(_step(left, right, order, predicate, facts, options, beside=beside, sample=sample))
    kept = _preserved(order, options.how)
    if isinstance(window, CountWindow):
        # A row that was dropped would not count, and every window after it would begin elsewhere.
        kept = frozenset(inputs)
    filters = tuple((f.alias, f.sql) for f in predicate.filters if f.alias not in kept)
    return ThetaPlan(mode, inputs, facts.streams, predicate, filters, tuple(steps), window)


def _preserved(order: list[str], how: How) -> frozenset[str]:
    """Inputs whose rows come out even without a match, so that no condition may drop them."""
    kept = {"left": order[:1], "anti": order[:1], "right": order[1:2], "full": order[:2]}
    return frozenset(kept.get(how, []))


def _join_order(inputs: tuple[str, ...], predicate: Predicate) -> list[str]:
    """The first input, then always the first one that a condition connects to those before it."""
    edges = predicate.edges()
    order = [inputs[0]]
    while len(order) < len(inputs):
        reached = [a for a in inputs if a not in order and any(a in e and e & set(order) for e in edges)]
        if not reached:
            apart = [a for a in inputs if a not in order]
            raise PredicateError(
                f"no equality, inequality or band connects {listing(order)} with {listing(apart)}",
                accepted="a condition such as A.x < B.y, A.k = B.k or ABS(A.x - B.y) <= 5 for every input",
                hint="for a condition of another kind, Spark's own crossJoin and filter do what can be done",
            )
        order.append(reached[0])
    return order


def _mode(
    inputs: tuple[str, ...],
    facts: Facts,
    options: Options,
    window: CountWindow | TimeWindow | None,
    broadcast: str | None,
) -> tuple[Mode, str | None]:
    """How the join runs, and the input that goes to every task whole, if one does."""
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
            _check_beside(broadcast, inputs, options, "broadcast=")
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
    _check_beside(static[0], inputs, options, "the static input")
    return "beside", static[0]


def _check_beside(small: str, inputs: tuple[str, ...], options: Options, what: str) -> None:
    """Refuse what cannot be decided one task at a time: which rows of the small side nobody matched."""
    if len(inputs) > 2:
        raise ArgumentError(f"{what} {small!r} with {len(inputs)} inputs", accepted="two inputs")
    kept = _preserved(list(inputs), options.how)
    emitted = inputs[0] if options.how == "semi" else None
    if small in kept or small == emitted:
        other = inputs[0] if small == inputs[1] else inputs[1]
        raise ArgumentError(
            f"how={options.how!r} keeps or counts rows of {small!r}, {what}, which every task would report again",
            accepted=f"a join that keeps rows of {other!r} only",
        )
    if options.algorithm != "auto":
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
    beside: str | None,
    sample: bool,
) -> ThetaStep:
    both = {*left, right}
    equalities = [(e, t) for e, t in facts.equalities if _reaches(e.left.alias, e.right.alias, left, right)]
    comparisons = [(c, t) for c, t in facts.comparisons if _reaches(c.left.alias, c.right.alias, left, right)]
    if options.algorithm != "auto" and not comparisons:
        raise PredicateError(
            f"algorithm={options.algorithm!r} partitions by an inequality or a band, and none connects "
            f"{right!r} with {listing(left)}",
            accepted="algorithm='auto' for equalities alone",
        )
    orient: How = options.how
    if beside is not None:
        # The small side is looked up, so the other one provides the points.
        orient = "right" if beside in left else "left"
    step = build_step(equalities, comparisons, left=frozenset(left), how=orient)
    mirror = build_step(equalities, comparisons, left=frozenset(left), how="right")
    rests = tuple(
        r.sql for r in predicate.rests
        if (right in r.aliases and r.aliases <= both) or (not r.aliases and right == order[1])
    )  # fmt: skip
    kept = _preserved(order, options.how)
    points, other = (right, left[0]) if step.swapped else (left[0], right)
    if options.how == "full":
        points, other = left[0], right
    return ThetaStep(
        left=left,
        right=right,
        step=step,
        mirror=mirror,
        options=options,
        rests=rests,
        point_filter=_filter_of(predicate, points) if points in kept else None,
        mirror_filter=_filter_of(predicate, other) if other in kept else None,
        shuffle_partitions=options.partitions
        if options.algorithm == "auto" and options.partitions
        else facts.shuffle_partitions,
        # Prefap and its rivals partition by what the data holds; they cannot do without looking.
        sampled=sample or options.algorithm != "auto",
        broadcast=beside is not None,
        condition=" AND ".join(
            [e.sql for e, _ in equalities] + [_short(c) for c, _ in comparisons] + [f"({sql})" for sql in rests]
        ),
    )


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

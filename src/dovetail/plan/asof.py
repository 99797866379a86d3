"""The plan of an as-of join.

:func:`plan_asof` is the one place that decides.  It knows the call, the types of the columns and a few facts about the
inputs, and no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dovetail.columns.sampling import DENSE
from dovetail.conditions.comparison import KeyType
from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.names import readable
from dovetail.errors import ArgumentError, UnboundedJoinError, UnsupportedTypeError, unknown_alias
from dovetail.families.asof.spec import RIGHT, AsofSpec, Options, Within, distance
from dovetail.plan.asof_columns import Columns, Conditions, DerivedColumn, Facts, Names, Segments
from dovetail.plan.broadcast import Small, check_broadcast, smallest

Mode = Literal["batch", "stream", "broadcast"]


@dataclass(frozen=True)
class AsofPlan:
    """What a call will do; :meth:`text` puts it into words."""

    mode: Mode
    inputs: tuple[str, str]
    streams: frozenset[str]
    columns: Columns
    keys: tuple[KeyType, ...]
    time: KeyType
    compared: Names
    """For each input the columns that hold the keys and, last, the time."""
    options: Options
    within: int | float | None
    given_within: Within | None
    sampled: bool
    shuffle_partitions: int
    spec: AsofSpec
    """The join as its kernels know it."""
    derived: tuple[tuple[DerivedColumn, ...], tuple[DerivedColumn, ...]]
    """What a segment of each side has behind its payload."""
    filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Conditions over one input that its rows must satisfy to take part, as Spark SQL."""
    conditions: Conditions | None = None
    small: Small | None = None
    """The right input, where it is broadcast for its size."""

    @property
    def keyed(self) -> bool:
        """Whether rows have to agree on keys."""
        return bool(self.keys)

    @property
    def splits_cells(self) -> bool:
        """Whether a cell that is too large for its worker is joined in pieces: not while Spark judges its pairs."""
        return self.mode == "batch" and not self.spec.judged

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        left, right = self.inputs
        by = [f"{left}.{a} = {right}.{b}" for a, b in self._by()]
        lines = [f"as-of join, {self._mode_text()}, how={self.options.how!r}"]
        rows = [("for each", f"row of {left}, {self._wanted()}")]
        if by:
            rows.append(("where", " AND ".join(by)))
        if self.conditions is not None:
            rows += [(("where" if not by else "and"), readable(self.conditions.text))]
            if self.conditions.rests:
                rests = " AND ".join(f"({readable(sql)})" for sql in self.conditions.rests)
                rows.append(("Spark", f"judges every pair that agrees so far: {rests}"))
        order = ", then ".join([*self.columns.ties, "all its columns from left to right"])
        rows.append(("ties", f"of rows of {right} with equal {'keys and ' if by else ''}times the last one by {order}"))
        sorted_by = " by key and time" if self.keyed else " by time"
        looks = "searches from its time outward" if self.spec.picky else "looks up"
        rows.append(("kernel", f"{right} sorted{sorted_by}; {left} {looks}, unsorted"))
        rows.append(("routing", self._routing_text()))
        if self.mode == "stream":
            rows.append(("final", self._final_text()))
        return "\n".join([*lines, *[f"  {head:<10}{text}" for head, text in rows]])

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        exact = "" if self.options.allow_exact_matches else ", never at the same time"
        further = {} if self.conditions is None else {"condition": self.conditions.text}
        return {
            "join": "an as-of join",
            "inputs": ", ".join(self.inputs),
            "time": ", ".join(self.columns.time),
            "direction": f"{self.options.direction}{exact}",
            "tolerance": "" if self.within is None else str(self.within),
            "keys": ", ".join(f"{a} = {b}" for a, b in self._by()),
            "how": self.options.how,
            "rule for ties": ", ".join(self.columns.ties),
            **further,
        }

    def _by(self) -> list[tuple[str, str]]:
        """The columns that `by` names."""
        return [*zip(*self.columns.by, strict=True), *zip(*self.columns.nested, strict=True)]

    def _mode_text(self) -> str:
        if self.mode == "broadcast":
            return f"stream {self.inputs[0]} beside the whole of {self.inputs[1]}" if self.streams else "batch"
        return self.mode

    def _wanted(self) -> str:
        (a, b), (left, right) = self.columns.time, self.inputs
        exact = self.options.allow_exact_matches
        words = {
            "backward": f"the latest {right} {'at or before' if exact else 'before'}",
            "forward": f"the earliest {right} {'at or after' if exact else 'after'}",
            "nearest": f"the {right} nearest to{'' if exact else ', but not at,'}",
        }
        bound = "" if self.given_within is None else f", at most {self.given_within} away"
        return f"{words[self.options.direction]} its time ({left}.{a}, {right}.{b}){bound}"

    def _routing_text(self) -> str:
        tasks = f"{self.shuffle_partitions} shuffle partitions of packed segments"
        if self.mode == "broadcast":
            small = Small(self.inputs[1]) if self.small is None else self.small
            return f"no shuffle: {small.where}"
        if self.mode == "stream":
            return "by the hash of the keys" if self.keyed else "one cell, in one task"
        if not self.sampled:
            return f"by the hash of the keys, without a sample; {tasks}" if self.keyed else "one cell, in one task"
        what = "by the hash of the keys, heavy ones cut by time" if self.keyed else "ranges of time"
        return f"{what}, from a 1/{DENSE} sample of both sides, read within the same action; {tasks}"

    def _final_text(self) -> str:
        left, right = self.inputs
        text = f"a row of {left} leaves once the watermark has passed its time"
        if self.options.direction != "backward":
            text = (
                f"a row of {left} leaves once the watermark has passed every time at which a nearer {right} could come"
            )
        if not self.spec.kind.preserved[RIGHT]:
            return text
        ends = {True: ["the next one of its key"] if self.keyed else ["the next one"], False: ["its own time"]}
        ends_of = ends[self.options.direction != "forward"]
        if self.options.direction != "forward" and self.given_within is not None:
            ends_of = [*ends_of, f"its time + {self.given_within}"]
        return f"{text}; an unmatched row of {right} once it has passed {' or '.join(ends_of)}"


def _check_time(columns: Columns, facts: Facts, options: Options, within: Within | None) -> None:
    """Refuse times that cannot be ordered, or whose distances somebody asks for and nobody knows."""
    time = facts.time
    if time.ddl == "BOOLEAN":
        raise UnsupportedTypeError(
            "time= compares values of type BOOLEAN",
            accepted="timestamps, dates, times of day, day-time intervals, numbers, text or binary values",
        )
    if time.kind != "rank":
        return
    asked = "direction='nearest'" if options.direction == "nearest" else f"within={within!r}"
    if within is None and options.direction != "nearest":
        return
    if time.ddl in ("STRING", "BINARY"):
        raise UnsupportedTypeError(
            f"{asked}, but the time columns are of type {time.ddl}, whose values have an order and no distance",
            accepted="direction='backward' or 'forward' without within=",
            hint=f"cast them before the join, such as CAST({columns.time[0]} AS TIMESTAMP)",
        )
    if facts.conditions is not None and facts.conditions.between:
        raise UnsupportedTypeError(
            f"{asked} together with on= over both inputs, and times of type {time.ddl}",
            accepted="times of up to 18 digits, or direction='backward' or 'forward' without within=",
            hint=f"cast them before the join, such as CAST({columns.time[0]} AS DECIMAL(18,2))",
        )


def plan_asof(
    inputs: tuple[str, str], columns: Columns, facts: Facts, options: Options, within: Within | None
) -> AsofPlan:
    """Decide how an as-of join runs, or say why it cannot."""
    left, right = inputs
    _check_time(columns, facts, options, within)
    mode: Mode = "batch"
    conditions = facts.conditions
    kind = JoinKind.of(options.how)
    check_broadcast(options.broadcast)
    small = None
    if options.broadcast:
        if options.broadcast not in inputs:
            raise unknown_alias(str(options.broadcast), inputs, where=f"broadcast={options.broadcast!r}")
        if options.broadcast == left:
            raise ArgumentError(
                f"broadcast={left!r}, whose rows every task would report again", accepted=f"broadcast={right!r}"
            )
        if kind.preserved[RIGHT]:
            raise ArgumentError(
                f"broadcast={right!r} with how={options.how!r}: no task sees what the others choose from {right!r}",
                accepted="how='inner', 'left', 'semi' or 'anti', or no broadcast=",
            )
        mode = "broadcast"
    elif not facts.streams and not kind.preserved[RIGHT] and not options.shuffles:
        small = smallest(facts.sizes, [right], both=inputs)
        mode = "batch" if small is None else "broadcast"
    if facts.streams == {left}:
        if kind.preserved[RIGHT]:
            raise UnboundedJoinError(
                f"how={options.how!r} of the stream {left!r} with the static input {right!r}: "
                f"a row of {right!r} without a match might still find one, for ever",
                accepted="how='inner', 'left', 'semi' or 'anti', or two streams",
            )
        mode = "broadcast"
    elif facts.streams == {right}:
        raise ArgumentError(
            f"{right!r} is a stream and {left!r} is not, so the answer for {left!r} would change with every new row",
            accepted=f"two static inputs, two streams, or a stream {left!r} beside a static {right!r}",
        )
    elif facts.streams:
        if mode == "broadcast":
            raise ArgumentError(f"broadcast={right!r}, which is a stream", accepted="a static input to broadcast")
        mode = "stream"
        if options.direction != "backward" and within is None:
            raise UnboundedJoinError(
                f"direction={options.direction!r} of streams without within=: a row of {left!r} might wait for ever",
                accepted="within=, such as '1 hour', or direction='backward'",
            )
        if conditions is not None and conditions.rests and kind.preserved[RIGHT]:
            raise ArgumentError(
                f"on={conditions.text!r} of two streams with how={options.how!r} holds a condition that only Spark can "
                f"evaluate: {readable(conditions.rests[0])}. Spark's verdicts on the rows of {left!r} come one by one, "
                f"and none says that a row of {right!r} is nobody's match",
                accepted="how='inner', 'left', 'semi' or 'anti', or equalities, inequalities, differences within a "
                "bound and <> between columns of streams",
                hint="compute a column before the join, and compare it",
            )
        if conditions is not None and conditions.between and within is None:
            raise UnboundedJoinError(
                f"on={conditions.text!r} of streams without within=: any earlier row of {right!r} might be the best "
                "that satisfies it, so none could ever be forgotten",
                accepted="within=, such as '1 hour'",
            )
    bound = distance(within, facts.time)
    segments = Segments(inputs, columns, facts, options)
    spec = segments.spec(bound)
    return AsofPlan(
        mode=mode,
        inputs=inputs,
        streams=facts.streams,
        columns=columns,
        keys=(*facts.keys, *(key.kind for key in facts.computed_keys)),
        compared=segments.compared_names(spec),
        time=facts.time,
        options=options,
        within=bound,
        given_within=within,
        sampled=(not facts.keys if options.sample is None else options.sample) and mode == "batch" and spec.cuttable,
        shuffle_partitions=options.partitions or facts.shuffle_partitions,
        spec=spec,
        derived=segments.derived,
        filters=segments.filters,
        conditions=conditions,
        small=small,
    )

"""How a best-match join runs, decided before anything does."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dovetail.conditions.comparison import Key, Kind
from dovetail.conditions.criteria import Closest, Criterion, Prefer
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, UnboundedJoinError, is_whole, listing
from dovetail.families.bestmatch.router import SLICE, cut_axes
from dovetail.families.bestmatch.spec import Axis, BestSpec, Disorder, Options

STREAM_CELLS = 16
"""Cells of a stream.  Stored state depends on the number, so it must not follow the session."""


@dataclass(frozen=True)
class Typed:
    """A criterion, with what its types make of it.

    `keys` are the columns of both inputs from which a kernel computes it; `value` is an expression that only Spark can
    evaluate, on candidate pairs.
    """

    criterion: Criterion
    axis: Axis | None = None
    keys: tuple[Key, Key] | None = None
    elements: Kind | None = None
    value: str | None = None
    watermarked: bool = False
    """Whether both columns carry a watermark."""


@dataclass(frozen=True)
class Facts:
    """What the planner has to know of the inputs."""

    streams: frozenset[str]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    types: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]]
    by: tuple[tuple[Kind, Key, Key], ...] = ()
    marks: tuple[Key, Key] | None = None
    """The columns that promise how far a stream has come."""
    times: tuple[Key, Key] | None = None
    """The columns that `max_age` counts from."""
    timed: bool = False
    """Whether the times carry a watermark."""
    shuffle_partitions: int = 1


@dataclass(frozen=True)
class Stream:
    """What the user says about streams."""

    order: str | None = None
    read_ahead: int | None = None
    punctuation: str | None = None
    max_age: int | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        ahead = self.read_ahead
        if ahead is not None and not is_whole(ahead):
            raise ArgumentError(f"read_ahead={ahead!r}", accepted="a whole number of rows, 1 for a stream in order")
        if ahead is not None and self.punctuation is not None:
            raise ArgumentError("read_ahead= together with punctuation=", accepted="one of the two")
        if self.every is not None and self.max_age is None:
            raise ArgumentError("every= without max_age=", accepted="every= together with max_age=")
        if self.max_age is not None and (ahead is not None or self.punctuation is not None or self.order is not None):
            raise ArgumentError(
                "max_age= together with order=, read_ahead= or punctuation=",
                accepted="max_age= with time= alone: the watermark tells when an instant is over",
            )


@dataclass(frozen=True)
class BestPlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    criteria: tuple[Typed, ...]
    spec: BestSpec
    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    """Key columns of both inputs, in the order of the spec, and behind them marks or times."""
    by: tuple[tuple[Key, Key], ...]
    partitions: int
    sampled: bool

    @property
    def values(self) -> tuple[str, ...]:
        """Expressions that Spark evaluates on candidate pairs."""
        return tuple(typed.value for typed in self.criteria if typed.value is not None)

    @property
    def cells(self) -> int:
        """Cells that are known without a sample."""
        if not self.streams:
            return self.partitions
        return STREAM_CELLS if self._parallel() else 1

    def _parallel(self) -> bool:
        spec = self.spec
        if spec.disorder in ("ahead", "marks"):
            return False  # the order of arrival counts, and one task has to see all of it
        # Copies of a row have no numbers of their own, by which a full join knows what has left.
        return bool(spec.by) or (spec.max_age is None and spec.how in ("left", "right") and bool(cut_axes(spec)))

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        lines = [f"best-match join, {'stream' if self.streams else 'batch'}, how={self.spec.how!r}"]
        lines.append(f"  inputs      {', '.join(self.inputs)}")
        lines += [f"  criterion   {typed.criterion}{_role(typed)}" for typed in self.criteria]
        if self.by:
            lines.append(f"  by          {', '.join(left.sql.replace('`', '') for left, _ in self.by)}")
        if self.spec.keep:
            lines.append("  unmatched   rows without a candidate come out beside NULL")
        lines.append(f"  kernel      {self._kernel()}")
        lines.append(f"  routing     {self._routing()}")
        if self.streams or self.spec.max_age is not None:
            lines.append(f"  leaves      {self._leaves()}")
        if self.spec.memory is not None:
            lines.append(
                f"  memory      windows of more than {self.spec.memory} rows are joined from pages on local disk "
                f"({self.spec.materialise} materialisation, crabstep)"
            )
        return "\n".join(lines)

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        return {
            "join": "a best-match join",
            "inputs": ", ".join(self.inputs),
            "criteria": ", ".join(str(typed.criterion) for typed in self.criteria),
            "keys": ", ".join(bare(left.sql) for left, _ in self.by),
            "how": self.spec.how,
            "unmatched rows": "kept" if self.spec.keep else "dropped",
            "order of the streams": self._order(),
        }

    def _order(self) -> str:
        spec = self.spec
        if spec.max_age is not None:
            return f"rows up to {spec.max_age} microseconds old, every {spec.every}"
        return f"{spec.disorder}{f' of {spec.ahead} rows' if spec.disorder == 'ahead' else ''}"

    def _kernel(self) -> str:
        if self.values:
            return "lists the candidates; Spark evaluates its criteria on them, and the best of them stay"
        if self.spec.judges:
            return "lists the candidates; Python functions judge those that the other criteria leave open"
        if self.spec.how == "inner":
            return "skyline: each criterion gives up its cheapest pairs in turn, until one pair beats all that are left"
        return "tree: branch and bound for each row, skipping what is too far away or already beaten"

    def _routing(self) -> str:
        spec, where = self.spec, f"{self.partitions} shuffle partitions of packed segments"
        if self.streams:
            if self.cells == 1:
                return "all rows to one task"
            ways = "hash of the keys" if spec.by else f"strips of {SLICE} maximum distances, with copies at their edges"
            return f"{ways}; {self.cells} cells"
        if spec.max_age is not None:
            return f"hash of the keys; {where}" if spec.by else "all rows to one task"
        if not spec.by and not cut_axes(spec):
            if spec.how == "full":
                return "all rows to one task"
            return f"rows that answer are dealt out, the others go to every cell; {where}"
        order = " and ".join(
            [*(["hash of the keys"] if spec.by else []), *(["a maximum distance"] if cut_axes(spec) else [])]
        )
        how = "at quantiles of a sample read within the same action" if self.sampled else "without a sample"
        return f"cells cut by {order}, {how}; {where}"

    def _leaves(self) -> str:
        if self.spec.max_age is not None:
            when = f"every {self.spec.every / 1e6:g} s" if self.spec.every else "at every time at which a row arrives"
            return f"the answer over the last {self.spec.max_age / 1e6:g} s, {when}, in the column _time"
        told = {"watermark": "the watermark has", "ahead": f"{self.spec.ahead} row(s) of the other stream have",
                "marks": "a mark in the other stream has"}[self.spec.disorder or "watermark"]  # fmt: skip
        if self.spec.how == "inner":
            return "inserts and retractions in the column _change, as soon as the rows are there"
        return f"best pairs of a row, once {told} passed its last candidate; final"


def _role(typed: Typed) -> str:
    if typed.value is not None:
        return "  (by Spark, on candidate pairs)"
    return "  (by Python, on pairs that the others leave open)" if isinstance(typed.criterion, Prefer) else ""


def plan_bestmatch(
    inputs: tuple[str, ...],
    criteria: tuple[Typed, ...],
    facts: Facts,
    options: Options,
    stream: Stream,
    *,
    sample: bool,
) -> BestPlan:
    """Decide how a best-match join runs, or say why it cannot."""
    for alias in inputs:
        if alias.casefold() in ("_change", "_time"):
            raise ArgumentError(
                f"an input called {alias!r}", accepted="any other name: the result may have a column of this one"
            )
    values = any(typed.value is not None for typed in criteria)
    compiled = tuple(typed for typed in criteria if typed.axis is not None and typed.value is None)
    sets = tuple(typed for typed in criteria if typed.elements is not None)
    axes = (*(t.axis for t in compiled), *(t.axis for t in criteria if t.value is not None))
    static = [alias for alias in inputs if alias not in facts.streams]
    if facts.streams and static:
        raise ArgumentError(
            f"the stream {listing(facts.streams)} beside the static input {listing(static)}",
            accepted="two streams, or two static inputs",
            hint="inside foreachBatch every micro-batch is static, and joins with a static input",
        )
    if values and (facts.streams or options.unmatched == "keep" or stream.max_age is not None):
        which = next(str(typed.criterion) for typed in criteria if typed.value is not None)
        raise ArgumentError(
            f"the criterion {which}, which only Spark can evaluate, on streams, with max_age= or with unmatched='keep'",
            accepted="a column or the sum of an expression over each input, such as least('R.cost + S.cost')",
            hint="compute what concerns one input in a column of that input first",
        )
    if stream.order is not None and not any(
        isinstance(one.criterion, Closest) and stream.order in (one.criterion.left, one.criterion.right)
        for one in criteria
    ):
        raise _no_order(stream.order)
    order, disorder = _order(compiled, facts, stream) if facts.streams and stream.max_age is None else (None, None)
    if facts.streams and stream.max_age is not None and not facts.timed:
        raise UnboundedJoinError(
            "max_age= on streams without a watermark on the time column",
            accepted="streams with a watermark, such as frame.withWatermark('t', '10 seconds')",
        )
    spec = BestSpec(
        how=options.how,
        payload=(len(facts.names[0]), len(facts.names[1])),
        types=facts.types,
        by=tuple(kind for kind, _, _ in facts.by),
        axes=tuple(axis for axis in axes if axis is not None),
        sets=tuple(typed.elements for typed in sets if typed.elements is not None),
        judges=tuple(typed.criterion.judge for typed in criteria if isinstance(typed.criterion, Prefer)),
        aliases=(inputs[0], inputs[1]),
        names=facts.names,
        keep=options.unmatched == "keep",
        order=order,
        disorder=disorder,
        ahead=stream.read_ahead or 1,
        max_age=stream.max_age,
        every=stream.every,
        memory=options.memory,
        materialise=options.materialise,
        candidates=values,
    )
    keys = []
    for side in (0, 1):
        own = [(left, right)[side] for _, left, right in facts.by]
        own += [typed.keys[side] for typed in (*compiled, *sets) if typed.keys is not None]
        extra = facts.marks if disorder == "marks" else facts.times if stream.max_age is not None else None
        keys.append((*own, *([extra[side]] if extra is not None else [])))
    return BestPlan(
        inputs=inputs,
        streams=facts.streams,
        criteria=criteria,
        spec=spec,
        keys=(keys[0], keys[1]),
        by=tuple((left, right) for _, left, right in facts.by),
        partitions=options.partitions or facts.shuffle_partitions,
        sampled=sample and not facts.streams and stream.max_age is None,
    )


def _no_order(given: str) -> ArgumentError:
    return ArgumentError(
        f"order={given!r} is not the column of a criterion closest(..., within=...)",
        accepted="such a column, or None for the first of them",
    )


def _order(compiled: tuple[Typed, ...], facts: Facts, stream: Stream) -> tuple[int, Disorder]:
    """The axis on which streams are ordered, and what promises how far they have come."""
    bounded = {
        at: typed
        for at, typed in enumerate(compiled)
        if isinstance(typed.criterion, Closest) and typed.criterion.within is not None
    }
    if not bounded:
        raise UnboundedJoinError(
            "streams without a criterion that has a maximum distance: no pair would ever be final",
            accepted="closest(..., within=...) on the column by which the streams are ordered, or max_age=",
        )
    if stream.order is not None:
        bounded = {
            at: typed
            for at, typed in bounded.items()
            if isinstance(typed.criterion, Closest) and stream.order in (typed.criterion.left, typed.criterion.right)
        }
        if not bounded:
            raise _no_order(stream.order)
    if stream.read_ahead is not None:
        return next(iter(bounded)), "ahead"
    if stream.punctuation is not None:
        return next(iter(bounded)), "marks"
    for at, typed in bounded.items():
        if typed.watermarked:
            return at, "watermark"
    raise UnboundedJoinError(
        f"nothing tells how far the streams {listing(facts.streams)} have come on "
        f"{listing(str(typed.criterion) for typed in bounded.values())}",
        accepted="a watermark on the columns in both streams, read_ahead= (1 for streams in order), or punctuation=",
    )

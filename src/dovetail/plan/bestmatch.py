"""How a best-match join runs, decided before anything does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dovetail.columns.layout import CHANGE, INSTANT
from dovetail.conditions.comparison import Key
from dovetail.conditions.criteria import Closest, Criterion, Prefer, Within, closest
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, UnboundedJoinError, UnsupportedTypeError, is_whole, listing
from dovetail.families.bestmatch.router import SLICE, cut_axes
from dovetail.families.bestmatch.spec import BestSpec, Disorder, Options
from dovetail.plan.bestmatch_criteria import ColumnPair, CriterionFacts, Typed, distance, typed

STREAM_CELLS = 16
"""Cells of a stream.  Stored state depends on the number, so it must not follow the session."""


@dataclass(frozen=True)
class Facts:
    """What the planner has to know of the inputs."""

    streams: frozenset[str]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    types: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]]
    criteria: tuple[CriterionFacts, ...]
    by: tuple[ColumnPair, ...] = ()
    punctuation: ColumnPair | None = None
    """The columns that promise how far a stream has progressed."""
    times: ColumnPair | None = None
    """The columns from which `max_age` counts."""
    shuffle_partitions: int = 1


GRID = "grid"
"""In place of a lateness: the streams are in epsilon-grid order."""


@dataclass(frozen=True)
class StreamOptions:
    """What the user says about streams and time."""

    order: str | None = None
    read_ahead: int | None = None
    punctuation: str | None = None
    max_age: int | None = None
    time: str | None = None
    every: int | None = None
    lateness: Within | None = None
    """How far behind the largest value so far a row may lie; `GRID` for epsilon-grid order."""

    def __post_init__(self) -> None:
        for name, value in (("order", self.order), ("punctuation", self.punctuation), ("time", self.time)):
            if value is not None and not isinstance(value, str):
                raise ArgumentError(f"{name}={value!r}", accepted="the name of a column of both inputs")
        ahead = self.read_ahead
        if ahead is not None and not is_whole(ahead):
            raise ArgumentError(f"read_ahead={ahead!r}", accepted="a whole number of rows, 1 for a stream in order")
        if self.lateness is not None and self.lateness != GRID:
            try:
                closest("x", within=self.lateness)
            except ArgumentError:
                raise ArgumentError(
                    f"lateness={self.lateness!r}",
                    accepted=f"a number, a length of time such as '10 minutes', or {GRID!r}",
                ) from None
        promises = {"read_ahead": ahead, "punctuation": self.punctuation, "lateness": self.lateness}
        told = [name for name, value in promises.items() if value is not None]
        if len(told) > 1:
            raise ArgumentError(" together with ".join(f"{name}=" for name in told), accepted="one of them")
        if self.every is not None and self.max_age is None:
            raise ArgumentError("every= without max_age=", accepted="every= together with max_age=")
        if self.max_age is not None and (told or self.order is not None):
            raise ArgumentError(
                "max_age= together with order=, read_ahead=, lateness= or punctuation=",
                accepted="max_age= with time= only: the watermark says when an instant is over",
            )
        if (self.max_age is None) != (self.time is None):
            raise ArgumentError("max_age= without time=, or time= without max_age=", accepted="both or neither")


@dataclass(frozen=True)
class BestPlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    criteria: tuple[Typed, ...]
    spec: BestSpec
    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    """Key columns of both inputs, in the order of the spec, followed by punctuation or times."""
    by: tuple[tuple[Key, Key], ...]
    partitions: int
    sampled: bool

    @property
    def values(self) -> tuple[str, ...]:
        """Expressions that Spark evaluates on candidate pairs."""
        return tuple(criterion.value for criterion in self.criteria if criterion.value is not None)

    @property
    def cells(self) -> int:
        """Cells that are known without a sample."""
        if not self.streams:
            return self.partitions
        return STREAM_CELLS if self._parallel() else 1

    def _parallel(self) -> bool:
        spec = self.spec
        if spec.disorder not in ("watermark", None):
            return False  # the order of arrival counts, and one task has to see all of it
        # Copies of a row have no numbers of their own, by which a full join recognises pairs that have left.
        return bool(spec.by) or (spec.max_age is None and len(spec.answers) == 1 and bool(cut_axes(spec)))

    @property
    def splits_cells(self) -> bool:
        """Whether a cell that is too large for its worker is joined in pieces."""
        return not self.streams and self.spec.divisible

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        lines = [f"best-match join, {'stream' if self.streams else 'batch'}, how={self.spec.how!r}"]
        lines.append(f"  inputs      {', '.join(self.inputs)}")
        lines += [f"  criterion   {criterion.criterion}{_role(criterion)}" for criterion in self.criteria]
        if self.by:
            lines.append(f"  by          {', '.join(bare(left.sql) for left, _ in self.by)}")
        if self.spec.keep:
            lines.append("  unmatched   rows without a candidate come out with NULL")
        lines.append(f"  kernel      {self._kernel()}")
        lines.append(f"  routing     {self._routing()}")
        if self.streams or self.spec.max_age is not None:
            lines.append(f"  leaves      {self._leaves()}")
        if self.spec.memory is not None:
            lines.append(
                f"  memory      windows of more than {self.spec.memory} are joined from pages on local disk "
                f"({self.spec.materialise} materialisation, crabstep)"
            )
        return "\n".join(lines)

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        return {
            "join": "a best-match join",
            "inputs": ", ".join(self.inputs),
            "criteria": ", ".join(f"{criterion.criterion}{_stored_as(criterion)}" for criterion in self.criteria),
            "keys": ", ".join(bare(left.sql) for left, _ in self.by),
            "how": self.spec.how,
            "unmatched rows": "kept" if self.spec.keep else "dropped",
            "order of the streams": self._order(),
        }

    def _order(self) -> str:
        spec = self.spec
        if spec.max_age is not None:
            return f"rows up to {spec.max_age} microseconds old, every {spec.every}"
        if spec.disorder == "value":
            return f"value, at most {spec.lateness} behind"
        return f"{spec.disorder}{f' of {spec.ahead} rows' if spec.disorder == 'ahead' else ''}"

    def _kernel(self) -> str:
        if self.values:
            return "lists the candidates; Spark evaluates its criteria on them, and the best of them stay"
        if self.spec.judges:
            return "lists the candidates; Python functions compare those that the other criteria leave undecided"
        if self.spec.global_best:
            return "skyline: each criterion lists its cheapest pairs in turn, until one pair beats all that remain"
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
            if spec.both_answer:
                return "all rows to one task"
            return f"rows of {self.inputs[spec.home_side]} are divided evenly, the others go to every cell; {where}"
        order = " and ".join(
            [*(["hash of the keys"] if spec.by else []), *(["a maximum distance"] if cut_axes(spec) else [])]
        )
        how = "at quantiles of a sample read within the same action" if self.sampled else "without a sample"
        return f"cells cut by {order}, {how}; {where}"

    def _leaves(self) -> str:
        if self.spec.max_age is not None:
            when = f"every {self.spec.every / 1e6:g} s" if self.spec.every else "at every time at which a row arrives"
            return f"the answer over the last {self.spec.max_age / 1e6:g} s, {when}, in the column {INSTANT}"
        if self.spec.global_best:
            return f"inserts and retractions in the column {CHANGE}, as soon as the rows have arrived"
        passed = {"watermark": "the watermark has", "ahead": f"{self.spec.ahead} row(s) of the other stream have",
                  "value": "the largest value of the other stream, less its lateness, has",
                  "grid": "the cell that the other stream has come to has",
                  "marks": "punctuation in the other stream has"}[self.spec.disorder or "watermark"]  # fmt: skip
        return f"best pairs of a row, once {passed} passed its last candidate; final"


def _stored_as(criterion: Typed) -> str:
    """How the values of a criterion lie in stored state, where that is not the type that follows from its text."""
    ranked = criterion.axis is not None and criterion.axis.kind == "rank" and criterion.value is None
    return ", exact" if ranked else ""


def _role(criterion: Typed) -> str:
    if criterion.value is not None:
        return "  (by Spark, on candidate pairs)"
    return "  (by Python, on pairs that the others leave undecided)" if isinstance(criterion.criterion, Prefer) else ""


def plan_bestmatch(
    inputs: tuple[str, ...],
    criteria: Sequence[Criterion],
    facts: Facts,
    options: Options,
    stream: StreamOptions,
    *,
    sample: bool,
) -> BestPlan:
    """Decide how a best-match join runs, or say why it cannot."""
    _check_inputs(inputs, facts)
    typed_criteria = tuple(typed(criterion, known) for criterion, known in zip(criteria, facts.criteria, strict=True))
    compiled = tuple(one for one in typed_criteria if one.axis is not None and one.value is None)
    evaluated = tuple(one for one in typed_criteria if one.value is not None)
    sets = tuple(one for one in typed_criteria if one.elements is not None)
    if evaluated and (facts.streams or options.unmatched == "keep" or stream.max_age is not None):
        raise ArgumentError(
            f"the criterion {evaluated[0].criterion}, which only Spark can evaluate, "
            "on streams, with max_age= or with unmatched='keep'",
            accepted="a column or the sum of an expression over each input, such as least('R.cost + S.cost')",
            hint="compute what concerns one input in a column of that input first",
        )
    if stream.order is not None and not any(_orders(one, stream.order) for one in typed_criteria):
        raise _no_order(stream.order)
    order, disorder = _order(compiled, facts, stream) if facts.streams and stream.max_age is None else (None, None)
    times = _times(facts, stream)
    by = [(pair.common.kind, *pair.keys(pair.common.ddl)) for pair in facts.by if pair.common is not None]
    spec = BestSpec(
        how=options.how,
        payload=(len(facts.names[0]), len(facts.names[1])),
        types=facts.types,
        by=tuple(kind for kind, _, _ in by),
        axes=tuple(one.axis for one in (*compiled, *evaluated) if one.axis is not None),
        sets=tuple(one.elements for one in sets if one.elements is not None),
        judges=tuple(one.criterion.judge for one in typed_criteria if isinstance(one.criterion, Prefer)),
        aliases=(inputs[0], inputs[1]),
        names=facts.names,
        keep=options.unmatched == "keep",
        order=order,
        disorder=disorder,
        ahead=stream.read_ahead or 1,
        lateness=_lateness(typed_criteria, compiled, order, facts, stream) if disorder == "value" else 0,
        max_age=stream.max_age,
        every=stream.every,
        memory=options.memory,
        materialise=options.materialise,
        candidates=bool(evaluated),
    )
    last = times
    if disorder == "marks" and order is not None and facts.punctuation is not None:
        # In the type of the criterion that orders the streams.
        ordering = compiled[order].keys
        assert ordering is not None
        last = facts.punctuation.keys(ordering[0].ddl)
    keys = []
    for side in (0, 1):
        own = [(left, right)[side] for _, left, right in by]
        own += [one.keys[side] for one in (*compiled, *sets) if one.keys is not None]
        keys.append((*own, *([last[side]] if last is not None else [])))
    return BestPlan(
        inputs=inputs,
        streams=facts.streams,
        criteria=typed_criteria,
        spec=spec,
        keys=(keys[0], keys[1]),
        by=tuple((left, right) for _, left, right in by),
        partitions=options.partitions or facts.shuffle_partitions,
        sampled=sample and not facts.streams and stream.max_age is None,
    )


def _check_inputs(inputs: tuple[str, ...], facts: Facts) -> None:
    for alias in inputs:
        if alias.casefold() in (CHANGE, INSTANT):
            raise ArgumentError(
                f"an input called {alias!r}", accepted="any other name: the result may have a column of this one"
            )
    static = [alias for alias in inputs if alias not in facts.streams]
    if facts.streams and static:
        raise ArgumentError(
            f"the stream {listing(facts.streams)} together with the static input {listing(static)}",
            accepted="two streams, or two static inputs",
            hint="inside foreachBatch every micro-batch is static, and joins with a static input",
        )


def _times(facts: Facts, stream: StreamOptions) -> tuple[Key, Key] | None:
    """The columns from which ages are counted."""
    if facts.times is None:
        return None
    for alias, kind in zip(facts.times.aliases, facts.times.types, strict=True):
        if kind not in ("timestamp", "timestamp_ntz"):
            raise UnsupportedTypeError(
                f"time={stream.time!r} has the type {kind} in {alias!r}",
                accepted="a column of type timestamp or timestamp_ntz",
            )
    if facts.streams and not facts.times.watermarked:
        raise UnboundedJoinError(
            "max_age= on streams without a watermark on the time column",
            accepted="streams with a watermark, such as frame.withWatermark('t', '10 seconds')",
        )
    if facts.streams:
        _check_one_clock(f"time={stream.time!r}", facts.times.types)
    assert facts.times.common is not None
    return facts.times.keys(facts.times.common.ddl)


def _check_one_clock(what: str, types: tuple[str, str]) -> None:
    """Refuse watermarks of two kinds: Spark takes the smaller one, though only one of them counts in the zone."""
    if types[0] != types[1]:
        raise UnsupportedTypeError(
            f"{what} has the types {types[0]} and {types[1]} in two streams", accepted="one type of timestamp in both"
        )


def _orders(criterion: Typed, column: str) -> bool:
    """Whether a criterion is a distance in that column."""
    closest = criterion.criterion
    return isinstance(closest, Closest) and column in (closest.left, closest.right)


def _lateness(
    criteria: tuple[Typed, ...], compiled: tuple[Typed, ...], order: int | None, facts: Facts, stream: StreamOptions
) -> int | float:
    """How far behind rows may be, in the unit of the criterion that orders the streams."""
    assert order is not None
    assert stream.lateness is not None
    ordering = compiled[order]
    columns = facts.criteria[criteria.index(ordering)]
    assert isinstance(ordering.criterion, Closest)
    assert isinstance(columns, ColumnPair)
    assert columns.common is not None
    return distance(ordering.criterion, stream.lateness, columns.common, "lateness")


def _no_order(given: str) -> ArgumentError:
    return ArgumentError(
        f"order={given!r} is not the column of a criterion closest(..., within=...)",
        accepted="such a column, or None for the first of them",
    )


def _order(compiled: tuple[Typed, ...], facts: Facts, stream: StreamOptions) -> tuple[int, Disorder]:
    """The axis on which streams are ordered, and what promises how far they have progressed."""
    bounded = {
        at: criterion
        for at, criterion in enumerate(compiled)
        if isinstance(criterion.criterion, Closest) and criterion.criterion.within is not None
    }
    if not bounded:
        raise UnboundedJoinError(
            "streams without a criterion that has a maximum distance: no pair would ever be final",
            accepted="closest(..., within=...) on the column by which the streams are ordered, or max_age=",
        )
    if stream.order is not None:
        bounded = {at: criterion for at, criterion in bounded.items() if _orders(criterion, stream.order)}
        if not bounded:
            raise _no_order(stream.order)
    if stream.read_ahead is not None:
        return next(iter(bounded)), "ahead"
    if stream.punctuation is not None:
        return next(iter(bounded)), "marks"
    if stream.lateness is not None:
        return next(iter(bounded)), "grid" if stream.lateness == GRID else "value"
    for at, criterion in bounded.items():
        if criterion.watermarked:
            assert criterion.types is not None
            _check_one_clock(str(criterion.criterion), criterion.types)
            return at, "watermark"
    raise UnboundedJoinError(
        f"nothing says how far the streams {listing(facts.streams)} have progressed on "
        f"{listing(str(criterion.criterion) for criterion in bounded.values())}",
        accepted="a watermark on the columns in both streams, lateness=, read_ahead= (1 for streams in order) or "
        "punctuation=",
    )

"""The plan of a window join.

:func:`plan_window` decides.  It knows the condition with its types, the windows and a few facts about the inputs, and
no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from dovetail.conditions.comparison import Key
from dovetail.conditions.durations import duration, in_words
from dovetail.conditions.forms import Predicate
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, UnboundedJoinError, is_whole, listing, unknown_alias
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import KEEP_UP, RandomDrop, Shed
from dovetail.families.window.graph import Graph, Length
from dovetail.families.window.pieces import is_band
from dovetail.families.window.router import choose_grid
from dovetail.families.window.spec import Conditions, Grid, Options, build_conditions
from dovetail.plan.theta import Facts

EXHAUSTIVE = 2000
"""Settings of one direction of a join that an exhaustive search goes through at most."""
CELLS_PER_TASK = 4
"""Cells of a batch join per shuffle partition: a task holds one cell at a time."""
CELLS_PER_STREAMING_TASK = 2
"""The results of one cell travel on while the next one is joined; every further cell costs calls of the state store."""
CELLS_PER_SHEDDING_TASK = 1
"""Cells of one task would take turns, and each would take the time of the others for one that it cannot shorten."""


@dataclass(frozen=True)
class WindowPlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    predicate: Predicate
    conditions: Conditions
    graph: Graph
    options: Options
    times: tuple[str, ...]
    """The time column of each input."""
    numeric: bool
    cells: int
    partitions: int
    grid: Grid | None
    filters: tuple[tuple[str, str], ...]
    """(alias, condition) that drops rows of an input before the join."""
    rests: tuple[str, ...]
    """Conditions that only Spark evaluates, on matches."""
    delays: tuple[int, ...]
    idle: int | None
    shed: Shed | None = None
    slices: Slices | None = None
    """The slices of the windows, where load is shed."""

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        kind = "stream" if self.streams else "batch"
        lines = [f"window join, {kind}, how={self.options.how!r}", f"  inputs      {', '.join(self.inputs)}"]
        lines += [f"  first       {alias} keeps rows where {bare(sql)}" for alias, sql in self.filters]
        lines += [f"  window      {text}" for text in self._windows()]
        if self.predicate.sql != "TRUE":
            lines.append(f"  where       {bare(self.predicate.text)}")
        lines.append(f"  kernel      {self._kernel()}")
        lines.append(f"  routing     {self._routing()}")
        if self.streams:
            lines += [f"  state       {text}" for text in self._state()]
        lines += [f"  shed        {text}" for text in self._shed()]
        if self.rests:
            lines.append(f"  then        Spark evaluates {bare(' AND '.join(self.rests))} on what the kernel finds")
        return "\n".join(lines)

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        return {
            "join": "a window join",
            "inputs": ", ".join(self.inputs),
            "condition": bare(self.predicate.sql),
            "how": self.options.how,
            "time": ", ".join(self.times),
            "window": self._bounds(),
            "number of partitions": str(self.cells),
        }

    def _bounds(self) -> str:
        """The windows as numbers: unlike words, they are spelled the same in every version."""
        unit = "" if self.numeric else " microseconds"
        return " or ".join(
            ", ".join(f"{self.inputs[j]} {low} to {high}{unit} after {self.inputs[i]}" for (i, j), (low, high) in given)
            for given in self.graph.given
        )

    def _length(self, value: int) -> str:
        if self.numeric:
            return str(value)
        return in_words(value)

    def _windows(self) -> list[str]:
        texts = []
        for at, bounds in enumerate(self.graph.given):
            if at:
                texts.append("or, the other way round")
            for (i, j), (low, high) in bounds:
                one, other = self.inputs[i], self.inputs[j]
                if low == -high:
                    texts.append(f"{one} and {other} at most {self._length(high)} apart")
                elif low == 0:
                    texts.append(f"{other} at most {self._length(high)} after {one}")
                elif high == 0:
                    texts.append(f"{one} at most {self._length(-low)} after {other}")
                else:
                    texts.append(f"{other} from {self._length(low)} to {self._length(high)} after {one}")
        given = {pair for bounds in self.graph.given for pair, _ in bounds}
        hull = self.graph.hull
        for i in range(len(self.inputs)):
            for j in range(i + 1, len(self.inputs)):
                if (i, j) not in given:
                    first, last = (self._length(int(value)) for value in hull[i, j])
                    reach = f"{self.inputs[j]} from {first} to {last} after {self.inputs[i]}"
                    texts.append(f"{reach}, by the shortest path")
        return texts

    def _kernel(self) -> str:
        if self.options.algorithm != "auto":
            names = {"nested": "nested loop", "hash": "hash", "merge": "merge"}
            return f"{names[self.options.algorithm]} W-join, {self.options.approach} windows, a row at a time"
        if self.conditions.classes:
            return "index of time within key; the input with the fewest rows in its window is looked up first"
        if self.conditions.equalities or any(is_band(c) for c in self.conditions.comparisons):
            return "index of time within equal keys or buckets of a band, whichever links two inputs"
        return "index of time alone: no equality and no band narrows it down"

    def _routing(self) -> str:
        where = f"{self.cells} cells of packed segments"
        if self.grid is not None and self.grid.keys is None:
            by = "key and slice of time" if self.conditions.classes else "slice of time"
            return f"by {by}, rows near a border to both slices; {where}"
        if self.grid is not None:
            return f"by slice of the value that the bands share, rows near a border to both slices; {where}"
        if self.conditions.classes:
            return f"by hash of the keys; {where}"
        return "all rows to one cell: no equality or band connects all inputs"

    def _shed(self) -> list[str]:
        if self.shed is None or self.slices is None:
            return []
        shed = self.shed
        if shed.throttle is not None:
            when = f"always down to {shed.throttle:g} of the full work"
        elif shed.target == KEEP_UP:
            when = "only where a micro-batch takes longer than its rows took to arrive"
        else:
            when = f"only where a micro-batch takes longer than {shed.target:g} s"
        if isinstance(shed, RandomDrop):
            return [when, "rows dropped at random, each input at the rate that loses least output"]
        texts = [
            when,
            f"work, not rows: slices of {self._length(self.slices.width)} where matches are unlikely are not looked at",
            f"slices chosen {shed.method} by {shed.metric}, from one histogram for each {shed.histograms}",
            f"{shed.sample:.0%} of the rows look everywhere, to learn where matches are and to estimate the recall",
        ]
        if shed.memory == "selected":
            texts.append("rows that no direction will look at leave the state early, except one in five")
        elif shed.memory is not None:
            texts.append(f"state of at most {shed.memory:,} bytes, {shed.memory // self.cells:,} in a cell")
        return texts

    def _state(self) -> list[str]:
        hull = self.graph.hull
        texts = []
        for side, alias in enumerate(self.inputs):
            longest = max(int(hull[side, other, 1]) for other in range(len(self.inputs)) if other != side)
            late = self._length(self.delays[side])
            texts.append(
                f"{alias} for {self._length(max(longest, 0))} beyond the others' watermarks, late after {late}"
            )
        if self.idle is not None:
            texts.append(f"an input that falls behind by more than {self._length(self.idle)} is not waited for")
        return texts


def plan_window(
    inputs: tuple[str, ...],
    predicate: Predicate,
    facts: Facts,
    options: Options,
    graph: Graph,
    *,
    times: tuple[str, ...],
    numeric: bool,
    delays: tuple[int, ...],
    idle: int | None,
    shed: Shed | None = None,
) -> WindowPlan:
    """Decide how a window join runs, or say why it cannot.

    Parameters
    ----------
    inputs
        The aliases, in the user's order.
    predicate, facts, options, graph
        What to join, what is known of the inputs, what the user asked for, and the windows.
    times, numeric
        The time column of each input, and whether it holds whole numbers.
    delays, idle
        How late rows may be, and when an input is no longer waited for.
    shed
        How to shed load, if at all.
    """
    how = options.how
    slices = None if shed is None else _slices(shed, facts, options, graph, numeric=numeric)
    if len(inputs) > 2 and how != "inner":
        raise ArgumentError(
            f"how={how!r} with {len(inputs)} inputs", accepted="how='inner' for more than two inputs",
            hint="join two of them first, and join the result with the third",
        )  # fmt: skip
    static = [alias for alias in inputs if alias not in facts.streams]
    if static and facts.streams:
        raise ArgumentError(
            f"the static input(s) {listing(static)} beside the stream(s) {listing(facts.streams)}",
            accepted="inputs that are all streams or all static",
            hint="join a stream with a static input by theta_join, with a band on the two times",
        )
    rests = tuple(rest.sql for rest in predicate.rests)
    if rests and how != "inner":
        raise ArgumentError(
            f"how={how!r} with the condition {bare(rests[0])}, which only Spark can evaluate",
            accepted="how='inner' with any condition, or another how with comparisons of two inputs only",
            hint="move a condition on one input into a filter of that input",
        )
    conditions = build_conditions(inputs, facts.equalities, facts.comparisons)
    kept = {"left": inputs[:1], "anti": inputs[:1], "right": inputs[1:], "full": inputs}.get(how, ())
    for alias in kept:
        # Such a row must not be dropped, only kept from matching: a key that is NULL does that.
        hidden = " AND ".join(f"({f.sql})" for f in predicate.filters if f.alias == alias)
        if hidden:
            at = inputs.index(alias)
            extra = Key(f"CASE WHEN {hidden} THEN 0L END", "BIGINT", alias)
            keys = list(conditions.keys)
            keys[at] = (*keys[at], extra)
            conditions = replace(conditions, keys=tuple(keys))
    streaming = bool(facts.streams)
    grid = choose_grid(conditions, graph, how, streaming=streaming, numeric=numeric)
    partitions = options.partitions or facts.shuffle_partitions
    spread = conditions.classes or grid is not None
    per_task = CELLS_PER_STREAMING_TASK if streaming else CELLS_PER_TASK
    if shed is not None:
        per_task = CELLS_PER_SHEDDING_TASK
    cells = per_task * partitions if spread else 1
    return WindowPlan(
        inputs=inputs,
        streams=facts.streams,
        predicate=predicate,
        conditions=conditions,
        graph=graph,
        options=options,
        times=times,
        numeric=numeric,
        cells=cells,
        partitions=partitions,
        grid=grid,
        filters=tuple((f.alias, f.sql) for f in predicate.filters if f.alias not in kept),
        rests=rests,
        delays=delays,
        idle=idle,
        shed=shed,
        slices=slices,
    )


def _slices(shed: Shed, facts: Facts, options: Options, graph: Graph, *, numeric: bool) -> Slices:
    """The slices of a join that sheds, or why it cannot."""
    if not facts.streams:
        raise ArgumentError("shed= with static inputs", accepted="streams: static inputs set no pace to keep up with")
    if options.how not in ("inner", "semi"):
        raise ArgumentError(
            f"shed= with how={options.how!r}", accepted="how='inner' or 'semi'",
            hint="a row whose match was shed would come out as one without a match",
        )  # fmt: skip
    if options.algorithm not in ("auto", "nested"):
        raise ArgumentError(f"shed= with algorithm={options.algorithm!r}", accepted="algorithm='auto' or 'nested'")
    if isinstance(shed, RandomDrop):
        return Slices.of(graph.hull)
    if shed.memory is not None and options.how != "inner":
        raise ArgumentError(f"memory={shed.memory!r} with how={options.how!r}", accepted="how='inner' with memory=")
    width = None if shed.basic_window is None else wait(shed.basic_window, "basic_window", numeric=numeric)
    slices = Slices.of(graph.hull, None if width is None else max(1, width))
    settings = slices.most ** (len(graph.aliases) - 1)
    if shed.method == "exhaustive" and settings > EXHAUSTIVE:
        raise ArgumentError(
            f"method='exhaustive' with {settings:,} settings of each of {len(graph.aliases)} directions",
            accepted=f"at most {EXHAUSTIVE:,} of them, or method='double-sided'", hint="give a longer basic_window",
        )  # fmt: skip
    return slices


def read_delays(
    lateness: Length | Mapping[str, Length] | None,
    watermarks: Mapping[str, int | None],
    times: Mapping[str, str],
    streams: Sequence[str],
    *,
    numeric: bool,
) -> tuple[int, ...]:
    """How late rows of each input may be: as the argument says, else as the input's own watermark says."""
    given: dict[str, Length] = {}
    if isinstance(lateness, Mapping):
        for alias, value in lateness.items():
            if alias not in watermarks:
                raise unknown_alias(str(alias), watermarks, where="lateness=")
            given[alias] = value
    elif lateness is not None:
        given = dict.fromkeys(watermarks, lateness)
    delays = []
    for alias, watermark in watermarks.items():
        if alias in given:
            delays.append(wait(given[alias], "lateness", numeric=numeric))
        elif watermark is not None or alias not in streams:
            delays.append(watermark or 0)
        else:
            name = times[alias]
            cure = f"lateness={{{alias!r}: 10}}" if numeric else f"frame.withWatermark({name!r}, '10 seconds')"
            raise UnboundedJoinError(
                f"the stream {alias!r} has no watermark on {name!r}, so no row of the others could ever go",
                accepted=f"a stream with a watermark, such as {cure}, or lateness=",
            )
    return tuple(delays)


def wait(value: object, argument: str, *, numeric: bool) -> int:
    """A length of time that may be zero, in units of the time columns."""
    if numeric:
        if not isinstance(value, int) or not is_whole(value, least=0):
            raise ArgumentError(
                f"{argument}={value!r}", accepted="a whole number of at least 0, as the time columns hold"
            )
        return value
    if value in (0, timedelta(0)) and not isinstance(value, bool):
        return 0
    return duration(value, argument=argument)  # type: ignore[arg-type]

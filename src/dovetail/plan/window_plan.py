"""What was decided about a window join, and the plan in words.  :mod:`dovetail.plan.window` decides."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.conditions.components import components
from dovetail.conditions.durations import in_words
from dovetail.conditions.forms import Predicate
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare
from dovetail.conditions.roles import Roles
from dovetail.errors import listing
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import KEEP_UP, Harvest, RandomDrop, Shed
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.plan.further import FurtherJoin


@dataclass(frozen=True)
class WindowPlan:
    """What a call will do; :meth:`text` puts it into words."""

    spec: WindowJoinSpec
    streams: frozenset[str]
    predicate: Predicate
    times: tuple[str, ...]
    """The time column of each input."""
    numeric: bool
    partitions: int
    filters: tuple[tuple[str, str], ...]
    """(alias, condition) that drops rows of an input before the join."""
    rests: tuple[str, ...]
    """Conditions that only Spark evaluates, on matches."""
    asked: How | Roles | None = None
    """What the user asked for, where the spec says it in other words."""
    verdicts: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Conditions that Spark evaluates on candidates, before it is known what has no match: those on the matches of
    the core (number -1), and by extra input those on rows that complete them."""
    tables: tuple[FurtherJoin, ...] = ()
    """Static inputs that are joined with what the streams give."""
    shed: Shed | None = None
    slices: Slices | None = None
    """The slices of the windows, where load is shed."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The aliases, in the user's order."""
        return self.spec.aliases

    @property
    def judged(self) -> tuple[str, ...]:
        """Conditions that only Spark evaluates, wherever it does."""
        return self.rests + tuple(sql for _, conditions in self.verdicts for sql in conditions)

    @property
    def scouted(self) -> bool:
        """Whether slices are chosen by the results of a sample that Spark judges first."""
        return isinstance(self.shed, Harvest) and bool(self.judged)

    @property
    def how(self) -> str:
        """What the user asked for, spelled one way."""
        how = self.asked or self.spec.options.how
        return how if isinstance(how, str) else how.text(self.inputs)

    @property
    def splits_cells(self) -> bool:
        """Whether a cell that is too large for its worker is joined slice by slice: static rows, all judged here."""
        return not self.streams and not self.verdicts and self.spec.options.algorithm == "auto"

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        return _text(self)

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        identity = {
            "join": "a window join",
            "inputs": ", ".join(self.inputs),
            "condition": bare(self.predicate.sql),
            "how": self.how,
            "time": ", ".join(self._times()),
            "window": self._bounds(),
            "number of partitions": str(self.spec.cells),
        }
        # The scout has state of its own: with or without it, a query has other operators.
        return {**identity, "shedding": "by the results of a sample"} if self.scouted else identity

    def _times(self) -> list[str]:
        """The time columns; a date that is compared as an instant is stored as one, too."""
        spec = self.spec
        as_instant = [spec.times[side] >= spec.payload[side] for side in spec.sides]
        return [f"{name} as timestamp" if cast else name for name, cast in zip(self.times, as_instant, strict=True)]

    def _bounds(self) -> str:
        """The windows as numbers: unlike words, they are spelled the same in every version."""
        unit = "" if self.numeric else " microseconds"
        return " or ".join(
            ", ".join(f"{self.inputs[j]} {low} to {high}{unit} after {self.inputs[i]}" for (i, j), (low, high) in given)
            for given in self.spec.graph.given
        )


def _text(plan: WindowPlan) -> str:
    """The plan as lines of text, most important first."""
    kind = "stream" if plan.streams else "batch"
    how = plan.how if plan.how.startswith("{") else repr(plan.how)
    lines = [f"window join, {kind}, how={how}{_every_pair(plan)}", f"  inputs      {', '.join(plan.inputs)}"]
    lines += [f"  first       {alias} keeps rows where {bare(sql)}" for alias, sql in plan.filters]
    lines += [f"  window      {text}" for text in _windows(plan)]
    if plan.predicate.sql != "TRUE":
        lines.append(f"  where       {bare(plan.predicate.text)}")
    lines += [f"  results     {text}" for text in _results(plan)]
    lines.append(f"  kernel      {_kernel(plan)}")
    lines.append(f"  routing     {_routing(plan)}")
    if plan.streams:
        lines += [f"  state       {text}" for text in _state(plan)]
    lines += [f"  shed        {text}" for text in _shed(plan)]
    if plan.verdicts:
        rests = " AND ".join(sql for _, conditions in plan.verdicts for sql in conditions)
        lines.append(f"  then        Spark evaluates {bare(rests)} on candidates, and what has no match is known")
    if plan.rests:
        lines.append(f"  then        Spark evaluates {bare(' AND '.join(plan.rests))} on what the kernel finds")
    lines += [f"  then        {table.text()}" for table in plan.tables]
    return "\n".join(lines)


def _every_pair(plan: WindowPlan) -> str:
    """Where Spark judges pairs that nothing but the window narrows down: that, and what would help."""
    spec = plan.spec
    if not plan.judged or spec.classes:
        return ""
    links = [equality.sides for equality in spec.equalities]
    links += [(comparison.point_side, comparison.box_side) for comparison in spec.comparisons]
    parts = components([*((side,) for side in spec.sides), *links])
    if len(parts) == 1:
        return ""
    apart = " with ".join(" x ".join(plan.inputs[side] for side in sorted(part)) for part in parts)
    return (
        f": EVERY PAIR WITHIN THE WINDOW IS COMPARED ({apart}); "
        "a comparison of a value of one with a value of the other would help: =, <, a band"
    )


def _length(plan: WindowPlan, value: int) -> str:
    return str(value) if plan.numeric else in_words(value)


def _windows(plan: WindowPlan) -> list[str]:
    texts = []
    graph = plan.spec.graph
    for number, bounds in enumerate(graph.given):
        if number:
            texts.append("or, the other way round")
        for (i, j), (low, high) in bounds:
            one, other = plan.inputs[i], plan.inputs[j]
            if low == -high:
                texts.append(f"{one} and {other} at most {_length(plan, high)} apart")
            elif low == 0:
                texts.append(f"{other} at most {_length(plan, high)} after {one}")
            elif high == 0:
                texts.append(f"{one} at most {_length(plan, -low)} after {other}")
            else:
                texts.append(f"{other} from {_length(plan, low)} to {_length(plan, high)} after {one}")
    given = {pair for bounds in graph.given for pair, _ in bounds}
    hull = graph.hull
    for i in range(len(plan.inputs)):
        for j in range(i + 1, len(plan.inputs)):
            if (i, j) not in given:
                first, last = (_length(plan, int(value)) for value in hull[i, j])
                reach = f"{plan.inputs[j]} from {first} to {last} after {plan.inputs[i]}"
                texts.append(f"{reach}, by the shortest path")
    return texts


def _results(plan: WindowPlan) -> list[str]:
    """What becomes of matches that some inputs lack, where inputs play different parts."""
    roles = plan.spec.roles
    if roles is None:
        return []
    texts = [f"matches of {listing(plan.inputs[side] for side in roles.core)}"]
    meanings = {
        "optional": "with the rows of {} that complete them, or NULL",
        "present": "where a row of {} completes them",
        "absent": "where no row of {} completes them",
    }
    texts += [meanings[role].format(a) for a, role in zip(plan.inputs, roles.roles, strict=True) if role in meanings]
    texts += [f"and rows of {plan.inputs[side]} that are in none of these, alone" for side in roles.kept]
    if plan.streams and (roles.filtering or roles.optional):
        texts.append(f"{'all' if roles.filtering else 'with NULL'} once the windows have closed")
    return texts


def _kernel(plan: WindowPlan) -> str:
    spec = plan.spec
    if spec.options.algorithm != "auto":
        names = {"pipeline": "pipelined nested-loop", "nested": "nested loop", "hash": "hash", "merge": "merge"}
        return f"{names[spec.options.algorithm]} W-join, {spec.options.approach} windows, a row at a time"
    if spec.classes:
        return "index of time within key; the input with the fewest rows in its window is looked up first"
    if spec.equalities or any(comparison.is_band for comparison in spec.comparisons):
        return "index of time within equal keys or buckets of a band, whichever links two inputs"
    return "index of time alone: no equality and no band narrows it down"


def _routing(plan: WindowPlan) -> str:
    spec = plan.spec
    cells = f"{spec.cells} cells of packed segments"
    if spec.grid is not None and spec.grid.keys is None:
        by = "key and slice of time" if spec.classes else "slice of time"
        return f"by {by}, rows near a border to both slices; {cells}"
    if spec.grid is not None:
        return f"by slice of the value that the bands share, rows near a border to both slices; {cells}"
    if spec.classes:
        return f"by hash of the keys; {cells}"
    return "all rows to one cell: no equality or band connects all inputs"


def _shed(plan: WindowPlan) -> list[str]:
    shed, slices = plan.shed, plan.slices
    if shed is None or slices is None:
        return []
    if shed.throttle is not None:
        when = f"always down to {shed.throttle:g} of the full work"
    elif shed.target == KEEP_UP:
        when = "only where a micro-batch takes longer than its rows took to arrive"
    else:
        when = f"only where a micro-batch takes longer than {shed.target:g} s"
    if isinstance(shed, RandomDrop):
        return [when, "rows dropped at random, each input at the rate that loses least output"]
    part = f"{shed.sample_fraction:.0%} of the rows"
    texts = [
        when,
        f"work, not rows: slices of {_length(plan, slices.width)} where matches are unlikely are not looked at",
        f"slices chosen {shed.method} by {shed.metric}, from one histogram for each {shed.histograms}",
        f"{part} look everywhere, to learn where matches are and to estimate the recall",
    ]
    if plan.scouted:
        texts[-1] = f"{part} look everywhere, to learn what the work is"
        texts.append("Spark judges a sample of the pairs first: their results say where to look, and the recall")
    if shed.keep == "selected":
        texts.append("rows that no direction will look at leave the state early, except one in five")
    if shed.limit is not None:
        texts.append(f"state of at most {shed.limit}, {shed.limit.amount // plan.spec.cells:,} in a cell")
    return texts


def _state(plan: WindowPlan) -> list[str]:
    spec = plan.spec
    texts = []
    for side, alias in enumerate(plan.inputs):
        longest = max(int(spec.hull[side, other, 1]) for other in spec.sides if other != side)
        late = _length(plan, spec.delays[side])
        texts.append(f"{alias} for {_length(plan, max(longest, 0))} beyond the others' watermarks, late after {late}")
    if spec.idle is not None:
        texts.append(f"an input that falls behind by more than {_length(plan, spec.idle)} is not waited for")
    return texts

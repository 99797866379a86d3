"""What was decided about a theta join: its steps, and the plan in words.  :mod:`dovetail.plan.theta` decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dovetail.columns.sampling import DENSE
from dovetail.conditions.comparison import Axis, Key, Step
from dovetail.conditions.durations import CountWindow, TimeWindow
from dovetail.conditions.forms import Predicate
from dovetail.conditions.join_kind import How, JoinKind
from dovetail.conditions.names import bare
from dovetail.families.theta.fitting import overlap_axes
from dovetail.families.theta.spec import Options, WindowSpec
from dovetail.plan.broadcast import Small

_LONGEST_TEXT = 80

Mode = Literal["batch", "window", "stream-static"]


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
    broadcast: Small | None = None
    condition: str = ""

    @property
    def kind(self) -> JoinKind:
        """What `how` means for the two inputs."""
        return self.options.kind

    @property
    def kernel_options(self) -> Options:
        """The options as the points see them: a right join is a left join of the right input."""
        return replace(self.options, how=self.kind.mirrored.how) if self.step.swapped else self.options

    def with_how(self, how: How) -> ThetaStep:
        """The same step with another `how`."""
        return replace(self, options=replace(self.options, how=how))

    def mirrored(self, how: How) -> ThetaStep:
        """The same condition seen from the right input, which becomes the left one."""
        return replace(
            self,
            step=replace(self.mirror, swapped=False),
            point_filter=self.mirror_filter,
            mirror_filter=self.point_filter,
            options=replace(self.options, how=how),
        )

    def rows(self) -> list[tuple[str, str]]:
        """The step in words: a label and a text for each line."""
        points, boxes = " x ".join(self.left), self.right
        if self.step.swapped:
            points, boxes = boxes, points
        rows = [("where", bare(self.condition))]
        rows.append(("sides", f"{points} gives points, {boxes} gives {_shape(self.step)}"))
        rows.append(("kernel", self._kernel_text()))
        return rows

    def rows_at_end(self) -> list[tuple[str, str]]:
        """What happens after the kernel, in words."""
        rows = []
        if self.rests:
            rows.append(("then", f"Spark evaluates {bare(' AND '.join(self.rests))} on what the kernel finds"))
        if all(self.kind.preserved):
            rows.append(("passes", "two: the left join, and the right rows without a match"))
        return rows

    def _kernel_text(self) -> str:
        """Which kernel will run, and what it costs."""
        partitioning = self.options.partitioning
        if partitioning is not None:
            return f"{partitioning.name}: Cartesian products of surviving partition pairs, every pair compared"
        axes = self.step.axes
        bounded = [axis for axis in axes if axis.low is not None and axis.high is not None]
        if self.step.is_product:
            return "every pair; cost follows the product of the rows"
        if not axes:
            return "groups: rows of one key meet; cost follows rows + results"
        if len(bounded) >= 2:
            return "grid: columns of one axis, sorted by the other; cost follows rows + results"
        if len(axes) >= 2 and not bounded:
            return "sweep: points enter a hierarchical bitmap in order; cost follows rows + results"
        checked = f", {len(axes) - 1} more condition(s) checked on what it finds" if len(axes) > 1 else ""
        return f"range: sorted points, one run for each box; cost follows rows + results{checked}"

    def routing_text(self) -> str:
        """Where rows go, outside windows."""
        if self.broadcast:
            return f"no shuffle: {self.broadcast.where}"
        where = f"{self.shuffle_partitions} shuffle partitions of packed segments"
        if self.options.partitioning is not None:
            return f"partition pairs that survive the filters, found from all values of both sides; {where}"
        if not self.sampled:
            way = (
                "slices of the key hash"
                if self.step.equalities
                else "points spread over the cells, boxes to every cell"
            )
            return f"{way}; {where}"
        way = f"cells cut at quantiles of a 1/{DENSE} sample of both sides, read within the same action"
        if self.kind.pairs_only and overlap_axes(self.step):
            way += "; as intervals if that copies less"
        return f"{way}; {where}"


def _shape(step: Step) -> str:
    if step.is_product:
        return "partners for each of them"
    if not step.axes:
        return "the keys to look up"
    return " and ".join(_axis_text(axis, step.point_keys, step.box_keys) for axis in step.axes)


def _axis_text(axis: Axis, point_keys: tuple[Key, ...], box_keys: tuple[Key, ...]) -> str:
    name = bare(point_keys[axis.point].sql)
    if axis.low is not None and axis.high is not None:
        return f"a range of {name}"
    end = axis.low or axis.high
    assert end is not None
    side = "from" if axis.low is not None else "up to"
    bound = bare(box_keys[end.key].sql)
    # A key that was widened for the search has a text that nobody wrote.
    return f"{name} {side} {bound if len(bound) <= _LONGEST_TEXT else 'a bound of its own'}"


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
    spec: WindowSpec | None = None
    """The join in windows, as its kernel knows it."""

    @property
    def kind(self) -> JoinKind:
        """What `how` means for the two inputs."""
        return self.steps[0].kind

    @property
    def splits_cells(self) -> bool:
        """Whether a cell that is too large for its worker is joined in pieces; no cell is shuffled in other modes."""
        return self.mode == "batch" and not all(step.broadcast for step in self.steps)

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        lines = [f"theta join, {self._mode_text()}, how={self.kind.how!r}"]
        products = [step for step in self.steps if step.step.is_product]
        if products:
            pairs = ", ".join(f"{' x '.join(step.left)} with {step.right}" for step in products)
            lines[0] += f": EVERY PAIR IS COMPARED ({pairs})"
            lines.append("  would help  a comparison of a value of one input with a value of the other: =, <, a band")
        lines.append(f"  inputs      {', '.join(self.inputs)}")
        lines.extend(f"  first       {alias} keeps rows where {bare(sql)}" for alias, sql in self.filters)
        for number, step in enumerate(self.steps, start=1):
            name = f"step {number}" if len(self.steps) > 1 else "join"
            lines.append(f"  {name:<10}  {' x '.join(step.left)} with {step.right}")
            rows = [*step.rows(), ("routing", self._routing_text(step)), *step.rows_at_end()]
            lines.extend(f"    {head:<10}{text}" for head, text in rows)
        return "\n".join(lines)

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint."""
        window = self.window
        assert window is not None
        rows = f"{window.rows} rows" if isinstance(window, CountWindow) else f"{window.every} microseconds"
        return {
            "join": "a theta join in windows",
            "inputs": ", ".join(self.inputs),
            "condition": bare(self.predicate.sql),
            "how": self.kind.how,
            "time": "" if isinstance(window, CountWindow) else window.time,
            "window": rows,
        }

    def _mode_text(self) -> str:
        if self.mode == "batch":
            return "batch"
        if self.mode == "stream-static":
            return f"stream {', '.join(sorted(self.streams))} beside a static input"
        kind = "stream" if self.streams else "batch"
        window = self.window
        if isinstance(window, CountWindow):
            return f"{kind}, windows of {window.rows} rows: the k-th window of each input joins"
        assert window is not None
        return f"{kind}, tumbling windows of {window.every / 1e6:g} s on {window.time}"

    def _routing_text(self, step: ThetaStep) -> str:
        if self.mode != "window":
            return step.routing_text()
        if isinstance(self.window, CountWindow):
            return "all rows to one task, which numbers them"
        return "windows hashed to tasks"

"""Plans of theta joins in words."""

from __future__ import annotations

from dovetail.columns.sampling import DENSE
from dovetail.conditions.comparison import Axis, Key, Step
from dovetail.conditions.durations import CountWindow
from dovetail.conditions.names import bare
from dovetail.families.theta.router import overlap_axes
from dovetail.plan.theta import ThetaPlan, ThetaStep


def plan_text(plan: ThetaPlan) -> str:
    """A plan as lines of text, most important first."""
    lines = [f"theta join, {_mode_text(plan)}, how={plan.steps[0].options.how!r}"]
    lines.append(f"  inputs      {', '.join(plan.inputs)}")
    lines.extend(f"  first       {alias} keeps rows where {bare(sql)}" for alias, sql in plan.filters)
    for number, step in enumerate(plan.steps, start=1):
        name = f"step {number}" if len(plan.steps) > 1 else "join"
        lines.append(f"  {name:<10}  {' x '.join(step.left)} with {step.right}")
        lines.extend(f"    {head:<10}{text}" for head, text in _step_rows(plan, step))
    return "\n".join(lines)


def _mode_text(plan: ThetaPlan) -> str:
    if plan.mode == "batch":
        return "batch"
    if plan.mode == "beside":
        return f"stream {', '.join(sorted(plan.streams))} beside a static input"
    kind = "stream" if plan.streams else "batch"
    window = plan.window
    if isinstance(window, CountWindow):
        return f"{kind}, windows of {window.rows} rows: the k-th window of each input joins"
    assert window is not None
    return f"{kind}, tumbling windows of {window.every / 1e6:g} s on {window.time}"


def _step_rows(plan: ThetaPlan, step: ThetaStep) -> list[tuple[str, str]]:
    points, boxes = (step.right, " x ".join(step.left)) if step.step.swapped else (" x ".join(step.left), step.right)
    rows = [("where", bare(step.condition))]
    rows.append(("sides", f"{points} gives points, {boxes} gives {_shape(step.step)}"))
    rows.append(("kernel", kernel_text(step)))
    rows.append(("routing", _routing_text(plan, step)))
    if step.rests:
        rows.append(("then", f"Spark evaluates {bare(' AND '.join(step.rests))} on what the kernel finds"))
    if step.options.how == "full":
        rows.append(("passes", "two: the left join, and the right rows without a match"))
    return rows


def _shape(step: Step) -> str:
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
    return f"{name} {side} {bare(box_keys[end.key].sql)}"


def kernel_text(step: ThetaStep) -> str:
    """Which kernel will run, and what it costs."""
    if step.options.algorithm != "auto":
        return f"{step.options.algorithm}: Cartesian products of surviving partition pairs, every pair compared"
    axes = step.step.axes
    bounded = [axis for axis in axes if axis.low is not None and axis.high is not None]
    if not axes:
        return "groups: rows of one key meet; cost follows rows + results"
    if len(bounded) >= 2:
        return "grid: columns of one axis, sorted by the other; cost follows rows + results"
    if len(axes) >= 2 and not bounded:
        return "sweep: points enter a hierarchical bitmap in order; cost follows rows + results"
    checked = f", {len(axes) - 1} more condition(s) checked on what it finds" if len(axes) > 1 else ""
    return f"range: sorted points, one run for each box; cost follows rows + results{checked}"


def _routing_text(plan: ThetaPlan, step: ThetaStep) -> str:
    if plan.mode == "window":
        return (
            "all rows to one task, which numbers them"
            if isinstance(plan.window, CountWindow)
            else "windows hashed to tasks"
        )
    if step.broadcast:
        return "no shuffle: the whole of one side goes to every task"
    where = f"{step.shuffle_partitions} shuffle partitions of packed segments"
    if step.options.algorithm != "auto":
        return f"partition pairs that survive the filters, found from all values of both sides; {where}"
    if not step.sampled:
        blind = "slices of the key hash" if step.step.equalities else "points dealt out, boxes to every cell"
        return f"{blind}; {where}"
    ways = f"cells cut at quantiles of a 1/{DENSE} sample of both sides, read within the same action"
    if step.options.how == "inner" and overlap_axes(step.step):
        ways += "; as intervals if that copies less"
    return f"{ways}; {where}"

"""How large inputs are by the estimate of Spark's optimiser, which decides what Spark itself broadcasts.

Spark shows its estimates in ``explain(mode="cost")``, Spark Connect included.  No job runs for them.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TextIO

from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from dovetail.plan.broadcast import Estimate

_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}
_STATISTICS = re.compile(r"Statistics\(sizeInBytes=([\d.E+-]+) ([KMGTPE]?i?B)")
_BRANCHES = " :+-|"
_OPERATOR = re.compile(rf"^[{re.escape(_BRANCHES)}]*(\w+)")
_FAITHFUL = frozenset(
    {
        "Aggregate", "ArrowEvalPython", "BatchEvalPython", "CommandResult", "Deduplicate", "Distinct", "Filter",
        "GlobalLimit", "HiveTableRelation", "InMemoryRelation", "Join", "LocalLimit", "LocalRelation", "LogicalRDD",
        "LogicalRelation", "OneRowRelation", "Project", "Range", "RebalancePartitions", "Relation", "RelationV2",
        "Repartition", "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "SubqueryAlias", "Tail", "Union",
        "View", "Window", "WithCTE",
    }
)  # fmt: skip
"""Operators that yield at most what Spark estimates.

It takes others, such as explode and functions that return many rows, for operators that yield what they get.
"""

_PLAIN = frozenset(
    {
        "Filter", "HiveTableRelation", "LocalRelation", "LogicalRelation", "OneRowRelation", "Project", "Range",
        "Relation", "RelationV2", "ResolvedHint", "SubqueryAlias", "Union", "View",
    }
)  # fmt: skip
"""Operators that compute little: many tasks have nothing to gain with them, if what they read is small, too."""
_MOST_READ = 4 << 20
"""Bytes of an input up to which one task reads it: Spark reads so small a file in one task as it is."""
_MADE = frozenset({"LocalRelation", "Range"})
_MOST_MADE = 256 << 10
"""The same of rows that are not in files: Spark spreads even a few of them over all cores."""
_FUNCTION_OF_A_USER = re.compile(r"\bUDF\b")

_EXPLAINING = threading.Lock()


def small_inputs(frames: Mapping[str, DataFrame]) -> dict[str, Estimate]:
    """The static inputs that Spark would broadcast; their order is that of the frames."""
    static = {alias: frame for alias, frame in frames.items() if not frame.isStreaming}
    if not static:
        return {}
    session = next(iter(static.values())).sparkSession
    limit = _bytes(session.conf.get(_THRESHOLD) or "-1")
    if limit <= 0:
        return {}
    found = {alias: estimate(frame) for alias, frame in static.items()}
    return {alias: one for alias, one in found.items() if one is not None and one.size <= limit}


def estimate(frame: DataFrame) -> Estimate | None:
    """The estimate of Spark's optimiser; None where it may be far too low."""
    if is_remote():
        return read_estimate(_explained(frame))
    # Half the time of explain(), which plans the physical operators as well.
    plan = frame._jdf.queryExecution().optimizedPlan()
    lines = plan.toString().splitlines()
    if not _is_faithful(lines):
        return None
    size = int(plan.stats().sizeInBytes())
    most = _most_at_once(lines)
    if size > most:
        return Estimate(size, at_once=False)
    leaves = plan.collectLeaves()
    read = sum(int(leaves.apply(at).stats().sizeInBytes()) for at in range(leaves.size()))
    return Estimate(size, at_once=read <= most)


def read_estimate(text: str) -> Estimate | None:
    r"""The estimate in a plan as ``explain(mode="cost")`` prints it.

    Examples
    --------
    >>> plan = "Project [id#1L], Statistics(sizeInBytes=1.5 KiB)\n+- Range (0, 96), Statistics(sizeInBytes=768.0 B)"
    >>> read_estimate(f"== Optimized Logical Plan ==\n{plan}\n\n== Physical Plan ==\n")
    Estimate(size=1536, at_once=True)
    >>> read_estimate(f"== Optimized Logical Plan ==\nGenerate explode(a#1), Statistics(sizeInBytes=8.0 B)\n\n")
    """
    _, _, rest = text.partition("== Optimized Logical Plan ==\n")
    plan, _, _ = rest.partition("\n\n")
    lines = [line for line in plan.splitlines() if "Statistics(" in line]
    sizes = [
        int(float(found[1]) * _UNITS[found[2]]) if found is not None else None
        for found in map(_STATISTICS.search, lines)
    ]
    if not _is_faithful(lines) or sizes[0] is None:
        return None
    depths = [_depth(line) for line in lines]
    read = [size for size, depth, below in zip(sizes, depths, [*depths[1:], 0], strict=True) if below <= depth]
    known = [size for size in read if size is not None]
    return Estimate(sizes[0], at_once=len(known) == len(read) and sum(known) <= _most_at_once(lines))


def _is_faithful(lines: Sequence[str]) -> bool:
    """Whether a plan, a line for each operator, yields at most what Spark estimates."""
    below: int | None = None
    for line in lines:
        depth = _depth(line)
        if below is not None and depth > below:
            continue
        found = _OPERATOR.match(line)
        if found is None or found[1] not in _FAITHFUL:
            return False
        # Under cached rows Spark prints the plan that they came from.
        below = depth if found[1] == "InMemoryRelation" else None
    return bool(lines)


def _most_at_once(lines: Sequence[str]) -> int:
    """The bytes that one task reads as fast as many, if a plan only reads rows, chooses some, and computes little."""
    operators = {found[1] if (found := _OPERATOR.match(line)) else "" for line in lines}
    if not operators <= _PLAIN or any(map(_FUNCTION_OF_A_USER.search, lines)):
        return -1
    return _MOST_MADE if operators & _MADE else _MOST_READ


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(_BRANCHES))


def _bytes(text: str) -> int:
    """A size as Spark's settings have it: bytes, or a number with a unit."""
    found = re.fullmatch(r"\s*(-?\d+)\s*([kmgtp]?)i?b?\s*", text.lower())
    return -1 if found is None else int(found[1]) << 10 * " kmgtp".index(found[2] or " ")


class _Captured(StringIO):
    """A standard output that keeps what one thread prints, and passes on what others do."""

    def __init__(self, others: TextIO) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._others = others

    def write(self, text: str) -> int:
        """Keep the text, or pass it on."""
        return super().write(text) if threading.get_ident() == self._thread else self._others.write(text)


def _explained(frame: DataFrame) -> str:
    """What ``explain`` prints: it has no way to return it."""
    # One at a time: two threads that put the standard output back in another order would print on the screen.
    with _EXPLAINING, redirect_stdout(_Captured(sys.stdout)) as printed:
        frame.explain(mode="cost")
    return printed.getvalue()

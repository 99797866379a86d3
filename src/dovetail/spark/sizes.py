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

_EXPLAINING = threading.Lock()


def small_inputs(frames: Mapping[str, DataFrame]) -> dict[str, int]:
    """The bytes of the static inputs that Spark would broadcast; their order is that of the frames."""
    static = {alias: frame for alias, frame in frames.items() if not frame.isStreaming}
    if not static:
        return {}
    session = next(iter(static.values())).sparkSession
    limit = _bytes(session.conf.get(_THRESHOLD) or "-1")
    if limit <= 0:
        return {}
    sizes = {alias: estimated_bytes(frame) for alias, frame in static.items()}
    return {alias: size for alias, size in sizes.items() if size is not None and size <= limit}


def estimated_bytes(frame: DataFrame) -> int | None:
    """The size of a frame as Spark's optimiser estimates it; None where the estimate may be far too low."""
    if is_remote():
        return read_estimate(_explained(frame))
    # Half the time of explain(), which plans the physical operators as well.
    plan = frame._jdf.queryExecution().optimizedPlan()
    return int(plan.stats().sizeInBytes()) if _is_faithful(plan.toString().splitlines()) else None


def read_estimate(text: str) -> int | None:
    r"""The estimate in a plan as ``explain(mode="cost")`` prints it.

    Examples
    --------
    >>> plan = "Project [id#1L], Statistics(sizeInBytes=1.5 KiB)\n+- Range (0, 96), Statistics(sizeInBytes=768.0 B)"
    >>> read_estimate(f"== Optimized Logical Plan ==\n{plan}\n\n== Physical Plan ==\n")
    1536
    >>> read_estimate(f"== Optimized Logical Plan ==\nGenerate explode(a#1), Statistics(sizeInBytes=8.0 B)\n\n")
    """
    _, _, rest = text.partition("== Optimized Logical Plan ==\n")
    plan, _, _ = rest.partition("\n\n")
    lines = [line for line in plan.splitlines() if "Statistics(" in line]
    found = _STATISTICS.search(lines[0]) if _is_faithful(lines) else None
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])


def _is_faithful(lines: Sequence[str]) -> bool:
    """Whether a plan, a line for each operator, yields at most what Spark estimates."""
    below: int | None = None
    for line in lines:
        depth = len(line) - len(line.lstrip(_BRANCHES))
        if below is not None and depth > below:
            continue
        found = _OPERATOR.match(line)
        if found is None or found[1] not in _FAITHFUL:
            return False
        # Under cached rows Spark prints the plan that they came from.
        below = depth if found[1] == "InMemoryRelation" else None
    return bool(lines)


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

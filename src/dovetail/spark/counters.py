"""Arithmetic of counters: from those of every cell to those of a join.

A cell reports a list of whole numbers, one for each name.  Names that begin with ``task_`` are running totals of the
task so far, so their maximum counts; of all others the sum does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, Observation
from pyspark.sql import functions as F

from dovetail.columns.layout import COUNTERS
from dovetail.columns.memory import in_words
from dovetail.errors import ArgumentError

_RUNNING = "task_"
"""Prefix of counters that are running totals of a task."""
_INCOMING = ("rows", "rows_left", "rows_right")
"""Counters of rows that reached a cell, in the families whose cells do not count for their tasks."""


def named_sums(names: Sequence[str]) -> list[Column]:
    """One aggregate for each counter in their array, for a stream to report."""
    sums = []
    for at, name in enumerate(names):
        total = F.max if name.startswith(_RUNNING) else F.sum
        sums.append(F.coalesce(total(F.col(COUNTERS)[at]), F.lit(0)).alias(name.replace(_RUNNING, "most_")))
    return sums


def fullest(names: Sequence[str]) -> list[Column]:
    """The rows of the fullest cell, for a stream to report, where each cell counts its rows and itself."""
    if not {"rows", "cells"} <= set(names):
        return []
    return [F.coalesce(F.max(F.col(COUNTERS)[list(names).index("rows")]), F.lit(0)).alias("most_rows")]


def totals(names: Sequence[str], cells: Sequence[Sequence[int]]) -> dict[str, int]:
    """The counters of all cells in one, and the rows of the largest cell where cells count them (``largest``).

    Examples
    --------
    >>> totals(("rows", "task_pairs"), [[3, 10], [5, 12]])
    {'rows': 8, 'task_pairs': 12, 'largest': 5}
    """
    counts = {}
    for at, name in enumerate(names):
        values = [cell[at] for cell in cells]
        counts[name] = max(values, default=0) if name.startswith(_RUNNING) else sum(values)
    incoming = [at for at, name in enumerate(names) if name in _INCOMING]
    if incoming:
        counts["largest"] = max((sum(cell[at] for at in incoming) for cell in cells), default=0)
    return counts


def readable(raw: dict[str, int], tasks: int) -> dict[str, Any]:
    """Raw counters as a person wants them: milliseconds, and balance instead of the largest load.

    Examples
    --------
    >>> readable({"rows": 8, "largest": 5, "kernel_us": 1500}, tasks=2)
    {'rows': 8, 'kernel_ms': 1.5, 'balance_in': 1.25, 'load_largest': 5, 'load_least': 4.0}
    >>> readable({"rows_left": 6, "rows_right": 6, "copies": 2, "largest": 6, "kernel_us": 0}, tasks=2)["rows_in"]
    10
    """
    counts: dict[str, Any] = dict(raw)
    counts["kernel_ms"] = counts.pop("kernel_us") / 1000
    if "largest" in counts:
        largest, rows = counts.pop("largest"), sum(counts.get(name, 0) for name in _INCOMING)
        # The busiest task has at least the average, however small its cells are.
        counts["balance_in"] = max(1.0, largest * tasks / rows) if rows else 1.0
        if "copies" in counts:
            rows = counts["rows_in"] = rows - counts["copies"]
        counts |= {"load_largest": largest, "load_least": rows / tasks}
    if "task_rows" not in counts:
        return counts
    counts["tasks"] = tasks
    most_rows, most_pairs = counts.pop("task_rows"), counts.pop("task_pairs")
    rows = counts["rows_points"] + counts["rows_boxes"]
    counts["balance_in"] = most_rows * tasks / rows if rows else 1.0
    counts["balance_out"] = most_pairs * tasks / counts["candidates"] if counts["candidates"] else 1.0
    counts["rows_in"] = rows - counts["copies"]
    # Halves, as the router weighs: a row is one, and a pair a half.
    counts["load_largest"] = counts.pop("task_load") / 2
    counts["load_least"] = (counts["rows_in"] + counts["candidates"] / 2) / tasks
    return counts


def balance_lines(counts: Mapping[str, Any]) -> list[str]:
    """How even the work was and how much was sent twice, each beside the least that is possible, as lines of a plan.

    Examples
    --------
    >>> balance_lines({"rows_in": 1000, "copies": 20, "load_largest": 275.0, "load_least": 250.0})
    ['load        largest of a task 275, at least 250 is possible: 1.10 x', 'sent        1,020 rows for 1,000: 1.02 x']
    """
    lines = []
    largest, least = counts.get("load_largest"), counts.get("load_least")
    if largest is not None and least:
        ratio = largest / least
        lines.append(f"load        largest of a task {largest:,.0f}, at least {least:,.0f} is possible: {ratio:.2f} x")
    if counts.get("rows_in"):
        sent = counts["rows_in"] + counts["copies"]
        lines.append(f"sent        {sent:,} rows for {counts['rows_in']:,}: {sent / counts['rows_in']:.2f} x")
    return lines


def split_lines(counts: Mapping[str, Any]) -> list[str]:
    """How many cells were too large for their workers, as lines of a plan; none where all of them fitted.

    Examples
    --------
    >>> split_lines({"split_cells": 2, "spilled_bytes": 3 << 20})
    ['memory      2 cells joined in pieces, 3 MiB on disk meanwhile']
    >>> split_lines({"split_cells": 0, "spilled_bytes": 0})
    []
    """
    if not counts.get("split_cells"):
        return []
    cells, size = counts["split_cells"], in_words(counts["spilled_bytes"])
    return [f"memory      {cells:,} cell{'s' if cells > 1 else ''} joined in pieces, {size} on disk meanwhile"]


_STATES = ("held_rows", "held_bytes", "state_bytes", "throttle", "harvest_", "scout_rows", "scout_bytes")
"""How counters begin that describe a state, which the last micro-batch knows; all others are counts."""
_PEAKS = ("peak_", "most_")
_RECALL = ("recall", "recall_low", "recall_high")


def added_up(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counters of micro-batches in one.

    Counts are added up.  What describes a state comes from the last micro-batch in which any cell was called: an empty
    one knows nothing of it, and the last one often is empty.  The recall is that of all results; its interval holds for
    one micro-batch and is left out.

    Examples
    --------
    >>> added_up([{"rows": 3, "held_rows_A": 3}, {"rows": 2, "held_rows_A": 5}, {"rows": 0, "held_rows_A": 0}])
    {'rows': 5, 'held_rows_A': 5}
    >>> added_up([{"candidates": 9, "missed": 1, "recall": 0.9}, {"candidates": 6, "missed": 4, "recall": 0.6}])
    {'candidates': 15, 'missed': 5, 'recall': 0.75}
    """
    total: dict[str, Any] = {}
    for counts in batches:
        # Only whole numbers count something: where no cell was called, the throttle is 1.
        called = any(isinstance(value, int) and value for value in counts.values())
        for name, value in counts.items():
            if name in _RECALL:
                continue
            if name.startswith(_STATES) or not isinstance(value, int | float):
                if called or name not in total:
                    total[name] = value
            elif name.startswith(_PEAKS):
                total[name] = max(total.get(name, value), value)
            else:
                total[name] = total.get(name, 0) + value
    if "kernel_us" in total:
        total["kernel_ms"] = total.pop("kernel_us") / 1000
    if any("recall" in counts for counts in batches):
        # Where Spark judges candidates, the results are an estimate, too.
        found, missed = total.get("results_estimate", total.get("candidates", 0)), total.get("missed", 0)
        total["recall"] = found / (found + missed) if found + missed else 1.0
    return total


def observed(observation: Observation, timeout: float) -> dict[str, Any]:
    """What an observation holds once an action has finished.

    Where no action has run, its own accessor waits for ever, and on Spark Connect it returns nothing at once.
    """
    results: list[dict[str, Any]] = []
    failures: list[Exception] = []
    deadline = time.monotonic() + timeout

    def wait() -> None:
        try:
            result = observation.get
            while not result and time.monotonic() < deadline:
                time.sleep(0.02)
                result = observation.get
        except Exception as error:
            # Whatever it is goes to the caller.  Spark also ends waiting threads that were given up long ago.
            failures.append(error)
            return
        if result:
            results.append(result)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(timeout)
    if failures:
        raise failures[0]
    if not results:
        raise ArgumentError(
            f"no action on this join has finished within {timeout:g} s",
            accepted="a join whose frame has been written, counted, collected or shown",
            hint="run an action first, such as .count() or .write.save(...)",
        )
    return results[0]

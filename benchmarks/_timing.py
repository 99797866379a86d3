"""Times of engines that take turns: a machine that is slow for a minute is slow for all of them."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

Action = Callable[[], int]
"""Something to time; it returns how many rows came out."""

console = Console()
# What is measured is compiled, however few rows the first lap has; Spark's workers inherit this.
os.environ.setdefault("DOVETAIL_KERNELS", "compiled")


def race(engines: Mapping[str, tuple[Action, int]], *, times: int) -> tuple[dict[str, float], dict[str, int]]:
    """The best seconds of each engine, and the rows it found.

    Parameters
    ----------
    engines
        What to time, and how many runs of it come first that do not count.
    times
        Runs of each that count.
    """
    laps, rows = turns(engines, times=times)
    return {engine: min(every) for engine, every in laps.items()}, rows


def turns(engines: Mapping[str, tuple[Action, int]], *, times: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """All seconds of each engine, in the order of its turns, and the rows it found; arguments as those of `race`."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    rows: dict[str, int] = {}

    def timed(engine: str, what: str) -> float:
        gc.collect()
        began = time.perf_counter()
        rows[engine] = engines[engine][0]()
        took = time.perf_counter() - began
        console.print(f"  {engine:<10} {what} {took:8.2f} s", highlight=False)
        return took

    for engine, (_, warm) in engines.items():
        for _ in range(warm):
            timed(engine, "warm-up")
    for _ in range(times):
        for engine in engines:
            seconds[engine].append(timed(engine, "run"))
    return seconds, rows


def show(head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, file: Path | None) -> None:
    """Print a table, and write it to a file, if one is given, under its title and the command that made it."""
    shown = Table(*head)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    if file is not None:
        lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
        text = "\n".join([f"# {title}", "", f"`{' '.join(sys.argv)}`", "", *lines, ""])
        file.write_text(text, encoding="utf-8")

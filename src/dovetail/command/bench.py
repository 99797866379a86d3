"""What `dovetail bench` runs: the benchmarks of a checkout, or a small comparison with Spark's own join."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from dovetail import datasets
from dovetail.command.demo import BAND, CONF, dovetail_join, sparks_own, stored
from dovetail.errors import ArgumentError, DovetailError, choice

_CUTS = (4, 2, 1)
_LARGEST_OWN = 20_000
"""Spark's own join takes the square of its input; more rows than this would take minutes."""


def run(console: Console, names: Sequence[str], rows: int, log: Path) -> None:
    """Run the named benchmarks of the checkout, all of them, or the comparison where there is no checkout."""
    folder = checkout()
    if names and folder is None:
        raise ArgumentError(
            f"bench {' '.join(names)}: no benchmarks/ folder here", accepted="no name: a small comparison",
            hint="clone the repository and run it there",
        )  # fmt: skip
    if folder is None or not names:
        compare(console, rows, log)
        if folder is not None:
            console.print(f"The full benchmarks: dovetail bench {' '.join(sorted(_scripts(folder)))}")
        return
    known = _scripts(folder)
    for name in names:
        if name not in known:
            raise choice("benchmark", name, sorted(known))
    for name in names:
        console.rule(f"[bold]{known[name].name}", align="left")
        done = subprocess.run([sys.executable, str(known[name])], check=False)
        if done.returncode:
            raise DovetailError(f"{known[name].name} ended with exit code {done.returncode}")


def checkout() -> Path | None:
    """The folder benchmarks/ of the checkout that this package runs from."""
    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    return folder if folder.is_dir() and _scripts(folder) else None


def _scripts(folder: Path) -> dict[str, Path]:
    return {file.stem: file for file in folder.glob("*.py") if not file.stem.startswith("_")}


def compare(console: Console, rows: int, log: Path) -> None:
    """A band join of growing tables by Spark and by Dovetail, in one session."""
    from dovetail.columns.numba_cache import always_compiled
    from dovetail.spark.runtime.quiet import quiet_session

    table = Table(title=BAND, title_justify="left", box=box.SIMPLE)
    for name in ("rows", "results", "Spark's own s", "Dovetail s", "times as fast"):
        table.add_column(name, justify="right")
    with (
        tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder,
        always_compiled(),
        console.status("Starting Spark ...") as status,
        quiet_session("dovetail-bench", log, conf=CONF) as spark,
    ):
        sizes = sorted({max(1000, rows // cut) for cut in _CUTS})
        for at, size in enumerate([1000, *sizes]):
            status.update(f"{size:,} x {size:,} rows ...")
            inputs = [
                stored(spark, one, Path(folder) / f"{at}-{side}")
                for side, one in enumerate(datasets.sensor_readings(size))
            ]
            own = sparks_own(spark, inputs) if size <= _LARGEST_OWN else None
            _, counts, seconds = dovetail_join(inputs)
            if at == 0:
                continue  # the first one starts workers and compiles, on both sides
            table.add_row(
                f"{size:,} x {size:,}", f"{counts['results']:,}", f"{own[1]:.2f}" if own else "not run",
                f"{seconds:.2f}", f"{own[1] / seconds:.1f}" if own else "",
            )  # fmt: skip
    console.print(table)
    console.print("Spark's own join compares every pair of rows, so its time grows with their square.")

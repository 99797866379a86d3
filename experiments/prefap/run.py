"""Reproduce section 4 of the Prefap paper: every figure and table, and a verdict on every claim.

python experiments/prefap/run.py [--figure 5] [--out artifacts/prefap] [--runs 30]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from claims import table
from data import MissingDataError
from figures import FIGURES, Context, Report
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tables import TABLES

ORDER = ("5", "6", "7", "8", "9", "10", "11", "table3", "table4", "12", "13", "14", "15")
EVERY = {**FIGURES, **TABLES}


def main() -> None:
    arguments = _arguments()
    console = Console()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.figure or list(ORDER)
    reports: list[Report] = []
    missing: list[tuple[str, str]] = []
    begin = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} runs"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task("all", total=len(wanted))
        for name in wanted:
            bar = progress.add_task(_title(name), total=None)
            context = Context(out, arguments.runs, lambda bar=bar: progress.advance(bar))
            try:
                report = EVERY[name](context)
            except MissingDataError as error:
                missing.append((_title(name), str(error)))
                progress.update(bar, description=f"{_title(name)} left out", total=1, completed=1)
                progress.advance(whole)
                continue
            _write(out, report)
            reports.append(report)
            done = progress.tasks[bar].completed
            progress.update(bar, total=done)
            progress.advance(whole)
    _finish(console, out, reports, missing, time.perf_counter() - begin)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--figure", action="append", choices=ORDER, help="one figure or table; may be repeated (default: all)"
    )
    parser.add_argument("--out", type=Path, default=Path("artifacts/prefap"), help="where the files go")
    parser.add_argument("--runs", type=int, default=30, help="runs per setting (three-way joins: a sixth)")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs takes a whole number from 1")
    return arguments


def _title(name: str) -> str:
    return f"Table {name[-1]}" if name.startswith("table") else f"Figure {name}"


def _write(out: Path, report: Report) -> None:
    parts = [
        f"# {report.heading}",
        *report.tables,
        f"![{report.key}]({report.key}.png)",
        table(report.claims),
    ]
    (out / f"{report.key}.md").write_text("\n\n".join(parts) + "\n")


def _finish(console: Console, out: Path, reports: list[Report], missing: list[tuple[str, str]], seconds: float) -> None:
    claims = [claim for report in reports for claim in report.claims]
    shown = Table(title="The paper's claims", show_lines=False)
    for column in ("where", "claim", "our figures", "verdict"):
        shown.add_column(column, overflow="fold")
    for claim in claims:
        colour = "green" if claim.holds else "red"
        shown.add_row(claim.where, claim.claim, claim.ours, f"[{colour}]{claim.verdict}[/]")
    console.print(shown)
    left_out = [f"{title} is left out: {why}" for title, why in missing]
    for line in left_out:
        console.print(f"[yellow]{line}[/]")
    text = "\n\n".join(["# Claims of the Prefap paper", table(claims), *left_out])
    (out / "claims.md").write_text(text + "\n")
    held = sum(claim.holds for claim in claims)
    console.print(f"{held} of {len(claims)} claims hold; {seconds:.0f} s; written to {out}")


if __name__ == "__main__":
    main()

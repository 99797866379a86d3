"""What every paper's experiments share: claims that can fail, reports of figures, and the command that makes them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

LAST_SECTION = "## Figures and verdicts"
"""The heading of the last section of a README, which --readme writes."""


class MissingDataError(Exception):
    """A data set that a figure needs is not here."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we found, and whether it holds."""

    where: str
    claim: str
    ours: str
    holds: bool

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return "holds" if self.holds else "does not hold"


@dataclass(frozen=True)
class Report:
    """One figure or table as text; its picture is in `key`.png."""

    key: str
    heading: str
    tables: Sequence[str]
    claims: list[Claim] = field(default_factory=list)


def table(claims: Sequence[Claim]) -> str:
    """Claims and verdicts as Markdown."""
    lines = ["| where | the paper's claim | our figures | verdict |", "| --- | --- | --- | --- |"]
    lines += [f"| {c.where} | {c.claim} | {c.ours} | {c.verdict} |" for c in claims]
    held = sum(claim.holds for claim in claims)
    return "\n".join([*lines, "", f"{held} of {len(claims)} hold."])


def reproduce(
    script: str,
    about: str,
    paper: str,
    figures: Mapping[str, Callable[[Any], Report]],
    context: Callable[[Path, Any, Callable[[], None]], Any],
    *,
    option: tuple[str, type, float, str],
) -> None:
    """The command line of one paper: makes its figures one after the other, and judges its claims.

    Parameters
    ----------
    script, about, paper
        The file of the command, its help, and what the paper is called.
    figures
        What makes each figure or table, by its name.
    context
        Makes what a figure takes: the folder, the value of the option, and whom to tell that a run is done.
    option
        The name, type, default and help of the one option that says how much to run.
    """
    folder = Path(script).parent
    name, kind, default, meaning = option
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", action="append", choices=list(figures), help="may be repeated (default: all)")
    parser.add_argument("--out", type=Path, default=Path("artifacts") / folder.name, help="where the files go")
    parser.add_argument(f"--{name}", type=kind, default=default, help=meaning)
    parser.add_argument("--readme", action="store_true", help="put tables and verdicts into README.md as well")
    arguments = parser.parse_args()
    amount = getattr(arguments, name)
    if amount <= 0:
        parser.error(f"--{name} takes a number above 0")
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    begin = time.perf_counter()
    reports, missing = _made(console, arguments.out, arguments.figure or list(figures), figures, context, amount)
    _finish(console, arguments.out, paper, reports, missing)
    console.print(f"{time.perf_counter() - begin:.0f} s; written to {arguments.out}")
    if arguments.readme:
        _write_page(folder / "README.md", reports)


def _made(
    console: Console,
    out: Path,
    wanted: Sequence[str],
    figures: Mapping[str, Callable[[Any], Report]],
    context: Callable[[Path, Any, Callable[[], None]], Any],
    amount: float,
) -> tuple[list[Report], list[str]]:
    """The reports, and a line for each figure that is left out."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} runs"), TimeElapsedColumn())
    reports: list[Report] = []
    missing: list[str] = []
    with Progress(*columns, console=console) as progress:
        whole = bar = progress.add_task("all", total=len(wanted))
        # One for all figures: some share what they have measured.
        shared = context(out, amount, lambda: progress.advance(bar))
        for name in wanted:
            title = f"Table {name[-1]}" if name.startswith("table") else f"Figure {name}"
            bar = progress.add_task(title, total=None)
            try:
                report = figures[name](shared)
            except MissingDataError as error:
                missing.append(f"{title} is left out: {error}")
                progress.update(bar, description=f"{title} left out", total=1, completed=1)
            else:
                parts = [f"# {report.heading}", *report.tables, f"![{report.key}]({report.key}.png)"]
                (out / f"{report.key}.md").write_text("\n\n".join([*parts, table(report.claims)]) + "\n")
                reports.append(report)
                progress.update(bar, total=progress.tasks[bar].completed)
            progress.advance(whole)
    return reports, missing


def _finish(console: Console, out: Path, paper: str, reports: Sequence[Report], missing: Sequence[str]) -> None:
    claims = [claim for report in reports for claim in report.claims]
    shown = Table(title="The paper's claims", show_lines=False)
    for column in ("where", "claim", "our figures", "verdict"):
        shown.add_column(column, overflow="fold")
    for claim in claims:
        colour = "green" if claim.holds else "red"
        shown.add_row(claim.where, claim.claim, claim.ours, f"[{colour}]{claim.verdict}[/]")
    console.print(shown)
    for line in missing:
        console.print(f"[yellow]{line}[/]")
    (out / "claims.md").write_text("\n\n".join([f"# Claims of {paper}", table(claims), *missing]) + "\n")
    console.print(f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold")


def _write_page(page: Path, reports: Sequence[Report]) -> None:
    """Replace the last section of the page by what came out now."""
    kept = page.read_text().split(LAST_SECTION)[0]
    parts = [table([claim for report in reports for claim in report.claims])]
    for report in reports:
        parts += [f"### {report.heading}", *report.tables]
    page.write_text(kept + LAST_SECTION + "\n\n" + "\n\n".join(parts) + "\n")

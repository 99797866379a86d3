"""What every paper's experiments share: claims that can fail, reports of figures, and the command that makes them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    test: str = ""
    """When it holds, in words."""
    readings: Mapping[str, bool] = field(default_factory=dict)
    """Whether it holds if the paper is read otherwise, by what is read otherwise."""
    improved: bool | None = None
    """Whether it would hold of our algorithms in place of the printed ones."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if all(held == self.holds for held in self.readings.values()):
            return "holds" if self.holds else "does not hold"
        others = " or if ".join(name for name, held in self.readings.items() if held != self.holds)
        return f"undecided: holds, but not if {others}" if self.holds else f"undecided: holds only if {others}"


@dataclass(frozen=True)
class Report:
    """One figure or table as text; its picture is in `key`.png."""

    key: str
    heading: str
    tables: Sequence[str]
    claims: list[Claim] = field(default_factory=list)


def table(claims: Sequence[Claim]) -> str:
    """Claims and verdicts as Markdown, and how many there are of each verdict."""
    tested, improved = any(c.test for c in claims), any(c.improved is not None for c in claims)
    heads = ["where", "the paper's claim", *["holds if"] * tested, "our figures", "verdict", *["with ours"] * improved]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for c in claims:
        ours = {None: "", True: "holds", False: "does not hold"}[c.improved]
        cells = [c.where, c.claim, *[c.test] * tested, c.ours, c.verdict, *[ours] * improved]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", summary(claims)])


def summary(claims: Sequence[Claim]) -> str:
    """How many claims hold, do not, or depend on how the paper is read."""
    held = sum(claim.verdict == "holds" for claim in claims)
    undecided = sum(claim.verdict.startswith("undecided") for claim in claims)
    if not undecided:
        return f"{held} of {len(claims)} hold."
    return f"{held} of {len(claims)} hold, {len(claims) - held - undecided} do not, {undecided} are undecided."


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
        _write_page(folder / "README.md", _kept(arguments.out, figures))


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
            title = f"Table {name[-1]}" if name.startswith("table") else f"Figure {name}" if name[0].isdigit() else name
            bar = progress.add_task(title, total=None)
            try:
                report = figures[name](shared)
            except MissingDataError as error:
                missing.append(f"{title} is left out: {error}")
                progress.update(bar, description=f"{title} left out", total=1, completed=1)
            else:
                parts = [f"# {report.heading}", *report.tables, f"![{report.key}]({report.key}.png)"]
                (out / f"{report.key}.md").write_text(
                    "\n\n".join([*parts, *([table(report.claims)] if report.claims else [])]) + "\n"
                )
                (out / f"{name}.json").write_text(json.dumps(asdict(report), default=lambda value: value.item()))
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
        colour = {"holds": "green", "does not hold": "red"}.get(claim.verdict, "yellow")
        shown.add_row(claim.where, claim.claim, claim.ours, f"[{colour}]{claim.verdict}[/]")
    console.print(shown)
    for line in missing:
        console.print(f"[yellow]{line}[/]")
    (out / "claims.md").write_text("\n\n".join([f"# Claims of {paper}", table(claims), *missing]) + "\n")
    console.print(summary(claims))


def _kept(out: Path, figures: Iterable[str]) -> list[Report]:
    """All reports in a folder, also of earlier runs: figures may be made one at a time."""
    found = [json.loads(path.read_text()) for name in figures if (path := out / f"{name}.json").exists()]
    return [Report(**{**report, "claims": [Claim(**claim) for claim in report["claims"]]}) for report in found]


def _write_page(page: Path, reports: Sequence[Report]) -> None:
    """Replace the last section of the page by what came out now."""
    kept = page.read_text().split(LAST_SECTION)[0]
    parts = [table([claim for report in reports for claim in report.claims])]
    for report in reports:
        parts += [f"### {report.heading}", *report.tables]
    page.write_text(kept + LAST_SECTION + "\n\n" + "\n\n".join(parts) + "\n")

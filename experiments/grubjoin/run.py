"""Reproduce the experiments of the GrubJoin paper: Figures 7 to 15, and a verdict on every claim.

python experiments/grubjoin/run.py [--figure 11] [--out artifacts/grubjoin] [--runs 2] [--readme]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from claims import table
from figures import FIGURES, Context, Report
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

LAST_SECTION = "## Figures and verdicts"
"""The heading of the README's last section, which this command writes."""


def main() -> None:
    arguments = _arguments()
    console = Console()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.figure or list(FIGURES)
    reports: list[Report] = []
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
            bar = progress.add_task(f"Figure {name}", total=None)
            report = FIGURES[name](Context(out, arguments.runs, lambda bar=bar: progress.advance(bar)))
            _write(out, report)
            reports.append(report)
            progress.update(bar, total=progress.tasks[bar].completed)
            progress.advance(whole)
    _finish(console, out, reports, time.perf_counter() - begin)
    if arguments.readme:
        _readme(reports)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", action="append", choices=list(FIGURES), help="may be repeated (default: all)")
    parser.add_argument("--out", type=Path, default=Path("artifacts/grubjoin"), help="where the files go")
    parser.add_argument("--runs", type=int, default=2, help="runs per setting, from seeds; the mean counts")
    parser.add_argument("--readme", action="store_true", help="put tables and verdicts into README.md as well")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs takes a whole number from 1")
    return arguments


def _write(out: Path, report: Report) -> None:
    parts = [f"# {report.heading}", *report.tables, f"![{report.key}]({report.key}.png)", table(report.claims)]
    (out / f"{report.key}.md").write_text("\n\n".join(parts) + "\n")


def _readme(reports: list[Report]) -> None:
    """Replace the last section of the page by what came out now."""
    page = Path(__file__).with_name("README.md")
    kept = page.read_text().split(LAST_SECTION)[0]
    parts = [table([claim for report in reports for claim in report.claims])]
    for report in reports:
        parts += [f"### {report.heading}", *report.tables]
    page.write_text(kept + LAST_SECTION + "\n\n" + "\n\n".join(parts) + "\n")


def _finish(console: Console, out: Path, reports: list[Report], seconds: float) -> None:
    claims = [claim for report in reports for claim in report.claims]
    shown = Table(title="The paper's claims", show_lines=False)
    for column in ("where", "claim", "our figures", "verdict"):
        shown.add_column(column, overflow="fold")
    for claim in claims:
        colour = "green" if claim.holds else "red"
        shown.add_row(claim.where, claim.claim, claim.ours, f"[{colour}]{claim.verdict}[/]")
    console.print(shown)
    (out / "claims.md").write_text("# Claims of the GrubJoin paper\n\n" + table(claims) + "\n")
    held = sum(claim.holds for claim in claims)
    console.print(f"{held} of {len(claims)} claims hold; {seconds:.0f} s; written to {out}")


if __name__ == "__main__":
    main()

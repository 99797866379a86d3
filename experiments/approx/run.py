"""Reproduce section 5 of the paper on progressive approximate joins: Figures 4 to 9, and a verdict on every claim.

python experiments/approx/run.py [--figure 4] [--out artifacts/approx] [--scale 1.0]
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


def main() -> None:
    arguments = _arguments()
    console = Console()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.figure or list(FIGURES)
    reports: list[Report] = []
    begin = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} runs"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars: dict[str, int] = {}
        context = Context(out, arguments.scale, lambda: None)
        for name in wanted:
            bars[name] = progress.add_task(f"Figure {name}", total=None)
            context.tick = lambda bar=bars[name]: progress.advance(bar)
            report = FIGURES[name](context)
            reports.append(report)
            _write(out, report)
            progress.update(bars[name], total=progress.tasks[bars[name]].completed)
    _finish(console, out, reports, time.perf_counter() - begin)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--figure", action="append", choices=list(FIGURES), help="one figure; may be repeated (default: all)"
    )
    parser.add_argument("--out", type=Path, default=Path("artifacts/approx"), help="where the files go")
    parser.add_argument("--scale", type=float, default=1.0, help="rows of all streams, as a share of the paper's")
    arguments = parser.parse_args()
    if not 0 < arguments.scale <= 1:
        parser.error("--scale takes a number above 0, up to 1")
    return arguments


def _write(out: Path, report: Report) -> None:
    parts = [f"# {report.heading}", *report.tables, f"![{report.key}]({report.key}.png)", table(report.claims)]
    (out / f"{report.key}.md").write_text("\n\n".join(parts) + "\n")


def _finish(console: Console, out: Path, reports: list[Report], seconds: float) -> None:
    claims = [claim for report in reports for claim in report.claims]
    shown = Table(title="The paper's claims")
    for column in ("where", "claim", "our figures", "verdict"):
        shown.add_column(column, overflow="fold")
    for claim in claims:
        colour = "green" if claim.holds else "red"
        shown.add_row(claim.where, claim.claim, claim.ours, f"[{colour}]{claim.verdict}[/]")
    console.print(shown)
    (out / "claims.md").write_text(f"# Claims of the paper on progressive approximate joins\n\n{table(claims)}\n")
    held = sum(claim.holds for claim in claims)
    console.print(f"{held} of {len(claims)} claims hold; {seconds:.0f} s; written to {out}")


if __name__ == "__main__":
    main()

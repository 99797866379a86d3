"""What the demo leaves behind: one HTML file with its figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail import datasets
from dovetail.command.report import Report
from dovetail.errors import SetupError
from dovetail.plots import charts as plot

if TYPE_CHECKING:
    from dovetail.plots.picture import Picture


@dataclass(frozen=True)
class Line:
    """A line of the summary."""

    what: str
    rows: str
    results: int
    seconds: float


@dataclass
class Seen:
    """What the acts leave for the report."""

    lines: list[Line] = field(default_factory=list)
    plan: str = ""
    reports: list[Any] = field(default_factory=list)
    sample: dict[str, float] = field(default_factory=dict)
    complete: dict[str, float] = field(default_factory=dict)


def demo_report(seen: Seen, path: Path) -> None:
    """Write what the demo showed as one HTML file, with pictures if matplotlib is there."""
    report = Report("What dovetail demo showed")
    rows = [(line.what, line.rows, f"{line.results:,}", f"{line.seconds:.2f}") for line in seen.lines]
    report.table(("join", "rows", "results", "seconds"), rows)
    report.heading("How the large join was planned")
    report.code(seen.plan)
    try:
        pictures = _pictures(seen)
    except SetupError as error:
        report.text(str(error))
        pictures = []
    for heading, picture, caption in pictures:
        report.heading(heading)
        report.picture(picture, caption)
    report.write(path)


def _pictures(seen: Seen) -> list[tuple[str, Picture, str]]:
    phones, laptops = (table["price"].drop_null().to_numpy() for table in datasets.phones_and_laptops(200, 200))
    return [
        (
            "The stream of three cameras",
            plot.rates(seen.reports),
            "Rows and results per second, and the rows held in state.",
        ),
        (
            "The sample next to the complete join",
            plot.histograms(seen.sample, seen.complete),
            "The sample keeps the proportions of the products.",
        ),
        (
            "Partition pairs of phone.price > laptop.price",
            plot.partitions(phones, laptops, op=">"),
            "Four published ways to cut 200 x 200 prices: shaded pairs are compared, the rest is never compared.",
        ),
    ]

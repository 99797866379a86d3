"""What the demo leaves behind: one HTML file with its figures, for a colleague who was not there."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail import datasets
from dovetail.command.report import Report
from dovetail.errors import SetupError
from dovetail.plots import charts as plot

if TYPE_CHECKING:
    from dovetail.command.demo_programs import Program
    from dovetail.command.demo_warm import Warmed
    from dovetail.plots.picture import Picture


@dataclass(frozen=True)
class Line:
    """A line of the summary."""

    what: str
    rows: str
    results: int
    seconds: float


@dataclass(frozen=True)
class Compared:
    """The same join by Spark alone and here, and a larger one here alone."""

    small: str
    spark: float
    ours: float
    large: str
    seconds: float


@dataclass
class Seen:
    """What the acts leave for the report."""

    spark: str = ""
    warmed: Warmed | None = None
    compared: Compared | None = None
    lines: list[Line] = field(default_factory=list)
    plan: str = ""
    reports: list[Any] = field(default_factory=list)
    sample: dict[str, float] = field(default_factory=dict)
    complete: dict[str, float] = field(default_factory=dict)


def demo_report(seen: Seen, programs: list[Program], path: Path) -> None:
    """Write what the demo showed as one HTML file, with pictures if matplotlib is there."""
    report = Report("Joins that Spark lacks, measured")
    report.lead(
        "Dovetail runs range, interval, as-of, best-match and window joins on Apache Spark, in batch and in streams. "
        "This page is what its demo measured on one machine."
    )
    if seen.compared is not None:
        _comparison(report, seen.compared)
    report.heading("All that was run")
    rows = [(line.what, line.rows, f"{line.results:,}", f"{line.seconds:.2f}") for line in seen.lines]
    report.table(("join", "rows", "results", "seconds"), rows)
    if seen.warmed is not None:
        report.text(f"{seen.warmed.text()} The seconds above are run time alone.")
    report.text(_machine(seen.spark))
    report.heading("How the range join was planned")
    report.text("What dt.explain says before anything runs:")
    report.code(seen.plan)
    try:
        pictures = _pictures(seen)
    except SetupError as error:
        report.text(str(error))
        pictures = []
    for heading, picture, caption in pictures:
        report.heading(heading)
        report.picture(picture, caption)
    report.heading("Try it")
    report.code('pip install "dovetail-spark[pyspark,cli,plots]"\ndovetail demo')
    for program in programs:
        report.details(program.path.name, program.text)
    report.write(path)


def _comparison(report: Report, found: Compared) -> None:
    ratio = found.spark / found.ours
    report.heading(f"A range join, {found.small} rows: {ratio:.1f} times as fast")
    report.code("ABS(a.value - b.value) <= 1")
    bars = [(f"Spark's own, {found.small}", found.spark), (f"Dovetail, {found.small}", found.ours)]
    if found.large != found.small:
        bars.append((f"Dovetail, {found.large}", found.seconds))
    report.bars([(label, seconds, f"{seconds:.2f} s") for label, seconds in bars])
    report.text(
        "Spark compares every row of one side with every row of the other, so twice the rows take four times as long. "
        "Dovetail sorts and searches: its cost follows the rows that come in and the pairs that come out."
    )


def _machine(spark: str) -> str:
    version = import_module("dovetail").__version__
    return (
        f"{os.cpu_count()} cores, {platform.system()} on {platform.machine()}, Spark {spark}, Python "
        f"{platform.python_version()}, Dovetail {version}, {date.today():%d %B %Y}. "
        "Parquet in, results counted or discarded, one run each."
    )


def _pictures(seen: Seen) -> list[tuple[str, Picture, str]]:
    phones, laptops = (table["price"].drop_null().to_numpy() for table in datasets.phones_and_laptops(200, 200))
    return [
        (
            "A stream of three cameras",
            plot.rates(seen.reports),
            "Rows and results per second, and the rows held in state: rows that can no longer match are evicted.",
        ),
        (
            "A sample beside the complete join",
            plot.histograms(seen.sample, seen.complete),
            "The sample keeps the proportions of the products, within a fixed memory.",
        ),
        (
            "What the published theta joins compare",
            plot.partitions(phones, laptops, op=">"),
            "phone.price > laptop.price, 200 x 200 prices, cut in four published ways: only shaded pairs are compared.",
        ),
    ]

"""Reproduce section 4 of the best-match paper: figures 11 to 14, and a verdict on every claim.

python experiments/bestmatch/run.py [--figure 11] [--out artifacts/bestmatch] [--runs 3]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from data import KINDS, rows
from matwin import Run, matwin, nested_loops
from rich.console import Console
from rich.table import Table

EPS = 0.1
VARIANTS: dict[str, Callable[[np.ndarray, np.ndarray], Run]] = {
    "nested loops": lambda r, s: nested_loops(r, s, EPS),
    "MatWin/Standard": lambda r, s: matwin(r, s, EPS, grid=False, ego=False),
    "MatWin/Standard/EGO": lambda r, s: matwin(r, s, EPS, grid=False, ego=True),
    "MatWin/Grid/EGO": lambda r, s: matwin(r, s, EPS, grid=True, ego=True),
}
MATWIN = [name for name in VARIANTS if name != "nested loops"]


@dataclass
class Report:
    """A figure: its tables, and what the paper claims of it."""

    key: str
    heading: str
    tables: list[str] = field(default_factory=list)
    claims: list[tuple[str, str, bool]] = field(default_factory=list)


def markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *lines]])


def measured(name: str, sides: tuple[np.ndarray, np.ndarray], runs: int) -> Run:
    """The run with the median time."""
    made = [VARIANTS[name](*sides) for _ in range(runs)]
    middle = statistics.median_low([run.seconds for run in made])
    return next(run for run in made if run.seconds == middle)


def total_times(
    key: str, heading: str, names: list[str], settings: dict[str, tuple[np.ndarray, np.ndarray]], out: Path, runs: int
) -> tuple[Report, dict[tuple[str, str], Run]]:
    found: dict[tuple[str, str], Run] = {}
    for label, sides in settings.items():
        for name in names:
            found[name, label] = measured(name, sides, runs)
        assert len({frozenset(found[name, label].pairs) for name in names}) == 1
    report = Report(key, heading)
    for what, value in (
        ("seconds", lambda run: f"{run.seconds:.3f}"),
        ("page accesses", lambda run: f"{run.accesses:,}"),
        ("pairs compared", lambda run: f"{run.comparisons:,}"),
    ):
        lines = [[name, *[value(found[name, label]) for label in settings]] for name in names]
        report.tables.append(markdown([what, *settings], lines))
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name in names:
        axes[0].plot(list(settings), [found[name, label].seconds for label in settings], "o-", label=name)
        axes[1].plot(list(settings), [found[name, label].accesses for label in settings], "o-", label=name)
    axes[0].set(ylabel="seconds", yscale="log")
    axes[1].set(ylabel="page accesses", yscale="log")
    axes[0].legend(fontsize=8)
    figure.suptitle(heading)
    figure.savefig(out / f"{key}.png", dpi=110)
    plt.close(figure)
    return report, found


def figure11(out: Path, runs: int) -> Report:
    sizes = [250, 500, 1000, 2000]
    settings = {str(n): (rows("uniform", n, 2, 1), rows("uniform", n, 2, 2)) for n in sizes}
    report, found = total_times("fig11", "Figure 11: total time by size", list(VARIANTS), settings, out, runs)
    last = str(sizes[-1])
    seconds = {name: found[name, last].seconds for name in VARIANTS}
    accesses = {name: found[name, last].accesses for name in VARIANTS}
    slowest = max(seconds[name] for name in MATWIN)
    report.claims = [
        (f"all variants of MatWin are faster than nested loops ({last} rows)",
         f"{seconds['nested loops']:.2f} s against at most {slowest:.2f} s", seconds["nested loops"] > slowest),
        (f"all variants of MatWin compare fewer pairs than nested loops ({last} rows)",
         f"{found['nested loops', last].comparisons:,} against at most "
         f"{max(found[name, last].comparisons for name in MATWIN):,}",
         found["nested loops", last].comparisons > max(found[name, last].comparisons for name in MATWIN)),
        ("grid order makes the standard materialisation faster",
         f"{seconds['MatWin/Standard']:.3f} s without, {seconds['MatWin/Standard/EGO']:.3f} s with",
         seconds["MatWin/Standard/EGO"] < seconds["MatWin/Standard"]),
        ("grid order makes it compare fewer pairs",
         f"{found['MatWin/Standard', last].comparisons:,} without, "
         f"{found['MatWin/Standard/EGO', last].comparisons:,} with",
         found["MatWin/Standard/EGO", last].comparisons < found["MatWin/Standard", last].comparisons),
        ("grid materialisation is a little faster than standard",
         f"{seconds['MatWin/Grid/EGO']:.3f} s and {seconds['MatWin/Standard/EGO']:.3f} s; "
         f"{accesses['MatWin/Grid/EGO']:,} and {accesses['MatWin/Standard/EGO']:,} accesses",
         seconds["MatWin/Grid/EGO"] < seconds["MatWin/Standard/EGO"]),
    ]  # fmt: skip
    return report


def figure12(out: Path, runs: int) -> Report:
    settings = {str(d): (rows("uniform", 1000, d, 1), rows("uniform", 1000, d, 2)) for d in (2, 3, 4, 5)}
    report, found = total_times("fig12", "Figure 12: total time by dimensions", MATWIN, settings, out, runs)
    grid = [found["MatWin/Grid/EGO", d].seconds for d in settings]
    standard = [found["MatWin/Standard/EGO", d].seconds for d in settings]
    report.claims = [
        ("grid materialisation is better with few dimensions (2)",
         f"{grid[0]:.3f} s against {standard[0]:.3f} s", grid[0] < standard[0]),
        ("grid materialisation is worse with many dimensions (5)",
         f"{grid[-1]:.3f} s against {standard[-1]:.3f} s", grid[-1] > standard[-1]),
        ("the number of dimensions does not affect the standard materialisation (5 within 1.5 times 2)",
         f"{standard[0]:.3f} s, {standard[-1]:.3f} s", standard[-1] < 1.5 * standard[0]),
    ]  # fmt: skip
    return report


def propagation(
    key: str, heading: str, settings: dict[str, tuple[np.ndarray, np.ndarray]], out: Path, runs: int
) -> tuple[Report, dict[str, tuple[np.ndarray, np.ndarray, Run]]]:
    """When results come out, as shares of the work and of the result."""
    found = {}
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    lines = []
    for label, sides in settings.items():
        run = measured("MatWin/Standard/EGO", sides, runs)
        moments, accesses, counts = (np.array(part) for part in zip(*run.propagated, strict=True))
        # Progress by page accesses: seconds show what else the machine was doing.
        at, share = accesses / run.accesses, counts / max(1, run.results)
        found[label] = (at, share, run)
        axes.plot(moments, share * 100, label=label)
        marks = [f"{np.interp(x, at, share) * 100:.0f} %" for x in (0.25, 0.5, 0.75)]
        lines.append([label, f"{run.seconds:.3f}", f"{run.results:,}", str(len(run.propagated)), *marks])
    axes.set(xlabel="seconds", ylabel="% of the result")
    axes.legend(fontsize=8)
    figure.suptitle(heading)
    figure.savefig(out / f"{key}.png", dpi=110)
    plt.close(figure)
    head = [
        "rows",
        "seconds",
        "results",
        "times that results left",
        "at 25 % of accesses",
        "at 50 %",
        "at 75 %",
    ]
    return Report(key, heading, [markdown(head, lines)]), found


def figure13(out: Path, runs: int) -> Report:
    settings = {kind: (rows(kind, 1000, 2, 1), rows(kind, 1000, 2, 2)) for kind in KINDS}
    report, found = propagation("fig13", "Figure 13: results propagated, by distribution", settings, out, runs)
    halves = {kind: float(np.interp(0.5, *found[kind][:2])) for kind in KINDS}
    normal, uniform = found["normal"][2], found["uniform"][2]
    report.claims = [
        ("results come out continuously, whatever the distribution (30 % to 70 % of them at half the accesses)",
         ", ".join(f"{kind} {share * 100:.0f} %" for kind, share in halves.items()),
         all(0.3 <= share <= 0.7 for share in halves.values())),
        ("normal values take longer than uniform ones (by accesses), because the result has more pairs",
         f"{normal.accesses:,} and {uniform.accesses:,} accesses, {normal.results:,} and {uniform.results:,} pairs",
         normal.accesses > uniform.accesses and normal.results > uniform.results),
    ]  # fmt: skip
    return report


def figure14(out: Path, runs: int) -> Report:
    settings = {
        f"{decimals} decimals": (rows("uniform", 1000, 2, 1, decimals), rows("uniform", 1000, 2, 2, decimals))
        for decimals in (1, 2, 3, 4, 5)
    }
    report, found = propagation("fig14", "Figure 14: results propagated, by precision of y1", settings, out, runs)
    fine = [float(np.interp(0.5, *found[label][:2])) for label in list(settings)[1:]]
    steps = len(found["1 decimals"][2].propagated)
    report.claims = [
        ("two to five decimals do not change how continuously results come out (35 % to 65 % at half the accesses)",
         ", ".join(f"{share * 100:.0f} %" for share in fine), all(0.35 <= share <= 0.65 for share in fine)),
        ("with one decimal, as coarse as the maximum distance, results come out in steps (12 or fewer)",
         f"{steps} times", steps <= 12),
    ]  # fmt: skip
    return report


FIGURES = {"11": figure11, "12": figure12, "13": figure13, "14": figure14}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", action="append", choices=list(FIGURES), help="may be repeated (default: all)")
    parser.add_argument("--out", type=Path, default=Path("artifacts/bestmatch"))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    # Compiled before anything is timed.
    small = rows("uniform", 60, 2, 1), rows("uniform", 60, 2, 2)
    for name in VARIANTS:
        VARIANTS[name](*small)
    shown = Table(title="The paper's claims")
    for column in ("figure", "claim", "our figures", "verdict"):
        shown.add_column(column, overflow="fold")
    lines = []
    for name in arguments.figure or list(FIGURES):
        report = FIGURES[name](arguments.out, arguments.runs)
        verdicts = [[claim, ours, "holds" if holds else "does not hold"] for claim, ours, holds in report.claims]
        parts = [f"# {report.heading}", *report.tables, f"![{report.key}]({report.key}.png)",
                 markdown(["claim", "our figures", "verdict"], verdicts)]  # fmt: skip
        (arguments.out / f"{report.key}.md").write_text("\n\n".join(parts) + "\n")
        for line in verdicts:
            shown.add_row(name, *line)
            lines.append([name, *line])
    console.print(shown)
    (arguments.out / "claims.md").write_text(
        "# Claims of the best-match paper\n\n" + markdown(["figure", "claim", "our figures", "verdict"], lines) + "\n"
    )


if __name__ == "__main__":
    main()

"""Figures 11 to 14, and the example of Figures 7 and 8: what is run, drawn and tabulated."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import claims
import matplotlib.pyplot as plt
import numpy as np
from data import KINDS, rows
from matwin import Run, matwin, nested_loops
from reproduce import Report

from dovetail.families.bestmatch.paper.schedule import accesses, crabstep, gallop

EPS = 0.1
EPSILONS = (0.05, 0.1, 0.2)
LOOPS, LOOPS_BETTER = "nested loops", "nested loops, improved"
PLAIN, STANDARD, STANDARD_BETTER = "MatWin/Standard", "MatWin/Standard/EGO", "MatWin/Standard/EGO, improved"
GRID = "MatWin/Grid/EGO"
MATWIN = (PLAIN, STANDARD, GRID)
Sides = tuple[np.ndarray, np.ndarray]
Found = Mapping[tuple[str, str], Run]

VARIANTS: dict[str, Callable[[np.ndarray, np.ndarray, float], Run]] = {
    LOOPS: lambda r, s, eps: nested_loops(r, s, eps),
    LOOPS_BETTER: lambda r, s, eps: nested_loops(r, s, eps, improved=True),
    PLAIN: lambda r, s, eps: matwin(r, s, eps, grid=False, ego=False),
    STANDARD: lambda r, s, eps: matwin(r, s, eps, grid=False, ego=True),
    STANDARD_BETTER: lambda r, s, eps: matwin(r, s, eps, grid=False, ego=True, improved=True),
    GRID: lambda r, s, eps: matwin(r, s, eps, grid=True, ego=True),
}


@dataclass
class Context:
    """Where results go, how many runs to make, and what to call after each."""

    out: Path
    runs: int
    tick: Callable[[], None]
    _warm: bool = field(default=False)

    def run(self, name: str, sides: Sides, eps: float = EPS) -> Run:
        """The run with the median time; the counts of all are the same."""
        if not self._warm:
            small = rows("uniform", 60, 2, 1), rows("uniform", 60, 2, 2)
            for variant in VARIANTS.values():
                variant(*small, EPS)
            self._warm = True
        made = [VARIANTS[name](*sides, eps) for _ in range(1 if name == LOOPS else self.runs)]
        assert len({(one.accesses, one.comparisons, one.results) for one in made}) == 1
        middle = statistics.median_low([one.seconds for one in made])
        self.tick()
        return next(one for one in made if one.seconds == middle)

    def all(self, names: Sequence[str], settings: Mapping[str, tuple[Sides, float]]) -> dict[tuple[str, str], Run]:
        """Runs by variant and setting; all variants must find the same pairs."""
        found = {}
        for label, (sides, eps) in settings.items():
            for name in names:
                found[name, label] = self.run(name, sides, eps)
            assert len({frozenset(found[name, label].pairs) for name in names}) == 1, label
        return found


def pair(kind: str, size: int, axes: int, decimals: int | None = None) -> Sides:
    return rows(kind, size, axes, 1, decimals), rows(kind, size, axes, 2, decimals)


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(line) + " |" for line in [heads, ["---"] * len(heads), *lines]])


MEASURES: dict[str, Callable[[Run], str]] = {
    "seconds": lambda run: f"{run.seconds:.3f}",
    "page accesses": lambda run: f"{run.accesses:,}",
    "pairs compared": lambda run: f"{run.comparisons:,}",
}


def tables(found: Found, names: Sequence[str], labels: Sequence[str], what: str) -> list[str]:
    return [
        table([f"{measure} by {what}", *labels], [[name, *[show(found[name, at]) for at in labels]] for name in names])
        for measure, show in MEASURES.items()
    ]


def draw(path: Path, heading: str, found: Found, names: Sequence[str], labels: Sequence[str]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name in names:
        axes[0].plot(labels, [found[name, at].seconds for at in labels], "o-", label=name)
        axes[1].plot(labels, [found[name, at].accesses for at in labels], "o-", label=name)
    axes[0].set(ylabel="seconds", yscale="log")
    axes[1].set(ylabel="page accesses", yscale="log")
    axes[0].legend(fontsize=7)
    figure.suptitle(heading)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def figure_11(context: Context) -> Report:
    labels = ["250", "500", "1000", "2000"]
    names = list(VARIANTS)
    found = context.all(names, {n: (pair("uniform", int(n), 2), EPS) for n in labels})
    heading = "Figure 11: total time by rows of each input (uniform, 2 dimensions, distance 0.1)"
    draw(context.out / "fig11.png", heading, found, names, labels)
    return Report(
        "fig11", heading, tables(found, names, labels, "rows"), claims.by_size("Figure 11", found, labels[-1])
    )


def figure_12(context: Context) -> Report:
    labels = ["2", "3", "4", "5"]
    names = list(VARIANTS)
    found = context.all(names, {d: (pair("uniform", 1000, int(d)), EPS) for d in labels})
    heading = "Figure 12: total time by dimensions (uniform, 1000 rows, distance 0.1)"
    draw(context.out / "fig12.png", heading, found, names, labels)
    full = [[name, *[f"{found[name, d].rows_on_pages / found[name, d].pages:.1f}" for d in labels]] for name in MATWIN]
    return Report(
        "fig12",
        heading,
        [*tables(found, names, labels, "dimensions"), table(["rows on a page of 50, by dimensions", *labels], full)],
        claims.by_dimensions("Figure 12", found, labels),
    )


def other_settings(axes: int, size: int, names: Sequence[str]) -> Callable[[Context], Report]:
    """The other distributions and distances, of which section 4 says that the observations hold, too."""

    def make(context: Context) -> Report:
        settings = {f"{kind}, {eps:g}": (pair(kind, size, axes), eps) for kind in KINDS for eps in EPSILONS}
        labels = list(settings)
        found = context.all(names, settings)
        shown = (MEASURES["seconds"], MEASURES["page accesses"])
        lines = [[label, *[show(found[name, label]) for name in names for show in shown]] for label in labels]
        heads = [f"{name}: {what}" for name in names for what in ("s", "accesses")]
        figure, axis = plt.subplots(figsize=(9, 3.8), layout="constrained")
        for name in names:
            axis.plot(labels, [found[name, at].accesses for at in labels], "o-", label=name)
        axis.set(ylabel="page accesses", yscale="log")
        axis.tick_params(axis="x", rotation=60)
        axis.legend(fontsize=7)
        figure.savefig(context.out / f"settings{axes}.png", dpi=110)
        plt.close(figure)
        heading = f"Other distributions and distances, {axes} dimensions, {size} rows"
        judged = claims.everywhere("section 4", found, labels, axes)
        return Report(f"settings{axes}", heading, [table(["rows, distance", *heads], lines)], judged)

    return make


def page_sizes(context: Context) -> Report:
    """How much of Figure 11 is our choice of 50 rows on a page: the paper does not say how large its pages are."""
    sides, sizes = pair("uniform", 1000, 2), (5, 10, 20, 50)
    how = {PLAIN: (False, False), STANDARD: (False, True), GRID: (True, True)}
    found = {}
    for size in sizes:
        for name, (grid, ego) in how.items():
            found[name, str(size)] = matwin(*sides, EPS, grid=grid, ego=ego, page_rows=size)
            context.tick()
    pages = {str(size): 1000 // size for size in sizes}
    loops = [f"{2 * n + n + n * n + n**3:,}" for n in pages.values()]
    lines = [[name, *[f"{found[name, str(size)].accesses:,}" for size in sizes]] for name in how]
    figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for name in how:
        axis.plot(sizes, [found[name, str(size)].accesses for size in sizes], "o-", label=name)
    axis.set(xlabel="rows on a page", ylabel="page accesses", yscale="log")
    axis.legend(fontsize=7)
    figure.savefig(context.out / "pages.png", dpi=110)
    plt.close(figure)
    heads = [f"{size} rows" for size in sizes]
    return Report(
        "pages",
        "Page accesses by the size of a page (uniform, 1000 rows, 2 dimensions, distance 0.1)",
        [table(["page accesses", *heads], [["nested loops", *loops], *lines])],
        claims.by_page("Figure 11", found, pages),
    )


def propagation(
    context: Context, key: str, heading: str, settings: Mapping[str, Sides]
) -> tuple[list[str], dict[str, tuple[np.ndarray, np.ndarray, Run]]]:
    """When results come out, as shares of the work and of the result."""
    found = {}
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    lines = []
    for label, sides in settings.items():
        run = context.run(STANDARD, sides)
        moments, reads, counts = (np.array(part) for part in zip(*run.propagated, strict=True))
        # Progress by page accesses: seconds show what else the machine was doing.
        at, share = reads / run.accesses, counts / max(1, run.results)
        found[label] = (at, share, run)
        axes.plot(moments, share * 100, label=label)
        marks = [f"{np.interp(x, at, share) * 100:.0f} %" for x in (0.1, 0.25, 0.5, 0.75, 0.9)]
        lines.append(
            [label, f"{run.seconds:.3f}", f"{run.accesses:,}", f"{run.results:,}", str(len(run.propagated)), *marks]
        )
    axes.set(xlabel="seconds", ylabel="% of the result")
    axes.legend(fontsize=8)
    figure.suptitle(heading)
    figure.savefig(context.out / f"{key}.png", dpi=110)
    plt.close(figure)
    heads = ["rows", "seconds", "accesses", "results", "times that results left", "at 10 % of accesses"]
    return [table([*heads, "25 %", "50 %", "75 %", "90 %"], lines)], found


def figure_13(context: Context) -> Report:
    heading = "Figure 13: results propagated, by distribution (1000 rows, 2 dimensions, distance 0.1)"
    made, found = propagation(context, "fig13", heading, {kind: pair(kind, 1000, 2) for kind in KINDS})
    return Report("fig13", heading, made, claims.by_distribution("Figure 13", found))


def figure_14(context: Context) -> Report:
    heading = "Figure 14: results propagated, by precision of y1 (1000 rows, 2 dimensions, uniform, distance 0.1)"
    settings = {f"{n} decimal{'s' * (n > 1)}": pair("uniform", 1000, 2, n) for n in (1, 2, 3, 4, 5)}
    made, found = propagation(context, "fig14", heading, settings)
    return Report("fig14", heading, made, claims.by_precision("Figure 14", found))


def figure_8(context: Context) -> Report:
    """The one example with numbers: seven pages of each window, each next to two on either side, four buffers."""
    band = [(max(0, page - 2), min(7, page + 3)) for page in range(7)]
    counted = {"gallop": accesses(gallop(band, 4)), "crabstep": accesses(crabstep(band, 4))}
    figure, axis = plt.subplots(figsize=(4, 3), layout="constrained")
    axis.bar(list(counted), list(counted.values()))
    figure.savefig(context.out / "fig08.png", dpi=110)
    plt.close(figure)
    printed = {"gallop": 30, "crabstep": 21}
    lines = [[name, str(printed[name]), str(counted[name])] for name in counted]
    return Report(
        "fig08",
        "Figures 7 and 8: disk accesses of the example",
        [table(["schedule", "printed", "ours"], lines)],
        [claims.example("Figures 7 and 8", printed, counted)],
    )


FIGURES: dict[str, Callable[[Context], Report]] = {
    "8": figure_8,
    "11": figure_11,
    "12": figure_12,
    "settings2": other_settings(2, 1000, (LOOPS, *MATWIN)),
    "settings5": other_settings(5, 500, (STANDARD, GRID)),
    "pages": page_sizes,
    "13": figure_13,
    "14": figure_14,
}

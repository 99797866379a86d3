"""Figures 7 to 15 of the GrubJoin paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import claims
import numpy as np
from measure import (
    BRISK,
    DROP,
    GRUB,
    OVERHEAD,
    Runs,
    Setting,
    capacity,
    enumerated,
    milliseconds,
    random_case,
)  # fmt: skip
from reproduce import Report

import plots
from dovetail.families.shedding.optimizer.fractions import METRICS, harvest_counts

THROTTLES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CASES = 500
WORDS = {"output": "BestOutput", "output per cost": "BestOutputPerCost", "delta": "BestDeltaOutputPerDeltaCost"}


@dataclass(frozen=True)
class Context:
    """Where the output goes, how many runs to make, and whom to tell that another run is done."""

    out: Path
    count: int
    tick: Callable[[], None]

    @property
    def runs(self) -> Runs:
        """Runs under the virtual clock."""
        return Runs(self.out / "runs.json", self.count, self.tick)


Curves = Mapping[str, Sequence[float]]


def table(first: str, at: Sequence[object], curves: Curves, form: str = "{:.3f}") -> str:
    """A figure's numbers, one column for each curve."""
    lines = [f"| {first} | {' | '.join(curves)} |", "|" + " --- |" * (len(curves) + 1)]
    for row, x in enumerate(at):
        lines.append(f"| {x} | " + " | ".join(form.format(curve[row]) for curve in curves.values()) + " |")
    return "\n".join(lines)


def figure7(context: Context) -> Report:
    parts, panels, found = [], [], {}
    for correlated in (False, True):
        random = np.random.default_rng(7)
        ratios: dict[str, list[list[float]]] = {}
        for _ in range(CASES):
            model = random_case(random, 3, 10, correlated=correlated)
            best = [model.output(harvest_counts(model, z, method="exhaustive")) for z in THROTTLES]
            for metric in METRICS:
                plain = [model.output(harvest_counts(model, z, method="greedy", metric=metric, refined=False))
                         for z in THROTTLES]  # fmt: skip
                ratios.setdefault(WORDS[metric], []).append(_over(plain, best))
            refined = [model.output(harvest_counts(model, z, method="greedy")) for z in THROTTLES]
            ratios.setdefault("delta, refined", []).append(_over(refined, best))
        context.tick()
        curves = {label: np.mean(rows, axis=0).tolist() for label, rows in ratios.items()}
        name = "random correlations" if correlated else "flat correlations"
        found[name] = curves
        parts.append(f"{name}, mean of {CASES} cases\n\n" + table("z", THROTTLES, curves))
        panels.append((name, THROTTLES, curves))
    plots.lines(context.out / "figure7.png", panels, "throttle z", "output over the optimum", "Figure 7: optimality")
    return Report(
        "figure7", "Figure 7: optimality of the greedy settings", tuple(parts), claims.optimal(found, THROTTLES)
    )


def _over(some: Sequence[float], best: Sequence[float]) -> list[float]:
    return [one / other if other > 0 else 1.0 for one, other in zip(some, best, strict=True)]


def figure8(context: Context) -> Report:
    sizes = (5, 10, 15, 20)
    curves: dict[str, list[float]] = {}
    random = np.random.default_rng(8)
    for m in (3, 4, 5):
        models = [random_case(random, m, n, correlated=True) for n in sizes]
        curves[f"greedy, m = {m}"] = [milliseconds(lambda x=x: harvest_counts(x, 0.25)) for x in models]
        if m == 3:
            curves["every setting, m = 3"] = [milliseconds(lambda x=x: enumerated(x, 0.25), 2) for x in models]
        context.tick()
    panels = [("z = 0.25", sizes, curves)]
    plots.lines(context.out / "figure8.png", panels, "slices n", "milliseconds", "Figure 8: running time", log=True)
    text = table("n", sizes, curves)
    return Report("figure8", "Figure 8: running time over slices", (text,), claims.fast(curves, sizes))


def figure9(context: Context) -> Report:
    curves = {}
    random = np.random.default_rng(9)
    for m in (3, 4, 5):
        model = random_case(random, m, 10, correlated=True)
        curves[f"greedy, m = {m}"] = [
            milliseconds(lambda z=z, x=model: harvest_counts(x, z, method="greedy", refined=False)) for z in THROTTLES
        ]
        context.tick()
    panels = [("greedy, as in the paper", THROTTLES, curves)]
    plots.lines(context.out / "figure9.png", panels, "throttle z", "milliseconds", "Figure 9: running time", log=True)
    grows = {label: curve[-1] / curve[0] for label, curve in curves.items()}
    return Report("figure9", "Figure 9: running time of greedy over z", (table("z", THROTTLES, curves, "{:.4f}"),),
                  [claims.slower_with_z(grows)])  # fmt: skip


def figure10(context: Context) -> Report:
    model = random_case(np.random.default_rng(10), 3, 10, correlated=True)
    curves = {
        method: [milliseconds(lambda z=z, x=method: harvest_counts(model, z, method=x, refined=False), 50)
                 for z in THROTTLES]
        for method in ("greedy", "reverse", "double-sided")
    }  # fmt: skip
    context.tick()
    panels = [("m = 3", THROTTLES, curves)]
    plots.lines(context.out / "figure10.png", panels, "throttle z", "milliseconds", "Figure 10: three ways to search")
    return Report("figure10", "Figure 10: greedy, reverse and double-sided", (table("z", THROTTLES, curves, "{:.4f}"),),
                  [claims.best_of_both(curves)])  # fmt: skip


def figure11(context: Context) -> Report:
    rates = (50.0, 100.0, 150.0, 200.0, 250.0)
    curves = {
        f"{algorithm}, {lags}": [context.runs.output(Setting(algorithm, rates=rate, lags=lags)) for rate in rates]
        for algorithm in (GRUB, DROP)
        for lags in ("aligned", "not aligned")
    }
    panels = [(f"{capacity():,.0f} comparisons/s", rates, curves)]
    plots.lines(
        context.out / "figure11.png", panels, "rows/s of each stream", "results/s", "Figure 11: output over rate"
    )
    return Report("figure11", "Figure 11: output over input rate", (table("rows/s", rates, curves, "{:.0f}"),),
                  claims.ahead_of_dropping(curves, rates))  # fmt: skip


def figure12(context: Context) -> Report:
    kappas = (2.0, 25.0, 50.0, 75.0, 100.0)
    curves = {
        algorithm: [context.runs.output(Setting(algorithm, kappas=(2.0, 2.0, kappa))) for kappa in kappas]
        for algorithm in (GRUB, DROP)
    }
    nothing = {algorithm: context.runs.output(Setting(algorithm, kappas=(5000.0,) * 3)) for algorithm in (GRUB, DROP)}
    panels = [("not aligned, 200 rows/s", kappas, curves)]
    plots.lines(context.out / "figure12.png", panels, "deviation of the third stream", "results/s",
                "Figure 12: output over correlation")  # fmt: skip
    rows = {name: [*curve, nothing[name]] for name, curve in curves.items()}
    text = table("kappa 3", [*kappas, "all random"], rows, "{:.0f}")
    judged = claims.with_correlation(curves, kappas, nothing)
    return Report("figure12", "Figure 12: output over the correlation of the third stream", (text,), judged)


def figure13(context: Context) -> Report:
    streams, curves = (3, 4, 5), {}
    for lags in ("aligned", "not aligned"):
        for name, algorithm, interval in ((GRUB, GRUB, 5.0), (BRISK, GRUB, 1.0), (DROP, DROP, 5.0)):
            settings = [Setting(algorithm, m=m, rates=100.0, lags=lags, interval=interval) for m in streams]
            curves[f"{name}, {lags}"] = [context.runs.output(setting) for setting in settings]
    plots.lines(context.out / "figure13.png", [("100 rows/s", streams, curves)], "streams", "results/s",
                "Figure 13: output over the number of streams", log=True)  # fmt: skip
    return Report("figure13", "Figure 13: number of streams", (table("m", streams, curves, "{:.1f}"),),
                  claims.grows_with_streams(curves))  # fmt: skip


def figure14(context: Context) -> Report:
    intervals = (0.5, 1.0, 3.0, 5.0, 8.0)
    rates = ((0.0, 100.0), (28.0, 150.0), (36.0, 50.0), (44.0, 100.0), (52.0, 150.0))
    curves = {
        f"m = {m}": [
            context.runs.output(Setting(GRUB, m=m, rates=rates, interval=interval, overhead=OVERHEAD[m]))
            for interval in intervals
        ]
        for m in (3, 4, 5)
    }
    relative = {name: [value / max(curve) for value in curve] for name, curve in curves.items()}
    plots.lines(context.out / "figure14.png", [("changing rates", intervals, relative)], "adaptation interval, s",
                "results/s over the best", "Figure 14: adaptation interval")  # fmt: skip
    return Report("figure14", "Figure 14: adaptation interval", (table("interval", intervals, curves, "{:.1f}"),),
                  [claims.best_interval(curves, intervals)])  # fmt: skip


def figure15(context: Context) -> Report:
    buffers, rates = (0.25, 0.5, 1.0, 2.0), (150.0, 200.0, 250.0)
    curves = {}
    for rate in rates:
        shares = [context.runs.lost(Setting(GRUB, rates=rate, buffer=buffer, seconds=40.0)) for buffer in buffers]
        curves[f"{rate:g} rows/s"] = shares
    plots.lines(context.out / "figure15.png", [("", buffers, curves)], "buffer, s", "rows lost", "Figure 15: rows lost")
    return Report("figure15", "Figure 15: rows lost over the size of buffers", (table("buffer, s", buffers, curves),),
                  [claims.buffers_help(curves, buffers)])  # fmt: skip


FIGURES: dict[str, Callable[[Context], Report]] = {
    "7": figure7, "8": figure8, "9": figure9, "10": figure10, "11": figure11, "12": figure12, "13": figure13,
    "14": figure14, "15": figure15,
}  # fmt: skip

"""The measured figures of the GrubJoin paper; `examples.py` has its worked examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import claims
import news
import numpy as np
from measure import (
    ADAPTED,
    BACKLOG,
    DROP,
    EVEN,
    GRUB,
    KAPPAS,
    LAGS,
    OURS,
    OVERHEAD,
    WARM,
    Runs,
    Setting,
    best_product,
    capacity,
    enumerated,
    exact,
    milliseconds,
    random_case,
    static_plan,
)
from reproduce import Report

import examples
import plots
from dovetail.families.shedding.optimizer.fractions import METRICS, harvest_counts
from dovetail.families.shedding.paper.clock import ROOM

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
                plain = [
                    model.output(harvest_counts(model, z, method="greedy", metric=metric, refined=False))
                    for z in THROTTLES
                ]
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
    return Report(
        "figure9",
        "Figure 9: running time of greedy over z",
        (table("z", THROTTLES, curves, "{:.4f}"),),
        [claims.slower_with_z(grows)],
    )


def figure10(context: Context) -> Report:
    model = random_case(np.random.default_rng(10), 3, 10, correlated=True)
    curves = {
        method: [
            milliseconds(lambda z=z, x=method: harvest_counts(model, z, method=x, refined=False), 50) for z in THROTTLES
        ]
        for method in ("greedy", "reverse", "double-sided")
    }
    context.tick()
    panels = [("m = 3", THROTTLES, curves)]
    plots.lines(context.out / "figure10.png", panels, "throttle z", "milliseconds", "Figure 10: three ways to search")
    return Report(
        "figure10",
        "Figure 10: greedy, reverse and double-sided",
        (table("z", THROTTLES, curves, "{:.4f}"),),
        [claims.best_of_both(curves)],
    )


def figure2(context: Context) -> Report:
    # Steps longer than the window: the load of a row is what the window holds.
    rates, end = ((0.0, 100.0), (24.0, 200.0), (48.0, 50.0), (72.0, 150.0)), 96.0
    curves: dict[str, list[float]] = {}
    for name in (GRUB, OURS):
        curves[f"z, {name}"] = context.runs.course(Setting(name, rates=rates, interval=4.0, seconds=end))
    at = list(range(1, int(end)))
    curves["rate"] = [next(rate for begin, rate in reversed(rates) if begin <= second) / 200.0 for second in at]
    plots.lines(
        context.out / "figure2.png",
        [("interval 4 s, boost 1.2", at, curves)],
        "seconds",
        "throttle; rate over 200 rows/s",
        "Figure 2: the throttle follows the rates",
    )
    some = slice(1, None, 4)
    text = table("second", at[some], {name: curve[some] for name, curve in curves.items()})
    return Report("figure2", "Figure 2: the throttle follows the rates", (text,), claims.throttle_follows(curves))


def figure11(context: Context) -> Report:
    rates = (50.0, 150.0, 200.0, 250.0)
    curves = {
        f"{algorithm}, {lags}": [context.runs.output(Setting(algorithm, rates=rate, lags=lags)) for rate in rates]
        for algorithm in (GRUB, OURS, DROP)
        for lags in LAGS
    }
    panels = [(f"{capacity():,.0f} comparisons/s", rates, curves)]
    plots.lines(
        context.out / "figure11.png", panels, "rows/s of each stream", "results/s", "Figure 11: output over rate"
    )
    return Report(
        "figure11",
        "Figure 11: output over input rate",
        (table("rows/s", rates, curves, "{:.0f}"),),
        claims.ahead_of_dropping(curves, rates),
    )


def figure11_why(context: Context) -> Report:
    """Why the gain of Figure 11 is not the paper's: the rival's best chance, and what a result costs."""
    runs, names = context.runs, ("planned", "for 0.8 of the capacity", "for 1.25", "the same rate for all", "adapted")
    rivals: dict[str, list[float]] = {}
    promised: dict[str, tuple[float, float]] = {}
    for lags in LAGS:
        settings = [
            Setting(DROP, lags=lags),
            Setting(DROP, lags=lags, plan=0.8),
            Setting(DROP, lags=lags, plan=1.25),
            Setting(EVEN, lags=lags),
            Setting(ADAPTED, lags=lags),
        ]
        rivals[lags] = [runs.output(setting) for setting in settings]
        known = exact(3, 200.0, KAPPAS, lags)
        z = min(1.0, ROOM * capacity() / known.work)
        promised[lags] = float(static_plan(known, z)[0].prod()), best_product(known, z)
    costs = (0.0, 100.0, 1000.0)
    priced = {
        f"{algorithm}, aligned": [runs.output(Setting(algorithm, lags="aligned", emit=emit)) for emit in costs]
        for algorithm in (GRUB, OURS, DROP)
    }
    plots.lines(
        context.out / "figure11why.png",
        [("aligned, 200 rows/s", costs, priced)],
        "cost of a match, comparisons",
        "results/s",
        "Figure 11: what a match costs",
    )
    ours = {lags: runs.output(Setting(OURS, lags=lags)) for lags in LAGS}
    grub = {lags: runs.output(Setting(GRUB, lags=lags)) for lags in LAGS}
    tables = (
        "RandomDrop at 200 rows/s, results/s\n\n" + table("rates chosen", names, rivals, "{:.0f}"),
        "Output with a cost for every match, aligned, 200 rows/s\n\n" + table("cost", costs, priced, "{:.0f}"),
    )
    return Report(
        "figure11why",
        "Figure 11: why the gain is larger than printed",
        (*tables, claims.asked(claims.rival(rivals, promised, grub, ours, priced, costs))),
    )


def figure12(context: Context) -> Report:
    kappas = (25.0, 50.0, 75.0, 500.0)
    curves = {
        algorithm: [context.runs.output(Setting(algorithm, kappas=(2.0, 2.0, kappa, *KAPPAS[3:]))) for kappa in kappas]
        for algorithm in (GRUB, OURS, DROP)
    }
    random = (5000.0,) * 3
    nothing = {name: context.runs.output(Setting(name, kappas=random)) for name in (GRUB, OURS, DROP)}
    panels = [("not aligned, 200 rows/s", kappas, curves)]
    plots.lines(
        context.out / "figure12.png",
        panels,
        "deviation of the third stream",
        "results/s",
        "Figure 12: output over correlation",
    )
    rows = {name: [*curve, nothing[name]] for name, curve in curves.items()}
    text = table("kappa 3", [*kappas, "all random"], rows, "{:.0f}")
    judged = claims.with_correlation(curves, kappas, nothing)
    return Report("figure12", "Figure 12: output over the correlation of the third stream", (text,), judged)


def figure13(context: Context) -> Report:
    streams, curves = (3, 4, 5), {}
    for lags in LAGS:
        for name in (GRUB, OURS, DROP):
            settings = [Setting(name, m=m, rates=100.0, lags=lags) for m in streams]
            curves[f"{name}, {lags}"] = [context.runs.output(setting) for setting in settings]
    plots.lines(
        context.out / "figure13.png",
        [("100 rows/s", streams, curves)],
        "streams",
        "results/s",
        "Figure 13: output over the number of streams",
        log=True,
    )
    return Report(
        "figure13",
        "Figure 13: number of streams",
        (table("m", streams, curves, "{:.1f}"),),
        claims.grows_with_streams(curves),
    )


def figure14(context: Context) -> Report:
    intervals = (0.5, 1.0, 3.0, 8.0)
    rates = ((0.0, 100.0), (28.0, 150.0), (36.0, 50.0))

    def settings(m: int, overhead: float) -> list[Setting]:
        return [
            Setting(GRUB, m=m, rates=rates, interval=interval, overhead=overhead, seconds=44.0, tick=0.1)
            for interval in intervals
        ]

    runs = {f"m = {m}": settings(m, OVERHEAD[m]) for m in (3, 4, 5)}
    runs |= {f"m = 5, {overhead:g} s": settings(5, overhead) for overhead in (0.1,)}
    curves = {name: [context.runs.output(setting) for setting in chosen] for name, chosen in runs.items()}
    lost = {name: [context.runs.lost(setting) for setting in chosen] for name, chosen in runs.items()}
    throttles = {name: [_mean_throttle(context.runs, setting) for setting in chosen] for name, chosen in runs.items()}
    relative = {name: [value / max(found) for value in found] for name, found in curves.items()}
    plots.lines(
        context.out / "figure14.png",
        [("changing rates", intervals, relative)],
        "adaptation interval, s",
        "results/s over the best",
        "Figure 14: adaptation interval",
    )
    return Report(
        "figure14",
        "Figure 14: adaptation interval",
        (
            "Results/s; the last column: 0.1 s for an adaptation, ten times Figure 8\n\n"
            + table("interval", intervals, curves, "{:.0f}"),
            "The part of the rows that was lost\n\n" + table("interval", intervals, lost),
            "The mean throttle after the warm-up\n\n" + table("interval", intervals, throttles),
        ),
        [claims.best_interval(curves, intervals)],
    )


def _mean_throttle(runs: Runs, setting: Setting) -> float:
    return float(np.mean([runs.course(setting, seed)[int(WARM) - 1 :] for seed in range(runs.count)]))


def figure15(context: Context) -> Report:
    buffers, rates = {"10 rows": None, "1 s": 1.0, "2 s": 2.0}, (200.0,)
    curves = {
        f"{name}, {rate:g} rows/s": [
            context.runs.lost(Setting(name, rates=rate, buffer=buffer, tick=0.1)) for buffer in buffers.values()
        ]
        for rate in rates
        for name in (GRUB, OURS, BACKLOG)
    }
    courses = []
    for words, buffer in buffers.items():
        for name in (GRUB, OURS):
            found = context.runs.adaptations(Setting(name, buffer=buffer, tick=0.1))
            courses += [[words, name, *step] for step in found if step[0] >= WARM / 2]
    plots.lines(
        context.out / "figure15.png", [("", (0.0, 1.0, 2.0), curves)], "buffer, s", "rows lost", "Figure 15: rows lost"
    )
    text = table("buffer", list(buffers), curves)
    steps = ["| buffer | rule | at, s | beta | z set | rows waiting |", "|" + " --- |" * 6]
    steps += [f"| {b} | {rule} | {at:.1f} | {beta:.3f} | {z:.3f} | {w:.0f} |" for b, rule, at, beta, z, w in courses]
    return Report(
        "figure15",
        "Figure 15: rows lost over the size of buffers",
        (
            text,
            "Adaptations from the tenth second on: what beta was, the throttle it led to, and rows that wait\n\n"
            + "\n".join(steps),
            claims.asked(claims.backlog_counted(curves)),
        ),
        claims.buffers_help(curves),
    )


FIGURES: dict[str, Callable[[Context], Report]] = {
    "2": figure2,
    "3": examples.figure3,
    "4": examples.figure4,
    "6": examples.figure6,
    "7": figure7,
    "8": figure8,
    "9": figure9,
    "10": figure10,
    "11": figure11,
    "11why": figure11_why,
    "12": figure12,
    "13": figure13,
    "14": figure14,
    "15": figure15,
    "news": news.example1,
}

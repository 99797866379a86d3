"""Figures 5 to 10 and 12 to 15: comparisons on streams, numbers of partitions, window sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import claims
import data
import distributed
import numpy as np
from claims import Found, percent
from measure import (
    NEVER,
    OURS,
    RIVALS,
    P,
    Summary,
    Variant,
    W,
    automatic,
    collect,
    count_per_partition,
    count_three_way,
    count_two_way,
)
from reproduce import Report

import plots

PREFAP, FTJ = RIVALS[0], RIVALS[1]
PARTITIONS = (3, 5, 8, 10)
WINDOWS = (1000, 2000, 5000, 10_000)

TASKS = {
    "5": data.uniform(((20, 50), (10, 40)), ("<=",)),
    "6": data.zipf((1.2, 1.3), "<="),
    "7": data.clouds(">="),
    "8": data.stocks("2-way stock streams", ("IBM", "MSFT"), ("<=",)),
    "9": data.uniform(((20, 50), (10, 40), (0, 30)), ("<", "<=")),
    "10": data.stocks("3-way stock streams", ("FB", "ADBE", "IBM"), (">=", "<")),
    "table3": data.stocks("2-way stock streams", ("JNJ", "MSFT"), ("<=",)),
}
SMALLER = {
    "9": (data.uniform(((20, 50), (10, 40), (0, 30)), ("<", "<="), 250), 250),
    "10": (data.stocks("3-way stock streams", ("FB", "ADBE", "IBM"), (">=", "<"), every=3), 333),
    "table4": (data.stocks("3-way stock streams", ("FB", "ADBE", "IBM"), (">=", "<"), every=3), 333),
}
"""Tasks and windows for the cluster.  A product costs a thousand times as much there, and these figures have 10^8."""


@dataclass(frozen=True)
class Context:
    """Where the output goes, how many runs to make, and whom to tell that another run is done."""

    out: Path
    runs: int
    tick: Callable[[], None]
    kept: dict[str, Spreads] = field(default_factory=dict)

    def spread(self, number: str, variants: Sequence[Variant] = RIVALS, *, p: int = P) -> Spreads:
        """A figure's or table's joins through the cluster; Figure 11 tests those of Figures 6, 7 and 10 again."""
        if number not in self.kept:
            task, w = SMALLER.get(number, (TASKS.get(number), W))
            runs = max(self.runs * 3 // 10, 2)
            found = distributed.collect(task, variants, runs=runs, tick=self.tick, p=p, w=w)
            own = distributed.automatic(task, runs=1, tick=self.tick)
            rows = " x ".join(str(len(values)) for values in task.streams(0))
            self.kept[number] = Spreads(found, own, f"{rows} rows, p = {p}, w = {w}")
        return self.kept[number]


@dataclass(frozen=True)
class Spreads:
    """The algorithms and Dovetail's own join on the cluster, and the size of the task."""

    found: list[Summary]
    own: Summary
    size: str


def spread_rows(spreads: Spreads, name: str = "Prefap") -> str:
    """The figure's numbers on the cluster."""
    ours = spreads.found[0]
    head = [
        "four workers, ten tasks",
        "Cartesian products",
        "processor time ms",
        f"{name} against it",
        "largest task ms",
    ]
    head += ["elapsed ms", f"{name} against it, elapsed", "ns per product", "ratio in", "ratio out"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for s in spreads.found:
        cells = [
            s.label,
            f"{s.products:,.0f}",
            f"{s.work_ms:.0f}",
            "" if s is ours else _short(claims.interval(ours, s, "work_ms")),
        ]
        cells += [f"{s.largest_ms:.0f}", f"{s.elapsed_ms:.0f}"]
        cells += [
            "" if s is ours else _short(claims.middle_interval(ours, s, "elapsed_ms")),
            f"{1e6 * s.work_ms / s.products:.0f}",
        ]
        cells += [f"{s.ratio_in:.3f}", f"{s.ratio_out:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(
        [
            *lines,
            "",
            f"{spreads.size}; {len(ours.samples)} runs: means of counts and ratios, medians of times; differences with "
            "95 % intervals, of the mean for processor time and of the median for elapsed time. `theta_join` with its "
            f"own plan on this cluster: {spreads.own.elapsed_ms:.0f} ms elapsed.",
        ]
    )


def _short(interval: str) -> str:
    return interval.replace(", 95 % interval", ",")


def rows(found: Sequence[Summary], own: Summary | None = None, *, balance: bool = True) -> str:
    """The figure's numbers: Prefap first, its rivals, and Dovetail's own kernel where it was timed."""
    head = ["algorithm", "Cartesian products", "Prefap does fewer by", "above the results", "elapsed ms"]
    head += ["ratio in", "ratio out"] if balance else []
    lines = [" | ".join(["", *head, ""]).strip(), "|" + " --- |" * len(head)]
    for s in found:
        fewer = percent(found[0].products, s.products)
        above = percent(s.products, s.results) * -1
        cells = [s.label, f"{s.products:,.0f}", f"{fewer:.1f} %", f"{above:.1f} %", f"{s.elapsed_ms:.2f}"]
        cells += [f"{s.ratio_in:.3f}", f"{s.ratio_out:.3f}"] if balance else []
        lines.append("| " + " | ".join(cells) + " |")
    if own is not None:
        lines += [
            "",
            f"Dovetail's own sorted kernel (auto): {own.elapsed_ms:.2f} ms, {own.products:,.0f} comparisons.",
        ]
    lines += [
        "",
        f"Results: {found[0].results:,.0f}. Means over {len(found[0].samples)} runs; elapsed: median.",
    ]
    return "\n".join(lines)


def two_way(number: str, printed: float) -> Callable[[Context], Report]:
    key, where, task = f"fig{number:0>2}", f"Figure {number}", TASKS[number]

    def make(context: Context) -> Report:
        summaries = collect(task, (*RIVALS, *OURS), runs=context.runs, tick=context.tick)
        found = Found.of(summaries)
        heading = f"{where}: {task.title}, {task.theta}, p = {P}, w = {W}"
        own = automatic(task, runs=context.runs)
        plots.two_way(context.out / f"{key}.png", task, found.printed, own, heading)
        spreads = context.spread(number)
        plots.spread(context.out / f"{key}-workers.png", spreads.found, f"{heading}, four workers")

        def fewer(variants: Sequence[Variant], p: int, w: int) -> float:
            return float(
                np.mean(
                    [
                        percent(*(count_two_way(variant, streams, task.ops[0], p, w) for variant in variants))
                        for streams in _streams(task, context.runs)
                    ]
                )
            )

        readings = {label: fewer((PREFAP, FTJ), p, w) for p, w, label in _readings()}
        ours = fewer(OURS, P, W)
        judged = [
            claims.fewest_products(where, found),
            claims.reduction(where, printed, readings, ours),
            claims.shortest_elapsed(where, found, spreads.found),
            *claims.better_balance(where, found, spreads.found),
        ]
        return Report(
            key,
            heading,
            (rows(summaries, own), spread_rows(spreads), _reading_table(printed, readings, ours)),
            judged,
        )

    return make


def three_way(number: str, printed: float, printed_excess: float) -> Callable[[Context], Report]:
    key, where, task = f"fig{number:0>2}", f"Figure {number}", TASKS[number]

    def make(context: Context) -> Report:
        # A three-way run does a hundred times the work of a two-way run.
        runs = max(context.runs // 6, 2)
        summaries = collect(task, (*RIVALS, *OURS), runs=runs, tick=context.tick)
        found = Found.of(summaries)
        heading = f"{where}: {task.title}, {task.theta}, p = {P}, w = {W}"
        own = automatic(task, runs=runs)
        plots.three_way(context.out / f"{key}.png", task, found.printed, own, heading)
        spreads = context.spread(number)
        plots.spread(context.out / f"{key}-workers.png", spreads.found, f"{heading}, four workers")
        results = found.printed[0].results

        def counted(variants: Sequence[Variant], count: Callable[..., int], p: int, w: int) -> tuple[float, float]:
            """How many fewer products than FTJ, and how many more than results, in per cent."""
            pairs = [
                tuple(count(variant, streams, task.ops, p, w) for variant in variants)
                for streams in _streams(task, runs)
            ]
            above = 100.0 * (float(np.mean([pair[0] for pair in pairs])) / results - 1.0)
            return float(np.mean([percent(*pair) for pair in pairs])), above

        made = {label: counted((PREFAP, FTJ), count_three_way, p, w) for p, w, label in _readings()}
        for p in (10, 5):
            label = f"p = {p} and each partition of S has a second join"
            made[label] = counted((PREFAP, FTJ), count_per_partition, p, W)
        ours = counted(OURS, count_three_way, P, W)
        readings, excess = ({label: both[at] for label, both in made.items()} for at in (0, 1))
        judged = [
            claims.fewest_products(where, found),
            claims.reduction(where, printed, readings, ours[0]),
            claims.near(
                where,
                f"Prefap performs {printed_excess} % more products than results",
                printed_excess,
                excess,
                0.5,
                ours[1],
            ),
            claims.shortest_elapsed(where, found, spreads.found),
        ]
        return Report(
            key,
            heading,
            (
                rows(summaries, own, balance=False),
                spread_rows(spreads),
                _reading_table(printed, readings, ours[0]),
                _reading_table(printed_excess, excess, ours[1], "Prefap's products above the results"),
            ),
            judged,
        )

    return make


def partitions(key: str, where: str, task: data.Task) -> Callable[[Context], Report]:
    def make(context: Context) -> Report:
        made = [collect(task, (*RIVALS, *OURS), runs=context.runs, tick=context.tick, p=p) for p in PARTITIONS]
        found = [Found.of(summaries) for summaries in made]
        heading = f"{where}: {task.title}, {task.theta}, by number of partitions"
        plots.sweep(context.out / f"{key}.png", "partitions", PARTITIONS, [each.printed for each in found], heading)
        judged = [
            *claims.sweep(where, "number of partitions", PARTITIONS, found),
            *claims.falls_with_partitions(where, found),
        ]
        return Report(key, heading, _blocks("p", PARTITIONS, made), judged)

    return make


def windows(key: str, where: str, make_task: Callable[[int], data.Task]) -> Callable[[Context], Report]:
    def make(context: Context) -> Report:
        made = []
        for w in WINDOWS:
            # The work grows with the square of the window: fewer runs of the larger ones, and never one alone.
            runs = max(context.runs // (2 if w <= 2000 else 6), 2)
            made.append(collect(make_task(w), (*RIVALS, *OURS), runs=runs, tick=context.tick, w=w))
        found = [Found.of(summaries) for summaries in made]
        task = make_task(WINDOWS[0])
        heading = f"{where}: {task.title} ({', '.join(task.labels)}), {task.theta}, by window size"
        plots.sweep(context.out / f"{key}.png", "window size", WINDOWS, [each.printed for each in found], heading)
        judged = [
            *claims.sweep(where, "window size", WINDOWS, found),
            *claims.grows_with_window(where, WINDOWS, found),
        ]
        return Report(key, heading, _blocks("w", WINDOWS, made), judged)

    return make


def _blocks(name: str, values: Sequence[int], found: Sequence[Sequence[Summary]]) -> tuple[str, ...]:
    return tuple(f"{name} = {value:,}\n\n{rows(summaries)}" for value, summaries in zip(values, found, strict=True))


def _readings() -> list[tuple[int, int, str]]:
    """The text's own parameters first, then the others that the printed numbers suggest."""
    return [(p, w, f"p = {p}{'' if w == W else ' and nothing is repartitioned'}") for p in (10, 5) for w in (W, NEVER)]


def _streams(task: data.Task, runs: int) -> list[tuple]:
    return [task.streams(seed) for seed in range(1 if task.fixed else runs)]


def _reading_table(
    printed: float, readings: dict[str, float], ours: float, what: str = "Prefap does fewer than FTJ by"
) -> str:
    lines = [f"| reading of the text | {what} |", "| --- | --- |", f"| the paper prints | {printed} % |"]
    lines += [f"| {label} | {value:.2f} % |" for label, value in readings.items()]
    lines.append(f"| spans not rounded, p = {P} (ours) | {ours:.2f} % |")
    return "\n".join(lines)


FIGURES: dict[str, Callable[[Context], Report]] = {
    "5": two_way("5", 34.7),
    "6": two_way("6", 19.4),
    "7": two_way("7", 3.0),
    "8": two_way("8", 37.7),
    "9": three_way("9", 24.1, 0.026),
    "10": three_way("10", 7.7, 1.7),
    "12": partitions("fig12", "Figure 12", data.normal((1.2, 1.0), ">")),
    "13": partitions("fig13", "Figure 13", data.clouds("<=")),
    "14": windows("fig14", "Figure 14", lambda w: data.uniform(((0, 15), (5, 20)), (">",), w)),
    "15": windows("fig15", "Figure 15", lambda w: data.stock_windows(("FDX", "ADBE"), ">", w)),
}

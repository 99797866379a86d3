"""Figures 5 to 10 and 12 to 15: comparisons on streams, numbers of partitions, window sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import claims
import data
import numpy as np
from claims import percent
from measure import (
    NEVER,
    RIVALS,
    P,
    Summary,
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


@dataclass(frozen=True)
class Context:
    """Where the output goes, how many runs to make, and whom to tell that another run is done."""

    out: Path
    runs: int
    tick: Callable[[], None]


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


def two_way(key: str, where: str, task: data.Task, printed: float) -> Callable[[Context], Report]:
    def make(context: Context) -> Report:
        found = collect(task, RIVALS, runs=context.runs, tick=context.tick)
        heading = f"{where}: {task.title}, {task.theta}, p = {P}, w = {W}"
        own = automatic(task, runs=context.runs)
        plots.two_way(context.out / f"{key}.png", task, found, own, heading)
        readings = {}
        for p, w, label in _readings():
            values = [
                percent(*(count_two_way(variant, streams, task.ops[0], p, w) for variant in (PREFAP, FTJ)))
                for streams in _streams(task, context.runs)
            ]
            readings[label] = float(np.mean(values))
        judged = [
            claims.fewest_products(where, found),
            claims.reduction(where, printed, readings),
            claims.shortest_elapsed(where, found),
            *claims.better_balance(where, found),
        ]
        return Report(key, heading, (rows(found, own), _reading_table(printed, readings)), judged)

    return make


def three_way(
    key: str, where: str, task: data.Task, printed: float, printed_excess: float
) -> Callable[[Context], Report]:
    def make(context: Context) -> Report:
        # A three-way run does a hundred times the work of a two-way run.
        runs = max(context.runs // 6, 1)
        found = collect(task, RIVALS, runs=runs, tick=context.tick)
        heading = f"{where}: {task.title}, {task.theta}, p = {P}, w = {W}"
        own = automatic(task, runs=runs)
        plots.three_way(context.out / f"{key}.png", task, found, own, heading)
        readings, excess = {}, {}
        counts = [(label, count_three_way, p, w) for p, w, label in _readings()] + [
            (f"a second join per partition of S, p = {p}", count_per_partition, p, W) for p in (10, 5)
        ]
        for label, count, p, w in counts:
            pairs = [
                tuple(count(variant, streams, task.ops, p, w) for variant in (PREFAP, FTJ))
                for streams in _streams(task, runs)
            ]
            readings[label] = float(np.mean([percent(*pair) for pair in pairs]))
            excess[label] = 100.0 * (float(np.mean([pair[0] for pair in pairs])) / found[0].results - 1.0)
        judged = [
            claims.fewest_products(where, found),
            claims.reduction(where, printed, readings),
            claims.near(
                where,
                f"Prefap performs {printed_excess} % more products than results",
                printed_excess,
                excess,
                0.5,
            ),
            claims.shortest_elapsed(where, found),
        ]
        return Report(
            key,
            heading,
            (
                rows(found, own, balance=False),
                _reading_table(printed, readings),
                _reading_table(printed_excess, excess, "Prefap's products above the results"),
            ),
            judged,
        )

    return make


def partitions(key: str, where: str, task: data.Task) -> Callable[[Context], Report]:
    def make(context: Context) -> Report:
        found = [collect(task, RIVALS, runs=context.runs, tick=context.tick, p=p) for p in PARTITIONS]
        heading = f"{where}: {task.title}, {task.theta}, by number of partitions"
        plots.sweep(context.out / f"{key}.png", "partitions", PARTITIONS, found, heading)
        judged = [
            *claims.sweep(where, "number of partitions", PARTITIONS, found),
            *claims.falls_with_partitions(where, found),
        ]
        return Report(key, heading, _blocks("p", PARTITIONS, found), judged)

    return make


def windows(key: str, where: str, make_task: Callable[[int], data.Task]) -> Callable[[Context], Report]:
    def make(context: Context) -> Report:
        found = []
        for w in WINDOWS:
            # The work grows with the square of the window: fewer runs of the larger ones.
            runs = max(context.runs * 1000 // (w * 2), 1) if w > 2000 else max(context.runs // 2, 1)
            found.append(collect(make_task(w), RIVALS, runs=runs, tick=context.tick, w=w))
        task = make_task(WINDOWS[0])
        heading = f"{where}: {task.title} ({', '.join(task.labels)}), {task.theta}, by window size"
        plots.sweep(context.out / f"{key}.png", "window size", WINDOWS, found, heading)
        judged = [
            *claims.sweep(where, "window size", WINDOWS, found),
            *claims.grows_with_window(where, WINDOWS, found),
        ]
        return Report(key, heading, _blocks("w", WINDOWS, found), judged)

    return make


def _blocks(name: str, values: Sequence[int], found: Sequence[Sequence[Summary]]) -> tuple[str, ...]:
    return tuple(f"{name} = {value:,}\n\n{rows(summaries)}" for value, summaries in zip(values, found, strict=True))


def _readings() -> list[tuple[int, int, str]]:
    """The text's own parameters first, then the others that the printed numbers suggest."""
    return [
        (p, w, f"p = {p}, {'repartitioned' if w == W else 'not repartitioned'}") for p in (10, 5) for w in (W, NEVER)
    ]


def _streams(task: data.Task, runs: int) -> list[tuple]:
    return [task.streams(seed) for seed in range(1 if task.fixed else runs)]


def _reading_table(printed: float, readings: dict[str, float], what: str = "Prefap does fewer than FTJ by") -> str:
    lines = [f"| reading of the text | {what} |", "| --- | --- |", f"| the paper prints | {printed} % |"]
    lines += [f"| {label} | {value:.2f} % |" for label, value in readings.items()]
    return "\n".join(lines)


FIGURES: dict[str, Callable[[Context], Report]] = {
    "5": two_way("fig05", "Figure 5", data.uniform(((20, 50), (10, 40)), ("<=",)), 34.7),
    "6": two_way("fig06", "Figure 6", data.zipf((1.2, 1.3), "<="), 19.4),
    "7": two_way("fig07", "Figure 7", data.clouds(">="), 3.0),
    "8": two_way("fig08", "Figure 8", data.stocks("2-way stock streams", ("IBM", "MSFT"), ("<=",)), 37.7),
    "9": three_way("fig09", "Figure 9", data.uniform(((20, 50), (10, 40), (0, 30)), ("<", "<=")), 24.1, 0.026),
    "10": three_way(
        "fig10",
        "Figure 10",
        data.stocks("3-way stock streams", ("FB", "ADBE", "IBM"), (">=", "<")),
        7.7,
        1.7,
    ),
    "12": partitions("fig12", "Figure 12", data.normal((1.2, 1.0), ">")),
    "13": partitions("fig13", "Figure 13", data.clouds("<=")),
    "14": windows("fig14", "Figure 14", lambda w: data.uniform(((0, 15), (5, 20)), (">",), w)),
    "15": windows("fig15", "Figure 15", lambda w: data.stock_windows(("FDX", "ADBE"), ">", w)),
}

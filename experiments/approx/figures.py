"""Figures 4 to 9: what is run, drawn, tabulated and claimed for each; and what the options of the algorithms change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import claims
import data
import numpy as np
from data import Task
from measure import OURS, QUALITY, SETUPS, Outcome, Setup, outcome, speeds
from reproduce import Report

import plots

MEMORY = tuple(range(10, 101, 10))
SEEDS = 20
FEW_SEEDS = 3
TIMED = 100_000
"""Rows of both streams whose joins are timed: a scan of the weather's two million would take hours."""


@dataclass
class Context:
    """Where results go, how large the streams are, and what to call after each run."""

    out: Path
    scale: float
    tick: Callable[[], None]
    _cache: dict[tuple[str, str, int, int], Outcome] = field(default_factory=dict)
    _streams: dict[str, tuple[data.Values, data.Values]] = field(default_factory=dict)

    def streams(self, task: Task) -> tuple[data.Values, data.Values]:
        """The streams of a task, made once."""
        if task.title not in self._streams:
            self._streams[task.title] = task.streams(int(task.rows * self.scale), 7)
        return self._streams[task.title]

    def run(self, task: Task, label: str, percent: int, seed: int = 0) -> Outcome:
        """One algorithm at so many per cent of memory; figures share their runs."""
        key = (task.title, label, percent, seed)
        if key not in self._cache:
            self._cache[key] = self.measured(task, SETUPS[label], percent, seed)
        self.tick()
        return self._cache[key]

    def measured(self, task: Task, setup: Setup, percent: int, seed: int = 0) -> Outcome:
        """A setup at so many per cent of memory."""
        streams = self.streams(task)
        return outcome(streams, setup, sum(values.size for values in streams) * percent // 100, seed)


def approximation(number: int, task: Task) -> Callable[[Context], Report]:
    """Figures 4 and 6: histograms at 10 %, quantity and divergence by memory."""

    def make(context: Context) -> Report:
        found = {label: [context.run(task, label, percent) for percent in MEMORY] for label in SETUPS}
        first = {label: outcomes[0] for label, outcomes in found.items()}
        plots.histograms_and_memory(context.out / f"figure{number}.png", task.title, MEMORY, found)
        where = f"Figure {number}"
        rows = [[label, f"{one.share:.2f}", f"{one.js:.5f}", f"{one.mse:.6f}"] for label, one in first.items()]
        return Report(
            f"figure{number}",
            f"{where}: {task.title}, approximation",
            [table(["10 % memory", "results, %", "JS divergence", "MSE"], rows), *_by_memory(found, ".1f", ".5f")],
            [*claims.histograms(where, first), *claims.by_memory(where, MEMORY, found)],
        )

    return make


def progress(number: int, task: Task) -> Callable[[Context], Report]:
    """Figures 5 and 7: quantity and divergence over time at 10 %, and the throughput of the algorithms."""

    def make(context: Context) -> Report:
        found = {label: context.run(task, label, 10) for label in SETUPS}
        where = f"Figure {number}"
        streams = task.streams(int(TIMED * min(1.0, context.scale)), 7)
        fast = speeds(streams, SETUPS, sum(values.size for values in streams) // 10)
        seeds = {
            label: [context.run(task, label, 10, seed) for seed in range(FEW_SEEDS)]
            for label in SETUPS
            if label != "ARRPJ"
        }
        plots.over_time(context.out / f"figure{number}.png", task.title, found)
        moments = (0, 1, 4, 9, 14, 24, 49, 99)
        heads = [f"{at + 1} %" for at in moments]
        shares, all_rows, so_far = (
            [
                [label, *[f"{values(one)[at]:{form}}" for at in moments]]
                for label, one in found.items()
            ]
            for values, form in (
                (Outcome.shares, ".2f"),
                (Outcome.divergences, ".5f"),
                (lambda one: one.divergences(so_far=True), ".5f"),
            )
        )  # fmt: skip
        timed = [
            [label, f"{one.seconds:.2f}", f"{one.results:,}", f"{one.throughput / 1e6:.1f}", f"{one.comparisons:,}"]
            for label, one in fast.items()
        ]
        mean = {
            what: {label: float(np.mean([getattr(one, what) for one in many])) for label, many in seeds.items()}
            for what in ("js", "share")
        }
        judged = [
            *claims.over_time(where, found, rises_first=number == 7),
            *([claims.fewer_results(where, found)] if number == 5 else []),
            *claims.faster(where, fast, found),
            claims.not_sacrificed(where, mean["js"], mean["share"]),
        ]
        return Report(
            f"figure{number}",
            f"{where}: {task.title}, over time at 10 % memory",
            [
                table(["results in % after ... of the rows", *heads], shares),
                table(["divergence from the whole join", *heads], all_rows),
                table(["divergence from the join so far", *heads], so_far),
                table(["with every result written", "s", "results", "million results/s", "comparisons"], timed),
                f"Processor time, best of 3, of {streams[0].size + streams[1].size:,} rows.",
            ],
            judged,
        )

    return make


def figure_8(context: Context) -> Report:
    found = {label: [context.run(data.EXTREME, label, percent) for percent in MEMORY] for label in SETUPS}
    plots.by_memory(context.out / "figure8.png", data.EXTREME.title, MEMORY, found)
    # All depends on one row of each stream, so RAJ is an average over seeds.
    raj = {
        label: [
            float(np.mean([context.run(data.EXTREME, label, percent, seed).share for seed in range(SEEDS)]))
            for percent in MEMORY
        ]
        for label in ("RAJ", f"RAJ{OURS}")
    }
    tables = _by_memory(found, ".2f", ".6f")
    means = {f"{label}, mean of {SEEDS} seeds": [f"{v:.2f}" for v in values] for label, values in raj.items()}
    others = ("ARRPJ", "Prob", "ProbHash", "RAJHash")

    def complete(run):
        least = {label: min(one.share for one in found[run(label)]) for label in others}
        return "least: " + ", ".join(f"{label} {v:.2f} %" for label, v in least.items()), min(least.values()) == 100.0

    def some(run):
        values = raj[run("RAJ")][:-1]
        said = f"{min(values):.2f} to {max(values):.2f} % below full memory, mean of {SEEDS} seeds"
        return said, min(values) > 0 and max(values) < 100

    def exact(run):
        worst = {label: max(one.js for one in found[run(label)]) for label in others}
        return "largest: " + ", ".join(f"{label} {v:.6f}" for label, v in worst.items()), max(worst.values()) < 1e-6

    return Report(
        "figure8",
        "Figure 8: the extreme scenario",
        [tables[0], by_memory("results, %", means), tables[1]],
        [
            claims.judged("Figure 8", "All algorithms but RAJ produce 100 % of the results",
                          "at every memory", complete),
            claims.judged("Figure 8", "RAJ produces less than 100 %, but not nothing",
                          "at every memory below 100 %", some),
            claims.judged("Figure 8", "The divergence of all but RAJ is 0 (follows from the first)",
                          "at every memory", exact),
        ],
    )  # fmt: skip


def figure_9(context: Context) -> Report:
    found = {label: [context.run(data.SOFTER, label, percent) for percent in MEMORY] for label in SETUPS}
    plots.by_memory(context.out / "figure9.png", data.SOFTER.title, MEMORY, found)
    same = ("Prob", "ProbHash", "RAJ", "RAJHash")

    def equal(run):
        spread = [np.ptp([found[run(label)][at].share for label in same]) for at in range(len(MEMORY))]
        return f"largest difference {max(spread):.2f} points", max(spread) <= claims.SAME_POINTS

    def better(run):
        ratios = [
            min(found[run(label)][at].js for label in ("Prob", "ProbHash"))
            / max(max(found[run(label)][at].js for label in QUALITY), 1e-12)
            for at in range(len(MEMORY) - 1)
        ]
        return f"at least {min(ratios):.2f}, at most {max(ratios):.0f} times", min(ratios) >= claims.SIGNIFICANT

    return Report(
        "figure9",
        "Figure 9: the softer variant",
        _by_memory(found, ".2f", ".6f"),
        [
            claims.judged("Figure 9", "Prob, ProbHash, RAJ and RAJHash produce the same percentage of results",
                          f"within {claims.SAME_POINTS:.0f} points at every memory", equal),
            claims.judged("Figure 9", "RAJ and RAJHash have a significantly better quality than Prob and ProbHash",
                          f"{claims.SIGNIFICANT:.0f} times or more at every memory below 100 %", better),
        ],
    )  # fmt: skip


def options(context: Context) -> Report:
    """What the paper leaves open: how many partitions, how many rows leave at once, and which of equals."""
    parts, leave = (1, 4, 16, 64, 256, 1024), (1, 10, 100, 1000)
    setups = {f"ProbHash, p = {p}": Setup("prob_hash_printed", {"strata": p}) for p in parts}
    setups |= {f"RAJHash, k = {k}": Setup("raj_hash_printed", {"strata": k}) for k in parts}
    setups |= {f"DP_X({k})": Setup("prob_printed", {"discard": k}) for k in leave}
    setups["Prob, the oldest of equals"] = Setup("prob_printed", {"ties": "oldest"})
    setups["Prob, one queue for both"] = Setup("prob_printed", {"allocation": "variable"})
    rows = []
    for label, setup in setups.items():
        row = [label]
        for task in (data.SKEWED, data.WEATHER):
            one = context.measured(task, setup, 10)
            row += [
                f"{one.share:.2f}",
                f"{one.js:.5f}",
                f"{one.looked / sum(v.size for v in context.streams(task)):,.0f}",
            ]
            context.tick()
        rows.append(row)
    heads = [f"{task}: {what}" for task in ("zipf", "weather") for what in ("results, %", "divergence", "looked at")]
    plots.options(context.out / "options.png", parts, rows)
    return Report(
        "options",
        "What the paper leaves open, at 10 % memory",
        [table(["algorithm", *heads], rows), "*Looked at* counts the held rows that an arriving one is compared with."],
    )


def _by_memory(found: Mapping[str, Sequence[Outcome]], shares: str, divergences: str) -> list[str]:
    return [
        by_memory("results, %", {k: [f"{one.share:{shares}}" for one in v] for k, v in found.items()}),
        by_memory("JS divergence", {k: [f"{one.js:{divergences}}" for one in v] for k, v in found.items()}),
    ]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *[f"| {' | '.join(row)} |" for row in rows]]
    return "\n".join(lines)


def by_memory(what: str, found: Mapping[str, Sequence[str]]) -> str:
    return table([what, *[f"{percent} %" for percent in MEMORY]], [[label, *values] for label, values in found.items()])


FIGURES: dict[str, Callable[[Context], Report]] = {
    "4": approximation(4, data.SKEWED),
    "5": progress(5, data.SKEWED),
    "6": approximation(6, data.WEATHER),
    "7": progress(7, data.WEATHER),
    "8": figure_8,
    "9": figure_9,
    "options": options,
}

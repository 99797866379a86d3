"""Figures 4 to 9: what is run, drawn, tabulated and claimed for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import claims
import data
import numpy as np
from data import Task
from measure import POLICIES, QUALITY, Outcome, outcome, throughput
from reproduce import Claim, Report

import plots

MEMORY = tuple(range(10, 101, 10))
SEEDS = 20


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
        """One policy at so many per cent of memory; figures share their runs."""
        key = (task.title, label, percent, seed)
        if key not in self._cache:
            streams = self.streams(task)
            memory = sum(values.size for values in streams) * percent // 100
            self._cache[key] = outcome(streams, label, memory, seed)
        self.tick()
        return self._cache[key]


def approximation(number: int, task: Task) -> Callable[[Context], Report]:
    """Figures 4 and 6: histograms at 10 %, quantity and divergence by memory."""

    def make(context: Context) -> Report:
        found = {label: [context.run(task, label, percent) for percent in MEMORY] for label in POLICIES}
        first = {label: outcomes[0] for label, outcomes in found.items()}
        plots.histograms_and_memory(context.out / f"figure{number}.png", task.title, MEMORY, found)
        where = f"Figure {number}"
        rows = [
            [label, f"{one.share:.2f}", f"{one.js:.5f}", f"{one.mse:.6f}"] for label, one in first.items()
        ]  # fmt: skip
        return Report(
            f"figure{number}",
            f"{where}: {task.title}, approximation",
            [
                table(["10 % memory", "results, %", "JS divergence", "MSE"], rows),
                by_memory(
                    "results, %", {label: [f"{o.share:.1f}" for o in outcomes] for label, outcomes in found.items()}
                ),
                by_memory(
                    "JS divergence", {label: [f"{o.js:.5f}" for o in outcomes] for label, outcomes in found.items()}
                ),
            ],
            [claims.clearly_better(where, first), *claims.by_memory(where, MEMORY, found)],
        )

    return make


def progress(number: int, task: Task, sample: int) -> Callable[[Context], Report]:
    """Figures 5 and 7: quantity and divergence over time at 10 %, and the throughput of the algorithms."""

    def make(context: Context) -> Report:
        found = {label: context.run(task, label, 10) for label in POLICIES}
        where = f"Figure {number}"
        # Scans take time in proportion to memory, and every result is written: a part of the streams will do.
        part = tuple(values[: max(1000, int(sample * context.scale) // 2)] for values in context.streams(task))
        rates = {}
        for label in POLICIES:
            rates[label] = throughput(part, label, sum(values.size for values in part) // 10)
            context.tick()
        plots.over_time(context.out / f"figure{number}.png", task.title, found)
        last = len(found["RAJ"].counts) - 1
        moments = sorted({0, 1, 2, 4, last // 2, last})
        rows = [
            [label, *[f"{one.shares()[at]:.2f} / {one.js_at(at):.5f}" for at in moments], f"{rates[label]:,.0f}"]
            for label, one in found.items()
        ]
        heads = [f"{100 * (at + 1) // (last + 1)} % arrived" for at in moments]
        return Report(
            f"figure{number}",
            f"{where}: {task.title}, results in % / divergence over time at 10 % memory",
            [
                table(["algorithm", *heads, "rows/s"], rows),
                "Prob and RAJ scan; rows/s of processor time.",
            ],
            [*claims.over_time(where, found), *claims.faster(where, rates)],
        )

    return make


def figure_8(context: Context) -> Report:
    found = {label: [context.run(data.EXTREME, label, percent) for percent in MEMORY] for label in POLICIES}
    plots.by_memory(context.out / "figure8.png", data.EXTREME.title, MEMORY, found)
    least = {label: min(one.share for one in outcomes) for label, outcomes in found.items()}
    # All depends on one row of each stream, so RAJ is an average over seeds.
    raj = [
        np.mean([context.run(data.EXTREME, "RAJ", percent, seed).share for seed in range(SEEDS)]) for percent in MEMORY
    ]
    shares = {label: [f"{one.share:.2f}" for one in outcomes] for label, outcomes in found.items()}
    shares[f"RAJ, mean of {SEEDS} seeds"] = [f"{value:.2f}" for value in raj]
    ours = ", ".join(f"{label} {value:.2f} %" for label, value in least.items() if label != "RAJ")
    return Report(
        "figure8",
        "Figure 8: the extreme scenario",
        [by_memory("results, %", shares)],
        [
            Claim("Figure 8", "All algorithms but RAJ produce 100 % at every memory", f"least: {ours}",
                  all(value == 100.0 for label, value in least.items() if label != "RAJ")),
            Claim("Figure 8", "RAJ produces less than 100 %, but not nothing",
                  f"{min(raj):.2f} % to {max(raj[:-1]):.2f} % below full memory, mean of {SEEDS} seeds",
                  min(raj) > 0 and max(raj[:-1]) < 100),
        ],
    )  # fmt: skip


def figure_9(context: Context) -> Report:
    found = {label: [context.run(data.SOFTER, label, percent) for percent in MEMORY] for label in POLICIES}
    plots.by_memory(context.out / "figure9.png", data.SOFTER.title, MEMORY, found)
    same = ["Prob", "ProbHash", "RAJ", "RAJHash"]
    spread = [np.ptp([found[label][at].share for label in same]) for at in range(len(MEMORY))]
    js = {label: outcomes[0].js for label, outcomes in found.items()}
    better = all(
        max(found[label][at].js for label in QUALITY) < min(found[label][at].js for label in ("Prob", "ProbHash"))
        for at in range(len(MEMORY) - 1)
    )
    return Report(
        "figure9",
        "Figure 9: the softer variant",
        [
            by_memory("results, %", {label: [f"{o.share:.2f}" for o in outcomes] for label, outcomes in found.items()}),
            by_memory("JS divergence", {label: [f"{o.js:.6f}" for o in outcomes] for label, outcomes in found.items()}),
        ],
        [
            Claim("Figure 9", "Prob, ProbHash, RAJ and RAJHash produce the same percentage (within 2 points)",
                  f"largest difference {max(spread):.2f} points", max(spread) <= 2),
            Claim("Figure 9", "RAJ and RAJHash have a better quality at every memory below 100 %",
                  ", ".join(f"{label} {value:.6f}" for label, value in js.items()) + " at 10 %", better),
        ],
    )  # fmt: skip


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *[f"| {' | '.join(row)} |" for row in rows]]
    return "\n".join(lines)


def by_memory(what: str, found: Mapping[str, Sequence[str]]) -> str:
    return table([what, *[f"{percent} %" for percent in MEMORY]], [[label, *values] for label, values in found.items()])


FIGURES: dict[str, Callable[[Context], Report]] = {
    "4": approximation(4, data.SKEWED),
    "5": progress(5, data.SKEWED, 40_000),
    "6": approximation(6, data.WEATHER),
    "7": progress(7, data.WEATHER, 40_000),
    "8": figure_8,
    "9": figure_9,
}

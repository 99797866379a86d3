"""The charts of Figures 4 to 9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from measure import OURS, QUALITY, Outcome

COLOURS = {"ARRPJ": "#b5432f", "Prob": "#d9a441", "ProbHash": "#8a6d3b", "RAJ": "#3b6ea5", "RAJHash": "#3a8f6a"}
MARKS = {"ARRPJ": "s", "Prob": "^", "ProbHash": "v", "RAJ": "o", "RAJHash": "D"}
PRINTED = tuple(COLOURS)


def _line(axes, label: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Printed algorithms as lines, ours as dots of the same colour; other readings are in the tables alone."""
    name = label.removesuffix(OURS)
    if name in COLOURS:
        style = "-" if name == label else ":"
        axes.plot(x, y, style, color=COLOURS[name], marker=MARKS[name], ms=3.5, lw=1.2, label=label)


def _save(figure, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def histograms_and_memory(
    path: Path, title: str, memory: Sequence[int], found: Mapping[str, Sequence[Outcome]]
) -> None:
    """Normalised histograms at the least memory, then quantity and divergence by memory."""
    figure, grid = plt.subplots(2, 4, figsize=(15, 6.4), layout="constrained")
    complete = next(iter(found.values()))[0].complete
    order = np.argsort(-complete)[:60]
    bars = {"Exact": complete, **{label: found[label][0].counts.sum(axis=0) for label in PRINTED}}
    for axes, (label, counts) in zip(grid.flat, bars.items(), strict=False):
        axes.bar(np.arange(order.size), counts[order] / max(counts.sum(), 1), color=COLOURS.get(label, "#333333"))
        axes.set(
            title=f"{label}, {memory[0]} % memory" if label != "Exact" else "Exact", xlabel="join value, by frequency"
        )
    for label, outcomes in found.items():
        _line(grid.flat[6], label, memory, [one.share for one in outcomes])
        _line(grid.flat[7], label, memory, [max(one.js, 1e-9) for one in outcomes])
    grid.flat[6].set(title="quantity", xlabel="memory, %", ylabel="results, %")
    grid.flat[7].set(title="JS divergence", xlabel="memory, %", yscale="log")
    grid.flat[6].legend(fontsize=8)
    figure.suptitle(title)
    _save(figure, path)


def by_memory(path: Path, title: str, memory: Sequence[int], found: Mapping[str, Sequence[Outcome]]) -> None:
    """Quantity and divergence by memory."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for label, outcomes in found.items():
        _line(left, label, memory, [one.share for one in outcomes])
        _line(right, label, memory, [max(one.js, 1e-9) for one in outcomes])
    left.set(title="quantity", xlabel="memory, %", ylabel="results, %")
    right.set(title="JS divergence", xlabel="memory, %", yscale="log")
    left.legend(fontsize=8)
    figure.suptitle(title)
    _save(figure, path)


def over_time(path: Path, title: str, found: Mapping[str, Outcome]) -> None:
    """Quantity and divergence by the share of rows that have arrived, and one against the other."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    for label, one in found.items():
        x = 100 * (np.arange(len(one.counts)) + 1) / len(one.counts)
        shares, js = one.shares(), one.divergences()
        _line(axes[0], label, x, shares)
        _line(axes[1], label, x, js)
        if label.removesuffix(OURS) in QUALITY:
            _line(axes[2], label, x, js)
        _line(axes[3], label, shares, js)
    axes[0].set(title="quantity over time", xlabel="rows arrived, %", ylabel="results, %")
    axes[1].set(title="JS divergence over time", xlabel="rows arrived, %", yscale="log")
    axes[2].set(title="RAJ and RAJHash alone", xlabel="rows arrived, %")
    axes[3].set(title="quantity against quality", xlabel="results, %", ylabel="JS divergence", yscale="log")
    axes[0].legend(fontsize=7)
    figure.suptitle(f"{title}, 10 % memory")
    _save(figure, path)


def options(path: Path, parts: Sequence[int], rows: Sequence[Sequence[str]]) -> None:
    """Divergence and rows looked at by the number of partitions."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    for at, label in enumerate(("ProbHash", "RAJHash")):
        lines = rows[at * len(parts) : (at + 1) * len(parts)]
        for task in range(2):
            for what in range(2):
                values = [float(line[2 + 3 * task + what].replace(",", "")) for line in lines]
                _line(axes[2 * task + what], label, parts, values)
    for axis, title in zip(
        axes, ("zipf: divergence", "zipf: looked at", "weather: divergence", "weather: looked at"), strict=True
    ):
        axis.set(title=title, xlabel="partitions of each stream", xscale="log", yscale="log")
    axes[0].legend(fontsize=8)
    _save(figure, path)

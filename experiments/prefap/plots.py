"""The paper's charts: streams, products, elapsed time, load balance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from data import Task
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter
from measure import Summary

COLOURS = ("#c0392b", "#2c6fbb", "#5a9e6f", "#8e6bb0", "#b08d57", "#444444", "#777777")
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 130})


def bars(ax: Axes, labels: Sequence[str], heights: Sequence[float], title: str, line: float | None = None) -> None:
    drawn = ax.bar(labels, heights, color=COLOURS[: len(labels)])
    ax.bar_label(drawn, [_short(height) for height in heights], fontsize=7, padding=1)
    if line is not None:
        ax.axhline(line, color="red", linestyle=":", label=f"results: {_short(line)}")
        ax.legend(fontsize=7, loc="upper left")
    ax.margins(y=0.3 if line is not None else 0.12)
    if max(heights) >= 1000:
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_title(title, fontsize=9)


def _short(value: float) -> str:
    return EngFormatter(places=1, sep="")(value) if value >= 1000 else f"{value:.3g}"


def streams(ax: Axes, task: Task) -> None:
    for at, (name, label, values) in enumerate(zip("RST", task.labels, task.streams(0), strict=False)):
        ax.plot(values.positions, ".", markersize=1.5, color=COLOURS[at], label=f"{name}: {label}")
    if task.log_scale:
        ax.set_yscale("log")
    ax.margins(y=0.02)
    ax.set_ylim(top=ax.get_ylim()[1] * (1e6 if task.log_scale else 1.0) + _headroom(ax, task))
    ax.legend(fontsize=7, markerscale=5, loc="upper right", ncols=len(task.labels), columnspacing=0.8)
    ax.set_xlabel("row")
    ax.set_title(f"(A) streams, {task.theta}", fontsize=9)


def _headroom(ax: Axes, task: Task) -> float:
    """Room for the legend above the points."""
    low, high = ax.get_ylim()
    return 0.0 if task.log_scale else 0.18 * (high - low)


def ratios(ax: Axes, found: Sequence[Summary], title: str) -> None:
    at = np.arange(len(found))
    for shift, field, colour in ((-0.2, "ratio_in", COLOURS[1]), (0.2, "ratio_out", COLOURS[4])):
        heights = [getattr(summary, field) for summary in found]
        drawn = ax.bar(at + shift, heights, 0.38, color=colour, label=field.removeprefix("ratio_"))
        ax.bar_label(drawn, [f"{height:.2f}" for height in heights], fontsize=6, padding=1)
    ax.axhline(1.0, color="red", linestyle=":")
    ax.set_xticks(at, [summary.label for summary in found])
    ax.set_ylim(0.8, max(1.2, *(max(s.ratio_in, s.ratio_out) for s in found)) * 1.18)
    ax.legend(fontsize=7, loc="upper left", ncols=2)
    ax.set_title(title, fontsize=9)


def two_way(path: Path, task: Task, found: Sequence[Summary], own: Summary, heading: str) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
    labels = [summary.label for summary in found]
    streams(axes[0], task)
    bars(axes[1], labels, [s.products for s in found], "(B) Cartesian products", found[0].results)
    bars(axes[2], [*labels, own.label], [s.elapsed_ms for s in (*found, own)], "(C) elapsed, ms (median)")
    ratios(axes[3], found, "(D) load balancing ratio, 4 processes")
    _save(figure, path, heading)


def three_way(path: Path, task: Task, found: Sequence[Summary], own: Summary, heading: str) -> None:
    figure, axes = plt.subplots(1, 5, figsize=(18, 3.4), layout="constrained")
    labels = [summary.label for summary in found]
    near = [summary for summary in found if summary.label in ("Prefap", "FTJ")]
    streams(axes[0], task)
    bars(axes[1], labels, [s.products for s in found], "(B) Cartesian products", found[0].results)
    bars(axes[2], [s.label for s in near], [s.products for s in near], "(C) B, zoomed", found[0].results)
    axes[2].set_ylim(0.97 * found[0].results, 1.04 * max(s.products for s in near))
    bars(axes[3], [*labels, own.label], [s.elapsed_ms for s in (*found, own)], "(D) elapsed, ms (median)")
    bars(axes[4], [s.label for s in near], [s.elapsed_ms for s in near], "(E) D, zoomed")
    axes[4].set_ylim(bottom=0.7 * min(s.elapsed_ms for s in near))
    _save(figure, path, heading)


def spread(path: Path, found: Sequence[Summary], heading: str) -> None:
    """The join through the cluster: processor time, the largest task, the wall, the balance."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
    labels = [summary.label for summary in found]
    bars(axes[0], labels, [s.work_ms for s in found], "processor time of layout and workers, ms (median)")
    bars(axes[1], labels, [s.largest_ms for s in found], "processor time of the largest task, ms (median)")
    bars(axes[2], labels, [s.elapsed_ms for s in found], "elapsed on two shared cores, ms (median)")
    ratios(axes[3], found, "load balancing ratio, measured")
    _save(figure, path, heading)


def sweep(path: Path, name: str, values: Sequence[int], found: Sequence[Sequence[Summary]], heading: str) -> None:
    """Four panels over a parameter; `found` has a list of summaries for each value of it."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
    panels = (
        ("products", "(A) Cartesian products (dotted: results)"),
        ("elapsed_ms", "(B) elapsed, ms (median)"),
        ("ratio_in", "(C) load balancing ratio, in"),
        ("ratio_out", "(D) load balancing ratio, out"),
    )
    width = 0.8 / len(found[0])
    at = np.arange(len(values))
    for ax, (field, title) in zip(axes, panels, strict=True):
        for k in range(len(found[0])):
            heights = [getattr(summaries[k], field) for summaries in found]
            ax.bar(
                at + (k - (len(found[0]) - 1) / 2) * width,
                heights,
                width,
                color=COLOURS[k],
                label=found[0][k].label,
            )
        ax.set_xticks(at, [f"{value:,}" for value in values])
        ax.set_xlabel(name)
        ax.set_title(title, fontsize=9)
        if field.startswith("ratio"):
            ax.axhline(1.0, color="red", linestyle=":")
            ax.set_ylim(bottom=0.8)
        elif values[-1] >= 1000:
            ax.set_yscale("log")
        elif field == "products":
            ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    for x, summaries in zip(at, found, strict=True):
        axes[0].hlines(summaries[0].results, x - 0.45, x + 0.45, color="red", linestyle=":")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    _save(figure, path, heading)


def ablation(path: Path, found: Sequence[Summary], paper: Sequence[int], heading: str) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    labels = ["full", "no prefilter", "no amalgamation", "neither"]
    at = np.arange(len(labels))
    axes[0].bar(at - 0.2, paper, 0.38, color="#999999", label="paper")
    axes[0].bar(at + 0.2, [s.products for s in found], 0.38, color=COLOURS[0], label="measured")
    axes[0].axhline(found[0].results, color="red", linestyle=":", label="results")
    axes[0].set_xticks(at, labels)
    axes[0].set_ylim(0.9 * found[0].results, 1.04 * max(*paper, *(s.products for s in found)))
    axes[0].yaxis.set_major_formatter(EngFormatter(sep=""))
    axes[0].legend(fontsize=7, loc="upper left")
    axes[0].set_title("Cartesian products (axis cut)", fontsize=9)
    bars(axes[1], labels, [s.elapsed_ms for s in found], "elapsed, ms (median)")
    _save(figure, path, heading)


def significance(path: Path, panels: Sequence[tuple[str, Sequence[tuple[str, float, float]]]], heading: str) -> None:
    """Bars of -log10(p), paired and unpaired, cut at 40 where p is zero in floating point."""
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.6), layout="constrained")
    for ax, (title, tests) in zip(axes, panels, strict=True):
        at = np.arange(len(tests))
        for shift, column, colour, label in ((-0.2, 1, COLOURS[0], "paired"), (0.2, 2, COLOURS[1], "Welch")):
            heights = [min(-np.log10(max(test[column], 1e-300)), 40.0) for test in tests]
            drawn = ax.bar(at + shift, heights, 0.38, color=colour, label=label)
            ax.bar_label(drawn, [">= 40" if h >= 40 else f"{h:.1f}" for h in heights], fontsize=7, padding=1)
        ax.axhline(-np.log10(0.05), color="red", linestyle=":", label="p = 0.05")
        ax.set_xticks(at, [test[0] for test in tests])
        ax.margins(y=0.2)
        ax.set_title(title, fontsize=9)
    axes[0].set_ylabel("-log10(p), one-sided")
    axes[-1].legend(fontsize=7)
    _save(figure, path, heading)


def _save(figure, path: Path, heading: str) -> None:
    figure.suptitle(heading, fontsize=10)
    figure.savefig(path)
    plt.close(figure)

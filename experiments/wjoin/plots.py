"""The paper's charts: service time over the rows processed, or over the number of streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from measure import SLICE, Series

COLOURS = {
    "NLW-join": "#2c6fbb",
    "ripple join": "#b08d57",
    "MW-join": "#c0392b",
    "HW-join": "#5a9e6f",
    "XJoin": "#8e6bb0",
    "GCA": "#2c6fbb",
    "LCA": "#c0392b",
    "NLW-join along the path": "#2c6fbb",
    "GCA with NLW-join": "#7fa8d8",
    "LCA with NLW-join": "#e08a7f",
    "NLW-join, flat": "#7fa8d8",
    "ripple join, flat": "#d9c3a0",
    "NLW-join along the path, flat": "#7fa8d8",
}
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 130})


def over_rows(path: Path, panels: Sequence[tuple[str, Sequence[Series]]], heading: str, *, log: bool = False) -> None:
    """One panel for each title; a line for each series, dashed where rows come by time and others in turn."""
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), layout="constrained", squeeze=False)
    for ax, (title, lines) in zip(axes[0], panels, strict=True):
        orders = {line.order for line in lines}
        for line in lines:
            dashed = len(orders) > 1 and line.order == "by time" and line.label not in ("MW-join", "LCA", "GCA")
            name = f"{line.label}, {line.order}" if dashed else line.label
            at = (np.arange(len(line.service)) + 1) * SLICE / 1000
            ax.plot(at, line.service, "--" if dashed else "-", color=COLOURS[line.label], linewidth=1.1, label=name)
        if log:
            ax.set_yscale("log")
        else:
            ax.set_ylim(bottom=0)
        ax.set_xlabel("rows processed, thousands")
        ax.set_ylabel("service time per row, us")
        ax.legend(fontsize=7)
        ax.set_title(title, fontsize=9)
    _save(figure, path, heading)


def over_streams(path: Path, panels: Sequence[tuple[str, Mapping[int, Mapping[str, Series]]]], heading: str) -> None:
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), layout="constrained", squeeze=False)
    for ax, (title, found) in zip(axes[0], panels, strict=True):
        for label in next(iter(found.values())):
            ax.plot(list(found), [row[label].mean for row in found.values()], "o-", color=COLOURS[label], label=label)
        ax.set_yscale("log")
        ax.set_xticks(list(found))
        ax.set_xlabel("streams")
        ax.set_ylabel("service time per row, us")
        ax.legend(fontsize=7)
        ax.set_title(title, fontsize=9)
    _save(figure, path, heading)


def _save(figure, path: Path, heading: str) -> None:
    figure.suptitle(heading, fontsize=10)
    figure.savefig(path)
    plt.close(figure)

"""The paper's charts: curves over one parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

COLOURS = ("#2c6fbb", "#c0392b", "#5a9e6f", "#b08d57", "#8e6bb0")
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 130})

Panel = tuple[str, Sequence[float], Mapping[str, Sequence[float]]]


def lines(path: Path, panels: Sequence[Panel], across: str, up: str, heading: str, *, log: bool = False) -> None:
    """One panel for each title, one line for each curve."""
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), layout="constrained", squeeze=False)
    for ax, (title, at, curves) in zip(axes[0], panels, strict=True):
        for colour, (label, values) in zip(COLOURS, curves.items(), strict=False):
            ax.plot(at, values, "o-", color=colour, markersize=3, linewidth=1.2, label=label)
        if log:
            ax.set_yscale("log")
        ax.set_xlabel(across)
        ax.set_ylabel(up)
        ax.legend(fontsize=7)
        ax.set_title(title, fontsize=9)
    figure.suptitle(heading, fontsize=10)
    figure.savefig(path)
    plt.close(figure)

"""Draws shedding.svg: where one direction of a join looks under overload.  Run it: python docs/images/shedding.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from _paper import save, settings

INK, ROW, LOOK, HIT, QUIET = "#333333", "#3b6ea5", "#d9a441", "#b5432f", "#e4e4dc"
SLICES = 10
WINDOWS = {"window of A": (6.2, 0.9, range(5, 8)), "window of B": (3.4, 1.1, range(2, 5))}
"""For each window: the age of most matches, their spread, and the slices looked at."""


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    figure, axes = plt.subplots(figsize=(7.6, 3.3), layout="constrained")
    for height, (name, (middle, spread, chosen)) in zip((1.9, 0), WINDOWS.items(), strict=True):
        for k in range(SLICES):
            colour = LOOK if k in chosen else QUIET
            axes.add_patch(plt.Rectangle((-k - 1, height), 0.94, 0.42, color=colour, lw=0, zorder=1))
        ages = np.linspace(0, SLICES, 200)
        share = np.exp(-0.5 * ((ages - middle) / spread) ** 2)
        axes.plot(-ages, height + 0.5 + 0.75 * share, color=ROW, lw=1.3, zorder=3)
        axes.text(-SLICES - 0.25, height + 0.2, name, ha="right", va="center")
        axes.annotate(
            "",
            (-middle, height + 0.21),
            (0.35, 0.95),
            arrowprops={"arrowstyle": "->", "color": HIT, "lw": 1.3},
            zorder=4,
        )
    axes.plot(0.45, 0.95, "o", color=HIT, ms=9, zorder=5)
    axes.text(0.75, 0.95, "new row\nof C", color=HIT, ha="left", va="center", fontsize=9)
    axes.text(-1.3, 2.95, "where matches were found,\nlearned from one row in ten", color=ROW, fontsize=8, ha="center")
    axes.text(-3.5, -0.12, "slices looked at", color="#a8781d", fontsize=8, ha="center", va="top")
    axes.text(-SLICES, -0.12, "old", fontsize=8, ha="left", va="top")
    axes.text(0, -0.12, "young", fontsize=8, ha="right", va="top")
    axes.set(
        xlim=(-13, 2.2), ylim=(-0.5, 3.5), title="Harvesting: the same windows, a part of the work, most of the matches"
    )
    axes.axis("off")
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()

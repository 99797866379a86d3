"""Draws theta.svg: the points, boxes and cells of a theta join.  Run it from anywhere: python docs/images/theta.py."""

from __future__ import annotations

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from _paper import save, settings

INK, POINT, BOX, HIT = "#333333", "#3b6ea5", "#d9a441", "#b5432f"
BAND = 0.75


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    points = np.array([0.5, 1.0, 1.9, 2.7, 3.4, 3.8, 4.3, 4.7, 5.2, 5.6, 6.3, 7.1, 8.2, 9.0, 9.9, 11.2])
    centres = np.array([1.2, 2.7, 4.1, 5.4, 6.6, 8.5, 10.5])
    # Cells are cut at quantiles, so that all of them have the same work.
    cuts = np.quantile(points, [0.25, 0.5, 0.75])
    figure, axes = plt.subplots(figsize=(7.6, 3.5), layout="constrained")
    edges = [0, *cuts, 12]
    for at, (left, right) in enumerate(pairwise(edges)):
        axes.axvspan(left, right, color="#f1f1ec" if at % 2 == 0 else "#e4e4dc", zorder=0, lw=0)
        axes.text((left + right) / 2, -0.9, f"cell {at + 1}", ha="center", va="center", fontsize=9)
    for row, centre in enumerate(centres):
        low, high = centre - BAND, centre + BAND
        height = row + 1
        inside = points[(points >= low) & (points <= high)]
        axes.plot([low, high], [height, height], color=BOX, lw=7, solid_capstyle="butt", zorder=2)
        axes.plot(inside, np.full(inside.size, height), "o", color=HIT, ms=4.5, zorder=4)
        for cut in cuts:
            if low < cut < high:
                axes.plot([cut, cut], [height - 0.3, height + 0.3], color=INK, lw=1.2, zorder=3)
    axes.plot(points, np.zeros(points.size), "o", color=POINT, ms=5.5, zorder=4)
    axes.text(-0.2, 0, "R.x: points, each in one cell", ha="right", va="center")
    axes.text(-0.2, 4, "S.y ± e: boxes,\na copy in every cell\nthey touch", ha="right", va="center")
    axes.text(12.2, 4, "one run of the\nsorted points\nfor each box:\nthe matches", ha="left", va="center", color=HIT)
    axes.set(xlim=(0, 12), ylim=(-1.4, 7.7), title="ABS(R.x - S.y) <= e")
    axes.axis("off")
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
